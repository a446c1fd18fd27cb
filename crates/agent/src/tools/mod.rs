//! The tools that a model may call. `registry` defines and lists them; every result is bounded JSON text.
//!
//! File work runs on a blocking thread that checks a cancel flag: dropping the future sets the flag, and the
//! thread stops before its next file, line or rename. Nothing else outlives a call.

mod clock;
mod concurrency;
pub(crate) mod context;
mod delegate;
mod files;
mod gateway;
mod limits;
mod memory;
pub mod output;
mod questions;
pub(crate) mod registry;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use petasos_core::transcript::ToolCall;
use serde_json::{Value, json};

pub(crate) use clock::local;
pub use context::{AsyncDelivery, SessionCtx, TurnHeartbeat};
pub use delegate::{DelegatedTask, SubagentRole, SubagentRunner};
pub use gateway::html_to_text;
pub use gateway::{GatewayCall, GatewayTools, JobCall, TodoItem, TodoStatus, TodoUpdate, ToolFuture};
pub use limits::ToolLimits;
pub use questions::{Question, QuestionChannel, QuestionFuture, Respondent};
pub use registry::definition::Toolset;

use registry::arguments::{ToolArguments, parse_object};
use registry::definition::{Definition, Reach, Service};
use registry::table::{self, TABLE};

use crate::mcp::{self, McpCallError, McpServers};
use crate::model::request::ToolSpec;
use crate::terminal::Terminal;

/// Characters of one page of a tool's output.
const PAGE: usize = 100_000;
/// Maximum characters of a result; `output.rs` reduces further what the model sees.
const MAX_RESULT: usize = 2_000_000;

const NOT_AN_OBJECT: &str = "The arguments of this call are not a JSON object. Call again with valid JSON.";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    pub content: String,
    pub failed: bool,
    /// It is unknown whether the call took effect.
    pub unknown: bool,
}

#[derive(Debug, Clone)]
pub struct Tools {
    enabled: Vec<&'static Definition>,
    /// Specs of the enabled tools, built on first use.
    specs: OnceLock<Arc<[ToolSpec]>>,
    terminal: Option<Arc<Terminal>>,
    gateway: Option<Arc<dyn GatewayTools>>,
    servers: McpServers,
    delegate: Option<Arc<dyn SubagentRunner>>,
    #[cfg(feature = "simulation")]
    simulated:
        Option<(Arc<dyn crate::model::simulated::SimulatedTools>, Arc<dyn crate::terminal::CommandApprover>)>,
}

impl Default for Tools {
    fn default() -> Self {
        Self::none().enable(Service::None)
    }
}

impl Tools {
    pub fn none() -> Self {
        Self {
            enabled: Vec::new(),
            specs: OnceLock::new(),
            terminal: None,
            gateway: None,
            servers: McpServers::default(),
            delegate: None,
            #[cfg(feature = "simulation")]
            simulated: None,
        }
    }

    /// The only way to change the enabled tools: it invalidates the cached specs.
    fn with_enabled(self, enabled: impl IntoIterator<Item = &'static Definition>) -> Self {
        Self { enabled: enabled.into_iter().collect(), specs: OnceLock::new(), ..self }
    }

    /// Also enables the tools that need this service.
    fn enable(self, service: Service) -> Self {
        let on = self.enabled.clone();
        self.with_enabled(on.into_iter().chain(TABLE.iter().filter(|tool| tool.service == service)))
    }

    pub fn with_terminal(self, terminal: Arc<Terminal>) -> Self {
        Self { terminal: Some(terminal), ..self.enable(Service::Terminal) }
    }

    pub fn with_gateway_tools(self, gateway: Arc<dyn GatewayTools>) -> Self {
        Self { gateway: Some(gateway), ..self.enable(Service::Gateway) }
    }

    pub fn with_servers(mut self, servers: McpServers) -> Self {
        self.servers = servers;
        self
    }

    /// With simulated tools, and the approver of their commands.
    #[cfg(feature = "simulation")]
    pub fn with_simulated(
        mut self,
        simulated: Arc<dyn crate::model::simulated::SimulatedTools>,
        approver: Arc<dyn crate::terminal::CommandApprover>,
    ) -> Self {
        self.simulated = Some((simulated, approver));
        self
    }

    pub fn servers(&self) -> &McpServers {
        &self.servers
    }

