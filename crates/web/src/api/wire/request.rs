//! Request extractors of the API: path id, query string, headers, and a size-limited JSON body.

use std::fmt;

use aws_lc_rs::digest;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, header};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use petasos_core::text::hex;
use petasos_gateway::IdempotencyKey;
use petasos_platforms::body_budget::Exhausted;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::api::ApiClient;
use crate::api::openapi::{Input, Operation};
use crate::error::ApiError;
use crate::server::connection::{BodyTimeout, is_caused_by};

const MAX_BODY_BYTES: usize = 10_000_000;
/// Larger bodies are read and dropped up to this size, so that their sender receives the error.
const MAX_DRAINED_BYTES: usize = 4 * MAX_BODY_BYTES;
const MAX_NAME_BYTES: usize = 256;
const NOT_FOUND: &str = "Not found";

pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("x-hermes-session-id");
pub(crate) const SESSION_KEY: HeaderName = HeaderName::from_static("x-hermes-session-key");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const DETACH: HeaderName = HeaderName::from_static("x-petasos-detach");

pub(crate) type Fields = Map<String, Value>;

/// The type of a JSON body. Unknown members are accepted unless the type rejects them.
pub(crate) trait Payload: DeserializeOwned + JsonSchema + Send + 'static {
    /// Checks that involve several members.
    fn check(_: &Fields) -> Result<(), ApiError> {
        Ok(())
    }

    fn reject(invalid: &InvalidField, param: &str) -> ApiError {
        let error = ApiError::bad_request(invalid.text(param)).param(param);
        if invalid.code.is_empty() { error } else { error.code(invalid.code.clone()) }
    }

    fn describe(_: &mut Operation<'_>) {}
}

/// A JSON object; an empty body counts as an empty object.
pub(crate) struct Body<T> {
    pub(crate) value: T,
    /// The raw members, for the idempotency fingerprint.
    pub(crate) fields: Fields,
}

impl<S: Send + Sync, T: Payload> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        let fields = read_fields(request).await?;
        T::check(&fields)?;
        let value = parse(&fields)?;
        Ok(Self { value, fields })
    }
}

fn parse<T: Payload>(fields: &Fields) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(fields).map_err(|error| {
        T::reject(&InvalidField::parse(&error.inner().to_string()), &error.path().to_string())
    })
}

impl<T: Payload> Input for Body<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.body::<T>();
        T::describe(operation);
    }
}

/// An invalid value. Serde errors are strings, so code and message are encoded in the string between separators.
#[derive(Debug)]
pub(crate) struct InvalidField {
    code: String,
    /// A message that begins with a space is appended to the quoted name of the member.
    message: String,
}

const SEPARATOR: char = '\u{1f}';
/// The message for a wrong type.
const MISSING_OR_INVALID: &str = "Missing or invalid";

impl InvalidField {
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
        let mut parts = error.splitn(3, SEPARATOR).skip(1);
        match (parts.next(), parts.next()) {
            (Some(code), Some(message)) => Self::coded(code, message),
            _ => Self::new(MISSING_OR_INVALID),
        }
    }

    pub(crate) fn text(&self, param: &str) -> String {
        match &self.message {
            message if message == MISSING_OR_INVALID => format!("{MISSING_OR_INVALID} '{param}' field"),
            message if message.starts_with(' ') => format!("'{param}'{message}"),
            message => message.clone(),
        }
    }
}

impl fmt::Display for InvalidField {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{SEPARATOR}{}{SEPARATOR}{}", self.code, self.message)
    }
}

async fn read_fields(request: Request) -> Result<Fields, ApiError> {
    let bytes = read_body(request).await?;
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

async fn read_body(request: Request) -> Result<Bytes, ApiError> {
    let headers = request.headers();
    let content_length = match headers.get(header::CONTENT_LENGTH).map(|length| length.to_str()) {
        None => 0,
        Some(length) => length
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| ApiError::invalid("invalid_content_length", "Invalid Content-Length header."))?,
    };
    // A client with `Expect: 100-continue` reads the error before sending; others send the whole body first.
    if content_length > MAX_DRAINED_BYTES
        || (content_length > MAX_BODY_BYTES && headers.contains_key(header::EXPECT))
    {
        return Err(too_large());
    }
    let mut chunks = request.into_body().into_data_stream();
    let mut bytes = BytesMut::new();
    let mut read = 0;
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| {
            if is_caused_by::<BodyTimeout>(&error) {
                return ApiError::body_timeout();
            }
            if is_caused_by::<Exhausted>(&error) {
                return ApiError::unavailable("too_many_bodies", "Too many request bodies at once.");
            }
            // The client is gone, so this error has no reader.
            ApiError::bad_request("The request body ended early")
        })?;
        read += chunk.len();
        if read > MAX_DRAINED_BYTES {
            break;
        }
        if read > MAX_BODY_BYTES {
            bytes.clear();
        } else {
            bytes.extend_from_slice(&chunk);
        }
    }
    if read > MAX_BODY_BYTES { Err(too_large()) } else { Ok(bytes.freeze()) }
}

pub(crate) struct PathId<T = String>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for PathId<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match axum::extract::Path::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(id)) => Ok(Self(id)),
            Err(_) => Err(ApiError::invalid("invalid_id", "The id in the path is not text")),
        }
    }
}

impl<T> Input for PathId<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.parameter("path", "id", true, json!({ "type": "string", "minLength": 1 }));
        operation.error(404, NOT_FOUND);
    }
}

