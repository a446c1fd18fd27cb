//! The tools a model may call. A closed set; every result is bounded JSON text.
//!
//! File work runs on a blocking thread that watches a flag: when the future is dropped the flag is set,
//! and the thread stops before its next file, line or rename. Nothing else outlives a call.

mod clarify;
mod clock;
pub(crate) mod context;
mod delegate;
mod diff;
mod errand;
mod html;
mod patch;
mod person;
mod plan;
mod read;
mod remember;
mod search;
mod workspace;
mod write;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use petasos_core::transcript::ToolCall;
use serde_json::{Map, Value, json};

pub(crate) use clock::local;
pub use context::{Alive, Later, SessionCtx};
pub use delegate::{Delegate, Role, Task};
pub use errand::{Doing, Errand, Errands, JobErrand, Plan, Status, Todo};
pub use html::readable;
pub use person::{Ended, People, Person, Question};

use plan::Touch;

use crate::mcp::{self, NotDone, Servers};
use crate::request::ToolSpec;
use crate::terminal::{self, Terminal};

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    ReadFile,
    WriteFile,
    SearchFiles,
    Patch,
    Clock,
    Memory,
    Todo,
    SessionSearch,
    WebExtract,
    SendMessage,
    Cronjob,
    Clarify,
    Terminal,
    Process,
    Delegate,
}

impl Tool {
    /// Those that are on unless somebody says otherwise.
    const USUAL: [Self; 5] = [Self::ReadFile, Self::WriteFile, Self::Patch, Self::SearchFiles, Self::Clock];
    /// Those that a gateway carries out.
    const ERRANDS: [Self; 7] = [
        Self::Memory,
        Self::Todo,
        Self::SessionSearch,
        Self::WebExtract,
        Self::SendMessage,
        Self::Cronjob,
        Self::Clarify,
    ];

    /// Those that the owner has to ask for.
    const COMMANDS: [Self; 2] = [Self::Terminal, Self::Process];

    const fn name(self) -> &'static str {
        match self {
            Self::ReadFile => "read_file",
            Self::WriteFile => "write_file",
            Self::SearchFiles => "search_files",
            Self::Patch => "patch",
            Self::Clock => "clock",
            Self::Memory => "memory",
            Self::Todo => "todo",
            Self::SessionSearch => "session_search",
            Self::WebExtract => "web_extract",
            Self::SendMessage => "send_message",
            Self::Cronjob => "cronjob",
            Self::Clarify => "clarify",
            Self::Terminal => "terminal",
            Self::Process => "process",
            Self::Delegate => "delegate_task",
        }
    }

    /// It changes nothing: it may be repeated.
    const fn read_only(self) -> bool {
        match self {
            Self::ReadFile | Self::SearchFiles | Self::Clock | Self::SessionSearch | Self::WebExtract => true,
            Self::WriteFile
            | Self::Patch
            | Self::Memory
            | Self::Todo
            | Self::SendMessage
            | Self::Cronjob
            | Self::Clarify
            | Self::Terminal
            | Self::Process
            | Self::Delegate => false,
        }
    }

    /// What a call may touch: it decides which others run beside it.
    fn touch(self, workspace: &Path, arguments: &Arguments) -> Touch {
        match self {
            Self::Clock | Self::SessionSearch | Self::WebExtract => Touch::Nothing,
            Self::ReadFile => Touch::reads(workspace, arguments, ""),
            Self::SearchFiles => Touch::reads(workspace, arguments, "."),
            Self::WriteFile => Touch::writes(workspace, arguments),
            Self::Patch
            | Self::Memory
            | Self::Todo
            | Self::SendMessage
            | Self::Cronjob
            | Self::Clarify
            | Self::Terminal
            | Self::Process
            | Self::Delegate => Touch::All,
        }
    }

    fn spec(self) -> ToolSpec {
        let (description, parameters) = match self {
            Self::ReadFile => read::schema(),
            Self::WriteFile => write::schema(),
            Self::SearchFiles => search::schema(),
            Self::Patch => patch::schema(),
            Self::Clock => clock::schema(),
            Self::Memory => remember::schema(),
            Self::Todo => errand::todo_schema(),
            Self::SessionSearch => errand::search_schema(),
            Self::WebExtract => errand::fetch_schema(),
            Self::SendMessage => errand::send_schema(),
            Self::Cronjob => errand::jobs_schema(),
            Self::Clarify => clarify::schema(),
            Self::Terminal => terminal::schema(),
            Self::Process => terminal::process::schema(),
            Self::Delegate => delegate::schema(),
        };
        ToolSpec { name: self.name().to_owned(), description: description.to_owned(), parameters }
    }
}

