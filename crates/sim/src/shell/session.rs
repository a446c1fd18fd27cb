//! `router.rs`, `session/mod.rs`, `session/recover.rs`, `session/admit.rs`, `session/begin.rs`.

use std::cell::Cell;
use std::collections::VecDeque;

use petasos_core::admission::{Ack, Activity, Admission, Arrival, BusyMode, QUEUE_CAP, Refusal, admit};
use petasos_core::command::{self as slash, Name, Parsed};
use petasos_core::journal::{Outcome, Write};
use petasos_core::lifecycle::{Claim, Closed};
use petasos_core::session::{Ask, Background, Fate, ResetPolicy, Window};
use petasos_core::transcript::Message;
use petasos_core::turn::{Event as Turning, Limits, Phase, Turn};
use petasos_core::{Inbound, InboxId, Millis, SessionKey};
use petasos_store::{Batch, Begun, Binding, Pending};

use super::turn::Work;
use super::{Event, LINGER, MAILBOX, Mailbox, STORE_RETRY, Word};
use crate::plant::Bug;
use crate::promise::Promise;
use crate::sim::{Flow, Halt, Sim};

#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) key: SessionKey,
    pub(crate) words: Mailbox,
    missed: bool,
    recovered: bool,
    pub(crate) queue: VecDeque<Waiting>,
    pub(crate) turn: Option<Turn>,
    /// The turn was found open and nobody has taken it up yet.
    pub(crate) parked: bool,
    pub(crate) barred: bool,
    pub(crate) work: Option<Work>,
    pub(crate) steering: Vec<Pending>,
    known_up_to: InboxId,
    pub(crate) acked_at: Option<Millis>,
    pub(crate) resumed: bool,
    idle_since: Millis,
}

#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    pub(crate) pending: Pending,
    pub(crate) alone: bool,
    promised: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Promised {
    Given,
    NotYet,
}

impl Session {
    fn new(key: SessionKey, now: Millis) -> Self {
        Self {
            key,
            words: VecDeque::new(),
            missed: false,
            recovered: false,
            queue: VecDeque::new(),
            turn: None,
            parked: false,
            barred: false,
            work: None,
            steering: vec![],
            known_up_to: InboxId(0),
            acked_at: None,
            resumed: false,
            idle_since: now,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.turn.is_none() && self.queue.is_empty() && self.steering.is_empty() && self.words.is_empty()
    }

    fn holds(&self, id: InboxId) -> bool {
        self.queue.iter().any(|it| it.pending.id == id) || self.steering.iter().any(|it| it.id == id)
    }
}

impl Sim {
    /// `Desk::tell`.
    pub(crate) fn tell(&mut self, key: SessionKey, word: Word) {
        let (now, life) = (self.time, self.life);
        let process = self.p();
        if process.stopping {
            return;
        }
        let fresh = !process.sessions.contains_key(&key);
        let session = process.sessions.entry(key.clone()).or_insert_with(|| Session::new(key.clone(), now));
        // A session that is just starting reads its inbox anyway; only `Resume` is for it, too.
        if !fresh || matches!(word, Word::Resume) {
            if session.words.len() < MAILBOX {
                session.words.push_back(word);
            } else {
                session.missed = true;
            }
        }
        self.soon(Event::Hear { life, key }, 0, 20);
    }

