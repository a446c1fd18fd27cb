//! Keeps the connection: dials, reads, has it committed, acknowledges, passes questions and their answers on.
//!
//! Owns the channel's machine, the socket and everything that waits for something. Reading never waits for a commit,
//! and never for an answer. Dropping it closes the connection; what was not acknowledged comes again.

use std::collections::HashMap;
use std::future;
use std::pin::Pin;
use std::time::Duration;

use petasos_core::{Millis, Platform};
use petasos_relay::channel::{Channel, Closed, Effect, Event, State};
use petasos_relay::frame::hellos;
use petasos_relay::{Answer, Descriptor, FromConnector, FromGateway, Lines};
use petasos_runtime::fault_injection::{Planted, planted};
use petasos_runtime::random;
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};
use tracing::{info, warn};

use super::Error;
use super::commit::{self, Outcome, Waiting};
use super::control;
use super::parse::Told;
use super::socket::{Heard, Socket};
use super::wire::{Ask, Question, Standing, Wire};
use crate::intake::{Health, Intake, NotTaken};

type Task<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Questions that may wait for their answer.
const MOST_PENDING: usize = 1024;
/// Longest wait of a grant for what came before it.
const SETTLE: Duration = Duration::from_secs(5);

/// A question that was sent and is not answered yet.
struct Pending {
    chat: (Platform, String),
    answer: oneshot::Sender<Result<Answer, Error>>,
}

pub(super) struct Link<'a> {
    wire: &'a Wire,
    intake: &'a Intake,
    health: &'a mut (dyn FnMut(Health) + Send),
    started: Instant,
    channel: Channel,
    seat: u64,
    seats: watch::Receiver<u64>,
    asked: mpsc::Receiver<Ask>,
    dialling: Option<Task<'a, (u64, Result<Socket, Error>)>>,
    preparing: Option<Task<'a, ()>>,
    socket: Option<Socket>,
    lines: Lines,
    /// Descriptors of this connection.
    described: usize,
    waiting: Waiting,
    committing: Option<Task<'a, Outcome>>,
    pending: HashMap<String, Pending>,
    /// Those who asked to idle.
    idlers: Vec<oneshot::Sender<bool>>,
    /// Granted: they hear of it when what came before is on disk; if it is not by then, they hear no.
    granted: Option<Instant>,
    /// Why there is no connection.
    trouble: Error,
}

impl Drop for Link<'_> {
    fn drop(&mut self) {
        if self.seat == *self.seats.borrow() {
            self.wire.shut();
            self.wire.standing.send_if_modified(|now| {
                *now == Standing::Up && {
                    *now = Standing::Down;
                    true
                }
            });
        }
    }
}

impl<'a> Link<'a> {
    pub(super) fn new(
        wire: &'a Wire,
        intake: &'a Intake,
        health: &'a mut (dyn FnMut(Health) + Send),
    ) -> Self {
        wire.seat.send_modify(|seat| *seat += 1);
        let seats = wire.seat.subscribe();
        let seat = *seats.borrow();
        // Whoever followed the last link gives this one a chance.
        wire.standing.send_replace(Standing::Down);
        Self {
            asked: wire.open(),
            channel: Channel::new(wire.wanted(), &wire.config.terms),
            started: Instant::now(),
            dialling: None,
            preparing: Some(Box::pin(wire.prepare())),
            socket: None,
            lines: Lines::default(),
            described: 0,
            waiting: Waiting::new(wire.config.most_waiting),
            committing: None,
            pending: HashMap::new(),
            idlers: Vec::new(),
            granted: None,
            trouble: Error::NotConnected,
            wire,
            intake,
            health,
            seat,
            seats,
        }
    }

