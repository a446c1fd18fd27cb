//! Which messages are for us. In a private chat all of them; in a group it depends on the settings.

use std::collections::HashSet;

use regex::{Regex, RegexBuilder};

use super::{Config, Invalid};

/// The settings, compiled.
#[derive(Debug)]
pub(super) struct Gate {
    require_mention: bool,
    patterns: Vec<Regex>,
    allowed_chats: HashSet<String>,
    guest_mode: bool,
    free_chats: HashSet<String>,
    free_topics: HashSet<String>,
    exclusive_bot_mentions: bool,
    ignored_threads: HashSet<String>,
    allowed_topics: HashSet<String>,
}

/// What is known of a message when its addressee is decided.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    pub(super) private: bool,
    pub(super) chat: &'a str,
    pub(super) thread: Option<&'a str>,
    pub(super) text: &'a str,
    /// Our own user name, without `@`; empty if we have none.
    pub(super) name: &'a str,
    /// Named without a user name, or answered.
    pub(super) addressed: bool,
}

impl Gate {
    pub(super) fn new(config: &Config) -> Result<Self, Invalid> {
        let set = |list: &[String]| list.iter().map(|entry| entry.trim().to_owned()).collect();
        Ok(Self {
            require_mention: config.require_mention,
            patterns: config.mention_patterns.iter().map(|it| pattern(it)).collect::<Result<_, _>>()?,
            allowed_chats: set(&config.allowed_chats),
            guest_mode: config.guest_mode,
            free_chats: set(&config.free_response_chats),
            free_topics: set(&config.free_response_topics),
            exclusive_bot_mentions: config.exclusive_bot_mentions,
            ignored_threads: set(&config.ignored_threads),
            allowed_topics: set(&config.allowed_topics),
        })
    }

    /// It is said to us, not only where we listen.
    pub(super) fn is_addressed(&self, scene: &Scene<'_>) -> bool {
        let named = scene.addressed || mentions(scene.text).any(|name| is_us(name, scene));
        scene.private || named || self.patterns.iter().any(|it| it.is_match(scene.text))
    }

    pub(super) fn admits(&self, scene: &Scene<'_>) -> bool {
        if lists(&self.ignored_threads, scene) || command_for_another(scene) {
            return false;
        }
        if scene.private {
            return true;
        }
        if !self.allowed_topics.is_empty() && !lists(&self.allowed_topics, scene) {
            return false;
        }
        let named = scene.addressed || mentions(scene.text).any(|name| is_us(name, scene));
        if self.exclusive_bot_mentions && !named && mentions(scene.text).any(is_bot) {
            return false;
        }
        if !self.allowed_chats.is_empty() && !self.allowed_chats.contains(scene.chat) {
            return self.guest_mode && named;
        }
        let free = self.free_chats.contains(scene.chat) || lists(&self.free_topics, scene);
        !self.require_mention || free || named || self.patterns.iter().any(|it| it.is_match(scene.text))
    }
}

/// The text without a leading `@us`, which only says whom it is for.
pub(super) fn without_address<'a>(text: &'a str, name: &str) -> &'a str {
    let rest = text.strip_prefix('@').and_then(|rest| {
        let at = rest.get(..name.len()).filter(|it| !name.is_empty() && it.eq_ignore_ascii_case(name))?;
        rest[at.len()..].strip_prefix([' ', '\n', ',', ':'])
    });
    match rest.map(str::trim_start) {
        Some(rest) if !rest.is_empty() => rest,
        Some(_) | None => text,
    }
}

fn pattern(text: &str) -> Result<Regex, Invalid> {
    let built = RegexBuilder::new(text).case_insensitive(true).build();
    built.map_err(|error| Invalid::Pattern { pattern: text.to_owned(), error: Box::new(error) })
}

/// Entries are `thread` or `chat:thread`.
fn lists(topics: &HashSet<String>, scene: &Scene<'_>) -> bool {
    let Some(thread) = scene.thread else { return false };
    topics.contains(thread) || topics.contains(&format!("{}:{thread}", scene.chat))
}

/// `/start@other_bot` is for the other bot.
fn command_for_another(scene: &Scene<'_>) -> bool {
    let Some(word) = scene.text.strip_prefix('/').and_then(|rest| rest.split_whitespace().next()) else {
        return false;
    };
    word.split_once('@').is_some_and(|(command, name)| {
        !command.contains('/') && is_name(name) && !name.eq_ignore_ascii_case(scene.name)
    })
}

