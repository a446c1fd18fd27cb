//! Drives the real program: a private home, fakes on loopback, signals, and waiting for conditions.
#![allow(dead_code, clippy::expect_used, reason = "each test file uses the part it needs")]

pub mod api;
pub mod http;
pub mod outside;

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use petasos_fakes::model::{Answer, Model};
use petasos_fakes::telegram::Telegram;
use petasos_fakes::{Discord, Slack};
use tempfile::TempDir;

/// How long a test waits for something that should happen at once.
pub const SOON: Duration = Duration::from_secs(60);

/// Checks how long something took. Only with `PETASOS_TIMED` (scripts/full): a busy machine fails any short limit.
#[track_caller]
pub fn assert_took_at_most(limit: Duration, since: Instant) {
    let took = since.elapsed();
    assert!(std::env::var_os("PETASOS_TIMED").is_none() || took <= limit, "took {took:?}, limit {limit:?}");
}

/// A shell command that waits until the file exists. Commands outlive a killed gateway, so it also ends when the folder
/// of the file is gone.
pub fn wait_for_file(file: &Path) -> String {
    let folder = file.parent().expect("a folder");
    format!("while [ ! -e {} ] && [ -d {} ]; do sleep 0.02; done", file.display(), folder.display())
}

/// A home, its fakes, and the gateway when it runs.
pub struct Bench {
    pub telegram: Telegram,
    discord: Option<Discord>,
    slack: Option<Slack>,
    pub model: Model,
    pub home: TempDir,
    pub gateway: Option<Gateway>,
    /// Whether the gateway is on Telegram at all.
    polls: bool,
}

/// Which platforms a gateway is put on.
#[derive(Default)]
pub struct Setup {
    telegram: bool,
    discord: Option<Discord>,
    slack: Option<Slack>,
    more: String,
}

pub struct Gateway {
    child: Child,
}

impl Bench {
    /// Fakes and a home, no gateway yet. Everybody may write.
    pub fn new() -> Self {
        Self::with("")
    }

    /// `more` is appended to the configuration.
    pub fn with(more: &str) -> Self {
        Self::setup().telegram().with(more).build()
    }

    /// A gateway on no platform yet.
    pub fn setup() -> Setup {
        Setup::default()
    }

    #[track_caller]
    pub fn discord(&self) -> &Discord {
        self.discord.as_ref().expect("set up with Discord")
    }

    #[track_caller]
    pub fn slack(&self) -> &Slack {
        self.slack.as_ref().expect("set up with Slack")
    }

    /// Starts the gateway and waits until it listens, on every platform it is on.
    pub fn start(&mut self) {
        let polls = self.telegram.calls_of("getUpdates").len();
        let sessions = self.discord.as_ref().map(|it| it.look(sessions_of)).unwrap_or_default();
        let sockets = self.slack.as_ref().map(|it| it.look(|world| world.opened())).unwrap_or_default();
        self.launch();
        let polling = !self.polls
            || self
                .telegram
                .wait_until(SOON, |world| (world.calls_of("getUpdates").count() > polls).then_some(()))
                .is_some();
        let on_discord = self.discord.as_ref().is_none_or(|it| {
            let listens = |world: &petasos_fakes::discord::World| sessions_of(world) > sessions;
            it.wait_until(SOON, |world| listens(world).then_some(())).is_some()
        });
        let on_slack = self.slack.as_ref().is_none_or(|it| {
            let listens = |world: &petasos_fakes::slack::World| world.opened() > sockets;
            it.wait_until(SOON, |world| listens(world).then_some(())).is_some()
        });
        if !(polling && on_discord && on_slack) {
            let said = self.gateway.take().map(Gateway::kill).unwrap_or_default();
            panic!("the gateway does not listen: {said}");
        }
        // Platforms may be connected before the control socket listens.
        let socket = self.home.path().join("petasos.sock");
        eventually("the control socket listens", || UnixStream::connect(&socket).is_ok());
    }

    /// Starts the gateway without waiting for anything.
    pub fn launch(&mut self) {
        self.launch_with(&[]);
    }

    /// The same with more in its environment.
    pub fn launch_with(&mut self, env: &[(&str, &str)]) {
        let child = self
            .command(&["run"])
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        self.gateway = Some(Gateway { child: child.expect("petasos starts") });
    }

    /// The program with this home and nothing of the caller's environment that could matter.
    pub fn command(&self, args: &[&str]) -> Command {
        petasos(self.home.path(), args)
    }

