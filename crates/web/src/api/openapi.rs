//! The OpenAPI document, made from the table of routes: what is not in the table is not served, and what is served is
//! in the document.

use axum::Json;
use serde_json::{Map, Value, json};

use super::routes::{Route, Works, table};
use super::schema::Shape;
use crate::error::ApiError;

const TEXT: &str = "application/json";
const STREAM: &str = "text/event-stream";

pub(super) async fn document() -> Result<Json<Value>, ApiError> {
    Ok(Json(make()))
}

pub(crate) fn make() -> Value {
    let mut paths = Map::new();
    for route in table() {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = operation(&route);
    }
    let schemas: Map<String, Value> =
        Shape::ALL.into_iter().map(|shape| (shape.name(), shape.schema())).collect();
    json!({
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
            "schemas": schemas,
        },
    })
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "operationId": route.name, "summary": route.summary, "parameters": parameters(route),
        "responses": responses(route),
    });
    if let Some(body) = route.body {
        operation["requestBody"] =
            json!({ "required": true, "content": { TEXT: { "schema": body.reference() } } });
    }
    match route.scope {
        None => operation["security"] = json!([]),
        Some(scope) => {
            operation["description"] = json!(format!("Needs a key with the scope `{}`.", scope.as_str()))
        }
    }
    operation
}

fn parameters(route: &Route) -> Vec<Value> {
    let mut parameters = Vec::new();
    if route.path.contains("{id}") {
        parameters.push(json!({ "name": "id", "in": "path", "required": true, "schema": { "type": "string", "minLength": 1 } }));
    }
    for name in route.query {
        let schema = match *name {
            "source" => json!({ "type": "string" }),
            "include_children" => json!({ "type": "boolean" }),
            _ => json!({ "type": "integer", "minimum": 0, "maximum": 4_294_967_295_u32 }),
        };
        parameters.push(json!({ "name": name, "in": "query", "required": false, "schema": schema }));
    }
    let mut headers: Vec<&str> = Vec::new();
    if matches!(route.works, Works::Yes | Works::Streams)
        || (route.works == Works::OnlyStreams && route.method == "POST")
    {
        headers.extend(["Idempotency-Key", "X-Hermes-Session-Key", "X-Petasos-Detach"]);
    }
    if route.name == "chat_completions" {
        headers.push("X-Hermes-Session-Id");
    }
    if route.name == "run_events" {
        headers.push("Last-Event-ID");
    }
    let header = |name| json!({ "name": name, "in": "header", "required": false, "schema": { "type": "string", "maxLength": 256 } });
    parameters.extend(headers.into_iter().map(header));
    parameters
}

fn responses(route: &Route) -> Value {
    let mut responses = Map::new();
    let shown = json!({ "schema": route.answer.reference() });
    let content = match route.works {
        Works::No | Works::Yes => json!({ TEXT: shown }),
        Works::Streams => json!({ TEXT: shown, STREAM: {} }),
        Works::OnlyStreams => json!({ STREAM: {} }),
    };
    responses.insert(route.success.to_string(), json!({ "description": "Done", "content": content }));
    for (status, what) in troubles(route) {
        let content = json!({ TEXT: { "schema": Shape::Error.reference() } });
        responses.insert(status.to_string(), json!({ "description": what, "content": content }));
    }
    Value::Object(responses)
}

fn troubles(route: &Route) -> Vec<(u16, &'static str)> {
    let mut troubles = vec![(400, "The request makes no sense"), (405, "This path has other methods")];
    if route.scope.is_some() {
        troubles.extend([
            (401, "No valid key"),
            (403, "The key may not do this"),
            (429, "Too many at once, or too often; Retry-After says when"),
            (503, "The gateway drains or its store refuses; Retry-After says when"),
        ]);
    }
    if route.scope.is_none() && route.method == "POST" {
        troubles.push((503, "Nobody is there to be told"));
    }
    if route.body == Some(Shape::FireRequest) || route.path.contains("{id}") || route.works != Works::No {
        troubles.push((404, "There is no such thing"));
    }
    if route.body.is_some() {
        troubles.push((408, "The body did not come in time"));
        troubles.push((413, "The body is larger than 10 MB"));
    }
    if route.method != "GET" {
        troubles.push((409, "It is there already, in use, or was asked for otherwise under this name"));
    }
    if route.works != Works::No {
        troubles.push((502, "The agent has no answer"));
    }
    troubles
}
