//! Runs: start, status, events, approval and stop.

mod events;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use petasos_approval::{ApprovalReply, Choice, RequestSelector};
use petasos_core::{Millis, RunId, SessionId};
use petasos_gateway::{RunApproval, RunRow, RunTarget, StartedRun, fresh_id};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::api::Api;
use crate::api::execution::{self, RunOutcome, RunSubmission, TokenUsage, run_headers};
use crate::api::keys::{ApiClient, Scope};
use crate::api::openapi::{Input, Operation};
use crate::api::wire::content::{AgentInput, LenientMessage, RunInput, flag, text};
use crate::api::wire::request::{Body, InvalidField, PathId, Payload, RunHeaders, is_session_id};
use crate::api::wire::response::{Accepted, EventStream, WithRunHeaders, WithStatus};
use crate::error::ApiError;
use crate::security::guard;
use crate::server::StopSignal;
use crate::stream::StreamReader;
use crate::stream::page::LAST_EVENT_ID;
use crate::stream::run::{RunStream, StreamPosition};
use crate::stream::sse;
use events::RunEncoder;

const IDEMPOTENCY_ROUTE: &str = "runs";

#[derive(Deserialize, JsonSchema)]
pub(crate) struct RunRequest {
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
    /// Earlier messages, as the client stores them.
    conversation_history: Option<Vec<LenientMessage>>,
}

impl Payload for RunRequest {}

/// A session id that may be empty, unlike the id of a new session.
fn session_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match text(deserializer)? {
        Some(id) if !is_session_id(&id) => {
            Err(InvalidField::coded("invalid_session_id", "Invalid session ID").error())
        }
        id => Ok(id),
    }
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct RunStarted {
    #[schemars(with = "String")]
    run_id: RunId,
    #[schemars(extend("const" = "started"))]
    status: &'static str,
    session_id: String,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct RunStopping {
    #[schemars(with = "String")]
    run_id: RunId,
    #[schemars(extend("const" = "stopping"))]
    status: &'static str,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Run")]
pub(crate) struct RunObject {
    #[schemars(extend("const" = "hermes.run"))]
    object: &'static str,
    #[schemars(with = "String")]
    run_id: RunId,
    status: RunStatus,
    last_event: &'static str,
    created_at: f64,
    updated_at: f64,
    session_id: String,
    model: String,
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
    fn new(approval: &RunApproval, owner: &ApiClient) -> Self {
        let admin = owner.require(Scope::Admin).is_ok();
        let choices = || approval.choices.iter().copied().filter(|choice| admin || !choice.lasts());
        let kinds: Vec<_> = approval.categories.iter().map(|kind| kind.key()).collect();
        let sentences: Vec<_> = approval.categories.iter().map(|kind| kind.sentence()).collect();
        Self {
            approval_id: approval.id.clone(),
            command: approval.command.clone(),
            cwd: approval.folder.clone(),
            description: sentences.join(" "),
            pattern_key: kinds.first().copied(),
            pattern_keys: kinds,
            choices: choices().map(Choice::as_str).collect(),
            allow_permanent: choices().any(|choice| choice == Choice::Always),
            smart_denied: approval.advised_against,
        }
    }
}

/// Answers the oldest pending approval of a run, the named one, or all.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ApprovalRequest {
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
            _ => Err(InvalidField::coded("invalid_approval_choice", CHOICES).error()),
        }
    }
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct ApprovalAnswer {
    #[schemars(extend("const" = "hermes.run.approval_response"))]
    object: &'static str,
    #[schemars(with = "String")]
    run_id: RunId,
    choice: &'static str,
    resolved: usize,
}

