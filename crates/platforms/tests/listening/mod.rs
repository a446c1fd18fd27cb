//! What every platform's rig does: listens, takes what comes, and says how the link fared.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use petasos_core::message::Delivery;
use petasos_core::{Inbound, Platform, Route};
use petasos_platforms::{Adapter, Batch, Error, Health, Intake, Taken};
use tokio::sync::mpsc;

pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Listens while `gateway` runs; what was told of the link's health is returned with its result.
pub(crate) async fn listen<T>(
    adapter: &Adapter,
    cursor: Option<&str>,
    gateway: impl AsyncFnOnce(mpsc::Receiver<Batch>) -> T,
) -> (T, Vec<Health>) {
    let (intake, batches) = Intake::new(4);
    let mut told = Vec::new();
    let mut health = |state| told.push(state);
    let done = tokio::select! {
        error = adapter.receive(cursor.map(str::to_owned), &intake, &mut health) => {
            panic!("the link ended: {error}")
        }
        done = gateway(batches) => done,
    };
    (done, told)
}

/// Listens until the link gives up.
pub(crate) async fn listen_to_the_end(adapter: &Adapter) -> (Error, Vec<Health>) {
    let (intake, _batches) = Intake::new(4);
    let mut told = Vec::new();
    let mut health = |state| told.push(state);
    let error = adapter.receive(None, &intake, &mut health);
    let error = tokio::time::timeout(SOON, error).await.expect("an end");
    (error, told)
}

/// Waits elsewhere: the link lives on the test's own task.
pub(crate) async fn happens(what: &str, wait: impl FnOnce() -> Option<()> + Send + 'static) {
    let seen = tokio::task::spawn_blocking(wait).await;
    assert_eq!(seen.ok().flatten(), Some(()), "never happened: {what}");
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

pub(crate) fn route(platform: &str, chat: impl ToString, thread: Option<&str>) -> Route {
    Route {
        platform: Platform::parse(platform).expect("known"),
        chat_id: chat.to_string(),
        thread_id: thread.map(str::to_owned),
        reply_to: None,
        delivery: Delivery::Push,
    }
}
