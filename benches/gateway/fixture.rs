//! A home with a fake Telegram and a fake model, for one run of the program.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use petasos_fakes::Retention;
use petasos_fakes::model::{Answer, ChatRequest, Model};
use petasos_fakes::telegram::{Telegram, VisibleChange};
use serde_json::json;
use tempfile::TempDir;

use super::TIMEOUT;
use super::process::GatewayProcess;

pub(super) struct GatewayFixture {
    pub(super) telegram: Telegram,
    _model: Model,
    pub(super) home: TempDir,
    /// Chat ids, as answers become visible.
    pub(super) answered: mpsc::Receiver<i64>,
}

impl GatewayFixture {
    pub(super) fn new() -> Self {
        Self::with("", |_| Answer::text("A short answer."))
    }

    /// A model that runs the message as a terminal command.
    pub(super) fn with_tools() -> Self {
        let more = "approvals:\n  mode: 'off'\nterminal:\n  enabled: true\n  login_shell: false\n";
        Self::with(more, |request| match request.messages().last().filter(|row| row["role"] == "tool") {
            Some(_result) => Answer::text("done"),
            None => Answer::tool("terminal", json!({ "command": request.last_user, "timeout": 600 })),
        })
    }

    fn with(more: &str, answer: impl Fn(&ChatRequest) -> Answer + Send + Sync + 'static) -> Self {
        let telegram = Telegram::start().expect("fake telegram");
        let model = Model::start().expect("fake model");
        model.respond(answer);
        model.set_retention(Retention::Nothing);
        telegram.set_retention(Retention::Last(64));
        let (sender, answered) = mpsc::channel();
        telegram.observe(move |change| {
            if let VisibleChange::Sent(message) = change {
                let _ = sender.send(message.chat);
            }
        });
        let home = TempDir::new().expect("a home");
        let config = format!(
            "model:\n  default: fake\n  provider: custom\n  base_url: {}/v1\n  api_key: sk-bench\n\
             platforms:\n  telegram:\n    enabled: true\n    token: \"123:abc\"\n    extra:\n      base_url: {}/bot\n\
             web:\n  port: 0\ngateway:\n  api_server:\n    queue_seconds: 60\n{more}",
            model.url(),
            telegram.url(),
        );
        std::fs::write(home.path().join("config.yaml"), config).expect("config");
        Self { telegram, _model: model, home, answered }
    }

    pub(super) fn launch(&self, program: &Path) -> GatewayProcess {
        self.launch_with(program, &[])
    }

    pub(super) fn launch_with(&self, program: &Path, env: &[(&str, &str)]) -> GatewayProcess {
        let mut command = Command::new(program);
        command
            .args(["run", "--quiet"])
            .env("PETASOS_HOME", self.home.path())
            .env("GATEWAY_ALLOW_ALL_USERS", "true")
            .env("HERMES_GATEWAY_MAX_STARTS", "0")
            .envs(env.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        GatewayProcess(command.spawn().expect("petasos starts"))
    }

    pub(super) fn await_state(&self, want: &str) {
        let path = self.home.path().join("gateway_state.json");
        let started = Instant::now();
        let want = format!("\"gateway_state\":\"{want}\"");
        while !std::fs::read_to_string(&path).is_ok_and(|text| text.contains(&want)) {
            assert!(started.elapsed() < TIMEOUT, "never {want}");
        }
    }

    pub(super) fn send(&self, chat: i64, text: &str) {
        self.telegram.push_text(chat, chat, text);
    }

    /// Waits for a visible answer, and returns its chat.
    pub(super) fn wait_for_answer(&self) -> i64 {
        self.answered.recv_timeout(TIMEOUT).expect("an answer")
    }

    pub(super) fn exchange(&self, chat: i64) -> Duration {
        let sent = Instant::now();
        self.send(chat, "hello");
        self.wait_for_answer();
        sent.elapsed()
    }
}
