//! Why the process is to end, which wish wins, and how it ends.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::machine::State;
use crate::session::ResumeReason;

/// Why we leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Leave {
    /// Every platform is lost for good, and nothing else is served.
    Deserted,
    /// A signal that nobody announced: whoever looks after us may want us back.
    Signal,
    Restart {
        how: How,
        from: From,
    },
    /// A person or a service manager wants us gone. Nothing but a failure overrides it.
    Stop,
    /// No platform will have us as we are configured.
    Unstartable,
    /// A part we cannot live without has ended.
    Failure,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// Somebody starts us again when we exit with 75.
    Service,
    /// We leave a helper behind that does.
    Detached,
}

/// Where a restart was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum From {
    Chat,
    Outside,
}

/// A stop is never shorter than this for whoever waits for it.
const SHORTEST_STOP: Duration = Duration::from_secs(60);
/// What a stop needs beside the drain: saying goodbye, closing connections, closing the database.
const AFTER_THE_DRAIN: Duration = Duration::from_secs(30);
/// A stop that takes this much longer than its drain hangs.
const HUNG: Duration = Duration::from_secs(60);

/// How long a service manager must wait before it kills us. The one number that every unit, marker and waiting
/// command goes by.
pub fn stop_budget(drain: Duration) -> Duration {
    SHORTEST_STOP.max(drain.saturating_add(AFTER_THE_DRAIN))
}

/// When the watchdog of a stop ends the process by force.
pub fn hung_after(drain: Duration) -> Duration {
    drain.saturating_add(HUNG)
}

impl Leave {
    /// Whether this takes the place of `current`. A restart turns a mere signal into a restart; a stop that
    /// somebody asked for stays a stop.
    pub fn outranks(self, current: Self) -> bool {
        self.rank() > current.rank()
    }

    const fn rank(self) -> u8 {
        match self {
            Self::Deserted => 0,
            Self::Signal => 1,
            Self::Restart { .. } => 2,
            Self::Stop => 3,
            Self::Unstartable => 4,
            Self::Failure => 5,
        }
    }

    pub const fn is_restart(self) -> bool {
        matches!(self, Self::Restart { .. })
    }

    /// Whether somebody is likely to start us again soon: then what was accepted before can wait for that.
    pub const fn comes_back(self) -> bool {
        match self {
            Self::Restart { .. } | Self::Signal => true,
            Self::Deserted | Self::Stop | Self::Unstartable | Self::Failure => false,
        }
    }

    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Stop | Self::Deserted | Self::Restart { how: How::Detached, .. } => 0,
            Self::Signal | Self::Failure => 1,
            Self::Restart { how: How::Service, .. } => 75,
            Self::Unstartable => 78,
        }
    }

    /// The last thing that is published. After an unannounced signal that is `running`: a container that is made
    /// anew starts us again.
    pub const fn last_words(self) -> State {
        match self {
            Self::Signal => State::Running,
            Self::Unstartable => State::StartupFailed,
            Self::Stop | Self::Deserted | Self::Restart { .. } | Self::Failure => State::Stopped,
        }
    }

    /// Why a turn that is still running at the end has to be resumed.
    pub const fn resume_reason(self) -> ResumeReason {
        match self {
            Self::Restart { .. } => ResumeReason::RestartTimeout,
            Self::Deserted | Self::Signal | Self::Stop | Self::Unstartable | Self::Failure => {
                ResumeReason::ShutdownTimeout
            }
        }
    }

    /// What a chat with a running turn is told.
    pub const fn banner(self) -> &'static str {
        match self {
            Self::Restart { .. } => {
                "🔄 Gateway restarting. What I am doing here may be interrupted; afterwards I will try to resume it."
            }
            Self::Deserted | Self::Signal | Self::Stop | Self::Unstartable | Self::Failure => {
                "⏹ Gateway shutting down. What I am doing here may be interrupted."
            }
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deserted => "deserted",
            Self::Signal => "signal",
            Self::Restart { .. } => "restart",
            Self::Stop => "stop",
            Self::Unstartable => "unstartable",
            Self::Failure => "failure",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: Leave = Leave::Restart { how: How::Service, from: From::Outside };
    const DETACHED: Leave = Leave::Restart { how: How::Detached, from: From::Chat };

    #[test]
    fn every_end_has_its_exit_code_and_last_words() {
        for (leave, code, words) in [
            (Leave::Stop, 0, State::Stopped),
            (Leave::Signal, 1, State::Running),
            (SERVICE, 75, State::Stopped),
            (DETACHED, 0, State::Stopped),
            (Leave::Deserted, 0, State::Stopped),
            (Leave::Unstartable, 78, State::StartupFailed),
            (Leave::Failure, 1, State::Stopped),
        ] {
            assert_eq!((leave.exit_code(), leave.last_words()), (code, words), "{leave:?}");
        }
    }

    #[test]
    fn every_end_has_its_name_its_return_and_its_reason_to_resume() {
        for (leave, name, comes_back, reason) in [
            (Leave::Deserted, "deserted", false, ResumeReason::ShutdownTimeout),
            (Leave::Signal, "signal", true, ResumeReason::ShutdownTimeout),
            (SERVICE, "restart", true, ResumeReason::RestartTimeout),
            (DETACHED, "restart", true, ResumeReason::RestartTimeout),
            (Leave::Stop, "stop", false, ResumeReason::ShutdownTimeout),
            (Leave::Unstartable, "unstartable", false, ResumeReason::ShutdownTimeout),
            (Leave::Failure, "failure", false, ResumeReason::ShutdownTimeout),
        ] {
            assert_eq!(
                (leave.as_str(), leave.comes_back(), leave.resume_reason()),
                (name, comes_back, reason)
            );
            assert_eq!(leave.is_restart(), name == "restart");
        }
    }

    #[test]
    fn a_restart_upgrades_a_signal_and_never_an_operators_stop() {
        for (asked, current, want) in [
            (SERVICE, Leave::Signal, true),
            (SERVICE, Leave::Stop, false),
            (SERVICE, DETACHED, false),
            (Leave::Stop, SERVICE, true),
            (Leave::Stop, Leave::Signal, true),
            (Leave::Signal, SERVICE, false),
            (Leave::Failure, Leave::Stop, true),
        ] {
            assert_eq!(asked.outranks(current), want, "{asked:?} over {current:?}");
        }
    }

    #[test]
    fn a_restart_promises_to_resume_and_a_stop_does_not() {
        assert!(
            SERVICE.banner().contains("Gateway restarting") && SERVICE.banner().contains("try to resume")
        );
        assert!(
            Leave::Stop.banner().contains("Gateway shutting down")
                && !Leave::Stop.banner().contains("resume")
        );
        assert!(SERVICE.banner().contains("interrupted") && Leave::Stop.banner().contains("interrupted"));
    }

    #[test]
    fn the_budget_of_a_stop_covers_its_drain() {
        for (drain, want) in [(0, 60), (20, 60), (30, 60), (60, 90), (600, 630)] {
            assert_eq!(stop_budget(Duration::from_secs(drain)), Duration::from_secs(want));
        }
        assert_eq!(stop_budget(Duration::MAX), Duration::MAX);
        assert_eq!(hung_after(Duration::from_secs(60)), Duration::from_secs(120));
    }
}
