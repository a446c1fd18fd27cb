//! Everything that leaves: one task per chat that has something to say.
//!
//! Owns the map of lanes. A lane's task (see `lane.rs`) lives while its chat is active and leaves when
//! nothing has happened for a while; what it owes is in the outbox, so its end loses nothing. A lane that
//! panics is started again after a pause; what it was sending is then found in flight.

mod attachments;
mod credentials;
mod follow;
mod lane;
mod owner;
mod preview;
pub(crate) mod reactions;
mod send;
mod topic;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use petasos_core::LaneId;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

use crate::lifecycle::shutdown::Stopper;
use crate::links::channels::Channels;
use crate::storage::database::Db;

pub use attachments::{Policy, Reach};
pub(crate) use follow::Following;
pub(crate) use owner::Owners;
use reactions::Marks;

/// How answers are shown while they grow.
#[derive(Debug, Clone)]
pub struct Streaming {
    pub enabled: bool,
    pub transport: Transport,
    /// Least time between two previews of one answer.
    pub gap: Duration,
    /// Shown at the end of an unfinished text.
    pub cursor: String,
}

impl Default for Streaming {
    fn default() -> Self {
        Self {
            enabled: false,
            transport: Transport::default(),
            gap: Duration::from_millis(800),
            cursor: " ▉".into(),
        }
    }
}

/// What a growing answer is shown as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// As a draft where the platform has them, until it refuses one; else as a message that is changed.
    Draft,
    /// As a message that is changed.
    #[default]
    Edit,
}

/// The way out: lanes, and marks below messages.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) deliver: Deliver,
    pub(crate) reactions: Marks,
}

/// What every lane needs.
#[derive(Debug)]
pub(crate) struct Outward {
    pub(crate) db: Db,
    pub(crate) channels: Arc<Channels>,
    pub(crate) streaming: Streaming,
    pub(crate) stopper: Stopper,
    /// Which files may leave.
    pub(crate) policy: Policy,
    pub(crate) owners: Owners,
    /// Requests to platforms that may be under way at the same time, over all chats.
    pub(crate) hands: Semaphore,
}

/// Enough for every limit that platforms set, and a bound for ours.
const HANDS: usize = 32;

impl Outward {
    pub(crate) fn new(
        db: Db,
        channels: Arc<Channels>,
        streaming: Streaming,
        policy: Policy,
        owners: Owners,
        stopper: Stopper,
    ) -> Self {
        Self { db, channels, streaming, stopper, policy, owners, hands: Semaphore::new(HANDS) }
    }
}

/// The way to the lanes.
#[derive(Debug, Clone)]
pub(crate) struct Deliver(mpsc::Sender<Ask>);

#[derive(Debug)]
enum Ask {
    /// Something became due in this lane.
    Due { lane: LaneId },
    /// An answer is growing there.
    Follow { lane: LaneId, following: Box<Following> },
    /// An idle lane wants to end.
    Leave { lane: LaneId, granted: oneshot::Sender<()> },
}

/// What a lane hears. Whatever it hears, it looks at the outbox.
#[derive(Debug)]
enum Word {
    Due,
    Follow(Box<Following>),
}

/// Words that may wait at one lane.
const LANE_DEPTH: usize = 32;
const DEPTH: usize = 1024;
/// How long a chat waits after its lane has panicked.
const AFTER_PANIC: Duration = Duration::from_secs(5);

impl Deliver {
    /// Makes the channel; `run` is to be spawned.
    pub(crate) fn new(outward: Outward) -> (Self, impl Future<Output = ()>) {
        let (asks, inbox) = mpsc::channel(DEPTH);
        let deliver = Self(asks);
        let task = run(Arc::new(outward), deliver.clone(), inbox);
        (deliver, task)
    }

    /// Without lanes: the second value tells which of them became due.
    #[cfg(test)]
    pub(crate) fn recorded() -> (Self, impl FnMut() -> Option<LaneId>) {
        let (asks, mut inbox) = mpsc::channel(DEPTH);
        let due = move || match inbox.try_recv().ok()? {
            Ask::Due { lane } | Ask::Follow { lane, .. } | Ask::Leave { lane, .. } => Some(lane),
        };
        (Self(asks), due)
    }

    pub(crate) async fn due(&self, lane: LaneId) {
        self.ask(Ask::Due { lane }).await;
    }

    pub(crate) async fn follow(&self, lane: LaneId, following: Following) {
        self.ask(Ask::Follow { lane, following: Box::new(following) }).await;
    }

    async fn ask(&self, ask: Ask) {
        // Closed only while stopping; the outbox keeps what is owed.
        let _ = self.0.send(ask).await;
    }
}

/// Runs until stopping begins, then until the sends under way have their answers.
async fn run(outward: Arc<Outward>, deliver: Deliver, mut asks: mpsc::Receiver<Ask>) {
    let mut lanes: HashMap<LaneId, mpsc::Sender<Word>> = HashMap::new();
    let mut tasks = JoinSet::new();
    loop {
        let ask = petasos_runtime::select! {
            ask = asks.recv() => ask,
            Some(_ended) = tasks.join_next(), if !tasks.is_empty() => continue,
            () = outward.stopper.stopped() => break,
        };
        let Some(ask) = ask else { break };
        let (lane, word) = match ask {
            Ask::Due { lane } => (lane, Word::Due),
            Ask::Follow { lane, following } => (lane, Word::Follow(following)),
            Ask::Leave { lane, granted } => {
                lanes.remove(&lane);
                // A lane that did not wait for the answer has ended anyway.
                let _ = granted.send(());
                continue;
            }
        };
        let mailbox = match lanes.entry(lane) {
            Entry::Occupied(known) if !known.get().is_closed() => known.into_mut(),
            entry => {
                let (mailbox, words) = mpsc::channel(LANE_DEPTH);
                let name = entry.key().clone();
                tasks.spawn(petasos_runtime::scheduled(guarded(
                    name,
                    outward.clone(),
                    deliver.clone(),
                    words,
                )));
                entry.insert_entry(mailbox).into_mut()
            }
        };
        // A full mailbox has words the lane has yet to hear, and each makes it look at the outbox: of what
        // does not fit only a preview is missed.
        let _ = mailbox.try_send(word);
    }
    // A lane that has asked to leave must not wait for an answer nobody gives.
    drop(asks);
    lanes.clear();
    while tasks.join_next().await.is_some() {}
}

async fn guarded(name: LaneId, outward: Arc<Outward>, deliver: Deliver, words: mpsc::Receiver<Word>) {
    let lane = lane::run(name.clone(), outward.clone(), deliver.clone(), words);
    if AssertUnwindSafe(lane).catch_unwind().await.is_ok() {
        return;
    }
    tracing::error!(lane = %name, "a lane panicked; it goes on in a moment");
    petasos_runtime::select! {
        () = outward.stopper.stopped() => {}
        () = tokio::time::sleep(AFTER_PANIC) => deliver.due(name).await,
    }
}