    pub(super) async fn run(mut self) -> Error {
        let every = self.wire.config.ping_every;
        let mut beat = interval_at(Instant::now() + every, every);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.commit_waiting();
            if let Err(error) = self.settle() {
                return error;
            }
            let due = self.due();
            let full = self.waiting.is_full();
            let done = petasos_runtime::select! {
                () = done(&mut self.preparing) => self.feed(Event::Connect),
                heard = hear(&mut self.socket), if !full => self.heard(heard),
                dialled = done(&mut self.dialling) => self.dialled(dialled),
                outcome = done(&mut self.committing) => self.committed(outcome),
                Some(ask) = self.asked.recv() => self.asked(ask),
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.feed(Event::Tick),
                _ = beat.tick() => self.beat(),
                _ = self.seats.changed() => Err(Error::Superseded),
            };
            if let Err(error) = done {
                return error;
            }
        }
    }

    fn now(&self) -> Millis {
        Millis(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    fn due(&self) -> Option<Instant> {
        let tick = self.channel.due(&self.wire.config.terms);
        let tick = tick.map(|at| self.started + Duration::from_millis(at.0));
        let again = if self.committing.is_none() { self.waiting.due() } else { None };
        [tick, again, self.granted].into_iter().flatten().min()
    }

    fn feed(&mut self, event: Event) -> Result<(), Error> {
        let (now, terms) = (self.now(), &self.wire.config.terms);
        let (channel, effects) = self.channel.clone().step(now, roll(), event, terms);
        self.channel = channel;
        effects.into_iter().try_for_each(|effect| self.act(effect))
    }

    fn act(&mut self, effect: Effect) -> Result<(), Error> {
        match effect {
            Effect::Dial { generation } => self.dial(generation),
            Effect::Hello => {
                let identities = &self.wire.config.identities;
                let named = identities.iter().map(|it| (it.platform.to_string(), it.bot_id.clone()));
                hellos(&named.collect::<Vec<_>>()).iter().for_each(|hello| self.say(hello));
            }
            Effect::Up => {
                info!(connector = self.wire.config.url, "relay connected");
                self.wire.standing.send_replace(Standing::Up);
                (self.health)(Health::Polling);
            }
            Effect::GoingIdle => self.say(&FromGateway::GoingIdle),
            Effect::Answer { granted: true } => self.granted = Some(Instant::now() + SETTLE),
            Effect::Answer { granted: false } => self.answer_idlers(false),
            Effect::Abandon => {
                self.pending.drain().for_each(|(_, asked)| drop(asked.answer.send(Err(Error::Lost))));
            }
            Effect::Close => self.close(),
            Effect::GiveUp => return Err(self.trouble.clone()),
            Effect::Revoked => {
                self.wire.standing.send_replace(Standing::Revoked);
                return Err(Error::Revoked);
            }
        }
        if let State::Waiting { .. } = self.channel.state {
            self.wire.standing.send_replace(Standing::Down);
            (self.health)(Health::Degraded { reason: self.trouble.code() });
        }
        Ok(())
    }

    fn dial(&mut self, generation: u64) {
        self.close();
        let wire = self.wire;
        self.dialling = Some(Box::pin(async move {
            let bearer = wire.credentials().map(|it| control::token(&it));
            let within = wire.config.open_timeout;
            let dialled = tokio::time::timeout(within, Socket::dial(generation, &wire.config, bearer)).await;
            (generation, dialled.unwrap_or(Err(Error::Silent)))
        }));
    }

    fn close(&mut self) {
        self.socket = None;
        self.lines = Lines::default();
        self.described = 0;
        self.waiting.overflowed = false;
        if self.granted.take().is_some() {
            // The next connection takes the grant back.
            self.answer_idlers(false);
        }
    }

    fn dialled(&mut self, (generation, dialled): (u64, Result<Socket, Error>)) -> Result<(), Error> {
        match dialled {
            Ok(socket) => {
                self.socket = Some(socket);
                self.feed(Event::Dialled { generation })
            }
            Err(error) => {
                warn!(%error, "the connector cannot be reached");
                self.trouble = error;
                self.feed(Event::DialFailed { generation })
            }
        }
    }

    fn heard(&mut self, (generation, heard): (u64, Heard)) -> Result<(), Error> {
        match heard {
            Heard::Beat => {
                (self.health)(Health::Polling);
                Ok(())
            }
            Heard::Data(bytes) => match self.lines.push(&bytes) {
                Ok(lines) => lines.into_iter().try_for_each(|line| self.line(generation, &line)),
                Err(_too_big) => self.lost(generation, None, Error::TooBig),
            },
            Heard::Ended { close, error } => self.lost(generation, close, error),
        }
    }

    fn lost(&mut self, generation: u64, close: Option<Closed>, error: Error) -> Result<(), Error> {
        warn!(%error, "relay connection lost");
        self.trouble = error;
        self.close();
        self.feed(Event::Lost { generation, close })
    }

    fn line(&mut self, generation: u64, line: &[u8]) -> Result<(), Error> {
        if generation != self.channel.generation {
            return Ok(());
        }
        match FromConnector::read(line) {
            Ok(Some(frame)) => self.frame(generation, frame),
            Ok(None) => Ok(()),
            Err(why) => {
                warn!(%why, "a line of the connector is skipped");
                let told = Told::unreadable(why, &String::from_utf8_lossy(line), None, generation);
                self.waiting.push(told);
                Ok(())
            }
        }
    }

    fn frame(&mut self, generation: u64, frame: FromConnector) -> Result<(), Error> {
        match frame {
            FromConnector::Descriptor(descriptor) => self.descriptor(generation, &descriptor),
            FromConnector::Inbound { event, buffer } => {
                self.inbound(generation, &event, buffer);
                Ok(())
            }
            FromConnector::Forward { forward, buffer } => {
                self.waiting.push(Told::forward(&forward, buffer, generation));
                Ok(())
            }
            FromConnector::Interrupt { session_key, .. } => {
                self.intake.interrupt(session_key);
                Ok(())
            }
            FromConnector::Answer { request, answer } => {
                if let Some(asked) = self.pending.remove(&request) {
                    self.wire.note(&asked.chat, &answer);
                    // Whoever gave up waiting has said that its fate is unknown.
                    let _gone = asked.answer.send(Ok(answer));
                }
                Ok(())
            }
            FromConnector::IdleAck => self.feed(Event::IdleAck { generation }),
        }
    }

    fn descriptor(&mut self, generation: u64, descriptor: &Map<String, Value>) -> Result<(), Error> {
        let identities = &self.wire.config.identities;
        let hello = identities.get(self.described).map_or("relay", |identity| identity.platform.as_str());
        let descriptor = Descriptor::read(descriptor, hello, |name| {
            warn!(platform = hello, name, "the descriptor does not say this");
        });
        self.wire.adopt(descriptor, self.described == 0);
        self.described += 1;
        self.feed(Event::Descriptor { generation })
    }

    fn inbound(&mut self, generation: u64, event: &Value, buffer: Option<String>) {
        let wire = self.wire;
        let told = Told::event(event, buffer, generation, |event| {
            wire.learn(&event.source);
            wire.descriptor(event.source.platform).is_some_and(|it| it.supports_context)
        });
        if let (true, Some(buffer)) = (planted(Planted::AcksFirst), told.buffer.clone()) {
            self.say(&FromGateway::Ack { buffer });
        }
        self.waiting.push(told);
    }

    fn commit_waiting(&mut self) {
        if self.committing.is_none()
            && let Some(told) = self.waiting.next(Instant::now())
        {
            self.committing = Some(Box::pin(commit::commit(self.intake, told)));
        }
    }

    fn committed(&mut self, outcome: Outcome) -> Result<(), Error> {
        match outcome.taken {
            Ok(()) => {
                self.waiting.kept();
                outcome.told.into_iter().for_each(|told| self.acknowledge(told));
            }
            Err(NotTaken::Closed) => return Err(Error::Deserted),
            Err(NotTaken::Refused) => {
                (self.health)(Health::Degraded { reason: "relay_not_taken" });
                let patient = self.waiting.put_back(outcome.told, Instant::now());
                if !patient && !planted(Planted::StaysConnected) {
                    return self.lost(self.channel.generation, None, Error::NotTaken);
                }
            }
            Err(NotTaken::Unfit) => {
                (self.health)(Health::Degraded { reason: "relay_not_taken" });
                self.waiting.refused(outcome.told, Instant::now());
            }
        }
        if self.waiting.overflowed && self.waiting.is_empty() {
            warn!("more came than could be kept at once; the rest is asked for again");
            return self.feed(Event::Overflowed { generation: self.channel.generation });
        }
        Ok(())
    }

    fn acknowledge(&mut self, told: Told) {
        if let Some(buffer) = told.buffer.filter(|_| told.generation == self.channel.generation) {
            self.say(&FromGateway::Ack { buffer });
        }
    }

    fn asked(&mut self, ask: Ask) -> Result<(), Error> {
        match ask {
            Ask::Send(question) => {
                self.pass_on(question);
                Ok(())
            }
            Ask::GoIdle { within, answer } => {
                self.idlers.push(answer);
                self.feed(Event::GoIdle { wait: within })
            }
            Ask::Sleep { hold, answer } => {
                self.feed(Event::Sleep { hold })?;
                let asleep = matches!(self.channel.state, State::Waiting { dormant: true, .. });
                let _gone = answer.send(asleep);
                Ok(())
            }
            Ask::Wake => self.feed(Event::Wake),
            Ask::Tell(frame) => {
                if matches!(self.channel.state, State::Serving { .. }) {
                    self.say(&frame);
                }
                Ok(())
            }
        }
    }

    fn pass_on(&mut self, Question { request, line, chat, answer }: Question) {
        let serving = matches!(self.channel.state, State::Serving { .. });
        let socket = self.socket.as_ref().filter(|_| serving && self.pending.len() < MOST_PENDING);
        if socket.is_some_and(|socket| socket.say(line)) {
            self.pending.insert(request, Pending { chat, answer });
            return;
        }
        // Nothing left us. Those who wait no longer make room.
        self.pending.retain(|_, asked| !asked.answer.is_closed());
        let _gone = answer.send(Err(Error::NotConnected));
    }

    /// A line that is not taken means a connection that is not one: the reader will see its end.
    fn say(&mut self, frame: &FromGateway) {
        let Ok(line) = frame.line() else { return };
        if let Some(socket) = &self.socket
            && !socket.say(line)
        {
            warn!("the connector does not read what we say");
        }
    }

    /// A grant is passed on when everything that came before it is on disk. If that takes too long, it is not used.
    fn settle(&mut self) -> Result<(), Error> {
        let Some(until) = self.granted else { return Ok(()) };
        if self.waiting.is_empty() && self.committing.is_none() {
            self.granted = None;
            self.answer_idlers(true);
        } else if Instant::now() >= until {
            warn!("what came before the grant is not on disk yet; we stay");
            self.granted = None;
            self.answer_idlers(false);
            return self.feed(Event::Wake);
        }
        Ok(())
    }

    fn answer_idlers(&mut self, granted: bool) {
        for idler in self.idlers.drain(..) {
            let _gone = idler.send(granted);
        }
    }

    fn beat(&mut self) -> Result<(), Error> {
        self.pending.retain(|_, asked| !asked.answer.is_closed());
        let Some(socket) = &self.socket else { return Ok(()) };
        let generation = socket.generation;
        if socket.heard.elapsed() >= self.wire.config.silence || !socket.ping() {
            return self.lost(generation, None, Error::Silent);
        }
        Ok(())
    }
}

fn roll() -> u64 {
    u64::from_le_bytes(random::bytes())
}

async fn hear(socket: &mut Option<Socket>) -> (u64, Heard) {
    match socket {
        Some(socket) => (socket.generation, socket.hear().await),
        None => future::pending().await,
    }
}

/// The outcome of what is under way; never, if nothing is.
async fn done<T>(task: &mut Option<Task<'_, T>>) -> T {
    let Some(running) = task else { return future::pending().await };
    let outcome = running.await;
    *task = None;
    outcome
}
