//! The queue of updates that the bot has not confirmed.
//!
//! An update leaves the queue when a poll names a higher offset or the webhook accepts it, so a bot that crashes after
//! receiving it gets it again. `allowed_updates` applies to later updates only.

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::Value;

/// Known kinds of updates; unknown ones are test garbage and always delivered.
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
/// Sent only to bots that request them.
const OPT_IN_KINDS: &[&str] = &["chat_member", "message_reaction", "message_reaction_count"];
const MAX_BATCH: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct Updates {
    pending: VecDeque<(i64, String)>,
    last_id: i64,
    /// A test pushed ids out of order, so confirming must check every update.
    unordered: bool,
    confirmed: Option<i64>,
    allowed: Vec<String>,
    /// The last non-empty batch, for delivering it twice.
    last_batch: Vec<(i64, String)>,
    /// Raw response bodies that tests pushed.
    raw: VecDeque<Bytes>,
    /// The number of the newest poll; older ones end with a conflict.
    poll: u64,
}

#[derive(Debug, Default)]
pub(crate) struct PollRequest {
    pub(crate) offset: Option<i64>,
    pub(crate) limit: Option<i64>,
    pub(crate) repeat: bool,
    pub(crate) withhold: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PollResult {
    Body(Bytes),
    Nothing,
    Conflict,
}

impl Updates {
    pub(crate) fn next_id(&mut self) -> i64 {
        self.last_id += 1;
        self.last_id
    }

    /// Accepts any JSON. An object gets an id unless it has one.
    pub(crate) fn push(&mut self, mut update: Value) -> i64 {
        let own = update.get("update_id").and_then(Value::as_i64);
        let id = own.unwrap_or_else(|| self.next_id());
        self.unordered |= own.is_some_and(|own| own <= self.last_id);
        self.last_id = self.last_id.max(id);
        if let (None, Some(object)) = (own, update.as_object_mut()) {
            object.entry("update_id").or_insert_with(|| id.into());
        }
        if self.is_allowed(&update) {
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

    /// Starts a poll and returns its number; earlier polls are in conflict from now on.
    pub(crate) fn begin(&mut self) -> u64 {
        self.poll += 1;
        self.poll
    }

    pub(crate) fn poll_result(&mut self, poll: u64, request: &PollRequest) -> PollResult {
        if poll != self.poll {
            return PollResult::Conflict;
        }
        self.confirm(request.offset);
        if request.withhold {
            return PollResult::Nothing;
        }
        if let Some(body) = self.raw.pop_front() {
            return PollResult::Body(body);
        }
        let limit = usize::try_from(request.limit.unwrap_or(100)).unwrap_or(0).clamp(1, MAX_BATCH);
        let mut batch: Vec<(i64, String)> = self.pending.iter().take(limit).cloned().collect();
        if request.repeat {
            let mut again = self.last_batch.clone();
            again.retain(|old| batch.iter().all(|new| new.0 != old.0));
            batch.splice(0..0, again);
        }
        if batch.is_empty() {
            return PollResult::Nothing;
        }
        let body = body(&batch);
        self.last_batch = batch;
        PollResult::Body(body)
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

    pub(crate) fn remove(&mut self, id: i64) {
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

    fn is_allowed(&self, update: &Value) -> bool {
        let Some(object) = update.as_object() else {
            return true;
        };
        let Some(kind) = KINDS.iter().find(|kind| object.contains_key(**kind)) else {
            return true;
        };
        if self.allowed.is_empty() {
            return !OPT_IN_KINDS.contains(kind);
        }
        self.allowed.iter().any(|allowed| allowed == kind)
    }
}

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

    use super::{PollRequest, PollResult, Updates};

    fn ids(polled: PollResult) -> Vec<i64> {
        let PollResult::Body(body) = polled else {
            return Vec::new();
        };
        let body: Value = serde_json::from_slice(&body).unwrap();
        let result = body["result"].as_array().unwrap();
        result.iter().map(|update| update["update_id"].as_i64().unwrap()).collect()
    }

    fn poll(updates: &mut Updates, offset: i64, limit: i64) -> Vec<i64> {
        let number = updates.begin();
        ids(updates.poll_result(
            number,
            &PollRequest { offset: Some(offset), limit: Some(limit), ..PollRequest::default() },
        ))
    }

    fn three() -> Updates {
        let mut updates = Updates::default();
        (0..3).for_each(|_| {
            updates.push(json!({"message": {}}));
        });
        updates
    }

    #[test]
    fn offset_confirms_lower_updates() {
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
    fn repeats_last_batch_despite_the_offset() {
        let mut updates = three();
        assert_eq!(poll(&mut updates, 0, 2), [1, 2]);
        let number = updates.begin();
        let request = PollRequest { offset: Some(3), repeat: true, ..PollRequest::default() };
        assert_eq!(ids(updates.poll_result(number, &request)), [1, 2, 3]);
        assert_eq!((updates.pending(), updates.confirmed()), (1, Some(3)));
    }

    #[test]
    fn withheld_updates_stay_pending() {
        let mut updates = three();
        let number = updates.begin();
        let request = PollRequest { offset: Some(2), withhold: true, ..PollRequest::default() };
        assert_eq!(updates.poll_result(number, &request), PollResult::Nothing);
        assert_eq!((updates.pending(), updates.confirmed()), (2, Some(2)));
        assert_eq!(poll(&mut updates, 2, 100), [2, 3]);
    }

    #[test]
    fn older_poll_gets_a_conflict() {
        let mut updates = three();
        let old = updates.begin();
        let new = updates.begin();
        assert_eq!(updates.poll_result(old, &PollRequest::default()), PollResult::Conflict);
        assert_eq!(ids(updates.poll_result(new, &PollRequest::default())), [1, 2, 3]);
    }

    #[test]
    fn delivers_requested_kinds_and_garbage_only() {
        let mut updates = Updates::default();
        updates.push(json!({"chat_member": {}}));
        assert_eq!(updates.pending(), 0, "opt-in kinds must be requested");
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
