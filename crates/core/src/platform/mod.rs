//! Platforms: opaque names, validated against one catalogue. Everything that differs by platform where messages are decided
//! is a capability here, so that nothing else compares names.

mod catalogue;

use alloc::format;
use alloc::string::String;
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use catalogue::{ALL, Row};

/// A known platform. Unknown names are rejected at the edge, never created.
#[derive(Clone, Copy)]
pub struct Platform(&'static Row);

/// Who is at the other end of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// People on a chat platform. Only such a platform can be behind a connector.
    People,
    /// The owner, at this machine.
    Owner,
    /// A program that reads the response to its request, and nothing after it.
    Caller,
    /// A program that sends events and reads no answer.
    Sender,
    /// Another conversation, which takes the answer as a report.
    Parent,
    /// Nobody: scheduled work on somebody's behalf, whom the source names.
    Schedule,
}

impl Peer {
    /// Programs hold the key of a channel and could claim any name.
    pub const fn is_program(self) -> bool {
        match self {
            Self::Caller | Self::Sender => true,
            Self::People | Self::Owner | Self::Parent | Self::Schedule => false,
        }
    }
}

/// How the id of a chat is written, as opposed to its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatIds {
    /// Digits, perhaps negative.
    Number,
    /// The same, or `@username`.
    NumberOrUsername,
    /// `C0123ABC`: the first letter says what it is.
    Letters,
    /// `!room:server`, `@person:server`.
    Federated,
    /// `+4912345`, `group:<id>`, or an address.
    Phone,
    /// An address.
    Mail,
    /// Every word is one.
    Any,
}

/// How a thread is written behind a chat's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadIds {
    /// `<chat>:<thread>`
    Colon,
    /// `<chat>:$<event>`: the event that the thread began with; chats contain colons.
    Event,
    /// There are no threads; chats may contain colons.
    None,
}

/// How the same person is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PersonIds {
    AsWritten,
    /// As a number, with the device that they wrote from, and with its server: the number counts.
    Phone,
}

/// What a stranger's direct message is by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromStrangers {
    Expected,
    /// Mostly not written by people.
    Unsolicited,
}

impl Platform {
    /// A file on this machine.
    pub const LOCAL: Self = Self::named("local");
    /// Programs that talk to us over HTTP.
    pub const API_SERVER: Self = Self::named("api_server");
    pub const CRON: Self = Self::named("cron");
    pub const SUBAGENT: Self = Self::named("subagent");
    /// Whatever is behind a connector and has no name here.
    pub const RELAY: Self = Self::named("relay");

    /// Case-insensitive; `None` for a name nobody knows.
    pub fn parse(name: &str) -> Option<Self> {
        let wanted = name.trim();
        ALL.iter().find(|row| row.name.eq_ignore_ascii_case(wanted)).map(Self)
    }

    /// For constants: a name that is not in the catalogue does not compile.
    pub const fn named(name: &str) -> Self {
        let mut at = 0;
        while at < ALL.len() {
            if same(ALL[at].name.as_bytes(), name.as_bytes()) {
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

    pub fn known() -> impl Iterator<Item = Self> {
        ALL.iter().map(Self)
    }

    pub const fn peer(self) -> Peer {
        self.0.peer
    }

    /// Callers have shown a secret, or sit at this machine, before they reach us.
    pub const fn authenticates(self) -> bool {
        self.0.authenticates
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

    pub const fn from_strangers(self) -> FromStrangers {
        self.0.from_strangers
    }
}

const fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
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
    fn platform_names_are_case_insensitive_and_closed() {
        assert_eq!(Platform::parse(" Telegram ").map(Platform::as_str), Some("telegram"));
        assert_eq!(Platform::parse("telegramm"), None);
    }

    #[test]
    fn every_name_has_one_row() {
        let names: BTreeSet<_> = Platform::known().map(Platform::as_str).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')));
    }
}
