//! `terminal` and `process`: commands on the owner's machine.
//!
//! A command is first read (`guard.rs`), then judged ([`Judge`]), then run: in the foreground until it ends or its
//! time is up (`foreground.rs`), or in the background, where it has a row of its own and a task that looks after it
//! (`processes.rs`, `live.rs`); the model asks about it with `process` (`process.rs`). Each is the leader of a process group, and the group ends with it when it is
//! stopped. What it prints is bounded while it comes in (`capture.rs`). A session's commands follow one another in one
//! directory with one set of exported variables (`shell.rs`), and no session sees another's.
//!
//! On disk, below `terminal/` in the home: `sessions/` (directory and variables), `output/` (what did not fit, and
//! what background processes print and leave).

mod capture;
mod environment;
mod foreground;
mod group;
mod guard;
mod live;
pub(crate) mod process;
mod processes;
mod record;
mod shell;
mod spool;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod text;
mod watch;
mod wish;

use std::fmt;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::tools::arguments::{Count, flag};
use crate::tools::definition::{Definition, Effects, Reach, Runner, Service, Toolset};
use crate::tools::{SessionCtx, Tools};
use capture::Capture;
pub use environment::handed_on;
use foreground::{Ran, Screen};
pub use group::Leader;
use guard::Refused;
use processes::Processes;
pub use record::{End, Event, Identity, Kept, Known, Ledger, Promise, Reason, Record};
use shell::{Launch, Memory};
pub use text::{has_private_key, redact, secret_words};
pub use watch::Pace;
use wish::Wish;

pub(crate) fn tool() -> Definition {
    Definition {
        name: "terminal",
        description: "Runs a shell command on the owner's machine. The directory and exported variables persist between calls of \
             this conversation. With background=true it returns at once; see the tool process.",
        toolset: Toolset::Terminal,
        service: Service::Terminal,
        effects: Effects::Anything,
        reach: Reach::Turn,
        runner: Runner::new(|tools, ctx, arguments: Arguments| {
            Box::pin(async move { Ok(of(tools)?.run(ctx, &arguments).await) })
        }),
    }
}

fn of(tools: &Tools) -> Result<&Terminal, String> {
    tools.terminal().map(Arc::as_ref).ok_or_else(|| "There is no terminal here.".to_owned())
}

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// The command, for the shell
    #[schemars(required, with = "String")]
    command: Option<Value>,
    /// Start it and go on; for servers and long work
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
    /// Background: be told in a turn of its own when it ends
    #[serde(default, deserialize_with = "flag")]
    notify_on_complete: bool,
    /// Background: be told of lines that contain one of these texts; for rare events in something that does not end
    watch_patterns: Option<Vec<String>>,
}

/// How commands are run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalConfig {
    /// Where a session's first command starts; `None`: in the workspace.
    pub cwd: Option<PathBuf>,
    /// What a command gets that names no time.
    pub timeout: Duration,
    /// The most a command may ask for.
    pub longest: Duration,
    /// Bytes of a command's output that the model gets.
    pub output: usize,
    /// Variables that are handed on although they look private.
    pub passthrough: Vec<String>,
    /// What a background process gets between the request to end and the end.
    pub grace: Duration,
    /// Whether a session's first commands read the owner's profile.
    pub login: bool,
    /// How often what background processes print is told.
    pub pace: Pace,
}

impl Default for TerminalConfig {
    fn default() -> Self {
        Self {
            cwd: None,
            timeout: Duration::from_secs(180),
            longest: Duration::from_secs(600),
            output: 50_000,
            passthrough: vec![],
            grace: Duration::from_secs(2),
            login: true,
            pace: Pace::default(),
        }
    }
}

/// Whether a command may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// `note`: what is on record about the consent, for the model.
    Run { note: Option<String> },
    /// It is not run; the reason is for the model.
    Blocked { reason: String },
}

/// Decides about every command before it is started; it may take its time and ask a person.
pub trait Judge: fmt::Debug + Send + Sync {
    /// `cwd`: where it would run. `fed`: something may be written to its input later.
    fn judge<'a>(
        &'a self,
        command: &'a str,
        cwd: &'a Path,
        fed: bool,
        ctx: &'a SessionCtx,
    ) -> Pin<Box<dyn Future<Output = Verdict> + Send + 'a>>;
}

/// Lets everything run. For tests of everything else.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unjudged;

impl Judge for Unjudged {
    fn judge<'a>(
        &'a self,
        _command: &'a str,
        _cwd: &'a Path,
        _fed: bool,
        _ctx: &'a SessionCtx,
    ) -> Pin<Box<dyn Future<Output = Verdict> + Send + 'a>> {
        Box::pin(std::future::ready(Verdict::Run { note: None }))
    }
}

