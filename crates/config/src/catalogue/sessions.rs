//! Conversations: when they start afresh, what a message does to a running turn, how answers are shown, and retention.

use std::time::Duration;

use crate::choices::{BusyInput, ResetMode, RetentionMode, StreamingTransport};
use crate::key::{choice, count, days, days_or_never, flag, keys, list_or, seconds, text_or, whole_seconds};

const MEGABYTES: i64 = 100_000_000;

keys! {
    RESET_MODE: ResetMode =
        choice::<ResetMode>("session_reset.mode", "none", "when a conversation starts afresh by itself");
    RESET_IDLE_MINUTES: u32 = count::<u32>(
        "session_reset.idle_minutes",
        1,
        5_256_000,
        1440,
        "idle minutes after which it does, in the modes idle and both",
    )
    .env(&["SESSION_IDLE_MINUTES"])
    .forgiving();
    RESET_HOUR: u8 = count::<u8>(
        "session_reset.at_hour",
        0,
        23,
        4,
        "hour of the day at which it does, in the modes daily and both",
    )
    .env(&["SESSION_RESET_HOUR"])
    .forgiving();
    RESET_NOTIFY: bool = flag("session_reset.notify", true, "tell the chat");
    RESET_QUIET: Vec<String> = list_or(
        "session_reset.notify_exclude_platforms",
        &["api_server", "webhook"],
        "platforms whose chats are not told",
    );
    GROUP_PER_USER: bool =
        flag("group_sessions_per_user", true, "in a group, everyone has a conversation of their own");
    THREAD_PER_USER: bool =
        flag("thread_sessions_per_user", false, "in a thread, everyone has a conversation of their own");
    BUSY_INPUT: BusyInput =
        choice::<BusyInput>("display.busy_input_mode", "interrupt", "what a message does to a turn that is running")
            .env(&["HERMES_GATEWAY_BUSY_INPUT_MODE"])
            .file_first()
            .forgiving();
    BUSY_ACK: bool = flag("display.busy_ack_enabled", true, "acknowledge such a message in the chat")
        .env(&["HERMES_GATEWAY_BUSY_ACK_ENABLED"])
        .file_first();
    STREAMING: bool = flag("streaming.enabled", false, "show answers while they grow, where the platform can");
    STREAMING_TRANSPORT: StreamingTransport = choice::<StreamingTransport>(
        "streaming.transport",
        "auto",
        "auto and draft: as a draft in private chats where the platform has them, else by edits; off: only when finished",
    )
    .also(&["streaming.mode"]);
    STREAMING_INTERVAL: Duration =
        seconds("streaming.edit_interval", 0.8, "least number of seconds between two edits");
    STREAMING_CURSOR: String =
        text_or("streaming.cursor", " ▉", "shown at the end of a growing answer").verbatim();
    FILTER_SILENCE: bool = flag(
        "filter_silence_narration",
        true,
        "drop unrequested messages that only say that there is nothing to say",
    )
    .env(&["HERMES_FILTER_SILENCE_NARRATION"]);
    RETENTION_MODE: RetentionMode = choice::<RetentionMode>(
        "retention.mode",
        "archive",
        "unused conversations: archive them as files in <home>/archive, delete them, or keep them",
    );
    RETENTION_AGE: Option<Duration> = days_or_never(
        "retention.max_age_days",
        180,
        "archive or delete a conversation after this many days without use (0 = never for its age)",
    );
    RETENTION_DATABASE_MB: u64 = count::<u64>(
        "retention.max_database_mb",
        0,
        MEGABYTES,
        4096,
        "above this size archive or delete unused conversations earlier, ended and unbound ones first (0 = no limit)",
    );
    RETENTION_NOTICE: Duration = days(
        "retention.notice_days",
        0,
        7,
        "tell the owner this many days before the first conversation is archived or deleted",
    );
    RETENTION_EVERY: Duration =
        whole_seconds("retention.every_seconds", 1, 86_400, 300, "look for old conversations this often");
    RETENTION_ARCHIVES: Option<Duration> = days_or_never(
        "retention.archive_days",
        0,
        "delete archived conversations after this many days (0 = never)",
    );
    RETENTION_TOPICS: Option<Duration> = days_or_never(
        "retention.topic_days",
        365,
        "forget topics made by name after this many days without use (0 = never)",
    );
    RETENTION_CACHE: Duration = days(
        "retention.cache_days",
        1,
        1,
        "delete files of the cache after this many days, unless a message waits for them",
    );
    DISK_FREE_PERCENT: u64 = count::<u64>(
        "retention.disk_free_percent",
        0,
        100,
        10,
        "warn the owner when less than this part of a disk with less than 50 GB left is free",
    );
    DISK_FREE_MB: u64 = count::<u64>(
        "retention.disk_free_mb",
        0,
        MEGABYTES,
        1024,
        "warn the owner when less than this is free on the disk",
    );
    DISK_FULL_DAYS: u64 = count::<u64>(
        "retention.disk_full_days",
        0,
        36_500,
        14,
        "warn the owner when the database would fill the disk within this many days",
    );
}