    pub fn run(&self, args: &[&str]) -> Output {
        let mut command = self.command(args);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.expect("petasos runs");
        bounded(child.id(), SOON, || child.wait_with_output().expect("a child to wait for"))
    }

    /// As the kernel would: no goodbye. Gives back what it had said.
    pub fn kill(&mut self) -> String {
        self.gateway.take().expect("a running gateway").kill()
    }

    /// Waits until the gateway has killed itself. `false`: it lives, or has ended in another way.
    pub fn dies(&mut self, within: Duration) -> bool {
        let Some(gateway) = &mut self.gateway else { return true };
        let until = Instant::now() + within;
        while Instant::now() < until {
            if let Some(status) = gateway.child.try_wait().expect("a child") {
                self.gateway = None;
                return status.signal() == Some(9);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// It was never started, or has ended by itself, and well.
    pub fn has_ended(&mut self) -> bool {
        let Some(gateway) = &mut self.gateway else { return true };
        let ended = gateway.child.try_wait().expect("a child");
        if let Some(status) = ended {
            let said = self.gateway.take().map(Gateway::kill).unwrap_or_default();
            assert!(status.success(), "{status}: {said}");
        }
        ended.is_some()
    }

    /// Asks it to stop and waits. Gives back exit code, output, and how long it took.
    pub fn terminate(&mut self) -> (Option<i32>, String, Duration) {
        let mut gateway = self.gateway.take().expect("a running gateway");
        let started = Instant::now();
        gateway.signal("TERM");
        let code = wait(&mut gateway.child, SOON);
        let took = started.elapsed();
        (code, gateway.said(), took)
    }

    /// Waits until the gateway has nothing left to do, by its own account.
    pub fn settle(&self) {
        self.wait_zero(&["/inbox/queued", "/inbox/running", "/outbox/due"]);
    }

    /// Waits until the gateway owes nothing, by its own account.
    pub fn settle_outbox(&self) {
        self.wait_zero(&["/outbox/due"]);
    }

    fn wait_zero(&self, counts: &[&str]) {
        let until = Instant::now() + SOON;
        loop {
            let status = self.status();
            // A gateway that is just starting has nothing to count yet.
            let count = |path: &&str| status.pointer(path).and_then(serde_json::Value::as_u64);
            if counts.iter().map(count).sum::<Option<u64>>() == Some(0) {
                return;
            }
            assert!(Instant::now() < until, "never idle: {status}");
        }
    }

    /// What the gateway says of itself.
    pub fn status(&self) -> serde_json::Value {
        let status = self.run(&["status", "--json"]);
        let error = String::from_utf8_lossy(&status.stderr);
        serde_json::from_slice(&status.stdout).unwrap_or_else(|_| panic!("status is not JSON: {error}"))
    }

    /// `gateway_state.json` as it stands, if it is there.
    pub fn state_file(&self) -> Option<serde_json::Value> {
        let text = std::fs::read(self.home.path().join("gateway_state.json")).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Waits until the status file of this process says so.
    #[track_caller]
    pub fn await_state(&self, want: &str) -> serde_json::Value {
        let pid = self.gateway.as_ref().map(Gateway::pid);
        let until = Instant::now() + SOON;
        loop {
            let found = self.state_file();
            if let Some(found) = &found
                && found["gateway_state"] == want
                && pid.is_none_or(|pid| found["pid"] == pid)
            {
                return found.clone();
            }
            assert!(Instant::now() < until, "never {want}: {found:?}");
            std::thread::yield_now();
        }
    }

    pub fn database(&self) -> PathBuf {
        self.home.path().join("petasos.db")
    }

    /// Waits until the chat shows at least `count` messages.
    #[track_caller]
    pub fn wait_messages(&self, chat: i64, count: usize) -> Vec<String> {
        let found = self.telegram.wait_until(SOON, |world| {
            let texts = world.texts(chat);
            (texts.len() >= count).then_some(texts)
        });
        found.unwrap_or_else(|| {
            panic!("chat {chat} shows {:?}, wanted {count} messages", self.telegram.texts(chat))
        })
    }
}

impl Setup {
    pub fn telegram(mut self) -> Self {
        self.telegram = true;
        self
    }

    /// A server (1) with a channel (70), and a private chat (50).
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

    /// Appended to the configuration.
    pub fn with(mut self, more: &str) -> Self {
        self.more.push_str(more);
        self
    }

    pub fn build(self) -> Bench {
        let telegram = Telegram::start().expect("fake telegram");
        let model = Model::start().expect("fake model");
        model.respond(|request| Answer::text(format!("echo: {}", said(&request.last_user))));
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
            self.more,
        );
        std::fs::write(home.path().join("config.yaml"), config).expect("config");
        let Self { telegram: polls, discord, slack, .. } = self;
        Bench { telegram, discord, slack, model, home, gateway: None, polls }
    }
}

/// Sessions that were begun or taken up again, by the sockets' own account.
fn sessions_of(world: &petasos_fakes::discord::World) -> usize {
    const IDENTIFY: u64 = 2;
    const RESUME: u64 = 6;
    world.heard(IDENTIFY).count() + world.heard(RESUME).count()
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Some(gateway) = self.gateway.take() {
            let said = gateway.kill();
            if std::thread::panicking() {
                eprintln!("--- the gateway said ---\n{said}");
            }
        }
    }
}

impl Gateway {
    pub fn of(child: Child) -> Self {
        Self { child }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(sent.expect("kill runs").success());
    }

    /// The same to a process that may have ended already.
    pub fn signal_if_alive(&self, name: &str) {
        let _ = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).output();
    }

    pub fn kill(mut self) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.said()
    }

