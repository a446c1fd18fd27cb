//! Sessions: list, create, read, rename, end, fork, delete and chat.

mod events;
mod objects;

use axum::Json;
use axum::extract::State;
use petasos_core::ids::RowId;
use petasos_core::{RunId, SessionId};
use petasos_gateway::{
    NewSession, RowState, RunTarget, SessionChangeError, SessionSummary, SessionSummaryQuery, StartedRun,
    TranscriptRow, fresh_id,
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::runs::{fractional_seconds, truncate_name};
use crate::api::Api;
use crate::api::execution::{self, RunSubmission, TokenUsage};
use crate::api::keys::ApiClient;
use crate::api::wire::content::{Content, MessageContent, session_id, text};
use crate::api::wire::request::{Body, Fields, InvalidField, PathId, Payload, QueryString, RunHeaders};
use crate::api::wire::response::{Created, EventStream, WithRunHeaders, WithStatus};
use crate::error::ApiError;
use crate::server::StopSignal;
use events::SessionEncoder;
use objects::{SessionMessage, SessionObject};

const DEFAULT_SESSIONS: usize = 50;
const MAX_SESSIONS: usize = 200;
const MAX_TITLE_CHARS: usize = 200;
const MAX_PROMPT_CHARS: usize = 65_536;
/// The most rows per request; `after` selects the next.
const MAX_ROWS: usize = 1000;

/// Parses a whole number; an empty string counts as absent.
fn parse_number(text: Option<&str>, name: &str) -> Result<Option<usize>, ApiError> {
    let wrong =
        |_| ApiError::invalid("invalid_parameter", format!("'{name}' must be a whole number")).param(name);
    text.filter(|text| !text.is_empty())
        .map(|text| text.parse::<u32>().map(|it| it as usize))
        .transpose()
        .map_err(wrong)
}

/// Which sessions to list.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct SessionQuery {
    #[schemars(with = "u32", range(max = 4_294_967_295_u32))]
    limit: Option<String>,
    #[schemars(with = "u32", range(max = 4_294_967_295_u32))]
    offset: Option<String>,
    source: Option<String>,
    #[schemars(with = "bool")]
    include_children: Option<String>,
}

/// Which rows to list.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct RowQuery {
    #[schemars(with = "u32", range(max = 4_294_967_295_u32))]
    limit: Option<String>,
    #[schemars(with = "u32", range(max = 4_294_967_295_u32))]
    after: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct NewSessionRequest {
    #[serde(default, deserialize_with = "session_id")]
    id: Option<String>,
    #[serde(default, deserialize_with = "title")]
    title: Option<String>,
    #[serde(default, deserialize_with = "text")]
    model: Option<String>,
    #[serde(default, deserialize_with = "prompt")]
    system_prompt: Option<String>,
}

impl Payload for NewSessionRequest {}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionChange {
    #[serde(default, deserialize_with = "title")]
    title: Option<String>,
    #[serde(default, deserialize_with = "text")]
    end_reason: Option<String>,
}

impl Payload for SessionChange {
    fn check(fields: &Fields) -> Result<(), ApiError> {
        let unknown = fields.keys().filter(|name| !["title", "end_reason"].contains(&name.as_str()));
        let unknown: Vec<_> = unknown.map(|name| truncate_name(name)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let message = format!("Unsupported session fields: {}", unknown.join(", "));
        Err(ApiError::invalid("unsupported_session_field", message))
    }
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct ForkRequest {
    #[serde(default, deserialize_with = "session_id")]
    id: Option<String>,
    #[serde(default, deserialize_with = "title")]
    title: Option<String>,
}

impl Payload for ForkRequest {}

/// A message to a conversation.
#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "SayRequest")]
pub(crate) struct SessionChatRequest {
    #[schemars(with = "MessageContent")]
    message: Option<Content>,
    /// Another name of `message`.
    #[schemars(skip)]
    input: Option<Content>,
    #[serde(default, deserialize_with = "text")]
    system_message: Option<String>,
    /// Another name of `system_message`.
    #[serde(default, deserialize_with = "text")]
    instructions: Option<String>,
    #[serde(default, deserialize_with = "text")]
    model: Option<String>,
}

impl Payload for SessionChatRequest {}

fn title<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::String(title) if (1..=MAX_TITLE_CHARS).contains(&title.trim().chars().count()) => {
            Ok(Some(title.trim().to_owned()))
        }
        _ => Err(InvalidField::coded("invalid_title", "Invalid title").error()),
    }
}

fn prompt<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::String(words) if words.chars().count() <= MAX_PROMPT_CHARS => Ok(Some(words)),
        _ => Err(InvalidField::coded("invalid_system_prompt", "Invalid system prompt").error()),
    }
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct SessionList {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    data: Vec<ListedSession>,
    limit: usize,
    offset: usize,
    has_more: bool,
}

