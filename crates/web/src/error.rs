//! The API error: status code, `Retry-After`, error code and message of a failed request.
//!
//! Handlers return an [`ApiError`] without a body. The router that received the request renders the body
//! ([`render_for_programs`], [`render_for_page`]), because API clients, the page and tools that manage gateways expect
//! different shapes.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Json;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use petasos_core::Millis;
use petasos_core::lifecycle::NotAccepting;
use petasos_gateway::cron::JobError;
use petasos_gateway::{Error, StartRunError};
use petasos_platforms::body_budget::Exhausted;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
const REQUEST: &str = "invalid_request_error";

/// The `detail` of an authentication error.
const UNAUTHORIZED: &str = "Unauthorized";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyShape {
    /// `{"error": {"message", "type", "param", "code"}}`, as in OpenAI's API.
    OpenAi,
    /// `{"error": {"message", "code", …}}`, for the page and the control socket.
    Page,
    /// `{"detail": "…"}`, for tools that manage gateways.
    Detail,
    /// `{"error": "…"}`, for clients of scheduled jobs.
    Plain,
}

#[derive(Debug)]
pub(crate) struct ApiError(Box<ApiErrorInner>);

#[derive(Debug)]
struct ApiErrorInner {
    cause: ErrorCause,
    /// Overrides the shape that the router would choose.
    shape: Option<BodyShape>,
    headers: HeaderMap,
}

#[derive(Debug)]
enum ErrorCause {
    Described(ErrorDescription),
    Gateway(Error),
    Job(JobError),
    JobId,
}

#[derive(Debug, Clone)]
struct ErrorDescription {
    status: StatusCode,
    kind: &'static str,
    code: Option<Cow<'static, str>>,
    message: String,
    param: Option<String>,
    /// Seconds; a 503 defaults to one.
    retry_after: Option<u64>,
    /// Sends `x-should-retry: false`.
    no_retry: bool,
    extra_fields: Map<String, Value>,
    detail: Option<&'static str>,
}

impl ErrorDescription {
    fn new(status: StatusCode, code: Option<&'static str>, message: impl Into<String>) -> Self {
        Self {
            status,
            kind: REQUEST,
            code: code.map(Cow::Borrowed),
            message: message.into(),
            param: None,
            retry_after: None,
            no_retry: false,
            extra_fields: Map::new(),
            detail: None,
        }
    }
}

impl From<ErrorDescription> for ApiError {
    fn from(description: ErrorDescription) -> Self {
        ErrorCause::Described(description).into()
    }
}

