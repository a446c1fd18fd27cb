//! What Slack's failures mean. Slack names its errors; the table below says what each name means for us.

use std::time::Duration;

use petasos_core::{Fault, Reached};

use super::api::Sort;
use crate::http::Failure;
use crate::websocket::NotOpened;
use crate::{Held, Kind};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Slack said no, and gave the reason this name. `needed`: the scope that is missing.
    #[error("{}", sentence(error, needed.as_deref(), *token))]
    Answered { error: String, needed: Option<String>, token: Sort },
    #[error("Slack wants us to slow down")]
    Limited { after: Option<Duration> },
    #[error(transparent)]
    Held(#[from] Held),
    /// Something between us and Slack, or in front of it, said no. It may have passed the request on.
    #[error("something on the way to Slack answered {status}")]
    OnTheWay { status: u16 },
    #[error(transparent)]
    Link(#[from] Failure),
    #[error("the socket to Slack broke ({0})")]
    Dropped(String),
    #[error("the socket to Slack was silent for {0:?}")]
    Silent(Duration),
    #[error("Slack did not say hello within {0:?}")]
    NoHello(Duration),
    /// Connecting failed too often in a row.
    #[error("Slack cannot be reached: {0}")]
    Unreachable(Box<Error>),
    #[error(
        "Socket Mode is switched off for this Slack app: switch it on at api.slack.com/apps under \
         Socket Mode, then run `petasos links retry slack`"
    )]
    Disabled,
    #[error(
        "no Slack app token: make one with the scope connections:write at api.slack.com/apps under \
         Basic Information, and set SLACK_APP_TOKEN"
    )]
    NoAppToken,
    #[error(
        "no Slack bot token: install the app at api.slack.com/apps under OAuth & Permissions, and set \
         SLACK_BOT_TOKEN"
    )]
    NoBotToken,
    #[error("the Slack tokens are mixed up: SLACK_APP_TOKEN must begin with xapp-, SLACK_BOT_TOKEN must not")]
    MixedUp,
    #[error("the command was typed too long ago for a private answer")]
    ResponseGone,
    /// A file did not get as far as the channel: nobody has seen it.
    #[error("the file was not uploaded: {0}")]
    NotShared(Box<Error>),
    #[error("the answer to a command is private, and Slack takes no files there")]
    NoPrivateFiles,
    #[error("the gateway no longer listens")]
    Closed,
}

/// What a name in Slack's answer amounts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    /// The token is no good.
    Credentials,
    Scope,
    Forbidden,
    NoChat,
    /// A message, thread or file is not there, or not for us; the channel itself has not refused us.
    Gone,
    TooLong,
    BadFormat,
    Limited,
    /// Slack's own trouble, in the middle of the work: some of it may be done.
    Broken,
    /// Slack's own trouble, before the work.
    Busy,
    Other,
}

