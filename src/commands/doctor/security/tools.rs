//! Programs of the agent: the terminal and its approvals, and MCP servers.

use petasos_agent::mcp::{McpServerConfig, McpTransport};
use petasos_config::Settings;
use petasos_config::choices::{ApprovalMode, CronApproval};
use petasos_config::keys::agent;
use petasos_core::credentials;

use super::listeners::is_plain;
use super::{Check, Weakness};
use crate::wire::mcp_servers;

const NO_APPROVAL: &str =
    "A text that the agent reads, for example a web page, can make it run any command unasked.";
const SECRET_VARIABLE: &str =
    "Commands of the agent can read the value, and a harmful text can make the agent run one.";
const AS_OWNER: &str = "The program has all rights of the user that runs the gateway.";
const PLAIN: &str = "Everyone on the way to the server can read and change calls and results.";

pub(super) fn weaknesses(settings: &Settings) -> Vec<Weakness> {
    terminal(settings).into_iter().chain(mcp_servers(settings).iter().filter_map(mcp_server)).collect()
}

fn terminal(settings: &Settings) -> Vec<Weakness> {
    if !settings.get(&agent::TERMINAL) {
        return vec![];
    }
    let mut found = Vec::new();
    if settings.get(&agent::APPROVALS) == ApprovalMode::Off {
        let fix = "set approvals.mode to manual or smart";
        found.push(Weakness::serious(Check::Tools, "approvals.mode is off", NO_APPROVAL, fix));
    }
    if settings.get(&agent::CRON_APPROVALS) == CronApproval::Approve {
        let what = "approvals.cron_mode approves dangerous commands of scheduled jobs";
        found.push(Weakness::moderate(Check::Tools, what, NO_APPROVAL, "set approvals.cron_mode to deny"));
    }
    for pattern in
        settings.get(&agent::COMMAND_ALLOWLIST).iter().filter(|pattern| pattern.trim_matches('*').is_empty())
    {
        let what = format!("command_allowlist contains {pattern:?}, which allows every command");
        let fix = "list single commands or categories in command_allowlist";
        found.push(Weakness::serious(Check::Tools, what, NO_APPROVAL, fix));
    }
    for name in settings.get(&agent::TERMINAL_ENV).iter().filter(|name| credentials::is_secret_name(name)) {
        let what = format!("commands get the variable {name}");
        let fix = format!("remove {name} from terminal.env_passthrough");
        found.push(Weakness::moderate(Check::Tools, what, SECRET_VARIABLE, fix));
    }
    found
}

fn mcp_server(server: &McpServerConfig) -> Option<Weakness> {
    let name = &server.name;
    match &server.transport {
        McpTransport::Command { command, .. } => {
            let what = format!("the MCP server {name} runs {command} as the owner");
            let fix =
                format!("check where {command} comes from and pin its version in mcp_servers.{name}.args");
            Some(Weakness::moderate(Check::Tools, what, AS_OWNER, fix))
        }
        McpTransport::Http { url, .. } if is_plain(url) => {
            let what = format!("the MCP server {name} is called over plain HTTP");
            Some(Weakness::serious(
                Check::Tools,
                what,
                PLAIN,
                format!("use https:// in mcp_servers.{name}.url"),
            ))
        }
        McpTransport::Http { .. } => None,
    }
}
