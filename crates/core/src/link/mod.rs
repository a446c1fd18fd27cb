//! One platform's connection: when to try, how long to wait, when to stop trying.
//!
//! Every connection has a generation number; what an older generation still says is ignored. A failure
//! that time can heal is retried for ever: fast and with growing waits at first, then as a slow probe.
//! A failure that needs a person stops the link and says why. A link that stood is followed at once;
//! one whose connection takes too long, or has fallen silent, counts as broken.
//!
//! An adapter that keeps its session over a broken connection reconnects by itself first (`redial`); meanwhile the
//! link is troubled, not broken.

pub mod redial;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use self::redial::Pace;
use crate::backoff::{EVEN, RECONNECT};
use crate::fault::Fault;
use crate::time::Millis;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    Connecting {
        since: Millis,
    },
    /// Something came in: the only proof of life.
    Up {
        since: Millis,
    },
    /// Broken; tried again at `until`. `slow`: the fast attempts are spent.
    Waiting {
        until: Millis,
        slow: bool,
        #[serde(flatten)]
        failure: Failure,
    },
    /// Needs a person.
    Fatal {
        #[serde(flatten)]
        failure: Failure,
    },
    /// Stopped by the operator.
    Paused,
}

/// Why a link is down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub class: Class,
    /// A stable name: `telegram_invalid_token`.
    pub code: String,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Time may heal it.
    Passing,
    /// The platform understood us and said no; it may change its mind.
    Refused,
    /// Only a person can.
    Fatal,
}

impl Class {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passing => "passing",
            Self::Refused => "refused",
            Self::Fatal => "fatal",
        }
    }
}

/// A part of a platform that is lost until a person sees to it, while the rest goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lack {
    /// What it is: `workspace Acme (T1)`.
    pub what: String,
    pub code: String,
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    #[serde(flatten)]
    pub state: State,
    pub generation: u64,
    /// Failed attempts in a row.
    pub attempts: u32,
    /// What the connection struggles with, while it has not given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// The last inbound round trip, of whichever generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_inbound: Option<Millis>,
    /// What was said while nobody listened is being fetched.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub catching_up: bool,
    /// How old the oldest message of the last late batch was when we took it, until the platform has no more of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lacks: Vec<Lack>,
}

/// What a link goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Whose link it is, for what it says of itself.
    pub name: &'static str,
    /// Failed attempts in a row after which only the slow probe is left. `None`: it never comes to that.
    pub fast_attempts: Option<u32>,
    pub slow_probe: Duration,
    /// Whether chance spreads the waits.
    pub jitter: bool,
    /// How long a connection may take to stand.
    pub connect_within: Option<Duration>,
    /// A healthy link is never silent for longer. `None`: silence says nothing.
    pub longest_silence: Option<Duration>,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            name: "link",
            fast_attempts: Some(20),
            slow_probe: Duration::from_secs(1800),
            jitter: true,
            connect_within: Some(Duration::from_secs(30)),
            longest_silence: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Start,
    /// An inbound round trip of this generation succeeded, and nothing is missing that we know of.
    Alive {
        generation: u64,
    },
    /// One succeeded, and there is more to fetch.
    CatchingUp {
        generation: u64,
    },
    /// What is lost of the platform while the connection of this generation stands.
    Lacks {
        generation: u64,
        lacks: Vec<Lack>,
    },
    /// Messages are on disk; the oldest was sent then, if the platform says.
    Took {
        generation: u64,
        oldest: Option<Millis>,
    },
    /// The connection of this generation stands, has trouble and keeps trying.
    Troubled {
        generation: u64,
        reason: String,
    },
    Broke {
        generation: u64,
        fault: Fault,
        code: String,
        reason: String,
    },
    Tick,
    /// The operator, or a change of the network, wants a try now.
    Retry,
    Pause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// End what is left of older generations, then connect.
    Connect {
        generation: u64,
    },
    Disconnect,
    /// The link has just come up: lanes may send again.
    CameUp,
}

/// Whether messages come in now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Up,
    Down,
    /// Down, and its owner wants it so.
    Paused,
}

/// A wait that lies further ahead was not planned by us: the clock was set back.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// A link that comes up only to break is not dialled more often than this.
const BREATH: Duration = Duration::from_secs(10);
/// Longer than every adapter struggles by itself; whoever says nothing more has lost itself in its trouble.
const TROUBLED: Duration = Duration::from_secs(1800);
/// Platforms give whole seconds, and clocks differ: an older message is a late one.
const LATE: Duration = Duration::from_secs(10);

