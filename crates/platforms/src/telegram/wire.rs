//! Wire types: the few fields we read. Fields that Telegram may omit are optional, and unknown ones are
//! ignored.

use serde::Deserialize;

/// Response of `getMe`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct BotUser {
    pub(super) id: i64,
    #[serde(default)]
    pub(super) username: String,
}

#[derive(Deserialize)]
pub(super) struct WebhookInfo {
    #[serde(default)]
    pub(super) pending_update_count: u64,
}

/// The part of an update that is always readable.
#[derive(Deserialize)]
pub(super) struct UpdateId {
    pub(super) update_id: i64,
}

/// Edits and member changes are not handled.
#[derive(Debug, Deserialize)]
pub(super) struct Update {
    pub(super) update_id: i64,
    pub(super) message: Option<TelegramMessage>,
    pub(super) channel_post: Option<TelegramMessage>,
    pub(super) callback_query: Option<CallbackQuery>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CallbackQuery {
    pub(super) id: String,
    pub(super) from: User,
    pub(super) message: Option<TelegramMessage>,
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
pub(super) struct TelegramChat {
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
pub(super) struct TelegramMessage {
    pub(super) message_id: i64,
    pub(super) message_thread_id: Option<i64>,
    #[serde(default)]
    pub(super) is_topic_message: bool,
    pub(super) from: Option<User>,
    /// Set when the author speaks as a chat: channel posts, anonymous administrators.
    pub(super) sender_chat: Option<TelegramChat>,
    pub(super) chat: TelegramChat,
    #[serde(default)]
    pub(super) date: u64,
    pub(super) text: Option<String>,
    pub(super) caption: Option<String>,
    #[serde(default)]
    pub(super) entities: Vec<Entity>,
    #[serde(default)]
    pub(super) caption_entities: Vec<Entity>,
    pub(super) reply_to_message: Option<Box<TelegramMessage>>,
    pub(super) quote: Option<Quote>,
    pub(super) forum_topic_created: Option<Topic>,
    #[serde(default)]
    pub(super) photo: Vec<TelegramFile>,
    pub(super) voice: Option<TelegramFile>,
    pub(super) audio: Option<TelegramFile>,
    pub(super) video: Option<TelegramFile>,
    pub(super) video_note: Option<TelegramFile>,
    pub(super) animation: Option<TelegramFile>,
    pub(super) document: Option<TelegramFile>,
    pub(super) sticker: Option<TelegramFile>,
    pub(super) location: Option<Location>,
    pub(super) venue: Option<Venue>,
    pub(super) contact: Option<Contact>,
    pub(super) poll: Option<Poll>,
}

/// Mentions without a user name; `@names` are read from the text.
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
pub(super) struct TelegramFile {
    pub(super) file_id: String,
    pub(super) file_name: Option<String>,
    pub(super) mime_type: Option<String>,
    pub(super) file_size: Option<u64>,
    /// Of a sticker.
    pub(super) emoji: Option<String>,
    /// Of a music file.
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
