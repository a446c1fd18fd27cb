//! One MCP server: the task that keeps its connection, and its tools.
//!
//! The task owns the connection; dropping the handle ends both, and the program behind the connection.
//! Readers see the current state through a watch channel. Nothing is stored on disk.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use petasos_runtime::clock;
use rmcp::model::{CallToolRequestParams, ContentBlock, JsonObject};
use rmcp::service::{Peer, RunningService, ServiceError};
use rmcp::transport::TokioChildProcess;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClientTransport, StreamableHttpClientTransportConfig,
};
use rmcp::{RoleClient, ServiceExt};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use super::config::{McpServerConfig, McpTransport};
use super::policy::{self, CircuitBreaker};
use crate::model::request::ToolSpec;

const MAX_TOOLS: usize = 200;
/// Maximum length of a tool's name, prefix included: some models accept no more.
const MAX_NAME: usize = 64;
const KEEPALIVE: Duration = Duration::from_secs(180);
const PASSED_VARIABLES: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TERM", "TMPDIR", "TZ"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpServerState {
    Connecting,
    /// Connected, with this many tools.
    Up(usize),
    /// Reconnecting soon.
    Down(String),
    /// Reconnecting at long intervals.
    Parked(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpCallError {
    /// The call had no effect, or the server reported a failure.
    Failed(String),
    /// The effect is unknown: there was no response.
    Unknown(String),
}

#[derive(Debug, Clone)]
struct McpTool {
    spec: ToolSpec,
    /// The server's own name for the tool.
    name: String,
}

#[derive(Debug, Clone)]
struct ServerSnapshot {
    state: McpServerState,
    tools: Arc<Vec<McpTool>>,
    peer: Option<Peer<RoleClient>>,
}

#[derive(Debug)]
pub(super) struct ServerConnection {
    pub(super) server: McpServerConfig,
    now: watch::Receiver<ServerSnapshot>,
    breaker: Mutex<CircuitBreaker>,
    task: JoinHandle<()>,
}

impl Drop for ServerConnection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type McpSession = RunningService<RoleClient, ()>;

impl ServerConnection {
    pub(super) fn start(server: McpServerConfig) -> Self {
        let initial = ServerSnapshot { state: McpServerState::Connecting, tools: Arc::default(), peer: None };
        let (publish, now) = watch::channel(initial);
        let task = petasos_runtime::spawn(maintain_connection(server.clone(), publish));
        Self { server, now, breaker: Mutex::default(), task }
    }

    pub(super) fn state(&self) -> McpServerState {
        self.now.borrow().state.clone()
    }

    pub(super) fn specs(&self) -> Vec<ToolSpec> {
        self.now.borrow().tools.iter().map(|tool| tool.spec.clone()).collect()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.now.borrow().tools.iter().any(|tool| tool.spec.name == name)
    }

    /// Resolves after the first attempt to connect, successful or not.
    pub(super) async fn wait_first_attempts(&self) {
        let mut now = self.now.clone();
        // If the task has ended, there is nothing to wait for.
        let _ended = now.wait_for(|now| now.state != McpServerState::Connecting).await;
    }

    /// Calls a tool by its prefixed name.
    pub(super) async fn call(&self, name: &str, arguments: JsonObject) -> Result<Value, McpCallError> {
        let server = &self.server.name;
        if let Some(left) = self.breaker().remaining(clock::monotonic()) {
            return Err(McpCallError::Failed(format!(
                "{server} failed several times in a row, so its calls are paused for {} s.",
                left.as_secs() + 1
            )));
        }
        let (peer, tool) = {
            let now = self.now.borrow();
            let tool = now.tools.iter().find(|tool| tool.spec.name == name).map(|tool| tool.name.clone());
            (now.peer.clone(), tool)
        };
        let (Some(peer), Some(tool)) = (peer, tool) else {
            return Err(McpCallError::Failed(format!("{server} is not connected at the moment.")));
        };
        let request = CallToolRequestParams::new(tool).with_arguments(arguments);
        let called = tokio::time::timeout(self.server.call_within, peer.call_tool(request)).await;
        match called {
            Ok(Ok(result)) => {
                self.breaker().succeeded();
                let value = render_content(&result.content, result.structured_content);
                // A failure reported by the tool is a response, not a failure of the server.
                if result.is_error == Some(true) {
                    Err(McpCallError::Failed(error_text(&value)))
                } else {
                    Ok(value)
                }
            }
            Ok(Err(ServiceError::McpError(error))) => {
                self.breaker().failed(clock::monotonic());
                Err(McpCallError::Failed(self.server.redact(&format!("{server} failed: {error}"))))
            }
            Ok(Err(error)) => {
                self.breaker().failed(clock::monotonic());
                Err(McpCallError::Unknown(self.server.redact(&format!("{server} failed: {error}"))))
            }
            Err(_elapsed) => {
                self.breaker().failed(clock::monotonic());
                let seconds = self.server.call_within.as_secs();
                Err(McpCallError::Unknown(format!("{server} did not answer within {seconds} s.")))
            }
        }
    }

    // No code panics while it holds the lock.
    fn breaker(&self) -> std::sync::MutexGuard<'_, CircuitBreaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn maintain_connection(server: McpServerConfig, publish: watch::Sender<ServerSnapshot>) {
    let mut failed = 0;
    loop {
        let connected = tokio::time::timeout(server.connect_within, connect(&server)).await;
        let reason = match connected.unwrap_or_else(|_elapsed| Err("it took too long to connect".into())) {
            Ok((running, tools)) => {
                info!(server = server.name, tools = tools.len(), "MCP server connected");
                let since = clock::monotonic();
                let reason = serve_connection(&server, running, tools, &publish).await;
                // A connection that breaks soon does not reset the delay.
                if since.elapsed() >= policy::STABLE {
                    failed = 0;
                }
                reason
            }
            Err(reason) => reason,
        };
        let reason = server.redact(&reason);
        failed += 1;
        let wait = policy::reconnect_delay(failed);
        warn!(server = server.name, reason, wait_s = wait.as_secs(), "MCP server disconnected");
        let state = if policy::is_parked(failed) {
            McpServerState::Parked(reason)
        } else {
            McpServerState::Down(reason)
        };
        publish.send_modify(|now| {
            // Keeps the tools: their calls report the outage, and running turns keep what they were offered.
            (now.state, now.peer) = (state, None);
        });
        clock::sleep(wait).await;
    }
}

/// Serves until the connection ends; returns the reason.
async fn serve_connection(
    server: &McpServerConfig,
    running: McpSession,
    tools: Vec<McpTool>,
    publish: &watch::Sender<ServerSnapshot>,
) -> String {
    let peer = running.peer().clone();
    let up = |tools: Vec<McpTool>| ServerSnapshot {
        state: McpServerState::Up(tools.len()),
        tools: Arc::new(tools),
        peer: Some(peer.clone()),
    };
    publish.send_replace(up(tools));
    let ended = running.waiting();
    tokio::pin!(ended);
    loop {
        tokio::select! {
            ended = &mut ended => return format!("the connection ended ({ended:?})"),
            () = clock::sleep(KEEPALIVE) => {}
        }
        // Health check, and update of the tools; a running turn keeps what it was offered.
        match tokio::time::timeout(server.connect_within, list(server, &peer)).await {
            Ok(Ok(tools)) => drop(publish.send_replace(up(tools))),
            Ok(Err(reason)) => return reason,
            Err(_elapsed) => return "it does not answer any more".into(),
        }
    }
}

async fn connect(server: &McpServerConfig) -> Result<(McpSession, Vec<McpTool>), String> {
    let running: McpSession = match &server.transport {
        McpTransport::Command { command, args, env } => {
            let mut program = tokio::process::Command::new(command);
            program.args(args).env_clear().kill_on_drop(true);
            program.envs(
                PASSED_VARIABLES.iter().filter_map(|name| std::env::var_os(name).map(|value| (*name, value))),
            );
            program.envs(env.iter().map(|(name, value)| (name, value.expose())));
            // Discarded: it may contain secrets.
            let spawned = TokioChildProcess::builder(program).stderr(Stdio::null()).spawn();
            let (transport, _no_errors) =
                spawned.map_err(|error| format!("{command} cannot be started: {error}"))?;
            ().serve(transport).await.map_err(|error| error.to_string())?
        }
        McpTransport::Http { url, headers } => {
            let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
            for (name, value) in headers {
                let name = name
                    .parse::<reqwest::header::HeaderName>()
                    .map_err(|_| format!("{name:?} is not a valid header name"))?;
                let mut value = reqwest::header::HeaderValue::from_str(value.expose())
                    .map_err(|_| format!("the value of the header {name} contains invalid characters"))?;
                value.set_sensitive(true);
                config.custom_headers.insert(name, value);
            }
            // A credential must not follow a redirect to another host.
            let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build();
            let client = client.map_err(|error| error.without_url().to_string())?;
            let transport = StreamableHttpClientTransport::with_client(client, config);
            ().serve(transport).await.map_err(|error| error.to_string())?
        }
    };
    let tools = list(server, running.peer()).await?;
    Ok((running, tools))
}

async fn list(server: &McpServerConfig, peer: &Peer<RoleClient>) -> Result<Vec<McpTool>, String> {
    let found = peer.list_all_tools().await.map_err(|error| error.to_string())?;
    let mut tools: Vec<McpTool> = Vec::new();
    for tool in found.into_iter().filter(|tool| server.allows(&tool.name)).take(MAX_TOOLS) {
        let name = tool_name(&server.name, &tool.name);
        if tools.iter().any(|known| known.spec.name == name) {
            warn!(server = server.name, tool = name, "duplicate tool name, second tool ignored");
            continue;
        }
        let description = tool.description.as_deref().unwrap_or_default().chars().take(2000).collect();
        let parameters = Value::Object(tool.input_schema.as_ref().clone());
        tools.push(McpTool { spec: ToolSpec { name, description, parameters }, name: tool.name.to_string() });
    }
    Ok(tools)
}

/// `mcp__<server>__<tool>` in characters that every model accepts.
pub(super) fn tool_name(server: &str, tool: &str) -> String {
    let safe = |text: &str| -> String {
        text.chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' })
            .collect()
    };
    format!("mcp__{}__{}", safe(server), safe(tool)).chars().take(MAX_NAME).collect()
}

pub(super) fn render_content(content: &[ContentBlock], structured: Option<Value>) -> Value {
    let parts: Vec<String> = content
        .iter()
        .map(|part| match part {
            ContentBlock::Text(text) => text.text.clone(),
            ContentBlock::Image(_) => "[an image]".to_owned(),
            ContentBlock::Audio(_) => "[a sound]".to_owned(),
            other => serde_json::to_string(other).unwrap_or_default(),
        })
        .collect();
    let mut value = json!({ "result": parts.join("\n") });
    if let Some(structured) = structured {
        value["structured"] = structured;
    }
    value
}

fn error_text(value: &Value) -> String {
    value["result"]
        .as_str()
        .filter(|text| !text.is_empty())
        .unwrap_or("The tool failed and did not say why.")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_names_fit_every_model() {
        assert_eq!(tool_name("git hub", "list/issues.v2"), "mcp__git_hub__list_issues_v2");
        assert_eq!(tool_name("s", &"t".repeat(90)).len(), MAX_NAME);
    }
}
