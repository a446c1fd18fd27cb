//! Fixture: the real program in a private home, with fakes on loopback.
#![allow(dead_code, clippy::expect_used, reason = "each test file uses the part it needs")]

pub mod api;
pub mod damage;
pub mod foreign_client;
pub mod http;

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use petasos_fakes::model::{Answer, Model};
use petasos_fakes::telegram::Telegram;
use petasos_fakes::wait::{self, Condition};
use petasos_fakes::{Discord, Slack};
use petasos_runtime::clock;
use tempfile::TempDir;
use tokio::time::Instant;

/// Timeout of every wait for something that should happen at once.
pub const SOON: Duration = Duration::from_secs(60);

/// Checks a duration, only with `PETASOS_TIMED` (scripts/full): a busy machine fails any short limit.
#[track_caller]
pub fn assert_took_at_most(limit: Duration, since: Instant) {
    let took = since.elapsed();
    assert!(std::env::var_os("PETASOS_TIMED").is_none() || took <= limit, "took {took:?}, limit {limit:?}");
}

/// A shell command that waits until the file exists. It also ends when the folder is removed: commands outlive a killed
/// gateway.
pub fn wait_for_file(file: &Path) -> String {
    let folder = file.parent().expect("a folder");
    format!("while [ ! -e {} ] && [ -d {} ]; do sleep 0.02; done", file.display(), folder.display())
}

/// A home, its fakes, and the gateway process while it runs.
pub struct ProgramFixture {
    pub telegram: Telegram,
    discord: Option<Discord>,
    slack: Option<Slack>,
    pub model: Model,
    pub home: TempDir,
    pub gateway: Option<GatewayProcess>,
    has_telegram: bool,
}

/// Platforms and configuration of a fixture.
#[derive(Default)]
pub struct FixtureBuilder {
    telegram: bool,
    discord: Option<Discord>,
    slack: Option<Slack>,
    config: String,
}

pub struct GatewayProcess {
    child: Child,
}

impl ProgramFixture {
    /// A fixture with Telegram and a gateway that is not started yet and admits every user.
    pub fn new() -> Self {
        Self::with_config("")
    }

    /// `config` is appended to the configuration.
    pub fn with_config(config: &str) -> Self {
        Self::builder().telegram().with(config).build()
    }

    /// A fixture without platforms.
    pub fn builder() -> FixtureBuilder {
        FixtureBuilder::default()
    }

    #[track_caller]
    pub fn discord(&self) -> &Discord {
        self.discord.as_ref().expect("built with Discord")
    }

    #[track_caller]
    pub fn slack(&self) -> &Slack {
        self.slack.as_ref().expect("built with Slack")
    }

    /// Starts the gateway and waits until it is connected to every platform.
    pub fn start(&mut self) {
        let polls = self.telegram.calls_of("getUpdates").len();
        let sessions = self.discord.as_ref().map(|it| it.read(sessions_of)).unwrap_or_default();
        let sockets = self.slack.as_ref().map(|it| it.read(|state| state.opened())).unwrap_or_default();
        self.launch();
        let polling = !self.has_telegram
            || self
                .telegram
                .wait_until(SOON, |state| (state.calls_of("getUpdates").count() > polls).then_some(()))
                .is_some();
        let on_discord = self.discord.as_ref().is_none_or(|it| {
            let listens = |state: &petasos_fakes::discord::State| sessions_of(state) > sessions;
            it.wait_until(SOON, |state| listens(state).then_some(())).is_some()
        });
        let on_slack = self.slack.as_ref().is_none_or(|it| {
            let listens = |state: &petasos_fakes::slack::State| state.opened() > sockets;
            it.wait_until(SOON, |state| listens(state).then_some(())).is_some()
        });
        if !(polling && on_discord && on_slack) {
            let output = self.gateway.take().map(GatewayProcess::kill).unwrap_or_default();
            panic!("the gateway does not connect: {output}");
        }
        // Platforms may be connected before the control socket listens.
        let socket = self.home.path().join("petasos.sock");
        eventually("the control socket listens", || UnixStream::connect(&socket).is_ok());
    }

