//! Whether the disk is about to be full. Pure but for asking the file system.

use std::path::Path;

/// When the owner is warned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskLimits {
    /// Less than this part of the disk is free.
    pub percent: u64,
    /// Less than this is free, whatever part that is.
    pub bytes: u64,
    /// Warn if the disk would be full within this many days at the current growth.
    pub days: u64,
}

impl Default for DiskLimits {
    fn default() -> Self {
        Self { percent: 10, bytes: 1 << 30, days: 14 }
    }
}

/// A large disk of which a tenth is free has room enough.
const PLENTY: u64 = 50 << 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Disk {
    pub(crate) free: u64,
    pub(crate) total: u64,
}

impl Disk {
    /// `None`: the file system does not say.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let found = rustix::fs::statvfs(path).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Some(Self { free: bytes(found.f_bavail), total: bytes(found.f_blocks) }).filter(|it| it.total > 0)
    }

    /// The warning for the owner, if any. `growth`: bytes per day.
    pub(crate) fn warning(self, growth: Option<i64>, limits: DiskLimits) -> Option<String> {
        let advice = "Make room: when it is full, no message can be accepted.";
        let free = self.free >> 20;
        if self.free < limits.bytes {
            return Some(format!("The disk is nearly full: {free} MB are free. {advice}"));
        }
        if self.free < PLENTY && self.free < self.total / 100 * limits.percent {
            let percent = self.free.saturating_mul(100) / self.total;
            return Some(format!("The disk is filling up: {free} MB ({percent} %) are free. {advice}"));
        }
        let growth = growth.and_then(|it| u64::try_from(it).ok()).filter(|it| *it > 0)?;
        let days = self.free / growth;
        (days < limits.days).then(|| {
            let daily = growth >> 20;
            format!("The disk will be full in about {days} days: the database grows by {daily} MB a day, {free} MB are free. {advice}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1 << 30;

    #[track_caller]
    fn check(free: u64, total: u64, growth: Option<i64>, want: Option<&str>) {
        let warning = Disk { free, total }.warning(growth, DiskLimits::default());
        match (&warning, want) {
            (None, None) => {}
            (Some(text), Some(want)) => assert!(text.contains(want), "{text}"),
            (_, _) => panic!("{free} of {total} free, growth {growth:?}: {warning:?}"),
        }
    }

    #[test]
    fn warns_long_before_the_disk_is_full() {
        check(20 * GB, 100 * GB, None, None);
        check(9 * GB, 100 * GB, None, Some("9 %"));
        check(60 * GB, 10_000 * GB, None, None);
        check(GB - 1, 2 * GB, None, Some("nearly full"));
        check(20 * GB, 100 * GB, Some(1 << 30), None);
        check(20 * GB, 100 * GB, Some(2 << 30), Some("10 days"));
        check(20 * GB, 100 * GB, Some(-(2 << 30)), None);
    }
}
