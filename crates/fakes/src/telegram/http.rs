//! HTTP: one request through the pipeline, from arrival to its response.

use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{self, ConnectInfo, Request};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::Shared;
use super::error::ServiceError;
use super::fault::{Fault, UpdateFault};
use super::methods;
use super::params::{Params, decoded};
use super::state::{Outcome, State};
use super::updates::{PollRequest, PollResult};
use crate::faults::pipeline::{self, CallGuard, Completion, MatchedRules, json};
use crate::faults::rules::RuleAction;
use crate::server::files;
use crate::server::reset::ResetHandle;

const LARGEST_BODY: usize = 50 << 20;
const LONGEST_POLL: i64 = 50;
const GARBAGE: &[u8] = b"<html>\xff\xfe{\"ok\":tru";

pub(crate) async fn serve(
    extract::State(shared): extract::State<Arc<Shared>>,
    ConnectInfo(connection): ConnectInfo<ResetHandle>,
    request: Request,
) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, LARGEST_BODY).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let path = decoded(head.uri.path());
    if let Some(file) = path.strip_prefix("/file/bot").and_then(|rest| rest.split_once('/')) {
        return download(&shared, &connection, file.0, file.1).await;
    }
    let Some((token, method)) = path.strip_prefix("/bot").and_then(|rest| rest.rsplit_once('/')) else {
        return refused(&ServiceError::not_found());
    };
    let kind = head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let parsed = Params::parse(head.uri.query().unwrap_or(""), kind, &body);
    let checked = parsed.and_then(|params| check_token(&shared, token).map(|()| params));
    let method = methods::canonical(method);
    match checked {
        Ok(params) => serve_method(&shared, &connection, method, Arc::new(params)).await,
        Err(error) => {
            let call = arrive(&shared, method, &Arc::default()).0;
            call.close(Outcome::Refused(error.clone()));
            refused(&error)
        }
    }
}

async fn serve_method(
    shared: &Arc<Shared>,
    connection: &ResetHandle,
    method: &str,
    params: Arc<Params>,
) -> Response {
    let (call, rules) = arrive(shared, method, &params);
    if let Some(early) = rules.before().await {
        return finish(call, connection, early);
    }
    let served = if method == "getUpdates" {
        let has = |fault| rules.actions.iter().any(|action| is_fault(action, fault));
        let repeat = has(UpdateFault::Duplicate);
        let withhold = has(UpdateFault::Withhold);
        poll(shared, &params, repeat, withhold).await
    } else {
        let (answer, change) = shared.state.change(|state| methods::apply(state, method, &params));
        if matches!(method, "setWebhook" | "deleteWebhook") {
            // Wakes waiting polls and webhook deliveries.
            shared.changed.notify_waiters();
        }
        if let Some(change) = &change {
            shared.notify_observers(change);
        }
        answer.map(|result| ok_body(&result))
    };
    call.set_applied(served.is_ok());
    let completion = rules.after(served).await;
    finish(call, connection, completion)
}

fn finish(
    call: CallGuard<'_, State>,
    connection: &ResetHandle,
    completion: Completion<Bytes, ServiceError>,
) -> Response {
    match completion {
        Completion::Respond(Ok(body)) => {
            call.close(Outcome::Ok);
            json(StatusCode::OK, body)
        }
        Completion::Respond(Err(error)) => {
            call.close(Outcome::Refused(error.clone()));
            refused(&error)
        }
        Completion::Reset => {
            call.close(Outcome::Reset);
            pipeline::reset(connection)
        }
        Completion::Garbage => {
            call.close(Outcome::Garbled);
            json(StatusCode::OK, GARBAGE)
        }
        Completion::Truncate(served) => {
            call.close(Outcome::Garbled);
            pipeline::half(served.unwrap_or_else(|error| error.body().to_string().into()))
        }
        Completion::ProxyError(code) => {
            call.close(Outcome::Garbled);
            pipeline::status(code).into_response()
        }
    }
}

/// Waits for updates up to the requested timeout. Only the newest poll is served.
async fn poll(shared: &Shared, params: &Params, repeat: bool, withhold: bool) -> Result<Bytes, ServiceError> {
    let seconds = params.int("timeout").unwrap_or(0).clamp(0, LONGEST_POLL).unsigned_abs();
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let request = PollRequest { offset: params.int("offset"), limit: params.int("limit"), repeat, withhold };
    let kinds = params.json("allowed_updates");
    let number = shared.update(|state| {
        if let Some(kinds) = &kinds {
            state.updates.allow(kinds);
        }
        state.updates.begin()
    });
    loop {
        let woken = shared.changed.notified();
        if shared.state.read(|state| state.webhook.is_some()) {
            return Err(ServiceError::webhook_active());
        }
        match shared.state.change(|state| state.updates.poll_result(number, &request)) {
            PollResult::Body(body) => return Ok(body),
            PollResult::Conflict => return Err(ServiceError::conflict()),
            PollResult::Nothing => {}
        }
        if seconds == 0 || timeout_at(deadline, woken).await.is_err() {
            return Ok(ok_body(&Value::Array(Vec::new())));
        }
    }
}

fn arrive<'a>(
    shared: &'a Shared,
    method: &str,
    params: &Arc<Params>,
) -> (CallGuard<'a, State>, MatchedRules<Fault>) {
    shared.state.change(|state| {
        let can_repeat = state.updates.delivered_any();
        let ready = |fault: &Fault| can_repeat || *fault != Fault::duplicate_updates();
        let number = state.record_call(method, params);
        let matched = shared.rules.apply(method, params.int("chat_id"), params.str("text"), ready);
        (CallGuard::new(&shared.state, number), matched)
    })
}

fn is_fault(action: &RuleAction<Fault>, fault: UpdateFault) -> bool {
    matches!(action, RuleAction::Fault(Fault::Special(special)) if *special == fault)
}

fn check_token(shared: &Shared, token: &str) -> Result<(), ServiceError> {
    let good = shared.state.read(|state| state.token.as_deref().is_none_or(|expected| expected == token));
    if good {
        return Ok(());
    }
    // The real service treats a malformed token as an unknown path.
    let number = token.split_once(':').map_or("", |(number, _secret)| number);
    let shaped = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
    Err(if shaped { ServiceError::unauthorized() } else { ServiceError::not_found() })
}

/// Recorded as `download`, with the path as `file_path`.
async fn download(shared: &Shared, connection: &ResetHandle, token: &str, path: &str) -> Response {
    let mut params = Params::default();
    params.0.insert("file_path".into(), path.into());
    let (call, rules) = arrive(shared, "download", &Arc::new(params));
    let file = || shared.state.read(|state| state.files.get(path).cloned());
    let completion = match rules.before().await {
        Some(early) => early,
        None => {
            let served = check_token(shared, token).and_then(|()| file().ok_or_else(ServiceError::not_found));
            call.set_applied(served.is_ok());
            rules.after(served).await
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

fn ok_body(result: &Value) -> Bytes {
    format!(r#"{{"ok":true,"result":{result}}}"#).into()
}

fn refused(error: &ServiceError) -> Response {
    json(pipeline::status(error.code), error.body().to_string())
}
