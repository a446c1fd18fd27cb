//! A fake connector, its adapter, and a sink that accepts everything.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use petasos_core::link::reconnect::ReconnectPolicy;
use petasos_core::message::Delivery;
use petasos_core::{Inbound, Platform, Route, SessionKey};
use petasos_fakes::Connector;
use petasos_fakes::connector::{State, event};
use petasos_platforms::relay::{Config, Identity, adapters};
use petasos_platforms::{
    Adapter, CommitResult, Error, InboundBatch, InboundSink, LinkHealth, Part, SendOptions,
};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Rig {
    pub(crate) fake: Arc<Connector>,
    pub(crate) adapters: Vec<Arc<Adapter>>,
}

/// A running link and its result.
pub(crate) struct Line {
    pub(crate) batches: mpsc::Receiver<InboundBatch>,
    pub(crate) interrupts: mpsc::Receiver<SessionKey>,
    pub(crate) told: Arc<Mutex<Vec<LinkHealth>>>,
    pub(crate) task: JoinHandle<Error>,
}

pub(crate) fn platform(name: &str) -> Platform {
    Platform::parse(name).expect("known")
}

pub(crate) fn rig() -> Rig {
    rig_with(|_| {})
}

pub(crate) fn rig_with(change: impl FnOnce(&mut Config)) -> Rig {
    let fake = Arc::new(Connector::start().expect("a fake"));
    let mut config = Config::new(fake.url());
    config.identities = vec![Identity { platform: platform("discord"), bot_id: "app".into() }];
    config.terms.redial = ReconnectPolicy::relay(Duration::from_millis(50), Duration::from_millis(200));
    change(&mut config);
    let adapters = adapters(config).expect("valid").into_iter();
    Rig { fake, adapters: adapters.map(|relay| Arc::new(Adapter::Relay(relay))).collect() }
}

impl Rig {
    pub(crate) fn adapter(&self) -> &Arc<Adapter> {
        &self.adapters[0]
    }

    pub(crate) fn start(&self) -> Line {
        let (intake, batches) = InboundSink::new(4);
        let (intake, interrupts) = intake.with_interrupts(4);
        let told = Arc::new(Mutex::new(Vec::new()));
        let ear = told.clone();
        let adapter = self.adapter().clone();
        let task = petasos_runtime::spawn(async move {
            let mut health = move |state| ear.lock().unwrap_or_else(PoisonError::into_inner).push(state);
            adapter.receive(None, &intake, &mut health).await
        });
        Line { batches, interrupts, told, task }
    }

    /// A link after its handshake.
    pub(crate) async fn up(&self) -> Line {
        let line = self.start();
        self.until("a handshake", |world| (world.open() > 0).then_some(())).await;
        line.until_up().await;
        line
    }

    /// Waits on another thread, because the link runs on the test's runtime.
    pub(crate) async fn until<T: Send + 'static>(
        &self,
        what: &str,
        look: impl FnMut(&State) -> Option<T> + Send + 'static,
    ) -> T {
        let fake = self.fake.clone();
        let seen = petasos_runtime::blocking(move || fake.wait_until(TEST_TIMEOUT, look)).await;
        seen.ok().flatten().unwrap_or_else(|| panic!("never happened: {what}"))
    }

    /// Counts the link's connections after one more dial, which arrives last.
    pub(crate) async fn dials_so_far(&self) -> usize {
        self.adapter().relay().expect("a relay").check().await.expect("the connector answers");
        self.fake.read(|world| world.connections()) - 1
    }

    pub(crate) async fn send_text(&self, text: &str) -> Result<petasos_platforms::Receipt, Error> {
        self.adapter().send(&route("c1"), &Part::plain(text), &SendOptions::default()).await
    }
}

impl Line {
    pub(crate) async fn next(&mut self) -> InboundBatch {
        tokio::time::timeout(TEST_TIMEOUT, self.batches.recv()).await.expect("in time").expect("a batch")
    }

    /// Accepts batches until this many events have arrived.
    pub(crate) async fn take(&mut self, count: usize) -> Vec<Inbound> {
        let mut events = Vec::new();
        while events.len() < count {
            let batch = self.next().await;
            events.extend(batch.events);
            batch.done.send(CommitResult::Committed).expect("it waits");
        }
        events
    }

    pub(crate) async fn texts(&mut self, count: usize) -> Vec<String> {
        self.take(count).await.into_iter().map(|event| event.text).collect()
    }

    pub(crate) async fn until_up(&self) {
        let up = || self.told.lock().unwrap_or_else(PoisonError::into_inner).contains(&LinkHealth::Connected);
        let waited = tokio::time::timeout(TEST_TIMEOUT, async {
            while !up() {
                tokio::task::yield_now().await;
            }
        });
        waited.await.expect("the link stands");
    }

    pub(crate) async fn ended(self) -> Error {
        tokio::time::timeout(TEST_TIMEOUT, self.task).await.expect("in time").expect("no panic")
    }
}

pub(crate) fn said(text: &str) -> Value {
    event("discord", "c1", "dm", text, None)
}

pub(crate) fn route(chat: &str) -> Route {
    Route {
        platform: platform("discord"),
        chat_id: chat.to_owned(),
        thread_id: None,
        reply_to: None,
        delivery: Delivery::Push,
    }
}