    pub fn wait(mut self) -> (Option<i32>, String) {
        let code = wait(&mut self.child, SOON);
        (code, self.said())
    }

    fn said(&mut self) -> String {
        let mut said = String::new();
        if let Some(mut out) = self.child.stdout.take() {
            let _ = out.read_to_string(&mut said);
        }
        if let Some(mut err) = self.child.stderr.take() {
            let _ = err.read_to_string(&mut said);
        }
        said
    }
}

/// Waits for the end of a process; one that takes too long is killed, and has no exit code.
fn wait(child: &mut Child, most: Duration) -> Option<i32> {
    bounded(child.id(), most, || child.wait().expect("a child to wait for")).code()
}

/// Does something that ends with a process, and ends the process if it takes too long.
fn bounded<T>(pid: u32, most: Duration, work: impl FnOnce() -> T) -> T {
    let (done, ended) = mpsc::channel::<()>();
    let guard = std::thread::spawn(move || {
        if ended.recv_timeout(most) == Err(mpsc::RecvTimeoutError::Timeout) {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        }
    });
    let answer = work();
    drop(done);
    guard.join().expect("the guard ends");
    answer
}

/// For what nobody rings a bell for.
#[track_caller]
pub fn eventually(what: &str, mut look: impl FnMut() -> bool) {
    let until = Instant::now() + SOON;
    while !look() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// The words of the user, without what the gateway says before them about an interruption.
pub fn said(input: &str) -> &str {
    match input.strip_prefix("[System note:").and_then(|rest| rest.split_once("]\n\n")) {
        Some((_, said)) => said,
        None => input,
    }
}

/// The program, in a home.
pub fn petasos(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_petasos"));
    command.args(args).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    // A stop does not wait for turns and starts are not counted, unless the configuration says so.
    command.env("HERMES_RESTART_DRAIN_TIMEOUT", "0").env("HERMES_GATEWAY_MAX_STARTS", "0");
    command.env("PETASOS_HOME", home).env("GATEWAY_ALLOW_ALL_USERS", "true").env("NO_COLOR", "1");
    command
}

/// What a command said that went well.
#[track_caller]
pub fn fine(output: &Output) -> String {
    assert!(output.status.success(), "{:?}: {}{}", output.status, stdout(output), stderr(output));
    stdout(output)
}

#[track_caller]
pub fn json(output: &Output) -> serde_json::Value {
    serde_json::from_str(&fine(output)).expect("JSON")
}

/// What a command that failed said; with the exit code it must have.
#[track_caller]
pub fn failed(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{}{}", stdout(output), stderr(output));
    stderr(output)
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Reads standard output of a child until a line holds `text`, and gives it back; what comes after stays readable.
pub fn read_until(child: &mut Child, text: &str) -> String {
    let out = child.stdout.as_mut().expect("standard output is piped");
    let (mut before, mut line) = (String::new(), Vec::new());
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
    let mut said = String::new();
    if let Some(err) = child.stderr.as_mut() {
        let _ = err.read_to_string(&mut said);
    }
    panic!("the program ended before it said {text:?}: {said}");
}
