//! Errors of the listener and of comments on GitHub.

use std::time::Duration;

use petasos_core::{Fault, Reached};

use crate::Kind;
use crate::http::HttpError;
use crate::listener::BindError;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    BindError(#[from] BindError),
    #[error("webhook listener failed its self-check")]
    SelfCheckFailed,
    #[error("the gateway is stopping")]
    Closed,
    /// The chat of a delivery has no reader.
    #[error("{0:?} does not accept messages; set deliver for this webhook route")]
    NoRecipient(String),
    /// Without GitHub's text, which may quote the message.
    #[error("GitHub answered {status}{}", advice(*status))]
    GitHub { status: u16, retry_after: Option<Duration>, limited: bool },
    #[error(transparent)]
    Link(#[from] HttpError),
}

fn advice(status: u16) -> &'static str {
    match status {
        401 => "; GITHUB_TOKEN is not valid; set a new one",
        403 => "; GITHUB_TOKEN has no permission to comment there",
        404 => "; the issue does not exist, or GITHUB_TOKEN has no access to it",
        _ => "",
    }
}

impl Error {
    pub fn fault(&self) -> Fault {
        match self {
            Self::BindError(error) => error.fault(),
            Self::SelfCheckFailed | Self::Closed => Fault::Later { after: None },
            Self::NoRecipient(_) => Fault::Refused,
            Self::GitHub { limited: true, retry_after, .. } => Fault::Later { after: *retry_after },
            Self::GitHub { status: 500.., .. } => Fault::Later { after: None },
            // An invalid token stops comments, not the link.
            Self::GitHub { .. } => Fault::Refused,
            Self::Link(failure) => failure.fault(),
        }
    }

    pub fn reached(&self) -> Reached {
        match self {
            Self::Link(failure) => failure.reached(),
            Self::GitHub { status: 500.., .. } => Reached::Maybe,
            Self::BindError(_)
            | Self::SelfCheckFailed
            | Self::Closed
            | Self::NoRecipient(_)
            | Self::GitHub { .. } => Reached::No,
        }
    }

    /// A missing permission does not make the chat dead.
    pub fn kind(&self) -> Kind {
        match self {
            Self::GitHub { limited: true, .. } => Kind::RateLimited,
            Self::GitHub { status: 404 | 410, .. } | Self::NoRecipient(_) => Kind::ChatNotFound,
            Self::GitHub { status: 500.., .. } | Self::Link(HttpError::ConnectFailed(_)) => Kind::Transient,
            Self::GitHub { .. } | Self::Link(_) => Kind::Unknown,
            Self::BindError(_) | Self::SelfCheckFailed | Self::Closed => Kind::Transient,
        }
    }

    pub fn code(&self) -> &'static str {
        match self {
            Self::BindError(BindError::InUse(_)) => "webhook_port_in_use",
            Self::BindError(BindError::Unavailable { .. }) => "webhook_not_bound",
            Self::BindError(BindError::InvalidAddress { .. }) => "webhook_config_invalid",
            Self::SelfCheckFailed => "webhook_not_answering",
            Self::Closed => "webhook_closed",
            Self::NoRecipient(_) => "webhook_no_place",
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
    use crate::listener::ListenAddress;

    const LATER: Fault = Fault::Later { after: None };

    fn listen() -> ListenAddress {
        ListenAddress { host: "127.0.0.1".into(), port: 80, port_key: "WEBHOOK_PORT" }
    }

    fn github(status: u16) -> Error {
        Error::GitHub { status, retry_after: None, limited: false }
    }

    #[test]
    fn classifies_errors() {
        let why = || "why".to_owned();
        let wait = Some(Duration::from_secs(7));
        let limited = Error::GitHub { status: 403, retry_after: wait, limited: true };
        let no = Reached::No;
        let maybe = Reached::Maybe;
        for (error, fault, reached, kind, code) in [
            (BindError::InUse(listen()).into(), LATER, no, Kind::Transient, "webhook_port_in_use"),
            (
                BindError::Unavailable { listen: listen(), why: why() }.into(),
                LATER,
                no,
                Kind::Transient,
                "webhook_not_bound",
            ),
            (
                BindError::InvalidAddress { listen: listen(), why: why() }.into(),
                Fault::Fatal,
                no,
                Kind::Transient,
                "webhook_config_invalid",
            ),
            (Error::SelfCheckFailed, LATER, no, Kind::Transient, "webhook_not_answering"),
            (Error::Closed, LATER, no, Kind::Transient, "webhook_closed"),
            (Error::NoRecipient(why()), Fault::Refused, no, Kind::ChatNotFound, "webhook_no_place"),
            (limited, Fault::Later { after: wait }, no, Kind::RateLimited, "webhook_github_rate_limited"),
            (github(401), Fault::Refused, no, Kind::Unknown, "webhook_github_refused"),
            (github(403), Fault::Refused, no, Kind::Unknown, "webhook_github_refused"),
            (github(404), Fault::Refused, no, Kind::ChatNotFound, "webhook_github_refused"),
            (github(410), Fault::Refused, no, Kind::ChatNotFound, "webhook_github_refused"),
            (github(422), Fault::Refused, no, Kind::Unknown, "webhook_github_refused"),
            (github(502), LATER, maybe, Kind::Transient, "webhook_github_server_error"),
            (
                HttpError::ConnectFailed(why()).into(),
                LATER,
                no,
                Kind::Transient,
                "webhook_github_network_error",
            ),
            (
                HttpError::ConnectionLost(why()).into(),
                LATER,
                maybe,
                Kind::Unknown,
                "webhook_github_network_error",
            ),
        ] {
            let got = (error.fault(), error.reached(), error.kind(), error.code());
            assert_eq!(got, (fault, reached, kind, code), "{error}");
        }
    }

    #[test]
    fn errors_that_need_a_person_name_the_setting() {
        let impossible: Error = BindError::InvalidAddress { listen: listen(), why: "denied".into() }.into();
        for (error, setting) in
            [(github(401), "GITHUB_TOKEN"), (github(403), "GITHUB_TOKEN"), (impossible, "WEBHOOK_PORT")]
        {
            assert!(error.to_string().contains(setting), "{error}");
        }
    }
}
