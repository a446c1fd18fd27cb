//! One request to the model, as received. The body is parsed in full only when somebody looks.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use axum::http::HeaderMap;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// The protocol a request speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    OpenAi,
    Anthropic,
    Ollama,
}

#[derive(Debug)]
pub struct Request {
    /// From 0, in order of arrival.
    pub number: u64,
    pub at: Instant,
    pub api: Api,
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

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    Pending,
    /// Answered in full; faults that are answers, such as a status, count.
    Answered,
    /// The connection was reset or cut by a fault.
    Cut,
    /// The caller hung up first.
    Abandoned,
}

impl Request {
    /// `Err` says what is wrong with it.
    pub(crate) fn parse(api: Api, path: &str, headers: HeaderMap, raw: Bytes) -> Result<Self, String> {
        let peek: Peek<'_> = serde_json::from_slice(&raw).map_err(|error| error.to_string())?;
        let streams_unasked = api == Api::Ollama;
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
            outcome: AtomicU8::new(Outcome::Pending as u8),
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

    /// The names of the tools on offer.
    #[must_use]
    pub fn tools(&self) -> Vec<&str> {
        let tools = self.body()["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
        tools.iter().filter_map(|tool| tool["function"]["name"].as_str().or(tool["name"].as_str())).collect()
    }

    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The key it came with: a bearer token or `x-api-key`.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        key(&self.headers)
    }

    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let known = [Outcome::Answered, Outcome::Cut, Outcome::Abandoned];
        let number = self.outcome.load(Ordering::Acquire);
        known.into_iter().find(|outcome| *outcome as u8 == number).unwrap_or(Outcome::Pending)
    }

    pub(crate) fn ended(&self, outcome: Outcome) {
        self.outcome.store(outcome as u8, Ordering::Release);
    }
}

pub(crate) fn key(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get("authorization").and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| value.strip_prefix("Bearer "));
    bearer.or_else(|| headers.get("x-api-key")?.to_str().ok())
}

/// As much as the default answer needs; everything else is skipped over.
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
struct Message {
    #[serde(default)]
    role: String,
    #[serde(default)]
    content: Value,
}

/// `None`: not of the user, or without text (a tool's result, a picture).
fn user_text(message: &RawValue) -> Option<String> {
    let message: Message = serde_json::from_str(message.get()).ok()?;
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

    use super::{Api, Request};

    fn parse(body: &Value) -> Request {
        Request::parse(Api::Anthropic, "/v1/messages", HeaderMap::new(), body.to_string().into()).unwrap()
    }

    #[test]
    fn the_last_user_text_is_found_behind_tool_results() {
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
    fn tools_are_named_in_either_protocol() {
        let body = json!({"tools": [{"name": "a"}, {"type": "function", "function": {"name": "b"}}]});
        assert_eq!(parse(&body).tools(), ["a", "b"]);
    }
}
