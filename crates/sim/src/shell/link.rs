//! `supervise.rs`, `connection.rs`, `ingest.rs`.

use std::cell::{Cell, RefCell};

use petasos_core::link::{self, Effect, Link, State};
use petasos_core::message::Delivery;
use petasos_core::session::session_key;
use petasos_core::{Fault, Inbound, LinkId, Millis, Platform, Route};
use petasos_store::{Accepted, Pending};

use super::{Event, Word};
use crate::fate::POLL;
use crate::outside::Class;
use crate::plant::Bug;
use crate::promise::Promise;
use crate::sim::{Flow, Halt, Sim};

/// One link with its connection.
#[derive(Debug, Default)]
pub(crate) struct Line {
    pub(crate) link: Link,
    /// When something last came in over this generation.
    pub(crate) heard: Option<Millis>,
    /// Since when it waits for its next try.
    pub(crate) waits: Option<Millis>,
}

impl Line {
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.link.state, State::Up { .. })
    }
}

pub(crate) fn terms(platform: Platform) -> link::Terms {
    let silence = if Class::of(platform) == Class::Relayed { 180 } else { 120 };
    link::Terms {
        fast_attempts: Some(4),
        slow_probe: std::time::Duration::from_secs(600),
        longest_silence: Some(std::time::Duration::from_secs(silence)),
        ..link::Terms::default()
    }
}

impl Sim {
    pub(crate) fn feed_link(&mut self, platform: Platform, event: link::Event) -> Flow {
        let (now, time, roll, bug) = (self.now, self.time, self.chance.number(), self.bug);
        let Some(line) = self.p().lines.get_mut(&platform) else { return Ok(()) };
        let (mut link, effect) = std::mem::take(&mut line.link).step(now, roll, event, &terms(platform));
        if bug == Some(Bug::GivesUpLink) && link.attempts >= 3 {
            link.state = State::Paused;
        }
        line.link = link;
        let waits = matches!(line.link.state, State::Waiting { .. });
        line.waits = if waits { line.waits.or(Some(time)) } else { None };
        if let Some(due) = line.link.due(&terms(platform)) {
            self.at(due, Event::LinkTick { life: self.life, platform });
        }
        match effect {
            Some(Effect::Connect { generation }) if Class::of(platform) == Class::Relayed => {
                self.p().lines.entry(platform).or_default().heard = None;
                self.relay_connect(generation)?;
            }
            Some(Effect::Disconnect) if Class::of(platform) == Class::Relayed => self.relay_drop(),
            Some(Effect::Connect { generation }) => {
                let account = LinkId { platform, account: "bot".into() };
                let process = self.p();
                let cursor = process.store.cursor(&account).unwrap_or_default();
                process.lines.entry(platform).or_default().heard = None;
                let offset = cursor.and_then(|cursor| cursor.parse().ok());
                self.poll(platform, generation, offset);
            }
            Some(Effect::CameUp) => {
                let heads = self.commit("wake lanes", move |tx| {
                    tx.poke_platform(platform.as_str())?;
                    tx.heads()
                });
                let heads = Self::unless_full(heads)?.unwrap_or_default();
                for head in heads.into_iter().filter(|head| head.lane.platform == platform) {
                    self.lane_due(head.lane);
                }
                let waiting = self.p().waiting.remove(&platform).unwrap_or_default();
                self.take_up(waiting);
                self.soon(Event::HandOver { life: self.life }, 0, 20);
            }
            Some(Effect::Disconnect) | None => {}
        }
        let process = self.process.as_ref().expect("running");
        if let Some(line) = process.lines.get(&platform) {
            self.truth.link(line, &terms(platform), self.figures.jumps > 0, self.time)?;
        }
        Ok(())
    }

    fn poll(&mut self, platform: Platform, generation: u64, offset: Option<u64>) {
        self.soon(Event::PollReach { life: self.life, platform, generation, offset }, 5, 200);
    }

