//! Requests to models and their responses.

use std::sync::Arc;

use petasos_core::SessionId;
use petasos_core::transcript::{Message, ToolCall, UsageRecord};

/// The whole conversation, and the tools that the model may call.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    pub system: String,
    /// The transcript; notices in it are left out.
    pub messages: Vec<Message>,
    /// Inserted before the last user text of this call; never stored.
    pub note: Option<String>,
    /// Appended to the conversation for this call; never stored.
    pub closing: Option<String>,
    pub tools: Arc<[ToolSpec]>,
    /// Another model of the primary provider, for this session.
    pub model: Option<String>,
    /// Only a key for prompt caches.
    pub session: SessionId,
}

impl ModelRequest {
    /// Estimated tokens of everything but the transcript.
    pub fn fixed(&self) -> usize {
        let tools: usize = self.tools.iter().map(|tool| tool.parameters.to_string().len() / 4 + 64).sum();
        self.system.len() / 4 + tools
    }
}

/// A tool as models see it. `parameters` is the JSON schema of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolSpec {
    pub name: String,
    pub description: String,
    pub parameters: serde_json::Value,
}

/// Progress of a response. The texts since the last `Restart`, joined, are `ModelResponse::text`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Chunk {
    Text(String),
    /// The model is reasoning; counts as a heartbeat.
    Reasoning,
    /// Discards the text so far: the call is repeated.
    Restart,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelResponse {
    pub text: String,
    /// With repaired names, unique ids and JSON arguments.
    pub calls: Vec<ToolCall>,
    pub finish: FinishReason,
    pub usage: UsageRecord,
    /// The model's name according to the provider.
    pub model: String,
    /// The text is incomplete, even after every attempt to continue it.
    pub partial: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    Stop,
    Calls,
    Length,
    Filtered,
    Cut,
    Other,
}
