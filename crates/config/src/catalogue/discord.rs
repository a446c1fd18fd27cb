//! Discord.

use std::time::Duration;

use petasos_core::Secret;

use super::any;
use crate::choices::{CommandSync, ReplyMode};
use crate::key::{choice, count, flag, keys, list, seconds, text, text_or, wait};

const HERE: &str = "discord";

keys! {
    ENABLED: Option<bool> =
        any::ENABLED.on(HERE).help("connect to Discord [default: if a token is set]");
    TOKEN: Option<Secret> =
        any::TOKEN.on(HERE).help("bot token from discord.com/developers/applications");
    API_BASE: String = text_or(
        "platforms.discord.extra.api_base",
        "https://discord.com/api/v10",
        "base URL of the API; requests go to <api_base>/channels/…",
    );
    GATEWAY_URL: Option<String> =
        text("platforms.discord.extra.gateway_url", "URL of the gateway socket [default: provided by Discord]");
    REQUEST_TIMEOUT: Duration =
        seconds("platforms.discord.extra.request_timeout", 20.0, "timeout of a request, in seconds");
    RECONNECT_BASE: Duration = seconds(
        "platforms.discord.extra.reconnect_base",
        1.0,
        "seconds before the first reconnect; later waits are multiples of it",
    );
    LIVENESS_INTERVAL: Duration = wait(
        "platforms.discord.extra.websocket_liveness_interval_seconds",
        15.0,
        "seconds between health checks of an open socket (0 = no health checks)",
    );
    LIVENESS_FAILURES: u32 = count::<u32>(
        "platforms.discord.extra.websocket_liveness_failure_threshold",
        1,
        1000,
        2,
        "close a connection after this many failed health checks in a row",
    );
    ACK_AGE: Duration = wait(
        "platforms.discord.extra.websocket_heartbeat_ack_max_age_seconds",
        60.0,
        "a health check fails if the last acknowledged heartbeat is older than this many seconds (0 = no limit)",
    );
    LATENCY: Duration = wait(
        "platforms.discord.extra.websocket_max_latency_seconds",
        30.0,
        "a health check fails if a heartbeat acknowledgement takes longer than this many seconds (0 = no limit)",
    );
    BACKFILL: bool = flag(
        "platforms.discord.extra.missed_message_backfill.enabled",
        true,
        "fetch messages written while the gateway was not connected",
    )
    .env(&["DISCORD_MISSED_MESSAGE_BACKFILL"])
    .also(&["platforms.discord.extra.missed_message_backfill"]);
    BACKFILL_WINDOW: Duration = wait(
        "platforms.discord.extra.missed_message_backfill.window_seconds",
        21_600.0,
        "maximum age of fetched messages, in seconds",
    )
    .env(&["DISCORD_MISSED_MESSAGE_BACKFILL_WINDOW_SECONDS"]);
    BACKFILL_LIMIT: usize = count::<usize>(
        "platforms.discord.extra.missed_message_backfill.limit",
        0,
        10_000,
        100,
        "maximum messages per backfill request; repeated until none is missing (0 = no backfill)",
    )
    .env(&["DISCORD_MISSED_MESSAGE_BACKFILL_LIMIT"]);
    COMMAND_SYNC: CommandSync = choice::<CommandSync>(
        "platforms.discord.command_sync_policy",
        "safe",
        "register the command menu: safe (if it changed), bulk (at every start), off (never)",
    )
    .env(&["DISCORD_COMMAND_SYNC_POLICY"]);
    PROXY: Option<Secret> = any::PROXY.on(HERE).env(&["DISCORD_PROXY"]);
    REQUIRE_MENTION: bool =
        any::REQUIRE_MENTION.on(HERE).or(true).help("in servers, answer only if mentioned");
    THREAD_REQUIRE_MENTION: bool =
        any::THREAD_REQUIRE_MENTION.on(HERE).env(&["DISCORD_THREAD_REQUIRE_MENTION"]);
    IGNORE_NO_MENTION: bool =
        flag("platforms.discord.ignore_no_mention", true, "ignore messages that mention only others")
            .env(&["DISCORD_IGNORE_NO_MENTION"]);
    BOTS_INLINE_MENTION: bool =
        any::BOTS_INLINE_MENTION.on(HERE).env(&["DISCORD_BOTS_REQUIRE_INLINE_MENTION"]);
    ALLOWED_CHANNELS: Vec<String> = any::ALLOWED_CHANNELS
        .on(HERE)
        .help("channels (id or name of the channel or its parent) in which the bot answers (empty = all)")
        .env(&["DISCORD_ALLOWED_CHANNELS"]);
    IGNORED_CHANNELS: Vec<String> = any::IGNORED_CHANNELS.on(HERE).env(&["DISCORD_IGNORED_CHANNELS"]);
    FREE_CHANNELS: Vec<String> = any::FREE_CHANNELS.on(HERE).env(&["DISCORD_FREE_RESPONSE_CHANNELS"]);
    AUTO_THREAD: bool = flag("platforms.discord.auto_thread", true, "answer a mention in a new thread")
        .env(&["DISCORD_AUTO_THREAD"]);
    NO_THREAD_CHANNELS: Vec<String> =
        list("platforms.discord.no_thread_channels", "channels in which answers open no thread")
            .env(&["DISCORD_NO_THREAD_CHANNELS"]);
    REPLY_TO: ReplyMode = any::REPLY_TO.on(HERE).env(&["DISCORD_REPLY_TO_MODE"]);
    TYPING: bool = any::TYPING.on(HERE);
    ALLOWED_ROLES: Vec<String> = list(
        "platforms.discord.allowed_roles",
        "role ids whose members may talk to the agent in servers",
    )
    .env(&["DISCORD_ALLOWED_ROLES"]);
    REACTIONS: bool = any::REACTIONS
        .on(HERE)
        .or(true)
        .help("react to messages: 👀 while working, then ✅ or ❌")
        .env(&["DISCORD_REACTIONS"]);
}
