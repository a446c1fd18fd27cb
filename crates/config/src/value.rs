//! Converts written values to the kind of a key.

use serde_json::Value;

use crate::key::Kind;
use crate::yaml::describe;

const NO_LIMIT: &str = "none";

/// Converts `written`. The error names expectation and finding, and never shows a secret.
pub(crate) fn coerce(kind: Kind, written: &Value) -> Result<Value, String> {
    let read = match kind {
        Kind::Flag => flag(written).map(Value::Bool),
        Kind::Count(least, most) => {
            whole(written).filter(|number| (least..=most).contains(number)).map(Value::from)
        }
        Kind::Limit(least, most) => match written.as_str().map(str::trim) {
            Some(word) if word.eq_ignore_ascii_case(NO_LIMIT) => Some(Value::from(NO_LIMIT)),
            Some(_) | None => coerce(Kind::Count(least, most), written).ok(),
        },
        Kind::Number => number(written).filter(|it| it.is_finite() && *it >= 0.0).map(Value::from),
        Kind::Wait => number(written).filter(|it| it.is_finite()).map(|it| Value::from(it.max(0.0))),
        Kind::Text | Kind::Secret => text(written).map(Value::String),
        Kind::Choice(words) => choice(words, written).map(|word| Value::String(word.into())),
        Kind::List => list(written),
        Kind::Table => Some(written.clone()),
    };
    read.ok_or_else(|| match kind {
        Kind::Secret => "expected a text".into(),
        Kind::Flag
        | Kind::Count(..)
        | Kind::Limit(..)
        | Kind::Number
        | Kind::Wait
        | Kind::Text
        | Kind::Choice(_)
        | Kind::List
        | Kind::Table => {
            format!("expected {}, found {}", expected(kind), describe(written))
        }
    })
}

pub(crate) fn expected(kind: Kind) -> String {
    match kind {
        Kind::Flag => "true or false".into(),
        Kind::Count(least, i64::MAX) => format!("a whole number from {least}"),
        Kind::Count(least, most) => format!("a whole number from {least} to {most}"),
        Kind::Limit(least, most) => format!("a whole number from {least} to {most}, or {NO_LIMIT}"),
        Kind::Number => "a number that is not negative".into(),
        Kind::Wait => "a number of seconds; a negative one counts as 0".into(),
        Kind::Text => "a text (put it in quotes)".into(),
        Kind::Secret => "a text, never shown".into(),
        Kind::Choice(words) => format!("one of {}", words.join(", ")),
        Kind::List => "a list of texts, or one text with commas".into(),
        Kind::Table => "a section or a list".into(),
    }
}

fn flag(written: &Value) -> Option<bool> {
    match written {
        Value::Bool(it) => Some(*it),
        Value::Number(it) => match it.as_i64()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        },
        Value::String(it) => match it.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Some(true),
            "false" | "no" | "off" | "0" => Some(false),
            _ => None,
        },
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn whole(written: &Value) -> Option<i64> {
    match written {
        Value::Number(it) => it.as_i64(),
        Value::String(it) => it.trim().replace('_', "").parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn number(written: &Value) -> Option<f64> {
    match written {
        Value::Number(it) => it.as_f64(),
        Value::String(it) => it.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Ids are often written as bare numbers.
fn text(written: &Value) -> Option<String> {
    match written {
        Value::String(it) => Some(it.clone()),
        Value::Number(it) => Some(it.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// YAML reads a bare `off` as false; if `off` is one of the words, that is meant.
fn choice(words: &'static [&'static str], written: &Value) -> Option<&'static str> {
    let word = match written {
        Value::Bool(true) => "on".to_owned(),
        Value::Bool(false) => "off".to_owned(),
        other => text(other)?.trim().to_ascii_lowercase(),
    };
    words.iter().copied().find(|known| *known == word)
}

fn list(written: &Value) -> Option<Value> {
    let items: Vec<String> = match written {
        Value::Array(items) => items.iter().map(text).collect::<Option<_>>()?,
        Value::String(line) if line.trim_start().starts_with('[') => {
            let items: Vec<Value> = serde_json::from_str(line).ok()?;
            items.iter().map(text).collect::<Option<_>>()?
        }
        Value::String(line) => line.split(',').map(str::to_owned).collect(),
        Value::Number(it) => vec![it.to_string()],
        Value::Null | Value::Bool(_) | Value::Object(_) => return None,
    };
    let trimmed = items.iter().map(|item| item.trim()).filter(|item| !item.is_empty());
    Some(Value::Array(trimmed.map(Value::from).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn accepts(kind: Kind, written: Value, want: Value) {
        assert_eq!(coerce(kind, &written), Ok(want), "{kind:?} {written}");
    }

    #[track_caller]
    fn rejects(kind: Kind, written: Value, want: &str) {
        assert_eq!(coerce(kind, &written).unwrap_err(), want);
    }

    #[test]
    fn accepts_every_notation_of_a_value() {
        accepts(Kind::Flag, json!("Yes"), json!(true));
        accepts(Kind::Flag, json!(0), json!(false));
        accepts(Kind::Count(1, 65_535), json!("8642"), json!(8642));
        accepts(Kind::Count(0, i64::MAX), json!("200_000"), json!(200_000));
        accepts(Kind::Number, json!("0.35"), json!(0.35));
        accepts(Kind::Wait, json!("-5"), json!(0.0));
        accepts(Kind::Wait, json!(7), json!(7.0));
        accepts(Kind::Limit(1, 9), json!("None"), json!("none"));
        accepts(Kind::Limit(1, 9), json!("7"), json!(7));
        accepts(Kind::Text, json!(-100_123), json!("-100123"));
        accepts(Kind::Choice(&["off", "first"]), json!(false), json!("off"));
        accepts(Kind::Choice(&["off", "first"]), json!(" First "), json!("first"));
        accepts(Kind::List, json!("1, 2,,@three "), json!(["1", "2", "@three"]));
        accepts(Kind::List, json!([1, "b"]), json!(["1", "b"]));
        accepts(Kind::List, json!("[\"a\", 5]"), json!(["a", "5"]));
        accepts(Kind::List, json!(7), json!(["7"]));
        accepts(Kind::List, json!(""), json!([]));
    }

    #[test]
    fn error_states_expectation_and_finding() {
        rejects(Kind::Flag, json!("maybe"), "expected true or false, found \"maybe\"");
        rejects(
            Kind::Count(1, 65_535),
            json!(70_000),
            "expected a whole number from 1 to 65535, found 70000",
        );
        rejects(Kind::Count(1, 9), json!(1.5), "expected a whole number from 1 to 9, found 1.5");
        rejects(Kind::Number, json!(-1), "expected a number that is not negative, found -1");
        rejects(
            Kind::Wait,
            json!("inf"),
            "expected a number of seconds; a negative one counts as 0, found \"inf\"",
        );
        rejects(Kind::Text, json!(true), "expected a text (put it in quotes), found true");
        rejects(
            Kind::Choice(&["pair", "ignore"]),
            json!("pear"),
            "expected one of pair, ignore, found \"pear\"",
        );
        rejects(
            Kind::List,
            json!({"a": 1}),
            "expected a list of texts, or one text with commas, found a section",
        );
    }

    #[test]
    fn secret_of_the_wrong_kind_is_not_shown() {
        rejects(Kind::Secret, json!(["sk-live-1"]), "expected a text");
    }
}