/// The owner of everything that commands share.
#[derive(Debug)]
pub struct Terminal {
    config: TerminalConfig,
    judge: Arc<dyn Judge>,
    directory: PathBuf,
    processes: Processes,
    /// Numbers the outputs of this process.
    commands: AtomicU64,
}

/// A command as it was asked for.
#[derive(Debug)]
struct Asked<'a> {
    command: &'a str,
    memory: &'a Memory,
    cwd: PathBuf,
    screen: Screen,
    /// What is on record about the consent.
    note: Option<String>,
}

impl Terminal {
    /// `home`: where `terminal/` is kept.
    pub fn new(
        config: TerminalConfig,
        home: &Path,
        judge: Arc<dyn Judge>,
        ledger: Arc<dyn Ledger>,
    ) -> io::Result<Self> {
        let directory = home.join("terminal");
        let output = directory.join("output");
        private_directory(&output)?;
        let processes = Processes::new(ledger, output, config.grace, config.pace);
        Ok(Self { config, judge, directory, processes, commands: AtomicU64::new(0) })
    }

    /// Takes over the processes of an earlier gateway.
    pub async fn adopt(&self, known: Vec<Known>) {
        self.processes.adopt(known).await;
    }

    /// Ends all background processes: the gateway leaves. Their sessions are told when it is back.
    pub async fn leave(&self) {
        self.processes.kill_all().await;
    }

    async fn run(&self, ctx: &SessionCtx, arguments: &Arguments) -> Value {
        let command = match &arguments.command {
            Some(Value::String(command)) => command,
            other => return not_a_command(other.as_ref()),
        };
        match self.ask(ctx, command, arguments).await {
            Ok(result) | Err(result) => result,
        }
    }

    async fn ask(&self, ctx: &SessionCtx, command: &str, arguments: &Arguments) -> Result<Value, Value> {
        let wrong = |reason: String| json!({ "error": reason });
        let background = arguments.background;
        let limit = if background { Duration::MAX } else { self.limit(arguments)? };
        // Before it is judged and shown: what runs is exactly that.
        let command = if background { guard::without_trailing_ampersand(command) } else { command };
        let read = if background { guard::any(command) } else { guard::foreground(command) };
        read.map_err(|refused| not_run(&refused))?;
        let workdir = arguments.workdir.as_deref().filter(|path| !path.trim().is_empty());
        if let Some(strange) = workdir.and_then(guard::strange_in_path) {
            return Err(blocked(&format!(
                "The workdir contains the character {strange:?}, which is not allowed."
            )));
        }
        let screen = if arguments.pty { Screen::Terminal } else { Screen::None };
        let wish = Wish::of(arguments).map_err(wrong)?;
        let memory = self.memory(ctx).await.map_err(|error| cannot_run(&error))?;
        let cwd = self.place(ctx, &memory, workdir).map_err(|error| cannot_run(&error))?;
        // Only what runs in the background can be written to: see `process`.
        let note = self.consent(ctx, command, &cwd, background).await?;
        let asked = Asked { command, memory: &memory, cwd, screen, note };
        let ran = if background {
            self.background(ctx, &asked, wish).await
        } else {
            self.foreground(ctx, &asked, limit).await
        };
        ran.map_err(|error| cannot_run(&error))
    }

    /// How long a foreground command may take.
    fn limit(&self, arguments: &Arguments) -> Result<Duration, Value> {
        let longest = self.config.longest.as_secs();
        let default = usize::try_from(self.config.timeout.as_secs()).unwrap_or(usize::MAX);
        let asked = Count::within(arguments.timeout.as_ref(), "timeout", default, usize::MAX)
            .map_err(|reason| json!({ "error": reason }))?;
        if asked as u64 > longest {
            return Err(json!({ "error": format!(
                "A foreground command may take at most {longest} seconds, and {asked} were asked for. It was not run. Use \
                 background=true with notify_on_complete=true for longer work."
            ) }));
        }
        Ok(Duration::from_secs(asked as u64))
    }

    /// The one place where a command's fate is decided: nothing is started that has not passed here.
    async fn consent(
        &self,
        ctx: &SessionCtx,
        command: &str,
        cwd: &Path,
        fed: bool,
    ) -> Result<Option<String>, Value> {
        match self.judge.judge(command, cwd, fed, ctx).await {
            Verdict::Run { note } => Ok(note),
            Verdict::Blocked { reason } => Err(blocked(&reason)),
        }
    }

