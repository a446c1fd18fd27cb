//! The link: Socket Mode. An envelope is acknowledged only after the gateway has committed it.
//!
//! Owns the sockets (one; two while Slack moves us from one to the next); what was read from them waits for its
//! commit (`commit.rs`). Whenever the first socket stands after a time without one, what was written meanwhile is
//! fetched (`history.rs`); until that is committed, the cursor says how far we had heard before.

use std::future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use petasos_core::link::redial::{NO_JITTER, Policy, Redial};
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until};
use tracing::{info, warn};

use super::commit::{Closing, Committed, Due, MOST_WAITING, Told};
use super::history::Fetched;
use super::parse::{self, Read, Unreadable};
use super::socket::{Heard, Socket, ended};
use super::team::Teams;
use super::wire::Frame;
use super::{Error, Slack};
use crate::backfill::buffer::Buffer;
use crate::backfill::schedule::Schedule;
use crate::intake::{self, Health, Intake};

/// A socket that Slack wants to close is read for at most this long after its successor stands.
const FAREWELL: Duration = Duration::from_secs(30);
/// Signs of life are passed on no more often than this.
const PULSE: Duration = Duration::from_secs(1);

impl Slack {
    pub async fn receive(
        &self,
        cursor: Option<String>,
        intake: &Intake,
        health: &mut (dyn FnMut(Health) + Send),
    ) -> Error {
        if let Err(error) = parse::check_tokens(&self.config) {
            return error;
        }
        {
            let mut memory = self.memory();
            memory.restore(cursor.as_deref());
            // Tokens may have been changed or revoked since.
            memory.teams = Teams::default();
            memory.losses.begin();
        }
        health(Health::Connecting);
        let link = Link {
            slack: self,
            intake,
            health,
            pulse: None,
            sockets: Vec::new(),
            opened: 0,
            opening: None,
            waiting: Buffer::new(MOST_WAITING),
            committing: None,
            fetching: None,
            closing: None,
            schedule: Schedule::new(),
            redial: Redial::new(Policy::unresumed_socket(self.config.reconnect_base)),
            stood: false,
            behind: false,
        };
        link.run().await
    }
}

pub(super) type Task<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub(super) struct Link<'a> {
    pub(super) slack: &'a Slack,
    pub(super) intake: &'a Intake,
    health: &'a mut (dyn FnMut(Health) + Send),
    /// When the last sign of life was passed on.
    pulse: Option<Instant>,
    pub(super) sockets: Vec<Socket>,
    /// Sockets ever asked for; also the number of the last one.
    opened: u64,
    opening: Option<Task<'a, Result<Socket, Error>>>,
    pub(super) waiting: Buffer<String, (Told, Due)>,
    pub(super) committing: Option<Task<'a, Committed>>,
    pub(super) fetching: Option<Task<'a, Fetched>>,
    /// Fetched messages for the next commit.
    pub(super) closing: Option<Closing>,
    pub(super) schedule: Schedule<String>,
    pub(super) redial: Redial,
    /// A socket has stood since the link began.
    pub(super) stood: bool,
    /// Told with the last sign of life: something is missing.
    behind: bool,
}

