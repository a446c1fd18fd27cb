//! Starts a run for a request, waits for its end or streams it, and stops it when the client disconnects.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::sse::KeepAlive;
use petasos_core::RunId;
use petasos_core::journal::MessageOutcome;
use petasos_core::message::Attachment;
use petasos_core::transcript::Usage;
use petasos_gateway::{
    HistoryMessage, IdempotencyKey, RunEnd, RunOptions, RunRequest, RunRow, RunTarget, StartRunError,
    StartedRun,
};
use schemars::JsonSchema;
use serde::Serialize;

use super::Api;
use super::keys::{ApiClient, Scope};
use super::wire::content::Content;
use super::wire::request::{RunHeaders, SESSION_ID, SESSION_KEY};
use super::wire::response::EventStream;
use crate::error::ApiError;
use crate::server::StopSignal;
use crate::stream::run::{RunEvent, RunStream, StreamPosition};
use crate::stream::sse::{self, Encoder};
use crate::stream::{CancelOnDrop, StreamReader};

const KEEP_ALIVE: Duration = Duration::from_secs(30);
const RUN_ID: HeaderName = HeaderName::from_static("x-petasos-run-id");
const COMPLETED: HeaderName = HeaderName::from_static("x-hermes-completed");
const PARTIAL: HeaderName = HeaderName::from_static("x-hermes-partial");
const ERROR: HeaderName = HeaderName::from_static("x-hermes-error");

pub(super) struct RunSubmission {
    pub(super) id: RunId,
    pub(super) target: RunTarget,
    pub(super) content: Content,
    pub(super) model: Option<String>,
    pub(super) instructions: Option<String>,
    pub(super) history: Vec<HistoryMessage>,
    /// The client can answer approval requests.
    pub(super) answers: bool,
    /// The run cannot be fetched afterwards.
    pub(super) forget: bool,
    /// The error if `target` does not exist.
    pub(super) not_found: ApiError,
}

impl RunSubmission {
    pub(super) fn new(id: RunId, target: RunTarget, content: Content) -> Self {
        Self {
            id,
            target,
            content,
            model: None,
            instructions: None,
            history: Vec::new(),
            answers: false,
            forget: false,
            not_found: ApiError::not_found("There is no run to continue").code("not_found"),
        }
    }
}

impl Api {
    /// Commits a run, or returns the run of the same idempotency key.
    pub(super) async fn start(
        &self,
        owner: &ApiClient,
        new: RunSubmission,
        idempotency_key: Option<IdempotencyKey>,
    ) -> Result<StartedRun, ApiError> {
        let (shown_model, model) = match new.model {
            None => (self.options.model_name.clone(), None),
            Some(name) => {
                let model = self.options.model_routes.get(&name).cloned();
                (name, model)
            }
        };
        let request = RunRequest {
            run: new.id,
            owner: owner.name.clone(),
            sees_all: owner.require(Scope::Read).is_ok(),
            target: new.target,
            text: new.content.text,
            attachments: new.content.images.into_iter().map(photo_attachment).collect(),
            options: RunOptions {
                shown_model,
                model,
                instructions: new.instructions,
                history: new.history,
                answers: new.answers,
                forget: new.forget,
            },
            idempotency_key,
        };
        self.handle.start_run(request).await.map_err(|error| match error {
            StartRunError::TargetNotFound => new.not_found,
            error => error.into(),
        })
    }

    /// Waits for the end of a run. A disconnect of the client stops the run unless it is detached.
    pub(super) async fn wait_for_run(
        &self,
        started: &StartedRun,
        headers: &RunHeaders,
        stop: &StopSignal,
    ) -> Result<RunRow, ApiError> {
        let mut cancel = self.cancel_on_drop(started, headers, stop);
        let ended = self.handle.run_ended(&started.run.id).await;
        // Also after a read error: the client is still connected, and the run continues.
        cancel.disarm();
        ended?.ok_or_else(|| ApiError::agent_failed("agent_error", "The run no longer exists"))
    }

    /// Streams a run as server-sent events. A disconnect of the client stops the run unless it is detached.
    pub(super) async fn stream<E>(
        &self,
        started: StartedRun,
        headers: &RunHeaders,
        stop: StopSignal,
        encoder: E,
    ) -> Result<EventStream, ApiError>
    where
        E: Encoder<Event = (StreamPosition, RunEvent)>,
    {
        let run_headers = run_headers(&started.run, headers);
        let cancel = self.cancel_on_drop(&started, headers, &stop);
        let reader = StreamReader::open(&self.handle, RunStream::new(started.run, None), stop).await?;
        Ok(EventStream(sse::respond(reader, encoder, Some(cancel), keep_alive(), run_headers)))
    }

