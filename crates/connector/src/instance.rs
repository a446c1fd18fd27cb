//! One task for each instance: it owns the machine of `petasos_relay::session`, and the sockets of the instance.
//!
//! Whatever waits in its mailbox is decided at once, committed as one transaction, and only then carried out, in order:
//! delivered, granted, closed, poked. If the commit fails nothing is carried out, the sockets are closed, and the
//! machine is read back from the store. A crash leaves the queue, and whether the instance idles.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use petasos_core::{Platform, Route};
use petasos_gateway::{Error, clock};
use petasos_relay::session::{Buried, Carries, Decision, Effect, Event, Mode, Write};
use petasos_relay::{FromConnector, Session, close};
use petasos_runtime::fault_injection::{Planted, planted};
use petasos_store::connector::Arrival;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::counts::Counts;
use crate::queue::Books;
use crate::say;
use crate::shell::Shell;
use crate::socket::Wire;

/// Asks that may wait; beyond, askers wait to ask.
const DEPTH: usize = 1024;
/// Asks that are decided together.
const TOGETHER: usize = 256;
/// Chats that are told that the queue is full.
const MOST_TOLD: usize = 1000;
/// How long to wait before the store is asked again for what it could not say.
const AGAIN: Duration = Duration::from_millis(500);

const FULL: &str = "⚠️ I have been away for too long, and too much is waiting for me: this message was not \
                    kept. Please send it again when I am back.";

#[derive(Debug)]
pub(crate) enum Ask {
    /// `done` is answered when it is on disk. `back`: where its author can be told that it is not kept.
    Arrived {
        arrival: Box<Arrival>,
        back: Option<Route>,
        done: oneshot::Sender<Result<(), Error>>,
    },
    /// A hello that has been answered.
    Hello {
        epoch: u64,
        platform: String,
        wire: Wire,
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
    /// Somebody wants a session to stop; `by`: the socket that says so, which knows already.
    Interrupt {
        session_key: String,
        chat_id: String,
        by: u64,
    },
    /// Sockets of gateways that may be here no longer are closed.
    Check {
        good: Arc<HashSet<String>>,
    },
    Look(oneshot::Sender<Seen>),
}

/// What an onlooker may know of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) mode: &'static str,
    pub(crate) backlog: usize,
    pub(crate) gateways: Vec<String>,
    pub(crate) counts: Counts,
}

/// The mailboxes. A task is started with the first ask, and stays.
#[derive(Debug, Default)]
pub(crate) struct Instances(Mutex<BTreeMap<String, mpsc::Sender<Ask>>>);

impl Instances {
    pub(crate) async fn ask(&self, shell: &Arc<Shell>, instance: &str, ask: Ask) -> Result<(), Error> {
        let mailbox = self.mailbox(shell, instance);
        mailbox.send(ask).await.map_err(|_ended| Error::Stopping)
    }

    /// Starts the task, if it does not run yet.
    pub(crate) fn mailbox(&self, shell: &Arc<Shell>, instance: &str) -> mpsc::Sender<Ask> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(instance).filter(|mailbox| !mailbox.is_closed()) {
            return known.clone();
        }
        let (mailbox, asks) = mpsc::channel(DEPTH);
        let task = Task {
            id: instance.to_owned(),
            shell: shell.clone(),
            session: Session::default(),
            wires: BTreeMap::new(),
            counts: Counts::default(),
            told: HashSet::new(),
        };
        petasos_runtime::spawn(task.run(asks));
        all.insert(instance.to_owned(), mailbox.clone());
        mailbox
    }

    pub(crate) fn awake(&self) -> Vec<(String, mpsc::Sender<Ask>)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(id, mailbox)| (id.clone(), mailbox.clone())).collect()
    }
}

struct Task {
    id: String,
    shell: Arc<Shell>,
    session: Session,
    /// By their numbers; those that count no longer go as soon as they are told.
    wires: BTreeMap<u64, Wire>,
    counts: Counts,
    /// Chats that know that the queue is full, until it is empty again.
    told: HashSet<(Platform, String)>,
}

/// Nobody listens to what its sockets say any more, also if it panicked: they have to come again.
impl Drop for Task {
    fn drop(&mut self) {
        for wire in self.wires.values() {
            wire.close(close::INTERNAL, "");
        }
    }
}

