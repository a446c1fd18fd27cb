//! Our end: `platforms/relay/link.rs`, `commit.rs`, `wire.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use petasos_core::link;
use petasos_core::{Fault, Inbound, Millis, Reached};
use petasos_relay::channel::{self, Channel, Effect, State, Terms};
use petasos_relay::frame::hellos;
use petasos_relay::{Action, Answer, Descriptor, Event as Message, FromConnector, FromGateway, REFUSED};

use super::{BOT, Event, PLATFORM};
use crate::outside::{About, Ask, Class, Failed};
use crate::plant::Bug;
use crate::promise::Promise;
use crate::shell::{Flight, Lane, STORE_RETRY};
use crate::sim::{Flow, Halt, Sim};

const ANSWERED_WITHIN: u64 = 30_000;
const PING_EVERY: u64 = 30_000;
const LONGEST_TROUBLE: Duration = Duration::from_secs(30);
const SETTLE: Duration = Duration::from_secs(5);
/// Frames in one commit.
const BATCH: usize = 64;

/// What one process has of the relay.
#[derive(Debug)]
pub(crate) struct Near {
    pub(super) channel: Channel,
    /// The generation of the supervised link that it is.
    link: u64,
    pub(super) wire: Option<u64>,
    /// Read, and not on disk yet.
    queue: VecDeque<Told>,
    overflowed: bool,
    /// A commit is under way, or waits for a store that refuses.
    committing: bool,
    /// Since when nothing can be kept.
    troubled: Option<Millis>,
    /// Who waits for which answer.
    pending: BTreeMap<String, (String, u64)>,
    pub(super) granted: Option<Millis>,
    pub(crate) descriptor: Option<Descriptor>,
    /// When somebody wrote to us last.
    pub(crate) traffic: Millis,
}

#[derive(Debug)]
struct Told {
    number: usize,
    inbound: Box<Inbound>,
    buffer: Option<String>,
    generation: u64,
}

impl Near {
    pub(crate) fn new(now: Millis) -> Self {
        Self {
            channel: Channel::new(false, &Terms::default()),
            link: 0,
            wire: None,
            queue: VecDeque::new(),
            overflowed: false,
            committing: false,
            troubled: None,
            pending: BTreeMap::new(),
            granted: None,
            descriptor: None,
            traffic: now,
        }
    }

    /// Everything that was read is on disk.
    fn has_kept_all(&self) -> bool {
        self.queue.is_empty() && !self.committing
    }
}

impl Sim {
    /// A new connection of the supervised link.
    pub(crate) fn relay_connect(&mut self, generation: u64) -> Flow {
        self.relay_drop();
        let near = &mut self.p().near;
        near.link = generation;
        near.channel = Channel::new(near.descriptor.is_some(), &Terms::default());
        self.relay_later(Event::Beat { life: self.life }, PING_EVERY);
        self.feed_channel(channel::Event::Connect)
    }

    /// Dropping the link closes the connection; what was not acknowledged comes again.
    pub(crate) fn relay_drop(&mut self) {
        self.abandon();
        self.close_wire();
        let near = &mut self.p().near;
        (near.queue, near.granted) = (VecDeque::new(), None);
        near.channel.state = State::Closed;
    }

    pub(super) fn feed_channel(&mut self, event: channel::Event) -> Flow {
        let (roll, now) = (self.chance.below(1001), self.time);
        let channel = self.p().near.channel.clone();
        let (channel, effects) = channel.step(now, roll, event, &Terms::default());
        self.p().near.channel = channel;
        for effect in effects {
            self.act(effect)?;
        }
        let (due, link) = {
            let near = &self.p().near;
            (near.channel.due(&Terms::default()), near.link)
        };
        if let Some(due) = due {
            self.relay_later(Event::Tick { life: self.life }, due.since(now).as_millis() as u64);
        }
        if let State::Waiting { .. } = self.p().near.channel.state {
            let (generation, reason) = (link, "relay_not_connected".to_owned());
            self.feed_link(Class::Relayed.platform(), link::Event::Troubled { generation, reason })?;
        }
        Ok(())
    }

