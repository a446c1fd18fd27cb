//! `${NAME}` and `${NAME:-otherwise}` inside the text values of a configuration.

use serde_json::Value;

use super::environment::Environment;

/// Replaces every reference. Names that are not set are added to `missing`; a value that is nothing but
/// such a reference becomes unset, inside a longer text it stays as written.
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
    let mut done = String::new();
    let mut rest = text;
    let mut touched = false;
    while let Some(at) = rest.find("${") {
        let Some(reference) = Reference::at(&rest[at..]) else {
            done.push_str(&rest[..at + 2]);
            rest = &rest[at + 2..];
            continue;
        };
        touched = true;
        done.push_str(&rest[..at]);
        let whole = at == 0 && done.is_empty() && reference.length == rest.len();
        match env.get(reference.name).map(|(value, _)| value).or(reference.otherwise) {
            Some(value) => done.push_str(value),
            None => {
                missing.push(reference.name.to_owned());
                if whole {
                    return Some(Value::Null);
                }
                done.push_str(&rest[at..at + reference.length]);
            }
        }
        rest = &rest[at + reference.length..];
    }
    done.push_str(rest);
    touched.then_some(Value::String(done))
}

struct Reference<'a> {
    name: &'a str,
    otherwise: Option<&'a str>,
    length: usize,
}

impl<'a> Reference<'a> {
    /// The reference `text` begins with, if what follows `${` is a name.
    fn at(text: &'a str) -> Option<Self> {
        let end = text.find('}')?;
        let inside = &text[2..end];
        let (name, otherwise) = match inside.split_once(":-") {
            Some((name, otherwise)) => (name, Some(otherwise)),
            None => (inside, None),
        };
        let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let is_name = starts && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        is_name.then_some(Self { name, otherwise, length: end + 1 })
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
    fn references_are_replaced_and_missing_ones_reported() {
        check("http://${HOST}:${PORT}/v1", json!("http://example.org:9000/v1"), &[]);
        check("${PORT}", json!("9000"), &[]);
        check("${NOPE}", Value::Null, &["NOPE"]);
        check("${EMPTY}", Value::Null, &["EMPTY"]);
        check("a ${NOPE} b", json!("a ${NOPE} b"), &["NOPE"]);
        check("${NOPE:-fallback}", json!("fallback"), &[]);
        check("costs ${5} or $HOST or ${", json!("costs ${5} or $HOST or ${"), &[]);
    }

    #[test]
    fn lists_and_sections_are_searched_too() {
        let env = Environment::new([("A".into(), "1".into())], "").unwrap();
        let mut value = json!({"x": ["${A}", 2], "y": {"z": "-${A}-"}});
        expand(&mut value, &env, &mut Vec::new());
        assert_eq!(value, json!({"x": ["1", 2], "y": {"z": "-1-"}}));
    }
}