const NAMES: &[(Class, &[&str])] = &[
    (
        Class::Credentials,
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
    (Class::Scope, &["missing_scope", "no_permission", "ekm_access_denied"]),
    (
        Class::Forbidden,
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
    (Class::NoChat, &["channel_not_found", "user_not_found", "users_not_found"]),
    (
        Class::Gone,
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
    (Class::TooLong, &["msg_too_long", "msg_blocks_too_long"]),
    (Class::BadFormat, &["invalid_blocks", "invalid_blocks_format", "block_mismatch", "no_text"]),
    (Class::Limited, &["ratelimited", "rate_limited", "message_limit_exceeded", "accesslimited"]),
    (Class::Broken, &["internal_error", "fatal_error"]),
    (Class::Busy, &["service_unavailable", "request_timeout", "team_added_to_org"]),
];

fn class(error: &str) -> Class {
    let hit = NAMES.iter().find(|(_, names)| names.contains(&error));
    hit.map_or(Class::Other, |(class, _)| *class)
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
    pub(crate) fn is_held(&self) -> bool {
        match self {
            Self::Held(_) => true,
            Self::NotShared(error) => error.is_held(),
            Self::Answered { .. }
            | Self::Limited { .. }
            | Self::OnTheWay { .. }
            | Self::Link(_)
            | Self::Dropped(_)
            | Self::Silent(_)
            | Self::NoHello(_)
            | Self::Unreachable(_)
            | Self::Disabled
            | Self::NoAppToken
            | Self::NoBotToken
            | Self::MixedUp
            | Self::ResponseGone
            | Self::NoPrivateFiles
            | Self::Closed => false,
        }
    }

    pub fn fault(&self) -> Fault {
        match self {
            Self::Answered { error, .. } => match class(error) {
                Class::Credentials | Class::Scope => Fault::Fatal,
                Class::Limited | Class::Broken | Class::Busy => Fault::Later { after: None },
                Class::Forbidden
                | Class::NoChat
                | Class::Gone
                | Class::TooLong
                | Class::BadFormat
                | Class::Other => Fault::Refused,
            },
            Self::Limited { after } => Fault::Later { after: *after },
            Self::Held(held) => Fault::Later { after: Some(held.after) },
            Self::Link(failure) => failure.fault(),
            Self::OnTheWay { .. }
            | Self::Dropped(_)
            | Self::Silent(_)
            | Self::NoHello(_)
            | Self::Unreachable(_)
            | Self::Closed => Fault::Later { after: None },
            Self::Disabled | Self::NoAppToken | Self::NoBotToken | Self::MixedUp => Fault::Fatal,
            Self::ResponseGone | Self::NoPrivateFiles => Fault::Refused,
            Self::NotShared(error) if error.bars_files() => Fault::Refused,
            Self::NotShared(error) => error.fault(),
        }
    }

    pub fn reached(&self) -> Reached {
        match self {
            Self::Answered { error, .. } if class(error) == Class::Broken => Reached::Maybe,
            Self::Link(failure) => failure.reached(),
            Self::OnTheWay { .. } => Reached::Maybe,
            Self::Answered { .. }
            | Self::Limited { .. }
            | Self::Held(_)
            | Self::Dropped(_)
            | Self::Silent(_)
            | Self::NoHello(_)
            | Self::Unreachable(_)
            | Self::Disabled
            | Self::NoAppToken
            | Self::NoBotToken
            | Self::MixedUp
            | Self::ResponseGone
            | Self::NotShared(_)
            | Self::NoPrivateFiles
            | Self::Closed => Reached::No,
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Self::Answered { error, .. } => match class(error) {
                Class::Forbidden => Kind::Forbidden,
                Class::NoChat => Kind::ChatNotFound,
                Class::Gone => Kind::NotFound,
                Class::TooLong => Kind::TooLong,
                Class::BadFormat => Kind::BadFormat,
                Class::Limited => Kind::RateLimited,
                Class::Busy => Kind::Transient,
                Class::Credentials | Class::Scope | Class::Broken | Class::Other => Kind::Unknown,
            },
            Self::Limited { .. } | Self::Held(_) => Kind::RateLimited,
            Self::Link(Failure::Unreached(_)) | Self::Unreachable(_) | Self::Closed => Kind::Transient,
            Self::Dropped(_) | Self::Silent(_) | Self::NoHello(_) => Kind::Transient,
            Self::ResponseGone => Kind::NotFound,
            Self::NotShared(error) if error.bars_files() => Kind::NoFiles,
            Self::NotShared(error) => error.kind(),
            Self::Link(_)
            | Self::OnTheWay { .. }
            | Self::Disabled
            | Self::NoAppToken
            | Self::NoBotToken
            | Self::MixedUp
            | Self::NoPrivateFiles => Kind::Unknown,
        }
    }

    pub fn code(&self) -> &'static str {
        match self {
            Self::Answered { error, .. } => match class(error) {
                Class::Credentials => "slack_invalid_auth",
                Class::Scope => "slack_missing_scope",
                Class::Forbidden => "slack_forbidden",
                Class::NoChat => "slack_chat_not_found",
                Class::Gone => "slack_not_found",
                Class::TooLong => "slack_too_long",
                Class::BadFormat => "slack_bad_format",
                Class::Limited => "slack_rate_limited",
                Class::Broken | Class::Busy => "slack_server_error",
                Class::Other => "slack_bad_request",
            },
            Self::Limited { .. } | Self::Held(_) => "slack_rate_limited",
            Self::OnTheWay { .. } => "slack_server_error",
            Self::Link(Failure::Unreached(_)) => "slack_connect_error",
            Self::Link(_) | Self::Unreachable(_) => "slack_network_error",
            Self::Dropped(_) => "slack_socket_lost",
            Self::Silent(_) | Self::NoHello(_) => "slack_socket_silent",
            Self::Disabled => "slack_link_disabled",
            Self::NoAppToken => "slack_missing_app_token",
            Self::NoBotToken => "slack_missing_bot_token",
            Self::MixedUp => "slack_invalid_auth",
            Self::ResponseGone => "slack_response_expired",
            Self::NotShared(error) if error.bars_files() => "slack_no_files",
            Self::NotShared(error) => error.code(),
            Self::NoPrivateFiles => "slack_no_private_files",
            Self::Closed => "slack_closed",
        }
    }

    /// The message is not there (any more).
    pub(super) fn is_message_gone(&self) -> bool {
        matches!(self, Self::Answered { error, .. } if error == "message_not_found")
    }

    pub(super) fn is_marked(&self) -> bool {
        matches!(self, Self::Answered { error, .. } if error == "already_reacted")
    }

    pub(super) fn is_not_marked(&self) -> bool {
        matches!(self, Self::Answered { error, .. } if error == "no_reaction")
    }

    /// Said of a file: it, and perhaps nothing else, is not wanted. A token without the scope for files is good for
    /// everything else.
    pub(super) fn bars_files(&self) -> bool {
        const NAMES: [&str; 5] = [
            "restricted_action",
            "access_denied",
            "file_uploads_disabled",
            "file_uploads_except_images_disabled",
            "slack_connect_file_upload_sharing_blocked",
        ];
        let barred = |error: &str| class(error) == Class::Scope || NAMES.contains(&error);
        matches!(self, Self::Answered { error, .. } if barred(error))
    }

    /// The token is good for nothing any more.
    pub(super) fn is_revoked(&self) -> bool {
        matches!(self, Self::Answered { error, .. } if class(error) == Class::Credentials)
    }

    /// Said of a message: its workspace takes nothing from us any more. `no_permission` may be about one channel only.
    pub(super) fn bars_us(&self) -> bool {
        match self {
            Self::Answered { error, .. } => self.is_revoked() || error == "missing_scope",
            Self::NotShared(error) => !error.bars_files() && error.bars_us(),
            Self::Limited { .. }
            | Self::Held(_)
            | Self::OnTheWay { .. }
            | Self::Link(_)
            | Self::Dropped(_)
            | Self::Silent(_)
            | Self::NoHello(_)
            | Self::Unreachable(_)
            | Self::Disabled
            | Self::NoAppToken
            | Self::NoBotToken
            | Self::MixedUp
            | Self::ResponseGone
            | Self::NoPrivateFiles
            | Self::Closed => false,
        }
    }

    /// The error with which a link ends whose sockets are given up.
    pub(super) fn given_up(self) -> Self {
        if self.fault() == Fault::Fatal { self } else { Self::Unreachable(Box::new(self)) }
    }

    /// This workspace does not know the chat; another may.
    pub(super) fn is_chat_unknown(&self) -> bool {
        matches!(self, Self::Answered { error, .. } if class(error) == Class::NoChat)
    }
}

fn sentence(error: &str, needed: Option<&str>, token: Sort) -> String {
    let (name, setting) = match token {
        Sort::App => ("app token", "SLACK_APP_TOKEN"),
        Sort::Bot => ("bot token", "SLACK_BOT_TOKEN"),
    };
    match class(error) {
        Class::Credentials => format!(
            "Slack does not accept the {name} ({error}): take a valid one from api.slack.com/apps and set \
             {setting}"
        ),
        Class::Scope => format!(
            "the Slack {name} lacks the scope {} ({error}): add it at api.slack.com/apps and install the app \
             again",
            needed.unwrap_or("that this needs")
        ),
        Class::Forbidden
        | Class::NoChat
        | Class::Gone
        | Class::TooLong
        | Class::BadFormat
        | Class::Limited
        | Class::Broken
        | Class::Busy
        | Class::Other => format!("Slack answered {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Fault = Fault::Later { after: None };

    fn answered(error: &str) -> Error {
        Error::Answered { error: error.into(), needed: None, token: Sort::Bot }
    }

    #[track_caller]
    fn check(error: &Error, fault: Fault, reached: Reached, kind: Kind, code: &str) {
        let got = (error.fault(), error.reached(), error.kind(), error.code());
        assert_eq!(got, (fault, reached, kind, code), "{error}");
    }

    #[test]
    fn every_name_has_one_meaning() {
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
            ("ratelimited", SOON, No, RateLimited, "slack_rate_limited"),
            ("internal_error", SOON, Maybe, Unknown, "slack_server_error"),
            ("fatal_error", SOON, Maybe, Unknown, "slack_server_error"),
            ("service_unavailable", SOON, No, Transient, "slack_server_error"),
            ("whatever_comes_next", Refused, No, Unknown, "slack_bad_request"),
        ] {
            check(&answered(name), fault, reached, kind, code);
        }
    }

    #[test]
    fn no_name_stands_in_two_classes() {
        let mut names: Vec<&str> = NAMES.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn trouble_on_the_way_may_have_had_its_effect_and_a_socket_never() {
        use Kind::{Transient, Unknown};
        use Reached::{Maybe, No};
        let link = Error::Link;
        check(&link(Failure::Unreached("refused".into())), SOON, No, Transient, "slack_connect_error");
        check(&link(Failure::Lost("reset".into())), SOON, Maybe, Unknown, "slack_network_error");
        check(&Error::OnTheWay { status: 502 }, SOON, Maybe, Unknown, "slack_server_error");
        check(&Error::Dropped("reset".into()), SOON, No, Transient, "slack_socket_lost");
        check(&Error::Silent(Duration::ZERO), SOON, No, Transient, "slack_socket_silent");
        let wait = Some(Duration::from_secs(3));
        let later = Fault::Later { after: wait };
        check(&Error::Limited { after: wait }, later, No, Kind::RateLimited, "slack_rate_limited");
    }

    #[test]
    fn a_link_that_is_given_up_ends_unreachable_unless_a_person_is_needed() {
        let lost = Error::Dropped("reset".into());
        assert_eq!(lost.clone().given_up(), Error::Unreachable(Box::new(lost)));
        assert_eq!(answered("invalid_auth").given_up(), answered("invalid_auth"));
    }

    #[test]
    fn what_needs_a_person_says_what_to_do() {
        for (error, words) in [
            (answered("invalid_auth"), "SLACK_BOT_TOKEN"),
            (
                Error::Answered { error: "invalid_auth".into(), needed: None, token: Sort::App },
                "SLACK_APP_TOKEN",
            ),
            (
                Error::Answered {
                    error: "missing_scope".into(),
                    needed: Some("chat:write".into()),
                    token: Sort::Bot,
                },
                "chat:write",
            ),
            (Error::Disabled, "Socket Mode"),
            (Error::NoAppToken, "connections:write"),
            (Error::NoBotToken, "SLACK_BOT_TOKEN"),
            (Error::MixedUp, "xapp-"),
        ] {
            assert_eq!(error.fault(), Fault::Fatal, "{error}");
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
