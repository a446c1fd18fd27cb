//! A fake Telegram and an adapter that talks to it, without long waits.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use petasos_core::message::Delivery;
use petasos_core::{Inbound, Platform, Route};
use petasos_fakes::Telegram;
use petasos_fakes::telegram::World;
use petasos_platforms::telegram::{self, Config};
use petasos_platforms::{Adapter, Batch, Error, Health, Intake, Secret, Taken};
use tokio::sync::mpsc;

pub(crate) const TOKEN: &str = "123456:secret";
pub(crate) const SOON: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) fake: Arc<Telegram>,
    pub(crate) adapter: Adapter,
}

pub(crate) fn rig() -> Rig {
    rig_with(|_| {})
}

pub(crate) fn rig_with(change: impl FnOnce(&mut Config)) -> Rig {
    let fake = Arc::new(Telegram::start().expect("a fake"));
    let mut config = Config::new(Secret::new(TOKEN));
    config.base_url = format!("{}/bot", fake.url());
    config.poll_backoff_base = Duration::from_millis(1);
    config.request_timeout = SOON;
    change(&mut config);
    let adapter = Adapter::Telegram(telegram::Telegram::new(config).expect("valid"));
    Rig { fake, adapter }
}

impl Rig {
    /// Listens while `gateway` runs; what was told of the link's health is returned with its result.
    pub(crate) async fn listen<T>(
        &self,
        cursor: Option<&str>,
        gateway: impl AsyncFnOnce(&mut mpsc::Receiver<Batch>) -> T,
    ) -> (T, Vec<Health>) {
        let (intake, mut batches) = Intake::new(4);
        let mut told = Vec::new();
        let mut health = |state| told.push(state);
        let done = tokio::select! {
            error = self.adapter.receive(cursor.map(str::to_owned), &intake, &mut health) => {
                panic!("the link ended: {error}")
            }
            done = gateway(&mut batches) => done,
        };
        (done, told)
    }

    /// Listens until the link gives up.
    pub(crate) async fn listen_to_the_end(&self) -> (Error, Vec<Health>) {
        let (intake, _batches) = Intake::new(4);
        let mut told = Vec::new();
        let mut health = |state| told.push(state);
        let error = self.adapter.receive(None, &intake, &mut health);
        let error = tokio::time::timeout(SOON, error).await.expect("an end");
        (error, told)
    }

    /// Waits elsewhere: the link lives on the test's own task.
    pub(crate) async fn wait_until(
        &self,
        what: &str,
        look: impl FnMut(&World) -> Option<()> + Send + 'static,
    ) {
        let fake = self.fake.clone();
        let seen = tokio::task::spawn_blocking(move || fake.wait_until(SOON, look)).await;
        assert_eq!(seen.ok().flatten(), Some(()), "never happened: {what}");
    }

    pub(crate) fn polls(&self) -> usize {
        self.fake.calls_of("getUpdates").len()
    }
}

pub(crate) async fn next(batches: &mut mpsc::Receiver<Batch>) -> Batch {
    tokio::time::timeout(SOON, batches.recv()).await.expect("in time").expect("a batch")
}

/// Takes batches until `count` events are in.
pub(crate) async fn take(batches: &mut mpsc::Receiver<Batch>, count: usize) -> Vec<Inbound> {
    let mut events = Vec::new();
    while events.len() < count {
        let batch = next(batches).await;
        events.extend(batch.events);
        let _ = batch.done.send(Taken::Committed);
    }
    events
}

pub(crate) fn texts(events: &[Inbound]) -> Vec<&str> {
    events.iter().map(|event| event.text.as_str()).collect()
}

pub(crate) fn degraded(told: &[Health]) -> Vec<&'static str> {
    let reason = |state: &Health| match state {
        Health::Degraded { reason } => Some(*reason),
        Health::Connecting | Health::Polling | Health::CatchingUp => None,
    };
    told.iter().filter_map(reason).collect()
}

pub(crate) fn route(chat: i64) -> Route {
    Route {
        platform: Platform::parse("telegram").expect("known"),
        chat_id: chat.to_string(),
        thread_id: None,
        reply_to: None,
        delivery: Delivery::Push,
    }
}
