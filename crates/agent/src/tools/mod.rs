//! The tools a model may call. `table.rs` lists them, `definition.rs` says what a tool is; every result is bounded JSON
//! text.
//!
//! File work runs on a blocking thread that watches a flag: when the future is dropped the flag is set,
//! and the thread stops before its next file, line or rename. Nothing else outlives a call.

pub(crate) mod arguments;
mod clarify;
mod clock;
pub(crate) mod context;
pub(crate) mod definition;
mod delegate;
mod diff;
mod errand;
mod html;
mod limits;
mod patch;
mod person;
mod plan;
mod read;
mod remember;
mod search;
mod table;
mod workspace;
mod write;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use petasos_core::transcript::ToolCall;
use serde_json::{Value, json};

pub(crate) use clock::local;
pub use context::{Alive, Later, SessionCtx};
pub use definition::Toolset;
pub use delegate::{Delegate, Role, Task};
pub use errand::{Doing, Errand, Errands, JobErrand, Plan, Status, Todo};
pub use html::readable;
pub use limits::ToolLimits;
pub use person::{Ended, People, Person, Question};

use arguments::{Arguments, object};
use definition::{Definition, Reach, Service};
use table::TABLE;

use crate::mcp::{self, NotDone, Servers};
use crate::request::ToolSpec;
use crate::terminal::Terminal;

/// Characters of a page that a tool shows at once.
const RESULT: usize = 100_000;
/// Characters of one result, whatever becomes of it. The model sees less: `outcome.rs`.
const MOST: usize = 2_000_000;

const NO_OBJECT: &str = "The arguments of this call are not a JSON object. Call again with valid JSON.";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// JSON, for the model.
    pub content: String,
    pub failed: bool,
    /// Nobody knows whether it was carried out.
    pub unknown: bool,
}

/// The tools that are on.
#[derive(Debug, Clone)]
pub struct Tools {
    on: Vec<&'static Definition>,
    /// Of those that are on; made when somebody first asks.
    own: OnceLock<Arc<[ToolSpec]>>,
    /// There if its tools are on.
    terminal: Option<Arc<Terminal>>,
    /// There if its tools are on.
    errands: Option<Arc<dyn Errands>>,
    /// Other people's.
    servers: Servers,
    delegate: Option<Arc<dyn Delegate>>,
    #[cfg(feature = "simulation")]
    given: Option<(Arc<dyn crate::given::Tools>, Arc<dyn crate::terminal::Judge>)>,
}

impl Default for Tools {
    fn default() -> Self {
        Self::none().and(Service::None)
    }
}

impl Tools {
    /// No tools at all.
    pub fn none() -> Self {
        Self {
            on: Vec::new(),
            own: OnceLock::new(),
            terminal: None,
            errands: None,
            servers: Servers::default(),
            delegate: None,
            #[cfg(feature = "simulation")]
            given: None,
        }
    }

    /// The only way to change which are on: what was said of the former ones is void.
    fn having(self, on: impl IntoIterator<Item = &'static Definition>) -> Self {
        Self { on: on.into_iter().collect(), own: OnceLock::new(), ..self }
    }

    /// These, and those that need this service.
    fn and(self, service: Service) -> Self {
        let on = self.on.clone();
        self.having(on.into_iter().chain(TABLE.iter().filter(|tool| tool.service == service)))
    }

    /// With commands on the owner's machine.
    pub fn with_terminal(self, terminal: Arc<Terminal>) -> Self {
        Self { terminal: Some(terminal), ..self.and(Service::Terminal) }
    }

    /// With what a gateway does for its agent.
    pub fn with_errands(self, errands: Arc<dyn Errands>) -> Self {
        Self { errands: Some(errands), ..self.and(Service::Gateway) }
    }

    /// With the tools of other people's servers.
    pub fn with_servers(mut self, servers: Servers) -> Self {
        self.servers = servers;
        self
    }

    /// With tools that are given as values, and what judges their commands.
    #[cfg(feature = "simulation")]
    pub fn with_given(
        mut self,
        given: Arc<dyn crate::given::Tools>,
        judge: Arc<dyn crate::terminal::Judge>,
    ) -> Self {
        self.given = Some((given, judge));
        self
    }