impl Default for Link {
    fn default() -> Self {
        Self {
            state: State::Connecting { since: Millis(0) },
            generation: 0,
            attempts: 0,
            trouble: None,
            last_inbound: None,
            catching_up: false,
            behind_ms: None,
            lacks: Vec::new(),
        }
    }
}

impl Link {
    /// One that can never be tried: what it needs is not configured.
    pub fn unbuilt(code: String, reason: String) -> Self {
        let failure = Failure { class: Class::Fatal, code, reason };
        Self { state: State::Fatal { failure }, ..Self::default() }
    }

    /// Its state in the words that are published: `connecting`, `connected`, `retrying`, `paused`, `disabled` or
    /// `fatal`.
    pub fn published(&self) -> &'static str {
        match (&self.state, &self.trouble) {
            (State::Fatal { failure }, _) if failure.code.ends_with("_disabled") => "disabled",
            (State::Connecting { .. }, None) => "connecting",
            (State::Connecting { .. } | State::Up { .. }, Some(_))
            | (State::Waiting { slow: false, .. }, _) => "retrying",
            (State::Up { .. }, None) => "connected",
            (State::Waiting { slow: true, .. } | State::Paused, _) => "paused",
            (State::Fatal { .. }, _) => "fatal",
        }
    }

    pub const fn standing(&self) -> Standing {
        match (&self.state, &self.trouble) {
            (State::Up { .. }, None) => Standing::Up,
            (State::Paused, _) => Standing::Paused,
            (State::Up { .. }, Some(_))
            | (State::Connecting { .. } | State::Waiting { .. } | State::Fatal { .. }, _) => Standing::Down,
        }
    }

    /// Why it is down, if it has given up for now.
    pub const fn failure(&self) -> Option<&Failure> {
        match &self.state {
            State::Waiting { failure, .. } | State::Fatal { failure } => Some(failure),
            State::Connecting { .. } | State::Up { .. } | State::Paused => None,
        }
    }

    /// When to tick, if nothing happens before.
    pub fn due(&self, terms: &Terms) -> Option<Millis> {
        match &self.state {
            State::Waiting { until, .. } => Some(*until),
            State::Connecting { since } => self.bounded(*since, terms.connect_within),
            State::Up { since } => self.bounded(self.heard(*since), terms.longest_silence),
            State::Fatal { .. } | State::Paused => None,
        }
    }

    pub fn step(self, now: Millis, roll: u64, event: Event, terms: &Terms) -> (Self, Option<Effect>) {
        match event {
            Event::Start => self.connect(now),
            Event::Alive { generation } if generation == self.generation => {
                Self { catching_up: false, behind_ms: None, ..self }.alive(now)
            }
            Event::CatchingUp { generation } if generation == self.generation => {
                Self { catching_up: true, ..self }.alive(now)
            }
            Event::Took { generation, oldest } if generation == self.generation => {
                (self.took(now, oldest), None)
            }
            Event::Lacks { generation, lacks } if generation == self.generation => {
                (Self { lacks, ..self }, None)
            }
            Event::Broke { generation, fault, code, reason } if generation == self.generation => {
                self.broke(now, roll, fault, Failure { class: class(fault), code, reason }, terms)
            }
            Event::Troubled { generation, reason } if generation == self.generation => {
                (Self { trouble: Some(reason), ..self }, None)
            }
            // A generation we have left behind is still talking.
            Event::Alive { .. }
            | Event::CatchingUp { .. }
            | Event::Took { .. }
            | Event::Lacks { .. }
            | Event::Troubled { .. }
            | Event::Broke { .. } => (self, None),
            Event::Tick => self.tick(now, roll, terms),
            Event::Retry => Self { attempts: 0, ..self }.connect(now),
            Event::Pause => {
                let generation = self.generation + 1;
                (Self { state: State::Paused, generation, ..self.unheard() }, Some(Effect::Disconnect))
            }
        }
    }

    fn connect(self, now: Millis) -> (Self, Option<Effect>) {
        let generation = self.generation + 1;
        let state = State::Connecting { since: now };
        (Self { state, generation, ..self.unheard() }, Some(Effect::Connect { generation }))
    }

    /// Without what only a connection that stands can say.
    fn unheard(self) -> Self {
        Self { trouble: None, catching_up: false, behind_ms: None, lacks: Vec::new(), ..self }
    }

    /// What is told live between late batches does not mean that we have caught up.
    fn took(self, now: Millis, oldest: Option<Millis>) -> Self {
        let age = oldest.map(|sent| now.since(sent)).filter(|age| *age >= LATE);
        let late = age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        Self { behind_ms: late.or(self.behind_ms.filter(|_| self.catching_up)), ..self }
    }

    fn alive(self, now: Millis) -> (Self, Option<Effect>) {
        let heard = Self { trouble: None, last_inbound: Some(now), ..self };
        match heard.state {
            State::Up { .. } => (heard, None),
            State::Connecting { .. } => {
                (Self { state: State::Up { since: now }, attempts: 0, ..heard }, Some(Effect::CameUp))
            }
            State::Waiting { .. } | State::Fatal { .. } | State::Paused => (heard, None),
        }
    }

    fn broke(
        self,
        now: Millis,
        roll: u64,
        fault: Fault,
        failure: Failure,
        terms: &Terms,
    ) -> (Self, Option<Effect>) {
        let named = match fault {
            Fault::Later { after } => after.unwrap_or_default(),
            Fault::Refused | Fault::Fatal => Duration::ZERO,
        };
        let (attempts, slow, planned) = match self.state {
            // It waits, or is stopped: a second fault changes nothing.
            State::Waiting { .. } | State::Fatal { .. } | State::Paused => return (self, None),
            State::Up { since } => (0, false, since.after(BREATH).since(now)),
            State::Connecting { .. } => {
                let attempts = self.attempts.saturating_add(1);
                let pace = Pace { immediate: 0, schedule: RECONNECT, give_up_at: terms.fast_attempts };
                let wait = pace.wait(attempts, if terms.jitter { roll } else { EVEN });
                (attempts, wait.is_none(), wait.unwrap_or(terms.slow_probe))
            }
        };
        let state = match failure.class {
            Class::Fatal => State::Fatal { failure },
            Class::Passing | Class::Refused => {
                let longest = LONGEST_WAIT.max(terms.slow_probe);
                State::Waiting { until: now.after(named.max(planned).min(longest)), slow, failure }
            }
        };
        (Self { state, attempts, ..self.unheard() }, Some(Effect::Disconnect))
    }

    fn tick(self, now: Millis, roll: u64, terms: &Terms) -> (Self, Option<Effect>) {
        let due = self.due(terms).is_some_and(|due| now >= due);
        let name = terms.name;
        let passing =
            |code, reason| (Fault::Later { after: None }, Failure { class: Class::Passing, code, reason });
        match self.state {
            State::Waiting { until, .. } => {
                let longest = LONGEST_WAIT.max(terms.slow_probe);
                if due || until.since(now) > longest { self.connect(now) } else { (self, None) }
            }
            State::Connecting { since } if due => {
                let reason = format!("{name} connect timed out after {}s", now.since(since).as_secs());
                let (fault, failure) = passing(format!("{name}_connect_timeout"), reason);
                self.broke(now, roll, fault, failure, terms)
            }
            State::Up { since } if due => {
                let silence = now.since(self.heard(since)).as_secs();
                let reason = format!("nothing came in for {silence}s, though the connection stands");
                let (fault, failure) = passing(format!("{name}_silent"), reason);
                self.broke(now, roll, fault, failure, terms)
            }
            State::Connecting { .. } | State::Up { .. } | State::Fatal { .. } | State::Paused => (self, None),
        }
    }

    /// One that has trouble was awake when it said so: its own patience counts, up to a point.
    fn bounded(&self, since: Millis, limit: Option<Duration>) -> Option<Millis> {
        let patience = if self.trouble.is_some() { TROUBLED } else { Duration::ZERO };
        limit.map(|limit| since.after(limit.max(patience)))
    }

    fn heard(&self, since: Millis) -> Millis {
        self.last_inbound.unwrap_or(since).max(since)
    }
}

const fn class(fault: Fault) -> Class {
    match fault {
        Fault::Later { .. } => Class::Passing,
        Fault::Refused => Class::Refused,
        Fault::Fatal => Class::Fatal,
    }
}

#[cfg(test)]
mod tests;
