//! Putting the agent to work for a request: one way for every route, and the end of it when the client leaves.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::sse::KeepAlive;
use petasos_core::journal::Outcome;
use petasos_core::message::Attachment;
use petasos_core::transcript::Usage;
use petasos_gateway::{NotStarted, Once, Place, RunAsk, RunEnd, RunRow, Started, Told, Wish};
use schemars::JsonSchema;
use serde::Serialize;

use super::Api;
use super::content::Content;
use super::keys::{Owner, Scope};
use super::reply::EventStream;
use super::request::{RunHeaders, SESSION_ID, SESSION_KEY};
use crate::error::ApiError;
use crate::serve::Stop;
use crate::stream::run::{Position, RunEvent, RunStream};
use crate::stream::sse::{self, Encoder};
use crate::stream::{CancelOnDrop, Reader};

const KEEP_ALIVE: Duration = Duration::from_secs(30);
const RUN_ID: HeaderName = HeaderName::from_static("x-petasos-run-id");
const COMPLETED: HeaderName = HeaderName::from_static("x-hermes-completed");
const PARTIAL: HeaderName = HeaderName::from_static("x-hermes-partial");
const ERROR: HeaderName = HeaderName::from_static("x-hermes-error");

/// What a route asks the agent for.
pub(super) struct NewRun {
    /// Its public name.
    pub(super) id: String,
    pub(super) place: Place,
    pub(super) content: Content,
    /// As the client named it.
    pub(super) model: Option<String>,
    pub(super) instructions: Option<String>,
    pub(super) history: Vec<Told>,
    /// The client answers questions about commands.
    pub(super) answers: bool,
    /// It cannot be fetched afterwards.
    pub(super) forget: bool,
    /// The error if there is nothing at `place`.
    pub(super) not_found: ApiError,
}

impl NewRun {
    pub(super) fn new(id: String, place: Place, content: Content) -> Self {
        Self {
            id,
            place,
            content,
            model: None,
            instructions: None,
            history: Vec::new(),
            answers: false,
            forget: false,
            not_found: ApiError::not_found("There is nothing to go on from").code("not_found"),
        }
    }
}

impl Api {
    /// Commits a run, or finds the one that the client means.
    pub(super) async fn start(
        &self,
        owner: &Owner,
        new: NewRun,
        once: Option<Once>,
    ) -> Result<Started, ApiError> {
        // The name to show, and the model it means.
        let (shown_model, model) = match new.model {
            None => (self.options.model_name.clone(), None),
            Some(name) => {
                let model = self.options.model_routes.get(&name).cloned();
                (name, model)
            }
        };
        let asked = RunAsk {
            run: new.id,
            owner: owner.name.clone(),
            sees_all: owner.may(Scope::Read).is_ok(),
            place: new.place,
            text: new.content.text,
            attachments: new.content.pictures.into_iter().map(photo).collect(),
            wish: Wish {
                shown_model,
                model,
                instructions: new.instructions,
                history: new.history,
                answers: new.answers,
                forget: new.forget,
            },
            once,
        };
        self.handle.start_run(asked).await.map_err(|error| match error {
            NotStarted::Nowhere => new.not_found,
            error => error.into(),
        })
    }

    /// Waits for the end of a run. If the client leaves meanwhile, the run ends, unless it is to go on.
    pub(super) async fn finish(
        &self,
        started: &Started,
        headers: &RunHeaders,
        stop: &Stop,
    ) -> Result<RunRow, ApiError> {
        let mut cancel = self.cancel_on_drop(started, headers, stop);
        let ended = self.handle.run_ended(&started.run.id).await;
        // Also if the store cannot be read at the moment: the client is there, and the run goes on.
        cancel.disarm();
        ended?.ok_or_else(|| ApiError::agent("agent_error", "The run is gone"))
    }

    /// A run as server-sent events. If the client leaves meanwhile, the run ends, unless it is to go on.
    pub(super) async fn stream<E>(
        &self,
        started: Started,
        headers: &RunHeaders,
        stop: Stop,
        encoder: E,
    ) -> Result<EventStream, ApiError>
    where
        E: Encoder<Event = (Position, RunEvent)>,
    {
        let names = names(&started.run, headers);
        let cancel = self.cancel_on_drop(&started, headers, &stop);
        let reader = Reader::open(&self.handle, RunStream::new(started.run, None), stop).await?;
        Ok(EventStream(sse::respond(reader, encoder, Some(cancel), keep_alive(), names)))
    }

