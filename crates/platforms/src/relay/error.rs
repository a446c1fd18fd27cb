//! Errors of the relay connection and of the platforms behind it.

use std::time::Duration;

use petasos_core::{Fault, Reached};
use petasos_relay::{Answer, REFUSED};

use crate::Kind;
use crate::http::HttpError;
use crate::websocket::DialError;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the connector is not connected")]
    NotConnected,
    #[error("the connector did not answer within {0:?}")]
    Unanswered(Duration),
    #[error("the connection was lost before an answer came")]
    Lost,
    /// Without the peer's text, which may quote a message.
    #[error("the connector answered: {}", kind.as_str())]
    Refused { kind: Kind, ambiguous: bool, after: Option<Duration>, for_good: bool },
    /// No operation may write to this chat.
    #[error("the connector does not allow messages to this chat")]
    Declined,
    #[error("the message is too long for the relay")]
    TooLong,
    #[error("the connector closed the connection{}", code.map(|code| format!(" ({code})")).unwrap_or_default())]
    Closed { code: Option<u16> },
    #[error("the connector does not answer")]
    Silent,
    #[error("the connector answered {0} instead of opening a socket")]
    NoSocket(u16),
    #[error("the connector sent a line that is too long")]
    TooBig,
    #[error(
        "the connector no longer accepts this gateway; check GATEWAY_RELAY_ID and GATEWAY_RELAY_SECRET, or enroll again"
    )]
    Revoked,
    #[error("the gateway accepts no more messages")]
    Deserted,
    #[error("the gateway cannot store messages")]
    NotCommitted,
    #[error("another link has taken over")]
    Superseded,
    #[error(transparent)]
    Link(#[from] HttpError),
}

impl From<DialError> for Error {
    fn from(error: DialError) -> Self {
        match error {
            DialError::Failed(failure) => Self::Link(failure),
            DialError::Answered { status } => Self::NoSocket(status),
        }
    }
}

impl Error {
    pub(super) fn of(answer: &Answer) -> Self {
        if answer.is_declined() {
            return Self::Declined;
        }
        let words = answer.error.as_deref().unwrap_or_default();
        let code = answer.code.as_deref().unwrap_or_default();
        // Our connector sends a kind; the text of others is parsed.
        Self::Refused {
            kind: Kind::from_name(code).unwrap_or_else(|| Kind::of_text(words)),
            ambiguous: answer.ambiguous,
            after: answer.retry_after.map(Duration::from_secs),
            for_good: code == REFUSED
                || words.starts_with("unsupported op")
                || words.starts_with("malformed op"),
        }
    }

    /// An expired permission says nothing about the chat.
    pub(super) fn is_only_about_the_way(&self) -> bool {
        match self {
            Self::Refused { ambiguous, after, kind, .. } => {
                !ambiguous && after.is_none() && !matches!(kind, Kind::RateLimited | Kind::Transient)
            }
            _of_the_chat_or_the_line => false,
        }
    }

    pub fn fault(&self) -> Fault {
        match self {
            Self::Refused { ambiguous: true, after, .. } => Fault::Later { after: *after },
            Self::Refused { for_good: true, .. } | Self::Declined | Self::TooLong => Fault::Refused,
            Self::Refused { kind, after, .. } => match kind {
                Kind::TooLong
                | Kind::BadFormat
                | Kind::Forbidden
                | Kind::Declined
                | Kind::NoFiles
                | Kind::ChatNotFound
                | Kind::NotFound => Fault::Refused,
                Kind::RateLimited | Kind::Transient | Kind::Unknown => Fault::Later { after: *after },
            },
            Self::Revoked => Fault::Fatal,
            Self::Link(failure) => failure.fault(),
            Self::NotConnected
            | Self::Unanswered(_)
            | Self::Lost
            | Self::Closed { .. }
            | Self::Silent
            | Self::NoSocket(_)
            | Self::TooBig
            | Self::Deserted
            | Self::NotCommitted
            | Self::Superseded => Fault::Later { after: None },
        }
    }

    pub fn reached(&self) -> Reached {
        match self {
            Self::Unanswered(_) | Self::Lost => Reached::Maybe,
            Self::Refused { ambiguous: true, .. } => Reached::Unknowable,
            Self::Link(failure) => failure.reached(),
            Self::NotConnected
            | Self::Refused { .. }
            | Self::Declined
            | Self::TooLong
            | Self::Closed { .. }
            | Self::Silent
            | Self::NoSocket(_)
            | Self::TooBig
            | Self::Revoked
            | Self::Deserted
            | Self::NotCommitted
            | Self::Superseded => Reached::No,
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Self::Declined => Kind::Declined,
            Self::Refused { ambiguous: true, .. } | Self::Unanswered(_) | Self::Lost => Kind::Unknown,
            Self::Refused { kind, .. } => *kind,
            Self::TooLong => Kind::TooLong,
            Self::NotConnected | Self::Link(HttpError::ConnectFailed(_)) => Kind::Transient,
            Self::Closed { .. }
            | Self::Silent
            | Self::NoSocket(_)
            | Self::TooBig
            | Self::Revoked
            | Self::Deserted
            | Self::NotCommitted
            | Self::Superseded
            | Self::Link(_) => Kind::Unknown,
        }
    }

    pub fn code(&self) -> &'static str {
        match self {
            Self::NotConnected => "relay_not_connected",
            Self::Unanswered(_) => "relay_unanswered",
            Self::Lost => "relay_lost",
            Self::Refused { .. } => "relay_refused",
            Self::Declined => "relay_declined",
            Self::TooLong => "relay_too_long",
            Self::Closed { .. } => "relay_closed",
            Self::Silent => "relay_silent",
            Self::NoSocket(_) => "relay_no_socket",
            Self::TooBig => "relay_line_too_long",
            Self::Revoked => "relay_disabled",
            Self::Deserted => "relay_deserted",
            Self::NotCommitted => "relay_not_taken",
            Self::Superseded => "relay_superseded",
            Self::Link(_) => "relay_network_error",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_answers_to_errors() {
        let of = |answer: Answer| {
            let error = Error::of(&answer);
            (error.fault(), error.reached(), error.kind())
        };
        let later = |after: Option<u64>| Fault::Later { after: after.map(Duration::from_secs) };
        assert_eq!(of(Answer::declined()), (Fault::Refused, Reached::No, Kind::Declined));
        assert_eq!(of(Answer::doubtful("timed out")), (later(None), Reached::Unknowable, Kind::Unknown));
        assert_eq!(of(Answer::failed("chat not found")), (Fault::Refused, Reached::No, Kind::ChatNotFound));
        assert_eq!(of(Answer::failed("unsupported op: fly")).0, Fault::Refused);
        assert_eq!(of(Answer::failed("")), (later(None), Reached::No, Kind::Unknown));
        let coded = |code: &str| Answer { code: Some(code.into()), ..Answer::failed("") };
        assert_eq!(of(coded("too_long")), (Fault::Refused, Reached::No, Kind::TooLong));
        assert_eq!(of(coded("forbidden")).2, Kind::Forbidden);
        assert_eq!(of(coded(REFUSED)), (Fault::Refused, Reached::No, Kind::Unknown));
        let flood = Answer { retry_after: Some(7), ..coded("rate_limited") };
        assert_eq!(of(flood), (later(Some(7)), Reached::No, Kind::RateLimited));
    }
}
