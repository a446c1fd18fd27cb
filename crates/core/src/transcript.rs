//! Transcripts: the rows of a session as stored and as sent to a model.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::time::Millis;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    User,
    Assistant,
    Tool,
    /// Visible to people only: acknowledgements, command replies, failures.
    #[serde(rename = "session_meta")]
    Notice,
    /// Replaces older rows for the model.
    Summary,
}

impl Role {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
            Self::Notice => "session_meta",
            Self::Summary => "summary",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        [Self::User, Self::Assistant, Self::Tool, Self::Notice, Self::Summary]
            .into_iter()
            .find(|role| role.as_str() == name)
    }
}

/// A requested tool call. `arguments` is canonical JSON text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    pub arguments: String,
}

/// Knowledge about the side effects of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectState {
    Known,
    /// Interrupted while running: reported to the model, never repeated.
    Unknown,
    Cancelled,
}

/// An image in the cache. The file expires before the row; then the model gets only its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Picture {
    pub path: String,
    pub mime: String,
}

/// One row of a transcript.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    pub role: Role,
    pub content: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<EffectState>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pictures: Vec<Picture>,
    /// The inbound message of a user row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform_message_id: Option<String>,
    pub at: Millis,
}

impl Message {
    fn new(role: Role, content: String, at: Millis) -> Self {
        Self {
            role,
            content,
            tool_calls: Vec::new(),
            tool_call_id: None,
            tool_name: None,
            effect: None,
            pictures: Vec::new(),
            platform_message_id: None,
            at,
        }
    }

    pub fn user(content: impl Into<String>, at: Millis) -> Self {
        Self::new(Role::User, content.into(), at)
    }

    pub fn assistant(content: impl Into<String>, at: Millis) -> Self {
        Self::new(Role::Assistant, content.into(), at)
    }

    pub fn notice(content: impl Into<String>, at: Millis) -> Self {
        Self::new(Role::Notice, content.into(), at)
    }

    pub fn summary(content: impl Into<String>, at: Millis) -> Self {
        Self::new(Role::Summary, content.into(), at)
    }

    /// An assistant row with tool calls.
    pub fn tool_request(content: impl Into<String>, tool_calls: Vec<ToolCall>, at: Millis) -> Self {
        Self { tool_calls, ..Self::new(Role::Assistant, content.into(), at) }
    }

    pub fn tool(call: &ToolCall, content: impl Into<String>, effect: EffectState, at: Millis) -> Self {
        Self {
            tool_call_id: Some(call.id.clone()),
            tool_name: Some(call.name.clone()),
            effect: Some(effect),
            ..Self::new(Role::Tool, content.into(), at)
        }
    }
}

/// Replaces a tool result that was removed by compaction.
pub const CLEARED_TOOL_OUTPUT: &str = "(An older tool output was removed to save space.)";

/// The usage of one model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UsageRecord {
    #[serde(rename = "usage")]
    pub tokens: Usage,
    /// Tokens of the prompt; `None`: unknown, or not a prompt of the session.
    #[serde(default)]
    pub prompt: Option<u64>,
    /// Cost in millionths of a dollar; `None`: unknown prices.
    #[serde(default)]
    pub micro_usd: Option<u64>,
}

/// Tokens as counted by the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    #[serde(default)]
    pub input: u64,
    #[serde(default)]
    pub output: u64,
    #[serde(default)]
    pub cache_read: u64,
    #[serde(default)]
    pub cache_write: u64,
}

impl Usage {
    pub fn add(&mut self, other: Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
    }

    /// All input tokens, cached or not.
    pub const fn prompt(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }

    pub const fn total(&self) -> u64 {
        self.input
            .saturating_add(self.output)
            .saturating_add(self.cache_read)
            .saturating_add(self.cache_write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_round_trip_through_their_stored_names() {
        for (word, role) in [
            ("user", Some(Role::User)),
            ("assistant", Some(Role::Assistant)),
            ("tool", Some(Role::Tool)),
            ("session_meta", Some(Role::Notice)),
            ("summary", Some(Role::Summary)),
            ("system", None),
        ] {
            assert_eq!(Role::parse(word), role, "{word}");
        }
    }

    #[test]
    fn tool_rows_name_their_call_and_tool() {
        let call = ToolCall { id: "c1".into(), name: "terminal".into(), arguments: "{}".into() };
        let row = Message::tool(&call, "done", EffectState::Known, Millis(1));
        assert_eq!((row.tool_call_id.as_deref(), row.tool_name.as_deref()), (Some("c1"), Some("terminal")));
    }

    #[test]
    fn adds_usage_and_counts_cached_input_as_prompt() {
        let mut usage = Usage { input: 1, output: 20, cache_read: 300, cache_write: 4000 };
        usage.add(usage);
        assert_eq!(usage, Usage { input: 2, output: 40, cache_read: 600, cache_write: 8000 });
        assert_eq!((usage.prompt(), usage.total()), (8602, 8642));
    }
}