    /// The platform hears from us: whatever lies before the offset, it forgets.
    pub(crate) fn poll_reached(
        &mut self,
        life: u32,
        platform: Platform,
        generation: u64,
        offset: Option<u64>,
    ) -> Flow {
        let class = Class::of(platform);
        if let Some(offset) = offset {
            self.world.acknowledged(class, offset);
        }
        let alive = self.process.as_ref().and_then(|it| it.lines.get(&platform)).map(|it| it.link.generation);
        if life != self.life || alive != Some(generation) {
            return Ok(()); // nobody listens on that connection any more
        }
        if self.fails(self.plan.poll_odds) {
            // Broken at once, or silent for ever: then only our own watch ends it.
            if self.luck.odds(700) {
                self.soon(Event::LinkBroke { life, platform, generation }, 10, 40_000);
            }
            return Ok(());
        }
        let mut batch = self.world.updates(class, offset);
        batch.truncate(10);
        let first = self.p().lines.get(&platform).is_some_and(|line| line.heard.is_none());
        if batch.is_empty() && !first {
            let wait = self.until_somebody_writes();
            if wait == POLL {
                self.later(Event::Polled { life, platform, generation, batch }, POLL);
            } else {
                self.later(Event::PollReach { life, platform, generation, offset }, wait + 1);
            }
            return Ok(());
        }
        if self.fails(self.plan.poll_odds) {
            let again: Vec<_> = batch.clone();
            batch.extend(again);
        }
        self.soon(Event::Polled { life, platform, generation, batch }, 1, 300);
        Ok(())
    }

    pub(crate) fn polled(&mut self, platform: Platform, generation: u64, batch: Vec<usize>) -> Flow {
        let now = self.time;
        let Some(line) = self.p().lines.get_mut(&platform) else { return Ok(()) };
        if line.link.generation != generation
            || !matches!(line.link.state, State::Connecting { .. } | State::Up { .. })
        {
            return Ok(());
        }
        line.heard = Some(now);
        self.feed_link(platform, link::Event::Alive { generation })?;
        let account = LinkId { platform, account: "bot".into() };
        let highest = batch.iter().max().map(|number| *number as u64);
        let before = self.p().store.cursor(&account).unwrap_or_default().and_then(|it| it.parse().ok());
        if !batch.is_empty() {
            let cursor = highest.max(before);
            let batch = batch.into_iter().map(|number| (number, self.inbound(number))).collect();
            match self.take(&account, batch, cursor) {
                Err(Halt::Full) if self.bug != Some(Bug::IgnoresRefusals) => {
                    // The platform keeps it for us.
                    let (life, offset) = (self.life, before);
                    self.soon(Event::PollReach { life, platform, generation, offset }, 1_000, 5_000);
                    return Ok(());
                }
                Err(Halt::Full) => {}
                taken => taken?,
            }
            self.feed_link(platform, link::Event::Took { generation, oldest: None })?;
        }
        // Only now: the offset moves with the next poll.
        self.poll(platform, generation, highest.max(before));
        Ok(())
    }

    /// `Ingest::take`.
    pub(crate) fn take(
        &mut self,
        account: &LinkId,
        batch: Vec<(usize, Inbound)>,
        cursor: Option<u64>,
    ) -> Flow {
        let (now, account) = (self.now, account.clone());
        let cursor = cursor.map(|cursor| cursor.to_string());
        if self.bug == Some(Bug::CursorFirst) {
            let (account, cursor) = (account.clone(), cursor.clone());
            self.commit("cursor", move |tx| tx.put_cursor(&account, cursor.as_deref().unwrap_or("0")))?;
        }
        let seen = RefCell::new(vec![]);
        let taken = self.commit("take", |tx| {
            if let Some(cursor) = &cursor {
                tx.put_cursor(&account, cursor)?;
            }
            let placed =
                batch.iter().map(|(_, event)| place(tx, event, now)).collect::<Result<Vec<_>, _>>()?;
            seen.replace(placed.iter().map(|(accepted, _)| *accepted).collect());
            Ok(placed)
        });
        for ((number, _), accepted) in batch.iter().zip(seen.into_inner()) {
            self.witness(*number, accepted)?;
        }
        for placed in taken? {
            self.hand_on(placed);
        }
        Ok(())
    }

