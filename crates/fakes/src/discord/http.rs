//! The road of one request: arrive, be held, be applied, be held again, be answered.

use std::collections::HashMap;
use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{ConnectInfo, FromRequestParts, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::refusal::Refusal;
use super::routes;
use super::world::{Outcome, World};
use super::{Shared, gateway};
use crate::files::{self, Form, Upload};
use crate::line::Line;
use crate::road::{self, End, Ticket, json};

const LARGEST_BODY: usize = 25 << 20;
const GARBAGE: &[u8] = b"<html>\xff\xfe{\"id\":";
const PAGE: &[u8] = b"<html><head><title>502 Bad Gateway</title></head></html>";

/// What a request says besides its path.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) body: Value,
    pub(crate) query: HashMap<String, String>,
    pub(crate) files: Vec<Upload>,
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
    if path.starts_with("/cdn/") {
        return download(&shared, &line, &path).await;
    }
    let kind = head.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let (body, files) = match files::form(kind, &body) {
        Some(Form { fields, files }) => {
            let payload = fields.into_iter().find(|(name, _)| name == "payload_json");
            (payload.and_then(|(_, json)| serde_json::from_str(&json).ok()).unwrap_or_default(), files)
        }
        None => (serde_json::from_slice(&body).unwrap_or_default(), Vec::new()),
    };
    let asked = Asked { body, files, query: query(head.uri.query().unwrap_or_default()) };
    let route = match path.strip_prefix("/api/v10") {
        Some(rest) => routes::find(head.method.as_str(), rest),
        None => routes::find(head.method.as_str(), &path),
    };
    let (number, held) = shared.world.change(|world| {
        let number = world.arrive(&route.name, route.channel, &asked);
        (number, shared.rules.take(&route.name, route.channel, asked.body["content"].as_str(), |_| true))
    });
    let ticket = Ticket::new(&shared.world, number);
    let bucket = format!("{}:{}", route.name, route.channel.unwrap_or_default());
    if !path.starts_with("/api/v10/") {
        return finish(ticket, &bucket, &line, End::Answer(Err(Refusal::not_found())));
    }
    // The answer to an interaction is authorised by its own token.
    if route.name != "answerInteraction" && !is_known(&shared, &head.headers) {
        return finish(ticket, &bucket, &line, End::Answer(Err(Refusal::unauthorized())));
    }
    if let Some(early) = held.before().await {
        return finish(ticket, &bucket, &line, early);
    }
    let served = shared.ring(|world| routes::apply(world, &route, &asked));
    ticket.applied(served.is_ok());
    let answer = served.map(|(answer, change)| {
        if let Some(change) = &change {
            shared.announce(change);
        }
        answer
    });
    let end = held.after(answer).await;
    finish(ticket, &bucket, &line, end)
}

/// Where attachments lie: the address is permission enough. On record as `download`, with the path as its body.
async fn download(shared: &Shared, line: &Line, path: &str) -> Response {
    let asked = Asked { body: path.into(), ..Asked::default() };
    let (number, held) = shared.world.change(|world| {
        (world.arrive("download", None, &asked), shared.rules.take("download", None, None, |_| true))
    });
    let ticket = Ticket::new(&shared.world, number);
    let end = match held.before().await {
        Some(early) => early,
        None => {
            let stored = shared.world.read(|world| world.files.get(path).cloned());
            ticket.applied(stored.is_some());
            held.after(stored.ok_or_else(Refusal::not_found)).await
        }
    };
    match files::served(end) {
        Ok((response, whole)) => {
            ticket.close(if whole { Outcome::Ok } else { Outcome::Garbled });
            response
        }
        Err(end) => finish(ticket, "cdn", line, end),
    }
}

fn is_known(shared: &Shared, headers: &HeaderMap) -> bool {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let Some(given) = given.and_then(|value| value.strip_prefix("Bot ")) else { return false };
    shared.world.read(|world| world.token.as_deref().is_none_or(|token| token == given))
}

fn finish(ticket: Ticket<'_, World>, bucket: &str, line: &Line, end: End<Value, Refusal>) -> Response {
    match end {
        End::Answer(Ok(Value::Null)) => {
            ticket.close(Outcome::Ok);
            limited(StatusCode::NO_CONTENT.into_response(), bucket, None)
        }
        End::Answer(Ok(body)) => {
            ticket.close(Outcome::Ok);
            limited(json(StatusCode::OK, body.to_string()), bucket, None)
        }
        End::Answer(Err(refusal)) => {
            ticket.close(Outcome::Refused { status: refusal.status, code: refusal.code });
            let answer = json(road::status(refusal.status), refusal.body().to_string());
            let mut answer = limited(answer, bucket, refusal.retry_after);
            if refusal.global {
                answer.headers_mut().insert("x-ratelimit-global", HeaderValue::from_static("true"));
                answer.headers_mut().insert("x-ratelimit-scope", HeaderValue::from_static("global"));
            }
            answer
        }
        End::Reset => {
            ticket.close(Outcome::Reset);
            road::reset(line)
        }
        End::Garbage => {
            ticket.close(Outcome::Garbled);
            json(StatusCode::OK, GARBAGE)
        }
        End::Page(code) => {
            ticket.close(Outcome::Garbled);
            (road::status(code), [(header::CONTENT_TYPE, "text/html")], PAGE).into_response()
        }
        End::Half(served) => {
            ticket.close(Outcome::Garbled);
            road::half(served.unwrap_or_else(|refusal| refusal.body()).to_string())
        }
    }
}

fn query(text: &str) -> HashMap<String, String> {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
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
