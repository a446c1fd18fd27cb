//! Gateway sockets and sessions: connects, sends heartbeats, queues events.
//!
//! Invariants: one socket at a time, closed before the next is dialled. Heartbeats and RESUME name the last
//! *committed* event, so Discord repeats every event that we may still lose; events already queued are
//! recognised by their sequence number. A crash leaves the committed cursor, and RESUME continues from there.

use std::time::Duration;

use petasos_core::link::reconnect::{NO_JITTER, ReconnectPolicy, Reconnector, ResumeHint};
use petasos_runtime::clock;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{info, warn};
use twilight_model::gateway::payload::outgoing::{Heartbeat, Resume};
use twilight_model::gateway::{Intents, OpCode};

use super::cursor::StoredSession;
use super::heartbeat::{HeartbeatMonitor, MissedAck};
use super::socket::{GatewaySocket, SocketEvent};
use super::socket_exit::{SocketExit, exit_for_close_code, invalid_session_delay};
use crate::Secret;
use crate::discord::wire::{GatewayFrame, GatewayInfo, Hello, Ready};
use crate::discord::{Config, Discord, Error};
use crate::http::HttpError;
use crate::inbound::{LinkHealth, Unreadable};

/// In the order of the socket.
#[derive(Debug)]
pub(in crate::discord) enum QueuedFrame {
    Event(Event),
    Unreadable(Unreadable),
}

#[derive(Debug)]
pub(in crate::discord) struct Event {
    pub(in crate::discord) sequence: u64,
    pub(in crate::discord) kind: String,
    pub(in crate::discord) data: Box<RawValue>,
}

/// Last committed event of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::discord) struct CommittedSequence {
    pub(in crate::discord) session: String,
    pub(in crate::discord) sequence: u64,
}

pub(in crate::discord) struct Sockets<'a> {
    discord: &'a Discord,
    session: Option<CurrentSession>,
    reconnect: Reconnector,
    frames: mpsc::Sender<QueuedFrame>,
    committed: watch::Receiver<Option<CommittedSequence>>,
    health_tx: mpsc::Sender<LinkHealth>,
    /// A session started or resumed since the link began.
    established: bool,
}

struct CurrentSession {
    id: String,
    resume_url: Option<String>,
    /// Last event passed to the event processor.
    last_queued: u64,
}

enum FrameAction {
    Continue,
    SendHeartbeat,
    End(SocketExit),
}

struct OpenSocket {
    socket: GatewaySocket,
    heartbeat: HeartbeatMonitor,
    ready: bool,
}

impl<'a> Sockets<'a> {
    pub(in crate::discord) fn new(
        discord: &'a Discord,
        session: Option<&StoredSession>,
        frames: mpsc::Sender<QueuedFrame>,
        committed: watch::Receiver<Option<CommittedSequence>>,
        health_tx: mpsc::Sender<LinkHealth>,
    ) -> Self {
        let session = session.map(|session| CurrentSession {
            id: session.id.clone(),
            resume_url: session.resume_url.clone(),
            last_queued: session.sequence,
        });
        let reconnect = Reconnector::new(ReconnectPolicy::resumed_socket(discord.config.reconnect_base));
        Self { discord, session, reconnect, frames, committed, health_tx, established: false }
    }

    pub(in crate::discord) async fn run(mut self) -> Error {
        loop {
            let exit = self.run_once().await;
            if let ResumeHint::NewSession { .. } = exit.hint {
                self.session = None;
            }
            if !self.established && exit.is_unreached() {
                // Not connected yet: the supervisor decides when to retry.
                return exit.error;
            }
            let Some(wait) = self.reconnect.next_wait(exit.hint, NO_JITTER) else {
                return exit.into_link_error();
            };
            let reason = exit.reason();
            warn!(platform = "discord", reason, ?wait, "socket closed");
            self.report_health(LinkHealth::Degraded { reason });
            clock::sleep(wait).await;
        }
    }

    /// One socket from dialling to its end.
    async fn run_once(&mut self) -> SocketExit {
        let url = match self.gateway_url().await {
            Ok(url) => url,
            Err(error @ Error::SessionLimit { .. }) => return SocketExit::give_up(error),
            Err(error) => return error.into(),
        };
        let limit = self.discord.config.connect_timeout;
        let deadline = clock::monotonic() + limit;
        let proxy = self.discord.config.proxy.as_ref().map(Secret::expose);
        let mut socket = match timeout_at(deadline, GatewaySocket::dial(&url, proxy)).await {
            Ok(Ok(socket)) => socket,
            Ok(Err(error)) => return self.dial_failed(error),
            Err(_elapsed) => return self.dial_failed(HttpError::Timeout(limit).into()),
        };
        let interval = match timeout_at(deadline, read_hello(&mut socket)).await {
            Ok(Ok(interval)) => interval,
            Ok(Err(exit)) => return exit,
            Err(_elapsed) => return SocketExit::give_up(Error::NotReady(limit)),
        };
        if !self.identify_or_resume(&mut socket).await {
            return exit_for_close_code(None);
        }
        let heartbeat = HeartbeatMonitor::new(clock::monotonic(), interval, random_share());
        let mut open = OpenSocket { socket, heartbeat, ready: false };
        let exit = self.run_socket(&mut open, deadline).await;
        open.socket.close_resumable().await;
        exit
    }

