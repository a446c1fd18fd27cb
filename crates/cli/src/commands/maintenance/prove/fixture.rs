//! Fixture of a trial: a private home, a fake chat and a fake model on loopback, and this program as a child
//! process.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use petasos_core::transcript::Message;
use petasos_core::{SessionId, SessionKey};
use petasos_fakes::model::{Answer, Model};
use petasos_fakes::telegram::Telegram;
use petasos_store::{Reader, Store};

pub(super) const TIMEOUT: Duration = Duration::from_secs(20);
/// Prefix of a possible duplicate.
const DUPLICATE_MARK: &str = "Recovered reply";
/// Limit for the database and its log after fewer than a hundred short messages.
const MAX_FILE_SIZE: u64 = 24 << 20;
/// In KB; also holds for a debug build.
const MAX_MEMORY_KB: u64 = 256 << 10;

#[derive(Debug)]
pub(super) struct TrialRng(u64);

impl TrialRng {
    pub(super) fn new(seed: u64, name: &str) -> Self {
        let mix = |mixed: u64, byte: u8| (mixed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, mix))
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)) % end.max(1)
    }
}

#[derive(Debug)]
pub(super) struct TrialFixture {
    pub(super) telegram: Telegram,
    pub(super) model: Model,
    pub(super) home: PathBuf,
    gateway: Option<Child>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AnswerMode {
    Whole,
    Streamed,
    /// The terminal tool is enabled; its processes may outlive the turn.
    Background,
    Aging,
}

impl TrialFixture {
    pub(super) fn new(answers: AnswerMode) -> Result<Self, String> {
        let describe = |what: &str, error: std::io::Error| format!("{what}: {error}");
        let telegram =
            Telegram::start().map_err(|error| describe("the chat cannot listen on loopback", error))?;
        let model = Model::start().map_err(|error| describe("the model cannot listen on loopback", error))?;
        model.respond(move |request| {
            let answer = Answer::text(format!("echo: {}", user_text(&request.last_user)));
            match answers {
                AnswerMode::Whole | AnswerMode::Background | AnswerMode::Aging => answer,
                AnswerMode::Streamed => answer.chunks(6).every(Duration::from_millis(200)),
            }
        });
        let home =
            private_folder().map_err(|error| describe("the private folder cannot be created", error))?;
        let more = match answers {
            AnswerMode::Whole => "",
            AnswerMode::Aging => "retention:\n  max_age_days: 1\n  notice_days: 0\n  every_seconds: 1\n",
            AnswerMode::Background => "terminal:\n  enabled: true\n  login_shell: false\n",
            AnswerMode::Streamed => "streaming:\n  enabled: true\n  transport: edit\n",
        };
        let config = format!(
            "model:\n  default: fake-model\n  provider: custom\n  base_url: {}/v1\n  api_key: sk-proof\n\
             platforms:\n  telegram:\n    enabled: true\n    token: \"123:abc\"\n    extra:\n      base_url: {}/bot\n\
             web:\n  enabled: false\n{more}",
            model.url(),
            telegram.url(),
        );
        fs::write(home.join("config.yaml"), config)
            .map_err(|error| describe("the configuration cannot be written", error))?;
        Ok(Self { telegram, model, home, gateway: None })
    }

    pub(super) fn start(&mut self) -> Result<(), String> {
        let polls = self.telegram.calls_of("getUpdates").len();
        self.launch(None)?;
        let polled = self
            .telegram
            .wait_until(TIMEOUT, |world| (world.calls_of("getUpdates").count() > polls).then_some(()));
        polled.ok_or_else(|| "the gateway never polled for messages".to_owned())
    }

    /// `max_kilobytes`: limits the size of every file, as on a full disk.
    pub(super) fn launch(&mut self, max_kilobytes: Option<u64>) -> Result<(), String> {
        let program =
            std::env::current_exe().map_err(|error| format!("this program cannot be found: {error}"))?;
        let mut command = match max_kilobytes {
            None => Command::new(&program),
            Some(kilobytes) => {
                // Without the trap, SIGXFSZ would end the process, which a full disk does not.
                let mut shell = Command::new("sh");
                let blocks = kilobytes * 2;
                shell
                    .args(["-c", &format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" run")])
                    .arg(&program);
                shell
            }
        };
        if max_kilobytes.is_none() {
            command.arg("run");
        }
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("PETASOS_HOME", &self.home).env("GATEWAY_ALLOW_ALL_USERS", "true");
        command.env("HERMES_RESTART_DRAIN_TIMEOUT", "0").env("HERMES_GATEWAY_MAX_STARTS", "0");
        // Lets a test inject faults.
        #[cfg(debug_assertions)]
        command.envs(std::env::var_os("PETASOS_BREAKS").map(|bugs| ("PETASOS_BREAKS", bugs)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| format!("this program cannot be started: {error}"))?;
        self.gateway = Some(child);
        Ok(())
    }

    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.gateway.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(super) fn send_hello(&self, chat: i64) -> String {
        let text = format!("hello from {chat}");
        self.telegram.push_text(chat, chat, text.clone());
        text
    }

