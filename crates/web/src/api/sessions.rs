//! Conversations by name: listed, made, read, renamed, branched, removed, and talked in.

mod events;
mod shapes;

use axum::Json;
use axum::extract::State;
use petasos_core::ids::RowId;
use petasos_gateway::{
    CardQuery, NewSession, NotChanged, Place, RowState, Said, SessionCard, Started, fresh_id,
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::Api;
use super::content::{Content, MessageContent, session_id, text};
use super::keys::Owner;
use super::reply::{Created, EventStream, Named, Status};
use super::request::{Body, Fields, Id, Invalid, Payload, Query, RunHeaders};
use super::runs::{cut, exact};
use super::work::{self, NewRun, TokenUsage};
use crate::error::ApiError;
use crate::serve::Stop;
use events::SessionEncoder;
use shapes::{SessionMessage, SessionObject};

const PAGE: usize = 50;
const LONGEST_PAGE: usize = 200;
const TITLE: usize = 200;
const PROMPT: usize = 65_536;
/// Rows of one transcript that are shown at once; `after` gets the next.
const ROWS: usize = 1000;

/// A whole number as a text; an empty one counts as absent.
fn number(text: Option<&str>, name: &str) -> Result<Option<usize>, ApiError> {
    let wrong =
        |_| ApiError::invalid("invalid_parameter", format!("'{name}' must be a whole number")).param(name);
    text.filter(|text| !text.is_empty())
        .map(|text| text.parse::<u32>().map(|it| it as usize))
        .transpose()
        .map_err(wrong)
}

/// Which sessions to list.
#[derive(Deserialize, JsonSchema)]
pub(super) struct SessionQuery {
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
pub(super) struct RowQuery {
    #[schemars(with = "u32", range(max = 4_294_967_295_u32))]
    limit: Option<String>,
    #[schemars(with = "u32", range(max = 4_294_967_295_u32))]
    after: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct NewSessionRequest {
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
pub(super) struct SessionChange {
    #[serde(default, deserialize_with = "title")]
    title: Option<String>,
    #[serde(default, deserialize_with = "text")]
    end_reason: Option<String>,
}

impl Payload for SessionChange {
    fn check(fields: &Fields) -> Result<(), ApiError> {
        let unknown = fields.keys().filter(|name| !["title", "end_reason"].contains(&name.as_str()));
        let unknown: Vec<_> = unknown.map(|name| cut(name)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let message = format!("Unsupported session fields: {}", unknown.join(", "));
        Err(ApiError::invalid("unsupported_session_field", message))
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct ForkRequest {
    #[serde(default, deserialize_with = "session_id")]
    id: Option<String>,
    #[serde(default, deserialize_with = "title")]
    title: Option<String>,
}

impl Payload for ForkRequest {}

/// Something said in a conversation.
#[derive(Deserialize, JsonSchema)]
pub(super) struct SayRequest {
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

impl Payload for SayRequest {}

fn title<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::String(title) if (1..=TITLE).contains(&title.trim().chars().count()) => {
            Ok(Some(title.trim().to_owned()))
        }
        _ => Err(Invalid::coded("invalid_title", "Invalid title").error()),
    }
}

fn prompt<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::String(words) if words.chars().count() <= PROMPT => Ok(Some(words)),
        _ => Err(Invalid::coded("invalid_system_prompt", "Invalid system prompt").error()),
    }
}

#[derive(Serialize, JsonSchema)]
pub(super) struct SessionList {
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
pub(super) struct SessionShown {
    #[schemars(extend("const" = "hermes.session"))]
    object: &'static str,
    session: SessionObject,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct SessionDeleted {
    #[schemars(extend("const" = "hermes.session.deleted"))]
    object: &'static str,
    id: String,
    #[schemars(extend("const" = true))]
    deleted: bool,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct SessionMessages {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    session_id: String,
    data: Vec<SessionMessage>,
    has_more: bool,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct SessionChatAnswer {
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

pub(super) async fn list(
    State(api): State<Api>,
    Query(wanted): Query<SessionQuery>,
) -> Result<Json<SessionList>, ApiError> {
    let limit = number(wanted.limit.as_deref(), "limit")?.unwrap_or(PAGE).clamp(1, LONGEST_PAGE);
    let offset = number(wanted.offset.as_deref(), "offset")?.unwrap_or(0);
    let children =
        wanted.include_children.is_some_and(|word| matches!(word.as_str(), "1" | "true" | "on" | "yes"));
    let platform = wanted.source.filter(|source| !source.is_empty());
    // One more than wanted says whether there are more.
    let mut cards =
        api.handle.session_cards(CardQuery { platform, children, limit: limit + 1, offset }).await?;
    let has_more = cards.len() > limit;
    cards.truncate(limit);
    let data = cards.into_iter().map(|card| ListedSession {
        session: SessionObject::new(&card),
        last_active: exact(card.row.last_at),
        preview: card.preview,
    });
    Ok(Json(SessionList { object: "list", data: data.collect(), limit, offset, has_more }))
}

pub(super) async fn create(
    State(api): State<Api>,
    owner: Owner,
    body: Body<NewSessionRequest>,
) -> Result<Created<SessionShown>, ApiError> {
    let NewSessionRequest { id, title, model, system_prompt } = body.value;
    let named = id.clone().unwrap_or_default();
    let new = NewSession { id, title, model, system_prompt };
    let card = api.handle.create_session(&owner.name, new).await.map_err(|error| refused(error, &named))?;
    Ok(Status(shown(&card)))
}

pub(super) async fn show(State(api): State<Api>, Id(id): Id) -> Result<Json<SessionShown>, ApiError> {
    Ok(Json(shown(&api.card(&id).await?)))
}

pub(super) async fn change(
    State(api): State<Api>,
    Id(id): Id,
    body: Body<SessionChange>,
) -> Result<Json<SessionShown>, ApiError> {
    let SessionChange { title, end_reason } = body.value;
    api.card(&id).await?;
    if let Some(title) = title {
        api.handle.rename_session(&id, title).await?;
    }
    if let Some(reason) = end_reason {
        api.handle.end_session(&id, cut(&reason)).await?;
    }
    Ok(Json(shown(&api.card(&id).await?)))
}

pub(super) async fn delete(State(api): State<Api>, Id(id): Id) -> Result<Json<SessionDeleted>, ApiError> {
    api.handle.delete_session(&id).await.map_err(|error| refused(error, &id))?;
    Ok(Json(SessionDeleted { object: "hermes.session.deleted", id, deleted: true }))
}

pub(super) async fn fork(
    State(api): State<Api>,
    owner: Owner,
    Id(id): Id,
    body: Body<ForkRequest>,
) -> Result<Created<SessionShown>, ApiError> {
    let ForkRequest { id: new, title } = body.value;
    let named = new.clone().unwrap_or_default();
    let forked = api.handle.fork_session(&owner.name, &id, new, title).await;
    let card = forked.map_err(|error| match error {
        NotChanged::Missing => refused(error, &id),
        NotChanged::Error(_) | NotChanged::Exists | NotChanged::InUse => refused(error, &named),
    })?;
    Ok(Status(shown(&card)))
}

pub(super) async fn messages(
    State(api): State<Api>,
    Id(id): Id,
    Query(wanted): Query<RowQuery>,
) -> Result<Json<SessionMessages>, ApiError> {
    let card = api.card(&id).await?;
    let after = number(wanted.after.as_deref(), "after")?.unwrap_or(0);
    let limit = number(wanted.limit.as_deref(), "limit")?.unwrap_or(ROWS).clamp(1, ROWS);
    let after = RowId(i64::try_from(after).unwrap_or(i64::MAX));
    let rows = api.handle.rows(&card.row.id, after, limit).await?;
    let has_more = rows.len() == limit;
    let seen = |row: &&Said| row.state != RowState::Undone;
    let data = rows.iter().filter(seen).filter_map(|row| SessionMessage::new(&id, row)).collect();
    Ok(Json(SessionMessages { object: "list", session_id: id, data, has_more }))
}

pub(super) async fn chat(
    State(api): State<Api>,
    owner: Owner,
    stop: Stop,
    Id(id): Id,
    headers: RunHeaders,
    body: Body<SayRequest>,
) -> Result<Named<Json<SessionChatAnswer>>, ApiError> {
    let (started, _) = say(&api, &owner, "session.chat", &id, &headers, body).await?;
    let run = api.finish(&started, &headers, &stop).await?;
    let (names, answer) = work::answer(&run, &headers)?;
    let completion = SessionChatAnswer {
        object: "hermes.session.chat.completion",
        session_id: run.session.to_string(),
        message: AssistantMessage { role: "assistant", content: answer.text },
        usage: answer.usage.into(),
    };
    Ok(Named(names, Json(completion)))
}

pub(super) async fn chat_stream(
    State(api): State<Api>,
    owner: Owner,
    stop: Stop,
    Id(id): Id,
    headers: RunHeaders,
    body: Body<SayRequest>,
) -> Result<EventStream, ApiError> {
    let (started, said) = say(&api, &owner, "session.chat.stream", &id, &headers, body).await?;
    let encoder = SessionEncoder::new(&started.run, said);
    api.stream(started, &headers, stop, encoder).await
}

async fn say(
    api: &Api,
    owner: &Owner,
    route: &str,
    id: &str,
    headers: &RunHeaders,
    body: Body<SayRequest>,
) -> Result<(Started, String), ApiError> {
    let SayRequest { message, input, system_message, instructions, model } = body.value;
    let content = message.or(input).filter(|content| !content.is_empty());
    let content = content.ok_or_else(|| ApiError::invalid("missing_message", "Missing 'message' field"))?;
    let said = content.text.clone();
    let run = NewRun {
        model,
        instructions: system_message.or(instructions),
        not_found: not_found(id),
        ..NewRun::new(fresh_id::<16>("run_"), Place::Known(id.to_owned()), content)
    };
    let started = api.start(owner, run, headers.idempotency_key(route, &body.fields)).await?;
    Ok((started, said))
}

impl Api {
    async fn card(&self, id: &str) -> Result<SessionCard, ApiError> {
        self.handle.session_card(id).await?.ok_or_else(|| not_found(id))
    }
}

fn not_found(id: &str) -> ApiError {
    ApiError::not_found(format!("Session not found: {}", cut(id))).code("session_not_found")
}

fn refused(error: NotChanged, id: &str) -> ApiError {
    match error {
        NotChanged::Error(error) => error.into(),
        NotChanged::Exists => {
            ApiError::conflict("session_exists", format!("Session already exists: {}", cut(id)))
        }
        NotChanged::Missing => not_found(id),
        NotChanged::InUse => ApiError::conflict("session_in_use", format!("Session is in use: {}", cut(id))),
    }
}

fn shown(card: &SessionCard) -> SessionShown {
    SessionShown { object: "hermes.session", session: SessionObject::new(card) }
}
