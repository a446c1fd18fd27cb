//! Chat completions: one answer, whole or as it grows.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use petasos_core::media;
use petasos_gateway::{Place, RunEnd, RunRow, fresh_id};
use serde_json::{Value, json};

use super::Api;
use super::asked::{Talk, Wanted, fields, flag, short_hash, talk};
use super::frames::{self, Frame, Speaker};
use super::keys::Owner;
use super::tape::{Beat, Tape};
use super::trouble::Trouble;
use super::work::{self, Job, Leash, STOPPED, TRUNCATED, Verdict, chat_usage, names, seconds};
use crate::serve::Stop;

const ROUTE: &str = "chat.completions";

pub(super) async fn complete(
    State(api): State<Arc<Api>>,
    owner: Owner,
    stop: Option<Extension<Stop>>,
    request: Request,
) -> Result<Response, Trouble> {
    let wanted = Wanted::read(request.headers())?;
    let fields = fields(request).await?;
    let messages = match fields.get("messages") {
        Some(Value::Array(messages)) if !messages.is_empty() => messages,
        _ => return Err(Trouble::bad("Missing or invalid 'messages' field").at("messages")),
    };
    let streamed = flag(&fields, "stream", false)?;
    let Talk { instructions, history, asked } = talk(messages, "messages")?;
    let content = asked.ok_or_else(|| Trouble::bad("No user message found in messages"))?;
    if content.is_empty() {
        return Err(Trouble::bad("No user message found in messages"));
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
    let stop = work::stop(stop);
    if streamed {
        let headers = names(&started.run, &wanted);
        let leash = Leash::new(&api.handle, &started, &wanted, &stop);
        let speaker = Chunks::new(&started.run);
        let tape = Tape::play(&api.handle, started.run, None, stop).await?;
        return Ok(frames::stream(tape, speaker, Some(leash), headers));
    }
    let run = api.finish(&started, &wanted, &stop).await?;
    whole(&run, &wanted)
}

fn whole(run: &RunRow, wanted: &Wanted) -> Result<Response, Trouble> {
    let end = run.end.as_ref().ok_or_else(|| Trouble::agent("agent_error", STOPPED))?;
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
    (headers, Trouble::agent(code, message)).into_response()
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

impl Speaker for Chunks {
    fn open(&mut self) -> Vec<Frame> {
        vec![Frame::data(&self.chunk(json!({ "role": "assistant", "content": "" }), None))]
    }

    fn tell(&mut self, beat: Beat) -> Vec<Frame> {
        match beat {
            Beat::Text { text, again } => {
                let apart = self.spoken && (self.fresh || again);
                (self.spoken, self.fresh) = (true, false);
                let text = if apart { format!("\n\n{text}") } else { text };
                vec![Frame::data(&self.chunk(json!({ "content": text }), None))]
            }
            Beat::Said { text } => {
                (self.fresh, self.said) = (true, text);
                vec![]
            }
            Beat::Called { call } if call.name.starts_with('_') => vec![],
            Beat::Called { call } => {
                let label = super::preview(&call);
                let data = json!({
                    "tool": call.name, "emoji": "🔧", "label": label, "toolCallId": call.id, "status": "running",
                });
                vec![Frame::named("hermes.tool.progress", &data)]
            }
            Beat::Returned { name, .. } if name.starts_with('_') => vec![],
            Beat::Returned { call, name, .. } => {
                let data = json!({ "tool": name, "toolCallId": call, "status": "completed" });
                vec![Frame::named("hermes.tool.progress", &data)]
            }
            // Nobody is asked here.
            Beat::Asked(_) | Beat::Answered(_) => vec![],
            Beat::Ended(end) => {
                let pictures = pictures(&self.said, &end)
                    .map(|more| Frame::data(&self.chunk(json!({ "content": format!("\n\n{more}") }), None)));
                let done = Frame { event: None, data: "[DONE]".into() };
                pictures.into_iter().chain([Frame::data(&self.last(&end)), done]).collect()
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
