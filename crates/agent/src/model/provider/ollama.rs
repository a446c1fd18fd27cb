//! Ollama's native chat protocol: one JSON object per line, tool calls unsplit.

use serde_json::{Value, json};

use super::draft::CallDelta;
use super::{Prompt, ResponseDraft};
use crate::conversation::normalise::ConversationItem;
use crate::conversation::pictures::Pictures;
use crate::model::request::FinishReason;

pub(super) fn request(prompt: &Prompt<'_>) -> Value {
    let mut body = json!({
        "model": prompt.model,
        "messages": prompt.chat_messages(message),
        "stream": true,
        "options": {"num_ctx": prompt.context},
    });
    if let Some(limit) = prompt.max_output {
        body["options"]["num_predict"] = limit.into();
    }
    prompt.put_functions(&mut body);
    body
}

fn message(item: &ConversationItem, available: &Pictures) -> Value {
    match item {
        ConversationItem::User { text, pictures } => {
            let mut message = json!({"role": "user", "content": text});
            let shown: Vec<&str> = available.loaded(pictures).map(|(_, data)| data).collect();
            if !shown.is_empty() {
                message["images"] = shown.into();
            }
            message
        }
        ConversationItem::Result { name, content, .. } => {
            json!({"role": "tool", "tool_name": name, "content": content})
        }
        ConversationItem::Assistant { text, calls } => {
            let calls: Vec<Value> = calls
                .iter()
                .map(|call| json!({"function": {"name": call.name, "arguments": call.arguments}}))
                .collect();
            let mut message = json!({"role": "assistant", "content": text});
            if !calls.is_empty() {
                message["tool_calls"] = calls.into();
            }
            message
        }
    }
}

pub(super) fn apply_event(draft: &mut ResponseDraft, event: &Value) {
    draft.set_model(&event["model"]);
    let message = &event["message"];
    if message["thinking"].as_str().is_some_and(|text| !text.is_empty()) {
        draft.push_reasoning();
    }
    draft.push_text(message["content"].as_str().unwrap_or_default());
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        // Every entry is a complete call; its position separates two calls of the same tool.
        let index = Some(draft.calls.len() as u64);
        let function = &call["function"];
        draft.push_call(&CallDelta {
            index,
            id: call["id"].as_str(),
            name: function["name"].as_str(),
            arguments: function.get("arguments"),
        });
    }
    if event["done"] != true {
        return;
    }
    draft.usage.input = event["prompt_eval_count"].as_u64().unwrap_or_default();
    draft.usage.output = event["eval_count"].as_u64().unwrap_or_default();
    draft.finish = Some(match event["done_reason"].as_str() {
        Some("stop") | None => FinishReason::Stop,
        Some("length") => FinishReason::Length,
        Some(_) => FinishReason::Other,
    });
    draft.close();
}