    async fn foreground(&self, ctx: &SessionCtx, asked: &Asked<'_>, limit: Duration) -> io::Result<Value> {
        let (memory, cwd) = (asked.memory, asked.cwd.clone());
        let number = self.commands.fetch_add(1, Ordering::Relaxed);
        let spool = self.directory.join("output").join(format!("cmd_{}_{number}.log", ctx.now.0));
        let launch = Launch {
            program: shell::shell(),
            args: vec![memory.flag(self.config.login).into(), memory.remembered(ctx, asked.command).into()],
            cwd,
            env: environment::of_child(ctx, &self.config.passthrough, std::env::vars_os()),
        };
        let capture = Capture::new(self.config.output, spool);
        let Ran { output, exit_code } = foreground::run(launch, asked.screen, limit, capture).await?;
        let mut result = json!({ "output": output, "exit_code": exit_code, "error": null });
        if let Some(meaning) = text::meaning(asked.command, exit_code) {
            result["exit_code_meaning"] = meaning.into();
        }
        if let Some(note) = &asked.note {
            result["approval"] = note.as_str().into();
        }
        Ok(result)
    }

    async fn background(&self, ctx: &SessionCtx, asked: &Asked<'_>, wish: Wish) -> io::Result<Value> {
        let (memory, cwd) = (asked.memory, asked.cwd.clone());
        let mut env = environment::of_child(ctx, &self.config.passthrough, std::env::vars_os());
        env.push(("PYTHONUNBUFFERED".into(), "1".into()));
        let record = Record {
            id: new_id()?,
            key: ctx.key.clone(),
            session: ctx.session.clone(),
            source: ctx.source.clone(),
            command: asked.command.to_owned(),
            cwd: cwd.to_string_lossy().into_owned(),
            promise: wish.promise(ctx),
            started_at: processes::now(),
        };
        let args = vec![memory.flag(self.config.login).into(), memory.recalled(asked.command).into()];
        let launch = Launch { program: shell::shell(), args, cwd, env };
        let process = self.processes.start(record, launch, asked.screen).await?;
        let mut result = json!({
            "output": "Background process started",
            "session_id": process.record.id,
            "pid": process.who.pid,
            "exit_code": 0,
            "error": null,
        });
        if let Some(note) = &asked.note {
            result["approval"] = note.as_str().into();
        }
        wish.say(&process.record.promise, &mut result);
        Ok(result)
    }

    async fn memory(&self, ctx: &SessionCtx) -> io::Result<Memory> {
        tokio::fs::create_dir_all(self.first_directory(ctx)).await?;
        Memory::of(&self.directory, ctx)
    }

    fn first_directory<'a>(&'a self, ctx: &'a SessionCtx) -> &'a Path {
        self.config.cwd.as_deref().unwrap_or(&ctx.workspace)
    }

    fn place(&self, ctx: &SessionCtx, memory: &Memory, workdir: Option<&str>) -> io::Result<PathBuf> {
        let last = memory.cwd(self.first_directory(ctx));
        let Some(workdir) = workdir else { return Ok(last) };
        let asked = match (workdir.strip_prefix('~'), std::env::home_dir()) {
            (Some(below), Some(home)) if below.is_empty() || below.starts_with('/') => {
                home.join(below.trim_start_matches('/'))
            }
            (Some(_) | None, _) => last.join(workdir),
        };
        if asked.is_dir() {
            return Ok(asked);
        }
        Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no directory {}", asked.display())))
    }
}

/// A name that no process had before.
fn new_id() -> io::Result<String> {
    let mut random = [0; 6];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    Ok(random.iter().fold("proc_".to_owned(), |id, byte| format!("{id}{byte:02x}")))
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
    refused("error", -1, &format!("Invalid command: expected string, got {kind}"))
}

fn not_run(refusal: &Refused) -> Value {
    match refusal {
        Refused::LongLived(why) => refused(
            "error",
            -1,
            &format!(
                "Not run in the foreground: {why}. Use background=true (with notify_on_complete=true if it ends), \
                 without &, nohup or setsid, and process(action='poll') to look after it."
            ),
        ),
        Refused::Gateway => refused(
            "error",
            1,
            "Not run: this would end the gateway in which you run, and this conversation with it. Ask the owner to do it.",
        ),
    }
}

fn blocked(reason: &str) -> Value {
    refused("blocked", -1, reason)
}

fn cannot_run(error: &io::Error) -> Value {
    json!({ "output": "", "exit_code": -1, "error": format!("The command could not be run: {error}") })
}

fn refused(status: &str, exit_code: i32, reason: &str) -> Value {
    json!({ "output": "", "exit_code": exit_code, "error": reason, "status": status })
}

/// For the owner's eyes only.
fn private_directory(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// For the owner's eyes only; what was there is replaced.
fn private_file() -> tokio::fs::OpenOptions {
    let mut options = tokio::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options
}
