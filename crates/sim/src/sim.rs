//! The scheduler: virtual time, one thread, one seed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use petasos_core::lifecycle::boots::Boots;
use petasos_core::{InboxId, Millis, Route};
use petasos_store::Store;

use crate::case::{Case, Plan};
use crate::outside::{About, Answer, Ask, Class, Said, Trouble, World, cited};
use crate::plant::Bug;
use crate::promise::{Promise, Violation};
use crate::relay::Relay;
use crate::shell::{Event, Process, Request};
use crate::truth::Truth;
use petasos_runtime::simulation::rng::Rng;

pub(crate) const START: Millis = Millis(1_790_000_000_000);
/// So long after the last fault everything must have come to rest.
const REST: u64 = 4 * 3_600_000;
/// A run that takes more steps than this does not end.
const STEPS: u64 = 200_000;
/// Lines of the story that are kept for whoever has to understand it.
const STORY: usize = 400;

/// Of the two processes that keep something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Ours,
    /// The connector's.
    Theirs,
}

/// Why what was being done is not finished.
#[derive(Debug)]
pub(crate) enum Halt {
    Crash,
    /// Of the connector.
    TheirCrash,
    /// The disk takes nothing now, and nothing was written.
    Full,
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
    /// Suspects that were held, and in the shipped gateway have been cleared.
    pub held: u64,
    pub stops: u64,
    pub faults: u64,
    /// Model calls.
    pub calls: u64,
    /// Requests that reached a chat.
    pub sends: u64,
    /// A connector let the gateway go idle; it slept.
    pub grants: u64,
    pub sleeps: u64,
    /// Commits that a full disk refused.
    pub refusals: u64,
    /// How often a clock was set.
    pub jumps: u64,
}

impl Figures {
    pub fn add(&mut self, one: Self) {
        self.steps += one.steps;
        self.commits += one.commits;
        self.crashes += one.crashes;
        self.held += one.held;
        self.stops += one.stops;
        self.faults += one.faults;
        self.calls += one.calls;
        self.sends += one.sends;
        self.grants += one.grants;
        self.sleeps += one.sleeps;
        self.refusals += one.refusals;
        self.jumps += one.jumps;
    }
}

