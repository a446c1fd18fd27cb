//! The way in: events reach the gateway in batches that it must commit before the platform is told
//! that we have them.
//!
//! Invariant: an adapter moves its cursor only after `commit` returned `Ok`. A crash, a dropped batch or
//! a gateway that is gone leaves the cursor where it was, and the platform says everything again.
//!
//! An adapter that is called, instead of calling, answers its caller with what became of the one event
//! (`offer`), or of the one message that is to be passed on as it is (`post`).

use std::time::Duration;

use petasos_core::lifecycle::Closed;
use petasos_core::message::Fingerprint;
use petasos_core::{Inbound, Route, SessionKey};
use tokio::sync::{mpsc, oneshot};

/// What the gateway did with a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// Events and cursor are on disk.
    Committed,
    /// They were there before, every one of them.
    Known,
    /// Nothing was kept; the platform must keep it for us.
    NotTaken,
    /// Nothing was kept, and time does not help: something in it cannot be.
    Unfit,
    /// Nothing was kept: an answer is to go to a platform's home, and there is none.
    NoHome,
    /// Nothing was kept: no turn may start now. Said of what a program sends; people are told in their chat.
    Closed(Closed),
}

/// Events with the place to go on from once they are kept. Dropping it unanswered means `NotTaken`.
#[derive(Debug)]
pub struct Batch {
    /// May be empty: everything in it was for others, and only the cursor moves.
    pub events: Vec<Inbound>,
    /// What came between them and could not be read.
    pub unreadable: Vec<Unreadable>,
    pub cursor: Option<String>,
    pub done: oneshot::Sender<Taken>,
}

/// Longest raw text that is kept of what cannot be read.
const LONGEST_RAW: usize = 64 * 1024;
const LONGEST_ID: usize = 100;

/// Something the platform told us that we cannot read, as it came. For a person to look at, never for a log:
/// it may hold what people wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The platform's own id of it, if that much can be read.
    pub id: Option<String>,
    /// What is wrong with it. Quotes nothing of it.
    pub why: String,
    /// Its beginning, if it is very long.
    pub raw: String,
    /// Bytes, all of it.
    pub size: usize,
}

impl Unreadable {
    pub fn new(id: Option<String>, why: impl ToString, raw: &str) -> Self {
        let kept = &raw[..raw.floor_char_boundary(LONGEST_RAW)];
        let id = id.map(|id| id.chars().take(LONGEST_ID).collect());
        Self { id, why: why.to_string(), raw: kept.to_owned(), size: raw.len() }
    }

    /// The same for JSON of another shape than we know. The parser's own words could quote it.
    pub(crate) fn shape(id: Option<String>, error: &serde_json::Error, raw: &str) -> Self {
        let why = format!("its JSON is not as expected (line {} column {})", error.line(), error.column());
        Self::new(id, why, raw)
    }
}

/// Why a batch was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    #[error("the gateway could not keep the batch")]
    Refused,
    /// Nothing is wrong with the gateway: whoever waits for it with the same batch waits for nothing.
    #[error("the gateway cannot keep the batch as it is")]
    Unfit,
    #[error("the gateway no longer listens")]
    Closed,
}

/// A message that somebody outside wants passed on as it is, without a turn. Dropping it unanswered means
/// `Posted::NotTaken`.
#[derive(Debug)]
pub struct Post {
    /// The same one is owed once, however often it is posted.
    pub dedup: String,
    /// Further deduplication keys.
    pub fingerprints: Vec<Fingerprint>,
    pub route: Route,
    pub text: String,
    /// How long to wait for its delivery.
    pub within: Duration,
    pub done: oneshot::Sender<Posted>,
}

/// What became of a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Posted {
    /// The platform has it; `again`: it had it before this post.
    Delivered { again: bool },
    /// It is on disk and not delivered yet. The same post again waits for the same message.
    Owed,
    /// The platform refused it for good. The same post again makes another try.
    Dead,
    /// Nothing was kept: it is to go to a platform's home, and there is none.
    NoHome,
    /// Nothing was kept.
    NotTaken,
}

/// The adapter's end.
#[derive(Debug, Clone)]
pub struct Intake {
    batches: mpsc::Sender<Batch>,
    posts: mpsc::Sender<Post>,
    interrupts: Option<mpsc::Sender<SessionKey>>,
}

impl Intake {
    /// For a gateway that takes events only.
    pub fn new(depth: usize) -> (Self, mpsc::Receiver<Batch>) {
        let (intake, batches, _closed) = Self::with_posts(depth);
        (intake, batches)
    }

    pub fn with_posts(depth: usize) -> (Self, mpsc::Receiver<Batch>, mpsc::Receiver<Post>) {
        let (batches, taken) = mpsc::channel(depth);
        let (posts, posted) = mpsc::channel(depth);
        (Self { batches, posts, interrupts: None }, taken, posted)
    }

