//! The other end: `intake.rs`, `instance.rs`, `queue.rs` of the connector. Everything here but the store is lost when it
//! dies.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use petasos_core::message::Delivery;
use petasos_core::session::session_key;
use petasos_core::text::Unit;
use petasos_core::{LinkId, Millis, Platform, Route};
use petasos_relay::session::{Carries, Decision, Effect, Entry, Event as Step, Write};
use petasos_relay::{Descriptor, Event as Message, FromConnector, FromGateway, Session, close};
use petasos_store::connector::{Arrival, Chat};
use petasos_store::{Store, Tx};

use super::{BOT, Event, INSTANCE, PLATFORM};
use crate::outside::Class;
use crate::plant::Bug;
use crate::promise::Promise;
use crate::sim::{Flow, Halt, Sim};

#[derive(Debug)]
pub(crate) struct Connector {
    pub(crate) store: Store,
    session: Session,
    /// The sockets of the instance, by the numbers that the store gave them.
    pub(super) wires: BTreeMap<u64, u64>,
    asks: Vec<Ask>,
    /// Where the platform's cursor goes when what was taken is on disk.
    taking: Option<u64>,
    /// Questions under way, and the wires that wait for their answers.
    pub(super) open: BTreeMap<String, Vec<u64>>,
}

#[derive(Debug)]
enum Ask {
    Arrived(Box<Arrival>),
    Hello { epoch: u64, wire: u64 },
    Acked { id: String },
    GoingIdle { epoch: u64 },
    Closed { epoch: u64 },
}

impl Connector {
    pub(super) fn is_at_rest(&self) -> bool {
        self.session.backlog() == 0 && self.asks.is_empty() && self.taking.is_none() && self.open.is_empty()
    }
}

impl Sim {
    pub(super) fn start_connector(&mut self) -> Flow {
        if self.relay.connector.is_some() {
            return Ok(());
        }
        let store = Store::open_connector(&self.relay.path).expect("the connector's database opens");
        let (wires, open) = (BTreeMap::new(), BTreeMap::new());
        let (session, asks) = (Session::default(), vec![]);
        self.relay.connector = Some(Connector { store, session, wires, asks, taking: None, open });
        let now = self.their_now();
        let enrolled = self.their_commit("enrol", |tx| {
            tx.add_tenant("t1", now)?;
            tx.ensure_instance(INSTANCE, "t1", now)
        });
        if Self::unless_full(enrolled)?.is_none() {
            self.connector_gone();
            return Ok(());
        }
        self.read_back();
        self.ask_turn();
        self.relay_soon(Event::Poll { life: self.relay.life }, 5, 200);
        Ok(())
    }

    pub(crate) fn far(&mut self) -> &mut Connector {
        self.relay.connector.as_mut().expect("a running connector")
    }

    fn read_back(&mut self) {
        let far = self.far();
        let (entries, idle) = far.store.owed_to(INSTANCE).expect("the queue is read");
        far.session = Session::recover(entries, idle);
    }

    fn ask_turn(&mut self) {
        self.relay_soon(Event::Turn { life: self.relay.life }, 0, 20);
    }

    /// The platform hears from us: whatever lies before the cursor, it forgets.
    pub(super) fn their_poll(&mut self) -> Flow {
        let life = self.relay.life;
        let cursor = self.far().store.cursor(&link()).unwrap_or_default();
        let offset = cursor.and_then(|cursor| cursor.parse().ok());
        if let Some(offset) = offset {
            self.world.acknowledged(Class::Relayed, offset);
        }
        if self.fails(self.plan.poll_odds) {
            self.relay_soon(Event::Poll { life }, 1_000, 20_000);
            return Ok(());
        }
        let mut batch = self.world.updates(Class::Relayed, offset);
        batch.truncate(10);
        if batch.is_empty() {
            let wait = self.until_somebody_writes();
            self.relay_later(Event::Poll { life }, wait + 1);
            return Ok(());
        }
        if self.fails(self.plan.poll_odds) {
            let again = batch.clone();
            batch.extend(again);
        }
        self.relay_soon(Event::Polled { life, batch }, 1, 300);
        Ok(())
    }

