//! What becomes of a message that has arrived: it starts a turn, waits, interrupts, steers, or is turned away.

use std::time::Duration;

use petasos_core::admission::{Ack, Activity, Admission, Arrival, BusyMode, admit};
use petasos_core::journal::Outcome;
use petasos_core::message::ChatType;
use petasos_core::turn::Phase;
use petasos_store::Pending;
use tokio::time::Instant;

use crate::runtime::fault_injection::{Planted, planted};
use crate::sessions::turn::begin;
use crate::sessions::turn::work::Work;
use crate::sessions::{Ended, Session, Waiting};

/// How long the second half of a split message may take.
const SPLIT_WAIT: Duration = Duration::from_secs(1);

/// Whether the author of a message has been told, or must think, that it will be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sessions) enum Promise {
    Given,
    NotYet,
}

/// Whoever sent it was told that it is taken, and could not read a refusal: it waits until a turn may start.
fn is_promised(pending: &Pending) -> bool {
    !pending.inbound.internal && pending.inbound.source.chat_type == ChatType::Webhook
}

impl Session {
    pub(in crate::sessions) async fn admit(
        &mut self,
        pending: Pending,
        arrival: Arrival,
    ) -> Result<(), Ended> {
        if self.handles.lifecycle.gate.keeps(pending.received_at) || is_promised(&pending) {
            self.enqueue(pending, arrival, Promise::Given);
            return Ok(());
        }
        let ack = match self.admission(arrival) {
            Admission::Refuse(why) => {
                return self.answer(&pending, why.text().into_owned(), Outcome::Refused).await;
            }
            Admission::Start => {
                self.enqueue(pending, arrival, Promise::NotYet);
                return Ok(());
            }
            Admission::Wait(ack) => {
                self.enqueue(pending.clone(), arrival, Promise::Given);
                ack
            }
            Admission::Interrupt(ack) => {
                self.enqueue(pending.clone(), arrival, Promise::Given);
                self.interrupt().await?;
                ack
            }
            // A tool's result is text: what wants to be seen comes next.
            Admission::Steer(_) if begin::is_seen(&pending.inbound) => {
                self.enqueue(pending.clone(), arrival, Promise::Given);
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

    /// What would become of a message now.
    pub(in crate::sessions) fn admission(&self, arrival: Arrival) -> Admission {
        let activity = match self.turn().map(|turn| &turn.phase) {
            None => Activity::Idle,
            Some(Phase::Acting { .. }) => Activity::Acting,
            Some(Phase::Thinking | Phase::Over) => Activity::Thinking,
        };
        let waiting = match planted(Planted::EndlessQueue) {
            true => 0,
            false => self.queue.len() + self.steering().len(),
        };
        // A message must not end a turn that is resumed or waits to be, and room that is being made is needed by
        // the next message.
        let waits = match (&self.running, &self.compressing) {
            (Some(running), _) => {
                let relieving = running.work.as_ref().is_some_and(Work::is_relieving);
                running.resumed || running.parked().is_some() || relieving
            }
            (None, Some(compressing)) => compressing.work.is_relieving(),
            (None, None) => false,
        };
        let mode = match self.handles.settings.busy {
            _ if waits => BusyMode::Queue,
            // What others do for this turn would be lost with it.
            BusyMode::Interrupt if self.waits_for_others() => BusyMode::Queue,
            mode => mode,
        };
        admit(mode, self.handles.lifecycle.gate.door(), activity, arrival, waiting)
    }

    /// Whether the running turn has given work away and waits for it.
    fn waits_for_others(&self) -> bool {
        match self.turn().map(|turn| &turn.phase) {
            Some(Phase::Acting { calls, open, .. }) => calls
                .iter()
                .any(|call| self.handles.agent.tools.delegates(&call.name) && open.contains(&call.id)),
            Some(Phase::Thinking | Phase::Over) | None => false,
        }
    }

    pub(in crate::sessions) fn enqueue(&mut self, pending: Pending, arrival: Arrival, promise: Promise) {
        let hint = self.handles.channels.capabilities(pending.inbound.source.platform).split_hint;
        let whole = arrival == Arrival::Internal;
        let halved = !whole && hint.is_some_and(|hint| pending.inbound.text.chars().count() >= hint);
        let ready = if halved { Instant::now() + SPLIT_WAIT } else { Instant::now() };
        let at = self.queue.partition_point(|waiting| waiting.pending.id < pending.id);
        // Where the channel ends with the answer, everybody gets their own.
        let own = !self.handles.channels.capabilities(pending.inbound.source.platform).async_delivery;
        let alone = own || arrival != Arrival::Text;
        // Nobody would send our own words again.
        let promised = promise == Promise::Given || arrival == Arrival::Internal;
        self.queue.insert(at, Waiting { pending, alone, promised, ready });
        #[cfg(feature = "simulation")]
        self.show_queue_to_simulation();
        self.publish_queue();
    }
}

#[cfg(feature = "simulation")]
impl Session {
    /// How many messages of people wait that this process accepted. While it leaves it keeps all for the next one.
    fn show_queue_to_simulation(&self) {
        let started_at = self.handles.lifecycle.started_at;
        let ours = |pending: &Pending| !pending.inbound.internal && pending.received_at >= started_at;
        let queued = self.queue.iter().filter(|waiting| ours(&waiting.pending)).count();
        if self.handles.lifecycle.gate.situation().leaving.is_none() {
            crate::runtime::simulation::queued(queued + self.steering().len());
        }
    }
}