    /// One thing that a session hears, and the turn that may begin then.
    pub(crate) fn hear(&mut self, key: &SessionKey) -> Flow {
        let Some(mut session) = self.p().sessions.remove(key) else { return Ok(()) };
        let before = self.disk_is_full().then(|| session.clone());
        match self.hear_with(&mut session) {
            Err(Halt::Full) => {
                self.wait_for_room(key, before);
                self.later(Event::Hear { life: self.life, key: key.clone() }, STORE_RETRY);
                return Ok(());
            }
            heard => heard?,
        }
        let waiting = session.queue.len() + session.steering.len();
        let internal = session.queue.iter().filter(|it| it.pending.inbound.internal).count();
        let promised = session.queue.iter().filter(|it| it.promised).count();
        self.truth.queue(
            waiting,
            internal + if self.life > 1 { promised } else { 0 },
            session.words.len(),
        )?;
        let life = self.life;
        if session.is_idle() && self.time.since(session.idle_since) >= LINGER {
            return Ok(()); // it leaves; its state is in the store
        }
        if session.is_idle() {
            self.later(Event::Hear { life, key: key.clone() }, 61_000);
        } else {
            session.idle_since = self.time;
        }
        if !session.words.is_empty() {
            self.soon(Event::Hear { life, key: key.clone() }, 0, 20);
        }
        self.p().sessions.insert(key.clone(), session);
        Ok(())
    }

    /// The store refuses: what was just decided is decided again in a moment. All commits of one moment share their
    /// fate, so none of it is on disk.
    pub(crate) fn wait_for_room(&mut self, key: &SessionKey, before: Option<Session>) {
        let Some(before) = before else { return };
        let process = self.p();
        if before.turn.is_none() || before.parked {
            process.gate.holders.remove(key);
        }
        process.sessions.insert(key.clone(), before);
    }

    fn hear_with(&mut self, session: &mut Session) -> Flow {
        if !session.recovered {
            session.recovered = true;
            session.turn = self.p().store.open_turn_of(&session.key).unwrap_or_default();
            session.parked = session.turn.is_some();
            self.reload(session)?;
        } else if std::mem::take(&mut session.missed) {
            self.reload(session)?;
        }
        match session.words.pop_front() {
            Some(Word::Arrived(pending)) if pending.id > session.known_up_to => {
                self.take_in(session, *pending)?
            }
            Some(Word::Arrived(_)) | None => {}
            Some(Word::Look) => self.reload(session)?,
            Some(Word::Resume) => self.take_up_turn(session)?,
        }
        self.begin_all(session)
    }

    pub(crate) fn begin_all(&mut self, session: &mut Session) -> Flow {
        while session.turn.is_none() && !session.barred && !session.queue.is_empty() {
            self.begin(session)?;
        }
        Ok(())
    }

    fn take_in(&mut self, session: &mut Session, pending: Pending) -> Flow {
        if !pending.inbound.internal && slash::parse(&pending.inbound.text) != Parsed::Text {
            return self.command(session, pending);
        }
        let arrival = if pending.inbound.internal { Arrival::Internal } else { Arrival::Text };
        self.take_up_turn(session)?;
        self.admit(session, pending, arrival)
    }

    /// `Session::reload`.
    fn reload(&mut self, session: &mut Session) -> Flow {
        let store = &self.p().store;
        let queued = store.queued(&session.key).unwrap_or_default();
        session.known_up_to = store.newest().unwrap_or(InboxId(0));
        let started_at = self.p().started_at;
        for pending in queued {
            if session.holds(pending.id) {
                continue;
            }
            if pending.received_at >= started_at {
                self.take_in(session, pending)?;
                continue;
            }
            match slash::parse(&pending.inbound.text) {
                _ if pending.inbound.internal => {
                    self.enqueue(session, pending, Arrival::Internal, Promised::Given)
                }
                Parsed::Text => self.enqueue(session, pending, Arrival::Text, Promised::Given),
                Parsed::Known(Name::Queue, text)
                    if slash::parse(&text) == Parsed::Text && !text.is_empty() =>
                {
                    let inbound = Inbound { text, ..pending.inbound };
                    self.enqueue(session, Pending { inbound, ..pending }, Arrival::Queued, Promised::Given);
                }
                Parsed::Known(..) | Parsed::Unknown(_) => self.command(session, pending)?,
            }
        }
        Ok(())
    }