/// The user names in a text, without `@`. An address of electronic mail is none.
fn mentions(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices('@').filter_map(move |(at, _)| {
        let before = &text[..at];
        let glued = before.chars().next_back().is_some_and(is_word);
        let command = || before.split_whitespace().next_back().is_some_and(|word| word.starts_with('/'));
        if glued && !command() {
            return None;
        }
        let rest = &text[at + 1..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        Some(&rest[..end]).filter(|name| is_name(name))
    })
}

fn is_us(name: &str, scene: &Scene<'_>) -> bool {
    name.eq_ignore_ascii_case(scene.name)
}

/// Telegram grants `…bot` to bots only.
fn is_bot(name: &str) -> bool {
    name.len() >= 3
        && name.is_char_boundary(name.len() - 3)
        && name[name.len() - 3..].eq_ignore_ascii_case("bot")
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(is_word)
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;

    fn gate(change: impl FnOnce(&mut Config)) -> Gate {
        let mut config = Config::new(Secret::new("t"));
        change(&mut config);
        Gate::new(&config).expect("valid")
    }

    fn group(text: &str) -> Scene<'_> {
        Scene { private: false, chat: "-100", thread: Some("7"), text, name: "petasos_bot", addressed: false }
    }

    #[test]
    fn with_require_mention_a_group_is_heard_only_when_it_addresses_us() {
        let gate = gate(|config| {
            config.require_mention = true;
            config.mention_patterns = vec![r"^\s*hermes\b".into()];
        });
        for (text, want) in [
            ("hello", false),
            ("hello @Petasos_Bot", true),
            ("mail me@petasos_bot please", false),
            ("@petasos_bot_two hello", false),
            ("Hermes, what is up?", true),
            ("oh hermes", false),
            ("/status", false),
            ("/status@petasos_bot", true),
        ] {
            assert_eq!(gate.admits(&group(text)), want, "{text}");
        }
        assert!(gate.admits(&Scene { addressed: true, ..group("a reply") }));
        assert!(gate.admits(&Scene { private: true, ..group("in private") }));
    }

    #[test]
    fn what_names_only_other_bots_is_not_for_us() {
        let gate = gate(|_| {});
        for (text, want) in [
            ("hello", true),
            ("@other_bot do it", false),
            ("@other_bot and @petasos_bot do it", true),
            ("@someone do it", true),
            ("/new@other_bot", false),
            ("/etc/passwd@host", true),
        ] {
            assert_eq!(gate.admits(&group(text)), want, "{text}");
        }
    }

    #[test]
    fn chats_and_topics_open_and_close() {
        let admits = |change: fn(&mut Config), text: &str| gate(change).admits(&group(text));
        assert!(!admits(|c| c.ignored_threads = vec!["7".into()], "hi"));
        assert!(admits(|c| c.ignored_threads = vec!["-9:7".into()], "hi"));
        assert!(!admits(|c| c.allowed_topics = vec!["8".into()], "hi"));
        assert!(admits(|c| c.allowed_topics = vec!["-100:7".into()], "hi"));
        assert!(!admits(|c| c.allowed_chats = vec!["-5".into()], "@petasos_bot hi"));
        assert!(admits(|c| (c.allowed_chats, c.guest_mode) = (vec!["-5".into()], true), "@petasos_bot hi"));
        assert!(admits(|c| (c.require_mention, c.free_response_chats) = (true, vec!["-100".into()]), "hi"));
        assert!(admits(
            |c| (c.require_mention, c.free_response_topics) = (true, vec!["-100:7".into()]),
            "hi"
        ));
    }

    #[test]
    fn only_a_leading_address_is_taken_off() {
        for (text, want) in [
            ("@petasos_bot, hello", "hello"),
            ("@PETASOS_bot /status", "/status"),
            ("@petasos_bot", "@petasos_bot"),
            ("@petasos_bot_two hello", "@petasos_bot_two hello"),
            ("hello @petasos_bot", "hello @petasos_bot"),
            ("@pétasos", "@pétasos"),
        ] {
            assert_eq!(without_address(text, "petasos_bot"), want);
        }
    }
}
