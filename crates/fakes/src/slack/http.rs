//! HTTP: one request through the pipeline, from arrival to its response.

use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{self, ConnectInfo, FromRequestParts, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::{Value, json};

use super::error::ServiceError;
use super::fault::Fault;
use super::params::Params;
use super::state::{Outcome, State, VisibleChange};
use super::{Shared, SlackApi};
use super::{methods, socket};
use crate::faults::pipeline::{self, CallGuard, Completion, MatchedRules};
use crate::server::fake::FileHost;
use crate::server::files::{self, StoredFile};
use crate::server::reset::ResetHandle;

const LARGEST_BODY: usize = 64 << 20;
const SIGN_IN: &str = "<!DOCTYPE html><html><title>Sign in | Slack</title></html>";
const GARBAGE: &[u8] = b"<html>\xff\xfe{\"ok\":tru";
/// How often one response URL may be used.
const MAX_RESPONSES: usize = 5;

pub(crate) async fn serve(
    extract::State(shared): extract::State<Arc<Shared>>,
    ConnectInfo(connection): ConnectInfo<ResetHandle>,
    request: Request,
) -> Response {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    if path == "/link" {
        return match WebSocketUpgrade::from_request_parts(&mut head, &()).await {
            Ok(upgrade) => link(shared, connection, upgrade).await,
            Err(refused) => refused.into_response(),
        };
    }
    let Ok(body) = to_bytes(body, LARGEST_BODY).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let kind = head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let query = head.uri.query().unwrap_or("");
    if path.starts_with("/response/") {
        let params = Params::parse("", kind, &body, true);
        return serve_method(&shared, &connection, "response_url", &path, Arc::new(params)).await;
    }
    if path.starts_with("/files-pri/") {
        return download(&shared, &connection, &path, &bearer(&head.headers)).await;
    }
    if let Some(id) = path.strip_prefix("/upload/v1/") {
        return upload(&shared, &connection, id, body).await;
    }
    let Some(method) = path.strip_prefix("/api/") else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let params = Params::parse(query, kind, &body, methods::accepts_json(method));
    serve_method(&shared, &connection, method, &bearer(&head.headers), Arc::new(params)).await
}

async fn link(shared: Arc<Shared>, connection: ResetHandle, upgrade: WebSocketUpgrade) -> Response {
    let (_, rules) = arrive(&shared, "socket", "", &Arc::default());
    if let Some(completion) = rules.before().await {
        return response(&connection, completion);
    }
    upgrade.on_upgrade(move |socket| socket::serve(shared, connection, socket))
}

/// `caller` is the token, or the path of a response URL.
async fn serve_method(
    shared: &Arc<Shared>,
    connection: &ResetHandle,
    method: &str,
    caller: &str,
    params: Arc<Params>,
) -> Response {
    let (number, rules) = arrive(shared, method, caller, &params);
    let call = CallGuard::new(&shared.state, number);
    if let Some(early) = rules.before().await {
        return finish(call, connection, early);
    }
    let (served, change) = shared.state.change(|state| match method {
        "response_url" => respond(state, &format!("{}{caller}", state.origin), &params),
        method => methods::apply(state, method, caller, &params),
    });
    if let Some(change) = &change {
        shared.notify_observers(change);
    }
    call.set_applied(served.is_ok());
    let completion = rules.after(served).await;
    finish(call, connection, completion)
}

/// Recorded as `download`. Without a valid token it serves a sign-in page instead of the file.
async fn download(shared: &Shared, connection: &ResetHandle, path: &str, token: &str) -> Response {
    let (number, rules) = arrive(shared, "download", token, &Arc::default());
    let call = CallGuard::new(&shared.state, number);
    let completion = match rules.before().await {
        Some(early) => early,
        None => {
            let name = path.strip_prefix(SlackApi::DOWNLOADS).unwrap_or_default();
            let (known, file) = shared.state.read(|state| {
                let known = state.workspaces.iter().any(|workspace| workspace.token == token);
                (known, state.files.get(name).cloned())
            });
            let file = if known { file } else { Some(StoredFile::Content(SIGN_IN.into())) };
            call.set_applied(known && file.is_some());
            let gone = || ServiceError { status: 404, ..ServiceError::new("file_not_found") };
            rules.after(file.ok_or_else(gone)).await
        }
    };
    match files::response(completion) {
        Ok((response, whole)) => {
            call.close(if whole { Outcome::Ok } else { Outcome::Garbled });
            response
        }
        Err(completion) => finish(call, connection, completion),
    }
}

/// Receives the content of an upload. Recorded as `upload`.
async fn upload(shared: &Shared, connection: &ResetHandle, id: &str, content: Bytes) -> Response {
    let (number, rules) = arrive(shared, "upload", "", &Arc::default());
    let call = CallGuard::new(&shared.state, number);
    if let Some(early) = rules.before().await {
        return finish(call, connection, early);
    }
    let served = shared.state.change(|state| {
        let gone = || ServiceError { status: 404, ..ServiceError::new("file_not_found") };
        let pending = state.uploads.get_mut(id).ok_or_else(gone)?;
        if pending.length != content.len() {
            return Err(ServiceError { status: 400, ..ServiceError::new("wrong_length") });
        }
        pending.content = Some(content);
        Ok(json!({ "ok": true }))
    });
    call.set_applied(served.is_ok());
    let completion = rules.after(served).await;
    finish(call, connection, completion)
}

fn respond(
    state: &mut State,
    url: &str,
    params: &Params,
) -> (Result<Value, ServiceError>, Option<VisibleChange>) {
    let used = state.responses.iter().filter(|response| response.url == url).count();
    if used >= MAX_RESPONSES {
        let body = json!({ "ok": false, "error": "used_url" });
        return (Err(ServiceError { status: 404, retry_after: None, body }), None);
    }
    let response = super::Response { url: url.to_owned(), body: Value::Object(params.0.clone()) };
    state.responses.push(response.clone());
    (Ok(json!({ "ok": true })), Some(VisibleChange::Responded(response)))
}

fn finish(
    call: CallGuard<'_, State>,
    connection: &ResetHandle,
    completion: Completion<Value, ServiceError>,
) -> Response {
    call.close(match &completion {
        Completion::Respond(Ok(_)) => Outcome::Ok,
        Completion::Respond(Err(error)) => Outcome::Refused(error.clone()),
        Completion::ProxyError(status) => {
            Outcome::Refused(ServiceError { status: *status, ..ServiceError::body(Value::Null) })
        }
        Completion::Reset => Outcome::Reset,
        Completion::Garbage | Completion::Truncate(_) => Outcome::Garbled,
    });
    response(connection, completion)
}

fn response(connection: &ResetHandle, completion: Completion<Value, ServiceError>) -> Response {
    match completion {
        Completion::Respond(Ok(body)) => pipeline::json(StatusCode::OK, body.to_string()),
        Completion::Respond(Err(error)) => {
            let mut response = pipeline::json(pipeline::status(error.status), error.body.to_string());
            if let Some(seconds) = error.retry_after {
                response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
            }
            response
        }
        Completion::ProxyError(code) => (pipeline::status(code), "<html></html>").into_response(),
        Completion::Reset => pipeline::reset(connection),
        Completion::Garbage => GARBAGE.into_response(),
        Completion::Truncate(served) => pipeline::half(served.unwrap_or_else(|error| error.body).to_string()),
    }
}

fn bearer(headers: &HeaderMap) -> String {
    let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or("");
    value.strip_prefix("Bearer ").unwrap_or_default().to_owned()
}

/// Records a call and applies the rules. Returns its number.
pub(crate) fn arrive(
    shared: &Shared,
    method: &str,
    token: &str,
    params: &Arc<Params>,
) -> (u64, MatchedRules<Fault>) {
    shared.state.change(|state| {
        let number = state.record_call(method, token, params);
        let channel = params.channel().map(str::to_owned);
        (number, shared.rules.apply(method, channel, params.str("text"), |_| true))
    })
}
