//! Session keys.
//!
//! A key is built from a source. Only its platform is ever parsed back, because ids may contain colons.

use alloc::string::String;

use crate::ids::SessionKey;
use crate::message::{ChatType, Source};
use crate::platform::{PersonIds, Platform};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyOptions {
    /// Each member of a group has a separate session.
    pub group_per_user: bool,
    /// Each member of a thread has a separate session.
    pub thread_per_user: bool,
    /// Several profiles share this gateway, so keys include the profile.
    pub multiplex_profiles: bool,
}

impl Default for KeyOptions {
    fn default() -> Self {
        Self { group_per_user: true, thread_per_user: false, multiplex_profiles: false }
    }
}

/// The session key of a message. A person known by both a number and a name has two keys, since only the platform can
/// link them.
pub fn session_key(source: &Source, options: &KeyOptions) -> SessionKey {
    let chat = non_empty(source.chat_id.as_ref());
    let thread = non_empty(source.thread_id.as_ref());
    let user = non_empty(source.user_id_alt.as_ref()).or(non_empty(source.user_id.as_ref()));
    let user = user.map(|user| person(source.platform, user));
    let parts = match source.chat_type {
        ChatType::Dm => [chat.map(|chat| person(source.platform, chat)).or(user), thread, None],
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

pub fn platform_of(key: &SessionKey) -> Option<Platform> {
    // Neither profiles nor platforms contain colons.
    key.0.split(':').nth(2).and_then(Platform::parse)
}

/// The normalised user id.
fn person(platform: Platform, id: &str) -> &str {
    match platform.person_ids() {
        PersonIds::AsWritten => id,
        PersonIds::Phone => {
            let id = id.trim();
            let bare = id.strip_prefix('+').unwrap_or(id);
            let bare = bare.split([':', '@']).next().unwrap_or(bare);
            if bare.is_empty() { id } else { bare }
        }
    }
}

fn profile<'a>(source: &'a Source, options: &KeyOptions) -> &'a str {
    let named =
        non_empty(source.profile.as_ref()).filter(|name| options.multiplex_profiles && *name != "default");
    named.unwrap_or("main")
}

