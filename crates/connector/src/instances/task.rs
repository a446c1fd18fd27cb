//! One task per instance: owns the state machine of `petasos_relay::session` and the sockets. A batch of commands is
//! one commit, then its effects; if the commit fails, the sockets are closed. A crash leaves the queue and idle flag.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use petasos_core::{GatewayId, InstanceId, LaneId, Route, SessionKey};
use petasos_gateway::shell::ShutdownHandle;
use petasos_gateway::{Error, clock};
use petasos_relay::session::{
    Carries, DeadLetterReason, Decision, Effect, Event, Mode, SessionPolicy, Write,
};
use petasos_relay::{FromConnector, Session, close};
use petasos_runtime::fault_injection::{PlantedBug, planted};
use petasos_store::connector::Arrival;
use tokio::sync::{mpsc, oneshot};

use crate::adapters::Adapters;
use crate::instances::counters::InstanceCounters;
use crate::instances::queue::{Queue, QueueWrites};
use crate::instances::wake::{self, WakeClient};
use crate::outbound::notice;
use crate::socket::SocketHandle;

const MAILBOX_CAPACITY: usize = 1024;
const MAX_BATCH: usize = 256;
const MAX_NOTIFIED_CHATS: usize = 1000;
const RELOAD_PAUSE: Duration = Duration::from_millis(500);

const FULL: &str = "⚠️ I have been offline for a long time, and too many messages are waiting for me, so this message was not \
                    stored. Please send it again when I am back online.";

#[derive(Debug)]
pub(crate) enum InstanceCommand {
    /// `done` resolves when it is on disk. `back`: where to report a full queue.
    Arrived {
        arrival: Box<Arrival>,
        back: Option<Route>,
        done: oneshot::Sender<Result<(), Error>>,
    },
    Hello {
        epoch: u64,
        platform: String,
        wire: SocketHandle,
    },
    Acked {
        id: String,
    },
    GoingIdle {
        epoch: u64,
    },
    Closed {
        epoch: u64,
    },
    /// Stops a session. `by`: the requesting socket, which is skipped.
    Interrupt {
        session_key: SessionKey,
        chat_id: String,
        by: u64,
    },
    CheckAuthorisation {
        authorised: Arc<HashSet<GatewayId>>,
    },
    Inspect(oneshot::Sender<InstanceStatus>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InstanceStatus {
    pub(crate) mode: &'static str,
    pub(crate) backlog: usize,
    pub(crate) gateways: Vec<GatewayId>,
    pub(crate) counters: InstanceCounters,
}

/// Handles of the instance tasks.
#[derive(Debug, Clone)]
pub(crate) struct InstanceHandles {
    pub(crate) queue: Queue,
    pub(crate) adapters: Arc<Adapters>,
    pub(crate) wake_client: Arc<WakeClient>,
    pub(crate) terms: SessionPolicy,
    pub(crate) shutdown: ShutdownHandle,
}

/// Mailboxes of the instance tasks. A task starts with its first command and stays.
#[derive(Debug)]
pub(crate) struct Instances {
    handles: InstanceHandles,
    mailboxes: Mutex<BTreeMap<InstanceId, mpsc::Sender<InstanceCommand>>>,
}

impl Instances {
    pub(crate) fn new(handles: InstanceHandles) -> Self {
        Self { handles, mailboxes: Mutex::default() }
    }

    pub(crate) async fn send(&self, instance: &InstanceId, command: InstanceCommand) -> Result<(), Error> {
        self.mailbox(instance).send(command).await.map_err(|_ended| Error::Stopping)
    }

    /// Starts the task if it is not running.
    pub(crate) fn mailbox(&self, instance: &InstanceId) -> mpsc::Sender<InstanceCommand> {
        let mut all = self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(instance).filter(|mailbox| !mailbox.is_closed()) {
            return known.clone();
        }
        let (mailbox, commands) = mpsc::channel(MAILBOX_CAPACITY);
        let task = InstanceTask {
            id: instance.clone(),
            handles: self.handles.clone(),
            session: Session::default(),
            wires: BTreeMap::new(),
            counters: InstanceCounters::default(),
            notified: HashSet::new(),
        };
        petasos_runtime::spawn(task.run(commands));
        all.insert(instance.clone(), mailbox.clone());
        mailbox
    }

    pub(crate) fn running(&self) -> Vec<(InstanceId, mpsc::Sender<InstanceCommand>)> {
        let all = self.mailboxes.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(id, mailbox)| (id.clone(), mailbox.clone())).collect()
    }
}

struct InstanceTask {
    id: InstanceId,
    handles: InstanceHandles,
    session: Session,
    wires: BTreeMap<u64, SocketHandle>,
    counters: InstanceCounters,
    /// Chats notified since the queue was last empty.
    notified: HashSet<LaneId>,
}

/// Sockets must reconnect when the task ends, also after a panic.
impl Drop for InstanceTask {
    fn drop(&mut self) {
        for wire in self.wires.values() {
            wire.close(close::INTERNAL, "");
        }
    }
}

#[derive(Default)]
struct InstanceBatch {
    changes: QueueWrites,
    effects: Vec<Effect>,
    /// Resolved after the commit.
    done: Vec<oneshot::Sender<Result<(), Error>>>,
    /// Routes for overflow notices, by buffer id.
    backs: HashMap<String, Route>,
}

impl InstanceTask {
    async fn run(mut self, mut commands: mpsc::Receiver<InstanceCommand>) {
        let shutdown = self.handles.shutdown.clone();
        if !self.reload().await {
            return;
        }
        // The queue may hold entries of an earlier process.
        let mut waiting = vec![];
        loop {
            self.process(std::mem::take(&mut waiting)).await;
            let due = self.session.due(&self.handles.terms);
            petasos_runtime::select! {
                () = shutdown.stopped() => break,
                count = commands.recv_many(&mut waiting, MAX_BATCH) => if count == 0 { break },
                () = clock::sleep_until(due.unwrap_or_default()), if due.is_some() => {}
            }
        }
        for wire in self.wires.values() {
            wire.close(close::GOING_AWAY, "");
        }
    }

