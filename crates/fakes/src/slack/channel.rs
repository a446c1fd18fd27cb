//! One channel and its messages.

use serde_json::{Value, json};

use super::error::ServiceError;
use crate::server::files::Upload;

/// A message of the bot.
#[derive(Debug, Clone, PartialEq)]
pub struct SlackMessage {
    pub channel: String,
    pub ts: String,
    pub text: String,
    pub thread: Option<String>,
    /// A reply that is also shown in the channel.
    pub broadcast: bool,
    pub blocks: Option<Value>,
    pub edits: u32,
    pub files: Vec<Upload>,
}

impl SlackMessage {
    pub(crate) fn to_json(&self, bot: &str) -> Value {
        let mut message = json!({ "type": "message", "user": bot, "ts": self.ts, "text": self.text });
        if let Some(thread) = &self.thread {
            message["thread_ts"] = thread.as_str().into();
        }
        if let Some(blocks) = &self.blocks {
            message["blocks"] = blocks.clone();
        }
        message
    }

    pub(crate) fn button(&self, value: &str) -> Option<Value> {
        let blocks = self.blocks.as_ref()?.as_array()?;
        let mut elements = blocks.iter().filter_map(|block| block["elements"].as_array()).flatten();
        elements.find(|element| element["value"] == value).cloned()
    }
}

#[derive(Debug, Default)]
pub(crate) struct SlackChannel {
    pub(crate) team: String,
    pub(crate) archived: bool,
    /// The events of users' messages, for history and replies.
    pub(crate) incoming: Vec<Value>,
    pub(crate) messages: Vec<SlackMessage>,
    /// The status lines of threads, newest last.
    pub(crate) statuses: Vec<(String, String)>,
    /// The bot's reactions: timestamp and emoji name.
    pub(crate) reactions: Vec<(String, String)>,
}

impl SlackChannel {
    pub(crate) fn find_mut(&mut self, ts: &str) -> Result<&mut SlackMessage, ServiceError> {
        let found = self.messages.iter_mut().find(|message| message.ts == ts);
        found.ok_or_else(|| ServiceError::new("message_not_found"))
    }

    pub(crate) fn delete(&mut self, ts: &str) -> Result<(), ServiceError> {
        let at = self.messages.iter().position(|message| message.ts == ts);
        self.messages.remove(at.ok_or_else(|| ServiceError::new("message_not_found"))?);
        Ok(())
    }
}
