//! The keys of platforms that have an effect today.

use super::Key;
use super::Kind::{Choice, Count, Flag, List, Number, Secret, Table, Text, Wait};

const fn key(path: &'static str, kind: super::Kind, default: &'static str, help: &'static str) -> Key {
    Key::new(path, kind, default, help)
}

pub(super) const KEYS: &[Key] = &[
    // Any platform.
    key("platforms.*.allowed_users", List, "", "people (ids) who may talk to the agent there")
        .env(&["{P}_ALLOWED_USERS"])
        .also(&["platforms.*.allow_from"]),
    key("platforms.*.allow_all_users", Flag, "false", "anybody may, there").env(&["{P}_ALLOW_ALL_USERS"]),
    key("platforms.*.group_allowed_users", List, "", "people who may, in groups only")
        .env(&["{P}_GROUP_ALLOWED_USERS"])
        .also(&["platforms.*.group_allow_from"]),
    key("platforms.*.group_allowed_chats", List, "", "groups in which everyone may")
        .env(&["{P}_GROUP_ALLOWED_CHATS"]),
    key("platforms.*.allow_bots", Choice(&["none", "mentions", "all"]), "none", "answer other bots")
        .env(&["{P}_ALLOW_BOTS"]),
    key(
        "platforms.*.unauthorized_dm_behavior",
        Choice(&["pair", "ignore"]),
        "",
        "as unauthorized_dm_behavior, for this platform",
    ),
    key("platforms.*.allow_admin_from", List, "", "people who may use every command"),
    key("platforms.*.user_allowed_commands", List, "", "commands for everybody else"),
    key("platforms.*.group_allow_admin_from", List, "", "people who may use every command in groups"),
    key("platforms.*.group_user_allowed_commands", List, "", "commands for everybody else in groups"),
    key("platforms.*.home_channel.chat_id", Text, "", "chat for messages that nobody asked for")
        .env(&["{P}_HOME_CHANNEL"])
        .also(&["platforms.*.home_channel"]),
    key("platforms.*.home_channel.thread_id", Text, "", "topic in that chat")
        .env(&["{P}_HOME_CHANNEL_THREAD_ID"]),
    key("platforms.*.home_channel.name", Text, "Home", "what that chat is called")
        .env(&["{P}_HOME_CHANNEL_NAME"]),
    key("platforms.*.gateway_restart_notification", Flag, "true", "tell chats about restarts"),
    // Telegram.
    key("platforms.telegram.enabled", Flag, "", "speak there; default: when there is a token"),
    key("platforms.telegram.token", Secret, "", "the bot's token from @BotFather")
        .env(&["TELEGRAM_BOT_TOKEN"]),
    key(
        "platforms.telegram.extra.base_url",
        Text,
        "https://api.telegram.org/bot",
        "requests go to <base_url><token>/<method>",
    ),
    key(
        "platforms.telegram.extra.base_file_url",
        Text,
        "",
        "files are fetched from <base_file_url><token>/<path>, not from beside base_url",
    ),
    key(
        "platforms.telegram.extra.poll_timeout",
        Number,
        "50",
        "seconds the server may hold a poll that has nothing to say",
    ),
    key(
        "platforms.telegram.extra.poll_backoff_base",
        Number,
        "5",
        "first wait after a failed poll; the others are multiples of it",
    ),
    key("platforms.telegram.extra.request_timeout", Number, "20", "seconds any other request may take"),
    key(
        "platforms.telegram.notifications",
        Choice(&["important", "all"]),
        "important",
        "which messages make a sound",
    )
    .env(&["HERMES_TELEGRAM_NOTIFICATIONS"]),
    key("platforms.telegram.proxy", Secret, "", "proxy for this platform").env(&["TELEGRAM_PROXY"]),
    key("platforms.telegram.webhook_url", Text, "", "address that Telegram calls; empty: it is polled")
        .env(&["TELEGRAM_WEBHOOK_URL"]),
    key(
        "platforms.telegram.webhook_secret",
        Secret,
        "",
        "what Telegram shows there; needed with webhook_url",
    )
    .env(&["TELEGRAM_WEBHOOK_SECRET"]),
    key("platforms.telegram.webhook_host", Text, "127.0.0.1", "address to listen on for Telegram's calls")
        .env(&["TELEGRAM_WEBHOOK_HOST"]),
    key(
        "platforms.telegram.webhook_port",
        Count(1, 65_535),
        "8443",
        "port to listen on for Telegram's calls",
    )
    .env(&["TELEGRAM_WEBHOOK_PORT"]),
    key("platforms.telegram.require_mention", Flag, "false", "in groups, answer only when addressed")
        .env(&["TELEGRAM_REQUIRE_MENTION"]),
    key(
        "platforms.telegram.mention_patterns",
        List,
        "",
        "further regular expressions that count as addressing the bot",
    )
    .env(&["TELEGRAM_MENTION_PATTERNS"]),
    key(
        "platforms.telegram.exclusive_bot_mentions",
        Flag,
        "true",
        "ignore messages that name only other bots",
    )
    .env(&["TELEGRAM_EXCLUSIVE_BOT_MENTIONS"]),
    key(
        "platforms.telegram.guest_mode",
        Flag,
        "false",
        "an explicit mention is answered in chats outside allowed_chats too",
    )
    .env(&["TELEGRAM_GUEST_MODE"]),
    key("platforms.telegram.free_response_chats", List, "", "groups where no mention is needed")
        .env(&["TELEGRAM_FREE_RESPONSE_CHATS"]),
    key(
        "platforms.telegram.free_response_topics",
        List,
        "",
        "topics (chat:thread) where no mention is needed",
    )
    .env(&["TELEGRAM_FREE_RESPONSE_TOPICS"]),
    key("platforms.telegram.allowed_chats", List, "", "groups the bot answers in; empty: all")
        .env(&["TELEGRAM_ALLOWED_CHATS"]),
    key("platforms.telegram.allowed_topics", List, "", "topics the bot answers in; empty: all")
        .env(&["TELEGRAM_ALLOWED_TOPICS"]),
    key(
        "platforms.telegram.cron_thread_id",
        Text,
        "",
        "topic of the home channel, by id or by name, in which scheduled work speaks",
    )
    .env(&["TELEGRAM_CRON_THREAD_ID"]),
    key("platforms.telegram.ignored_threads", List, "", "topics the bot never reads")
        .env(&["TELEGRAM_IGNORED_THREADS"]),
    key(
        "platforms.telegram.reply_to_mode",
        Choice(&["off", "first", "all"]),
        "first",
        "which parts of an answer quote the question",
    )
    .env(&["TELEGRAM_REPLY_TO_MODE"]),
    key("platforms.telegram.typing_indicator", Flag, "true", "show that the agent is writing"),
    key("platforms.telegram.reactions", Flag, "false", "mark messages: 👀 while working, then 👍 or 👎")
        .env(&["TELEGRAM_REACTIONS"]),
    // Discord.
    key("platforms.discord.enabled", Flag, "", "speak there; default: when there is a token"),
    key("platforms.discord.token", Secret, "", "the bot's token from discord.com/developers/applications")
        .env(&["DISCORD_BOT_TOKEN"]),
    key(
        "platforms.discord.extra.api_base",
        Text,
        "https://discord.com/api/v10",
        "requests go to <api_base>/channels/…",
    ),
    key(
        "platforms.discord.extra.gateway_url",
        Text,
        "",
        "where every socket is opened; default: what Discord says",
    ),
    key("platforms.discord.extra.request_timeout", Number, "20", "seconds a request may take"),
    key(
        "platforms.discord.extra.reconnect_base",
        Number,
        "1",
        "first wait after a socket that did not hold; the others are multiples of it",
    ),
    key(
        "platforms.discord.extra.websocket_liveness_interval_seconds",
        Wait,
        "15",
        "how often an open socket is looked at; 0 for never",
    ),
    key(
        "platforms.discord.extra.websocket_liveness_failure_threshold",
        Count(1, 1000),
        "2",
        "bad looks in a row that end a connection",
    ),
    key(
        "platforms.discord.extra.websocket_heartbeat_ack_max_age_seconds",
        Wait,
        "60",
        "age of the last acknowledged heartbeat that is bad; 0 for none",
    ),
    key(
        "platforms.discord.extra.websocket_max_latency_seconds",
        Wait,
        "30",
        "wait for an acknowledgement that is bad; 0 for none",
    ),
    key(
        "platforms.discord.extra.missed_message_backfill.enabled",
        Flag,
        "true",
        "fetch what was written while the gateway was away",
    )
    .env(&["DISCORD_MISSED_MESSAGE_BACKFILL"])
    .also(&["platforms.discord.extra.missed_message_backfill"]),
    key(
        "platforms.discord.extra.missed_message_backfill.window_seconds",
        Wait,
        "21600",
        "nothing older than this is fetched",
    )
    .env(&["DISCORD_MISSED_MESSAGE_BACKFILL_WINDOW_SECONDS"]),
    key(
        "platforms.discord.extra.missed_message_backfill.limit",
        Count(0, 10_000),
        "100",
        "messages that one request brings at most; requests follow until nothing is missing, 0: none",
    )
    .env(&["DISCORD_MISSED_MESSAGE_BACKFILL_LIMIT"]),
    key(
        "platforms.discord.command_sync_policy",
        Choice(&["safe", "bulk", "off"]),
        "safe",
        "register the command menu when it differs from what is registered, at every start, or never",
    )
    .env(&["DISCORD_COMMAND_SYNC_POLICY"]),
    key("platforms.discord.proxy", Secret, "", "proxy for this platform").env(&["DISCORD_PROXY"]),
    key("platforms.discord.require_mention", Flag, "true", "in servers, answer only when mentioned")
        .env(&["DISCORD_REQUIRE_MENTION"]),
    key(
        "platforms.discord.thread_require_mention",
        Flag,
        "false",
        "also in threads in which the bot has spoken",
    )
    .env(&["DISCORD_THREAD_REQUIRE_MENTION"]),
    key("platforms.discord.ignore_no_mention", Flag, "true", "ignore messages that mention only others")
        .env(&["DISCORD_IGNORE_NO_MENTION"]),
    key(
        "platforms.discord.bots_require_inline_mention",
        Flag,
        "false",
        "another bot must mention this one in its text; answering it is not enough",
    )
    .env(&["DISCORD_BOTS_REQUIRE_INLINE_MENTION"]),
    key(
        "platforms.discord.allowed_channels",
        List,
        "",
        "channels (id, name, or those of the parent) the bot answers in; empty: all",
    )
    .env(&["DISCORD_ALLOWED_CHANNELS"]),
    key("platforms.discord.ignored_channels", List, "", "channels the bot never answers in")
        .env(&["DISCORD_IGNORED_CHANNELS"]),
    key("platforms.discord.free_response_channels", List, "", "channels where no mention is needed")
        .env(&["DISCORD_FREE_RESPONSE_CHANNELS"]),
    key("platforms.discord.auto_thread", Flag, "true", "answer a mention in a thread of its own")
        .env(&["DISCORD_AUTO_THREAD"]),
    key("platforms.discord.no_thread_channels", List, "", "channels in which no thread is opened")
        .env(&["DISCORD_NO_THREAD_CHANNELS"]),
    key(
        "platforms.discord.reply_to_mode",
        Choice(&["off", "first", "all"]),
        "first",
        "which parts of an answer quote the question",
    )
    .env(&["DISCORD_REPLY_TO_MODE"]),
    key("platforms.discord.typing_indicator", Flag, "true", "show that the agent is writing"),
    key(
        "platforms.discord.allowed_roles",
        List,
        "",
        "roles (ids) whose members may talk to the agent in servers",
    )
    .env(&["DISCORD_ALLOWED_ROLES"]),
    key("platforms.discord.reactions", Flag, "true", "mark messages: 👀 while working, then ✅ or ❌")
        .env(&["DISCORD_REACTIONS"]),
    // Slack.
    key("platforms.slack.enabled", Flag, "", "speak there; default: when there are both tokens"),
    key(
        "platforms.slack.token",
        Secret,
        "",
        "the bot's token (xoxb-…) from api.slack.com/apps; several workspaces: one each, with commas",
    )
    .env(&["SLACK_BOT_TOKEN"]),
    key("platforms.slack.app_token", Secret, "", "the app's token (xapp-…) with the scope connections:write")
        .env(&["SLACK_APP_TOKEN"]),
    key(
        "platforms.slack.extra.api_base",
        Text,
        "https://slack.com/api",
        "requests go to <api_base>/<method>; they say where the socket is opened",
    ),
    key("platforms.slack.extra.request_timeout", Number, "20", "seconds a request may take"),
    key(
        "platforms.slack.extra.reconnect_base",
        Number,
        "1",
        "first wait after a lost connection; the others are multiples of it",
    ),
    key(
        "platforms.slack.extra.missed_message_backfill.enabled",
        Flag,
        "true",
        "fetch what was written while the gateway was away",
    )
    .also(&["platforms.slack.extra.missed_message_backfill"]),
    key(
        "platforms.slack.extra.missed_message_backfill.window_seconds",
        Wait,
        "21600",
        "nothing older than this is fetched",
    ),
    key(
        "platforms.slack.extra.missed_message_backfill.limit",
        Count(0, 10_000),
        "100",
        "messages that one round brings at most, all channels together; rounds follow until nothing is missing, 0: none",
    ),
    key("platforms.slack.proxy", Secret, "", "proxy for this platform").env(&["SLACK_PROXY"]),
    key(
        "platforms.slack.require_mention",
        Flag,
        "true",
        "in channels, answer only when mentioned, or in a thread the bot takes part in",
    )
    .env(&["SLACK_REQUIRE_MENTION"]),
    key("platforms.slack.strict_mention", Flag, "false", "in such a thread only when mentioned, too")
        .env(&["SLACK_STRICT_MENTION"]),
    key("platforms.slack.allowed_channels", List, "", "channels (ids) the bot answers in; empty: all")
        .env(&["SLACK_ALLOWED_CHANNELS"]),
    key("platforms.slack.free_response_channels", List, "", "channels where no mention is needed")
        .env(&["SLACK_FREE_RESPONSE_CHANNELS"]),
    key(
        "platforms.slack.extra.reply_in_thread",
        Flag,
        "true",
        "every message begins a thread, which is a conversation of its own; false: one for the channel",
    ),
    key(
        "platforms.slack.extra.dm_top_level_threads_as_sessions",
        Flag,
        "true",
        "the same in direct messages",
    ),
    key(
        "platforms.slack.extra.reply_broadcast",
        Flag,
        "false",
        "show the first part of an answer in the channel, too",
    ),
    key("platforms.slack.typing_indicator", Flag, "true", "show that the agent is writing"),
    key(
        "platforms.slack.reactions",
        Flag,
        "true",
        "mark messages that mention the bot: eyes while working, then a check or a cross",
    )
    .env(&["SLACK_REACTIONS"]),
    key("platforms.slack.typing_status_text", Text, "is thinking...", "what is shown meanwhile"),
    // Webhook.
    key("platforms.webhook.enabled", Flag, "", "listen for deliveries; default: when there are routes")
        .env(&["WEBHOOK_ENABLED"]),
    key(
        "platforms.webhook.extra.host",
        Text,
        "127.0.0.1",
        "where to listen; 0.0.0.0 (or :: for IPv6 as well) lets other machines in",
    )
    .env(&["WEBHOOK_HOST"]),
    key("platforms.webhook.extra.port", Count(1, 65_535), "8644", "port to listen on").env(&["WEBHOOK_PORT"]),
    key("platforms.webhook.extra.secret", Secret, "", "secret of routes that have none of their own")
        .env(&["WEBHOOK_SECRET"]),
    key(
        "platforms.webhook.extra.routes",
        Table,
        "",
        "name -> secret, events, filters, prompt, deliver, deliver_extra, deliver_only, enabled",
    ),
    key(
        "platforms.webhook.extra.tools",
        List,
        "clock",
        "tools of turns that a delivery starts, of those that are on: its text may be a stranger's",
    ),
    key("platforms.webhook.extra.rate_limit", Count(1, 100_000), "30", "deliveries of one route in a minute"),
    key("platforms.webhook.extra.max_body_bytes", Count(1, 8_388_608), "1048576", "largest delivery"),
    key(
        "platforms.webhook.extra.delivery_wait",
        Number,
        "10",
        "seconds a caller waits for the delivery of a deliver_only message",
    ),
    key("platforms.webhook.extra.github_token", Secret, "", "token for comments (deliver: github_comment)")
        .env(&["GITHUB_TOKEN", "GH_TOKEN"]),
    key("platforms.webhook.extra.github_api", Text, "https://api.github.com", "where GitHub's API is"),
    key("platforms.webhook.extra.request_timeout", Number, "20", "seconds a request to GitHub may take"),
];
