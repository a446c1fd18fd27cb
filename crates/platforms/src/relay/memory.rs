//! Metadata of chats that the connector needs with each message, learned from events and, at start, stored sessions.

use std::collections::{BTreeMap, HashMap};

use petasos_core::{Platform, Source};
use serde_json::{Map, Value};

/// Limit; the least recently used chats are evicted.
const MAX_CHATS: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct ChatMemory {
    chats: HashMap<(Platform, String), ChatMetadata>,
    order: BTreeMap<u64, (Platform, String)>,
    next: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ChatMetadata {
    used: u64,
    scope: Option<String>,
    user: Option<String>,
    /// The connector refuses messages to it, and no message has arrived since.
    declined: bool,
}

impl ChatMemory {
    pub(super) fn learn(&mut self, source: &Source) {
        let Some(chat) = source.chat_id.clone().filter(|chat| !chat.is_empty()) else { return };
        self.change(source.platform, chat, |known| ChatMetadata {
            used: known.used,
            scope: source.scope_id.clone().or(known.scope),
            user: source.user_id.clone().or(known.user),
            declined: false,
        });
    }

    pub(super) fn record(&mut self, platform: Platform, chat: &str, declined: bool) {
        if declined != self.is_declined(platform, chat) {
            self.change(platform, chat.to_owned(), |known| ChatMetadata { declined, ..known });
        }
    }

    pub(super) fn is_declined(&self, platform: Platform, chat: &str) -> bool {
        self.chats.get(&(platform, chat.to_owned())).is_some_and(|known| known.declined)
    }

    fn change(
        &mut self,
        platform: Platform,
        chat: String,
        change: impl FnOnce(ChatMetadata) -> ChatMetadata,
    ) {
        let key = (platform, chat);
        self.next += 1;
        let known = self.chats.remove(&key).unwrap_or_default();
        self.order.remove(&known.used);
        self.chats.insert(key.clone(), ChatMetadata { used: self.next, ..change(known) });
        self.order.insert(self.next, key);
        while self.chats.len() > MAX_CHATS {
            let Some((_, oldest)) = self.order.pop_first() else { return };
            self.chats.remove(&oldest);
        }
    }

    /// Guild or workspace; in a direct message, the user.
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
    fn metadata_is_the_scope_or_the_user() {
        let mut memory = ChatMemory::default();
        memory.learn(&source("room", Some("g1"), Some("u1")));
        memory.learn(&source("direct", None, Some("u1")));
        memory.learn(&source("room", None, None));
        let told = |chat| Value::Object(memory.metadata(Platform::relay(), chat));
        assert_eq!(told("room"), json!({"scope_id": "g1"}));
        assert_eq!(told("direct"), json!({"user_id": "u1"}));
        assert_eq!(told("unseen"), json!({}));
    }

    #[test]
    fn declined_chat_reopens_after_any_message() {
        let mut memory = ChatMemory::default();
        let relay = Platform::relay();
        memory.learn(&source("room", Some("g1"), None));
        for opened in [
            |it: &mut ChatMemory| it.learn(&source("room", None, None)),
            |it: &mut ChatMemory| {
                it.record(Platform::relay(), "room", false);
            },
        ] {
            memory.record(relay, "room", true);
            assert!(memory.is_declined(relay, "room") && !memory.is_declined(relay, "other"));
            opened(&mut memory);
            assert!(!memory.is_declined(relay, "room"));
            assert_eq!(Value::Object(memory.metadata(relay, "room")), json!({"scope_id": "g1"}));
        }
    }

    #[test]
    fn evicts_least_recently_used_chats() {
        let mut memory = ChatMemory::default();
        (0..MAX_CHATS).for_each(|n| memory.learn(&source(&n.to_string(), Some("g"), None)));
        memory.learn(&source("0", None, None));
        memory.learn(&source("new", Some("g"), None));
        assert_eq!((memory.chats.len(), memory.order.len()), (MAX_CHATS, MAX_CHATS));
        assert!(!memory.metadata(Platform::relay(), "0").is_empty());
        assert!(memory.metadata(Platform::relay(), "1").is_empty());
    }
}
