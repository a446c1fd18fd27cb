//! Where something that is no plain reply is to go, as people write it, and what that means now.
//!
//! `origin`, `local`, `all`, `<platform>`, `<platform>:<chat>` or `<platform>:<chat>:<thread>`; several with commas. The
//! chat may be a name, which the channel directory turns into an id. A platform that nobody knows means `local`: what
//! was to be said is kept in a file rather than lost.

use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::message::{Delivery, Route, Source};
use crate::platform::{ChatIds, Platform, ThreadIds};

/// A chat, or a thread in one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    pub platform: Platform,
    pub chat_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
}

impl Place {
    /// `None`: the source names no chat.
    pub fn of(source: &Source) -> Option<Self> {
        let chat_id = source.chat_id.clone()?;
        Some(Self { platform: source.platform, chat_id, thread_id: source.thread_id.clone() })
    }

    /// The way there, as an answer to nothing.
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

/// What was written, understood but not yet looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Where the job was asked for.
    Origin,
    /// A file on this machine.
    Local,
    /// Every home channel.
    All,
    /// A platform, without saying where on it.
    Home(Platform),
    Chat(Place),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bad {
    /// `discord:`
    NoChat,
    /// `discord:7:`
    NoThread,
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoChat => "there is no chat after the colon",
            Self::NoThread => "there is no thread after the last colon",
        })
    }
}

impl Target {
    /// The platform in any case; ids keep theirs.
    pub fn parse(text: &str) -> Result<Self, Bad> {
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
            (Some(platform), Some(rest)) => Ok(Self::Chat(place(platform, rest)?)),
        }
    }

    /// A list with commas; an empty one means a file.
    pub fn parse_list(text: &str) -> Vec<(String, Result<Self, Bad>)> {
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
            Self::Chat(place) => place.fmt(f),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.platform, self.chat_id)?;
        self.thread_id.as_ref().map_or(Ok(()), |thread| write!(f, ":{thread}"))
    }
}

fn place(platform: Platform, rest: &str) -> Result<Place, Bad> {
    let (chat, thread) = match platform.thread_ids() {
        ThreadIds::Event => match rest.rfind(":$") {
            Some(at) => (&rest[..at], Some(&rest[at + 1..])),
            None => (rest, None),
        },
        ThreadIds::None => (rest, None),
        ThreadIds::Colon => rest.split_once(':').map_or((rest, None), |(chat, thread)| (chat, Some(thread))),
    };
    if chat.is_empty() {
        return Err(Bad::NoChat);
    }
    if thread.is_some_and(|thread| thread.is_empty() || thread == "$") {
        return Err(Bad::NoThread);
    }
    Ok(Place { platform, chat_id: chat.to_owned(), thread_id: thread.map(str::to_owned) })
}

/// Whether a chat is written as the platform's own id; anything else is a name to look up.
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

/// Where one target leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Aim {
    File,
    Chat(Place),
    /// The platform was named, and it has no home channel.
    Homeless(Platform),
}

/// What the targets mean here and now, each place once, in the order in which they were named.
pub fn expand(targets: &[Target], origin: Option<&Place>, homes: &[Place]) -> Vec<Aim> {
    let mut aims: Vec<Aim> = Vec::new();
    for target in targets {
        for aim in aims_of(target, origin, homes) {
            if !aims.contains(&aim) {
                aims.push(aim);
            }
        }
    }
    aims
}

fn aims_of(target: &Target, origin: Option<&Place>, homes: &[Place]) -> Vec<Aim> {
    let one = |place: &Place| alloc::vec![Aim::Chat(place.clone())];
    match target {
        Target::Local => alloc::vec![Aim::File],
        Target::Chat(place) => one(place),
        Target::All => homes.iter().cloned().map(Aim::Chat).collect(),
        // Nobody to tell: it is kept.
        Target::Origin => origin.or_else(|| homes.first()).map_or_else(|| alloc::vec![Aim::File], one),
        Target::Home(platform) => {
            let there = |place: &&Place| place.platform == *platform;
            let found = origin.filter(there).or_else(|| homes.iter().find(there));
            found.map_or_else(|| alloc::vec![Aim::Homeless(*platform)], one)
        }
    }
}

#[cfg(test)]
#[path = "target_tests.rs"]
mod tests;
