//! OpenAI chat completions and compatible servers.

use petasos_core::Provider;
use petasos_core::transcript::Usage;
use serde_json::{Value, json};

use super::draft::CallDelta;
use super::{Prompt, ResponseDraft};
use crate::conversation::normalise::ConversationItem;
use crate::conversation::pictures::Pictures;
use crate::model::request::FinishReason;

pub(super) fn request(provider: Provider, prompt: &Prompt<'_>) -> Value {
    let mut body = json!({
        "model": prompt.model,
        "messages": prompt.chat_messages(message),
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    prompt.put_functions(&mut body);
    if let Some(limit) = prompt.max_output {
        let name = if provider == Provider::OpenAi { "max_completion_tokens" } else { "max_tokens" };
        body[name] = limit.into();
    }
    if provider == Provider::OpenAi {
        body["prompt_cache_key"] = prompt.session.into();
    }
    if let Some(routing) = prompt.routing {
        body["provider"] = routing.clone();
    }
    body
}

fn message(item: &ConversationItem, available: &Pictures) -> Value {
    match item {
        ConversationItem::User { text, pictures } => {
            let shown = available.loaded(pictures).map(|(mime, data)| {
                json!({"type": "image_url", "image_url": {"url": format!("data:{mime};base64,{data}")}})
            });
            let mut parts: Vec<Value> = shown.collect();
            if parts.is_empty() {
                return json!({"role": "user", "content": text});
            }
            parts.insert(0, json!({"type": "text", "text": text}));
            json!({"role": "user", "content": parts})
        }
        ConversationItem::Assistant { text, calls } if calls.is_empty() => {
            json!({"role": "assistant", "content": text})
        }
        ConversationItem::Assistant { text, calls } => {
            let calls: Value = calls
                .iter()
                .map(|call| {
                    let arguments = Value::Object(call.arguments.clone()).to_string();
                    json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
                })
                .collect();
            let text = if text.is_empty() { Value::Null } else { text.as_str().into() };
            json!({"role": "assistant", "content": text, "tool_calls": calls})
        }
        ConversationItem::Result { id, content, .. } => {
            json!({"role": "tool", "tool_call_id": id, "content": content})
        }
    }
}

pub(super) fn apply_event(draft: &mut ResponseDraft, event: &Value) {
    draft.set_model(&event["model"]);
    if event["usage"].is_object() {
        draft.usage = usage(&event["usage"]);
    }
    let choice = &event["choices"][0];
    // A server that does not stream sends `message` instead of `delta`.
    let delta = if choice["delta"].is_object() { &choice["delta"] } else { &choice["message"] };
    let thoughts = [&delta["reasoning_content"], &delta["reasoning"]];
    if thoughts.into_iter().any(|thought| thought.as_str().is_some_and(|text| !text.is_empty())) {
        draft.push_reasoning();
    }
    for text in [&delta["content"], &delta["refusal"]].into_iter().filter_map(Value::as_str) {
        draft.push_text(text);
    }
    // Mistral and some others send content as a list of parts.
    for part in delta["content"].as_array().into_iter().flatten() {
        draft.push_text(part["text"].as_str().unwrap_or_default());
    }
    for call in delta["tool_calls"].as_array().into_iter().flatten() {
        draft.push_call(&CallDelta {
            index: call["index"].as_u64(),
            id: call["id"].as_str(),
            name: call["function"]["name"].as_str(),
            arguments: call["function"].get("arguments"),
        });
    }
    if let Some(reason) = choice["finish_reason"].as_str() {
        draft.finish = Some(finish(reason));
        draft.flush();
    }
}

fn finish(reason: &str) -> FinishReason {
    match reason {
        "stop" | "eos" | "end_turn" => FinishReason::Stop,
        "length" | "max_tokens" => FinishReason::Length,
        "tool_calls" | "function_call" => FinishReason::Calls,
        "content_filter" => FinishReason::Filtered,
        _ => FinishReason::Other,
    }
}

fn usage(event: &Value) -> Usage {
    let count = |value: &Value| value.as_u64().unwrap_or_default();
    let cached = count(&event["prompt_tokens_details"]["cached_tokens"]);
    Usage {
        input: count(&event["prompt_tokens"]).saturating_sub(cached),
        output: count(&event["completion_tokens"]),
        cache_read: cached,
        cache_write: 0,
    }
}
