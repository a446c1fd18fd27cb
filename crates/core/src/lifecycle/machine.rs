//! What the gateway is doing, and whether a turn may start.
//!
//! Three layers, the upper hiding the lower: leaving, then an external drain, then running or deaf. A lower
//! layer never publishes over a higher one. A drain touches no running turn: it only closes the door.

use alloc::string::String;

use serde::{Deserialize, Serialize};

use super::leave::Leave;
use super::marker::Marker;
use crate::time::Millis;

/// As published in the status file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Starting,
    Running,
    /// Running, but no platform is connected.
    Degraded,
    /// New turns wait: somebody asked for it, or we are leaving.
    Draining,
    Stopped,
    StartupFailed,
}

impl State {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Degraded => "degraded",
            Self::Draining => "draining",
            Self::Stopped => "stopped",
            Self::StartupFailed => "startup_failed",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lifecycle {
    stage: Stage,
    /// The external drain, which can be taken back.
    drain: Option<Drain>,
    /// There are platforms, and none of them is connected.
    deaf: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Starting,
    Up,
    Leaving { why: Leave, since: Millis },
    Ended { why: Leave },
}

/// Who asked for an external drain, and when it began here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Drain {
    pub since: Millis,
    pub principal: Option<String>,
    pub reason: Option<String>,
    /// As the marker says it; rewritten by whoever keeps the drain alive.
    pub requested_at: Option<String>,
    pub suppress_notification: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Everything is in place.
    Started,
    /// The drain marker as it was last seen; `None`: none that counts.
    Marker(Option<Marker>),
    /// Whether platforms are configured and none is connected.
    Deaf(bool),
    Leave(Leave),
    /// The last thing before the process ends.
    Ended,
}

/// Who wants to start a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Claim {
    /// Somebody wrote.
    User,
    /// The gateway itself: work of an earlier turn that has ended.
    Internal,
    /// A turn that had begun before.
    Resumed,
}

/// Why a turn may not start now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    Draining,
    Leaving {
        restart: bool,
    },
    /// As many sessions are at work as may be.
    Full {
        running: usize,
        cap: usize,
    },
}

/// The door as somebody who stands before it sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    Open,
    Draining,
    Leaving { restart: bool },
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self { stage: Stage::Starting, drain: None, deaf: false }
    }
}

impl Lifecycle {
    /// The second value is what has to be published; `None`: nothing new.
    pub fn step(self, now: Millis, event: Event) -> (Self, Option<State>) {
        let before = self.state();
        let after = match event {
            Event::Started => self.started(),
            Event::Marker(marker) => self.marker(now, marker),
            Event::Deaf(deaf) => Self { deaf, ..self },
            Event::Leave(why) => self.leave(now, why),
            Event::Ended => self.ended(),
        };
        let state = after.state();
        (after, (state != before).then_some(state))
    }

    pub const fn state(&self) -> State {
        match (self.stage, &self.drain, self.deaf) {
            (Stage::Ended { why }, _, _) => why.last_words(),
            (Stage::Leaving { .. }, _, _) | (Stage::Starting | Stage::Up, Some(_), _) => State::Draining,
            (Stage::Starting, None, _) => State::Starting,
            (Stage::Up, None, true) => State::Degraded,
            (Stage::Up, None, false) => State::Running,
        }
    }

    pub const fn drain(&self) -> Option<&Drain> {
        self.drain.as_ref()
    }

    /// Why we leave, and since when, if we do.
    pub const fn leaving(&self) -> Option<(Leave, Millis)> {
        match self.stage {
            Stage::Leaving { why, since } => Some((why, since)),
            Stage::Starting | Stage::Up | Stage::Ended { .. } => None,
        }
    }

    pub const fn has_started(&self) -> bool {
        !matches!(self.stage, Stage::Starting)
    }

    pub const fn door(&self) -> Door {
        match self.stage {
            Stage::Leaving { why, .. } | Stage::Ended { why } => Door::Leaving { restart: why.is_restart() },
            Stage::Starting | Stage::Up => match self.drain {
                Some(_) => Door::Draining,
                None => Door::Open,
            },
        }
    }

    /// Whether a turn may start, with so many running.
    pub fn admits(&self, claim: Claim, running: usize, cap: Option<usize>) -> Result<(), Closed> {
        match (self.door(), claim) {
            (Door::Leaving { restart }, Claim::User | Claim::Internal | Claim::Resumed) => {
                Err(Closed::Leaving { restart })
            }
            (Door::Draining, Claim::User) => Err(Closed::Draining),
            (Door::Draining, Claim::Internal | Claim::Resumed) | (Door::Open, Claim::Resumed) => Ok(()),
            (Door::Open, Claim::User | Claim::Internal) => match cap {
                Some(cap) if running >= cap => Err(Closed::Full { running, cap }),
                Some(_) | None => Ok(()),
            },
        }
    }

    fn started(self) -> Self {
        match self.stage {
            Stage::Starting => Self { stage: Stage::Up, ..self },
            Stage::Up | Stage::Leaving { .. } | Stage::Ended { .. } => self,
        }
    }

    fn marker(self, now: Millis, marker: Option<Marker>) -> Self {
        let since = self.drain.as_ref().map_or(now, |drain| drain.since);
        let drain = marker.map(|marker| Drain {
            since,
            principal: marker.principal,
            reason: marker.reason,
            requested_at: marker.requested_at,
            suppress_notification: marker.suppress_notification,
        });
        Self { drain, ..self }
    }

    fn leave(self, now: Millis, why: Leave) -> Self {
        let stage = match self.stage {
            Stage::Starting | Stage::Up => Stage::Leaving { why, since: now },
            Stage::Leaving { why: current, since } if why.outranks(current) => Stage::Leaving { why, since },
            Stage::Leaving { .. } | Stage::Ended { .. } => self.stage,
        };
        Self { stage, ..self }
    }

    fn ended(self) -> Self {
        let stage = match self.stage {
            Stage::Leaving { why, .. } => Stage::Ended { why },
            Stage::Starting | Stage::Up => Stage::Ended { why: Leave::Failure },
            Stage::Ended { .. } => self.stage,
        };
        // Whoever asked for quiet has it now.
        Self { stage, drain: None, ..self }
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
