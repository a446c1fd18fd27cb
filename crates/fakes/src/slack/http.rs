//! The road of one request: arrive, be held, be applied, be held again, be answered.

use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{ConnectInfo, FromRequestParts, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::{Value, json};

use super::Shared;
use super::fault::Fault;
use super::params::Params;
use super::refusal::Refusal;
use super::world::{Change, Outcome, World};
use super::{methods, socket};
use crate::files::{self, Stored};
use crate::line::Line;
use crate::road::{self, End, Held, Ticket};

const LARGEST_BODY: usize = 64 << 20;
const SIGN_IN: &str = "<!DOCTYPE html><html><title>Sign in | Slack</title></html>";
const GARBAGE: &[u8] = b"<html>\xff\xfe{\"ok\":tru";
/// How often one response address may be used.
const RESPONSES: usize = 5;

pub(crate) async fn serve(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(line): ConnectInfo<Line>,
    request: Request,
) -> Response {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    if path == "/link" {
        return match WebSocketUpgrade::from_request_parts(&mut head, &()).await {
            Ok(upgrade) => link(shared, line, upgrade).await,
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
        return call(&shared, &line, "response_url", &path, Arc::new(params)).await;
    }
    if path.starts_with("/files-pri/") {
        return download(&shared, &line, &path, &bearer(&head.headers)).await;
    }
    if let Some(id) = path.strip_prefix("/upload/v1/") {
        return bring(&shared, &line, id, body).await;
    }
    let Some(method) = path.strip_prefix("/api/") else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let params = Params::parse(query, kind, &body, methods::takes_json(method));
    call(&shared, &line, method, &bearer(&head.headers), Arc::new(params)).await
}

async fn link(shared: Arc<Shared>, line: Line, upgrade: WebSocketUpgrade) -> Response {
    let (_, held) = arrive(&shared, "socket", "", &Arc::default());
    if let Some(end) = held.before().await {
        return answer(&line, end);
    }
    upgrade.on_upgrade(move |socket| socket::serve(shared, line, socket))
}

/// `who` is the token, or the address for a response.
async fn call(shared: &Arc<Shared>, line: &Line, method: &str, who: &str, params: Arc<Params>) -> Response {
    let (number, held) = arrive(shared, method, who, &params);
    let ticket = Ticket::new(&shared.world, number);
    if let Some(early) = held.before().await {
        return finish(ticket, line, early);
    }
    let (served, change) = shared.world.change(|world| match method {
        "response_url" => respond(world, &format!("{}{who}", world.origin), &params),
        method => methods::apply(world, method, who, &params),
    });
    if let Some(change) = &change {
        shared.announce(change);
    }
    ticket.applied(served.is_ok());
    let end = held.after(served).await;
    finish(ticket, line, end)
}

/// On record as `download`. Without a token it is not the file that comes, but a page to sign in with.
async fn download(shared: &Shared, line: &Line, path: &str, token: &str) -> Response {
    let (number, held) = arrive(shared, "download", token, &Arc::default());
    let ticket = Ticket::new(&shared.world, number);
    let end = match held.before().await {
        Some(early) => early,
        None => {
            let (known, stored) = shared.world.read(|world| {
                let known = world.workspaces.iter().any(|workspace| workspace.token == token);
                (known, world.files.get(path).cloned())
            });
            let stored = if known { stored } else { Some(Stored::Content(SIGN_IN.into())) };
            ticket.applied(known && stored.is_some());
            let gone = || Refusal { status: 404, ..Refusal::new("file_not_found") };
            held.after(stored.ok_or_else(gone)).await
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

/// The second step of an upload, on record as `upload`.
async fn bring(shared: &Shared, line: &Line, id: &str, content: Bytes) -> Response {
    let (number, held) = arrive(shared, "upload", "", &Arc::default());
    let ticket = Ticket::new(&shared.world, number);
    if let Some(early) = held.before().await {
        return finish(ticket, line, early);
    }
    let served = shared.world.change(|world| {
        let gone = || Refusal { status: 404, ..Refusal::new("file_not_found") };
        let brought = world.uploads.get_mut(id).ok_or_else(gone)?;
        if brought.length != content.len() {
            return Err(Refusal { status: 400, ..Refusal::new("wrong_length") });
        }
        brought.content = Some(content);
        Ok(json!({ "ok": true }))
    });
    ticket.applied(served.is_ok());
    let end = held.after(served).await;
    finish(ticket, line, end)
}

fn respond(world: &mut World, url: &str, params: &Params) -> (Result<Value, Refusal>, Option<Change>) {
    let used = world.responses.iter().filter(|response| response.url == url).count();
    if used >= RESPONSES {
        let body = json!({ "ok": false, "error": "used_url" });
        return (Err(Refusal { status: 404, retry_after: None, body }), None);
    }
    let response = super::Response { url: url.to_owned(), body: Value::Object(params.0.clone()) };
    world.responses.push(response.clone());
    (Ok(json!({ "ok": true })), Some(Change::Responded(response)))
}

fn finish(ticket: Ticket<'_, World>, line: &Line, end: End<Value, Refusal>) -> Response {
    ticket.close(match &end {
        End::Answer(Ok(_)) => Outcome::Ok,
        End::Answer(Err(refusal)) => Outcome::Refused { status: refusal.status, error: refusal.error() },
        End::Page(status) => Outcome::Refused { status: *status, error: String::new() },
        End::Reset => Outcome::Reset,
        End::Garbage | End::Half(_) => Outcome::Garbled,
    });
    answer(line, end)
}

fn answer(line: &Line, end: End<Value, Refusal>) -> Response {
    match end {
        End::Answer(Ok(body)) => road::json(StatusCode::OK, body.to_string()),
        End::Answer(Err(refusal)) => {
            let mut response = road::json(road::status(refusal.status), refusal.body.to_string());
            if let Some(seconds) = refusal.retry_after {
                response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
            }
            response
        }
        End::Page(code) => (road::status(code), "<html></html>").into_response(),
        End::Reset => road::reset(line),
        End::Garbage => GARBAGE.into_response(),
        End::Half(served) => road::half(served.unwrap_or_else(|refusal| refusal.body).to_string()),
    }
}

fn bearer(headers: &HeaderMap) -> String {
    let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or("");
    value.strip_prefix("Bearer ").unwrap_or_default().to_owned()
}

/// Its number on record, and what the rules have in store for it.
pub(crate) fn arrive(shared: &Shared, method: &str, token: &str, params: &Arc<Params>) -> (u64, Held<Fault>) {
    shared.world.change(|world| {
        let number = world.arrive(method, token, params);
        let channel = params.channel().map(str::to_owned);
        (number, shared.rules.take(method, channel, params.str("text"), |_| true))
    })
}
