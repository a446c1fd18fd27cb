//! `deliver/lane.rs`, `deliver/send.rs`: one chat's way out, one operation at a time.

use std::time::Duration;

use petasos_core::journal::Write;
use petasos_core::lane::{self, Act, Budget, Setback};
use petasos_core::outbox::{Item, Left, State};
use petasos_core::rate_limit::{Penalty, Scope};
use petasos_core::text::{Limits, Unit, split};
use petasos_core::{Fault, LaneId, Millis, Platform, Reached};

use super::preview::{Following, Showing};
use super::{Event, Request, STORE_RETRY};
use crate::outside::{About, Answer, Ask, Class, Failed, MARK};
use crate::plant::Bug;
use crate::sim::{Flow, Halt, Sim};

/// Characters in one part.
const PART: usize = 80;

#[derive(Debug, Clone)]
pub(crate) struct Lane {
    pub(crate) name: String,
    pub(crate) platform: Platform,
    pub(crate) budget: Budget,
    /// When to look at the outbox again; `None`: nothing is owed.
    pub(crate) due_at: Option<Millis>,
    probing: bool,
    pub(crate) flight: Option<(u64, Flight)>,
    pub(crate) followed: Vec<Following>,
}

/// What the platform is being asked.
#[derive(Debug, Clone)]
pub(crate) enum Flight {
    Item {
        item: Box<Item>,
        act: Act,
        parts: Vec<String>,
    },
    /// What is left of a preview is taken back, before a new message takes its place.
    Farewell {
        item: Box<Item>,
        preview: String,
    },
    Preview(Box<Showing>),
}

impl Sim {
    /// Something became due in this lane.
    pub(crate) fn lane_due(&mut self, lane: LaneId) {
        let (lane, now, life) = (lane.to_string(), self.now, self.life);
        if self.process.as_ref().is_none_or(|process| process.stopping) {
            return;
        }
        self.lane_mut(&lane).due_at = Some(now);
        self.soon(Event::LaneTick { life, lane }, 0, 10);
    }

    pub(crate) fn lane_mut(&mut self, name: &str) -> &mut Lane {
        let platform = name.split_once(':').and_then(|(platform, _)| Platform::parse(platform));
        self.p().lanes.entry(name.to_owned()).or_insert_with(|| Lane {
            name: name.to_owned(),
            platform: platform.expect("a lane of a platform"),
            budget: Budget::new(Duration::from_millis(1000)),
            due_at: None,
            probing: false,
            flight: None,
            followed: vec![],
        })
    }

    pub(crate) fn lane_tick(&mut self, name: &str) -> Flow {
        let Some(mut lane) = self.p().lanes.remove(name) else { return Ok(()) };
        let before = self.disk_is_full().then(|| lane.clone());
        match self.run_lane(&mut lane) {
            Err(Halt::Full) => {
                self.p().lanes.extend(before.map(|lane| (name.to_owned(), lane)));
                let tick = Event::LaneTick { life: self.life, lane: name.to_owned() };
                self.later(tick, STORE_RETRY);
                return Ok(());
            }
            ran => ran?,
        }
        let next = match &lane.flight {
            Some(_) => None,
            None => lane.due_at.or_else(|| lane.followed.iter().map(|it| it.look_at).min()),
        };
        if let Some(at) = next {
            let at = at.max(Millis(self.now.0 + 1));
            self.at(at, Event::LaneTick { life: self.life, lane: name.to_owned() });
        }
        self.p().lanes.insert(name.to_owned(), lane);
        Ok(())
    }

    fn run_lane(&mut self, lane: &mut Lane) -> Flow {
        while lane.flight.is_none() {
            if lane.due_at.is_some_and(|at| at <= self.now) {
                self.deliver_due(lane, vec![])?;
                continue;
            }
            let due = lane.followed.iter().position(|it| it.is_due(self.now));
            let (None, Some(at)) = (lane.due_at, due) else { return Ok(()) };
            let following = lane.followed.remove(at);
            self.show(lane, following)?;
        }
        Ok(())
    }

    /// Keeps the outcome of one item and takes the next: one commit. Returns with an operation under way, or with
    /// the time of the next look.
    fn deliver_due(&mut self, lane: &mut Lane, mut outcome: Vec<Write>) -> Flow {
        loop {
            let now = self.now;
            let allowed = self.free_at(lane);
            if self.p().stopping || allowed > now {
                self.apply("outcome", outcome)?;
                lane.due_at = (allowed > now).then_some(allowed);
                return Ok(());
            }
            let id = LaneId { platform: lane.platform, chat: chat_of(&lane.name) };
            let claimed = self.commit("claim", move |tx| {
                tx.apply(&outcome, now)?;
                tx.claim_head(&id, now)
            })?;
            lane.probing = claimed.probing;
            let Some(item) = claimed.head else {
                lane.due_at = None;
                return Ok(());
            };
            let at = lane::due_at(&item, now);
            if at > now {
                lane.due_at = Some(at);
                return Ok(());
            }
            if item.state == State::Sending {
                let setback = lane::crashed(&item, Reached::Maybe, now, self.chance.number());
                match self.set_back(lane, &item, setback, vec![], None)? {
                    Some(next) => outcome = next,
                    None => return Ok(()),
                }
                continue;
            }
            if Class::of(lane.platform) == Class::Relayed && self.p().near.descriptor.is_none() {
                // No text is split before the platform has said what it takes.
                match self.failed(lane, &item, &Act::Hold, Failed::later(Reached::No))? {
                    Some(next) => outcome = next,
                    None => return Ok(()),
                }
                continue;
            }
            let parts = parts(&item.draft.text);
            match self.send_part(lane, item, parts)? {
                Some(next) => outcome = next,
                None => return Ok(()),
            }
        }
    }

