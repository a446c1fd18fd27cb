//! The gateway's side of a link.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use petasos_core::Inbound;
use petasos_platforms::{CommitResult, Error, InboundBatch, InboundSink, LinkHealth, Unreadable};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::platform::TestPlatform;

pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Stored state; it outlives links and adapters.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    pub(crate) cursor: Option<String>,
    pub(crate) received: Vec<Inbound>,
    pub(crate) unreadable: Vec<Unreadable>,
}

pub(crate) struct ActiveLink<'a> {
    pub(crate) inbox: &'a mut Inbox,
    batches: mpsc::Receiver<InboundBatch>,
    health_log: Arc<Mutex<Vec<LinkHealth>>>,
}

/// Runs the link until `gateway` ends; errors if the link ends first.
pub(crate) async fn listen<T>(
    platform: &dyn TestPlatform,
    inbox: &mut Inbox,
    gateway: impl AsyncFnOnce(&mut ActiveLink<'_>) -> T,
) -> Result<T, Error> {
    let (sink, batches) = InboundSink::new(4);
    let health_log = Arc::new(Mutex::new(Vec::new()));
    let cursor = inbox.cursor.clone();
    let log = health_log.clone();
    let mut health = move |state| log.lock().unwrap_or_else(PoisonError::into_inner).push(state);
    let mut link = ActiveLink { inbox, batches, health_log };
    let work = async {
        while !platform.is_settled(link.inbox.cursor.as_deref()) {
            link.commit_next().await;
        }
        gateway(&mut link).await
    };
    tokio::select! {
        error = platform.adapter().receive(cursor, &sink, &mut health) => Err(error),
        done = work => Ok(done),
    }
}

/// Panics if the link ends.
pub(crate) async fn with_link<T>(
    platform: &dyn TestPlatform,
    inbox: &mut Inbox,
    gateway: impl AsyncFnOnce(&mut ActiveLink<'_>) -> T,
) -> T {
    let done = listen(platform, inbox, gateway).await;
    done.unwrap_or_else(|error| panic!("the link ended: {error}"))
}

/// Commits everything until the link gives up.
pub(crate) async fn run_until_link_ends(platform: &dyn TestPlatform, inbox: &mut Inbox) -> Error {
    let ended = timeout(TEST_TIMEOUT, listen(platform, inbox, async |link| link.commit_all().await)).await;
    ended.expect("an end").expect_err("an end")
}

impl ActiveLink<'_> {
    pub(crate) async fn next(&mut self) -> InboundBatch {
        timeout(TEST_TIMEOUT, self.batches.recv()).await.expect("in time").expect("a batch")
    }

    /// The next batch with events; batches that only move the cursor are committed.
    pub(crate) async fn next_events(&mut self) -> InboundBatch {
        loop {
            let batch = self.next().await;
            if !batch.events.is_empty() {
                return batch;
            }
            self.commit(batch);
        }
    }

    pub(crate) fn commit(&mut self, batch: InboundBatch) {
        self.inbox.cursor = batch.cursor.or(self.inbox.cursor.take());
        self.inbox.received.extend(batch.events);
        self.inbox.unreadable.extend(batch.unreadable);
        // The batch may be abandoned.
        let _late = batch.done.send(CommitResult::Committed);
    }

    pub(crate) async fn commit_next(&mut self) {
        let batch = self.next().await;
        self.commit(batch);
    }

    pub(crate) async fn commit_all(&mut self) {
        while let Some(batch) = self.batches.recv().await {
            self.commit(batch);
        }
    }

    /// Commits batches until all these texts were received.
    pub(crate) async fn commit_until_received(&mut self, texts: &[&str]) {
        while !self.inbox.has(texts) {
            self.commit_next().await;
        }
    }

    pub(crate) async fn commit_until(&mut self, what: &str, mut condition: impl FnMut() -> bool) {
        tokio::select! {
            () = self.commit_all() => panic!("the link ended"),
            () = until(what, &mut condition) => {}
        }
    }

    pub(crate) fn health_log(&self) -> Vec<LinkHealth> {
        self.health_log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn close_gateway(&mut self) {
        self.batches.close();
    }

    pub(crate) fn is_degraded(&self) -> bool {
        self.health_log().iter().any(|state| matches!(state, LinkHealth::Degraded { .. }))
    }
}

impl Inbox {
    fn has(&self, texts: &[&str]) -> bool {
        texts.iter().all(|text| self.received.iter().any(|event| event.text == *text))
    }

    pub(crate) fn all(&self, text: &str) -> Vec<&Inbound> {
        self.received.iter().filter(|event| event.text == text).collect()
    }

    /// Redelivered messages share one dedup key, and different messages never do.
    #[track_caller]
    pub(crate) fn assert_identities(&self) {
        for (at, one) in self.received.iter().enumerate() {
            for other in &self.received[..at] {
                assert_eq!(one.text == other.text, one.dedup == other.dedup, "{one:?} and {other:?}");
            }
        }
    }
}

pub(crate) async fn until(description: &str, condition: impl FnMut() -> bool) {
    petasos_fakes::wait::eventually_async(description, TEST_TIMEOUT, condition).await;
}
