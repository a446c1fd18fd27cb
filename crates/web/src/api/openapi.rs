//! The OpenAPI document, generated from the route table and the argument and return types of the handlers ([`Input`],
//! [`Output`]), so that document and handlers cannot disagree.

use std::future::Future;

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use schemars::generate::{SchemaGenerator, SchemaSettings};
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::ApiClient;
use super::routes::{ApiRoute, table};
use super::wire::response::JsonObject;
use crate::error::{ApiError, ErrorResponse};
use crate::server::StopSignal;

const JSON: &str = "application/json";
const STREAM: &str = "text/event-stream";

pub(super) async fn serve() -> Json<JsonObject> {
    Json(document())
}

pub(crate) fn document() -> JsonObject {
    let mut schemas = Schemas::new();
    let mut paths = Map::new();
    for route in table() {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = operation(&route, &mut schemas);
    }
    JsonObject::from(json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Petasos API", "version": env!("CARGO_PKG_VERSION"),
            "description": "OpenAI-compatible access to the agent, runs that outlive their clients, and conversations. \
                            Every path is also served below /p/{profile}.",
        },
        "servers": [{ "url": "/" }],
        "security": [{ "key": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "key": { "type": "http", "scheme": "bearer" } },
            "schemas": schemas.definitions(),
        },
    }))
}

struct Schemas {
    requests: SchemaGenerator,
    responses: SchemaGenerator,
}

impl Schemas {
    fn new() -> Self {
        let settings = || {
            let settings = SchemaSettings::draft2020_12().with(|settings| {
                settings.meta_schema = None;
                settings.definitions_path = "/components/schemas".into();
            });
            settings.with_transform(simplify)
        };
        Self {
            requests: settings().for_deserialize().into_generator(),
            responses: settings().for_serialize().into_generator(),
        }
    }

    fn definitions(mut self) -> Map<String, Value> {
        let mut definitions = self.requests.take_definitions(true);
        definitions.extend(self.responses.take_definitions(true));
        definitions
    }
}

/// Removes number formats of Rust and defaults of null.
fn simplify(schema: &mut Schema) {
    schema.remove("format");
    if schema.get("default").is_some_and(Value::is_null) {
        schema.remove("default");
    }
    transform_subschemas(&mut simplify, schema);
}

/// One operation of the document, filled by the types of its handler.
pub(crate) struct Operation<'a> {
    schemas: &'a mut Schemas,
    parameters: Vec<Value>,
    body: Option<Schema>,
    /// Status and content by media type.
    success: Option<(u16, Map<String, Value>)>,
    errors: Vec<(u16, &'static str)>,
}

impl Operation<'_> {
    pub(crate) fn parameter(&mut self, location: &str, name: &str, required: bool, schema: Value) {
        self.parameters.push(json!({ "name": name, "in": location, "required": required, "schema": schema }));
    }

    pub(crate) fn header(&mut self, name: &str) {
        self.parameter("header", name, false, json!({ "type": "string", "maxLength": 256 }));
    }

    /// Adds each member of `T` as a query parameter.
    pub(crate) fn query<T: JsonSchema>(&mut self) {
        let schema = SchemaSettings::draft2020_12()
            .with_transform(simplify)
            .into_generator()
            .into_root_schema_for::<T>();
        for (name, schema) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let mut schema = schema.clone();
            // A query parameter cannot be null.
            if let Some(Value::Array(types)) = schema.get("type") {
                schema["type"] = types.iter().find(|it| *it != "null").cloned().unwrap_or_default();
            }
            self.parameter("query", name, false, schema);
        }
    }

    pub(crate) fn body<T: JsonSchema>(&mut self) {
        self.body = Some(self.schemas.requests.subschema_for::<T>());
        self.error(408, "The body did not arrive in time");
        self.error(413, "The body is larger than 10 MB");
    }

    pub(crate) fn success<T: JsonSchema>(&mut self, status: u16) {
        let schema = self.schemas.responses.subschema_for::<T>();
        self.media(status, JSON, json!({ "schema": schema }));
    }

    pub(crate) fn stream(&mut self) {
        self.media(200, STREAM, json!({}));
    }

    pub(crate) fn error(&mut self, status: u16, description: &'static str) {
        if self.errors.iter().all(|(known, _)| *known != status) {
            self.errors.push((status, description));
        }
    }

    fn media(&mut self, status: u16, media_type: &str, value: Value) {
        let (_, content) = self.success.get_or_insert_with(|| (status, Map::new()));
        content.insert(media_type.to_owned(), value);
    }

    fn responses(&mut self) -> Map<String, Value> {
        let mut responses = Map::new();
        if let Some((status, content)) = self.success.take() {
            responses.insert(status.to_string(), json!({ "description": "Done", "content": content }));
        }
        let schema = self.schemas.responses.subschema_for::<ErrorResponse>();
        for (status, description) in &self.errors {
            let content = json!({ JSON: { "schema": schema } });
            responses.insert(status.to_string(), json!({ "description": description, "content": content }));
        }
        responses
    }
}

