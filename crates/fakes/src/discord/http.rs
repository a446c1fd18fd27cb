//! HTTP: one request through the pipeline, from arrival to its response.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{self, ConnectInfo, FromRequestParts, Request};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::error::ServiceError;
use super::routes;
use super::state::{Outcome, State};
use super::{DiscordApi, Shared, gateway};
use crate::faults::pipeline::{self, CallGuard, Completion, json};
use crate::server::fake::FileHost;
use crate::server::files::{self, MultipartForm, Upload};
use crate::server::reset::ResetHandle;

const LARGEST_BODY: usize = 25 << 20;
const GARBAGE: &[u8] = b"<html>\xff\xfe{\"id\":";
const PAGE: &[u8] = b"<html><head><title>502 Bad Gateway</title></head></html>";

/// A REST request without its path.
#[derive(Debug, Default)]
pub(crate) struct RestRequest {
    pub(crate) body: Value,
    pub(crate) query: HashMap<String, String>,
    pub(crate) files: Vec<Upload>,
}

pub(crate) async fn serve(
    extract::State(shared): extract::State<Arc<Shared>>,
    ConnectInfo(connection): ConnectInfo<ResetHandle>,
    request: Request,
) -> Response {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    if let Ok(upgrade) = WebSocketUpgrade::from_request_parts(&mut head, &shared).await {
        let shared = shared.clone();
        return upgrade.on_upgrade(move |socket| gateway::serve(shared, connection, path, socket));
    }
    let Ok(body) = to_bytes(body, LARGEST_BODY).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    if path.starts_with(DiscordApi::DOWNLOADS) {
        return download(&shared, &connection, &path).await;
    }
    let kind = head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let (body, files) = match files::parse_form(kind, &body) {
        Some(MultipartForm { fields, files }) => {
            let payload = fields.into_iter().find(|(name, _)| name == "payload_json");
            (payload.and_then(|(_, json)| serde_json::from_str(&json).ok()).unwrap_or_default(), files)
        }
        None => (serde_json::from_slice(&body).unwrap_or_default(), Vec::new()),
    };
    let request = RestRequest { body, files, query: query(head.uri.query().unwrap_or_default()) };
    let route = match path.strip_prefix("/api/v10") {
        Some(rest) => routes::find(head.method.as_str(), rest),
        None => routes::find(head.method.as_str(), &path),
    };
    let (number, rules) = shared.state.change(|state| {
        let number = state.record_call(&route.name, route.channel, &request);
        (number, shared.rules.apply(&route.name, route.channel, request.body["content"].as_str(), |_| true))
    });
    let call = CallGuard::new(&shared.state, number);
    let bucket = format!("{}:{}", route.name, route.channel.unwrap_or_default());
    if !path.starts_with("/api/v10/") {
        return finish(call, &bucket, &connection, Completion::Respond(Err(ServiceError::not_found())));
    }
    // An interaction response is authorised by its own token.
    if route.name != "answerInteraction" && !is_authorised(&shared, &head.headers) {
        return finish(call, &bucket, &connection, Completion::Respond(Err(ServiceError::unauthorized())));
    }
    if let Some(early) = rules.before().await {
        return finish(call, &bucket, &connection, early);
    }
    let served = shared.update(|state| routes::apply(state, &route, &request));
    call.set_applied(served.is_ok());
    let response = served.map(|(response, change)| {
        if let Some(change) = &change {
            shared.notify_observers(change);
        }
        response
    });
    let completion = rules.after(response).await;
    finish(call, &bucket, &connection, completion)
}

/// Serves an attachment without authentication. Recorded as `download`, with the path as its body.
async fn download(shared: &Shared, connection: &ResetHandle, path: &str) -> Response {
    let request = RestRequest { body: path.into(), ..RestRequest::default() };
    let (number, rules) = shared.state.change(|state| {
        (state.record_call("download", None, &request), shared.rules.apply("download", None, None, |_| true))
    });
    let call = CallGuard::new(&shared.state, number);
    let completion = match rules.before().await {
        Some(early) => early,
        None => {
            let name = path.strip_prefix(DiscordApi::DOWNLOADS).unwrap_or_default();
            let file = shared.state.read(|state| state.files.get(name).cloned());
            call.set_applied(file.is_some());
            rules.after(file.ok_or_else(ServiceError::not_found)).await
        }
    };
    match files::response(completion) {
        Ok((response, whole)) => {
            call.close(if whole { Outcome::Ok } else { Outcome::Garbled });
            response
        }
        Err(completion) => finish(call, "cdn", connection, completion),
    }
}

fn is_authorised(shared: &Shared, headers: &HeaderMap) -> bool {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(given) = given.and_then(|value| value.strip_prefix("Bot ")) else { return false };
    shared.state.read(|state| state.token.as_deref().is_none_or(|token| token == given))
}

fn finish(
    call: CallGuard<'_, State>,
    bucket: &str,
    connection: &ResetHandle,
    completion: Completion<Value, ServiceError>,
) -> Response {
    match completion {
        Completion::Respond(Ok(Value::Null)) => {
            call.close(Outcome::Ok);
            with_rate_limit(StatusCode::NO_CONTENT.into_response(), bucket, None)
        }
        Completion::Respond(Ok(body)) => {
            call.close(Outcome::Ok);
            with_rate_limit(json(StatusCode::OK, body.to_string()), bucket, None)
        }
        Completion::Respond(Err(error)) => {
            call.close(Outcome::Refused(error.clone()));
            let response = json(pipeline::status(error.status), error.body().to_string());
            let mut response = with_rate_limit(response, bucket, error.retry_after);
            if error.global {
                response.headers_mut().insert("x-ratelimit-global", HeaderValue::from_static("true"));
                response.headers_mut().insert("x-ratelimit-scope", HeaderValue::from_static("global"));
            }
            response
        }
        Completion::Reset => {
            call.close(Outcome::Reset);
            pipeline::reset(connection)
        }
        Completion::Garbage => {
            call.close(Outcome::Garbled);
            json(StatusCode::OK, GARBAGE)
        }
        Completion::ProxyError(code) => {
            call.close(Outcome::Garbled);
            (pipeline::status(code), [(header::CONTENT_TYPE, "text/html")], PAGE).into_response()
        }
        Completion::Truncate(served) => {
            call.close(Outcome::Garbled);
            pipeline::half(served.unwrap_or_else(|error| error.body()).to_string())
        }
    }
}

fn query(text: &str) -> HashMap<String, String> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// Adds the headers of an exhausted bucket, or of one with room.
fn with_rate_limit(mut response: Response, bucket: &str, retry_after: Option<f64>) -> Response {
    let headers = response.headers_mut();
    let mut set = |name: &'static str, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    };
    set("x-ratelimit-bucket", bucket.to_owned());
    set("x-ratelimit-limit", "5".into());
    set("x-ratelimit-remaining", if retry_after.is_some() { "0" } else { "4" }.into());
    set("x-ratelimit-reset-after", format!("{:.3}", retry_after.unwrap_or(1.0)));
    if let Some(seconds) = retry_after {
        set("retry-after", format!("{}", seconds.ceil()));
        set("x-ratelimit-scope", "user".into());
    }
    response
}
