//! MCP servers: their state in the running gateway, or tried now.

use std::time::Duration;

use petasos_agent::mcp::{McpServerConfig, McpServerState, McpServers};
use petasos_cli::client::Client;
use petasos_config::Home;
use serde::Deserialize;

use super::Finding;

/// A server may have to be downloaded before it starts.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const CHECK: &str = "mcp";

#[derive(Debug, Deserialize)]
struct StatusResponse {
    mcp: Vec<ServerStatus>,
}

#[derive(Debug, Deserialize)]
struct ServerStatus {
    name: String,
    state: String,
    tools: usize,
    #[serde(rename = "why")]
    reason: Option<String>,
}

pub(super) async fn servers(home: &Home, servers: &[McpServerConfig], online: bool) -> Vec<Finding> {
    if servers.is_empty() {
        return vec![];
    }
    if let Some(statuses) = statuses_from_gateway(home).await {
        return servers.iter().map(|server| in_gateway(server, &statuses)).collect();
    }
    if !online {
        let idle = |server: &McpServerConfig| format!("{}: configured (--online tests it)", server.name);
        return servers.iter().map(|server| Finding::ok(CHECK, idle(server))).collect();
    }
    let attempts = McpServers::start(servers.to_vec());
    attempts.wait_first_attempts(CONNECT_TIMEOUT).await;
    attempts.states().into_iter().map(|(name, state)| attempt_finding(&name, state)).collect()
}

/// The states in the running gateway; `None` if it does not answer.
async fn statuses_from_gateway(home: &Home) -> Option<Vec<ServerStatus>> {
    let client = Client::connect(home).ok()??;
    let status: StatusResponse = client.get("/api/status").await.ok()?;
    Some(status.mcp)
}

fn in_gateway(server: &McpServerConfig, statuses: &[ServerStatus]) -> Finding {
    let Some(status) = statuses.iter().find(|status| status.name == server.name) else {
        let detail = format!("{}: not known to the running gateway", server.name);
        return Finding::warn(CHECK, detail, "petasos restart loads new servers");
    };
    match (&status.reason, status.state.as_str()) {
        (None, "up") => available(&status.name, status.tools),
        (reason, state) => unavailable(&status.name, state, reason.as_deref()),
    }
}

fn attempt_finding(name: &str, state: McpServerState) -> Finding {
    match state {
        McpServerState::Up(tools) => available(name, tools),
        McpServerState::Connecting => unavailable(name, "connecting", Some("no answer yet")),
        McpServerState::Down(reason) => unavailable(name, "down", Some(&reason)),
        McpServerState::Parked(reason) => unavailable(name, "parked", Some(&reason)),
    }
}

fn available(name: &str, tools: usize) -> Finding {
    Finding::ok(CHECK, format!("{name}: up, {}", petasos_cli::print::count(tools, "tool", "tools")))
}

fn unavailable(name: &str, state: &str, reason: Option<&str>) -> Finding {
    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    let advice = format!("its tools are unavailable; check mcp_servers.{name} and run its command by hand");
    Finding::warn(CHECK, format!("{name}: {state}{reason}"), advice)
}
