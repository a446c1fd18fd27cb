//! The demo model: scripted, so that everything else can be tried without a key or a network.
//!
//! Pure and deterministic: a response depends on the conversation alone. The first one says what the model
//! is. `script.txt` contains prepared texts; the code searches them, calculates, remembers names and calls
//! tools.

mod arithmetic;
mod script;
mod tools;

use std::time::Duration;

use petasos_core::transcript::{Message, Role};
use petasos_runtime::clock;
use serde_json::Value;

use crate::model::provider::{CallDelta, ResponseDraft};
use crate::model::request::{Chunk, FinishReason, ModelRequest};

const LABEL: &str = "*I am the built-in demo model: scripted, offline, no key needed.*";
const COUNT: u32 = 500;

#[derive(Debug, PartialEq)]
pub(crate) enum DemoAction {
    Text(String),
    Call { name: &'static str, arguments: Value },
}

/// Streams the response word by word.
pub(crate) async fn stream(
    request: &ModelRequest,
    delay: Duration,
    draft: &mut ResponseDraft,
    chunks: &mut (dyn FnMut(Chunk) + Send),
) {
    draft.model = Some("demo".to_owned());
    match reply(&request.messages, |name| request.tools.iter().any(|tool| tool.name == name)) {
        DemoAction::Call { name, arguments } => {
            draft.push_call(&CallDelta {
                index: Some(0),
                id: None,
                name: Some(name),
                arguments: Some(&arguments),
            });
            draft.finish = Some(FinishReason::Calls);
        }
        DemoAction::Text(text) => {
            for word in text.split_inclusive([' ', '\n']) {
                draft.push_text(word);
                draft.take_chunks().for_each(&mut *chunks);
                draft.usage.output += 1;
                if !delay.is_zero() {
                    clock::sleep(delay).await;
                }
            }
            draft.finish = Some(FinishReason::Stop);
        }
    }
    draft.usage.input = request
        .messages
        .iter()
        .map(|message| crate::conversation::history::estimate_tokens(message) as u64)
        .sum();
}

pub(crate) fn reply(messages: &[Message], has: impl Fn(&str) -> bool) -> DemoAction {
    let rows: Vec<&Message> =
        messages.iter().filter(|row| !matches!(row.role, Role::Notice | Role::Summary)).collect();
    let Some(question) = rows.iter().rposition(|row| row.role == Role::User) else {
        return DemoAction::Text(introduce(fallback(), &rows));
    };
    let words = rows[question].content.trim();
    let results: Vec<&Message> =
        rows[question..].iter().copied().filter(|row| row.role == Role::Tool).collect();
    if !results.is_empty() {
        return DemoAction::Text(introduce(tools::report(&results), &rows));
    }
    let text = match tools::wanted(words) {
        Some(DemoAction::Call { name, arguments }) if has(name) => {
            return DemoAction::Call { name, arguments };
        }
        Some(DemoAction::Call { name, .. }) => {
            format!("I would use the tool `{name}` for that, but it is not available here.")
        }
        Some(DemoAction::Text(text)) => text,
        None => converse(words, &rows[..question]),
    };
    DemoAction::Text(introduce(text, &rows))
}

fn converse(words: &str, before: &[&Message]) -> String {
    let plain = script::normalise(words);
    if let Some(text) = remember(words, &plain, before) {
        return text;
    }
    if let Some(result) = arithmetic::evaluate(words) {
        return result;
    }
    if let Some(number) = counting(&plain) {
        let numbers: Vec<String> = (1..=number).map(|n| n.to_string()).collect();
        return format!("{}. Done!", numbers.join(", "));
    }
    script::find(&plain).unwrap_or_else(fallback)
}

fn fallback() -> String {
    "I am only a small script, so I did not quite get that. I can chat a little, calculate, tell a story, show \
     markdown and use tools: say **help** for examples, or **model setup** to put a real model in my place."
        .to_owned()
}

/// Adds the label before the first text of a conversation.
fn introduce(text: String, rows: &[&Message]) -> String {
    let first = !rows.iter().any(|row| row.role == Role::Assistant && !row.content.trim().is_empty());
    if first { format!("{LABEL}\n\n{text}") } else { text }
}

fn remember(words: &str, plain: &str, before: &[&Message]) -> Option<String> {
    if let Some(name) = parse_name(words) {
        return Some(format!("Nice to meet you, {name}! I will remember it in this conversation."));
    }
    let asks = |phrases: &[&str]| phrases.iter().any(|phrase| plain.contains(phrase));
    let find_earlier = |parse: fn(&str) -> Option<String>| {
        before.iter().rev().filter(|row| row.role == Role::User).find_map(|row| parse(&row.content))
    };
    if asks(&["what is my name", "what s my name", "who am i", "my name again", "remember my name"]) {
        return Some(match find_earlier(parse_name) {
            Some(name) => format!("Your name is {name}."),
            None => "You have not told me yet. Say `my name is …`.".to_owned(),
        });
    }
    if asks(&["what did i ask you to remember", "what did i tell you", "what do you remember"]) {
        return Some(match find_earlier(parse_fact) {
            Some(fact) => format!("You asked me to remember this: {fact}"),
            None => "Nothing yet. Say `remember that …`.".to_owned(),
        });
    }
    parse_fact(words).map(|fact| format!("I will remember: {fact}"))
}

fn parse_name(words: &str) -> Option<String> {
    let found =
        captures(r"\b(?i:my name is|call me|i am called)\s+(\w[\w'’-]*(?:\s+[A-Z][\w'’-]*)?)", words)?;
    (!words.contains('?')).then(|| found[0].clone())
}

fn parse_fact(words: &str) -> Option<String> {
    let found = captures(r"(?is)^(?:please )?remember (?:that |this: ?)?(.+)$", words.trim())?;
    Some(found[0].trim().to_owned())
}

fn counting(plain: &str) -> Option<u32> {
    let number: u32 = captures(r"\bcount (?:up )?(?:from 1 )?to (\d{1,9})\b", plain)?[0].parse().ok()?;
    (number > 0).then_some(number.min(COUNT))
}

fn captures(pattern: &str, text: &str) -> Option<Vec<String>> {
    let pattern = regex::Regex::new(pattern).ok()?;
    let found = pattern.captures(text)?;
    Some(
        found
            .iter()
            .skip(1)
            .map(|group| group.map(|it| it.as_str().to_owned()).unwrap_or_default())
            .collect(),
    )
}

#[cfg(test)]
mod tests;
