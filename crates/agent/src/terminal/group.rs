//! Process groups: ending one, and telling a process from a later one with the same pid.

use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::process::Child;

pub(super) const GRACE: Duration = Duration::from_secs(1);

/// A child that leads a process group. Dropping it ends the group.
#[derive(Debug)]
pub struct GroupLeader {
    /// `None` once reaped.
    child: Option<Child>,
    pid: u32,
}

impl GroupLeader {
    pub fn new(child: Child) -> Self {
        let pid = child.id().unwrap_or_default();
        Self { child: Some(child), pid }
    }

    /// Waits for the leader only; other members of the group may continue.
    pub async fn wait(&mut self) -> Option<i32> {
        let status = self.child.as_mut()?.wait().await;
        self.child = None;
        status.ok().map(exit_code)
    }

    /// Sends SIGTERM to the group, then SIGKILL: after `grace`, or once the leader has ended.
    pub async fn terminate(&mut self, grace: Duration) {
        signal(self.pid, Signal::TERM);
        if tokio::time::timeout(grace, self.wait()).await.is_err() {
            signal(self.pid, Signal::KILL);
            self.wait().await;
            return;
        }
        // Members that ignored SIGTERM.
        signal(self.pid, Signal::KILL);
    }
}

impl Drop for GroupLeader {
    fn drop(&mut self) {
        let Some(child) = self.child.take() else { return };
        signal(self.pid, Signal::TERM);
        let termination = GroupTermination(Self { child: Some(child), pid: self.pid });
        match tokio::runtime::Handle::try_current() {
            Ok(_runtime) => drop(petasos_runtime::spawn(termination.run())),
            // There is no runtime to wait in.
            Err(_) => drop(termination),
        }
    }
}

/// Ends a group whose owner was dropped. Dropping this future sends SIGKILL at once.
struct GroupTermination(GroupLeader);

impl GroupTermination {
    async fn run(mut self) {
        self.0.terminate(GRACE).await;
    }
}

impl Drop for GroupTermination {
    fn drop(&mut self) {
        if self.0.child.take().is_some() {
            signal(self.0.pid, Signal::KILL);
        }
    }
}

pub(super) fn signal(leader: u32, signal: Signal) {
    let leader = i32::try_from(leader).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw);
    if let Some(leader) = leader {
        // Fails only if the group is gone or its members changed their user.
        let _ = rustix::process::kill_process_group(leader, signal);
    }
}

/// The exit code, or the negated signal number.
pub(super) fn exit_code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status.code().or_else(|| status.signal().map(|signal| -signal)).unwrap_or(-1)
}

/// Start time of a process: boot id and clock ticks. Together with the pid it is unique.
pub(super) fn start_time(pid: u32) -> Option<String> {
    let stat = std::fs::read(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The process name in field 2 may contain anything, so fields are counted after it.
    let (_, fields) = stat.rsplit_once(')')?;
    let ticks = fields.split_whitespace().nth(19)?;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(format!("{}:{ticks}", boot.trim()))
}
