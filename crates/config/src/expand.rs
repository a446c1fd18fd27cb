//! Expands `${NAME}` and `${NAME:-default}` in text values.

use serde_json::Value;

use super::environment::Environment;

/// Replaces every reference and collects unset names in `missing`. A value that consists only of an unset reference becomes
/// null; inside a longer text the reference stays.
pub(crate) fn expand(value: &mut Value, env: &Environment, missing: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            if let Some(replaced) = replace(text, env, missing) {
                *value = replaced;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| expand(item, env, missing)),
        Value::Object(section) => section.values_mut().for_each(|item| expand(item, env, missing)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn replace(text: &str, env: &Environment, missing: &mut Vec<String>) -> Option<Value> {
    let mut expanded = String::new();
    let mut rest = text;
    let mut touched = false;
    while let Some(at) = rest.find("${") {
        let Some(reference) = VariableReference::at(&rest[at..]) else {
            expanded.push_str(&rest[..at + 2]);
            rest = &rest[at + 2..];
            continue;
        };
        touched = true;
        expanded.push_str(&rest[..at]);
        let whole = at == 0 && expanded.is_empty() && reference.length == rest.len();
        match env.get(reference.name).map(|(value, _)| value).or(reference.default) {
            Some(value) => expanded.push_str(value),
            None => {
                missing.push(reference.name.to_owned());
                if whole {
                    return Some(Value::Null);
                }
                expanded.push_str(&rest[at..at + reference.length]);
            }
        }
        rest = &rest[at + reference.length..];
    }
    expanded.push_str(rest);
    touched.then_some(Value::String(expanded))
}

struct VariableReference<'a> {
    name: &'a str,
    default: Option<&'a str>,
    length: usize,
}

impl<'a> VariableReference<'a> {
    /// Parses a reference at the start of `text`.
    fn at(text: &'a str) -> Option<Self> {
        let end = text.find('}')?;
        let inside = &text[2..end];
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let is_name = starts && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        is_name.then_some(Self { name, default, length: end + 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(text: &str, want: Value, want_missing: &[&str]) {
        let process =
            [("HOST", "example.org"), ("EMPTY", "")].map(|(name, value)| (name.into(), value.into()));
        let env = Environment::new(process, "PORT=9000").unwrap();
        let mut value = json!(text);
        let mut missing = Vec::new();
        expand(&mut value, &env, &mut missing);
        assert_eq!(value, want, "{text}");
        assert_eq!(missing, want_missing, "{text}");
    }

    #[test]
    fn references_are_expanded_and_missing_ones_reported() {
        check("http://${HOST}:${PORT}/v1", json!("http://example.org:9000/v1"), &[]);
        check("${PORT}", json!("9000"), &[]);
        check("${NOPE}", Value::Null, &["NOPE"]);
        check("${EMPTY}", Value::Null, &["EMPTY"]);
        check("a ${NOPE} b", json!("a ${NOPE} b"), &["NOPE"]);
        check("${NOPE:-fallback}", json!("fallback"), &[]);
        check("costs ${5} or $HOST or ${", json!("costs ${5} or $HOST or ${"), &[]);
    }

    #[test]
    fn references_in_lists_and_sections_are_expanded() {
        let env = Environment::new([("A".into(), "1".into())], "").unwrap();
        let mut value = json!({"x": ["${A}", 2], "y": {"z": "-${A}-"}});
        expand(&mut value, &env, &mut Vec::new());
        assert_eq!(value, json!({"x": ["1", 2], "y": {"z": "-1-"}}));
    }
}
