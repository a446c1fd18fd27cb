//! Texts with holes: `{a.b}` is what the payload has there. Pure.
//!
//! What is filled in is not looked at again, so a payload cannot ask for more than the owner's text does.

use serde_json::Value;

/// Longest text of the whole payload, and of a part of it that is no plain value; in characters.
const RAW: usize = 4000;
const PART: usize = 2000;

/// `template` with its holes filled. A hole that the payload has nothing for stays as it is.
pub(super) fn fill(template: &str, payload: &Value) -> String {
    fill_with(template, |path| value(path, payload))
}

fn fill_with(template: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let mut filled = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        let hole = rest.find('}').map(|end| &rest[1..end]).filter(|path| is_path(path));
        match hole.and_then(&value) {
            Some(value) => {
                filled.push_str(&value);
                rest = &rest[hole.map_or(1, |path| path.len() + 2)..];
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

/// The same for a value that must be whole, such as an address: `None` if the payload leaves it empty or with a hole,
/// and only words and numbers fill one.
pub(super) fn fill_all(template: &str, payload: &Value) -> Option<String> {
    let filled = fill_with(template, |path| match at(path, payload)? {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    });
    let open = template.contains('{') && filled.contains('{');
    let filled = filled.trim();
    (!filled.is_empty() && !open).then(|| filled.to_owned())
}

/// The whole payload, as much of it as is shown.
pub(super) fn raw(payload: &Value) -> String {
    let pretty = serde_json::to_string_pretty(payload).unwrap_or_else(|_| payload.to_string());
    pretty.chars().take(RAW).collect()
}

/// What lies at `a.b.0` in the payload.
pub(super) fn at<'a>(path: &str, payload: &'a Value) -> Option<&'a Value> {
    path.split('.').try_fold(payload, |value, step| match value {
        Value::Object(object) => object.get(step),
        Value::Array(items) => items.get(step.parse::<usize>().ok()?),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

fn value(path: &str, payload: &Value) -> Option<String> {
    if path == "__raw__" {
        return Some(raw(payload));
    }
    Some(match at(path, payload)? {
        Value::String(text) => text.clone(),
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => plain.to_string(),
        part @ (Value::Array(_) | Value::Object(_)) => part.to_string().chars().take(PART).collect(),
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
    fn holes_are_filled_from_the_payload_and_others_stay() {
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
    fn payloads_of_any_shape_can_be_shown() {
        assert_eq!(fill("{0}: {__raw__}", &json!(["é"])), "é: [\n  \"é\"\n]");
        assert_eq!(fill("{__raw__}", &json!(7)), "7");
        assert_eq!(fill("{x}", &json!("text")), "{x}");
    }

    #[test]
    fn what_is_long_is_cut_between_characters() {
        let payload = json!({ "long": ["é".repeat(9000)] });
        assert_eq!(fill("{__raw__}", &payload).chars().count(), RAW);
        assert_eq!(fill("{long}", &payload).chars().count(), PART);
    }

    #[test]
    fn an_address_with_a_hole_in_it_is_none() {
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
