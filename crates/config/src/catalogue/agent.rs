//! The agent: its turns, tools, approvals, subagents and scheduled work.

use std::time::Duration;

use serde_json::Value;

use crate::choices::{ApprovalMode, CronApproval, MissedRuns, SandboxMode};
use crate::key::{
    choice, count, flag, keys, list, maybe_list, seconds, seconds_or_never, table, text, text_or,
    whole_seconds,
};

const TIMES: i64 = 1_000;

keys! {
    MAX_TURNS: u32 = count::<u32>(
        "agent.max_turns",
        1,
        10_000,
        90,
        "maximum model calls per message; then the agent must answer with a summary",
    );
    IDLE_TIMEOUT: Option<Duration> =
        seconds_or_never(
            "agent.gateway_timeout",
            1800.0,
            "abort a turn after this many seconds without activity (0 = never)",
        )
            .env(&["HERMES_AGENT_TIMEOUT"]);
    IDLE_WARNING: Option<Duration> = seconds_or_never(
        "agent.gateway_timeout_warning",
        900.0,
        "notify the chat after this many seconds without activity in a turn (0 = never)",
    )
    .env(&["HERMES_AGENT_TIMEOUT_WARNING"]);
    PARALLEL_TOOLS_TIMEOUT: Option<Duration> = seconds_or_never(
        "agent.concurrent_tool_timeout",
        420.0,
        "abort concurrent tool calls after this many seconds (0 = never)",
    )
    .env(&["HERMES_CONCURRENT_TOOL_TIMEOUT_S"]);
    LOOP_WARNINGS: bool =
        flag("tool_loop_guardrails.warnings_enabled", true, "warn the model when its tool calls repeat");
    LOOP_STOP: bool = flag(
        "tool_loop_guardrails.hard_stop_enabled",
        false,
        "if tool calls keep repeating, turn tools off for the rest of the turn and ask for a summary",
    );
    WARN_SAME_FAILURE: u32 = count::<u32>(
        "tool_loop_guardrails.warn_after.exact_failure",
        1,
        TIMES,
        2,
        "warn after this many consecutive failures of the same call",
    );
    WARN_TOOL_FAILURE: u32 = count::<u32>(
        "tool_loop_guardrails.warn_after.same_tool_failure",
        1,
        TIMES,
        3,
        "warn after this many consecutive failures of one tool",
    );
    WARN_SAME_RESULT: u32 = count::<u32>(
        "tool_loop_guardrails.warn_after.idempotent_no_progress",
        1,
        TIMES,
        2,
        "warn after this many identical results in a row of the same call",
    );
    STOP_SAME_FAILURE: u32 = count::<u32>(
        "tool_loop_guardrails.hard_stop_after.exact_failure",
        1,
        TIMES,
        5,
        "turn tools off after this many consecutive failures of the same call",
    );
    STOP_TOOL_FAILURE: u32 = count::<u32>(
        "tool_loop_guardrails.hard_stop_after.same_tool_failure",
        1,
        TIMES,
        8,
        "turn tools off after this many consecutive failures of one tool",
    );
    STOP_SAME_RESULT: u32 = count::<u32>(
        "tool_loop_guardrails.hard_stop_after.idempotent_no_progress",
        1,
        TIMES,
        5,
        "turn tools off after this many identical results in a row of the same call",
    );
    MAX_PARALLEL_CALLS: usize = count::<usize>(
        "agent.max_parallel_calls",
        1,
        10_000,
        64,
        "maximum concurrent model calls over all conversations; further calls wait",
    );
    COMPACTION: bool = flag(
        "compression.enabled",
        true,
        "summarise long conversations before they outgrow the model's context window",
    );
    COMPACTION_MESSAGES: usize = count::<usize>(
        "compression.max_messages",
        40,
        2_000,
        400,
        "summarise a conversation with more messages than this, even if they are short",
    );
    SYSTEM_PROMPT: Option<String> = text("agent.system_prompt", "instructions at the start of every conversation");
    WORKSPACE: String = text_or(
        "agent.workspace",
        "workspace",
        "directory of the file tools, absolute or relative to the home",
    );
    API_MAX_RETRIES: u32 = count::<u32>(
        "agent.api_max_retries",
        0,
        20,
        3,
        "retries of a model call after a temporary failure (0 = none)",
    );
    API_RETRY_BASE: Duration =
        seconds(
            "agent.api_retry_base_seconds",
            2.0,
            "seconds before the first retry of a model call; doubles with each retry",
        );
    RESUME_WINDOW: Duration = seconds(
        "agent.gateway_auto_continue_freshness",
        3600.0,
        "resume interrupted conversations up to this many seconds old",
    )
    .env(&["HERMES_AUTO_CONTINUE_FRESHNESS"])
    .file_first();
    TOOLSETS: Option<Vec<String>> = maybe_list(
        "toolsets",
        "enabled tools: names of toolsets (file, terminal, schedule, other) and of tools; all others are off",
    );
    PLATFORM_TOOLSETS: Option<Value> = table(
        "platform_toolsets",
        "enabled tools per platform: a map of platform to names as in toolsets; replaces toolsets there",
    );
    TERMINAL: bool =
        flag("terminal.enabled", false, "let the agent run commands on this machine, as the user of the gateway");
    TERMINAL_SANDBOX: SandboxMode = choice::<SandboxMode>(
        "terminal.sandbox",
        "auto",
        "confine commands: auto (where the kernel can; elsewhere each command needs an approval) or off (commands can read and \
         change everything that the gateway can)",
    );
    TERMINAL_BACKEND: String = text_or(
        "terminal.backend",
        "local",
        "where commands run; only local is supported, any other value keeps the terminal off",
    )
    .closed("the terminal stays off: commands would run on this machine and not where it says", "docker");
    TERMINAL_CWD: Option<String> =
        text("terminal.cwd", "working directory of the first command of a conversation [default: the workspace]")
            .env(&["TERMINAL_CWD"]);
    TERMINAL_TIMEOUT: Duration =
        whole_seconds("terminal.timeout", 1, 600, 180, "default timeout of a command, in seconds")
            .env(&["TERMINAL_TIMEOUT"]);
    TERMINAL_MAX_TIMEOUT: Duration = whole_seconds(
        "terminal.max_foreground_timeout",
        1,
        86_400,
        600,
        "maximum timeout of a command, in seconds; longer work must run in the background",
    )
    .env(&["TERMINAL_MAX_FOREGROUND_TIMEOUT"]);
    TERMINAL_ENV: Vec<String> = list(
        "terminal.env_passthrough",
        "environment variables passed to commands besides the usual ones such as PATH and LANG; keys of model providers are never \
         passed",
    );
    TERMINAL_LOGIN_SHELL: bool = flag(
        "terminal.login_shell",
        true,
        "run the first commands of a conversation in a login shell; turn off if your shell profile is slow",
    );
    TERMINAL_GRACE: Duration = seconds(
        "terminal.daemon_term_grace_seconds",
        2.0,
        "seconds between SIGTERM and SIGKILL of a background process",
    );
    TOOL_OUTPUT: usize = count::<usize>(
        "tool_output.max_bytes",
        1000,
        100_000,
        50_000,
        "maximum bytes of command output for the model; longer output keeps its beginning and end",
    );
    APPROVALS: ApprovalMode = choice::<ApprovalMode>(
        "approvals.mode",
        "manual",
        "approval of dangerous commands: manual (you), smart (the model first, then you), off (none)",
    );
    APPROVAL_TIMEOUT: Duration =
        whole_seconds(
            "approvals.timeout",
            5,
            86_400,
            60,
            "seconds to answer an approval request; without an answer the command is denied",
        );
    CRON_APPROVALS: CronApproval = choice::<CronApproval>(
        "approvals.cron_mode",
        "deny",
        "deny or approve dangerous commands of scheduled jobs, which cannot ask for approval",
    );
    APPROVAL_DENY: Vec<String> =
        list("approvals.deny", "patterns (*, ?) of commands that never run, even if approved");
    COMMAND_ALLOWLIST: Vec<String> = list(
        "command_allowlist",
        "commands, patterns and categories (recursive_delete, ...) that need no approval",
    );
    CHILDREN: usize = count::<usize>(
        "delegation.max_concurrent_children",
        1,
        64,
        3,
        "maximum subagents per call, and maximum background batches",
    )
    .env(&["DELEGATION_MAX_CONCURRENT_CHILDREN"]);
    SPAWN_DEPTH: u32 =
        count::<u32>(
            "delegation.max_spawn_depth",
            1,
            8,
            1,
            "maximum depth of delegation; 1 = subagents cannot delegate",
        );
    ORCHESTRATORS: bool = flag(
        "delegation.orchestrator_enabled",
        true,
        "let subagents delegate when asked to, within max_spawn_depth",
    );
    CHILD_STEPS: u32 = count::<u32>("delegation.max_iterations", 1, 10_000, 50, "maximum model calls of one subagent");
    CHILD_TIMEOUT: Option<Duration> = seconds_or_never(
        "delegation.child_timeout_seconds",
        0.0,
        "abort a subagent after this many seconds, minimum 30 (0 = never)",
    );
    CHILD_AUTO_APPROVE: bool = flag(
        "delegation.subagent_auto_approve",
        false,
        "let subagents run dangerous commands without approval; otherwise they are denied",
    );
    TIMEZONE: Option<String> =
        text("timezone", "time zone of the agent and of scheduled jobs, as an IANA name [default: that of the system]")
            .env(&["HERMES_TIMEZONE"]);
    CRON_MISSED: MissedRuns = choice::<MissedRuns>(
        "cron.missed",
        "once",
        "scheduled runs missed while the gateway was stopped: once (one run for all), skip (none), all (run each)",
    );
    CRON_GRACE: Duration = seconds(
        "cron.missed_grace_seconds",
        43_200.0,
        "run a missed job if its due time is at most this many seconds ago",
    );
    CRON_WRAP: bool = flag("cron.wrap_response", true, "put the name of the job above its message");
    CRON_MIRROR: bool = flag(
        "cron.mirror_delivery",
        false,
        "add the message of a scheduled job to the conversation of its chat",
    );
    MCP_SERVERS: Option<Value> = table(
        "mcp_servers",
        "MCP servers by name: command, args, env or url, headers; enabled, tools.include, tools.exclude, parallel, timeout, connect_timeout",
    );
    MEMORY: bool = flag("memory.enabled", true, "include stored memories in new conversations");
}
