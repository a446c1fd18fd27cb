//! Anthropic's `/v1/messages`, with the real order of events.

use bytes::Bytes;
use serde_json::{Value, json};

use super::answer::{Answer, Quirk, Usage, pieces};
use super::frame::StreamFrame;
use super::request::ChatRequest;

pub(crate) const KEEP_ALIVE: &str = "event: ping\ndata: {\"type\": \"ping\"}\n\n";

pub(crate) fn whole(request: &ChatRequest, answer: &Answer, usage: Usage) -> Value {
    let mut content = Vec::new();
    if !answer.reasoning.is_empty() {
        content.push(json!({"type": "thinking", "thinking": answer.reasoning, "signature": "c2ln"}));
    }
    if !answer.text.is_empty() {
        content.push(json!({"type": "text", "text": answer.text}));
    }
    for tool in &answer.tools {
        let id = &tool.id;
        let name = &tool.name;
        let input = &tool.arguments;
        content.push(json!({"type": "tool_use", "id": id, "name": name, "input": input}));
    }
    let mut body = message(request, usage);
    body["content"] = content.into();
    body["stop_reason"] = stop_reason(answer).into();
    body["usage"]["output_tokens"] = usage.output.into();
    body
}

pub(crate) fn frames(request: &ChatRequest, answer: &Answer, usage: Usage) -> Vec<StreamFrame> {
    let start = json!({"type": "message_start", "message": message(request, usage)});
    let mut frames = vec![boundary(&start)];
    for (index, block) in blocks(answer).into_iter().enumerate() {
        let Block { start, deltas } = block;
        frames
            .push(boundary(&json!({"type": "content_block_start", "index": index, "content_block": start})));
        if index == 0 {
            frames.push(boundary(&json!({"type": "ping"})));
        }
        for delta in deltas {
            let delta = json!({"type": "content_block_delta", "index": index, "delta": delta});
            frames.push(StreamFrame::Delta(event(&delta)));
        }
        frames.push(boundary(&json!({"type": "content_block_stop", "index": index})));
    }
    let mut end = json!({
        "type": "message_delta",
        "delta": {"stop_reason": stop_reason(answer), "stop_sequence": null},
    });
    if !answer.has(Quirk::NoUsage) {
        end["usage"] = json!({"output_tokens": usage.output});
    }
    frames.push(boundary(&end));
    if !answer.has(Quirk::NoDone) {
        frames.push(boundary(&json!({"type": "message_stop"})));
    }
    frames
}

pub(crate) fn error(code: u16, message: &str) -> Value {
    let kind = match code {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": message}})
}

pub(crate) fn error_event(message: &str) -> Bytes {
    event(&error(529, message))
}

struct Block {
    start: Value,
    deltas: Vec<Value>,
}

fn blocks(answer: &Answer) -> Vec<Block> {
    let mut blocks = Vec::new();
    if !answer.reasoning.is_empty() {
        let thoughts = pieces(&answer.reasoning, answer.chunks).into_iter();
        let thoughts = thoughts.map(|piece| json!({"type": "thinking_delta", "thinking": piece}));
        let signature = json!({"type": "signature_delta", "signature": "c2ln"});
        blocks.push(Block {
            start: json!({"type": "thinking", "thinking": "", "signature": ""}),
            deltas: thoughts.chain([signature]).collect(),
        });
    }
    if !answer.text.is_empty() {
        let texts = answer.pieces().into_iter().map(|piece| json!({"type": "text_delta", "text": piece}));
        blocks.push(Block { start: json!({"type": "text", "text": ""}), deltas: texts.collect() });
    }
    for tool in &answer.tools {
        let input = tool.arguments.to_string();
        let parts = std::iter::once("").chain(pieces(&input, 2));
        blocks.push(Block {
            start: json!({"type": "tool_use", "id": tool.id, "name": tool.name, "input": {}}),
            deltas: parts.map(|part| json!({"type": "input_json_delta", "partial_json": part})).collect(),
        });
    }
    blocks
}

fn message(request: &ChatRequest, usage: Usage) -> Value {
    json!({
        "id": format!("msg_{}", request.number),
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": {"input_tokens": usage.input, "output_tokens": 1},
    })
}

fn stop_reason(answer: &Answer) -> &str {
    match answer.finish_reason() {
        "stop" => "end_turn",
        "length" => "max_tokens",
        "tool_calls" => "tool_use",
        "content_filter" => "refusal",
        other => other,
    }
}

fn boundary(body: &Value) -> StreamFrame {
    StreamFrame::Boundary(event(body))
}

fn event(body: &Value) -> Bytes {
    let kind = body["type"].as_str().unwrap_or_default();
    format!("event: {kind}\ndata: {body}\n\n").into()
}
