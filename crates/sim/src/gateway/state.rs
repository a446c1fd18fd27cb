//! State of the simulated world, behind one short lock that is never held across an await.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use petasos_core::{InboxId, Millis};
use petasos_gateway::Handle;
use petasos_runtime::simulation::{Process, Simulation};
use tokio::sync::Notify;

use crate::case::{Case, Plan};
use crate::figures::{Figures, START};
use crate::home::Home;
use crate::outside::{Class, Trouble, World};
use crate::promise::Promise;
use crate::relay::{Relay, is_connector};
use crate::script::{Scripted, script};
use crate::truth::Truth;
use petasos_runtime::simulation::rng::Rng;

/// Lines of the story that are kept.
const STORY: usize = 400;

/// A handle of the world.
#[derive(Debug, Clone)]
pub(crate) struct Outside {
    state: Arc<Mutex<State>>,
    /// A promise was broken.
    pub(crate) alarm: Arc<Notify>,
}

/// Whether the process runs.
#[derive(Debug)]
pub(crate) enum Stage {
    Down,
    Starting,
    Up(Handle),
}

/// Things that happen in the world.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    Scripted(Scripted),
    /// A person at the page sends a message, and repeats it without an answer.
    Submit(usize),
    /// The page heard that the message is kept.
    Acknowledged(usize),
    /// The process is killed, if it is still this one.
    Kill,
    Boot,
    NewJob(usize),
    StartRun(usize),
    StartConnector,
    KillConnector,
    /// The connector calls the address that wakes the gateway.
    Poke,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) simulation: Simulation,
    pub(crate) plan: Plan,
    pub(crate) world: World,
    pub(crate) truth: Truth,
    pub(crate) figures: Figures,
    /// Delays, and what people and models say.
    pub(crate) luck: Rng,
    pub(crate) faults: Rng,
    pub(crate) deaths: Rng,
    /// The kind of each crash, and what it leaves on disk.
    pub(crate) crashes: Rng,
    /// No faults any more: everything has to come to rest.
    pub(crate) calm: bool,
    pub(crate) full: bool,
    pub(crate) life: u32,
    pub(crate) stage: Stage,
    /// The process has ended because it was idle, until the connector wakes it.
    pub(crate) asleep: bool,
    /// Since when the process leaves.
    pub(crate) leaving: Option<Millis>,
    /// Since when somebody asks for a drain.
    pub(crate) drained_since: Option<Millis>,
    pub(crate) up_since: Millis,
    /// When each platform was last heard by this process.
    pub(crate) heard: BTreeMap<Class, Millis>,
    /// How far the gateway's wall clock is ahead of time, in milliseconds.
    pub(crate) ahead: i64,
    pub(crate) home: Home,
    /// The last message of the inbox that was looked at.
    pub(crate) newest: InboxId,
    /// The commit under way is the last one of this process.
    pub(crate) dies_after_commit: bool,
    /// Numbers of answers, by the place in the conversation that they are for.
    pub(crate) answers: BTreeMap<(String, u64, String), i64>,
    pub(crate) calls: u64,
    /// Programs that wait for their runs, and for which process.
    pub(crate) programs: BTreeMap<usize, u32>,
    /// Work that the model is to give to a subagent the next time it is asked in its chat.
    pub(crate) wanted: BTreeSet<usize>,
    /// Handles of killed processes: dropping them would run destructors of theirs.
    pub(crate) left_behind: Vec<Handle>,
    pub(crate) relay: Option<Relay>,
    pub(crate) story: Vec<String>,
    told: bool,
    events: BTreeMap<(u64, u64, u64), Event>,
    scheduled: u64,
    violation: Option<(Promise, String, Millis)>,
}

