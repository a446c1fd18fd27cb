//! The API error: why a request was refused. Status codes and `Retry-After` are decided here and nowhere else.
//!
//! Handlers return an [`ApiError`] and do not know its body: the door through which the request came renders it
//! ([`for_programs`], [`for_page`]), because clients of model servers, the page and tools that look after gateways each
//! know another shape.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Json;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use petasos_core::lifecycle::Closed;
use petasos_gateway::cron::JobError;
use petasos_gateway::{Error, NotStarted};
use petasos_platforms::body_budget::Exhausted;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");
const REQUEST: &str = "invalid_request_error";

/// What a caller without credentials gets in the shapes that have a `detail`.
const UNAUTHORIZED: &str = "Unauthorized";

/// The body of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// `{"error": {"message", "type", "param", "code"}}`, of OpenAI's API.
    OpenAi,
    /// `{"error": {"message", "code", …}}`, of the page and the control socket.
    Page,
    /// `{"detail": "…"}`, of tools that look after gateways.
    Detail,
    /// `{"error": "…"}`, of clients of scheduled jobs.
    Plain,
}

#[derive(Debug)]
pub(crate) struct ApiError(Box<Inner>);

#[derive(Debug)]
struct Inner {
    reason: Reason,
    /// `None`: the shape of the door.
    shape: Option<Shape>,
    /// Headers that the response has besides.
    headers: HeaderMap,
}

#[derive(Debug)]
enum Reason {
    Stated(Stated),
    Gateway(Error),
    Job(JobError),
    /// Not the form of a job's id.
    JobId,
}

#[derive(Debug, Clone)]
struct Stated {
    status: StatusCode,
    kind: &'static str,
    code: Option<Cow<'static, str>>,
    message: String,
    /// The part of the request that is wrong.
    param: Option<String>,
    /// Seconds; a 503 has one of a second in any case.
    retry_after: Option<u64>,
    /// A repetition would do the work again.
    is_final: bool,
    /// Further members of the page's shape.
    facts: Map<String, Value>,
    detail: Option<&'static str>,
}

impl Stated {
    fn new(status: StatusCode, code: Option<&'static str>, message: impl Into<String>) -> Self {
        Self {
            status,
            kind: REQUEST,
            code: code.map(Cow::Borrowed),
            message: message.into(),
            param: None,
            retry_after: None,
            is_final: false,
            facts: Map::new(),
            detail: None,
        }
    }
}

impl From<Stated> for ApiError {
    fn from(stated: Stated) -> Self {
        Reason::Stated(stated).into()
    }
}

