//! The road of one request: arrive, be held, be applied, be held again, be answered.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};

use super::Shared;
use super::fault::{Act, Fault, Side};
use super::methods;
use super::params::{Params, decoded};
use super::refusal::Refusal;
use super::updates::{Ask, Polled};
use super::world::{Arrival, Outcome};
use crate::gate::Door;
use crate::line::Line;

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
        return download(&shared, file.0, file.1);
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
            let ticket = Ticket::arrive(&shared, method, &Arc::default()).0;
            ticket.close(told(&refusal));
            refused(&refusal)
        }
    }
}

async fn call(shared: &Arc<Shared>, line: &Line, method: &str, params: Arc<Params>) -> Response {
    let (ticket, acts, hang) = Ticket::arrive(shared, method, &params);
    if let Some(early) = before(&acts, &hang).await {
        return finish(ticket, line, early).await;
    }
    let served = if method == "getUpdates" {
        let repeat = acts.iter().any(|act| matches!(act, Act::Fault(Fault::DuplicateUpdates)));
        poll(shared, &params, repeat).await
    } else {
        let (answer, change) = shared.world.change(|world| methods::apply(world, method, &params));
        if let Some(change) = &change {
            shared.announce(change);
        }
        answer.map(|result| ok_body(&result))
    };
    ticket.applied(served.is_ok());
    let end = after(&acts, &hang, served).await;
    finish(ticket, line, end).await
}

/// How a request ends.
enum End {
    Answer(Result<Bytes, Refusal>),
    Reset,
    Garbage,
    Half(Bytes),
}

/// `Some`: it ends here, unprocessed.
async fn before(acts: &[Act], hang: &Door) -> Option<End> {
    for act in acts {
        match act {
            Act::Gate(Side::Before, door) => door.pass().await,
            Act::Fault(Fault::Delay(wait)) => sleep(*wait).await,
            Act::Fault(Fault::Hang) => hang.pass().await,
            Act::Fault(Fault::ResetBefore) => return Some(End::Reset),
            Act::Fault(Fault::Garbage) => return Some(End::Garbage),
            Act::Fault(Fault::Status { code, description, retry_after }) => {
                let (code, retry_after) = (*code, *retry_after);
                let refusal = Refusal { code, description: description.clone(), retry_after };
                return Some(End::Answer(Err(refusal)));
            }
            Act::Gate(Side::After, _)
            | Act::Fault(Fault::ResetAfter | Fault::HangAfter | Fault::HalfBody | Fault::DuplicateUpdates) => {
            }
        }
    }
    None
}

async fn after(acts: &[Act], hang: &Door, served: Result<Bytes, Refusal>) -> End {
    for act in acts {
        match act {
            Act::Gate(Side::After, door) => door.pass().await,
            Act::Fault(Fault::HangAfter) => hang.pass().await,
            Act::Fault(Fault::ResetAfter) => return End::Reset,
            Act::Fault(Fault::HalfBody) => {
                return End::Half(served.unwrap_or_else(|refusal| refusal.body().to_string().into()));
            }
            Act::Gate(Side::Before, _)
            | Act::Fault(
                Fault::Delay(_)
                | Fault::Hang
                | Fault::ResetBefore
                | Fault::Garbage
                | Fault::Status { .. }
                | Fault::DuplicateUpdates,
            ) => {}
        }
    }
    End::Answer(served)
}

async fn finish(ticket: Ticket<'_>, line: &Line, end: End) -> Response {
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
            line.reset();
            // Never written: the line is cut.
            StatusCode::OK.into_response()
        }
        End::Garbage => {
            ticket.close(Outcome::Garbled);
            json(StatusCode::OK, Bytes::from_static(GARBAGE))
        }
        End::Half(body) => {
            ticket.close(Outcome::Garbled);
            half(body)
        }
    }
}

/// Waits for updates as long as the caller asked. Only the newest poll is served.
async fn poll(shared: &Shared, params: &Params, repeat: bool) -> Result<Bytes, Refusal> {
    let seconds = params.int("timeout").unwrap_or(0).clamp(0, LONGEST_POLL).unsigned_abs();
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let ask = Ask { offset: params.int("offset"), limit: params.int("limit"), repeat };
    let kinds = params.json("allowed_updates");
    let number = shared.ring(|world| {
        if let Some(kinds) = &kinds {
            world.updates.allow(kinds);
        }
        world.updates.begin()
    });
    loop {
        let rung = shared.bell.notified();
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

/// A request on record. Dropped unclosed when the caller hangs up.
struct Ticket<'a> {
    shared: &'a Shared,
    number: u64,
    closed: bool,
}

impl<'a> Ticket<'a> {
    fn arrive(shared: &'a Shared, method: &str, params: &Arc<Params>) -> (Self, Vec<Act>, Arc<Door>) {
        let Arrival { number, acts, hang } = shared.world.change(|world| world.arrive(method, params));
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

fn download(shared: &Shared, token: &str, path: &str) -> Response {
    if let Err(refusal) = check_token(shared, token) {
        return refused(&refusal);
    }
    match shared.world.read(|world| world.files.get(path).cloned()) {
        Some(content) => content.into_response(),
        None => refused(&Refusal::not_found()),
    }
}

fn ok_body(result: &Value) -> Bytes {
    format!(r#"{{"ok":true,"result":{result}}}"#).into()
}

fn refused(refusal: &Refusal) -> Response {
    let status = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::BAD_REQUEST);
    json(status, refusal.body().to_string().into())
}

fn json(status: StatusCode, body: Bytes) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Promises the whole body, sends half of it and ends the connection.
fn half(body: Bytes) -> Response {
    let promised = body.len().to_string();
    let first = body.slice(..body.len() / 2);
    let parts = stream::unfold(Some(first), |part| async move {
        if let Some(part) = part {
            return Some((Ok(part), None));
        }
        // The server sends what it has whenever the body makes it wait.
        tokio::task::yield_now().await;
        Some((Err(std::io::Error::from(std::io::ErrorKind::ConnectionAborted)), None))
    });
    let head = [(header::CONTENT_TYPE, "application/json".to_owned()), (header::CONTENT_LENGTH, promised)];
    (head, Body::from_stream(parts)).into_response()
}