    /// `Session::take_up`.
    pub(crate) fn take_up_turn(&mut self, session: &mut Session) -> Flow {
        let (true, Some(turn)) = (session.parked, session.turn.clone()) else { return Ok(()) };
        let now = self.now;
        let process = self.p();
        if process.held.iter().any(|suspect| suspect.turn == turn.id) {
            return Ok(());
        }
        if !Window::default().holds(Some(now.since(process.started_at))) {
            let notice = Fate::Stale.notice().map(str::to_owned);
            return self.feed(session, Turning::GivenUp { notice });
        }
        if process.gate.claim(&session.key, Claim::Resumed).is_err() {
            return Ok(());
        }
        process.gate.holders.insert(session.key.clone(), Some(turn.id));
        let repeats = |name: &str| name == "read" || self.bug == Some(Bug::RepeatsTools);
        let repeatable = match &turn.phase {
            Phase::Acting { calls, .. } => {
                calls.iter().filter(|call| repeats(&call.name)).map(|call| call.id.clone()).collect()
            }
            Phase::Thinking | Phase::Over => vec![],
        };
        let id = turn.id;
        self.commit("taken up", move |tx| tx.turn_taken_up(id))?;
        session.parked = false;
        session.resumed = true;
        self.feed(session, Turning::Recovered { clean: true, repeatable, unstarted: vec![] })
    }

    /// `Session::admit`.
    pub(crate) fn admit(&mut self, session: &mut Session, pending: Pending, arrival: Arrival) -> Flow {
        if self.p().gate.keeps(pending.received_at) {
            self.enqueue(session, pending, arrival, Promised::Given);
            return Ok(());
        }
        let ack = match self.admission(session, arrival) {
            Admission::Refuse(why) => {
                return self.answer(session, &pending, why.text().into_owned(), Outcome::Refused);
            }
            Admission::Start => {
                self.enqueue(session, pending, arrival, Promised::NotYet);
                return Ok(());
            }
            Admission::Wait(ack) => {
                self.enqueue(session, pending.clone(), arrival, Promised::Given);
                ack
            }
            Admission::Interrupt(ack) => {
                self.enqueue(session, pending.clone(), arrival, Promised::Given);
                self.interrupt(session)?;
                ack
            }
            Admission::Steer(ack) => {
                session.steering.push(pending.clone());
                ack
            }
        };
        self.acknowledge(session, &pending, ack, arrival)
    }

    fn admission(&mut self, session: &Session, arrival: Arrival) -> Admission {
        let activity = match session.turn.as_ref().map(|turn| &turn.phase) {
            None => Activity::Idle,
            Some(Phase::Acting { .. }) => Activity::Acting,
            Some(Phase::Thinking | Phase::Over) => Activity::Thinking,
        };
        let mut waiting = session.queue.len() + session.steering.len();
        if self.bug == Some(Bug::EndlessQueue) {
            waiting = waiting.min(QUEUE_CAP - 1);
        }
        let mode = if session.resumed || session.parked { BusyMode::Queue } else { self.plan.busy };
        admit(mode, self.p().gate.life.door(), activity, arrival, waiting)
    }

    pub(crate) fn enqueue(
        &mut self,
        session: &mut Session,
        pending: Pending,
        arrival: Arrival,
        promise: Promised,
    ) {
        let at = session.queue.partition_point(|waiting| waiting.pending.id < pending.id);
        let alone = arrival != Arrival::Text;
        let promised = promise == Promised::Given || arrival == Arrival::Internal;
        session.queue.insert(at, Waiting { pending, alone, promised });
    }

