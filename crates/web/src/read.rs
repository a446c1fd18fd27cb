//! What can be read: conversations, their rows, the commands.

use axum::Json;
use axum::extract::State;
use petasos_core::ids::{RowId, SessionId, SessionKey};
use petasos_core::transcript::Message;
use petasos_core::{Millis, command};
use petasos_gateway::{Handle, Said};
use serde::{Deserialize, Serialize};

use crate::error::ApiError;
use crate::extract::{Asked, Chat, Named};

const SESSIONS: usize = 200;
const ROWS: usize = 200;
const LIMIT: usize = 1000;

#[derive(Debug, Serialize)]
pub(crate) struct Health {
    status: &'static str,
    platform: &'static str,
    version: &'static str,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Page {
    after: Option<i64>,
    limit: Option<usize>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Sessions {
    sessions: Vec<Session>,
}

#[derive(Debug, Serialize)]
struct Session {
    id: SessionId,
    key: SessionKey,
    platform: Option<String>,
    /// The chat of this API that goes on with it; `None` for other channels.
    chat_id: Option<String>,
    title: Option<String>,
    display_name: Option<String>,
    last_at: Millis,
    message_count: u64,
    ended: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct Rows {
    messages: Vec<Row>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) id: RowId,
    #[serde(flatten)]
    pub(crate) message: Message,
    /// Taken back; the model does not see it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) undone: bool,
}

impl From<Said> for Row {
    fn from(said: Said) -> Self {
        Self { id: said.id, undone: said.is_undone(), message: said.message }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Commands {
    commands: Vec<Command>,
}

#[derive(Debug, Serialize)]
struct Command {
    word: &'static str,
    args: &'static str,
    help: &'static str,
}

pub(crate) async fn health() -> Json<Health> {
    Json(Health { status: "ok", platform: "petasos", version: env!("CARGO_PKG_VERSION") })
}

/// The slash commands, for a client that suggests them.
pub(crate) async fn commands() -> Json<Commands> {
    let known = command::TABLE.iter();
    let commands = known.map(|it| Command { word: it.word, args: it.args, help: it.help }).collect();
    Json(Commands { commands })
}

pub(crate) async fn sessions(
    State(handle): State<Handle>,
    Asked(page): Asked<Page>,
) -> Result<Json<Sessions>, ApiError> {
    let rows = handle.sessions(page.limit.unwrap_or(SESSIONS).clamp(1, LIMIT)).await?;
    let sessions = rows.into_iter().map(|row| Session {
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
    Ok(Json(Sessions { sessions: sessions.collect() }))
}

pub(crate) async fn messages(
    State(handle): State<Handle>,
    Named(session): Named<String>,
    Asked(page): Asked<Page>,
) -> Result<Json<Rows>, ApiError> {
    let session = SessionId(session);
    if handle.session(&session).await?.is_none() {
        return Err(ApiError::not_found("there is no session with this id; /api/sessions lists them"));
    }
    let after = RowId(page.after.unwrap_or(0));
    let rows = handle.rows(&session, after, page.limit.unwrap_or(ROWS).clamp(1, LIMIT)).await?;
    Ok(Json(Rows { messages: rows.into_iter().map(Row::from).collect() }))
}

/// The chat whose key this is. How a key is made is not ours to know: the last word of it is tried.
fn chat_of(handle: &Handle, platform: &str, key: &SessionKey) -> Option<String> {
    let (_, last) = key.as_str().rsplit_once(':')?;
    let chat = Chat::parse(platform, last.to_owned()).ok()?;
    (handle.key_of(&chat.source()) == *key).then_some(chat.id)
}
