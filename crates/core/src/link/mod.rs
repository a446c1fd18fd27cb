//! The state machine of one link: when to connect, how long to wait, when to stop.
//!
//! Each connection has a generation number; events of older generations are ignored. A temporary failure is retried
//! without end: with growing waits at first, then as a slow probe. A failure that needs a person stops the link. A link
//! that was up is reconnected at once. A connection that takes too long or falls silent counts as failed.
//!
//! An adapter that keeps its session over a broken connection first reconnects on its own (`reconnect`). Meanwhile the
//! link has a `retry_reason` but has not failed.

pub mod outage;
pub mod reconnect;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use self::reconnect::RetrySchedule;
use crate::backoff::{MIDDLE_ROLL, RECONNECT};
use crate::fault::Fault;
use crate::time::Millis;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    Connecting {
        since: Millis,
    },
    /// Inbound data was received, the only proof that the connection works.
    Up {
        since: Millis,
    },
    /// Failed; retried at `until`. `slow`: the fast attempts are used up.
    Waiting {
        until: Millis,
        slow: bool,
        #[serde(flatten)]
        failure: Failure,
    },
    /// Stopped until a person changes something.
    Fatal {
        #[serde(flatten)]
        failure: Failure,
    },
    /// Stopped by the operator.
    Paused,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub class: FailureClass,
    /// A stable code: `telegram_invalid_token`.
    pub code: String,
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    Passing,
    /// Rejected by the platform, which may change its mind.
    Refused,
    Fatal,
}

impl FailureClass {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passing => "passing",
            Self::Refused => "refused",
            Self::Fatal => "fatal",
        }
    }

    /// For people.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Passing => "temporary",
            Self::Refused => "refused",
            Self::Fatal => "fatal",
        }
    }
}

/// A part of a platform that fails until a person fixes it, while the rest works.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartialOutage {
    /// For example `workspace Acme (T1)`.
    #[serde(rename = "what")]
    pub part: String,
    pub code: String,
    pub reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    #[serde(flatten)]
    pub state: State,
    pub generation: u64,
    /// Consecutive failed attempts.
    pub attempts: u32,
    /// Why the adapter is reconnecting on its own.
    #[serde(rename = "trouble", default, skip_serializing_if = "Option::is_none")]
    pub retry_reason: Option<String>,
    /// The last inbound data of any generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_inbound: Option<Millis>,
    /// Missed messages are being fetched.
    #[serde(rename = "catching_up", default, skip_serializing_if = "core::ops::Not::not")]
    pub backfilling: bool,
    /// Age of the oldest message of the last late batch, until the backfill is complete.
    #[serde(rename = "behind_ms", default, skip_serializing_if = "Option::is_none")]
    pub lag_ms: Option<u64>,
    #[serde(rename = "lacks", default, skip_serializing_if = "Vec::is_empty")]
    pub partial_outages: Vec<PartialOutage>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkPolicy {
    /// The name of the link in its messages.
    pub name: &'static str,
    /// Consecutive failed attempts before the slow probe. `None`: no slow probe.
    pub fast_attempts: Option<u32>,
    pub slow_probe: Duration,
    pub jitter: bool,
    pub connect_within: Option<Duration>,
    /// Maximum silence of a healthy link. `None`: silence means nothing.
    pub longest_silence: Option<Duration>,
}

impl Default for LinkPolicy {
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
    /// Inbound data was received, and no known message is missing.
    Alive {
        generation: u64,
    },
    /// Inbound data was received, and more is to be fetched.
    Backfilling {
        generation: u64,
    },
    /// The complete list of partial outages.
    PartialOutages {
        generation: u64,
        outages: Vec<PartialOutage>,
    },
    /// Messages were committed. `oldest`: when the oldest one was sent, if known.
    Committed {
        generation: u64,
        oldest: Option<Millis>,
    },
    /// The adapter is reconnecting on its own.
    Retrying {
        generation: u64,
        reason: String,
    },
    Failed {
        generation: u64,
        fault: Fault,
        code: String,
        reason: String,
    },
    Tick,
    /// Connect now, on behalf of the operator or after a network change.
    Retry,
    Pause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkEffect {
    /// Close connections of older generations, then connect.
    Connect {
        generation: u64,
    },
    Disconnect,
    /// The link is up: lanes may send.
    CameUp,
}

/// Whether messages are received now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    Up,
    Down,
    /// Down on the owner's request.
    Paused,
}

