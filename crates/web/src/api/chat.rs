//! Chat completions: one answer, whole or as it grows.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use petasos_core::media;
use petasos_gateway::{Place, RunEnd, RunRow, fresh_id};
use serde_json::{Value, json};

use super::Api;
use super::asked::{Talk, Wanted, fields, flag, short_hash, talk};
use super::keys::Owner;
use super::work::{self, Job, STOPPED, TRUNCATED, Verdict, chat_usage, names, seconds};
use crate::error::ApiError;
use crate::serve::Stop;
use crate::stream::run::{Position, RunEvent};
use crate::stream::sse::{self, Encoder};

const ROUTE: &str = "chat.completions";

pub(super) async fn complete(
    State(api): State<Api>,
    owner: Owner,
    stop: Stop,
    request: Request,
) -> Result<Response, ApiError> {
    let wanted = Wanted::read(request.headers())?;
    let fields = fields(request).await?;
    let messages = match fields.get("messages") {
        Some(Value::Array(messages)) if !messages.is_empty() => messages,
        _ => return Err(ApiError::bad_request("Missing or invalid 'messages' field").param("messages")),
    };
    let streamed = flag(&fields, "stream", false)?;
    let Talk { instructions, history, asked } = talk(messages, "messages")?;
    let content = asked.ok_or_else(|| ApiError::bad_request("No user message found in messages"))?;
    if content.is_empty() {
        return Err(ApiError::bad_request("No user message found in messages"));
    }
    let instructions = instructions.join("\n");
    let place = match &wanted.session {
        Some(id) => Place::Session(id.clone()),
        None => {
            let first = history.first().map_or(content.text.as_str(), |told| told.text.as_str());
            let key = wanted.key.as_deref().unwrap_or_default();
            let name = format!("api-{}", short_hash(&[&owner.name, key, &instructions, first]));
            Place::Told { name, history }
        }
    };
    let job = Job {
        id: format!("chatcmpl-{}", &fresh_id::<15>("")[..29]),
        route: ROUTE,
        place,
        content,
        instructions: Some(instructions).filter(|text| !text.is_empty()),
        history: vec![],
        answers: false,
        forget: false,
        wanted: &wanted,
        fields: &fields,
    };
    let started = api.start(&owner, job).await?;
    if streamed {
        let encoder = Chunks::new(&started.run);
        return api.stream(started, &wanted, stop, encoder).await;
    }
    let run = api.finish(&started, &wanted, &stop).await?;
    whole(&run, &wanted)
}

fn whole(run: &RunRow, wanted: &Wanted) -> Result<Response, ApiError> {
    let end = run.end.as_ref().ok_or_else(|| ApiError::agent("agent_error", STOPPED))?;
    let mut headers = names(run, wanted);
    let (text, partial) = match work::verdict(end) {
        Verdict::Answered { text, partial } => (text, partial),
        Verdict::Failed { message } => return Ok(failed(headers, "agent_error", &message)),
        Verdict::Cancelled => return Ok(failed(headers, "agent_incomplete", STOPPED)),
    };
    let finish = if partial { "length" } else { "stop" };
    let mut body = json!({
        "id": run.id, "object": "chat.completion", "created": seconds(run.created_at),
        "model": work::wish(run).shown_model,
        "choices": [{
            "index": 0, "message": { "role": "assistant", "content": text, "refusal": null },
            "finish_reason": finish, "logprobs": null,
        }],
        "usage": chat_usage(end.usage),
    });
    if partial {
        work::incomplete(&mut headers, true, TRUNCATED);
        body["hermes"] = cut_off();
    }
    Ok((headers, Json(body)).into_response())
}

fn failed(mut headers: axum::http::HeaderMap, code: &'static str, message: &str) -> Response {
    work::incomplete(&mut headers, false, message);
    (headers, ApiError::agent(code, message)).into_response()
}

fn cut_off() -> Value {
    json!({
        "completed": false, "partial": true, "failed": false, "error": TRUNCATED, "error_code": "output_truncated",
    })
}

