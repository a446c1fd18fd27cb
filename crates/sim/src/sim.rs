//! The scheduler: virtual time, one thread, one seed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use petasos_core::lifecycle::{From, How, Leave};
use petasos_core::{InboxId, Millis, Route};
use petasos_store::{Store, Tx};

use crate::case::{Case, Plan};
use crate::outside::{Class, Ended, Said, Trouble, World, cited};
use crate::plant::Bug;
use crate::promise::{Promise, Violation};
use crate::rng::Rng;
use crate::shell::{Event, Process, Request};
use crate::truth::Truth;

const START: Millis = Millis(1_790_000_000_000);
/// So long after the last fault everything must have come to rest.
const REST: u64 = 4 * 3_600_000;
/// A run that takes more steps than this does not end.
const STEPS: u64 = 200_000;
/// Lines of the story that are kept for whoever has to understand it.
const STORY: usize = 400;

/// Why what was being done is not finished.
#[derive(Debug)]
pub(crate) enum Halt {
    Crash,
    Broken(Promise, String),
}

impl Halt {
    pub(crate) fn broken(promise: Promise, what: impl Into<String>) -> Self {
        Self::Broken(promise, what.into())
    }
}

impl std::convert::From<(Promise, String)> for Halt {
    fn from((promise, what): (Promise, String)) -> Self {
        Self::Broken(promise, what)
    }
}

pub(crate) type Flow<T = ()> = Result<T, Halt>;

/// What a run did, to show that it did something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    pub steps: u64,
    pub commits: u64,
    pub crashes: u64,
    pub stops: u64,
    pub faults: u64,
    /// Model calls.
    pub calls: u64,
    /// Requests that reached a chat.
    pub sends: u64,
}

#[derive(Debug)]
pub(crate) struct Sim {
    pub(crate) plan: Plan,
    pub(crate) bug: Option<Bug>,
    pub(crate) now: Millis,
    pub(crate) life: u32,
    pub(crate) world: World,
    pub(crate) truth: Truth,
    pub(crate) process: Option<Process>,
    /// What the next process finds: the stop before it was complete.
    pub(crate) clean: bool,
    pub(crate) drain_asked: bool,
    pub(crate) current_chat: Option<Route>,
    pub(crate) reported: BTreeSet<usize>,
    pub(crate) figures: Figures,
    /// Delays and what people and models say.
    pub(crate) luck: Rng,
    /// Given to core where it asks for chance.
    pub(crate) chance: Rng,
    faults: Rng,
    deaths: Rng,
    calm: bool,
    events: BTreeMap<(Millis, u64, u64), Event>,
    scheduled: u64,
    path: PathBuf,
    story: Vec<String>,
    told: bool,
}

impl Sim {
    pub(crate) fn new(case: &Case, bug: Option<Bug>, path: &Path, told: bool) -> Self {
        let plan = Plan::of(case);
        let mut script = Rng::new(case.seed, 2);
        let world = World::new(plan.chats, &mut script);
        let mut sim = Self {
            plan,
            bug,
            now: START,
            life: 1,
            world,
            truth: Truth::default(),
            process: None,
            clean: false,
            drain_asked: false,
            current_chat: None,
            reported: BTreeSet::new(),
            figures: Figures::default(),
            luck: Rng::new(case.seed, 3),
            chance: Rng::new(case.seed, 4),
            faults: Rng::new(case.seed, 5),
            deaths: Rng::new(case.seed, 6),
            calm: false,
            events: BTreeMap::new(),
            scheduled: 0,
            path: path.into(),
            story: vec![],
            told,
        };
        sim.write_script(&mut script);
        sim
    }

    fn write_script(&mut self, script: &mut Rng) {
        let span = self.plan.span;
        let mut times: Vec<_> = (0..self.plan.messages).map(|_| script.below(span)).collect();
        times.sort_unstable();
        // Platforms number what is written in the order in which it is: no two at the same moment.
        for at in 1..times.len() {
            times[at] = times[at].max(times[at - 1] + 1);
        }
        for (number, time) in times.into_iter().enumerate() {
            let chat = usize::try_from(script.below(self.plan.chats)).unwrap_or_default();
            let user = if self.world.is_group(chat) { script.pick(&["u0", "u1"]) } else { "u0" };
            let text = match script.below(20) {
                0 => "/stop".to_owned(),
                1 => "/new".to_owned(),
                2 => format!("/queue [m{number}]"),
                _ => format!("hello [m{number}]"),
            };
            let at = Millis(START.0 + 1_000 + time);
            let (user, written, acked, inbox) = (user.to_owned(), false, false, None);
            self.world.said.push(Said { chat, user, text, at, written, acked, inbox });
            self.at(at, Event::Say(number));
        }
        for number in 0..self.plan.completions {
            let chat = usize::try_from(script.below(self.plan.chats)).unwrap_or_default();
            self.world.ended.push(Ended { chat, inbox: None });
            let at = Millis(START.0 + 1_000 + script.below(span));
            self.at(at, Event::WorkEnds(usize::try_from(number).unwrap_or_default()));
        }
        for _ in 0..self.plan.drains {
            let from = script.below(span);
            let to = from + script.between(500, 40_000);
            self.at(Millis(START.0 + from), Event::Drain { on: true });
            self.at(Millis(START.0 + to), Event::Drain { on: false });
        }
        for _ in 0..self.plan.stops {
            let restart = Leave::Restart { how: How::Service, from: From::Outside };
            let why = script.pick(&[Leave::Stop, Leave::Signal, restart]);
            self.at(Millis(START.0 + 2_000 + script.below(span)), Event::Leave(why));
        }
        self.at(START, Event::Boot);
        self.at(Millis(START.0 + span + 60_000), Event::Calm);
    }