    /// Waits until every chat is answered and the gateway is idle; then checks for duplicates and misrouted
    /// answers.
    pub(super) fn check_answers(&self, chats: impl Iterator<Item = i64> + Clone) -> Result<(), String> {
        for chat in chats.clone() {
            let want = format!("echo: hello from {chat}");
            let answered = self.telegram.wait_until(TIMEOUT, |world| {
                world.texts(chat).iter().any(|text| text.ends_with(&want)).then_some(())
            });
            answered.ok_or_else(|| format!("chat {chat} was not answered"))?;
        }
        self.wait_until_idle()?;
        for chat in chats {
            let texts = self.telegram.texts(chat);
            let strays = texts
                .iter()
                .filter(|text| text.contains("hello from") && !text.contains(&format!("hello from {chat}")));
            if strays.count() > 0 {
                return Err(format!("chat {chat} shows a message meant for another chat"));
            }
            let unmarked_answers = self.unmarked_answers(chat);
            if unmarked_answers > 1 {
                return Err(format!(
                    "chat {chat} shows its answer {unmarked_answers} times without a duplicate mark"
                ));
            }
        }
        Ok(())
    }

    pub(super) fn queued(&self) -> Option<u64> {
        let reader = Reader::open(self.home.join("petasos.db")).ok()?;
        reader.backlog().ok().map(|it| it.queued)
    }

    pub(super) fn stored_conversations(&self) -> Option<usize> {
        let reader = Reader::open(self.home.join("petasos.db")).ok()?;
        reader.sessions(None, 1000).ok().map(|rows| rows.len())
    }

    pub(super) fn archives(&self) -> usize {
        let entries = fs::read_dir(self.home.join("archive")).into_iter().flatten().flatten();
        entries.filter(|it| it.path().extension().is_some_and(|it| it == "gz")).count()
    }

    /// Stores conversations that were last used two days ago.
    pub(super) fn store_old_conversations(&self, count: usize) -> Result<(), String> {
        let describe = |error: &dyn std::fmt::Display| format!("old conversations cannot be stored: {error}");
        let at = crate::print::now().before(Duration::from_secs(2 * 86_400));
        let mut store = Store::open(self.home.join("petasos.db")).map_err(|error| describe(&error))?;
        let stored = store.write(|tx| {
            for number in 0..count {
                let id = SessionId(format!("20200101_000000_{number:08x}"));
                let key = SessionKey(format!("agent:main:telegram:dm:9{number:05}"));
                tx.create_session(&id, &key, None, None, at)?;
                tx.append(&id, &Message::user(format!("an old message, number {number}"), at))?;
            }
            Ok(())
        });
        stored.and_then(|()| store.close()).map_err(|error| describe(&error))
    }

    /// Checks that files and memory stay within the limits of an idle gateway.
    pub(super) fn check_limits(&self) -> Result<(), String> {
        for name in ["petasos.db", "petasos.db-wal"] {
            let size = fs::metadata(self.home.join(name)).map_or(0, |found| found.len());
            if size > MAX_FILE_SIZE {
                return Err(format!("{name} uses {} MB", size >> 20));
            }
        }
        let status = self.gateway.as_ref().map(|child| format!("/proc/{}/status", child.id()));
        let status = status.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
        let kilobytes: u64 =
            line.split_whitespace().next().and_then(|it| it.parse().ok()).unwrap_or_default();
        if kilobytes > MAX_MEMORY_KB {
            return Err(format!("the gateway used {} MB of memory", kilobytes >> 10));
        }
        Ok(())
    }

    /// Waits until no message waits, runs or is undelivered.
    pub(super) fn wait_until_idle(&self) -> Result<(), String> {
        let idle = wait_for(|| {
            let Ok(reader) = Reader::open(self.home.join("petasos.db")) else { return false };
            let backlog = reader.backlog();
            let outbox = reader.outbox_counts();
            backlog.is_ok_and(|it| it.queued + it.claimed == 0)
                && outbox.is_ok_and(|it| it.due + it.sending + it.streaming == 0)
        });
        if idle { Ok(()) } else { Err("the gateway never became idle".into()) }
    }

    /// Fails if the injected fault was never applied: the trial proves nothing then.
    pub(super) fn check_fault_applied(&self) -> Result<(), String> {
        if self.telegram.faults_applied() > 0 {
            Ok(())
        } else {
            Err("the injected fault was never applied".into())
        }
    }

    /// Number of answers without a duplicate mark.
    pub(super) fn unmarked_answers(&self, chat: i64) -> usize {
        let want = format!("echo: hello from {chat}");
        let texts = self.telegram.texts(chat);
        texts.iter().filter(|text| text.ends_with(&want) && !text.contains(DUPLICATE_MARK)).count()
    }

    pub(super) fn marked_answers(&self, chat: i64) -> usize {
        self.telegram.texts(chat).iter().filter(|text| text.contains(DUPLICATE_MARK)).count()
    }
}

impl Drop for TrialFixture {
    fn drop(&mut self) {
        self.kill();
        // A leftover remains in the temporary directory.
        let _ = fs::remove_dir_all(&self.home);
    }
}

pub(super) fn wait_for(condition: impl FnMut() -> bool) -> bool {
    petasos_fakes::wait::poll(TIMEOUT, condition).is_some()
}

fn private_folder() -> std::io::Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("petasos-prove-{}-{number}-{}", std::process::id(), crate::print::now().0);
    let path = std::env::temp_dir().join(name);
    fs::DirBuilder::new().mode(0o700).create(&path)?;
    Ok(path)
}

/// The text of the user, without the system note about an interruption.
pub(super) fn user_text(input: &str) -> &str {
    match input.strip_prefix("[System note:").and_then(|rest| rest.split_once("]\n\n")) {
        Some((_, text)) => text,
        None => input,
    }
}
