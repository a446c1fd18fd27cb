//! Memory and CPU time of a process, from /proc.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

/// A gateway process that is killed on drop.
pub(super) struct GatewayProcess(pub(super) Child);

impl Deref for GatewayProcess {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for GatewayProcess {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

pub(super) fn end(gateway: &mut Child) {
    let _ = gateway.kill();
    let _ = gateway.wait();
}

/// Resident memory in KiB.
pub(super) fn rss(pid: u32) -> u64 {
    memory(pid, "VmRSS:")
}

/// Peak resident memory in KiB.
pub(super) fn peak(pid: u32) -> u64 {
    memory(pid, "VmHWM:")
}

fn memory(pid: u32, which: &str) -> u64 {
    let status =
        std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status")).expect("alive");
    let line = status.lines().find(|line| line.starts_with(which)).expect("a line");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

/// CPU time of all threads, in steps of 10 ms.
pub(super) fn cpu(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).expect("alive");
    let (_, fields) = stat.rsplit_once(')').expect("a stat line");
    let ticks =
        |at: usize| fields.split_whitespace().nth(at).and_then(|it| it.parse::<u64>().ok()).expect("ticks");
    Duration::from_millis((ticks(11) + ticks(12)) * 10)
}