    /// Keeps only the named tools that restricted sessions may use; removes MCP tools.
    pub fn only(&self, names: &[String]) -> Self {
        let named = |tool: &&Definition| names.iter().any(|name| name == tool.name);
        let on = self.enabled.iter().copied().filter(|tool| tool.reach.in_restricted()).filter(named);
        Self { servers: McpServers::default(), ..self.clone() }.with_enabled(on)
    }

    pub fn limited(&self, limits: &ToolLimits) -> Self {
        let on = self.enabled.iter().copied().filter(|tool| limits.permits(tool.name, tool.toolset));
        let servers = if limits.permits(mcp::PREFIX, Toolset::Other) {
            self.servers.clone()
        } else {
            McpServers::default()
        };
        Self { servers, ..self.clone() }.with_enabled(on)
    }

    /// Expands names of toolsets and tools to names of tools; `None`: every tool.
    pub fn named(names: &[String]) -> Option<Vec<String>> {
        let limits = ToolLimits { allowed: Some(names.to_vec()), denied: vec![] };
        let on = TABLE.iter().filter(|tool| limits.permits(tool.name, tool.toolset));
        (!limits.all()).then(|| on.map(|tool| tool.name.to_owned()).collect())
    }

    /// Whether a name stands for a toolset, a tool, or every tool.
    pub fn is_known(name: &str) -> bool {
        limits::is_all(name) || Self::is_tool(name) || Toolset::ALL.iter().any(|set| set.name() == name)
    }

    pub fn is_tool(name: &str) -> bool {
        table::find(name).is_some()
    }

    /// The names that a restricted list of tools may contain.
    pub fn names() -> Vec<&'static str> {
        TABLE.iter().filter(|tool| tool.reach != Reach::Subagents).map(|tool| tool.name).collect()
    }

    pub fn with_delegation(self, delegate: Arc<dyn SubagentRunner>) -> Self {
        Self { delegate: Some(delegate), ..self.enable(Service::Delegation) }
    }

    /// The tools of a subagent: none that reaches people or later turns.
    pub fn for_child(&self, role: SubagentRole) -> Self {
        self.clone().with_enabled(self.enabled.iter().copied().filter(|tool| tool.reach.in_subagent(role)))
    }

    pub fn terminal(&self) -> Option<&Arc<Terminal>> {
        self.terminal.as_ref()
    }

    /// The current tools. A turn calls this once and keeps the result.
    pub fn specs(&self) -> Arc<[ToolSpec]> {
        let specs = self.specs.get_or_init(|| self.enabled.iter().map(|tool| tool.spec()).collect());
        #[cfg(feature = "simulation")]
        if let Some((simulated, _)) = &self.simulated {
            return specs.iter().cloned().chain(simulated.specs()).collect();
        }
        let mut others = self.servers.specs().peekable();
        match others.peek() {
            None => specs.clone(),
            Some(_) => specs.iter().cloned().chain(others).collect(),
        }
    }

    /// The enabled tools, including those of MCP servers, by toolset.
    pub fn toolsets(&self) -> BTreeMap<Toolset, Vec<ToolSpec>> {
        let mut sets = BTreeMap::<_, Vec<_>>::new();
        for spec in self.specs().iter() {
            let toolset = self.find(&spec.name).map_or(Toolset::Other, |tool| tool.toolset);
            sets.entry(toolset).or_default().push(spec.clone());
        }
        sets
    }

    pub fn knows(&self, name: &str) -> bool {
        #[cfg(feature = "simulation")]
        if self.simulated.as_ref().is_some_and(|(simulated, _)| simulated.read_only(name).is_some()) {
            return true;
        }
        self.find(name).is_some() || self.servers.knows(name)
    }

    /// Whether a call changes nothing and may be repeated.
    pub fn read_only(&self, name: &str) -> bool {
        #[cfg(feature = "simulation")]
        if let Some(known) = self.simulated.as_ref().and_then(|(simulated, _)| simulated.read_only(name)) {
            return known;
        }
        self.find(name).is_some_and(Definition::read_only)
    }

    pub fn delegates(&self, name: &str) -> bool {
        self.find(name).is_some_and(|tool| tool.reach == Reach::Subagents)
    }

    pub async fn run(&self, ctx: &SessionCtx, call: &ToolCall) -> ToolResult {
        #[cfg(feature = "simulation")]
        if let Some((simulated, approver)) =
            self.simulated.as_ref().filter(|(simulated, _)| simulated.read_only(&call.name).is_some())
        {
            let ctx = SessionCtx { call: call.id.clone(), ..ctx.clone() };
            return simulated.run(call, &ctx, approver.as_ref()).await;
        }
        if call.name.starts_with(mcp::PREFIX) {
            return self.run_mcp(call).await;
        }
        let Some(tool) = self.find(&call.name) else {
            let names: Vec<_> = self.enabled.iter().map(|tool| tool.name).collect();
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return failed(&format!("Unknown tool: {}. Available tools: {known}", call.name));
        };
        let Some(arguments) = parse_object(&call.arguments) else { return failed(NOT_AN_OBJECT) };
        let ctx = &SessionCtx { call: call.id.clone(), ..ctx.clone() };
        match (tool.runner.run)(self, ctx, arguments).await {
            Ok(value) => {
                ToolResult { failed: reports_failure(&value), ..succeeded(bounded(value.to_string())) }
            }
            Err(reason) => failed(&reason),
        }
    }

    async fn run_mcp(&self, call: &ToolCall) -> ToolResult {
        let Some(arguments) = parse_object(&call.arguments) else { return failed(NOT_AN_OBJECT) };
        match self.servers.call(&call.name, arguments).await {
            Ok(value) => succeeded(bounded(value.to_string())),
            Err(McpCallError::Failed(reason)) => failed(&reason),
            Err(McpCallError::Unknown(reason)) => {
                let message = format!(
                    "{reason} Its effect is UNKNOWN: it may have happened. Check before repeating it."
                );
                let content = json!({ "error": message, "effect_disposition": "unknown" }).to_string();
                ToolResult { unknown: true, failed: true, ..succeeded(bounded(content)) }
            }
        }
    }

    async fn run_in_gateway(&self, ctx: &SessionCtx, call: Result<GatewayCall, String>) -> ToolOutcome {
        match &self.gateway {
            Some(gateway) => gateway.run(ctx, call?).await,
            None => Err("This tool is not available here.".to_owned()),
        }
    }

    fn find(&self, name: &str) -> Option<&'static Definition> {
        self.enabled.iter().copied().find(|tool| tool.name == name)
    }
}