    /// A run that another request started is not this one's to stop.
    fn cancel_on_drop(&self, started: &Started, headers: &RunHeaders, stop: &Stop) -> CancelOnDrop {
        let ours = !started.duplicate && !headers.detached;
        CancelOnDrop::new(&self.handle, ours.then(|| started.run.clone()), stop)
    }
}

/// Fetched like the files of messages, once the run is on disk.
fn photo(address: String) -> Attachment {
    Attachment { kind: "photo".into(), reference: address, ..Attachment::default() }
}

pub(super) fn keep_alive() -> KeepAlive {
    KeepAlive::new().interval(KEEP_ALIVE).text("keepalive")
}

/// How a run ended, for its client.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    Answered { text: String, partial: bool },
    Failed { message: String },
    Cancelled,
}

pub(super) fn verdict(end: &RunEnd) -> Verdict {
    let said = end.said.clone().unwrap_or_default();
    match end.outcome {
        Outcome::Answered => Verdict::Answered { text: said, partial: end.partial },
        Outcome::Cancelled => Verdict::Cancelled,
        Outcome::Refused | Outcome::Dead | Outcome::Merged => {
            let message = said.trim_start_matches(['⚠', '\u{fe0f}', ' ']).to_owned();
            let message = if message.is_empty() { "The run could not be started".into() } else { message };
            Verdict::Failed { message }
        }
    }
}

/// The answer of a run that has one.
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) partial: bool,
    pub(super) usage: Usage,
}

/// What a client that waited for the end gets: the answer, or why there is none, with the headers that tell both.
pub(super) fn answer(run: &RunRow, wanted: &RunHeaders) -> Result<(HeaderMap, Answer), ApiError> {
    let end = run.end.as_ref().ok_or_else(|| ApiError::agent("agent_error", STOPPED))?;
    let mut headers = names(run, wanted);
    let (code, message) = match verdict(end) {
        Verdict::Answered { text, partial } => {
            if partial {
                incomplete(&mut headers, true, TRUNCATED);
            }
            return Ok((headers, Answer { text, partial, usage: end.usage }));
        }
        Verdict::Failed { message } => ("agent_error", message),
        Verdict::Cancelled => ("agent_incomplete", STOPPED.to_owned()),
    };
    incomplete(&mut headers, false, &message);
    Err(ApiError::agent(code, message).with_headers(headers))
}

pub(super) fn run_options(run: &RunRow) -> Wish {
    // Written by us; one of another version is as good as none.
    Wish::read(&run.wish).unwrap_or_default()
}

/// Seconds, as clients of model servers count.
pub(super) fn seconds(at: petasos_core::Millis) -> u64 {
    at.0 / 1000
}

/// What a run has used.
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

/// The headers by which a client finds its conversation and its run again.
pub(super) fn names(run: &RunRow, wanted: &RunHeaders) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let named = [(RUN_ID, Some(run.id.as_str())), (SESSION_ID, Some(run.session.as_str()))];
    for (name, value) in named.into_iter().chain([(SESSION_KEY, wanted.key.as_deref())]) {
        if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
            headers.insert(name, value);
        }
    }
    headers
}

/// The same, with what went wrong.
fn incomplete(headers: &mut HeaderMap, partial: bool, message: &str) {
    headers.insert(COMPLETED, HeaderValue::from_static("false"));
    headers.insert(PARTIAL, HeaderValue::from_static(if partial { "true" } else { "false" }));
    let shown: String =
        message.chars().filter(|it| it.is_ascii() && !it.is_ascii_control()).take(200).collect();
    if let Ok(value) = HeaderValue::from_str(&shown) {
        headers.insert(ERROR, value);
    }
}

pub(super) const TRUNCATED: &str = "The answer was truncated by the output length limit";
pub(super) const STOPPED: &str = "The run was stopped before it had an answer";
