//! Channels and the messages in them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::files::Upload;

/// 0 text, 1 direct, 11 public thread, 15 forum.
pub(crate) const TEXT: u64 = 0;
pub(crate) const DIRECT: u64 = 1;
pub(crate) const THREAD: u64 = 11;
pub(crate) const FORUM: u64 = 15;

#[derive(Debug, Clone)]
pub(crate) struct Channel {
    pub(crate) id: u64,
    pub(crate) kind: u64,
    pub(crate) guild: Option<u64>,
    pub(crate) parent: Option<u64>,
    pub(crate) name: String,
    pub(crate) messages: BTreeMap<u64, Message>,
}

/// A message as everybody in the channel sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub id: u64,
    pub channel: u64,
    pub content: String,
    pub from_bot: bool,
    pub reply_to: Option<u64>,
    /// As sent: rows of buttons, or null.
    pub components: Value,
    pub allowed_mentions: Value,
    pub nonce: Option<String>,
    pub flags: u64,
    pub edits: u32,
    /// What it carries.
    pub files: Vec<Upload>,
    pub(crate) wire: Value,
}

impl Channel {
    pub(crate) fn new(id: u64, kind: u64, guild: Option<u64>) -> Self {
        let name = format!("channel{id}");
        Self { id, kind, guild, parent: None, name, messages: BTreeMap::new() }
    }

    pub(crate) fn wire(&self) -> Value {
        let mut wire = json!({ "id": self.id.to_string(), "type": self.kind });
        if self.kind != DIRECT {
            wire["name"] = self.name.as_str().into();
        }
        if let Some(guild) = self.guild {
            wire["guild_id"] = guild.to_string().into();
        }
        if let Some(parent) = self.parent {
            wire["parent_id"] = parent.to_string().into();
        }
        wire["last_message_id"] = self.messages.keys().next_back().map(u64::to_string).into();
        wire
    }

    pub(crate) fn by_bot(&self) -> impl DoubleEndedIterator<Item = &Message> {
        self.messages.values().filter(|message| message.from_bot)
    }

    pub(crate) fn is_thread(&self) -> bool {
        self.kind == THREAD
    }
}
