//! What a request says: its body and the headers that belong to a conversation, checked once.

use aws_lc_rs::digest;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use petasos_core::transcript::Role;
use petasos_gateway::{Once, Told};
use petasos_platforms::body_budget::Exhausted;
use serde_json::{Map, Value};

use crate::connection::{TooSlow, is_caused_by};
use crate::error::ApiError;

/// Largest body, whether its length was announced or not.
const BODY: usize = 10_000_000;
/// A larger one is taken off the wire up to this size, so that its sender gets to read why it was refused.
const HEARD_OUT: usize = 4 * BODY;
const PART_CHARS: usize = 65_536;
const PARTS: usize = 1000;
/// More than this is more than one message holds.
const TEXT: usize = 1 << 20;
const NAME: usize = 256;
const TOO_SLOW: &str = "The request body did not come in time.";

pub(super) const SESSION_ID: HeaderName = HeaderName::from_static("x-hermes-session-id");
pub(super) const SESSION_KEY: HeaderName = HeaderName::from_static("x-hermes-session-key");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const DETACH: HeaderName = HeaderName::from_static("x-petasos-detach");

/// A body that is a JSON object.
pub(super) type Fields = Map<String, Value>;

/// Reads a JSON object; nothing at all counts as an empty one.
pub(super) async fn fields(request: Request) -> Result<Fields, ApiError> {
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
    // Whoever asks first whether to send it hears the answer; others send it all before they listen.
    if announced > HEARD_OUT || (announced > BODY && headers.contains_key(header::EXPECT)) {
        return Err(too_large());
    }
    let mut chunks = request.into_body().into_data_stream();
    let (mut bytes, mut heard) = (BytesMut::new(), 0);
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| {
            if is_caused_by::<TooSlow>(&error) {
                return ApiError::coded(StatusCode::REQUEST_TIMEOUT, "body_too_slow", TOO_SLOW);
            }
            if is_caused_by::<Exhausted>(&error) {
                return ApiError::unavailable("too_many_bodies", "Too many request bodies at once.");
            }
            // A body that stops in the middle has no reader for this answer.
            ApiError::bad_request("The request body ended early")
        })?;
        heard += chunk.len();
        if heard > HEARD_OUT {
            break;
        }
        match heard > BODY {
            true => bytes.clear(),
            false => bytes.extend_from_slice(&chunk),
        }
    }
    if heard > BODY { Err(too_large()) } else { Ok(bytes.freeze()) }
}

/// Flags come as such, or as the words that people write into forms.
pub(super) fn flag(fields: &Fields, name: &str, otherwise: bool) -> Result<bool, ApiError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(otherwise),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(Value::Number(number)) => Ok(number.as_f64() != Some(0.0)),
        Some(Value::String(word)) => match word.trim().to_ascii_lowercase().as_str() {
            "true" | "1" | "on" | "yes" => Ok(true),
            "false" | "0" | "off" | "no" | "" => Ok(false),
            _ => Err(ApiError::bad_request(format!("'{name}' must be true or false")).param(name)),
        },
        Some(Value::Array(_) | Value::Object(_)) => {
            Err(ApiError::bad_request(format!("'{name}' must be true or false")).param(name))
        }
    }
}

/// A text; `None` if it is absent, null or empty.
pub(super) fn text(fields: &Fields, name: &str) -> Result<Option<String>, ApiError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if text.len() > TEXT => {
            Err(ApiError::invalid("content_too_long", format!("'{name}' is longer than 1 MB")).param(name))
        }
        Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
        Some(_) => Err(ApiError::bad_request(format!("'{name}' must be a string")).param(name)),
    }
}

/// What a message consists of.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) text: String,
    /// Addresses of pictures: `data:` or `http(s):`.
    pub(super) pictures: Vec<String>,
}

impl Content {
    pub(super) fn is_empty(&self) -> bool {
        self.text.trim().is_empty() && self.pictures.is_empty()
    }
}

/// A string, or a list of parts. `param` names it in an error.
pub(super) fn content(value: &Value, param: &str) -> Result<Content, ApiError> {
    match value {
        Value::Null => Ok(Content::default()),
        Value::String(text) if text.len() > TEXT => {
            Err(ApiError::invalid("content_too_long", "The text is longer than 1 MB").param(param))
        }
        Value::String(text) => Ok(Content { text: text.clone(), pictures: vec![] }),
        Value::Array(parts) if parts.len() > PARTS => {
            Err(ApiError::invalid("too_many_parts", format!("More than {PARTS} content parts")).param(param))
        }
        Value::Array(parts) => {
            let mut content = Content::default();
            let mut texts = Vec::new();
            for part in parts {
                texts.extend(self::part(part, param, &mut content)?);
            }
            content.text = texts.join("\n");
            Ok(content)
        }
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            Err(ApiError::invalid("invalid_content", "Content must be a string or an array of parts")
                .param(param))
        }
    }
}

