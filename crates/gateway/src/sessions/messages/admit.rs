//! Admission: a message starts a turn, waits, interrupts, steers, or is refused.

use std::time::Duration;

use petasos_core::admission::{Ack, Activity, Admission, Arrival, BusyMode, admit};
use petasos_core::journal::MessageOutcome;
use petasos_core::message::ChatType;
use petasos_core::turn::Phase;
use petasos_store::PendingMessage;

use crate::clock;
use crate::runtime::fault_injection::{PlantedBug, planted};
use crate::sessions::turn::begin;
use crate::sessions::turn::work::TurnWork;
use crate::sessions::{QueuedMessage, SessionError, SessionTask};

/// How long the second half of a split message may take.
const SPLIT_WAIT: Duration = Duration::from_secs(1);

/// Whether the author was told, or must assume, that the message will be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sessions) enum AdmissionPromise {
    Given,
    NotYet,
}

/// Programs got an acknowledgement and cannot read a refusal: their messages wait until a turn may start.
fn is_acknowledged(pending: &PendingMessage) -> bool {
    !pending.inbound.internal && pending.inbound.source.chat_type == ChatType::Webhook
}

impl SessionTask {
    pub(in crate::sessions) async fn admit(
        &mut self,
        pending: PendingMessage,
        arrival: Arrival,
    ) -> Result<(), SessionError> {
        if self.handles.lifecycle.gate.defers_to_next_process(pending.received_at)
            || is_acknowledged(&pending)
        {
            self.enqueue(pending, arrival, AdmissionPromise::Given);
            return Ok(());
        }
        let ack = match self.admission(arrival) {
            Admission::Refuse(why) => {
                return self.reply(&pending, why.text().into_owned(), MessageOutcome::Refused).await;
            }
            Admission::Start => {
                self.enqueue(pending, arrival, AdmissionPromise::NotYet);
                return Ok(());
            }
            Admission::Wait(ack) => {
                self.enqueue(pending.clone(), arrival, AdmissionPromise::Given);
                ack
            }
            Admission::Interrupt(ack) => {
                self.enqueue(pending.clone(), arrival, AdmissionPromise::Given);
                self.interrupt().await?;
                ack
            }
            // A tool result is text only: pictures wait for the next turn.
            Admission::Steer(_) if begin::has_pictures(&pending.inbound) => {
                self.enqueue(pending.clone(), arrival, AdmissionPromise::Given);
                Ack::Queued
            }
            Admission::Steer(ack) => {
                if let Some(running) = &mut self.running {
                    running.steering.push(pending.clone());
                }
                ack
            }
        };
        self.acknowledge(&pending, ack, arrival).await
    }

    /// The current admission decision for a message.
    pub(in crate::sessions) fn admission(&self, arrival: Arrival) -> Admission {
        let activity = match self.turn().map(|turn| &turn.phase) {
            None => Activity::Idle,
            Some(Phase::Acting { .. }) => Activity::Acting,
            Some(Phase::Thinking | Phase::Over) => Activity::Thinking,
        };
        let waiting =
            if planted(PlantedBug::EndlessQueue) { 0 } else { self.queue.len() + self.steering().len() };
        // A resumed turn must not be interrupted, and a running compaction is needed by the next message too.
        let waits = match (&self.running, &self.compaction) {
            (Some(running), _) => {
                let compacting = running.work.as_ref().is_some_and(TurnWork::is_compacting);
                running.resumed || running.parked_history().is_some() || compacting
            }
            (None, Some(compressing)) => compressing.work.is_compacting(),
            (None, None) => false,
        };
        let mode = match self.handles.settings.busy {
            _ if waits => BusyMode::Queue,
            // An interrupt would lose the work of the subagents.
            BusyMode::Interrupt if self.waits_for_delegation() => BusyMode::Queue,
            mode => mode,
        };
        admit(mode, self.handles.lifecycle.gate.state(), activity, arrival, waiting)
    }

    /// Whether the running turn waits for delegated work.
    fn waits_for_delegation(&self) -> bool {
        match self.turn().map(|turn| &turn.phase) {
            Some(Phase::Acting { calls, open, .. }) => calls
                .iter()
                .any(|call| self.handles.agent.tools.delegates(&call.name) && open.contains(&call.id)),
            Some(Phase::Thinking | Phase::Over) | None => false,
        }
    }

    pub(in crate::sessions) fn enqueue(
        &mut self,
        pending: PendingMessage,
        arrival: Arrival,
        promise: AdmissionPromise,
    ) {
        let hint = self.handles.channels.capabilities(pending.inbound.source.platform).split_hint;
        let whole = arrival == Arrival::Internal;
        let halved = !whole && hint.is_some_and(|hint| pending.inbound.text.chars().count() >= hint);
        let ready = if halved { clock::monotonic() + SPLIT_WAIT } else { clock::monotonic() };
        let at = self.queue.partition_point(|waiting| waiting.pending.id < pending.id);
        // On channels without later delivery every request gets its own answer.
        let own = !self.handles.channels.capabilities(pending.inbound.source.platform).async_delivery;
        let alone = own || arrival != Arrival::Text;
        // Internal messages cannot be sent again.
        let promised = promise == AdmissionPromise::Given || arrival == Arrival::Internal;
        self.queue.insert(at, QueuedMessage { pending, alone, promised, ready });
        #[cfg(feature = "simulation")]
        self.show_queue_to_simulation();
        self.publish_queue();
    }
}

#[cfg(feature = "simulation")]
impl SessionTask {
    /// Reports the queue to the simulation. During shutdown the queue is kept for the next process.
    fn show_queue_to_simulation(&self) {
        let started_at = self.handles.lifecycle.started_at;
        let ours = |pending: &PendingMessage| !pending.inbound.internal && pending.received_at >= started_at;
        let queued = self.queue.iter().filter(|waiting| ours(&waiting.pending)).count();
        if self.handles.lifecycle.gate.snapshot().leaving.is_none() {
            crate::runtime::simulation::queued(queued + self.steering().len());
        }
    }
}
