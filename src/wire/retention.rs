//! What is kept, as it is configured.

use std::time::Duration;

use petasos_gateway::retention::disk::DiskLimits;
use petasos_gateway::retention::{Mode, Retention};

use crate::config::Settings;

pub(super) fn retention(settings: &Settings) -> Retention {
    let count = |key: &str| settings.count(key).unwrap_or_default();
    let days = |key: &str| Duration::from_secs(count(key) * 24 * 3600);
    let some_days = |key: &str| Some(days(key)).filter(|span| !span.is_zero());
    let mode = settings.text("retention.mode").and_then(|word| Mode::parse(&word)).unwrap_or_default();
    Retention {
        mode,
        every: Duration::from_secs(count("retention.every_seconds").max(1)),
        age: some_days("retention.max_age_days"),
        database: Some(count("retention.max_database_mb") << 20).filter(|bytes| *bytes > 0),
        notice: days("retention.notice_days"),
        archives: some_days("retention.archive_days"),
        topics: some_days("retention.topic_days"),
        disk: DiskLimits {
            percent: count("retention.disk_free_percent"),
            bytes: count("retention.disk_free_mb") << 20,
            days: count("retention.disk_full_days"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::from_texts;

    #[track_caller]
    fn wired(yaml: &str) -> Retention {
        let resolved = from_texts(yaml.as_bytes(), b"", []);
        assert!(!resolved.has_errors(), "{:?}", resolved.problems);
        retention(&resolved.settings)
    }

    #[test]
    fn defaults_are_those_of_the_gateway_and_every_key_counts() {
        assert_eq!(wired(""), Retention::default());
        let set = wired(
            "retention:\n  mode: delete\n  max_age_days: 1\n  max_database_mb: 2\n  notice_days: 0\n  archive_days: 3\n  \
             topic_days: 0\n  disk_free_percent: 4\n  disk_free_mb: 5\n  disk_full_days: 6\n  every_seconds: 7\n",
        );
        let day = Duration::from_secs(24 * 3600);
        let want = Retention {
            mode: Mode::Delete,
            every: Duration::from_secs(7),
            age: Some(day),
            database: Some(2 << 20),
            notice: Duration::ZERO,
            archives: Some(3 * day),
            topics: None,
            disk: DiskLimits { percent: 4, bytes: 5 << 20, days: 6 },
        };
        assert_eq!(set, want);
    }
}
