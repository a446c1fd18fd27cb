//! One server: its connection, kept alive by a task of its own, and its tools.
//!
//! The task owns the connection; dropping its handle ends both, and the program behind it. Others see a value that is
//! always current. Nothing is on disk.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

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

use super::config::{Server, Way};
use super::policy::{self, Breaker};
use crate::request::ToolSpec;

/// Tools of one server.
const TOOLS: usize = 200;
/// Characters of a tool's name, ours included: some models take no more.
const NAME: usize = 64;
/// How often a quiet connection is asked whether it is there.
const KEEPALIVE: Duration = Duration::from_secs(180);
/// What programs may know of our environment.
const PASSED: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TERM", "TMPDIR", "TZ"];

/// How a server is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Connecting,
    /// With this many tools.
    Up(usize),
    /// Tried again soon.
    Down(String),
    /// Tried again now and then.
    Parked(String),
}

/// Why a call has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotDone {
    /// It was not carried out, or the server says that it failed.
    Surely(String),
    /// It may have been: nobody answered.
    Perhaps(String),
}

#[derive(Debug, Clone)]
struct Tool {
    spec: ToolSpec,
    /// As the server calls it.
    name: String,
}

#[derive(Debug, Clone)]
struct Now {
    state: State,
    tools: Arc<Vec<Tool>>,
    peer: Option<Peer<RoleClient>>,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) server: Server,
    now: watch::Receiver<Now>,
    breaker: Mutex<Breaker>,
    task: JoinHandle<()>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Running = RunningService<RoleClient, ()>;

impl Link {
    pub(super) fn start(server: Server) -> Self {
        let first = Now { state: State::Connecting, tools: Arc::default(), peer: None };
        let (show, now) = watch::channel(first);
        let task = tokio::spawn(keep(server.clone(), show));
        Self { server, now, breaker: Mutex::default(), task }
    }

    pub(super) fn state(&self) -> State {
        self.now.borrow().state.clone()
    }

    pub(super) fn specs(&self) -> Vec<ToolSpec> {
        self.now.borrow().tools.iter().map(|tool| tool.spec.clone()).collect()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.now.borrow().tools.iter().any(|tool| tool.spec.name == name)
    }

    /// Resolves when the first attempt to connect has ended, one way or the other.
    pub(super) async fn tried(&self) {
        let mut now = self.now.clone();
        // A task that is gone tries nothing any more.
        let _ended = now.wait_for(|now| now.state != State::Connecting).await;
    }

    /// Calls a tool by our name for it.
    pub(super) async fn call(&self, name: &str, arguments: JsonObject) -> Result<Value, NotDone> {
        let server = &self.server.name;
        if let Some(left) = self.breaker().resting(Instant::now()) {
            return Err(NotDone::Surely(format!(
                "{server} failed several times in a row and is left alone for {} s.",
                left.as_secs() + 1
            )));
        }
        let (peer, tool) = {
            let now = self.now.borrow();
            let tool = now.tools.iter().find(|tool| tool.spec.name == name).map(|tool| tool.name.clone());
            (now.peer.clone(), tool)
        };
        let (Some(peer), Some(tool)) = (peer, tool) else {
            return Err(NotDone::Surely(format!("{server} is not connected at the moment.")));
        };
        let request = CallToolRequestParams::new(tool).with_arguments(arguments);
        let called = tokio::time::timeout(self.server.call_within, peer.call_tool(request)).await;
        match called {
            Ok(Ok(result)) => {
                self.breaker().succeeded();
                let value = shown(&result.content, result.structured_content);
                // The tool's own refusal is an answer, not a failure of the server.
                if result.is_error == Some(true) { Err(NotDone::Surely(told(&value))) } else { Ok(value) }
            }
            // It answered, and said no.
            Ok(Err(ServiceError::McpError(error))) => {
                self.breaker().failed(Instant::now());
                Err(NotDone::Surely(self.server.without_secrets(&format!("{server} failed: {error}"))))
            }
            Ok(Err(error)) => {
                self.breaker().failed(Instant::now());
                Err(NotDone::Perhaps(self.server.without_secrets(&format!("{server} failed: {error}"))))
            }
            Err(_elapsed) => {
                self.breaker().failed(Instant::now());
                let seconds = self.server.call_within.as_secs();
                Err(NotDone::Perhaps(format!("{server} did not answer within {seconds} s.")))
            }
        }
    }

