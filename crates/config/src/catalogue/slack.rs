//! Slack.

use std::time::Duration;

use petasos_core::Secret;

use super::any;
use crate::key::{count, flag, keys, seconds, secret, text_or, wait};

const HERE: &str = "slack";

keys! {
    ENABLED: Option<bool> =
        any::ENABLED.on(HERE).help("connect to Slack [default: if both tokens are set]");
    TOKEN: Option<Secret> = any::TOKEN.on(HERE).help(
        "bot token (xoxb-…) from api.slack.com/apps; for several workspaces one token each, separated by commas",
    );
    APP_TOKEN: Option<Secret> = secret(
        "platforms.slack.app_token",
        "app token (xapp-…) with the scope connections:write",
    )
    .env(&["SLACK_APP_TOKEN"]);
    API_BASE: String = text_or(
        "platforms.slack.extra.api_base",
        "https://slack.com/api",
        "base URL of the API; requests go to <api_base>/<method>",
    );
    REQUEST_TIMEOUT: Duration =
        seconds("platforms.slack.extra.request_timeout", 20.0, "timeout of a request, in seconds");
    RECONNECT_BASE: Duration = seconds(
        "platforms.slack.extra.reconnect_base",
        1.0,
        "seconds before the first reconnect; later waits are multiples of it",
    );
    BACKFILL: bool = flag(
        "platforms.slack.extra.missed_message_backfill.enabled",
        true,
        "fetch messages written while the gateway was not connected",
    )
    .also(&["platforms.slack.extra.missed_message_backfill"]);
    BACKFILL_WINDOW: Duration = wait(
        "platforms.slack.extra.missed_message_backfill.window_seconds",
        21_600.0,
        "maximum age of fetched messages, in seconds",
    );
    BACKFILL_LIMIT: usize = count::<usize>(
        "platforms.slack.extra.missed_message_backfill.limit",
        0,
        10_000,
        100,
        "maximum messages per backfill round over all channels; repeated until none is missing (0 = no backfill)",
    );
    PROXY: Option<Secret> = any::PROXY.on(HERE).env(&["SLACK_PROXY"]);
    REQUIRE_MENTION: bool = any::REQUIRE_MENTION
        .on(HERE)
        .or(true)
        .help("in channels, answer only if mentioned, or in a thread in which the bot takes part");
    STRICT_MENTION: bool = any::STRICT_MENTION
        .on(HERE)
        .help("answer only if mentioned, even in a thread in which the bot takes part")
        .env(&["SLACK_STRICT_MENTION"]);
    ALLOWED_CHANNELS: Vec<String> = any::ALLOWED_CHANNELS
        .on(HERE)
        .help("channel ids in which the bot answers (empty = all)")
        .env(&["SLACK_ALLOWED_CHANNELS"]);
    FREE_CHANNELS: Vec<String> = any::FREE_CHANNELS.on(HERE).env(&["SLACK_FREE_RESPONSE_CHANNELS"]);
    REPLY_IN_THREAD: bool = flag(
        "platforms.slack.extra.reply_in_thread",
        true,
        "answer each message in its own thread and conversation; false: one conversation per channel",
    );
    DM_THREADS: bool = flag(
        "platforms.slack.extra.dm_top_level_threads_as_sessions",
        true,
        "answer each direct message in its own thread and conversation; false: one conversation",
    );
    REPLY_BROADCAST: bool = flag(
        "platforms.slack.extra.reply_broadcast",
        false,
        "also show the first part of an answer in the channel",
    );
    TYPING: bool = any::TYPING.on(HERE);
    TYPING_TEXT: String =
        text_or("platforms.slack.typing_status_text", "is thinking...", "text shown while the agent is writing");
    REACTIONS: bool = any::REACTIONS
        .on(HERE)
        .or(true)
        .help("react to messages that mention the bot: eyes while working, then a check or a cross")
        .env(&["SLACK_REACTIONS"]);
}