    /// The resume address may be stale; the next attempt asks for a new one.
    fn dial_failed(&mut self, error: Error) -> SocketExit {
        let elsewhere = self.session.as_mut().and_then(|session| session.resume_url.take());
        match elsewhere.filter(|_| self.discord.config.gateway_url.is_none()) {
            Some(_) => SocketExit::ended(error.code(), ResumeHint::Resume),
            None => error.into(),
        }
    }

    /// The address to dial. A new session counts against the daily limit.
    async fn gateway_url(&self) -> Result<String, Error> {
        let set = self.discord.config.gateway_url.clone();
        let resumed = self.session.as_ref();
        if let Some(url) = resumed.and_then(|session| set.clone().or_else(|| session.resume_url.clone())) {
            return Ok(url);
        }
        let gateway: GatewayInfo = self.discord.api.get("/gateway/bot").await?;
        if resumed.is_none() {
            if let Some(starts) = gateway.session_start_limit.filter(|starts| starts.remaining == 0) {
                return Err(Error::SessionLimit { after: Duration::from_millis(starts.reset_after) });
            }
            self.discord.wait_for_identify_slot().await;
        }
        Ok(set.unwrap_or(gateway.url))
    }

    async fn identify_or_resume(&self, socket: &mut GatewaySocket) -> bool {
        let token = self.discord.config.token.expose();
        match &self.session {
            Some(session) => {
                let sequence = self.committed_sequence().unwrap_or(session.last_queued);
                socket.send(&Resume::new(sequence, session.id.clone(), token)).await
            }
            None => socket.send(&identify(token, intents(&self.discord.config))).await,
        }
    }

    async fn run_socket(&mut self, open: &mut OpenSocket, deadline: Instant) -> SocketExit {
        let liveness = self.discord.config.liveness;
        let mut next_check = clock::monotonic() + liveness.interval;
        loop {
            let text = tokio::select! {
                event = open.socket.receive() => match event {
                    SocketEvent::Text(text) => text,
                    SocketEvent::Closed(code) => return exit_for_close_code(code),
                },
                () = sleep_until(open.heartbeat.due()) => {
                    if let Err(MissedAck) = open.heartbeat.beat(clock::monotonic()) {
                        return SocketExit::ended("discord_heartbeat_missed", ResumeHint::Resume);
                    }
                    if !open.socket.send(&Heartbeat::new(self.committed_sequence())).await {
                        return exit_for_close_code(None);
                    }
                    continue;
                }
                () = sleep_until(next_check), if open.ready && !liveness.interval.is_zero() => {
                    next_check = clock::monotonic() + liveness.interval;
                    match open.heartbeat.check(clock::monotonic(), &liveness) {
                        Some(age) => return SocketExit::give_up(Error::Stale(age)),
                        None => continue,
                    }
                }
                () = sleep_until(deadline), if !open.ready => {
                    return SocketExit::give_up(Error::NotReady(self.discord.config.connect_timeout));
                }
            };
            match self.handle_frame(&text, open) {
                FrameAction::Continue => {}
                FrameAction::SendHeartbeat => {
                    open.heartbeat.requested(clock::monotonic());
                    if !open.socket.send(&Heartbeat::new(self.committed_sequence())).await {
                        return exit_for_close_code(None);
                    }
                }
                FrameAction::End(exit) => return exit,
            }
        }
    }

    /// One bad frame must not block the others.
    fn handle_frame(&mut self, text: &str, open: &mut OpenSocket) -> FrameAction {
        let frame: GatewayFrame = match serde_json::from_str(text) {
            Ok(frame) => frame,
            Err(error) => {
                warn!(platform = "discord", at = error.column(), "unreadable frame stored");
                return self.enqueue(QueuedFrame::Unreadable(Unreadable::shape(None, &error, text)));
            }
        };
        match OpCode::from(frame.op) {
            Some(OpCode::Dispatch) => self.dispatch(frame, text, open),
            Some(OpCode::Heartbeat) => FrameAction::SendHeartbeat,
            Some(OpCode::HeartbeatAck) => {
                open.heartbeat.acknowledged(clock::monotonic());
                if open.ready {
                    self.reconnect.reset();
                    self.report_health(LinkHealth::Connected);
                }
                FrameAction::Continue
            }
            Some(OpCode::Reconnect) => {
                FrameAction::End(SocketExit::ended("discord_reconnect_asked", ResumeHint::Resume))
            }
            Some(OpCode::InvalidSession) => {
                let after = invalid_session_delay(self.discord.config.reconnect_base, random_share());
                let hint = match frame.d.as_ref().map(|data| data.get()) {
                    Some("true") => ResumeHint::RetryAfter(after),
                    Some(_) | None => ResumeHint::NewSession { after },
                };
                FrameAction::End(SocketExit::ended("discord_invalid_session", hint))
            }
            Some(_) | None => FrameAction::Continue,
        }
    }

