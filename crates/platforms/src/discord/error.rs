//! Discord errors, classified by Discord's code, then by status, never by text.

use std::time::Duration;

use petasos_core::{Fault, Reached};
use twilight_model::gateway::CloseCode;

use crate::http::HttpError;
use crate::websocket::DialError;
use crate::{Kind, Penalized};

/// An interaction's token, not the bot's.
const TOKEN_EXPIRED: u64 = 50027;
/// Discord does not say which permission.
const MISSING_PERMISSIONS: u64 = 50013;
const NEW_TOKEN: &str =
    "the bot token is not valid; copy it from the developer portal into DISCORD_BOT_TOKEN again";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `code` is Discord's own, or 0.
    #[error("{}", display_answer(*status, *code, message))]
    Answered {
        status: u16,
        code: u64,
        message: String,
        retry_after: Option<Duration>,
        /// Names of the refused form fields.
        fields: Vec<String>,
    },
    /// A permission for files is missing; texts may be allowed.
    #[error("the bot may not send files here: {0}")]
    NoFiles(String),
    /// The parent channel may still accept messages.
    #[error("the bot may not write in this thread: {0}")]
    ThreadForbidden(String),
    /// An intermediary, such as a proxy, answered. It may have passed the request on.
    #[error("a server in front of Discord answered {status}")]
    Intermediary { status: u16 },
    /// The bot's global rate limit: every other request would be refused, too.
    #[error("Discord refuses all requests of this bot for another {after:?}")]
    GlobalLimit { after: Duration },
    #[error(transparent)]
    Penalized(#[from] Penalized),
    #[error("this is not a Discord id")]
    InvalidId,
    #[error(transparent)]
    Link(#[from] HttpError),
    /// A close code that a retry does not resolve.
    #[error("Discord closed the connection ({}): {}", *.0 as u16, advice(*.0))]
    GatewayClosed(CloseCode),
    #[error("daily session limit of this bot reached; the next session may start in {after:?}")]
    SessionLimit { after: Duration },
    #[error("Discord's gateway did not become ready within {0:?}")]
    NotReady(Duration),
    /// The socket is open, but silent.
    #[error("Discord acknowledged no heartbeat for {0:?}")]
    Stale(Duration),
    /// Sockets ended too often in a row; the last reason.
    #[error("the connection to Discord's gateway keeps failing: {0}")]
    SocketEnded(&'static str),
    #[error("Discord's gateway cannot be reached: {0}")]
    Unreachable(Box<Error>),
    #[error("events arrived faster than they could be stored; Discord will repeat them")]
    QueueFull,
    #[error("the gateway is stopping")]
    Closed,
}

impl From<DialError> for Error {
    fn from(not_opened: DialError) -> Self {
        match not_opened {
            DialError::Failed(failure) => Self::Link(failure),
            DialError::Answered { status } => Self::Intermediary { status },
        }
    }
}

impl Error {
    /// Nothing was sent, or the limit is already recorded for the whole platform.
    pub(crate) fn is_penalized(&self) -> bool {
        matches!(self, Self::Penalized(_) | Self::GlobalLimit { .. })
    }

    pub fn fault(&self) -> Fault {
        match self {
            Self::Answered { status: 401, code: TOKEN_EXPIRED, .. } => Fault::Refused,
            Self::Answered { status: 401, .. } => Fault::Fatal,
            Self::Answered { status: 429, retry_after, .. } => Fault::Later { after: *retry_after },
            Self::Answered { status: 500.., .. } => Fault::Later { after: None },
            Self::Answered { .. } | Self::NoFiles(_) | Self::ThreadForbidden(_) | Self::InvalidId => {
                Fault::Refused
            }
            Self::Link(failure) => failure.fault(),
            Self::GatewayClosed(_) => Fault::Fatal,
            Self::SessionLimit { after } | Self::GlobalLimit { after } => {
                Fault::Later { after: Some(*after) }
            }
            Self::Penalized(held) => Fault::Later { after: Some(held.after) },
            Self::Intermediary { .. }
            | Self::NotReady(_)
            | Self::Stale(_)
            | Self::SocketEnded(_)
            | Self::Unreachable(_)
            | Self::QueueFull
            | Self::Closed => Fault::Later { after: None },
        }
    }

    pub fn reached(&self) -> Reached {
        match self {
            Self::Link(failure) => failure.reached(),
            Self::Intermediary { .. } => Reached::Maybe,
            Self::Answered { .. }
            | Self::NoFiles(_)
            | Self::ThreadForbidden(_)
            | Self::InvalidId
            | Self::GatewayClosed(_)
            | Self::GlobalLimit { .. }
            | Self::Penalized(_)
            | Self::SessionLimit { .. }
            | Self::NotReady(_)
            | Self::Stale(_)
            | Self::SocketEnded(_)
            | Self::Unreachable(_)
            | Self::QueueFull
            | Self::Closed => Reached::No,
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Self::Answered { status: 429, .. } => Kind::RateLimited,
            Self::Answered { status: 500.., .. } => Kind::Transient,
            Self::Answered { code: 10003 | 10004, .. } => Kind::ChatNotFound,
            Self::Answered { code: 10008 | 10062, .. } => Kind::NotFound,
            Self::Answered { code: 50001 | 50007 | MISSING_PERMISSIONS | 50278 | 40001, .. } => {
                Kind::Forbidden
            }
            Self::Answered { code: 50035, fields, .. } if names(fields, "content") => Kind::TooLong,
            Self::Answered { code: 50035, .. } => Kind::BadFormat,
            Self::Answered { status: 403, code: 0, .. } => Kind::Forbidden,
            Self::Answered { status: 404, code: 0, .. } => Kind::NotFound,
            Self::Answered { .. } => Kind::Unknown,
            Self::NoFiles(_) => Kind::NoFiles,
            Self::ThreadForbidden(_) | Self::InvalidId => Kind::NotFound,
            Self::Link(HttpError::ConnectFailed(_)) => Kind::Transient,
            Self::Link(_) | Self::Intermediary { .. } | Self::GatewayClosed(_) => Kind::Unknown,
            Self::GlobalLimit { .. } | Self::Penalized(_) | Self::SessionLimit { .. } => Kind::RateLimited,
            Self::NotReady(_)
            | Self::Stale(_)
            | Self::SocketEnded(_)
            | Self::Unreachable(_)
            | Self::QueueFull
            | Self::Closed => Kind::Transient,
        }
    }

    pub fn code(&self) -> &'static str {
        match self {
            Self::Answered { status: 401, code: TOKEN_EXPIRED, .. } => "discord_interaction_over",
            Self::Answered { status: 401, .. } => "discord_invalid_token",
            Self::Answered { status: 500.., .. } | Self::Intermediary { .. } => "discord_server_error",
            Self::Answered { .. } => match self.kind() {
                Kind::TooLong => "discord_too_long",
                Kind::BadFormat => "discord_bad_format",
                Kind::Forbidden | Kind::Declined => "discord_forbidden",
                Kind::NoFiles => "discord_no_files",
                Kind::ChatNotFound => "discord_chat_not_found",
                Kind::NotFound => "discord_not_found",
                Kind::RateLimited => "discord_rate_limited",
                Kind::Transient | Kind::Unknown => "discord_bad_request",
            },
            Self::GlobalLimit { .. } | Self::Penalized(_) => "discord_rate_limited",
            Self::NoFiles(_) => "discord_no_files",
            Self::ThreadForbidden(_) => "discord_thread_forbidden",
            Self::InvalidId => "discord_no_id",
            Self::Link(HttpError::ConnectFailed(_)) => "discord_connect_error",
            Self::Link(_) | Self::Unreachable(_) => "discord_network_error",
            Self::GatewayClosed(CloseCode::AuthenticationFailed) => "discord_invalid_token",
            Self::GatewayClosed(CloseCode::DisallowedIntents) => "discord_disallowed_intents",
            Self::GatewayClosed(_) => "discord_gateway_refused",
            Self::SessionLimit { .. } => "discord_session_limit",
            Self::NotReady(_) => "discord_not_ready",
            Self::Stale(_) => "discord_websocket_health_stale",
            Self::SocketEnded(_) => "discord_gateway_task_exited",
            Self::QueueFull => "discord_overrun",
            Self::Closed => "discord_closed",
        }
    }

    /// Reclassifies the error of a request with a file.
    pub(super) fn for_file(self) -> Self {
        match self {
            Self::Answered { code: MISSING_PERMISSIONS, message, .. } => Self::NoFiles(message),
            other => other,
        }
    }

    /// Reclassifies the error of a request to a thread.
    pub(super) fn for_thread(self) -> Self {
        match (self.kind(), self) {
            (Kind::Forbidden, Self::Answered { message, .. }) => Self::ThreadForbidden(message),
            (_kind, other) => other,
        }
    }

    /// The replied message is gone or cannot be replied to. Nothing was sent.
    pub(super) fn is_reply_refused(&self) -> bool {
        let named =
            matches!(self, Self::Answered { code: 50035, fields, .. } if names(fields, "message_reference"));
        named || self.is_message_gone()
    }

    /// The thread is gone or closed to the bot. Nothing was sent.
    pub(super) fn is_thread_gone(&self) -> bool {
        matches!(self, Self::Answered { code: 10003 | 50083, .. })
    }

    pub(super) fn is_message_gone(&self) -> bool {
        matches!(self, Self::Answered { code: 10008, .. })
    }

    pub(super) fn is_reaction_gone(&self) -> bool {
        matches!(self, Self::Answered { code: 10008 | 10014, .. })
    }

    /// The channel holds posts instead of messages.
    pub(super) fn is_forum(&self) -> bool {
        matches!(self, Self::Answered { code: 50008, .. })
    }

    /// Already answered, or too late.
    pub(super) fn is_interaction_over(&self) -> bool {
        matches!(self, Self::Answered { code: 10062 | 40060 | TOKEN_EXPIRED, .. })
    }

    pub(super) fn is_thread_already_open(&self) -> bool {
        matches!(self, Self::Answered { code: 160_004, .. })
    }
}

fn names(fields: &[String], field: &str) -> bool {
    fields.iter().any(|name| name == field)
}

fn display_answer(status: u16, code: u64, message: &str) -> String {
    match (status, code) {
        (401, code) if code != TOKEN_EXPIRED => format!("Discord answered 401: {NEW_TOKEN}"),
        (status, code) => format!("Discord answered {status} ({code}): {message}"),
    }
}

/// Advice for the owner on a permanent close code.
const fn advice(code: CloseCode) -> &'static str {
    match code {
        CloseCode::AuthenticationFailed => NEW_TOKEN,
        CloseCode::DisallowedIntents => {
            "this bot may not read messages; switch on \"Message Content Intent\" (and \"Server Members \
             Intent\" if names or roles are allowed) in the developer portal under Bot"
        }
        CloseCode::ShardingRequired => {
            "the bot is in too many servers for one connection; remove it from some, or use another bot"
        }
        CloseCode::InvalidIntents | CloseCode::InvalidShard | CloseCode::InvalidApiVersion => {
            "Discord does not support this version of the protocol; update Petasos"
        }
        _heals => "try again",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Fault = Fault::Later { after: None };

    fn api_error(status: u16, code: u64) -> Error {
        let retry_after = (status == 429).then_some(Duration::from_millis(500));
        Error::Answered { status, code, message: "no".into(), retry_after, fields: Vec::new() }
    }

    fn form(field: &str) -> Error {
        Error::Answered {
            status: 400,
            code: 50035,
            message: "Invalid Form Body".into(),
            retry_after: None,
            fields: vec![field.into()],
        }
    }

    #[track_caller]
    fn check(error: Error, fault: Fault, reached: Reached, code: &str) {
        assert_eq!((error.fault(), error.reached(), error.code()), (fault, reached, code), "{error}");
    }

    #[test]
    fn classifies_refusals_as_without_effect() {
        let wait = Fault::Later { after: Some(Duration::from_millis(500)) };
        let check = |error, fault, name| check(error, fault, Reached::No, name);
        check(api_error(401, 0), Fault::Fatal, "discord_invalid_token");
        check(api_error(401, 50027), Fault::Refused, "discord_interaction_over");
        check(api_error(429, 0), wait, "discord_rate_limited");
        check(api_error(500, 0), SOON, "discord_server_error");
        check(api_error(403, 50001), Fault::Refused, "discord_forbidden");
        check(api_error(403, 50013), Fault::Refused, "discord_forbidden");
        check(api_error(403, 50007), Fault::Refused, "discord_forbidden");
        check(api_error(404, 10003), Fault::Refused, "discord_chat_not_found");
        check(api_error(404, 10008), Fault::Refused, "discord_not_found");
        check(api_error(404, 0), Fault::Refused, "discord_not_found");
        check(api_error(400, 50006), Fault::Refused, "discord_bad_request");
        check(form("content"), Fault::Refused, "discord_too_long");
        check(form("components"), Fault::Refused, "discord_bad_format");
    }

    #[test]
    fn only_a_failed_connection_rules_out_an_effect() {
        check(Error::Intermediary { status: 502 }, SOON, Reached::Maybe, "discord_server_error");
        check(HttpError::ConnectFailed("refused".into()).into(), SOON, Reached::No, "discord_connect_error");
        check(
            HttpError::ConnectionLost("reset".into()).into(),
            SOON,
            Reached::Maybe,
            "discord_network_error",
        );
        check(HttpError::Timeout(Duration::ZERO).into(), SOON, Reached::Maybe, "discord_network_error");
    }

    #[test]
    fn permanent_close_codes_are_fatal_and_give_advice() {
        assert!(api_error(401, 0).to_string().contains("DISCORD_BOT_TOKEN"));
        for (close, code, word) in [
            (CloseCode::AuthenticationFailed, "discord_invalid_token", "DISCORD_BOT_TOKEN"),
            (CloseCode::DisallowedIntents, "discord_disallowed_intents", "Message Content Intent"),
            (CloseCode::ShardingRequired, "discord_gateway_refused", "too many servers"),
            (CloseCode::InvalidApiVersion, "discord_gateway_refused", "update"),
        ] {
            let error = Error::GatewayClosed(close);
            assert!(error.to_string().contains(word), "{error}");
            check(error, Fault::Fatal, Reached::No, code);
        }
    }

    #[test]
    fn retries_link_failures() {
        check(Error::Stale(Duration::ZERO), SOON, Reached::No, "discord_websocket_health_stale");
        check(Error::SocketEnded("closed"), SOON, Reached::No, "discord_gateway_task_exited");
        let after = Duration::from_secs(60);
        let wait = Fault::Later { after: Some(after) };
        check(Error::SessionLimit { after }, wait, Reached::No, "discord_session_limit");
    }

    #[test]
    fn only_missing_channel_or_permission_makes_a_chat_dead() {
        for (error, dead) in [
            (api_error(403, 50001), true),
            (api_error(404, 10003), true),
            (api_error(403, 50013), true),
            (api_error(403, 50013).for_file(), false),
            (api_error(403, 50001).for_file(), true),
            (api_error(404, 10008), false),
            (api_error(429, 0), false),
            (form("message_reference"), false),
        ] {
            assert_eq!(error.kind().is_dead_chat(), dead, "{error}");
        }
    }

    #[test]
    fn distinguishes_a_refused_reply_from_a_refused_text() {
        assert!(form("message_reference").is_reply_refused());
        assert!(api_error(400, 10008).is_reply_refused());
        assert!(!form("content").is_reply_refused());
    }
}
