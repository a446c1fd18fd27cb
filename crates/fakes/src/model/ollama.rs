//! Ollama's `/api/chat`: one JSON object per line, tool calls whole and without ids.

use bytes::Bytes;
use serde_json::{Value, json};

use super::answer::{Answer, Quirk, Usage, pieces};
use super::frame::StreamFrame;
use super::request::ChatRequest;

pub(crate) const KEEP_ALIVE: &str = "\n";

pub(crate) fn whole(request: &ChatRequest, answer: &Answer, usage: Usage) -> Value {
    let mut message = json!({"role": "assistant", "content": answer.text});
    if !answer.reasoning.is_empty() {
        message["thinking"] = answer.reasoning.as_str().into();
    }
    if !answer.tools.is_empty() {
        message["tool_calls"] = calls(answer);
    }
    last(request, answer, usage, message)
}

pub(crate) fn frames(request: &ChatRequest, answer: &Answer, usage: Usage) -> Vec<StreamFrame> {
    let delta = |message: Value| StreamFrame::Delta(line(&envelope(request, message, false)));
    let mut frames = Vec::new();
    for piece in pieces(&answer.reasoning, answer.chunks) {
        frames.push(delta(json!({"role": "assistant", "content": "", "thinking": piece})));
    }
    for piece in answer.pieces() {
        frames.push(delta(json!({"role": "assistant", "content": piece})));
    }
    if !answer.tools.is_empty() {
        frames.push(delta(json!({"role": "assistant", "content": "", "tool_calls": calls(answer)})));
    }
    if !answer.has(Quirk::NoDone) {
        let end = json!({"role": "assistant", "content": ""});
        frames.push(StreamFrame::Boundary(line(&last(request, answer, usage, end))));
    }
    frames
}

pub(crate) fn error(message: &str) -> Value {
    json!({"error": message})
}

pub(crate) fn error_event(message: &str) -> Bytes {
    line(&error(message))
}

pub(crate) fn models(names: &[String]) -> Value {
    json!({"models": names.iter().map(|name| json!({"name": name, "model": name})).collect::<Value>()})
}

fn calls(answer: &Answer) -> Value {
    let call = |tool: &super::ToolCall| json!({"function": {"name": tool.name, "arguments": tool.arguments}});
    answer.tools.iter().map(call).collect()
}

fn last(request: &ChatRequest, answer: &Answer, usage: Usage, message: Value) -> Value {
    let mut body = envelope(request, message, true);
    // Tool calls end with "stop" here.
    body["done_reason"] = match answer.finish_reason() {
        "tool_calls" => "stop".into(),
        other => other.into(),
    };
    body["total_duration"] = 1_000_000.into();
    if !answer.has(Quirk::NoUsage) {
        body["prompt_eval_count"] = usage.input.into();
        body["eval_count"] = usage.output.into();
    }
    body
}

fn envelope(request: &ChatRequest, message: Value, done: bool) -> Value {
    json!({
        "model": request.model, "created_at": "2026-01-01T00:00:00Z", "message": message, "done": done,
    })
}

fn line(body: &Value) -> Bytes {
    format!("{body}\n").into()
}
