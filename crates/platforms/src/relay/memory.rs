//! What a connector has to be told with a message, so that it knows whose chat it goes to: learned from what came
//! from there, bounded, and given back from the stored conversations after a restart.

use std::collections::{BTreeMap, HashMap};

use petasos_core::{Platform, Source};
use serde_json::{Map, Value};

/// Chats that are remembered; those that were quiet for longest go first.
const MOST: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Memory {
    chats: HashMap<(Platform, String), Known>,
    /// By the number of their last use.
    order: BTreeMap<u64, (Platform, String)>,
    next: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Known {
    used: u64,
    scope: Option<String>,
    user: Option<String>,
    /// The connector lets nothing of ours through to it, and nothing has come from there since.
    declined: bool,
}

impl Memory {
    pub(super) fn learn(&mut self, source: &Source) {
        let Some(chat) = source.chat_id.clone().filter(|chat| !chat.is_empty()) else { return };
        self.change(source.platform, chat, |known| Known {
            used: known.used,
            scope: source.scope_id.clone().or(known.scope),
            user: source.user_id.clone().or(known.user),
            declined: false,
        });
    }

    /// What became of something that was to go there.
    pub(super) fn note(&mut self, platform: Platform, chat: &str, declined: bool) {
        if declined != self.is_declined(platform, chat) {
            self.change(platform, chat.to_owned(), |known| Known { declined, ..known });
        }
    }

    pub(super) fn is_declined(&self, platform: Platform, chat: &str) -> bool {
        self.chats.get(&(platform, chat.to_owned())).is_some_and(|known| known.declined)
    }

    fn change(&mut self, platform: Platform, chat: String, change: impl FnOnce(Known) -> Known) {
        let place = (platform, chat);
        self.next += 1;
        let known = self.chats.remove(&place).unwrap_or_default();
        self.order.remove(&known.used);
        self.chats.insert(place.clone(), Known { used: self.next, ..change(known) });
        self.order.insert(self.next, place);
        while self.chats.len() > MOST {
            let Some((_, oldest)) = self.order.pop_first() else { return };
            self.chats.remove(&oldest);
        }
    }

    /// Its guild or workspace; else, alone with somebody, who that is.
    pub(super) fn metadata(&self, platform: Platform, chat: &str) -> Map<String, Value> {
        let known = self.chats.get(&(platform, chat.to_owned()));
        let named = known.and_then(|known| match (&known.scope, &known.user) {
            (Some(scope), _) => Some(("scope_id", scope)),
            (None, Some(user)) => Some(("user_id", user)),
            (None, None) => None,
        });
        named.into_iter().map(|(name, id)| (name.to_owned(), id.clone().into())).collect()
    }
}

#[cfg(test)]
mod tests {
    use petasos_core::message::ChatType;
    use serde_json::json;

    use super::*;

    fn source(chat: &str, scope: Option<&str>, user: Option<&str>) -> Source {
        Source {
            scope_id: scope.map(str::to_owned),
            user_id: user.map(str::to_owned),
            ..Source::new(Platform::relay(), ChatType::Group, chat)
        }
    }

    #[test]
    fn a_scope_says_enough_and_a_private_chat_is_known_by_its_user() {
        let mut memory = Memory::default();
        memory.learn(&source("room", Some("g1"), Some("u1")));
        memory.learn(&source("direct", None, Some("u1")));
        memory.learn(&source("room", None, None));
        let told = |chat| Value::Object(memory.metadata(Platform::relay(), chat));
        assert_eq!(told("room"), json!({"scope_id": "g1"}));
        assert_eq!(told("direct"), json!({"user_id": "u1"}));
        assert_eq!(told("unseen"), json!({}));
    }

    #[test]
    fn a_chat_that_is_barred_is_open_again_when_something_comes_or_gets_through() {
        let (mut memory, relay) = (Memory::default(), Platform::relay());
        memory.learn(&source("room", Some("g1"), None));
        for opened in [
            |it: &mut Memory| it.learn(&source("room", None, None)),
            |it: &mut Memory| {
                it.note(Platform::relay(), "room", false);
            },
        ] {
            memory.note(relay, "room", true);
            assert!(memory.is_declined(relay, "room") && !memory.is_declined(relay, "other"));
            opened(&mut memory);
            assert!(!memory.is_declined(relay, "room"));
            assert_eq!(Value::Object(memory.metadata(relay, "room")), json!({"scope_id": "g1"}));
        }
    }

    #[test]
    fn whoever_was_quiet_for_longest_is_forgotten_first() {
        let mut memory = Memory::default();
        (0..MOST).for_each(|n| memory.learn(&source(&n.to_string(), Some("g"), None)));
        memory.learn(&source("0", None, None));
        memory.learn(&source("new", Some("g"), None));
        assert_eq!((memory.chats.len(), memory.order.len()), (MOST, MOST));
        assert!(!memory.metadata(Platform::relay(), "0").is_empty());
        assert!(memory.metadata(Platform::relay(), "1").is_empty());
    }
}
