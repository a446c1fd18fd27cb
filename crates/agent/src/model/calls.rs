//! Turns the streamed tool calls of a response into executable ones. Pure.

use std::collections::HashSet;

use petasos_core::transcript::ToolCall;
use serde_json::Value;

use crate::model::provider::{ParsedArguments, PartialCall};
use crate::model::request::{ModelRequest, ToolSpec};

/// Whether the output limit truncated a call, which must not run then. Only the last call can be truncated;
/// one without arguments may have lost them.
pub(super) fn is_truncated(slots: &[PartialCall]) -> bool {
    let last = slots.last();
    has_invalid_arguments(slots) || last.is_some_and(|slot| slot.arguments.trim().is_empty())
}

pub(super) fn has_invalid_arguments(slots: &[PartialCall]) -> bool {
    slots.iter().any(|slot| matches!(slot.parse_arguments(), ParsedArguments::Invalid(_)))
}

/// Repairs obviously misspelt names, assigns unique ids and canonicalises arguments. Unparsable arguments
/// become a JSON string, which the tools reject with a reason.
pub(super) fn resolve(slots: &[PartialCall], request: &ModelRequest) -> Vec<ToolCall> {
    let mut used_ids: HashSet<String> =
        request.messages.iter().flat_map(|row| &row.tool_calls).map(|call| call.id.clone()).collect();
    let mut calls = Vec::new();
    for slot in slots.iter().filter(|slot| !slot.name.is_empty()) {
        let own_id = slot.id.clone().filter(|id| !used_ids.contains(id));
        let id = own_id.unwrap_or_else(|| new_id(request, &used_ids));
        used_ids.insert(id.clone());
        let arguments = match slot.parse_arguments() {
            ParsedArguments::Object(map) => Value::Object(map),
            ParsedArguments::Invalid(text) => Value::String(text),
        };
        calls.push(ToolCall {
            id,
            name: repair(&slot.name, &request.tools),
            arguments: arguments.to_string(),
        });
    }
    calls
}

fn new_id(request: &ModelRequest, used_ids: &HashSet<String>) -> String {
    let at = request.messages.last().map_or(0, |row| row.at.0);
    let mut number = request.messages.len();
    loop {
        let id = format!("call_{at:x}_{number}");
        if !used_ids.contains(&id) {
            return id;
        }
        number += 1;
    }
}

/// `functions.Read-File` becomes `read_file`. An unknown name is kept: its error result lists the tools.
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

    fn request(messages: Vec<Message>) -> ModelRequest {
        let tool = ToolSpec { name: "read_file".into(), description: String::new(), parameters: Value::Null };
        ModelRequest {
            system: String::new(),
            messages,
            note: None,
            closing: None,
            tools: [tool].into(),
            model: None,
            session: SessionId("s".into()),
        }
    }

    fn slot(id: Option<&str>, name: &str, arguments: &str) -> PartialCall {
        PartialCall { index: None, id: id.map(Into::into), name: name.into(), arguments: arguments.into() }
    }

    #[test]
    fn repairs_only_obvious_name_slips() {
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
    fn call_ids_are_unique_in_the_conversation() {
        let old = ToolCall { id: "x".into(), name: "read_file".into(), arguments: "{}".into() };
        let request = request(vec![Message::tool_request("", vec![old], Millis(255))]);
        let calls = resolve(
            &[slot(Some("x"), "read_file", ""), slot(None, "a", ""), slot(Some("y"), "b", "")],
            &request,
        );
        let ids: Vec<_> = calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["call_ff_1", "call_ff_2", "y"]);
    }

    #[test]
    fn canonicalises_arguments_or_passes_them_as_text() {
        let request = request(vec![]);
        let arguments = |text| resolve(&[slot(None, "read_file", text)], &request)[0].arguments.clone();
        assert_eq!(arguments(""), "{}");
        assert_eq!(arguments("null"), "{}");
        assert_eq!(arguments(r#"{"b": 1, "a": 2}"#), r#"{"a":2,"b":1}"#);
        assert_eq!(arguments(r#""{\"a\":1}""#), r#"{"a":1}"#);
        assert_eq!(arguments("{\"a"), r#""{\"a""#);
    }

    #[test]
    fn detects_truncated_call() {
        assert!(is_truncated(&[slot(None, "a", "{\"pa")]));
        assert!(is_truncated(&[slot(None, "a", "{}"), slot(None, "a", "")]));
        assert!(!is_truncated(&[slot(None, "a", "{}")]));
    }
}
