//! Platforms: names from one closed catalogue. Properties that decisions depend on are stored there, so that no other
//! code compares names.

pub mod capability;
mod catalogue;
pub mod provider;

use alloc::format;
use alloc::string::String;
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::text;
use catalogue::{ALL, PlatformSpec};

/// A known platform. Unknown names are rejected when input is parsed.
#[derive(Clone, Copy)]
pub struct Platform(&'static PlatformSpec);

/// The kind of peer at the other end of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// People on a chat platform, the only kind that a connector can front.
    People,
    /// The owner at this machine.
    Owner,
    /// A program that reads only the response to its request.
    Caller,
    /// A program that sends events and reads no answers.
    Sender,
    /// The parent turn of a delegation.
    Parent,
    /// Scheduled work for the person named by the source.
    Schedule,
}

impl Peer {
    /// A program holds the key of a channel and can claim any user name.
    pub const fn is_program(self) -> bool {
        match self {
            Self::Caller | Self::Sender => true,
            Self::People | Self::Owner | Self::Parent | Self::Schedule => false,
        }
    }
}

/// Syntax of chat ids, as opposed to chat names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatIds {
    /// Digits, optionally negative.
    Number,
    /// As `Number`, or `@username`.
    NumberOrUsername,
    /// `C0123ABC`: the first letter is the type.
    Letters,
    /// `!room:server`, `@person:server`.
    Federated,
    /// `+4912345`, `group:<id>`, or an address.
    Phone,
    Mail,
    Any,
}

/// Syntax of a thread behind a chat id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadIds {
    /// `<chat>:<thread>`
    Colon,
    /// `<chat>:$<event>`, the first event of the thread; chat ids contain colons.
    Event,
    /// No threads; chat ids may contain colons.
    None,
}

/// Normalisation of user ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PersonIds {
    AsWritten,
    /// A phone number, optionally with device and server, which are ignored.
    Phone,
}

/// The default treatment of direct messages from strangers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StrangerMessages {
    Expected,
    Unsolicited,
}

impl Platform {
    /// A file on this machine.
    pub const LOCAL: Self = Self::named("local");
    pub const API_SERVER: Self = Self::named("api_server");
    pub const CRON: Self = Self::named("cron");
    pub const SUBAGENT: Self = Self::named("subagent");
    /// A platform behind a connector that has no name here.
    pub const RELAY: Self = Self::named("relay");

    /// Case-insensitive; `None` for an unknown name.
    pub fn parse(name: &str) -> Option<Self> {
        let wanted = name.trim();
        ALL.iter().find(|row| row.name.eq_ignore_ascii_case(wanted)).map(Self)
    }

    /// For constants: an unknown name does not compile.
    pub const fn named(name: &str) -> Self {
        let mut at = 0;
        while at < ALL.len() {
            if text::equal(ALL[at].name, name) {
                return Self(&ALL[at]);
            }
            at += 1;
        }
        panic!("this platform has no row in the catalogue of petasos-core")
    }

    pub const fn relay() -> Self {
        Self::RELAY
    }

    pub const fn as_str(self) -> &'static str {
        self.0.name
    }

    pub fn all() -> impl Iterator<Item = Self> {
        ALL.iter().map(Self)
    }

    pub const fn peer(self) -> Peer {
        self.0.peer
    }

    /// Callers are authenticated, or at this machine, before they reach the access policy.
    pub const fn authenticates(self) -> bool {
        self.0.authenticates
    }

    /// Answers to questions are buttons, on a platform without an adapter.
    pub const fn shows_buttons(self) -> bool {
        self.0.shows_buttons
    }

    pub const fn chat_ids(self) -> ChatIds {
        self.0.chat_ids
    }

    pub const fn thread_ids(self) -> ThreadIds {
        self.0.thread_ids
    }

    pub const fn person_ids(self) -> PersonIds {
        self.0.person_ids
    }

    pub const fn stranger_messages(self) -> StrangerMessages {
        self.0.stranger_messages
    }
}

impl PartialEq for Platform {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for Platform {}

impl PartialOrd for Platform {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Platform {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.name.cmp(other.0.name)
    }
}

impl Hash for Platform {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl fmt::Debug for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Platform {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Platform {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::parse(&name).ok_or_else(|| serde::de::Error::custom(format!("unknown platform {name:?}")))
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    #[test]
    fn parses_known_names_in_any_case_and_no_others() {
        assert_eq!(Platform::parse(" Telegram ").map(Platform::as_str), Some("telegram"));
        assert_eq!(Platform::parse("telegramm"), None);
    }

    #[test]
    fn lists_every_platform_name_once() {
        let names: BTreeSet<_> = Platform::all().map(Platform::as_str).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')));
    }
}
