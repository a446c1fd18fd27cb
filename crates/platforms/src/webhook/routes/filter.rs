//! Payload filter of a route, from the settings. Pure.

use axum::http::HeaderMap;
use regex::Regex;
use serde_json::{Map, Value};

use super::template;

/// Nested groups.
const MAX_DEPTH: usize = 16;

#[derive(Debug, Clone)]
pub(in crate::webhook) enum PayloadFilter {
    All(Vec<PayloadFilter>),
    Any(Vec<PayloadFilter>),
    Not(Box<PayloadFilter>),
    Field { path: String, condition: Condition },
}

#[derive(Debug, Clone)]
pub(in crate::webhook) enum Condition {
    Exists,
    Equals(Value),
    /// A part of a text, an item of a list, a key of an object.
    Contains(Value),
    OneOf(Vec<Value>),
    Matches(Regex),
}

#[derive(Debug, Clone, Copy)]
pub(in crate::webhook) struct DeliveryEvent<'a> {
    pub(in crate::webhook) payload: &'a Value,
    pub(in crate::webhook) headers: &'a HeaderMap,
    /// Names of the event, the most specific first.
    pub(in crate::webhook) names: &'a [String],
}

impl PayloadFilter {
    /// One condition, or a list of conditions that must all hold.
    pub(in crate::webhook) fn parse(written: &Value) -> Result<Self, String> {
        parse(written, MAX_DEPTH)
    }

    pub(in crate::webhook) fn matches(&self, event: DeliveryEvent<'_>) -> bool {
        match self {
            Self::All(all) => all.iter().all(|one| one.matches(event)),
            Self::Any(any) => any.iter().any(|one| one.matches(event)),
            Self::Not(one) => !one.matches(event),
            Self::Field { path, condition } => field_matches(path, condition, event),
        }
    }
}

fn field_matches(path: &str, condition: &Condition, event: DeliveryEvent<'_>) -> bool {
    if path == "event" || path == "event_type" {
        return event.names.iter().any(|name| condition.is_met(Some(&Value::from(name.as_str()))));
    }
    if let Some(name) = path.strip_prefix("headers.") {
        let header = event.headers.get(name).and_then(|value| value.to_str().ok()).map(Value::from);
        return condition.is_met(header.as_ref());
    }
    // `payload.x` refers to a field `payload` of the payload if there is one, else to the payload.
    let found = template::value_at(path, event.payload).or_else(|| {
        let bare = path.strip_prefix("payload.").filter(|_| event.payload.get("payload").is_none())?;
        template::value_at(bare, event.payload)
    });
    condition.is_met(found)
}