impl ApiError {
    /// Without a code of its own: the page shows that of the status.
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Stated::new(status, None, message).into()
    }

    pub(crate) fn coded(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Stated::new(status, Some(code), message).into()
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// A bad request with a code.
    pub(crate) fn invalid(code: &'static str, message: impl Into<String>) -> Self {
        Self::coded(StatusCode::BAD_REQUEST, code, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// Repeating the request would change nothing.
    pub(crate) fn conflict(code: &'static str, message: impl Into<String>) -> Self {
        Stated { is_final: true, ..Stated::new(StatusCode::CONFLICT, Some(code), message) }.into()
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, message)
    }

    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    }

    /// Too many at once, or too often.
    pub(crate) fn busy(message: impl Into<String>, after: u64) -> Self {
        let refused = Stated::new(StatusCode::TOO_MANY_REQUESTS, Some("rate_limit_exceeded"), message);
        Stated { kind: "rate_limit_error", retry_after: Some(after.max(1)), ..refused }.into()
    }

    /// The agent worked on it and has no answer. A repetition is paid for again.
    pub(crate) fn agent(code: &'static str, message: impl Into<String>) -> Self {
        let failed = Stated::new(StatusCode::BAD_GATEWAY, Some(code), message);
        Stated { kind: "agent_error", is_final: true, ..failed }.into()
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
        let refused = Stated::new(StatusCode::UNAUTHORIZED, None, message);
        Stated { detail: Some(UNAUTHORIZED), ..refused }.into()
    }

    /// A wrong secret on a route that only the secret opens.
    pub(crate) fn wrong_secret() -> Self {
        let refused = Stated::new(StatusCode::UNAUTHORIZED, None, "unauthenticated");
        Self::from(Stated { detail: Some(UNAUTHORIZED), ..refused }).shaped(Shape::Plain)
    }

    pub(crate) fn invalid_key() -> Self {
        Self::coded(StatusCode::UNAUTHORIZED, "invalid_api_key", "Invalid API key")
    }

    pub(crate) fn invalid_fire_token() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "invalid fire token").shaped(Shape::Plain)
    }

    pub(crate) fn out_of_scope(scope: &str) -> Self {
        let message = format!("This key may not do this; it needs the scope '{scope}'");
        Self::coded(StatusCode::FORBIDDEN, "insufficient_scope", message)
    }

    /// The bodies of other requests take all the memory that there is for them.
    pub(crate) fn no_memory_for_body() -> Self {
        Self::unavailable("busy", Exhausted.to_string())
    }

    /// `{"detail": …}`
    pub(crate) fn detail(status: StatusCode, message: impl Into<String>) -> Self {
        Self::new(status, message).shaped(Shape::Detail)
    }

    /// What the gateway could not do, as `{"detail": …}`.
    pub(crate) fn detail_of(error: Error) -> Self {
        Self::from(error).shaped(Shape::Detail)
    }

    /// A request about jobs that makes no sense.
    pub(crate) fn bad_job(message: impl Into<String>) -> Self {
        JobError::Bad(message.into()).into()
    }

    pub(crate) fn bad_job_id() -> Self {
        Reason::JobId.into()
    }

    /// A status that axum chose, with its explanation.
    pub(crate) fn from_axum(status: StatusCode, message: String) -> Self {
        match status {
            StatusCode::PAYLOAD_TOO_LARGE => Self::too_large("the request body is larger than 1 MiB"),
            StatusCode::UNPROCESSABLE_ENTITY => Self::bad_request(message),
            other => Self::new(other, message),
        }
    }

    /// Names the part of the request that is wrong.
    #[must_use]
    pub(crate) fn param(self, param: impl Into<String>) -> Self {
        self.map(|stated| stated.param = Some(param.into()))
    }

    #[must_use]
    pub(crate) fn code(self, code: impl Into<Cow<'static, str>>) -> Self {
        self.map(|stated| stated.code = Some(code.into()))
    }

    /// A further member, for the page.
    #[must_use]
    pub(crate) fn with(self, name: &str, value: impl Into<Value>) -> Self {
        self.map(|stated| _ = stated.facts.insert(name.to_owned(), value.into()))
    }

    #[must_use]
    pub(crate) fn with_headers(mut self, headers: HeaderMap) -> Self {
        self.0.headers = headers;
        self
    }

    pub(crate) fn is_unauthorized(&self) -> bool {
        self.stated(Shape::Page).status == StatusCode::UNAUTHORIZED
    }

    #[cfg(test)]
    pub(crate) fn for_program(&self) -> Value {
        self.body(Shape::OpenAi)
    }

    fn map(mut self, change: impl FnOnce(&mut Stated)) -> Self {
        if let Reason::Stated(stated) = &mut self.0.reason {
            change(stated);
        }
        self
    }

    fn shaped(mut self, shape: Shape) -> Self {
        self.0.shape = Some(shape);
        self
    }

    /// What is said at this door. Only words and codes differ between doors.
    fn stated(&self, door: Shape) -> Stated {
        let program = door == Shape::OpenAi;
        match &self.0.reason {
            Reason::Stated(stated) => stated.clone(),
            Reason::Gateway(error) => gateway(error, program),
            Reason::Job(JobError::Gateway(error)) => gateway(error, program),
            Reason::Job(JobError::Bad(why)) => Stated::new(StatusCode::BAD_REQUEST, None, why.clone()),
            Reason::Job(error @ JobError::NotFound) => {
                let message = if program { "Job not found".to_owned() } else { error.to_string() };
                Stated::new(StatusCode::NOT_FOUND, None, message)
            }
            Reason::JobId => {
                let message = match program {
                    true => "Invalid job ID format",
                    false => "a job's id has twelve hexadecimal digits",
                };
                Stated::new(StatusCode::BAD_REQUEST, None, message)
            }
        }
    }

    fn body(&self, door: Shape) -> Value {
        let Stated { status, kind, code, message, param, facts, detail, .. } = self.stated(door);
        let of_jobs =
            matches!(self.0.reason, Reason::Job(JobError::Bad(_) | JobError::NotFound) | Reason::JobId);
        let default = if of_jobs && door == Shape::OpenAi { Shape::Plain } else { door };
        match self.0.shape.unwrap_or(default) {
            Shape::OpenAi => {
                let code = code.map(Cow::into_owned);
                let error = ErrorBody::Object(ErrorDetails { message, r#type: kind, param, code });
                json!(ErrorResponse { error })
            }
            Shape::Detail => json!({ "detail": message }),
            Shape::Plain => with_detail(json!(ErrorResponse { error: ErrorBody::Text(message) }), detail),
            Shape::Page => {
                let code = code.unwrap_or_else(|| code_of(status).into());
                let mut error =
                    Map::from_iter([("message".into(), message.into()), ("code".into(), json!(code))]);
                error.extend(facts);
                with_detail(json!({ "error": error }), detail)
            }
        }
    }
}

/// The body of an error, as programs get it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ErrorResponse {
    error: ErrorBody,
}

/// Errors of jobs are a text.
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

/// The page's code of an error that has none of its own.
fn code_of(status: StatusCode) -> &'static str {
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