    pub(crate) fn run(mut self) -> Result<Figures, (Violation, Vec<String>)> {
        match self.run_to_the_end() {
            Ok(()) => Ok(self.figures),
            Err((promise, what)) => {
                let at = Millis(self.now.0 - START.0);
                Err((Violation { promise, what, at }, std::mem::take(&mut self.story)))
            }
        }
    }

    fn run_to_the_end(&mut self) -> Result<(), (Promise, String)> {
        let last = START.0 + self.plan.span + REST;
        while let Some(((at, ..), event)) = self.events.pop_first() {
            self.now = at.max(self.now);
            self.figures.steps += 1;
            self.tell_story(&event);
            match self.dispatch(event) {
                Ok(()) => {}
                Err(Halt::Crash) => {
                    self.figures.crashes += 1;
                    self.note("the process dies".to_owned());
                    self.gone();
                }
                Err(Halt::Broken(promise, what)) => return Err((promise, what)),
            }
            if let Some(process) = &self.process {
                self.truth.step(&self.world, &process.store)?;
                if self.calm && self.is_at_rest() {
                    return self.truth.end(&self.world, &process.store);
                }
            }
            if self.now.0 > last || self.figures.steps > STEPS {
                let Some(process) = &self.process else {
                    return Err((Promise::G2, "the process never came back".into()));
                };
                self.truth.end(&self.world, &process.store)?;
                return Err((Promise::G2, "it never comes to rest".into()));
            }
        }
        Err((Promise::G2, "nothing happens any more".into()))
    }

    /// Nothing is under way that could still change what people see.
    fn is_at_rest(&self) -> bool {
        let Some(process) = &self.process else { return false };
        process.stop.is_none()
            && self.world.said.iter().all(|said| said.written && said.inbox.is_some())
            && self.reported.len() == self.world.ended.len()
            && process.sessions.values().all(|session| session.is_idle())
            && process.lanes.values().all(|lane| lane.flight.is_none())
            && process.store.backlog().is_ok_and(|it| it.queued + it.claimed == 0)
            && process.store.outbox_counts().is_ok_and(|it| it.due + it.sending + it.streaming == 0)
            && process.store.queued_completions().is_ok_and(|it| it.is_empty())
    }

    fn dispatch(&mut self, event: Event) -> Flow {
        match event {
            Event::Say(number) => self.say(number),
            Event::Submit(number) => self.submit(number),
            Event::WebAcked(number) => {
                self.world.said[number].acked = true;
                Ok(())
            }
            Event::WorkEnds(number) => self.work_ends(number),
            Event::Drain { on } => {
                self.drain(on);
                Ok(())
            }
            Event::Leave(why) => self.leave(why),
            Event::Boot => self.boot(),
            Event::Calm => {
                self.calm = true;
                self.drain(false);
                Ok(())
            }
            Event::Reach(request) => self.reach(*request),
            Event::PollReach { life, platform, generation, offset } => {
                self.poll_reached(life, platform, generation, offset)
            }
            event => self.dispatch_own(event),
        }
    }

    /// What happens in a process that is no more happens to nobody.
    fn dispatch_own(&mut self, event: Event) -> Flow {
        let here = |sim: &Self, life| life == sim.life && sim.process.is_some();
        match event {
            Event::Polled { life, platform, generation, batch } if here(self, life) => {
                self.polled(platform, generation, batch)
            }
            Event::LinkBroke { life, platform, generation } if here(self, life) => {
                self.link_broke(platform, generation)
            }
            Event::LinkTick { life, platform } if here(self, life) => {
                self.feed_link(platform, petasos_core::link::Event::Tick)
            }
            Event::Hear { life, key } if here(self, life) => self.hear(&key),
            Event::Report { life, key, work, report } if here(self, life) => {
                self.reported(&key, work, *report)
            }
            Event::LaneTick { life, lane } if here(self, life) => self.lane_tick(&lane),
            Event::Sent { life, lane, op, answer } if here(self, life) => self.sent(&lane, op, answer),
            Event::HandOver { life } if here(self, life) => self.hand_over(),
            Event::StopTick { life } if here(self, life) => self.stop_tick(),
            Event::Part { life } if here(self, life) => self.part(),
            Event::End { life } if here(self, life) => self.end(),
            _of_a_life_before => Ok(()),
        }
    }

