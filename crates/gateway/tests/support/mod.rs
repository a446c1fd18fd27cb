//! Fixture: a gateway in this process with a real store, real sockets, and fakes of Telegram and the model.
//!
//! A [`GatewayFixture`] outlives its gateways: they can be stopped, crashed and restarted on the same home.
#![allow(dead_code, clippy::expect_used, reason = "each test file uses the part it needs")]

pub mod planted;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use petasos_agent::{ModelConfig, Prices, Provider, Secret};
use petasos_core::access::Access;
use petasos_core::lifecycle::ShutdownReason;
use petasos_core::message::ChatType;
use petasos_core::session::Entry;
use petasos_core::transcript::Role;
use petasos_core::{Inbound, Platform, SessionKey, Source};
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, ChatRequest, Model, Point};
use petasos_fakes::telegram::Telegram;
use petasos_fakes::wait::{self, Condition};
use petasos_gateway::home::state;
use petasos_gateway::network::OutboundAddresses;
use petasos_gateway::retention::disk::DiskLimits;
use petasos_gateway::{
    Config, DATABASE, ExitInfo, Handle, LifecycleSnapshot, Lifetime, LocalService, Settings,
    UnavailablePlatform,
};
use petasos_platforms::{Adapter, telegram};
use petasos_store::{Reader, Result, Store, Tx};
use serde_json::{Map, Value};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

pub const SOON: Duration = Duration::from_secs(60);

pub struct GatewayFixture {
    pub telegram: Telegram,
    pub model: Model,
    pub home: TempDir,
    pub runtime: Runtime,
    pub setup: Setup,
    running: Option<RunningInstance>,
}

struct RunningInstance {
    handle: Handle,
    ended: JoinHandle<ExitInfo>,
}

/// Configuration of the next start.
#[derive(Debug, Clone)]
pub struct Setup {
    pub settings: Settings,
    pub lifetime: Lifetime,
    pub access: Access,
    pub unbuilt: Vec<UnavailablePlatform>,
    pub outward: fn() -> OutboundAddresses,
    pub page: LocalService,
    /// Must be 1 for a crash: another worker could still run tasks while the runtime is dropped.
    pub workers: usize,
}

impl GatewayFixture {
    pub fn new(change: impl FnOnce(&mut Settings)) -> Self {
        Self::with(|setup| change(&mut setup.settings))
    }

    pub fn with(change: impl FnOnce(&mut Setup)) -> Self {
        let mut world = Self::idle(change);
        world.start();
        world
    }

    /// A fixture with this model, and without acknowledgements or previews in chats.
    pub fn answering(model: fn(&ChatRequest) -> Answer, change: impl FnOnce(&mut Setup)) -> Self {
        let world = Self::with(|setup| {
            setup.settings.busy_ack = false;
            change(setup);
        });
        world.model.respond(model);
        world
    }