impl Outside {
    pub(crate) fn new(case: &Case, folder: &Path, simulation: Simulation, told: bool) -> Self {
        let plan = Plan::of(case);
        let mut rng = Rng::new(case.seed, 2);
        let mut world = World::new(plan.chats, plan.relayed, &mut rng);
        let scripted = script(&plan, &mut world, &mut rng);
        let home = Home::new(folder.join("home"));
        let relay = plan.relayed.then(|| Relay::new(folder));
        let mut state = State {
            simulation,
            plan,
            world,
            truth: Truth::default(),
            figures: Figures::default(),
            luck: Rng::new(case.seed, 3),
            faults: Rng::new(case.seed, 5),
            deaths: Rng::new(case.seed, 6),
            crashes: Rng::new(case.seed, 7),
            calm: false,
            full: false,
            life: 0,
            stage: Stage::Down,
            asleep: false,
            leaving: None,
            drained_since: None,
            up_since: START,
            heard: BTreeMap::new(),
            ahead: 0,
            home,
            newest: InboxId(0),
            dies_after_commit: false,
            answers: BTreeMap::new(),
            calls: 0,
            programs: BTreeMap::new(),
            wanted: BTreeSet::new(),
            left_behind: Vec::new(),
            relay,
            story: Vec::new(),
            told,
            events: BTreeMap::new(),
            scheduled: 0,
            violation: None,
        };
        for (at, event) in scripted {
            state.at(at.0 - START.0, Event::Scripted(event));
        }
        for _ in 0..state.plan.crashes.min(2) {
            // Most crashes are at commits; some are anywhere else.
            let at = state.deaths.below(state.plan.span + 30_000);
            let whose = if state.relay.is_some() && state.deaths.chance(500) {
                Event::KillConnector
            } else {
                Event::Kill
            };
            state.at(at, whose);
        }
        Self { state: Arc::new(Mutex::new(state)), alarm: Arc::new(Notify::new()) }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A promise was broken: the run ends.
    pub(crate) fn check(&self, check: Result<(), (Promise, String)>) {
        if let Err((promise, what)) = check {
            self.lock().broken(promise, what);
            self.alarm.notify_one();
        }
    }
}

impl State {
    /// Milliseconds since the start.
    pub(crate) fn elapsed(&self) -> u64 {
        u64::try_from(self.simulation.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// The true time.
    pub(crate) fn time(&self) -> Millis {
        Millis(START.0 + self.elapsed())
    }

    pub(crate) fn process(&self) -> Process {
        Process(self.life)
    }

    /// Of cases behind a connector.
    pub(crate) fn relay(&mut self) -> &mut Relay {
        self.relay.as_mut().expect("a connector")
    }

    /// Whether the task that runs now is one of the connector's.
    pub(crate) fn in_connector(&self) -> bool {
        is_connector(self.simulation.running())
    }

    /// Only the first violation counts.
    pub(crate) fn broken(&mut self, promise: Promise, what: String) {
        let at = self.time();
        self.violation.get_or_insert((promise, what, at));
    }

    pub(crate) fn take_violation(&mut self) -> Option<(Promise, String, Millis)> {
        self.violation.take()
    }

    /// At so many milliseconds since the start.
    pub(crate) fn at(&mut self, millis: u64, event: Event) {
        self.scheduled += 1;
        // Of two things at the same time either may be first.
        let tie = self.luck.next_u64();
        self.events.insert((millis, tie, self.scheduled), event);
    }

    pub(crate) fn later(&mut self, event: Event, millis: u64) {
        self.at(self.elapsed() + millis, event);
    }

    pub(crate) fn soon(&mut self, event: Event, first: u64, last: u64) {
        let wait = self.luck.between(first, last);
        self.later(event, wait);
    }

    pub(crate) fn next_event(&self) -> Option<u64> {
        self.events.keys().next().map(|(at, ..)| *at)
    }

    pub(crate) fn due_event(&mut self) -> Option<Event> {
        let now = self.elapsed();
        let first = self.events.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(first.remove())
    }

    /// Whether this request goes wrong.
    pub(crate) fn fails(&mut self, odds: u64) -> bool {
        let fails =
            !self.calm && self.figures.faults < u64::from(self.plan.faults) && self.faults.chance(odds);
        self.figures.faults += u64::from(fails);
        fails
    }

    pub(crate) fn trouble(&mut self) -> Trouble {
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

    /// Remembers what happened, for the trace and for the story.
    pub(crate) fn note(&mut self, line: &str) {
        self.simulation.record(line);
        if !self.told {
            return;
        }
        if self.story.len() >= STORY {
            self.story.remove(0);
        }
        let at = self.elapsed();
        let line: String = line.chars().take(240).collect();
        self.story.push(format!("{at:>9} ms  {line}"));
    }
}
