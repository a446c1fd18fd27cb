//! The link task: owns the channel machine, the socket, and all waiting events and requests. Reading waits neither for
//! commits nor for answers. Dropping it closes the connection; unacknowledged events are redelivered.

use std::collections::HashMap;
use std::future;
use std::pin::Pin;
use std::time::Duration;

use petasos_core::{Millis, Platform};
use petasos_relay::channel::{Channel, Closed, Effect, Event, State};
use petasos_relay::frame::hellos;
use petasos_relay::{Answer, Descriptor, FromConnector, FromGateway, Lines};
use petasos_runtime::clock;
use petasos_runtime::fault_injection::{PlantedBug, planted};
use petasos_runtime::random;
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until};
use tracing::{info, warn};

use super::Error;
use super::commit::{self, CommitOutcome, CommitQueue};
use super::control;
use super::parse::PendingEvent;
use super::socket::{Socket, SocketInput};
use super::wire::{ConnectionState, LinkCommand, RelayConnection, RelayRequest};
use crate::inbound::{CommitError, InboundSink, LinkHealth};

type BoxTask<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

const MAX_PENDING: usize = 1024;
/// Longest wait between a grant and the commit of earlier events.
const GRANT_TIMEOUT: Duration = Duration::from_secs(5);

struct PendingRequest {
    chat: (Platform, String),
    answer: oneshot::Sender<Result<Answer, Error>>,
}

pub(super) struct LinkTask<'a> {
    wire: &'a RelayConnection,
    sink: &'a InboundSink,
    health: &'a mut (dyn FnMut(LinkHealth) + Send),
    started: Instant,
    channel: Channel,
    link_id: u64,
    current_link: watch::Receiver<u64>,
    commands: mpsc::Receiver<LinkCommand>,
    dial_task: Option<BoxTask<'a, (u64, Result<Socket, Error>)>>,
    prepare_task: Option<BoxTask<'a, ()>>,
    socket: Option<Socket>,
    lines: Lines,
    descriptors: usize,
    uncommitted: CommitQueue,
    commit_task: Option<BoxTask<'a, CommitOutcome>>,
    pending: HashMap<String, PendingRequest>,
    idle_callers: Vec<oneshot::Sender<bool>>,
    /// Deadline of a grant: reported when earlier events are on disk, refused at the deadline.
    grant_deadline: Option<Instant>,
    last_error: Error,
}

impl Drop for LinkTask<'_> {
    fn drop(&mut self) {
        if self.link_id == *self.current_link.borrow() {
            self.wire.shut();
            self.wire.connection.send_if_modified(|now| {
                *now == ConnectionState::Up && {
                    *now = ConnectionState::Down;
                    true
                }
            });
        }
    }
}

impl<'a> LinkTask<'a> {
    pub(super) fn new(
        wire: &'a RelayConnection,
        sink: &'a InboundSink,
        health: &'a mut (dyn FnMut(LinkHealth) + Send),
    ) -> Self {
        wire.link_id.send_modify(|id| *id += 1);
        let current_link = wire.link_id.subscribe();
        let link_id = *current_link.borrow();
        // Followers of the last link wait for this one.
        wire.connection.send_replace(ConnectionState::Down);
        Self {
            commands: wire.open(),
            channel: Channel::new(wire.wanted(), &wire.config.terms),
            started: clock::monotonic(),
            dial_task: None,
            prepare_task: Some(Box::pin(wire.prepare())),
            socket: None,
            lines: Lines::default(),
            descriptors: 0,
            uncommitted: CommitQueue::new(wire.config.most_waiting),
            commit_task: None,
            pending: HashMap::new(),
            idle_callers: Vec::new(),
            grant_deadline: None,
            last_error: Error::NotConnected,
            wire,
            sink,
            health,
            link_id,
            current_link,
        }
    }

