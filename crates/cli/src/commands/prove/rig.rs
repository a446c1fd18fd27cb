//! A private home, a chat and a model on loopback, and this program as a child that can be killed.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use petasos_core::transcript::Message;
use petasos_core::{SessionId, SessionKey};
use petasos_fakes::model::{Answer, Model};
use petasos_fakes::telegram::Telegram;
use petasos_store::{Reader, Store};

/// How long something may take that should happen at once.
pub(super) const SOON: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(10);
/// Leads a copy that may be one.
const MARK: &str = "Recovered reply";
/// The database and its log, after less than a hundred short messages.
const LARGEST_FILE: u64 = 24 << 20;
/// In KB, also for a program that is built for debugging.
const MOST_MEMORY: u64 = 256 << 10;

/// Chance from a seed, for one trial.
#[derive(Debug)]
pub(super) struct Dice(u64);

impl Dice {
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
pub(super) struct Rig {
    pub(super) telegram: Telegram,
    pub(super) model: Model,
    pub(super) home: PathBuf,
    gateway: Option<Child>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answers {
    Whole,
    Streamed,
    /// There is a terminal, and what runs there may end later.
    Working,
    /// Conversations are archived after a day.
    Aging,
}

impl Rig {
    pub(super) fn new(answers: Answers) -> Result<Self, String> {
        let no = |what: &str, error: std::io::Error| format!("{what}: {error}");
        let telegram = Telegram::start().map_err(|error| no("the chat cannot listen on loopback", error))?;
        let model = Model::start().map_err(|error| no("the model cannot listen on loopback", error))?;
        model.respond(move |request| {
            let answer = Answer::text(format!("echo: {}", asked(&request.last_user)));
            match answers {
                Answers::Whole | Answers::Working | Answers::Aging => answer,
                Answers::Streamed => answer.chunks(6).every(Duration::from_millis(200)),
            }
        });
        let home = private_folder().map_err(|error| no("no private folder", error))?;
        let more = match answers {
            Answers::Whole => "",
            Answers::Aging => "retention:\n  max_age_days: 1\n  notice_days: 0\n  every_seconds: 1\n",
            Answers::Working => "terminal:\n  enabled: true\n  login_shell: false\n",
            Answers::Streamed => "streaming:\n  enabled: true\n  transport: edit\n",
        };
        let config = format!(
            "model:\n  default: fake-model\n  provider: custom\n  base_url: {}/v1\n  api_key: sk-proof\n\
             platforms:\n  telegram:\n    enabled: true\n    token: \"123:abc\"\n    extra:\n      base_url: {}/bot\n\
             web:\n  enabled: false\n{more}",
            model.url(),
            telegram.url(),
        );
        fs::write(home.join("config.yaml"), config).map_err(|error| no("no configuration", error))?;
        Ok(Self { telegram, model, home, gateway: None })
    }

    /// Starts the gateway and waits until it listens.
    pub(super) fn start(&mut self) -> Result<(), String> {
        let polls = self.telegram.calls_of("getUpdates").len();
        self.launch(None)?;
        let listens = self
            .telegram
            .wait_until(SOON, |world| (world.calls_of("getUpdates").count() > polls).then_some(()));
        listens.ok_or_else(|| "the gateway never listened".to_owned())
    }

    /// `most`: no file may grow beyond so many kilobytes, as on a full disk.
    pub(super) fn launch(&mut self, most: Option<u64>) -> Result<(), String> {
        let own =
            std::env::current_exe().map_err(|error| format!("this program cannot be found: {error}"))?;
        let mut command = match most {
            None => Command::new(&own),
            Some(kilobytes) => {
                // Without the trap a file that is too large would end the process, which no disk does.
                let mut shell = Command::new("sh");
                let blocks = kilobytes * 2;
                shell.args(["-c", &format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" run")]).arg(&own);
                shell
            }
        };
        if most.is_none() {
            command.arg("run");
        }
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("PETASOS_HOME", &self.home).env("GATEWAY_ALLOW_ALL_USERS", "true");
        command.env("HERMES_RESTART_DRAIN_TIMEOUT", "0").env("HERMES_GATEWAY_MAX_STARTS", "0");
        // A test may want to see it fail.
        #[cfg(debug_assertions)]
        command.envs(std::env::var_os("PETASOS_BREAKS").map(|wishes| ("PETASOS_BREAKS", wishes)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| format!("this program cannot be started: {error}"))?;
        self.gateway = Some(child);
        Ok(())
    }

    /// As the kernel would: no goodbye.
    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.gateway.take() {
            // One that has ended by itself is as dead.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub(super) fn ask(&self, chat: i64) -> String {
        let text = format!("hello from {chat}");
        self.telegram.push_text(chat, chat, text.clone());
        text
    }