    /// Hands the next part over. `Some`: the lane goes on at once, once this is kept.
    fn send_part(&mut self, lane: &mut Lane, item: Item, parts: Vec<String>) -> Flow<Option<Vec<Write>>> {
        let memory = if item.doubtful { Class::of(lane.platform).memory() } else { None };
        let act = lane::act(&item, parts.len(), memory, self.now);
        lane.budget.spend(self.now);
        let about = About { item: Some((item.id, item.sent.len())), step: item.draft.turn, preview: false };
        let ask = match &act {
            Act::Hold => {
                lane.due_at = Some(Millis(self.now.0 + 60_000));
                return Ok(None);
            }
            Act::Finish => {
                return Ok(Some(vec![Write::Delivered { item: item.id, message: None, at: self.now }]));
            }
            Act::Withdraw { message } => Ask::Delete { message: message.clone() },
            Act::Replace { message } => Ask::Edit { message: message.clone(), text: parts[0].clone() },
            Act::Send { part, marked } => {
                let marked = *marked && self.bug != Some(Bug::UnmarkedCopy);
                let text = if marked { format!("{MARK}{}", parts[*part]) } else { parts[*part].clone() };
                Ask::Send { text, key: lane::key(&item, *part, marked) }
            }
        };
        self.request(lane, ask, about, Flight::Item { item: Box::new(item), act, parts });
        Ok(None)
    }

    pub(crate) fn request(&mut self, lane: &mut Lane, ask: Ask, about: About, flight: Flight) {
        if Class::of(lane.platform) == Class::Relayed {
            return self.ask_connector(lane, ask, about, flight);
        }
        let Some(chat) = self.world.chat_of_lane(&lane.name) else { return };
        let trouble = self.trouble();
        let op = self.p().number();
        let (there, back) = self.travel(trouble);
        lane.flight = Some((op, flight));
        let request =
            Request { life: self.life, lane: lane.name.clone(), op, chat, ask, about, trouble, back };
        self.later(Event::Reach(Box::new(request)), there);
    }

    pub(crate) fn sent(&mut self, name: &str, op: u64, answer: Answer) -> Flow {
        let Some(mut lane) = self.p().lanes.remove(name) else { return Ok(()) };
        let before = self.disk_is_full().then(|| lane.clone());
        if lane.flight.as_ref().is_some_and(|(current, _)| *current == op)
            && let Some((_, flight)) = lane.flight.take()
        {
            match self.landed(&mut lane, flight, answer.clone()) {
                Err(Halt::Full) => {
                    // What has happened must be kept: it is tried until it is.
                    self.p().lanes.extend(before.map(|lane| (name.to_owned(), lane)));
                    let sent = Event::Sent { life: self.life, lane: name.to_owned(), op, answer };
                    self.later(sent, STORE_RETRY);
                    return Ok(());
                }
                landed => landed?,
            }
        }
        self.p().lanes.insert(name.to_owned(), lane);
        self.lane_tick(name)
    }

    fn landed(&mut self, lane: &mut Lane, flight: Flight, answer: Answer) -> Flow {
        let (item, act, parts) = match flight {
            Flight::Item { item, act, parts } => (*item, act, parts),
            Flight::Farewell { item, preview } => {
                return self.taken_back(lane, *item, preview, answer);
            }
            Flight::Preview(showing) => return self.previewed(lane, *showing, answer),
        };
        let next = match answer {
            Ok(message) => self.arrived(lane, item, act, parts, message)?,
            Err(failed) => self.failed(lane, &item, &act, failed)?,
        };
        match next {
            Some(outcome) => self.deliver_due(lane, outcome),
            None => Ok(()),
        }
    }

    fn arrived(
        &mut self,
        lane: &mut Lane,
        mut item: Item,
        act: Act,
        parts: Vec<String>,
        message: Option<String>,
    ) -> Flow<Option<Vec<Write>>> {
        if lane.probing && matches!(act, Act::Send { .. }) {
            lane.probing = false;
            let (platform, chat_id) = (lane.platform, chat_of(&lane.name));
            self.apply("chat alive", vec![Write::ChatAlive { platform, chat_id }])?;
        }
        if item.sent.len() + 1 >= parts.len() {
            return Ok(Some(vec![Write::Delivered { item: item.id, message, at: self.now }]));
        }
        let message = message.unwrap_or_default();
        self.apply(
            "part sent",
            vec![Write::PartSent { item: item.id, message: message.clone(), thread: None }],
        )?;
        item.sent.push(message);
        (item.doubtful, item.attempts, item.spent) = (false, 0, 0);
        let allowed = self.free_at(lane);
        if self.p().stopping || allowed > self.now {
            lane.due_at = Some(allowed);
            return Ok(None);
        }
        self.apply("sending", vec![Write::Sending { item: item.id }])?;
        self.send_part(lane, item, parts)
    }