    /// Starts the gateway without waiting for a connection.
    pub fn launch(&mut self) {
        self.launch_with(&[]);
    }

    pub fn launch_with(&mut self, env: &[(&str, &str)]) {
        let child = self
            .command(&["run"])
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        self.gateway = Some(GatewayProcess { child: child.expect("petasos starts") });
    }

    /// The program with this home and a clean environment.
    pub fn command(&self, args: &[&str]) -> Command {
        petasos(self.home.path(), args)
    }

    pub fn run(&self, args: &[&str]) -> Output {
        let mut command = self.command(args);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.expect("petasos runs");
        with_kill_timeout(child.id(), SOON, || child.wait_with_output().expect("a child to wait for"))
    }

    /// Sends SIGKILL and returns the output of the process.
    pub fn kill(&mut self) -> String {
        self.gateway.take().expect("a running gateway").kill()
    }

    /// Waits until the gateway has killed itself. `false`: it still runs, or exited in another way.
    pub fn wait_killed(&mut self, timeout: Duration) -> bool {
        let Some(gateway) = &mut self.gateway else { return true };
        let status = wait::poll(timeout, || gateway.child.try_wait().expect("a child"));
        if status.is_some() {
            self.gateway = None;
        }
        status.is_some_and(|status| status.signal() == Some(9))
    }

    /// Whether the gateway was never started or has exited by itself. Panics if it failed.
    pub fn has_exited(&mut self) -> bool {
        let Some(gateway) = &mut self.gateway else { return true };
        let exited = gateway.child.try_wait().expect("a child");
        if let Some(status) = exited {
            let output = self.gateway.take().map(GatewayProcess::kill).unwrap_or_default();
            assert!(status.success(), "{status}: {output}");
        }
        exited.is_some()
    }

    /// Sends SIGTERM and waits. Returns exit code, output and duration.
    pub fn terminate(&mut self) -> (Option<i32>, String, Duration) {
        let mut gateway = self.gateway.take().expect("a running gateway");
        let started = clock::monotonic();
        gateway.signal("TERM");
        let code = wait_exit(&mut gateway.child, SOON);
        let took = started.elapsed();
        (code, gateway.output(), took)
    }

    /// Waits until the status reports no queued message, no running turn and no due delivery.
    pub fn wait_idle(&self) {
        self.wait_counts_zero(&["/inbox/queued", "/inbox/running", "/outbox/due"]);
    }

    pub fn wait_outbox_empty(&self) {
        self.wait_counts_zero(&["/outbox/due"]);
    }

    fn wait_counts_zero(&self, counts: &[&str]) {
        let mut status = serde_json::Value::Null;
        let is_zero = wait::poll(SOON, || {
            status = self.status();
            // A gateway that is starting has no counts yet.
            let count = |path: &&str| status.pointer(path).and_then(serde_json::Value::as_u64);
            counts.iter().map(count).sum::<Option<u64>>() == Some(0)
        });
        assert!(is_zero.is_some(), "never idle: {status}");
    }

    pub fn status(&self) -> serde_json::Value {
        let status = self.run(&["status", "--json"]);
        let error = String::from_utf8_lossy(&status.stderr);
        serde_json::from_slice(&status.stdout).unwrap_or_else(|_| panic!("status is not JSON: {error}"))
    }

