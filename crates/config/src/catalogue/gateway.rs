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
        flag("gateway.write_sessions_json", true, "keep a copy of the routing table for older tools");
    STRANGERS: Strangers = choice::<Strangers>(
        "unauthorized_dm_behavior",
        "pair",
        "what a stranger gets who writes directly: a pairing code, or silence",
    );
    ALLOWED_USERS: Vec<String> = list("gateway.allowed_users", "people who may talk to the agent on every platform")
        .env(&["GATEWAY_ALLOWED_USERS"]);
    ALLOW_ALL_USERS: bool = flag("gateway.allow_all_users", false, "anybody may, on every platform")
        .env(&["GATEWAY_ALLOW_ALL_USERS"]);
    MAX_INBOUND_MEDIA: u64 = count::<u64>(
        "gateway.max_inbound_media_bytes",
        0,
        MANY,
        134_217_728,
        "largest file to fetch from a message (0 = no limit)",
    );
    MAX_MEDIA_CACHE: u64 = count::<u64>(
        "gateway.max_media_cache_bytes",
        0,
        MANY,
        2_147_483_648,
        "size of the cache of received files above which the oldest are deleted (0 = no limit)",
    );
    STRICT: bool = flag(
        "gateway.strict",
        false,
        "also in turns of the owner, send only files from allowed directories and those written in the last ten minutes",
    )
    .env(&["HERMES_MEDIA_DELIVERY_STRICT"]);
    MEDIA_DIRS: Vec<String> = list(
        "gateway.media_allow_dirs",
        "directories whose files answers may carry to everyone; the workspace and received files always may",
    )
    .env(&["HERMES_MEDIA_ALLOW_DIRS"]);
    DRAIN_TIMEOUT: Duration =
        wait("agent.restart_drain_timeout", 60.0, "seconds a stop waits for running turns")
            .env(&["HERMES_RESTART_DRAIN_TIMEOUT"])
            .file_first()
            .forgiving();
    CRASH_RECOVERY: CrashRecovery = choice::<CrashRecovery>(
        "gateway.crash_recovery",
        "journal",
        "what happens to conversations that a crash interrupted",
    );
    CONNECT_TIMEOUT: Duration = wait(
        "gateway.platform_connect_timeout",
        30.0,
        "seconds a connection may take to open (0 = no limit)",
    )
    .env(&["HERMES_GATEWAY_PLATFORM_CONNECT_TIMEOUT"])
    .forgiving();
    DISCONNECT_TIMEOUT: Duration = wait(
        "gateway.adapter_disconnect_timeout",
        5.0,
        "seconds a connection may take to close before it is abandoned",
    )
    .env(&["HERMES_GATEWAY_ADAPTER_DISCONNECT_TIMEOUT"])
    .forgiving();
    RECONNECT_ATTEMPTS: Option<u32> = limit(
        "gateway.reconnect.max_attempts",
        1,
        1_000_000,
        20,
        "failed attempts in a row before a platform is only probed now and then; none for no such limit",
    );
    RECONNECT_PROBE: Duration =
        seconds("gateway.reconnect.park_probe_secs", 1800.0, "seconds between two such probes");
    RECONNECT_JITTER: bool =
        flag("gateway.reconnect.jitter", true, "vary the waits before attempts at random, by up to a fifth");
    OUTAGE_NOTICE: Duration = seconds(
        "gateway.outage_notice_seconds",
        180.0,
        "tell the home channels of a platform that is down this many seconds",
    );
    DRAIN_MAX_AGE: Duration = seconds(
        "gateway.drain_max_age_seconds",
        3600.0,
        "ignore a drain marker that was not renewed for this many seconds (0 = never)",
    );
    LOOP_GUARD_RESTARTS: usize = count::<usize>(
        "gateway.restart_loop_guard.max_restarts",
        0,
        1_000_000,
        3,
        "starts after a crash after which interrupted turns are resumed one by one; 0 = starts are not counted",
    )
    .forgiving();
    LOOP_GUARD_WINDOW: Duration =
        seconds("gateway.restart_loop_guard.window_seconds", 60.0, "seconds in which they must fall").forgiving();
    LOOP_GUARD_STABLE: Duration = seconds(
        "gateway.restart_loop_guard.stable_seconds",
        10.0,
        "seconds an interrupted turn must run before the next one is resumed",
    )
    .forgiving();
    STORM_STARTS: usize = count::<usize>(
        "gateway.respawn_storm.max_starts",
        0,
        1_000_000,
        5,
        "starts in a row after which interrupted turns wait up to 30 s; 0 = never",
    )
    .env(&["HERMES_GATEWAY_MAX_STARTS"])
    .forgiving();
    STORM_WINDOW: Duration =
        seconds("gateway.respawn_storm.window_seconds", 120.0, "seconds in which they must fall")
            .env(&["HERMES_GATEWAY_START_WINDOW_S"])
            .forgiving();
    WATCHDOG: Option<Duration> = seconds_or_never(
        "gateway.systemd_watchdog_seconds",
        0.0,
        "let systemd restart a gateway that hangs for this many seconds (0 = never); needs service install again",
    );
    BACKUP_EVERY: Option<Duration> = hours_or_never(
        "backup.schedule_hours",
        8760,
        0,
        "hours between backups the gateway makes by itself (0 = none)",
    );
    BACKUP_KEEP: usize =
        count::<usize>("backup.keep", 1, 1000, 7, "backups to keep in backup.directory; older ones are removed");
    BACKUP_DIRECTORY: Option<String> =
        text("backup.directory", "directory for backups [default: backups in the home]");
    MAX_SESSIONS: Option<usize> = maybe_count::<usize>(
        "max_concurrent_sessions",
        0,
        MANY,
        "sessions that may run a turn at the same time (0 = no limit)",
    );
    DRAIN_SECRET: Option<Secret> = secret(
        "dashboard.drain_auth.secret",
        "lets its holder drain the gateway over HTTP, and nothing else",
    )
    .env(&["HERMES_DASHBOARD_DRAIN_SECRET"]);
    DRAIN_SCOPE: String =
        text_or("dashboard.drain_auth.scope", "drain", "scope that is reported for that secret").verbatim();
    DRAIN_SECRET_CHARS: usize = count::<usize>(
        "dashboard.drain_auth.min_secret_chars",
        0,
        10_000,
        43,
        "a shorter secret is not accepted",
    );
    SESSION_TOKEN: Option<Secret> =
        secret("dashboard.session_token", "lets its holder use the control API").env(&["HERMES_DASHBOARD_SESSION_TOKEN"]);
}
