//! Slack errors, classified by Slack's error name, then by status, never by text.

use std::time::Duration;

use petasos_core::{Fault, Reached};

use super::rest::api::TokenKind;
use crate::http::HttpError;
use crate::websocket::DialError;
use crate::{Kind, Penalized};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `error` is Slack's name for the reason, `needed` the missing scope.
    #[error("{}", display_answer(error, needed.as_deref(), *token))]
    Answered { error: String, needed: Option<String>, token: TokenKind },
    #[error("Slack limits the rate of requests; will retry later")]
    RateLimited { after: Option<Duration> },
    #[error(transparent)]
    Penalized(#[from] Penalized),
    /// An intermediary, such as a proxy, answered. It may have passed the request on.
    #[error("a server in front of Slack answered {status}")]
    Intermediary { status: u16 },
    #[error(transparent)]
    Link(#[from] HttpError),
    #[error("the connection to Slack was lost ({0})")]
    SocketLost(String),
    #[error("Slack sent nothing for {0:?}")]
    SocketSilent(Duration),
    #[error("Slack did not confirm the connection within {0:?}")]
    NoHello(Duration),
    /// Connecting failed too often in a row.
    #[error("Slack cannot be reached: {0}")]
    Unreachable(Box<Error>),
    #[error(
        "Socket Mode is switched off for this Slack app: switch it on at api.slack.com/apps under \
         Socket Mode, then run `petasos links retry slack`"
    )]
    SocketModeDisabled,
    #[error(
        "no Slack app token: create one with the scope connections:write at api.slack.com/apps under \
         Basic Information, and set SLACK_APP_TOKEN"
    )]
    NoAppToken,
    #[error(
        "no Slack bot token: install the app at api.slack.com/apps under OAuth & Permissions, and set \
         SLACK_BOT_TOKEN"
    )]
    NoBotToken,
    #[error("the Slack tokens are swapped: SLACK_APP_TOKEN must begin with xapp-, SLACK_BOT_TOKEN must not")]
    SwappedTokens,
    #[error("the command is too old for a private answer; send it again")]
    ResponseExpired,
    /// The file did not become visible in the channel.
    #[error("the file was not uploaded: {0}")]
    FileNotShared(Box<Error>),
    #[error("Slack does not accept files in the private answer to a command")]
    NoPrivateFiles,
    #[error("the gateway is stopping")]
    Closed,
}

/// The class of a Slack error name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ErrorClass {
    Credentials,
    Scope,
    Forbidden,
    NoChat,
    /// A message, thread or file is missing or refused; the channel itself is not.
    Gone,
    TooLong,
    BadFormat,
    Limited,
    /// Slack failed while it handled the request, which may have had an effect.
    ServerError,
    /// Slack failed before it handled the request.
    Unavailable,
    Other,
}

const ERROR_NAMES: &[(ErrorClass, &[&str])] = &[
    (
        ErrorClass::Credentials,
        &[
            "invalid_auth",
            "not_authed",
            "account_inactive",
            "token_revoked",
            "token_expired",
            "not_allowed_token_type",
            "org_login_required",
            "team_access_not_granted",
        ],
    ),
    (ErrorClass::Scope, &["missing_scope", "no_permission", "ekm_access_denied"]),
    (
        ErrorClass::Forbidden,
        &[
            "not_in_channel",
            "is_archived",
            "restricted_action",
            "restricted_action_read_only_channel",
            "user_not_in_channel",
            "cannot_dm_bot",
            "messages_tab_disabled",
            "user_disabled",
            "access_denied",
            "team_not_found",
            "method_not_supported_for_channel_type",
        ],
    ),
    (ErrorClass::NoChat, &["channel_not_found", "user_not_found", "users_not_found"]),
    (
        ErrorClass::Gone,
        &[
            "message_not_found",
            "thread_not_found",
            "invalid_thread_ts",
            "cannot_reply_to_message",
            "restricted_action_thread_locked",
            "restricted_action_thread_only_channel",
            "restricted_action_non_threadable_channel",
            "cant_update_message",
            "cant_delete_message",
            "edit_window_closed",
            "file_not_found",
        ],
    ),
    (ErrorClass::TooLong, &["msg_too_long", "msg_blocks_too_long"]),
    (ErrorClass::BadFormat, &["invalid_blocks", "invalid_blocks_format", "block_mismatch", "no_text"]),
    (ErrorClass::Limited, &["ratelimited", "rate_limited", "message_limit_exceeded", "accesslimited"]),
    (ErrorClass::ServerError, &["internal_error", "fatal_error"]),
    (ErrorClass::Unavailable, &["service_unavailable", "request_timeout", "team_added_to_org"]),
];