    async fn process(&mut self, commands: Vec<InstanceCommand>) {
        let mut batch = InstanceBatch::default();
        let ticks = commands.is_empty()
            || commands.iter().any(|command| matches!(command, InstanceCommand::Closed { .. }));
        for command in commands {
            self.handle(command, &mut batch);
        }
        if ticks {
            self.step(Event::Tick, &mut batch);
        }
        let InstanceBatch { mut changes, effects, done, backs } = batch;
        let mut full = vec![];
        for write in &changes.writes {
            let Write::DeadLetter { id, why } = write else { continue };
            self.counters.dead_lettered += 1;
            match why {
                DeadLetterReason::Full => full.extend(backs.get(id).cloned()),
                DeadLetterReason::Old | DeadLetterReason::NotAcknowledged => {
                    tracing::error!(instance = %self.id, id, ?why, "queue entry dead-lettered");
                }
            }
        }
        changes.passed.extend(effects.iter().filter_map(|effect| match effect {
            Effect::Pass { id, .. } => Some(id.clone()),
            _other => None,
        }));
        match self.handles.queue.commit(&self.id, changes).await {
            Ok(fresh) => {
                for done in done {
                    let _ = done.send(Ok(()));
                }
                self.carry_out(effects, &fresh).await;
                self.notify_overflow(full);
            }
            Err(error) => {
                tracing::error!(instance = %self.id, %error, "commit failed; sockets closed");
                for done in done {
                    let _ = done.send(Err(error.clone()));
                }
                for (_, wire) in std::mem::take(&mut self.wires) {
                    wire.close(close::INTERNAL, "");
                }
                self.reload().await;
            }
        }
    }