    /// `Session::begin`: a place among those who work, then one commit.
    fn begin(&mut self, session: &mut Session) -> Flow {
        let internal = session.queue.front().is_some_and(|first| first.pending.inbound.internal);
        let claim = if internal { Claim::Internal } else { Claim::User };
        if let Err(closed) = self.p().gate.claim(&session.key, claim) {
            session.barred = true;
            return self.turned_away(session, closed);
        }
        if self.drain_asked && self.p().gate.life.drain().is_some() && claim == Claim::User {
            return Err(Halt::broken(Promise::G6, "a turn begins while somebody drains"));
        }
        let batch = take_batch(session);
        let Some(first) = batch.first().cloned() else { return Ok(()) };
        let now = self.now;
        let (key, source) = (session.key.clone(), first.inbound.source.clone());
        let rows = batch.iter().map(|it| Message::user(it.inbound.text.clone(), now)).collect();
        let inbox = batch.iter().map(|it| it.id).collect();
        let batch =
            Batch { route: self.route(&first.inbound), inbox, internal: first.inbound.internal, rows };
        let claimed = Cell::new(None);
        let begun = self.commit("begin", |tx| {
            let policy = ResetPolicy::default();
            let binding = Binding {
                key: &key,
                source: &source,
                ask: Ask::Continue,
                policy: &policy,
                window: Window::default(),
                background: Background::None,
            };
            let bound = tx.get_or_create(&binding, now)?;
            let begun = tx.begin_turn(&bound.entry, None, batch.clone(), Limits::default(), now)?;
            let claims = |turn: &Turn| Write::ClaimInbox { inbox: turn.inbox.clone(), turn: turn.id };
            claimed.set(begun.as_ref().map(|begun| claims(&begun.turn)));
            Ok(begun)
        });
        self.truth.committed(claimed.into_inner().as_slice())?;
        let Some(Begun { turn, effects, .. }) = begun? else {
            self.give_back(&session.key.clone());
            return Ok(());
        };
        self.p().gate.holders.insert(session.key.clone(), Some(turn.id));
        session.turn = Some(turn);
        session.resumed = false;
        self.start(session, effects)
    }

    fn turned_away(&mut self, session: &mut Session, closed: Closed) -> Flow {
        let own = session.queue.iter().position(|it| it.pending.inbound.internal);
        if let (Closed::Draining, Some(own @ 1..)) = (closed, own) {
            let waiting = session.queue.remove(own);
            session.queue.extend(waiting);
            session.queue.rotate_right(1);
            session.barred = false;
            return Ok(());
        }
        while let Some(first) = session.queue.front().cloned() {
            if first.promised || self.p().gate.keeps(first.pending.received_at) {
                break;
            }
            session.queue.pop_front();
            let text = Refusal::Closed(closed).text().into_owned();
            self.answer(session, &first.pending, text, Outcome::Refused)?;
        }
        Ok(())
    }

    /// A place is free again, and those who wait for one look.
    pub(crate) fn give_back(&mut self, key: &SessionKey) {
        self.p().gate.holders.remove(key);
        self.gate_moved();
    }

    pub(crate) fn gate_moved(&mut self) {
        let life = self.life;
        for key in self.p().barred() {
            self.soon(Event::Hear { life, key }, 0, 10);
        }
        self.soon(Event::StopTick { life }, 0, 10);
    }

    pub(crate) fn acknowledge(
        &mut self,
        session: &mut Session,
        pending: &Pending,
        ack: Ack,
        arrival: Arrival,
    ) -> Flow {
        let Some(text) = ack.text() else { return Ok(()) };
        let recent = session.acked_at.is_some_and(|at| self.now.since(at).as_secs() < 30);
        if recent && arrival != Arrival::Queued {
            return Ok(());
        }
        session.acked_at = Some(self.now);
        self.notice(pending, text.to_owned(), vec![])
    }
}

/// The first waiting message, and what its author added meanwhile.
fn take_batch(session: &mut Session) -> Vec<Pending> {
    let Some(Waiting { pending: first, alone, .. }) = session.queue.pop_front() else { return vec![] };
    let author = first.inbound.source.user_id.clone();
    let mut batch = vec![first];
    while !alone
        && session
            .queue
            .front()
            .is_some_and(|next| !next.alone && next.pending.inbound.source.user_id == author)
    {
        batch.extend(session.queue.pop_front().map(|next| next.pending));
    }
    batch
}
