//! One chat's way out. Owns its order, its budget and what it shows of growing answers.
//!
//! One operation at a time, and what is owed first (`send.rs`): growing answers are shown (`preview.rs`)
//! only while nothing is owed, so a preview never overtakes a message.

use std::sync::Arc;
use std::time::Duration;

use petasos_core::journal::Write;
use petasos_core::lane::Budget;
use petasos_core::rate_limit::Scope;
use petasos_core::{Fault, LaneId, Millis, Platform};
use petasos_platforms::Adapter;
use petasos_store::Claimed;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

use super::follow::Followed;
use super::send::Next;
use super::{Ask, Deliver, Outward, Word};
use crate::runtime::commit::Commit;
use crate::{Error, clock};

/// An idle lane ends after this long. A waiting one looks again, because its clock may have been set back.
pub(super) const LINGER: Duration = Duration::from_secs(60);
/// How long to wait when the store refuses.
pub(super) const STORE_RETRY: Duration = Duration::from_secs(1);

pub(super) async fn run(name: LaneId, outward: Arc<Outward>, deliver: Deliver, words: mpsc::Receiver<Word>) {
    let Some(adapter) = outward.channels.adapter(name.platform).cloned() else {
        tracing::warn!(lane = %name, "no adapter for this lane; what it owes stays in the outbox");
        return;
    };
    let budget = Budget::new(adapter.capabilities().pace);
    let (followed, due_at) = (Followed::default(), Some(clock::now()));
    let (probing, gone_thread) = (false, None);
    let lane =
        Lane { name, outward, deliver, words, adapter, budget, followed, due_at, probing, gone_thread };
    lane.run().await;
}

pub(super) struct Lane {
    pub(super) name: LaneId,
    pub(super) outward: Arc<Outward>,
    deliver: Deliver,
    words: mpsc::Receiver<Word>,
    pub(super) adapter: Arc<Adapter>,
    pub(super) budget: Budget,
    pub(super) followed: Followed,
    /// When to look at the outbox again; `None`: nothing is owed.
    due_at: Option<Millis>,
    /// What is being sent goes to a chat that refused us, to see whether it still does.
    pub(super) probing: bool,
    /// A thread that is no longer there; what belongs into it stands in the chat itself.
    pub(super) gone_thread: Option<String>,
}

impl Lane {
    /// Of the chat; the adapter may carry for others too.
    pub(super) fn platform(&self) -> Platform {
        self.name.platform
    }

    async fn run(mut self) {
        loop {
            // Between any two operations, so that a busy lane hears what became due meanwhile.
            match self.words.try_recv() {
                Ok(word) => {
                    self.heard(word);
                    continue;
                }
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {}
            }
            let now = clock::now();
            if self.due_at.is_some_and(|at| at <= now) {
                self.due_at = Box::pin(self.deliver_due()).await;
                continue;
            }
            if self.due_at.is_none()
                && let Some(following) = self.followed.take_due(now)
            {
                Box::pin(self.show(following, now)).await;
                continue;
            }
            let next = self.due_at.or_else(|| self.followed.next_look());
            let linger = now.after(LINGER);
            petasos_runtime::select! {
                word = self.words.recv() => match word {
                    Some(word) => self.heard(word),
                    None => return,
                },
                () = clock::sleep_until(next.unwrap_or(linger).min(linger)) => {
                    if next.is_none() {
                        return self.leave().await;
                    }
                    self.due_at = self.due_at.map(|_| clock::now());
                }
            }
        }
    }

    fn heard(&mut self, word: Word) {
        // Also when told something else: the word that it is due may not have fitted into the mailbox.
        self.due_at = Some(clock::now());
        match word {
            Word::Due => {}
            Word::Follow(following) => self.followed.add(*following),
        }
    }

    /// Ends, handing back what came in meanwhile.
    async fn leave(mut self) {
        let (granted, answer) = oneshot::channel();
        self.deliver.ask(Ask::Leave { lane: self.name.clone(), granted }).await;
        if answer.await.is_err() {
            return; // we are stopping
        }
        // Words that arrived before we were taken off the map. Nobody can send us any after that.
        while let Ok(word) = self.words.try_recv() {
            match word {
                Word::Due => self.deliver.due(self.name.clone()).await,
                Word::Follow(following) => self.deliver.follow(self.name.clone(), *following).await,
            }
        }
    }

    /// Sends what is due, in order. Gives back when to look again.
    async fn deliver_due(&mut self) -> Option<Millis> {
        let outward = self.outward.clone();
        // Taken before anything is marked: what only waits for its turn has not been handed over. Never closed.
        let _hand = outward.hands.acquire().await;
        let mut outcome = vec![];
        loop {
            let now = clock::now();
            let allowed = self.free_at(now);
            if self.outward.stopper.stopping() || allowed > now {
                self.commit(Commit::Outcome, outcome).await;
                return (allowed > now).then_some(allowed);
            }
            let found = match self.claim(outcome.clone(), now).await {
                Ok(claimed) => {
                    self.probing = claimed.probing;
                    claimed.head
                }
                Err(error) => {
                    self.commit(Commit::Outcome, outcome).await;
                    return Some(self.store_refused(&error));
                }
            };
            match self.carry_out(found?, now).await {
                Next::Ahead(writes) => outcome = writes,
                Next::Wait(at) => return Some(at),
            }
        }
    }

    /// Keeps the outcome of one item and takes the next: one commit.
    async fn claim(&self, outcome: Vec<Write>, now: Millis) -> Result<Claimed, Error> {
        let lane = self.name.clone();
        let claimed = self.outward.db.write(Commit::Claim, move |tx| {
            tx.apply(&outcome, now)?;
            tx.claim_head(&lane, now)
        });
        let claimed = claimed.await?;
        if claimed.buried > 0 {
            let (lane, buried) = (&self.name, claimed.buried);
            tracing::warn!(%lane, buried, "not sent: the chat refused us; see `petasos outbox`");
        }
        Ok(claimed)
    }

    /// When the platform takes a request for this chat again.
    pub(super) fn free_at(&self, now: Millis) -> Millis {
        self.adapter.limits().free_at(self.platform(), &Scope::Chat(self.chat().to_owned()), now)
    }

    /// The chat this lane leads to.
    pub(super) fn chat(&self) -> &str {
        &self.name.chat
    }

    /// When to ask the store again.
    pub(super) fn store_refused(&self, error: &Error) -> Millis {
        tracing::warn!(lane = %self.name, %error, "the outbox cannot be read or written");
        let pause = match fault(error) {
            Fault::Later { .. } | Fault::Fatal => STORE_RETRY,
            Fault::Refused => LINGER,
        };
        clock::now().after(pause)
    }
}

/// What a refusal of the store means for us.
pub(super) fn fault(error: &Error) -> Fault {
    match error {
        Error::Store(error) => error.fault(),
        Error::Io(_)
        | Error::NotFound(_)
        | Error::Unbuilt(_)
        | Error::NoHome(_)
        | Error::Stopping
        | Error::Closed(_) => Fault::Later { after: None },
    }
}
