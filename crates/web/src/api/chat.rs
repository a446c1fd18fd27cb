//! Chat completions: one answer, whole or as it grows.

use axum::Json;
use axum::extract::State;
use axum::response::sse::Event;
use petasos_core::media;
use petasos_core::transcript::Usage;
use petasos_gateway::{Place, RunEnd, RunRow, fresh_id};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::content::{Message, Talk, flag, text};
use super::keys::Owner;
use super::reply::{Named, Reply};
use super::request::{Body, Payload, RunHeaders, SessionHeader, short_hash};
use super::work::{self, NewRun, STOPPED, TRUNCATED, Verdict, seconds};
use super::{Api, preview};
use crate::error::ApiError;
use crate::serve::Stop;
use crate::stream::run::{Position, RunEvent};
use crate::stream::sse::{self, Encoder};

const ROUTE: &str = "chat.completions";

#[derive(Deserialize, JsonSchema)]
pub(super) struct ChatCompletionRequest {
    #[serde(default, deserialize_with = "text")]
    model: Option<String>,
    #[serde(default, deserialize_with = "flag")]
    stream: Option<bool>,
    /// The last of them is answered.
    #[schemars(with = "Vec<Message>", length(min = 1))]
    messages: Option<Vec<Message>>,
}

impl Payload for ChatCompletionRequest {}

#[derive(Serialize, JsonSchema)]
pub(super) struct ChatCompletion {
    id: String,
    #[schemars(extend("const" = "chat.completion"))]
    object: &'static str,
    created: u64,
    model: String,
    choices: [ChatChoice; 1],
    usage: ChatUsage,
    /// There if the answer is not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    hermes: Option<Completeness>,
}

#[derive(Serialize, JsonSchema)]
struct ChatChoice {
    index: u32,
    message: ChatAnswer,
    finish_reason: &'static str,
    logprobs: (),
}

#[derive(Serialize, JsonSchema)]
struct ChatAnswer {
    #[schemars(extend("const" = "assistant"))]
    role: &'static str,
    content: String,
    refusal: (),
}

#[derive(Serialize, JsonSchema)]
pub(super) struct ChatUsage {
    prompt_tokens: u64,
    completion_tokens: u64,
    total_tokens: u64,
}

impl From<Usage> for ChatUsage {
    fn from(usage: Usage) -> Self {
        Self { prompt_tokens: usage.prompt(), completion_tokens: usage.output, total_tokens: usage.total() }
    }
}

#[derive(Serialize, JsonSchema)]
struct Completeness {
    completed: bool,
    partial: bool,
    failed: bool,
    error: String,
    error_code: &'static str,
}

impl Completeness {
    fn truncated() -> Self {
        Self {
            completed: false,
            partial: true,
            failed: false,
            error: TRUNCATED.to_owned(),
            error_code: "output_truncated",
        }
    }

    fn failed(error: &str, error_code: &'static str) -> Self {
        Self { completed: false, partial: false, failed: true, error: error.to_owned(), error_code }
    }
}

pub(super) async fn complete(
    State(api): State<Api>,
    owner: Owner,
    stop: Stop,
    headers: RunHeaders,
    SessionHeader(session): SessionHeader,
    body: Body<ChatCompletionRequest>,
) -> Result<Reply<ChatCompletion>, ApiError> {
    let ChatCompletionRequest { model, stream, messages } = body.value;
    let messages = messages.filter(|messages| !messages.is_empty());
    let missing = || ApiError::bad_request("Missing or invalid 'messages' field").param("messages");
    let Talk { instructions, history, asked } = Talk::of(messages.ok_or_else(missing)?);
    let content = asked.filter(|asked| !asked.is_empty());
    let content = content.ok_or_else(|| ApiError::bad_request("No user message found in messages"))?;
    let place = match session {
        Some(id) => Place::Session(id),
        None => {
            let first = history.first().map_or(content.text.as_str(), |told| told.text.as_str());
            let key = headers.key.as_deref().unwrap_or_default();
            let told = instructions.as_deref().unwrap_or_default();
            let name = format!("api-{}", short_hash(&[&owner.name, key, told, first]));
            Place::Told { name, history }
        }
    };
    let id = format!("chatcmpl-{}", &fresh_id::<15>("")[..29]);
    let run = NewRun { model, instructions, ..NewRun::new(id, place, content) };
    let started = api.start(&owner, run, headers.idempotency_key(ROUTE, &body.fields)).await?;
    if stream.unwrap_or(false) {
        let encoder = ChunkEncoder::new(&started.run);
        return Ok(Reply::Stream(api.stream(started, &headers, stop, encoder).await?));
    }
    let run = api.finish(&started, &headers, &stop).await?;
    Ok(Reply::Whole(whole(&run, &headers)?))
}

fn whole(run: &RunRow, wanted: &RunHeaders) -> Result<Named<Json<ChatCompletion>>, ApiError> {
    let (headers, answer) = work::answer(run, wanted)?;
    let (finish_reason, hermes) = match answer.partial {
        true => ("length", Some(Completeness::truncated())),
        false => ("stop", None),
    };
    let message = ChatAnswer { role: "assistant", content: answer.text, refusal: () };
    let completion = ChatCompletion {
        id: run.id.clone(),
        object: "chat.completion",
        created: seconds(run.created_at),
        model: work::run_options(run).shown_model,
        choices: [ChatChoice { index: 0, message, finish_reason, logprobs: () }],
        usage: answer.usage.into(),
        hermes,
    };
    Ok(Named(headers, Json(completion)))
}

/// A run as chunks of a chat completion.
struct ChunkEncoder {
    id: String,
    created: u64,
    model: String,
    /// Text was sent: what follows after a tool stands apart from it.
    spoken: bool,
    fresh: bool,
    /// What was said last, as it was said.
    said: String,
}

impl ChunkEncoder {
    fn new(run: &RunRow) -> Self {
        Self {
            id: run.id.clone(),
            created: seconds(run.created_at),
            model: work::run_options(run).shown_model,
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
        let failed = |code: &'static str, message: &str| {
            let mut last = self.chunk(json!({}), Some("error"));
            last["error"] = json!({ "message": message, "type": "agent_error", "param": null, "code": code });
            last["hermes"] = json!(Completeness::failed(message, code));
            last
        };
        let mut last = match work::verdict(end) {
            Verdict::Answered { partial: false, .. } => self.chunk(json!({}), Some("stop")),
            Verdict::Answered { partial: true, .. } => {
                let mut last = self.chunk(json!({}), Some("length"));
                last["hermes"] = json!(Completeness::truncated());
                last
            }
            Verdict::Failed { message } => failed("agent_error", &message),
            Verdict::Cancelled => failed("agent_incomplete", STOPPED),
        };
        last["usage"] = json!(ChatUsage::from(end.usage));
        last
    }
}

impl Encoder for ChunkEncoder {
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
                let label = preview(&call);
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
