//! The gateway's shell, in one thread and on virtual time: the same decisions of core, the same jobs of the store, in
//! the same order of commits and effects. Each file names the files of `crates/gateway` that it follows.
//!
//! Everything here is lost in a crash.

mod boot;
mod command;
mod cron;
mod lane;
mod link;
mod preview;
mod session;
mod stop;
mod turn;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use petasos_core::lifecycle::{Claim, Closed, Leave, Lifecycle};
use petasos_core::rate_limit::Penalties;
use petasos_core::{Millis, Platform, SessionKey, TurnId};
use petasos_store::{Candidate, Pending, Store, Suspect};

pub(crate) use lane::{Flight, Lane};
pub(crate) use link::Line;
pub(crate) use session::Session;
pub(crate) use turn::Report;

use crate::relay::Near;

/// Words that may wait at one session.
pub(crate) const MAILBOX: usize = 64;
/// An idle session ends after this long.
pub(crate) const LINGER: Duration = Duration::from_secs(60);
/// How long to wait when the store refuses, in milliseconds.
pub(crate) const STORE_RETRY: u64 = 1_000;
pub(crate) const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

/// One life of the process.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) store: Store,
    pub(crate) gate: Gate,
    pub(crate) sessions: BTreeMap<SessionKey, Session>,
    pub(crate) lanes: BTreeMap<String, Lane>,
    /// The `Limits` of all adapters.
    pub(crate) penalties: Penalties,
    pub(crate) lines: BTreeMap<Platform, Line>,
    pub(crate) near: Near,
    /// What goes on when its platform is there.
    pub(crate) waiting: BTreeMap<Platform, Vec<Candidate>>,
    pub(crate) started_at: Millis,
    /// `quarantine.rs`: suspects that are not resumed yet, in their order.
    pub(crate) held: VecDeque<Suspect>,
    pub(crate) stop: Option<Stop>,
    /// Nothing new is begun or sent.
    pub(crate) stopping: bool,
    pub(crate) numbers: u64,
}

/// A stop under way.
#[derive(Debug)]
pub(crate) struct Stop {
    pub(crate) why: Leave,
    pub(crate) since: Millis,
    pub(crate) deadline: Millis,
    pub(crate) marked: Vec<SessionKey>,
    pub(crate) worked: BTreeMap<TurnId, SessionKey>,
    pub(crate) drained: bool,
    pub(crate) parting: bool,
    /// Nobody starts the process again until it is wanted.
    pub(crate) sleeps: bool,
}

/// `gate.rs`.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    pub(crate) life: Lifecycle,
    pub(crate) holders: BTreeMap<SessionKey, Option<TurnId>>,
}

impl Gate {
    pub(crate) fn claim(&mut self, key: &SessionKey, claim: Claim) -> Result<(), Closed> {
        self.life.admits(claim, self.holders.len(), None)?;
        self.holders.insert(key.clone(), None);
        Ok(())
    }

    pub(crate) fn keeps(&self, received_at: Millis) -> bool {
        self.life.leaving().is_some_and(|(why, since)| why.comes_back() && received_at < since)
    }
}

/// What a session hears (`router.rs`).
#[derive(Debug, Clone)]
pub(crate) enum Word {
    Arrived(Box<Pending>),
    Look,
    Resume,
}

/// Things that happen. Those of the process carry its life; what an earlier one waited for is forgotten.
#[derive(Debug)]
pub(crate) enum Event {
    // of the world
    Say(usize),
    Submit(usize),
    WebAcked(usize),
    WorkEnds(usize),
    NewJob(usize),
    Drain {
        on: bool,
    },
    Leave(Leave),
    Clock {
        whose: crate::sim::Whose,
        by: i64,
    },
    Disk {
        whose: crate::sim::Whose,
        full: bool,
    },
    Boot,
    Calm,
    /// A request has reached its platform.
    Reach(Box<Request>),
    Relay(crate::relay::Event),
    PollReach {
        life: u32,
        platform: Platform,
        generation: u64,
        offset: Option<u64>,
    },
    // of one process
    Polled {
        life: u32,
        platform: Platform,
        generation: u64,
        batch: Vec<usize>,
    },
    LinkBroke {
        life: u32,
        platform: Platform,
        generation: u64,
    },
    LinkTick {
        life: u32,
        platform: Platform,
    },
    Hear {
        life: u32,
        key: SessionKey,
    },
    Report {
        life: u32,
        key: SessionKey,
        work: u64,
        report: Box<Report>,
    },
    /// The clock is found to have been set.
    Jumped {
        life: u32,
    },
    LaneLook {
        life: u32,
        lane: String,
    },
    LaneTick {
        life: u32,
        lane: String,
    },
    Sent {
        life: u32,
        lane: String,
        op: u64,
        answer: crate::outside::Answer,
    },
    HandOver {
        life: u32,
    },
    /// The next suspect is resumed.
    Release {
        life: u32,
    },
    /// A suspect has run for the stable interval.
    Stable {
        life: u32,
        turn: TurnId,
    },
    Cron {
        life: u32,
    },
    StopTick {
        life: u32,
    },
    Part {
        life: u32,
    },
    End {
        life: u32,
    },
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) life: u32,
    pub(crate) lane: String,
    pub(crate) op: u64,
    pub(crate) chat: usize,
    pub(crate) ask: crate::outside::Ask,
    pub(crate) about: crate::outside::About,
    pub(crate) trouble: crate::outside::Trouble,
    /// How long its answer takes.
    pub(crate) back: u64,
}

impl Process {
    pub(crate) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Sessions that wait for the gate.
    pub(crate) fn barred(&mut self) -> BTreeSet<SessionKey> {
        let barred = self.sessions.values_mut().filter(|session| session.barred);
        barred
            .map(|session| {
                session.barred = false;
                session.key.clone()
            })
            .collect()
    }
}

/// A mailbox of a session.
pub(crate) type Mailbox = VecDeque<Word>;