impl Condition {
    fn is_met(&self, found: Option<&Value>) -> bool {
        match (self, found) {
            (_, None) => false,
            (Self::Exists, Some(_)) => true,
            (Self::Equals(want), Some(found)) => found == want,
            (Self::OneOf(wanted), Some(found)) => wanted.contains(found),
            (Self::Matches(pattern), Some(found)) => text(found).is_some_and(|text| pattern.is_match(&text)),
            (Self::Contains(want), Some(found)) => match found {
                Value::String(found) => text(want).is_some_and(|want| found.contains(&want)),
                Value::Array(items) => items.contains(want),
                Value::Object(object) => want.as_str().is_some_and(|key| object.contains_key(key)),
                Value::Null | Value::Bool(_) | Value::Number(_) => false,
            },
        }
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn parse(written: &Value, depth: usize) -> Result<PayloadFilter, String> {
    let depth = depth.checked_sub(1).ok_or("filters are nested too deeply")?;
    match written {
        Value::Array(list) => Ok(PayloadFilter::All(parse_list(list, depth)?)),
        Value::Object(object) => parse_conditions(object, depth),
        other => Err(format!("a filter is a section with field and a condition, not {other}")),
    }
}

fn parse_list(list: &[Value], depth: usize) -> Result<Vec<PayloadFilter>, String> {
    list.iter().map(|one| parse(one, depth)).collect()
}

fn parse_conditions(object: &Map<String, Value>, depth: usize) -> Result<PayloadFilter, String> {
    let mut all = Vec::new();
    for (name, value) in object.iter().filter(|(name, _)| *name != "field") {
        let list = || value.as_array().ok_or_else(|| format!("{name}: expected a list"));
        all.push(match name.as_str() {
            "all" => PayloadFilter::All(parse_list(list()?, depth)?),
            "any" => PayloadFilter::Any(parse_list(list()?, depth)?),
            "not" => PayloadFilter::Not(Box::new(parse(value, depth)?)),
            operator => {
                let path = object.get("field").and_then(Value::as_str);
                let path = path.ok_or_else(|| format!("{operator} needs a field"))?;
                parse_operator(path, operator, value)?
            }
        });
    }
    if all.is_empty() {
        return Err("a filter has no condition (exists, equals, contains, in, regex, all, any, not …)".into());
    }
    Ok(PayloadFilter::All(all))
}

fn parse_operator(path: &str, operator: &str, value: &Value) -> Result<PayloadFilter, String> {
    let field = |condition| PayloadFilter::Field { path: path.to_owned(), condition };
    let negate_unless =
        |holds: bool, filter| if holds { filter } else { PayloadFilter::Not(Box::new(filter)) };
    let flag = || value.as_bool().ok_or_else(|| format!("{operator}: expected true or false"));
    Ok(match operator {
        "exists" => negate_unless(flag()?, field(Condition::Exists)),
        "missing" => negate_unless(!flag()?, field(Condition::Exists)),
        "equals" => field(Condition::Equals(value.clone())),
        "not_equals" => negate_unless(false, field(Condition::Equals(value.clone()))),
        "contains" => field(Condition::Contains(value.clone())),
        "in" => {
            let list = value.as_array().ok_or_else(|| "in: expected a list".to_owned())?;
            field(Condition::OneOf(list.clone()))
        }
        "regex" => {
            let pattern = value.as_str().ok_or_else(|| "regex: expected a text".to_owned())?;
            field(Condition::Matches(Regex::new(pattern).map_err(|error| format!("regex: {error}"))?))
        }
        "in_file" => return Err("in_file is not supported; write the values into in".into()),
        unknown => return Err(format!("{unknown} is not a condition")),
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(written: Value, want: bool) {
        let payload = json!({
            "ref": "refs/heads/main", "n": 4, "labels": ["hermes", 7], "o": { "k": null }, "flat": "x",
        });
        let mut headers = HeaderMap::new();
        headers.insert("x-from", HeaderValue::from_static("ci"));
        let names = ["push".to_owned(), "Push Hook".to_owned()];
        let filter = PayloadFilter::parse(&written).expect("a filter");
        let event = DeliveryEvent { payload: &payload, headers: &headers, names: &names };
        assert_eq!(filter.matches(event), want, "{written}");
    }

    #[test]
    fn evaluates_every_condition() {
        for (condition, want) in [
            (json!({ "exists": true }), true),
            (json!({ "exists": false }), false),
            (json!({ "missing": true }), false),
            (json!({ "equals": "refs/heads/main" }), true),
            (json!({ "not_equals": "refs/heads/main" }), false),
            (json!({ "contains": "heads" }), true),
            (json!({ "contains": "tags" }), false),
            (json!({ "in": ["a", "refs/heads/main"] }), true),
            (json!({ "in": [] }), false),
            (json!({ "regex": "^refs/heads/(main|release)$" }), true),
            (json!({ "regex": "^main$" }), false),
            (json!({ "contains": "refs", "regex": "main$" }), true),
            (json!({ "contains": "refs", "regex": "x$" }), false),
        ] {
            let mut written = condition;
            written["field"] = "ref".into();
            check(written, want);
        }
    }

    #[test]
    fn finds_fields_of_payload_headers_and_event() {
        for (written, want) in [
            (json!({ "field": "n", "equals": 4 }), true),
            (json!({ "field": "n", "equals": "4" }), false),
            (json!({ "field": "n", "regex": "^4$" }), true),
            (json!({ "field": "labels", "contains": "hermes" }), true),
            (json!({ "field": "labels", "contains": "her" }), false),
            (json!({ "field": "labels.1", "equals": 7 }), true),
            (json!({ "field": "o", "contains": "k" }), true),
            (json!({ "field": "o.k", "exists": true }), true),
            (json!({ "field": "gone", "not_equals": 1 }), true),
            (json!({ "field": "gone", "missing": true }), true),
            (json!({ "field": "payload.flat", "equals": "x" }), true),
            (json!({ "field": "headers.X-From", "equals": "ci" }), true),
            (json!({ "field": "headers.X-Gone", "exists": true }), false),
            (json!({ "field": "event", "equals": "push" }), true),
            (json!({ "field": "event_type", "in": ["pull_request"] }), false),
        ] {
            check(written, want);
        }
    }

    #[test]
    fn groups_combine_conditions() {
        let yes = json!({ "field": "n", "equals": 4 });
        let no = json!({ "field": "n", "equals": 5 });
        check(json!([yes, no]), false);
        check(json!([]), true);
        check(json!({ "any": [yes, no] }), true);
        check(json!({ "all": [yes, no] }), false);
        check(json!({ "not": no }), true);
        check(json!({ "any": [] }), false);
    }

    #[test]
    fn refuses_invalid_filters() {
        for (written, word) in [
            (json!({ "field": "a" }), "no condition"),
            (json!({ "equals": 1 }), "needs a field"),
            (json!({ "field": "a", "equal": 1 }), "equal is not"),
            (json!({ "field": "a", "regex": "(" }), "regex"),
            (json!({ "field": "a", "exists": "yes" }), "true or false"),
            (json!({ "field": "a", "in_file": "x.json" }), "in_file"),
            (json!("text"), "a section"),
            (json!({ "any": 3 }), "a list"),
        ] {
            let error = PayloadFilter::parse(&written).expect_err("refused");
            assert!(error.contains(word), "{error}");
        }
        let deep = (0..100).fold(json!({ "field": "a", "exists": true }), |inner, _| json!({ "not": inner }));
        assert!(PayloadFilter::parse(&deep).expect_err("refused").contains("too deep"));
    }
}
