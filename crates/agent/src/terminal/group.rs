//! Process groups: how one is ended, and how a process is told from another that got its number later.

use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::process::Child;

/// What a program gets between the request to end and the end.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// A child that leads a group. Dropping it ends the whole group.
#[derive(Debug)]
pub struct Leader {
    /// `None` once it has been waited for.
    child: Option<Child>,
    pid: u32,
}

impl Leader {
    pub fn new(child: Child) -> Self {
        let pid = child.id().unwrap_or_default();
        Self { child: Some(child), pid }
    }

    /// Waits for the leader; others of the group may go on.
    pub async fn wait(&mut self) -> Option<i32> {
        let status = self.child.as_mut()?.wait().await;
        self.child = None;
        status.ok().map(code)
    }

    /// Ends the group: asked first, then made to.
    pub async fn end(&mut self, grace: Duration) {
        signal(self.pid, Signal::TERM);
        if tokio::time::timeout(grace, self.wait()).await.is_err() {
            signal(self.pid, Signal::KILL);
            self.wait().await;
            return;
        }
        // Those that did not listen.
        signal(self.pid, Signal::KILL);
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        let Some(child) = self.child.take() else { return };
        signal(self.pid, Signal::TERM);
        let end = End(Self { child: Some(child), pid: self.pid });
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(end.run())),
            // Nobody is there to wait for it.
            Err(_) => drop(end),
        }
    }
}

/// The end of a group whose owner has gone. Dropped half way, it does not wait any longer.
struct End(Leader);

impl End {
    async fn run(mut self) {
        self.0.end(GRACE).await;
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if self.0.child.take().is_some() {
            signal(self.0.pid, Signal::KILL);
        }
    }
}

/// To every member of the group. One that is gone needs none.
pub(super) fn signal(leader: u32, signal: Signal) {
    let leader = i32::try_from(leader).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw);
    if let Some(leader) = leader {
        // Fails only if nobody is left, or with programs that changed their user; those are not ours to end.
        let _ = rustix::process::kill_process_group(leader, signal);
    }
}

/// An exit code; a signal's number below zero.
pub(super) fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status.code().or_else(|| status.signal().map(|signal| -signal)).unwrap_or(-1)
}

/// When a process was born, as nobody else with its number can be: the boot, and the ticks since then.
pub(super) fn born(pid: u32) -> Option<String> {
    let stat = std::fs::read(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The name in field 2 may hold anything, so counting starts behind it.
    let (_, behind) = stat.rsplit_once(')')?;
    let ticks = behind.split_whitespace().nth(19)?;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(format!("{}:{ticks}", boot.trim()))
}