    fn say(&mut self, number: usize) -> Flow {
        self.world.said[number].written = true;
        if self.world.chats[self.world.said[number].chat].class == Class::Pull {
            self.soon(Event::Submit(number), 0, 50);
        }
        Ok(())
    }

    fn reach(&mut self, request: Request) -> Flow {
        let Request { life, lane, op, chat, ask, about, trouble, back } = request;
        self.figures.sends += 1;
        let before = self.world.chats[chat].shown.len();
        let answer = self.world.take(chat, &ask, about, trouble, self.now);
        let sent = about.item.filter(|_| self.world.chats[chat].shown.len() > before);
        self.truth.shown(&self.world, chat, sent.map(|(id, _)| id))?;
        self.later(Event::Sent { life, lane, op, answer }, back);
        Ok(())
    }

    /// Ended work that is a message now, whether we live to see it or not.
    pub(crate) fn witness_completion(&mut self, text: &str, id: InboxId) {
        if let Some(number) = cited(text, 'c').first() {
            self.world.ended[*number].inbox = Some(id);
        }
    }

    /// One commit. The process may die before it, or right after it.
    pub(crate) fn commit<T>(
        &mut self,
        what: &'static str,
        job: impl FnOnce(&Tx<'_>) -> petasos_store::Result<T>,
    ) -> Flow<T> {
        let dies = !self.calm
            && self.figures.crashes < u64::from(self.plan.crashes)
            && self.deaths.odds(self.plan.crash_odds);
        let after = self.deaths.odds(500);
        if dies && !after {
            self.note(format!("  before the commit: {what}"));
            return Err(Halt::Crash);
        }
        self.figures.commits += 1;
        self.note(format!("  commit: {what}"));
        let done = self.p().store.write(job);
        if dies {
            return Err(Halt::Crash);
        }
        done.map_err(|error| Halt::broken(Promise::G2, format!("the store refused to {what}: {error}")))
    }

    /// The process is no more. Somebody starts it again.
    pub(crate) fn gone(&mut self) {
        self.process = None;
        self.life += 1;
        self.soon(Event::Boot, 200, 20_000);
    }

    pub(crate) fn open(&mut self) -> Store {
        Store::open(&self.path).expect("the database opens")
    }

    pub(crate) fn p(&mut self) -> &mut Process {
        self.process.as_mut().expect("a running process")
    }

    /// Whether this request goes wrong.
    pub(crate) fn fails(&mut self, odds: u64) -> bool {
        let fails = !self.calm && self.figures.faults < u64::from(self.plan.faults) && self.faults.odds(odds);
        self.figures.faults += u64::from(fails);
        fails
    }

    pub(crate) fn trouble(&mut self, _lane: &str) -> Trouble {
        if !self.fails(self.plan.send_odds) {
            return Trouble::None;
        }
        self.faults.pick(&[
            Trouble::Limited { named: true },
            Trouble::Limited { named: false },
            Trouble::Unreached,
            Trouble::Lost,
            Trouble::Lost,
            Trouble::Unanswered,
            Trouble::Unanswered,
            Trouble::Unanswered,
            Trouble::Refused,
            Trouble::Blocked,
        ])
    }

    /// How long a request takes to get there, and its answer to come back.
    pub(crate) fn travel(&mut self, trouble: Trouble) -> (u64, u64) {
        let there = self.luck.between(5, 400);
        let back = match trouble {
            // A time-out of our own.
            Trouble::Lost | Trouble::Unanswered => self.luck.between(10, 30_000),
            Trouble::None
            | Trouble::Limited { .. }
            | Trouble::Unreached
            | Trouble::Refused
            | Trouble::Blocked => self.luck.between(5, 400),
        };
        (there, back)
    }

    pub(crate) fn at(&mut self, at: Millis, event: Event) {
        self.scheduled += 1;
        // Of two things at the same time either may be first.
        let tie = self.luck.next();
        self.events.insert((at.max(self.now), tie, self.scheduled), event);
    }

    pub(crate) fn later(&mut self, event: Event, millis: u64) {
        self.at(Millis(self.now.0 + millis), event);
    }

    pub(crate) fn soon(&mut self, event: Event, first: u64, last: u64) {
        let wait = self.luck.between(first, last);
        self.later(event, wait);
    }

    fn tell_story(&mut self, event: &Event) {
        if self.told {
            let text = format!("{event:?}");
            let text: String = text.chars().take(220).collect();
            self.note(text);
        }
    }

    fn note(&mut self, line: String) {
        if !self.told {
            return;
        }
        if self.story.len() >= STORY {
            self.story.remove(0);
        }
        self.story.push(format!("{:>9} ms  {line}", self.now.0 - START.0));
    }
}
