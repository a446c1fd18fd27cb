//! Runs: work that belongs to the server. Accepted with a name, looked at, followed, stopped.

mod events;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use petasos_approval::{Answer, Choice, Which};
use petasos_core::Millis;
use petasos_gateway::{Approval, Place, RunRow, Started, fresh_id};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::Api;
use super::content::{AgentInput, Asked, Message, flag, text};
use super::keys::{Owner, Scope};
use super::openapi::{Input, Operation};
use super::reply::{Accepted, EventStream, Named, Status};
use super::request::{Body, Id, Invalid, Payload, RunHeaders, is_session_id};
use super::work::{self, NewRun, TokenUsage, Verdict, names};
use crate::error::ApiError;
use crate::guard;
use crate::serve::Stop;
use crate::stream::Reader;
use crate::stream::page::LAST_EVENT_ID;
use crate::stream::run::{Position, RunStream};
use crate::stream::sse;
use events::RunEncoder;

const ROUTE: &str = "runs";

#[derive(Deserialize, JsonSchema)]
pub(super) struct RunRequest {
    #[schemars(with = "AgentInput")]
    input: Option<AgentInput>,
    #[serde(default, deserialize_with = "text")]
    instructions: Option<String>,
    #[serde(default, deserialize_with = "text")]
    model: Option<String>,
    #[serde(default, deserialize_with = "session_name")]
    session_id: Option<String>,
    #[serde(default, deserialize_with = "text")]
    previous_response_id: Option<String>,
    /// What was said before, in the client's words.
    conversation_history: Option<Vec<Message>>,
}

impl Payload for RunRequest {}

/// Unlike that of a new conversation, it may be empty.
fn session_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match text(deserializer)? {
        Some(id) if !is_session_id(&id) => {
            Err(Invalid::coded("invalid_session_id", "Invalid session ID").error())
        }
        id => Ok(id),
    }
}

#[derive(Serialize, JsonSchema)]
pub(super) struct RunStarted {
    run_id: String,
    #[schemars(extend("const" = "started"))]
    status: &'static str,
    session_id: String,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct RunStopping {
    run_id: String,
    #[schemars(extend("const" = "stopping"))]
    status: &'static str,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct Run {
    #[schemars(extend("const" = "hermes.run"))]
    object: &'static str,
    run_id: String,
    status: RunStatus,
    last_event: &'static str,
    created_at: f64,
    updated_at: f64,
    session_id: String,
    model: String,
    /// What it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<ApprovalQuestion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<TokenUsage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    partial: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum RunStatus {
    Queued,
    Running,
    WaitingForApproval,
    Stopping,
    Completed,
    Failed,
    Cancelled,
}

/// A command that waits for approval, with the choices that the client's key may make.
#[derive(Serialize, JsonSchema)]
struct ApprovalQuestion {
    approval_id: String,
    command: String,
    cwd: Option<String>,
    description: String,
    pattern_key: Option<&'static str>,
    pattern_keys: Vec<&'static str>,
    choices: Vec<&'static str>,
    allow_permanent: bool,
    smart_denied: bool,
}

impl ApprovalQuestion {
    fn new(asked: &Approval, owner: &Owner) -> Self {
        let admin = owner.may(Scope::Admin).is_ok();
        let choices = || asked.choices.iter().copied().filter(|choice| admin || !choice.lasts());
        let kinds: Vec<_> = asked.categories.iter().map(|kind| kind.key()).collect();
        let sentences: Vec<_> = asked.categories.iter().map(|kind| kind.sentence()).collect();
        Self {
            approval_id: asked.id.clone(),
            command: asked.command.clone(),
            cwd: asked.folder.clone(),
            description: sentences.join(" "),
            pattern_key: kinds.first().copied(),
            pattern_keys: kinds,
            choices: choices().map(Choice::as_str).collect(),
            allow_permanent: choices().any(|choice| choice == Choice::Always),
            smart_denied: asked.advised_against,
        }
    }
}

/// Answers what a run waits for: the oldest question, the one that is named, or all.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ApprovalRequest {
    #[schemars(with = "ApprovalChoice")]
    choice: Option<ApprovalChoice>,
    #[serde(default, deserialize_with = "text")]
    approval_id: Option<String>,
    #[serde(default, deserialize_with = "flag")]
    all: Option<bool>,
    /// Another name of `all`.
    #[serde(default, deserialize_with = "flag")]
    #[schemars(skip)]
    resolve_all: Option<bool>,
    #[serde(default, deserialize_with = "text")]
    reason: Option<String>,
}

