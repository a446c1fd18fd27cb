//! The road of one request: arrive, be held, be applied, be held again, be answered.

use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{ConnectInfo, FromRequestParts, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::Shared;
use super::fault::{Act, Fault, Side};
use super::params::Params;
use super::refusal::Refusal;
use super::world::{Arrival, Change, Outcome};
use super::{methods, socket};
use crate::gate::Door;
use crate::line::Line;

const LARGEST_BODY: usize = 10 << 20;
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
    let Some(method) = path.strip_prefix("/api/") else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let params = Params::parse(query, kind, &body, methods::takes_json(method));
    call(&shared, &line, method, &bearer(&head.headers), Arc::new(params)).await
}

async fn link(shared: Arc<Shared>, line: Line, upgrade: WebSocketUpgrade) -> Response {
    let Arrival { acts, hang, .. } = shared.world.change(|world| world.arrive("socket", "", &Arc::default()));
    if let Some(end) = before(&acts, &hang).await {
        return answer(&line, end);
    }
    upgrade.on_upgrade(move |socket| socket::serve(shared, line, socket))
}

/// `who` is the token, or the address for a response.
async fn call(shared: &Arc<Shared>, line: &Line, method: &str, who: &str, params: Arc<Params>) -> Response {
    let (ticket, acts, hang) = Ticket::arrive(shared, method, who, &params);
    if let Some(early) = before(&acts, &hang).await {
        return finish(ticket, line, early);
    }
    let (served, change) = shared.world.change(|world| match method {
        "response_url" => respond(world, &format!("{}{who}", shared.origin()), &params),
        method => methods::apply(world, method, who, &params, shared.origin()),
    });
    if let Some(change) = &change {
        shared.announce(change);
    }
    ticket.applied(served.is_ok());
    let end = after(&acts, &hang, served).await;
    finish(ticket, line, end)
}

fn respond(world: &mut super::World, url: &str, params: &Params) -> (Result<Value, Refusal>, Option<Change>) {
    let used = world.responses.iter().filter(|response| response.url == url).count();
    if used >= RESPONSES {
        let body = json!({ "ok": false, "error": "used_url" });
        return (Err(Refusal { status: 404, retry_after: None, body }), None);
    }
    let response = super::Response { url: url.to_owned(), body: Value::Object(params.0.clone()) };
    world.responses.push(response.clone());
    (Ok(json!({ "ok": true })), Some(Change::Responded(response)))
}

/// How a request ends.
pub(crate) enum End {
    Answer(Result<Value, Refusal>),
    Bare(u16),
    Reset,
    Garbage,
}

/// `Some`: it ends here, unprocessed.
pub(crate) async fn before(acts: &[Act], hang: &Door) -> Option<End> {
    for act in acts {
        match act {
            Act::Gate(Side::Before, door) => door.pass().await,
            Act::Fault(Fault::Delay(wait)) => sleep(*wait).await,
            Act::Fault(Fault::Hang) => hang.pass().await,
            Act::Fault(Fault::ResetBefore) => return Some(End::Reset),
            Act::Fault(Fault::Garbage) => return Some(End::Garbage),
            Act::Fault(Fault::Status(code)) => return Some(End::Bare(*code)),
            Act::Fault(Fault::TooMany(wait)) => return Some(End::Answer(Err(Refusal::too_many(*wait)))),
            Act::Fault(Fault::Refuse(body)) => {
                return Some(End::Answer(Err(Refusal::body(body.clone()))));
            }
            Act::Gate(Side::After, _) | Act::Fault(Fault::ResetAfter | Fault::HangAfter) => {}
        }
    }
    None
}

async fn after(acts: &[Act], hang: &Door, served: Result<Value, Refusal>) -> End {
    for act in acts {
        match act {
            Act::Gate(Side::After, door) => door.pass().await,
            Act::Fault(Fault::HangAfter) => hang.pass().await,
            Act::Fault(Fault::ResetAfter) => return End::Reset,
            Act::Gate(Side::Before, _)
            | Act::Fault(
                Fault::Delay(_)
                | Fault::Hang
                | Fault::ResetBefore
                | Fault::Garbage
                | Fault::Status(_)
                | Fault::TooMany(_)
                | Fault::Refuse(_),
            ) => {}
        }
    }
    End::Answer(served)
}

fn finish(ticket: Ticket<'_>, line: &Line, end: End) -> Response {
    ticket.close(match &end {
        End::Answer(Ok(_)) => Outcome::Ok,
        End::Answer(Err(refusal)) => Outcome::Refused { status: refusal.status, error: refusal.error() },
        End::Bare(status) => Outcome::Refused { status: *status, error: String::new() },
        End::Reset => Outcome::Reset,
        End::Garbage => Outcome::Garbled,
    });
    answer(line, end)
}

fn answer(line: &Line, end: End) -> Response {
    let status = |code| StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_REQUEST);
    match end {
        End::Answer(Ok(body)) => json_body(StatusCode::OK, &body),
        End::Answer(Err(refusal)) => {
            let mut response = json_body(status(refusal.status), &refusal.body);
            if let Some(seconds) = refusal.retry_after {
                response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
            }
            response
        }
        End::Bare(code) => (status(code), "<html></html>").into_response(),
        End::Reset => {
            line.reset();
            // Never written: the line is cut.
            StatusCode::OK.into_response()
        }
        End::Garbage => Bytes::from_static(GARBAGE).into_response(),
    }
}

fn json_body(status: StatusCode, body: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

fn bearer(headers: &HeaderMap) -> String {
    let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or("");
    value.strip_prefix("Bearer ").unwrap_or_default().to_owned()
}

/// A request on record. Dropped unclosed when the caller hangs up.
struct Ticket<'a> {
    shared: &'a Shared,
    number: u64,
    closed: bool,
}

impl<'a> Ticket<'a> {
    fn arrive(
        shared: &'a Shared,
        method: &str,
        token: &str,
        params: &Arc<Params>,
    ) -> (Self, Vec<Act>, Arc<Door>) {
        let Arrival { number, acts, hang } = shared.world.change(|world| world.arrive(method, token, params));
        (Self { shared, number, closed: false }, acts, hang)
    }

    fn applied(&self, applied: bool) {
        self.edit(|call| call.applied = applied);
    }

    fn close(mut self, outcome: Outcome) {
        self.closed = true;
        self.edit(|call| call.outcome = outcome);
    }

    fn edit(&self, edit: impl FnOnce(&mut super::Call)) {
        self.shared.world.change(|world| {
            if let Some(call) = world.calls.get_mut(self.number) {
                edit(call);
            }
        });
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if !self.closed {
            self.edit(|call| call.outcome = Outcome::Abandoned);
        }
    }
}
