//! The road of one request to the model: record it, choose the answer, play it.

use std::io;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request as HttpRequest, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use tokio::time::sleep;

use super::answer::{Answer, Fault, Point};
use super::frame::{Step, at_once, plan};
use super::request::{Api, Outcome, Request, key};
use super::{Desk, Responder, Shared, ollama, openai};
use crate::gate::Door;
use crate::line::Line;

const LARGEST_BODY: usize = 256 << 20;
const GARBAGE: &[u8] = b"<html>\xff\xfedata: {\"choi";
/// A stream that never starts well: the reader must notice, not wait.
const GARBAGE_EVENT: &[u8] = b"data: {\"choices\":[{\"delta\xff\n\n\x00\xfe rubbish\n\n";

pub(crate) async fn serve(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(line): ConnectInfo<Line>,
    request: HttpRequest,
) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, LARGEST_BODY).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let path = head.uri.path().to_owned();
    let Some(api) = Api::of_path(&path) else {
        return listing(&shared, &path);
    };
    let allowed = shared.read(|desk| desk.key.is_none() || desk.key.as_deref() == key(&head.headers));
    match Request::parse(api, &path, head.headers, body) {
        Ok(request) => chat(&shared, &line, request, allowed).await,
        Err(why) => refusal(400, api.error(400, &why).to_string(), None),
    }
}

fn listing(shared: &Shared, path: &str) -> Response {
    let list: fn(&[String]) -> serde_json::Value = match path {
        path if path.ends_with("/models") => openai::models,
        path if path.ends_with("/api/tags") => ollama::models,
        _elsewhere => return refusal(404, openai::error(404, "no such path").to_string(), None),
    };
    let names = shared.change(|desk| {
        desk.listings += 1;
        desk.models.clone()
    });
    json(list(&names).to_string().into())
}

/// What the desk hands out for one request.
struct Job {
    request: Arc<Request>,
    scripted: Option<Answer>,
    responder: Option<Responder>,
    gates: Vec<(Point, Arc<Door>)>,
    hang: Arc<Door>,
}

impl Desk {
    fn take(&mut self, mut request: Request, allowed: bool) -> Job {
        request.number = self.requests.next();
        let request = Arc::new(request);
        self.requests.push(request.clone());
        self.gates.retain(|(_, door)| !door.is_open());
        Job {
            request,
            scripted: if allowed { self.script.pop_front() } else { None },
            responder: self.responder.clone(),
            gates: self.gates.clone(),
            hang: self.hang.clone(),
        }
    }
}

async fn chat(shared: &Arc<Shared>, line: &Line, request: Request, allowed: bool) -> Response {
    let Job { request, scripted, responder, mut gates, hang } =
        shared.change(|desk| desk.take(request, allowed));
    let ticket = Ticket { shared: shared.clone(), request: request.clone(), closed: false };
    if !allowed {
        ticket.close(Outcome::Answered);
        return refusal(401, request.api.error(401, "Incorrect API key provided").to_string(), None);
    }
    let answer = match (scripted, responder) {
        (Some(answer), _) => answer,
        (None, Some(responder)) => responder(&request),
        (None, None) => Answer::text(format!("echo: {}", request.last_user)),
    };
    gates.extend(answer.gates.iter().cloned());
    for (_, door) in gates.iter().filter(|(point, _)| *point == Point::Before) {
        door.pass().await;
    }
    match &answer.fault {
        Some(Fault::ResetBefore) => return reset(ticket, line),
        Some(Fault::Hang(Point::Before)) => hang.pass().await,
        Some(Fault::Status { code, body, retry_after }) => {
            ticket.close(Outcome::Answered);
            let empty = || request.api.error(*code, "the fake was told to refuse").to_string();
            let body = if body.is_empty() { empty() } else { body.clone() };
            return refusal(*code, body, *retry_after);
        }
        Some(Fault::Garbage) => {
            ticket.close(Outcome::Answered);
            return garbage(&request);
        }
        Some(Fault::CutAfter(_) | Fault::Hang(Point::AfterDelta(_)) | Fault::ErrorAfter { .. }) | None => {}
    }
    if request.stream {
        return streamed(ticket, &answer, &gates, &hang);
    }
    whole(ticket, &answer).await
}

