//! Anthropic messages API.

use serde_json::{Value, json};

use super::draft::CallDelta;
use super::{Prompt, ResponseDraft};
use crate::conversation::normalise::ConversationItem;
use crate::conversation::pictures::Pictures;
use crate::model::request::FinishReason;

/// The API requires a limit; every current model accepts this one.
const DEFAULT_OUTPUT: u32 = 8192;
/// Cache breakpoints on messages, besides the one on the system prompt; the API allows four in all.
const CACHE_BREAKPOINTS: usize = 3;

pub(super) fn request(prompt: &Prompt<'_>) -> Value {
    let mut body = json!({
        "model": prompt.model,
        "max_tokens": prompt.max_output.unwrap_or(DEFAULT_OUTPUT),
        "messages": messages(prompt.items, prompt.pictures),
        "stream": true,
    });
    if !prompt.system.is_empty() {
        body["system"] =
            json!([{"type": "text", "text": prompt.system, "cache_control": {"type": "ephemeral"}}]);
    }
    if !prompt.tools.is_empty() {
        let tools = prompt.tools.iter().map(|tool| {
            json!({"name": tool.name, "description": tool.description, "input_schema": tool.parameters})
        });
        body["tools"] = tools.collect();
    }
    body
}

fn messages(items: &[ConversationItem], pictures: &Pictures) -> Vec<Value> {
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::new();
    for item in items {
        let (role, blocks) = blocks(item, pictures);
        match messages.last_mut() {
            // Tool results and the user text after them form one user message.
            Some((last, open)) if *last == role => open.extend(blocks),
            Some(_) | None => messages.push((role, blocks)),
        }
    }
    for (_, blocks) in messages.iter_mut().rev().take(CACHE_BREAKPOINTS) {
        if let Some(last) = blocks.last_mut() {
            last["cache_control"] = json!({"type": "ephemeral"});
        }
    }
    messages.into_iter().map(|(role, blocks)| json!({"role": role, "content": blocks})).collect()
}

fn blocks(item: &ConversationItem, available: &Pictures) -> (&'static str, Vec<Value>) {
    match item {
        ConversationItem::User { text, pictures } => {
            // Anthropic recommends pictures before the text about them.
            let shown = available.loaded(pictures).map(|(mime, data)| {
                json!({"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}})
            });
            ("user", shown.chain([json!({"type": "text", "text": text})]).collect())
        }
        ConversationItem::Result { id, content, .. } => {
            ("user", vec![json!({"type": "tool_result", "tool_use_id": sanitise_id(id), "content": content})])
        }
        ConversationItem::Assistant { text, calls } => {
            let mut blocks = Vec::new();
            if !text.trim().is_empty() {
                // The API rejects trailing white space in assistant text.
                blocks.push(json!({"type": "text", "text": text.trim_end()}));
            }
            blocks.extend(calls.iter().map(
                |call| json!({"type": "tool_use", "id": sanitise_id(&call.id), "name": call.name, "input": call.arguments}),
            ));
            ("assistant", blocks)
        }
    }
}

/// Replaces characters that this API does not allow in call ids; ids may come from another provider.
fn sanitise_id(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect()
}

pub(super) fn apply_event(draft: &mut ResponseDraft, event: &Value) {
    match event["type"].as_str().unwrap_or_default() {
        "message_start" => {
            draft.set_model(&event["message"]["model"]);
            count(draft, &event["message"]["usage"]);
        }
        "content_block_start" => start(draft, event["index"].as_u64(), &event["content_block"]),
        "content_block_delta" => delta(draft, event["index"].as_u64(), &event["delta"]),
        "message_delta" => {
            count(draft, &event["usage"]);
            stop(draft, &event["delta"]["stop_reason"]);
        }
        "message_stop" => draft.close(),
        "message" => {
            draft.set_model(&event["model"]);
            count(draft, &event["usage"]);
            for (index, block) in event["content"].as_array().into_iter().flatten().enumerate() {
                start(draft, Some(index as u64), block);
            }
            stop(draft, &event["stop_reason"]);
        }
        // `ping`, `content_block_stop` and event types added later.
        _ => {}
    }
}

fn start(draft: &mut ResponseDraft, index: Option<u64>, block: &Value) {
    match block["type"].as_str().unwrap_or_default() {
        "text" => draft.push_text(block["text"].as_str().unwrap_or_default()),
        "tool_use" => {
            // A streamed call starts with an empty object; its input follows in deltas.
            let input =
                block.get("input").filter(|input| input.as_object().is_some_and(|map| !map.is_empty()));
            draft.push_call(&CallDelta {
                index,
                id: block["id"].as_str(),
                name: block["name"].as_str(),
                arguments: input,
            });
        }
        "thinking" | "redacted_thinking" => draft.push_reasoning(),
        _ => {}
    }
}

fn delta(draft: &mut ResponseDraft, index: Option<u64>, delta: &Value) {
    match delta["type"].as_str().unwrap_or_default() {
        "text_delta" => draft.push_text(delta["text"].as_str().unwrap_or_default()),
        "input_json_delta" => {
            draft.push_call(&CallDelta {
                index,
                arguments: delta.get("partial_json"),
                ..CallDelta::default()
            });
        }
        "thinking_delta" => draft.push_reasoning(),
        _ => {}
    }
}

fn stop(draft: &mut ResponseDraft, reason: &Value) {
    let Some(reason) = reason.as_str() else { return };
    draft.finish = Some(match reason {
        "end_turn" | "stop_sequence" => FinishReason::Stop,
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "tool_use" => FinishReason::Calls,
        "refusal" => FinishReason::Filtered,
        _ => FinishReason::Other,
    });
    draft.flush();
}

/// Counts are cumulative: the last value replaces earlier ones.
fn count(draft: &mut ResponseDraft, usage: &Value) {
    let mut set = |field: fn(&mut petasos_core::transcript::Usage) -> &mut u64, name: &str| {
        if let Some(count) = usage[name].as_u64() {
            *field(&mut draft.usage) = count;
        }
    };
    set(|usage| &mut usage.input, "input_tokens");
    set(|usage| &mut usage.output, "output_tokens");
    set(|usage| &mut usage.cache_read, "cache_read_input_tokens");
    set(|usage| &mut usage.cache_write, "cache_creation_input_tokens");
}
