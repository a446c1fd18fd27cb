//! Namespaces of an ordinary user: own processes, own network, own view of the mounts.
//!
//! The launcher enters them, makes every file system read-only apart from what the policy allows, and starts
//! itself once more as the first process of the new process namespace ([`init`]). That process mounts a `/proc`
//! of its own, restricts itself, starts the command and reaps what it leaves behind. When the command ends, the
//! first process ends, and the kernel ends everything else in the namespace.
//!
//! The launcher waits outside. It passes on the exit code, and it does not die with its parent.

pub(crate) mod init;
mod loopback;
mod mounts;

use std::ffi::OsStr;
use std::process::{Command, ExitStatus};

use nix::sched::CloneFlags;
use nix::sys::signal::{SigSet, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::{Error, Network, Policy, launcher};
pub(crate) use mounts::PRIVATE_DEVICES;

/// Enters the namespaces and runs `arguments`, a program and its arguments, in them.
pub(crate) fn run(
    policy: &Policy,
    json: &OsStr,
    arguments: &[impl AsRef<OsStr>],
) -> Result<ExitStatus, Error> {
    enter(policy)?;
    mounts::restrict(policy)?;
    keep_capability_for_init()?;
    // A group is told to end: its members get the time to do so, and this process the exit code.
    ended_by_group().thread_block().map_err(Error::nix("blocking signals"))?;
    let mut init = Command::new("/proc/self/exe");
    init.args([OsStr::new(launcher::SUBCOMMAND), OsStr::new(launcher::INIT), json]).args(arguments);
    let starting = |source| Error::System { what: "starting the first process", source };
    init.spawn().map_err(starting)?.wait().map_err(starting)
}

fn enter(policy: &Policy) -> Result<(), Error> {
    let user = rustix::process::geteuid();
    let group = rustix::process::getegid();
    let mut flags = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS;
    let isolated = policy.network == Network::None;
    flags.set(CloneFlags::CLONE_NEWNET, isolated);
    nix::sched::unshare(flags).map_err(Error::nix("namespaces"))?;
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("{0} {0} 1", user.as_raw()))?;
    write("/proc/self/gid_map", &format!("{0} {0} 1", group.as_raw()))?;
    if isolated { loopback::enable() } else { Ok(()) }
}

fn write(path: &'static str, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(|source| Error::System { what: path, source })
}

/// The first process mounts `/proc`, which needs a capability that execution would drop.
fn keep_capability_for_init() -> Result<(), Error> {
    let own = rustix::thread::capabilities(None).map_err(Error::system("capabilities"))?;
    let sets = CapabilitySets { inheritable: CapabilitySet::SYS_ADMIN, ..own };
    rustix::thread::set_capabilities(None, sets).map_err(Error::system("capabilities"))?;
    rustix::thread::configure_capability_in_ambient_set(CapabilitySet::SYS_ADMIN, true)
        .map_err(Error::system("capabilities"))
}

/// Signals that end a group or a terminal.
fn ended_by_group() -> SigSet {
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT].into_iter().collect()
}

/// Exit code of a process that was ended by a signal, as shells report it.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt as _;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
