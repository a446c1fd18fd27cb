//! Text templates: `{a.b}` is replaced by that value of the payload. Pure.
//!
//! Replaced text is not expanded again, so a payload cannot add placeholders.

use serde_json::Value;

/// Characters of the whole payload.
const MAX_RAW: usize = 4000;
/// Characters of an array or object.
const MAX_NESTED: usize = 2000;

/// Placeholders without a value stay as they are.
pub(super) fn fill(template: &str, payload: &Value) -> String {
    fill_with(template, |path| display_value(path, payload))
}

fn fill_with(template: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let mut filled = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        let placeholder = rest.find('}').map(|end| &rest[1..end]).filter(|path| is_path(path));
        match placeholder.and_then(&value) {
            Some(value) => {
                filled.push_str(&value);
                rest = &rest[placeholder.map_or(1, |path| path.len() + 2)..];
            }
            None => {
                filled.push('{');
                rest = &rest[1..];
            }
        }
    }
    filled.push_str(rest);
    filled
}

/// For complete values, such as a chat id: `None` if empty or with a placeholder that has no string or number.
pub(super) fn fill_all(template: &str, payload: &Value) -> Option<String> {
    let filled = fill_with(template, |path| match value_at(path, payload)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    });
    let open = template.contains('{') && filled.contains('{');
    let filled = filled.trim();
    (!filled.is_empty() && !open).then(|| filled.to_owned())
}

pub(super) fn raw(payload: &Value) -> String {
    let pretty = serde_json::to_string_pretty(payload).unwrap_or_else(|_| payload.to_string());
    pretty.chars().take(MAX_RAW).collect()
}

/// The value at a path such as `a.b.0`.
pub(super) fn value_at<'a>(path: &str, payload: &'a Value) -> Option<&'a Value> {
    path.split('.').try_fold(payload, |value, key| match value {
        Value::Object(object) => object.get(key),
        Value::Array(items) => items.get(key.parse::<usize>().ok()?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

fn display_value(path: &str, payload: &Value) -> Option<String> {
    if path == "__raw__" {
        return Some(raw(payload));
    }
    Some(match value_at(path, payload)? {
        Value::String(text) => text.clone(),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => plain.to_string(),
        nested @ (Value::Array(_) | Value::Object(_)) => {
            nested.to_string().chars().take(MAX_NESTED).collect()
        }
    })
}

fn is_path(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    !text.is_empty() && text.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fills_placeholders_and_keeps_unknown_ones() {
        let payload = json!({
            "a": { "b": "x", "n": 3, "t": true, "z": null, "l": [1, { "k": "v" }] },
            "evil": "{a.b}", "ü": 1,
        });
        for (template, want) in [
            ("plain", "plain"),
            ("{a.b}", "x"),
            ("PR #{a.n}: {a.b}!", "PR #3: x!"),
            ("{a.t} {a.z}", "true null"),
            ("{a.l}", r#"[1,{"k":"v"}]"#),
            ("{a.l.0} {a.l.1.k} {a.l.9}", "1 v {a.l.9}"),
            ("{gone} {a.gone} {a.b.c}", "{gone} {a.gone} {a.b.c}"),
            ("{evil}", "{a.b}"),
            ("{} { a.b } {{a.b}} {a.b", "{} { a.b } {x} {a.b"),
            ("{\"json\": {a.n}}", "{\"json\": 3}"),
            ("}{", "}{"),
        ] {
            assert_eq!(fill(template, &payload), want, "{template}");
        }
    }

    #[test]
    fn shows_payloads_of_any_shape() {
        assert_eq!(fill("{0}: {__raw__}", &json!(["é"])), "é: [\n  \"é\"\n]");
        assert_eq!(fill("{__raw__}", &json!(7)), "7");
        assert_eq!(fill("{x}", &json!("text")), "{x}");
    }

    #[test]
    fn truncates_long_values_between_characters() {
        let payload = json!({ "long": ["é".repeat(9000)] });
        assert_eq!(fill("{__raw__}", &payload).chars().count(), MAX_RAW);
        assert_eq!(fill("{long}", &payload).chars().count(), MAX_NESTED);
    }

    #[test]
    fn rejects_values_with_unfilled_placeholders() {
        let payload = json!({ "chat": -100, "empty": " ", "odd": "{x}" });
        for (template, want) in [
            ("42", Some("42")),
            ("{chat}", Some("-100")),
            ("{gone}", None),
            ("{empty}", None),
            ("{odd}", None),
            ("", None),
        ] {
            assert_eq!(fill_all(template, &payload).as_deref(), want, "{template}");
        }
    }
}
