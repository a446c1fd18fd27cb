//! The queue of updates a bot has not confirmed yet.
//!
//! An update leaves only when a later poll names an offset above it, or the webhook takes it: a bot that dies
//! after receiving gets it again. The kinds the bot asked for apply to updates that come after the asking.

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::Value;

/// Kinds the service knows; anything else is a test's garbage and is always delivered.
const KINDS: &[&str] = &[
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
    "business_connection",
    "business_message",
    "edited_business_message",
    "deleted_business_messages",
    "message_reaction",
    "message_reaction_count",
    "inline_query",
    "chosen_inline_result",
    "callback_query",
    "shipping_query",
    "pre_checkout_query",
    "poll",
    "poll_answer",
    "my_chat_member",
    "chat_member",
    "chat_join_request",
    "chat_boost",
    "removed_chat_boost",
];
/// Sent only to bots that ask for them.
const UNUSUAL: &[&str] = &["chat_member", "message_reaction", "message_reaction_count"];
const MOST_PER_ANSWER: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct Updates {
    pending: VecDeque<(i64, String)>,
    last_id: i64,
    /// A test pushed numbers out of order: confirming must then look at every update.
    unordered: bool,
    confirmed: Option<i64>,
    allowed: Vec<String>,
    /// The newest non-empty answer, for delivering it twice.
    last_batch: Vec<(i64, String)>,
    /// Whole bodies that tests want answered.
    raw: VecDeque<Bytes>,
    /// The newest poll; older ones that still wait are told of the conflict.
    poll: u64,
}

/// What one poll asks for.
#[derive(Debug, Default)]
pub(crate) struct Ask {
    pub(crate) offset: Option<i64>,
    pub(crate) limit: Option<i64>,
    pub(crate) repeat: bool,
    pub(crate) withhold: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Polled {
    Body(Bytes),
    Nothing,
    Conflict,
}

impl Updates {
    pub(crate) fn next_id(&mut self) -> i64 {
        self.last_id += 1;
        self.last_id
    }

    /// `update` may be anything. An object gets a number unless it brings one.
    pub(crate) fn push(&mut self, mut update: Value) -> i64 {
        let own = update.get("update_id").and_then(Value::as_i64);
        let id = own.unwrap_or_else(|| self.next_id());
        self.unordered |= own.is_some_and(|own| own <= self.last_id);
        self.last_id = self.last_id.max(id);
        if let (None, Some(object)) = (own, update.as_object_mut()) {
            object.entry("update_id").or_insert_with(|| id.into());
        }
        if self.wanted(&update) {
            self.pending.push_back((id, update.to_string()));
        }
        id
    }

    pub(crate) fn push_raw(&mut self, body: Bytes) {
        self.raw.push_back(body);
    }

    pub(crate) fn allow(&mut self, kinds: &Value) {
        let Some(kinds) = kinds.as_array() else { return };
        self.allowed = kinds.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    }

    /// Starts a poll and returns its number; whoever polled before is in conflict now.
    pub(crate) fn begin(&mut self) -> u64 {
        self.poll += 1;
        self.poll
    }

    pub(crate) fn answer(&mut self, poll: u64, ask: &Ask) -> Polled {
        if poll != self.poll {
            return Polled::Conflict;
        }
        self.confirm(ask.offset);
        if ask.withhold {
            return Polled::Nothing;
        }
        if let Some(body) = self.raw.pop_front() {
            return Polled::Body(body);
        }
        let limit = usize::try_from(ask.limit.unwrap_or(100)).unwrap_or(0).clamp(1, MOST_PER_ANSWER);
        let mut batch: Vec<(i64, String)> = self.pending.iter().take(limit).cloned().collect();
        if ask.repeat {
            let mut again = self.last_batch.clone();
            again.retain(|old| batch.iter().all(|new| new.0 != old.0));
            batch.splice(0..0, again);
        }
        if batch.is_empty() {
            return Polled::Nothing;
        }
        let body = body(&batch);
        self.last_batch = batch;
        Polled::Body(body)
    }

    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn confirmed(&self) -> Option<i64> {
        self.confirmed
    }

    pub(crate) fn delivered_any(&self) -> bool {
        !self.last_batch.is_empty()
    }

    pub(crate) fn first(&self) -> Option<(i64, String)> {
        self.pending.front().cloned()
    }

    /// The webhook has it.
    pub(crate) fn delivered(&mut self, id: i64) {
        self.pending.retain(|(pending, _)| *pending != id);
    }

    pub(crate) fn drop_pending(&mut self) {
        self.pending.clear();
    }

