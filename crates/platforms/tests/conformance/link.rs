//! The gateway's end of a link, as the kit plays it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use petasos_core::Inbound;
use petasos_platforms::{Batch, Error, Health, Intake, Taken, Unreadable};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use crate::peer::Peer;

pub(crate) const SOON: Duration = Duration::from_secs(60);
const GLANCE: Duration = Duration::from_millis(2);

/// What is on disk: it outlives links and adapters.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    pub(crate) cursor: Option<String>,
    pub(crate) heard: Vec<Inbound>,
    pub(crate) unreadable: Vec<Unreadable>,
}

/// One link, while it stands.
pub(crate) struct Line<'a> {
    pub(crate) inbox: &'a mut Inbox,
    batches: mpsc::Receiver<Batch>,
    told: Arc<Mutex<Vec<Health>>>,
}

/// Listens while `gateway` runs; the error is how the link ended before it was done.
pub(crate) async fn listen<T>(
    peer: &dyn Peer,
    inbox: &mut Inbox,
    gateway: impl AsyncFnOnce(&mut Line<'_>) -> T,
) -> Result<T, Error> {
    let (intake, batches) = Intake::new(4);
    let told = Arc::new(Mutex::new(Vec::new()));
    let cursor = inbox.cursor.clone();
    let ear = told.clone();
    let mut health = move |state| ear.lock().unwrap_or_else(PoisonError::into_inner).push(state);
    let mut line = Line { inbox, batches, told };
    let work = async {
        while !peer.is_settled(line.inbox.cursor.as_deref()) {
            line.keep_next().await;
        }
        gateway(&mut line).await
    };
    tokio::select! {
        error = peer.adapter().receive(cursor, &intake, &mut health) => Err(error),
        done = work => Ok(done),
    }
}

/// The same for a link that must not end.
pub(crate) async fn hold<T>(
    peer: &dyn Peer,
    inbox: &mut Inbox,
    gateway: impl AsyncFnOnce(&mut Line<'_>) -> T,
) -> T {
    let done = listen(peer, inbox, gateway).await;
    done.unwrap_or_else(|error| panic!("the link ended: {error}"))
}

/// Listens until the link gives up; everything is kept.
pub(crate) async fn to_the_end(peer: &dyn Peer, inbox: &mut Inbox) -> Error {
    let ended = timeout(SOON, listen(peer, inbox, async |line| line.keep_all().await)).await;
    ended.expect("an end").expect_err("an end")
}

impl Line<'_> {
    pub(crate) async fn next(&mut self) -> Batch {
        timeout(SOON, self.batches.recv()).await.expect("in time").expect("a batch")
    }

    /// The next batch with events in it; those that only move the cursor are kept.
    pub(crate) async fn next_events(&mut self) -> Batch {
        loop {
            let batch = self.next().await;
            if !batch.events.is_empty() {
                return batch;
            }
            self.keep(batch);
        }
    }

    pub(crate) fn keep(&mut self, batch: Batch) {
        self.inbox.cursor = batch.cursor.or(self.inbox.cursor.take());
        self.inbox.heard.extend(batch.events);
        self.inbox.unreadable.extend(batch.unreadable);
        // Nobody waits for a commit that came too late.
        let _late = batch.done.send(Taken::Committed);
    }

    pub(crate) async fn keep_next(&mut self) {
        let batch = self.next().await;
        self.keep(batch);
    }

    pub(crate) async fn keep_all(&mut self) {
        while let Some(batch) = self.batches.recv().await {
            self.keep(batch);
        }
    }

    /// Keeps batches until all these texts were heard.
    pub(crate) async fn hear(&mut self, texts: &[&str]) {
        while !self.inbox.has(texts) {
            self.keep_next().await;
        }
    }

    /// Keeps batches until something else has happened.
    pub(crate) async fn keep_until(&mut self, what: &str, mut look: impl FnMut() -> bool) {
        tokio::select! {
            () = self.keep_all() => panic!("the link ended"),
            () = until(what, &mut look) => {}
        }
    }

    pub(crate) fn told(&self) -> Vec<Health> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Nobody is there to take anything any more.
    pub(crate) fn hang_up(&mut self) {
        self.batches.close();
    }

    pub(crate) fn is_degraded(&self) -> bool {
        self.told().iter().any(|state| matches!(state, Health::Degraded { .. }))
    }
}

impl Inbox {
    fn has(&self, texts: &[&str]) -> bool {
        texts.iter().all(|text| self.heard.iter().any(|event| event.text == *text))
    }

    /// Everything that was heard with this text.
    pub(crate) fn all(&self, text: &str) -> Vec<&Inbound> {
        self.heard.iter().filter(|event| event.text == text).collect()
    }

    /// Whatever was heard more than once has one identity, and no two messages share theirs.
    #[track_caller]
    pub(crate) fn assert_identities(&self) {
        for (at, one) in self.heard.iter().enumerate() {
            for other in &self.heard[..at] {
                assert_eq!(one.text == other.text, one.dedup == other.dedup, "{one:?} and {other:?}");
            }
        }
    }
}

pub(crate) async fn until(what: &str, mut look: impl FnMut() -> bool) {
    let deadline = Instant::now() + SOON;
    while !look() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        sleep(GLANCE).await;
    }
}
