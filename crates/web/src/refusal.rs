//! Why a request was not done, in the one shape every client can read.

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{AppendHeaders, IntoResponse, Response};
use petasos_core::lifecycle::Closed;
use petasos_gateway::Error;
use petasos_platforms::body_budget::Exhausted;
use serde::Serialize;
use serde_json::{Map, Value, json};

#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
    /// What a program may want to know of it.
    facts: Map<String, Value>,
    /// The same for those who know only the other shape, [`Plain`].
    detail: Option<&'static str>,
    /// After how many seconds it may be tried again.
    retry_after: Option<u32>,
}

#[derive(Serialize)]
struct Wire {
    error: Detail,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'static str>,
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
        Self { status, code, message: message.into(), facts: Map::new(), detail: None, retry_after: None }
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
        let message = "not signed in; run `petasos open` on the gateway's machine for a link";
        let refusal = Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message);
        Self { detail: Some(UNAUTHORIZED), ..refusal }
    }

    /// No turn may start now; the shape is the one that clients of model servers know.
    fn closed(code: &'static str, message: impl Into<String>) -> Self {
        let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message);
        let refusal = refusal.with("type", "invalid_request_error").with("param", Value::Null);
        Self { retry_after: Some(1), ..refusal }
    }

    /// The bodies of other requests take all the memory that there is for them.
    pub(crate) fn no_room() -> Self {
        let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", Exhausted.to_string());
        Self { retry_after: Some(1), ..refusal }
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
        match error {
            Error::NotFound(_) => Self::not_found(message),
            Error::Unbuilt(_) => Self::new(StatusCode::CONFLICT, "misconfigured", message),
            Error::NoHome(_) => Self::new(StatusCode::CONFLICT, "no_home", message),
            Error::Store(_) | Error::Io(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
            }
            Error::Closed(Closed::Draining) => Self::closed(DRAINING, message),
            Error::Closed(Closed::Leaving { restart: true }) => Self::closed(DRAINING, RESTARTING),
            Error::Closed(Closed::Leaving { restart: false }) | Error::Stopping => {
                Self::closed(DRAINING, STOPPING)
            }
            Error::Closed(Closed::Full { .. }) => Self::closed("too_many_sessions", message),
        }
    }
}

const DRAINING: &str = "gateway_draining";
const RESTARTING: &str =
    "The gateway is draining before it restarts and takes no new work. Please send this again in a minute.";
const STOPPING: &str =
    "The gateway is draining before it stops and takes no new work. Please send this again when it is back.";

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let error = Detail { message: self.message, code: self.code, facts: self.facts };
        let retry = AppendHeaders(self.retry_after.map(|seconds| (header::RETRY_AFTER, seconds)));
        (self.status, retry, Json(Wire { error, detail: self.detail })).into_response()
    }
}

/// What both shapes say to somebody who is not let in.
pub(crate) const UNAUTHORIZED: &str = "Unauthorized";

/// `{"detail": …}`: the shape that programs know which look after gateways.
#[derive(Debug)]
pub(crate) struct Plain {
    status: StatusCode,
    detail: String,
}

impl Plain {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }
}

impl From<Error> for Plain {
    fn from(error: Error) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

impl IntoResponse for Plain {
    fn into_response(self) -> Response {
        (self.status, Json(json!({ "detail": self.detail }))).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_door_says_why_and_when_to_come_back() {
        for (error, code, word) in [
            (Error::Closed(Closed::Draining), "gateway_draining", "draining for maintenance"),
            (
                Error::Closed(Closed::Leaving { restart: true }),
                "gateway_draining",
                "draining before it restarts",
            ),
            (
                Error::Closed(Closed::Leaving { restart: false }),
                "gateway_draining",
                "draining before it stops",
            ),
            (Error::Stopping, "gateway_draining", "draining before it stops"),
            (Error::Closed(Closed::Full { running: 3, cap: 3 }), "too_many_sessions", "(3/3)"),
        ] {
            let refusal = Refusal::from(error);
            assert!(refusal.message.contains(word), "{refusal:?}");
            assert_eq!((refusal.code, refusal.status.as_u16()), (code, 503));
            assert_eq!(refusal.into_response().headers()[header::RETRY_AFTER], "1");
        }
    }
}