/// What one turn of the mailbox comes to.
#[derive(Default)]
struct Turn {
    books: Books,
    effects: Vec<Effect>,
    /// Answered after the commit.
    done: Vec<oneshot::Sender<Result<(), Error>>>,
    /// Where the author of something that is not kept can be told.
    backs: HashMap<String, Route>,
}

impl Task {
    async fn run(mut self, mut asks: mpsc::Receiver<Ask>) {
        let stopper = self.shell.stopper.clone();
        if !self.read_back().await {
            return;
        }
        // Something may have waited since before the process started.
        let mut waiting = vec![];
        loop {
            self.turn(std::mem::take(&mut waiting)).await;
            let due = self.session.due(&self.shell.terms);
            petasos_runtime::select! {
                () = stopper.stopped() => break,
                count = asks.recv_many(&mut waiting, TOGETHER) => if count == 0 { break },
                () = clock::sleep_until(due.unwrap_or_default()), if due.is_some() => {}
            }
        }
        for wire in self.wires.values() {
            wire.close(close::GOING_AWAY, "");
        }
    }

    async fn turn(&mut self, asks: Vec<Ask>) {
        let mut turn = Turn::default();
        let ticks = asks.is_empty() || asks.iter().any(|ask| matches!(ask, Ask::Closed { .. }));
        for ask in asks {
            self.decide(ask, &mut turn);
        }
        if ticks {
            self.step(Event::Tick, &mut turn);
        }
        let Turn { mut books, effects, done, backs } = turn;
        let mut full = vec![];
        for write in &books.writes {
            let Write::Bury { id, why } = write else { continue };
            self.counts.put_aside += 1;
            match why {
                Buried::Full => full.extend(backs.get(id).cloned()),
                Buried::Old | Buried::NotAcknowledged => {
                    tracing::error!(instance = self.id, id, ?why, "what was owed to it is put aside");
                }
            }
        }
        books.passed.extend(effects.iter().filter_map(|effect| match effect {
            Effect::Pass { id, .. } => Some(id.clone()),
            _other => None,
        }));
        match self.shell.queue.commit(&self.id, books).await {
            Ok(fresh) => {
                for done in done {
                    // Whoever waits for it may have gone; it is on disk.
                    let _ = done.send(Ok(()));
                }
                self.carry_out(effects, &fresh).await;
                self.tell_of_overflow(full);
            }
            Err(error) => {
                tracing::error!(instance = self.id, %error, "not committed; its sockets are closed");
                for done in done {
                    let _ = done.send(Err(error.clone()));
                }
                for (_, wire) in std::mem::take(&mut self.wires) {
                    wire.close(close::INTERNAL, "");
                }
                self.read_back().await;
            }
        }
    }

    fn decide(&mut self, ask: Ask, turn: &mut Turn) {
        match ask {
            Ask::Arrived { arrival, back, done } => {
                turn.done.push(done);
                let entry = arrival.entry.clone();
                if let Some(back) = back {
                    turn.backs.insert(entry.id.clone(), back);
                }
                let id = entry.id.clone();
                turn.books.fresh.insert(id.clone(), *arrival);
                if entry.size as usize > petasos_relay::LONGEST_WRITTEN {
                    tracing::warn!(instance = self.id, size = entry.size, "too long for a line; put aside");
                    turn.books.too_long.push(id);
                    return;
                }
                self.step(Event::Arrived(entry), turn);
            }
            Ask::Hello { epoch, platform, wire } => {
                self.wires.insert(epoch, wire);
                self.step(Event::Hello { epoch, platform }, turn);
                if self.session.epoch() != Some(epoch) {
                    // A newer one was faster.
                    turn.effects.push(Effect::Close { epoch, code: close::SUPERSEDED });
                }
            }
            Ask::Acked { id } => self.step(Event::Acked { id }, turn),
            Ask::GoingIdle { epoch } if planted(Planted::GrantsWithoutFlip) => {
                turn.effects.push(Effect::GrantIdle { epoch });
            }
            Ask::GoingIdle { epoch } => self.step(Event::GoingIdle { epoch }, turn),
            Ask::Closed { epoch } => {
                self.wires.remove(&epoch);
                self.step(Event::Closed { epoch }, turn);
            }
            Ask::Interrupt { session_key, chat_id, by } => self.interrupt(session_key, chat_id, by),
            Ask::Check { good } => {
                let gone = self.wires.values().filter(|wire| !good.contains(&wire.gateway));
                gone.for_each(|wire| wire.close(close::UNAUTHORIZED, close::REFUSED));
            }
            Ask::Look(asked) => {
                let _ = asked.send(self.seen());
            }
        }
    }

