//! One request to the model, as received. The whole body is parsed on first use.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use axum::http::HeaderMap;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelApi {
    OpenAi,
    Anthropic,
    Ollama,
}

#[derive(Debug)]
pub struct ChatRequest {
    /// From 0, in order of arrival.
    pub number: u64,
    pub at: Instant,
    pub api: ModelApi,
    pub path: String,
    pub headers: HeaderMap,
    pub raw: Bytes,
    pub model: String,
    pub stream: bool,
    /// The text of the newest user message that has any.
    pub last_user: String,
    pub(crate) wants_usage: bool,
    body: OnceLock<Value>,
    outcome: AtomicU8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RequestOutcome {
    Pending,
    /// Answered in full, including error statuses.
    Answered,
    /// A fault ended the connection.
    Cut,
    /// The caller hung up first.
    Abandoned,
}

impl ChatRequest {
    /// `Err`: the body is invalid.
    pub(crate) fn parse(api: ModelApi, path: &str, headers: HeaderMap, raw: Bytes) -> Result<Self, String> {
        let peek: Peek<'_> = serde_json::from_slice(&raw).map_err(|error| error.to_string())?;
        let streams_unasked = api == ModelApi::Ollama;
        Ok(Self {
            number: 0,
            at: crate::now(),
            api,
            path: path.to_owned(),
            headers,
            model: peek.model,
            stream: peek.stream.unwrap_or(streams_unasked),
            last_user: peek.messages.iter().rev().find_map(|message| user_text(message)).unwrap_or_default(),
            wants_usage: peek.stream_options.is_some_and(|options| options.include_usage),
            body: OnceLock::new(),
            outcome: AtomicU8::new(RequestOutcome::Pending as u8),
            raw,
        })
    }

    #[must_use]
    pub fn body(&self) -> &Value {
        self.body.get_or_init(|| serde_json::from_slice(&self.raw).unwrap_or_default())
    }

    #[must_use]
    pub fn messages(&self) -> &[Value] {
        self.body()["messages"].as_array().map(Vec::as_slice).unwrap_or_default()
    }

    #[must_use]
    pub fn tools(&self) -> Vec<&str> {
        let tools = self.body()["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
        tools.iter().filter_map(|tool| tool["function"]["name"].as_str().or(tool["name"].as_str())).collect()
    }

    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The API key: a bearer token or `x-api-key`.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        key(&self.headers)
    }

    #[must_use]
    pub fn outcome(&self) -> RequestOutcome {
        let known = [RequestOutcome::Answered, RequestOutcome::Cut, RequestOutcome::Abandoned];
        let number = self.outcome.load(Ordering::Acquire);
        known.into_iter().find(|outcome| *outcome as u8 == number).unwrap_or(RequestOutcome::Pending)
    }

    pub(crate) fn set_outcome(&self, outcome: RequestOutcome) {
        self.outcome.store(outcome as u8, Ordering::Release);
    }
}

pub(crate) fn key(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get("authorization").and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| value.strip_prefix("Bearer "));
    bearer.or_else(|| headers.get("x-api-key")?.to_str().ok())
}

/// The fields that the default answer needs.
#[derive(Deserialize)]
struct Peek<'a> {
    #[serde(default)]
    model: String,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default, borrow)]
    messages: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Deserialize)]
struct RequestMessage {
    #[serde(default)]
    role: String,
    #[serde(default)]
    content: Value,
}

/// `None`: not from the user, or without text (a tool result, a picture).
fn user_text(message: &RawValue) -> Option<String> {
    let message: RequestMessage = serde_json::from_str(message.get()).ok()?;
    if message.role != "user" {
        return None;
    }
    match message.content {
        Value::String(text) => Some(text),
        Value::Array(parts) => {
            let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
            (!texts.is_empty()).then(|| texts.join("\n"))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderMap;
    use serde_json::{Value, json};

    use super::{ChatRequest, ModelApi};

    fn parse(body: &Value) -> ChatRequest {
        ChatRequest::parse(ModelApi::Anthropic, "/v1/messages", HeaderMap::new(), body.to_string().into())
            .unwrap()
    }

    #[test]
    fn finds_last_user_text_before_tool_results() {
        for (messages, want) in [
            (json!([{"role": "user", "content": "a \"b\""}]), "a \"b\""),
            (json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]), "a"),
            (
                json!([
                    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                    {"role": "user", "content": [{"type": "tool_result", "content": "c"}]},
                ]),
                "a\nb",
            ),
            (json!([{"role": "system", "content": "a"}]), ""),
            (json!([]), ""),
        ] {
            assert_eq!(parse(&json!({"messages": messages})).last_user, want, "{messages}");
        }
    }

    #[test]
    fn reads_tool_names_of_both_protocols() {
        let body = json!({"tools": [{"name": "a"}, {"type": "function", "function": {"name": "b"}}]});
        assert_eq!(parse(&body).tools(), ["a", "b"]);
    }
}