/// A run as chunks of a chat completion.
struct Chunks {
    id: String,
    created: u64,
    model: String,
    /// Text was told: what follows after a tool stands apart from it.
    spoken: bool,
    fresh: bool,
    /// What was said last, as it was said.
    said: String,
}

impl Chunks {
    fn new(run: &RunRow) -> Self {
        let model = work::wish(run).shown_model;
        Self {
            id: run.id.clone(),
            created: seconds(run.created_at),
            model,
            spoken: false,
            fresh: true,
            said: String::new(),
        }
    }

    fn chunk(&self, delta: Value, finish: Option<&str>) -> Value {
        json!({
            "id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model,
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish, "logprobs": null }],
        })
    }

    fn last(&self, end: &RunEnd) -> Value {
        let trouble = |code: &str, message: &str| {
            let mut last = self.chunk(json!({}), Some("error"));
            last["error"] = json!({ "message": message, "type": "agent_error", "param": null, "code": code });
            last["hermes"] = json!({
                "completed": false, "partial": false, "failed": true, "error": message, "error_code": code,
            });
            last
        };
        let mut last = match work::verdict(end) {
            Verdict::Answered { partial: false, .. } => self.chunk(json!({}), Some("stop")),
            Verdict::Answered { partial: true, .. } => {
                let mut last = self.chunk(json!({}), Some("length"));
                last["hermes"] = cut_off();
                last
            }
            Verdict::Failed { message } => trouble("agent_error", &message),
            Verdict::Cancelled => trouble("agent_incomplete", STOPPED),
        };
        last["usage"] = chat_usage(end.usage);
        last
    }
}

impl Encoder for Chunks {
    type Event = (Position, RunEvent);

    fn open(&mut self) -> Vec<Event> {
        vec![sse::data(&self.chunk(json!({ "role": "assistant", "content": "" }), None))]
    }

    fn encode(&mut self, (_, event): (Position, RunEvent)) -> Vec<Event> {
        match event {
            RunEvent::Text { text, restarted } => {
                let apart = self.spoken && (self.fresh || restarted);
                (self.spoken, self.fresh) = (true, false);
                let text = if apart { format!("\n\n{text}") } else { text };
                vec![sse::data(&self.chunk(json!({ "content": text }), None))]
            }
            RunEvent::TextComplete { text } => {
                (self.fresh, self.said) = (true, text);
                vec![]
            }
            RunEvent::ToolCalled { call } if call.name.starts_with('_') => vec![],
            RunEvent::ToolCalled { call } => {
                let label = super::preview(&call);
                let data = json!({
                    "tool": call.name, "emoji": "🔧", "label": label, "toolCallId": call.id, "status": "running",
                });
                vec![sse::named("hermes.tool.progress", &data)]
            }
            RunEvent::ToolReturned { name, .. } if name.starts_with('_') => vec![],
            RunEvent::ToolReturned { call, name, .. } => {
                let data = json!({ "tool": name, "toolCallId": call, "status": "completed" });
                vec![sse::named("hermes.tool.progress", &data)]
            }
            // Nobody is asked here.
            RunEvent::ApprovalRequested(_) | RunEvent::ApprovalEnded(_) => vec![],
            RunEvent::Ended(end) => {
                let pictures = pictures(&self.said, &end)
                    .map(|more| sse::data(&self.chunk(json!({ "content": format!("\n\n{more}") }), None)));
                let done = Event::default().data("[DONE]");
                pictures.into_iter().chain([sse::data(&self.last(&end)), done]).collect()
            }
        }
    }
}

/// What an answer shows besides what was said word by word: its pictures.
fn pictures(said: &str, end: &RunEnd) -> Option<String> {
    let shown = end.said.as_deref().filter(|shown| *shown != said)?;
    let words = media::extract(said).text;
    shown
        .strip_prefix(words.as_str())
        .map(|rest| rest.trim_start().to_owned())
        .filter(|rest| !rest.is_empty())
}
