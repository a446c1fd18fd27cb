//! Conversations: reset, busy behaviour, streaming, retention and disk warnings.

use std::time::Duration;

use crate::choices::{BusyInput, ResetMode, RetentionMode, StreamingTransport};
use crate::key::{choice, count, days, days_or_never, flag, keys, list_or, seconds, text_or, whole_seconds};

const MEGABYTES: i64 = 100_000_000;

keys! {
    RESET_MODE: ResetMode =
        choice::<ResetMode>(
            "session_reset.mode",
            "none",
            "automatic reset of a conversation: none, idle (after inactivity), daily, both",
        );
    RESET_IDLE_MINUTES: u32 = count::<u32>(
        "session_reset.idle_minutes",
        1,
        5_256_000,
        1440,
        "minutes of inactivity before a reset, in the modes idle and both",
    )
    .env(&["SESSION_IDLE_MINUTES"])
    .forgiving();
    RESET_HOUR: u8 = count::<u8>(
        "session_reset.at_hour",
        0,
        23,
        4,
        "hour of the day (0 to 23) of the reset, in the modes daily and both",
    )
    .env(&["SESSION_RESET_HOUR"])
    .forgiving();
    RESET_NOTIFY: bool = flag("session_reset.notify", true, "notify the chat of an automatic reset");
    RESET_QUIET: Vec<String> = list_or(
        "session_reset.notify_exclude_platforms",
        &["api_server", "webhook"],
        "platforms whose chats are not notified",
    );
    GROUP_PER_USER: bool =
        flag("group_sessions_per_user", true, "in a group, give each user a separate conversation");
    THREAD_PER_USER: bool =
        flag("thread_sessions_per_user", false, "in a thread, give each user a separate conversation");
    BUSY_INPUT: BusyInput =
        choice::<BusyInput>(
            "display.busy_input_mode",
            "interrupt",
            "a message during a running turn: interrupt it, queue the message, or steer the turn with it",
        )
            .env(&["HERMES_GATEWAY_BUSY_INPUT_MODE"])
            .file_first()
            .forgiving();
    BUSY_ACK: bool = flag("display.busy_ack_enabled", true, "acknowledge a message that arrives during a turn")
        .env(&["HERMES_GATEWAY_BUSY_ACK_ENABLED"])
        .file_first();
    STREAMING: bool = flag(
        "streaming.enabled",
        false,
        "show answers while they are generated, if the platform supports it",
    );
    STREAMING_TRANSPORT: StreamingTransport = choice::<StreamingTransport>(
        "streaming.transport",
        "auto",
        "how streamed answers are shown: auto and draft (as a draft where supported, else by edits), edit, off (only when finished)",
    )
    .also(&["streaming.mode"]);
    STREAMING_INTERVAL: Duration =
        seconds("streaming.edit_interval", 0.8, "minimum seconds between two edits of a streamed answer");
    STREAMING_CURSOR: String =
        text_or("streaming.cursor", " ▉", "text at the end of an unfinished answer").verbatim();
    FILTER_SILENCE: bool = flag(
        "filter_silence_narration",
        true,
        "drop notifications that only state that there is nothing to report",
    )
    .env(&["HERMES_FILTER_SILENCE_NARRATION"]);
    RETENTION_MODE: RetentionMode = choice::<RetentionMode>(
        "retention.mode",
        "archive",
        "unused conversations: archive (as files in <home>/archive), delete, keep",
    );
    RETENTION_AGE: Option<Duration> = days_or_never(
        "retention.max_age_days",
        180,
        "archive or delete a conversation after this many days without use (0 = never because of its age)",
    );
    RETENTION_DATABASE_MB: u64 = count::<u64>(
        "retention.max_database_mb",
        0,
        MEGABYTES,
        4096,
        "maximum database size in megabytes; above it unused conversations are archived or deleted earlier (0 = no limit)",
    );
    RETENTION_NOTICE: Duration = days(
        "retention.notice_days",
        0,
        7,
        "notify the owner this many days before the first conversation is archived or deleted",
    );
    RETENTION_EVERY: Duration =
        whole_seconds("retention.every_seconds", 1, 86_400, 300, "seconds between checks for old conversations");
    RETENTION_ARCHIVES: Option<Duration> = days_or_never(
        "retention.archive_days",
        0,
        "delete archived conversations after this many days (0 = never)",
    );
    RETENTION_TOPICS: Option<Duration> = days_or_never(
        "retention.topic_days",
        365,
        "forget topics created by name after this many days without use (0 = never)",
    );
    RETENTION_CACHE: Duration = days(
        "retention.cache_days",
        1,
        1,
        "delete cached files after this many days, unless a waiting message needs them",
    );
    DISK_FREE_PERCENT: u64 = count::<u64>(
        "retention.disk_free_percent",
        0,
        100,
        10,
        "warn the owner if less than this percentage of the disk is free, and less than 50 GB",
    );
    DISK_FREE_MB: u64 = count::<u64>(
        "retention.disk_free_mb",
        0,
        MEGABYTES,
        1024,
        "warn the owner if less than this many megabytes of the disk are free",
    );
    DISK_FULL_DAYS: u64 = count::<u64>(
        "retention.disk_full_days",
        0,
        36_500,
        14,
        "warn the owner if the database will fill the disk within this many days at its current growth",
    );
}