    fn handle(&mut self, command: InstanceCommand, batch: &mut InstanceBatch) {
        match command {
            InstanceCommand::Arrived { arrival, back, done } => {
                batch.done.push(done);
                let entry = arrival.entry.clone();
                if let Some(back) = back {
                    batch.backs.insert(entry.id.clone(), back);
                }
                let id = entry.id.clone();
                batch.changes.fresh.insert(id.clone(), *arrival);
                if entry.size as usize > petasos_relay::LONGEST_WRITTEN {
                    tracing::warn!(
                        instance = %self.id,
                        size = entry.size,
                        "event longer than a line; dead-lettered"
                    );
                    batch.changes.too_long.push(id);
                    return;
                }
                self.step(Event::Arrived(entry), batch);
            }
            InstanceCommand::Hello { epoch, platform, wire } => {
                self.wires.insert(epoch, wire);
                self.step(Event::Hello { epoch, platform }, batch);
                if self.session.epoch() != Some(epoch) {
                    // A newer socket was faster.
                    batch.effects.push(Effect::Close { epoch, code: close::SUPERSEDED });
                }
            }
            InstanceCommand::Acked { id } => self.step(Event::Acked { id }, batch),
            InstanceCommand::GoingIdle { epoch } if planted(PlantedBug::GrantsWithoutFlip) => {
                batch.effects.push(Effect::GrantIdle { epoch });
            }
            InstanceCommand::GoingIdle { epoch } => self.step(Event::GoingIdle { epoch }, batch),
            InstanceCommand::Closed { epoch } => {
                self.wires.remove(&epoch);
                self.step(Event::Closed { epoch }, batch);
            }
            InstanceCommand::Interrupt { session_key, chat_id, by } => {
                self.interrupt(session_key, chat_id, by)
            }
            InstanceCommand::CheckAuthorisation { authorised } => {
                let gone = self.wires.values().filter(|wire| !authorised.contains(&wire.gateway));
                gone.for_each(|wire| wire.close(close::UNAUTHORIZED, close::REFUSED));
            }
            InstanceCommand::Inspect(reply) => {
                let _ = reply.send(self.status());
            }
        }
    }

    fn step(&mut self, event: Event, batch: &mut InstanceBatch) {
        let Decision { writes, effects } = self.session.step(clock::now(), event, &self.handles.terms);
        batch.changes.writes.extend(writes);
        if planted(PlantedBug::DeletesOnDelivery) {
            let sent = effects.iter().filter_map(|effect| match effect {
                Effect::Deliver { id, .. } => Some(Write::Delete { id: id.clone() }),
                _other => None,
            });
            batch.changes.writes.extend(sent);
        }
        batch.effects.extend(effects);
    }

    /// Notifies each chat once that its message was not stored.
    fn notify_overflow(&mut self, routes: Vec<Route>) {
        if self.session.backlog() == 0 {
            self.notified.clear();
        }
        for route in routes {
            if self.notified.len() < MAX_NOTIFIED_CHATS && self.notified.insert(route.lane()) {
                notice::send(&self.handles.adapters, route, FULL);
            }
        }
    }

    async fn carry_out(&mut self, effects: Vec<Effect>, fresh: &HashMap<String, Arrival>) {
        for effect in effects {
            match effect {
                Effect::Deliver { epoch, id } => self.deliver(epoch, &id, Some(&id), fresh).await,
                Effect::Pass { epoch, id } => self.deliver(epoch, &id, None, fresh).await,
                Effect::GrantIdle { epoch } => {
                    if let Ok(line) = FromConnector::IdleAck.line() {
                        self.write(epoch, line);
                    }
                }
                Effect::Close { epoch, code } => {
                    if code == close::SUPERSEDED && self.counters.record_superseded(clock::monotonic()) {
                        tracing::warn!(
                            instance = %self.id,
                            "sockets replace each other; two processes may use one gateway id"
                        );
                    }
                    if let Some(wire) = self.wires.remove(&epoch) {
                        wire.close(code, "");
                    }
                }
                Effect::Poke => self.wake(),
                Effect::Overflowed => {
                    tracing::error!(instance = %self.id, "queue full; new events are dead-lettered");
                }
            }
        }
    }