    pub fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Of these only the ones that are named, and none of other people's.
    pub fn only(&self, names: &[String]) -> Self {
        let named = |tool: &&Definition| names.iter().any(|name| name == tool.name);
        let on = self.on.iter().copied().filter(|tool| tool.reach.in_restricted()).filter(named);
        Self { servers: Servers::default(), ..self.clone() }.having(on)
    }

    /// Of these only what the owner lets be on.
    pub fn limited(&self, limits: &ToolLimits) -> Self {
        let on = self.on.iter().copied().filter(|tool| limits.permits(tool.name, tool.toolset));
        let servers = match limits.permits(mcp::PREFIX, Toolset::Other) {
            true => self.servers.clone(),
            false => Servers::default(),
        };
        Self { servers, ..self.clone() }.having(on)
    }

    /// The names of the tools that these names of toolsets and tools stand for; `None`: all there are.
    pub fn named(names: &[String]) -> Option<Vec<String>> {
        let limits = ToolLimits { allowed: Some(names.to_vec()), denied: vec![] };
        let on = TABLE.iter().filter(|tool| limits.permits(tool.name, tool.toolset));
        (!limits.all()).then(|| on.map(|tool| tool.name.to_owned()).collect())
    }

    /// Whether a toolset or a tool has this name.
    pub fn is_known(name: &str) -> bool {
        limits::is_all(name) || TABLE.iter().any(|tool| tool.name == name || tool.toolset.name() == name)
    }

    /// The names that a restricted list of tools may have, on or off.
    pub fn names() -> Vec<&'static str> {
        TABLE.iter().filter(|tool| tool.reach != Reach::Subagents).map(|tool| tool.name).collect()
    }

    /// With work that others do.
    pub fn with_delegation(self, delegate: Arc<dyn Delegate>) -> Self {
        Self { delegate: Some(delegate), ..self.and(Service::Delegation) }
    }

    /// What those have who work for somebody: nothing that speaks to people or for later.
    pub fn for_child(&self, role: Role) -> Self {
        self.clone().having(self.on.iter().copied().filter(|tool| tool.reach.in_subagent(role)))
    }

    pub fn terminal(&self) -> Option<&Arc<Terminal>> {
        self.terminal.as_ref()
    }

    /// What there is now. A turn asks once and keeps it.
    pub fn specs(&self) -> Arc<[ToolSpec]> {
        let own = self.own.get_or_init(|| self.on.iter().map(|tool| tool.spec()).collect());
        #[cfg(feature = "simulation")]
        if let Some((given, _)) = &self.given {
            return own.iter().cloned().chain(given.specs()).collect();
        }
        let mut others = self.servers.specs().peekable();
        match others.peek() {
            None => own.clone(),
            Some(_) => own.iter().cloned().chain(others).collect(),
        }
    }

    /// The tools that are on, with those of MCP servers, by toolset.
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
        if self.given.as_ref().is_some_and(|(given, _)| given.read_only(name).is_some()) {
            return true;
        }
        self.find(name).is_some() || self.servers.knows(name)
    }

    /// Whether a call changes nothing and may be repeated.
    pub fn read_only(&self, name: &str) -> bool {
        #[cfg(feature = "simulation")]
        if let Some(known) = self.given.as_ref().and_then(|(given, _)| given.read_only(name)) {
            return known;
        }
        self.find(name).is_some_and(Definition::read_only)
    }

    /// Whether a call has its work done by subagents.
    pub fn delegates(&self, name: &str) -> bool {
        self.find(name).is_some_and(|tool| tool.reach == Reach::Subagents)
    }

    pub async fn run(&self, ctx: &SessionCtx, call: &ToolCall) -> ToolResult {
        #[cfg(feature = "simulation")]
        if let Some((given, judge)) =
            self.given.as_ref().filter(|(given, _)| given.read_only(&call.name).is_some())
        {
            let ctx = SessionCtx { call: call.id.clone(), ..ctx.clone() };
            return given.run(call, &ctx, judge.as_ref()).await;
        }
        if call.name.starts_with(mcp::PREFIX) {
            return self.elsewhere(call).await;
        }
        let Some(tool) = self.find(&call.name) else {
            let names: Vec<_> = self.on.iter().map(|tool| tool.name).collect();
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return failed(&format!("Unknown tool: {}. Available tools: {known}", call.name));
        };
        let Some(arguments) = object(&call.arguments) else { return failed(NO_OBJECT) };
        let ctx = &SessionCtx { call: call.id.clone(), ..ctx.clone() };
        match (tool.runner.run)(self, ctx, arguments).await {
            Ok(value) => {
                ToolResult { failed: tells_of_failure(&value), ..done_with(bounded(value.to_string())) }
            }
            Err(reason) => failed(&reason),
        }
    }

    /// A tool of somebody else's server.
    async fn elsewhere(&self, call: &ToolCall) -> ToolResult {
        let Some(arguments) = object(&call.arguments) else { return failed(NO_OBJECT) };
        match self.servers.call(&call.name, arguments).await {
            Ok(value) => done_with(bounded(value.to_string())),
            Err(NotDone::Surely(reason)) => failed(&reason),
            Err(NotDone::Perhaps(reason)) => {
                let told = format!(
                    "{reason} Its effect is UNKNOWN: it may have happened. Check before repeating it."
                );
                let content = json!({ "error": told, "effect_disposition": "unknown" }).to_string();
                ToolResult { unknown: true, failed: true, ..done_with(bounded(content)) }
            }
        }
    }

    async fn errand(&self, ctx: &SessionCtx, errand: Result<Errand, String>) -> Outcome {
        match &self.errands {
            Some(errands) => errands.run(ctx, errand?).await,
            None => Err("Nobody is here to do this.".to_owned()),
        }
    }

    fn find(&self, name: &str) -> Option<&'static Definition> {
        self.on.iter().copied().find(|tool| tool.name == name)
    }
}

