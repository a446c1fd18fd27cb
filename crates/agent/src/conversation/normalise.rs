//! Normalises a stored transcript for providers: roles alternate, and every tool call is directly followed by
//! exactly one result.

use petasos_core::transcript::{EffectState, Message, Picture, Role, ToolCall};
use serde_json::{Map, Value};

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ConversationItem {
    User { text: String, pictures: Vec<Picture> },
    Assistant { text: String, calls: Vec<ItemCall> },
    Result { id: String, name: String, content: String },
}

impl ConversationItem {
    pub(crate) fn user(text: impl Into<String>) -> Self {
        Self::User { text: text.into(), pictures: Vec::new() }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ItemCall {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) arguments: Map<String, Value>,
}

const LOST: &str = r#"{"error":"The result of this call was lost: it may or may not have taken effect. Check before you repeat it."}"#;
const CANCELLED: &str = r#"{"error":"This call was cancelled before it started."}"#;

pub(crate) fn normalise(messages: &[Message]) -> Vec<ConversationItem> {
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
            // A result without a call, or a row for people only.
            Role::Tool | Role::Notice => {}
        }
    }
    if !matches!(items.first(), Some(ConversationItem::User { .. })) {
        items.insert(0, ConversationItem::user("(The conversation continues.)"));
    }
    if matches!(items.last(), Some(ConversationItem::Assistant { .. })) {
        items.push(ConversationItem::user("(Please continue.)"));
    }
    items
}

/// Inserts `note` before the last text of the user.
pub(crate) fn add_note(items: &mut [ConversationItem], note: &str) {
    let last = items.iter_mut().rev().find_map(|item| match item {
        ConversationItem::User { text, .. } => Some(text),
        ConversationItem::Assistant { .. } | ConversationItem::Result { .. } => None,
    });
    if let Some(text) = last {
        *text = format!("{note}\n\n{text}");
    }
}

/// Appends `closing` as the last text of the user.
pub(crate) fn add_closing(items: &mut Vec<ConversationItem>, closing: &str) {
    match items.last_mut() {
        Some(ConversationItem::User { text, .. }) => {
            text.push_str("\n\n");
            text.push_str(closing);
        }
        Some(ConversationItem::Assistant { .. } | ConversationItem::Result { .. }) | None => {
            items.push(ConversationItem::user(closing))
        }
    }
}

/// The arguments of a call; anything but an object becomes an empty one.
pub(crate) fn object(arguments: &str) -> Map<String, Value> {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(map)) => map,
        Ok(_) | Err(_) => Map::new(),
    }
}

fn push_user(items: &mut Vec<ConversationItem>, row: &Message) {
    let shown = if row.content.trim().is_empty() { "(empty message)" } else { &row.content };
    match items.last_mut() {
        Some(ConversationItem::User { text, pictures }) => {
            text.push_str("\n\n");
            text.push_str(shown);
            pictures.extend_from_slice(&row.pictures);
        }
        Some(ConversationItem::Assistant { .. } | ConversationItem::Result { .. }) | None => {
            items.push(ConversationItem::User { text: shown.to_owned(), pictures: row.pictures.clone() });
        }
    }
}

fn push_assistant(items: &mut Vec<ConversationItem>, row: &Message, results: &[&Message]) {
    let mut wanted: Vec<&ToolCall> = Vec::new();
    for call in &row.tool_calls {
        if !wanted.iter().any(|known| known.id == call.id) {
            wanted.push(call);
        }
    }
    if row.content.trim().is_empty() && wanted.is_empty() {
        return;
    }
    let calls = wanted.iter().map(|call| ItemCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: object(&call.arguments),
    });
    match items.last_mut() {
        // Only an assistant row without calls can be last; rows with calls end in results.
        Some(ConversationItem::Assistant { text, calls: open }) => {
            text.push_str("\n\n");
            text.push_str(&row.content);
            open.extend(calls);
        }
        Some(ConversationItem::User { .. } | ConversationItem::Result { .. }) | None => {
            items.push(ConversationItem::Assistant { text: row.content.clone(), calls: calls.collect() });
        }
    }
    for call in wanted {
        let row = results.iter().find(|row| row.tool_call_id.as_deref() == Some(&call.id));
        let content = row.map_or(LOST, |row| content(row)).to_owned();
        items.push(ConversationItem::Result { id: call.id.clone(), name: call.name.clone(), content });
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
        let got: Vec<String> = normalise(rows)
            .into_iter()
            .map(|item| match item {
                ConversationItem::User { text, .. } => format!("u:{text}"),
                ConversationItem::Assistant { text, calls } => {
                    let ids: Vec<_> = calls.iter().map(|call| call.id.as_str()).collect();
                    format!("a:{text}[{}]", ids.join(","))
                }
                ConversationItem::Result { id, content, .. } => {
                    format!("r:{id}={}", if content == LOST { "lost" } else { &content })
                }
            })
            .collect();
        assert_eq!(got, want);
    }

    #[test]
    fn joins_neighbours_of_one_role() {
        let rows =
            [user("a"), user("b"), Message::assistant("c", AT), Message::assistant("d", AT), user("e")];
        check(&rows, &["u:a\n\nb", "a:c\n\nd[]", "u:e"]);
    }

    #[test]
    fn every_call_has_exactly_one_result_in_call_order() {
        let rows = [
            user("q"),
            Message::tool_request("", vec![call("1"), call("2"), call("3"), call("1")], AT),
            result("2", "two"),
            result("9", "orphan"),
            result("1", "one"),
            result("1", "again"),
        ];
        check(&rows, &["u:q", "a:[1,2,3]", "r:1=one", "r:2=two", "r:3=lost"]);
    }

    #[test]
    fn drops_orphans_notices_and_empty_answers() {
        let rows =
            [user("q"), result("1", "x"), Message::assistant(" ", AT), Message::notice("n", AT), user("p")];
        check(&rows, &["u:q\n\np"]);
    }

    #[test]
    fn starts_and_ends_with_a_user_item() {
        check(
            &[Message::assistant("hi", AT)],
            &["u:(The conversation continues.)", "a:hi[]", "u:(Please continue.)"],
        );
        check(&[], &["u:(The conversation continues.)"]);
    }

    #[test]
    fn reports_interrupted_call_as_unknown() {
        let rows = [user("q"), Message::tool_request("let me see", vec![call("1")], AT), user("well?")];
        check(&rows, &["u:q", "a:let me see[1]", "r:1=lost", "u:well?"]);
    }

    #[test]
    fn arguments_are_objects_in_canonical_order() {
        assert_eq!(Value::Object(object(r#"{"b": 1, "a": 2}"#)).to_string(), r#"{"a":2,"b":1}"#);
        assert!(object("\"text\"").is_empty() && object("{\"cut").is_empty());
    }

    #[test]
    fn note_goes_before_the_last_user_text() {
        let mut items = normalise(&[user("a"), Message::assistant("b", AT), user("c")]);
        add_note(&mut items, "note");
        assert_eq!(items[2], ConversationItem::user("note\n\nc"));
    }
}
