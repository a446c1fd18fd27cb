//! Telegram.

use std::time::Duration;

use petasos_core::Secret;

use super::any;
use crate::choices::{ReplyMode, TelegramNotifications};
use crate::key::{choice, count, flag, keys, list, seconds, secret, text, text_or};

const HERE: &str = "telegram";

keys! {
    ENABLED: Option<bool> =
        any::ENABLED.on(HERE).help("connect to Telegram [default: if a token is set]");
    TOKEN: Option<Secret> = any::TOKEN.on(HERE).help("bot token from @BotFather");
    BASE_URL: String = text_or(
        "platforms.telegram.extra.base_url",
        "https://api.telegram.org/bot",
        "base URL of the API; requests go to <base_url><token>/<method>",
    );
    BASE_FILE_URL: Option<String> = text(
        "platforms.telegram.extra.base_file_url",
        "base URL of files; they are fetched from <base_file_url><token>/<path> [default: derived from base_url]",
    );
    POLL_TIMEOUT: Duration = seconds(
        "platforms.telegram.extra.poll_timeout",
        50.0,
        "seconds that the server may hold a long poll without updates",
    );
    POLL_BACKOFF: Duration = seconds(
        "platforms.telegram.extra.poll_backoff_base",
        5.0,
        "seconds before the first retry of a failed poll; later waits are multiples of it",
    );
    REQUEST_TIMEOUT: Duration =
        seconds("platforms.telegram.extra.request_timeout", 20.0, "timeout of all other requests, in seconds");
    NOTIFICATIONS: TelegramNotifications =
        choice::<TelegramNotifications>(
            "platforms.telegram.notifications",
            "important",
            "messages that make a sound: important, all",
        )
            .env(&["HERMES_TELEGRAM_NOTIFICATIONS"]);
    PROXY: Option<Secret> = any::PROXY.on(HERE).env(&["TELEGRAM_PROXY"]);
    WEBHOOK_URL: Option<String> =
        text("platforms.telegram.webhook_url", "URL that Telegram calls (empty = use polling)")
            .env(&["TELEGRAM_WEBHOOK_URL"]);
    WEBHOOK_SECRET: Option<Secret> =
        secret("platforms.telegram.webhook_secret", "secret of Telegram's calls; required if webhook_url is set")
            .env(&["TELEGRAM_WEBHOOK_SECRET"]);
    WEBHOOK_HOST: String =
        text_or("platforms.telegram.webhook_host", "127.0.0.1", "address to listen on for Telegram's calls")
            .env(&["TELEGRAM_WEBHOOK_HOST"]);
    WEBHOOK_PORT: u16 =
        count::<u16>("platforms.telegram.webhook_port", 1, 65_535, 8443, "port to listen on for Telegram's calls")
            .env(&["TELEGRAM_WEBHOOK_PORT"]);
    REQUIRE_MENTION: bool = any::REQUIRE_MENTION.on(HERE);
    MENTION_PATTERNS: Vec<String> = any::MENTION_PATTERNS
        .on(HERE)
        .help("additional regular expressions that count as addressing the bot")
        .env(&["TELEGRAM_MENTION_PATTERNS"]);
    EXCLUSIVE_MENTIONS: bool = flag(
        "platforms.telegram.exclusive_bot_mentions",
        true,
        "ignore messages that mention only other bots",
    )
    .env(&["TELEGRAM_EXCLUSIVE_BOT_MENTIONS"]);
    GUEST_MODE: bool = flag(
        "platforms.telegram.guest_mode",
        false,
        "answer explicit mentions even in chats outside allowed_chats",
    )
    .env(&["TELEGRAM_GUEST_MODE"]);
    FREE_CHATS: Vec<String> = any::FREE_CHATS
        .on(HERE)
        .help("groups in which the bot answers without a mention")
        .env(&["TELEGRAM_FREE_RESPONSE_CHATS"]);
    FREE_TOPICS: Vec<String> = list(
        "platforms.telegram.free_response_topics",
        "topics (chat:thread) in which the bot answers without a mention",
    )
    .env(&["TELEGRAM_FREE_RESPONSE_TOPICS"]);
    ALLOWED_CHATS: Vec<String> = any::ALLOWED_CHATS.on(HERE).env(&["TELEGRAM_ALLOWED_CHATS"]);
    ALLOWED_TOPICS: Vec<String> = any::ALLOWED_TOPICS.on(HERE).env(&["TELEGRAM_ALLOWED_TOPICS"]);
    CRON_THREAD: Option<String> = text(
        "platforms.telegram.cron_thread_id",
        "topic of the home channel (id or name) for messages of scheduled jobs",
    )
    .env(&["TELEGRAM_CRON_THREAD_ID"]);
    IGNORED_THREADS: Vec<String> = any::IGNORED_THREADS.on(HERE).env(&["TELEGRAM_IGNORED_THREADS"]);
    REPLY_TO: ReplyMode = any::REPLY_TO.on(HERE).env(&["TELEGRAM_REPLY_TO_MODE"]);
    TYPING: bool = any::TYPING.on(HERE);
    REACTIONS: bool = any::REACTIONS
        .on(HERE)
        .help("react to messages: 👀 while working, then 👍 or 👎")
        .env(&["TELEGRAM_REACTIONS"]);
}
