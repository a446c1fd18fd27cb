//! From the calls of a draft to calls we can run. Pure.

use std::collections::HashSet;

use petasos_core::transcript::ToolCall;
use serde_json::Value;

use crate::provider::{Arguments, Slot};
use crate::request::{Request, ToolSpec};

/// An output limit fell into the middle of a call: it must not run. Only the last one can be affected,
/// and one that has no arguments yet may have lost them.
pub(super) fn cut(slots: &[Slot]) -> bool {
    let last = slots.last();
    broken(slots) || last.is_some_and(|slot| slot.arguments.trim().is_empty())
}

pub(super) fn broken(slots: &[Slot]) -> bool {
    slots.iter().any(|slot| matches!(slot.read(), Arguments::Broken(_)))
}

/// Gives every call a known name where the slip is obvious, an id of its own, and canonical arguments.
/// Arguments that could not be read are passed on as a JSON text, which the tools refuse with a reason.
pub(super) fn read(slots: &[Slot], request: &Request) -> Vec<ToolCall> {
    let mut taken: HashSet<String> =
        request.messages.iter().flat_map(|row| &row.tool_calls).map(|call| call.id.clone()).collect();
    let mut calls = Vec::new();
    for slot in slots.iter().filter(|slot| !slot.name.is_empty()) {
        let given = slot.id.clone().filter(|id| !taken.contains(id));
        let id = given.unwrap_or_else(|| fresh(request, &taken));
        taken.insert(id.clone());
        let arguments = match slot.read() {
            Arguments::Object(map) => Value::Object(map),
            Arguments::Broken(text) => Value::String(text),
        };
        calls.push(ToolCall {
            id,
            name: repair(&slot.name, &request.tools),
            arguments: arguments.to_string(),
        });
    }
    calls
}

fn fresh(request: &Request, taken: &HashSet<String>) -> String {
    let at = request.messages.last().map_or(0, |row| row.at.0);
    let mut number = request.messages.len();
    loop {
        let id = format!("call_{at:x}_{number}");
        if !taken.contains(&id) {
            return id;
        }
        number += 1;
    }
}

/// `functions.Read-File` means `read_file`. A name nobody recognises is left as it is: its error result
/// lists the tools.
fn repair(name: &str, tools: &[ToolSpec]) -> String {
    let plain = |name: &str| -> String {
        name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
    };
    let bare = name.trim().rsplit(['.', ':', '/']).next().unwrap_or(name);
    let known = tools.iter().find(|tool| tool.name == name);
    let near = || tools.iter().find(|tool| plain(&tool.name) == plain(bare));
    known.or_else(near).map_or_else(|| name.trim().to_owned(), |tool| tool.name.clone())
}

#[cfg(test)]
mod tests {
    use petasos_core::transcript::Message;
    use petasos_core::{Millis, SessionId};

    use super::*;

    fn request(messages: Vec<Message>) -> Request {
        let tool = ToolSpec { name: "read_file".into(), description: String::new(), parameters: Value::Null };
        Request {
            system: String::new(),
            messages,
            note: None,
            closing: None,
            tools: [tool].into(),
            model: None,
            session: SessionId("s".into()),
        }
    }

    fn slot(id: Option<&str>, name: &str, arguments: &str) -> Slot {
        Slot { index: None, id: id.map(Into::into), name: name.into(), arguments: arguments.into() }
    }

    #[test]
    fn names_are_repaired_only_when_the_slip_is_obvious() {
        let tools = request(vec![]).tools;
        for (given, want) in [
            ("read_file", "read_file"),
            ("Read-File", "read_file"),
            ("functions.read_file", "read_file"),
            (" readFile ", "read_file"),
            ("read_files", "read_files"),
        ] {
            assert_eq!(repair(given, &tools), want);
        }
    }

    #[test]
    fn ids_are_unique_over_the_whole_conversation() {
        let old = ToolCall { id: "x".into(), name: "read_file".into(), arguments: "{}".into() };
        let request = request(vec![Message::asking("", vec![old], Millis(255))]);
        let calls = read(
            &[slot(Some("x"), "read_file", ""), slot(None, "a", ""), slot(Some("y"), "b", "")],
            &request,
        );
        let ids: Vec<_> = calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["call_ff_1", "call_ff_2", "y"]);
    }

    #[test]
    fn arguments_become_canonical_or_a_text() {
        let request = request(vec![]);
        let arguments = |text| read(&[slot(None, "read_file", text)], &request)[0].arguments.clone();
        assert_eq!(arguments(""), "{}");
        assert_eq!(arguments("null"), "{}");
        assert_eq!(arguments(r#"{"b": 1, "a": 2}"#), r#"{"a":2,"b":1}"#);
        assert_eq!(arguments(r#""{\"a\":1}""#), r#"{"a":1}"#);
        assert_eq!(arguments("{\"a"), r#""{\"a""#);
    }

    #[test]
    fn a_call_without_its_end_is_cut() {
        assert!(cut(&[slot(None, "a", "{\"pa")]));
        assert!(cut(&[slot(None, "a", "{}"), slot(None, "a", "")]));
        assert!(!cut(&[slot(None, "a", "{}")]));
    }
}
