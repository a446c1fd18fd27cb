//! From what was read to what is on disk, and only then acknowledged.
//!
//! Owns what waits, the one commit under way and the one catch-up. Whatever arrives meanwhile goes into the next
//! commit, so a slow store makes batches larger and never blocks the socket. An envelope whose commit is refused or
//! late, or for which there is no room, is not acknowledged: Slack says it again, and the inbox knows it by `dedup`.
//! Slack does so only a few times, so its channel has a gap from then on (`progress.rs`), and as long as there is one,
//! catch-ups begin. A crash at any point leaves an envelope unacknowledged, too, and the cursor before it.

use std::time::Duration;

use petasos_core::Inbound;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::Error;
use super::progress::{Filled, Moment};
use super::receive::Link;
use crate::intake::{self, NotTaken};

/// Envelopes that may wait for the commit under way; more are left to Slack, which says them again.
const MOST_WAITING: usize = 256;
/// A catch-up is put off for no longer than this.
const LONGEST_PATIENCE: Duration = Duration::from_secs(60);

/// What an envelope holds.
#[derive(Debug)]
pub(super) enum Told {
    Event(Box<Inbound>),
    Unreadable(intake::Unreadable),
}

impl Told {
    fn moment(&self) -> Option<Moment> {
        match self {
            Self::Event(event) => Moment::of(event),
            Self::Unreadable(_) => None,
        }
    }
}

/// An envelope that is acknowledged when its event is committed.
#[derive(Debug)]
pub(super) struct Due {
    socket: u64,
    /// `None`: it cannot be read, and so not be acknowledged.
    envelope: Option<String>,
    arrived: Instant,
    reply: Option<Value>,
}

/// What a catch-up found, and what is closed by it.
#[derive(Debug)]
pub(super) struct Caught {
    pub(super) found: Vec<Told>,
    pub(super) filled: Vec<Filled>,
    /// Somebody would not say now.
    pub(super) deferred: bool,
}

/// Whether a batch was kept, and what to do then.
pub(super) struct Committed {
    taken: Result<(), NotTaken>,
    dues: Vec<Due>,
    told: Vec<Moment>,
    cursor: Option<String>,
    filled: Vec<Filled>,
}