/// The tools that are on.
#[derive(Debug, Clone)]
pub struct Tools {
    on: Vec<Tool>,
    /// Of those that are on; made when somebody first asks.
    own: OnceLock<Arc<[ToolSpec]>>,
    /// There if its tools are on.
    terminal: Option<Arc<Terminal>>,
    /// There if its tools are on.
    errands: Option<Arc<dyn Errands>>,
    /// Other people's.
    servers: Servers,
    delegate: Option<Arc<dyn Delegate>>,
}

impl Default for Tools {
    fn default() -> Self {
        Self::none().having(Tool::USUAL)
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
        }
    }

    /// The only way to change which are on: what was said of the former ones is void.
    fn having(self, on: impl IntoIterator<Item = Tool>) -> Self {
        Self { on: on.into_iter().collect(), own: OnceLock::new(), ..self }
    }

    /// These, and more.
    fn and(self, more: impl IntoIterator<Item = Tool>) -> Self {
        let on = self.on.clone();
        self.having(on.into_iter().chain(more))
    }

    /// With commands on the owner's machine.
    pub fn with_terminal(self, terminal: Arc<Terminal>) -> Self {
        Self { terminal: Some(terminal), ..self.and(Tool::COMMANDS) }
    }

    /// With what a gateway does for its agent.
    pub fn with_errands(self, errands: Arc<dyn Errands>) -> Self {
        Self { errands: Some(errands), ..self.and(Tool::ERRANDS) }
    }

    /// With the tools of other people's servers.
    pub fn with_servers(mut self, servers: Servers) -> Self {
        self.servers = servers;
        self
    }

    pub fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Of these only the ones that are named, and none of other people's.
    pub fn only(&self, names: &[String]) -> Self {
        // Those who work for them, now or later, would have more.
        let alone = |tool: &Tool| !matches!(tool, Tool::Delegate | Tool::Cronjob);
        let named = |tool: &Tool| alone(tool) && names.iter().any(|name| name == tool.name());
        let on = self.on.iter().copied().filter(named);
        Self { servers: Servers::default(), ..self.clone() }.having(on)
    }

    /// The names of all that there are, on or off.
    pub fn names() -> Vec<&'static str> {
        Tool::USUAL.into_iter().chain(Tool::ERRANDS).chain(Tool::COMMANDS).map(Tool::name).collect()
    }

    /// With work that others do.
    pub fn with_delegation(self, delegate: Arc<dyn Delegate>) -> Self {
        Self { delegate: Some(delegate), ..self.and([Tool::Delegate]) }
    }

    /// What those have who work for somebody: nothing that speaks to people or for later.
    pub fn for_child(&self, role: Role) -> Self {
        const THEIRS: [&str; 5] = ["clarify", "memory", "send_message", "execute_code", "cronjob"];
        let delegates = role == Role::Orchestrator;
        let kept = |tool: &Tool| !THEIRS.contains(&tool.name()) && (delegates || *tool != Tool::Delegate);
        self.clone().having(self.on.iter().copied().filter(kept))
    }

    pub fn terminal(&self) -> Option<&Arc<Terminal>> {
        self.terminal.as_ref()
    }

    /// What there is now. A turn asks once and keeps it.
    pub fn specs(&self) -> Arc<[ToolSpec]> {
        let own = self.own.get_or_init(|| self.on.iter().map(|tool| tool.spec()).collect());
        let mut others = self.servers.specs().peekable();
        match others.peek() {
            None => own.clone(),
            Some(_) => own.iter().cloned().chain(others).collect(),
        }
    }

    pub fn knows(&self, name: &str) -> bool {
        self.find(name).is_some() || self.servers.knows(name)
    }

    /// Whether a call changes nothing and may be repeated.
    pub fn read_only(&self, name: &str) -> bool {
        self.find(name).is_some_and(Tool::read_only)
    }

    pub async fn run(&self, ctx: &SessionCtx, call: &ToolCall) -> ToolResult {
        if call.name.starts_with(mcp::PREFIX) {
            return self.elsewhere(call).await;
        }
        let Some(tool) = self.find(&call.name) else {
            let names: Vec<_> = self.on.iter().map(|tool| tool.name()).collect();
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return failed(&format!("Unknown tool: {}. Available tools: {known}", call.name));
        };
        let Some(arguments) = Arguments::read(&call.arguments) else {
            return failed(NO_OBJECT);
        };
        let ctx = &SessionCtx { call: call.id.clone(), ..ctx.clone() };
        let done = match tool {
            Tool::Clock => clock::run(ctx, &arguments),
            Tool::ReadFile => blocking(ctx, arguments, read::run).await,
            Tool::WriteFile => blocking(ctx, arguments, write::run).await,
            Tool::Patch => blocking(ctx, arguments, patch::run).await,
            Tool::Memory => blocking(ctx, arguments, remember::run).await,
            Tool::Todo => self.errand(ctx, errand::todo(&arguments)).await,
            Tool::SessionSearch => self.errand(ctx, errand::search(&arguments)).await,
            Tool::WebExtract => self.errand(ctx, errand::fetch(&arguments)).await,
            Tool::SendMessage => self.errand(ctx, errand::send(&arguments)).await,
            Tool::Clarify => clarify::run(ctx, &arguments).await,
            Tool::Cronjob => self.errand(ctx, errand::jobs(&arguments)).await,
            Tool::SearchFiles => blocking(ctx, arguments, search::run).await,
            Tool::Delegate => match &self.delegate {
                Some(delegate) => delegate::run(delegate.as_ref(), ctx, &arguments).await,
                None => Err("Nobody is there to delegate to.".to_owned()),
            },
            Tool::Terminal | Tool::Process => match &self.terminal {
                Some(terminal) if tool == Tool::Process => Ok(terminal.process(ctx, &arguments).await),
                Some(terminal) => Ok(terminal.run(ctx, &arguments).await),
                None => Err("There is no terminal here.".to_owned()),
            },
        };
        match done {
            Ok(value) => {
                ToolResult { failed: tells_of_failure(&value), ..done_with(bounded(value.to_string())) }
            }
            Err(reason) => failed(&reason),
        }
    }

    /// A tool of somebody else's server.
    async fn elsewhere(&self, call: &ToolCall) -> ToolResult {
        let Some(arguments) = Arguments::read(&call.arguments) else { return failed(NO_OBJECT) };
        match self.servers.call(&call.name, arguments.0).await {
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

    fn find(&self, name: &str) -> Option<Tool> {
        self.on.iter().copied().find(|tool| tool.name() == name)
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

async fn blocking(
    ctx: &SessionCtx,
    arguments: Arguments,
    work: fn(&SessionCtx, &Arguments, &Stop) -> Outcome,
) -> Outcome {
    let guard = StopOnDrop(Stop::default());
    let (ctx, stop) = (ctx.clone(), guard.0.clone());
    let done = tokio::task::spawn_blocking(move || work(&ctx, &arguments, &stop)).await;
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

/// Arguments of a call, checked as they are taken.
#[derive(Debug)]
pub(crate) struct Arguments(pub(crate) Map<String, Value>);

impl Arguments {
    /// `None`: not an object.
    fn read(json: &str) -> Option<Self> {
        match serde_json::from_str(json) {
            Ok(Value::Object(map)) => Some(Self(map)),
            Ok(_) | Err(_) => None,
        }
    }

    pub(crate) fn text(&self, name: &str) -> Result<&str, String> {
        self.maybe(name)?.ok_or_else(|| format!("The argument {name:?} is missing."))
    }

    pub(crate) fn maybe(&self, name: &str) -> Result<Option<&str>, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(format!("The argument {name:?} must be a text.")),
        }
    }

    /// `false` unless it is there.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(Value::String(text)) if text == "true" => Ok(true),
            Some(Value::String(text)) if text == "false" => Ok(false),
            Some(_) => Err(format!("The argument {name:?} must be true or false.")),
        }
    }

    /// A whole number between 1 and `most`; larger ones are lowered to it.
    pub(crate) fn count(&self, name: &str, default: usize, most: usize) -> Result<usize, String> {
        let given = match self.0.get(name) {
            None | Some(Value::Null) => return Ok(default),
            Some(Value::String(text)) => text.trim().parse().ok(),
            Some(value) => value.as_u64(),
        };
        let wrong = || format!("The argument {name:?} must be a whole number from 1.");
        let count = given.filter(|count| *count > 0).ok_or_else(wrong)?;
        Ok(usize::try_from(count).unwrap_or(most).min(most))
    }
}

#[cfg(test)]
mod tests;
