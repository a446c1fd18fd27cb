//! Delivery targets: parsing and expansion.
//!
//! `origin`, `local`, `all`, `<platform>`, `<platform>:<chat>` or `<platform>:<chat>:<thread>`, separated by commas. The
//! chat may be a name for the channel directory. An unknown platform means `local`, so that the text is kept in a file
//! instead of being lost.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::message::{Delivery, Route, Source};
use crate::platform::{ChatIds, Platform, ThreadIds};

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ChatAddress {
    pub platform: Platform,
    pub chat_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
}

impl ChatAddress {
    pub fn of(source: &Source) -> Option<Self> {
        let chat_id = source.chat_id.clone()?;
        Some(Self { platform: source.platform, chat_id, thread_id: source.thread_id.clone() })
    }

    /// A route that replies to no message.
    pub fn route(&self) -> Route {
        Route {
            platform: self.platform,
            chat_id: self.chat_id.clone(),
            thread_id: self.thread_id.clone(),
            reply_to: None,
            delivery: Delivery::Push,
        }
    }
}

/// A parsed target that is not expanded yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Origin,
    /// A file on this machine.
    Local,
    All,
    Home(Platform),
    Chat(ChatAddress),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetError {
    /// `discord:`
    NoChat,
    /// `discord:7:`
    NoThread,
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoChat => "there is no chat after the colon",
            Self::NoThread => "there is no thread after the last colon",
        })
    }
}

impl Target {
    /// The platform is case-insensitive, ids are not.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        let text = text.trim();
        let (name, rest) =
            text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest.trim())));
        let is = |word: &str| rest.is_none() && name.eq_ignore_ascii_case(word);
        if is("origin") {
            return Ok(Self::Origin);
        }
        if is("all") {
            return Ok(Self::All);
        }
        let platform = Platform::parse(name).filter(|platform| *platform != Platform::LOCAL);
        match (platform, rest) {
            (None, _) => Ok(Self::Local),
            (Some(platform), None) => Ok(Self::Home(platform)),
            (Some(platform), Some(rest)) => Ok(Self::Chat(parse_address(platform, rest)?)),
        }
    }

    /// A comma-separated list; an empty one means `local`.
    pub fn parse_list(text: &str) -> Vec<(String, Result<Self, TargetError>)> {
        let written = text.split(',').map(str::trim).filter(|it| !it.is_empty());
        let mut found: Vec<_> = written.map(|it| (it.to_owned(), Self::parse(it))).collect();
        if found.is_empty() {
            found.push((Platform::LOCAL.as_str().to_owned(), Ok(Self::Local)));
        }
        found
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Origin => f.write_str("origin"),
            Self::Local => f.write_str(Platform::LOCAL.as_str()),
            Self::All => f.write_str("all"),
            Self::Home(platform) => platform.fmt(f),
            Self::Chat(address) => address.fmt(f),
        }
    }
}

impl fmt::Display for ChatAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.platform, self.chat_id)?;
        self.thread_id.as_ref().map_or(Ok(()), |thread| write!(f, ":{thread}"))
    }
}

fn parse_address(platform: Platform, rest: &str) -> Result<ChatAddress, TargetError> {
    let (chat, thread) = match platform.thread_ids() {
        ThreadIds::Event => match rest.rfind(":$") {
            Some(at) => (&rest[..at], Some(&rest[at + 1..])),
            None => (rest, None),
        },
        ThreadIds::None => (rest, None),
        ThreadIds::Colon => rest.split_once(':').map_or((rest, None), |(chat, thread)| (chat, Some(thread))),
    };
    if chat.is_empty() {
        return Err(TargetError::NoChat);
    }
    if thread.is_some_and(|thread| thread.is_empty() || thread == "$") {
        return Err(TargetError::NoThread);
    }
    Ok(ChatAddress { platform, chat_id: chat.to_owned(), thread_id: thread.map(str::to_owned) })
}

/// Whether a chat is an id of the platform; otherwise it is a name.
pub fn is_id(platform: Platform, chat: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match platform.chat_ids() {
        ChatIds::NumberOrUsername => {
            let username = |name: &str| {
                name.len() >= 4 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            };
            digits(chat.strip_prefix('-').unwrap_or(chat)) || chat.strip_prefix('@').is_some_and(username)
        }
        ChatIds::Letters => {
            let upper = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
            chat.len() > 1 && chat.starts_with(['C', 'G', 'D', 'U', 'W']) && chat.bytes().all(upper)
        }
        ChatIds::Federated => chat.starts_with(['!', '@']) && chat.contains(':'),
        ChatIds::Phone => {
            chat.strip_prefix('+').is_some_and(digits)
                || chat.starts_with("group:")
                || (chat.contains('@') && !chat.contains(' '))
        }
        ChatIds::Mail => chat.contains('@') && !chat.contains(' '),
        ChatIds::Any => true,
        ChatIds::Number => digits(chat.strip_prefix('-').unwrap_or(chat)),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    File,
    Chat(ChatAddress),
    NoHomeChannel(Platform),
}

/// Expands targets in order, without duplicates.
pub fn expand(targets: &[Target], origin: Option<&ChatAddress>, homes: &[ChatAddress]) -> Vec<Destination> {
    let mut destinations: Vec<Destination> = Vec::new();
    for target in targets {
        for destination in destinations_of(target, origin, homes) {
            if !destinations.contains(&destination) {
                destinations.push(destination);
            }
        }
    }
    destinations
}

fn destinations_of(target: &Target, origin: Option<&ChatAddress>, homes: &[ChatAddress]) -> Vec<Destination> {
    let one = |address: &ChatAddress| alloc::vec![Destination::Chat(address.clone())];
    match target {
        Target::Local => alloc::vec![Destination::File],
        Target::Chat(address) => one(address),
        Target::All => homes.iter().cloned().map(Destination::Chat).collect(),
        Target::Origin => {
            origin.or_else(|| homes.first()).map_or_else(|| alloc::vec![Destination::File], one)
        }
        Target::Home(platform) => {
            let there = |address: &&ChatAddress| address.platform == *platform;
            let found = origin.filter(there).or_else(|| homes.iter().find(there));
            found.map_or_else(|| alloc::vec![Destination::NoHomeChannel(*platform)], one)
        }
    }
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