    /// The same for a gateway that can be told to stop a turn.
    #[must_use]
    pub fn with_interrupts(self, depth: usize) -> (Self, mpsc::Receiver<SessionKey>) {
        let (interrupts, interrupted) = mpsc::channel(depth);
        (Self { interrupts: Some(interrupts), ..self }, interrupted)
    }

    /// Somebody wants this conversation to stop what it does. Never waits: one more than the gateway can hear at once
    /// says nothing new.
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
    ) -> Result<(), NotTaken> {
        match self.offer(events, unreadable, cursor).await? {
            Taken::Committed | Taken::Known => Ok(()),
            Taken::NotTaken | Taken::Closed(_) => Err(NotTaken::Refused),
            Taken::Unfit | Taken::NoHome => Err(NotTaken::Unfit),
        }
    }

    /// The same for whoever must know more. The error is `NotTaken::Closed`.
    pub async fn offer(
        &self,
        events: Vec<Inbound>,
        unreadable: Vec<Unreadable>,
        cursor: Option<String>,
    ) -> Result<Taken, NotTaken> {
        let (done, answer) = oneshot::channel();
        let batch = Batch { events, unreadable, cursor, done };
        self.batches.send(batch).await.map_err(|_gone| NotTaken::Closed)?;
        Ok(answer.await.unwrap_or(Taken::NotTaken))
    }

    /// Passes a message on, and waits for its delivery. The error is `NotTaken::Closed`.
    pub async fn post(
        &self,
        dedup: String,
        fingerprints: Vec<Fingerprint>,
        route: Route,
        text: String,
        within: Duration,
    ) -> Result<Posted, NotTaken> {
        let (done, answer) = oneshot::channel();
        let post = Post { dedup, fingerprints, route, text, within, done };
        self.posts.send(post).await.map_err(|_gone| NotTaken::Closed)?;
        Ok(answer.await.unwrap_or(Posted::NotTaken))
    }
}

/// What is fetched over REST after a gap in which nobody told us anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatchUp {
    /// Nothing older than this.
    pub window: Duration,
    /// Messages at most in one round; rounds follow until nothing is missing. 0 fetches nothing.
    pub messages: usize,
}

/// What the adapter knows of its link. The supervisor keeps the time of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    Connecting,
    /// A full inbound round trip succeeded just now, and nothing is missing that we know of.
    Polling,
    /// One succeeded, and what was said while nobody listened is still being fetched.
    CatchingUp,
    /// The adapter is waiting to try again; `reason` is an error code.
    Degraded {
        reason: &'static str,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answered(answer: Option<Taken>) -> Result<(), NotTaken> {
        let (intake, mut batches) = Intake::new(1);
        let gateway = async {
            let batch = batches.recv().await.expect("a batch");
            if let Some(answer) = answer {
                batch.done.send(answer).expect("the adapter waits");
            }
        };
        tokio::join!(intake.commit(vec![], vec![], Some("7".into())), gateway).0
    }

    #[tokio::test]
    async fn only_a_committed_batch_is_taken() {
        assert_eq!(answered(Some(Taken::Committed)).await, Ok(()));
        assert_eq!(answered(Some(Taken::Known)).await, Ok(()));
        for later in [Taken::NotTaken, Taken::Closed(Closed::Draining)] {
            assert_eq!(answered(Some(later)).await, Err(NotTaken::Refused));
        }
        // Nothing waits for these: what comes behind them would wait, too.
        for unfit in [Taken::Unfit, Taken::NoHome] {
            assert_eq!(answered(Some(unfit)).await, Err(NotTaken::Unfit));
        }
        assert_eq!(answered(None).await, Err(NotTaken::Refused), "dropped unanswered");
    }

    #[tokio::test]
    async fn a_gateway_that_is_gone_is_closed() {
        let (intake, batches) = Intake::new(1);
        drop(batches);
        assert_eq!(intake.commit(vec![], vec![], None).await, Err(NotTaken::Closed));
        let route = Route {
            platform: petasos_core::Platform::parse("telegram").expect("known"),
            chat_id: "7".into(),
            thread_id: None,
            reply_to: None,
            delivery: petasos_core::message::Delivery::Push,
        };
        let posted = intake.post("1".into(), vec![], route, "hi".into(), Duration::ZERO).await;
        assert_eq!(posted, Err(NotTaken::Closed));
    }

    #[test]
    fn of_what_cannot_be_read_the_beginning_is_kept_and_the_size_told() {
        let long = "é".repeat(LONGEST_RAW);
        let kept = Unreadable::new(None, "too odd", &long);
        assert_eq!((kept.raw.len(), kept.size), (LONGEST_RAW, 2 * LONGEST_RAW));
        assert_eq!(Unreadable::new(None, "too odd", &format!("x{long}")).raw.len(), LONGEST_RAW - 1);
        let error = serde_json::from_str::<u8>("\"secret\"").expect_err("no number");
        assert!(!Unreadable::shape(None, &error, "\"secret\"").why.contains("secret"));
    }
}
