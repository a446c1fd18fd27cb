//! Why a socket ended, and how the link goes on. Pure.

use std::time::Duration;

use petasos_core::link::redial::Hint;
use twilight_model::gateway::CloseCode;

use super::Error;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) error: Error,
    pub(super) hint: Hint,
}

/// The gateway could not be reached, or not be understood.
impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self { hint: error.fault().into(), error }
    }
}

impl Ended {
    /// The gateway was reached. `reason` is for the log and the status.
    pub(super) const fn exited(reason: &'static str, hint: Hint) -> Self {
        Self { error: Error::Exited(reason), hint }
    }

    pub(super) const fn give_up(error: Error) -> Self {
        Self { error, hint: Hint::GiveUp }
    }

    pub(super) const fn is_unreached(&self) -> bool {
        !matches!(self.error, Error::Exited(_))
    }

    pub(super) fn reason(&self) -> &'static str {
        if let Error::Exited(reason) = self.error { reason } else { self.error.code() }
    }

    /// The error with which the link ends.
    pub(super) fn given_up(self) -> Error {
        if self.hint == Hint::GiveUp || !self.is_unreached() {
            return self.error;
        }
        Error::Unreachable(Box::new(self.error))
    }
}

/// An invalid session is followed after one to five bases. `share`: from 0 to 1.
pub(super) fn pause_before_session(base: Duration, share: f64) -> Duration {
    base.mul_f64(1.0 + 4.0 * share.clamp(0.0, 1.0))
}

/// What a closed socket means. `code` is the close frame's, if there was one.
pub(super) fn closed(code: Option<u16>) -> Ended {
    let Some(known) = code.and_then(|code| CloseCode::try_from(code).ok()) else {
        return Ended::exited("discord_closed", Hint::Resume);
    };
    match known {
        CloseCode::InvalidSequence | CloseCode::SessionTimedOut => {
            Ended::exited("discord_session_over", Hint::NewSession { after: Duration::ZERO })
        }
        CloseCode::RateLimited => Ended::exited("discord_rate_limited", Hint::Resume),
        heals if heals.can_reconnect() => Ended::exited("discord_closed", Hint::Resume),
        stays => Ended::give_up(Error::Barred(stays)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Failure;

    #[test]
    fn an_invalid_session_is_followed_after_one_to_five_seconds() {
        for (share, want) in [(0.0, 1000), (0.5, 3000), (1.0, 5000)] {
            assert_eq!(pause_before_session(Duration::from_secs(1), share).as_millis(), want);
        }
    }

    #[test]
    fn an_end_names_its_reason_and_the_error_of_a_link_that_is_given_up() {
        let exited = Ended::exited("discord_closed", Hint::Resume);
        let refused = Error::from(Failure::Unreached("refused".into()));
        let token = Error::Answered {
            status: 401,
            code: 0,
            message: "401: Unauthorized".into(),
            retry_after: None,
            fields: Vec::new(),
        };
        let limited = Error::Global { after: Duration::from_secs(7) };
        let unreachable = |error: &Error| Error::Unreachable(Box::new(error.clone()));
        for (ended, hint, reason, error) in [
            (exited.clone(), Hint::Resume, "discord_closed", exited.error.clone()),
            (refused.clone().into(), Hint::Resume, "discord_connect_error", unreachable(&refused)),
            (
                limited.clone().into(),
                Hint::RetryAfter(Duration::from_secs(7)),
                "discord_rate_limited",
                unreachable(&limited),
            ),
            (token.clone().into(), Hint::GiveUp, "discord_invalid_token", token.clone()),
            (Ended::give_up(Error::Overrun), Hint::GiveUp, Error::Overrun.code(), Error::Overrun),
        ] {
            assert_eq!((ended.hint, ended.reason()), (hint, reason));
            assert_eq!(ended.is_unreached(), ended != exited);
            assert_eq!(ended.given_up(), error);
        }
    }

    #[test]
    fn close_codes_mean_what_discord_says() {
        for code in [None, Some(1000), Some(1001), Some(1006), Some(4000), Some(4001), Some(4008), Some(4999)]
        {
            assert_eq!(closed(code).hint, Hint::Resume, "{code:?}");
        }
        for code in [4007, 4009] {
            assert_eq!(closed(Some(code)).hint, Hint::NewSession { after: Duration::ZERO }, "{code}");
        }
        for code in [4004, 4010, 4011, 4012, 4013, 4014] {
            let ended = closed(Some(code));
            assert!(matches!(ended.error, Error::Barred(_)), "{code}");
            assert_eq!(ended.hint, Hint::GiveUp, "{code}");
        }
    }
}
