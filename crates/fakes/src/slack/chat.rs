//! One channel as its members see it.

use serde_json::{Value, json};

use super::refusal::Refusal;
use crate::files::Upload;

/// A message of the bot.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub channel: String,
    pub ts: String,
    pub text: String,
    pub thread: Option<String>,
    /// Also shown in the channel itself.
    pub broadcast: bool,
    pub blocks: Option<Value>,
    pub edits: u32,
    /// What it carries.
    pub files: Vec<Upload>,
}

impl Message {
    pub(crate) fn wire(&self, bot: &str) -> Value {
        let mut wire = json!({ "type": "message", "user": bot, "ts": self.ts, "text": self.text });
        if let Some(thread) = &self.thread {
            wire["thread_ts"] = thread.as_str().into();
        }
        if let Some(blocks) = &self.blocks {
            wire["blocks"] = blocks.clone();
        }
        wire
    }

    /// The button with this value.
    pub(crate) fn button(&self, value: &str) -> Option<Value> {
        let blocks = self.blocks.as_ref()?.as_array()?;
        let mut elements = blocks.iter().filter_map(|block| block["elements"].as_array()).flatten();
        elements.find(|element| element["value"] == value).cloned()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Channel {
    pub(crate) team: String,
    pub(crate) archived: bool,
    /// People's messages, as they were told: for history and replies.
    pub(crate) heard: Vec<Value>,
    pub(crate) messages: Vec<Message>,
    /// The last status line of each thread.
    pub(crate) statuses: Vec<(String, String)>,
    /// What the bot put below messages: the moment and the emoji's name.
    pub(crate) marks: Vec<(String, String)>,
}

impl Channel {
    pub(crate) fn find_mut(&mut self, ts: &str) -> Result<&mut Message, Refusal> {
        let found = self.messages.iter_mut().find(|message| message.ts == ts);
        found.ok_or_else(|| Refusal::new("message_not_found"))
    }

    pub(crate) fn delete(&mut self, ts: &str) -> Result<(), Refusal> {
        let at = self.messages.iter().position(|message| message.ts == ts);
        self.messages.remove(at.ok_or_else(|| Refusal::new("message_not_found"))?);
        Ok(())
    }
}
