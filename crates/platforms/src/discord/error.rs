//! What Discord's failures mean. Its own numbers decide, then the status; its English never does.

use std::time::Duration;

use petasos_core::{Fault, Reached};
use twilight_model::gateway::CloseCode;

use crate::http::Failure;
use crate::websocket::NotOpened;
use crate::{Held, Kind};

/// The token of an interaction, not of the bot, is good no longer.
const OVER: u64 = 50027;
/// Some right is missing; Discord does not say which.
const NO_RIGHT: u64 = 50013;
const NEW_TOKEN: &str =
    "the bot token is not valid; copy it anew from the developer portal into DISCORD_BOT_TOKEN";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Discord said no. `code` is its own number, finer than the status; 0 if there is none.
    #[error("{}", sentence(*status, *code, message))]
    Answered {
        status: u16,
        code: u64,
        message: String,
        retry_after: Option<Duration>,
        /// The refused fields of a form, by their names.
        fields: Vec<String>,
    },
    /// We lack a right that a file needs. Whether a text needs it too, a text will tell.
    #[error("Discord takes no files from us here: {0}")]
    NoFiles(String),
    /// We may not write in this thread. Of the channel it belongs to that says nothing.
    #[error("Discord refuses us in this thread: {0}")]
    ThreadBarred(String),
    /// Something between us and Discord, or in front of it, said no. It may have passed the request on.
    #[error("something on the way to Discord answered {status}")]
    OnTheWay { status: u16 },
    /// Too many requests of all kinds together. Until then every other one would be refused, too.
    #[error("Discord wants no requests at all for another {after:?}")]
    Global { after: Duration },
    #[error(transparent)]
    Held(#[from] Held),
    /// Somebody names a place or a message by something that cannot be one.
    #[error("that is no id of Discord's")]
    NoId,
    #[error(transparent)]
    Link(#[from] Failure),
    /// The gateway closed the connection for a reason that stays.
    #[error("Discord closed the gateway ({}): {}", *.0 as u16, advice(*.0))]
    Barred(CloseCode),
    #[error("no session may be started for another {after:?}: this bot has started too many today")]
    Exhausted { after: Duration },
    #[error("the gateway did not become ready within {0:?}")]
    NotReady(Duration),
    /// The socket is open and deaf.
    #[error("no heartbeat of the gateway was acknowledged for {0:?}")]
    Stale(Duration),
    /// Sockets ended too often in a row; the last one so.
    #[error("the gateway cannot be kept: {0}")]
    Exited(&'static str),
    #[error("the gateway cannot be reached: {0}")]
    Unreachable(Box<Error>),
    #[error("events came faster than they could be kept; they will come again")]
    Overrun,
    #[error("the gateway no longer listens")]
    Closed,
}

impl From<NotOpened> for Error {
    fn from(not_opened: NotOpened) -> Self {
        match not_opened {
            NotOpened::Failed(failure) => Self::Link(failure),
            NotOpened::Answered { status } => Self::OnTheWay { status },
        }
    }
}

impl Error {
    /// Nothing was sent, or the limit is not one of the chat alone: it is recorded already.
    pub(crate) fn is_held(&self) -> bool {
        matches!(self, Self::Held(_) | Self::Global { .. })
    }

    pub fn fault(&self) -> Fault {
        match self {
            Self::Answered { status: 401, code: OVER, .. } => Fault::Refused,
            Self::Answered { status: 401, .. } => Fault::Fatal,
            Self::Answered { status: 429, retry_after, .. } => Fault::Later { after: *retry_after },
            Self::Answered { status: 500.., .. } => Fault::Later { after: None },
            Self::Answered { .. } | Self::NoFiles(_) | Self::ThreadBarred(_) | Self::NoId => Fault::Refused,
            Self::Link(failure) => failure.fault(),
            Self::Barred(_) => Fault::Fatal,
            Self::Exhausted { after } | Self::Global { after } => Fault::Later { after: Some(*after) },
            Self::Held(held) => Fault::Later { after: Some(held.after) },
            Self::OnTheWay { .. }
            | Self::NotReady(_)
            | Self::Stale(_)
            | Self::Exited(_)
            | Self::Unreachable(_)
            | Self::Overrun
            | Self::Closed => Fault::Later { after: None },
        }
    }

    pub fn reached(&self) -> Reached {
        match self {
            Self::Link(failure) => failure.reached(),
            Self::OnTheWay { .. } => Reached::Maybe,
            Self::Answered { .. }
            | Self::NoFiles(_)
            | Self::ThreadBarred(_)
            | Self::NoId
            | Self::Barred(_)
            | Self::Global { .. }
            | Self::Held(_)
            | Self::Exhausted { .. }
            | Self::NotReady(_)
            | Self::Stale(_)
            | Self::Exited(_)
            | Self::Unreachable(_)
            | Self::Overrun
            | Self::Closed => Reached::No,
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Self::Answered { status: 429, .. } => Kind::RateLimited,
            Self::Answered { status: 500.., .. } => Kind::Transient,
            Self::Answered { code: 10003 | 10004, .. } => Kind::ChatNotFound,
            Self::Answered { code: 10008 | 10062, .. } => Kind::NotFound,
            Self::Answered { code: 50001 | 50007 | NO_RIGHT | 50278 | 40001, .. } => Kind::Forbidden,
            Self::Answered { code: 50035, fields, .. } if names(fields, "content") => Kind::TooLong,
            Self::Answered { code: 50035, .. } => Kind::BadFormat,
            Self::Answered { status: 403, code: 0, .. } => Kind::Forbidden,
            Self::Answered { status: 404, code: 0, .. } => Kind::NotFound,
            Self::Answered { .. } => Kind::Unknown,
            Self::NoFiles(_) => Kind::NoFiles,
            Self::ThreadBarred(_) | Self::NoId => Kind::NotFound,
            Self::Link(Failure::Unreached(_)) => Kind::Transient,
            Self::Link(_) | Self::OnTheWay { .. } | Self::Barred(_) => Kind::Unknown,
            Self::Global { .. } | Self::Held(_) | Self::Exhausted { .. } => Kind::RateLimited,
            Self::NotReady(_)
            | Self::Stale(_)
            | Self::Exited(_)
            | Self::Unreachable(_)
            | Self::Overrun
            | Self::Closed => Kind::Transient,
        }
    }

    pub fn code(&self) -> &'static str {
        match self {
            Self::Answered { status: 401, code: OVER, .. } => "discord_interaction_over",
            Self::Answered { status: 401, .. } => "discord_invalid_token",
            Self::Answered { status: 500.., .. } | Self::OnTheWay { .. } => "discord_server_error",
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
            Self::Global { .. } | Self::Held(_) => "discord_rate_limited",
            Self::NoFiles(_) => "discord_no_files",
            Self::ThreadBarred(_) => "discord_thread_forbidden",
            Self::NoId => "discord_no_id",
            Self::Link(Failure::Unreached(_)) => "discord_connect_error",
            Self::Link(_) | Self::Unreachable(_) => "discord_network_error",
            Self::Barred(CloseCode::AuthenticationFailed) => "discord_invalid_token",
            Self::Barred(CloseCode::DisallowedIntents) => "discord_disallowed_intents",
            Self::Barred(_) => "discord_gateway_refused",
            Self::Exhausted { .. } => "discord_session_limit",
            Self::NotReady(_) => "discord_not_ready",
            Self::Stale(_) => "discord_websocket_health_stale",
            Self::Exited(_) => "discord_gateway_task_exited",
            Self::Overrun => "discord_overrun",
            Self::Closed => "discord_closed",
        }
    }

    /// The same, said of a request that carried a file.
    pub(super) fn of_a_file(self) -> Self {
        match self {
            Self::Answered { code: NO_RIGHT, message, .. } => Self::NoFiles(message),
            other => other,
        }
    }

    /// The same, said of a request to a thread.
    pub(super) fn of_a_thread(self) -> Self {
        match (self.kind(), self) {
            (Kind::Forbidden, Self::Answered { message, .. }) => Self::ThreadBarred(message),
            (_kind, other) => other,
        }
    }

    /// The message we answer is gone, or cannot be answered. Nothing was sent.
    pub(super) fn is_reply_refused(&self) -> bool {
        let named =
            matches!(self, Self::Answered { code: 50035, fields, .. } if names(fields, "message_reference"));
        named || self.is_message_gone()
    }

    /// The thread is gone, or closed to us. Nothing was sent.
    pub(super) fn is_thread_gone(&self) -> bool {
        matches!(self, Self::Answered { code: 10003 | 50083, .. })
    }

    pub(super) fn is_message_gone(&self) -> bool {
        matches!(self, Self::Answered { code: 10008, .. })
    }

    /// The message is gone, or nothing is below it.
    pub(super) fn is_nothing_to_mark(&self) -> bool {
        matches!(self, Self::Answered { code: 10008 | 10014, .. })
    }

    /// A channel that holds posts, not messages.
    pub(super) fn is_forum(&self) -> bool {
        matches!(self, Self::Answered { code: 50008, .. })
    }

    /// Answered already, or too late.
    pub(super) fn is_interaction_over(&self) -> bool {
        matches!(self, Self::Answered { code: 10062 | 40060 | OVER, .. })
    }

    pub(super) fn is_thread_there(&self) -> bool {
        matches!(self, Self::Answered { code: 160_004, .. })
    }
}

fn names(fields: &[String], field: &str) -> bool {
    fields.iter().any(|name| name == field)
}

fn sentence(status: u16, code: u64, message: &str) -> String {
    match (status, code) {
        (401, code) if code != OVER => format!("Discord answered 401: {NEW_TOKEN}"),
        (status, code) => format!("Discord answered {status} ({code}): {message}"),
    }
}

/// What a person must do about a close code that comes again and again.
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
            "it does not understand this version; update Petasos"
        }
        _heals => "try again",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Fault = Fault::Later { after: None };

    fn answered(status: u16, code: u64) -> Error {
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
    fn an_answer_is_a_certain_no() {
        let wait = Fault::Later { after: Some(Duration::from_millis(500)) };
        let check = |error, fault, name| check(error, fault, Reached::No, name);
        check(answered(401, 0), Fault::Fatal, "discord_invalid_token");
        check(answered(401, 50027), Fault::Refused, "discord_interaction_over");
        check(answered(429, 0), wait, "discord_rate_limited");
        check(answered(500, 0), SOON, "discord_server_error");
        check(answered(403, 50001), Fault::Refused, "discord_forbidden");
        check(answered(403, 50013), Fault::Refused, "discord_forbidden");
        check(answered(403, 50007), Fault::Refused, "discord_forbidden");
        check(answered(404, 10003), Fault::Refused, "discord_chat_not_found");
        check(answered(404, 10008), Fault::Refused, "discord_not_found");
        check(answered(404, 0), Fault::Refused, "discord_not_found");
        check(answered(400, 50006), Fault::Refused, "discord_bad_request");
        check(form("content"), Fault::Refused, "discord_too_long");
        check(form("components"), Fault::Refused, "discord_bad_format");
    }

    #[test]
    fn without_an_answer_only_a_failed_connection_is_a_certain_no() {
        check(Error::OnTheWay { status: 502 }, SOON, Reached::Maybe, "discord_server_error");
        check(Failure::Unreached("refused".into()).into(), SOON, Reached::No, "discord_connect_error");
        check(Failure::Lost("reset".into()).into(), SOON, Reached::Maybe, "discord_network_error");
        check(Failure::Silent(Duration::ZERO).into(), SOON, Reached::Maybe, "discord_network_error");
    }

    #[test]
    fn what_a_person_must_mend_is_fatal_and_says_what_to_do() {
        assert!(answered(401, 0).to_string().contains("DISCORD_BOT_TOKEN"));
        for (close, code, word) in [
            (CloseCode::AuthenticationFailed, "discord_invalid_token", "DISCORD_BOT_TOKEN"),
            (CloseCode::DisallowedIntents, "discord_disallowed_intents", "Message Content Intent"),
            (CloseCode::ShardingRequired, "discord_gateway_refused", "too many servers"),
            (CloseCode::InvalidApiVersion, "discord_gateway_refused", "update"),
        ] {
            let error = Error::Barred(close);
            assert!(error.to_string().contains(word), "{error}");
            check(error, Fault::Fatal, Reached::No, code);
        }
    }

    #[test]
    fn the_link_s_own_ends_are_tried_again() {
        check(Error::Stale(Duration::ZERO), SOON, Reached::No, "discord_websocket_health_stale");
        check(Error::Exited("closed"), SOON, Reached::No, "discord_gateway_task_exited");
        let after = Duration::from_secs(60);
        let wait = Fault::Later { after: Some(after) };
        check(Error::Exhausted { after }, wait, Reached::No, "discord_session_limit");
    }

    #[test]
    fn only_a_missing_channel_or_a_missing_right_makes_a_chat_dead() {
        for (error, dead) in [
            (answered(403, 50001), true),
            (answered(404, 10003), true),
            (answered(403, 50013), true),
            (answered(403, 50013).of_a_file(), false),
            (answered(403, 50001).of_a_file(), true),
            (answered(404, 10008), false),
            (answered(429, 0), false),
            (form("message_reference"), false),
        ] {
            assert_eq!(error.kind().is_dead_chat(), dead, "{error}");
        }
    }

    #[test]
    fn a_refused_reply_is_told_from_a_refused_text() {
        assert!(form("message_reference").is_reply_refused());
        assert!(answered(400, 10008).is_reply_refused());
        assert!(!form("content").is_reply_refused());
    }
}
