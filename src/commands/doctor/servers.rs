//! Other people's tool servers: as the running gateway has them, or tried now.

use std::time::Duration;

use petasos_agent::mcp::{Server, Servers, State};
use petasos_cli::client::Client;
use petasos_config::Home;
use serde::Deserialize;

use super::Finding;

/// A program may have to be fetched before it starts.
const PATIENCE: Duration = Duration::from_secs(30);
const CHECK: &str = "mcp";

#[derive(Debug, Deserialize)]
struct Status {
    mcp: Vec<Standing>,
}

#[derive(Debug, Deserialize)]
struct Standing {
    name: String,
    state: String,
    tools: usize,
    why: Option<String>,
}

/// One line for each that is set up.
pub(super) async fn servers(home: &Home, servers: &[Server], online: bool) -> Vec<Finding> {
    if servers.is_empty() {
        return vec![];
    }
    if let Some(standing) = asked(home).await {
        return servers.iter().map(|server| in_gateway(server, &standing)).collect();
    }
    if !online {
        let idle = |server: &Server| format!("{}: set up (--online tries it)", server.name);
        return servers.iter().map(|server| Finding::ok(CHECK, idle(server))).collect();
    }
    let tried = Servers::start(servers.to_vec());
    tried.tried(PATIENCE).await;
    tried.states().into_iter().map(|(name, state)| now(&name, state)).collect()
}

/// What the gateway says; `None`: none runs, or it does not answer, which has a line of its own.
async fn asked(home: &Home) -> Option<Vec<Standing>> {
    let client = Client::connect(home).ok()??;
    let status: Status = client.get("/api/status").await.ok()?;
    Some(status.mcp)
}

fn in_gateway(server: &Server, standing: &[Standing]) -> Finding {
    let Some(known) = standing.iter().find(|known| known.name == server.name) else {
        let detail = format!("{}: the running gateway does not know it", server.name);
        return Finding::warn(CHECK, detail, "petasos restart: servers are read at the start");
    };
    match (&known.why, known.state.as_str()) {
        (None, "up") => up(&known.name, known.tools),
        (why, state) => away(&known.name, state, why.as_deref()),
    }
}

fn now(name: &str, state: State) -> Finding {
    match state {
        State::Up(tools) => up(name, tools),
        State::Connecting => away(name, "connecting", Some("no answer yet")),
        State::Down(why) => away(name, "down", Some(&why)),
        State::Parked(why) => away(name, "parked", Some(&why)),
    }
}

fn up(name: &str, tools: usize) -> Finding {
    Finding::ok(CHECK, format!("{name}: up, {}", petasos_cli::print::count(tools, "tool", "tools")))
}

fn away(name: &str, state: &str, why: Option<&str>) -> Finding {
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    let advice = format!("its tools are missing; check mcp_servers.{name}, and run its command by hand");
    Finding::warn(CHECK, format!("{name}: {state}{why}"), advice)
}
