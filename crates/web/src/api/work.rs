//! Putting the agent to work for a request: one way for every route, and the end of it when the client leaves.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use axum::response::sse::KeepAlive;
use petasos_core::journal::Outcome;
use petasos_core::message::Attachment;
use petasos_core::transcript::Usage;
use petasos_gateway::{NotStarted, Place, RunAsk, RunEnd, RunRow, Started, Wish};
use serde_json::{Value, json};

use super::Api;
use super::asked::{Content, Fields, SESSION_ID, SESSION_KEY, Wanted, text};
use super::keys::{Owner, Scope};
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

/// What a route asks for.
pub(super) struct Job<'a> {
    /// Its public name.
    pub(super) id: String,
    pub(super) route: &'static str,
    pub(super) place: Place,
    pub(super) content: Content,
    pub(super) instructions: Option<String>,
    pub(super) history: Vec<petasos_gateway::Told>,
    /// The client answers questions about commands.
    pub(super) answers: bool,
    /// Nobody wants to see it again.
    pub(super) forget: bool,
    pub(super) wanted: &'a Wanted,
    pub(super) fields: &'a Fields,
}

impl Api {
    /// Commits a run, or finds the one that the client means.
    pub(super) async fn start(&self, owner: &Owner, job: Job<'_>) -> Result<Started, NotBegun> {
        let (shown_model, model) = self.model(job.fields)?;
        let Content { text, pictures } = job.content;
        let asked = RunAsk {
            run: job.id,
            owner: owner.name.clone(),
            sees_all: owner.may(Scope::Read).is_ok(),
            place: job.place,
            text,
            attachments: pictures.into_iter().map(photo).collect(),
            wish: Wish {
                shown_model,
                model,
                instructions: job.instructions,
                history: job.history,
                answers: job.answers,
                forget: job.forget,
            },
            once: job.wanted.once(job.route, job.fields),
        };
        Ok(self.handle.start_run(asked).await?)
    }

    /// The name to show, and the model it means.
    fn model(&self, fields: &Fields) -> Result<(String, Option<String>), ApiError> {
        let Some(named) = text(fields, "model")? else { return Ok((self.options.model_name.clone(), None)) };
        let route = self.options.model_routes.get(&named).cloned();
        Ok((named, route))
    }

    /// Waits for the end of a run. If the client leaves meanwhile, the run ends, unless it is to go on.
    pub(super) async fn finish(
        &self,
        started: &Started,
        wanted: &Wanted,
        stop: &Stop,
    ) -> Result<RunRow, ApiError> {
        let mut cancel = self.cancel_on_drop(started, wanted, stop);
        let ended = self.handle.run_ended(&started.run.id).await;
        // Also if the store cannot be read at the moment: the client is there, and the run goes on.
        cancel.disarm();
        ended?.ok_or_else(|| ApiError::agent("agent_error", "The run is gone"))
    }

    /// A run as server-sent events. If the client leaves meanwhile, the run ends, unless it is to go on.
    pub(super) async fn stream<E>(
        &self,
        started: Started,
        wanted: &Wanted,
        stop: Stop,
        encoder: E,
    ) -> Result<Response, ApiError>
    where
        E: Encoder<Event = (Position, RunEvent)>,
    {
        let headers = names(&started.run, wanted);
        let cancel = self.cancel_on_drop(&started, wanted, &stop);
        let reader = Reader::open(&self.handle, RunStream::new(started.run, None), stop).await?;
        Ok(sse::respond(reader, encoder, Some(cancel), keep_alive(), headers))
    }

    /// A run that another request started is not this one's to stop.
    fn cancel_on_drop(&self, started: &Started, wanted: &Wanted, stop: &Stop) -> CancelOnDrop {
        let ours = !started.duplicate && !wanted.detached;
        CancelOnDrop::new(&self.handle, ours.then(|| started.run.clone()), stop)
    }
}

/// Fetched like everybody's files, once the run is on disk.
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

pub(super) fn wish(run: &RunRow) -> Wish {
    // Written by us; one of another version is as good as none.
    Wish::read(&run.wish).unwrap_or_default()
}

/// Seconds, as clients of model servers count.
pub(super) fn seconds(at: petasos_core::Millis) -> u64 {
    at.0 / 1000
}

pub(super) fn chat_usage(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt(), "completion_tokens": usage.output,
        "total_tokens": usage.total(),
    })
}

pub(super) fn usage(usage: Usage) -> Value {
    json!({ "input_tokens": usage.prompt(), "output_tokens": usage.output, "total_tokens": usage.total() })
}

/// The headers by which a client finds its conversation and its run again.
pub(super) fn names(run: &RunRow, wanted: &Wanted) -> HeaderMap {
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
pub(super) fn incomplete(headers: &mut HeaderMap, partial: bool, message: &str) {
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

/// Why there is no run.
#[derive(Debug)]
pub(super) enum NotBegun {
    Invalid(ApiError),
    Refused(NotStarted),
}

impl NotBegun {
    /// `otherwise`: what to say when there was nothing to go on from.
    pub(super) fn or(self, otherwise: impl FnOnce() -> ApiError) -> ApiError {
        match self {
            Self::Refused(NotStarted::Nowhere) => otherwise(),
            Self::Refused(refused) => refused.into(),
            Self::Invalid(error) => error,
        }
    }
}

impl From<ApiError> for NotBegun {
    fn from(error: ApiError) -> Self {
        Self::Invalid(error)
    }
}

impl From<NotStarted> for NotBegun {
    fn from(refused: NotStarted) -> Self {
        Self::Refused(refused)
    }
}

impl From<NotBegun> for ApiError {
    fn from(not_begun: NotBegun) -> Self {
        not_begun.or(|| ApiError::not_found("There is nothing to go on from").code("not_found"))
    }
}
