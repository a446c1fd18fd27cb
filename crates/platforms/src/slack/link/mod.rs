//! The link: Socket Mode. An envelope is acknowledged only after the gateway has committed it.
//!
//! Owns the sockets: one, or two while Slack moves the app to a new one. `commits.rs` commits what they
//! deliver, and the backfill (`slack/backfill`) fetches what no socket delivered. A crash leaves uncommitted
//! envelopes unacknowledged, and the cursor before them.

mod commits;
pub(in crate::slack) mod cursor;
mod socket;

use std::future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use petasos_core::link::reconnect::{NO_JITTER, ReconnectPolicy, Reconnector};
use petasos_runtime::clock;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};
use tracing::{info, warn};

use crate::backfill::buffer::ReorderBuffer;
use crate::backfill::schedule::RequestSchedule;
use crate::inbound::{self, InboundSink, LinkHealth};
use crate::slack::backfill::FetchedBatch;
use crate::slack::backfill::history::FetchedRound;
use crate::slack::inbound::parse::{self, ParseError, ParsedEnvelope};
use crate::slack::wire::SocketFrame;
use crate::slack::workspaces::Workspaces;
use crate::slack::{Error, Slack};
pub(in crate::slack) use commits::EnvelopeContent;
use commits::{CommitReport, PendingAck};
use socket::{SlackSocket, SocketEvent, disconnect_error};

/// Envelopes that may wait for a commit. Slack delivers further ones again.
const MAX_BUFFERED: usize = 256;
/// How long a socket that Slack is about to close is read after its successor was opened.
const RETIRED_SOCKET_TIMEOUT: Duration = Duration::from_secs(30);
/// Least time between two reports of a working link.
const HEALTH_INTERVAL: Duration = Duration::from_secs(1);

impl Slack {
    pub async fn receive(
        &self,
        cursor: Option<String>,
        sink: &InboundSink,
        health: &mut (dyn FnMut(LinkHealth) + Send),
    ) -> Error {
        if let Err(error) = parse::check_tokens(&self.config) {
            return error;
        }
        {
            let mut state = self.state();
            state.restore(cursor.as_deref());
            // Tokens may have been changed or revoked in the meantime.
            state.workspaces = Workspaces::default();
            state.outages.start_link();
        }
        health(LinkHealth::Connecting);
        let link = SlackLink {
            slack: self,
            sink,
            health,
            reported_at: None,
            sockets: Vec::new(),
            last_socket: 0,
            opening: None,
            buffer: ReorderBuffer::new(MAX_BUFFERED),
            committing: None,
            fetching: None,
            fetched: None,
            schedule: RequestSchedule::new(),
            reconnect: Reconnector::new(ReconnectPolicy::unresumed_socket(self.config.reconnect_base)),
            established: false,
            reported_backfill: false,
        };
        link.run().await
    }
}

pub(in crate::slack) type PendingTask<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub(in crate::slack) struct SlackLink<'a> {
    pub(in crate::slack) slack: &'a Slack,
    sink: &'a InboundSink,
    health: &'a mut (dyn FnMut(LinkHealth) + Send),
    reported_at: Option<Instant>,
    sockets: Vec<SlackSocket>,
    last_socket: u64,
    opening: Option<PendingTask<'a, Result<SlackSocket, Error>>>,
    buffer: ReorderBuffer<String, (EnvelopeContent, PendingAck)>,
    pub(in crate::slack) committing: Option<PendingTask<'a, CommitReport>>,
    pub(in crate::slack) fetching: Option<PendingTask<'a, FetchedRound>>,
    pub(in crate::slack) fetched: Option<FetchedBatch>,
    pub(in crate::slack) schedule: RequestSchedule<String>,
    reconnect: Reconnector,
    /// A socket was open since the link began.
    pub(in crate::slack) established: bool,
    reported_backfill: bool,
}

