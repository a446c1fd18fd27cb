//! Telegram errors, classified by code; by text only where Telegram has no finer code than 400.

use std::time::Duration;

use petasos_core::link::reconnect::ResumeHint;
use petasos_core::{Fault, Reached};

use crate::http::HttpError;
use crate::listener::BindError;
use crate::{Kind, Penalized};

/// Another poller that stays needs a person, so the pause is long.
const CONFLICT_PAUSE: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `code` is Telegram's `error_code`, or else the HTTP status.
    #[error("{}", display_answer(*code, description))]
    Answered { code: u16, description: String, retry_after: Option<Duration>, migrated_to: Option<i64> },
    /// An intermediary, such as a proxy, answered. It may have passed the request on.
    #[error("a server in front of Telegram answered {status}")]
    Intermediary { status: u16 },
    #[error(transparent)]
    Link(#[from] HttpError),
    #[error(transparent)]
    Penalized(#[from] Penalized),
    #[error("Telegram cannot be polled: {0}")]
    Unreachable(Box<Error>),
    #[error("another process polls with this bot token; stop it, or use another bot token here")]
    Conflict,
    #[error(transparent)]
    BindError(#[from] BindError),
    /// May pass: the host name may be new.
    #[error("Telegram refused the webhook ({0}); correct TELEGRAM_WEBHOOK_URL, or remove it to use polling")]
    Webhook(String),
    #[error("Telegram webhook listener failed its self-check")]
    SelfCheckFailed,
    #[error("the gateway is stopping")]
    Closed,
}

impl Error {
    pub(crate) fn is_penalized(&self) -> bool {
        matches!(self, Self::Penalized(_))
    }

    pub fn fault(&self) -> Fault {
        match self {
            Self::Penalized(held) => Fault::Later { after: Some(held.after) },
            Self::Answered { code: 401 | 404, .. } => Fault::Fatal,
            Self::Answered { code: 420 | 429, retry_after, .. } => Fault::Later { after: *retry_after },
            Self::Answered { code: 409 | 500.., .. } => Fault::Later { after: None },
            Self::Answered { .. } => Fault::Refused,
            Self::Link(failure) => failure.fault(),
            Self::BindError(error) => error.fault(),
            Self::Intermediary { .. }
            | Self::Unreachable(_)
            | Self::Webhook(_)
            | Self::SelfCheckFailed
            | Self::Closed => Fault::Later { after: None },
            Self::Conflict => Fault::Later { after: Some(CONFLICT_PAUSE) },
        }
    }

    pub fn reached(&self) -> Reached {
        match self {
            Self::Link(failure) => failure.reached(),
            Self::Intermediary { .. } => Reached::Maybe,
            Self::Answered { .. }
            | Self::Penalized(_)
            | Self::Unreachable(_)
            | Self::Conflict
            | Self::BindError(_)
            | Self::Webhook(_)
            | Self::SelfCheckFailed
            | Self::Closed => Reached::No,
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Self::Answered { code: 403, description, .. } => match Kind::of_text(description) {
                Kind::NoFiles => Kind::NoFiles,
                _other => Kind::Forbidden,
            },
            Self::Answered { code: 420 | 429, .. } | Self::Penalized(_) => Kind::RateLimited,
            Self::Answered { code: 500.., .. } => Kind::Transient,
            Self::Answered { code: 400, description, .. } => Kind::of_text(description),
            Self::Answered { .. } => Kind::Unknown,
            Self::Link(HttpError::ConnectFailed(_)) => Kind::Transient,
            Self::Link(_) | Self::Intermediary { .. } => Kind::Unknown,
            Self::Unreachable(_) | Self::BindError(_) | Self::SelfCheckFailed | Self::Closed => {
                Kind::Transient
            }
            Self::Conflict | Self::Webhook(_) => Kind::Unknown,
        }
    }

    pub fn code(&self) -> &'static str {
        match self {
            Self::Answered { code: 401 | 404, .. } => "telegram_invalid_token",
            Self::Answered { code: 409, .. } | Self::Conflict => "telegram_polling_conflict",
            Self::Answered { code: 500.., .. } | Self::Intermediary { .. } => "telegram_server_error",
            Self::Answered { migrated_to: Some(_), .. } => "telegram_chat_migrated",
            Self::Answered { .. } => match self.kind() {
                Kind::TooLong => "telegram_too_long",
                Kind::BadFormat => "telegram_bad_format",
                Kind::Forbidden | Kind::Declined => "telegram_forbidden",
                Kind::NoFiles => "telegram_no_files",
                Kind::ChatNotFound => "telegram_chat_not_found",
                Kind::NotFound => "telegram_not_found",
                Kind::RateLimited => "telegram_rate_limited",
                Kind::Transient | Kind::Unknown => "telegram_bad_request",
            },
            Self::Penalized(_) => "telegram_rate_limited",
            Self::Link(HttpError::ConnectFailed(_)) => "telegram_connect_error",
            Self::Link(_) | Self::Unreachable(_) => "telegram_network_error",
            Self::BindError(BindError::InUse(_)) => "telegram_webhook_port_in_use",
            Self::BindError(BindError::Unavailable { .. }) => "telegram_webhook_not_bound",
            Self::BindError(BindError::InvalidAddress { .. }) => "telegram_webhook_config_invalid",
            Self::Webhook(_) => "telegram_webhook_refused",
            Self::SelfCheckFailed => "telegram_webhook_not_answering",
            Self::Closed => "telegram_closed",
        }
    }

    /// Nothing was sent.
    pub(super) fn is_bad_markup(&self) -> bool {
        self.description_contains("can't parse") || self.description_contains("parse entities")
    }

    pub(super) fn is_thread_gone(&self) -> bool {
        self.description_contains("thread not found")
            || self.description_contains("topic_deleted")
            || self.description_contains("topic deleted")
    }

    /// Sending the file as a document may still work.
    pub(super) fn is_file_unfit(&self) -> bool {
        const NAMES: [&str; 4] =
            ["photo_", "image_process_failed", "voice_messages_forbidden", "wrong type of"];
        NAMES.iter().any(|name| self.description_contains(name))
    }

    pub(super) fn is_reply_gone(&self) -> bool {
        self.description_contains("message to be replied not found")
            || self.description_contains("replied message not found")
            || self.description_contains("reply message not found")
    }

    pub(super) fn is_not_modified(&self) -> bool {
        self.description_contains("message is not modified")
    }

    pub(super) fn is_message_gone(&self) -> bool {
        self.description_contains("message to delete not found")
    }

    pub(super) fn is_callback_expired(&self) -> bool {
        self.description_contains("query is too old")
            || self.description_contains("query id is invalid")
            || self.description_contains("query_id_invalid")
    }

    pub(super) fn hint(&self) -> ResumeHint {
        match self {
            Self::Answered { code: 409, .. } if self.is_webhook_active() => ResumeHint::Removable,
            Self::Answered { code: 409, .. } => ResumeHint::Denied,
            error => error.fault().into(),
        }
    }

    pub(super) fn into_link_error(self) -> Self {
        match self.hint() {
            ResumeHint::GiveUp => self,
            ResumeHint::Denied => Self::Conflict,
            ResumeHint::Resume
            | ResumeHint::NewSession { .. }
            | ResumeHint::RetryAfter(_)
            | ResumeHint::Removable => Self::Unreachable(Box::new(self)),
        }
    }

    /// A 409 that waiting does not resolve: a webhook is set.
    pub(super) fn is_webhook_active(&self) -> bool {
        matches!(self, Self::Answered { code: 409, description, .. } if contains_ignore_case(description, "webhook is active"))
    }

    fn description_contains(&self, words: &str) -> bool {
        matches!(self, Self::Answered { code: 400, description, .. } if contains_ignore_case(description, words))
    }
}

fn display_answer(code: u16, description: &str) -> String {
    match code {
        401 | 404 => format!(
            "Telegram answered {code}: the bot token is not valid; ask @BotFather for /token and set \
             TELEGRAM_BOT_TOKEN"
        ),
        _other => format!("Telegram answered {code}: {description}"),
    }
}

fn contains_ignore_case(description: &str, words: &str) -> bool {
    description.to_ascii_lowercase().contains(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Fault = Fault::Later { after: None };

    fn api_error(code: u16, description: &str) -> Error {
        let retry_after = (code == 429).then_some(Duration::from_secs(7));
        Error::Answered { code, description: description.into(), retry_after, migrated_to: None }
    }

    #[track_caller]
    fn check(error: Error, fault: Fault, reached: Reached, code: &str) {
        assert_eq!((error.fault(), error.reached(), error.code()), (fault, reached, code), "{error}");
    }

    #[test]
    fn classifies_refusals_as_without_effect() {
        let check = |code, text, fault, name| check(api_error(code, text), fault, Reached::No, name);
        let wait = Fault::Later { after: Some(Duration::from_secs(7)) };
        assert!(api_error(401, "Unauthorized").to_string().contains("TELEGRAM_BOT_TOKEN"));
        check(401, "Unauthorized", Fault::Fatal, "telegram_invalid_token");
        check(404, "Not Found", Fault::Fatal, "telegram_invalid_token");
        check(403, "Forbidden: bot was blocked by the user", Fault::Refused, "telegram_forbidden");
        check(429, "Too Many Requests: retry after 7", wait, "telegram_rate_limited");
        check(500, "Internal Server Error", SOON, "telegram_server_error");
        check(502, "Bad Gateway", SOON, "telegram_server_error");
        check(400, "Bad Request: chat not found", Fault::Refused, "telegram_chat_not_found");
        check(400, "Bad Request: message thread not found", Fault::Refused, "telegram_not_found");
        check(400, "Bad Request: message is too long", Fault::Refused, "telegram_too_long");
        check(400, "Bad Request: can't parse entities: x", Fault::Refused, "telegram_bad_format");
        check(400, "Bad Request: whatever comes next", Fault::Refused, "telegram_bad_request");
        check(409, "Conflict: terminated by other getUpdates request", SOON, "telegram_polling_conflict");
    }

    #[test]
    fn intermediary_error_has_an_unknown_outcome() {
        let error = Error::Intermediary { status: 504 };
        assert_eq!(error.kind(), Kind::Unknown);
        check(error, SOON, Reached::Maybe, "telegram_server_error");
    }

    #[test]
    fn only_a_failed_connection_rules_out_an_effect() {
        let link = |failure| Error::Link(failure);
        check(link(HttpError::ConnectFailed("refused".into())), SOON, Reached::No, "telegram_connect_error");
        check(
            link(HttpError::ConnectionLost("reset".into())),
            SOON,
            Reached::Maybe,
            "telegram_network_error",
        );
        check(link(HttpError::Timeout(Duration::ZERO)), SOON, Reached::Maybe, "telegram_network_error");
        check(link(HttpError::TooLarge), SOON, Reached::Maybe, "telegram_network_error");
        check(link(HttpError::Malformed("html".into())), SOON, Reached::Maybe, "telegram_network_error");
    }

    #[test]
    fn retries_lost_polls_soon_and_conflicts_late() {
        let pause = Fault::Later { after: Some(Duration::from_secs(300)) };
        check(Error::Conflict, pause, Reached::No, "telegram_polling_conflict");
        let unreachable = Error::Unreachable(Box::new(api_error(502, "Bad Gateway")));
        check(unreachable, SOON, Reached::No, "telegram_network_error");
    }

    #[test]
    fn maps_failed_polls_to_hints_and_link_errors() {
        let unreachable = |error: &Error| Error::Unreachable(Box::new(error.clone()));
        let server = api_error(502, "Bad Gateway");
        let token = api_error(401, "Unauthorized");
        let lost = Error::from(HttpError::ConnectionLost("reset".into()));
        let flood = api_error(429, "slow");
        let webhook = api_error(409, "Conflict: can't use getUpdates method while webhook is active");
        let poller = api_error(409, "Conflict: terminated by other getUpdates request");
        for (error, hint, end) in [
            (&server, ResumeHint::Resume, unreachable(&server)),
            (&lost, ResumeHint::Resume, unreachable(&lost)),
            (&flood, ResumeHint::RetryAfter(Duration::from_secs(7)), unreachable(&flood)),
            (&webhook, ResumeHint::Removable, unreachable(&webhook)),
            (&poller, ResumeHint::Denied, Error::Conflict),
            (&token, ResumeHint::GiveUp, token.clone()),
        ] {
            assert_eq!((error.hint(), error.clone().into_link_error()), (hint, end), "{error}");
        }
    }

    #[test]
    fn only_a_blocked_bot_or_missing_chat_makes_a_chat_dead() {
        for (code, text, dead) in [
            (403, "Forbidden: user is deactivated", true),
            (400, "Bad Request: chat not found", true),
            (400, "Bad Request: not enough rights to send text messages to the chat", true),
            (400, "Bad Request: CHAT_SEND_PLAIN_FORBIDDEN", true),
            (400, "Bad Request: not enough rights to send photos to the chat", false),
            (400, "Bad Request: not enough rights to send voice notes to the chat", false),
            (400, "Bad Request: CHAT_SEND_DOCS_FORBIDDEN", false),
            (400, "Bad Request: VOICE_MESSAGES_FORBIDDEN", false),
            (403, "Forbidden: not enough rights to send documents to the chat", false),
            (400, "Bad Request: message thread not found", false),
            (400, "Bad Request: message to edit not found", false),
            (429, "Too Many Requests", false),
        ] {
            assert_eq!(api_error(code, text).kind().is_dead_chat(), dead, "{text}");
        }
    }

    #[test]
    fn distinguishes_a_webhook_conflict_from_another_poller() {
        let webhook = "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook";
        assert!(api_error(409, webhook).is_webhook_active());
        assert!(!api_error(409, "Conflict: terminated by other getUpdates request").is_webhook_active());
    }
}
