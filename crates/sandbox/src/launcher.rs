//! The launcher: applies a policy to its own process and becomes the command.
//!
//! It must be called first thing in `main`: the layers apply to one thread.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use crate::{Error, Policy, Support, filesystem, namespaces, privileges, syscalls};

/// First argument of a program that is started as the launcher.
pub const SUBCOMMAND: &str = "sandbox-exec";
/// Arguments instead of a policy: restrict yourself without a command, be the first process of a namespace,
/// check whether you are in namespaces.
pub(crate) const TRIAL: &str = "--trial";
pub(crate) const INIT: &str = "--init";
pub(crate) const CHECK: &str = "--check";
/// Prefix of the message on standard error if the policy cannot be applied.
pub const FAILED: &str = "petasos: the command did not run, because its sandbox could not be set up";

/// As in env(1): the launcher failed, the command cannot be executed, the command was not found.
const LAUNCHER_FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Command line of the launcher, apart from its program: to be followed by the command and its arguments.
pub fn arguments(policy: &Policy) -> Result<[OsString; 2], Error> {
    Ok([SUBCOMMAND.into(), serde_json::to_string(policy)?.into()])
}

/// Returns if the command was not started, or has ended. `arguments`: those after [`SUBCOMMAND`].
pub fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let first = arguments.next().unwrap_or_default();
    let done = match first.to_str() {
        Some(TRIAL) => trial(),
        Some(CHECK) => Support::check_namespaces().map(|()| ExitCode::SUCCESS),
        Some(INIT) => init(arguments),
        Some(_) | None => confine(&first, arguments),
    };
    done.unwrap_or_else(|error| {
        eprintln!("{FAILED}: {error}");
        ExitCode::from(LAUNCHER_FAILED)
    })
}

fn trial() -> Result<ExitCode, Error> {
    let support = Support::of_this_process()?;
    println!("{}", serde_json::to_string(&support)?);
    Ok(ExitCode::SUCCESS)
}

fn confine(json: &OsStr, arguments: impl Iterator<Item = OsString>) -> Result<ExitCode, Error> {
    let policy: Policy = serde_json::from_slice(json.as_encoded_bytes())?;
    let arguments: Vec<OsString> = arguments.collect();
    let mut command = command(arguments.iter())?;
    privileges::close_inherited_files()?;
    if policy.layers.namespaces {
        let ended = namespaces::run(&policy, json, &arguments)?;
        return Ok(ExitCode::from(namespaces::exit_code(ended)));
    }
    if !policy.protected.is_empty() {
        return Err(Error::Protected);
    }
    restrict(&policy)?;
    let error = command.exec();
    Ok(not_started(&command, &error))
}

/// The part of the launcher that runs in the namespaces.
fn init(mut arguments: impl Iterator<Item = OsString>) -> Result<ExitCode, Error> {
    let json = arguments.next().ok_or(Error::NoCommand)?;
    let policy: Policy = serde_json::from_slice(json.as_encoded_bytes())?;
    let command = command(arguments)?;
    let name = Command::new(command.get_program());
    Ok(match namespaces::init::run(&policy, command)? {
        Ok(ended) => ExitCode::from(namespaces::exit_code(ended)),
        Err(error) => not_started(&name, &error),
    })
}

fn command(mut arguments: impl Iterator<Item = impl AsRef<OsStr>>) -> Result<Command, Error> {
    let mut command = Command::new(arguments.next().ok_or(Error::NoCommand)?);
    command.args(arguments);
    Ok(command)
}

fn not_started(command: &Command, error: &io::Error) -> ExitCode {
    eprintln!("{}: {error}", command.get_program().display());
    let missing = error.kind() == io::ErrorKind::NotFound;
    ExitCode::from(if missing { NOT_FOUND } else { NOT_EXECUTABLE })
}

/// Restricts the calling thread, in the order in which one layer does not hinder the next.
pub(crate) fn restrict(policy: &Policy) -> Result<(), Error> {
    // In a namespace already, so that its processes are counted alone.
    privileges::limit_resources(policy)?;
    privileges::forbid_new_ones()?;
    if policy.layers.landlock > 0 {
        filesystem::restrict(policy)?;
    }
    privileges::drop_capabilities()?;
    if policy.layers.seccomp {
        syscalls::restrict(policy)?;
    }
    Ok(())
}