fn operation(route: &ApiRoute, schemas: &mut Schemas) -> Value {
    let mut operation =
        Operation { schemas, parameters: Vec::new(), body: None, success: None, errors: Vec::new() };
    operation.error(400, "The request is invalid");
    operation.error(405, "This path does not support this method");
    if route.method != "GET" {
        operation
            .error(409, "It already exists, is in use, or the Idempotency-Key belongs to another request");
    }
    if route.scope.is_some() {
        operation.error(401, "No valid key");
        operation.error(403, "The key lacks the scope");
        operation.error(429, "Too many requests; see Retry-After");
        operation.error(503, "The gateway is draining or its database is unavailable; see Retry-After");
    }
    (route.describe)(&mut operation);
    let responses = operation.responses();
    let mut value = json!({
        "operationId": route.name, "summary": route.summary, "parameters": operation.parameters,
        "responses": responses,
    });
    if let Some(schema) = operation.body {
        value["requestBody"] = json!({ "required": true, "content": { JSON: { "schema": schema } } });
    }
    match route.scope {
        None => value["security"] = json!([]),
        Some(scope) => {
            value["description"] = json!(format!("Needs a key with the scope `{}`.", scope.as_str()))
        }
    }
    value
}

/// An argument of a handler.
pub(crate) trait Input {
    fn describe(_: &mut Operation<'_>) {}
}

impl<S> Input for State<S> {}
impl Input for ApiClient {}
impl Input for StopSignal {}
impl Input for HeaderMap {}

/// The return type of a handler.
pub(crate) trait Output {
    fn describe(operation: &mut Operation<'_>);
}

impl<T: Serialize + JsonSchema> Output for Json<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.success::<T>(200);
    }
}

impl<T: Output> Output for Result<T, ApiError> {
    fn describe(operation: &mut Operation<'_>) {
        T::describe(operation);
    }
}

pub(super) trait Describe<Arguments> {
    fn describe(operation: &mut Operation<'_>);
}

macro_rules! describe {
    ($($argument:ident)*) => {
        impl<F, Answer, R, $($argument),*> Describe<($($argument,)*)> for F
        where
            F: Fn($($argument),*) -> Answer,
            Answer: Future<Output = R>,
            R: Output,
            $($argument: Input,)*
        {
            fn describe(operation: &mut Operation<'_>) {
                $($argument::describe(operation);)*
                R::describe(operation);
            }
        }
    };
}

describe!();
describe!(A);
describe!(A B);
describe!(A B C);
describe!(A B C D);
describe!(A B C D E);
describe!(A B C D E G);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    found.insert(reference.clone());
                }
                members.values().for_each(|member| references(member, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn document_defines_exactly_the_referenced_types() {
        let serve = json!(document());
        let schemas = serve["components"]["schemas"].as_object().expect("schemas");
        let mut used = BTreeSet::new();
        references(&serve, &mut used);
        let defined = schemas.keys().map(|name| format!("#/components/schemas/{name}"));
        assert_eq!(used, defined.collect());
        // Generated clients define types with these names.
        for taken in ["Response", "List", "Object", "Error"] {
            assert!(!schemas.contains_key(taken), "{taken}");
        }
    }

    #[test]
    fn operation_matches_handler_types() {
        let serve = json!(document());
        let chat = &serve["paths"]["/v1/chat/completions"]["post"];
        let schema = |of: &Value| of["content"]["application/json"]["schema"]["$ref"].clone();
        assert_eq!(schema(&chat["requestBody"]), "#/components/schemas/ChatCompletionRequest");
        assert_eq!(schema(&chat["responses"]["200"]), "#/components/schemas/ChatCompletion");
        assert!(chat["responses"]["200"]["content"]["text/event-stream"].is_object());
        let names = |of: &Value| {
            let parameters = of["parameters"].as_array().expect("parameters").iter();
            parameters.map(|it| it["name"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(
            names(chat),
            ["Idempotency-Key", "X-Hermes-Session-Key", "X-Petasos-Detach", "X-Hermes-Session-Id"]
        );
        let rows = &serve["paths"]["/api/sessions/{id}/messages"]["get"];
        assert_eq!(names(rows), ["id", "after", "limit"]);
        let request = &serve["components"]["schemas"]["RunRequest"];
        assert_eq!(request["required"], json!(["input"]));
        assert_eq!(request["properties"]["model"]["type"], json!(["string", "null"]));
        assert_eq!(serve["components"]["schemas"]["SessionChange"]["additionalProperties"], false);
    }
}
