//! The parts of a request: its id, parameters and headers, and its body, which is read within bounds and parsed into
//! the type that the handler takes.

use std::fmt;

use aws_lc_rs::digest;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use petasos_gateway::Once;
use petasos_platforms::body_budget::Exhausted;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::Owner;
use super::openapi::{Input, Operation};
use crate::connection::{TooSlow, is_caused_by};
use crate::error::ApiError;

/// Largest body, whether its length was announced or not.
const BODY: usize = 10_000_000;
/// A larger one is read and dropped up to this size, so that its sender gets to read why it was refused.
const DRAINED: usize = 4 * BODY;
const NAME: usize = 256;
const NOT_THERE: &str = "There is no such thing";

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("x-hermes-session-id");
pub(super) const SESSION_KEY: HeaderName = HeaderName::from_static("x-hermes-session-key");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const DETACH: HeaderName = HeaderName::from_static("x-petasos-detach");

/// The members of a body.
pub(crate) type Fields = Map<String, Value>;

/// The type of a body: members that it does not have are accepted unless it refuses them itself.
pub(crate) trait Payload: DeserializeOwned + JsonSchema + Send + 'static {
    /// What no single member can say.
    fn check(_: &Fields) -> Result<(), ApiError> {
        Ok(())
    }

    fn refuse(invalid: &Invalid, param: &str) -> ApiError {
        let error = ApiError::bad_request(invalid.text(param)).param(param);
        if invalid.code.is_empty() { error } else { error.code(invalid.code.clone()) }
    }

    fn describe(_: &mut Operation<'_>) {}
}

/// A body that is a JSON object; nothing at all counts as an empty one.
pub(crate) struct Body<T> {
    pub(crate) value: T,
    /// As it was sent: the same request again is known by it.
    pub(super) fields: Fields,
}

impl<S: Send + Sync, T: Payload> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let fields = fields(request).await?;
        T::check(&fields)?;
        let value = parse(&fields)?;
        Ok(Self { value, fields })
    }
}

fn parse<T: Payload>(fields: &Fields) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(fields)
        .map_err(|error| T::refuse(&Invalid::parse(&error.inner().to_string()), &error.path().to_string()))
}

impl<T: Payload> Input for Body<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.body::<T>();
        T::describe(operation);
    }
}

/// What is wrong with a value. Errors of serde are text: code and message travel in it behind a mark.
#[derive(Debug)]
pub(crate) struct Invalid {
    code: String,
    /// One that begins with a space goes on from the quoted name of the member.
    message: String,
}

const MARK: char = '\u{1f}';
/// Of a member that is not of its type at all.
const WRONG: &str = "Missing or invalid";

impl Invalid {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self::coded("", message)
    }

    pub(crate) fn coded(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into() }
    }

    pub(crate) fn error<E: serde::de::Error>(self) -> E {
        E::custom(self)
    }

    fn parse(error: &str) -> Self {
        let mut parts = error.splitn(3, MARK).skip(1);
        match (parts.next(), parts.next()) {
            (Some(code), Some(message)) => Self::coded(code, message),
            _ => Self::new(WRONG),
        }
    }

    pub(crate) fn text(&self, param: &str) -> String {
        match &self.message {
            message if message == WRONG => format!("{WRONG} '{param}' field"),
            message if message.starts_with(' ') => format!("'{param}'{message}"),
            message => message.clone(),
        }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{MARK}{}{MARK}{}", self.code, self.message)
    }
}

/// Reads a JSON object.
async fn fields(request: Request) -> Result<Fields, ApiError> {
    let bytes = read(request).await?;
    if bytes.trim_ascii().is_empty() {
        return Ok(Fields::new());
    }
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(ApiError::bad_request("Request body must be a JSON object")),
        Err(_) => Err(ApiError::bad_request("Invalid JSON in request body")),
    }
}

fn too_large() -> ApiError {
    ApiError::too_large("Request body too large.").code("body_too_large")
}

