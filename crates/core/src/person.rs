//! Who somebody is, beyond one conversation: what is remembered of one person is not told to another.

use alloc::format;
use alloc::string::String;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::SessionKey;
use crate::message::Source;
use crate::platform::Peer;

/// Two with the same words are the same person.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Person(String);

impl Person {
    /// The owner of this machine.
    pub fn owner() -> Self {
        Self("owner".into())
    }

    /// As it is written: `owner`, or `telegram:7`.
    pub fn named(name: &str) -> Self {
        Self(name.into())
    }

    pub fn of(source: &Source, key: &SessionKey) -> Self {
        let user =
            source.user_id_alt.as_deref().or(source.user_id.as_deref()).filter(|user| !user.is_empty());
        match (source.platform.peer(), user) {
            (Peer::Owner, _) => Self::owner(),
            (Peer::Schedule, Some(user)) => Self(user.into()),
            (Peer::People | Peer::Parent, Some(user)) => Self(format!("{}:{user}", source.platform)),
            // Whoever holds the key of the channel could claim any name, so nothing leads out of the conversation.
            (Peer::Caller | Peer::Sender, Some(_)) | (_, None) => Self(key.as_str().into()),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Person {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{ChatType, Platform};

    #[track_caller]
    fn check(platform: &str, user: Option<&str>, want: &str) {
        let mut source = Source::new(Platform::parse(platform).unwrap(), ChatType::Group, "5");
        source.user_id = user.map(Into::into);
        assert_eq!(Person::of(&source, &SessionKey("the key".into())).as_str(), want);
    }

    #[test]
    fn a_person_is_known_by_their_platform_and_a_program_only_by_its_conversation() {
        check("telegram", Some("7"), "telegram:7");
        check("discord", Some("7"), "discord:7");
        check("telegram", None, "the key");
        check("telegram", Some(""), "the key");
        check("web", Some("anybody"), "owner");
        check("terminal", None, "owner");
        check("api_server", Some("7"), "the key");
        check("webhook", Some("7"), "the key");
        check("cron", Some("telegram:7"), "telegram:7");
        check("cron", Some("owner"), "owner");
    }
}
