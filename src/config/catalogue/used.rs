//! The keys that have an effect today, but for those of platforms.

use super::Key;
use super::Kind::{Choice, Count, Flag, Limit, List, Number, Secret, Table, Text, Wait};

const fn key(path: &'static str, kind: super::Kind, default: &'static str, help: &'static str) -> Key {
    Key::new(path, kind, default, help)
}

const TOKENS: super::Kind = Count(1, 100_000_000);
const TIMES: super::Kind = Count(1, 1_000);
const PORT: super::Kind = Count(0, 65_535);
const PROVIDER: super::Kind =
    Choice(&["auto", "openai", "anthropic", "openrouter", "ollama", "custom", "demo"]);

pub(super) const KEYS: &[Key] = &[
    // The model.
    key("model.default", Text, "", "name of the model that answers").also(&["model"]),
    key(
        "model.provider",
        PROVIDER,
        "auto",
        "who serves it; auto: by base_url, then by the API key that is set",
    ),
    key("model.base_url", Text, "", "address of the provider's API, for example http://127.0.0.1:9000/v1"),
    key(
        "model.api_key",
        Secret,
        "",
        "key for the provider; else OPENAI_API_KEY, ANTHROPIC_API_KEY or OPENROUTER_API_KEY",
    )
    .file_first(),
    key(
        "model.context_length",
        TOKENS,
        "",
        "tokens the model can hold; default: what the provider is known for",
    ),
    key(
        "model.vision",
        Flag,
        "true",
        "show pictures to the model; one that refuses them gets the text alone",
    ),
    key("model.max_output_tokens", TOKENS, "", "longest answer in tokens").also(&["model.max_tokens"]),
    key("model.stream_stale_seconds", Number, "180", "silence on a stream after which it counts as dead")
        .env(&["HERMES_STREAM_STALE_TIMEOUT"]),
    key("model.prices.input", Number, "", "dollars for a million tokens sent; with the next one, /usage tells the cost"),
    key("model.prices.output", Number, "", "dollars for a million tokens received"),
    key("model.prices.cache_read", Number, "", "dollars for a million tokens read from the provider's cache; default: as input"),
    key("model.prices.cache_write", Number, "", "dollars for a million tokens written to it; default: as input"),
    key("model.demo_delay_ms", Count(0, 10_000), "15", "pause of the demo model between two words"),
    key(
        "fallback_providers",
        Table,
        "",
        "models to ask in order when the first one fails: a list of {provider, model, base_url, api_key, context_length, prices}",
    )
    .also(&["fallback_model"]),
    // The agent.
    key(
        "agent.max_turns",
        Count(1, 10_000),
        "90",
        "model calls one message may cause before the agent must sum up",
    ),
    key(
        "agent.gateway_timeout",
        Number,
        "1800",
        "seconds in which nothing happens after which a turn is ended; 0: never",
    )
    .env(&["HERMES_AGENT_TIMEOUT"]),
    key(
        "agent.gateway_timeout_warning",
        Number,
        "900",
        "seconds in which nothing happens after which the chat is told; 0: never",
    )
    .env(&["HERMES_AGENT_TIMEOUT_WARNING"]),
    key(
        "agent.concurrent_tool_timeout",
        Number,
        "420",
        "seconds that tools which run at the same time may take; 0: as long as they like",
    )
    .env(&["HERMES_CONCURRENT_TOOL_TIMEOUT_S"]),
    key("tool_loop_guardrails.warnings_enabled", Flag, "true", "tell the model when it goes round in circles"),
    key(
        "tool_loop_guardrails.hard_stop_enabled",
        Flag,
        "false",
        "take its tools away when it goes on like that, and have it sum up",
    ),
    key("tool_loop_guardrails.warn_after.exact_failure", TIMES, "2", "the same call fails so often in a row"),
    key("tool_loop_guardrails.warn_after.same_tool_failure", TIMES, "3", "one tool fails so often in a row"),
    key(
        "tool_loop_guardrails.warn_after.idempotent_no_progress",
        TIMES,
        "2",
        "the same call gives the same result so often in a row",
    ),
    key("tool_loop_guardrails.hard_stop_after.exact_failure", TIMES, "5", "as in warn_after, for the stop"),
    key("tool_loop_guardrails.hard_stop_after.same_tool_failure", TIMES, "8", "as in warn_after, for the stop"),
    key("tool_loop_guardrails.hard_stop_after.idempotent_no_progress", TIMES, "5", "as in warn_after, for the stop"),
    key("gateway.write_sessions_json", Flag, "true", "keep a copy of the routing table for older tools"),
    key(
        "agent.max_parallel_calls",
        Count(1, 10_000),
        "64",
        "model calls under way at the same time, over all conversations; more wait",
    ),
    key(
        "compression.enabled",
        Flag,
        "true",
        "sum long conversations up before they outgrow the model's context",
    ),
    key(
        "compression.max_messages",
        Count(40, 2_000),
        "400",
        "messages from which on a conversation is summed up, however short they are",
    ),
    key("agent.system_prompt", Text, "", "instructions put before every conversation"),
    key("agent.workspace", Text, "", "directory the file tools work in; default: workspace in the home"),
    key(
        "terminal.enabled",
        Flag,
        "false",
        "let the agent run commands on this machine, as the gateway's user",
    ),
    key("terminal.cwd", Text, "", "directory a conversation's first command runs in; default: the workspace")
        .env(&["TERMINAL_CWD"]),
    key("terminal.timeout", Count(1, 600), "180", "seconds a command may take that names no time itself")
        .env(&["TERMINAL_TIMEOUT"]),
    key(
        "terminal.max_foreground_timeout",
        Count(1, 86_400),
        "600",
        "most seconds a command may ask for; longer work goes to the background",
    )
    .env(&["TERMINAL_MAX_FOREGROUND_TIMEOUT"]),
    key(
        "terminal.env_passthrough",
        List,
        "",
        "variables that commands see although they look like secrets; never a model provider's",
    ),
    key(
        "terminal.login_shell",
        Flag,
        "true",
        "read the owner's profile before a conversation's first commands; off if the profile is slow",
    ),
    key(
        "terminal.daemon_term_grace_seconds",
        Number,
        "2",
        "seconds a background process gets between the request to end and the end",
    ),
    key(
        "approvals.mode",
        Choice(&["manual", "smart", "off"]),
        "manual",
        "who agrees to dangerous commands: you; a second look by the model first, then you; nobody",
    ),
    key("approvals.timeout", Count(5, 86_400), "60", "seconds you have to answer; silence is no"),
    key(
        "approvals.cron_mode",
        Choice(&["deny", "approve"]),
        "deny",
        "what becomes of dangerous commands in scheduled work, where nobody can be asked",
    ),
    key("approvals.deny", List, "", "patterns (*, ?) of commands that never run, whatever you approve"),
    key(
        "command_allowlist",
        List,
        "",
        "commands, patterns of them and kinds of danger (recursive_delete, ...) that need no yes",
    ),
    key(
        "delegation.max_concurrent_children",
        Count(1, 64),
        "3",
        "subagents that one call may start, and batches of them in the background",
    )
    .env(&["DELEGATION_MAX_CONCURRENT_CHILDREN"]),
    key("delegation.max_spawn_depth", Count(1, 8), "1", "how deep delegation goes; 1: subagents have none"),
    key(
        "delegation.orchestrator_enabled",
        Flag,
        "true",
        "subagents may delegate in turn when asked to, where the depth allows it",
    ),
    key("delegation.max_iterations", Count(1, 10_000), "50", "model calls of one subagent"),
    key(
        "delegation.child_timeout_seconds",
        Number,
        "0",
        "seconds a subagent may take, at least 30; 0: no limit",
    ),
    key(
        "delegation.subagent_auto_approve",
        Flag,
        "false",
        "subagents run dangerous commands, about which they can ask nobody; otherwise the answer is no",
    ),
    key(
        "tool_output.max_bytes",
        Count(1000, 100_000),
        "50000",
        "bytes of a command's output that the model gets; of more, the beginning and the end",
    ),
    key(
        "agent.api_max_retries",
        Count(0, 20),
        "3",
        "repetitions of a model call that failed for a passing reason",
    ),
    key(
        "agent.api_retry_base_seconds",
        Number,
        "2",
        "first wait before such a repetition; it doubles from there",
    ),
    key(
        "agent.gateway_auto_continue_freshness",
        Number,
        "3600",
        "seconds for which an interrupted conversation is continued by itself",
    )
    .env(&["HERMES_AUTO_CONTINUE_FRESHNESS"])
    .file_first(),
    // Sessions.
    key(
        "session_reset.mode",
        Choice(&["none", "idle", "daily", "both"]),
        "none",
        "when a conversation starts afresh by itself",
    ),
    key(
        "session_reset.idle_minutes",
        Count(1, 5_256_000),
        "1440",
        "silence after which it does, in the modes idle and both",
    )
    .env(&["SESSION_IDLE_MINUTES"])
    .forgiving(),
    key(
        "session_reset.at_hour",
        Count(0, 23),
        "4",
        "hour of the day at which it does, in the modes daily and both",
    )
    .env(&["SESSION_RESET_HOUR"])
    .forgiving(),
    key("session_reset.notify", Flag, "true", "say so in the chat"),
    key(
        "session_reset.notify_exclude_platforms",
        List,
        "api_server,webhook",
        "platforms where it is not said",
    ),
    key("group_sessions_per_user", Flag, "true", "in a group, everyone has a conversation of their own"),
    key("thread_sessions_per_user", Flag, "false", "in a thread, everyone has a conversation of their own"),
    // What a message does to a turn that runs.
    key(
        "display.busy_input_mode",
        Choice(&["interrupt", "queue", "steer"]),
        "interrupt",
        "what a message does while an answer is being made",
    )
    .env(&["HERMES_GATEWAY_BUSY_INPUT_MODE"])
    .file_first()
    .forgiving(),
    key("display.busy_ack_enabled", Flag, "true", "acknowledge such a message in the chat")
        .env(&["HERMES_GATEWAY_BUSY_ACK_ENABLED"])
        .file_first(),
    // Streaming.
    key(
        "streaming.enabled",
        Flag,
        "false",
        "show answers while they grow, where the platform can",
    ),
    key(
        "streaming.transport",
        Choice(&["auto", "draft", "edit", "off"]),
        "auto",
        "auto and draft: as a draft in private chats where the platform has them, else by edits; off: only when finished",
    )
    .also(&["streaming.mode"]),
    key("streaming.edit_interval", Number, "0.8", "least number of seconds between two edits"),
    key("streaming.cursor", Text, " ▉", "shown at the end of a growing answer"),
    key(
        "filter_silence_narration",
        Flag,
        "true",
        "hold back messages that nobody asked for and that only say that nothing is said",
    )
    .env(&["HERMES_FILTER_SILENCE_NARRATION"]),
    key("timezone", Text, "", "IANA name of the time zone of the agent and of scheduled work; default: the system's")
        .env(&["HERMES_TIMEZONE"]),
    key(
        "cron.missed",
        Choice(&["once", "skip", "all"]),
        "once",
        "what becomes of scheduled runs whose time passed while the gateway was not running: one makes up for all, none is made up for, or each is",
    ),
    key(
        "cron.missed_grace_seconds",
        Number,
        "43200",
        "how long ago the time of a scheduled run may lie for it to be made up for",
    ),
    key("cron.wrap_response", Flag, "true", "name the job above what it says"),
    key(
        "cron.mirror_delivery",
        Flag,
        "false",
        "let the conversation in a chat know what a scheduled job said there",
    ),
    key(
        "mcp_servers",
        Table,
        "",
        "servers of other people's tools by name: command, args, env or url, headers; enabled, tools.include, tools.exclude, parallel, timeout, connect_timeout",
    ),
    key("memory.enabled", Flag, "true", "tell new conversations what is remembered"),
    // Access.
    key(
        "unauthorized_dm_behavior",
        Choice(&["pair", "ignore"]),
        "pair",
        "what a stranger gets who writes directly: a pairing code, or silence",
    ),
    key(
        "gateway.max_inbound_media_bytes",
        Count(0, i64::MAX),
        "134217728",
        "largest file that is fetched when somebody sends it; 0 for no limit",
    ),
    key(
        "gateway.max_media_cache_bytes",
        Count(0, i64::MAX),
        "2147483648",
        "what the files that people sent may take together before the oldest go; 0 for no limit",
    ),
    key(
        "gateway.strict",
        Flag,
        "false",
        "also in turns of the owner, send only files from allowed directories and those written in the last ten minutes",
    )
    .env(&["HERMES_MEDIA_DELIVERY_STRICT"]),
    key(
        "gateway.media_allow_dirs",
        List,
        "",
        "directories whose files answers may carry to everyone; the workspace and received files always may",
    )
    .env(&["HERMES_MEDIA_ALLOW_DIRS"]),
    key("gateway.allowed_users", List, "", "people who may talk to the agent on every platform")
        .env(&["GATEWAY_ALLOWED_USERS"]),
    key("gateway.allow_all_users", Flag, "false", "anybody may, on every platform")
        .env(&["GATEWAY_ALLOW_ALL_USERS"]),
    // Start, drain and stop.
    key("agent.restart_drain_timeout", Wait, "60", "seconds a stop waits for running turns")
        .env(&["HERMES_RESTART_DRAIN_TIMEOUT"])
        .file_first()
        .forgiving(),
    key(
        "gateway.crash_recovery",
        Choice(&["journal", "suspend", "resume"]),
        "journal",
        "what becomes of conversations that a crash interrupted",
    ),
    // Links.
    key(
        "gateway.platform_connect_timeout",
        Wait,
        "30",
        "seconds a connection may take; 0 or less for any time",
    )
    .env(&["HERMES_GATEWAY_PLATFORM_CONNECT_TIMEOUT"])
    .forgiving(),
    key(
        "gateway.adapter_disconnect_timeout",
        Wait,
        "5",
        "seconds a connection may take to end before it is left behind",
    )
    .env(&["HERMES_GATEWAY_ADAPTER_DISCONNECT_TIMEOUT"])
    .forgiving(),
    key(
        "gateway.reconnect.max_attempts",
        Limit(1, 1_000_000),
        "20",
        "failed attempts in a row before a platform is only probed now and then; none for no such limit",
    ),
    key("gateway.reconnect.park_probe_secs", Number, "1800", "seconds between two such probes"),
    key(
        "gateway.reconnect.jitter",
        Flag,
        "true",
        "spread the waits before attempts by chance, up to a fifth",
    ),
    key(
        "gateway.outage_notice_seconds",
        Number,
        "180",
        "seconds a platform is down before home channels hear of it",
    ),
    key(
        "gateway.drain_max_age_seconds",
        Number,
        "3600",
        "age at which a drain marker counts as forgotten; 0 for never",
    ),
    key(
        "gateway.restart_loop_guard.max_restarts",
        Count(0, 1_000_000),
        "3",
        "starts after a crash after which interrupted turns are resumed one by one; 0 = starts are not counted",
    )
    .forgiving(),
    key("gateway.restart_loop_guard.window_seconds", Number, "60", "seconds in which they must fall")
        .forgiving(),
    key(
        "gateway.restart_loop_guard.stable_seconds",
        Number,
        "10",
        "seconds an interrupted turn must run before the next one is resumed",
    )
    .forgiving(),
    key(
        "gateway.respawn_storm.max_starts",
        Count(0, 1_000_000),
        "5",
        "starts in a row after which interrupted turns wait up to 30 s; 0 = never",
    )
    .env(&["HERMES_GATEWAY_MAX_STARTS"])
    .forgiving(),
    key("gateway.respawn_storm.window_seconds", Number, "120", "seconds in which they must fall")
        .env(&["HERMES_GATEWAY_START_WINDOW_S"])
        .forgiving(),
    key(
        "gateway.systemd_watchdog_seconds",
        Number,
        "0",
        "silence after which systemd starts a hanging gateway anew; 0 for never; counts from the next service install",
    ),
    key("backup.schedule_hours", Count(0, 8760), "0", "hours between backups the gateway makes by itself (0 = none)"),
    key("backup.keep", Count(1, 1000), "7", "backups to keep in backup.directory; older ones are removed"),
    key("backup.directory", Text, "", "directory for backups [default: backups in the home]"),
    key(
        "max_concurrent_sessions",
        Count(0, i64::MAX),
        "",
        "conversations that may think at once; 0 or nothing for any number",
    ),
    key(
        "dashboard.drain_auth.secret",
        Secret,
        "",
        "lets its holder drain the gateway over HTTP, and nothing else",
    )
    .env(&["HERMES_DASHBOARD_DRAIN_SECRET"]),
    key("dashboard.drain_auth.scope", Text, "drain", "what that secret is said to allow"),
    key(
        "dashboard.drain_auth.min_secret_chars",
        Count(0, 10_000),
        "43",
        "length below which that secret is not accepted",
    ),
    key("dashboard.session_token", Secret, "", "lets its holder use the control API")
        .env(&["HERMES_DASHBOARD_SESSION_TOKEN"]),
    // The listener: web page and API server.
    key("web.enabled", Flag, "true", "serve the web page"),
    key("web.host", Text, "127.0.0.1", "address the web page and the API server listen on")
        .env(&["API_SERVER_HOST"])
        .also(&["platforms.api_server.extra.host"]),
    key("web.port", PORT, "8642", "port the web page and the API server listen on; 0 takes a free one")
        .env(&["API_SERVER_PORT"])
        .also(&["platforms.api_server.extra.port"]),
    // The API server.
    key(
        "platforms.api_server.enabled",
        Flag,
        "",
        "serve the OpenAI-compatible API; default: where the web page is, or when there is a key",
    )
    .env(&["API_SERVER_ENABLED"]),
    key(
        "platforms.api_server.extra.key",
        Secret,
        "",
        "bearer key of the API; without any, one is made in the file api_key",
    )
    .env(&["API_SERVER_KEY"]),
    key("platforms.api_server.extra.keys", Table, "", "more keys by name: key, scopes (read, agent, admin), rate_limit"),
    key("platforms.api_server.extra.cors_origins", List, "", "origins whose pages may call the API; * for all")
        .env(&["API_SERVER_CORS_ORIGINS"]),
    key("platforms.api_server.extra.model_name", Text, "petasos", "name the API shows for the agent")
        .env(&["API_SERVER_MODEL_NAME"]),
    key("platforms.api_server.extra.model_routes", Table, "", "model names that mean another model"),
    key(
        "gateway.api_server.max_concurrent_runs",
        Count(0, 10_000),
        "10",
        "agent runs over the API at once; 0 for no cap",
    ),
    key("gateway.api_server.queue_seconds", Number, "1", "how long a run may wait in line when as many run as may"),
];