async fn read(request: Request) -> Result<Bytes, ApiError> {
    let headers = request.headers();
    let announced = match headers.get(header::CONTENT_LENGTH).map(|length| length.to_str()) {
        None => 0,
        Some(length) => length
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| ApiError::invalid("invalid_content_length", "Invalid Content-Length header."))?,
    };
    // A client that asks first whether to send it reads the answer; others send it all before they listen.
    if announced > DRAINED || (announced > BODY && headers.contains_key(header::EXPECT)) {
        return Err(too_large());
    }
    let mut chunks = request.into_body().into_data_stream();
    let (mut bytes, mut read) = (BytesMut::new(), 0);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| {
            if is_caused_by::<TooSlow>(&error) {
                let message = "The request body did not come in time.";
                return ApiError::coded(StatusCode::REQUEST_TIMEOUT, "body_too_slow", message);
            }
            if is_caused_by::<Exhausted>(&error) {
                return ApiError::unavailable("too_many_bodies", "Too many request bodies at once.");
            }
            // A body that stops in the middle has no reader for this answer.
            ApiError::bad_request("The request body ended early")
        })?;
        read += chunk.len();
        if read > DRAINED {
            break;
        }
        match read > BODY {
            true => bytes.clear(),
            false => bytes.extend_from_slice(&chunk),
        }
    }
    if read > BODY { Err(too_large()) } else { Ok(bytes.freeze()) }
}

/// The name in the path.
pub(crate) struct Id(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(id)) => Ok(Self(id)),
            Err(_) => Err(ApiError::invalid("invalid_id", "The id in the path is not text")),
        }
    }
}

impl Input for Id {
    fn describe(operation: &mut Operation<'_>) {
        operation.parameter("path", "id", true, json!({ "type": "string", "minLength": 1 }));
        operation.error(404, NOT_THERE);
    }
}

/// The parameters after `?`.
pub(super) struct Query<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match axum::extract::Query::from_request_parts(parts, state).await {
            Ok(axum::extract::Query(value)) => Ok(Self(value)),
            Err(_) => Err(ApiError::invalid("invalid_parameter", "The parameters after ? cannot be read")),
        }
    }
}

impl<T: JsonSchema> Input for Query<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.query::<T>();
    }
}

impl<S: Sync> FromRequestParts<S> for Owner {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        // Put there by `authenticate`, through which every route but health goes.
        parts.extensions.get().cloned().ok_or_else(ApiError::invalid_key)
    }
}

/// The headers of a request that puts the agent to work.
#[derive(Debug, Default, Clone)]
pub(super) struct RunHeaders {
    session: Option<String>,
    pub(super) key: Option<String>,
    idempotency_key: Option<String>,
    /// The work goes on when the client leaves.
    pub(super) detached: bool,
}

impl<S: Sync> FromRequestParts<S> for RunHeaders {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let headers = &parts.headers;
        let SessionHeader(session) = SessionHeader::read(headers)?;
        let detached = header_text(headers, &DETACH, "Invalid X-Petasos-Detach")?;
        Ok(Self {
            session,
            key: header_text(headers, &SESSION_KEY, "Invalid session key")?,
            idempotency_key: header_text(headers, &IDEMPOTENCY_KEY, "Invalid Idempotency-Key")?,
            detached: detached.is_some_and(|word| matches!(word.trim(), "true" | "1" | "on")),
        })
    }
}

impl Input for RunHeaders {
    fn describe(operation: &mut Operation<'_>) {
        for header in ["Idempotency-Key", "X-Hermes-Session-Key", "X-Petasos-Detach"] {
            operation.header(header);
        }
        operation.error(404, NOT_THERE);
        operation.error(502, "The agent has no answer");
    }
}

impl RunHeaders {
    /// The idempotency key of a request, and what makes it this one and no other.
    pub(super) fn idempotency_key(&self, route: &str, fields: &Fields) -> Option<Once> {
        let name = self.idempotency_key.clone()?;
        let mut context = digest::Context::new(&digest::SHA256);
        for part in [route, self.session.as_deref().unwrap_or(""), self.key.as_deref().unwrap_or("")] {
            context.update(part.as_bytes());
            context.update(&[0]);
        }
        // Keys are sorted: the same object is the same text.
        let body = serde_json::to_vec(fields).unwrap_or_default();
        context.update(&body);
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(context.finish().as_ref());
        Some(Once { name, fingerprint })
    }
}

/// `X-Hermes-Session-Id`: the conversation that a chat completion belongs to.
pub(super) struct SessionHeader(pub(super) Option<String>);

impl SessionHeader {
    fn read(headers: &HeaderMap) -> Result<Self, ApiError> {
        let session = header_text(headers, &SESSION_ID, "Invalid session ID")?;
        match session.as_deref().is_some_and(|id| !is_session_id(id)) {
            true => Err(ApiError::bad_request("Invalid session ID")),
            false => Ok(Self(session)),
        }
    }
}

impl<S: Sync> FromRequestParts<S> for SessionHeader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Self::read(&parts.headers)
    }
}

impl Input for SessionHeader {
    fn describe(operation: &mut Operation<'_>) {
        operation.header("X-Hermes-Session-Id");
    }
}

