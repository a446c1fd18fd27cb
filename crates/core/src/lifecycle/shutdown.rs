//! Shutdown reasons: which one wins, and how the process ends.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::machine::State;
use crate::session::ResumeReason;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum ShutdownReason {
    /// All platforms have failed permanently, and nothing else is served.
    #[serde(rename = "deserted")]
    AllPlatformsLost,
    /// An unannounced signal; a supervisor may restart the process.
    Signal,
    Restart {
        #[serde(rename = "how")]
        method: RestartMethod,
        #[serde(rename = "from")]
        origin: RestartOrigin,
    },
    /// Requested by a person or a service manager. Only a failure overrides it.
    Stop,
    /// No platform accepts the configuration.
    Unstartable,
    /// An essential task has ended.
    Failure,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestartMethod {
    /// A service manager restarts the process after exit code 75.
    Service,
    /// A helper process restarts it.
    Detached,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestartOrigin {
    Chat,
    Outside,
}

const MIN_STOP_BUDGET: Duration = Duration::from_secs(60);
/// Time for goodbyes, closing connections and closing the database.
const AFTER_THE_DRAIN: Duration = Duration::from_secs(30);
/// Time after the drain at which a stop counts as hung.
const HUNG: Duration = Duration::from_secs(60);

/// How long a service manager must wait before it kills the process. Used by all units, markers and waiting commands.
pub fn stop_budget(drain: Duration) -> Duration {
    MIN_STOP_BUDGET.max(drain.saturating_add(AFTER_THE_DRAIN))
}

/// When the watchdog kills a hung stop.
pub fn hung_after(drain: Duration) -> Duration {
    drain.saturating_add(HUNG)
}

impl ShutdownReason {
    /// Whether this replaces `current`. A restart replaces a signal, but never a requested stop.
    pub fn outranks(self, current: Self) -> bool {
        self.rank() > current.rank()
    }

    const fn rank(self) -> u8 {
        match self {
            Self::AllPlatformsLost => 0,
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

    /// Whether a restart is likely, so that accepted messages can wait for it.
    pub const fn expects_restart(self) -> bool {
        match self {
            Self::Restart { .. } | Self::Signal => true,
            Self::AllPlatformsLost | Self::Stop | Self::Unstartable | Self::Failure => false,
        }
    }

    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Stop | Self::AllPlatformsLost | Self::Restart { method: RestartMethod::Detached, .. } => 0,
            Self::Signal | Self::Failure => 1,
            Self::Restart { method: RestartMethod::Service, .. } => 75,
            Self::Unstartable => 78,
        }
    }

    /// The last published state. After an unannounced signal it is `running`, because a recreated container starts again.
    pub const fn final_state(self) -> State {
        match self {
            Self::Signal => State::Running,
            Self::Unstartable => State::StartupFailed,
            Self::Stop | Self::AllPlatformsLost | Self::Restart { .. } | Self::Failure => State::Stopped,
        }
    }

    /// The resume reason of a turn that is still running at the end.
    pub const fn resume_reason(self) -> ResumeReason {
        match self {
            Self::Restart { .. } => ResumeReason::RestartTimeout,
            Self::AllPlatformsLost | Self::Signal | Self::Stop | Self::Unstartable | Self::Failure => {
                ResumeReason::ShutdownTimeout
            }
        }
    }

    /// The banner for chats with a running turn.
    pub const fn banner(self) -> &'static str {
        match self {
            Self::Restart { .. } => crate::notices::RESTART_BANNER,
            Self::AllPlatformsLost | Self::Signal | Self::Stop | Self::Unstartable | Self::Failure => {
                crate::notices::SHUTDOWN_BANNER
            }
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AllPlatformsLost => "deserted",
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

    const SERVICE: ShutdownReason =
        ShutdownReason::Restart { method: RestartMethod::Service, origin: RestartOrigin::Outside };
    const DETACHED: ShutdownReason =
        ShutdownReason::Restart { method: RestartMethod::Detached, origin: RestartOrigin::Chat };

    #[test]
    fn every_reason_has_an_exit_code_and_a_final_state() {
        for (leave, code, words) in [
            (ShutdownReason::Stop, 0, State::Stopped),
            (ShutdownReason::Signal, 1, State::Running),
            (SERVICE, 75, State::Stopped),
            (DETACHED, 0, State::Stopped),
            (ShutdownReason::AllPlatformsLost, 0, State::Stopped),
            (ShutdownReason::Unstartable, 78, State::StartupFailed),
            (ShutdownReason::Failure, 1, State::Stopped),
        ] {
            assert_eq!((leave.exit_code(), leave.final_state()), (code, words), "{leave:?}");
        }
    }

    #[test]
    fn every_reason_has_a_name_and_a_resume_reason() {
        for (leave, name, comes_back, reason) in [
            (ShutdownReason::AllPlatformsLost, "deserted", false, ResumeReason::ShutdownTimeout),
            (ShutdownReason::Signal, "signal", true, ResumeReason::ShutdownTimeout),
            (SERVICE, "restart", true, ResumeReason::RestartTimeout),
            (DETACHED, "restart", true, ResumeReason::RestartTimeout),
            (ShutdownReason::Stop, "stop", false, ResumeReason::ShutdownTimeout),
            (ShutdownReason::Unstartable, "unstartable", false, ResumeReason::ShutdownTimeout),
            (ShutdownReason::Failure, "failure", false, ResumeReason::ShutdownTimeout),
        ] {
            assert_eq!(
                (leave.as_str(), leave.expects_restart(), leave.resume_reason()),
                (name, comes_back, reason)
            );
            assert_eq!(leave.is_restart(), name == "restart");
        }
    }

    #[test]
    fn restart_outranks_a_signal_but_not_a_stop() {
        for (asked, current, want) in [
            (SERVICE, ShutdownReason::Signal, true),
            (SERVICE, ShutdownReason::Stop, false),
            (SERVICE, DETACHED, false),
            (ShutdownReason::Stop, SERVICE, true),
            (ShutdownReason::Stop, ShutdownReason::Signal, true),
            (ShutdownReason::Signal, SERVICE, false),
            (ShutdownReason::Failure, ShutdownReason::Stop, true),
        ] {
            assert_eq!(asked.outranks(current), want, "{asked:?} over {current:?}");
        }
    }

    #[test]
    fn restart_banner_promises_to_resume() {
        assert!(
            SERVICE.banner().contains("Gateway restarting") && SERVICE.banner().contains("try to resume")
        );
        assert!(
            ShutdownReason::Stop.banner().contains("Gateway shutting down")
                && !ShutdownReason::Stop.banner().contains("resume")
        );
        assert!(
            SERVICE.banner().contains("interrupted") && ShutdownReason::Stop.banner().contains("interrupted")
        );
    }

    #[test]
    fn stop_budget_covers_the_drain() {
        for (drain, want) in [(0, 60), (20, 60), (30, 60), (60, 90), (600, 630)] {
            assert_eq!(stop_budget(Duration::from_secs(drain)), Duration::from_secs(want));
        }
        assert_eq!(stop_budget(Duration::MAX), Duration::MAX);
        assert_eq!(hung_after(Duration::from_secs(60)), Duration::from_secs(120));
    }
}
