//! OpenAI-compatible chat completions, whole or streamed.

use axum::Json;
use axum::extract::State;
use axum::response::sse::Event;
use petasos_core::transcript::Usage;
use petasos_core::{RunId, SessionId, media};
use petasos_gateway::{RunEnd, RunRow, RunTarget, fresh_id};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::execution::{self, RunOutcome, RunSubmission, STOPPED, TRUNCATED, unix_seconds};
use crate::api::keys::ApiClient;
use crate::api::wire::content::{LenientMessage, ParsedConversation, flag, text};
use crate::api::wire::request::{Body, Payload, RunHeaders, SessionHeader, hash_prefix};
use crate::api::wire::response::{WholeOrStream, WithRunHeaders};
use crate::api::{Api, call_preview};
use crate::error::ApiError;
use crate::server::StopSignal;
use crate::stream::run::{RunEvent, StreamPosition};
use crate::stream::sse::{self, Encoder};

const IDEMPOTENCY_ROUTE: &str = "chat.completions";

#[derive(Deserialize, JsonSchema)]
pub(crate) struct ChatCompletionRequest {
    #[serde(default, deserialize_with = "text")]
    model: Option<String>,
    #[serde(default, deserialize_with = "flag")]
    stream: Option<bool>,
    /// The last message is answered.
    #[schemars(with = "Vec<LenientMessage>", length(min = 1))]
    messages: Option<Vec<LenientMessage>>,
}

impl Payload for ChatCompletionRequest {}

#[derive(Serialize, JsonSchema)]
pub(crate) struct ChatCompletion {
    #[schemars(with = "String")]
    id: RunId,
    #[schemars(extend("const" = "chat.completion"))]
    object: &'static str,
    created: u64,
    model: String,
    choices: [ChatChoice; 1],
    usage: ChatUsage,
    /// Present if the answer is incomplete.
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
pub(crate) struct ChatUsage {
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

pub(crate) async fn complete(
    State(api): State<Api>,
    owner: ApiClient,
    stop: StopSignal,
    headers: RunHeaders,
    SessionHeader(session): SessionHeader,
    body: Body<ChatCompletionRequest>,
) -> Result<WholeOrStream<ChatCompletion>, ApiError> {
    let ChatCompletionRequest { model, stream, messages } = body.value;
    let messages = messages.filter(|messages| !messages.is_empty());
    let missing = || ApiError::bad_request("Missing or invalid 'messages' field").param("messages");
    let ParsedConversation { instructions, history, prompt } =
        ParsedConversation::from_messages(messages.ok_or_else(missing)?);
    let content = prompt.filter(|prompt| !prompt.is_empty());
    let content = content.ok_or_else(|| ApiError::bad_request("No user message found in messages"))?;
    let target = match session {
        Some(id) => RunTarget::Session(SessionId(id)),
        None => {
            let first = history.first().map_or(content.text.as_str(), |message| message.text.as_str());
            let key = headers.key.as_deref().unwrap_or_default();
            let message = instructions.as_deref().unwrap_or_default();
            let name = format!("api-{}", hash_prefix(&[&owner.name, key, message, first]));
            RunTarget::FullHistory { name, history }
        }
    };
    let id = RunId(format!("chatcmpl-{}", &fresh_id::<15>("")[..29]));
    let run = RunSubmission { model, instructions, ..RunSubmission::new(id, target, content) };
    let started = api.start(&owner, run, headers.idempotency_key(IDEMPOTENCY_ROUTE, &body.fields)).await?;
    if stream.unwrap_or(false) {
        let encoder = ChunkEncoder::new(&started.run);
        return Ok(WholeOrStream::Stream(api.stream(started, &headers, stop, encoder).await?));
    }
    let run = api.wait_for_run(&started, &headers, &stop).await?;
    Ok(WholeOrStream::Whole(completion(&run, &headers)?))
}

fn completion(
    run: &RunRow,
    request_headers: &RunHeaders,
) -> Result<WithRunHeaders<Json<ChatCompletion>>, ApiError> {
    let (headers, answer) = execution::run_answer(run, request_headers)?;
    let (finish_reason, hermes) =
        if answer.partial { ("length", Some(Completeness::truncated())) } else { ("stop", None) };
    let message = ChatAnswer { role: "assistant", content: answer.text, refusal: () };
    let completion = ChatCompletion {
        id: run.id.clone(),
        object: "chat.completion",
        created: unix_seconds(run.created_at),
        model: execution::run_options(run).shown_model,
        choices: [ChatChoice { index: 0, message, finish_reason, logprobs: () }],
        usage: answer.usage.into(),
        hermes,
    };
    Ok(WithRunHeaders(headers, Json(completion)))
}

/// Encodes a run as chunks of a chat completion.
struct ChunkEncoder {
    id: RunId,
    created: u64,
    model: String,
    /// Text was sent, so the text of the next answer needs a separator.
    has_text: bool,
    new_answer: bool,
    /// The text of the last answer as it was streamed.
    last_answer: String,
}

impl ChunkEncoder {
    fn new(run: &RunRow) -> Self {
        Self {
            id: run.id.clone(),
            created: unix_seconds(run.created_at),
            model: execution::run_options(run).shown_model,
            has_text: false,
            new_answer: true,
            last_answer: String::new(),
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
        let mut last = match execution::run_outcome(end) {
            RunOutcome::Answered { partial: false, .. } => self.chunk(json!({}), Some("stop")),
            RunOutcome::Answered { partial: true, .. } => {
                let mut last = self.chunk(json!({}), Some("length"));
                last["hermes"] = json!(Completeness::truncated());
                last
            }
            RunOutcome::Failed { message } => failed("agent_error", &message),
            RunOutcome::Cancelled => failed("agent_incomplete", STOPPED),
        };
        last["usage"] = json!(ChatUsage::from(end.usage));
        last
    }
}

impl Encoder for ChunkEncoder {
    type Event = (StreamPosition, RunEvent);

