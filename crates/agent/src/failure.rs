//! What can go wrong with a model call, and how we say so.

use std::time::Duration;

use petasos_core::Fault;
use petasos_core::Provider;

/// The kind of a failure: decides what is done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    Auth,
    Billing,
    RateLimit,
    Overloaded,
    ServerError,
    /// No answer, or silence on the stream, for too long.
    Timeout,
    /// No connection.
    Unreached,
    /// The stream ended before the answer did.
    Cut,
    Tls,
    ContextOverflow,
    PayloadTooLarge,
    /// We asked for a longer answer than the model gives.
    OutputLimit,
    ModelNotFound,
    /// A safety filter said no.
    Refused,
    BadRequest,
    /// Something that is not the protocol: an empty body, a web page.
    Malformed,
    /// A well-formed answer without content.
    Empty,
    /// An output limit cut a tool call each time it was asked for.
    Truncated,
}

impl Class {
    pub const ALL: [Self; 18] = [
        Self::Auth,
        Self::Billing,
        Self::RateLimit,
        Self::Overloaded,
        Self::ServerError,
        Self::Timeout,
        Self::Unreached,
        Self::Cut,
        Self::Tls,
        Self::ContextOverflow,
        Self::PayloadTooLarge,
        Self::OutputLimit,
        Self::ModelNotFound,
        Self::Refused,
        Self::BadRequest,
        Self::Malformed,
        Self::Empty,
        Self::Truncated,
    ];

    /// The name in the log and in `failure_reason`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Billing => "billing",
            Self::RateLimit => "rate_limit",
            Self::Overloaded => "overloaded",
            Self::ServerError => "server_error",
            Self::Timeout => "timeout",
            Self::Unreached => "unreachable",
            Self::Cut => "stream_cut",
            Self::Tls => "ssl_cert_verification",
            Self::ContextOverflow => "context_overflow",
            Self::PayloadTooLarge => "payload_too_large",
            Self::OutputLimit => "output_limit",
            Self::ModelNotFound => "model_not_found",
            Self::Refused => "content_policy",
            Self::BadRequest => "format_error",
            Self::Malformed => "malformed_response",
            Self::Empty => "empty_response",
            Self::Truncated => "truncated",
        }
    }

    pub const fn fault(self) -> Fault {
        match self {
            Self::Auth | Self::Billing | Self::Tls | Self::ModelNotFound => Fault::Fatal,
            Self::RateLimit
            | Self::Overloaded
            | Self::ServerError
            | Self::Timeout
            | Self::Unreached
            | Self::Cut
            | Self::Malformed => Fault::Later { after: None },
            Self::ContextOverflow
            | Self::PayloadTooLarge
            | Self::OutputLimit
            | Self::Refused
            | Self::BadRequest
            | Self::Empty
            | Self::Truncated => Fault::Refused,
        }
    }
}

/// No answer, after everything was tried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub class: Class,
    /// For the user: what happened and what to do. Short, one line, without secrets.
    pub message: String,
}

impl Failure {
    pub fn fault(&self) -> Fault {
        self.class.fault()
    }
}

/// One failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallError {
    pub(crate) class: Class,
    /// What the other side said, already sanitised; may be empty.
    pub(crate) detail: String,
    pub(crate) retry_after: Option<Duration>,
    /// The number of tokens that would have been accepted, if it was named.
    pub(crate) limit: Option<usize>,
}

impl CallError {
    pub(crate) fn new(class: Class) -> Self {
        Self { class, detail: String::new(), retry_after: None, limit: None }
    }
}

/// The sentence a user reads.
pub(crate) fn explain(class: Class, provider: Provider, model: &str, detail: &str) -> String {
    let name = provider.as_str();
    let said = match detail {
        "" => String::new(),
        detail => format!(" It said: {detail}"),
    };
    match class {
        Class::Auth => {
            let key = provider.key_variable().unwrap_or("model.api_key");
            format!("The model provider ({name}) refused our API key. Check {key}, then try again.")
        }
        Class::Billing => {
            format!("The account at the model provider ({name}) has no credit or quota left. Top it up, then try again.")
        }
        Class::RateLimit => format!("The model provider ({name}) limits our requests. Wait a minute, then try again."),
        Class::Overloaded => format!("The model provider ({name}) is overloaded. Wait a moment, then try again."),
        Class::ServerError => format!("The model provider ({name}) has a fault of its own. Wait a moment, then try again."),
        Class::Timeout => format!("The model at {name} did not answer in time. Please try again."),
        Class::Unreached => {
            format!("The model provider ({name}) cannot be reached. Check the network and model.base_url, then try again.")
        }
        Class::Cut => format!("The connection to the model provider ({name}) keeps breaking off. Please try again."),
        Class::Tls => format!("The certificate of the model provider ({name}) cannot be trusted. Check model.base_url and this machine's CA certificates."),
        Class::ContextOverflow | Class::PayloadTooLarge => {
            "This conversation no longer fits into the model's context. Start a new one with /new.".to_owned()
        }
        Class::OutputLimit => {
            format!("The model provider ({name}) does not give answers of that length. Lower model.max_output_tokens.")
        }
        Class::ModelNotFound => {
            format!("The model provider ({name}) has no model {model:?}. Check model.default and model.base_url.{said}")
        }
        Class::Refused => "The model's safety filter refused to answer this. Try to put it differently.".to_owned(),
        Class::BadRequest => format!("The model provider ({name}) did not accept our request.{said}"),
        Class::Malformed => {
            format!("The model provider ({name}) answered with something that is not an answer. Check model.base_url.")
        }
        Class::Empty => "The model gave an empty answer several times. Please try again or put it differently.".to_owned(),
        Class::Truncated => {
            "The model's answer was truncated by its output limit. Ask for less at once, or raise model.max_output_tokens."
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_its_own_name_and_one_short_line() {
        let mut names: Vec<_> = Class::ALL.iter().map(|class| class.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Class::ALL.len());
        for class in Class::ALL {
            let line = explain(class, Provider::Custom, "m", "no such thing");
            assert!(line.len() < 240 && !line.contains('\n'), "{line}");
        }
    }
}