    fn act(&mut self, effect: Effect) -> Flow {
        match effect {
            Effect::Dial { generation } => {
                self.close_wire();
                self.relay_soon(Event::Dialled { life: self.life, generation }, 5, 400);
            }
            Effect::Hello => {
                hellos(&[(PLATFORM.into(), BOT.into())]).iter().for_each(|hello| self.tell_connector(hello));
            }
            Effect::Up => self.alive()?,
            Effect::GoingIdle => self.tell_connector(&FromGateway::GoingIdle),
            Effect::Answer { granted: true } => {
                self.p().near.granted = Some(self.time.after(SETTLE));
                self.relay_later(Event::Tick { life: self.life }, SETTLE.as_millis() as u64);
                self.settle()?;
            }
            Effect::Answer { granted: false } => {}
            Effect::Abandon => self.abandon(),
            Effect::Close => self.close_wire(),
            Effect::GiveUp => {
                let (code, reason) = ("relay_lost".to_owned(), "no connection".to_owned());
                let (generation, fault) = (self.p().near.link, Fault::Later { after: None });
                let broke = link::Event::Broke { generation, fault, code, reason };
                self.feed_link(Class::Relayed.platform(), broke)?;
            }
            Effect::Revoked => return Err(Halt::broken(Promise::G7, "a wanted gateway counts as revoked")),
        }
        Ok(())
    }

    /// Something came in.
    fn alive(&mut self) -> Flow {
        let (platform, now) = (Class::Relayed.platform(), self.time);
        let generation = self.p().near.link;
        if let Some(line) = self.p().lines.get_mut(&platform)
            && line.link.generation == generation
        {
            line.heard = Some(now);
        }
        self.feed_link(platform, link::Event::Alive { generation })
    }

    pub(super) fn dialled(&mut self, generation: u64) -> Flow {
        let channel = &self.p().near.channel;
        if channel.generation != generation || channel.state != State::Dialing {
            return Ok(());
        }
        if self.relay.connector.is_none() || self.fails(self.plan.wire_odds * 4) {
            return self.feed_channel(channel::Event::DialFailed { generation });
        }
        let wire = self.string_wire(generation);
        self.p().near.wire = Some(wire);
        self.feed_channel(channel::Event::Dialled { generation })
    }

    fn close_wire(&mut self) {
        let near = &mut self.p().near;
        near.overflowed = false;
        near.granted = None;
        if let Some(wire) = near.wire.take() {
            self.close_ours(wire);
        }
    }

    pub(super) fn our_wire_ended(
        &mut self,
        wire: u64,
        generation: u64,
        close: Option<channel::Closed>,
    ) -> Flow {
        if self.process.as_ref().is_none_or(|process| process.near.wire != Some(wire)) {
            return Ok(());
        }
        self.close_wire();
        self.feed_channel(channel::Event::Lost { generation, close })
    }

    fn tell_connector(&mut self, frame: &FromGateway) {
        if let (Some(wire), Ok(line)) = (self.p().near.wire, frame.line()) {
            self.say_up(wire, line);
        }
    }