/// The result for a call that repeats an earlier one of the same response, which runs once. `None`: run the
/// call.
pub fn duplicate_result(calls: &[ToolCall], call: &ToolCall) -> Option<ToolResult> {
    let first = calls.iter().find(|it| it.name == call.name && it.arguments == call.arguments)?;
    (first.id != call.id).then(|| {
        let note =
            format!("The same call as {} in this answer: it ran once, and its result is there.", first.id);
        succeeded(json!({ "note": note }).to_string())
    })
}

fn reports_failure(value: &Value) -> bool {
    let code = value.get("exit_code").and_then(Value::as_i64);
    let wrong = code.is_some_and(|code| code != 0) && value.get("exit_code_meaning").is_none();
    wrong || value.get("error").is_some_and(|error| !error.is_null())
}

/// The result of a tool, or an error text for the model.
pub(crate) type ToolOutcome = Result<Value, String>;

#[derive(Debug, Clone, Default)]
struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

struct CancelOnDrop(CancelFlag);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

async fn run_blocking<A: ToolArguments>(
    ctx: &SessionCtx,
    arguments: A,
    work: fn(&SessionCtx, &A, &CancelFlag) -> ToolOutcome,
) -> ToolOutcome {
    let guard = CancelOnDrop(CancelFlag::default());
    let ctx = ctx.clone();
    let cancel = guard.0.clone();
    let done = petasos_runtime::blocking(move || work(&ctx, &arguments, &cancel)).await;
    drop(guard);
    done.unwrap_or_else(|_panicked| Err("The tool failed unexpectedly.".to_owned()))
}

fn failed(reason: &str) -> ToolResult {
    ToolResult { failed: true, ..succeeded(bounded(json!({ "error": reason }).to_string())) }
}

const fn succeeded(content: String) -> ToolResult {
    ToolResult { content, failed: false, unknown: false }
}

/// Last line of defence; tools bound their own output.
fn bounded(text: String) -> String {
    match text.char_indices().nth(MAX_RESULT) {
        Some((end, _)) => format!("{} (cut here: the result was too large)", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests;