    async fn deliver(
        &mut self,
        epoch: u64,
        id: &str,
        buffer: Option<&str>,
        fresh: &HashMap<String, Arrival>,
    ) {
        if !self.wires.contains_key(&epoch) {
            return; // The `Closed` command follows.
        }
        let found = match fresh.get(id) {
            Some(arrival) => Ok(Some((arrival.entry.carries, arrival.payload.clone()))),
            None => self.handles.queue.payload(id).await,
        };
        match found.map(|found| found.and_then(|(carries, payload)| line(&payload, carries, buffer))) {
            Ok(Some(line)) => self.write(epoch, line),
            Ok(None) => {
                tracing::error!(instance = %self.id, id, "unreadable queue entry; it will be dead-lettered")
            }
            Err(error) => {
                tracing::warn!(instance = %self.id, %error, "cannot read a queue entry; socket closed");
                self.drop_socket(epoch);
            }
        }
    }

    /// Closes a socket that does not accept the line: entries must not be skipped.
    fn write(&mut self, epoch: u64, line: String) {
        let Some(wire) = self.wires.get(&epoch) else { return };
        if !wire.write(line) {
            tracing::warn!(instance = %self.id, "socket too slow; closed");
            self.drop_socket(epoch);
        }
    }

    fn drop_socket(&mut self, epoch: u64) {
        if let Some(wire) = self.wires.remove(&epoch) {
            wire.close(close::INTERNAL, "");
        }
    }

    fn interrupt(&self, SessionKey(session_key): SessionKey, chat_id: String, by: u64) {
        let Some((epoch, wire)) =
            self.session.epoch().and_then(|epoch| Some((epoch, self.wires.get(&epoch)?)))
        else {
            return; // No gateway is connected.
        };
        let frame = FromConnector::Interrupt { session_key, chat_id };
        if let (true, Ok(line)) = (epoch != by, frame.line()) {
            wire.write(line);
        }
    }

    fn wake(&self) {
        let InstanceHandles { queue, wake_client, .. } = self.handles.clone();
        petasos_runtime::spawn(wake::wake(queue, wake_client, self.id.clone()));
    }

    /// `false`: the connector shuts down.
    async fn reload(&mut self) -> bool {
        loop {
            match self.handles.queue.load(&self.id).await {
                Ok(session) => {
                    self.session = session;
                    return true;
                }
                Err(error) => tracing::error!(instance = %self.id, %error, "cannot read the queue"),
            }
            petasos_runtime::select! {
                () = self.handles.shutdown.stopped() => return false,
                () = clock::sleep(RELOAD_PAUSE) => {}
            }
        }
    }

    fn status(&self) -> InstanceStatus {
        let mode = match self.session.mode() {
            Mode::Live => "live",
            Mode::Draining => "draining",
            Mode::Idle => "idle",
            Mode::Gone => "gone",
        };
        let gateways = self.wires.values().map(|wire| wire.gateway.clone()).collect();
        InstanceStatus { mode, backlog: self.session.backlog(), gateways, counters: self.counters.clone() }
    }
}

fn line(payload: &str, carries: Carries, buffer: Option<&str>) -> Option<String> {
    let value = serde_json::from_str(payload).ok()?;
    let buffer = buffer.map(str::to_owned);
    let frame = match carries {
        Carries::Inbound => FromConnector::Inbound { event: value, buffer },
        Carries::Forward => FromConnector::Forward { forward: value, buffer },
    };
    frame.line().ok()
}
