//! Commits envelopes and fetched messages, then acknowledges the envelopes.
//!
//! Owns the buffered envelopes and the commit under way. Envelopes that arrive meanwhile go into the next
//! commit, so a slow store makes batches larger and never blocks the socket. An envelope whose commit is
//! refused or late, or that finds the buffer full, is not acknowledged: Slack delivers it again, and the
//! inbox deduplicates. Slack does so only a few times, so its channel gets a gap, which the backfill fills. A
//! crash leaves envelopes unacknowledged, and the cursor before them.

use std::time::Duration;

use petasos_core::Inbound;
use petasos_runtime::clock;
use serde_json::Value;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::SlackLink;
use super::cursor::{self, Fill, Position};
use crate::backfill::gaps::ReadExtent;
use crate::inbound::{self, CommitError};
use crate::slack::Error;

#[derive(Debug)]
pub(in crate::slack) enum EnvelopeContent {
    Event(Box<Inbound>),
    Unreadable(inbound::Unreadable),
}

impl EnvelopeContent {
    fn position(&self) -> Option<Position> {
        match self {
            Self::Event(event) => cursor::position(event),
            Self::Unreadable(_) => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct PendingAck {
    socket: u64,
    /// `None`: the id is unreadable, so no acknowledgement is possible.
    envelope: Option<String>,
    arrived: Instant,
    reply: Option<Value>,
}

pub(in crate::slack) struct CommitReport {
    result: Result<(), CommitError>,
    acks: Vec<PendingAck>,
    positions: Vec<Position>,
    cursor: Option<String>,
    fills: Vec<Fill>,
}

impl SlackLink<'_> {
    pub(super) fn buffer_envelope(
        &mut self,
        index: usize,
        envelope: Option<String>,
        reply: Option<Value>,
        content: EnvelopeContent,
    ) {
        let socket = self.sockets[index].number;
        let arrived = clock::monotonic();
        let position = content.position();
        let channel = position.as_ref().map(|position| position.channel.clone());
        let ack = PendingAck { socket, envelope, arrived, reply };
        if self.buffer.push(channel, arrived, (content, ack)).is_err() {
            warn!(platform = "slack", "envelope buffer full; Slack will deliver an envelope again");
            self.open_gaps_before(position.into_iter().collect());
        }
    }

    /// When the oldest buffered message stops waiting for older ones.
    pub(super) fn next_release(&self) -> Option<Instant> {
        // A commit under way is followed by the next one anyway.
        let oldest = self.buffer.oldest().filter(|_| self.committing.is_none());
        oldest.map(|arrived| arrived + self.max_reorder_wait())
    }

    /// How long a live message may wait for older ones of its channel and still be acknowledged in time.
    fn max_reorder_wait(&self) -> Duration {
        self.slack.config.ack_timeout / 2
    }

    /// A live message waits for older messages of its channel that are being fetched.
    fn take_ready(&mut self) -> Vec<(EnvelopeContent, PendingAck)> {
        let max_wait = self.max_reorder_wait();
        if self.schedule.wait(clock::monotonic()) > max_wait {
            return self.buffer.release(|_| false);
        }
        let state = self.slack.state();
        let fills = self.fetched.as_ref().map(|batch| batch.fills.as_slice()).unwrap_or_default();
        let waits = |channel: &String| {
            let closes =
                |fill: &Fill| !matches!(fill.extent, ReadExtent::Through(_)) && fill.channel == *channel;
            state.channels.gaps.get(channel).is_some() && !fills.iter().any(closes)
        };
        self.buffer
            .release(|held| held.arrived.elapsed() < max_wait && held.channel.as_ref().is_some_and(waits))
    }

    pub(super) fn start_commit(&mut self) {
        if self.committing.is_some() {
            return;
        }
        let ready = self.take_ready();
        let fetched = self.fetched.take().unwrap_or_default();
        if ready.is_empty() && fetched.messages.is_empty() {
            return;
        }
        let fills = fetched.fills;
        let (live, acks): (Vec<EnvelopeContent>, Vec<PendingAck>) = ready.into_iter().unzip();
        let mut events = Vec::new();
        let mut unreadable = Vec::new();
        // Fetched messages are older than live ones.
        for content in fetched.messages.into_iter().chain(live) {
            match content {
                EnvelopeContent::Event(event) => events.push(*event),
                EnvelopeContent::Unreadable(envelope) => unreadable.push(envelope),
            }
        }
        let slack = self.slack;
        let sink = self.sink;
        self.committing = Some(Box::pin(async move {
            slack.add_names_and_context(&mut events).await;
            let positions: Vec<Position> = events.iter().filter_map(cursor::position).collect();
            let cursor = slack.state().cursor_after(&positions, &fills);
            let result = sink.commit(events, unreadable, cursor.clone()).await;
            CommitReport { result, acks, positions, cursor, fills }
        }));
    }

    pub(super) async fn handle_commit(&mut self, report: CommitReport) -> Result<(), Error> {
        let CommitReport { result, acks, positions, cursor, fills } = report;
        match result {
            Ok(()) => {
                self.reconnect.reset();
                self.slack.state().record_commit(cursor, &positions, &fills);
            }
            Err(CommitError::Refused | CommitError::Invalid) => {
                let reason = "slack_not_taken";
                warn!(
                    platform = "slack",
                    reason,
                    envelopes = acks.len(),
                    "batch not stored; Slack will deliver it again"
                );
                // Slack may stop delivering it before it can be stored.
                self.open_gaps_before(positions);
                self.defer_backfill();
                self.report_degraded(reason);
                return Ok(());
            }
            Err(CommitError::Closed) => return Err(Error::Closed),
        }
        for ack in acks {
            let waited = ack.arrived.elapsed();
            let Some(envelope) = ack.envelope else { continue };
            if waited > self.slack.config.ack_timeout {
                debug!(platform = "slack", envelope, ?waited, "too late to acknowledge");
                continue;
            }
            if let Some(index) = self.socket_index(ack.socket) {
                self.acknowledge(index, &envelope, ack.reply).await?;
            }
        }
        Ok(())
    }
}