fn streamed(ticket: Ticket, answer: &Answer, gates: &[(Point, Arc<Door>)], hang: &Arc<Door>) -> Response {
    let request = &ticket.request;
    let message = match &answer.fault {
        Some(Fault::ErrorAfter { message, .. }) => message.as_str(),
        Some(_) | None => "",
    };
    let kind = request.api.stream_type();
    let frames = request.api.frames(request, answer);
    let steps = plan(frames, answer, gates, hang, &request.api.fillers(message));
    let body = match at_once(&steps) {
        Some(all) => {
            ticket.close(Outcome::Answered);
            Body::from(all)
        }
        None => play(ticket, steps),
    };
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], body).into_response()
}

/// The server sends what it has whenever a step makes it wait.
fn play(ticket: Ticket, steps: Vec<Step>) -> Body {
    let state = Some((ticket, steps.into_iter()));
    Body::from_stream(stream::unfold(state, |state| async move {
        let (ticket, mut steps) = state?;
        loop {
            match steps.next() {
                None => {
                    ticket.close(Outcome::Answered);
                    return None;
                }
                Some(Step::Write(bytes)) => return Some((Ok(bytes), Some((ticket, steps)))),
                Some(Step::Wait(pause)) => sleep(pause).await,
                Some(Step::Pass(door)) => door.pass().await,
                Some(Step::Cut) => {
                    tokio::task::yield_now().await;
                    ticket.close(Outcome::Cut);
                    return Some((Err(io::Error::from(io::ErrorKind::ConnectionAborted)), None));
                }
            }
        }
    }))
}

async fn whole(ticket: Ticket, answer: &Answer) -> Response {
    if !answer.every.is_zero() {
        sleep(answer.every).await;
    }
    let request = &ticket.request;
    if let Some(Fault::ErrorAfter { message, .. }) = &answer.fault {
        let body = request.api.error(500, message).to_string();
        ticket.close(Outcome::Answered);
        return refusal(500, body, None);
    }
    let body = Bytes::from(request.api.whole(request, answer).to_string());
    if !matches!(answer.fault, Some(Fault::CutAfter(_))) {
        ticket.close(Outcome::Answered);
        return json(body);
    }
    let promised = HeaderValue::from(body.len());
    let half = body.slice(..body.len() / 2);
    let mut response = play(ticket, vec![Step::Write(half), Step::Cut]).into_response();
    response.headers_mut().insert(header::CONTENT_LENGTH, promised);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn reset(ticket: Ticket, line: &Line) -> Response {
    ticket.close(Outcome::Cut);
    line.reset();
    // Never written: the line is cut.
    StatusCode::OK.into_response()
}

fn garbage(request: &Request) -> Response {
    if request.stream {
        return ([(header::CONTENT_TYPE, request.api.stream_type())], GARBAGE_EVENT).into_response();
    }
    json(Bytes::from_static(GARBAGE))
}

fn refusal(code: u16, body: String, retry_after: Option<u64>) -> Response {
    let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn json(body: Bytes) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// A request on record. Dropped unclosed when the caller hangs up.
struct Ticket {
    shared: Arc<Shared>,
    request: Arc<Request>,
    closed: bool,
}

impl Ticket {
    fn close(mut self, outcome: Outcome) {
        self.end(outcome);
    }

    /// Under the lock, so that nobody who waits for it misses it.
    fn end(&mut self, outcome: Outcome) {
        self.closed = true;
        self.shared.change(|_desk| self.request.ended(outcome));
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !self.closed {
            self.end(Outcome::Abandoned);
        }
    }
}
