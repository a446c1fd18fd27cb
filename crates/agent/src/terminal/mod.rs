//! The `terminal` and `process` tools: commands on the owner's machine.
//!
//! A command is checked syntactically (`guard.rs`), approved ([`CommandApprover`]) and run, in the sandbox of its
//! session (`sandbox.rs`) unless the owner has turned it off or a person lets it out: in the foreground until it ends or times out (`foreground.rs`), or in the background with a ledger row and a supervising
//! task (`background/`). Each command leads a process group, which ends with it. Output is bounded while it
//! arrives (`capture.rs`). The commands of a session share a working directory and exported variables
//! (`shell.rs`), which no other session sees.
//!
//! On disk below `terminal/`: `sessions/` (directory and variables; what sandboxed commands may change) and `output/` (spooled output; logs and
//! exit codes of background processes).

mod background;
mod capture;
mod environment;
mod exit_code;
mod foreground;
mod group;
mod guard;
mod redaction;
mod sandbox;
mod shell;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use petasos_approval::Confinement;
use petasos_core::text::hex;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::tools::registry::arguments::{Count, flag};
use crate::tools::registry::definition::{Definition, Effects, Reach, Runner, Service, Toolset};
use crate::tools::{SessionCtx, Tools};
use background::Processes;
use background::notification::NotificationRequest;
pub use background::record::{
    BackgroundProcess, ExitReason, Ledger, LedgerWrite, NotifyMode, ProcessEvent, ProcessExit,
    ProcessIdentity, RecordedProcess,
};
pub(crate) use background::tool::tool as process_tool;
pub use background::watch::WatchLimits;
use capture::OutputCapture;
pub use environment::public_environment;
use foreground::{CommandResult, PtyMode};
pub use group::GroupLeader;
use guard::CommandRejection;
pub use redaction::{contains_private_key, redact, secret_ranges};
use sandbox::{Place, Sandbox};
use shell::{Launch, SessionDirectory, ShellState};

pub(crate) fn tool() -> Definition {
    Definition {
        name: "terminal",
        description: "Runs a shell command on the owner's machine. The directory and exported variables persist between calls of \
             this conversation. With background=true it returns at once; see the tool process.",
        toolset: Toolset::Terminal,
        service: Service::Terminal,
        effects: Effects::Anything,
        paginated: false,
        reach: Reach::Turn,
        runner: Runner::new(|tools, ctx, arguments: TerminalArguments| {
            Box::pin(async move { Ok(of(tools)?.run(ctx, &arguments).await) })
        }),
    }
}

fn of(tools: &Tools) -> Result<&Terminal, String> {
    tools.terminal().map(Arc::as_ref).ok_or_else(|| "The terminal is not available here.".to_owned())
}

#[derive(Deserialize, JsonSchema)]
struct TerminalArguments {
    /// Shell command to run
    #[schemars(required, with = "String")]
    command: Option<Value>,
    /// Start it without waiting; for servers and long work
    #[serde(default, deserialize_with = "flag")]
    background: bool,
    /// Seconds a foreground command may take, default 180, at most 600
    #[schemars(range(min = 1))]
    timeout: Option<Count>,
    /// Directory to run it in; default: where the last command ended
    workdir: Option<String>,
    /// Give it a terminal, for interactive programs
    #[serde(default, deserialize_with = "flag")]
    pty: bool,
    /// Run it outside of the sandbox, with network and all files; the user is asked first. Only if it cannot work inside
    #[serde(default, deserialize_with = "flag")]
    outside: bool,
    /// Background: start a new turn when it ends
    #[serde(default, deserialize_with = "flag")]
    notify_on_complete: bool,
    /// Background: start a new turn on output lines that contain one of these texts; for rare events in a process that does not end
    watch_patterns: Option<Vec<String>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalConfig {
    /// Directory of a session's first command; `None`: the workspace.
    pub cwd: Option<PathBuf>,
    pub timeout: Duration,
    /// Maximum timeout of a foreground command.
    pub max_timeout: Duration,
    /// Bytes of a command's output that the model sees.
    pub output: usize,
    /// Variables passed on although they look private.
    pub passthrough: Vec<String>,
    /// Time between SIGTERM and SIGKILL for background processes.
    pub grace: Duration,
    /// Whether a session's first command reads the owner's profile.
    pub login: bool,
    pub watch_limits: WatchLimits,
    /// Program that confines commands ([`petasos_sandbox::launcher`]); `None`: they run on the machine.
    pub launcher: Option<PathBuf>,
}

impl Default for TerminalConfig {
    fn default() -> Self {
        Self {
            cwd: None,
            timeout: Duration::from_secs(180),
            max_timeout: Duration::from_secs(600),
            output: 50_000,
            passthrough: vec![],
            grace: Duration::from_secs(2),
            login: true,
            watch_limits: WatchLimits::default(),
            launcher: None,
        }
    }
}

/// A command that a [`CommandApprover`] decides about.
#[derive(Debug, Clone, Copy)]
pub struct CommandRequest<'a> {
    pub command: &'a str,
    /// Where it would run.
    pub cwd: &'a Path,
    /// Its input may be written to later.
    pub has_stdin: bool,
    pub confinement: Confinement,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandDecision {
    /// `note`: how it was approved, for the model.
    Run { note: Option<String> },
    /// `reason` is for the model.
    Blocked { reason: String },
}

/// Decides about every command before it starts; may ask a person.
pub trait CommandApprover: fmt::Debug + Send + Sync {
    fn decide<'a>(
        &'a self,
        request: CommandRequest<'a>,
        ctx: &'a SessionCtx,
    ) -> Pin<Box<dyn Future<Output = CommandDecision> + Send + 'a>>;
}

