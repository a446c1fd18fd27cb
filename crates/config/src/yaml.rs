//! Parses `config.yaml` to a plain value with the line of each key.
//!
//! Follows the rules of the loader for which existing files were written: the last of duplicate keys wins, `yes` and `on`
//! are booleans, `0755` is octal.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::Spanned;
use serde_saphyr::options::DuplicateKeyPolicy;

#[derive(Debug, Default)]
pub(crate) struct Document {
    pub(crate) value: Map<String, Value>,
    /// Line of each dotted path, from 1.
    pub(crate) lines: BTreeMap<String, u32>,
    pub(crate) duplicates: Vec<DuplicateKey>,
}

impl Document {
    /// The content of a section as a document of its own, limited to these keys.
    pub(crate) fn below(mut self, section: &str, keys: &[&str]) -> Self {
        let mut value = match self.value.remove(section) {
            Some(Value::Object(value)) => value,
            Some(_) | None => Map::new(),
        };
        value.retain(|name, _| keys.contains(&name.as_str()));
        let prefix = format!("{section}.");
        let inner = |(path, line): (String, u32)| Some((path.strip_prefix(&prefix)?.to_owned(), line));
        Self { value, lines: self.lines.into_iter().filter_map(inner).collect(), duplicates: vec![] }
    }
}

/// A key that occurs more than once in a section.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DuplicateKey {
    pub(crate) path: String,
    pub(crate) first: u32,
    pub(crate) last: u32,
}

/// A syntax error. `shown` is the offending line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Error {
    pub(crate) line: u32,
    pub(crate) column: u32,
    pub(crate) reason: String,
    pub(crate) shown: String,
}

pub(crate) fn parse(bytes: &[u8]) -> Result<Document, Error> {
    let text = std::str::from_utf8(bytes).map_err(|bad| not_text(bytes, bad.valid_up_to()))?;
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        legacy_octal_numbers: true,
        strict_booleans: false,
        with_snippet: false,
    };
    let root: Spanned<Node> =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| located(text, &error))?;
    let mut document = Document::default();
    let line = line_of(&root);
    match plain(root.value, "", &mut document) {
        Value::Null => Ok(document),
        Value::Object(value) => Ok(Document { value, ..document }),
        other => {
            let reason = format!("expected keys and values at the top, found {}", describe(&other));
            Err(Error { line, column: 1, reason, shown: line_text(text, line) })
        }
    }
}

/// Describes a value for messages.
pub(crate) fn describe(value: &Value) -> String {
    match value {
        Value::Null => "nothing".into(),
        Value::Bool(it) => it.to_string(),
        Value::Number(it) => it.to_string(),
        Value::String(it) if it.chars().count() > 40 => {
            format!("\"{}…\"", it.chars().take(40).collect::<String>())
        }
        Value::String(it) => format!("{it:?}"),
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(_) => "a section".into(),
    }
}

/// A parsed value; keys carry their location.
enum Node {
    Scalar(Value),
    List(Vec<Node>),
    Section(Vec<(Spanned<String>, Node)>),
}

fn plain(node: Node, path: &str, out: &mut Document) -> Value {
    match node {
        Node::Scalar(value) => value,
        Node::List(items) => {
            let step = |(at, item): (usize, Node)| plain(item, &format!("{path}[{at}]"), out);
            Value::Array(items.into_iter().enumerate().map(step).collect())
        }
        Node::Section(entries) => {
            let mut section = Map::new();
            for (key, child) in entries {
                let line = line_of(&key);
                let below = if path.is_empty() { key.value.clone() } else { format!("{path}.{}", key.value) };
                let value = plain(child, &below, out);
                if section.insert(key.value, value).is_some() {
                    let first = out.lines.get(&below).copied().unwrap_or_default();
                    out.duplicates.push(DuplicateKey { path: below.clone(), first, last: line });
                }
                out.lines.insert(below, line);
            }
            Value::Object(section)
        }
    }
}

fn line_of<T>(node: &Spanned<T>) -> u32 {
    u32::try_from(node.referenced.line()).unwrap_or(u32::MAX)
}

