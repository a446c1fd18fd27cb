//! The few fields we read of Telegram's objects. Everything is optional that Telegram may leave out, and
//! what we do not know is ignored.

use serde::Deserialize;

/// Ourselves, as `getMe` tells.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Me {
    pub(super) id: i64,
    #[serde(default)]
    pub(super) username: String,
}

/// How many updates wait at Telegram.
#[derive(Deserialize)]
pub(super) struct WebhookInfo {
    #[serde(default)]
    pub(super) pending_update_count: u64,
}

/// What every update has, even one we cannot read.
#[derive(Deserialize)]
pub(super) struct Numbered {
    pub(super) update_id: i64,
}

/// Edits and member changes are left out: they are not for us (yet).
#[derive(Debug, Deserialize)]
pub(super) struct Update {
    pub(super) update_id: i64,
    pub(super) message: Option<Message>,
    pub(super) channel_post: Option<Message>,
    pub(super) callback_query: Option<CallbackQuery>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CallbackQuery {
    pub(super) id: String,
    pub(super) from: User,
    pub(super) message: Option<Message>,
    pub(super) data: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct User {
    pub(super) id: i64,
    #[serde(default)]
    pub(super) is_bot: bool,
    #[serde(default)]
    pub(super) first_name: String,
    pub(super) last_name: Option<String>,
    pub(super) username: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Chat {
    pub(super) id: i64,
    #[serde(rename = "type", default)]
    pub(super) kind: String,
    pub(super) title: Option<String>,
    pub(super) first_name: Option<String>,
    pub(super) last_name: Option<String>,
    pub(super) username: Option<String>,
    #[serde(default)]
    pub(super) is_forum: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Message {
    pub(super) message_id: i64,
    pub(super) message_thread_id: Option<i64>,
    #[serde(default)]
    pub(super) is_topic_message: bool,
    pub(super) from: Option<User>,
    /// Set when the sender speaks as a chat: channel posts, anonymous administrators.
    pub(super) sender_chat: Option<Chat>,
    pub(super) chat: Chat,
    #[serde(default)]
    pub(super) date: u64,
    pub(super) text: Option<String>,
    pub(super) caption: Option<String>,
    #[serde(default)]
    pub(super) entities: Vec<Entity>,
    #[serde(default)]
    pub(super) caption_entities: Vec<Entity>,
    pub(super) reply_to_message: Option<Box<Message>>,
    pub(super) quote: Option<Quote>,
    pub(super) forum_topic_created: Option<Topic>,
    #[serde(default)]
    pub(super) photo: Vec<File>,
    pub(super) voice: Option<File>,
    pub(super) audio: Option<File>,
    pub(super) video: Option<File>,
    pub(super) video_note: Option<File>,
    pub(super) animation: Option<File>,
    pub(super) document: Option<File>,
    pub(super) sticker: Option<File>,
    pub(super) location: Option<Location>,
    pub(super) venue: Option<Venue>,
    pub(super) contact: Option<Contact>,
    pub(super) poll: Option<Poll>,
}

/// Only what marks a person without a user name; `@names` are read from the text.
#[derive(Debug, Deserialize)]
pub(super) struct Entity {
    pub(super) user: Option<User>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Quote {
    pub(super) text: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Topic {
    pub(super) name: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct File {
    pub(super) file_id: String,
    pub(super) file_name: Option<String>,
    pub(super) mime_type: Option<String>,
    pub(super) file_size: Option<u64>,
    /// Of a sticker.
    pub(super) emoji: Option<String>,
    /// Of a piece of music.
    pub(super) title: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Location {
    pub(super) latitude: f64,
    pub(super) longitude: f64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Venue {
    pub(super) title: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Contact {
    pub(super) phone_number: String,
    pub(super) first_name: String,
    pub(super) last_name: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Poll {
    pub(super) id: String,
    pub(super) question: String,
}