fn non_empty(id: Option<&String>) -> Option<&str> {
    id.map(String::as_str).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct KeyVectors {
        session_key: Vec<KeyVector>,
    }

    #[derive(Deserialize)]
    struct KeyVector {
        source: Source,
        key: String,
        key_thread_per_user: String,
        key_group_shared: String,
    }

    #[test]
    fn keys_match_the_vectors() {
        let vectors: KeyVectors =
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
    fn identifies_a_dm_without_chat_id_by_user_or_thread() {
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

    /// Platform; type, chat, thread, user and alternative user id; flags; expected key.
    type KeyCase = (&'static str, [&'static str; 5], Flags, &'static str);

    #[derive(Debug, Clone, Copy, Default)]
    struct Flags {
        group_shared: bool,
        thread_per_user: bool,
        scope: &'static str,
        /// The profile of the source, and whether profiles share the gateway.
        profile: Option<(&'static str, bool)>,
    }

    const PLAIN: Flags = Flags { group_shared: false, thread_per_user: false, scope: "", profile: None };

    /// Keys of hermes-agent 0.19.
    const ROWS: [KeyCase; 26] = [
        ("discord", ["dm", "c1", "", "u1", ""], PLAIN, "agent:main:discord:dm:c1"),
        ("slack", ["dm", "D1", "171.5", "U1", ""], PLAIN, "agent:main:slack:dm:D1:171.5"),
        ("discord", ["dm", "", "", "u1", ""], PLAIN, "agent:main:discord:dm:u1"),
        ("signal", ["dm", "", "", "+1555", "uuid-9"], PLAIN, "agent:main:signal:dm:uuid-9"),
        ("telegram", ["dm", "", "t7", "", ""], PLAIN, "agent:main:telegram:dm:t7"),
        ("telegram", ["dm", "", "", "", ""], PLAIN, "agent:main:telegram:dm"),
        ("telegram", ["group", "-100", "", "42", ""], PLAIN, "agent:main:telegram:group:-100:42"),
        ("signal", ["group", "g1", "", "+1555", "uuid-9"], PLAIN, "agent:main:signal:group:g1:uuid-9"),
        (
            "telegram",
            ["group", "-100", "", "42", ""],
            Flags { group_shared: true, ..PLAIN },
            "agent:main:telegram:group:-100",
        ),
        ("telegram", ["group", "-100", "", "", ""], PLAIN, "agent:main:telegram:group:-100"),
        ("telegram", ["forum", "-100", "7", "42", ""], PLAIN, "agent:main:telegram:forum:-100:7"),
        (
            "telegram",
            ["forum", "-100", "7", "42", ""],
            Flags { thread_per_user: true, ..PLAIN },
            "agent:main:telegram:forum:-100:7:42",
        ),
        (
            "discord",
            ["thread", "c1", "th1", "u1", ""],
            Flags { group_shared: true, thread_per_user: true, ..PLAIN },
            "agent:main:discord:thread:c1:th1",
        ),
        (
            "discord",
            ["group", "chan1", "", "u1", ""],
            Flags { scope: "G1", ..PLAIN },
            "agent:main:discord:group:chan1:u1",
        ),
        (
            "discord",
            ["group", "chan1", "", "u1", ""],
            Flags { scope: "G2", ..PLAIN },
            "agent:main:discord:group:chan1:u1",
        ),
        (
            "slack",
            ["channel", "C1", "", "U1", ""],
            Flags { scope: "T1", ..PLAIN },
            "agent:main:slack:channel:C1:U1",
        ),
        ("discord", ["thread", "th1", "th1", "u1", ""], PLAIN, "agent:main:discord:thread:th1:th1"),
        (
            "discord",
            ["group", "c1", "", "u1", ""],
            Flags { profile: Some(("coder", true)), ..PLAIN },
            "agent:coder:discord:group:c1:u1",
        ),
        (
            "discord",
            ["group", "c1", "", "u1", ""],
            Flags { profile: Some(("default", true)), ..PLAIN },
            "agent:main:discord:group:c1:u1",
        ),
        (
            "discord",
            ["group", "c1", "", "u1", ""],
            Flags { profile: Some(("coder", false)), ..PLAIN },
            "agent:main:discord:group:c1:u1",
        ),
        (
            "whatsapp",
            ["dm", "60123456789@s.whatsapp.net", "", "x", ""],
            PLAIN,
            "agent:main:whatsapp:dm:60123456789",
        ),
        (
            "whatsapp",
            ["dm", "+60123456789:12@s.whatsapp.net", "", "", ""],
            PLAIN,
            "agent:main:whatsapp:dm:60123456789",
        ),
        (
            "whatsapp",
            ["group", "1203@g.us", "", "60123456789@s.whatsapp.net", ""],
            PLAIN,
            "agent:main:whatsapp:group:1203@g.us:60123456789",
        ),
        (
            "relay",
            ["channel", "chan-9", "", "user-3", ""],
            Flags { scope: "guild-7", ..PLAIN },
            "agent:main:relay:channel:chan-9:user-3",
        ),
        ("discord", ["channel", "", "", "", ""], PLAIN, "agent:main:discord:channel"),
        (
            "matrix",
            ["group", "!r:hs.org", "", "@a:hs.org", ""],
            PLAIN,
            "agent:main:matrix:group:!r:hs.org:@a:hs.org",
        ),
    ];

    #[test]
    fn builds_the_keys_of_hermes_agent() {
        for (row, (platform, [kind, chat, thread, user, alt], flags, want)) in ROWS.into_iter().enumerate() {
            let some = |text: &str| Some(text).filter(|text| !text.is_empty()).map(String::from);
            let source = Source {
                chat_type: serde_json::from_value(kind.into()).unwrap(),
                thread_id: some(thread),
                user_id: some(user),
                user_id_alt: some(alt),
                scope_id: some(flags.scope),
                profile: flags.profile.map(|(name, _)| name.into()),
                ..Source::new(Platform::parse(platform).unwrap(), ChatType::Dm, chat)
            };
            let options = KeyOptions {
                group_per_user: !flags.group_shared,
                thread_per_user: flags.thread_per_user,
                multiplex_profiles: flags.profile.is_some_and(|(_, shared)| shared),
            };
            assert_eq!(session_key(&source, &options).as_str(), want, "row {}", row + 1);
        }
    }

    #[test]
    fn includes_the_profile_only_if_multiplexed() {
        check("agent:coder:telegram:dm:123", |it| it.profile = Some("coder".into()));
        check("agent:main:telegram:dm:123", |it| it.profile = Some("default".into()));
        let coder = telegram(|it| it.profile = Some("coder".into()));
        assert_eq!(session_key(&coder, &KeyOptions::default()).as_str(), "agent:main:telegram:dm:123");
    }

    #[test]
    fn recovers_the_platform_from_a_key() {
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
