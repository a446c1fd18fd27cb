//! Warnings before the disk is full.

use std::path::Path;

use crate::notices::storage as notices;

/// Thresholds for the owner's warning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskLimits {
    /// Warn below this percentage of free space.
    pub percent: u64,
    /// Warn below this many free bytes.
    pub bytes: u64,
    /// Warn if the disk would be full within this many days at the current growth.
    pub days: u64,
}

impl Default for DiskLimits {
    fn default() -> Self {
        Self { percent: 10, bytes: 1 << 30, days: 14 }
    }
}

/// No percentage warning above this much free space.
const ENOUGH_FREE: u64 = 50 << 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DiskSpace {
    pub(crate) free: u64,
    pub(crate) total: u64,
}

impl DiskSpace {
    /// `None`: unknown.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let found = rustix::fs::statvfs(path).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Some(Self { free: bytes(found.f_bavail), total: bytes(found.f_blocks) }).filter(|it| it.total > 0)
    }

    /// The warning for the owner, if any. `growth`: bytes per day.
    pub(crate) fn warning(self, growth: Option<i64>, limits: DiskLimits) -> Option<String> {
        let free = self.free >> 20;
        if self.free < limits.bytes {
            return Some(notices::disk_nearly_full(free));
        }
        if self.free < ENOUGH_FREE && self.free < self.total / 100 * limits.percent {
            let percent = self.free.saturating_mul(100) / self.total;
            return Some(notices::disk_filling_up(free, percent));
        }
        let growth = growth.and_then(|it| u64::try_from(it).ok()).filter(|it| *it > 0)?;
        let days = self.free / growth;
        (days < limits.days).then(|| notices::disk_full_in(days, growth >> 20, free))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1 << 30;

    #[track_caller]
    fn check(free: u64, total: u64, growth: Option<i64>, want: Option<&str>) {
        let warning = DiskSpace { free, total }.warning(growth, DiskLimits::default());
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
