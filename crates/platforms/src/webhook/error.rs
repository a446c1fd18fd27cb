//! What can go wrong with a listener, and with a comment on GitHub.

use std::time::Duration;

use petasos_core::{Fault, Reached};

use crate::Kind;
use crate::http::Failure;
use crate::listener::NotBound;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    NotBound(#[from] NotBound),
    #[error("the listener does not answer its own questions")]
    Deaf,
    #[error("the gateway no longer listens")]
    Closed,
    /// Nobody reads at the other end of a webhook.
    #[error("{0:?} is not a place that can be written to")]
    NoPlace(String),
    /// GitHub said no. Its text may quote ours, so it is not kept.
    #[error("GitHub answered {status}{}", advice(*status))]
    GitHub { status: u16, retry_after: Option<Duration>, limited: bool },
    #[error(transparent)]
    Link(#[from] Failure),
}

fn advice(status: u16) -> &'static str {
    match status {
        401 => "; GITHUB_TOKEN is not valid (any more)",
        403 => "; GITHUB_TOKEN may not comment there",
        404 => "; there is no such issue, or GITHUB_TOKEN may not see it",
        _ => "",
    }
}

impl Error {
    pub fn fault(&self) -> Fault {
        match self {
            Self::NotBound(error) => error.fault(),
            Self::Deaf | Self::Closed => Fault::Later { after: None },
            Self::NoPlace(_) => Fault::Refused,
            Self::GitHub { limited: true, retry_after, .. } => Fault::Later { after: *retry_after },
            Self::GitHub { status: 500.., .. } => Fault::Later { after: None },
            // A token that is not valid stops comments, and nothing else that this link does.
            Self::GitHub { .. } => Fault::Refused,
            Self::Link(failure) => failure.fault(),
        }
    }

    pub fn reached(&self) -> Reached {
        match self {
            Self::Link(failure) => failure.reached(),
            Self::GitHub { status: 500.., .. } => Reached::Maybe,
            Self::NotBound(_) | Self::Deaf | Self::Closed | Self::NoPlace(_) | Self::GitHub { .. } => {
                Reached::No
            }
        }
    }

    /// A token that may not comment says nothing about the place: it is not dead.
    pub fn kind(&self) -> Kind {
        match self {
            Self::GitHub { limited: true, .. } => Kind::RateLimited,
            Self::GitHub { status: 404 | 410, .. } | Self::NoPlace(_) => Kind::ChatNotFound,
            Self::GitHub { status: 500.., .. } | Self::Link(Failure::Unreached(_)) => Kind::Transient,
            Self::GitHub { .. } | Self::Link(_) => Kind::Unknown,
            Self::NotBound(_) | Self::Deaf | Self::Closed => Kind::Transient,
        }
    }

    pub fn code(&self) -> &'static str {
        match self {
            Self::NotBound(NotBound::InUse(_)) => "webhook_port_in_use",
            Self::NotBound(NotBound::NotNow { .. }) => "webhook_not_bound",
            Self::NotBound(NotBound::Impossible { .. }) => "webhook_config_invalid",
            Self::Deaf => "webhook_not_answering",
            Self::Closed => "webhook_closed",
            Self::NoPlace(_) => "webhook_no_place",
            Self::GitHub { limited: true, .. } => "webhook_github_rate_limited",
            Self::GitHub { status: 500.., .. } => "webhook_github_server_error",
            Self::GitHub { .. } => "webhook_github_refused",
            Self::Link(_) => "webhook_github_network_error",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listener::Place;

    const SOON: Fault = Fault::Later { after: None };

    fn place() -> Place {
        Place { host: "127.0.0.1".into(), port: 80, port_key: "WEBHOOK_PORT" }
    }

    fn github(status: u16) -> Error {
        Error::GitHub { status, retry_after: None, limited: false }
    }

    #[test]
    fn every_failure_says_what_to_do() {
        let why = || "why".to_owned();
        let wait = Some(Duration::from_secs(7));
        let limited = Error::GitHub { status: 403, retry_after: wait, limited: true };
        let (no, maybe) = (Reached::No, Reached::Maybe);
        for (error, fault, reached, kind, code) in [
            (NotBound::InUse(place()).into(), SOON, no, Kind::Transient, "webhook_port_in_use"),
            (
                NotBound::NotNow { place: place(), why: why() }.into(),
                SOON,
                no,
                Kind::Transient,
                "webhook_not_bound",
            ),
            (
                NotBound::Impossible { place: place(), why: why() }.into(),
                Fault::Fatal,
                no,
                Kind::Transient,
                "webhook_config_invalid",
            ),
            (Error::Deaf, SOON, no, Kind::Transient, "webhook_not_answering"),
            (Error::Closed, SOON, no, Kind::Transient, "webhook_closed"),
            (Error::NoPlace(why()), Fault::Refused, no, Kind::ChatNotFound, "webhook_no_place"),
            (limited, Fault::Later { after: wait }, no, Kind::RateLimited, "webhook_github_rate_limited"),
            (github(401), Fault::Refused, no, Kind::Unknown, "webhook_github_refused"),
            (github(403), Fault::Refused, no, Kind::Unknown, "webhook_github_refused"),
            (github(404), Fault::Refused, no, Kind::ChatNotFound, "webhook_github_refused"),
            (github(410), Fault::Refused, no, Kind::ChatNotFound, "webhook_github_refused"),
            (github(422), Fault::Refused, no, Kind::Unknown, "webhook_github_refused"),
            (github(502), SOON, maybe, Kind::Transient, "webhook_github_server_error"),
            (Failure::Unreached(why()).into(), SOON, no, Kind::Transient, "webhook_github_network_error"),
            (Failure::Lost(why()).into(), SOON, maybe, Kind::Unknown, "webhook_github_network_error"),
        ] {
            let said = (error.fault(), error.reached(), error.kind(), error.code());
            assert_eq!(said, (fault, reached, kind, code), "{error}");
        }
    }

    #[test]
    fn what_only_a_person_can_mend_names_the_setting() {
        let impossible: Error = NotBound::Impossible { place: place(), why: "denied".into() }.into();
        for (error, setting) in
            [(github(401), "GITHUB_TOKEN"), (github(403), "GITHUB_TOKEN"), (impossible, "WEBHOOK_PORT")]
        {
            assert!(error.to_string().contains(setting), "{error}");
        }
    }
}