fn class(error: &str) -> ErrorClass {
    let entry = ERROR_NAMES.iter().find(|(_, names)| names.contains(&error));
    entry.map_or(ErrorClass::Other, |(class, _)| *class)
}

impl From<DialError> for Error {
    fn from(error: DialError) -> Self {
        match error {
            DialError::Failed(failure) => Self::Link(failure),
            DialError::Answered { status } => Self::Intermediary { status },
        }
    }
}

impl Error {
    pub(crate) fn is_penalized(&self) -> bool {
        match self {
            Self::Penalized(_) => true,
            Self::FileNotShared(error) => error.is_penalized(),
            Self::Answered { .. }
            | Self::RateLimited { .. }
            | Self::Intermediary { .. }
            | Self::Link(_)
            | Self::SocketLost(_)
            | Self::SocketSilent(_)
            | Self::NoHello(_)
            | Self::Unreachable(_)
            | Self::SocketModeDisabled
            | Self::NoAppToken
            | Self::NoBotToken
            | Self::SwappedTokens
            | Self::ResponseExpired
            | Self::NoPrivateFiles
            | Self::Closed => false,
        }
    }

    pub fn fault(&self) -> Fault {
        match self {
            Self::Answered { error, .. } => match class(error) {
                ErrorClass::Credentials | ErrorClass::Scope => Fault::Fatal,
                ErrorClass::Limited | ErrorClass::ServerError | ErrorClass::Unavailable => {
                    Fault::Later { after: None }
                }
                ErrorClass::Forbidden
                | ErrorClass::NoChat
                | ErrorClass::Gone
                | ErrorClass::TooLong
                | ErrorClass::BadFormat
                | ErrorClass::Other => Fault::Refused,
            },
            Self::RateLimited { after } => Fault::Later { after: *after },
            Self::Penalized(penalty) => Fault::Later { after: Some(penalty.after) },
            Self::Link(failure) => failure.fault(),
            Self::Intermediary { .. }
            | Self::SocketLost(_)
            | Self::SocketSilent(_)
            | Self::NoHello(_)
            | Self::Unreachable(_)
            | Self::Closed => Fault::Later { after: None },
            Self::SocketModeDisabled | Self::NoAppToken | Self::NoBotToken | Self::SwappedTokens => {
                Fault::Fatal
            }
            Self::ResponseExpired | Self::NoPrivateFiles => Fault::Refused,
            Self::FileNotShared(error) if error.forbids_files() => Fault::Refused,
            Self::FileNotShared(error) => error.fault(),
        }
    }