impl Payload for ApprovalRequest {}

#[derive(Clone, Copy, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ApprovalChoice {
    Once,
    Session,
    Always,
    Deny,
}

const CHOICES: &str = "Invalid approval choice; expected one of: once, session, always, deny";

impl<'de> Deserialize<'de> for ApprovalChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = text(deserializer)?.unwrap_or_default();
        match word.trim().to_ascii_lowercase().as_str() {
            "once" | "approve" | "approved" | "allow" => Ok(Self::Once),
            "session" => Ok(Self::Session),
            "always" => Ok(Self::Always),
            "deny" => Ok(Self::Deny),
            _ => Err(Invalid::coded("invalid_approval_choice", CHOICES).error()),
        }
    }
}

#[derive(Serialize, JsonSchema)]
pub(super) struct ApprovalAnswer {
    #[schemars(extend("const" = "hermes.run.approval_response"))]
    object: &'static str,
    run_id: String,
    choice: &'static str,
    resolved: usize,
}

/// Answers after the commit: from then on the run ends in one of its final states, whoever watches.
pub(super) async fn start(
    State(api): State<Api>,
    owner: Owner,
    headers: RunHeaders,
    body: Body<RunRequest>,
) -> Result<Named<Accepted<RunStarted>>, ApiError> {
    let RunRequest { input, instructions, model, session_id, previous_response_id, conversation_history } =
        body.value;
    let starts_over = conversation_history.is_some();
    let asked = Asked::new(input, conversation_history)?;
    let id = fresh_id::<16>("run_");
    let not_found = no_previous(previous_response_id.as_deref());
    let place = match (session_id, previous_response_id) {
        (Some(session), _) => Place::Session(session),
        (None, Some(previous)) if !starts_over => Place::After(previous),
        (None, _) => Place::Session(id.clone()),
    };
    let run = NewRun {
        model,
        instructions: instructions.or(asked.instructions),
        history: asked.history,
        answers: true,
        not_found,
        ..NewRun::new(id, place, asked.content)
    };
    let Started { run, .. } = api.start(&owner, run, headers.idempotency_key(ROUTE, &body.fields)).await?;
    let names = names(&run, &headers);
    let session_id = run.session.to_string();
    Ok(Named(names, Status(RunStarted { run_id: run.id, status: "started", session_id })))
}

pub(super) async fn status(State(api): State<Api>, owner: Owner, Id(id): Id) -> Result<Json<Run>, ApiError> {
    let run = api.owned(&owner, &id).await?;
    let waits = api.handle.run_waits_for(&run).await?;
    Ok(Json(api.shown(&run, waits.as_ref(), &owner)))
}

/// `Last-Event-ID`: where a stream goes on.
pub(super) struct ResumeFrom(Option<Position>);

impl<S: Sync> FromRequestParts<S> for ResumeFrom {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        match guard::text(&parts.headers, &LAST_EVENT_ID) {
            None | Some("") => Ok(Self(None)),
            Some(id) => Position::parse(id).map(|position| Self(Some(position))).ok_or_else(|| {
                ApiError::invalid("invalid_event_id", "Last-Event-ID is not the id of an event of this run")
            }),
        }
    }
}

impl Input for ResumeFrom {
    fn describe(operation: &mut Operation<'_>) {
        operation.header("Last-Event-ID");
    }
}

/// Everything that happened and happens, from the beginning or from the last event that the client has.
pub(super) async fn events(
    State(api): State<Api>,
    owner: Owner,
    stop: Stop,
    Id(id): Id,
    ResumeFrom(from): ResumeFrom,
) -> Result<EventStream, ApiError> {
    let run = api.owned(&owner, &id).await?;
    let encoder = RunEncoder { run: run.id.clone(), owner };
    let reader = Reader::open(&api.handle, RunStream::new(run, from), stop).await?;
    Ok(EventStream(sse::respond(reader, encoder, None, work::keep_alive(), HeaderMap::new())))
}

pub(super) async fn stop(
    State(api): State<Api>,
    owner: Owner,
    Id(id): Id,
) -> Result<Json<RunStopping>, ApiError> {
    let run = api.owned(&owner, &id).await?;
    if !api.handle.stop_run(&run).await? {
        return Err(not_found(&id));
    }
    Ok(Json(RunStopping { run_id: id, status: "stopping" }))
}