    pub(super) fn our_line(&mut self, wire: u64, line: &str) -> Flow {
        let generation = match self.relay.wires.get(&wire) {
            Some(found) if self.process.as_ref().is_some_and(|it| it.near.wire == Some(wire)) => {
                found.generation
            }
            _of_nobody => return Ok(()),
        };
        let unread = |what: String| Halt::broken(Promise::G1, format!("a line cannot be read: {what}"));
        match FromConnector::read(line.trim_end().as_bytes()) {
            Ok(Some(FromConnector::Descriptor(found))) => {
                self.p().near.descriptor = Some(Descriptor::read(&found, PLATFORM, |_| {}));
                self.feed_channel(channel::Event::Descriptor { generation })
            }
            Ok(Some(FromConnector::Inbound { event, buffer })) => {
                let read = Message::read(&event).map_err(|why| unread(why.to_string()))?;
                let dedup = read.identity(buffer.as_deref(), String::new).unwrap_or_default();
                let inbound = read.inbound(format!("{BOT}:{dedup}"), false);
                self.told(inbound, buffer, generation);
                Ok(())
            }
            Ok(Some(FromConnector::Answer { request, answer })) => {
                if let Some((lane, op)) = self.p().near.pending.remove(&request) {
                    let answer = if answer.success { Ok(answer.message_id) } else { Err(failed(&answer)) };
                    self.soon(crate::shell::Event::Sent { life: self.life, lane, op, answer }, 0, 5);
                }
                Ok(())
            }
            Ok(Some(FromConnector::IdleAck)) => self.feed_channel(channel::Event::IdleAck { generation }),
            other => Err(unread(format!("{other:?}"))),
        }
    }

    fn told(&mut self, inbound: Inbound, buffer: Option<String>, generation: u64) {
        let name = inbound.source.message_id.as_deref().and_then(|id| id.strip_prefix("in"));
        let number = name.and_then(|name| name.parse().ok()).unwrap_or_default();
        if let (Some(Bug::AcksFirst), Some(buffer)) = (self.bug, buffer.clone()) {
            self.tell_connector(&FromGateway::Ack { buffer });
        }
        let most = self.plan.room;
        let near = &mut self.p().near;
        if near.overflowed || near.queue.len() >= most {
            near.overflowed = true;
        } else {
            let inbound = Box::new(inbound);
            near.queue.push_back(Told { number, inbound, buffer, generation });
        }
        self.commit_soon();
    }

    fn commit_soon(&mut self) {
        let life = self.life;
        if !std::mem::replace(&mut self.p().near.committing, true) {
            self.relay_soon(Event::Keep { life }, 0, 150);
        }
    }

    /// One transaction; acknowledged only afterwards. What is not taken waits, and nothing overtakes it.
    pub(super) fn keep_told(&mut self) -> Flow {
        let now = self.now;
        let near = &mut self.p().near;
        near.committing = false;
        let told: Vec<_> = near.queue.drain(..near.queue.len().min(BATCH)).collect();
        if told.is_empty() {
            return self.settle();
        }
        near.traffic = now;
        let batch = told.iter().map(|it| (it.number, (*it.inbound).clone())).collect();
        match self.take(&super::connector::link(), batch, None) {
            Ok(()) => {
                self.p().near.troubled = None;
                told.into_iter().for_each(|told| self.tell_kept(told));
            }
            Err(Halt::Full) => return self.put_back(told),
            Err(halt) => return Err(halt),
        }
        let near = &self.p().near;
        if near.overflowed && near.queue.is_empty() {
            let generation = near.channel.generation;
            self.feed_channel(channel::Event::Overflowed { generation })?;
        }
        if !self.p().near.queue.is_empty() {
            self.commit_soon();
        }
        self.settle()
    }

    /// `Waiting::put_back`.
    fn put_back(&mut self, told: Vec<Told>) -> Flow {
        let now = self.time;
        let near = &mut self.p().near;
        told.into_iter().rev().for_each(|told| near.queue.push_front(told));
        near.committing = true;
        let since = *near.troubled.get_or_insert(now);
        let (wire, generation) = (near.wire, near.channel.generation);
        self.relay_later(Event::Keep { life: self.life }, STORE_RETRY);
        if now.since(since) >= LONGEST_TROUBLE && self.bug != Some(Bug::StaysConnected) {
            self.p().near.troubled = None;
            if let Some(wire) = wire {
                self.our_wire_ended(wire, generation, None)?;
            }
        }
        self.settle()
    }

    fn tell_kept(&mut self, told: Told) {
        let generation = self.p().near.channel.generation;
        if let Some(buffer) = told.buffer.filter(|_| told.generation == generation)
            && self.bug != Some(Bug::AcksFirst)
        {
            self.tell_connector(&FromGateway::Ack { buffer });
        }
    }