    fn confirm(&mut self, offset: Option<i64>) {
        match offset {
            None | Some(0) => {}
            Some(offset) if offset > 0 => {
                self.confirmed = self.confirmed.max(Some(offset));
                while self.pending.front().is_some_and(|(id, _)| *id < offset) {
                    self.pending.pop_front();
                }
                if self.unordered {
                    self.pending.retain(|(id, _)| *id >= offset);
                }
            }
            Some(from_the_end) => {
                let keep = usize::try_from(from_the_end.unsigned_abs()).unwrap_or(usize::MAX);
                let extra = self.pending.len().saturating_sub(keep);
                self.pending.drain(..extra);
            }
        }
    }

    fn wanted(&self, update: &Value) -> bool {
        let Some(object) = update.as_object() else {
            return true;
        };
        let Some(kind) = KINDS.iter().find(|kind| object.contains_key(**kind)) else {
            return true;
        };
        if self.allowed.is_empty() {
            return !UNUSUAL.contains(kind);
        }
        self.allowed.iter().any(|allowed| allowed == kind)
    }
}

/// The updates are kept as text, so answering is joining.
fn body(batch: &[(i64, String)]) -> Bytes {
    let mut body = String::from(r#"{"ok":true,"result":["#);
    for (at, (_id, update)) in batch.iter().enumerate() {
        if at > 0 {
            body.push(',');
        }
        body.push_str(update);
    }
    body.push_str("]}");
    body.into()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Ask, Polled, Updates};

    fn ids(polled: Polled) -> Vec<i64> {
        let Polled::Body(body) = polled else {
            return Vec::new();
        };
        let body: Value = serde_json::from_slice(&body).unwrap();
        let result = body["result"].as_array().unwrap();
        result.iter().map(|update| update["update_id"].as_i64().unwrap()).collect()
    }

    fn poll(updates: &mut Updates, offset: i64, limit: i64) -> Vec<i64> {
        let number = updates.begin();
        ids(updates.answer(number, &Ask { offset: Some(offset), limit: Some(limit), ..Ask::default() }))
    }

    fn three() -> Updates {
        let mut updates = Updates::default();
        (0..3).for_each(|_| {
            updates.push(json!({"message": {}}));
        });
        updates
    }

    #[test]
    fn an_offset_confirms_what_is_below_it() {
        for (offset, limit, want, left) in [
            (0, 100, vec![1, 2, 3], 3),
            (0, 2, vec![1, 2], 3),
            (2, 100, vec![2, 3], 2),
            (4, 100, vec![], 0),
            (-1, 100, vec![3], 1),
            (-9, 100, vec![1, 2, 3], 3),
            (0, 0, vec![1], 3),
        ] {
            let mut updates = three();
            assert_eq!(poll(&mut updates, offset, limit), want, "offset {offset}, limit {limit}");
            assert_eq!(updates.pending(), left, "offset {offset}, limit {limit}");
        }
    }

    #[test]
    fn the_same_updates_again_despite_the_offset() {
        let mut updates = three();
        assert_eq!(poll(&mut updates, 0, 2), [1, 2]);
        let number = updates.begin();
        let ask = Ask { offset: Some(3), repeat: true, ..Ask::default() };
        assert_eq!(ids(updates.answer(number, &ask)), [1, 2, 3]);
        assert_eq!((updates.pending(), updates.confirmed()), (1, Some(3)));
    }

    #[test]
    fn what_is_withheld_waits_and_is_counted() {
        let mut updates = three();
        let number = updates.begin();
        let ask = Ask { offset: Some(2), withhold: true, ..Ask::default() };
        assert_eq!(updates.answer(number, &ask), Polled::Nothing);
        assert_eq!((updates.pending(), updates.confirmed()), (2, Some(2)));
        assert_eq!(poll(&mut updates, 2, 100), [2, 3]);
    }

    #[test]
    fn only_the_newest_poll_is_answered() {
        let mut updates = three();
        let (old, new) = (updates.begin(), updates.begin());
        assert_eq!(updates.answer(old, &Ask::default()), Polled::Conflict);
        assert_eq!(ids(updates.answer(new, &Ask::default())), [1, 2, 3]);
    }

    #[test]
    fn kinds_that_nobody_asked_for_are_not_delivered_but_garbage_is() {
        let mut updates = Updates::default();
        updates.push(json!({"chat_member": {}}));
        assert_eq!(updates.pending(), 0, "unusual kinds must be asked for");
        updates.allow(&json!(["message"]));
        updates.push(json!({"callback_query": {}}));
        assert_eq!(updates.pending(), 0);
        for garbage in [json!({"from_the_future": 1}), json!(17), json!({"message": 5}), json!(null)] {
            let before = updates.pending();
            updates.push(garbage.clone());
            assert_eq!(updates.pending(), before + 1, "{garbage}");
        }
    }
}