    /// `Intake::take`.
    pub(super) fn their_polled(&mut self, batch: Vec<usize>) -> Flow {
        let cursor = batch.iter().max().map(|number| *number as u64).unwrap_or_default();
        let mut here = BTreeSet::new();
        if self.bug == Some(Bug::CursorBeforeQueue) {
            let early = self.their_commit("cursor", |tx| tx.put_cursor(&link(), &cursor.to_string()));
            Self::unless_full(early)?;
        }
        for number in batch {
            let arrival = self.arrival(number);
            let (link, dedup) = &arrival.seen;
            let known = self.far().store.was_seen(link, dedup).expect("what was seen is read");
            if here.insert(number) && !known {
                self.relay.entries.insert(arrival.entry.id.clone(), number);
                self.far().asks.push(Ask::Arrived(Box::new(arrival)));
            }
        }
        self.far().taking = Some(cursor);
        self.ask_turn();
        Ok(())
    }

    fn arrival(&mut self, number: usize) -> Arrival {
        let (inbound, now) = (self.inbound(number), self.their_now());
        let id = format!("{:020}.{:06}", now.0, self.relay.number());
        let event = Message::tell(&inbound, |_| None);
        let size = event.to_string().len() as u64;
        let carries = Carries::Inbound;
        let entry = Entry { id, platform: PLATFORM.into(), carries, size, at: now, strikes: 0 };
        let source = &inbound.source;
        let chat = Chat {
            platform: source.platform,
            chat_id: Route::back_to(source, Delivery::Push).chat_id,
            session_key: session_key(source, &Default::default()).as_str().to_owned(),
            thread_id: None,
            scope_id: None,
            chat_type: source.chat_type.as_str().to_owned(),
            name: None,
        };
        let seen = (link(), inbound.dedup);
        Arrival { entry, payload: event.to_string(), seen, chat: Some(chat) }
    }

    /// `Conversation::hear`.
    pub(super) fn their_line(&mut self, wire: u64, line: &str) -> Flow {
        let epoch = self.relay.wires.get(&wire).and_then(|wire| wire.epoch);
        let frame = FromGateway::read(line.trim_end().as_bytes());
        let frame = frame.ok().flatten().ok_or_else(|| Halt::broken(Promise::G4, "a line cannot be read"))?;
        let ask = match (frame, epoch) {
            (FromGateway::Hello { .. }, None) => return self.their_hello(wire),
            (FromGateway::Ack { buffer }, Some(_)) => Ask::Acked { id: buffer },
            (FromGateway::GoingIdle, Some(epoch)) => Ask::GoingIdle { epoch },
            (FromGateway::Outbound { request, action, .. }, Some(_)) => {
                return self.their_question(wire, request, &action);
            }
            _before_the_hello => return Ok(()),
        };
        self.far().asks.push(ask);
        self.ask_turn();
        Ok(())
    }

    fn their_hello(&mut self, wire: u64) -> Flow {
        let claimed = self.their_commit("claim", |tx| tx.claim_instance(INSTANCE, "n1"));
        let epoch = match claimed {
            Ok(epoch) => epoch,
            Err(Halt::Full) => {
                self.close_theirs(wire, Some(close::INTERNAL));
                return Ok(());
            }
            Err(halt) => return Err(halt),
        };
        if let Some(found) = self.relay.wires.get_mut(&wire) {
            found.epoch = Some(epoch);
        }
        if let Ok(line) = FromConnector::descriptor(&descriptor()).line() {
            self.say_down(wire, line);
        }
        self.far().asks.push(Ask::Hello { epoch, wire });
        self.ask_turn();
        Ok(())
    }

    pub(super) fn their_wire_ended(&mut self, epoch: Option<u64>) {
        if let (Some(epoch), Some(far)) = (epoch, &mut self.relay.connector) {
            far.asks.push(Ask::Closed { epoch });
            self.ask_turn();
        }
    }