/// Responds after the commit. From then on the run reaches a final state, with or without a client.
pub(crate) async fn start(
    State(api): State<Api>,
    owner: ApiClient,
    headers: RunHeaders,
    body: Body<RunRequest>,
) -> Result<WithRunHeaders<Accepted<RunStarted>>, ApiError> {
    let RunRequest { input, instructions, model, session_id, previous_response_id, conversation_history } =
        body.value;
    let starts_over = conversation_history.is_some();
    let run_input = RunInput::new(input, conversation_history)?;
    let id = RunId(fresh_id::<16>("run_"));
    let not_found = previous_not_found(previous_response_id.as_deref());
    let target = match (session_id, previous_response_id) {
        (Some(session), _) => RunTarget::Session(SessionId(session)),
        (None, Some(previous)) if !starts_over => RunTarget::ContinueRun(RunId(previous)),
        (None, _) => RunTarget::Session(id.as_str().into()),
    };
    let run = RunSubmission {
        model,
        instructions: instructions.or(run_input.instructions),
        history: run_input.history,
        answers: true,
        not_found,
        ..RunSubmission::new(id, target, run_input.content)
    };
    let StartedRun { run, .. } =
        api.start(&owner, run, headers.idempotency_key(IDEMPOTENCY_ROUTE, &body.fields)).await?;
    let run_headers = run_headers(&run, &headers);
    let session_id = run.session.to_string();
    Ok(WithRunHeaders(run_headers, WithStatus(RunStarted { run_id: run.id, status: "started", session_id })))
}

pub(crate) async fn status(
    State(api): State<Api>,
    owner: ApiClient,
    PathId(id): PathId<RunId>,
) -> Result<Json<RunObject>, ApiError> {
    let run = api.owned_run(&owner, &id).await?;
    let open_approval = api.handle.open_run_approval(&run).await?;
    Ok(Json(api.run_object(&run, open_approval.as_ref(), &owner)))
}

/// `Last-Event-ID`: the position at which a stream resumes.
pub(crate) struct ResumeFrom(Option<StreamPosition>);