impl SlackLink<'_> {
    async fn run(mut self) -> Error {
        let every = self.slack.config.ping_interval;
        let mut ping = interval_at(clock::monotonic() + every, every);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.open_socket_after(Duration::ZERO);
        loop {
            self.request_next();
            self.start_commit();
            let release = self.next_release();
            let result = tokio::select! {
                (index, event) = next_socket_event(&mut self.sockets) => self.handle_socket_event(index, event).await,
                opened = completed(&mut self.opening) => self.handle_opened(opened),
                report = completed(&mut self.committing) => self.handle_commit(report).await,
                round = completed(&mut self.fetching) => self.handle_round(round),
                () = sleep_until(release.unwrap_or_else(clock::monotonic)), if release.is_some() => Ok(()),
                () = self.slack.outages_changed.notified() => self.handle_outage_change(),
                _ = ping.tick() => self.check_sockets().await,
            };
            if let Err(error) = result {
                return error;
            }
        }
    }

    fn open_socket_after(&mut self, wait: Duration) {
        self.last_socket += 1;
        let slack = self.slack;
        let number = self.last_socket;
        self.opening = Some(Box::pin(async move {
            clock::sleep(wait).await;
            slack.open_socket(number).await
        }));
    }

    fn handle_opened(&mut self, opened: Result<SlackSocket, Error>) -> Result<(), Error> {
        match opened {
            Ok(socket) => {
                info!(platform = "slack", socket = socket.number, "connected");
                if self.sockets.is_empty() {
                    self.open_gaps();
                }
                self.sockets.push(socket);
                self.established = true;
                self.report_alive();
                Ok(())
            }
            Err(error) => self.reconnect_after(error),
        }
    }

    fn reconnect_after(&mut self, error: Error) -> Result<(), Error> {
        if !self.established {
            // Not connected yet: the supervisor decides when to retry.
            return Err(error);
        }
        let reason = error.code();
        let Some(wait) = self.reconnect.next_wait(error.fault().into(), NO_JITTER) else {
            return Err(error.into_link_error());
        };
        warn!(platform = "slack", reason, ?wait, "reconnecting");
        self.report_degraded(reason);
        self.open_socket_after(wait);
        Ok(())
    }

    async fn handle_socket_event(&mut self, index: usize, event: SocketEvent) -> Result<(), Error> {
        match event {
            SocketEvent::Text(text) => {
                self.report_alive();
                self.handle_frame(index, &text).await
            }
            SocketEvent::Heartbeat => {
                self.report_alive();
                Ok(())
            }
            SocketEvent::Closed(reason) => self.handle_lost_socket(index, Error::SocketLost(reason)),
        }
    }

    fn report_alive(&mut self) {
        if self.reported_at.is_none_or(|last| last.elapsed() >= HEALTH_INTERVAL) {
            self.reported_at = Some(clock::monotonic());
            self.reported_backfill = self.has_gaps();
            let health = if self.reported_backfill { LinkHealth::Backfilling } else { LinkHealth::Connected };
            (self.health)(health);
        }
    }

    /// Reports a changed state at once if a socket is open.
    fn report_change(&mut self) {
        self.reported_at = None;
        if !self.sockets.is_empty() {
            self.report_alive();
        }
    }

    fn has_gaps(&self) -> bool {
        !self.slack.state().channels.gaps.is_empty()
    }

    pub(in crate::slack) fn report_if_filled(&mut self) {
        if self.reported_backfill && !self.has_gaps() {
            self.report_change();
        }
    }

    /// Ends the link if no workspace accepts the app any more.
    fn handle_outage_change(&mut self) -> Result<(), Error> {
        let lost = {
            let state = self.slack.state();
            state.outages.error_if_all_lost(&state.workspaces.0)
        };
        match lost {
            Some(error) => Err(error),
            None => {
                self.report_change();
                Ok(())
            }
        }
    }

    /// The next report of a working link follows at once.
    fn report_degraded(&mut self, reason: &'static str) {
        self.reported_at = None;
        (self.health)(LinkHealth::Degraded { reason });
    }

    async fn handle_frame(&mut self, index: usize, text: &str) -> Result<(), Error> {
        let frame: SocketFrame = match serde_json::from_str(text) {
            Ok(frame) => frame,
            Err(error) => {
                self.store_unreadable(index, parse::envelope_id(text), text, &error.into());
                return Ok(());
            }
        };
        match (frame.kind.as_str(), &frame.envelope_id) {
            ("disconnect", _) => self.handle_disconnect_notice(index, frame.reason.as_deref()),
            (_, Some(envelope)) => self.handle_envelope(index, envelope, &frame, text).await,
            (_, None) => Ok(()),
        }
    }

    /// Opens the next socket before Slack closes this one, which is read to its end.
    fn handle_disconnect_notice(&mut self, index: usize, reason: Option<&str>) -> Result<(), Error> {
        let error = disconnect_error(reason);
        if error == Error::SocketModeDisabled {
            return Err(error);
        }
        info!(platform = "slack", reason, "Slack will close the socket; opening another");
        self.sockets[index].retired_at.get_or_insert(clock::monotonic());
        if self.opening.is_none() && self.sockets.iter().all(|socket| socket.retired_at.is_some()) {
            self.open_socket_after(Duration::ZERO);
        }
        Ok(())
    }

    async fn handle_envelope(
        &mut self,
        index: usize,
        envelope: &str,
        frame: &SocketFrame,
        text: &str,
    ) -> Result<(), Error> {
        match self.slack.parse_live(frame) {
            Ok(Some(ParsedEnvelope { event, reply, .. })) => {
                let content = EnvelopeContent::Event(Box::new(event));
                self.buffer_envelope(index, Some(envelope.to_owned()), reply, content);
            }
            Ok(None) => return self.acknowledge(index, envelope, None).await,
            Err(why) => self.store_unreadable(index, Some(envelope.to_owned()), text, &why),
        }
        Ok(())
    }

    /// One bad envelope must not block the others.
    fn store_unreadable(&mut self, index: usize, envelope: Option<String>, text: &str, why: &ParseError) {
        warn!(platform = "slack", envelope, %why, "unreadable envelope stored");
        self.report_degraded("slack_unreadable_envelope");
        let unreadable = inbound::Unreadable::new(envelope.clone(), why, text);
        self.buffer_envelope(index, envelope, None, EnvelopeContent::Unreadable(unreadable));
    }

    async fn acknowledge(&mut self, index: usize, envelope: &str, reply: Option<Value>) -> Result<(), Error> {
        let mut ack = json!({ "envelope_id": envelope });
        if let Some(reply) = reply {
            ack["payload"] = reply;
        }
        match self.sockets[index].send_text(ack.to_string()).await {
            Ok(()) => Ok(()),
            Err(error) => self.handle_lost_socket(index, error),
        }
    }

    fn socket_index(&self, number: u64) -> Option<usize> {
        self.sockets.iter().position(|socket| socket.number == number)
    }

    /// Pings every socket, and closes those that were silent for too long or are retired.
    async fn check_sockets(&mut self) -> Result<(), Error> {
        let silence = self.slack.config.silence;
        let has_current = self.sockets.iter().any(|socket| socket.retired_at.is_none());
        for index in (0..self.sockets.len()).rev() {
            let socket = &mut self.sockets[index];
            let overdue = has_current
                && socket.retired_at.is_some_and(|since| since.elapsed() >= RETIRED_SOCKET_TIMEOUT);
            if overdue {
                self.sockets.remove(index).close().await;
            } else if socket.last_received.elapsed() >= silence {
                self.handle_lost_socket(index, Error::SocketSilent(silence))?;
            } else if let Err(error) = socket.ping().await {
                self.handle_lost_socket(index, error)?;
            } else {
                self.reconnect.connection_lasted(self.sockets[index].opened_at.elapsed());
            }
        }
        Ok(())
    }

    fn handle_lost_socket(&mut self, index: usize, error: Error) -> Result<(), Error> {
        let socket = self.sockets.remove(index);
        let replaced = self.opening.is_some() || self.sockets.iter().any(|other| other.retired_at.is_none());
        info!(platform = "slack", socket = socket.number, %error, "socket closed");
        if replaced { Ok(()) } else { self.reconnect_after(error) }
    }
}

async fn next_socket_event(sockets: &mut [SlackSocket]) -> (usize, SocketEvent) {
    future::poll_fn(|cx| {
        for (index, socket) in sockets.iter_mut().enumerate() {
            if let Poll::Ready(event) = socket.poll_receive(cx) {
                return Poll::Ready((index, event));
            }
        }
        Poll::Pending
    })
    .await
}

/// Pending while no task is under way.
async fn completed<T>(task: &mut Option<PendingTask<'_, T>>) -> T {
    let Some(running) = task else { return future::pending().await };
    let output = running.await;
    *task = None;
    output
}
