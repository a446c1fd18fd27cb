//! Lenient reading of JSON objects: other scalars become strings, anything else counts as absent.

use alloc::string::{String, ToString};

use serde_json::{Map, Value};

pub type Object = Map<String, Value>;

/// Absent, `null`, a list or an object: `None`.
pub fn text(object: &Object, name: &str) -> Option<String> {
    scalar(object.get(name)?)
}

pub fn given(object: &Object, name: &str) -> Option<String> {
    text(object, name).filter(|text| !text.is_empty())
}

pub fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

pub fn truth(object: &Object, name: &str) -> bool {
    object.get(name).and_then(Value::as_bool).unwrap_or_default()
}

/// A value that is not an object counts as empty.
pub fn object<'a>(object: &'a Object, name: &str) -> Option<&'a Object> {
    object.get(name).and_then(Value::as_object)
}

/// A value that is not a list counts as empty.
pub fn list<'a>(object: &'a Object, name: &str) -> &'a [Value] {
    object.get(name).and_then(Value::as_array).map(alloc::vec::Vec::as_slice).unwrap_or_default()
}
