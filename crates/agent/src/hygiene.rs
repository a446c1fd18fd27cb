//! From a stored transcript to a sequence every provider accepts: roles alternate, and every tool call
//! has exactly one result, right behind it.

use petasos_core::transcript::{EffectState, Message, Picture, Role, ToolCall};
use serde_json::{Map, Value};

/// One entry of a conversation on its way to a provider.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Item {
    User { text: String, pictures: Vec<Picture> },
    Assistant { text: String, calls: Vec<Call> },
    Result { id: String, name: String, content: String },
}

impl Item {
    pub(crate) fn user(text: impl Into<String>) -> Self {
        Self::User { text: text.into(), pictures: Vec::new() }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: Map<String, Value>,
}

const LOST: &str = r#"{"error":"The result of this call was lost: it may or may not have taken effect. Check before you repeat it."}"#;
const CANCELLED: &str = r#"{"error":"This call was cancelled before it started."}"#;

pub(crate) fn tidy(messages: &[Message]) -> Vec<Item> {
    let mut items = Vec::new();
    let mut rows = messages.iter().filter(|row| row.role != Role::Notice).peekable();
    while let Some(row) = rows.next() {
        match row.role {
            Role::User | Role::Summary => push_user(&mut items, row),
            Role::Assistant => {
                let mut results = Vec::new();
                while let Some(result) = rows.next_if(|row| row.role == Role::Tool) {
                    results.push(result);
                }
                push_assistant(&mut items, row, &results);
            }
            // A result without a question, or a row for people only.
            Role::Tool | Role::Notice => {}
        }
    }
    if !matches!(items.first(), Some(Item::User { .. })) {
        items.insert(0, Item::user("(The conversation goes on.)"));
    }
    if matches!(items.last(), Some(Item::Assistant { .. })) {
        items.push(Item::user("(Please go on.)"));
    }
    items
}

/// Puts `note` before the last words of the user.
pub(crate) fn add_note(items: &mut [Item], note: &str) {
    let last = items.iter_mut().rev().find_map(|item| match item {
        Item::User { text, .. } => Some(text),
        Item::Assistant { .. } | Item::Result { .. } => None,
    });
    if let Some(text) = last {
        *text = format!("{note}\n\n{text}");
    }
}

/// Puts `closing` behind everything that was said.
pub(crate) fn add_closing(items: &mut Vec<Item>, closing: &str) {
    match items.last_mut() {
        Some(Item::User { text, .. }) => {
            text.push_str("\n\n");
            text.push_str(closing);
        }
        Some(Item::Assistant { .. } | Item::Result { .. }) | None => items.push(Item::user(closing)),
    }
}

/// The arguments of a call as an object; anything else becomes an empty one.
pub(crate) fn object(arguments: &str) -> Map<String, Value> {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(map)) => map,
        Ok(_) | Err(_) => Map::new(),
    }
}

fn push_user(items: &mut Vec<Item>, row: &Message) {
    let said = if row.content.trim().is_empty() { "(empty message)" } else { &row.content };
    match items.last_mut() {
        Some(Item::User { text, pictures }) => {
            text.push_str("\n\n");
            text.push_str(said);
            pictures.extend_from_slice(&row.pictures);
        }
        Some(Item::Assistant { .. } | Item::Result { .. }) | None => {
            items.push(Item::User { text: said.to_owned(), pictures: row.pictures.clone() });
        }
    }
}

fn push_assistant(items: &mut Vec<Item>, row: &Message, results: &[&Message]) {
    let mut wanted: Vec<&ToolCall> = Vec::new();
    for call in &row.tool_calls {
        if !wanted.iter().any(|known| known.id == call.id) {
            wanted.push(call);
        }
    }
    if row.content.trim().is_empty() && wanted.is_empty() {
        return;
    }
    let calls = wanted.iter().map(|call| Call {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: object(&call.arguments),
    });
    match items.last_mut() {
        // Only an assistant row without calls can be last: those with calls end in results.
        Some(Item::Assistant { text, calls: open }) => {
            text.push_str("\n\n");
            text.push_str(&row.content);
            open.extend(calls);
        }
        Some(Item::User { .. } | Item::Result { .. }) | None => {
            items.push(Item::Assistant { text: row.content.clone(), calls: calls.collect() });
        }
    }
    for call in wanted {
        let row = results.iter().find(|row| row.tool_call_id.as_deref() == Some(&call.id));
        let content = row.map_or(LOST, |row| content(row)).to_owned();
        items.push(Item::Result { id: call.id.clone(), name: call.name.clone(), content });
    }
}

