//! A gateway inside this process: real store, real sockets, fake Telegram and model on loopback.
//!
//! A [`World`] outlives its gateways: one can be stopped, left to crash, and started again on the same home.
#![allow(dead_code, clippy::expect_used, reason = "each test file uses the part it needs")]

pub mod planted;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use petasos_agent::{ModelConfig, Prices, Provider, Secret};
use petasos_core::access::Access;
use petasos_core::lifecycle::Leave;
use petasos_core::message::ChatType;
use petasos_core::session::Entry;
use petasos_core::transcript::Role;
use petasos_core::{Inbound, Platform, SessionKey, Source};
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Model, Point, Request};
use petasos_fakes::telegram::Telegram;
use petasos_gateway::home::state;
use petasos_gateway::network::Outward;
use petasos_gateway::retention::disk::DiskLimits;
use petasos_gateway::{Config, DATABASE, End, Handle, Lifetime, Page, Settings, Situation, Unbuilt};
use petasos_platforms::{Adapter, telegram};
use petasos_store::{Reader, Result, Store, Tx};
use serde_json::{Map, Value};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

pub const SOON: Duration = Duration::from_secs(60);

pub struct World {
    pub telegram: Telegram,
    pub model: Model,
    pub home: TempDir,
    pub runtime: Runtime,
    pub setup: Setup,
    running: Option<Running>,
}

struct Running {
    handle: Handle,
    ended: JoinHandle<End>,
}

/// What the next start goes by.
#[derive(Debug, Clone)]
pub struct Setup {
    pub settings: Settings,
    pub lifetime: Lifetime,
    pub access: Access,
    pub unbuilt: Vec<Unbuilt>,
    pub outward: fn() -> Outward,
    pub page: Page,
    /// With more than one a crash is none: while one thread lets tasks go, another may still run those that miss them.
    pub workers: usize,
}

impl World {
    pub fn new(change: impl FnOnce(&mut Settings)) -> Self {
        Self::with(|setup| change(&mut setup.settings))
    }

    pub fn with(change: impl FnOnce(&mut Setup)) -> Self {
        let mut world = Self::idle(change);
        world.start();
        world
    }

    /// Whose model answers like this, and whose people hear of nothing but answers.
    pub fn answering(model: fn(&Request) -> Answer, change: impl FnOnce(&mut Setup)) -> Self {
        let world = Self::with(|setup| {
            setup.settings.busy_ack = false;
            change(setup);
        });
        world.model.respond(model);
        world
    }

    /// A home in which no gateway runs yet.
    pub fn idle(change: impl FnOnce(&mut Setup)) -> Self {
        let home = TempDir::new().expect("a home");
        let mut settings = Settings::new(home.path());
        // The disk of the machine that runs the tests may be nearly full.
        settings.retention.disk = DiskLimits { percent: 0, bytes: 0, days: 0 };
        let lifetime = Lifetime { drain_timeout: Duration::ZERO, ..Lifetime::default() };
        let access = Access { allow_all: true, ..Access::default() };
        let mut setup = Setup {
            settings,
            lifetime,
            access,
            unbuilt: vec![],
            outward: Outward::default,
            page: Page::Served,
            workers: 1,
        };
        change(&mut setup);
        Self {
            telegram: Telegram::start().expect("fake telegram"),
            model: Model::start().expect("fake model"),
            home,
            runtime: runtime(setup.workers),
            setup,
            running: None,
        }
    }

    pub fn start(&mut self) {
        assert!(self.running.is_none(), "one gateway at a time");
        let mut model = ModelConfig::new(Provider::Custom, "fake");
        model.base_url = Some(format!("{}/v1", self.model.url()));
        model.api_key = Some(Secret::new("sk-test"));
        model.retry_base = Duration::from_millis(10);
        model.prices = Some(Prices { input: 3.0, output: 15.0, cache_read: 3.0, cache_write: 3.0 });
        let mut config = telegram::Config::new(petasos_platforms::Secret::new("123:abc"));
        config.base_url = format!("{}/bot", self.telegram.url());
        config.poll_backoff_base = Duration::from_millis(50);
        let adapter = Adapter::Telegram(telegram::Telegram::new(config).expect("an adapter"));
        let Setup { settings, lifetime, access, unbuilt, outward, page, workers: _ } = self.setup.clone();
        let config = Config {
            adapters: vec![adapter],
            unbuilt,
            access,
            settings,
            lifetime,
            outward,
            page,
            ..Config::new(self.home.path(), model)
        };
        let (handle, running) =
            self.runtime.block_on(petasos_gateway::start(config)).expect("the gateway starts");
        let ended = self.runtime.spawn(running.wait());
        self.running = Some(Running { handle, ended });
    }