    fn open(&mut self) -> Vec<Event> {
        vec![sse::data(&self.chunk(json!({ "role": "assistant", "content": "" }), None))]
    }

    fn encode(&mut self, (_, event): (StreamPosition, RunEvent)) -> Vec<Event> {
        match event {
            RunEvent::Text { text, restarted } => {
                let separate = self.has_text && (self.new_answer || restarted);
                (self.has_text, self.new_answer) = (true, false);
                let text = if separate { format!("\n\n{text}") } else { text };
                vec![sse::data(&self.chunk(json!({ "content": text }), None))]
            }
            RunEvent::TextComplete { text } => {
                (self.new_answer, self.last_answer) = (true, text);
                vec![]
            }
            RunEvent::ToolCalled { call } if call.name.starts_with('_') => vec![],
            RunEvent::ToolCalled { call } => {
                let label = call_preview(&call);
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
            // This endpoint has no approvals.
            RunEvent::ApprovalRequested(_) | RunEvent::ApprovalEnded(_) => vec![],
            RunEvent::Ended(end) => {
                let trailing_media = trailing_media(&self.last_answer, &end)
                    .map(|more| sse::data(&self.chunk(json!({ "content": format!("\n\n{more}") }), None)));
                let done = Event::default().data("[DONE]");
                trailing_media.into_iter().chain([sse::data(&self.last(&end)), done]).collect()
            }
        }
    }
}

/// The part of the final answer that was not streamed: its media.
fn trailing_media(last_answer: &str, end: &RunEnd) -> Option<String> {
    let shown = end.answer.as_deref().filter(|shown| *shown != last_answer)?;
    let words = media::extract(last_answer).text;
    shown
        .strip_prefix(words.as_str())
        .map(|rest| rest.trim_start().to_owned())
        .filter(|rest| !rest.is_empty())
}
