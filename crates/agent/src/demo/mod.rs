//! The demo model: a script, so that everything else can be tried without a key or a network.
//!
//! Pure and deterministic: an answer follows from the conversation alone. It says what it is in its first
//! answer. `script.txt` holds what it knows by heart; the code only finds things in it, calculates,
//! remembers names and asks for tools.

mod arithmetic;
mod script;
mod tools;

use std::time::Duration;

use petasos_core::transcript::{Message, Role};
use serde_json::Value;

use crate::provider::{Draft, Part};
use crate::request::{Chunk, Finish, Request};

const LABEL: &str = "*I am the built-in demo model: scripted, offline, no key needed.*";
const COUNT: u32 = 500;

/// What the demo model does next.
#[derive(Debug, PartialEq)]
pub(crate) enum Say {
    Text(String),
    Call { name: &'static str, arguments: Value },
}

/// Answers word by word.
pub(crate) async fn stream(
    request: &Request,
    delay: Duration,
    draft: &mut Draft,
    chunks: &mut (dyn FnMut(Chunk) + Send),
) {
    draft.model = Some("demo".to_owned());
    match reply(&request.messages, |name| request.tools.iter().any(|tool| tool.name == name)) {
        Say::Call { name, arguments } => {
            draft.call(&Part { index: Some(0), id: None, name: Some(name), arguments: Some(&arguments) });
            draft.finish = Some(Finish::Calls);
        }
        Say::Text(text) => {
            for word in text.split_inclusive([' ', '\n']) {
                draft.say(word);
                draft.fresh().for_each(&mut *chunks);
                draft.usage.output += 1;
                if !delay.is_zero() {
                    tokio::time::sleep(delay).await;
                }
            }
            draft.finish = Some(Finish::Stop);
        }
    }
    draft.usage.input = request.messages.iter().map(|message| crate::history::estimate(message) as u64).sum();
}

pub(crate) fn reply(messages: &[Message], has: impl Fn(&str) -> bool) -> Say {
    let rows: Vec<&Message> =
        messages.iter().filter(|row| !matches!(row.role, Role::Notice | Role::Summary)).collect();
    let Some(asked) = rows.iter().rposition(|row| row.role == Role::User) else {
        return Say::Text(introduce(fallback(), &rows));
    };
    let words = rows[asked].content.trim();
    let results: Vec<&Message> = rows[asked..].iter().copied().filter(|row| row.role == Role::Tool).collect();
    if !results.is_empty() {
        return Say::Text(introduce(tools::report(&results), &rows));
    }
    let text = match tools::wanted(words) {
        Some(Say::Call { name, arguments }) if has(name) => return Say::Call { name, arguments },
        Some(Say::Call { name, .. }) => {
            format!("I would use the tool `{name}` for that, but it is not available here.")
        }
        Some(Say::Text(text)) => text,
        None => converse(words, &rows[..asked]),
    };
    Say::Text(introduce(text, &rows))
}

fn converse(words: &str, before: &[&Message]) -> String {
    let plain = script::normalise(words);
    if let Some(text) = remember(words, &plain, before) {
        return text;
    }
    if let Some(result) = arithmetic::answer(words) {
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

/// The label goes before the first text of a conversation.
fn introduce(text: String, rows: &[&Message]) -> String {
    let first = !rows.iter().any(|row| row.role == Role::Assistant && !row.content.trim().is_empty());
    if first { format!("{LABEL}\n\n{text}") } else { text }
}

fn remember(words: &str, plain: &str, before: &[&Message]) -> Option<String> {
    if let Some(name) = told_name(words) {
        return Some(format!("Nice to meet you, {name}! I will remember it in this conversation."));
    }
    let asks = |phrases: &[&str]| phrases.iter().any(|phrase| plain.contains(phrase));
    let said = |told: fn(&str) -> Option<String>| {
        before.iter().rev().filter(|row| row.role == Role::User).find_map(|row| told(&row.content))
    };
    if asks(&["what is my name", "what s my name", "who am i", "my name again", "remember my name"]) {
        return Some(match said(told_name) {
            Some(name) => format!("Your name is {name}."),
            None => "You have not told me yet. Say `my name is …`.".to_owned(),
        });
    }
    if asks(&["what did i ask you to remember", "what did i tell you", "what do you remember"]) {
        return Some(match said(told_fact) {
            Some(fact) => format!("You asked me to remember this: {fact}"),
            None => "Nothing yet. Say `remember that …`.".to_owned(),
        });
    }
    told_fact(words).map(|fact| format!("I will remember: {fact}"))
}

fn told_name(words: &str) -> Option<String> {
    let found =
        captures(r"\b(?i:my name is|call me|i am called)\s+(\w[\w'’-]*(?:\s+[A-Z][\w'’-]*)?)", words)?;
    (!words.contains('?')).then(|| found[0].clone())
}

fn told_fact(words: &str) -> Option<String> {
    let found = captures(r"(?is)^(?:please )?remember (?:that |this: ?)?(.+)$", words.trim())?;
    Some(found[0].trim().to_owned())
}

fn counting(plain: &str) -> Option<u32> {
    let number: u32 = captures(r"\bcount (?:up )?(?:from 1 )?to (\d{1,9})\b", plain)?[0].parse().ok()?;
    (number > 0).then_some(number.min(COUNT))
}

/// The groups of the first match.
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
