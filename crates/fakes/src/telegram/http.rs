//! The road of one request: arrive, be held, be applied, be held again, be answered.

use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::Shared;
use super::fault::Fault;
use super::methods;
use super::params::{Params, decoded};
use super::refusal::Refusal;
use super::updates::{Ask, Polled};
use super::world::{Outcome, World};
use crate::files;
use crate::line::Line;
use crate::road::{self, End, Held, Ticket, json};
use crate::rules::Act;

const LARGEST_BODY: usize = 50 << 20;
const LONGEST_POLL: i64 = 50;
const GARBAGE: &[u8] = b"<html>\xff\xfe{\"ok\":tru";

pub(crate) async fn serve(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(line): ConnectInfo<Line>,
    request: Request,
) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, LARGEST_BODY).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let path = decoded(head.uri.path());
    if let Some(file) = path.strip_prefix("/file/bot").and_then(|rest| rest.split_once('/')) {
        return download(&shared, &line, file.0, file.1).await;
    }
    let Some((token, method)) = path.strip_prefix("/bot").and_then(|rest| rest.rsplit_once('/')) else {
        return refused(&Refusal::not_found());
    };
    let kind = head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let parsed = Params::parse(head.uri.query().unwrap_or(""), kind, &body);
    let checked = parsed.and_then(|params| check_token(&shared, token).map(|()| params));
    let method = methods::canonical(method);
    match checked {
        Ok(params) => call(&shared, &line, method, Arc::new(params)).await,
        Err(refusal) => {
            let ticket = arrive(&shared, method, &Arc::default()).0;
            ticket.close(told(&refusal));
            refused(&refusal)
        }
    }
}

async fn call(shared: &Arc<Shared>, line: &Line, method: &str, params: Arc<Params>) -> Response {
    let (ticket, held) = arrive(shared, method, &params);
    if let Some(early) = held.before().await {
        return finish(ticket, line, early);
    }
    let served = if method == "getUpdates" {
        let has = |fault: &Fault| held.acts.iter().any(|act| matches!(act, Act::Fault(it) if it == fault));
        let (repeat, withhold) = (has(&Fault::DuplicateUpdates), has(&Fault::WithholdUpdates));
        poll(shared, &params, repeat, withhold).await
    } else {
        let (answer, change) = shared.world.change(|world| methods::apply(world, method, &params));
        if matches!(method, "setWebhook" | "deleteWebhook") {
            // The polls and the deliveries that wait must look again.
            shared.bell.notify_waiters();
        }
        if let Some(change) = &change {
            shared.announce(change);
        }
        answer.map(|result| ok_body(&result))
    };
    ticket.applied(served.is_ok());
    let end = held.after(served).await;
    finish(ticket, line, end)
}

fn finish(ticket: Ticket<'_, World>, line: &Line, end: End<Bytes, Refusal>) -> Response {
    match end {
        End::Answer(Ok(body)) => {
            ticket.close(Outcome::Ok);
            json(StatusCode::OK, body)
        }
        End::Answer(Err(refusal)) => {
            ticket.close(told(&refusal));
            refused(&refusal)
        }
        End::Reset => {
            ticket.close(Outcome::Reset);
            road::reset(line)
        }
        End::Garbage => {
            ticket.close(Outcome::Garbled);
            json(StatusCode::OK, GARBAGE)
        }
        End::Half(served) => {
            ticket.close(Outcome::Garbled);
            road::half(served.unwrap_or_else(|refusal| refusal.body().to_string().into()))
        }
        End::Page(code) => {
            ticket.close(Outcome::Garbled);
            road::status(code).into_response()
        }
    }
}

/// Waits for updates as long as the caller asked. Only the newest poll is served.
async fn poll(shared: &Shared, params: &Params, repeat: bool, withhold: bool) -> Result<Bytes, Refusal> {
    let seconds = params.int("timeout").unwrap_or(0).clamp(0, LONGEST_POLL).unsigned_abs();
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let ask = Ask { offset: params.int("offset"), limit: params.int("limit"), repeat, withhold };
    let kinds = params.json("allowed_updates");
    let number = shared.ring(|world| {
        if let Some(kinds) = &kinds {
            world.updates.allow(kinds);
        }
        world.updates.begin()
    });
    loop {
        let rung = shared.bell.notified();
        if shared.world.read(|world| world.webhook.is_some()) {
            return Err(Refusal::webhook_active());
        }
        match shared.world.change(|world| world.updates.answer(number, &ask)) {
            Polled::Body(body) => return Ok(body),
            Polled::Conflict => return Err(Refusal::conflict()),
            Polled::Nothing => {}
        }
        if seconds == 0 || timeout_at(deadline, rung).await.is_err() {
            return Ok(ok_body(&Value::Array(Vec::new())));
        }
    }
}

fn arrive<'a>(shared: &'a Shared, method: &str, params: &Arc<Params>) -> (Ticket<'a, World>, Held<Fault>) {
    shared.world.change(|world| {
        let can_repeat = world.updates.delivered_any();
        let ready = |fault: &Fault| can_repeat || *fault != Fault::DuplicateUpdates;
        let number = world.arrive(method, params);
        let held = shared.rules.take(method, params.int("chat_id"), params.str("text"), ready);
        (Ticket::new(&shared.world, number), held)
    })
}

fn told(refusal: &Refusal) -> Outcome {
    Outcome::Refused { code: refusal.code, description: refusal.description.clone() }
}

fn check_token(shared: &Shared, token: &str) -> Result<(), Refusal> {
    let good = shared.world.read(|world| world.token.as_deref().is_none_or(|expected| expected == token));
    if good {
        return Ok(());
    }
    // A token without the shape of one names no bot at all.
    let number = token.split_once(':').map_or("", |(number, _secret)| number);
    let shaped = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
    Err(if shaped { Refusal::unauthorized() } else { Refusal::not_found() })
}

/// On record as `download`, with the path as `file_path`.
async fn download(shared: &Shared, line: &Line, token: &str, path: &str) -> Response {
    let mut params = Params::default();
    params.0.insert("file_path".into(), path.into());
    let (ticket, held) = arrive(shared, "download", &Arc::new(params));
    let stored = || shared.world.read(|world| world.files.get(path).cloned());
    let end = match held.before().await {
        Some(early) => early,
        None => {
            let served = check_token(shared, token).and_then(|()| stored().ok_or_else(Refusal::not_found));
            ticket.applied(served.is_ok());
            held.after(served).await
        }
    };
    match files::served(end) {
        Ok((response, whole)) => {
            ticket.close(if whole { Outcome::Ok } else { Outcome::Garbled });
            response
        }
        Err(end) => finish(ticket, line, end),
    }
}

fn ok_body(result: &Value) -> Bytes {
    format!(r#"{{"ok":true,"result":{result}}}"#).into()
}

fn refused(refusal: &Refusal) -> Response {
    json(road::status(refusal.code), refusal.body().to_string())
}