impl ApiError {
    /// Without an error code: the page gets the default code of the status.
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        ErrorDescription::new(status, None, message).into()
    }

    fn coded(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        ErrorDescription::new(status, Some(code), message).into()
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn invalid(code: &'static str, message: impl Into<String>) -> Self {
        Self::coded(StatusCode::BAD_REQUEST, code, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    pub(crate) fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Self::coded(StatusCode::CONFLICT, code, message)
    }

    /// A conflict that a retry does not resolve.
    pub(crate) fn permanent_conflict(code: &'static str, message: impl Into<String>) -> Self {
        ErrorDescription {
            no_retry: true,
            ..ErrorDescription::new(StatusCode::CONFLICT, Some(code), message)
        }
        .into()
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, message)
    }

    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    }

    pub(crate) fn method_not_allowed(message: impl Into<String>) -> Self {
        Self::coded(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
    }

    pub(crate) fn body_timeout() -> Self {
        let message = "The request body did not arrive in time.";
        Self::coded(StatusCode::REQUEST_TIMEOUT, "body_too_slow", message)
    }

    pub(crate) fn wrong_host() -> Self {
        let message = "this host name is not configured; open the page as localhost or add the name to the \
                       configuration";
        Self::coded(StatusCode::MISDIRECTED_REQUEST, "wrong_host", message)
    }

    pub(crate) fn wrong_pairing_code(attempts_left: usize) -> Self {
        Self::coded(StatusCode::NOT_FOUND, "wrong_code", "no pending request has this code")
            .with_field("left", attempts_left)
    }

    pub(crate) fn pairing_locked(minutes: u64, until: Millis) -> Self {
        let message = format!("too many wrong codes: pairing is locked for another {minutes} min");
        Self::coded(StatusCode::TOO_MANY_REQUESTS, "locked", message).with_field("until", until.0)
    }

    /// Too many concurrent or too frequent requests.
    pub(crate) fn rate_limited(message: impl Into<String>, retry_after: u64) -> Self {
        let refused =
            ErrorDescription::new(StatusCode::TOO_MANY_REQUESTS, Some("rate_limit_exceeded"), message);
        ErrorDescription { kind: "rate_limit_error", retry_after: Some(retry_after.max(1)), ..refused }.into()
    }

    /// The agent ran and has no answer. A retry costs again.
    pub(crate) fn agent_failed(code: &'static str, message: impl Into<String>) -> Self {
        let failed = ErrorDescription::new(StatusCode::BAD_GATEWAY, Some(code), message);
        ErrorDescription { kind: "agent_error", no_retry: true, ..failed }.into()
    }

    pub(crate) fn unavailable(code: &'static str, message: impl Into<String>) -> Self {
        Self::coded(StatusCode::SERVICE_UNAVAILABLE, code, message)
    }

    pub(crate) fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the gateway failed on this request")
    }

    /// A browser without a valid cookie.
    pub(crate) fn not_signed_in() -> Self {
        let message = "not signed in; run `petasos open` on the gateway's machine for a link";
        let refused = ErrorDescription::new(StatusCode::UNAUTHORIZED, None, message);
        ErrorDescription { detail: Some(UNAUTHORIZED), ..refused }.into()
    }

    /// A missing or wrong drain secret.
    pub(crate) fn wrong_secret() -> Self {
        let refused = ErrorDescription::new(StatusCode::UNAUTHORIZED, None, "unauthenticated");
        Self::from(ErrorDescription { detail: Some(UNAUTHORIZED), ..refused }).with_shape(BodyShape::Plain)
    }

    pub(crate) fn invalid_key() -> Self {
        Self::coded(StatusCode::UNAUTHORIZED, "invalid_api_key", "Invalid API key")
    }

    pub(crate) fn invalid_fire_token() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "invalid fire token").with_shape(BodyShape::Plain)
    }

    pub(crate) fn out_of_scope(scope: &str) -> Self {
        let message = format!("This key may not do this; it needs the scope '{scope}'");
        Self::coded(StatusCode::FORBIDDEN, "insufficient_scope", message)
    }

    /// The memory for request bodies is exhausted.
    pub(crate) fn no_memory_for_body() -> Self {
        Self::unavailable("busy", Exhausted.to_string())
    }

    /// Renders the body as `{"detail": …}`.
    #[must_use]
    pub(crate) fn into_detail(self) -> Self {
        self.with_shape(BodyShape::Detail)
    }

    pub(crate) fn bad_job(message: impl Into<String>) -> Self {
        JobError::Invalid(message.into()).into()
    }

    pub(crate) fn bad_job_id() -> Self {
        ErrorCause::JobId.into()
    }

    pub(crate) fn from_axum(status: StatusCode, message: String, size_limit: &str) -> Self {
        match status {
            StatusCode::PAYLOAD_TOO_LARGE => {
                Self::too_large(format!("the request body is larger than {size_limit}"))
            }
            StatusCode::UNPROCESSABLE_ENTITY => Self::bad_request(message),
            other => Self::new(other, message),
        }
    }

    #[must_use]
    pub(crate) fn param(self, param: impl Into<String>) -> Self {
        self.update(|description| description.param = Some(param.into()))
    }

    #[must_use]
    pub(crate) fn code(self, code: impl Into<Cow<'static, str>>) -> Self {
        self.update(|description| description.code = Some(code.into()))
    }

    #[must_use]
    pub(crate) fn with_field(self, name: &str, value: impl Into<Value>) -> Self {
        self.update(|description| _ = description.extra_fields.insert(name.to_owned(), value.into()))
    }

    #[must_use]
    pub(crate) fn with_headers(mut self, headers: HeaderMap) -> Self {
        self.0.headers = headers;
        self
    }

    pub(crate) fn is_unauthorized(&self) -> bool {
        self.describe(BodyShape::Page).status == StatusCode::UNAUTHORIZED
    }

    #[cfg(test)]
    pub(crate) fn for_program(&self) -> Value {
        self.body(BodyShape::OpenAi)
    }

    fn update(mut self, change: impl FnOnce(&mut ErrorDescription)) -> Self {
        if let ErrorCause::Described(description) = &mut self.0.cause {
            change(description);
        }
        self
    }

    fn with_shape(mut self, shape: BodyShape) -> Self {
        self.0.shape = Some(shape);
        self
    }

    /// Message and code depend on the audience, the status does not.
    fn describe(&self, audience: BodyShape) -> ErrorDescription {
        let for_api = audience == BodyShape::OpenAi;
        match &self.0.cause {
            ErrorCause::Described(description) => description.clone(),
            ErrorCause::Gateway(error) => describe_gateway_error(error, for_api),
            ErrorCause::Job(JobError::Gateway(error)) => describe_gateway_error(error, for_api),
            ErrorCause::Job(JobError::Invalid(reason)) => {
                ErrorDescription::new(StatusCode::BAD_REQUEST, None, reason.clone())
            }
            ErrorCause::Job(error @ JobError::NotFound) => {
                let message = if for_api { "Job not found".to_owned() } else { error.to_string() };
                ErrorDescription::new(StatusCode::NOT_FOUND, None, message)
            }
            ErrorCause::JobId => {
                let message = if for_api {
                    "Invalid job ID format"
                } else {
                    "a job's id has twelve hexadecimal digits"
                };
                ErrorDescription::new(StatusCode::BAD_REQUEST, None, message)
            }
        }
    }

    fn body(&self, audience: BodyShape) -> Value {
        let ErrorDescription { status, kind, code, message, param, extra_fields, detail, .. } =
            self.describe(audience);
        let is_job_error = matches!(
            self.0.cause,
            ErrorCause::Job(JobError::Invalid(_) | JobError::NotFound) | ErrorCause::JobId
        );
        let default = if is_job_error && audience == BodyShape::OpenAi { BodyShape::Plain } else { audience };
        match self.0.shape.unwrap_or(default) {
            BodyShape::OpenAi => {
                let code = code.map(Cow::into_owned);
                let error = ErrorBody::Object(ErrorDetails { message, r#type: kind, param, code });
                json!(ErrorResponse { error })
            }
            BodyShape::Detail => json!({ "detail": message }),
            BodyShape::Plain => with_detail(json!(ErrorResponse { error: ErrorBody::Text(message) }), detail),
            BodyShape::Page => {
                let code = code.unwrap_or_else(|| default_code(status).into());
                let mut error =
                    Map::from_iter([("message".into(), message.into()), ("code".into(), json!(code))]);
                error.extend(extra_fields);
                with_detail(json!({ "error": error }), detail)
            }
        }
    }
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct ErrorResponse {
    error: ErrorBody,
}

/// Errors about jobs are plain text.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum ErrorBody {
    Text(String),
    Object(ErrorDetails),
}

#[derive(Serialize, JsonSchema)]
struct ErrorDetails {
    message: String,
    r#type: &'static str,
    param: Option<String>,
    code: Option<String>,
}

fn with_detail(mut body: Value, detail: Option<&str>) -> Value {
    if let Some(detail) = detail {
        body["detail"] = detail.into();
    }
    body
}

/// The default error code of a status, for the page.
fn default_code(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "bad_request",
        StatusCode::UNAUTHORIZED => "unauthorized",
        StatusCode::FORBIDDEN => "forbidden",
        StatusCode::NOT_FOUND => "not_found",
        StatusCode::METHOD_NOT_ALLOWED => "method_not_allowed",
        StatusCode::PAYLOAD_TOO_LARGE => "too_large",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "unsupported_media_type",
        StatusCode::INTERNAL_SERVER_ERROR => "internal",
        _ => "refused",
    }
}