    pub fn handle(&self) -> &Handle {
        &self.running.as_ref().expect("running").handle
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Says something on the web page.
    pub fn say(&self, chat: &str, text: &str) -> SessionKey {
        self.submit(web(chat, text)).expect("accepted")
    }

    pub fn submit(&self, inbound: Inbound) -> std::result::Result<SessionKey, petasos_gateway::Error> {
        self.runtime.block_on(self.handle().submit(inbound)).map(|submitted| submitted.key)
    }

    /// Waits until the chat shows these messages and no others.
    #[track_caller]
    pub fn shows(&self, chat: i64, want: &[&str]) {
        if !self.telegram.wait_texts(chat, want, SOON) {
            assert_eq!(self.telegram.texts(chat), want, "chat {chat}");
        }
    }

    /// Waits until the last message of the chat contains this.
    #[track_caller]
    pub fn ends_with(&self, chat: i64, want: &str) {
        let found = self.telegram.wait_until(SOON, |world| {
            world.last(chat).is_some_and(|message| message.text.contains(want)).then_some(())
        });
        assert!(found.is_some(), "chat {chat} shows {:?}, wanted {want:?}", self.telegram.texts(chat));
    }

    /// Waits until some message of the chat contains this.
    #[track_caller]
    pub fn sees(&self, chat: i64, want: &str) {
        let found = self.telegram.wait_until(SOON, |world| {
            world.messages(chat).any(|message| message.text.contains(want)).then_some(())
        });
        assert!(found.is_some(), "chat {chat} shows {:?}, wanted {want:?}", self.telegram.texts(chat));
    }

    /// How many messages of the chat contain this.
    pub fn count(&self, chat: i64, what: &str) -> usize {
        self.telegram.texts(chat).iter().filter(|text| text.contains(what)).count()
    }

    /// From now on the model thinks about messages that contain this until the gate is opened, and echoes the others.
    pub fn thinks_long_about(&self, what: &'static str) -> Arc<Gate> {
        let gate = Arc::new(Gate::new());
        let held = gate.clone();
        self.model.respond(move |request| {
            let answer = Answer::text(format!("echo: {}", request.last_user));
            if request.last_user.contains(what) { answer.gate(Point::Before, &held) } else { answer }
        });
        gate
    }

    /// Waits until the gateway says this of itself.
    #[track_caller]
    pub fn until<T>(&self, what: &str, look: impl FnMut(&Situation) -> Option<T>) -> T {
        let handle = self.handle().clone();
        let found = self.runtime.block_on(async {
            let (mut changes, mut look) = (handle.changes(), look);
            let watching = async {
                loop {
                    changes.mark_unchanged();
                    if let Some(found) = look(&handle.situation()) {
                        return found;
                    }
                    changes.changed().await.expect("the gate lives");
                }
            };
            tokio::time::timeout(SOON, watching).await.ok()
        });
        found.unwrap_or_else(|| panic!("never {what}: {:?}", self.handle().situation()))
    }

    /// Begins to leave; the gateway is still there to be asked.
    pub fn begin_to_leave(&self, why: Leave) {
        self.handle().leave(why, None);
    }

    /// Waits for the end of a gateway that leaves.
    pub fn end(&mut self) -> End {
        let Running { handle, ended } = self.running.take().expect("running");
        drop(handle);
        let ended = self.runtime.block_on(async { tokio::time::timeout(SOON, ended).await });
        ended.expect("it never ends").expect("no panic")
    }

    pub fn leave(&mut self, why: Leave) -> End {
        self.begin_to_leave(why);
        self.end()
    }

    pub fn stop(&mut self) {
        if self.running.is_some() {
            self.leave(Leave::Stop);
        }
    }

    pub fn restart(&mut self) {
        self.stop();
        self.start();
    }

    /// The gateway is gone from one moment to the next; what it had on disk is all that is left.
    pub fn crash(&mut self) {
        assert_eq!(self.setup.workers, 1, "see there");
        drop(std::mem::replace(&mut self.runtime, runtime(1)));
        drop(self.running.take());
        let database = self.home.path().join(DATABASE);
        eventually("closed", || (!is_open(&database)).then_some(()));
    }

    /// Asks the store, whether or not a gateway runs.
    pub fn read<T>(&self, question: impl FnOnce(&Reader) -> Result<T>) -> T {
        let reader = Reader::open(self.home.path().join(DATABASE)).expect("a store");
        reader.ask(question).expect("an answer")
    }

    /// Changes the store of a gateway that does not run.
    pub fn write<T>(&self, job: impl FnOnce(&Tx<'_>) -> Result<T>) -> T {
        assert!(self.running.is_none(), "one writer at a time");
        let mut store = Store::open(self.home.path().join(DATABASE)).expect("a store");
        store.write(job).expect("written")
    }

    /// The routing entry of a Telegram chat.
    pub fn entry(&self, chat: i64) -> Option<Entry> {
        self.read(|reader| reader.entry(&key(chat)))
    }

    /// Why the chat's session is to be resumed, if it is.
    pub fn mark(&self, chat: i64) -> Option<String> {
        let entry = self.entry(chat).filter(|entry| entry.resume_pending)?;
        Some(entry.resume_reason.map(|reason| reason.as_str().to_owned()).unwrap_or_default())
    }

    /// What was said in the chat's present session, notices left out.
    pub fn transcript(&self, chat: i64) -> Vec<(Role, String)> {
        self.read(|reader| {
            let Some(entry) = reader.entry(&key(chat))? else { return Ok(vec![]) };
            let rows = reader.history(&entry.session_id, 10_000)?.into_iter().map(|said| said.message);
            let spoken = rows.filter(|row| row.role != Role::Notice);
            Ok(spoken.map(|row| (row.role, row.content)).collect())
        })
    }

    /// How often each session was interrupted in a row.
    pub fn failures(&self, chat: i64) -> u32 {
        self.read(|reader| reader.failure_counts()).count(&key(chat))
    }

    /// Waits until everything that was said is known to have arrived.
    #[track_caller]
    pub fn owes_nothing(&self) {
        eventually("delivered", || {
            let owed = self.read(|reader| reader.outbox_counts());
            (owed.due + owed.sending == 0).then_some(())
        });
    }

    /// What `gateway_state.json` says.
    pub fn state(&self) -> Map<String, Value> {
        state::read(self.home.path()).unwrap_or_default()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
        // The runtime goes next, and waits for a database that lives as long as this handle.
        drop(self.running.take());
    }
}

/// The key of a Telegram chat.
pub fn key(chat: i64) -> SessionKey {
    SessionKey(format!("agent:main:telegram:dm:{chat}"))
}

pub fn telegram() -> Platform {
    Platform::parse("telegram").expect("known")
}

/// For what nobody rings a bell for: a file, a row.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + SOON;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "never {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

pub fn web(chat: &str, text: &str) -> Inbound {
    let platform = Platform::parse("web").expect("known");
    let mut source = Source::new(platform, ChatType::Dm, chat);
    source.user_id = Some("owner".into());
    Inbound::new(source, format!("{chat}:{text}"), text)
}

fn runtime(workers: usize) -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(workers).enable_all().build().expect("a runtime")
}

/// Whether this process holds the file open.
fn is_open(path: &Path) -> bool {
    let open = std::fs::read_dir("/proc/self/fd").expect("this process");
    open.flatten().any(|file| std::fs::read_link(file.path()).is_ok_and(|to| to == path))
}