    pub(super) async fn run(mut self) -> Error {
        let interval = self.wire.config.ping_every;
        let mut heartbeat = interval_at(clock::monotonic() + interval, interval);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.commit_waiting();
            if let Err(error) = self.check_grant() {
                return error;
            }
            let due = self.due();
            let full = self.uncommitted.is_full();
            let result = petasos_runtime::select! {
                () = finished(&mut self.prepare_task) => self.feed(Event::Connect),
                input = receive(&mut self.socket), if !full => self.received(input),
                dialled = finished(&mut self.dial_task) => self.dialled(dialled),
                outcome = finished(&mut self.commit_task) => self.committed(outcome),
                Some(command) = self.commands.recv() => self.handle(command),
                () = sleep_until(due.unwrap_or_else(clock::monotonic)), if due.is_some() => self.feed(Event::Tick),
                _ = heartbeat.tick() => self.heartbeat(),
                _ = self.current_link.changed() => Err(Error::Superseded),
            };
            if let Err(error) = result {
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
        let retry = if self.commit_task.is_none() { self.uncommitted.due() } else { None };
        [tick, retry, self.grant_deadline].into_iter().flatten().min()
    }

    fn feed(&mut self, event: Event) -> Result<(), Error> {
        let now = self.now();
        let terms = &self.wire.config.terms;
        let (channel, effects) = self.channel.clone().step(now, roll(), event, terms);
        self.channel = channel;
        effects.into_iter().try_for_each(|effect| self.apply(effect))
    }

    fn apply(&mut self, effect: Effect) -> Result<(), Error> {
        match effect {
            Effect::Dial { generation } => self.dial(generation),
            Effect::Hello => {
                let identities = &self.wire.config.identities;
                let named = identities.iter().map(|it| (it.platform.to_string(), it.bot_id.clone()));
                hellos(&named.collect::<Vec<_>>()).iter().for_each(|hello| self.write(hello));
            }
            Effect::Up => {
                info!(connector = self.wire.config.url, "relay connected");
                self.wire.connection.send_replace(ConnectionState::Up);
                (self.health)(LinkHealth::Connected);
            }
            Effect::GoingIdle => self.write(&FromGateway::GoingIdle),
            Effect::Answer { granted: true } => {
                self.grant_deadline = Some(clock::monotonic() + GRANT_TIMEOUT)
            }
            Effect::Answer { granted: false } => self.answer_idle_callers(false),
            Effect::Abandon => {
                self.pending.drain().for_each(|(_, asked)| drop(asked.answer.send(Err(Error::Lost))));
            }
            Effect::Close => self.close(),
            Effect::GiveUp => return Err(self.last_error.clone()),
            Effect::Revoked => {
                self.wire.connection.send_replace(ConnectionState::Revoked);
                return Err(Error::Revoked);
            }
        }
        if let State::Waiting { .. } = self.channel.state {
            self.wire.connection.send_replace(ConnectionState::Down);
            (self.health)(LinkHealth::Degraded { reason: self.last_error.code() });
        }
        Ok(())
    }

    fn dial(&mut self, generation: u64) {
        self.close();
        let wire = self.wire;
        self.dial_task = Some(Box::pin(async move {
            let bearer = wire.credentials().map(|it| control::token(&it));
            let within = wire.config.open_timeout;
            let dialled = tokio::time::timeout(within, Socket::dial(generation, &wire.config, bearer)).await;
            (generation, dialled.unwrap_or(Err(Error::Silent)))
        }));
    }

    fn close(&mut self) {
        self.socket = None;
        self.lines = Lines::default();
        self.descriptors = 0;
        self.uncommitted.overflowed = false;
        if self.grant_deadline.take().is_some() {
            // The next connection revokes the grant.
            self.answer_idle_callers(false);
        }
    }

    fn dialled(&mut self, (generation, dialled): (u64, Result<Socket, Error>)) -> Result<(), Error> {
        match dialled {
            Ok(socket) => {
                self.socket = Some(socket);
                self.feed(Event::Dialled { generation })
            }
            Err(error) => {
                warn!(%error, "cannot reach the connector");
                self.last_error = error;
                self.feed(Event::DialFailed { generation })
            }
        }
    }

    fn received(&mut self, (generation, input): (u64, SocketInput)) -> Result<(), Error> {
        match input {
            SocketInput::Heartbeat => {
                (self.health)(LinkHealth::Connected);
                Ok(())
            }
            SocketInput::Data(bytes) => match self.lines.push(&bytes) {
                Ok(lines) => lines.into_iter().try_for_each(|line| self.line(generation, &line)),
                Err(_too_big) => self.lost(generation, None, Error::TooBig),
            },
            SocketInput::Closed { close, error } => self.lost(generation, close, error),
        }
    }

    fn lost(&mut self, generation: u64, close: Option<Closed>, error: Error) -> Result<(), Error> {
        warn!(%error, "relay connection lost");
        self.last_error = error;
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
            Err(error) => {
                warn!(%error, "malformed line of the connector skipped");
                let event = PendingEvent::unreadable(error, &String::from_utf8_lossy(line), None, generation);
                self.uncommitted.push(event);
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
                self.uncommitted.push(PendingEvent::forward(&forward, buffer, generation));
                Ok(())
            }
            FromConnector::Interrupt { session_key, .. } => {
                self.sink.interrupt(session_key);
                Ok(())
            }
            FromConnector::Answer { request, answer } => {
                if let Some(asked) = self.pending.remove(&request) {
                    self.wire.record_answer(&asked.chat, &answer);
                    // The caller may have timed out with an unknown outcome.
                    let _gone = asked.answer.send(Ok(answer));
                }
                Ok(())
            }
            FromConnector::IdleAck => self.feed(Event::IdleAck { generation }),
        }
    }