#[derive(Debug)]
pub struct Terminal {
    config: TerminalConfig,
    approver: Arc<dyn CommandApprover>,
    directory: PathBuf,
    /// `None`: the owner has turned it off.
    sandbox: Option<Sandbox>,
    processes: Processes,
    commands: AtomicU64,
}

/// A command that passed all checks.
#[derive(Debug)]
struct ApprovedCommand<'a> {
    command: &'a str,
    directory: &'a SessionDirectory,
    state: &'a ShellState,
    place: Place<'a>,
    cwd: PathBuf,
    pty: PtyMode,
    note: Option<String>,
}

impl Terminal {
    /// Keeps its files in `terminal/` below `home`.
    pub fn new(
        config: TerminalConfig,
        home: &Path,
        approver: Arc<dyn CommandApprover>,
        ledger: Arc<dyn Ledger>,
    ) -> io::Result<Self> {
        let directory = home.join("terminal");
        let output = directory.join("output");
        private_directory(&output)?;
        let processes = Processes::new(ledger, output, config.grace, config.watch_limits);
        let sandbox = config.launcher.as_deref().map(|launcher| Sandbox::probe(launcher, home));
        Ok(Self { sandbox, config, approver, directory, processes, commands: AtomicU64::new(0) })
    }

    /// Adopts the processes of an earlier gateway process.
    pub async fn adopt(&self, known: Vec<RecordedProcess>) {
        self.processes.adopt(known).await;
    }

    /// Ends all background processes at shutdown; their sessions are notified after the next start.
    pub async fn kill_all(&self) {
        self.processes.kill_all().await;
    }

    async fn run(&self, ctx: &SessionCtx, arguments: &TerminalArguments) -> Value {
        let command = match &arguments.command {
            Some(Value::String(command)) => command,
            other => return not_a_command(other.as_ref()),
        };
        match self.execute(ctx, command, arguments).await {
            Ok(result) | Err(result) => result,
        }
    }

