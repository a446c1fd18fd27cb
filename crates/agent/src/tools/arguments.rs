//! Arguments of a tool call. Each tool has a type for them: its JSON schema and its parser are both derived from it.

use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use serde_path_to_error::Segment;

/// Arguments as the model wrote them.
pub(crate) type Object = Map<String, Value>;

/// The argument type of a tool.
pub(crate) trait Arguments: DeserializeOwned + JsonSchema + Send + Sync + 'static {}

impl<A: DeserializeOwned + JsonSchema + Send + Sync + 'static> Arguments for A {}

/// `None`: not a JSON object.
pub(super) fn object(json: &str) -> Option<Object> {
    serde_json::from_str(json).ok()
}

/// An argument that is null counts as absent. The error is for the model and names the argument.
pub(super) fn parse<A: Arguments>(mut object: Object) -> Result<A, String> {
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
                format!("The argument {key:?} must be {}.", expected(&schema["properties"][key]))
            }
            Some(_) | None => format!("The arguments do not fit: {}.", error.inner()),
        }
    })
}

/// The JSON schema as models see it: without references, titles, number formats and nulls.
pub(super) fn schema<A: Arguments>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    settings.with_transform(simplify).into_generator().into_root_schema_for::<A>().to_value()
}

fn simplify(schema: &mut Schema) {
    for noise in ["title", "format", "additionalProperties"] {
        schema.remove(noise);
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
fn expected(property: &Value) -> String {
    let items = &property["items"];
    match property["type"].as_str() {
        Some("string") if property["enum"].is_array() => listed(&property["enum"], "or"),
        Some("string") => "a text".to_owned(),
        Some("boolean") => "true or false".to_owned(),
        Some("integer") => "a whole number".to_owned(),
        Some("array") if items["required"].is_array() => {
            format!("a list of objects with {}", listed(&items["required"], "and"))
        }
        Some("array") if items["type"] == "string" => "a list of texts".to_owned(),
        Some("array") => "a list of objects".to_owned(),
        Some(_) | None => "of another type".to_owned(),
    }
}

/// "a, b or c"
fn listed(words: &Value, conjunction: &str) -> String {
    let words: Vec<_> = words.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} {conjunction} {last}", rest.join(", ")),
        Some(_) | None => words.concat(),
    }
}

fn missing(name: &str) -> String {
    format!("The argument {name:?} is missing.")
}

/// An argument that this call cannot do without, although others can.
pub(crate) fn needed<'a>(value: &'a Option<String>, name: &str) -> Result<&'a str, String> {
    value.as_deref().ok_or_else(|| missing(name))
}

/// `true` or `false`, also as a text: some models quote it.
pub(crate) fn flag<'de, D: Deserializer<'de>, B: From<bool>>(deserializer: D) -> Result<B, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Bool(flag) => Ok(flag.into()),
        Value::String(text) if text == "true" => Ok(true.into()),
        Value::String(text) if text == "false" => Ok(false.into()),
        _ => Err(D::Error::custom("neither true nor false")),
    }
}

// A whole number, also as a text. It is checked where it is used: models fill in arguments that their call ignores.
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

    /// A number between 1 and `most`; larger ones are lowered to it.
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
