//! Inbound sink: adapters hand over batches, which the gateway commits before the platform gets an
//! acknowledgement. An adapter waits for the commit (backpressure).
//!
//! Invariant: an adapter advances its cursor only after `commit` returned `Ok`. A crash or a dropped batch
//! leaves the cursor where it was, and the platform delivers the events again.
//!
//! Webhook adapters need the result of a single event (`offer`) or of a message without a turn (`post`).

use std::time::Duration;

use petasos_core::lifecycle::NotAccepting;
use petasos_core::message::Fingerprint;
use petasos_core::{Inbound, Route, SessionKey};
use tokio::sync::{mpsc, oneshot};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitResult {
    /// Events and cursor are on disk.
    Committed,
    /// All of them were stored before.
    Duplicate,
    /// Nothing was stored; the platform keeps the events and delivers them again.
    NotStored,
    /// Nothing was stored, and a retry would not help.
    Invalid,
    /// Nothing was stored: the answer needs a home channel, and none is set.
    NoHomeChannel,
    /// Nothing was stored: no turn may start now. Only for events sent by programs; people get a notice in
    /// their chat.
    Closed(NotAccepting),
}

/// Bytes of a message; far above the limits of the platforms.
pub(crate) const TEXT_LIMIT: usize = 1024 * 1024;

/// Cuts a message at the limit and says so in its text.
pub(crate) fn truncated(mut text: String) -> String {
    if text.len() <= TEXT_LIMIT {
        return text;
    }
    let size = text.len();
    text.truncate(text.floor_char_boundary(TEXT_LIMIT));
    text.push_str(&format!("\n[cut here: the message was {size} bytes long]"));
    text
}

/// Events and the cursor after them. Dropping it without a result means `NotStored`.
#[derive(Debug)]
pub struct InboundBatch {
    /// May be empty if only the cursor moves.
    pub events: Vec<Inbound>,
    /// Events that could not be parsed.
    pub unreadable: Vec<Unreadable>,
    pub cursor: Option<String>,
    pub done: oneshot::Sender<CommitResult>,
}

/// Longest raw text that is stored.
const LONGEST_RAW: usize = 64 * 1024;
const LONGEST_ID: usize = 100;

/// An event that cannot be parsed, as received. It may contain message text, so it is never logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The platform's id of the event, if it is readable.
    pub id: Option<String>,
    /// The reason, without a quote from the event.
    pub why: String,
    /// Truncated to `LONGEST_RAW`.
    pub raw: String,
    /// Size in bytes before truncation.
    pub size: usize,
}

impl Unreadable {
    pub fn new(id: Option<String>, why: impl ToString, raw: &str) -> Self {
        let stored = &raw[..raw.floor_char_boundary(LONGEST_RAW)];
        let id = id.map(|id| id.chars().take(LONGEST_ID).collect());
        Self { id, why: why.to_string(), raw: stored.to_owned(), size: raw.len() }
    }

    /// For JSON of an unknown shape. The parser's own message could quote the event, so only the position is
    /// kept.
    pub(crate) fn shape(id: Option<String>, error: &serde_json::Error, raw: &str) -> Self {
        let why = format!("its JSON is not as expected (line {} column {})", error.line(), error.column());
        Self::new(id, why, raw)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    #[error("the gateway could not store the batch")]
    Refused,
    /// A retry of the same batch cannot succeed.
    #[error("the gateway cannot store this batch")]
    Invalid,
    #[error("the gateway is stopping")]
    Closed,
}

/// A message to deliver as it is, without a turn. Dropping it without a result means
/// `PostOutcome::NotStored`.
#[derive(Debug)]
pub struct Post {
    /// Idempotency key: one message is delivered per key.
    pub dedup: String,
    pub fingerprints: Vec<Fingerprint>,
    pub route: Route,
    pub text: String,
    /// How long to wait for the delivery.
    pub within: Duration,
    pub done: oneshot::Sender<PostOutcome>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostOutcome {
    /// `duplicate`: it was delivered before this post.
    Delivered {
        duplicate: bool,
    },
    /// Stored and not delivered yet. Posting it again waits for the same message.
    Queued,
    /// Refused by the platform. Posting it again makes a new attempt.
    Dead,
    /// Nothing was stored: the message needs a home channel, and none is set.
    NoHomeChannel,
    NotStored,
}

/// The adapter's side.
#[derive(Debug, Clone)]
pub struct InboundSink {
    batches: mpsc::Sender<InboundBatch>,
    posts: mpsc::Sender<Post>,
    interrupts: Option<mpsc::Sender<SessionKey>>,
}

impl InboundSink {
    /// For a gateway that accepts events only.
    pub fn new(depth: usize) -> (Self, mpsc::Receiver<InboundBatch>) {
        let (sink, batches, _closed) = Self::with_posts(depth);
        (sink, batches)
    }

    pub fn with_posts(depth: usize) -> (Self, mpsc::Receiver<InboundBatch>, mpsc::Receiver<Post>) {
        let (batches, taken) = mpsc::channel(depth);
        let (posts, posted) = mpsc::channel(depth);
        (Self { batches, posts, interrupts: None }, taken, posted)
    }

