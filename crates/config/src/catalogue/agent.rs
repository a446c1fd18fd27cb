//! The agent: its turns, tools, approvals, subagents and scheduled work.

use std::time::Duration;

use serde_json::Value;

use crate::choices::{ApprovalMode, CronApproval, MissedRuns};
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
        "model calls one message may cause before the agent must sum up",
    );
    IDLE_TIMEOUT: Option<Duration> =
        seconds_or_never("agent.gateway_timeout", 1800.0, "abort a turn after this many idle seconds (0 = never)")
            .env(&["HERMES_AGENT_TIMEOUT"]);
    IDLE_WARNING: Option<Duration> = seconds_or_never(
        "agent.gateway_timeout_warning",
        900.0,
        "tell the chat after this many idle seconds of a turn (0 = never)",
    )
    .env(&["HERMES_AGENT_TIMEOUT_WARNING"]);
    PARALLEL_TOOLS_TIMEOUT: Option<Duration> = seconds_or_never(
        "agent.concurrent_tool_timeout",
        420.0,
        "abort tools that run at the same time after this many seconds (0 = never)",
    )
    .env(&["HERMES_CONCURRENT_TOOL_TIMEOUT_S"]);
    LOOP_WARNINGS: bool =
        flag("tool_loop_guardrails.warnings_enabled", true, "warn the model when its tool calls repeat");
    LOOP_STOP: bool = flag(
        "tool_loop_guardrails.hard_stop_enabled",
        false,
        "switch tools off for the rest of a turn whose tool calls go on repeating, and ask for a summary",
    );
    WARN_SAME_FAILURE: u32 = count::<u32>(
        "tool_loop_guardrails.warn_after.exact_failure",
        1,
        TIMES,
        2,
        "consecutive failures of the same call",
    );
    WARN_TOOL_FAILURE: u32 = count::<u32>(
        "tool_loop_guardrails.warn_after.same_tool_failure",
        1,
        TIMES,
        3,
        "consecutive failures of one tool",
    );
    WARN_SAME_RESULT: u32 = count::<u32>(
        "tool_loop_guardrails.warn_after.idempotent_no_progress",
        1,
        TIMES,
        2,
        "consecutive equal results of the same call",
    );
    STOP_SAME_FAILURE: u32 = count::<u32>(
        "tool_loop_guardrails.hard_stop_after.exact_failure",
        1,
        TIMES,
        5,
        "as in warn_after, for the stop",
    );
    STOP_TOOL_FAILURE: u32 = count::<u32>(
        "tool_loop_guardrails.hard_stop_after.same_tool_failure",
        1,
        TIMES,
        8,
        "as in warn_after, for the stop",
    );
    STOP_SAME_RESULT: u32 = count::<u32>(
        "tool_loop_guardrails.hard_stop_after.idempotent_no_progress",
        1,
        TIMES,
        5,
        "as in warn_after, for the stop",
    );
    MAX_PARALLEL_CALLS: usize = count::<usize>(
        "agent.max_parallel_calls",
        1,
        10_000,
        64,
        "concurrent model calls, over all conversations; more wait",
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
        "summarise a conversation with more messages than this, however short they are",
    );
    SYSTEM_PROMPT: Option<String> = text("agent.system_prompt", "instructions put before every conversation");
    WORKSPACE: String = text_or("agent.workspace", "workspace", "directory of the file tools; relative to the home");
    API_MAX_RETRIES: u32 = count::<u32>(
        "agent.api_max_retries",
        0,
        20,
        3,
        "retries of a model call that failed for a temporary reason",
    );
    API_RETRY_BASE: Duration =
        seconds("agent.api_retry_base_seconds", 2.0, "first wait before such a retry; it doubles each time");
    RESUME_WINDOW: Duration = seconds(
        "agent.gateway_auto_continue_freshness",
        3600.0,
        "resume an interrupted conversation that is not older than this many seconds",
    )
    .env(&["HERMES_AUTO_CONTINUE_FRESHNESS"])
    .file_first();
    TOOLSETS: Option<Vec<String>> = maybe_list(
        "toolsets",
        "tools that are on: names of toolsets (file, terminal, schedule, other) and of tools; the others are off",
    );
    PLATFORM_TOOLSETS: Option<Value> = table(
        "platform_toolsets",
        "platform -> names as in toolsets, instead of toolsets: tools that are on for its conversations",
    );
    TERMINAL: bool =
        flag("terminal.enabled", false, "let the agent run commands on this machine, as the gateway's user");
    TERMINAL_BACKEND: String = text_or(
        "terminal.backend",
        "local",
        "where commands run; only local is known, and with any other one the terminal stays off",
    )
    .closed("the terminal stays off: commands would run on this machine and not where it says", "docker");
    TERMINAL_CWD: Option<String> =
        text("terminal.cwd", "working directory of a conversation's first command; default: the workspace")
            .env(&["TERMINAL_CWD"]);
    TERMINAL_TIMEOUT: Duration =
        whole_seconds("terminal.timeout", 1, 600, 180, "timeout in seconds of a command that names none")
            .env(&["TERMINAL_TIMEOUT"]);
    TERMINAL_MAX_TIMEOUT: Duration = whole_seconds(
        "terminal.max_foreground_timeout",
        1,
        86_400,
        600,
        "longest timeout in seconds that a command may ask for; longer work goes to the background",
    )
    .env(&["TERMINAL_MAX_FOREGROUND_TIMEOUT"]);
    TERMINAL_ENV: Vec<String> = list(
        "terminal.env_passthrough",
        "variables that commands see although they look like secrets; never a model provider's",
    );
    TERMINAL_LOGIN_SHELL: bool = flag(
        "terminal.login_shell",
        true,
        "read the owner's profile before a conversation's first commands; off if the profile is slow",
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
        "bytes of a command's output that the model gets; of more, the beginning and the end",
    );
    APPROVALS: ApprovalMode = choice::<ApprovalMode>(
        "approvals.mode",
        "manual",
        "who approves dangerous commands: you; the model first, then you; nobody",
    );
    APPROVAL_TIMEOUT: Duration =
        whole_seconds("approvals.timeout", 5, 86_400, 60, "seconds you have to answer; no answer is a no");
    CRON_APPROVALS: CronApproval = choice::<CronApproval>(
        "approvals.cron_mode",
        "deny",
        "what happens to dangerous commands of scheduled work, where nobody can be asked",
    );
    APPROVAL_DENY: Vec<String> =
        list("approvals.deny", "patterns (*, ?) of commands that never run, whatever you approve");
    COMMAND_ALLOWLIST: Vec<String> = list(
        "command_allowlist",
        "commands, patterns of them and kinds of danger (recursive_delete, ...) that need no approval",
    );
    CHILDREN: usize = count::<usize>(
        "delegation.max_concurrent_children",
        1,
        64,
        3,
        "subagents that one call may start, and batches of them in the background",
    )
    .env(&["DELEGATION_MAX_CONCURRENT_CHILDREN"]);
    SPAWN_DEPTH: u32 =
        count::<u32>("delegation.max_spawn_depth", 1, 8, 1, "how deep delegation goes; 1: subagents have none");
    ORCHESTRATORS: bool = flag(
        "delegation.orchestrator_enabled",
        true,
        "subagents may delegate in turn when asked to, where the depth allows it",
    );
    CHILD_STEPS: u32 = count::<u32>("delegation.max_iterations", 1, 10_000, 50, "model calls of one subagent");
    CHILD_TIMEOUT: Option<Duration> = seconds_or_never(
        "delegation.child_timeout_seconds",
        0.0,
        "abort a subagent after this many seconds, at least 30 (0 = never)",
    );
    CHILD_AUTO_APPROVE: bool = flag(
        "delegation.subagent_auto_approve",
        false,
        "subagents run dangerous commands without approval; otherwise those are refused",
    );
    TIMEZONE: Option<String> =
        text("timezone", "IANA name of the time zone of the agent and of scheduled work; default: the system's")
            .env(&["HERMES_TIMEZONE"]);
    CRON_MISSED: MissedRuns = choice::<MissedRuns>(
        "cron.missed",
        "once",
        "scheduled runs missed while the gateway was not running: one makes up for all, none does, or each is made up for",
    );
    CRON_GRACE: Duration = seconds(
        "cron.missed_grace_seconds",
        43_200.0,
        "make up for a scheduled run that was missed by at most this many seconds",
    );
    CRON_WRAP: bool = flag("cron.wrap_response", true, "name the job above its message");
    CRON_MIRROR: bool = flag(
        "cron.mirror_delivery",
        false,
        "add the message of a scheduled job to the conversation of the chat it goes to",
    );
    MCP_SERVERS: Option<Value> = table(
        "mcp_servers",
        "MCP servers by name: command, args, env or url, headers; enabled, tools.include, tools.exclude, parallel, timeout, connect_timeout",
    );
    MEMORY: bool = flag("memory.enabled", true, "show stored memories to new conversations");
}