fn part(part: &Value, param: &str, content: &mut Content) -> Result<Option<String>, ApiError> {
    if let Value::String(text) = part {
        return sized(text, param).map(Some);
    }
    let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
    match kind {
        "text" | "input_text" | "output_text" => match part.get("text").and_then(Value::as_str) {
            Some(text) => sized(text, param).map(Some),
            None => Err(ApiError::invalid("invalid_content", "A text part must have a text").param(param)),
        },
        "image_url" | "input_image" => {
            content.pictures.push(picture(part, param)?);
            Ok(None)
        }
        "file" | "input_file" => Err(ApiError::invalid(
            "unsupported_content_type",
            "Inline image inputs are supported, but uploaded files and document inputs are not supported on this \
             endpoint.",
        )
        .param(param)),
        other => {
            let shown: String = other.chars().take(64).collect();
            let message = format!("Unsupported content part type: '{shown}'");
            Err(ApiError::invalid("unsupported_content_type", message).param(param))
        }
    }
}

fn sized(text: &str, param: &str) -> Result<String, ApiError> {
    if text.chars().count() > PART_CHARS {
        let message = format!("A text part is longer than {PART_CHARS} characters");
        return Err(ApiError::invalid("content_too_long", message).param(param));
    }
    Ok(text.to_owned())
}

fn picture(part: &Value, param: &str) -> Result<String, ApiError> {
    let address = part.get("image_url");
    let address = address.and_then(|it| it.as_str().or_else(|| it.get("url").and_then(Value::as_str)));
    let address = address.unwrap_or_default();
    let known = ["data:image/", "http://", "https://"];
    let lower: String = address.chars().take(16).collect::<String>().to_ascii_lowercase();
    if !known.iter().any(|start| lower.starts_with(start)) {
        let message = "Image inputs must be http(s) URLs or data:image/... URLs.";
        return Err(ApiError::invalid("invalid_image_url", message).param(param));
    }
    Ok(address.to_owned())
}

/// A conversation as it is told: instructions, what was said, and what is asked now.
#[derive(Debug, Default)]
pub(super) struct Talk {
    pub(super) instructions: Vec<String>,
    pub(super) history: Vec<Told>,
    pub(super) asked: Option<Content>,
}

/// Messages in the shape of chat completions. Only what users and assistants said counts; the last of it is asked.
pub(super) fn talk(messages: &[Value], param: &str) -> Result<Talk, ApiError> {
    let mut talk = Talk::default();
    let mut said: Vec<(Role, Content)> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let param = format!("{param}[{at}]");
        if let Value::String(text) = message {
            said.push((Role::User, content(&Value::String(text.clone()), &param)?));
            continue;
        }
        let Value::Object(fields) = message else {
            return Err(ApiError::invalid("invalid_message", "A message must be an object").param(param));
        };
        let role = fields.get("role").and_then(Value::as_str).unwrap_or_default();
        let within = format!("{param}.content");
        let content = content(fields.get("content").unwrap_or(&Value::Null), &within)?;
        match role {
            "system" | "developer" => talk.instructions.push(content.text),
            "user" => said.push((Role::User, content)),
            "assistant" => said.push((Role::Assistant, content)),
            // Tools are the server's own; what a client says of others means nothing here.
            _ => {}
        }
    }
    talk.asked = said.pop().map(|(_, content)| content);
    let spoken = said.into_iter().filter(|(_, content)| !content.is_empty());
    talk.history = spoken.map(|(role, content)| Told { role, text: content.text }).collect();
    Ok(talk)
}

/// The headers that belong to a conversation.
#[derive(Debug, Default, Clone)]
pub(super) struct Wanted {
    pub(super) session: Option<String>,
    pub(super) key: Option<String>,
    name: Option<String>,
    /// The work goes on when the client leaves.
    pub(super) detached: bool,
}

impl Wanted {
    pub(super) fn read(headers: &HeaderMap) -> Result<Self, ApiError> {
        let session = header_text(headers, &SESSION_ID, "Invalid session ID")?;
        if session.as_deref().is_some_and(|id| !is_session_id(id)) {
            return Err(ApiError::bad_request("Invalid session ID"));
        }
        let detached = header_text(headers, &DETACH, "Invalid X-Petasos-Detach")?;
        Ok(Self {
            session,
            key: header_text(headers, &SESSION_KEY, "Invalid session key")?,
            name: header_text(headers, &IDEMPOTENCY_KEY, "Invalid Idempotency-Key")?,
            detached: detached.is_some_and(|word| matches!(word.trim(), "true" | "1" | "on")),
        })
    }

    /// What the client calls this request, and what makes it this one and no other.
    pub(super) fn once(&self, route: &str, fields: &Fields) -> Option<Once> {
        let name = self.name.clone()?;
        let mut context = digest::Context::new(&digest::SHA256);
        for part in [route, self.session.as_deref().unwrap_or(""), self.key.as_deref().unwrap_or("")] {
            context.update(part.as_bytes());
            context.update(&[0]);
        }
        // Keys are sorted: the same object is the same text.
        context.update(Value::Object(fields.clone()).to_string().as_bytes());
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(context.finish().as_ref());
        Some(Once { name, fingerprint })
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

/// Not acceptable as JSON: says what is.
pub(super) fn method_not_allowed() -> ApiError {
    ApiError::coded(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "This path has other methods")
}
