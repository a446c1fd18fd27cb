//! Test harness of all platforms: runs a link and commits its batches.

use std::time::Duration;

use petasos_core::message::Delivery;
use petasos_core::{Inbound, Platform, Route};
use petasos_platforms::{Adapter, CommitResult, Error, InboundBatch, InboundSink, LinkHealth};
use tokio::sync::mpsc;

pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Runs the link until `gateway` ends; returns its result and the health log.
pub(crate) async fn listen<T>(
    adapter: &Adapter,
    cursor: Option<&str>,
    gateway: impl AsyncFnOnce(mpsc::Receiver<InboundBatch>) -> T,
) -> (T, Vec<LinkHealth>) {
    let (sink, batches) = InboundSink::new(4);
    let mut health_log = Vec::new();
    let mut health = |state| health_log.push(state);
    let done = tokio::select! {
        error = adapter.receive(cursor.map(str::to_owned), &sink, &mut health) => {
            panic!("the link ended: {error}")
        }
        done = gateway(batches) => done,
    };
    (done, health_log)
}

pub(crate) async fn run_until_link_ends(adapter: &Adapter) -> (Error, Vec<LinkHealth>) {
    let (sink, _batches) = InboundSink::new(4);
    let mut health_log = Vec::new();
    let mut health = |state| health_log.push(state);
    let error = adapter.receive(None, &sink, &mut health);
    let error = tokio::time::timeout(TEST_TIMEOUT, error).await.expect("an end");
    (error, health_log)
}

/// Waits for the time that an error demands before the next request.
pub(crate) async fn wait_as_demanded(wait: Duration) {
    petasos_runtime::clock::sleep(wait).await;
}

/// Blocks on another thread: the link runs on the test's task.
pub(crate) async fn wait_for(what: &str, wait: impl FnOnce() -> Option<()> + Send + 'static) {
    let seen = petasos_runtime::blocking(wait).await;
    assert_eq!(seen.ok().flatten(), Some(()), "never happened: {what}");
}

pub(crate) async fn next_batch(batches: &mut mpsc::Receiver<InboundBatch>) -> InboundBatch {
    tokio::time::timeout(TEST_TIMEOUT, batches.recv()).await.expect("in time").expect("a batch")
}

pub(crate) async fn commit_events(batches: &mut mpsc::Receiver<InboundBatch>, count: usize) -> Vec<Inbound> {
    let mut events = Vec::new();
    while events.len() < count {
        let batch = next_batch(batches).await;
        events.extend(batch.events);
        let _ = batch.done.send(CommitResult::Committed);
    }
    events
}

pub(crate) fn texts(events: &[Inbound]) -> Vec<&str> {
    events.iter().map(|event| event.text.as_str()).collect()
}

pub(crate) fn degraded(health_log: &[LinkHealth]) -> Vec<&'static str> {
    let reason = |state: &LinkHealth| match state {
        LinkHealth::Degraded { reason } => Some(*reason),
        LinkHealth::Connecting | LinkHealth::Connected | LinkHealth::Backfilling => None,
    };
    health_log.iter().filter_map(reason).collect()
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
