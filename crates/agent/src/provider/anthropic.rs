//! Anthropic messages.

use serde_json::{Value, json};

use super::draft::Part;
use super::{Draft, Prompt};
use crate::hygiene::Item;
use crate::pictures::Pictures;
use crate::request::Finish;

/// The protocol wants a limit; this one every current model grants.
const OUTPUT: u32 = 8192;
/// Cache marks on messages, besides the one on the system text: four in all are allowed.
const MARKS: usize = 3;

pub(super) fn request(prompt: &Prompt<'_>) -> Value {
    let mut body = json!({
        "model": prompt.model,
        "max_tokens": prompt.max_output.unwrap_or(OUTPUT),
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

fn messages(items: &[Item], pictures: &Pictures) -> Vec<Value> {
    let mut messages: Vec<(&str, Vec<Value>)> = Vec::new();
    for item in items {
        let (role, blocks) = blocks(item, pictures);
        match messages.last_mut() {
            // Results and the words after them are one message of the user.
            Some((last, open)) if *last == role => open.extend(blocks),
            Some(_) | None => messages.push((role, blocks)),
        }
    }
    for (_, blocks) in messages.iter_mut().rev().take(MARKS) {
        if let Some(last) = blocks.last_mut() {
            last["cache_control"] = json!({"type": "ephemeral"});
        }
    }
    messages.into_iter().map(|(role, blocks)| json!({"role": role, "content": blocks})).collect()
}

fn blocks(item: &Item, known: &Pictures) -> (&'static str, Vec<Value>) {
    match item {
        Item::User { text, pictures } => {
            // A picture is best understood when it comes before the words about it.
            let shown = known.shown(pictures).map(|(mime, data)| {
                json!({"type": "image", "source": {"type": "base64", "media_type": mime, "data": data}})
            });
            ("user", shown.chain([json!({"type": "text", "text": text})]).collect())
        }
        Item::Result { id, content, .. } => {
            ("user", vec![json!({"type": "tool_result", "tool_use_id": plain(id), "content": content})])
        }
        Item::Assistant { text, calls } => {
            let mut blocks = Vec::new();
            if !text.trim().is_empty() {
                // White space at the end of an assistant's text is refused.
                blocks.push(json!({"type": "text", "text": text.trim_end()}));
            }
            blocks.extend(calls.iter().map(
                |call| json!({"type": "tool_use", "id": plain(&call.id), "name": call.name, "input": call.arguments}),
            ));
            ("assistant", blocks)
        }
    }
}

/// An id that another provider made, in the letters allowed here.
fn plain(id: &str) -> String {
    id.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect()
}

pub(super) fn absorb(draft: &mut Draft, event: &Value) {
    match event["type"].as_str().unwrap_or_default() {
        "message_start" => {
            draft.named(&event["message"]["model"]);
            count(draft, &event["message"]["usage"]);
        }
        "content_block_start" => start(draft, event["index"].as_u64(), &event["content_block"]),
        "content_block_delta" => delta(draft, event["index"].as_u64(), &event["delta"]),
        "message_delta" => {
            count(draft, &event["usage"]);
            stop(draft, &event["delta"]["stop_reason"]);
        }
        "message_stop" => draft.close(),
        // An answer that was not streamed.
        "message" => {
            draft.named(&event["model"]);
            count(draft, &event["usage"]);
            for (index, block) in event["content"].as_array().into_iter().flatten().enumerate() {
                start(draft, Some(index as u64), block);
            }
            stop(draft, &event["stop_reason"]);
        }
        // `ping`, `content_block_stop` and whatever comes next.
        _ => {}
    }
}

fn start(draft: &mut Draft, index: Option<u64>, block: &Value) {
    match block["type"].as_str().unwrap_or_default() {
        "text" => draft.say(block["text"].as_str().unwrap_or_default()),
        "tool_use" => {
            // A streamed call starts with an empty object and gets its input in pieces.
            let input =
                block.get("input").filter(|input| input.as_object().is_some_and(|map| !map.is_empty()));
            draft.call(&Part {
                index,
                id: block["id"].as_str(),
                name: block["name"].as_str(),
                arguments: input,
            });
        }
        "thinking" | "redacted_thinking" => draft.reason(),
        _ => {}
    }
}

fn delta(draft: &mut Draft, index: Option<u64>, delta: &Value) {
    match delta["type"].as_str().unwrap_or_default() {
        "text_delta" => draft.say(delta["text"].as_str().unwrap_or_default()),
        "input_json_delta" => {
            draft.call(&Part { index, arguments: delta.get("partial_json"), ..Part::default() });
        }
        "thinking_delta" => draft.reason(),
        _ => {}
    }
}

fn stop(draft: &mut Draft, reason: &Value) {
    let Some(reason) = reason.as_str() else { return };
    draft.finish = Some(match reason {
        "end_turn" | "stop_sequence" => Finish::Stop,
        "max_tokens" | "model_context_window_exceeded" => Finish::Length,
        "tool_use" => Finish::Calls,
        "refusal" => Finish::Filtered,
        _ => Finish::Other,
    });
    draft.flush();
}

/// Counts are totals: the last word wins.
fn count(draft: &mut Draft, usage: &Value) {
    let mut set = |place: fn(&mut petasos_core::transcript::Usage) -> &mut u64, name: &str| {
        if let Some(count) = usage[name].as_u64() {
            *place(&mut draft.usage) = count;
        }
    };
    set(|usage| &mut usage.input, "input_tokens");
    set(|usage| &mut usage.output, "output_tokens");
    set(|usage| &mut usage.cache_read, "cache_read_input_tokens");
    set(|usage| &mut usage.cache_write, "cache_creation_input_tokens");
}