    /// Held for a moment; nothing under it can panic half-way.
    fn breaker(&self) -> std::sync::MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connects, stays, and connects again.
async fn keep(server: Server, show: watch::Sender<Now>) {
    let mut failed = 0;
    loop {
        let connected = tokio::time::timeout(server.connect_within, connect(&server)).await;
        let why = match connected.unwrap_or_else(|_elapsed| Err("it took too long to connect".into())) {
            Ok((running, tools)) => {
                info!(server = server.name, tools = tools.len(), "MCP server connected");
                let since = Instant::now();
                let why = stay(&server, running, tools, &show).await;
                // One that goes as soon as it has come has not come.
                if since.elapsed() >= policy::STEADY {
                    failed = 0;
                }
                why
            }
            Err(why) => why,
        };
        let why = server.without_secrets(&why);
        failed += 1;
        let wait = policy::pause(failed);
        warn!(server = server.name, why, wait_s = wait.as_secs(), "MCP server lost");
        let state = if policy::is_parked(failed) { State::Parked(why) } else { State::Down(why) };
        show.send_modify(|now| {
            // Its tools stay known: a call says that it is away, and a turn keeps what it was offered.
            (now.state, now.peer) = (state, None);
        });
        tokio::time::sleep(wait).await;
    }
}

/// Until the connection ends; why it did.
async fn stay(server: &Server, running: Running, tools: Vec<Tool>, show: &watch::Sender<Now>) -> String {
    let peer = running.peer().clone();
    let up = |tools: Vec<Tool>| Now {
        state: State::Up(tools.len()),
        tools: Arc::new(tools),
        peer: Some(peer.clone()),
    };
    show.send_replace(up(tools));
    let ended = running.waiting();
    tokio::pin!(ended);
    loop {
        tokio::select! {
            ended = &mut ended => return format!("the connection ended ({ended:?})"),
            () = tokio::time::sleep(KEEPALIVE) => {}
        }
        // A sign of life, and what has changed; a turn that runs keeps what it was offered.
        match tokio::time::timeout(server.connect_within, list(server, &peer)).await {
            Ok(Ok(tools)) => drop(show.send_replace(up(tools))),
            Ok(Err(why)) => return why,
            Err(_elapsed) => return "it does not answer any more".into(),
        }
    }
}

async fn connect(server: &Server) -> Result<(Running, Vec<Tool>), String> {
    let running: Running = match &server.way {
        Way::Command { command, args, env } => {
            let mut program = tokio::process::Command::new(command);
            program.args(args).env_clear().kill_on_drop(true);
            program.envs(PASSED.iter().filter_map(|name| std::env::var_os(name).map(|value| (*name, value))));
            program.envs(env.iter().map(|(name, value)| (name, value.expose())));
            // What it says there is for whoever writes it, and may quote secrets.
            let spawned = TokioChildProcess::builder(program).stderr(Stdio::null()).spawn();
            let (transport, _no_errors) =
                spawned.map_err(|error| format!("{command} cannot be started: {error}"))?;
            ().serve(transport).await.map_err(|error| error.to_string())?
        }
        Way::Http { url, headers } => {
            let mut config = StreamableHttpClientTransportConfig::with_uri(url.as_str());
            for (name, value) in headers {
                let name = name
                    .parse::<reqwest::header::HeaderName>()
                    .map_err(|_| format!("{name:?} is no header"))?;
                let mut value = reqwest::header::HeaderValue::from_str(value.expose())
                    .map_err(|_| format!("the value of {name} cannot be sent"))?;
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

async fn list(server: &Server, peer: &Peer<RoleClient>) -> Result<Vec<Tool>, String> {
    let found = peer.list_all_tools().await.map_err(|error| error.to_string())?;
    let mut tools: Vec<Tool> = Vec::new();
    for tool in found.into_iter().filter(|tool| server.wants(&tool.name)).take(TOOLS) {
        let name = named(&server.name, &tool.name);
        if tools.iter().any(|known| known.spec.name == name) {
            warn!(server = server.name, tool = name, "two tools have one name; the second is left out");
            continue;
        }
        let description = tool.description.as_deref().unwrap_or_default().chars().take(2000).collect();
        let parameters = Value::Object(tool.input_schema.as_ref().clone());
        tools.push(Tool { spec: ToolSpec { name, description, parameters }, name: tool.name.to_string() });
    }
    Ok(tools)
}

/// `mcp__<server>__<tool>`, in letters that every model takes.
pub(super) fn named(server: &str, tool: &str) -> String {
    let safe = |text: &str| -> String {
        text.chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' })
            .collect()
    };
    format!("mcp__{}__{}", safe(server), safe(tool)).chars().take(NAME).collect()
}

fn shown(content: &[ContentBlock], structured: Option<Value>) -> Value {
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

fn told(value: &Value) -> String {
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
    fn names_are_taken_by_every_model() {
        assert_eq!(named("git hub", "list/issues.v2"), "mcp__git_hub__list_issues_v2");
        assert_eq!(named("s", &"t".repeat(90)).len(), NAME);
    }
}