    async fn execute(
        &self,
        ctx: &SessionCtx,
        command: &str,
        arguments: &TerminalArguments,
    ) -> Result<Value, Value> {
        let invalid = |reason: String| json!({ "error": reason });
        let background = arguments.background;
        let limit = if background { Duration::MAX } else { self.limit(arguments)? };
        // Before approval, so that exactly the approved text runs.
        let command = if background { guard::without_trailing_ampersand(command) } else { command };
        let read = if background { guard::check_any(command) } else { guard::check_foreground(command) };
        read.map_err(|refused| not_run(&refused))?;
        let workdir = arguments.workdir.as_deref().filter(|path| !path.trim().is_empty());
        if let Some(strange) = workdir.and_then(guard::invalid_path_char) {
            return Err(blocked(&format!(
                "The workdir contains the character {strange:?}, which is not allowed."
            )));
        }
        let pty = if arguments.pty { PtyMode::On } else { PtyMode::Off };
        let notification = NotificationRequest::of(arguments).map_err(invalid)?;
        let place = Place::choose(self.sandbox.as_ref(), arguments.outside);
        let directory = self.session_directory(ctx).await.map_err(|error| cannot_run(&error))?;
        let state = directory.shell_state(place);
        let cwd =
            self.working_directory(ctx, &directory, place, workdir).map_err(|error| cannot_run(&error))?;
        // Only background processes can be written to.
        let request =
            CommandRequest { command, cwd: &cwd, has_stdin: background, confinement: place.confinement };
        let note = self.approve(ctx, request).await?;
        let approved =
            ApprovedCommand { command, directory: &directory, state: &state, place, cwd, pty, note };
        let ran = if background {
            self.background(ctx, &approved, notification).await
        } else {
            self.foreground(ctx, &approved, limit).await
        };
        ran.map_err(|error| cannot_run(&error))
    }

    fn limit(&self, arguments: &TerminalArguments) -> Result<Duration, Value> {
        let max_timeout = self.config.max_timeout.as_secs();
        let default = usize::try_from(self.config.timeout.as_secs()).unwrap_or(usize::MAX);
        let requested = Count::within(arguments.timeout.as_ref(), "timeout", default, usize::MAX)
            .map_err(|reason| json!({ "error": reason }))?;
        if requested as u64 > max_timeout {
            return Err(json!({ "error": format!(
                "A foreground command may take at most {max_timeout} seconds, and {requested} were requested. It was not run. Use \
                 background=true with notify_on_complete=true for longer work."
            ) }));
        }
        Ok(Duration::from_secs(requested as u64))
    }

    /// The single approval point: no command starts without passing here.
    async fn approve(&self, ctx: &SessionCtx, request: CommandRequest<'_>) -> Result<Option<String>, Value> {
        match self.approver.decide(request, ctx).await {
            CommandDecision::Run { note } => Ok(note),
            CommandDecision::Blocked { reason } => Err(blocked(&reason)),
        }
    }

    async fn foreground(
        &self,
        ctx: &SessionCtx,
        approved: &ApprovedCommand<'_>,
        limit: Duration,
    ) -> io::Result<Value> {
        let state = approved.state;
        let cwd = approved.cwd.clone();
        let number = self.commands.fetch_add(1, Ordering::Relaxed);
        let spool = self.directory.join("output").join(format!("cmd_{}_{number}.log", ctx.now.0));
        let launch = Launch {
            program: shell::shell(),
            args: vec![
                state.shell_flag(self.config.login).into(),
                state.wrap_saving(ctx, approved.command).into(),
            ],
            cwd,
            env: environment::of_session(ctx, &self.config.passthrough, std::env::vars_os()),
        };
        let launch = self.placed(ctx, approved, launch)?;
        let capture = OutputCapture::new(self.config.output, spool);
        let CommandResult { output, exit_code } =
            foreground::run(launch, approved.pty, limit, capture).await?;
        let mut result = json!({ "output": output, "exit_code": exit_code, "error": null });
        if let Some(meaning) = exit_code::explain(approved.command, exit_code) {
            result["exit_code_meaning"] = meaning.into();
        }
        if let Some(note) = &approved.note {
            result["approval"] = note.as_str().into();
        }
        if approved.place.confinement == Confinement::Sandboxed
            && let Some(advice) = sandbox::advice(result["output"].as_str().unwrap_or_default(), exit_code)
        {
            result["sandbox"] = advice.into();
        }
        Ok(result)
    }

