//! Channels and the messages in them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::server::files::Upload;

/// 0 text, 1 direct, 11 public thread, 15 forum.
pub(crate) const TEXT: u64 = 0;
pub(crate) const DIRECT: u64 = 1;
pub(crate) const THREAD: u64 = 11;
pub(crate) const FORUM: u64 = 15;

#[derive(Debug, Clone)]
pub(crate) struct DiscordChannel {
    pub(crate) id: u64,
    pub(crate) kind: u64,
    pub(crate) guild: Option<u64>,
    pub(crate) parent: Option<u64>,
    pub(crate) name: String,
    pub(crate) messages: BTreeMap<u64, DiscordMessage>,
}

/// A message as people in the channel see it.
#[derive(Debug, Clone, PartialEq)]
pub struct DiscordMessage {
    pub id: u64,
    pub channel: u64,
    pub content: String,
    pub from_bot: bool,
    pub reply_to: Option<u64>,
    /// Rows of buttons, or null.
    pub components: Value,
    pub allowed_mentions: Value,
    pub nonce: Option<String>,
    pub flags: u64,
    pub edits: u32,
    pub files: Vec<Upload>,
    pub(crate) wire: Value,
}

impl DiscordChannel {
    pub(crate) fn new(id: u64, kind: u64, guild: Option<u64>) -> Self {
        let name = format!("channel{id}");
        Self { id, kind, guild, parent: None, name, messages: BTreeMap::new() }
    }

    pub(crate) fn to_json(&self) -> Value {
        let mut channel = json!({ "id": self.id.to_string(), "type": self.kind });
        if self.kind != DIRECT {
            channel["name"] = self.name.as_str().into();
        }
        if let Some(guild) = self.guild {
            channel["guild_id"] = guild.to_string().into();
        }
        if let Some(parent) = self.parent {
            channel["parent_id"] = parent.to_string().into();
        }
        channel["last_message_id"] = self.messages.keys().next_back().map(u64::to_string).into();
        channel
    }

    pub(crate) fn by_bot(&self) -> impl DoubleEndedIterator<Item = &DiscordMessage> {
        self.messages.values().filter(|message| message.from_bot)
    }

    pub(crate) fn is_thread(&self) -> bool {
        self.kind == THREAD
    }
}
