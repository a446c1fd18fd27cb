//! The socket's side of a link: opens sockets, keeps them alive, hands events on.
//!
//! Invariants: there is one socket at a time, and it is gone before the next is dialled. A heartbeat and a
//! RESUME name the last event that is *committed*, so Discord never forgets one that we may still lose; what
//! it says again is told from what already waits in the queue by its number.
//! A crash at any point leaves the committed cursor, and RESUME goes on from there.

use std::time::Duration;

use petasos_core::link::redial::{Hint, NO_JITTER, Policy, Redial};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tracing::{info, warn};
use twilight_model::gateway::payload::outgoing::{Heartbeat, Resume};
use twilight_model::gateway::{Intents, OpCode};

use super::cursor::Session;
use super::ended::{Ended, closed, pause_before_session};
use super::pulse::{Pulse, Unanswered};
use super::socket::{Heard, Socket};
use super::wire::{Frame, Gateway, Hello, Ready};
use super::{Config, Discord, Error};
use crate::Secret;
use crate::http::Failure;
use crate::intake::{Health, Unreadable};

/// What came, in the order of the socket.
#[derive(Debug)]
pub(super) enum Arrived {
    Event(Event),
    Unreadable(Unreadable),
}

#[derive(Debug)]
pub(super) struct Event {
    pub(super) sequence: u64,
    pub(super) kind: String,
    pub(super) data: Box<RawValue>,
}

/// The last event of a session that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) session: String,
    pub(super) sequence: u64,
}

pub(super) struct Sockets<'a> {
    discord: &'a Discord,
    known: Option<Known>,
    redial: Redial,
    arrived: mpsc::Sender<Arrived>,
    kept: watch::Receiver<Option<Kept>>,
    told: mpsc::Sender<Health>,
    /// A session was greeted or resumed since the link began.
    stood: bool,
}

/// The session that sockets belong to.
struct Known {
    id: String,
    resume_url: Option<String>,
    /// The last event that was handed on.
    queued: u64,
}

/// What a frame asks of the loop that reads it.
enum Next {
    Go,
    Beat,
    End(Ended),
}

/// One socket, while it is open.
struct Open {
    socket: Socket,
    pulse: Pulse,
    ready: bool,
}

impl<'a> Sockets<'a> {
    pub(super) fn new(
        discord: &'a Discord,
        session: Option<&Session>,
        arrived: mpsc::Sender<Arrived>,
        kept: watch::Receiver<Option<Kept>>,
        told: mpsc::Sender<Health>,
    ) -> Self {
        let known = session.map(|session| Known {
            id: session.id.clone(),
            resume_url: session.resume_url.clone(),
            queued: session.sequence,
        });
        let redial = Redial::new(Policy::resumed_socket(discord.config.reconnect_base));
        Self { discord, known, redial, arrived, kept, told, stood: false }
    }

    pub(super) async fn run(mut self) -> Error {
        loop {
            let ended = self.once().await;
            if let Hint::NewSession { .. } = ended.hint {
                self.known = None;
            }
            if !self.stood && ended.is_unreached() {
                // There is no connection yet: how often to try is the supervisor's business.
                return ended.error;
            }
            let Some(wait) = self.redial.after(ended.hint, NO_JITTER) else { return ended.given_up() };
            let reason = ended.reason();
            warn!(platform = "discord", reason, ?wait, "socket ended");
            self.tell(Health::Degraded { reason });
            sleep(wait).await;
        }
    }

    /// One socket from dialling to its end.
    async fn once(&mut self) -> Ended {
        let url = match self.address().await {
            Ok(url) => url,
            Err(error @ Error::Exhausted { .. }) => return Ended::give_up(error),
            Err(error) => return error.into(),
        };
        let limit = self.discord.config.connect_timeout;
        let deadline = Instant::now() + limit;
        let proxy = self.discord.config.proxy.as_ref().map(Secret::expose);
        let mut socket = match timeout_at(deadline, Socket::dial(&url, proxy)).await {
            Ok(Ok(socket)) => socket,
            Ok(Err(error)) => return self.undialled(error),
            Err(_elapsed) => return self.undialled(Failure::Silent(limit).into()),
        };
        let interval = match timeout_at(deadline, hello(&mut socket)).await {
            Ok(Ok(interval)) => interval,
            Ok(Err(ended)) => return ended,
            Err(_elapsed) => return Ended::give_up(Error::NotReady(limit)),
        };
        if !self.greet(&mut socket).await {
            return closed(None);
        }
        let pulse = Pulse::new(Instant::now(), interval, chance());
        let mut open = Open { socket, pulse, ready: false };
        let ended = self.converse(&mut open, deadline).await;
        open.socket.leave().await;
        ended
    }