fn content(row: &Message) -> &str {
    if !row.content.is_empty() {
        return &row.content;
    }
    match row.effect {
        Some(EffectState::Unknown) => LOST,
        Some(EffectState::Cancelled) => CANCELLED,
        Some(EffectState::Known) | None => "(no output)",
    }
}

#[cfg(test)]
mod tests {
    use petasos_core::Millis;

    use super::*;

    const AT: Millis = Millis(0);

    fn call(id: &str) -> ToolCall {
        ToolCall { id: id.into(), name: "clock".into(), arguments: r#"{"b":1,"a":2}"#.into() }
    }

    fn user(text: &str) -> Message {
        Message::user(text, AT)
    }

    fn result(id: &str, content: &str) -> Message {
        Message::tool(&call(id), content, EffectState::Known, AT)
    }

    /// `u:text`, `a:text[ids]`, `r:id=content`.
    #[track_caller]
    fn check(rows: &[Message], want: &[&str]) {
        let got: Vec<String> = tidy(rows)
            .into_iter()
            .map(|item| match item {
                Item::User { text, .. } => format!("u:{text}"),
                Item::Assistant { text, calls } => {
                    let ids: Vec<_> = calls.iter().map(|call| call.id.as_str()).collect();
                    format!("a:{text}[{}]", ids.join(","))
                }
                Item::Result { id, content, .. } => {
                    format!("r:{id}={}", if content == LOST { "lost" } else { &content })
                }
            })
            .collect();
        assert_eq!(got, want);
    }

    #[test]
    fn neighbours_of_one_role_are_joined() {
        let rows =
            [user("a"), user("b"), Message::assistant("c", AT), Message::assistant("d", AT), user("e")];
        check(&rows, &["u:a\n\nb", "a:c\n\nd[]", "u:e"]);
    }

    #[test]
    fn every_call_has_exactly_one_result_in_call_order() {
        let rows = [
            user("q"),
            Message::asking("", vec![call("1"), call("2"), call("3"), call("1")], AT),
            result("2", "two"),
            result("9", "orphan"),
            result("1", "one"),
            result("1", "again"),
        ];
        check(&rows, &["u:q", "a:[1,2,3]", "r:1=one", "r:2=two", "r:3=lost"]);
    }

    #[test]
    fn orphans_notices_and_empty_answers_vanish() {
        let rows =
            [user("q"), result("1", "x"), Message::assistant(" ", AT), Message::notice("n", AT), user("p")];
        check(&rows, &["u:q\n\np"]);
    }

    #[test]
    fn a_conversation_starts_and_ends_so_that_the_model_has_the_word() {
        check(
            &[Message::assistant("hi", AT)],
            &["u:(The conversation goes on.)", "a:hi[]", "u:(Please go on.)"],
        );
        check(&[], &["u:(The conversation goes on.)"]);
    }

    #[test]
    fn an_interrupted_call_followed_by_a_new_question_is_reported_as_unknown() {
        let rows = [user("q"), Message::asking("let me see", vec![call("1")], AT), user("well?")];
        check(&rows, &["u:q", "a:let me see[1]", "r:1=lost", "u:well?"]);
    }

    #[test]
    fn arguments_are_objects_in_canonical_order() {
        assert_eq!(Value::Object(object(r#"{"b": 1, "a": 2}"#)).to_string(), r#"{"a":2,"b":1}"#);
        assert!(object("\"text\"").is_empty() && object("{\"cut").is_empty());
    }

    #[test]
    fn a_note_goes_before_the_last_user_text() {
        let mut items = tidy(&[user("a"), Message::assistant("b", AT), user("c")]);
        add_note(&mut items, "note");
        assert_eq!(items[2], Item::user("note\n\nc"));
    }
}
