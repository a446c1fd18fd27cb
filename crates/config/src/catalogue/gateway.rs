//! The gateway: access, files, start and stop, connections, backups, and the control API.

use std::time::Duration;

use petasos_core::Secret;

use crate::choices::{CrashRecovery, Strangers};
use crate::key::{
    choice, count, flag, hours_or_never, keys, limit, list, maybe_count, seconds, seconds_or_never, secret,
    text, text_or, wait,
};

const MANY: i64 = i64::MAX;

keys! {
    WRITE_SESSIONS_JSON: bool =
        flag(
            "gateway.write_sessions_json",
            true,
            "write a copy of the session routing to sessions/sessions.json, for older tools",
        );
    STRANGERS: Strangers = choice::<Strangers>(
        "unauthorized_dm_behavior",
        "pair",
        "direct messages from unknown users: pair (reply with a pairing code), ignore",
    );
    ALLOWED_USERS: Vec<String> = list("gateway.allowed_users", "user ids that may talk to the agent on every platform")
        .env(&["GATEWAY_ALLOWED_USERS"]);
    ALLOW_ALL_USERS: bool = flag("gateway.allow_all_users", false, "let every user of every platform talk to the agent")
        .env(&["GATEWAY_ALLOW_ALL_USERS"]);
    MAX_INBOUND_MEDIA: u64 = count::<u64>(
        "gateway.max_inbound_media_bytes",
        0,
        MANY,
        134_217_728,
        "maximum size of a file in a message, in bytes; larger files are not fetched (0 = no limit)",
    );
    MAX_MEDIA_CACHE: u64 = count::<u64>(
        "gateway.max_media_cache_bytes",
        0,
        MANY,
        2_147_483_648,
        "maximum size of the cache of received files, in bytes; the oldest are deleted first (0 = no limit)",
    );
    STRICT: bool = flag(
        "gateway.strict",
        false,
        "even in turns of the owner, send only files from allowed directories or written in the last ten minutes",
    )
    .env(&["HERMES_MEDIA_DELIVERY_STRICT"]);
    MEDIA_DIRS: Vec<String> = list(
        "gateway.media_allow_dirs",
        "directories whose files the agent may send to any user, in addition to the workspace and received files",
    )
    .env(&["HERMES_MEDIA_ALLOW_DIRS"]);
    DRAIN_TIMEOUT: Duration =
        wait("agent.restart_drain_timeout", 60.0, "seconds that a stop waits for running turns")
            .env(&["HERMES_RESTART_DRAIN_TIMEOUT"])
            .file_first()
            .forgiving();
    CRASH_RECOVERY: CrashRecovery = choice::<CrashRecovery>(
        "gateway.crash_recovery",
        "journal",
        "after a crash: journal (resume interrupted turns), suspend (recent conversations start a new session), resume (mark them as interrupted)",
    );
    CONNECT_TIMEOUT: Duration = wait(
        "gateway.platform_connect_timeout",
        30.0,
        "timeout for opening a platform connection, in seconds (0 = no limit)",
    )
    .env(&["HERMES_GATEWAY_PLATFORM_CONNECT_TIMEOUT"])
    .forgiving();
    DISCONNECT_TIMEOUT: Duration = wait(
        "gateway.adapter_disconnect_timeout",
        5.0,
        "timeout for closing a platform connection, in seconds",
    )
    .env(&["HERMES_GATEWAY_ADAPTER_DISCONNECT_TIMEOUT"])
    .forgiving();
    RECONNECT_ATTEMPTS: Option<u32> = limit(
        "gateway.reconnect.max_attempts",
        1,
        1_000_000,
        20,
        "failed connection attempts in a row before the platform is only probed periodically (none = no limit)",
    );
    RECONNECT_PROBE: Duration =
        seconds("gateway.reconnect.park_probe_secs", 1800.0, "seconds between these probes");
    RECONNECT_JITTER: bool =
        flag("gateway.reconnect.jitter", true, "randomise the waits between attempts by up to 20 %");
    OUTAGE_NOTICE: Duration = seconds(
        "gateway.outage_notice_seconds",
        180.0,
        "notify the home channels when a platform is down for this many seconds",
    );
    DRAIN_MAX_AGE: Duration = seconds(
        "gateway.drain_max_age_seconds",
        3600.0,
        "ignore a drain marker not renewed for this many seconds (0 = never)",
    );
    LOOP_GUARD_RESTARTS: usize = count::<usize>(
        "gateway.restart_loop_guard.max_restarts",
        0,
        1_000_000,
        3,
        "starts after a crash, within window_seconds, after which interrupted turns are resumed one by one (0 = no limit)",
    )
    .forgiving();
    LOOP_GUARD_WINDOW: Duration =
        seconds(
            "gateway.restart_loop_guard.window_seconds",
            60.0,
            "seconds over which max_restarts counts",
        )
        .forgiving();
    LOOP_GUARD_STABLE: Duration = seconds(
        "gateway.restart_loop_guard.stable_seconds",
        10.0,
        "seconds that an interrupted turn must run before the next one is resumed",
    )
    .forgiving();
    STORM_STARTS: usize = count::<usize>(
        "gateway.respawn_storm.max_starts",
        0,
        1_000_000,
        5,
        "starts within window_seconds after which interrupted turns wait up to 30 seconds (0 = never)",
    )
    .env(&["HERMES_GATEWAY_MAX_STARTS"])
    .forgiving();
    STORM_WINDOW: Duration =
        seconds("gateway.respawn_storm.window_seconds", 120.0, "seconds over which max_starts counts")
            .env(&["HERMES_GATEWAY_START_WINDOW_S"])
            .forgiving();
    WATCHDOG: Option<Duration> = seconds_or_never(
        "gateway.systemd_watchdog_seconds",
        0.0,
        "let systemd restart a gateway that hangs for this many seconds (0 = never); run service install after a change",
    );
    BACKUP_EVERY: Option<Duration> = hours_or_never(
        "backup.schedule_hours",
        8760,
        0,
        "hours between automatic backups (0 = none)",
    );
    BACKUP_KEEP: usize =
        count::<usize>(
            "backup.keep",
            1,
            1000,
            7,
            "number of backups to keep in backup.directory; older ones are deleted",
        );
    BACKUP_DIRECTORY: Option<String> =
        text("backup.directory", "directory for backups [default: backups in the home]");
    MAX_SESSIONS: Option<usize> = maybe_count::<usize>(
        "max_concurrent_sessions",
        0,
        MANY,
        "maximum sessions that run a turn at the same time (0 = no limit)",
    );
    DRAIN_SECRET: Option<Secret> = secret(
        "dashboard.drain_auth.secret",
        "secret that authorises a drain over HTTP, and nothing else",
    )
    .env(&["HERMES_DASHBOARD_DRAIN_SECRET"]);
    DRAIN_SCOPE: String =
        text_or("dashboard.drain_auth.scope", "drain", "scope reported for the drain secret").verbatim();
    DRAIN_SECRET_CHARS: usize = count::<usize>(
        "dashboard.drain_auth.min_secret_chars",
        0,
        10_000,
        43,
        "minimum length of the drain secret, in characters",
    );
    SESSION_TOKEN: Option<Secret> =
        secret(
            "dashboard.session_token",
            "token that authorises use of the control API",
        )
        .env(&["HERMES_DASHBOARD_SESSION_TOKEN"]);
}
