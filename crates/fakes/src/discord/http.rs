//! The road of one request: arrive, be held, be applied, be held again, be answered.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{ConnectInfo, FromRequestParts, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use serde_json::Value;
use tokio::time::sleep;

use super::fault::{Act, Fault, Side};
use super::refusal::{Answer, Refusal};
use super::routes::{self, Route};
use super::world::{Arrival, Outcome};
use super::{Shared, gateway};
use crate::gate::Door;
use crate::line::Line;

const LARGEST_BODY: usize = 25 << 20;
const GARBAGE: &[u8] = b"<html>\xff\xfe{\"id\":";
const PAGE: &[u8] = b"<html><head><title>502 Bad Gateway</title></head></html>";

/// What a request says besides its path.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) body: Value,
    pub(crate) query: HashMap<String, String>,
}

pub(crate) async fn serve(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(line): ConnectInfo<Line>,
    request: Request,
) -> Response {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    if let Ok(upgrade) = WebSocketUpgrade::from_request_parts(&mut head, &shared).await {
        let shared = shared.clone();
        return upgrade.on_upgrade(move |socket| gateway::serve(shared, line, path, socket));
    }
    let Ok(body) = to_bytes(body, LARGEST_BODY).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let body = serde_json::from_slice(&body).unwrap_or_default();
    let asked = Asked { body, query: query(head.uri.query().unwrap_or_default()) };
    let route = match path.strip_prefix("/api/v10") {
        Some(rest) => routes::find(head.method.as_str(), rest),
        None => routes::find(head.method.as_str(), &path),
    };
    let (ticket, acts, hang) = Ticket::arrive(&shared, &route, &asked);
    if !path.starts_with("/api/v10/") {
        return finish(ticket, &line, End::Answer(Err(Refusal::not_found())));
    }
    // The answer to an interaction is authorised by its own token.
    if route.name != "answerInteraction" && !is_known(&shared, &head.headers) {
        return finish(ticket, &line, End::Answer(Err(Refusal::unauthorized())));
    }
    if let Some(early) = before(&acts, &hang).await {
        return finish(ticket, &line, early);
    }
    let served = shared.ring(|world| routes::apply(world, &route, &asked));
    ticket.applied(served.is_ok());
    let answer = served.map(|(answer, change)| {
        if let Some(change) = &change {
            shared.announce(change);
        }
        answer
    });
    let end = after(&acts, &hang, answer).await;
    finish(ticket, &line, end)
}

fn is_known(shared: &Shared, headers: &HeaderMap) -> bool {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(given) = given.and_then(|value| value.strip_prefix("Bot ")) else { return false };
    shared.world.read(|world| world.token.as_deref().is_none_or(|token| token == given))
}

/// How a request ends.
enum End {
    Answer(Answer),
    Reset,
    Garbage,
    Page,
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
            Act::Fault(Fault::Page) => return Some(End::Page),
            Act::Fault(Fault::Status { status, code, message, retry_after }) => {
                let refusal = Refusal::new(*status, *code, message.clone());
                return Some(End::Answer(Err(Refusal { retry_after: *retry_after, ..refusal })));
            }
            Act::Gate(Side::After, _)
            | Act::Fault(Fault::ResetAfter | Fault::HangAfter | Fault::HalfBody) => {}
        }
    }
    None
}

async fn after(acts: &[Act], hang: &Door, served: Answer) -> End {
    for act in acts {
        match act {
            Act::Gate(Side::After, door) => door.pass().await,
            Act::Fault(Fault::HangAfter) => hang.pass().await,
            Act::Fault(Fault::ResetAfter) => return End::Reset,
            Act::Fault(Fault::HalfBody) => {
                let body = served.unwrap_or_else(|refusal| refusal.body());
                return End::Half(body.to_string().into());
            }
            Act::Gate(Side::Before, _)
            | Act::Fault(
                Fault::Delay(_)
                | Fault::Hang
                | Fault::ResetBefore
                | Fault::Garbage
                | Fault::Page
                | Fault::Status { .. },
            ) => {}
        }
    }
    End::Answer(served)
}

fn finish(ticket: Ticket<'_>, line: &Line, end: End) -> Response {
    let bucket = ticket.bucket.clone();
    match end {
        End::Answer(Ok(Value::Null)) => {
            ticket.close(Outcome::Ok);
            limited(StatusCode::NO_CONTENT.into_response(), &bucket, None)
        }
        End::Answer(Ok(body)) => {
            ticket.close(Outcome::Ok);
            limited(json(StatusCode::OK, body.to_string().into()), &bucket, None)
        }
        End::Answer(Err(refusal)) => {
            ticket.close(Outcome::Refused { status: refusal.status, code: refusal.code });
            let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
            limited(json(status, refusal.body().to_string().into()), &bucket, refusal.retry_after)
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
        End::Page => {
            ticket.close(Outcome::Garbled);
            (StatusCode::BAD_GATEWAY, [(header::CONTENT_TYPE, "text/html")], PAGE).into_response()
        }
        End::Half(body) => {
            ticket.close(Outcome::Garbled);
            half(body)
        }
    }
}

/// A request on record. Dropped unclosed when the caller hangs up.
struct Ticket<'a> {
    shared: &'a Shared,
    number: u64,
    bucket: String,
    closed: bool,
}

impl<'a> Ticket<'a> {
    fn arrive(shared: &'a Shared, route: &Route, asked: &Asked) -> (Self, Vec<Act>, Arc<Door>) {
        let arrive = |world: &mut super::World| world.arrive(&route.name, route.channel, asked);
        let Arrival { number, acts, hang } = shared.world.change(arrive);
        let bucket = format!("{}:{}", route.name, route.channel.unwrap_or_default());
        (Self { shared, number, bucket, closed: false }, acts, hang)
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

fn query(text: &str) -> HashMap<String, String> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn json(status: StatusCode, body: Bytes) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// The headers of a bucket that is far from empty, or of one that is.
fn limited(mut response: Response, bucket: &str, retry_after: Option<f64>) -> Response {
    let headers = response.headers_mut();
    let mut put = |name: &'static str, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    };
    put("x-ratelimit-bucket", bucket.to_owned());
    put("x-ratelimit-limit", "5".into());
    put("x-ratelimit-remaining", if retry_after.is_some() { "0" } else { "4" }.into());
    put("x-ratelimit-reset-after", format!("{:.3}", retry_after.unwrap_or(1.0)));
    if let Some(seconds) = retry_after {
        put("retry-after", format!("{}", seconds.ceil()));
        put("x-ratelimit-scope", "user".into());
    }
    response
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
