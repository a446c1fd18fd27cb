//! Keys of existing files that nothing reads yet: accepted without a warning, and `config explain` says so.

use super::Key;
use super::Kind::{Choice, Count, Flag, List, Number, Secret, Table, Text};

const fn key(path: &'static str, kind: super::Kind, default: &'static str, help: &'static str) -> Key {
    Key::new(path, kind, default, help).later()
}

const MANY: super::Kind = Count(0, i64::MAX);

pub(super) const KEYS: &[Key] = &[
    // Of parts that are here already.
    key("streaming.buffer_threshold", Count(1, 100_000), "24", "new characters worth an edit"),
    // Any platform.
    key("platforms.*.enabled", Flag, "", "speak on this platform"),
    key("platforms.*.token", Secret, "", "credential of the bot").env(&["{P}_BOT_TOKEN"]),
    key("platforms.*.api_key", Secret, "", "credential of the account").env(&["{P}_API_KEY"]),
    key("platforms.*.extra", Table, "", "settings that only this platform has"),
    key(
        "platforms.*.reply_to_mode",
        Choice(&["off", "first", "all"]),
        "first",
        "which parts of an answer quote the question",
    ),
    key("platforms.*.typing_indicator", Flag, "true", "show that the agent is writing"),
    key("platforms.*.typing_status_text", Text, "", "what is shown meanwhile"),
    key("platforms.*.channel_overrides", Table, "", "model, provider and system_prompt per channel"),
    key("platforms.*.require_mention", Flag, "", "in groups, answer only when addressed")
        .env(&["{P}_REQUIRE_MENTION"]),
    key("platforms.*.strict_mention", Flag, "", "only an explicit mention counts"),
    key("platforms.*.free_response_channels", List, "", "channels where no mention is needed"),
    key("platforms.*.free_response_chats", List, "", "chats where no mention is needed"),
    key("platforms.*.mention_patterns", List, "", "expressions that count as addressing the bot"),
    key("platforms.*.allowed_channels", List, "", "channels the bot answers in"),
    key("platforms.*.allowed_chats", List, "", "chats the bot answers in"),
    key(
        "platforms.*.dm_policy",
        Choice(&["open", "allowlist", "pairing", "disabled"]),
        "",
        "who may write directly",
    )
    .env(&["{P}_DM_POLICY"]),
    key(
        "platforms.*.group_policy",
        Choice(&["open", "allowlist", "pairing", "disabled"]),
        "",
        "who may write in groups",
    )
    .env(&["{P}_GROUP_POLICY"]),
    key(
        "platforms.*.notice_delivery",
        Choice(&["public", "private"]),
        "public",
        "private: only the person addressed sees notices",
    ),
    key("platforms.*.channel_prompts", Table, "", "a prompt per channel"),
    key("platforms.*.channel_skill_bindings", Table, "", "skills per channel"),
    key("platforms.telegram.extra.rich_messages", Flag, "false", "longer, richer messages"),
    key("platforms.telegram.fallback_ips", List, "", "addresses to try when the name does not resolve")
        .env(&["TELEGRAM_FALLBACK_IPS"]),
    // Discord and Slack.
    key("platforms.discord.dm_role_auth_guild", Text, "", "server whose roles count in direct messages")
        .env(&["DISCORD_DM_ROLE_AUTH_GUILD"]),
    key("platforms.discord.history_backfill", Flag, "", "read what was said before a mention")
        .env(&["DISCORD_HISTORY_BACKFILL"]),
    key("platforms.discord.history_backfill_limit", MANY, "50", "how much of it")
        .env(&["DISCORD_HISTORY_BACKFILL_LIMIT"]),
    key("platforms.discord.extra.missed_message_backfill.channels", List, "", "channels to fetch from")
        .env(&["DISCORD_MISSED_MESSAGE_BACKFILL_CHANNELS"]),
    key("platforms.discord.extra.missed_message_backfill.max_dispatches", MANY, "10", "most to answer")
        .env(&["DISCORD_MISSED_MESSAGE_BACKFILL_MAX_DISPATCHES"]),
    key("platforms.discord.extra.max_attachment_bytes", MANY, "", "largest attachment"),
    key("platforms.discord.extra.voice_fx", Table, "", "voice channels"),
    // The gateway.
    key("gateway.delivery_ledger", Flag, "true", "deliveries are always durable here"),
    key("multiplex_profiles", Flag, "false", "several profiles in one process")
        .env(&["GATEWAY_MULTIPLEX_PROFILES"]),
    key("profile_routes", Table, "", "which chat belongs to which profile"),
    key(
        "session_store_max_age_days",
        Number,
        "90",
        "days after which an idle conversation is forgotten; 0 for never",
    ),
    key(
        "session_reset.bg_process_max_age_hours",
        Number,
        "24",
        "age at which a background process no longer keeps a conversation",
    ),
    key("reset_triggers", List, "/new,/reset", "texts that start afresh"),
    key("quick_commands", Table, "", "slash commands of your own"),
    key(
        "streaming.fresh_final_after_seconds",
        Number,
        "0",
        "age of a preview after which the answer is sent anew",
    ),
    // Presentation.
    key("display.platforms", Table, "", "tool_progress, streaming and the like per platform"),
    key("display.busy_text_mode", Text, "", "older name of busy_input_mode")
        .env(&["HERMES_GATEWAY_BUSY_TEXT_MODE"]),
    key("display.busy_steer_ack_enabled", Flag, "true", "acknowledge a message that steers"),
    key("display.ephemeral_system_ttl", Number, "0", "seconds after which notices are deleted"),
    key("display.tool_progress", Text, "", "how tool calls are shown"),
    key("display.tool_progress_command", Flag, "false", "offer /verbose"),
    key("display.background_process_notifications", Text, "", "what is told about background processes"),
    key("display.show_reasoning", Flag, "false", "show what the model thinks"),
    key("display.personality", Text, "", "voice of the agent"),
    key("human_delay", Table, "", "mode, min_ms, max_ms: pause before media"),
    key("stt", Table, "", "enabled, echo_transcripts: inbound voice"),
    key("tts", Table, "", "spoken answers"),
    key("voice", Table, "", "auto_tts"),
    // Agent and tools.
    key("agent.reasoning_effort", Text, "", "how hard the model thinks"),
    key("agent.verbose", Flag, "false", "talkative logs"),
    key("agent.personalities", Table, "", "voices to choose from"),
    key("compression", Table, "", "when and how long conversations are summed up"),
    key("approvals", Table, "", "what else belongs to commands that need a yes"),
    key("terminal", Table, "", "what else belongs to a terminal: backend"),
    key("delegation", Table, "", "what else belongs to delegation: model, provider"),
    key("tool_output", Table, "", "what else bounds the output of tools"),
    key("toolsets", List, "", "groups of tools that are on"),
    key("platform_toolsets", Table, "", "groups of tools per platform"),
    key("memory", Table, "", "what else belongs to what is remembered"),
    key("skills", Table, "", "skill folders and their approval"),
    key("cron", Table, "", "what else belongs to scheduled work"),
    key("always_log_local", Flag, "true", "keep a copy of scheduled output"),
    key("browser", Table, "", "the browser tool"),
    key("auxiliary", Table, "", "models for side tasks"),
    key("provider_routing", Table, "", "which upstream an aggregator may use"),
    key("custom_providers", Table, "", "named providers"),
    key("dashboard", Table, "", "what else belongs to a dashboard"),
    key("logging", Table, "", "log files"),
    key("security", Table, "", "redaction and the like"),
    key("hooks", Table, "", "programs to run on events"),
    key("_config_version", MANY, "", "version of the file's layout"),
];
