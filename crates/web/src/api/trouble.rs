//! Why a program's request was not done, in the shape that clients of model servers read.

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use petasos_core::lifecycle::Closed;
use petasos_gateway::{Error, NotStarted};
use serde_json::json;

#[derive(Debug)]
pub(crate) struct Trouble {
    status: StatusCode,
    kind: &'static str,
    code: Option<&'static str>,
    message: String,
    /// Which part of the request.
    param: Option<String>,
    /// After how many seconds it may be tried again.
    retry_after: Option<u64>,
    /// Trying again would do the work again.
    final_word: bool,
}

const REQUEST: &str = "invalid_request_error";
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

impl Trouble {
    pub(crate) fn new(status: StatusCode, code: Option<&'static str>, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, kind: REQUEST, code, message, param: None, retry_after: None, final_word: false }
    }

    pub(crate) fn bad(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, None, message)
    }

    pub(crate) fn coded(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, Some(code), message)
    }

    pub(crate) fn not_found(code: Option<&'static str>, message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, code, message)
    }

    pub(crate) fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self { final_word: true, ..Self::new(StatusCode::CONFLICT, Some(code), message) }
    }

    #[must_use]
    pub(crate) fn at(self, param: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..self }
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, Some("invalid_api_key"), "Invalid API key")
    }

    pub(crate) fn is_unauthorized(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED
    }

    pub(crate) fn out_of_scope(scope: &str) -> Self {
        let message = format!("This key may not do this; it needs the scope '{scope}'");
        Self::new(StatusCode::FORBIDDEN, Some("insufficient_scope"), message)
    }

    pub(crate) fn too_large() -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, Some("body_too_large"), "Request body too large.")
    }

    pub(crate) fn late() -> Self {
        let message = "The request body did not come in time.";
        Self::new(StatusCode::REQUEST_TIMEOUT, Some("body_too_slow"), message)
    }

    /// Too many at once, or too often.
    pub(crate) fn busy(message: impl Into<String>, after: u64) -> Self {
        let refused = Self::new(StatusCode::TOO_MANY_REQUESTS, Some("rate_limit_exceeded"), message);
        Self { kind: "rate_limit_error", retry_after: Some(after.max(1)), ..refused }
    }

    /// The agent worked on it and has no answer. Whoever repeats it pays for it again.
    pub(crate) fn agent(code: &'static str, message: impl Into<String>) -> Self {
        let failed = Self::new(StatusCode::BAD_GATEWAY, Some(code), message);
        Self { kind: "agent_error", final_word: true, ..failed }
    }

    pub(crate) fn unavailable(code: &'static str, message: impl Into<String>) -> Self {
        let closed = Self::new(StatusCode::SERVICE_UNAVAILABLE, Some(code), message);
        Self { retry_after: Some(1), ..closed }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        match error {
            Error::Closed(Closed::Draining | Closed::Leaving { .. }) | Error::Stopping => {
                Self::unavailable("gateway_draining", "Gateway is draining existing work; retry shortly.")
            }
            Error::Closed(Closed::Full { .. }) => Self::unavailable("too_many_sessions", error.to_string()),
            Error::NotFound(_) => Self::not_found(Some("not_found"), error.to_string()),
            Error::Store(_) | Error::Io(_) | Error::Unbuilt(_) | Error::NoHome(_) => {
                Self::unavailable("session_db_unavailable", error.to_string())
            }
        }
    }
}

impl From<NotStarted> for Trouble {
    fn from(error: NotStarted) -> Self {
        match error {
            NotStarted::Error(error) => error.into(),
            NotStarted::Full { cap } => Self::busy(format!("Too many concurrent runs (max {cap})"), 1),
            NotStarted::Reused => Self::conflict(
                "idempotency_key_reused",
                "This Idempotency-Key was used for another request in the last 24 hours",
            ),
            NotStarted::Nowhere => Self::not_found(Some("not_found"), error.to_string()),
        }
    }
}

impl IntoResponse for Trouble {
    fn into_response(self) -> Response {
        let Self { status, kind, code, message, param, retry_after, final_word } = self;
        let error = json!({ "error": { "message": message, "type": kind, "param": param, "code": code } });
        let mut response = (status, Json(error)).into_response();
        let headers = response.headers_mut();
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if final_word {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        response
    }
}
