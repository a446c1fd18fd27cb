//! What the end of a socket means, how long to wait for the next one, and when to give the link up. Pure.
//!
//! A socket that was alive (one acknowledged heartbeat) starts the ladder anew and is followed at once.
//! With the usual base of 1 s the others wait 1, 2, 4 and 8 s; the sixth in a row ends the link, and the
//! supervisor's longer waits begin.

use std::time::Duration;

use petasos_core::Fault;
use twilight_model::gateway::CloseCode;

use super::Error;

const TRIES: u32 = 5;

/// How a socket ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ended {
    /// The session lives; `reason` is for the log and the status.
    Resume { reason: &'static str },
    /// The session is over: the next one is new.
    Fresh { reason: &'static str },
    /// Nothing was heard of the gateway.
    Failed(Error),
    /// The link ends.
    End(Error),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Wait { span: Duration, reason: &'static str },
    End(Error),
}

#[derive(Debug)]
pub(super) struct Ladder {
    base: Duration,
    failures: u32,
}

impl Ladder {
    pub(super) fn new(base: Duration) -> Self {
        Self { base, failures: 0 }
    }

    /// A heartbeat was acknowledged.
    pub(super) fn alive(&mut self) {
        self.failures = 0;
    }

    /// `roll`: from 0 to 1; a session that was declared over is followed after 1 to 5 bases.
    pub(super) fn after(&mut self, ended: Ended, roll: f64) -> Step {
        let (reason, error) = match ended {
            Ended::End(error) => return Step::End(error),
            Ended::Failed(error) if error.fault() == Fault::Fatal => return Step::End(error),
            Ended::Failed(error) => (error.code(), Error::Unreachable(Box::new(error))),
            Ended::Resume { reason } | Ended::Fresh { reason } => (reason, Error::Exited(reason)),
        };
        self.failures += 1;
        if self.failures > TRIES {
            return Step::End(error);
        }
        let span = match reason {
            INVALID => self.base.mul_f64(1.0 + 4.0 * roll.clamp(0.0, 1.0)).max(self.waited()),
            _other => self.waited(),
        };
        Step::Wait { span, reason }
    }

    fn waited(&self) -> Duration {
        match self.failures {
            0 | 1 => Duration::ZERO,
            more => self.base * (1 << (more - 2)),
        }
    }
}

pub(super) const INVALID: &str = "discord_invalid_session";

/// What a closed socket means. `code` is the close frame's, if there was one.
pub(super) fn closed(code: Option<u16>) -> Ended {
    let Some(known) = code.and_then(|code| CloseCode::try_from(code).ok()) else {
        return Ended::Resume { reason: "discord_closed" };
    };
    match known {
        CloseCode::InvalidSequence | CloseCode::SessionTimedOut => {
            Ended::Fresh { reason: "discord_session_over" }
        }
        CloseCode::RateLimited => Ended::Resume { reason: "discord_rate_limited" },
        heals if heals.can_reconnect() => Ended::Resume { reason: "discord_closed" },
        stays => Ended::End(Error::Barred(stays)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Failure;

    fn ladder() -> Ladder {
        Ladder::new(Duration::from_secs(1))
    }

    fn resume() -> Ended {
        Ended::Resume { reason: "discord_closed" }
    }

    fn millis(step: Step) -> u128 {
        match step {
            Step::Wait { span, .. } => span.as_millis(),
            Step::End(error) => panic!("a wait, not {error}"),
        }
    }

    #[test]
    fn sockets_that_do_not_hold_are_given_up_at_the_sixth() {
        let mut ladder = ladder();
        let waits: Vec<u128> = (0..5).map(|_| millis(ladder.after(resume(), 0.0))).collect();
        assert_eq!(waits, [0, 1000, 2000, 4000, 8000]);
        assert_eq!(ladder.after(resume(), 0.0), Step::End(Error::Exited("discord_closed")));
    }

    #[test]
    fn a_socket_that_was_alive_is_followed_at_once() {
        let mut ladder = ladder();
        millis(ladder.after(resume(), 0.0));
        millis(ladder.after(resume(), 0.0));
        ladder.alive();
        assert_eq!(millis(ladder.after(resume(), 0.0)), 0);
    }

    #[test]
    fn a_session_that_is_over_is_followed_after_one_to_five_seconds() {
        for (roll, want) in [(0.0, 1000), (0.5, 3000), (1.0, 5000)] {
            assert_eq!(millis(ladder().after(Ended::Fresh { reason: INVALID }, roll)), want);
        }
    }

    #[test]
    fn what_no_wait_heals_ends_at_once() {
        let barred = Error::Barred(CloseCode::AuthenticationFailed);
        assert_eq!(ladder().after(Ended::End(barred.clone()), 0.0), Step::End(barred));
        let refused = Ended::Failed(Failure::Unreached("refused".into()).into());
        assert_eq!(millis(ladder().after(refused, 0.0)), 0);
    }

    #[test]
    fn close_codes_mean_what_discord_says() {
        for code in [None, Some(1000), Some(1001), Some(1006), Some(4000), Some(4001), Some(4008), Some(4999)]
        {
            assert!(matches!(closed(code), Ended::Resume { .. }), "{code:?}");
        }
        for code in [4007, 4009] {
            assert!(matches!(closed(Some(code)), Ended::Fresh { .. }), "{code}");
        }
        for code in [4004, 4010, 4011, 4012, 4013, 4014] {
            assert!(matches!(closed(Some(code)), Ended::End(Error::Barred(_))), "{code}");
        }
    }
}