    /// `Ingest::submit`: the page and the terminal.
    pub(crate) fn submit(&mut self, number: usize) -> Flow {
        if self.world.said[number].acked {
            return Ok(());
        }
        // Whoever hears nothing tries again.
        self.later(Event::Submit(number), 3_000);
        if self.process.as_ref().is_none_or(|process| process.stopping) {
            return Ok(());
        }
        let (event, now) = (self.inbound(number), self.now);
        let seen = Cell::new(None);
        let placed = self.commit("submit", |tx| {
            let placed = place(tx, &event, now)?;
            seen.set(Some(placed.0));
            Ok(placed)
        });
        if let Some(accepted) = seen.get() {
            self.witness(number, accepted)?;
        }
        let Some(placed) = Self::unless_full(placed)? else { return Ok(()) };
        self.hand_on(placed);
        self.soon(Event::WebAcked(number), 0, 100);
        Ok(())
    }

    /// What is on disk, whether we live to see it or not.
    fn witness(&mut self, number: usize, accepted: Accepted) -> Flow {
        let known = self.world.said[number].inbox.replace(accepted.id());
        if known.is_some_and(|known| known != accepted.id()) {
            return Err(Halt::broken(Promise::G3, format!("[m{number}] was accepted twice")));
        }
        if known.is_none() {
            self.truth.in_order(&self.world, number)?;
        }
        Ok(())
    }

    fn hand_on(&mut self, (accepted, pending): (Accepted, Pending)) {
        match accepted {
            Accepted::New(_) => {
                self.current_chat = Some(self.route(&pending.inbound));
                self.tell(pending.key.clone(), Word::Arrived(Box::new(pending)));
            }
            Accepted::Duplicate(_) => self.tell(pending.key, Word::Look),
        }
    }

    pub(crate) fn inbound(&self, number: usize) -> Inbound {
        let said = &self.world.said[number];
        let mut source = self.world.source(said.chat, &said.user);
        source.message_id = Some(format!("in{number}"));
        Inbound { sent_at: Some(said.at), ..Inbound::new(source, format!("bot:{number}"), said.text.clone()) }
    }

    /// `Channels::way_back`.
    pub(crate) fn route(&self, inbound: &Inbound) -> Route {
        let delivery = Class::of(inbound.source.platform).delivery();
        match (self.bug, &self.current_chat) {
            (Some(Bug::CurrentChat), Some(route)) => route.clone(),
            _ => Route::back_to(&inbound.source, delivery),
        }
    }

    pub(crate) fn link_broke(&mut self, platform: Platform, generation: u64) -> Flow {
        let fault = Fault::Later { after: None };
        let (code, reason) = ("reset".to_owned(), "the connection was reset".to_owned());
        self.feed_link(platform, link::Event::Broke { generation, fault, code, reason })
    }
}

/// `ingest::place`, for somebody who may.
fn place(
    tx: &petasos_store::Tx<'_>,
    inbound: &Inbound,
    now: Millis,
) -> Result<(Accepted, Pending), petasos_store::Error> {
    let route = Route::back_to(&inbound.source, Delivery::Push);
    tx.mark_chat_alive(inbound.source.platform, &route.chat_id)?;
    let key = session_key(&inbound.source, &Default::default());
    let accepted = tx.accept(inbound, &key, now)?;
    let pending = Pending { id: accepted.id(), key, inbound: inbound.clone(), received_at: now };
    Ok((accepted, pending))
}