    /// A grant counts when everything that came before it is on disk.
    pub(super) fn settle(&mut self) -> Flow {
        let now = self.time;
        let near = &mut self.p().near;
        let Some(until) = near.granted else { return Ok(()) };
        if near.has_kept_all() {
            near.granted = None;
            return self.lie_down();
        }
        if now >= until {
            near.granted = None;
            return self.feed_channel(channel::Event::Wake);
        }
        Ok(())
    }

    pub(super) fn beat(&mut self) -> Flow {
        self.relay_later(Event::Beat { life: self.life }, PING_EVERY);
        let wire = self.p().near.wire.and_then(|wire| self.relay.wires.get(&wire));
        if wire.is_some_and(|wire| wire.is_whole()) { self.alive() } else { Ok(()) }
    }

    /// `Relay::send`, `edit`, `delete`: one question over the shared connection.
    pub(crate) fn ask_connector(&mut self, lane: &mut Lane, ask: Ask, about: About, flight: Flight) {
        let op = self.p().number();
        lane.flight = Some((op, flight));
        let chat_id = lane.name.split_once(':').map_or("", |(_, chat)| chat).to_owned();
        let metadata = Default::default();
        let (request, action) = match ask {
            Ask::Send { text, key } => {
                (key, Action::Send { chat_id, content: text, reply_to: None, metadata })
            }
            Ask::Edit { message: message_id, text } => {
                let action = Action::Edit { chat_id, message_id, content: text, metadata };
                (format!("u{}", self.relay.number()), action)
            }
            Ask::Delete { message: message_id } => {
                let action = Action::Delete { chat_id, message_id, metadata };
                (format!("u{}", self.relay.number()), action)
            }
        };
        let near = &mut self.p().near;
        let serving = matches!(near.channel.state, State::Serving { .. });
        if !serving || near.wire.is_none() {
            let answer = Err(Failed::later(Reached::No));
            let sent = crate::shell::Event::Sent { life: self.life, lane: lane.name.clone(), op, answer };
            return self.soon(sent, 0, 5);
        }
        near.pending.insert(request.clone(), (lane.name.clone(), op));
        self.relay.abouts.insert(request.clone(), about);
        self.tell_connector(&FromGateway::outbound(
            request.clone(),
            &action,
            Some((PLATFORM.into(), Some(BOT.into()))),
        ));
        self.relay_later(Event::Unanswered { life: self.life, request, op }, ANSWERED_WITHIN);
    }

    pub(super) fn unanswered(&mut self, request: &str, op: u64) -> Flow {
        let pending = &mut self.p().near.pending;
        if pending.get(request).is_some_and(|(_, current)| *current == op)
            && let Some((lane, op)) = pending.remove(request)
        {
            let answer = Err(Failed::later(Reached::Maybe));
            self.soon(crate::shell::Event::Sent { life: self.life, lane, op, answer }, 0, 5);
        }
        Ok(())
    }

    /// What waits for an answer will not get one.
    fn abandon(&mut self) {
        for (_, (lane, op)) in std::mem::take(&mut self.p().near.pending) {
            let answer = Err(Failed::later(Reached::Maybe));
            self.soon(crate::shell::Event::Sent { life: self.life, lane, op, answer }, 0, 5);
        }
    }
}

/// `Error::of`.
fn failed(answer: &Answer) -> Failed {
    let after = answer.retry_after.map(Duration::from_secs);
    let refused = |dead_chat| Failed { fault: Fault::Refused, reached: Reached::No, dead_chat };
    match answer.code.as_deref() {
        _ if answer.is_declined() => refused(true),
        _ if answer.ambiguous => {
            Failed { fault: Fault::Later { after }, reached: Reached::Untold, dead_chat: false }
        }
        Some(REFUSED) => refused(false),
        Some("forbidden") => refused(true),
        Some(_) | None => Failed { fault: Fault::Later { after }, reached: Reached::No, dead_chat: false },
    }
}
