//! OpenAI's `/v1/chat/completions`, with the quirks of compatible servers.

use bytes::Bytes;
use serde_json::{Value, json};

use super::answer::{Answer, Quirk, ToolCall, Usage, pieces};
use super::frame::StreamFrame;
use super::request::ChatRequest;

pub(crate) const KEEP_ALIVE: &str = ": keep-alive\n\n";

pub(crate) fn whole(request: &ChatRequest, answer: &Answer, usage: Usage) -> Value {
    let mut message = json!({"role": "assistant", "content": content(answer)});
    if !answer.reasoning.is_empty() {
        message["reasoning_content"] = answer.reasoning.as_str().into();
    }
    if !answer.tools.is_empty() {
        let calls = answer.tools.iter().enumerate().map(|(at, tool)| {
            let mut call = named(at, tool, answer);
            call["function"]["arguments"] = arguments(tool, answer);
            call
        });
        message["tool_calls"] = calls.collect();
    }
    let mut body = envelope(request, "chat.completion");
    body["choices"] = json!([{
        "index": 0, "message": message, "logprobs": null, "finish_reason": answer.finish_reason(),
    }]);
    if !answer.has(Quirk::NoUsage) {
        body["usage"] = wire_usage(usage);
    }
    body
}

pub(crate) fn frames(request: &ChatRequest, answer: &Answer, usage: Usage) -> Vec<StreamFrame> {
    let chunk = |delta: Value, finish: Option<&str>| {
        let mut body = envelope(request, "chat.completion.chunk");
        body["choices"] = json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]);
        event(&body)
    };
    let mut frames = vec![StreamFrame::Boundary(chunk(json!({"role": "assistant", "content": ""}), None))];
    for piece in pieces(&answer.reasoning, answer.chunks) {
        frames.push(StreamFrame::Delta(chunk(json!({"reasoning_content": piece}), None)));
    }
    for piece in answer.pieces() {
        frames.push(StreamFrame::Delta(chunk(json!({"content": piece}), None)));
    }
    for call in tool_deltas(answer) {
        frames.push(StreamFrame::Delta(chunk(json!({"tool_calls": [call]}), None)));
    }
    frames.push(StreamFrame::Boundary(chunk(json!({}), Some(answer.finish_reason()))));
    if request.wants_usage && !answer.has(Quirk::NoUsage) {
        let mut body = envelope(request, "chat.completion.chunk");
        body["choices"] = json!([]);
        body["usage"] = wire_usage(usage);
        frames.push(StreamFrame::Boundary(event(&body)));
    }
    if !answer.has(Quirk::NoDone) {
        frames.push(StreamFrame::Boundary(Bytes::from_static(b"data: [DONE]\n\n")));
    }
    frames
}

pub(crate) fn error(code: u16, message: &str) -> Value {
    let kind = match code {
        401 | 403 => "authentication_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": null}})
}

pub(crate) fn error_event(message: &str) -> Bytes {
    event(&error(500, message))
}

pub(crate) fn models(names: &[String]) -> Value {
    let data =
        names.iter().map(|name| json!({"id": name, "object": "model", "created": 0, "owned_by": "fake"}));
    json!({"object": "list", "data": data.collect::<Value>()})
}

fn envelope(request: &ChatRequest, object: &str) -> Value {
    let id = format!("chatcmpl-{}", request.number);
    json!({"id": id, "object": object, "created": 1_700_000_000, "model": request.model})
}

fn content(answer: &Answer) -> Option<&str> {
    (answer.tools.is_empty() || !answer.text.is_empty()).then_some(&answer.text)
}

fn wire_usage(usage: Usage) -> Value {
    let Usage { input, output } = usage;
    json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output})
}

/// The name first, then the arguments in two pieces; without `index`, each call in one piece.
fn tool_deltas(answer: &Answer) -> Vec<Value> {
    let mut parts: Vec<Vec<Value>> =
        answer.tools.iter().enumerate().map(|(at, tool)| tool_parts(at, tool, answer)).collect();
    if !answer.has(Quirk::InterleavedTools) {
        return parts.concat();
    }
    let longest = parts.iter().map(Vec::len).max().unwrap_or(0);
    let mut mixed = Vec::new();
    for _round in 0..longest {
        for part in parts.iter_mut().filter(|part| !part.is_empty()) {
            mixed.push(part.remove(0));
        }
    }
    mixed
}

fn tool_parts(at: usize, tool: &ToolCall, answer: &Answer) -> Vec<Value> {
    let mut first = named(at, tool, answer);
    if answer.has(Quirk::NoToolIndex) || answer.has(Quirk::ArgumentsAsObject) {
        first["function"]["arguments"] = arguments(tool, answer);
        return vec![first];
    }
    first["index"] = at.into();
    first["function"]["arguments"] = "".into();
    let text = tool.arguments.to_string();
    let rest =
        pieces(&text, 2).into_iter().map(|piece| json!({"index": at, "function": {"arguments": piece}}));
    std::iter::once(first).chain(rest).collect()
}

fn named(at: usize, tool: &ToolCall, answer: &Answer) -> Value {
    let mut call = json!({"id": tool.id, "type": "function", "function": {"name": tool.name}});
    if !answer.has(Quirk::NoToolIndex) {
        call["index"] = at.into();
    }
    call
}

fn arguments(tool: &ToolCall, answer: &Answer) -> Value {
    if answer.has(Quirk::ArgumentsAsObject) {
        return tool.arguments.clone();
    }
    tool.arguments.to_string().into()
}

fn event(body: &Value) -> Bytes {
    format!("data: {body}\n\n").into()
}