    /// Whatever waits is decided at once, committed as one transaction, and only then carried out.
    pub(super) fn their_turn(&mut self) -> Flow {
        let asks = std::mem::take(&mut self.far().asks);
        let ticks = asks.is_empty() || asks.iter().any(|ask| matches!(ask, Ask::Closed { .. }));
        let (mut fresh, mut all) = (BTreeMap::new(), Decision::default());
        for ask in asks {
            self.decide(ask, &mut fresh, &mut all);
        }
        if ticks {
            self.their_step(Step::Tick, &mut all);
        }
        let Decision { writes, effects } = all;
        match self.their_books(&writes, &fresh) {
            Ok(()) => {}
            Err(Halt::Full) => return self.their_disk_is_full(),
            Err(halt) => return Err(halt),
        }
        if let Some(cursor) = self.far().taking.take() {
            match self.their_commit("cursor", |tx| tx.put_cursor(&link(), &cursor.to_string())) {
                Ok(()) => self.relay_soon(Event::Poll { life: self.relay.life }, 5, 200),
                Err(Halt::Full) => self.relay_soon(Event::Poll { life: self.relay.life }, 1_000, 5_000),
                Err(halt) => return Err(halt),
            }
        }
        for effect in effects {
            self.carry_out(effect, &fresh)?;
        }
        let (terms, now) = (self.plan.session, self.their_now());
        if let Some(due) = self.far().session.due(&terms) {
            let wait = due.since(now).as_millis() as u64;
            self.relay_later(Event::Turn { life: self.relay.life }, wait.max(1));
        }
        Ok(())
    }

    fn decide(&mut self, ask: Ask, fresh: &mut BTreeMap<String, Arrival>, all: &mut Decision) {
        match ask {
            Ask::Arrived(arrival) => {
                let entry = arrival.entry.clone();
                fresh.insert(entry.id.clone(), *arrival);
                self.their_step(Step::Arrived(entry), all);
            }
            Ask::Hello { epoch, wire } => {
                self.far().wires.insert(epoch, wire);
                self.their_step(Step::Hello { epoch, platform: PLATFORM.into() }, all);
                if self.far().session.epoch() != Some(epoch) {
                    all.effects.push(Effect::Close { epoch, code: close::SUPERSEDED });
                }
            }
            Ask::Acked { id } => self.their_step(Step::Acked { id }, all),
            Ask::GoingIdle { epoch } if self.bug == Some(Bug::GrantsWithoutFlip) => {
                all.effects.push(Effect::GrantIdle { epoch });
            }
            Ask::GoingIdle { epoch } => self.their_step(Step::GoingIdle { epoch }, all),
            Ask::Closed { epoch } => {
                self.far().wires.remove(&epoch);
                self.their_step(Step::Closed { epoch }, all);
            }
        }
    }

    fn their_step(&mut self, event: Step, all: &mut Decision) {
        let (now, terms) = (self.their_now(), self.plan.session);
        let Decision { writes, effects } = self.far().session.step(now, event, &terms);
        if self.bug == Some(Bug::DeletesOnDelivery) {
            let sent = effects.iter().filter_map(|effect| match effect {
                Effect::Deliver { id, .. } => Some(Write::Delete { id: id.clone() }),
                _other => None,
            });
            all.writes.extend(writes.into_iter().chain(sent));
        } else {
            all.writes.extend(writes);
        }
        all.effects.extend(effects);
    }

    /// `Queue::commit`.
    fn their_books(&mut self, writes: &[Write], fresh: &BTreeMap<String, Arrival>) -> Flow {
        if writes.is_empty() {
            return Ok(());
        }
        let (now, done) = (self.their_now(), Cell::new(false));
        let kept = self.their_commit("queue", |tx| {
            keep(tx, writes, fresh, now)?;
            done.set(true);
            Ok(())
        });
        for write in writes.iter().filter(|_| done.get()) {
            self.their_witness(write)?;
        }
        kept
    }

    /// What is on disk there, whether it lives to see it or not.
    fn their_witness(&mut self, write: &Write) -> Flow {
        match write {
            Write::Append { id } => {
                let number = self.relay.entries[id];
                if self.world.said[number].buffer.replace(id.clone()).is_some() {
                    return Err(Halt::broken(Promise::G3, format!("[m{number}] has two numbers")));
                }
            }
            Write::Bury { id, .. } => {
                let number = self.relay.entries[id];
                let excused = u64::from(self.relay.stalls) + self.figures.jumps;
                if excused < u64::from(self.plan.session.strikes) {
                    let what = format!("[m{number}] was put aside, and nothing is wrong with it");
                    return Err(Halt::broken(Promise::G2, what));
                }
                self.world.said[number].aside = true;
            }
            Write::Delete { .. } | Write::Strike { .. } | Write::Flip { .. } => {}
        }
        Ok(())
    }

