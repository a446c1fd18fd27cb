//! The identity of a person across sessions, which separates stored memories and jobs.

use alloc::format;
use alloc::string::String;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::SessionKey;
use crate::message::Source;
use crate::platform::Peer;

/// Equal names are the same person.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Person(String);

impl Person {
    pub fn owner() -> Self {
        Self("owner".into())
    }

    /// From the stored form: `owner` or `telegram:7`.
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
            // A program can claim any user name, so its identity is limited to the session.
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
    fn identifies_people_by_platform_and_programs_by_session() {
        check("telegram", Some("7"), "telegram:7");
        check("discord", Some("7"), "discord:7");
        check("telegram", None, "the key");
        check("telegram", Some(""), "the key");
        check("web", Some("anyone"), "owner");
        check("terminal", None, "owner");
        check("api_server", Some("7"), "the key");
        check("webhook", Some("7"), "the key");
        check("cron", Some("telegram:7"), "telegram:7");
        check("cron", Some("owner"), "owner");
    }
}
