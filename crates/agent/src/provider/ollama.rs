//! Ollama's own chat protocol: one JSON object per line, tool calls in one piece.

use serde_json::{Value, json};

use super::draft::Part;
use super::{Draft, Prompt};
use crate::hygiene::Item;
use crate::pictures::Pictures;
use crate::request::Finish;

pub(super) fn request(prompt: &Prompt<'_>) -> Value {
    let mut messages = Vec::new();
    if !prompt.system.is_empty() {
        messages.push(json!({"role": "system", "content": prompt.system}));
    }
    messages.extend(prompt.items.iter().map(|item| message(item, prompt.pictures)));
    let mut body = json!({
        "model": prompt.model,
        "messages": messages,
        "stream": true,
        "options": {"num_ctx": prompt.context},
    });
    if let Some(limit) = prompt.max_output {
        body["options"]["num_predict"] = limit.into();
    }
    if !prompt.tools.is_empty() {
        let tools = prompt.tools.iter().map(|tool| {
            json!({"type": "function", "function": {
                "name": tool.name, "description": tool.description, "parameters": tool.parameters,
            }})
        });
        body["tools"] = tools.collect();
    }
    body
}

fn message(item: &Item, known: &Pictures) -> Value {
    match item {
        Item::User { text, pictures } => {
            let mut message = json!({"role": "user", "content": text});
            let shown: Vec<&str> = known.shown(pictures).map(|(_, data)| data).collect();
            if !shown.is_empty() {
                message["images"] = shown.into();
            }
            message
        }
        Item::Result { name, content, .. } => json!({"role": "tool", "tool_name": name, "content": content}),
        Item::Assistant { text, calls } => {
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

pub(super) fn absorb(draft: &mut Draft, event: &Value) {
    draft.named(&event["model"]);
    let message = &event["message"];
    if message["thinking"].as_str().is_some_and(|text| !text.is_empty()) {
        draft.reason();
    }
    draft.say(message["content"].as_str().unwrap_or_default());
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        // Every entry is a whole call; its place keeps two calls of one tool apart.
        let index = Some(draft.calls.len() as u64);
        let function = &call["function"];
        draft.call(&Part {
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
        Some("stop") | None => Finish::Stop,
        Some("length") => Finish::Length,
        Some(_) => Finish::Other,
    });
    draft.close();
}
