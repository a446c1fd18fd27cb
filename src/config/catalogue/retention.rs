//! What is kept, and for how long.

use super::Key;
use super::Kind::{Choice, Count};

const fn key(path: &'static str, kind: super::Kind, default: &'static str, help: &'static str) -> Key {
    Key::new(path, kind, default, help)
}

const DAYS: super::Kind = Count(0, 36_500);
const MEGABYTES: super::Kind = Count(0, 100_000_000);

pub(super) const KEYS: &[Key] = &[
    key(
        "retention.mode",
        Choice(&["archive", "delete", "keep"]),
        "archive",
        "old conversations that nobody uses: archive them as files in <home>/archive, delete them, or keep them",
    ),
    key(
        "retention.max_age_days",
        DAYS,
        "180",
        "archive or delete a conversation after this many days without use (0 = never for its age)",
    ),
    key(
        "retention.max_database_mb",
        MEGABYTES,
        "4096",
        "above this size archive or delete unused conversations earlier, ended and unbound ones first (0 = no limit)",
    ),
    key(
        "retention.notice_days",
        DAYS,
        "7",
        "tell the owner this many days before the first conversation is archived or deleted",
    ),
    key("retention.every_seconds", Count(1, 86_400), "300", "look for old conversations this often"),
    key(
        "retention.archive_days",
        DAYS,
        "0",
        "delete archived conversations after this many days (0 = never)",
    ),
    key(
        "retention.topic_days",
        DAYS,
        "365",
        "forget topics made by name after this many days without use (0 = never)",
    ),
    key(
        "retention.cache_days",
        Count(1, 36_500),
        "1",
        "delete files of the cache after this many days, unless a message waits for them",
    ),
    key(
        "retention.disk_free_percent",
        Count(0, 100),
        "10",
        "warn the owner when less than this part of a disk with less than 50 GB left is free",
    ),
    key(
        "retention.disk_free_mb",
        MEGABYTES,
        "1024",
        "warn the owner when less than this is free on the disk",
    ),
    key(
        "retention.disk_full_days",
        DAYS,
        "14",
        "warn the owner when the database would fill the disk within this many days",
    ),
];