    fn dispatch(&mut self, frame: GatewayFrame, text: &str, open: &mut OpenSocket) -> FrameAction {
        let (Some(sequence), Some(kind), Some(data)) = (frame.s, frame.t, frame.d) else {
            let why = "an event lacks its number, name or content";
            warn!(platform = "discord", why, "unreadable frame stored");
            return self.enqueue(QueuedFrame::Unreadable(Unreadable::new(None, why, text)));
        };
        match kind.as_str() {
            "READY" => match serde_json::from_str::<Ready>(data.get()) {
                Ok(ready) => {
                    let id = ready.session_id;
                    let resume_url = ready.resume_gateway_url;
                    self.session = Some(CurrentSession { id, resume_url, last_queued: 0 });
                    open.ready = true;
                    info!(platform = "discord", bot = ready.user.username, "connected");
                }
                Err(error) => {
                    let place = format!("READY at column {}", error.column());
                    return FrameAction::End(Error::from(HttpError::Malformed(place)).into());
                }
            },
            "RESUMED" => {
                open.ready = true;
                info!(platform = "discord", "session resumed");
            }
            _event => {}
        }
        if open.ready {
            self.established = true;
            self.report_health(LinkHealth::Connected);
        }
        let Some(session) = &mut self.session else { return FrameAction::Continue };
        if sequence <= session.last_queued {
            return FrameAction::Continue; // it waits in the queue already
        }
        session.last_queued = sequence;
        self.enqueue(QueuedFrame::Event(Event { sequence, kind, data }))
    }

    fn enqueue(&self, frames: QueuedFrame) -> FrameAction {
        match self.frames.try_send(frames) {
            Ok(()) => FrameAction::Continue,
            Err(TrySendError::Full(_)) => FrameAction::End(SocketExit::give_up(Error::QueueFull)),
            Err(TrySendError::Closed(_)) => FrameAction::End(SocketExit::give_up(Error::Closed)),
        }
    }

    /// Last committed event of this session, if any.
    fn committed_sequence(&self) -> Option<u64> {
        let session = self.session.as_ref()?;
        let committed = self.committed.borrow();
        committed
            .as_ref()
            .filter(|committed| committed.session == session.id)
            .map(|committed| committed.sequence)
    }

    /// Dropped if the queue is full.
    fn report_health(&self, health: LinkHealth) {
        let _crowded = self.health_tx.try_send(health);
    }
}

impl Discord {
    /// Discord allows one new session every few seconds, over all links of the bot.
    async fn wait_for_identify_slot(&self) {
        let turn = {
            let mut last = self.identified.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let now = clock::monotonic();
            let turn = last.map_or(now, |last| now.max(last + self.config.identify_gap));
            *last = Some(turn);
            turn
        };
        sleep_until(turn).await;
    }
}

/// Returns the heartbeat interval.
async fn read_hello(socket: &mut GatewaySocket) -> Result<Duration, SocketExit> {
    loop {
        let text = match socket.receive().await {
            SocketEvent::Text(text) => text,
            SocketEvent::Closed(code) => return Err(exit_for_close_code(code)),
        };
        let frame =
            serde_json::from_str::<GatewayFrame>(&text).ok().filter(|it| it.op == OpCode::Hello as u8);
        let read_hello = frame.and_then(|frame| serde_json::from_str::<Hello>(frame.d?.get()).ok());
        if let Some(read_hello) = read_hello {
            return Ok(Duration::from_millis(read_hello.heartbeat_interval.max(1)));
        }
    }
}

fn intents(config: &Config) -> Intents {
    let usual = Intents::GUILDS
        | Intents::GUILD_MESSAGES
        | Intents::GUILD_MESSAGE_REACTIONS
        | Intents::GUILD_VOICE_STATES
        | Intents::DIRECT_MESSAGES
        | Intents::MESSAGE_CONTENT;
    if config.members_intent { usual | Intents::GUILD_MEMBERS } else { usual }
}

fn identify(token: &str, intents: Intents) -> Value {
    json!({ "op": OpCode::Identify as u8, "d": {
        "token": token,
        "intents": intents.bits(),
        "properties": { "os": std::env::consts::OS, "browser": "petasos", "device": "petasos" },
        "compress": false,
        "large_threshold": 50,
    } })
}

/// From 0 to 1; the middle if no random numbers are available.
fn random_share() -> f64 {
    getrandom::u32().map_or(0.5, |roll| f64::from(roll) / f64::from(u32::MAX))
}