impl Link<'_> {
    /// For the next commit.
    pub(super) fn wait(&mut self, at: usize, envelope: Option<String>, reply: Option<Value>, told: Told) {
        if self.waiting.len() >= MOST_WAITING {
            warn!(platform = "slack", "too much waits for the store; an envelope is left to Slack");
            self.slack.memory().progress.missed(told.moment().as_slice());
            return;
        }
        let (socket, arrived) = (self.sockets[at].number, Instant::now());
        self.waiting.push((told, Due { socket, envelope, arrived, reply }));
    }

    /// The store is not to be asked at once again, nor Slack.
    fn put_off(&mut self) {
        let least = self.slack.config.reconnect_base;
        self.patience = (2 * self.patience).clamp(least, LONGEST_PATIENCE.max(least));
    }

    /// Nobody told us anything until now.
    pub(super) fn was_away(&mut self) {
        self.slack.memory().progress.away();
        (self.catching, self.patience) = (None, Duration::ZERO);
    }

    /// Fetches what is missing, if anything may be and nobody is at it.
    pub(super) fn catch_up(&mut self) {
        if self.catching.is_some() || self.closing.is_some() || self.committing.is_some() {
            return;
        }
        let mut memory = self.slack.memory();
        let gaps = memory.progress.gaps();
        if gaps.is_empty() || self.slack.config.catch_up.messages == 0 {
            let all: Vec<Filled> = gaps.into_iter().map(|gap| Filled { gap, to: None }).collect();
            memory.progress.keep(&[], &all);
            self.patience = Duration::ZERO;
            drop(memory);
            self.up_to_date();
        } else {
            let (slack, wait) = (self.slack, self.patience);
            self.catching = Some(Box::pin(async move {
                sleep(wait).await;
                slack.catch_up(gaps).await
            }));
        }
    }

    pub(super) fn caught_up(&mut self, Caught { found, filled, deferred }: Caught) -> Result<(), Error> {
        if deferred {
            self.put_off();
        }
        if found.is_empty() {
            self.slack.memory().progress.keep(&[], &filled);
            return Ok(());
        }
        // Before what was told meanwhile.
        let due = |told| (told, Due { socket: 0, envelope: None, arrived: Instant::now(), reply: None });
        self.waiting.splice(0..0, found.into_iter().map(due));
        self.closing = Some(filled);
        Ok(())
    }

    /// When something that waits for a catch-up waits no longer.
    pub(super) fn release(&self) -> Option<Instant> {
        // A commit under way is followed by the next one anyway.
        let arrived = self.waiting.iter().map(|(_, due)| due.arrived).min();
        arrived.filter(|_| self.committing.is_none()).map(|arrived| arrived + self.hold())
    }

    /// How long a message may wait for what was said before it; it is to be acknowledged in time all the same.
    fn hold(&self) -> Duration {
        self.slack.config.ack_within / 2
    }

    /// What may go to disk now. A message does not overtake those of its channel that a catch-up is about to bring.
    fn take_ready(&mut self) -> Vec<(Told, Due)> {
        let hold = self.hold();
        if self.patience > hold {
            return std::mem::take(&mut self.waiting);
        }
        let memory = self.slack.memory();
        let closing = self.closing.as_deref().unwrap_or_default();
        let behind = |channel: &str| {
            let closes = |filled: &Filled| filled.to.is_none() && filled.gap.from.channel == channel;
            memory.progress.is_open(channel) && !closing.iter().any(closes)
        };
        let held = |(told, due): &(Told, Due)| {
            let live = due.socket > 0 && due.arrived.elapsed() < hold;
            live && told.moment().is_some_and(|moment| behind(&moment.channel))
        };
        let (waits, ready) = self.waiting.drain(..).partition(held);
        drop(memory);
        self.waiting = waits;
        ready
    }

    pub(super) fn commit_waiting(&mut self) {
        if self.committing.is_some() || self.waiting.is_empty() {
            return;
        }
        let ready = self.take_ready();
        if ready.is_empty() {
            return;
        }
        let (mut events, mut unreadable, mut dues) = (Vec::new(), Vec::new(), Vec::new());
        for (told, due) in ready {
            dues.push(due);
            match told {
                Told::Event(event) => events.push(*event),
                Told::Unreadable(envelope) => unreadable.push(envelope),
            }
        }
        let (slack, intake) = (self.slack, self.intake);
        let filled = self.closing.take().unwrap_or_default();
        self.committing = Some(Box::pin(async move {
            slack.complete(&mut events).await;
            let told: Vec<Moment> = events.iter().filter_map(Moment::of).collect();
            let cursor = slack.memory().cursor(&told, &filled);
            let taken = intake.commit(events, unreadable, cursor.clone()).await;
            Committed { taken, dues, told, cursor, filled }
        }));
    }

    pub(super) async fn committed(&mut self, done: Committed) -> Result<(), Error> {
        let Committed { taken, dues, told, cursor, filled } = done;
        match taken {
            Ok(()) => {
                self.ladder.proved();
                self.slack.memory().keep(cursor, &told, &filled);
            }
            Err(NotTaken::Refused | NotTaken::Unfit) => {
                let reason = "slack_not_taken";
                warn!(
                    platform = "slack",
                    reason,
                    envelopes = dues.len(),
                    "left to Slack, which says it again"
                );
                // Slack may stop saying it before we can take it.
                self.slack.memory().progress.missed(&told);
                self.put_off();
                self.troubled(reason);
                return Ok(());
            }
            Err(NotTaken::Closed) => return Err(Error::Closed),
        }
        for due in dues {
            let (Some(envelope), waited) = (due.envelope, due.arrived.elapsed()) else { continue };
            if waited > self.slack.config.ack_within {
                debug!(platform = "slack", envelope, ?waited, "too late to acknowledge");
                continue;
            }
            if let Some(at) = self.position(due.socket) {
                self.acknowledge(at, &envelope, due.reply).await?;
            }
        }
        Ok(())
    }
}
