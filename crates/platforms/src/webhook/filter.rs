//! Which payloads of a route are wanted: conditions that its owner wrote down. Pure.

use axum::http::HeaderMap;
use regex::Regex;
use serde_json::{Map, Value};

use super::template;

/// How deep groups may lie in each other.
const DEPTH: usize = 16;

#[derive(Debug, Clone)]
pub(super) enum Filter {
    All(Vec<Filter>),
    Any(Vec<Filter>),
    Not(Box<Filter>),
    Field { path: String, is: Is },
}

#[derive(Debug, Clone)]
pub(super) enum Is {
    There,
    Equal(Value),
    /// A part of a text, an item of a list, a key of an object.
    Containing(Value),
    OneOf(Vec<Value>),
    Like(Regex),
}

/// What a filter looks at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Event<'a> {
    pub(super) payload: &'a Value,
    pub(super) headers: &'a HeaderMap,
    /// Names of the event, the most telling first.
    pub(super) names: &'a [String],
}

impl Filter {
    /// From what was written: one condition, or a list of which all must hold.
    pub(super) fn parse(written: &Value) -> Result<Self, String> {
        parse(written, DEPTH)
    }

    pub(super) fn holds(&self, event: Event<'_>) -> bool {
        match self {
            Self::All(all) => all.iter().all(|one| one.holds(event)),
            Self::Any(any) => any.iter().any(|one| one.holds(event)),
            Self::Not(one) => !one.holds(event),
            Self::Field { path, is } => field(path, is, event),
        }
    }
}

fn field(path: &str, is: &Is, event: Event<'_>) -> bool {
    if path == "event" || path == "event_type" {
        return event.names.iter().any(|name| is.met(Some(&Value::from(name.as_str()))));
    }
    if let Some(name) = path.strip_prefix("headers.") {
        let header = event.headers.get(name).and_then(|value| value.to_str().ok()).map(Value::from);
        return is.met(header.as_ref());
    }
    // `payload.x` means the payload's own `payload`, if it has one, and else the payload.
    let found = template::at(path, event.payload).or_else(|| {
        let bare = path.strip_prefix("payload.").filter(|_| event.payload.get("payload").is_none())?;
        template::at(bare, event.payload)
    });
    is.met(found)
}

impl Is {
    fn met(&self, found: Option<&Value>) -> bool {
        match (self, found) {
            (_, None) => false,
            (Self::There, Some(_)) => true,
            (Self::Equal(want), Some(found)) => found == want,
            (Self::OneOf(wanted), Some(found)) => wanted.contains(found),
            (Self::Like(pattern), Some(found)) => text(found).is_some_and(|text| pattern.is_match(&text)),
            (Self::Containing(want), Some(found)) => match found {
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

fn parse(written: &Value, depth: usize) -> Result<Filter, String> {
    let depth = depth.checked_sub(1).ok_or("filters lie too deep in each other")?;
    match written {
        Value::Array(list) => Ok(Filter::All(several(list, depth)?)),
        Value::Object(object) => condition(object, depth),
        other => Err(format!("a filter is a section with field and a condition, not {other}")),
    }
}

fn several(list: &[Value], depth: usize) -> Result<Vec<Filter>, String> {
    list.iter().map(|one| parse(one, depth)).collect()
}

fn condition(object: &Map<String, Value>, depth: usize) -> Result<Filter, String> {
    let mut all = Vec::new();
    for (name, value) in object.iter().filter(|(name, _)| *name != "field") {
        let list = || value.as_array().ok_or_else(|| format!("{name}: expected a list"));
        all.push(match name.as_str() {
            "all" => Filter::All(several(list()?, depth)?),
            "any" => Filter::Any(several(list()?, depth)?),
            "not" => Filter::Not(Box::new(parse(value, depth)?)),
            operator => {
                let path = object.get("field").and_then(Value::as_str);
                let path = path.ok_or_else(|| format!("{operator} needs a field to look at"))?;
                operation(path, operator, value)?
            }
        });
    }
    if all.is_empty() {
        return Err("a filter has no condition (exists, equals, contains, in, regex, all, any, not …)".into());
    }
    Ok(Filter::All(all))
}

fn operation(path: &str, operator: &str, value: &Value) -> Result<Filter, String> {
    let field = |is| Filter::Field { path: path.to_owned(), is };
    let unless = |holds: bool, filter| if holds { filter } else { Filter::Not(Box::new(filter)) };
    let flag = || value.as_bool().ok_or_else(|| format!("{operator}: expected true or false"));
    Ok(match operator {
        "exists" => unless(flag()?, field(Is::There)),
        "missing" => unless(!flag()?, field(Is::There)),
        "equals" => field(Is::Equal(value.clone())),
        "not_equals" => unless(false, field(Is::Equal(value.clone()))),
        "contains" => field(Is::Containing(value.clone())),
        "in" => {
            let list = value.as_array().ok_or_else(|| "in: expected a list".to_owned())?;
            field(Is::OneOf(list.clone()))
        }
        "regex" => {
            let pattern = value.as_str().ok_or_else(|| "regex: expected a text".to_owned())?;
            field(Is::Like(Regex::new(pattern).map_err(|error| format!("regex: {error}"))?))
        }
        "in_file" => return Err("in_file is not known here; write the values into in".into()),
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
        let filter = Filter::parse(&written).expect("a filter");
        let event = Event { payload: &payload, headers: &headers, names: &names };
        assert_eq!(filter.holds(event), want, "{written}");
    }

    #[test]
    fn every_condition_means_what_it_says() {
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
    fn fields_are_found_wherever_they_are() {
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
    fn groups_join_conditions() {
        let (yes, no) = (json!({ "field": "n", "equals": 4 }), json!({ "field": "n", "equals": 5 }));
        check(json!([yes, no]), false);
        check(json!([]), true);
        check(json!({ "any": [yes, no] }), true);
        check(json!({ "all": [yes, no] }), false);
        check(json!({ "not": no }), true);
        check(json!({ "any": [] }), false);
    }

    #[test]
    fn what_makes_no_sense_is_refused_when_it_is_read() {
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
            let error = Filter::parse(&written).expect_err("refused");
            assert!(error.contains(word), "{error}");
        }
        let deep = (0..100).fold(json!({ "field": "a", "exists": true }), |inner, _| json!({ "not": inner }));
        assert!(Filter::parse(&deep).expect_err("refused").contains("too deep"));
    }
}
