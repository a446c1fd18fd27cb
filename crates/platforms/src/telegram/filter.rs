//! Message filter: in private chats every message is for the bot, in groups the settings decide.

use std::collections::HashSet;

use regex::{Regex, RegexBuilder};

use super::{Config, TelegramConfigError};

/// Compiled settings.
#[derive(Debug)]
pub(super) struct MessageFilter {
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

#[derive(Debug)]
pub(super) struct FilterInput<'a> {
    pub(super) private: bool,
    pub(super) chat: &'a str,
    pub(super) thread: Option<&'a str>,
    pub(super) text: &'a str,
    /// The bot's user name without `@`; may be empty.
    pub(super) name: &'a str,
    /// A reply to the bot, or a mention without a user name.
    pub(super) addressed: bool,
}

impl MessageFilter {
    pub(super) fn new(config: &Config) -> Result<Self, TelegramConfigError> {
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

    /// Whether the message addresses the bot, rather than just being in a chat it reads.
    pub(super) fn is_addressed(&self, input: &FilterInput<'_>) -> bool {
        let named = input.addressed || mentions(input.text).any(|name| is_our_name(name, input));
        input.private || named || self.patterns.iter().any(|it| it.is_match(input.text))
    }

    pub(super) fn accepts(&self, input: &FilterInput<'_>) -> bool {
        if lists(&self.ignored_threads, input) || command_for_another(input) {
            return false;
        }
        if input.private {
            return true;
        }
        if !self.allowed_topics.is_empty() && !lists(&self.allowed_topics, input) {
            return false;
        }
        let named = input.addressed || mentions(input.text).any(|name| is_our_name(name, input));
        if self.exclusive_bot_mentions && !named && mentions(input.text).any(is_bot_name) {
            return false;
        }
        if !self.allowed_chats.is_empty() && !self.allowed_chats.contains(input.chat) {
            return self.guest_mode && named;
        }
        let free = self.free_chats.contains(input.chat) || lists(&self.free_topics, input);
        !self.require_mention || free || named || self.patterns.iter().any(|it| it.is_match(input.text))
    }
}

/// The text without a leading mention of the bot.
pub(super) fn strip_leading_mention<'a>(text: &'a str, name: &str) -> &'a str {
    let rest = text.strip_prefix('@').and_then(|rest| {
        let at = rest.get(..name.len()).filter(|it| !name.is_empty() && it.eq_ignore_ascii_case(name))?;
        rest[at.len()..].strip_prefix([' ', '\n', ',', ':'])
    });
    match rest.map(str::trim_start) {
        Some(rest) if !rest.is_empty() => rest,
        Some(_) | None => text,
    }
}

fn pattern(text: &str) -> Result<Regex, TelegramConfigError> {
    let built = RegexBuilder::new(text).case_insensitive(true).build();
    built.map_err(|error| TelegramConfigError::Pattern { pattern: text.to_owned(), error: Box::new(error) })
}

/// Entries are `thread` or `chat:thread`.
fn lists(topics: &HashSet<String>, input: &FilterInput<'_>) -> bool {
    let Some(thread) = input.thread else { return false };
    topics.contains(thread) || topics.contains(&format!("{}:{thread}", input.chat))
}

/// `/start@other_bot` is for the other bot.
fn command_for_another(input: &FilterInput<'_>) -> bool {
    let Some(word) = input.text.strip_prefix('/').and_then(|rest| rest.split_whitespace().next()) else {
        return false;
    };
    word.split_once('@').is_some_and(|(command, name)| {
        !command.contains('/') && is_name(name) && !name.eq_ignore_ascii_case(input.name)
    })
}

/// User names in a text, without `@`. E-mail addresses are skipped.
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

fn is_our_name(name: &str, input: &FilterInput<'_>) -> bool {
    name.eq_ignore_ascii_case(input.name)
}

/// Telegram reserves names ending in `bot` for bots.
fn is_bot_name(name: &str) -> bool {
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

    fn filter(change: impl FnOnce(&mut Config)) -> MessageFilter {
        let mut config = Config::new(Secret::new("t"));
        change(&mut config);
        MessageFilter::new(&config).expect("valid")
    }

    fn group(text: &str) -> FilterInput<'_> {
        FilterInput {
            private: false,
            chat: "-100",
            thread: Some("7"),
            text,
            name: "petasos_bot",
            addressed: false,
        }
    }

    #[test]
    fn require_mention_accepts_only_addressed_group_messages() {
        let filter = filter(|config| {
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
            assert_eq!(filter.accepts(&group(text)), want, "{text}");
        }
        assert!(filter.accepts(&FilterInput { addressed: true, ..group("a reply") }));
        assert!(filter.accepts(&FilterInput { private: true, ..group("in private") }));
    }

    #[test]
    fn ignores_messages_that_mention_only_other_bots() {
        let filter = filter(|_| {});
        for (text, want) in [
            ("hello", true),
            ("@other_bot do it", false),
            ("@other_bot and @petasos_bot do it", true),
            ("@someone do it", true),
            ("/new@other_bot", false),
            ("/etc/passwd@host", true),
        ] {
            assert_eq!(filter.accepts(&group(text)), want, "{text}");
        }
    }

    #[test]
    fn applies_chat_and_topic_lists() {
        let accepts = |change: fn(&mut Config), text: &str| filter(change).accepts(&group(text));
        assert!(!accepts(|c| c.ignored_threads = vec!["7".into()], "hi"));
        assert!(accepts(|c| c.ignored_threads = vec!["-9:7".into()], "hi"));
        assert!(!accepts(|c| c.allowed_topics = vec!["8".into()], "hi"));
        assert!(accepts(|c| c.allowed_topics = vec!["-100:7".into()], "hi"));
        assert!(!accepts(|c| c.allowed_chats = vec!["-5".into()], "@petasos_bot hi"));
        assert!(accepts(|c| (c.allowed_chats, c.guest_mode) = (vec!["-5".into()], true), "@petasos_bot hi"));
        assert!(accepts(|c| (c.require_mention, c.free_response_chats) = (true, vec!["-100".into()]), "hi"));
        assert!(accepts(
            |c| (c.require_mention, c.free_response_topics) = (true, vec!["-100:7".into()]),
            "hi"
        ));
    }

    #[test]
    fn strips_only_a_leading_mention() {
        for (text, want) in [
            ("@petasos_bot, hello", "hello"),
            ("@PETASOS_bot /status", "/status"),
            ("@petasos_bot", "@petasos_bot"),
            ("@petasos_bot_two hello", "@petasos_bot_two hello"),
            ("hello @petasos_bot", "hello @petasos_bot"),
            ("@pétasos", "@pétasos"),
        ] {
            assert_eq!(strip_leading_mention(text, "petasos_bot"), want);
        }
    }
}
