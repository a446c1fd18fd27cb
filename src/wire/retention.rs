//! Retention settings.

use petasos_config::choices::RetentionMode;
use petasos_config::{Settings, keys::sessions};
use petasos_gateway::retention::disk::DiskLimits;
use petasos_gateway::retention::{Retention, RetentionAction};

pub(super) fn retention(settings: &Settings) -> Retention {
    Retention {
        mode: match settings.get(&sessions::RETENTION_MODE) {
            RetentionMode::Archive => RetentionAction::Archive,
            RetentionMode::Delete => RetentionAction::Delete,
            RetentionMode::Keep => RetentionAction::Keep,
        },
        every: settings.get(&sessions::RETENTION_EVERY),
        age: settings.get(&sessions::RETENTION_AGE),
        database: Some(settings.get(&sessions::RETENTION_DATABASE_MB) << 20).filter(|bytes| *bytes > 0),
        notice: settings.get(&sessions::RETENTION_NOTICE),
        archives: settings.get(&sessions::RETENTION_ARCHIVES),
        topics: settings.get(&sessions::RETENTION_TOPICS),
        disk: DiskLimits {
            percent: settings.get(&sessions::DISK_FREE_PERCENT),
            bytes: settings.get(&sessions::DISK_FREE_MB) << 20,
            days: settings.get(&sessions::DISK_FULL_DAYS),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use petasos_config::from_texts;

    use super::*;

    #[track_caller]
    fn wired(yaml: &str) -> Retention {
        let resolved = from_texts(yaml.as_bytes(), b"", []);
        assert!(!resolved.has_errors(), "{:?}", resolved.problems);
        retention(&resolved.settings)
    }

    #[test]
    fn every_key_is_wired_and_defaults_match_the_gateway() {
        assert_eq!(wired(""), Retention::default());
        let set = wired(
            "retention:\n  mode: delete\n  max_age_days: 1\n  max_database_mb: 2\n  notice_days: 0\n  archive_days: 3\n  \
             topic_days: 0\n  disk_free_percent: 4\n  disk_free_mb: 5\n  disk_full_days: 6\n  every_seconds: 7\n",
        );
        let day = Duration::from_secs(24 * 3600);
        let want = Retention {
            mode: RetentionAction::Delete,
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