    fn step(&mut self, event: Event, turn: &mut Turn) {
        let Decision { writes, effects } = self.session.step(clock::now(), event, &self.shell.terms);
        turn.books.writes.extend(writes);
        if planted(Planted::DeletesOnDelivery) {
            let sent = effects.iter().filter_map(|effect| match effect {
                Effect::Deliver { id, .. } => Some(Write::Delete { id: id.clone() }),
                _other => None,
            });
            turn.books.writes.extend(sent);
        }
        turn.effects.extend(effects);
    }

    /// Whoever wrote what is not kept hears of it, once in each chat.
    fn tell_of_overflow(&mut self, routes: Vec<Route>) {
        if self.session.backlog() == 0 {
            self.told.clear();
        }
        for route in routes {
            let chat = (route.platform, route.chat_id.clone());
            if self.told.len() < MOST_TOLD && self.told.insert(chat) {
                say::say(&self.shell, route, FULL);
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
                    if code == close::SUPERSEDED && self.counts.superseded(Instant::now()) {
                        tracing::warn!(instance = self.id, "its sockets keep taking over from each other");
                    }
                    if let Some(wire) = self.wires.remove(&epoch) {
                        wire.close(code, "");
                    }
                }
                Effect::Poke => self.poke(),
                Effect::Overflowed => {
                    tracing::error!(instance = self.id, "its queue is full; what comes now is put aside");
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
            return; // it ended, which is the next thing we hear
        }
        let found = match fresh.get(id) {
            Some(arrival) => Ok(Some((arrival.entry.carries, arrival.payload.clone()))),
            None => self.shell.queue.payload(id).await,
        };
        match found.map(|found| found.and_then(|(carries, payload)| line(&payload, carries, buffer))) {
            Ok(Some(line)) => self.write(epoch, line),
            Ok(None) => {
                tracing::error!(instance = self.id, id, "an entry cannot be read; it will be put aside")
            }
            Err(error) => {
                tracing::warn!(instance = self.id, %error, "what is owed cannot be read; the socket is closed");
                self.drop_wire(epoch);
            }
        }
    }

    /// One that does not read what it is sent is closed: nothing may be left out.
    fn write(&mut self, epoch: u64, line: String) {
        let Some(wire) = self.wires.get(&epoch) else { return };
        if !wire.write(line) {
            tracing::warn!(instance = self.id, "a socket does not take what it is sent");
            self.drop_wire(epoch);
        }
    }

    fn drop_wire(&mut self, epoch: u64) {
        if let Some(wire) = self.wires.remove(&epoch) {
            wire.close(close::INTERNAL, "");
        }
    }

    fn interrupt(&self, session_key: String, chat_id: String, by: u64) {
        let Some((epoch, wire)) =
            self.session.epoch().and_then(|epoch| Some((epoch, self.wires.get(&epoch)?)))
        else {
            return; // nothing runs where nobody is
        };
        let frame = FromConnector::Interrupt { session_key, chat_id };
        if let (true, Ok(line)) = (epoch != by, frame.line()) {
            wire.write(line);
        }
    }

    fn poke(&self) {
        petasos_runtime::spawn(crate::wake::poke(self.shell.clone(), self.id.clone()));
    }

    /// `false`: the connector stops.
    async fn read_back(&mut self) -> bool {
        loop {
            match self.shell.queue.list(&self.id).await {
                Ok(session) => {
                    self.session = session;
                    return true;
                }
                Err(error) => tracing::error!(instance = self.id, %error, "its queue cannot be read"),
            }
            petasos_runtime::select! {
                () = self.shell.stopper.stopped() => return false,
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }

    fn seen(&self) -> Seen {
        let mode = match self.session.mode() {
            Mode::Live => "live",
            Mode::Draining => "draining",
            Mode::Idle => "idle",
            Mode::Gone => "gone",
        };
        let gateways = self.wires.values().map(|wire| wire.gateway.clone()).collect();
        Seen { mode, backlog: self.session.backlog(), gateways, counts: self.counts.clone() }
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