    /// Nothing is carried out; everything begins anew from what is stored.
    fn their_disk_is_full(&mut self) -> Flow {
        for (_, wire) in std::mem::take(&mut self.far().wires) {
            self.close_theirs(wire, Some(close::INTERNAL));
        }
        self.read_back();
        if self.far().taking.take().is_some() {
            self.relay_soon(Event::Poll { life: self.relay.life }, 1_000, 5_000);
        }
        self.relay_later(Event::Turn { life: self.relay.life }, 1_000);
        Ok(())
    }

    fn carry_out(&mut self, effect: Effect, fresh: &BTreeMap<String, Arrival>) -> Flow {
        match effect {
            Effect::Deliver { epoch, id } => self.deliver(epoch, &id, Some(id.clone()), fresh),
            Effect::Pass { epoch, id } => self.deliver(epoch, &id, None, fresh),
            Effect::GrantIdle { epoch } => {
                if let (Some(wire), Ok(line)) = (self.wire_of(epoch), FromConnector::IdleAck.line()) {
                    self.say_down(wire, line);
                    self.relay.wires.entry(wire).and_modify(|wire| wire.granted = true);
                    self.figures.grants += 1;
                }
                Ok(())
            }
            Effect::Close { epoch, code } => {
                if let Some(wire) = self.far().wires.remove(&epoch) {
                    self.close_theirs(wire, Some(code));
                    self.their_wire_ended(Some(epoch));
                }
                Ok(())
            }
            Effect::Poke => {
                self.relay_soon(Event::Poke, 50, 3_000);
                Ok(())
            }
            Effect::Overflowed => Err(Halt::broken(Promise::G9, "a queue overflows that has room enough")),
        }
    }

    fn wire_of(&mut self, epoch: u64) -> Option<u64> {
        self.far().wires.get(&epoch).copied()
    }

    fn deliver(
        &mut self,
        epoch: u64,
        id: &str,
        buffer: Option<String>,
        fresh: &BTreeMap<String, Arrival>,
    ) -> Flow {
        let Some(wire) = self.wire_of(epoch) else { return Ok(()) };
        if self.relay.wires.get(&wire).is_some_and(|wire| wire.granted) {
            return Err(Halt::broken(Promise::G1, "something is sent behind the grant"));
        }
        let payload = match fresh.get(id) {
            Some(arrival) => Some(arrival.payload.clone()),
            None => self.far().store.payload(id).expect("what is owed is read").map(|(_, payload)| payload),
        };
        let event = payload.and_then(|payload| serde_json::from_str(&payload).ok());
        let line = event.and_then(|event| FromConnector::Inbound { event, buffer }.line().ok());
        if let Some(line) = line {
            self.say_down(wire, line);
        }
        Ok(())
    }
}

fn keep(
    tx: &Tx<'_>,
    writes: &[Write],
    fresh: &BTreeMap<String, Arrival>,
    now: Millis,
) -> petasos_store::Result<()> {
    for write in writes {
        match write {
            Write::Append { id } => tx.enqueue(INSTANCE, &fresh[id])?,
            Write::Delete { id } => tx.acknowledge(INSTANCE, id)?,
            Write::Strike { id, strikes } => tx.strike(id, *strikes)?,
            Write::Bury { id, why } => tx.put_aside(id, *why, now)?,
            Write::Flip { idle } => tx.flip(INSTANCE, *idle)?,
        }
    }
    Ok(())
}

pub(super) fn link() -> LinkId {
    LinkId { platform: Platform::named(PLATFORM), account: BOT.into() }
}

fn descriptor() -> Descriptor {
    Descriptor {
        contract_version: 1,
        platform: PLATFORM.into(),
        label: "Slack".into(),
        max_message_length: 4096,
        supports_draft_streaming: false,
        supports_edit: true,
        supports_threads: false,
        markdown_dialect: "plain".into(),
        len_unit: Unit::Chars,
        emoji: String::new(),
        platform_hint: String::new(),
        pii_safe: false,
        supports_context: false,
        supports_inchannel_continuable: false,
        supports_block_formatting: false,
        supported_ops: ["send", "edit", "delete"].map(str::to_owned).to_vec(),
        request_memory: super::outbound::MEMORY.as_secs(),
    }
}