    fn failed(
        &mut self,
        lane: &mut Lane,
        item: &Item,
        act: &Act,
        failed: Failed,
    ) -> Flow<Option<Vec<Write>>> {
        let Failed { fault, reached, dead_chat } = failed;
        if let (Act::Replace { message }, Fault::Refused) = (act, fault) {
            self.send_anew(lane, item, message);
            return Ok(None);
        }
        if let (Act::Withdraw { .. }, Fault::Refused) = (act, fault) {
            return Ok(Some(vec![Write::Delivered { item: item.id, message: None, at: self.now }]));
        }
        let limited = self.rate_limited(lane, fault);
        let mut setback = lane::setback(item, act, fault, reached, self.now, self.chance.number());
        if let (Some(Bug::UnmarkedCopy), Setback::Again { doubtful, .. }) = (self.bug, &mut setback) {
            *doubtful = false;
        }
        let dead = (dead_chat && matches!(act, Act::Send { .. })).then(|| self.chat_dead(lane));
        let spent = lane::spends_key(act, reached).then_some(Write::KeySpent { item: item.id });
        let also = spent.into_iter().chain(limited).collect();
        self.set_back(lane, item, setback, also, dead)
    }

    /// `Adapter::limited`.
    pub(crate) fn rate_limited(&mut self, lane: &Lane, fault: Fault) -> Option<Write> {
        let Fault::Later { after: Some(wait) } = fault else { return None };
        let (now, scope) = (self.now, Scope::Chat(chat_of(&lane.name)));
        let penalty = Penalty::new(lane.platform, scope, wait, "slow down", now);
        self.p().penalties.add(penalty.clone(), now).then_some(Write::RateLimited(penalty))
    }

    pub(crate) fn free_at(&mut self, lane: &Lane) -> Millis {
        let (now, scope) = (self.now, Scope::Chat(chat_of(&lane.name)));
        self.p().penalties.free_at(lane.platform, &scope, now)
    }

    pub(crate) fn chat_dead(&self, lane: &Lane) -> Write {
        let (platform, chat_id) = (lane.platform, chat_of(&lane.name));
        Write::ChatDead { platform, chat_id, reason: "blocked".into(), at: self.now }
    }

    /// The preview cannot become the answer: it is taken back, then that is a new message.
    fn send_anew(&mut self, lane: &mut Lane, item: &Item, preview: &str) {
        let ask = Ask::Delete { message: preview.to_owned() };
        let flight = Flight::Farewell { item: Box::new(item.clone()), preview: preview.to_owned() };
        self.request(lane, ask, About::default(), flight);
    }

    fn taken_back(&mut self, lane: &mut Lane, item: Item, preview: String, answer: Answer) -> Flow {
        match answer {
            Err(failed) if failed.fault != Fault::Refused && failed.reached == Reached::No => {
                let act = Act::Withdraw { message: preview };
                match self.failed(lane, &item, &act, failed)? {
                    Some(outcome) => self.deliver_due(lane, outcome),
                    None => Ok(()),
                }
            }
            answer => {
                let left = if answer.is_ok() { Left::Nothing } else { Left::Perhaps };
                self.apply("send anew", vec![Write::SendAnew { item: item.id, left }])?;
                self.deliver_due(lane, vec![])
            }
        }
    }

    fn set_back(
        &mut self,
        lane: &mut Lane,
        item: &Item,
        setback: Setback,
        also: Vec<Write>,
        dead: Option<Write>,
    ) -> Flow<Option<Vec<Write>>> {
        let error = "it failed".to_owned();
        match setback {
            Setback::Again { at, doubtful } => {
                let postpone = Write::Postpone { item: item.id, not_before: at, doubtful, error };
                self.apply("postpone", [postpone].into_iter().chain(also).collect())?;
                lane.due_at = Some(at);
                Ok(None)
            }
            Setback::Bury { doubtful } => {
                let bury = Write::Bury { item: item.id, doubtful, error, at: self.now };
                self.apply("bury", [bury].into_iter().chain(also).chain(dead).collect())?;
                Ok(Some(vec![]))
            }
        }
    }

    pub(crate) fn apply(&mut self, what: &'static str, writes: Vec<Write>) -> Flow {
        if writes.is_empty() {
            return Ok(());
        }
        let now = self.now;
        self.commit(what, move |tx| tx.apply(&writes, now))
    }
}

fn chat_of(lane: &str) -> String {
    lane.split_once(':').map_or("", |(_, chat)| chat).to_owned()
}

fn parts(text: &str) -> Vec<String> {
    if text.is_empty() { vec![] } else { split(text, &Limits::new(PART, Unit::Chars)) }
}
