//! The lane of one chat: its order, its rate budget, and the previews it shows.
//!
//! One platform operation at a time. Outbox items (`send.rs`) come before previews (`preview.rs`), so a preview never overtakes a
//! message.

use std::sync::Arc;
use std::time::Duration;

use petasos_core::journal::Write;
use petasos_core::lane::RateBudget;
use petasos_core::rate_limit::PenaltyScope;
use petasos_core::{Fault, LaneId, Millis, Platform};
use petasos_platforms::Adapter;
use petasos_store::LaneClaim;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};

use super::preview_stream::PreviewStreams;
use super::send::LaneStep;
use super::{DispatchCommand, LaneContext, LaneDispatcher, LaneEvent};
use crate::runtime::commit::Commit;
use crate::{Error, clock};

/// An idle lane ends after this long. A waiting lane rechecks as often, because the clock may be set back.
pub(super) const LINGER: Duration = Duration::from_secs(60);
pub(super) const STORE_RETRY: Duration = Duration::from_secs(1);

pub(super) async fn run(
    name: LaneId,
    context: Arc<LaneContext>,
    dispatcher: LaneDispatcher,
    events: mpsc::Receiver<LaneEvent>,
) {
    let Some(adapter) = context.channels.adapter(name.platform).cloned() else {
        tracing::warn!(lane = %name, "no adapter for this platform; its items stay in the outbox");
        return;
    };
    let budget = RateBudget::new(adapter.capabilities().pace);
    let streams = PreviewStreams::default();
    let due_at = Some(clock::now());
    let probing = false;
    let gone_thread = None;
    let lane =
        Lane { name, context, dispatcher, events, adapter, budget, streams, due_at, probing, gone_thread };
    lane.run().await;
}

pub(super) struct Lane {
    pub(super) name: LaneId,
    pub(super) context: Arc<LaneContext>,
    dispatcher: LaneDispatcher,
    events: mpsc::Receiver<LaneEvent>,
    pub(super) adapter: Arc<Adapter>,
    pub(super) budget: RateBudget,
    pub(super) streams: PreviewStreams,
    /// When to read the outbox again; `None`: it has no item for this lane.
    due_at: Option<Millis>,
    /// The current item probes a dead chat.
    pub(super) probing: bool,
    /// A deleted thread; its messages go to the chat itself.
    pub(super) gone_thread: Option<String>,
}

impl Lane {
    /// The platform of the chat; the adapter may serve several.
    pub(super) fn platform(&self) -> Platform {
        self.name.platform
    }

    async fn run(mut self) {
        loop {
            // Checked between operations, so that a busy lane notices new items.
            match self.events.try_recv() {
                Ok(event) => {
                    self.handle_event(event);
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
                && let Some(stream) = self.streams.pop_due(now)
            {
                Box::pin(self.update_preview(stream, now)).await;
                continue;
            }
            let next = self.due_at.or_else(|| self.streams.next_poll());
            let linger = now.after(LINGER);
            petasos_runtime::select! {
                event = self.events.recv() => match event {
                    Some(event) => self.handle_event(event),
                    None => return,
                },
                () = clock::sleep_until(next.unwrap_or(linger).min(linger)) => {
                    if next.is_none() {
                        return self.retire().await;
                    }
                    self.due_at = self.due_at.map(|_| clock::now());
                }
            }
        }
    }

    fn handle_event(&mut self, event: LaneEvent) {
        // On every event: a `Wake` may not have fitted into the mailbox.
        self.due_at = Some(clock::now());
        match event {
            LaneEvent::Wake => {}
            LaneEvent::Preview(stream) => self.streams.add(*stream),
        }
    }

    /// Ends the lane and re-sends the events that arrived meanwhile.
    async fn retire(mut self) {
        let (done, answer) = oneshot::channel();
        self.dispatcher.send(DispatchCommand::Retire { lane: self.name.clone(), done }).await;
        if answer.await.is_err() {
            return; // shutting down
        }
        // Events sent before the lane was removed from the map.
        while let Ok(event) = self.events.try_recv() {
            match event {
                LaneEvent::Wake => self.dispatcher.wake(self.name.clone()).await,
                LaneEvent::Preview(stream) => self.dispatcher.preview(self.name.clone(), *stream).await,
            }
        }
    }

    /// Sends due items in order. Returns when to read the outbox again.
    async fn deliver_due(&mut self) -> Option<Millis> {
        let context = self.context.clone();
        // Acquired before the claim: an item that waits for a permit is not marked as sending. Never closed.
        let _permit = context.send_permits.acquire().await;
        let mut outcome = vec![];
        loop {
            let now = clock::now();
            let allowed = self.free_at(now);
            if self.context.shutdown.stopping() || allowed > now {
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
            match self.deliver_item(found?, now).await {
                LaneStep::Continue(writes) => outcome = writes,
                LaneStep::WaitUntil(at) => return Some(at),
            }
        }
    }

    /// Commits the outcome of one item and claims the next in one transaction.
    async fn claim(&self, outcome: Vec<Write>, now: Millis) -> Result<LaneClaim, Error> {
        let lane = self.name.clone();
        let claimed = self.context.db.write(Commit::Claim, move |tx| {
            tx.apply(&outcome, now)?;
            tx.claim_head(&lane, now)
        });
        let claimed = claimed.await?;
        if claimed.dead_lettered > 0 {
            let lane = &self.name;
            let items = claimed.dead_lettered;
            tracing::warn!(%lane, items, "items of a dead chat given up; see `petasos outbox`");
        }
        Ok(claimed)
    }

    /// When the platform accepts the next request for this chat.
    pub(super) fn free_at(&self, now: Millis) -> Millis {
        self.adapter.limits().free_at(self.platform(), &PenaltyScope::Chat(self.chat().to_owned()), now)
    }

    pub(super) fn chat(&self) -> &str {
        &self.name.chat
    }

    /// Logs a store error and returns when to retry.
    pub(super) fn store_refused(&self, error: &Error) -> Millis {
        tracing::warn!(lane = %self.name, %error, "cannot access the outbox");
        let pause = match fault(error) {
            Fault::Later { .. } | Fault::Fatal => STORE_RETRY,
            Fault::Refused => LINGER,
        };
        clock::now().after(pause)
    }
}

pub(super) fn fault(error: &Error) -> Fault {
    match error {
        Error::Store(error) => error.fault(),
        Error::Io(_)
        | Error::NotFound(_)
        | Error::UnavailablePlatform(_)
        | Error::NoHome(_)
        | Error::Stopping
        | Error::Closed(_) => Fault::Later { after: None },
    }
}