    async fn background(
        &self,
        ctx: &SessionCtx,
        approved: &ApprovedCommand<'_>,
        notification: NotificationRequest,
    ) -> io::Result<Value> {
        let state = approved.state;
        let cwd = approved.cwd.clone();
        let mut env = environment::of_session(ctx, &self.config.passthrough, std::env::vars_os());
        env.push(("PYTHONUNBUFFERED".into(), "1".into()));
        let record = BackgroundProcess {
            id: new_id()?,
            key: ctx.key.clone(),
            session: ctx.session.clone(),
            source: ctx.source.clone(),
            command: approved.command.to_owned(),
            cwd: cwd.to_string_lossy().into_owned(),
            notify: notification.resolve(ctx),
            started_at: petasos_runtime::clock::now(),
        };
        let args =
            vec![state.shell_flag(self.config.login).into(), state.wrap_loading(approved.command).into()];
        let launch = self.placed(ctx, approved, Launch { program: shell::shell(), args, cwd, env })?;
        let process = self.processes.start(record, launch, approved.pty).await?;
        let mut result = json!({
            "output": "Background process started",
            "session_id": process.record.id,
            "pid": process.identity.pid,
            "exit_code": 0,
            "error": null,
        });
        if let Some(note) = &approved.note {
            result["approval"] = note.as_str().into();
        }
        notification.describe(&process.record.notify, &mut result);
        Ok(result)
    }

    /// The launch in its place. Every command passes here.
    fn placed(&self, ctx: &SessionCtx, approved: &ApprovedCommand<'_>, launch: Launch) -> io::Result<Launch> {
        match approved.place.sandbox {
            Some(sandbox) => sandbox.confine(launch, ctx, self.config.cwd.as_deref(), approved.directory),
            None => Ok(launch),
        }
    }

    async fn session_directory(&self, ctx: &SessionCtx) -> io::Result<SessionDirectory> {
        tokio::fs::create_dir_all(self.first_directory(ctx)).await?;
        tokio::fs::create_dir_all(&ctx.workspace).await?;
        SessionDirectory::open(&self.directory, ctx)
    }

    fn first_directory<'a>(&'a self, ctx: &'a SessionCtx) -> &'a Path {
        self.config.cwd.as_deref().unwrap_or(&ctx.workspace)
    }

    fn working_directory(
        &self,
        ctx: &SessionCtx,
        directory: &SessionDirectory,
        place: Place<'_>,
        workdir: Option<&str>,
    ) -> io::Result<PathBuf> {
        // A command that leaves the sandbox starts where the last one inside of it ended.
        let usual = Place::choose(self.sandbox.as_ref(), false);
        let last = directory.shell_state(usual).cwd(self.first_directory(ctx));
        let Some(workdir) = workdir else { return Ok(last) };
        let home = place.sandbox.map(|_| directory.home()).or_else(std::env::home_dir);
        let requested = match (workdir.strip_prefix('~'), home) {
            (Some(below), Some(home)) if below.is_empty() || below.starts_with('/') => {
                home.join(below.trim_start_matches('/'))
            }
            (Some(_) | None, _) => last.join(workdir),
        };
        if requested.is_dir() {
            return Ok(requested);
        }
        Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no directory {}", requested.display())))
    }
}

/// A process id that was never used before.
fn new_id() -> io::Result<String> {
    let mut random = [0; 6];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    Ok(format!("proc_{}", hex(&random)))
}

fn not_a_command(value: Option<&Value>) -> Value {
    let kind = match value {
        None | Some(Value::Null) => "null",
        Some(Value::Bool(_)) => "boolean",
        Some(Value::Number(_)) => "number",
        Some(Value::Array(_)) => "array",
        Some(Value::Object(_)) => "object",
        Some(Value::String(_)) => "string",
    };
    refuse("error", -1, &format!("Invalid command: expected string, got {kind}"))
}

fn not_run(refusal: &CommandRejection) -> Value {
    match refusal {
        CommandRejection::LongLived(why) => refuse(
            "error",
            -1,
            &format!(
                "Not run in the foreground: {why}. Use background=true (with notify_on_complete=true if it ends), \
                 without &, nohup or setsid, and process(action='poll') to check on it."
            ),
        ),
        CommandRejection::Gateway => refuse(
            "error",
            1,
            "Not run: this would stop the gateway that runs you, and this conversation with it. Ask the owner to do it.",
        ),
    }
}

fn blocked(reason: &str) -> Value {
    refuse("blocked", -1, reason)
}

fn cannot_run(error: &io::Error) -> Value {
    json!({ "output": "", "exit_code": -1, "error": format!("The command could not be run: {error}") })
}

fn refuse(status: &str, exit_code: i32, reason: &str) -> Value {
    json!({ "output": "", "exit_code": exit_code, "error": reason, "status": status })
}

fn private_directory(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Accessible to the owner only; an existing file is truncated.
fn private_file() -> tokio::fs::OpenOptions {
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options
}
