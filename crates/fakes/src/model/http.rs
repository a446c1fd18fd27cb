//! HTTP: records a request, chooses its answer and streams it.

use std::io;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{self, ConnectInfo, Request as HttpRequest};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use tokio::time::sleep;

use super::answer::{Answer, Fault, Point};
use super::frame::{PlanStep, plan, single_write};
use super::request::{ChatRequest, ModelApi, RequestOutcome, key};
use super::{Responder, Shared, State, ollama, openai};
use crate::faults::gate::Barrier;
use crate::server::reset::ResetHandle;

const LARGEST_BODY: usize = 256 << 20;
const GARBAGE: &[u8] = b"<html>\xff\xfedata: {\"choi";
/// A malformed stream that the reader must reject.
const GARBAGE_EVENT: &[u8] = b"data: {\"choices\":[{\"delta\xff\n\n\x00\xfe rubbish\n\n";

pub(crate) async fn serve(
    extract::State(shared): extract::State<Arc<Shared>>,
    ConnectInfo(connection): ConnectInfo<ResetHandle>,
    request: HttpRequest,
) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, LARGEST_BODY).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let path = head.uri.path().to_owned();
    let Some(api) = ModelApi::of_path(&path) else {
        return list_models(&shared, &path);
    };
    let allowed =
        shared.state.read(|state| state.key.is_none() || state.key.as_deref() == key(&head.headers));
    match ChatRequest::parse(api, &path, head.headers, body) {
        Ok(request) => chat(&shared, &connection, request, allowed).await,
        Err(why) => error(400, api.error(400, &why).to_string(), None),
    }
}

fn list_models(shared: &Shared, path: &str) -> Response {
    let list: fn(&[String]) -> serde_json::Value = match path {
        path if path.ends_with("/models") => openai::models,
        path if path.ends_with("/api/tags") => ollama::models,
        _elsewhere => return error(404, openai::error(404, "no such path").to_string(), None),
    };
    let names = shared.state.change(|state| {
        state.listings += 1;
        state.models.clone()
    });
    json(list(&names).to_string().into())
}

/// All that one request needs from the state.
struct ChatJob {
    request: Arc<ChatRequest>,
    scripted: Option<Answer>,
    responder: Option<Responder>,
    gates: Vec<(Point, Arc<Barrier>)>,
    hang: Arc<Barrier>,
}

impl State {
    fn accept(&mut self, mut request: ChatRequest, allowed: bool) -> ChatJob {
        request.number = self.requests.next();
        let request = Arc::new(request);
        self.requests.push(request.clone());
        self.gates.retain(|(_, barrier)| !barrier.is_open());
        ChatJob {
            request,
            scripted: if allowed { self.script.pop_front() } else { None },
            responder: self.responder.clone(),
            gates: self.gates.clone(),
            hang: self.hang.clone(),
        }
    }
}

async fn chat(
    shared: &Arc<Shared>,
    connection: &ResetHandle,
    request: ChatRequest,
    allowed: bool,
) -> Response {
    let ChatJob { request, scripted, responder, mut gates, hang } =
        shared.state.change(|state| state.accept(request, allowed));
    let guard = RequestGuard { shared: shared.clone(), request: request.clone(), closed: false };
    if !allowed {
        guard.close(RequestOutcome::Answered);
        return error(401, request.api.error(401, "Incorrect API key provided").to_string(), None);
    }
    let answer = match (scripted, responder) {
        (Some(answer), _) => answer,
        (None, Some(responder)) => responder(&request),
        (None, None) => Answer::text(format!("echo: {}", request.last_user)),
    };
    gates.extend(answer.gates.iter().cloned());
    for (_, barrier) in gates.iter().filter(|(point, _)| *point == Point::Before) {
        barrier.pass().await;
    }
    match &answer.fault {
        Some(Fault::ResetBefore) => return reset(guard, connection),
        Some(Fault::Hang(Point::Before)) => hang.pass().await,
        Some(Fault::Status { code, body, retry_after }) => {
            guard.close(RequestOutcome::Answered);
            let empty = || request.api.error(*code, "refused by the test").to_string();
            let body = if body.is_empty() { empty() } else { body.clone() };
            return error(*code, body, *retry_after);
        }
        Some(Fault::Garbage) => {
            guard.close(RequestOutcome::Answered);
            return garbage(&request);
        }
        Some(Fault::CutAfter(_) | Fault::Hang(Point::AfterDelta(_)) | Fault::ErrorAfter { .. }) | None => {}
    }
    if request.stream {
        return streamed(guard, &answer, &gates, &hang);
    }
    whole(guard, &answer).await
}