    /// Only the request that started a run stops it.
    fn cancel_on_drop(&self, started: &StartedRun, headers: &RunHeaders, stop: &StopSignal) -> CancelOnDrop {
        let ours = !started.duplicate && !headers.detached;
        CancelOnDrop::new(&self.handle, ours.then(|| started.run.clone()), stop)
    }
}

/// The image is downloaded like other attachments once the run is on disk.
fn photo_attachment(address: String) -> Attachment {
    Attachment { kind: "photo".into(), reference: address, ..Attachment::default() }
}

pub(super) fn keep_alive() -> KeepAlive {
    KeepAlive::new().interval(KEEP_ALIVE).text("keepalive")
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum RunOutcome {
    Answered { text: String, partial: bool },
    Failed { message: String },
    Cancelled,
}

pub(super) fn run_outcome(end: &RunEnd) -> RunOutcome {
    let answer_text = end.answer.clone().unwrap_or_default();
    match end.outcome {
        MessageOutcome::Answered => RunOutcome::Answered { text: answer_text, partial: end.partial },
        MessageOutcome::Cancelled => RunOutcome::Cancelled,
        MessageOutcome::Refused | MessageOutcome::Dead | MessageOutcome::Merged => {
            let message = answer_text.trim_start_matches(['⚠', '\u{fe0f}', ' ']).to_owned();
            let message = if message.is_empty() { "The run could not be started".into() } else { message };
            RunOutcome::Failed { message }
        }
    }
}

pub(super) struct RunAnswer {
    pub(super) text: String,
    pub(super) partial: bool,
    pub(super) usage: Usage,
}

/// The answer of a finished run with its headers, or the error.
pub(super) fn run_answer(
    run: &RunRow,
    request_headers: &RunHeaders,
) -> Result<(HeaderMap, RunAnswer), ApiError> {
    let end = run.end.as_ref().ok_or_else(|| ApiError::agent_failed("agent_error", STOPPED))?;
    let mut headers = run_headers(run, request_headers);
    let (code, message) = match run_outcome(end) {
        RunOutcome::Answered { text, partial } => {
            if partial {
                add_incomplete_headers(&mut headers, true, TRUNCATED);
            }
            return Ok((headers, RunAnswer { text, partial, usage: end.usage }));
        }
        RunOutcome::Failed { message } => ("agent_error", message),
        RunOutcome::Cancelled => ("agent_incomplete", STOPPED.to_owned()),
    };
    add_incomplete_headers(&mut headers, false, &message);
    Err(ApiError::agent_failed(code, message).with_headers(headers))
}

pub(super) fn run_options(run: &RunRow) -> RunOptions {
    // Options written by another version fall back to the defaults.
    RunOptions::parse(&run.options).unwrap_or_default()
}

pub(super) fn unix_seconds(at: petasos_core::Millis) -> u64 {
    at.0 / 1000
}

#[derive(Debug, Clone, Serialize, JsonSchema)]
pub(super) struct TokenUsage {
    input_tokens: u64,
    output_tokens: u64,
    total_tokens: u64,
}

impl From<Usage> for TokenUsage {
    fn from(usage: Usage) -> Self {
        Self { input_tokens: usage.prompt(), output_tokens: usage.output, total_tokens: usage.total() }
    }
}

pub(super) fn run_headers(run: &RunRow, request_headers: &RunHeaders) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let named = [(RUN_ID, Some(run.id.as_str())), (SESSION_ID, Some(run.session.as_str()))];
    for (name, value) in named.into_iter().chain([(SESSION_KEY, request_headers.key.as_deref())]) {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(name, value);
        }
    }
    headers
}

fn add_incomplete_headers(headers: &mut HeaderMap, partial: bool, message: &str) {
    headers.insert(COMPLETED, HeaderValue::from_static("false"));
    headers.insert(PARTIAL, HeaderValue::from_static(if partial { "true" } else { "false" }));
    let ascii: String =
        message.chars().filter(|it| it.is_ascii() && !it.is_ascii_control()).take(200).collect();
    if let Ok(value) = HeaderValue::from_str(&ascii) {
        headers.insert(ERROR, value);
    }
}

pub(super) const TRUNCATED: &str = "The answer was truncated by the output length limit";
pub(super) const STOPPED: &str = "The run was stopped before it had an answer";
