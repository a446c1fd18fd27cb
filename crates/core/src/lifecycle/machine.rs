//! The lifecycle state machine: the published state, and whether a turn may start.
//!
//! Shutdown takes precedence over an external drain, and a drain over running or degraded. A drain does not affect running
//! turns.

use alloc::string::String;

use serde::{Deserialize, Serialize};

use super::marker::Marker;
use super::shutdown::ShutdownReason;
use crate::time::Millis;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Starting,
    Running,
    /// Running, but no platform is connected.
    Degraded,
    /// No new turns: an external drain or a shutdown.
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
    /// The external drain, which can be withdrawn.
    drain: Option<Drain>,
    /// Platforms are configured, but none is connected.
    disconnected: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Starting,
    Up,
    ShuttingDown { reason: ShutdownReason, since: Millis },
    Ended { reason: ShutdownReason },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Drain {
    pub since: Millis,
    pub principal: Option<String>,
    pub reason: Option<String>,
    /// As in the marker; renewed while the drain is wanted.
    pub requested_at: Option<String>,
    pub suppress_notification: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Started,
    /// The drain marker as last read; `None`: none is in force.
    Marker(Option<Marker>),
    /// Platforms are configured, but none is connected.
    AllDisconnected(bool),
    Shutdown(ShutdownReason),
    Ended,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnOrigin {
    User,
    /// The gateway: completed work of an earlier turn.
    Internal,
    /// A turn that was interrupted.
    Resumed,
}

/// Why a turn may not start now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAccepting {
    Draining,
    ShuttingDown {
        restart: bool,
    },
    /// The limit of concurrent sessions is reached.
    AtCapacity {
        running: usize,
        cap: usize,
    },
}

/// Whether new turns are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateState {
    Open,
    Draining,
    ShuttingDown { restart: bool },
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self { stage: Stage::Starting, drain: None, disconnected: false }
    }
}

impl Lifecycle {
    /// Returns the state to publish, if it has changed.
    pub fn step(self, now: Millis, event: Event) -> (Self, Option<State>) {
        let before = self.state();
        let after = match event {
            Event::Started => self.started(),
            Event::Marker(marker) => self.marker(now, marker),
            Event::AllDisconnected(disconnected) => Self { disconnected, ..self },
            Event::Shutdown(reason) => self.shut_down(now, reason),
            Event::Ended => self.ended(),
        };
        let state = after.state();
        (after, (state != before).then_some(state))
    }

    pub const fn state(&self) -> State {
        match (self.stage, &self.drain, self.disconnected) {
            (Stage::Ended { reason }, _, _) => reason.final_state(),
            (Stage::ShuttingDown { .. }, _, _) | (Stage::Starting | Stage::Up, Some(_), _) => State::Draining,
            (Stage::Starting, None, _) => State::Starting,
            (Stage::Up, None, true) => State::Degraded,
            (Stage::Up, None, false) => State::Running,
        }
    }

    pub const fn drain(&self) -> Option<&Drain> {
        self.drain.as_ref()
    }

    /// The shutdown reason and its start.
    pub const fn shutdown(&self) -> Option<(ShutdownReason, Millis)> {
        match self.stage {
            Stage::ShuttingDown { reason, since } => Some((reason, since)),
            Stage::Starting | Stage::Up | Stage::Ended { .. } => None,
        }
    }

    pub const fn has_started(&self) -> bool {
        !matches!(self.stage, Stage::Starting)
    }

    pub const fn gate(&self) -> GateState {
        match self.stage {
            Stage::ShuttingDown { reason, .. } | Stage::Ended { reason } => {
                GateState::ShuttingDown { restart: reason.is_restart() }
            }
            Stage::Starting | Stage::Up => match self.drain {
                Some(_) => GateState::Draining,
                None => GateState::Open,
            },
        }
    }

    /// Whether a turn may start while this many are running.
    pub fn admits(&self, origin: TurnOrigin, running: usize, cap: Option<usize>) -> Result<(), NotAccepting> {
        match (self.gate(), origin) {
            (
                GateState::ShuttingDown { restart },
                TurnOrigin::User | TurnOrigin::Internal | TurnOrigin::Resumed,
            ) => Err(NotAccepting::ShuttingDown { restart }),
            (GateState::Draining, TurnOrigin::User) => Err(NotAccepting::Draining),
            (GateState::Draining, TurnOrigin::Internal | TurnOrigin::Resumed)
            | (GateState::Open, TurnOrigin::Resumed) => Ok(()),
            (GateState::Open, TurnOrigin::User | TurnOrigin::Internal) => match cap {
                Some(cap) if running >= cap => Err(NotAccepting::AtCapacity { running, cap }),
                Some(_) | None => Ok(()),
            },
        }
    }

    fn started(self) -> Self {
        match self.stage {
            Stage::Starting => Self { stage: Stage::Up, ..self },
            Stage::Up | Stage::ShuttingDown { .. } | Stage::Ended { .. } => self,
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

    fn shut_down(self, now: Millis, reason: ShutdownReason) -> Self {
        let stage = match self.stage {
            Stage::Starting | Stage::Up => Stage::ShuttingDown { reason, since: now },
            Stage::ShuttingDown { reason: current, since } if reason.outranks(current) => {
                Stage::ShuttingDown { reason, since }
            }
            Stage::ShuttingDown { .. } | Stage::Ended { .. } => self.stage,
        };
        Self { stage, ..self }
    }

    fn ended(self) -> Self {
        let stage = match self.stage {
            Stage::ShuttingDown { reason, .. } => Stage::Ended { reason },
            Stage::Starting | Stage::Up => Stage::Ended { reason: ShutdownReason::Failure },
            Stage::Ended { .. } => self.stage,
        };
        Self { stage, drain: None, ..self }
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
