//! The HTTP endpoints: credentials, policy and media.

use std::sync::Arc;

use axum::extract::{self, Path};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::{Value, json};

use super::Shared;
use super::state::PostedRequest;
use crate::faults::pipeline;

pub(super) async fn post(
    extract::State(shared): extract::State<Arc<Shared>>,
    Path(endpoint): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let request = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let (status, response) = shared.update(|state| {
        state.posted.push(PostedRequest { endpoint: endpoint.clone(), bearer, body: request.clone() });
        if let Some(at) = state.responses.iter().position(|(of, ..)| *of == endpoint)
            && let Some((_, status, body)) = state.responses.remove(at)
        {
            return (status, body);
        }
        match endpoint.as_str() {
            "provision" | "enroll" => (200, credentials(&request)),
            "policy" => (200, json!({})),
            "media" => {
                let id = format!("m{}", state.next_number());
                state.media.insert(id.clone(), body.to_vec());
                (200, json!({"id": id, "size": body.len()}))
            }
            "token" => (200, json!({"access_token": "identity"})),
            _other => (404, json!({"error": "not found"})),
        }
    });
    pipeline::json(pipeline::status(status), response.to_string())
}

fn credentials(request: &Value) -> Value {
    json!({"secret": "issued-secret", "deliveryKey": "k", "tenant": "t", "gatewayId": request["gatewayId"], "routeKeys": []})
}

pub(super) async fn media(
    extract::State(shared): extract::State<Arc<Shared>>,
    Path(id): Path<String>,
) -> Response {
    match shared.state.read(|state| state.media.get(&id).cloned()) {
        Some(content) => content.into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