    /// Adds a channel for requests to interrupt a turn.
    #[must_use]
    pub fn with_interrupts(self, depth: usize) -> (Self, mpsc::Receiver<SessionKey>) {
        let (interrupts, interrupted) = mpsc::channel(depth);
        (Self { interrupts: Some(interrupts), ..self }, interrupted)
    }

    /// Asks to interrupt the turn of a session. Never waits; a request beyond the queue's depth is dropped.
    pub fn interrupt(&self, key: String) {
        if let Some(interrupts) = &self.interrupts {
            let _enough = interrupts.try_send(SessionKey(key));
        }
    }

    pub async fn commit(
        &self,
        events: Vec<Inbound>,
        unreadable: Vec<Unreadable>,
        cursor: Option<String>,
    ) -> Result<(), CommitError> {
        match self.offer(events, unreadable, cursor).await? {
            CommitResult::Committed | CommitResult::Duplicate => Ok(()),
            CommitResult::NotStored | CommitResult::Closed(_) => Err(CommitError::Refused),
            CommitResult::Invalid | CommitResult::NoHomeChannel => Err(CommitError::Invalid),
        }
    }

    /// Like `commit`, with the full result. The only error is `CommitError::Closed`.
    pub async fn offer(
        &self,
        events: Vec<Inbound>,
        unreadable: Vec<Unreadable>,
        cursor: Option<String>,
    ) -> Result<CommitResult, CommitError> {
        let (done, answer) = oneshot::channel();
        let batch = InboundBatch { events, unreadable, cursor, done };
        self.batches.send(batch).await.map_err(|_gone| CommitError::Closed)?;
        Ok(answer.await.unwrap_or(CommitResult::NotStored))
    }

    /// Delivers a message and waits for the outcome. The only error is `CommitError::Closed`.
    pub async fn post(
        &self,
        dedup: String,
        fingerprints: Vec<Fingerprint>,
        route: Route,
        text: String,
        within: Duration,
    ) -> Result<PostOutcome, CommitError> {
        let (done, answer) = oneshot::channel();
        let post = Post { dedup, fingerprints, route, text, within, done };
        self.posts.send(post).await.map_err(|_gone| CommitError::Closed)?;
        Ok(answer.await.unwrap_or(PostOutcome::NotStored))
    }
}

/// Bounds of a backfill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackfillLimits {
    /// Older messages are not fetched.
    pub window: Duration,
    /// Messages per round; rounds follow until nothing is missing. 0 switches backfill off.
    pub messages: usize,
}

/// State of a link, as its adapter sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkHealth {
    Connecting,
    /// An inbound round trip just succeeded, and no gap is known.
    Connected,
    /// An inbound round trip just succeeded, and a backfill is under way.
    Backfilling,
    /// Waiting before a retry; `reason` is an error code.
    Degraded {
        reason: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn commit_with(answer: Option<CommitResult>) -> Result<(), CommitError> {
        let (sink, mut batches) = InboundSink::new(1);
        let gateway = async {
            let batch = batches.recv().await.expect("a batch");
            if let Some(answer) = answer {
                batch.done.send(answer).expect("the adapter waits");
            }
        };
        tokio::join!(sink.commit(vec![], vec![], Some("7".into())), gateway).0
    }

    #[tokio::test]
    async fn reports_success_only_for_a_stored_batch() {
        assert_eq!(commit_with(Some(CommitResult::Committed)).await, Ok(()));
        assert_eq!(commit_with(Some(CommitResult::Duplicate)).await, Ok(()));
        for later in [CommitResult::NotStored, CommitResult::Closed(NotAccepting::Draining)] {
            assert_eq!(commit_with(Some(later)).await, Err(CommitError::Refused));
        }
        // Not retried: a retry would block the events behind them.
        for unfit in [CommitResult::Invalid, CommitResult::NoHomeChannel] {
            assert_eq!(commit_with(Some(unfit)).await, Err(CommitError::Invalid));
        }
        assert_eq!(commit_with(None).await, Err(CommitError::Refused), "dropped unanswered");
    }

    #[tokio::test]
    async fn reports_a_stopped_gateway_as_closed() {
        let (sink, batches) = InboundSink::new(1);
        drop(batches);
        assert_eq!(sink.commit(vec![], vec![], None).await, Err(CommitError::Closed));
        let route = Route {
            platform: petasos_core::Platform::parse("telegram").expect("known"),
            chat_id: "7".into(),
            thread_id: None,
            reply_to: None,
            delivery: petasos_core::message::Delivery::Push,
        };
        let posted = sink.post("1".into(), vec![], route, "hi".into(), Duration::ZERO).await;
        assert_eq!(posted, Err(CommitError::Closed));
    }

    #[test]
    fn truncates_unreadable_events_and_keeps_their_size() {
        let long = "é".repeat(LONGEST_RAW);
        let stored = Unreadable::new(None, "too odd", &long);
        assert_eq!((stored.raw.len(), stored.size), (LONGEST_RAW, 2 * LONGEST_RAW));
        assert_eq!(Unreadable::new(None, "too odd", &format!("x{long}")).raw.len(), LONGEST_RAW - 1);
        let error = serde_json::from_str::<u8>("\"secret\"").expect_err("no number");
        assert!(!Unreadable::shape(None, &error, "\"secret\"").why.contains("secret"));
    }
}
