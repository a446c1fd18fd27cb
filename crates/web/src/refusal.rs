//! Why a request was not done, in the one shape every client can read.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use petasos_gateway::Error;
use serde::Serialize;
use serde_json::{Map, Value};

#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
    /// What a program may want to know of it.
    facts: Map<String, Value>,
}

#[derive(Serialize)]
struct Wire {
    error: Detail,
}

#[derive(Serialize)]
struct Detail {
    message: String,
    code: &'static str,
    #[serde(flatten)]
    facts: Map<String, Value>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), facts: Map::new() }
    }

    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.facts.insert(name.to_owned(), value.into());
        self
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "not signed in; run `petasos open` on the gateway's machine for a link",
        )
    }

    pub(crate) fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "the gateway failed on this request")
    }

    /// A status that axum chose, with its explanation.
    pub(crate) fn from_axum(status: StatusCode, message: String) -> Self {
        match status {
            StatusCode::PAYLOAD_TOO_LARGE => Self::too_large("the request body is larger than 1 MiB"),
            StatusCode::UNSUPPORTED_MEDIA_TYPE => Self::new(status, "unsupported_media_type", message),
            StatusCode::UNPROCESSABLE_ENTITY | StatusCode::BAD_REQUEST => Self::bad_request(message),
            other => Self::new(other, "refused", message),
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        let (status, code) = match error {
            Error::NotFound(_) => (StatusCode::NOT_FOUND, "not_found"),
            Error::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
            Error::Store(_) | Error::Io(_) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        };
        Self::new(status, code, message)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = Wire { error: Detail { message: self.message, code: self.code, facts: self.facts } };
        (self.status, Json(body)).into_response()
    }
}