/// The result for a call that repeats an earlier one of the same answer: it runs once, and the model is
/// told so. `None`: run it.
pub fn repeated(calls: &[ToolCall], call: &ToolCall) -> Option<ToolResult> {
    let first = calls.iter().find(|it| it.name == call.name && it.arguments == call.arguments)?;
    (first.id != call.id).then(|| {
        let note =
            format!("The same call as {} in this answer: it ran once, and its result is there.", first.id);
        done_with(json!({ "note": note }).to_string())
    })
}

/// A result that came back as it should and says that it did not work.
fn tells_of_failure(value: &Value) -> bool {
    let code = value.get("exit_code").and_then(Value::as_i64);
    let wrong = code.is_some_and(|code| code != 0) && value.get("exit_code_meaning").is_none();
    wrong || value.get("error").is_some_and(|error| !error.is_null())
}

/// What a tool gives back: a value, or a reason for the model.
pub(crate) type Outcome = Result<Value, String>;

/// Set when nobody waits for the result any more.
#[derive(Debug, Clone, Default)]
struct Stop(Arc<AtomicBool>);

impl Stop {
    fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Dropping the future drops this.
struct StopOnDrop(Stop);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

async fn blocking<A: Arguments>(
    ctx: &SessionCtx,
    arguments: A,
    work: fn(&SessionCtx, &A, &Stop) -> Outcome,
) -> Outcome {
    let guard = StopOnDrop(Stop::default());
    let (ctx, stop) = (ctx.clone(), guard.0.clone());
    let done = petasos_runtime::blocking(move || work(&ctx, &arguments, &stop)).await;
    drop(guard);
    done.unwrap_or_else(|_panicked| Err("The tool failed unexpectedly.".to_owned()))
}

fn failed(reason: &str) -> ToolResult {
    ToolResult { failed: true, ..done_with(bounded(json!({ "error": reason }).to_string())) }
}

const fn done_with(content: String) -> ToolResult {
    ToolResult { content, failed: false, unknown: false }
}

/// Tools bound their own output; this is the last line of defence.
fn bounded(text: String) -> String {
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{} (cut here: the result was too large)", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests;