    /// Waits until each of them is answered and nothing is left to do; then looks for copies.
    pub(super) fn all_is_well(&self, chats: impl Iterator<Item = i64> + Clone) -> Result<(), String> {
        for chat in chats.clone() {
            let want = format!("echo: hello from {chat}");
            let answered = self.telegram.wait_until(SOON, |world| {
                world.texts(chat).iter().any(|text| text.ends_with(&want)).then_some(())
            });
            answered.ok_or_else(|| format!("chat {chat} was never answered"))?;
        }
        self.settle()?;
        for chat in chats {
            let texts = self.telegram.texts(chat);
            let strays = texts
                .iter()
                .filter(|text| text.contains("hello from") && !text.contains(&format!("hello from {chat}")));
            if strays.count() > 0 {
                return Err(format!("chat {chat} shows what is not meant for it"));
            }
            let unmarked = self.unmarked(chat);
            if unmarked > 1 {
                return Err(format!("chat {chat} shows its answer {unmarked} times without a mark"));
            }
        }
        Ok(())
    }

    /// Messages that wait for a turn.
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

    /// Conversations that were last used two days ago.
    pub(super) fn store_old_conversations(&self, count: usize) -> Result<(), String> {
        let no = |error: &dyn std::fmt::Display| format!("old conversations cannot be stored: {error}");
        let at = crate::print::now().before(Duration::from_secs(2 * 86_400));
        let mut store = Store::open(self.home.join("petasos.db")).map_err(|error| no(&error))?;
        let stored = store.write(|tx| {
            for number in 0..count {
                let id = SessionId(format!("20200101_000000_{number:08x}"));
                let key = SessionKey(format!("agent:main:telegram:dm:9{number:05}"));
                tx.create_session(&id, &key, None, None, at)?;
                tx.append(&id, &Message::user(format!("an old message, number {number}"), at))?;
            }
            Ok(())
        });
        stored.and_then(|()| store.close()).map_err(|error| no(&error))
    }

    /// Whether files and memory stay within what a gateway with little to do may take.
    pub(super) fn within_bounds(&self) -> Result<(), String> {
        for name in ["petasos.db", "petasos.db-wal"] {
            let size = fs::metadata(self.home.join(name)).map_or(0, |found| found.len());
            if size > LARGEST_FILE {
                return Err(format!("{name} takes {} MB", size >> 20));
            }
        }
        let status = self.gateway.as_ref().map(|child| format!("/proc/{}/status", child.id()));
        let status = status.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
        let kilobytes: u64 =
            line.split_whitespace().next().and_then(|it| it.parse().ok()).unwrap_or_default();
        if kilobytes > MOST_MEMORY {
            return Err(format!("it took {} MB of memory", kilobytes >> 10));
        }
        Ok(())
    }

    /// Waits until nothing waits, runs or is owed.
    pub(super) fn settle(&self) -> Result<(), String> {
        let quiet = wait(|| {
            let Ok(reader) = Reader::open(self.home.join("petasos.db")) else { return false };
            let (backlog, owed) = (reader.backlog(), reader.outbox_counts());
            backlog.is_ok_and(|it| it.queued + it.claimed == 0)
                && owed.is_ok_and(|it| it.due + it.sending + it.streaming == 0)
        });
        if quiet { Ok(()) } else { Err("it never comes to rest".into()) }
    }

    /// A fault that met nothing shows nothing.
    pub(super) fn struck(&self) -> Result<(), String> {
        if self.telegram.struck() > 0 { Ok(()) } else { Err("the fault struck nothing".into()) }
    }

    /// How often the answer stands there, as if for the first time.
    pub(super) fn unmarked(&self, chat: i64) -> usize {
        let want = format!("echo: hello from {chat}");
        let texts = self.telegram.texts(chat);
        texts.iter().filter(|text| text.ends_with(&want) && !text.contains(MARK)).count()
    }

    pub(super) fn marked(&self, chat: i64) -> usize {
        self.telegram.texts(chat).iter().filter(|text| text.contains(MARK)).count()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.kill();
        // What stays lies in the system's folder for temporary things.
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// Waits for a condition. `false`: it never came.
pub(super) fn wait(mut condition: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + SOON;
    while Instant::now() < until {
        if condition() {
            return true;
        }
        std::thread::sleep(LOOK);
    }
    false
}

fn private_folder() -> std::io::Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("petasos-prove-{}-{number}-{}", std::process::id(), crate::print::now().0);
    let path = std::env::temp_dir().join(name);
    fs::DirBuilder::new().mode(0o700).create(&path)?;
    Ok(path)
}

/// The words of the user, without what the gateway says before them about an interruption.
pub(super) fn asked(input: &str) -> &str {
    match input.strip_prefix("[System note:").and_then(|rest| rest.split_once("]\n\n")) {
        Some((_, said)) => said,
        None => input,
    }
}
