//! What is asked of a model and what comes back.

use std::sync::Arc;

use petasos_core::SessionId;
use petasos_core::transcript::{Bill, Message, ToolCall};

/// One question to the model: the whole conversation, and what it may use.
#[derive(Debug, Clone)]
pub struct Request {
    pub system: String,
    /// The transcript. Notices are for people and are left out by us if present.
    pub messages: Vec<Message>,
    /// Put before the last user text for this call only; never stored.
    pub note: Option<String>,
    /// Said after everything else, for this call only; never stored.
    pub closing: Option<String>,
    pub tools: Arc<[ToolSpec]>,
    /// Another model of the primary provider, for this session.
    pub model: Option<String>,
    /// Only a key for prompt caches.
    pub session: SessionId,
}

impl Request {
    /// A rough number of tokens for everything but the transcript.
    pub fn fixed(&self) -> usize {
        let tools: usize = self.tools.iter().map(|tool| tool.parameters.to_string().len() / 4 + 64).sum();
        self.system.len() / 4 + tools
    }
}

/// A tool as a model sees it. `parameters` is a JSON schema of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    pub parameters: serde_json::Value,
}

/// Progress of an answer. The texts since the last `Restart`, joined, are `Answer::text`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    Text(String),
    /// The model is thinking: a sign of life.
    Reasoning,
    /// The text so far is void: the call is made again.
    Restart,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub text: String,
    /// Names are repaired where the slip is obvious, ids are unique, arguments are JSON.
    pub calls: Vec<ToolCall>,
    pub finish: Finish,
    pub bill: Bill,
    /// Which model answered, as it names itself.
    pub model: String,
    /// The text is not all there: it stays cut off after every attempt to have it continued.
    pub partial: bool,
}

/// Why the model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    Stop,
    Calls,
    /// The output limit was reached.
    Length,
    /// The provider's safety filter stepped in.
    Filtered,
    /// The connection ended first.
    Cut,
    /// A reason we do not know.
    Other,
}