pub(crate) struct QueryString<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryString<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match axum::extract::Query::from_request_parts(parts, state).await {
            Ok(axum::extract::Query(value)) => Ok(Self(value)),
            Err(_) => Err(ApiError::invalid("invalid_parameter", "The query string is invalid")),
        }
    }
}

impl<T: JsonSchema> Input for QueryString<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.query::<T>();
    }
}

impl<S: Sync> FromRequestParts<S> for ApiClient {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        // Set by the `authenticate` middleware.
        parts.extensions.get().cloned().ok_or_else(ApiError::invalid_key)
    }
}

#[derive(Debug, Default, Clone)]
pub(crate) struct RunHeaders {
    session: Option<String>,
    pub(crate) key: Option<String>,
    idempotency_key: Option<String>,
    /// The run continues when the client disconnects.
    pub(crate) detached: bool,
}

impl<S: Sync> FromRequestParts<S> for RunHeaders {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let headers = &parts.headers;
        let SessionHeader(session) = SessionHeader::parse(headers)?;
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
        operation.error(404, NOT_FOUND);
        operation.error(502, "The agent has no answer");
    }
}

impl RunHeaders {
    /// The idempotency key with a fingerprint of the request.
    pub(crate) fn idempotency_key(&self, route: &str, fields: &Fields) -> Option<IdempotencyKey> {
        let name = self.idempotency_key.clone()?;
        let mut context = digest::Context::new(&digest::SHA256);
        for part in [route, self.session.as_deref().unwrap_or(""), self.key.as_deref().unwrap_or("")] {
            context.update(part.as_bytes());
            context.update(&[0]);
        }
        // Keys are sorted, so equal objects serialize equally.
        let body = serde_json::to_vec(fields).unwrap_or_default();
        context.update(&body);
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(context.finish().as_ref());
        Some(IdempotencyKey { name, fingerprint })
    }
}

/// `X-Hermes-Session-Id`: the session of a chat completion.
pub(crate) struct SessionHeader(pub(crate) Option<String>);

impl SessionHeader {
    fn parse(headers: &HeaderMap) -> Result<Self, ApiError> {
        let session = header_text(headers, &SESSION_ID, "Invalid session ID")?;
        if session.as_deref().is_some_and(|id| !is_session_id(id)) {
            return Err(ApiError::bad_request("Invalid session ID"));
        }
        Ok(Self(session))
    }
}

impl<S: Sync> FromRequestParts<S> for SessionHeader {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Self::parse(&parts.headers)
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
    if text.len() > MAX_NAME_BYTES {
        return Err(ApiError::bad_request(message));
    }
    Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
}

/// Whether a string is a valid session id. It may become part of a key, never of a path.
pub(crate) fn is_session_id(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':' | b'@');
    (1..=MAX_NAME_BYTES).contains(&id.len()) && id.bytes().all(plain) && !id.contains("..")
}

/// The first 16 hex digits of a SHA-256 digest.
pub(crate) fn hash_prefix(parts: &[&str]) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part.as_bytes());
    }
    hex(&context.finish().as_ref()[..8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::endpoints::chat_completions::ChatCompletionRequest;
    use crate::api::endpoints::runs::{ApprovalRequest, RunRequest};
    use crate::jobs::JobRequest;

    #[track_caller]
    fn assert_rejected<T: Payload>(body: Value, want: Value) {
        let Value::Object(fields) = body else { panic!("an object") };
        let error = parse::<T>(&fields).err().map(|error| error.for_program()["error"].clone());
        let error = error.map(|error| match error {
            Value::Object(error) => json!([error["code"], error["param"], error["message"]]),
            text => text,
        });
        assert_eq!(error, Some(want), "{fields:?}");
    }

    #[track_caller]
    fn assert_accepted<T: Payload>(body: Value) {
        let Value::Object(fields) = body else { panic!("an object") };
        let error = parse::<T>(&fields).err();
        assert!(error.is_none(), "{fields:?}: {error:?}");
    }

    #[test]
    fn accepts_missing_and_unknown_members() {
        let picture = json!({ "type": "input_image", "image_url": "https://a.example/b.png" });
        let parts = json!(["a", { "type": "input_text", "text": "b" }, picture]);
        assert_accepted::<ChatCompletionRequest>(json!({}));
        assert_accepted::<ChatCompletionRequest>(json!({
            "model": null, "stream": "on", "temperature": 1, "tools": [{ "type": "function" }],
            "messages": ["hello", { "role": "user", "content": parts, "name": "x" }, { "role": "tool" }, {}],
        }));
        assert_accepted::<RunRequest>(
            json!({ "input": "x", "session_id": "", "conversation_history": null }),
        );
        assert_accepted::<RunRequest>(
            json!({ "input": [{ "content": null }], "conversation_history": ["a"] }),
        );
        assert_accepted::<ApprovalRequest>(json!({ "choice": " Approve ", "all": 1 }));
        assert_accepted::<JobRequest>(json!({ "name": "  ", "repeat": null, "skills": [] }));
    }

    #[test]
    fn error_names_invalid_member() {
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
            assert_rejected::<ChatCompletionRequest>(message(content), json!([code, at, text]));
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
            assert_rejected::<ChatCompletionRequest>(body, want);
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
            assert_rejected::<RunRequest>(body, want);
        }
        assert_rejected::<JobRequest>(json!({ "prompt": 5 }), json!("'prompt' must be a string"));
        assert_rejected::<JobRequest>(
            json!({ "repeat": 0 }),
            json!("'repeat' must be a whole number of at least 1"),
        );
    }
}
