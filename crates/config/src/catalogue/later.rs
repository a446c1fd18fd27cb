//! Keys of existing files that are accepted but not implemented, and restrict nothing: a warning reports that they have no
//! effect. A key that restricts something belongs in `restrict.rs`.

use crate::choices::BusyInput;
use crate::key::{
    Declared, Key, count, flag, list, list_or, maybe, maybe_choice, maybe_count, number, table, text,
};

const MANY: i64 = i64::MAX;

const fn later<T>(key: Key<T>) -> Declared {
    key.ignored().declared
}

pub(super) const DECLARED: &[Declared] = &[
    later(count::<u64>(
        "streaming.buffer_threshold",
        1,
        100_000,
        24,
        "minimum number of new characters per edit",
    )),
    later(number(
        "streaming.fresh_final_after_seconds",
        0.0,
        "seconds after which the answer is sent as a new message instead of an edit",
    )),
    // Telegram, Discord and Slack.
    later(flag("platforms.telegram.extra.rich_messages", false, "send longer messages with more formatting")),
    later(
        list("platforms.telegram.fallback_ips", "addresses to use if the host name does not resolve")
            .env(&["TELEGRAM_FALLBACK_IPS"]),
    ),
    later(
        text("platforms.discord.dm_role_auth_guild", "server whose roles apply in direct messages")
            .env(&["DISCORD_DM_ROLE_AUTH_GUILD"]),
    ),
    later(
        maybe("platforms.discord.history_backfill", "give the model the messages before a mention")
            .env(&["DISCORD_HISTORY_BACKFILL"]),
    ),
    later(
        count::<u64>(
            "platforms.discord.history_backfill_limit",
            0,
            MANY,
            50,
            "maximum messages of history_backfill",
        )
        .env(&["DISCORD_HISTORY_BACKFILL_LIMIT"]),
    ),
    later(
        list("platforms.discord.extra.missed_message_backfill.channels", "channels for the backfill")
            .env(&["DISCORD_MISSED_MESSAGE_BACKFILL_CHANNELS"]),
    ),
    later(
        count::<u64>(
            "platforms.discord.extra.missed_message_backfill.max_dispatches",
            0,
            MANY,
            10,
            "maximum backfilled messages to answer",
        )
        .env(&["DISCORD_MISSED_MESSAGE_BACKFILL_MAX_DISPATCHES"]),
    ),
    later(maybe_count::<u64>(
        "platforms.discord.extra.max_attachment_bytes",
        0,
        MANY,
        "maximum size of an attachment, in bytes",
    )),
    later(table("platforms.discord.extra.voice_fx", "sound effects in voice channels")),
    later(flag("gateway.delivery_ledger", true, "durable deliveries; always on in this program")),
    later(
        flag("multiplex_profiles", false, "run several profiles in one process")
            .env(&["GATEWAY_MULTIPLEX_PROFILES"]),
    ),
    later(number(
        "session_store_max_age_days",
        90.0,
        "days after which an unused conversation is forgotten (0 = never)",
    )),
    later(number(
        "session_reset.bg_process_max_age_hours",
        24.0,
        "hours after which a background process no longer prevents a reset",
    )),
    later(list_or("reset_triggers", &["/new", "/reset"], "texts that start a new conversation")),
    later(table("quick_commands", "custom slash commands")),
    // Presentation.
    later(table("display.platforms", "display settings per platform, such as tool_progress and streaming")),
    later(
        maybe_choice::<BusyInput>("display.busy_text_mode", "former name of busy_input_mode")
            .env(&["HERMES_GATEWAY_BUSY_TEXT_MODE"]),
    ),
    later(flag("display.busy_steer_ack_enabled", true, "acknowledge a steering message")),
    later(number("display.ephemeral_system_ttl", 0.0, "seconds after which notices are deleted")),
    later(text("display.tool_progress", "how tool calls are shown")),
    later(flag("display.tool_progress_command", false, "offer the command /verbose")),
    later(text("display.background_process_notifications", "messages about background processes")),
    later(flag("display.show_reasoning", false, "show the reasoning of the model")),
    later(text("display.personality", "personality of the agent")),
    later(table("human_delay", "pause before media: mode, min_ms, max_ms")),
    later(table("stt", "transcription of voice messages: enabled, echo_transcripts")),
    later(table("tts", "spoken answers")),
    later(table("voice", "spoken answers to voice messages: auto_tts")),
    // The agent and its tools.
    later(text("agent.reasoning_effort", "reasoning effort of the model")),
    later(flag("agent.verbose", false, "write verbose logs")),
    later(table("agent.personalities", "available personalities")),
    later(table("compression", "other settings of summaries of long conversations")),
    later(table("approvals", "other settings of approvals")),
    later(table("terminal", "other settings of the terminal")),
    later(table("delegation", "other settings of delegation: model, provider")),
    later(table("tool_output", "other limits of tool output")),
    later(table("memory", "other settings of the memory")),
    later(table("skills", "skill folders")),
    later(table("cron", "other settings of scheduled jobs")),
    later(flag("always_log_local", true, "keep a copy of the output of scheduled jobs")),
    later(table("browser", "the browser tool")),
    later(table("auxiliary", "models for side tasks")),
    later(table("custom_providers", "named providers")),
    later(table("dashboard", "other settings of the dashboard")),
    later(table("logging", "log files")),
    later(table("security", "other settings of security, such as redaction")),
    later(table("hooks", "programs to run on events")),
    later(maybe_count::<u64>("_config_version", 0, MANY, "version of the file format")),
];