fn describe_gateway_error(error: &Error, for_api: bool) -> ErrorDescription {
    let message = error.to_string();
    let refused = |code, message| {
        let refused = ErrorDescription::new(StatusCode::SERVICE_UNAVAILABLE, Some(code), message);
        // Members that clients of model servers expect.
        let extra_fields = [("type".to_owned(), Value::from(REQUEST)), ("param".to_owned(), Value::Null)];
        ErrorDescription { extra_fields: Map::from_iter(extra_fields), ..refused }
    };
    let draining =
        |on_page: String| refused("gateway_draining", if for_api { DRAINING.to_owned() } else { on_page });
    match error {
        Error::NotFound(_) => ErrorDescription::new(StatusCode::NOT_FOUND, Some("not_found"), message),
        Error::UnavailablePlatform(_) => {
            ErrorDescription::new(StatusCode::CONFLICT, Some("misconfigured"), message)
        }
        Error::NoHome(_) => ErrorDescription::new(StatusCode::CONFLICT, Some("no_home"), message),
        Error::Store(_) | Error::Io(_) => {
            let code = if for_api { "session_db_unavailable" } else { "unavailable" };
            ErrorDescription::new(StatusCode::SERVICE_UNAVAILABLE, Some(code), message)
        }
        Error::Closed(NotAccepting::Draining) => draining(message),
        Error::Closed(NotAccepting::ShuttingDown { restart: true }) => draining(RESTARTING.to_owned()),
        Error::Closed(NotAccepting::ShuttingDown { restart: false }) | Error::Stopping => {
            draining(STOPPING.to_owned())
        }
        Error::Closed(NotAccepting::AtCapacity { .. }) => refused("too_many_sessions", message),
    }
}

