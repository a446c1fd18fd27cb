//! Lists sessions, their messages and the slash commands.

use axum::Json;
use axum::extract::State;
use petasos_core::ids::{RowId, SessionId, SessionKey};
use petasos_core::transcript::Message;
use petasos_core::{Millis, command};
use petasos_gateway::{Handle, TranscriptRow};
use serde::{Deserialize, Serialize};

use crate::error::ApiError;
use crate::extract::{OwnChat, PathParameters, QueryParameters};

const DEFAULT_SESSIONS: usize = 200;
const DEFAULT_ROWS: usize = 200;
const MAX_ROWS: usize = 1000;

#[derive(Debug, Serialize)]
pub(crate) struct HealthResponse {
    status: &'static str,
    platform: &'static str,
    version: &'static str,
}

#[derive(Debug, Deserialize)]
pub(crate) struct PageQuery {
    after: Option<i64>,
    limit: Option<usize>,
}

#[derive(Debug, Serialize)]
pub(crate) struct SessionListResponse {
    sessions: Vec<SessionListItem>,
}

#[derive(Debug, Serialize)]
struct SessionListItem {
    id: SessionId,
    key: SessionKey,
    platform: Option<String>,
    /// The chat that continues this session; `None` for other channels.
    chat_id: Option<String>,
    title: Option<String>,
    display_name: Option<String>,
    last_at: Millis,
    message_count: u64,
    ended: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct MessageListResponse {
    messages: Vec<TranscriptMessage>,
}

#[derive(Debug, Serialize)]
pub(crate) struct TranscriptMessage {
    pub(crate) id: RowId,
    #[serde(flatten)]
    pub(crate) message: Message,
    /// Undone: hidden from the model.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) undone: bool,
}

impl From<TranscriptRow> for TranscriptMessage {
    fn from(row: TranscriptRow) -> Self {
        Self { id: row.id, undone: row.is_undone(), message: row.message }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct CommandListResponse {
    commands: Vec<CommandHelp>,
}

#[derive(Debug, Serialize)]
struct CommandHelp {
    word: &'static str,
    args: &'static str,
    help: &'static str,
}

pub(crate) async fn health() -> Json<HealthResponse> {
    Json(HealthResponse { status: "ok", platform: "petasos", version: env!("CARGO_PKG_VERSION") })
}

pub(crate) async fn commands() -> Json<CommandListResponse> {
    let known = command::TABLE.iter();
    let commands = known.map(|it| CommandHelp { word: it.word, args: it.args, help: it.help }).collect();
    Json(CommandListResponse { commands })
}

pub(crate) async fn sessions(
    State(handle): State<Handle>,
    QueryParameters(query): QueryParameters<PageQuery>,
) -> Result<Json<SessionListResponse>, ApiError> {
    let rows = handle.sessions(query.limit.unwrap_or(DEFAULT_SESSIONS).clamp(1, MAX_ROWS)).await?;
    let sessions = rows.into_iter().map(|row| SessionListItem {
        chat_id: row.platform.as_deref().and_then(|platform| chat_of(&handle, platform, &row.key)),
        id: row.id,
        key: row.key,
        platform: row.platform,
        title: row.title,
        display_name: row.display_name,
        last_at: row.last_at,
        message_count: row.message_count,
        ended: row.ended.is_some(),
    });
    Ok(Json(SessionListResponse { sessions: sessions.collect() }))
}

pub(crate) async fn messages(
    State(handle): State<Handle>,
    PathParameters(session): PathParameters<String>,
    QueryParameters(query): QueryParameters<PageQuery>,
) -> Result<Json<MessageListResponse>, ApiError> {
    let session = SessionId(session);
    if handle.session(&session).await?.is_none() {
        return Err(ApiError::not_found("there is no session with this id; /api/sessions lists them"));
    }
    let after = RowId(query.after.unwrap_or(0));
    let rows = handle.rows(&session, after, query.limit.unwrap_or(DEFAULT_ROWS).clamp(1, MAX_ROWS)).await?;
    Ok(Json(MessageListResponse { messages: rows.into_iter().map(TranscriptMessage::from).collect() }))
}

/// Recovers the chat from a session key by trying the last part of the key.
fn chat_of(handle: &Handle, platform: &str, key: &SessionKey) -> Option<String> {
    let (_, last) = key.as_str().rsplit_once(':')?;
    let chat = OwnChat::parse(platform, last.to_owned()).ok()?;
    (handle.key_of(&chat.source()) == *key).then_some(chat.id)
}