fn header_text(headers: &HeaderMap, name: &HeaderName, message: &str) -> Result<Option<String>, ApiError> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let text = value.to_str().map_err(|_| ApiError::bad_request(message))?.trim();
    if text.len() > NAME {
        return Err(ApiError::bad_request(message));
    }
    Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
}

/// A name for a conversation: it may become part of a key, never of a path.
pub(super) fn is_session_id(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':' | b'@');
    (1..=NAME).contains(&id.len()) && id.bytes().all(plain) && !id.contains("..")
}

/// The first hex digits of a digest over these parts.
pub(super) fn short_hash(parts: &[&str]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part.as_bytes());
    }
    context.finish().as_ref().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::chat::ChatCompletionRequest;
    use super::super::runs::{ApprovalRequest, RunRequest};
    use super::*;
    use crate::jobs::JobRequest;

    #[track_caller]
    fn refused<T: Payload>(body: Value, want: Value) {
        let Value::Object(fields) = body else { panic!("an object") };
        let error = parse::<T>(&fields).err().map(|error| error.for_program()["error"].clone());
        let error = error.map(|error| match error {
            Value::Object(error) => json!([error["code"], error["param"], error["message"]]),
            text => text,
        });
        assert_eq!(error, Some(want), "{fields:?}");
    }

    #[track_caller]
    fn accepted<T: Payload>(body: Value) {
        let Value::Object(fields) = body else { panic!("an object") };
        let error = parse::<T>(&fields).err();
        assert!(error.is_none(), "{fields:?}: {error:?}");
    }

    #[test]
    fn clients_may_leave_out_and_add_members() {
        let picture = json!({ "type": "input_image", "image_url": "https://a.example/b.png" });
        let parts = json!(["a", { "type": "input_text", "text": "b" }, picture]);
        accepted::<ChatCompletionRequest>(json!({}));
        accepted::<ChatCompletionRequest>(json!({
            "model": null, "stream": "on", "temperature": 1, "tools": [{ "type": "function" }],
            "messages": ["hello", { "role": "user", "content": parts, "name": "x" }, { "role": "tool" }, {}],
        }));
        accepted::<RunRequest>(json!({ "input": "x", "session_id": "", "conversation_history": null }));
        accepted::<RunRequest>(json!({ "input": [{ "content": null }], "conversation_history": ["a"] }));
        accepted::<ApprovalRequest>(json!({ "choice": " Approve ", "all": 1 }));
        accepted::<JobRequest>(json!({ "name": "  ", "repeat": null, "skills": [] }));
    }

    #[test]
    fn an_error_names_the_member_that_is_wrong() {
        let message = |content: Value| json!({ "messages": ["a", { "role": "user", "content": content }] });
        let at = "messages[1].content";
        for (content, code, text) in [
            (json!(5), "invalid_content", "Content must be a string or an array of parts"),
            (
                json!([{ "type": "file" }]),
                "unsupported_content_type",
                "Inline image inputs are supported, but uploaded \
              files and document inputs are not supported on this endpoint.",
            ),
            (json!([{ "type": "x" }]), "unsupported_content_type", "Unsupported content part type: 'x'"),
            (json!([{ "type": "text" }]), "invalid_content", "A text part must have a text"),
        ] {
            refused::<ChatCompletionRequest>(message(content), json!([code, at, text]));
        }
        for (body, want) in [
            (
                json!({ "messages": [5] }),
                json!(["invalid_message", "messages[0]", "A message must be an object"]),
            ),
            (json!({ "messages": "x" }), json!([null, "messages", "Missing or invalid 'messages' field"])),
            (json!({ "model": 5 }), json!([null, "model", "'model' must be a string"])),
            (json!({ "stream": "maybe" }), json!([null, "stream", "'stream' must be true or false"])),
        ] {
            refused::<ChatCompletionRequest>(body, want);
        }
        for (body, want) in [
            (json!({ "input": 5 }), json!([null, "input", "'input' must be a string or array"])),
            (
                json!({ "input": ["x"] }),
                json!(["invalid_input", "input[0]", "An input item must be an object with role and content"]),
            ),
            (
                json!({ "input": "x", "session_id": "../x" }),
                json!(["invalid_session_id", "session_id", "Invalid session ID"]),
            ),
        ] {
            refused::<RunRequest>(body, want);
        }
        refused::<JobRequest>(json!({ "prompt": 5 }), json!("'prompt' must be a string"));
        refused::<JobRequest>(json!({ "repeat": 0 }), json!("'repeat' must be a whole number of at least 1"));
    }
}