    /// `gateway_state.json`, if it exists.
    pub fn state_file(&self) -> Option<serde_json::Value> {
        let text = std::fs::read(self.home.path().join("gateway_state.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Waits until the state file of the current process shows this state.
    #[track_caller]
    pub fn wait_state(&self, want: &str) -> serde_json::Value {
        let pid = self.gateway.as_ref().map(GatewayProcess::pid);
        let mut last = None;
        let found = wait::poll(SOON, || {
            last = self.state_file();
            let is_wanted = |found: &&serde_json::Value| {
                found["gateway_state"] == want && pid.is_none_or(|pid| found["pid"] == pid)
            };
            last.as_ref().filter(is_wanted).cloned()
        });
        found.unwrap_or_else(|| panic!("never {want}: {last:?}"))
    }

    pub fn database(&self) -> PathBuf {
        self.home.path().join("petasos.db")
    }

    /// Waits until the Telegram chat shows at least `count` messages.
    #[track_caller]
    pub fn wait_messages(&self, chat: i64, count: usize) -> Vec<String> {
        let found = self.telegram.wait_until(SOON, |state| {
            let texts = state.texts(chat);
            (texts.len() >= count).then_some(texts)
        });
        found.unwrap_or_else(|| {
            panic!("chat {chat} shows {:?}, wanted {count} messages", self.telegram.texts(chat))
        })
    }
}

impl FixtureBuilder {
    pub fn telegram(mut self) -> Self {
        self.telegram = true;
        self
    }

    /// Discord with a server (1), a channel (70) in it, and a private chat (50).
    pub fn discord(mut self) -> Self {
        let discord = Discord::start().expect("fake discord");
        discord.add_guild(1);
        discord.add_channel(1, 70, "general");
        discord.add_direct(50);
        self.discord = Some(discord);
        self
    }

    pub fn slack(mut self) -> Self {
        self.slack = Some(Slack::start().expect("fake slack"));
        self
    }

    /// `config` is appended to the configuration.
    pub fn with(mut self, config: &str) -> Self {
        self.config.push_str(config);
        self
    }

    pub fn build(self) -> ProgramFixture {
        let telegram = Telegram::start().expect("fake telegram");
        let model = Model::start().expect("fake model");
        model.respond(|request| Answer::text(format!("echo: {}", user_text(&request.last_user))));
        let home = TempDir::new().expect("a home");
        let mut platforms = String::new();
        if self.telegram {
            platforms += &format!(
                "  telegram:\n    enabled: true\n    token: \"123:abc\"\n    extra:\n      base_url: {}/bot\n",
                telegram.url()
            );
        }
        if let Some(discord) = &self.discord {
            platforms += &format!(
                "  discord:\n    enabled: true\n    token: OTAw.x.secret\n    extra:\n      api_base: {}\n",
                discord.api_base()
            );
        }
        if let Some(slack) = &self.slack {
            platforms += &format!(
                "  slack:\n    enabled: true\n    token: {}\n    app_token: xapp-1-A1-2-secret\n    extra:\n      \
                 api_base: {}\n",
                petasos_fakes::slack::TOKEN,
                slack.api_base()
            );
        }
        let config = format!(
            "model:\n  default: fake-model\n  provider: custom\n  base_url: {}/v1\n  api_key: sk-test\n\
             platforms:\n{platforms}web:\n  enabled: false\n{}",
            model.url(),
            self.config,
        );
        std::fs::write(home.path().join("config.yaml"), config).expect("config");
        let Self { telegram: has_telegram, discord, slack, .. } = self;
        ProgramFixture { telegram, discord, slack, model, home, gateway: None, has_telegram }
    }
}

/// Sessions that clients identified or resumed.
fn sessions_of(state: &petasos_fakes::discord::State) -> usize {
    const IDENTIFY: u64 = 2;
    const RESUME: u64 = 6;
    state.frames(IDENTIFY).count() + state.frames(RESUME).count()
}

impl Drop for ProgramFixture {
    fn drop(&mut self) {
        if let Some(gateway) = self.gateway.take() {
            let output = gateway.kill();
            if std::thread::panicking() {
                eprintln!("--- output of the gateway ---\n{output}");
            }
        }
    }
}

impl GatewayProcess {
    pub fn new(child: Child) -> Self {
        Self { child }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(sent.expect("kill runs").success());
    }

    /// [`Self::signal`] for a process that may have exited already.
    pub fn signal_if_alive(&self, name: &str) {
        let _ = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).output();
    }

    pub fn kill(mut self) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.output()
    }

    pub fn wait(mut self) -> (Option<i32>, String) {
        let code = wait_exit(&mut self.child, SOON);
        (code, self.output())
    }

    fn output(&mut self) -> String {
        let mut output = String::new();
        if let Some(mut out) = self.child.stdout.take() {
            let _ = out.read_to_string(&mut output);
        }
        if let Some(mut err) = self.child.stderr.take() {
            let _ = err.read_to_string(&mut output);
        }
        output
    }
}

/// Waits for a process to exit. `None`: it was killed, by another process or after the timeout.
fn wait_exit(child: &mut Child, timeout: Duration) -> Option<i32> {
    with_kill_timeout(child.id(), timeout, || child.wait().expect("a child to wait for")).code()
}

/// Runs `work`, which blocks until the process exits, and kills the process after the timeout.
#[expect(clippy::disallowed_methods, reason = "the test thread waits for the process meanwhile")]
fn with_kill_timeout<T>(pid: u32, timeout: Duration, work: impl FnOnce() -> T) -> T {
    let (done, ended) = mpsc::sync_channel::<()>(1);
    let guard = std::thread::spawn(move || {
        if ended.recv_timeout(timeout) == Err(mpsc::RecvTimeoutError::Timeout) {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        }
    });
    let result = work();
    drop(done);
    guard.join().expect("the guard ends");
    result
}

/// Polls for a condition without a notification.
#[track_caller]
pub fn eventually<C: Condition>(description: &str, condition: impl FnMut() -> C) -> C::Value {
    wait::eventually(description, SOON, condition)
}

/// The user's text in a model input, without the gateway's note about an interruption.
pub fn user_text(input: &str) -> &str {
    match input.strip_prefix("[System note:").and_then(|rest| rest.split_once("]\n\n")) {
        Some((_, text)) => text,
        None => input,
    }
}

pub fn petasos(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_petasos"));
    command.args(args).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    // By default a stop does not wait for turns, and starts are not counted.
    command.env("HERMES_RESTART_DRAIN_TIMEOUT", "0").env("HERMES_GATEWAY_MAX_STARTS", "0");
    command.env("PETASOS_HOME", home).env("GATEWAY_ALLOW_ALL_USERS", "true").env("NO_COLOR", "1");
    command
}

/// Standard output of a command that must succeed.
#[track_caller]
pub fn expect_success(output: &Output) -> String {
    assert!(output.status.success(), "{:?}: {}{}", output.status, stdout(output), stderr(output));
    stdout(output)
}

#[track_caller]
pub fn expect_json(output: &Output) -> serde_json::Value {
    serde_json::from_str(&expect_success(output)).expect("JSON")
}

/// Standard error of a command that must fail with this exit code.
#[track_caller]
pub fn expect_failure(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{}{}", stdout(output), stderr(output));
    stderr(output)
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Reads standard output of a child up to the line that contains `text`. Later output stays readable.
pub fn read_until(child: &mut Child, text: &str) -> String {
    let out = child.stdout.as_mut().expect("standard output is piped");
    let mut before = String::new();
    let mut line = Vec::new();
    let mut byte = [0];
    while out.read(&mut byte).expect("readable") == 1 {
        line.push(byte[0]);
        if byte[0] != b'\n' {
            continue;
        }
        before.push_str(&String::from_utf8_lossy(&line));
        if String::from_utf8_lossy(&line).contains(text) {
            return before;
        }
        line.clear();
    }
    let mut errors = String::new();
    if let Some(err) = child.stderr.as_mut() {
        let _ = err.read_to_string(&mut errors);
    }
    panic!("the program exited before it printed {text:?}: {errors}");
}