#[derive(Serialize, JsonSchema)]
struct ListedSession {
    #[serde(flatten)]
    session: SessionObject,
    last_active: f64,
    preview: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SessionShown")]
pub(crate) struct SessionResponse {
    #[schemars(extend("const" = "hermes.session"))]
    object: &'static str,
    session: SessionObject,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct SessionDeleted {
    #[schemars(extend("const" = "hermes.session.deleted"))]
    object: &'static str,
    #[schemars(with = "String")]
    id: SessionId,
    #[schemars(extend("const" = true))]
    deleted: bool,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct SessionMessages {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    #[schemars(with = "String")]
    session_id: SessionId,
    data: Vec<SessionMessage>,
    has_more: bool,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct SessionChatAnswer {
    #[schemars(extend("const" = "hermes.session.chat.completion"))]
    object: &'static str,
    session_id: String,
    message: AssistantMessage,
    usage: TokenUsage,
}

#[derive(Serialize, JsonSchema)]
struct AssistantMessage {
    role: &'static str,
    content: String,
}

pub(crate) async fn list(
    State(api): State<Api>,
    QueryString(query): QueryString<SessionQuery>,
) -> Result<Json<SessionList>, ApiError> {
    let limit =
        parse_number(query.limit.as_deref(), "limit")?.unwrap_or(DEFAULT_SESSIONS).clamp(1, MAX_SESSIONS);
    let offset = parse_number(query.offset.as_deref(), "offset")?.unwrap_or(0);
    let children =
        query.include_children.is_some_and(|word| matches!(word.as_str(), "1" | "true" | "on" | "yes"));
    let platform = query.source.filter(|source| !source.is_empty());
    // An extra row shows whether there are more.
    let mut summaries = api
        .handle
        .session_summaries(SessionSummaryQuery { platform, children, limit: limit + 1, offset })
        .await?;
    let has_more = summaries.len() > limit;
    summaries.truncate(limit);
    let data = summaries.into_iter().map(|summary| ListedSession {
        session: SessionObject::new(&summary),
        last_active: fractional_seconds(summary.row.last_at),
        preview: summary.preview,
    });
    Ok(Json(SessionList { object: "list", data: data.collect(), limit, offset, has_more }))
}

pub(crate) async fn create(
    State(api): State<Api>,
    owner: ApiClient,
    body: Body<NewSessionRequest>,
) -> Result<Created<SessionResponse>, ApiError> {
    let NewSessionRequest { id, title, model, system_prompt } = body.value;
    let id = id.map(SessionId);
    let requested_id = id.clone();
    let new = NewSession { id, title, model, system_prompt };
    let summary = api
        .handle
        .create_session(&owner.name, new)
        .await
        .map_err(|error| session_error(error, requested_id.as_ref()))?;
    Ok(WithStatus(session_response(&summary)))
}

pub(crate) async fn show(
    State(api): State<Api>,
    PathId(id): PathId<SessionId>,
) -> Result<Json<SessionResponse>, ApiError> {
    Ok(Json(session_response(&api.summary(&id).await?)))
}

pub(crate) async fn change(
    State(api): State<Api>,
    PathId(id): PathId<SessionId>,
    body: Body<SessionChange>,
) -> Result<Json<SessionResponse>, ApiError> {
    let SessionChange { title, end_reason } = body.value;
    api.summary(&id).await?;
    if let Some(title) = title {
        api.handle.rename_session(&id, title).await?;
    }
    if let Some(reason) = end_reason {
        api.handle.end_session(&id, truncate_name(&reason)).await?;
    }
    Ok(Json(session_response(&api.summary(&id).await?)))
}

pub(crate) async fn delete(
    State(api): State<Api>,
    PathId(id): PathId<SessionId>,
) -> Result<Json<SessionDeleted>, ApiError> {
    api.handle.delete_session(&id).await.map_err(|error| session_error(error, Some(&id)))?;
    Ok(Json(SessionDeleted { object: "hermes.session.deleted", id, deleted: true }))
}

pub(crate) async fn fork(
    State(api): State<Api>,
    owner: ApiClient,
    PathId(id): PathId<SessionId>,
    body: Body<ForkRequest>,
) -> Result<Created<SessionResponse>, ApiError> {
    let ForkRequest { id: new, title } = body.value;
    let new = new.map(SessionId);
    let requested_id = new.clone();
    let forked = api.handle.fork_session(&owner.name, &id, new, title).await;
    let summary = forked.map_err(|error| match error {
        SessionChangeError::Missing => session_error(error, Some(&id)),
        SessionChangeError::Error(_) | SessionChangeError::Exists | SessionChangeError::InUse => {
            session_error(error, requested_id.as_ref())
        }
    })?;
    Ok(WithStatus(session_response(&summary)))
}

pub(crate) async fn messages(
    State(api): State<Api>,
    PathId(id): PathId<SessionId>,
    QueryString(query): QueryString<RowQuery>,
) -> Result<Json<SessionMessages>, ApiError> {
    let summary = api.summary(&id).await?;
    let after = parse_number(query.after.as_deref(), "after")?.unwrap_or(0);
    let limit = parse_number(query.limit.as_deref(), "limit")?.unwrap_or(MAX_ROWS).clamp(1, MAX_ROWS);
    let after = RowId(i64::try_from(after).unwrap_or(i64::MAX));
    let rows = api.handle.rows(&summary.row.id, after, limit).await?;
    let has_more = rows.len() == limit;
    let is_visible = |row: &&TranscriptRow| row.state != RowState::Undone;
    let data =
        rows.iter().filter(is_visible).filter_map(|row| SessionMessage::new(id.as_str(), row)).collect();
    Ok(Json(SessionMessages { object: "list", session_id: id, data, has_more }))
}

pub(crate) async fn chat(
    State(api): State<Api>,
    owner: ApiClient,
    stop: StopSignal,
    PathId(id): PathId<SessionId>,
    headers: RunHeaders,
    body: Body<SessionChatRequest>,
) -> Result<WithRunHeaders<Json<SessionChatAnswer>>, ApiError> {
    let (started, _) = start_chat_run(&api, &owner, "session.chat", &id, &headers, body).await?;
    let run = api.wait_for_run(&started, &headers, &stop).await?;
    let (run_headers, answer) = execution::run_answer(&run, &headers)?;
    let completion = SessionChatAnswer {
        object: "hermes.session.chat.completion",
        session_id: run.session.to_string(),
        message: AssistantMessage { role: "assistant", content: answer.text },
        usage: answer.usage.into(),
    };
    Ok(WithRunHeaders(run_headers, Json(completion)))
}

pub(crate) async fn chat_stream(
    State(api): State<Api>,
    owner: ApiClient,
    stop: StopSignal,
    PathId(id): PathId<SessionId>,
    headers: RunHeaders,
    body: Body<SessionChatRequest>,
) -> Result<EventStream, ApiError> {
    let (started, user_text) =
        start_chat_run(&api, &owner, "session.chat.stream", &id, &headers, body).await?;
    let encoder = SessionEncoder::new(&started.run, user_text);
    api.stream(started, &headers, stop, encoder).await
}

async fn start_chat_run(
    api: &Api,
    owner: &ApiClient,
    route: &str,
    id: &SessionId,
    headers: &RunHeaders,
    body: Body<SessionChatRequest>,
) -> Result<(StartedRun, String), ApiError> {
    let SessionChatRequest { message, input, system_message, instructions, model } = body.value;
    let content = message.or(input).filter(|content| !content.is_empty());
    let content = content.ok_or_else(|| ApiError::invalid("missing_message", "Missing 'message' field"))?;
    let user_text = content.text.clone();
    let run = RunSubmission {
        model,
        instructions: system_message.or(instructions),
        not_found: not_found(id.as_str()),
        ..RunSubmission::new(RunId(fresh_id::<16>("run_")), RunTarget::Existing(id.clone()), content)
    };
    let started = api.start(owner, run, headers.idempotency_key(route, &body.fields)).await?;
    Ok((started, user_text))
}

impl Api {
    async fn summary(&self, id: &SessionId) -> Result<SessionSummary, ApiError> {
        self.handle.session_summary(id).await?.ok_or_else(|| not_found(id.as_str()))
    }
}

fn not_found(id: &str) -> ApiError {
    ApiError::not_found(format!("Session not found: {}", truncate_name(id))).code("session_not_found")
}

/// `None`: the gateway chose the id.
fn session_error(error: SessionChangeError, id: Option<&SessionId>) -> ApiError {
    let name = truncate_name(id.map_or("", SessionId::as_str));
    match error {
        SessionChangeError::Error(error) => error.into(),
        SessionChangeError::Exists => {
            ApiError::permanent_conflict("session_exists", format!("Session already exists: {name}"))
        }
        SessionChangeError::Missing => not_found(&name),
        SessionChangeError::InUse => {
            ApiError::permanent_conflict("session_in_use", format!("Session is in use: {name}"))
        }
    }
}

fn session_response(summary: &SessionSummary) -> SessionResponse {
    SessionResponse { object: "hermes.session", session: SessionObject::new(summary) }
}
