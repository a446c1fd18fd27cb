//! What can be seen of a session from outside, as a value that is always current.
//!
//! Whoever watches (the web page, a terminal, the lane that shows previews) reads the newest value; a slow
//! reader skips intermediate ones and misses nothing that matters, because finished rows are in the store.

use petasos_core::ids::{RowId, SessionId, TurnId};
use petasos_core::outbox::Button;
use serde::Serialize;

#[derive(Debug, Clone, Default)]
pub struct View {
    /// The session has read what the store knows of it; before that, nothing here means anything.
    pub ready: bool,
    /// The transcript this conversation is in now.
    pub session: Option<SessionId>,
    /// Rows up to this one are in the store. A change means: fetch what is new.
    pub rows: Option<RowId>,
    /// The turn that is running.
    pub live: Option<Live>,
    /// Messages waiting behind it.
    pub queued: usize,
    /// What the turn waits for a person to answer, oldest first.
    pub questions: Vec<Asked>,
}

/// A question that waits. What a button carries, said in the conversation, is its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Asked {
    pub id: String,
    pub text: String,
    pub buttons: Vec<Button>,
}

#[derive(Debug, Clone)]
pub struct Live {
    pub turn: TurnId,
    /// Which answer of the turn `text` belongs to; a new step starts a new text.
    pub step: u32,
    /// Which question to the model it answers; a text for an older one is not shown.
    pub(crate) attempt: u32,
    /// The answer as far as it has come.
    pub text: String,
    /// Tools running now.
    pub tools: Vec<String>,
}