impl Link<'_> {
    async fn run(mut self) -> Error {
        let every = self.slack.config.ping_interval;
        let mut beat = interval_at(Instant::now() + every, every);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.open_after(Duration::ZERO);
        loop {
            self.backfill();
            self.commit_waiting();
            let release = self.release();
            let done = tokio::select! {
                (at, heard) = hear(&mut self.sockets) => self.heard(at, heard).await,
                opened = done(&mut self.opening) => self.came(opened),
                outcome = done(&mut self.committing) => self.committed(outcome).await,
                fetched = done(&mut self.fetching) => self.fetched(fetched),
                () = sleep_until(release.unwrap_or_else(Instant::now)), if release.is_some() => Ok(()),
                () = self.slack.workspaces.notified() => self.workspaces_changed(),
                _ = beat.tick() => self.beat().await,
            };
            if let Err(error) = done {
                return error;
            }
        }
    }

    fn open_after(&mut self, wait: Duration) {
        self.opened += 1;
        let (slack, number) = (self.slack, self.opened);
        self.opening = Some(Box::pin(async move {
            sleep(wait).await;
            slack.open(number).await
        }));
    }

    fn came(&mut self, opened: Result<Socket, Error>) -> Result<(), Error> {
        match opened {
            Ok(socket) => {
                info!(platform = "slack", socket = socket.number, "connected");
                if self.sockets.is_empty() {
                    self.was_away();
                }
                self.sockets.push(socket);
                self.stood = true;
                self.alive();
                Ok(())
            }
            Err(error) => self.try_again(error),
        }
    }

    fn try_again(&mut self, error: Error) -> Result<(), Error> {
        if !self.stood {
            // There is no connection yet: how often to try is the supervisor's business.
            return Err(error);
        }
        let reason = error.code();
        let Some(wait) = self.redial.after(error.fault().into(), NO_JITTER) else {
            return Err(error.given_up());
        };
        warn!(platform = "slack", reason, ?wait, "connecting again");
        self.troubled(reason);
        self.open_after(wait);
        Ok(())
    }

    async fn heard(&mut self, at: usize, heard: Heard) -> Result<(), Error> {
        match heard {
            Heard::Text(text) => {
                self.alive();
                self.frame(at, &text).await
            }
            Heard::Beat => {
                self.alive();
                Ok(())
            }
            Heard::Ended(reason) => self.lost(at, Error::Dropped(reason)),
        }
    }

    fn alive(&mut self) {
        if self.pulse.is_none_or(|last| last.elapsed() >= PULSE) {
            self.pulse = Some(Instant::now());
            self.behind = self.is_behind();
            (self.health)(if self.behind { Health::CatchingUp } else { Health::Polling });
        }
    }

    /// Something else is to be told with the next sign of life: at once, if we hear at all.
    fn changed(&mut self) {
        self.pulse = None;
        if !self.sockets.is_empty() {
            self.alive();
        }
    }

    fn is_behind(&self) -> bool {
        !self.slack.memory().channels.gaps.is_empty()
    }

    /// The end of a backfill.
    pub(super) fn up_to_date(&mut self) {
        if self.behind && !self.is_behind() {
            self.changed();
        }
    }

    /// A message was refused, or taken again: with nobody left to write to, this is the end.
    fn workspaces_changed(&mut self) -> Result<(), Error> {
        let lost = {
            let memory = self.slack.memory();
            memory.losses.of_all(&memory.teams.0)
        };
        match lost {
            Some(error) => Err(error),
            None => {
                self.changed();
                Ok(())
            }
        }
    }

    /// The next sign of life ends it, and is told at once.
    pub(super) fn troubled(&mut self, reason: &'static str) {
        self.pulse = None;
        (self.health)(Health::Degraded { reason });
    }

    async fn frame(&mut self, at: usize, text: &str) -> Result<(), Error> {
        let frame: Frame = match serde_json::from_str(text) {
            Ok(frame) => frame,
            Err(error) => {
                self.set_aside(at, parse::envelope_id(text), text, &error.into());
                return Ok(());
            }
        };
        match (frame.kind.as_str(), &frame.envelope_id) {
            ("disconnect", _) => self.told_to_go(at, frame.reason.as_deref()),
            (_, Some(envelope)) => self.envelope(at, envelope, &frame, text).await,
            (_, None) => Ok(()),
        }
    }

    /// Slack moves us: the next socket is opened first, and this one is read to its end.
    fn told_to_go(&mut self, at: usize, reason: Option<&str>) -> Result<(), Error> {
        let error = ended(reason);
        if error == Error::Disabled {
            return Err(error);
        }
        info!(platform = "slack", reason, "the socket will be closed; opening another");
        self.sockets[at].leaving.get_or_insert(Instant::now());
        if self.opening.is_none() && self.sockets.iter().all(|socket| socket.leaving.is_some()) {
            self.open_after(Duration::ZERO);
        }
        Ok(())
    }

    async fn envelope(&mut self, at: usize, envelope: &str, frame: &Frame, text: &str) -> Result<(), Error> {
        match self.slack.read(frame) {
            Ok(Some(Read { event, reply, .. })) => {
                self.wait(at, Some(envelope.to_owned()), reply, Told::Event(Box::new(event)));
            }
            Ok(None) => return self.acknowledge(at, envelope, None).await,
            Err(why) => self.set_aside(at, Some(envelope.to_owned()), text, &why),
        }
        Ok(())
    }

    /// It must not stand in the way of the others, and saying it again would not help.
    fn set_aside(&mut self, at: usize, envelope: Option<String>, text: &str, why: &Unreadable) {
        warn!(platform = "slack", envelope, %why, "unreadable envelope set aside");
        self.troubled("slack_unreadable_envelope");
        let kept = intake::Unreadable::new(envelope.clone(), why, text);
        self.wait(at, envelope, None, Told::Unreadable(kept));
    }

    pub(super) async fn acknowledge(
        &mut self,
        at: usize,
        envelope: &str,
        reply: Option<Value>,
    ) -> Result<(), Error> {
        let mut ack = json!({ "envelope_id": envelope });
        if let Some(reply) = reply {
            ack["payload"] = reply;
        }
        match self.sockets[at].say(ack.to_string()).await {
            Ok(()) => Ok(()),
            Err(error) => self.lost(at, error),
        }
    }

    pub(super) fn position(&self, number: u64) -> Option<usize> {
        self.sockets.iter().position(|socket| socket.number == number)
    }

    /// Asks for a sign of life, and lets go what gave none for too long.
    async fn beat(&mut self) -> Result<(), Error> {
        let silence = self.slack.config.silence;
        let stands = self.sockets.iter().any(|socket| socket.leaving.is_none());
        for at in (0..self.sockets.len()).rev() {
            let socket = &mut self.sockets[at];
            let outstayed = stands && socket.leaving.is_some_and(|since| since.elapsed() >= FAREWELL);
            if outstayed {
                self.sockets.remove(at).close().await;
            } else if socket.heard.elapsed() >= silence {
                self.lost(at, Error::Silent(silence))?;
            } else if let Err(error) = socket.ping().await {
                self.lost(at, error)?;
            } else {
                self.redial.stood(self.sockets[at].opened.elapsed());
            }
        }
        Ok(())
    }

    fn lost(&mut self, at: usize, error: Error) -> Result<(), Error> {
        let socket = self.sockets.remove(at);
        let replaced = self.opening.is_some() || self.sockets.iter().any(|other| other.leaving.is_none());
        info!(platform = "slack", socket = socket.number, %error, "socket closed");
        if replaced { Ok(()) } else { self.try_again(error) }
    }
}

async fn hear(sockets: &mut [Socket]) -> (usize, Heard) {
    future::poll_fn(|cx| {
        for (at, socket) in sockets.iter_mut().enumerate() {
            if let Poll::Ready(heard) = socket.poll_hear(cx) {
                return Poll::Ready((at, heard));
            }
        }
        Poll::Pending
    })
    .await
}

/// The outcome of what is under way; never, if nothing is.
async fn done<T>(task: &mut Option<Task<'_, T>>) -> T {
    let Some(running) = task else { return future::pending().await };
    let outcome = running.await;
    *task = None;
    outcome
}
