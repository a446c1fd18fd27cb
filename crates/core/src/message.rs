//! Inbound messages, their sources and routes.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Serialize};

pub use crate::platform::Platform;
use crate::time::Millis;

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

/// The author and chat of a message. Unknown fields in older files are ignored, missing ones take their default.
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
    /// Guild or workspace. Takes precedence over `guild_id`, its older name.
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
    /// The platform confirms that the sender has an allowed role.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub role_authorized: bool,
    /// Posted in a group without addressing the bot.
    #[serde(rename = "overheard", default, skip_serializing_if = "core::ops::Not::not")]
    pub unaddressed: bool,
}

impl Source {
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
            unaddressed: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Attachment {
    /// One word for the model and the user: `photo`, `voice`, `document`.
    pub kind: String,
    /// The platform's handle for the download.
    pub reference: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// As declared by the platform; once downloaded, as detected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(rename = "trouble", default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Attachment kinds without a file; the reference holds the content.
const NO_FILES: [&str; 3] = ["location", "contact", "poll"];

impl Attachment {
    pub fn is_file(&self) -> bool {
        !NO_FILES.contains(&self.kind.as_str())
    }

    /// Neither downloaded nor failed.
    pub fn needs_download(&self) -> bool {
        self.is_file() && self.file.is_none() && self.error.is_none()
    }
}

/// A parsed message that is not accepted yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inbound {
    pub source: Source,
    /// The platform's identity of the event; a known one never starts a second turn.
    pub dedup: String,
    pub text: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// The quoted text that this message replies to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quoted: Option<String>,
    /// Surrounding messages of other people, shown to the model only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// When the sender sent it, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Millis>,
    /// Created by the gateway (a completion, a resume): skips access checks, never interrupts.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub internal: bool,
    /// The route of the answer if it does not go back to `source`, because the sender reads no answers.
    #[serde(rename = "answer_to", default, skip_serializing_if = "Option::is_none")]
    pub reply_route: Option<Route>,
    /// Further deduplication keys that reveal a replay under another `dedup`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fingerprints: Vec<Fingerprint>,
}

/// A digest of authenticated content. The same digest within the time is a replay, whatever identity it names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    pub key: String,
    /// `None`: as long as the store keeps it.
    pub within: Option<Duration>,
    /// Whether this event stores the fingerprint; otherwise it is only looked up.
    pub recorded: bool,
}

impl Inbound {
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
            reply_route: None,
            fingerprints: Vec::new(),
        }
    }

    pub fn internal(source: Source, dedup: impl Into<String>, text: impl Into<String>) -> Self {
        Self { internal: true, ..Self::new(source, dedup, text) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// Sent to the platform, one outbox row per message.
    Push,
    /// Read from the transcript (web page, terminal).
    Pull,
}

/// One account of a platform, written `platform/account`. Another bot in the same home starts with an empty state.
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

/// A chat with all its threads: its messages are delivered in order and share one rate budget. Written `platform:chat`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId {
    pub platform: Platform,
    pub chat: String,
}

impl LaneId {
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

/// The destination of an answer. Fixed when the turn starts.
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
    /// Back to `source`, as a reply to its message.
    pub fn to_source(source: &Source, delivery: Delivery) -> Self {
        let chat = source.chat_id.as_ref().or(source.user_id.as_ref());
        Self {
            platform: source.platform,
            chat_id: chat.map(String::as_str).unwrap_or_default().to_owned(),
            thread_id: source.thread_id.clone(),
            reply_to: source.message_id.clone(),
            delivery,
        }
    }

    /// To the platform's home channel; the chat id is filled in when the message is stored.
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
    fn threads_share_the_lane_of_their_chat() {
        let mut source = Source::new(Platform::named("telegram"), ChatType::Dm, "7");
        let plain = Route::to_source(&source, Delivery::Push).lane();
        source.thread_id = Some("3".into());
        assert_eq!(plain, Route::to_source(&source, Delivery::Push).lane());
        assert_eq!(plain.to_string(), "telegram:7");
        assert_eq!(LaneId::parse("telegram:7"), Some(plain));
        assert_eq!(LaneId::parse("nowhere:7"), None);
    }
}