/// A longer wait was not planned: the clock was set back.
const MAX_WAIT: Duration = Duration::from_secs(3600);
/// Minimum time between two connections of a link that fails right after coming up.
const MIN_RECONNECT_INTERVAL: Duration = Duration::from_secs(10);
/// Silence limit while an adapter reconnects, longer than any adapter's own attempts.
const MAX_SILENCE_WHILE_RETRYING: Duration = Duration::from_secs(1800);
/// Messages older than this count as late; platforms report whole seconds, and clocks differ.
const LATE: Duration = Duration::from_secs(10);

impl Default for Link {
    fn default() -> Self {
        Self {
            state: State::Connecting { since: Millis(0) },
            generation: 0,
            attempts: 0,
            retry_reason: None,
            last_inbound: None,
            backfilling: false,
            lag_ms: None,
            partial_outages: Vec::new(),
        }
    }
}

impl Link {
    /// A link that lacks required configuration and is never tried.
    pub fn unconfigured(code: String, reason: String) -> Self {
        let failure = Failure { class: FailureClass::Fatal, code, reason };
        Self { state: State::Fatal { failure }, ..Self::default() }
    }

    /// The published state: `connecting`, `connected`, `retrying`, `paused`, `disabled` or `fatal`.
    pub fn status(&self) -> &'static str {
        match (&self.state, &self.retry_reason) {
            (State::Fatal { failure }, _) if failure.code.ends_with("_disabled") => "disabled",
            (State::Connecting { .. }, None) => "connecting",
            (State::Connecting { .. } | State::Up { .. }, Some(_))
            | (State::Waiting { slow: false, .. }, _) => "retrying",
            (State::Up { .. }, None) => "connected",
            (State::Waiting { slow: true, .. } | State::Paused, _) => "paused",
            (State::Fatal { .. }, _) => "fatal",
        }
    }

    pub const fn availability(&self) -> Availability {
        match (&self.state, &self.retry_reason) {
            (State::Up { .. }, None) => Availability::Up,
            (State::Paused, _) => Availability::Paused,
            (State::Up { .. }, Some(_))
            | (State::Connecting { .. } | State::Waiting { .. } | State::Fatal { .. }, _) => {
                Availability::Down
            }
        }
    }

    /// The failure of a link that waits or has stopped.
    pub const fn failure(&self) -> Option<&Failure> {
        match &self.state {
            State::Waiting { failure, .. } | State::Fatal { failure } => Some(failure),
            State::Connecting { .. } | State::Up { .. } | State::Paused => None,
        }
    }

    pub fn due(&self, policy: &LinkPolicy) -> Option<Millis> {
        match &self.state {
            State::Waiting { until, .. } => Some(*until),
            State::Connecting { since } => self.deadline(*since, policy.connect_within),
            State::Up { since } => self.deadline(self.last_sign_of_life(*since), policy.longest_silence),
            State::Fatal { .. } | State::Paused => None,
        }
    }

    pub fn step(
        self,
        now: Millis,
        roll: u64,
        event: Event,
        policy: &LinkPolicy,
    ) -> (Self, Option<LinkEffect>) {
        match event {
            Event::Start => self.connect(now),
            Event::Alive { generation } if generation == self.generation => {
                Self { backfilling: false, lag_ms: None, ..self }.alive(now)
            }
            Event::Backfilling { generation } if generation == self.generation => {
                Self { backfilling: true, ..self }.alive(now)
            }
            Event::Committed { generation, oldest } if generation == self.generation => {
                (self.committed(now, oldest), None)
            }
            Event::PartialOutages { generation, outages } if generation == self.generation => {
                (Self { partial_outages: outages, ..self }, None)
            }
            Event::Failed { generation, fault, code, reason } if generation == self.generation => {
                self.failed(now, roll, fault, Failure { class: class(fault), code, reason }, policy)
            }
            Event::Retrying { generation, reason } if generation == self.generation => {
                (Self { retry_reason: Some(reason), ..self }, None)
            }
            // An older generation.
            Event::Alive { .. }
            | Event::Backfilling { .. }
            | Event::Committed { .. }
            | Event::PartialOutages { .. }
            | Event::Retrying { .. }
            | Event::Failed { .. } => (self, None),
            Event::Tick => self.tick(now, roll, policy),
            Event::Retry => Self { attempts: 0, ..self }.connect(now),
            Event::Pause => {
                let generation = self.generation + 1;
                (
                    Self { state: State::Paused, generation, ..self.without_reports() },
                    Some(LinkEffect::Disconnect),
                )
            }
        }
    }

    fn connect(self, now: Millis) -> (Self, Option<LinkEffect>) {
        let generation = self.generation + 1;
        let state = State::Connecting { since: now };
        (Self { state, generation, ..self.without_reports() }, Some(LinkEffect::Connect { generation }))
    }

    /// Clears the reports of the ended connection.
    fn without_reports(self) -> Self {
        Self { retry_reason: None, backfilling: false, lag_ms: None, partial_outages: Vec::new(), ..self }
    }

    /// A live message between late batches does not end the backfill.
    fn committed(self, now: Millis, oldest: Option<Millis>) -> Self {
        let age = oldest.map(|sent| now.since(sent)).filter(|age| *age >= LATE);
        let late = age.map(|age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        Self { lag_ms: late.or(self.lag_ms.filter(|_| self.backfilling)), ..self }
    }

    fn alive(self, now: Millis) -> (Self, Option<LinkEffect>) {
        let link = Self { retry_reason: None, last_inbound: Some(now), ..self };
        match link.state {
            State::Up { .. } => (link, None),
            State::Connecting { .. } => {
                (Self { state: State::Up { since: now }, attempts: 0, ..link }, Some(LinkEffect::CameUp))
            }
            State::Waiting { .. } | State::Fatal { .. } | State::Paused => (link, None),
        }
    }

    fn failed(
        self,
        now: Millis,
        roll: u64,
        fault: Fault,
        failure: Failure,
        policy: &LinkPolicy,
    ) -> (Self, Option<LinkEffect>) {
        let named = match fault {
            Fault::Later { after } => after.unwrap_or_default(),
            Fault::Refused | Fault::Fatal => Duration::ZERO,
        };
        let (attempts, slow, planned) = match self.state {
            // A second failure changes nothing.
            State::Waiting { .. } | State::Fatal { .. } | State::Paused => return (self, None),
            State::Up { since } => (0, false, since.after(MIN_RECONNECT_INTERVAL).since(now)),
            State::Connecting { .. } => {
                let attempts = self.attempts.saturating_add(1);
                let pace =
                    RetrySchedule { immediate: 0, schedule: RECONNECT, give_up_at: policy.fast_attempts };
                let wait = pace.wait(attempts, if policy.jitter { roll } else { MIDDLE_ROLL });
                (attempts, wait.is_none(), wait.unwrap_or(policy.slow_probe))
            }
        };
        let state = match failure.class {
            FailureClass::Fatal => State::Fatal { failure },
            FailureClass::Passing | FailureClass::Refused => {
                let longest = MAX_WAIT.max(policy.slow_probe);
                State::Waiting { until: now.after(named.max(planned).min(longest)), slow, failure }
            }
        };
        (Self { state, attempts, ..self.without_reports() }, Some(LinkEffect::Disconnect))
    }

    fn tick(self, now: Millis, roll: u64, policy: &LinkPolicy) -> (Self, Option<LinkEffect>) {
        let due = self.due(policy).is_some_and(|due| now >= due);
        let name = policy.name;
        let passing = |code, reason| {
            (Fault::Later { after: None }, Failure { class: FailureClass::Passing, code, reason })
        };
        match self.state {
            State::Waiting { until, .. } => {
                let longest = MAX_WAIT.max(policy.slow_probe);
                if due || until.since(now) > longest { self.connect(now) } else { (self, None) }
            }
            State::Connecting { since } if due => {
                let reason = format!("{name} connect timed out after {}s", now.since(since).as_secs());
                let (fault, failure) = passing(format!("{name}_connect_timeout"), reason);
                self.failed(now, roll, fault, failure, policy)
            }
            State::Up { since } if due => {
                let silence = now.since(self.last_sign_of_life(since)).as_secs();
                let reason = format!("no data received for {silence}s on an open connection");
                let (fault, failure) = passing(format!("{name}_silent"), reason);
                self.failed(now, roll, fault, failure, policy)
            }
            State::Connecting { .. } | State::Up { .. } | State::Fatal { .. } | State::Paused => (self, None),
        }
    }

    /// An adapter that reconnects on its own gets a longer limit.
    fn deadline(&self, since: Millis, limit: Option<Duration>) -> Option<Millis> {
        let minimum = if self.retry_reason.is_some() { MAX_SILENCE_WHILE_RETRYING } else { Duration::ZERO };
        limit.map(|limit| since.after(limit.max(minimum)))
    }

    fn last_sign_of_life(&self, since: Millis) -> Millis {
        self.last_inbound.unwrap_or(since).max(since)
    }
}

const fn class(fault: Fault) -> FailureClass {
    match fault {
        Fault::Later { .. } => FailureClass::Passing,
        Fault::Refused => FailureClass::Refused,
        Fault::Fatal => FailureClass::Fatal,
    }
}

#[cfg(test)]
mod tests;