    /// A session that cannot be reached where it was may live elsewhere: the next try asks where.
    fn undialled(&mut self, error: Error) -> Ended {
        let elsewhere = self.known.as_mut().and_then(|known| known.resume_url.take());
        match elsewhere.filter(|_| self.discord.config.gateway_url.is_none()) {
            Some(_) => Ended::exited(error.code(), Hint::Resume),
            None => error.into(),
        }
    }

    /// Where the next socket is opened. A new session needs leave to start.
    async fn address(&self) -> Result<String, Error> {
        let set = self.discord.config.gateway_url.clone();
        let resumed = self.known.as_ref();
        if let Some(url) = resumed.and_then(|known| set.clone().or_else(|| known.resume_url.clone())) {
            return Ok(url);
        }
        let gateway: Gateway = self.discord.api.get("/gateway/bot").await?;
        if resumed.is_none() {
            if let Some(starts) = gateway.session_start_limit.filter(|starts| starts.remaining == 0) {
                return Err(Error::Exhausted { after: Duration::from_millis(starts.reset_after) });
            }
            self.discord.wait_for_turn().await;
        }
        Ok(set.unwrap_or(gateway.url))
    }

    async fn greet(&self, socket: &mut Socket) -> bool {
        let token = self.discord.config.token.expose();
        match &self.known {
            Some(known) => {
                let sequence = self.sequence().unwrap_or(known.queued);
                socket.say(&Resume::new(sequence, known.id.clone(), token)).await
            }
            None => socket.say(&identify(token, intents(&self.discord.config))).await,
        }
    }

    async fn converse(&mut self, open: &mut Open, deadline: Instant) -> Ended {
        let liveness = self.discord.config.liveness;
        let mut look = Instant::now() + liveness.interval;
        loop {
            let text = tokio::select! {
                heard = open.socket.hear() => match heard {
                    Heard::Text(text) => text,
                    Heard::Closed(code) => return closed(code),
                },
                () = sleep_until(open.pulse.due()) => {
                    if let Err(Unanswered) = open.pulse.beat(Instant::now()) {
                        return Ended::exited("discord_heartbeat_missed", Hint::Resume);
                    }
                    if !open.socket.say(&Heartbeat::new(self.sequence())).await {
                        return closed(None);
                    }
                    continue;
                }
                () = sleep_until(look), if open.ready && !liveness.interval.is_zero() => {
                    look = Instant::now() + liveness.interval;
                    match open.pulse.look(Instant::now(), &liveness) {
                        Some(age) => return Ended::give_up(Error::Stale(age)),
                        None => continue,
                    }
                }
                () = sleep_until(deadline), if !open.ready => {
                    return Ended::give_up(Error::NotReady(self.discord.config.connect_timeout));
                }
            };
            match self.frame(&text, open) {
                Next::Go => {}
                Next::Beat => {
                    open.pulse.asked(Instant::now());
                    if !open.socket.say(&Heartbeat::new(self.sequence())).await {
                        return closed(None);
                    }
                }
                Next::End(ended) => return ended,
            }
        }
    }