    pub fn reached(&self) -> Reached {
        match self {
            Self::Answered { error, .. } if class(error) == ErrorClass::ServerError => Reached::Maybe,
            Self::Link(failure) => failure.reached(),
            Self::Intermediary { .. } => Reached::Maybe,
            Self::Answered { .. }
            | Self::RateLimited { .. }
            | Self::Penalized(_)
            | Self::SocketLost(_)
            | Self::SocketSilent(_)
            | Self::NoHello(_)
            | Self::Unreachable(_)
            | Self::SocketModeDisabled
            | Self::NoAppToken
            | Self::NoBotToken
            | Self::SwappedTokens
            | Self::ResponseExpired
            | Self::FileNotShared(_)
            | Self::NoPrivateFiles
            | Self::Closed => Reached::No,
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Self::Answered { error, .. } => match class(error) {
                ErrorClass::Forbidden => Kind::Forbidden,
                ErrorClass::NoChat => Kind::ChatNotFound,
                ErrorClass::Gone => Kind::NotFound,
                ErrorClass::TooLong => Kind::TooLong,
                ErrorClass::BadFormat => Kind::BadFormat,
                ErrorClass::Limited => Kind::RateLimited,
                ErrorClass::Unavailable => Kind::Transient,
                ErrorClass::Credentials | ErrorClass::Scope | ErrorClass::ServerError | ErrorClass::Other => {
                    Kind::Unknown
                }
            },
            Self::RateLimited { .. } | Self::Penalized(_) => Kind::RateLimited,
            Self::Link(HttpError::ConnectFailed(_)) | Self::Unreachable(_) | Self::Closed => Kind::Transient,
            Self::SocketLost(_) | Self::SocketSilent(_) | Self::NoHello(_) => Kind::Transient,
            Self::ResponseExpired => Kind::NotFound,
            Self::FileNotShared(error) if error.forbids_files() => Kind::NoFiles,
            Self::FileNotShared(error) => error.kind(),
            Self::Link(_)
            | Self::Intermediary { .. }
            | Self::SocketModeDisabled
            | Self::NoAppToken
            | Self::NoBotToken
            | Self::SwappedTokens
            | Self::NoPrivateFiles => Kind::Unknown,
        }
    }

    pub fn code(&self) -> &'static str {
        match self {
            Self::Answered { error, .. } => match class(error) {
                ErrorClass::Credentials => "slack_invalid_auth",
                ErrorClass::Scope => "slack_missing_scope",
                ErrorClass::Forbidden => "slack_forbidden",
                ErrorClass::NoChat => "slack_chat_not_found",
                ErrorClass::Gone => "slack_not_found",
                ErrorClass::TooLong => "slack_too_long",
                ErrorClass::BadFormat => "slack_bad_format",
                ErrorClass::Limited => "slack_rate_limited",
                ErrorClass::ServerError | ErrorClass::Unavailable => "slack_server_error",
                ErrorClass::Other => "slack_bad_request",
            },
            Self::RateLimited { .. } | Self::Penalized(_) => "slack_rate_limited",
            Self::Intermediary { .. } => "slack_server_error",
            Self::Link(HttpError::ConnectFailed(_)) => "slack_connect_error",
            Self::Link(_) | Self::Unreachable(_) => "slack_network_error",
            Self::SocketLost(_) => "slack_socket_lost",
            Self::SocketSilent(_) | Self::NoHello(_) => "slack_socket_silent",
            Self::SocketModeDisabled => "slack_link_disabled",
            Self::NoAppToken => "slack_missing_app_token",
            Self::NoBotToken => "slack_missing_bot_token",
            Self::SwappedTokens => "slack_invalid_auth",
            Self::ResponseExpired => "slack_response_expired",
            Self::FileNotShared(error) if error.forbids_files() => "slack_no_files",
            Self::FileNotShared(error) => error.code(),
            Self::NoPrivateFiles => "slack_no_private_files",
            Self::Closed => "slack_closed",
        }
    }

    pub(super) fn is_message_gone(&self) -> bool {
        matches!(self, Self::Answered { error, .. } if error == "message_not_found")
    }

    pub(super) fn is_already_reacted(&self) -> bool {
        matches!(self, Self::Answered { error, .. } if error == "already_reacted")
    }

    pub(super) fn is_reaction_gone(&self) -> bool {
        matches!(self, Self::Answered { error, .. } if error == "no_reaction")
    }

    /// For a file: files are refused, texts may be accepted. A missing scope may concern files only.
    pub(super) fn forbids_files(&self) -> bool {
        const NAMES: [&str; 5] = [
            "restricted_action",
            "access_denied",
            "file_uploads_disabled",
            "file_uploads_except_images_disabled",
            "slack_connect_file_upload_sharing_blocked",
        ];
        let forbids = |error: &str| class(error) == ErrorClass::Scope || NAMES.contains(&error);
        matches!(self, Self::Answered { error, .. } if forbids(error))
    }

    pub(super) fn is_token_refused(&self) -> bool {
        matches!(self, Self::Answered { error, .. } if class(error) == ErrorClass::Credentials)
    }

    /// The workspace no longer accepts messages. `no_permission` may concern one channel only.
    pub(super) fn is_workspace_lost(&self) -> bool {
        match self {
            Self::Answered { error, .. } => self.is_token_refused() || error == "missing_scope",
            Self::FileNotShared(error) => !error.forbids_files() && error.is_workspace_lost(),
            Self::RateLimited { .. }
            | Self::Penalized(_)
            | Self::Intermediary { .. }
            | Self::Link(_)
            | Self::SocketLost(_)
            | Self::SocketSilent(_)
            | Self::NoHello(_)
            | Self::Unreachable(_)
            | Self::SocketModeDisabled
            | Self::NoAppToken
            | Self::NoBotToken
            | Self::SwappedTokens
            | Self::ResponseExpired
            | Self::NoPrivateFiles
            | Self::Closed => false,
        }
    }

    /// After the last reconnect attempt.
    pub(super) fn into_link_error(self) -> Self {
        if self.fault() == Fault::Fatal { self } else { Self::Unreachable(Box::new(self)) }
    }

    /// Another workspace may have the chat.
    pub(super) fn is_chat_unknown(&self) -> bool {
        matches!(self, Self::Answered { error, .. } if class(error) == ErrorClass::NoChat)
    }
}