const DRAINING: &str = "Gateway is draining existing work; retry shortly.";
const RESTARTING: &str =
    "The gateway is draining before it restarts and takes no new work. Please send this again in a minute.";
const STOPPING: &str =
    "The gateway is draining before it stops and takes no new work. Please send this again when it is back.";

impl From<ErrorCause> for ApiError {
    fn from(cause: ErrorCause) -> Self {
        Self(Box::new(ApiErrorInner { cause, shape: None, headers: HeaderMap::new() }))
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        ErrorCause::Gateway(error).into()
    }
}

impl From<JobError> for ApiError {
    fn from(error: JobError) -> Self {
        ErrorCause::Job(error).into()
    }
}

impl From<StartRunError> for ApiError {
    fn from(error: StartRunError) -> Self {
        match error {
            StartRunError::Error(error) => error.into(),
            StartRunError::Full { cap } => {
                Self::rate_limited(format!("Too many concurrent runs (max {cap})"), 1)
            }
            StartRunError::KeyReused => Self::permanent_conflict(
                "idempotency_key_reused",
                "This Idempotency-Key was used for another request in the last 24 hours",
            ),
            StartRunError::TargetNotFound => Self::not_found(error.to_string()).code("not_found"),
        }
    }
}

/// Leaves the body empty for [`render`].
impl IntoResponse for ApiError {
    fn into_response(mut self) -> Response {
        let ErrorDescription { status, retry_after, no_retry, .. } = self.describe(BodyShape::Page);
        let mut response = (status, std::mem::take(&mut self.0.headers)).into_response();
        let headers = response.headers_mut();
        let retry_after = retry_after.or((status == StatusCode::SERVICE_UNAVAILABLE).then_some(1));
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if no_retry {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}

pub(crate) async fn render_for_programs(response: Response) -> Response {
    render(response, BodyShape::OpenAi)
}

pub(crate) async fn render_for_page(response: Response) -> Response {
    render(response, BodyShape::Page)
}

fn render(mut response: Response, audience: BodyShape) -> Response {
    let Some(error) = response.extensions_mut().remove::<Arc<ApiError>>() else { return response };
    let (mut parts, _) = response.into_parts();
    // A router behind a fallback has set the length of the empty body.
    parts.headers.remove(header::CONTENT_LENGTH);
    (parts, Json(error.body(audience))).into_response()
}

#[cfg(test)]
mod tests;
