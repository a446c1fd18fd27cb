//! What Telegram's failures mean. The codes of the answer decide; its text only where Telegram has no
//! finer code than 400.

use std::time::Duration;

use petasos_core::link::redial::Hint;
use petasos_core::{Fault, Reached};

use crate::http::Failure;
use crate::listener::NotBound;
use crate::{Held, Kind};

/// Another poller has the token: waiting a little has not helped, so wait long.
const CONFLICT_PAUSE: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Telegram said no. `code` is its `error_code`, or the HTTP status where there is none.
    #[error("{}", sentence(*code, description))]
    Answered { code: u16, description: String, retry_after: Option<Duration>, migrated_to: Option<i64> },
    /// Something between us and Telegram, or in front of it, said no. It may have passed the request on.
    #[error("something on the way to Telegram answered {status}")]
    OnTheWay { status: u16 },
    #[error(transparent)]
    Link(#[from] Failure),
    #[error(transparent)]
    Held(#[from] Held),
    /// Polling failed too often in a row.
    #[error("Telegram cannot be polled: {0}")]
    Unreachable(Box<Error>),
    #[error("another process polls with this bot token; stop it, or give this one its own bot")]
    Conflict,
    #[error(transparent)]
    NotBound(#[from] NotBound),
    /// Telegram does not take the address that it is to call. Time may help: it may be a name that is new.
    #[error("Telegram does not take the webhook ({0}); see to TELEGRAM_WEBHOOK_URL, or remove it to poll")]
    Webhook(String),
    #[error("the listener for Telegram's webhook does not answer its own questions")]
    Deaf,
    #[error("the gateway no longer listens")]
    Closed,
}

impl Error {
    pub(crate) fn is_held(&self) -> bool {
        matches!(self, Self::Held(_))
    }

    pub fn fault(&self) -> Fault {
        match self {
            Self::Held(held) => Fault::Later { after: Some(held.after) },
            Self::Answered { code: 401 | 404, .. } => Fault::Fatal,
            Self::Answered { code: 420 | 429, retry_after, .. } => Fault::Later { after: *retry_after },
            Self::Answered { code: 409 | 500.., .. } => Fault::Later { after: None },
            Self::Answered { .. } => Fault::Refused,
            Self::Link(failure) => failure.fault(),
            Self::NotBound(error) => error.fault(),
            Self::OnTheWay { .. } | Self::Unreachable(_) | Self::Webhook(_) | Self::Deaf | Self::Closed => {
                Fault::Later { after: None }
            }
            Self::Conflict => Fault::Later { after: Some(CONFLICT_PAUSE) },
        }
    }

    pub fn reached(&self) -> Reached {
        match self {
            Self::Link(failure) => failure.reached(),
            Self::OnTheWay { .. } => Reached::Maybe,
            Self::Answered { .. }
            | Self::Held(_)
            | Self::Unreachable(_)
            | Self::Conflict
            | Self::NotBound(_)
            | Self::Webhook(_)
            | Self::Deaf
            | Self::Closed => Reached::No,
        }
    }

    pub fn kind(&self) -> Kind {
        match self {
            Self::Answered { code: 403, description, .. } => match Kind::of_text(description) {
                Kind::NoFiles => Kind::NoFiles,
                _whatever_it_says => Kind::Forbidden,
            },
            Self::Answered { code: 420 | 429, .. } | Self::Held(_) => Kind::RateLimited,
            Self::Answered { code: 500.., .. } => Kind::Transient,
            Self::Answered { code: 400, description, .. } => Kind::of_text(description),
            Self::Answered { .. } => Kind::Unknown,
            Self::Link(Failure::Unreached(_)) => Kind::Transient,
            Self::Link(_) | Self::OnTheWay { .. } => Kind::Unknown,
            Self::Unreachable(_) | Self::NotBound(_) | Self::Deaf | Self::Closed => Kind::Transient,
            Self::Conflict | Self::Webhook(_) => Kind::Unknown,
        }
    }

    pub fn code(&self) -> &'static str {
        match self {
            Self::Answered { code: 401 | 404, .. } => "telegram_invalid_token",
            Self::Answered { code: 409, .. } | Self::Conflict => "telegram_polling_conflict",
            Self::Answered { code: 500.., .. } | Self::OnTheWay { .. } => "telegram_server_error",
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
            Self::Held(_) => "telegram_rate_limited",
            Self::Link(Failure::Unreached(_)) => "telegram_connect_error",
            Self::Link(_) | Self::Unreachable(_) => "telegram_network_error",
            Self::NotBound(NotBound::InUse(_)) => "telegram_webhook_port_in_use",
            Self::NotBound(NotBound::NotNow { .. }) => "telegram_webhook_not_bound",
            Self::NotBound(NotBound::Impossible { .. }) => "telegram_webhook_config_invalid",
            Self::Webhook(_) => "telegram_webhook_refused",
            Self::Deaf => "telegram_webhook_not_answering",
            Self::Closed => "telegram_closed",
        }
    }

    /// Our markup was not understood. Nothing was sent.
    pub(super) fn is_bad_markup(&self) -> bool {
        self.says("can't parse") || self.says("parse entities")
    }

    pub(super) fn is_thread_gone(&self) -> bool {
        self.says("thread not found") || self.says("topic_deleted") || self.says("topic deleted")
    }

    /// The file is no picture, no voice, or not one for this chat; as a document it may be.
    pub(super) fn is_file_unfit(&self) -> bool {
        const NAMES: [&str; 4] =
            ["photo_", "image_process_failed", "voice_messages_forbidden", "wrong type of"];
        NAMES.iter().any(|name| self.says(name))
    }

    pub(super) fn is_reply_gone(&self) -> bool {
        self.says("message to be replied not found")
            || self.says("replied message not found")
            || self.says("reply message not found")
    }

    pub(super) fn is_not_modified(&self) -> bool {
        self.says("message is not modified")
    }

    pub(super) fn is_message_gone(&self) -> bool {
        self.says("message to delete not found")
    }

    pub(super) fn is_callback_expired(&self) -> bool {
        self.says("query is too old") || self.says("query id is invalid") || self.says("query_id_invalid")
    }

    /// How a poll that failed goes on.
    pub(super) fn hint(&self) -> Hint {
        match self {
            Self::Answered { code: 409, .. } if self.is_webhook_active() => Hint::Removable,
            Self::Answered { code: 409, .. } => Hint::Denied,
            error => error.fault().into(),
        }
    }

    /// The error with which a link ends whose polls are given up.
    pub(super) fn given_up(self) -> Self {
        match self.hint() {
            Hint::GiveUp => self,
            Hint::Denied => Self::Conflict,
            Hint::Resume | Hint::NewSession { .. } | Hint::RetryAfter(_) | Hint::Removable => {
                Self::Unreachable(Box::new(self))
            }
        }
    }

    /// A 409 that does not go away by waiting: somebody set a webhook.
    pub(super) fn is_webhook_active(&self) -> bool {
        matches!(self, Self::Answered { code: 409, description, .. } if lower(description, "webhook is active"))
    }

    fn says(&self, words: &str) -> bool {
        matches!(self, Self::Answered { code: 400, description, .. } if lower(description, words))
    }
}

fn sentence(code: u16, description: &str) -> String {
    match code {
        401 | 404 => format!(
            "Telegram answered {code}: the bot token is not valid; ask @BotFather for /token and set \
             TELEGRAM_BOT_TOKEN"
        ),
        _other => format!("Telegram answered {code}: {description}"),
    }
}

fn lower(description: &str, words: &str) -> bool {
    description.to_ascii_lowercase().contains(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Fault = Fault::Later { after: None };

    fn answered(code: u16, description: &str) -> Error {
        let retry_after = (code == 429).then_some(Duration::from_secs(7));
        Error::Answered { code, description: description.into(), retry_after, migrated_to: None }
    }

    #[track_caller]
    fn check(error: Error, fault: Fault, reached: Reached, code: &str) {
        assert_eq!((error.fault(), error.reached(), error.code()), (fault, reached, code), "{error}");
    }

    #[test]
    fn an_answer_is_a_certain_no() {
        let check = |code, text, fault, name| check(answered(code, text), fault, Reached::No, name);
        let wait = Fault::Later { after: Some(Duration::from_secs(7)) };
        assert!(answered(401, "Unauthorized").to_string().contains("TELEGRAM_BOT_TOKEN"));
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
    fn a_server_error_that_telegram_did_not_write_may_have_had_its_effect() {
        let error = Error::OnTheWay { status: 504 };
        assert_eq!(error.kind(), Kind::Unknown);
        check(error, SOON, Reached::Maybe, "telegram_server_error");
    }

    #[test]
    fn without_an_answer_only_a_failed_connection_is_a_certain_no() {
        let link = |failure| Error::Link(failure);
        check(link(Failure::Unreached("refused".into())), SOON, Reached::No, "telegram_connect_error");
        check(link(Failure::Lost("reset".into())), SOON, Reached::Maybe, "telegram_network_error");
        check(link(Failure::Silent(Duration::ZERO)), SOON, Reached::Maybe, "telegram_network_error");
        check(link(Failure::TooLarge), SOON, Reached::Maybe, "telegram_network_error");
        check(link(Failure::Garbage("html".into())), SOON, Reached::Maybe, "telegram_network_error");
    }

    #[test]
    fn a_lost_poll_is_retried_and_a_conflict_not_soon() {
        let pause = Fault::Later { after: Some(Duration::from_secs(300)) };
        check(Error::Conflict, pause, Reached::No, "telegram_polling_conflict");
        let unreachable = Error::Unreachable(Box::new(answered(502, "Bad Gateway")));
        check(unreachable, SOON, Reached::No, "telegram_network_error");
    }

    #[test]
    fn failed_polls_give_hints_and_the_error_of_a_link_that_is_given_up() {
        let unreachable = |error: &Error| Error::Unreachable(Box::new(error.clone()));
        let (server, token) = (answered(502, "Bad Gateway"), answered(401, "Unauthorized"));
        let (lost, flood) = (Error::from(Failure::Lost("reset".into())), answered(429, "slow"));
        let webhook = answered(409, "Conflict: can't use getUpdates method while webhook is active");
        let poller = answered(409, "Conflict: terminated by other getUpdates request");
        for (error, hint, end) in [
            (&server, Hint::Resume, unreachable(&server)),
            (&lost, Hint::Resume, unreachable(&lost)),
            (&flood, Hint::RetryAfter(Duration::from_secs(7)), unreachable(&flood)),
            (&webhook, Hint::Removable, unreachable(&webhook)),
            (&poller, Hint::Denied, Error::Conflict),
            (&token, Hint::GiveUp, token.clone()),
        ] {
            assert_eq!((error.hint(), error.clone().given_up()), (hint, end), "{error}");
        }
    }

    #[test]
    fn only_a_blocked_bot_or_a_missing_chat_makes_a_chat_dead() {
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
            assert_eq!(answered(code, text).kind().is_dead_chat(), dead, "{text}");
        }
    }

    #[test]
    fn a_webhook_conflict_is_told_from_another_poller() {
        let webhook = "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook";
        assert!(answered(409, webhook).is_webhook_active());
        assert!(!answered(409, "Conflict: terminated by other getUpdates request").is_webhook_active());
    }
}