#[derive(Debug)]
pub(crate) struct Sim {
    pub(crate) plan: Plan,
    pub(crate) bug: Option<Bug>,
    /// What has passed, as nobody's clock shows it.
    pub(crate) time: Millis,
    /// The gateway's clock on the wall.
    pub(crate) now: Millis,
    /// How far each clock is ahead of time, in milliseconds.
    pub(crate) ahead: i64,
    pub(crate) their_ahead: i64,
    pub(crate) life: u32,
    pub(crate) world: World,
    pub(crate) truth: Truth,
    pub(crate) process: Option<Process>,
    pub(crate) relay: Relay,
    /// The process has ended until it is woken.
    pub(crate) asleep: bool,
    /// Whose disk is full.
    pub(crate) full: Vec<Whose>,
    /// What the next process finds: the stop before it was complete.
    pub(crate) clean: bool,
    /// `gateway/restart_loop.json`.
    pub(crate) boots: Boots,
    pub(crate) drain_asked: bool,
    pub(crate) current_chat: Option<Route>,
    pub(crate) reported: BTreeSet<usize>,
    pub(crate) figures: Figures,
    /// Delays and what people and models say.
    pub(crate) luck: Rng,
    /// Given to core where it asks for chance.
    pub(crate) chance: Rng,
    pub(crate) faults: Rng,
    pub(crate) deaths: Rng,
    pub(crate) calm: bool,
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
        let world = World::new(plan.chats, plan.relayed, &mut script);
        let mut sim = Self {
            plan,
            bug,
            time: START,
            now: START,
            ahead: 0,
            their_ahead: 0,
            life: 1,
            world,
            truth: Truth::default(),
            process: None,
            relay: Relay::new(path.with_file_name("connector.db")),
            asleep: false,
            full: vec![],
            clean: false,
            boots: Boots::default(),
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

    pub(crate) fn run(mut self) -> Result<Figures, (Violation, Vec<String>)> {
        match self.run_to_the_end() {
            Ok(()) => Ok(self.figures),
            Err((promise, what)) => {
                let at = Millis(self.time.0 - START.0);
                Err((Violation { promise, what, at }, std::mem::take(&mut self.story)))
            }
        }
    }

    fn run_to_the_end(&mut self) -> Result<(), (Promise, String)> {
        let last = START.0 + self.plan.span + REST;
        while let Some(((at, ..), event)) = self.events.pop_first() {
            self.time = at.max(self.time);
            self.read_clock();
            self.figures.steps += 1;
            self.tell_story(&event);
            match self.dispatch(event) {
                Ok(()) => {}
                Err(Halt::Crash) => {
                    self.figures.crashes += 1;
                    self.note("the process dies".to_owned());
                    self.gone();
                    self.soon(Event::Boot, 200, 20_000);
                }
                Err(Halt::TheirCrash) => {
                    self.figures.crashes += 1;
                    self.note("the connector dies".to_owned());
                    self.connector_gone();
                }
                Err(Halt::Full) => return Err((Promise::G2, "nobody minds that the disk is full".into())),
                Err(Halt::Broken(promise, what)) => return Err((promise, what)),
            }
            if let Some(process) = &self.process {
                self.truth.step(&self.world, &self.relay, &process.store)?;
                if self.calm && self.is_at_rest() {
                    return self.truth.end(&self.world, &process.store);
                }
            }
            self.wake_for_the_end();
            if self.time.0 > last || self.figures.steps > STEPS {
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
            && self.has_everything()
            && self.reported.len() == self.world.ended.len()
            && process.sessions.values().all(|session| session.is_idle())
            && process.lanes.values().all(|lane| lane.flight.is_none())
            && process.store.backlog().is_ok_and(|it| it.queued + it.claimed == 0)
            && process.store.outbox_counts().is_ok_and(|it| it.due + it.sending + it.streaming == 0)
            && process.store.queued_completions().is_ok_and(|it| it.is_empty())
            && self.world.errands.iter().all(|errand| errand.made)
            && process.store.job_count().is_ok_and(|count| count == 0)
            && process.store.runs_to_tell().is_ok_and(|it| it.is_empty())
    }

    /// Everything was written, and is accepted for good.
    fn has_everything(&self) -> bool {
        let accepted = |said: &Said| said.written && (said.inbox.is_some() || said.aside);
        (!self.plan.relayed || self.relay.is_at_rest()) && self.world.said.iter().all(accepted)
    }

    /// Nobody needs one who sleeps: it is started once more, to be looked at.
    fn wake_for_the_end(&mut self) {
        if self.calm && self.process.is_none() && self.asleep && self.has_everything() {
            self.asleep = false;
            self.soon(Event::Boot, 0, 10);
        }
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.calm
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
            Event::NewJob(number) => self.new_job(number),
            Event::Drain { on } => {
                self.drain(on);
                Ok(())
            }
            Event::Leave(why) => self.leave(why),
            Event::Boot => self.boot(),
            Event::Clock { whose, by } => {
                self.set_clock(whose, by);
                Ok(())
            }
            Event::Disk { whose, full } => {
                self.full.retain(|it| *it != whose);
                self.full.extend(full.then_some(whose));
                Ok(())
            }
            Event::Calm => {
                self.calm = true;
                self.full.clear();
                self.drain(false);
                Ok(())
            }
            Event::Reach(request) => self.reach(*request),
            Event::Relay(event) => self.relay_event(event),
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
            Event::Jumped { life } if here(self, life) => self.jumped(),
            Event::LaneLook { life, lane } if here(self, life) => self.lane_look(&lane),
            Event::LaneTick { life, lane } if here(self, life) => self.lane_tick(&lane),
            Event::Sent { life, lane, op, answer } if here(self, life) => self.sent(&lane, op, answer),
            Event::Cron { life } if here(self, life) => self.cron(),
            Event::HandOver { life } if here(self, life) => self.hand_over(),
            Event::Release { life } if here(self, life) => self.release(),
            Event::Stable { life, turn } if here(self, life) => self.stable(turn),
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
        let answer = self.arrives(chat, &ask, about, trouble)?;
        self.later(Event::Sent { life, lane, op, answer }, back);
        Ok(())
    }

    /// A platform is asked for something. Gives what it answers.
    pub(crate) fn arrives(&mut self, chat: usize, ask: &Ask, about: About, trouble: Trouble) -> Flow<Answer> {
        self.figures.sends += 1;
        let before = self.world.chats[chat].shown.len();
        let answer = self.world.take(chat, ask, about, trouble, self.time);
        let sent = about.item.filter(|_| self.world.chats[chat].shown.len() > before);
        self.truth.shown(&self.world, chat, sent.map(|(id, _)| id))?;
        Ok(answer)
    }

    /// Ended work that is a message now, whether we live to see it or not.
    pub(crate) fn witness_completion(&mut self, text: &str, id: InboxId) {
        if let Some(number) = cited(text, 'c').first() {
            self.world.ended[*number].inbox = Some(id);
        }
    }

    /// The process is no more.
    pub(crate) fn gone(&mut self) {
        self.our_end_died();
        self.process = None;
        self.life += 1;
    }

    pub(crate) fn open(&mut self) -> Store {
        Store::open(&self.path).expect("the database opens")
    }

    pub(crate) fn p(&mut self) -> &mut Process {
        self.process.as_mut().expect("a running process")
    }

    /// When the clock on the wall shows this, as it goes now.
    pub(crate) fn at(&mut self, at: Millis, event: Event) {
        self.later(event, at.0.saturating_sub(self.now.0));
    }

    pub(crate) fn later(&mut self, event: Event, millis: u64) {
        self.scheduled += 1;
        // Of two things at the same time either may be first.
        let tie = self.luck.number();
        self.events.insert((Millis(self.time.0 + millis), tie, self.scheduled), event);
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

    pub(crate) fn note(&mut self, line: String) {
        if !self.told {
            return;
        }
        if self.story.len() >= STORY {
            self.story.remove(0);
        }
        self.story.push(format!("{:>9} ms  {line}", self.time.0 - START.0));
    }
}
