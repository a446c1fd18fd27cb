//! Failure classes of model calls and the messages that users see.

use std::time::Duration;

use petasos_core::Fault;
use petasos_core::Provider;

/// The kind of a failure; decides about retry, fallback and message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModelFailureClass {
    Auth,
    Billing,
    RateLimit,
    Overloaded,
    ServerError,
    /// No response, or a stalled stream.
    Timeout,
    Unreachable,
    /// The stream ended before the response was complete.
    StreamCut,
    Tls,
    ContextOverflow,
    PayloadTooLarge,
    /// The requested output length exceeds the model's limit.
    OutputLimit,
    ModelNotFound,
    Refused,
    BadRequest,
    /// Not the expected protocol: an empty body, an HTML page.
    Malformed,
    /// A well-formed response without content.
    Empty,
    /// The output limit cut off a tool call in every attempt.
    Truncated,
}

impl ModelFailureClass {
    pub const ALL: [Self; 18] = [
        Self::Auth,
        Self::Billing,
        Self::RateLimit,
        Self::Overloaded,
        Self::ServerError,
        Self::Timeout,
        Self::Unreachable,
        Self::StreamCut,
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
            Self::Unreachable => "unreachable",
            Self::StreamCut => "stream_cut",
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
            | Self::Unreachable
            | Self::StreamCut
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

/// The failure of a request after all retries and fallbacks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelFailure {
    pub class: ModelFailureClass,
    /// For the user: what happened and what to do. One short line without secrets.
    pub message: String,
}

impl ModelFailure {
    pub fn fault(&self) -> Fault {
        self.class.fault()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallError {
    pub(crate) class: ModelFailureClass,
    /// The provider's sanitised error message; may be empty.
    pub(crate) detail: String,
    pub(crate) retry_after: Option<Duration>,
    /// The token limit that the provider named.
    pub(crate) limit: Option<usize>,
}

impl CallError {
    pub(crate) fn new(class: ModelFailureClass) -> Self {
        Self { class, detail: String::new(), retry_after: None, limit: None }
    }
}

pub(crate) fn explain(class: ModelFailureClass, provider: Provider, model: &str, detail: &str) -> String {
    let name = provider.as_str();
    let provider_message = match detail {
        "" => String::new(),
        detail => format!(" It said: {detail}"),
    };
    match class {
        ModelFailureClass::Auth => {
            let key = provider.key_variable().unwrap_or("model.api_key");
            format!("The model provider ({name}) rejected the API key. Check {key}, then try again.")
        }
        ModelFailureClass::Billing => {
            format!("The account at the model provider ({name}) has no credit or quota left. Top it up, then try again.")
        }
        ModelFailureClass::RateLimit => format!("The model provider ({name}) limits our requests. Wait a minute, then try again."),
        ModelFailureClass::Overloaded => format!("The model provider ({name}) is overloaded. Wait a moment, then try again."),
        ModelFailureClass::ServerError => format!("The model provider ({name}) had an internal error. Wait a moment, then try again."),
        ModelFailureClass::Timeout => format!("The model at {name} did not answer in time. Please try again."),
        ModelFailureClass::Unreachable => {
            format!("The model provider ({name}) cannot be reached. Check the network and model.base_url, then try again.")
        }
        ModelFailureClass::StreamCut => format!("The connection to the model provider ({name}) keeps dropping. Please try again."),
        ModelFailureClass::Tls => format!("The certificate of the model provider ({name}) cannot be trusted. Check model.base_url and this machine's CA certificates."),
        ModelFailureClass::ContextOverflow | ModelFailureClass::PayloadTooLarge => {
            "This conversation no longer fits into the model's context. Start a new one with /new.".to_owned()
        }
        ModelFailureClass::OutputLimit => {
            format!("The model provider ({name}) does not allow answers of that length. Lower model.max_output_tokens.")
        }
        ModelFailureClass::ModelNotFound => {
            format!("The model provider ({name}) has no model {model:?}. Check model.default and model.base_url.{provider_message}")
        }
        ModelFailureClass::Refused => "The model's safety filter refused to answer this. Try rephrasing your message.".to_owned(),
        ModelFailureClass::BadRequest => format!("The model provider ({name}) did not accept our request.{provider_message}"),
        ModelFailureClass::Malformed => {
            format!("The model provider ({name}) sent a response that could not be read. Check model.base_url.")
        }
        ModelFailureClass::Empty => "The model gave an empty answer several times. Try again or rephrase your message.".to_owned(),
        ModelFailureClass::Truncated => {
            "The model's answer was truncated by its output limit. Ask for less at once, or raise model.max_output_tokens."
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_unique_name_and_short_message() {
        let mut names: Vec<_> = ModelFailureClass::ALL.iter().map(|class| class.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ModelFailureClass::ALL.len());
        for class in ModelFailureClass::ALL {
            let line = explain(class, Provider::Custom, "m", "no such thing");
            assert!(line.len() < 240 && !line.contains('\n'), "{line}");
        }
    }
}
