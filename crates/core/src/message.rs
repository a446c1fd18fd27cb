//! Messages as the inside sees them: who said what where, and the way back.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

pub use crate::platform::Platform;
use crate::time::Millis;

/// The kind of room a message came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChatType {
    #[default]
    Dm,
    Group,
    Channel,
    Thread,
    Forum,
    Webhook,
}

impl ChatType {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dm => "dm",
            Self::Group => "group",
            Self::Channel => "channel",
            Self::Thread => "thread",
            Self::Forum => "forum",
            Self::Webhook => "webhook",
        }
    }
}

/// Who spoke, and where. Unknown keys of older files are ignored, missing ones take their default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    pub platform: Platform,
    #[serde(default)]
    pub chat_id: Option<String>,
    #[serde(default)]
    pub chat_name: Option<String>,
    #[serde(default)]
    pub chat_type: ChatType,
    #[serde(default)]
    pub user_id: Option<String>,
    #[serde(default)]
    pub user_name: Option<String>,
    #[serde(default)]
    pub thread_id: Option<String>,
    #[serde(default)]
    pub chat_topic: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id_alt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat_id_alt: Option<String>,
    /// Guild or workspace. `guild_id` is its older name; both are read, this one wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guild_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_chat_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub is_bot: bool,
    /// The platform says that the sender has a role which the owner admits.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub role_authorized: bool,
    /// Said among others and not to us: only who listens to everything there wants it.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub overheard: bool,
}

impl Source {
    /// A source that names nothing but its platform and room.
    pub fn new(platform: Platform, chat_type: ChatType, chat_id: impl Into<String>) -> Self {
        Self {
            platform,
            chat_id: Some(chat_id.into()),
            chat_name: None,
            chat_type,
            user_id: None,
            user_name: None,
            thread_id: None,
            chat_topic: None,
            user_id_alt: None,
            chat_id_alt: None,
            scope_id: None,
            guild_id: None,
            parent_chat_id: None,
            message_id: None,
            profile: None,
            is_bot: false,
            role_authorized: false,
            overheard: false,
        }
    }
}

/// Something attached that we do not read as text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Attachment {
    /// What it is, in one word for the model and the user: `photo`, `voice`, `document`.
    pub kind: String,
    /// The platform's own handle to fetch it by.
    pub reference: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What the platform says of it; once it is fetched, what it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Where it lies in the cache, once it is fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Why it could not be fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// Attachments that say all there is in their reference.
const NO_FILES: [&str; 3] = ["location", "contact", "poll"];

impl Attachment {
    pub fn is_file(&self) -> bool {
        !NO_FILES.contains(&self.kind.as_str())
    }

    /// Nobody has tried yet.
    pub fn is_wanted(&self) -> bool {
        self.is_file() && self.file.is_none() && self.trouble.is_none()
    }
}

/// One message, parsed at the edge, not yet accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inbound {
    pub source: Source,
    /// The platform's own identity of this event: the same one never starts a second turn.
    pub dedup: String,
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// The text this message answers, if the platform quotes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quoted: Option<String>,
    /// What others said around it, for the model alone: no part of what this author says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// When the sender sent it, if the platform says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Millis>,
    /// Made by the gateway itself (a completion, a resume): skips access checks, never interrupts.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub internal: bool,
    /// Where the answer goes, if not back to `source`: a program that sends an event reads no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_to: Option<Route>,
    /// Further deduplication keys: a replay under another `dedup` is recognised by them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fingerprints: Vec<Fingerprint>,
}

/// A digest of what a sender authenticated: the same one within the time is a replay, whatever identity it names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    pub key: String,
    /// `None`: for ever, as far as the store remembers.
    pub within: Option<Duration>,
    /// Whether this event leaves it behind; otherwise it is only looked up.
    pub recorded: bool,
}

impl Inbound {
    /// Words, and nothing else.
    pub fn new(source: Source, dedup: impl Into<String>, text: impl Into<String>) -> Self {
        Self {
            source,
            dedup: dedup.into(),
            text: text.into(),
            attachments: Vec::new(),
            quoted: None,
            context: None,
            sent_at: None,
            internal: false,
            answer_to: None,
            fingerprints: Vec::new(),
        }
    }

    /// Words of the gateway's own.
    pub fn internal(source: Source, dedup: impl Into<String>, text: impl Into<String>) -> Self {
        Self { internal: true, ..Self::new(source, dedup, text) }
    }
}

/// How an answer leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// We send it: an outbox row per message.
    Push,
    /// The reader comes for it (web page, terminal): the transcript row is the delivery.
    Pull,
}

/// One account of a platform that we listen to: another bot in the same home starts from nothing. Written `platform/account`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId {
    pub platform: Platform,
    pub account: String,
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.platform, self.account)
    }
}

/// A chat, whatever the thread: its messages leave in order and share one rate budget. Written `platform:chat`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId {
    pub platform: Platform,
    pub chat: String,
}

impl LaneId {
    /// `None`: no platform is called so.
    pub fn parse(text: &str) -> Option<Self> {
        let (platform, chat) = text.split_once(':')?;
        Some(Self { platform: Platform::parse(platform)?, chat: chat.to_owned() })
    }
}

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.platform, self.chat)
    }
}

/// The way back to where a message came from. Fixed when the turn starts, never changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    pub platform: Platform,
    pub chat_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<String>,
    pub delivery: Delivery,
}

impl Route {
    /// The way back to `source`, anchored at the message that asked.
    pub fn back_to(source: &Source, delivery: Delivery) -> Self {
        let chat = source.chat_id.as_ref().or(source.user_id.as_ref());
        Self {
            platform: source.platform,
            chat_id: chat.map(String::as_str).unwrap_or_default().to_owned(),
            thread_id: source.thread_id.clone(),
            reply_to: source.message_id.clone(),
            delivery,
        }
    }

    /// To the platform's home, wherever that is when the message is kept: whoever keeps it puts the chat in.
    pub fn to_home(platform: Platform) -> Self {
        Self { platform, chat_id: String::new(), thread_id: None, reply_to: None, delivery: Delivery::Push }
    }

    pub fn is_to_home(&self) -> bool {
        self.chat_id.is_empty() && self.delivery == Delivery::Push
    }

    pub fn lane(&self) -> LaneId {
        LaneId { platform: self.platform, chat: self.chat_id.clone() }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn the_lane_is_the_chat_whatever_the_thread() {
        let mut source = Source::new(Platform::named("telegram"), ChatType::Dm, "7");
        let plain = Route::back_to(&source, Delivery::Push).lane();
        source.thread_id = Some("3".into());
        assert_eq!(plain, Route::back_to(&source, Delivery::Push).lane());
        assert_eq!(plain.to_string(), "telegram:7");
        assert_eq!(LaneId::parse("telegram:7"), Some(plain));
        assert_eq!(LaneId::parse("nowhere:7"), None);
    }
}
