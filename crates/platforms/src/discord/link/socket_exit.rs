//! Why a socket ended, and how the link continues. Pure.

use std::time::Duration;

use petasos_core::link::reconnect::ResumeHint;
use twilight_model::gateway::CloseCode;

use crate::discord::Error;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::discord) struct SocketExit {
    pub(in crate::discord) error: Error,
    pub(in crate::discord) hint: ResumeHint,
}

/// The gateway was not reached, or its answer not understood.
impl From<Error> for SocketExit {
    fn from(error: Error) -> Self {
        Self { hint: error.fault().into(), error }
    }
}

impl SocketExit {
    /// The gateway was reached. `reason` is for the log and the status.
    pub(in crate::discord) const fn ended(reason: &'static str, hint: ResumeHint) -> Self {
        Self { error: Error::SocketEnded(reason), hint }
    }

    pub(in crate::discord) const fn give_up(error: Error) -> Self {
        Self { error, hint: ResumeHint::GiveUp }
    }

    pub(in crate::discord) const fn is_unreached(&self) -> bool {
        !matches!(self.error, Error::SocketEnded(_))
    }

    pub(in crate::discord) fn reason(&self) -> &'static str {
        if let Error::SocketEnded(reason) = self.error { reason } else { self.error.code() }
    }

    pub(in crate::discord) fn into_link_error(self) -> Error {
        if self.hint == ResumeHint::GiveUp || !self.is_unreached() {
            return self.error;
        }
        Error::Unreachable(Box::new(self.error))
    }
}

/// One to five times `base`. `share`: from 0 to 1.
pub(in crate::discord) fn invalid_session_delay(base: Duration, share: f64) -> Duration {
    base.mul_f64(1.0 + 4.0 * share.clamp(0.0, 1.0))
}

pub(in crate::discord) fn exit_for_close_code(code: Option<u16>) -> SocketExit {
    let Some(known) = code.and_then(|code| CloseCode::try_from(code).ok()) else {
        return SocketExit::ended("discord_closed", ResumeHint::Resume);
    };
    match known {
        CloseCode::InvalidSequence | CloseCode::SessionTimedOut => {
            SocketExit::ended("discord_session_over", ResumeHint::NewSession { after: Duration::ZERO })
        }
        CloseCode::RateLimited => SocketExit::ended("discord_rate_limited", ResumeHint::Resume),
        heals if heals.can_reconnect() => SocketExit::ended("discord_closed", ResumeHint::Resume),
        stays => SocketExit::give_up(Error::GatewayClosed(stays)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::HttpError;

    #[test]
    fn waits_one_to_five_seconds_after_an_invalid_session() {
        for (share, want) in [(0.0, 1000), (0.5, 3000), (1.0, 5000)] {
            assert_eq!(invalid_session_delay(Duration::from_secs(1), share).as_millis(), want);
        }
    }

    #[test]
    fn maps_socket_exits_to_reasons_and_link_errors() {
        let exited = SocketExit::ended("discord_closed", ResumeHint::Resume);
        let refused = Error::from(HttpError::ConnectFailed("refused".into()));
        let token = Error::Answered {
            status: 401,
            code: 0,
            message: "401: Unauthorized".into(),
            retry_after: None,
            fields: Vec::new(),
        };
        let limited = Error::GlobalLimit { after: Duration::from_secs(7) };
        let unreachable = |error: &Error| Error::Unreachable(Box::new(error.clone()));
        for (ended, hint, reason, error) in [
            (exited.clone(), ResumeHint::Resume, "discord_closed", exited.error.clone()),
            (refused.clone().into(), ResumeHint::Resume, "discord_connect_error", unreachable(&refused)),
            (
                limited.clone().into(),
                ResumeHint::RetryAfter(Duration::from_secs(7)),
                "discord_rate_limited",
                unreachable(&limited),
            ),
            (token.clone().into(), ResumeHint::GiveUp, "discord_invalid_token", token.clone()),
            (
                SocketExit::give_up(Error::QueueFull),
                ResumeHint::GiveUp,
                Error::QueueFull.code(),
                Error::QueueFull,
            ),
        ] {
            assert_eq!((ended.hint, ended.reason()), (hint, reason));
            assert_eq!(ended.is_unreached(), ended != exited);
            assert_eq!(ended.into_link_error(), error);
        }
    }

    #[test]
    fn maps_close_codes_as_documented_by_discord() {
        for code in [None, Some(1000), Some(1001), Some(1006), Some(4000), Some(4001), Some(4008), Some(4999)]
        {
            assert_eq!(exit_for_close_code(code).hint, ResumeHint::Resume, "{code:?}");
        }
        for code in [4007, 4009] {
            assert_eq!(
                exit_for_close_code(Some(code)).hint,
                ResumeHint::NewSession { after: Duration::ZERO },
                "{code}"
            );
        }
        for code in [4004, 4010, 4011, 4012, 4013, 4014] {
            let ended = exit_for_close_code(Some(code));
            assert!(matches!(ended.error, Error::GatewayClosed(_)), "{code}");
            assert_eq!(ended.hint, ResumeHint::GiveUp, "{code}");
        }
    }
}
