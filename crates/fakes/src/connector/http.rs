//! The HTTP side: credentials, policy, files.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::{Value, json};

use super::Shared;
use super::world::Posted;
use crate::road;

pub(super) async fn post(
    State(shared): State<Arc<Shared>>,
    Path(endpoint): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let said = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let (status, answer) = shared.ring(|world| {
        world.posted.push(Posted { endpoint: endpoint.clone(), bearer, body: said.clone() });
        if let Some(at) = world.answers.iter().position(|(of, ..)| *of == endpoint)
            && let Some((_, status, body)) = world.answers.remove(at)
        {
            return (status, body);
        }
        match endpoint.as_str() {
            "provision" | "enroll" => (200, issued(&said)),
            "policy" => (200, json!({})),
            "media" => {
                let id = format!("m{}", world.number());
                world.media.insert(id.clone(), body.to_vec());
                (200, json!({"id": id, "size": body.len()}))
            }
            "token" => (200, json!({"access_token": "identity"})),
            _other => (404, json!({"error": "not found"})),
        }
    });
    road::json(road::status(status), answer.to_string())
}

fn issued(said: &Value) -> Value {
    json!({"secret": "issued-secret", "deliveryKey": "k", "tenant": "t", "gatewayId": said["gatewayId"], "routeKeys": []})
}

pub(super) async fn media(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Response {
    match shared.world.read(|world| world.media.get(&id).cloned()) {
        Some(content) => content.into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