pub(super) async fn approval(
    State(api): State<Api>,
    owner: Owner,
    Id(id): Id,
    body: Body<ApprovalRequest>,
) -> Result<Json<ApprovalAnswer>, ApiError> {
    let run = api.owned(&owner, &id).await?;
    let ApprovalRequest { choice, approval_id, all, resolve_all, reason } = body.value;
    let choice = match choice {
        Some(ApprovalChoice::Once) => Choice::Once,
        Some(ApprovalChoice::Session) => Choice::Session,
        Some(ApprovalChoice::Always) => Choice::Always,
        Some(ApprovalChoice::Deny) => Choice::Deny,
        None => return Err(ApiError::invalid("invalid_approval_choice", CHOICES).param("choice")),
    };
    if choice.lasts() {
        owner.may(Scope::Admin)?;
    }
    if run.end.is_some() {
        let message = format!("Run has no active approval session: {id}");
        return Err(ApiError::conflict("approval_not_active", message));
    }
    let which = match approval_id {
        _ if all.unwrap_or(false) || resolve_all.unwrap_or(false) => Which::All,
        Some(id) => Which::Id(id),
        None => Which::Oldest,
    };
    let reason = reason.map(|reason| cut(&reason)).filter(|_| choice == Choice::Deny);
    let resolved = api.handle.answer_run(&run, Answer { which, choice, reason }).await?;
    if resolved == 0 {
        let message = format!("Run has no pending approval: {id}");
        return Err(ApiError::conflict("approval_not_pending", message));
    }
    let (object, choice) = ("hermes.run.approval_response", choice.as_str());
    Ok(Json(ApprovalAnswer { object, run_id: id, choice, resolved }))
}

impl Api {
    /// A run of this owner's; those of others are not there.
    async fn owned(&self, owner: &Owner, id: &str) -> Result<RunRow, ApiError> {
        let run = self.handle.run(id).await?;
        run.filter(|run| run.owner == owner.name).ok_or_else(|| not_found(id))
    }

    fn shown(&self, run: &RunRow, waits: Option<&Approval>, owner: &Owner) -> Run {
        let mut shown = Run {
            object: "hermes.run",
            run_id: run.id.clone(),
            status: RunStatus::Queued,
            last_event: "run.queued",
            created_at: exact(run.created_at),
            updated_at: exact(run.created_at),
            session_id: run.session.to_string(),
            model: work::run_options(run).shown_model,
            approval: None,
            usage: run.end.as_ref().map(|end| end.usage.into()),
            output: None,
            partial: None,
            error: None,
        };
        let (status, last_event, updated_at) = match &run.end {
            None if let Some(asked) = waits => {
                shown.approval = Some(ApprovalQuestion::new(asked, owner));
                (RunStatus::WaitingForApproval, "approval.request", Some(asked.asked_at))
            }
            None if self.handle.is_stopping(&run.id) => (RunStatus::Stopping, "run.stopping", run.claimed_at),
            None if run.claimed_at.is_some() => (RunStatus::Running, "run.started", run.claimed_at),
            None => (RunStatus::Queued, "run.queued", None),
            Some(end) => match work::verdict(end) {
                Verdict::Answered { text, partial } => {
                    (shown.output, shown.partial) = (Some(text), Some(partial));
                    (RunStatus::Completed, "run.completed", Some(end.at))
                }
                Verdict::Failed { message } => {
                    shown.error = Some(message);
                    (RunStatus::Failed, "run.failed", Some(end.at))
                }
                Verdict::Cancelled => (RunStatus::Cancelled, "run.cancelled", Some(end.at)),
            },
        };
        let updated_at = exact(updated_at.unwrap_or(run.created_at));
        Run { status, last_event, updated_at, ..shown }
    }
}

fn not_found(id: &str) -> ApiError {
    ApiError::not_found(format!("Run not found: {}", cut(id))).code("run_not_found")
}

/// The error of a run or response whose predecessor is not there.
pub(super) fn no_previous(id: Option<&str>) -> ApiError {
    ApiError::not_found(format!("Previous response not found: {}", cut(id.unwrap_or_default())))
}

/// Names that a client made up are repeated, but not at any length.
pub(super) fn cut(name: &str) -> String {
    name.chars().filter(|it| !it.is_control()).take(128).collect()
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 fit")]
pub(super) fn exact(at: Millis) -> f64 {
    at.0 as f64 / 1000.0
}