    /// A fixture without a running gateway.
    pub fn idle(change: impl FnOnce(&mut Setup)) -> Self {
        let home = TempDir::new().expect("a home");
        let mut settings = Settings::new(home.path());
        // The disk of the test machine may be nearly full.
        settings.retention.disk = DiskLimits { percent: 0, bytes: 0, days: 0 };
        let lifetime = Lifetime { drain_timeout: Duration::ZERO, ..Lifetime::default() };
        let access = Access { allow_all: true, ..Access::default() };
        let mut setup = Setup {
            settings,
            lifetime,
            access,
            unbuilt: vec![],
            outward: OutboundAddresses::default,
            page: LocalService::Served,
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
        self.running = Some(RunningInstance { handle, ended });
    }

    pub fn handle(&self) -> &Handle {
        &self.running.as_ref().expect("running").handle
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    pub fn send_web(&self, chat: &str, text: &str) -> SessionKey {
        self.submit(web(chat, text)).expect("accepted")
    }

    pub fn submit(&self, inbound: Inbound) -> std::result::Result<SessionKey, petasos_gateway::Error> {
        self.runtime.block_on(self.handle().submit(inbound)).map(|submitted| submitted.key)
    }

    /// Waits until the chat has exactly these messages.
    #[track_caller]
    pub fn expect_messages(&self, chat: i64, want: &[&str]) {
        if !self.telegram.wait_texts(chat, want, SOON) {
            assert_eq!(self.telegram.texts(chat), want, "chat {chat}");
        }
    }

    /// Waits until the last message of the chat contains this.
    #[track_caller]
    pub fn expect_last_message(&self, chat: i64, want: &str) {
        let found = self.telegram.wait_until(SOON, |world| {
            world.last(chat).is_some_and(|message| message.text.contains(want)).then_some(())
        });
        assert!(found.is_some(), "chat {chat} shows {:?}, wanted {want:?}", self.telegram.texts(chat));
    }

    /// Waits until some message of the chat contains this.
    #[track_caller]
    pub fn expect_message(&self, chat: i64, want: &str) {
        let found = self.telegram.wait_until(SOON, |world| {
            world.messages(chat).any(|message| message.text.contains(want)).then_some(())
        });
        assert!(found.is_some(), "chat {chat} shows {:?}, wanted {want:?}", self.telegram.texts(chat));
    }

    /// Number of messages of the chat that contain this.
    pub fn count(&self, chat: i64, what: &str) -> usize {
        self.telegram.texts(chat).iter().filter(|text| text.contains(what)).count()
    }

    /// Makes the model wait for the gate on messages that contain this, and echo all others.
    pub fn hold_model_on(&self, what: &'static str) -> Arc<Gate> {
        let gate = Arc::new(Gate::new());
        let held = gate.clone();
        self.model.respond(move |request| {
            let answer = Answer::text(format!("echo: {}", request.last_user));
            if request.last_user.contains(what) { answer.gate(Point::Before, &held) } else { answer }
        });
        gate
    }

    /// Waits until the lifecycle snapshot satisfies `look`.
    #[track_caller]
    pub fn until<T>(&self, what: &str, look: impl FnMut(&LifecycleSnapshot) -> Option<T>) -> T {
        let handle = self.handle().clone();
        let found = self.runtime.block_on(async {
            let mut changes = handle.changes();
            let mut look = look;
            let watching = async {
                loop {
                    changes.mark_unchanged();
                    if let Some(found) = look(&handle.snapshot()) {
                        return found;
                    }
                    changes.changed().await.expect("the gate lives");
                }
            };
            tokio::time::timeout(SOON, watching).await.ok()
        });
        found.unwrap_or_else(|| panic!("never {what}: {:?}", self.handle().snapshot()))
    }

    /// Begins the shutdown; the gateway still runs.
    pub fn begin_shutdown(&self, why: ShutdownReason) {
        self.handle().shut_down(why, None);
    }

    pub fn wait_for_exit(&mut self) -> ExitInfo {
        let RunningInstance { handle, ended } = self.running.take().expect("running");
        drop(handle);
        let ended = self.runtime.block_on(async { tokio::time::timeout(SOON, ended).await });
        ended.expect("it never ends").expect("no panic")
    }

    pub fn shut_down(&mut self, why: ShutdownReason) -> ExitInfo {
        self.begin_shutdown(why);
        self.wait_for_exit()
    }

    pub fn stop(&mut self) {
        if self.running.is_some() {
            self.shut_down(ShutdownReason::Stop);
        }
    }

    pub fn restart(&mut self) {
        self.stop();
        self.start();
    }

    /// Drops the gateway at once; only its files remain.
    pub fn crash(&mut self) {
        assert_eq!(self.setup.workers, 1, "see there");
        drop(std::mem::replace(&mut self.runtime, runtime(1)));
        drop(self.running.take());
        let database = self.home.path().join(DATABASE);
        eventually("closed", || (!is_open(&database)).then_some(()));
    }

    /// Reads the store, with or without a running gateway.
    pub fn read<T>(&self, question: impl FnOnce(&Reader) -> Result<T>) -> T {
        let reader = Reader::open(self.home.path().join(DATABASE)).expect("a store");
        reader.snapshot(question).expect("an answer")
    }

    /// Writes to the store; no gateway may be running.
    pub fn write<T>(&self, job: impl FnOnce(&Tx<'_>) -> Result<T>) -> T {
        assert!(self.running.is_none(), "one writer at a time");
        let mut store = Store::open(self.home.path().join(DATABASE)).expect("a store");
        store.write(job).expect("written")
    }

    pub fn entry(&self, chat: i64) -> Option<Entry> {
        self.read(|reader| reader.entry(&key(chat)))
    }

    /// The resume reason of the chat's session, if it is marked.
    pub fn mark(&self, chat: i64) -> Option<String> {
        let entry = self.entry(chat).filter(|entry| entry.resume_pending)?;
        Some(entry.resume_reason.map(|reason| reason.as_str().to_owned()).unwrap_or_default())
    }

    /// Transcript of the chat's current session, without notices.
    pub fn transcript(&self, chat: i64) -> Vec<(Role, String)> {
        self.read(|reader| {
            let Some(entry) = reader.entry(&key(chat))? else { return Ok(vec![]) };
            let rows = reader.history(&entry.session_id, 10_000)?.into_iter().map(|said| said.message);
            let spoken = rows.filter(|row| row.role != Role::Notice);
            Ok(spoken.map(|row| (row.role, row.content)).collect())
        })
    }

    /// How often the chat's session was interrupted in a row.
    pub fn failures(&self, chat: i64) -> u32 {
        self.read(|reader| reader.failure_counts()).count(&key(chat))
    }

    /// Waits until the outbox is empty.
    #[track_caller]
    pub fn wait_until_delivered(&self) {
        eventually("delivered", || {
            let owed = self.read(|reader| reader.outbox_counts());
            (owed.due + owed.sending == 0).then_some(())
        });
    }

    pub fn state(&self) -> Map<String, Value> {
        state::read(self.home.path()).unwrap_or_default()
    }
}

impl Drop for GatewayFixture {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
        // Dropped before the runtime, which waits for the database that this handle keeps open.
        drop(self.running.take());
    }
}

pub fn key(chat: i64) -> SessionKey {
    SessionKey(format!("agent:main:telegram:dm:{chat}"))
}

pub fn telegram() -> Platform {
    Platform::parse("telegram").expect("known")
}

/// Polls for a condition without a notification, such as a file or a row.
#[track_caller]
pub fn eventually<C: Condition>(description: &str, condition: impl FnMut() -> C) -> C::Value {
    wait::eventually(description, SOON, condition)
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
