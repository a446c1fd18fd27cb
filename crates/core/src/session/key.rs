//! The routing key of a conversation: one function for everyone who needs it.
//!
//! A key is made from a source and never taken apart again but for its platform: ids may contain colons.

use alloc::string::String;

use crate::ids::SessionKey;
use crate::message::{ChatType, Platform, Source};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyOptions {
    /// In a group every member has a conversation of their own.
    pub group_per_user: bool,
    /// And in a thread too.
    pub thread_per_user: bool,
    /// Several profiles share this gateway, so keys carry the profile.
    pub multiplex_profiles: bool,
}

impl Default for KeyOptions {
    fn default() -> Self {
        Self { group_per_user: true, thread_per_user: false, multiplex_profiles: false }
    }
}

/// Where a message belongs. WhatsApp's two names for one person are not unified here: the adapter must
/// give the same one every time.
pub fn session_key(source: &Source, options: &KeyOptions) -> SessionKey {
    let chat = given(source.chat_id.as_ref());
    let thread = given(source.thread_id.as_ref());
    let user = given(source.user_id_alt.as_ref()).or(given(source.user_id.as_ref()));
    let parts = match source.chat_type {
        ChatType::Dm => [chat.or(user), thread, None],
        ChatType::Group | ChatType::Channel | ChatType::Thread | ChatType::Forum | ChatType::Webhook => {
            let alone = options.group_per_user && (thread.is_none() || options.thread_per_user);
            [chat, thread, user.filter(|_| alone)]
        }
    };
    let mut key = String::from("agent:");
    key.push_str(profile(source, options));
    for part in
        [Some(source.platform.as_str()), Some(source.chat_type.as_str())].into_iter().chain(parts).flatten()
    {
        key.push(':');
        key.push_str(part);
    }
    SessionKey(key)
}

/// Over which platform a conversation is held.
pub fn platform_of(key: &SessionKey) -> Option<Platform> {
    // Neither profiles nor platforms contain colons.
    key.0.split(':').nth(2).and_then(Platform::parse)
}

fn profile<'a>(source: &'a Source, options: &KeyOptions) -> &'a str {
    let named =
        given(source.profile.as_ref()).filter(|name| options.multiplex_profiles && *name != "default");
    named.unwrap_or("main")
}

fn given(id: Option<&String>) -> Option<&str> {
    id.map(String::as_str).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct Vectors {
        session_key: Vec<Vector>,
    }

    #[derive(Deserialize)]
    struct Vector {
        source: Source,
        key: String,
        key_thread_per_user: String,
        key_group_shared: String,
    }

    #[test]
    fn keys_match_the_vectors() {
        let vectors: Vectors =
            serde_json::from_str(include_str!("../../../../tests/vectors/platforms.json")).unwrap();
        let standard = KeyOptions::default();
        for vector in vectors.session_key {
            for (options, want) in [
                (standard, &vector.key),
                (KeyOptions { thread_per_user: true, ..standard }, &vector.key_thread_per_user),
                (KeyOptions { group_per_user: false, ..standard }, &vector.key_group_shared),
            ] {
                assert_eq!(session_key(&vector.source, &options).as_str(), want, "{options:?}");
            }
        }
    }

    fn telegram(change: impl FnOnce(&mut Source)) -> Source {
        let mut source = Source::new(Platform::parse("telegram").unwrap(), ChatType::Dm, "123");
        change(&mut source);
        source
    }

    #[track_caller]
    fn check(want: &str, change: impl FnOnce(&mut Source)) {
        let options = KeyOptions { multiplex_profiles: true, ..KeyOptions::default() };
        assert_eq!(session_key(&telegram(change), &options).as_str(), want);
    }

    #[test]
    fn a_direct_chat_without_id_is_named_by_its_user_or_thread() {
        check("agent:main:telegram:dm:alt:t1", |it| {
            it.chat_id = None;
            it.user_id = Some("u".into());
            it.user_id_alt = Some("alt".into());
            it.thread_id = Some("t1".into());
        });
        check("agent:main:telegram:dm:t1", |it| {
            it.chat_id = Some(String::new());
            it.thread_id = Some("t1".into());
        });
        check("agent:main:telegram:dm", |it| it.chat_id = None);
    }

    #[test]
    fn only_a_multiplexed_profile_shows_in_the_key() {
        check("agent:coder:telegram:dm:123", |it| it.profile = Some("coder".into()));
        check("agent:main:telegram:dm:123", |it| it.profile = Some("default".into()));
        let coder = telegram(|it| it.profile = Some("coder".into()));
        assert_eq!(session_key(&coder, &KeyOptions::default()).as_str(), "agent:main:telegram:dm:123");
    }

    #[test]
    fn the_platform_of_a_key_is_that_of_its_source() {
        for name in ["telegram", "webhook", "web"] {
            let platform = Platform::parse(name).expect("known");
            for profile in [None, Some("work")] {
                let mut source = Source::new(platform, ChatType::Webhook, "slack:ci:1");
                source.profile = profile.map(Into::into);
                let options = KeyOptions { multiplex_profiles: true, ..KeyOptions::default() };
                assert_eq!(platform_of(&session_key(&source, &options)), Some(platform));
            }
        }
        assert_eq!(platform_of(&SessionKey("agent:main".into())), None);
    }
}