fn streamed(
    guard: RequestGuard,
    answer: &Answer,
    gates: &[(Point, Arc<Barrier>)],
    hang: &Arc<Barrier>,
) -> Response {
    let request = &guard.request;
    let message = match &answer.fault {
        Some(Fault::ErrorAfter { message, .. }) => message.as_str(),
        Some(_) | None => "",
    };
    let kind = request.api.stream_type();
    let frames = request.api.frames(request, answer);
    let steps = plan(frames, answer, gates, hang, &request.api.fillers(message));
    let body = match single_write(&steps) {
        Some(all) => {
            guard.close(RequestOutcome::Answered);
            Body::from(all)
        }
        None => play(guard, steps),
    };
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-cache")], body).into_response()
}

/// Streams the steps. The server flushes whenever a step waits.
fn play(guard: RequestGuard, steps: Vec<PlanStep>) -> Body {
    let state = Some((guard, steps.into_iter()));
    Body::from_stream(stream::unfold(state, |state| async move {
        let (guard, mut steps) = state?;
        loop {
            match steps.next() {
                None => {
                    guard.close(RequestOutcome::Answered);
                    return None;
                }
                Some(PlanStep::Write(bytes)) => return Some((Ok(bytes), Some((guard, steps)))),
                Some(PlanStep::Wait(pause)) => sleep(pause).await,
                Some(PlanStep::Pass(barrier)) => barrier.pass().await,
                Some(PlanStep::Cut) => {
                    tokio::task::yield_now().await;
                    guard.close(RequestOutcome::Cut);
                    return Some((Err(io::Error::from(io::ErrorKind::ConnectionAborted)), None));
                }
            }
        }
    }))
}

async fn whole(guard: RequestGuard, answer: &Answer) -> Response {
    if !answer.every.is_zero() {
        sleep(answer.every).await;
    }
    let request = &guard.request;
    if let Some(Fault::ErrorAfter { message, .. }) = &answer.fault {
        let body = request.api.error(500, message).to_string();
        guard.close(RequestOutcome::Answered);
        return error(500, body, None);
    }
    let body = Bytes::from(request.api.whole(request, answer).to_string());
    if !matches!(answer.fault, Some(Fault::CutAfter(_))) {
        guard.close(RequestOutcome::Answered);
        return json(body);
    }
    let promised = HeaderValue::from(body.len());
    let half = body.slice(..body.len() / 2);
    let mut response = play(guard, vec![PlanStep::Write(half), PlanStep::Cut]).into_response();
    response.headers_mut().insert(header::CONTENT_LENGTH, promised);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn reset(guard: RequestGuard, connection: &ResetHandle) -> Response {
    guard.close(RequestOutcome::Cut);
    connection.reset();
    // Never written: the connection is reset.
    StatusCode::OK.into_response()
}

fn garbage(request: &ChatRequest) -> Response {
    if request.stream {
        return ([(header::CONTENT_TYPE, request.api.stream_type())], GARBAGE_EVENT).into_response();
    }
    json(Bytes::from_static(GARBAGE))
}

fn error(code: u16, body: String, retry_after: Option<u64>) -> Response {
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
struct RequestGuard {
    shared: Arc<Shared>,
    request: Arc<ChatRequest>,
    closed: bool,
}

impl RequestGuard {
    fn close(mut self, outcome: RequestOutcome) {
        self.end(outcome);
    }

    /// Under the lock, so that a waiting test does not miss it.
    fn end(&mut self, outcome: RequestOutcome) {
        self.closed = true;
        self.shared.state.change(|_state| self.request.set_outcome(outcome));
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        if !self.closed {
            self.end(RequestOutcome::Abandoned);
        }
    }
}
