//! The first process of a process namespace.

use std::ffi::CStr;
use std::io;
use std::process::{Command, ExitStatus};

use rustix::io::Errno;
use rustix::mount::MountFlags;
use rustix::process::{DumpableBehavior, WaitOptions};

use crate::{Error, Policy, launcher};

/// Restricts itself, runs the command and reaps all descendants until the command ends.
pub(crate) fn run(policy: &Policy, mut command: Command) -> Result<io::Result<ExitStatus>, Error> {
    super::ended_by_group().thread_unblock().map_err(Error::nix("signals"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("proc", "/proc", "proc", flags, None::<&CStr>)
        .map_err(Error::system("mounting /proc"))?;
    launcher::restrict(policy)?;
    // Its executable was opened before the mounts became read-only; the command must not reach it through /proc.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(Error::system("dumpable"))?;
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(Err(error)),
    };
    reap_until(child.id()).map(Ok)
}

fn reap_until(command: u32) -> Result<ExitStatus, Error> {
    loop {
        let (pid, status) = match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some(ended)) => ended,
            Ok(None) | Err(Errno::INTR) => continue,
            Err(errno) => return Err(Error::system("waiting for the command")(errno)),
        };
        if u32::try_from(pid.as_raw_nonzero().get()) == Ok(command) {
            use std::os::unix::process::ExitStatusExt as _;
            return Ok(ExitStatus::from_raw(status.as_raw()));
        }
    }
}
