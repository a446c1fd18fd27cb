//! Arguments of a tool call: each tool has one type, from which schema and parser are derived.

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use serde_path_to_error::Segment;

/// Arguments as the model wrote them.
pub(crate) type Object = Map<String, Value>;

pub(crate) trait ToolArguments: DeserializeOwned + JsonSchema + Send + Sync + 'static {}

impl<A: DeserializeOwned + JsonSchema + Send + Sync + 'static> ToolArguments for A {}

/// `None` if it is not a JSON object.
pub(in crate::tools) fn parse_object(json: &str) -> Option<Object> {
    serde_json::from_str(json).ok()
}

/// Null counts as absent. The error names the argument, for the model.
pub(in crate::tools) fn parse<A: ToolArguments>(mut object: Object) -> Result<A, String> {
    object.retain(|_, value| !value.is_null());
    let object = Value::Object(object);
    serde_path_to_error::deserialize(&object).map_err(|error| {
        let schema = schema::<A>();
        let mut required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        if let Some(name) = required.find(|name| object.get(name).is_none()) {
            return missing(name);
        }
        match error.path().iter().next() {
            Some(Segment::Map { key }) => {
                format!("The argument {key:?} must be {}.", describe_type(&schema["properties"][key]))
            }
            Some(_) | None => format!("The arguments do not fit: {}.", error.inner()),
        }
    })
}

/// The JSON schema for models: without references, titles, number formats and nulls.
pub(in crate::tools) fn schema<A: ToolArguments>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    settings.with_transform(simplify).into_generator().into_root_schema_for::<A>().to_value()
}

fn simplify(schema: &mut Schema) {
    for keyword in ["title", "format", "additionalProperties"] {
        schema.remove(keyword);
    }
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    let only =
        schema.get("type").and_then(Value::as_array).and_then(|types| types.iter().find(|it| *it != "null"));
    if let Some(only) = only.cloned() {
        schema.insert("type".to_owned(), only);
    }
    transform_subschemas(&mut simplify, schema);
}

/// Completes "The argument must be …".
fn describe_type(property: &Value) -> String {
    let items = &property["items"];
    match property["type"].as_str() {
        Some("string") if property["enum"].is_array() => join_words(&property["enum"], "or"),
        Some("string") => "a text".to_owned(),
        Some("boolean") => "true or false".to_owned(),
        Some("integer") => "a whole number".to_owned(),
        Some("array") if items["required"].is_array() => {
            format!("a list of objects with {}", join_words(&items["required"], "and"))
        }
        Some("array") if items["type"] == "string" => "a list of texts".to_owned(),
        Some("array") => "a list of objects".to_owned(),
        Some(_) | None => "of another type".to_owned(),
    }
}

/// "a, b or c"
fn join_words(words: &Value, conjunction: &str) -> String {
    let words: Vec<_> = words.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} {conjunction} {last}", rest.join(", ")),
        Some(_) | None => words.concat(),
    }
}

fn missing(name: &str) -> String {
    format!("The argument {name:?} is missing.")
}

/// An argument that this call needs although the schema makes it optional.
pub(crate) fn required<'a>(value: &'a Option<String>, name: &str) -> Result<&'a str, String> {
    value.as_deref().ok_or_else(|| missing(name))
}

/// Accepts booleans also as text, because some models quote them.
pub(crate) fn flag<'de, D: Deserializer<'de>, B: From<bool>>(deserializer: D) -> Result<B, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Bool(flag) => Ok(flag.into()),
        Value::String(text) if text == "true" => Ok(true.into()),
        Value::String(text) if text == "false" => Ok(false.into()),
        _ => Err(D::Error::custom("neither true nor false")),
    }
}

// A whole number, also as text. Validated on use, because models fill in arguments that a call ignores.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Count(#[schemars(with = "i64")] Value);

impl Count {
    pub(crate) fn number(&self) -> Option<u64> {
        match &self.0 {
            Value::String(text) => text.trim().parse().ok(),
            value => value.as_u64(),
        }
    }

    /// Between 1 and `most`; larger values are lowered to `most`.
    pub(crate) fn within(
        count: Option<&Self>,
        name: &str,
        default: usize,
        most: usize,
    ) -> Result<usize, String> {
        let Some(count) = count else { return Ok(default) };
        let wrong = || format!("The argument {name:?} must be a whole number from 1.");
        let number = count.number().filter(|number| *number > 0).ok_or_else(wrong)?;
        Ok(usize::try_from(number).unwrap_or(most).min(most))
    }
}
