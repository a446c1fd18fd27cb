//! The gateway under test: real store, real sockets, its own wall clock.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use petasos_agent::{ModelConfig, Provider, Secret};
use petasos_core::Millis;
use petasos_core::access::Access;
use petasos_core::admission::BusyMode;
use petasos_core::lifecycle::ShutdownReason;
use petasos_core::link::Availability;
use petasos_core::outbox::State;
use petasos_fakes::model::Model;
use petasos_gateway::{Config, DATABASE, ExitInfo, Handle, Lifetime, Settings, clock};
use petasos_platforms::Adapter;
use petasos_store::{Reader, Result};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::platform::{SOON, eventually};
use crate::rows::Form;

thread_local! {
    /// Clock offset of the gateway of this thread, in milliseconds.
    static SKEW: RefCell<Arc<AtomicI64>> = RefCell::default();
}

/// The wall clock of the current thread's gateway.
#[expect(clippy::disallowed_methods, reason = "the replacement of the wall clock")]
fn now() -> Millis {
    let real = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let skew = SKEW.with_borrow(|skew| skew.load(Ordering::Relaxed));
    Millis(u64::try_from(real).unwrap_or_default().saturating_add_signed(skew))
}

pub struct Gateway {
    pub model: Model,
    home: TempDir,
    form: Form,
    skew: Arc<AtomicI64>,
    running: Option<RunningInstance>,
}

struct RunningInstance {
    handle: Handle,
    ended: JoinHandle<ExitInfo>,
    runtime: Runtime,
}

impl Gateway {
    pub fn new(form: Form) -> Self {
        clock::replace(now);
        let skew = Arc::<AtomicI64>::default();
        let home = TempDir::new().expect("a home");
        SKEW.replace(skew.clone());
        Self { model: Model::start().expect("a fake"), home, form, skew, running: None }
    }

    pub fn start(&mut self, adapters: Vec<Adapter>) {
        let mut model = ModelConfig::new(Provider::Custom, "fake");
        model.base_url = Some(format!("{}/v1", self.model.url()));
        model.api_key = Some(Secret::new("sk-test"));
        model.retry_base = Duration::from_millis(10);
        let mut settings = Settings::new(self.home.path());
        (settings.busy, settings.busy_ack) = (BusyMode::Queue, false);
        settings.streaming.enabled = self.form == Form::Streamed;
        settings.streaming.gap = Duration::from_millis(100);
        let config = Config {
            adapters,
            access: Access { allow_all: true, ..Access::default() },
            settings,
            lifetime: Lifetime { drain_timeout: Duration::ZERO, ..Lifetime::default() },
            ..Config::new(self.home.path(), model)
        };
        let skew = self.skew.clone();
        // A crash needs a single worker: another one could still run tasks while the runtime is dropped.
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().on_thread_start(move || drop(SKEW.replace(skew.clone())));
        let runtime = builder.build().expect("a runtime");
        let (handle, running) = runtime.block_on(petasos_gateway::start(config)).expect("the gateway starts");
        let ended = runtime.spawn(running.wait());
        self.running = Some(RunningInstance { handle, ended, runtime });
    }

    pub fn wait_until_connected(&self) {
        let RunningInstance { handle, runtime, .. } = self.running.as_ref().expect("running");
        eventually("connected", || {
            let status = runtime.block_on(handle.status()).expect("a status");
            status.links.iter().all(|it| it.link.availability() == Availability::Up).then_some(())
        });
    }

    /// Drops the gateway at once; only its files remain.
    pub fn crash(&mut self) {
        let RunningInstance { handle, ended, runtime } = self.running.take().expect("running");
        drop(runtime);
        drop((handle, ended));
        let database = self.home.path().join(DATABASE);
        eventually("closed", || (!is_open(&database)).then_some(()));
    }

    pub fn stop(&mut self) {
        let Some(RunningInstance { handle, ended, runtime }) = self.running.take() else { return };
        handle.shut_down(ShutdownReason::Stop, None);
        drop(handle);
        let ended = runtime.block_on(async { tokio::time::timeout(SOON, ended).await });
        ended.expect("it never ends").expect("no panic");
    }

    pub fn jump(&self, hours: i64) {
        self.skew.fetch_add(hours * 3_600_000, Ordering::Relaxed);
    }

    fn read<T>(&self, question: impl FnOnce(&Reader) -> Result<T>) -> T {
        let reader = Reader::open(self.home.path().join(DATABASE)).expect("a store");
        reader.snapshot(question).expect("an answer")
    }

    pub fn dead(&self) -> u64 {
        self.read(|reader| reader.outbox_counts()).dead
    }

    pub fn is_calm(&self) -> bool {
        let (outbox, backlog) = self.read(|reader| Ok((reader.outbox_counts()?, reader.backlog()?)));
        outbox.streaming + outbox.due + outbox.sending + backlog.queued + backlog.claimed == 0
    }

    /// Whether an outbox item has a failed attempt.
    pub fn is_set_back(&self) -> bool {
        self.read(|reader| reader.items_in(State::Due, 10)).iter().any(|item| item.attempts > 0)
    }
}

/// Whether this process holds the file open.
fn is_open(path: &Path) -> bool {
    let open = std::fs::read_dir("/proc/self/fd").expect("this process");
    open.flatten().any(|file| std::fs::read_link(file.path()).is_ok_and(|to| to == path))
}