    fn descriptor(&mut self, generation: u64, descriptor: &Map<String, Value>) -> Result<(), Error> {
        let identities = &self.wire.config.identities;
        let hello = identities.get(self.descriptors).map_or("relay", |identity| identity.platform.as_str());
        let descriptor = Descriptor::read(descriptor, hello, |name| {
            warn!(platform = hello, field = name, "descriptor field missing; using the default");
        });
        self.wire.adopt(descriptor, self.descriptors == 0);
        self.descriptors += 1;
        self.feed(Event::Descriptor { generation })
    }

    fn inbound(&mut self, generation: u64, event: &Value, buffer: Option<String>) {
        let wire = self.wire;
        let event = PendingEvent::event(event, buffer, generation, |event| {
            wire.learn(&event.source);
            wire.descriptor(event.source.platform).is_some_and(|it| it.supports_context)
        });
        if let (true, Some(buffer)) = (planted(PlantedBug::AcksFirst), event.buffer.clone()) {
            self.write(&FromGateway::Ack { buffer });
        }
        self.uncommitted.push(event);
    }

    fn commit_waiting(&mut self) {
        if self.commit_task.is_none()
            && let Some(event) = self.uncommitted.next(clock::monotonic())
        {
            self.commit_task = Some(Box::pin(commit::commit(self.sink, event)));
        }
    }

    fn committed(&mut self, outcome: CommitOutcome) -> Result<(), Error> {
        match outcome.result {
            Ok(()) => {
                self.uncommitted.record_success();
                outcome.events.into_iter().for_each(|event| self.acknowledge(event));
            }
            Err(CommitError::Closed) => return Err(Error::Deserted),
            Err(CommitError::Refused) => {
                (self.health)(LinkHealth::Degraded { reason: "relay_not_taken" });
                let within_limit = self.uncommitted.retry_later(outcome.events, clock::monotonic());
                if !within_limit && !planted(PlantedBug::StaysConnected) {
                    return self.lost(self.channel.generation, None, Error::NotCommitted);
                }
            }
            Err(CommitError::Invalid) => {
                (self.health)(LinkHealth::Degraded { reason: "relay_not_taken" });
                self.uncommitted.reject(outcome.events, clock::monotonic());
            }
        }
        if self.uncommitted.overflowed && self.uncommitted.is_empty() {
            warn!("event queue overflowed; reconnecting to receive the rest again");
            return self.feed(Event::Overflowed { generation: self.channel.generation });
        }
        Ok(())
    }