    /// A frame that cannot be read is set aside: it must not stand in the way of the others.
    fn frame(&mut self, text: &str, open: &mut Open) -> Next {
        let frame: Frame = match serde_json::from_str(text) {
            Ok(frame) => frame,
            Err(error) => {
                warn!(platform = "discord", at = error.column(), "unreadable frame set aside");
                return self.hand_on(Arrived::Unreadable(Unreadable::shape(None, &error, text)));
            }
        };
        match OpCode::from(frame.op) {
            Some(OpCode::Dispatch) => self.dispatch(frame, text, open),
            Some(OpCode::Heartbeat) => Next::Beat,
            Some(OpCode::HeartbeatAck) => {
                open.pulse.acknowledged(Instant::now());
                if open.ready {
                    self.redial.reset();
                    self.tell(Health::Polling);
                }
                Next::Go
            }
            Some(OpCode::Reconnect) => Next::End(Ended::exited("discord_reconnect_asked", Hint::Resume)),
            Some(OpCode::InvalidSession) => {
                let after = pause_before_session(self.discord.config.reconnect_base, chance());
                let hint = match frame.d.as_ref().map(|data| data.get()) {
                    Some("true") => Hint::RetryAfter(after),
                    Some(_) | None => Hint::NewSession { after },
                };
                Next::End(Ended::exited("discord_invalid_session", hint))
            }
            Some(_) | None => Next::Go,
        }
    }

    fn dispatch(&mut self, frame: Frame, text: &str, open: &mut Open) -> Next {
        let (Some(sequence), Some(kind), Some(data)) = (frame.s, frame.t, frame.d) else {
            let why = "it is an event without number, name or content";
            warn!(platform = "discord", why, "unreadable frame set aside");
            return self.hand_on(Arrived::Unreadable(Unreadable::new(None, why, text)));
        };
        match kind.as_str() {
            "READY" => match serde_json::from_str::<Ready>(data.get()) {
                Ok(ready) => {
                    let (id, resume_url) = (ready.session_id, ready.resume_gateway_url);
                    self.known = Some(Known { id, resume_url, queued: 0 });
                    open.ready = true;
                    info!(platform = "discord", bot = ready.user.username, "connected");
                }
                Err(error) => {
                    let place = format!("READY at column {}", error.column());
                    return Next::End(Error::from(Failure::Garbage(place)).into());
                }
            },
            "RESUMED" => {
                open.ready = true;
                info!(platform = "discord", "session resumed");
            }
            _event => {}
        }
        if open.ready {
            self.stood = true;
            self.tell(Health::Polling);
        }
        let Some(known) = &mut self.known else { return Next::Go };
        if sequence <= known.queued {
            return Next::Go; // it waits in the queue already
        }
        known.queued = sequence;
        self.hand_on(Arrived::Event(Event { sequence, kind, data }))
    }

    fn hand_on(&self, arrived: Arrived) -> Next {
        match self.arrived.try_send(arrived) {
            Ok(()) => Next::Go,
            Err(TrySendError::Full(_)) => Next::End(Ended::give_up(Error::Overrun)),
            Err(TrySendError::Closed(_)) => Next::End(Ended::give_up(Error::Closed)),
        }
    }

    /// The last event of this session that is kept; `None` while none is.
    fn sequence(&self) -> Option<u64> {
        let known = self.known.as_ref()?;
        let kept = self.kept.borrow();
        kept.as_ref().filter(|kept| kept.session == known.id).map(|kept| kept.sequence)
    }

    /// One that finds no room is as good as told: others wait to be noticed.
    fn tell(&self, health: Health) {
        let _crowded = self.told.try_send(health);
    }
}

impl Discord {
    /// Discord allows one new session every few seconds, whatever link it is for.
    async fn wait_for_turn(&self) {
        let turn = {
            let mut last = self.identified.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let now = Instant::now();
            let turn = last.map_or(now, |last| now.max(last + self.config.identify_gap));
            *last = Some(turn);
            turn
        };
        sleep_until(turn).await;
    }
}

/// How often the gateway wants to hear from us.
async fn hello(socket: &mut Socket) -> Result<Duration, Ended> {
    loop {
        let text = match socket.hear().await {
            Heard::Text(text) => text,
            Heard::Closed(code) => return Err(closed(code)),
        };
        let frame = serde_json::from_str::<Frame>(&text).ok().filter(|it| it.op == OpCode::Hello as u8);
        let hello = frame.and_then(|frame| serde_json::from_str::<Hello>(frame.d?.get()).ok());
        if let Some(hello) = hello {
            return Ok(Duration::from_millis(hello.heartbeat_interval.max(1)));
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

/// From 0 to 1. Without chance, the middle: waits are kept either way.
fn chance() -> f64 {
    getrandom::u32().map_or(0.5, |roll| f64::from(roll) / f64::from(u32::MAX))
}
