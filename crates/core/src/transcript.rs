//! The conversation as it is stored and as a model sees it.

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
    /// Shown to people, never to a model: acknowledgements, command answers, failures.
    #[serde(rename = "session_meta")]
    Notice,
    /// Stands for older rows that the model no longer sees.
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

/// A tool the model asks for. `arguments` is canonical JSON text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    pub arguments: String,
}

/// What is known about a tool's effect on the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectState {
    /// It ran to its end.
    Known,
    /// It was running when we lost it: the model is told so, and we never repeat it.
    Unknown,
    /// It was never started.
    Cancelled,
}

/// A picture in the cache. Its file goes sooner than the row: a model that asks later reads only its name.
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
    /// Pictures that a user row came with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pictures: Vec<Picture>,
    /// The inbound message a user row came from.
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

    /// A row for the model that stands for older ones.
    pub fn summary(content: impl Into<String>, at: Millis) -> Self {
        Self::new(Role::Summary, content.into(), at)
    }

    /// An assistant row that asks for tools.
    pub fn asking(content: impl Into<String>, tool_calls: Vec<ToolCall>, at: Millis) -> Self {
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

/// What the model sees of a tool result that was emptied to make room.
pub const EMPTIED: &str = "(An older tool output was removed to make room.)";

/// What an answer has cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Bill {
    pub usage: Usage,
    /// Tokens of the last prompt; `None`: unknown, or not a prompt of the conversation.
    #[serde(default)]
    pub prompt: Option<u64>,
    /// Millionths of a dollar; `None`: the prices are unknown.
    #[serde(default)]
    pub micro_usd: Option<u64>,
}

/// Tokens spent by a call, as the provider counts them.
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

    /// What was sent, however it was charged for.
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
    fn roles_are_stored_under_these_words() {
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
    fn a_tool_result_names_its_call_and_its_tool() {
        let call = ToolCall { id: "c1".into(), name: "terminal".into(), arguments: "{}".into() };
        let row = Message::tool(&call, "done", EffectState::Known, Millis(1));
        assert_eq!((row.tool_call_id.as_deref(), row.tool_name.as_deref()), (Some("c1"), Some("terminal")));
    }

    #[test]
    fn usage_adds_up_and_counts_cached_input_as_prompt() {
        let mut usage = Usage { input: 1, output: 20, cache_read: 300, cache_write: 4000 };
        usage.add(usage);
        assert_eq!(usage, Usage { input: 2, output: 40, cache_read: 600, cache_write: 8000 });
        assert_eq!((usage.prompt(), usage.total()), (8602, 8642));
    }
}
