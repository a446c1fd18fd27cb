//! Slack.

use std::time::Duration;

use petasos_core::Secret;

use super::any;
use crate::key::{count, flag, keys, seconds, secret, text_or, wait};

const HERE: &str = "slack";

keys! {
    ENABLED: Option<bool> =
        any::ENABLED.on(HERE).help("connect to Slack; default: when there are both tokens");
    TOKEN: Option<Secret> = any::TOKEN.on(HERE).help(
        "the bot's token (xoxb-…) from api.slack.com/apps; several workspaces: one each, with commas",
    );
    APP_TOKEN: Option<Secret> = secret(
        "platforms.slack.app_token",
        "the app's token (xapp-…) with the scope connections:write",
    )
    .env(&["SLACK_APP_TOKEN"]);
    API_BASE: String = text_or(
        "platforms.slack.extra.api_base",
        "https://slack.com/api",
        "requests go to <api_base>/<method>; they say where the socket is opened",
    );
    REQUEST_TIMEOUT: Duration =
        seconds("platforms.slack.extra.request_timeout", 20.0, "timeout of a request in seconds");
    RECONNECT_BASE: Duration = seconds(
        "platforms.slack.extra.reconnect_base",
        1.0,
        "first wait after a lost connection; the others are multiples of it",
    );
    BACKFILL: bool = flag(
        "platforms.slack.extra.missed_message_backfill.enabled",
        true,
        "fetch messages that were written while the gateway was not connected",
    )
    .also(&["platforms.slack.extra.missed_message_backfill"]);
    BACKFILL_WINDOW: Duration = wait(
        "platforms.slack.extra.missed_message_backfill.window_seconds",
        21_600.0,
        "no older message is fetched",
    );
    BACKFILL_LIMIT: usize = count::<usize>(
        "platforms.slack.extra.missed_message_backfill.limit",
        0,
        10_000,
        100,
        "most messages of one round, all channels together; rounds follow until nothing is missing, 0: none",
    );
    PROXY: Option<Secret> = any::PROXY.on(HERE).env(&["SLACK_PROXY"]);
    REQUIRE_MENTION: bool = any::REQUIRE_MENTION
        .on(HERE)
        .or(true)
        .help("in channels, answer only when mentioned, or in a thread the bot takes part in");
    STRICT_MENTION: bool = any::STRICT_MENTION
        .on(HERE)
        .help("in such a thread only when mentioned, too")
        .env(&["SLACK_STRICT_MENTION"]);
    ALLOWED_CHANNELS: Vec<String> = any::ALLOWED_CHANNELS
        .on(HERE)
        .help("channels (ids) the bot answers in; empty: all")
        .env(&["SLACK_ALLOWED_CHANNELS"]);
    FREE_CHANNELS: Vec<String> = any::FREE_CHANNELS.on(HERE).env(&["SLACK_FREE_RESPONSE_CHANNELS"]);
    REPLY_IN_THREAD: bool = flag(
        "platforms.slack.extra.reply_in_thread",
        true,
        "every message begins a thread, which is a conversation of its own; false: one for the channel",
    );
    DM_THREADS: bool = flag(
        "platforms.slack.extra.dm_top_level_threads_as_sessions",
        true,
        "the same in direct messages",
    );
    REPLY_BROADCAST: bool = flag(
        "platforms.slack.extra.reply_broadcast",
        false,
        "show the first part of an answer in the channel, too",
    );
    TYPING: bool = any::TYPING.on(HERE);
    TYPING_TEXT: String =
        text_or("platforms.slack.typing_status_text", "is thinking...", "text that is shown while the agent is writing");
    REACTIONS: bool = any::REACTIONS
        .on(HERE)
        .or(true)
        .help("mark messages that mention the bot: eyes while working, then a check or a cross")
        .env(&["SLACK_REACTIONS"]);
}
