//! The observable state of a session, as a value in a watch channel.
//!
//! Readers (web page, terminal, preview streams) always see the newest value. A slow reader skips intermediate values and loses
//! nothing, because finished rows are in the store.

use petasos_core::ids::{RowId, SessionId, TurnId};
use petasos_core::outbox::Button;
use serde::Serialize;

#[derive(Debug, Clone, Default)]
pub struct SessionView {
    /// False until the session has read the store; the other fields mean nothing before that.
    pub ready: bool,
    pub session: Option<SessionId>,
    /// The last stored row. A change means: read the new rows.
    pub rows: Option<RowId>,
    pub live: Option<LiveTurn>,
    pub queued: usize,
    /// Open questions of the turn, oldest first.
    pub questions: Vec<OpenQuestion>,
}

/// An open question. Sending the data of a button as a message answers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OpenQuestion {
    pub id: String,
    pub text: String,
    pub buttons: Vec<Button>,
}

#[derive(Debug, Clone)]
pub struct LiveTurn {
    pub turn: TurnId,
    /// The step that `text` belongs to; a new step starts a new text.
    pub step: u32,
    /// The model call that `text` belongs to; chunks of older calls are dropped.
    pub(crate) attempt: u32,
    pub text: String,
    pub tools: Vec<String>,
}