fn display_answer(error: &str, needed: Option<&str>, token: TokenKind) -> String {
    let (kind, setting) = match token {
        TokenKind::App => ("app token", "SLACK_APP_TOKEN"),
        TokenKind::Bot => ("bot token", "SLACK_BOT_TOKEN"),
    };
    match class(error) {
        ErrorClass::Credentials => format!(
            "Slack does not accept the {kind} ({error}): copy a valid one from api.slack.com/apps into \
             {setting}"
        ),
        ErrorClass::Scope => format!(
            "the Slack {kind} lacks the scope {} ({error}): add it at api.slack.com/apps and install the app \
             again",
            needed.unwrap_or("for this request")
        ),
        ErrorClass::Forbidden
        | ErrorClass::NoChat
        | ErrorClass::Gone
        | ErrorClass::TooLong
        | ErrorClass::BadFormat
        | ErrorClass::Limited
        | ErrorClass::ServerError
        | ErrorClass::Unavailable
        | ErrorClass::Other => format!("Slack answered {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Fault = Fault::Later { after: None };

    fn answered(error: &str) -> Error {
        Error::Answered { error: error.into(), needed: None, token: TokenKind::Bot }
    }

    #[track_caller]
    fn check(error: &Error, fault: Fault, reached: Reached, kind: Kind, code: &str) {
        let got = (error.fault(), error.reached(), error.kind(), error.code());
        assert_eq!(got, (fault, reached, kind, code), "{error}");
    }

    #[test]
    fn classifies_error_names() {
        use Fault::{Fatal, Refused};
        use Kind::{BadFormat, ChatNotFound, Forbidden, NotFound, RateLimited, TooLong, Transient, Unknown};
        use Reached::{Maybe, No};
        for (name, fault, reached, kind, code) in [
            ("invalid_auth", Fatal, No, Unknown, "slack_invalid_auth"),
            ("account_inactive", Fatal, No, Unknown, "slack_invalid_auth"),
            ("token_revoked", Fatal, No, Unknown, "slack_invalid_auth"),
            ("not_allowed_token_type", Fatal, No, Unknown, "slack_invalid_auth"),
            ("missing_scope", Fatal, No, Unknown, "slack_missing_scope"),
            ("not_in_channel", Refused, No, Forbidden, "slack_forbidden"),
            ("is_archived", Refused, No, Forbidden, "slack_forbidden"),
            ("channel_not_found", Refused, No, ChatNotFound, "slack_chat_not_found"),
            ("message_not_found", Refused, No, NotFound, "slack_not_found"),
            ("thread_not_found", Refused, No, NotFound, "slack_not_found"),
            ("cannot_reply_to_message", Refused, No, NotFound, "slack_not_found"),
            ("restricted_action_thread_locked", Refused, No, NotFound, "slack_not_found"),
            ("restricted_action_thread_only_channel", Refused, No, NotFound, "slack_not_found"),
            ("restricted_action_non_threadable_channel", Refused, No, NotFound, "slack_not_found"),
            ("msg_too_long", Refused, No, TooLong, "slack_too_long"),
            ("invalid_blocks", Refused, No, BadFormat, "slack_bad_format"),
            ("ratelimited", LATER, No, RateLimited, "slack_rate_limited"),
            ("internal_error", LATER, Maybe, Unknown, "slack_server_error"),
            ("fatal_error", LATER, Maybe, Unknown, "slack_server_error"),
            ("service_unavailable", LATER, No, Transient, "slack_server_error"),
            ("a_new_error_name", Refused, No, Unknown, "slack_bad_request"),
        ] {
            check(&answered(name), fault, reached, kind, code);
        }
    }

    #[test]
    fn every_name_has_one_class() {
        let mut names: Vec<&str> = ERROR_NAMES.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn only_a_lost_request_may_have_had_an_effect() {
        use Kind::{Transient, Unknown};
        use Reached::{Maybe, No};
        let link = Error::Link;
        check(&link(HttpError::ConnectFailed("refused".into())), LATER, No, Transient, "slack_connect_error");
        check(&link(HttpError::ConnectionLost("reset".into())), LATER, Maybe, Unknown, "slack_network_error");
        check(&Error::Intermediary { status: 502 }, LATER, Maybe, Unknown, "slack_server_error");
        check(&Error::SocketLost("reset".into()), LATER, No, Transient, "slack_socket_lost");
        check(&Error::SocketSilent(Duration::ZERO), LATER, No, Transient, "slack_socket_silent");
        let wait = Some(Duration::from_secs(3));
        let later = Fault::Later { after: wait };
        check(&Error::RateLimited { after: wait }, later, No, Kind::RateLimited, "slack_rate_limited");
    }

    #[test]
    fn lost_link_ends_as_unreachable_unless_the_error_is_fatal() {
        let lost = Error::SocketLost("reset".into());
        assert_eq!(lost.clone().into_link_error(), Error::Unreachable(Box::new(lost)));
        assert_eq!(answered("invalid_auth").into_link_error(), answered("invalid_auth"));
    }

    #[test]
    fn fatal_errors_give_advice() {
        for (error, words) in [
            (answered("invalid_auth"), "SLACK_BOT_TOKEN"),
            (
                Error::Answered { error: "invalid_auth".into(), needed: None, token: TokenKind::App },
                "SLACK_APP_TOKEN",
            ),
            (
                Error::Answered {
                    error: "missing_scope".into(),
                    needed: Some("chat:write".into()),
                    token: TokenKind::Bot,
                },
                "chat:write",
            ),
            (Error::SocketModeDisabled, "Socket Mode"),
            (Error::NoAppToken, "connections:write"),
            (Error::NoBotToken, "SLACK_BOT_TOKEN"),
            (Error::SwappedTokens, "xapp-"),
        ] {
            assert_eq!(error.fault(), Fault::Fatal, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