    fn acknowledge(&mut self, event: PendingEvent) {
        if let Some(buffer) = event.buffer.filter(|_| event.generation == self.channel.generation) {
            self.write(&FromGateway::Ack { buffer });
        }
    }

    fn handle(&mut self, command: LinkCommand) -> Result<(), Error> {
        match command {
            LinkCommand::Send(request) => {
                self.send(request);
                Ok(())
            }
            LinkCommand::GoIdle { within, answer } => {
                self.idle_callers.push(answer);
                self.feed(Event::GoIdle { wait: within })
            }
            LinkCommand::Sleep { hold, answer } => {
                self.feed(Event::Sleep { hold })?;
                let asleep = matches!(self.channel.state, State::Waiting { dormant: true, .. });
                let _gone = answer.send(asleep);
                Ok(())
            }
            LinkCommand::Wake => self.feed(Event::Wake),
            LinkCommand::Notify(frame) => {
                if matches!(self.channel.state, State::Serving { .. }) {
                    self.write(&frame);
                }
                Ok(())
            }
        }
    }

    fn send(&mut self, RelayRequest { request, line, chat, answer }: RelayRequest) {
        let serving = matches!(self.channel.state, State::Serving { .. });
        let socket = self.socket.as_ref().filter(|_| serving && self.pending.len() < MAX_PENDING);
        if socket.is_some_and(|socket| socket.write(line)) {
            self.pending.insert(request, PendingRequest { chat, answer });
            return;
        }
        // The request was not sent. Callers that timed out are removed.
        self.pending.retain(|_, asked| !asked.answer.is_closed());
        let _gone = answer.send(Err(Error::NotConnected));
    }

    /// A failed write means a dead connection, which the reader detects.
    fn write(&mut self, frame: &FromGateway) {
        let Ok(line) = frame.line() else { return };
        if let Some(socket) = &self.socket
            && !socket.write(line)
        {
            warn!("connector too slow; frame dropped");
        }
    }

    /// Reports a grant once earlier events are on disk; refuses it at the deadline.
    fn check_grant(&mut self) -> Result<(), Error> {
        let Some(until) = self.grant_deadline else { return Ok(()) };
        if self.uncommitted.is_empty() && self.commit_task.is_none() {
            self.grant_deadline = None;
            self.answer_idle_callers(true);
        } else if clock::monotonic() >= until {
            warn!("events before the idle grant are not on disk in time; staying connected");
            self.grant_deadline = None;
            self.answer_idle_callers(false);
            return self.feed(Event::Wake);
        }
        Ok(())
    }

    fn answer_idle_callers(&mut self, granted: bool) {
        for caller in self.idle_callers.drain(..) {
            let _gone = caller.send(granted);
        }
    }

    fn heartbeat(&mut self) -> Result<(), Error> {
        self.pending.retain(|_, asked| !asked.answer.is_closed());
        let Some(socket) = &self.socket else { return Ok(()) };
        let generation = socket.generation;
        if socket.last_frame_at.elapsed() >= self.wire.config.silence || !socket.ping() {
            return self.lost(generation, None, Error::Silent);
        }
        Ok(())
    }
}

fn roll() -> u64 {
    u64::from_le_bytes(random::bytes())
}

async fn receive(socket: &mut Option<Socket>) -> (u64, SocketInput) {
    match socket {
        Some(socket) => (socket.generation, socket.receive().await),
        None => future::pending().await,
    }
}

/// Pending for ever if there is no task.
async fn finished<T>(task: &mut Option<BoxTask<'_, T>>) -> T {
    let Some(running) = task else { return future::pending().await };
    let outcome = running.await;
    *task = None;
    outcome
}