fn gateway(error: &Error, program: bool) -> Stated {
    let message = error.to_string();
    let refused = |code, message| {
        let refused = Stated::new(StatusCode::SERVICE_UNAVAILABLE, Some(code), message);
        // The shape that clients of model servers know.
        let facts = [("type".to_owned(), Value::from(REQUEST)), ("param".to_owned(), Value::Null)];
        Stated { facts: Map::from_iter(facts), ..refused }
    };
    let draining =
        |on_page: String| refused("gateway_draining", if program { DRAINING.to_owned() } else { on_page });
    match error {
        Error::NotFound(_) => Stated::new(StatusCode::NOT_FOUND, Some("not_found"), message),
        Error::Unbuilt(_) => Stated::new(StatusCode::CONFLICT, Some("misconfigured"), message),
        Error::NoHome(_) => Stated::new(StatusCode::CONFLICT, Some("no_home"), message),
        Error::Store(_) | Error::Io(_) => {
            let code = if program { "session_db_unavailable" } else { "unavailable" };
            Stated::new(StatusCode::SERVICE_UNAVAILABLE, Some(code), message)
        }
        Error::Closed(Closed::Draining) => draining(message),
        Error::Closed(Closed::Leaving { restart: true }) => draining(RESTARTING.to_owned()),
        Error::Closed(Closed::Leaving { restart: false }) | Error::Stopping => draining(STOPPING.to_owned()),
        Error::Closed(Closed::Full { .. }) => refused("too_many_sessions", message),
    }
}

const DRAINING: &str = "Gateway is draining existing work; retry shortly.";
const RESTARTING: &str =
    "The gateway is draining before it restarts and takes no new work. Please send this again in a minute.";
const STOPPING: &str =
    "The gateway is draining before it stops and takes no new work. Please send this again when it is back.";

impl From<Reason> for ApiError {
    fn from(reason: Reason) -> Self {
        Self(Box::new(Inner { reason, shape: None, headers: HeaderMap::new() }))
    }
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        Reason::Gateway(error).into()
    }
}

impl From<JobError> for ApiError {
    fn from(error: JobError) -> Self {
        Reason::Job(error).into()
    }
}

impl From<NotStarted> for ApiError {
    fn from(error: NotStarted) -> Self {
        match error {
            NotStarted::Error(error) => error.into(),
            NotStarted::Full { cap } => Self::busy(format!("Too many concurrent runs (max {cap})"), 1),
            NotStarted::Reused => Self::conflict(
                "idempotency_key_reused",
                "This Idempotency-Key was used for another request in the last 24 hours",
            ),
            NotStarted::Nowhere => Self::not_found(error.to_string()).code("not_found"),
        }
    }
}

/// Without its body: the door adds it.
impl IntoResponse for ApiError {
    fn into_response(mut self) -> Response {
        let Stated { status, retry_after, is_final, .. } = self.stated(Shape::Page);
        let mut response = (status, std::mem::take(&mut self.0.headers)).into_response();
        let headers = response.headers_mut();
        let retry_after = retry_after.or((status == StatusCode::SERVICE_UNAVAILABLE).then_some(1));
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if is_final {
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}

/// Renders errors for clients of model servers.
pub(crate) async fn for_programs(response: Response) -> Response {
    rendered(response, Shape::OpenAi)
}

/// Renders errors for the page, the terminal and the command line.
pub(crate) async fn for_page(response: Response) -> Response {
    rendered(response, Shape::Page)
}

fn rendered(mut response: Response, door: Shape) -> Response {
    let Some(error) = response.extensions_mut().remove::<Arc<ApiError>>() else { return response };
    let (parts, _) = response.into_parts();
    (parts, Json(error.body(door))).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_gateway_says_why_and_when_to_retry() {
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
            let refused = ApiError::from(error);
            let body = refused.body(Shape::Page);
            assert!(body["error"]["message"].as_str().is_some_and(|text| text.contains(word)), "{body}");
            assert_eq!(body["error"]["code"], code);
            let response = refused.into_response();
            assert_eq!(
                (response.status().as_u16(), &response.headers()[header::RETRY_AFTER]),
                (503, &"1".parse().unwrap())
            );
        }
    }

    #[test]
    fn each_door_has_its_own_shape() {
        let error = || ApiError::invalid("too_long", "The text is too long").param("text");
        let (program, page) = (error().body(Shape::OpenAi), error().body(Shape::Page));
        let want = json!({ "error": {
            "message": "The text is too long", "type": REQUEST, "param": "text", "code": "too_long",
        } });
        assert_eq!(program, want);
        assert_eq!(page, json!({ "error": { "message": "The text is too long", "code": "too_long" } }));
        assert_eq!(ApiError::not_found("no").body(Shape::Page)["error"]["code"], "not_found");
        assert_eq!(ApiError::not_found("no").body(Shape::OpenAi)["error"]["code"], Value::Null);
        let jobs = ApiError::from(JobError::NotFound);
        assert_eq!(jobs.body(Shape::OpenAi), json!({ "error": "Job not found" }));
        assert_eq!(jobs.body(Shape::Page)["error"]["message"], "there is no such job");
        for door in [Shape::OpenAi, Shape::Page] {
            assert_eq!(ApiError::detail(StatusCode::CONFLICT, "no").body(door), json!({ "detail": "no" }));
        }
    }
}
