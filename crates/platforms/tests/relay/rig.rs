//! A fake connector, an adapter that talks to it, and a gateway that keeps everything.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use petasos_core::link::redial::Policy;
use petasos_core::message::Delivery;
use petasos_core::{Inbound, Platform, Route, SessionKey};
use petasos_fakes::Connector;
use petasos_fakes::connector::{World, event};
use petasos_platforms::relay::{Config, Identity, adapters};
use petasos_platforms::{Adapter, Batch, Error, Health, Intake, Part, SendOptions, Taken};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

pub(crate) const SOON: Duration = Duration::from_secs(60);

pub(crate) struct Rig {
    pub(crate) fake: Arc<Connector>,
    pub(crate) adapters: Vec<Arc<Adapter>>,
}

/// A link that runs, and what came of it.
pub(crate) struct Line {
    pub(crate) batches: mpsc::Receiver<Batch>,
    pub(crate) interrupts: mpsc::Receiver<SessionKey>,
    pub(crate) told: Arc<Mutex<Vec<Health>>>,
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
    config.terms.redial = Policy::relay(Duration::from_millis(50), Duration::from_millis(200));
    change(&mut config);
    let adapters = adapters(config).expect("valid").into_iter();
    Rig { fake, adapters: adapters.map(|relay| Arc::new(Adapter::Relay(relay))).collect() }
}

impl Rig {
    pub(crate) fn adapter(&self) -> &Arc<Adapter> {
        &self.adapters[0]
    }

    pub(crate) fn start(&self) -> Line {
        let (intake, batches) = Intake::new(4);
        let (intake, interrupts) = intake.with_interrupts(4);
        let told = Arc::new(Mutex::new(Vec::new()));
        let ear = told.clone();
        let adapter = self.adapter().clone();
        let task = tokio::spawn(async move {
            let mut health = move |state| ear.lock().unwrap_or_else(PoisonError::into_inner).push(state);
            adapter.receive(None, &intake, &mut health).await
        });
        Line { batches, interrupts, told, task }
    }

    /// A link whose handshake is done.
    pub(crate) async fn up(&self) -> Line {
        let line = self.start();
        self.until("a handshake", |world| (world.open() > 0).then_some(())).await;
        line.until_up().await;
        line
    }

    /// Waits elsewhere: the link lives on the test's own runtime.
    pub(crate) async fn until<T: Send + 'static>(
        &self,
        what: &str,
        look: impl FnMut(&World) -> Option<T> + Send + 'static,
    ) -> T {
        let fake = self.fake.clone();
        let seen = tokio::task::spawn_blocking(move || fake.wait_until(SOON, look)).await;
        seen.ok().flatten().unwrap_or_else(|| panic!("never happened: {what}"))
    }

    /// Connections of the link, counted behind one more that is dialled now and arrives after them.
    pub(crate) async fn dials_so_far(&self) -> usize {
        self.adapter().relay().expect("a relay").check().await.expect("the connector answers");
        self.fake.read(|world| world.connections()) - 1
    }

    pub(crate) async fn say(&self, text: &str) -> Result<petasos_platforms::Receipt, Error> {
        self.adapter().send(&route("c1"), &Part::plain(text), &SendOptions::default()).await
    }
}

impl Line {
    pub(crate) async fn next(&mut self) -> Batch {
        tokio::time::timeout(SOON, self.batches.recv()).await.expect("in time").expect("a batch")
    }

    /// Keeps batches until so many events are in.
    pub(crate) async fn take(&mut self, count: usize) -> Vec<Inbound> {
        let mut events = Vec::new();
        while events.len() < count {
            let batch = self.next().await;
            events.extend(batch.events);
            batch.done.send(Taken::Committed).expect("it waits");
        }
        events
    }

    pub(crate) async fn texts(&mut self, count: usize) -> Vec<String> {
        self.take(count).await.into_iter().map(|event| event.text).collect()
    }

    pub(crate) async fn until_up(&self) {
        let up = || self.told.lock().unwrap_or_else(PoisonError::into_inner).contains(&Health::Polling);
        let waited = tokio::time::timeout(SOON, async {
            while !up() {
                tokio::task::yield_now().await;
            }
        });
        waited.await.expect("the link stands");
    }

    pub(crate) async fn ended(self) -> Error {
        tokio::time::timeout(SOON, self.task).await.expect("in time").expect("no panic")
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