impl<S: Sync> FromRequestParts<S> for ResumeFrom {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        match guard::header_text(&parts.headers, &LAST_EVENT_ID) {
            None | Some("") => Ok(Self(None)),
            Some(id) => StreamPosition::parse(id).map(|position| Self(Some(position))).ok_or_else(|| {
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

/// Streams all events of a run from the beginning or after `Last-Event-ID`.
pub(crate) async fn events(
    State(api): State<Api>,
    owner: ApiClient,
    stop: StopSignal,
    PathId(id): PathId<RunId>,
    ResumeFrom(from): ResumeFrom,
) -> Result<EventStream, ApiError> {
    let run = api.owned_run(&owner, &id).await?;
    let encoder = RunEncoder { run: run.id.clone(), owner };
    let reader = StreamReader::open(&api.handle, RunStream::new(run, from), stop).await?;
    Ok(EventStream(sse::respond(reader, encoder, None, execution::keep_alive(), HeaderMap::new())))
}

pub(crate) async fn stop(
    State(api): State<Api>,
    owner: ApiClient,
    PathId(id): PathId<RunId>,
) -> Result<Json<RunStopping>, ApiError> {
    let run = api.owned_run(&owner, &id).await?;
    if !api.handle.stop_run(&run).await? {
        return Err(not_found(&id));
    }
    Ok(Json(RunStopping { run_id: id, status: "stopping" }))
}

pub(crate) async fn approval(
    State(api): State<Api>,
    owner: ApiClient,
    PathId(id): PathId<RunId>,
    body: Body<ApprovalRequest>,
) -> Result<Json<ApprovalAnswer>, ApiError> {
    let run = api.owned_run(&owner, &id).await?;
    let ApprovalRequest { choice, approval_id, all, resolve_all, reason } = body.value;
    let choice = match choice {
        Some(ApprovalChoice::Once) => Choice::Once,
        Some(ApprovalChoice::Session) => Choice::Session,
        Some(ApprovalChoice::Always) => Choice::Always,
        Some(ApprovalChoice::Deny) => Choice::Deny,
        None => return Err(ApiError::invalid("invalid_approval_choice", CHOICES).param("choice")),
    };
    if choice.lasts() {
        owner.require(Scope::Admin)?;
    }
    if run.end.is_some() {
        let message = format!("Run has no active approval session: {id}");
        return Err(ApiError::permanent_conflict("approval_not_active", message));
    }
    let which = match approval_id {
        _ if all.unwrap_or(false) || resolve_all.unwrap_or(false) => RequestSelector::All,
        Some(id) => RequestSelector::Id(id),
        None => RequestSelector::Oldest,
    };
    let reason = reason.map(|reason| truncate_name(&reason)).filter(|_| choice == Choice::Deny);
    let resolved = api.handle.answer_run(&run, ApprovalReply { which, choice, reason }).await?;
    if resolved == 0 {
        let message = format!("Run has no pending approval: {id}");
        return Err(ApiError::permanent_conflict("approval_not_pending", message));
    }
    let choice = choice.as_str();
    Ok(Json(ApprovalAnswer { object: "hermes.run.approval_response", run_id: id, choice, resolved }))
}

impl Api {
    /// Runs of other clients count as not found.
    async fn owned_run(&self, owner: &ApiClient, id: &RunId) -> Result<RunRow, ApiError> {
        let run = self.handle.run(id).await?;
        run.filter(|run| run.owner == owner.name).ok_or_else(|| not_found(id))
    }

    fn run_object(&self, run: &RunRow, open_approval: Option<&RunApproval>, owner: &ApiClient) -> RunObject {
        let mut run_object = RunObject {
            object: "hermes.run",
            run_id: run.id.clone(),
            status: RunStatus::Queued,
            last_event: "run.queued",
            created_at: fractional_seconds(run.created_at),
            updated_at: fractional_seconds(run.created_at),
            session_id: run.session.to_string(),
            model: execution::run_options(run).shown_model,
            approval: None,
            usage: run.end.as_ref().map(|end| end.usage.into()),
            output: None,
            partial: None,
            error: None,
        };
        let (status, last_event, updated_at) = match &run.end {
            None if let Some(approval) = open_approval => {
                run_object.approval = Some(ApprovalQuestion::new(approval, owner));
                (RunStatus::WaitingForApproval, "approval.request", Some(approval.asked_at))
            }
            None if self.handle.is_stopping(&run.id) => (RunStatus::Stopping, "run.stopping", run.claimed_at),
            None if run.claimed_at.is_some() => (RunStatus::Running, "run.started", run.claimed_at),
            None => (RunStatus::Queued, "run.queued", None),
            Some(end) => match execution::run_outcome(end) {
                RunOutcome::Answered { text, partial } => {
                    (run_object.output, run_object.partial) = (Some(text), Some(partial));
                    (RunStatus::Completed, "run.completed", Some(end.at))
                }
                RunOutcome::Failed { message } => {
                    run_object.error = Some(message);
                    (RunStatus::Failed, "run.failed", Some(end.at))
                }
                RunOutcome::Cancelled => (RunStatus::Cancelled, "run.cancelled", Some(end.at)),
            },
        };
        let updated_at = fractional_seconds(updated_at.unwrap_or(run.created_at));
        RunObject { status, last_event, updated_at, ..run_object }
    }
}

fn not_found(id: &RunId) -> ApiError {
    ApiError::not_found(format!("Run not found: {}", truncate_name(id.as_str()))).code("run_not_found")
}

pub(crate) fn previous_not_found(id: Option<&str>) -> ApiError {
    ApiError::not_found(format!("Previous response not found: {}", truncate_name(id.unwrap_or_default())))
}

/// Truncates a client's name for use in a message.
pub(crate) fn truncate_name(name: &str) -> String {
    name.chars().filter(|it| !it.is_control()).take(128).collect()
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 fit")]
pub(crate) fn fractional_seconds(at: Millis) -> f64 {
    at.0 as f64 / 1000.0
}