fn located(text: &str, error: &serde_saphyr::Error) -> Error {
    let at = error.location();
    let line = at.map_or(1, |at| u32::try_from(at.line()).unwrap_or(u32::MAX)).max(1);
    let column = at.map_or(1, |at| u32::try_from(at.column()).unwrap_or(u32::MAX)).max(1);
    let message = error.without_snippet().to_string();
    Error { line, column, reason: without_place(&message), shown: line_text(text, line) }
}

/// Removes line and column from the parser's message, because ours precede it.
fn without_place(message: &str) -> String {
    let first = message.lines().next().unwrap_or(message);
    let cut = first.find(" at line ").or_else(|| first.find(" (line "));
    cut.map_or(first, |at| &first[..at]).trim_start_matches("error: ").to_owned()
}

fn not_text(bytes: &[u8], at: usize) -> Error {
    let before = &bytes[..at];
    let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    let column = 1 + String::from_utf8_lossy(&before[start..]).chars().count();
    Error {
        line: u32::try_from(line).unwrap_or(u32::MAX),
        column: u32::try_from(column).unwrap_or(u32::MAX),
        reason: "the file is not UTF-8 text".into(),
        shown: String::from_utf8_lossy(&before[start..]).into_owned(),
    }
}

fn line_text(text: &str, line: u32) -> String {
    text.lines().nth(line.saturating_sub(1) as usize).unwrap_or_default().to_owned()
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Scalar(Number::from_f64(value).map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Section(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn parses_to(text: &str, want: Value) {
        assert_eq!(Value::Object(parse(text.as_bytes()).unwrap().value), want, "{text}");
    }

    #[track_caller]
    fn rejects(bytes: &[u8], line: u32, column: u32, shown: &str) {
        let error = parse(bytes).unwrap_err();
        assert_eq!(
            (error.line, error.column, error.shown.as_str()),
            (line, column, shown),
            "{}",
            error.reason
        );
        assert!(!error.reason.is_empty() && !error.reason.contains('\n'), "{:?}", error.reason);
    }

    #[test]
    fn values_follow_the_rules_of_existing_files() {
        parses_to("", json!({}));
        parses_to("# only a comment\n", json!({}));
        parses_to(
            "a: yes\nb: off\nc: 0755\nd: 1.5\ne:\n",
            json!({"a": true, "b": false, "c": 493, "d": 1.5, "e": null}),
        );
        parses_to("a: 1\na: 2\n", json!({"a": 2}));
        parses_to(
            "x: &x {a: 1}\ny:\n  <<: *x\n  b: [1, two]\n",
            json!({"x": {"a": 1}, "y": {"a": 1, "b": [1, "two"]}}),
        );
        parses_to("-100123: {model: m}\n", json!({"-100123": {"model": "m"}}));
    }

    #[test]
    fn every_key_knows_its_line() {
        let document = parse(b"a: 1\nb:\n  c:\n    d: 2\n  e: 3\n").unwrap();
        let line = |path: &str| document.lines[path];
        assert_eq!((line("a"), line("b.c.d"), line("b.e")), (1, 4, 5));
    }

    #[test]
    fn duplicate_key_is_reported_with_both_lines() {
        let document = parse(b"a: 1\nb:\n  c: 1\n  c: 2\na: 3\n").unwrap();
        let message: Vec<_> =
            document.duplicates.iter().map(|it| (it.path.as_str(), it.first, it.last)).collect();
        assert_eq!(message, [("b.c", 3, 4), ("a", 1, 5)]);
    }

    #[test]
    fn error_reports_its_position() {
        rejects(b"a: 1\nb: [1, 2\nc: 3\n", 3, 2, "c: 3");
        rejects(b"model:\n\tdefault: x\n", 2, 2, "\tdefault: x");
        rejects(b"- just\n- a list\n", 1, 1, "- just");
        rejects(b"a: 1\nb: caf\xe9\n", 2, 7, "b: caf");
    }
}
