//! Converts relay frames to inbound events. Pure, except for random ids of events without one.

use aws_lc_rs::digest::{SHA256, digest};
use petasos_core::text::hex;
use petasos_core::{Inbound, Platform};
use petasos_relay::action::held;
use petasos_relay::{Event, Forward};
use petasos_runtime::random;
use serde_json::Value;

use crate::AdapterKind;
use crate::discord::interaction;
use crate::inbound::Unreadable;

/// An event waiting for its commit. If it is dropped without an acknowledgement, the connector redelivers it.
#[derive(Debug)]
pub(super) struct PendingEvent {
    pub(super) content: EventContent,
    /// Buffer id and generation of the connection.
    pub(super) buffer: Option<String>,
    pub(super) generation: u64,
    /// The raw event, stored if it is invalid.
    raw: String,
    pub(super) rejections: u32,
    pub(super) alone: bool,
}

#[derive(Debug)]
pub(super) enum EventContent {
    Event(Box<Inbound>),
    Unreadable(Unreadable),
    /// Not for this gateway; only acknowledged.
    Nothing,
}

const MAX_ID_LENGTH: usize = 64;

impl PendingEvent {
    pub(super) fn weight(&self) -> usize {
        self.raw.len()
    }

    pub(super) fn event(
        event: &Value,
        buffer: Option<String>,
        generation: u64,
        context: impl FnOnce(&Event) -> bool,
    ) -> Self {
        let raw = event.to_string();
        match Event::read(event) {
            Ok(read) => {
                let dedup = read.identity(buffer.as_deref(), || hash(&raw)).unwrap_or_else(random::hex::<16>);
                let context = context(&read);
                let content = EventContent::Event(Box::new(read.inbound(dedup, context)));
                Self { content, buffer, generation, raw, rejections: 0, alone: false }
            }
            Err(error) => Self::unreadable(error, &raw, buffer, generation),
        }
    }

    /// A forwarded platform request. Requests that no adapter knows are only acknowledged.
    pub(super) fn forward(forward: &Value, buffer: Option<String>, generation: u64) -> Self {
        let raw = forward.to_string();
        let content = match Forward::read(forward).ok().and_then(|forward| forwarded(&forward)) {
            Some((event, permission)) if !event.text.is_empty() || event.prompt_response.is_some() => {
                let name = event.message_id.clone().unwrap_or_else(|| hash(&raw));
                let mut inbound = event.inbound(format!("pt:{name}"), false);
                // An interaction is answered through a permission that the connector holds.
                inbound.source.message_id = Some(held(permission));
                EventContent::Event(Box::new(inbound))
            }
            Some(_) | None => EventContent::Nothing,
        };
        Self { content, buffer, generation, raw, rejections: 0, alone: false }
    }

    pub(super) fn unreadable(
        why: impl std::fmt::Display,
        raw: &str,
        buffer: Option<String>,
        generation: u64,
    ) -> Self {
        let id = buffer.as_ref().map(|id| id.chars().take(MAX_ID_LENGTH).collect());
        let content = EventContent::Unreadable(Unreadable::new(id, why, raw));
        Self { content, buffer, generation, raw: raw.to_owned(), rejections: 0, alone: false }
    }

    /// Converts an event that was refused too often into an unreadable one.
    pub(super) fn into_unreadable(self) -> Self {
        let rejections = self.rejections;
        let alone = self.alone;
        let unreadable = Self::unreadable("it could not be stored", &self.raw, self.buffer, self.generation);
        Self { rejections, alone, ..unreadable }
    }
}

/// Parses a user's action and the permission to answer it, if the platform's adapter knows such requests.
fn forwarded(forward: &Forward) -> Option<(Event, &'static str)> {
    match AdapterKind::of(Platform::parse(&forward.platform)?) {
        AdapterKind::Discord => Some((interaction::event(forward)?, interaction::CREDENTIAL)),
        AdapterKind::Telegram | AdapterKind::Slack | AdapterKind::Webhook | AdapterKind::External(_) => None,
    }
}

fn hash(raw: &str) -> String {
    hex(&digest(&SHA256, raw.as_bytes()).as_ref()[..16])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parses_forwards_of_known_adapters_only() {
        let body = json!({"type": 2, "data": {"name": "new"}, "channel_id": "c1"}).to_string();
        let of = |platform: &str| {
            let forward =
                Forward { platform: platform.into(), body: body.clone().into(), ..Forward::default() };
            forwarded(&forward).map(|(_, permission)| permission)
        };
        assert_eq!(of("Discord"), Some("discord.interaction_token"));
        assert_eq!(of("slack"), None);
        assert_eq!(of("nowhere"), None);
    }

    fn pending(event: &Value, buffer: Option<&str>) -> PendingEvent {
        PendingEvent::event(event, buffer.map(str::to_owned), 1, |_| true)
    }

    fn dedup(pending: &PendingEvent) -> &str {
        match &pending.content {
            EventContent::Event(event) => &event.dedup,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn deduplication_keys_match_only_repeats() {
        let event =
            |text: &str, id: Value| json!({"text": text, "message_id": id, "source": {"chat_id": "c"}});
        let same = |one: &PendingEvent, other: &PendingEvent| dedup(one) == dedup(other);
        let named = event("hi", "m1".into());
        assert!(same(&pending(&named, Some("b1")), &pending(&named, Some("b2"))), "by its message");
        let nameless = event("hi", Value::Null);
        assert!(same(&pending(&nameless, Some("b1")), &pending(&nameless, Some("b1"))), "by its number");
        let other = event("ho", Value::Null);
        assert!(!same(&pending(&nameless, Some("b1")), &pending(&other, Some("b1"))), "numbers begin anew");
        assert!(!same(&pending(&nameless, None), &pending(&nameless, None)), "it comes once");
    }

    #[test]
    fn stores_and_acknowledges_unreadable_events() {
        let pending = pending(&json!({"text": "sad news", "source": "x"}), Some("b1"));
        let EventContent::Unreadable(kept) = &pending.content else { panic!("{pending:?}") };
        assert!(kept.raw.contains("sad news") && !kept.why.contains("sad"));
        assert_eq!(pending.buffer.as_deref(), Some("b1"));
    }

    #[test]
    fn turns_interactions_into_events_and_skips_others() {
        let body =
            json!({"id": "i1", "type": 2, "data": {"name": "new"}, "channel_id": "c", "user": {"id": "u"}});
        let forward =
            Forward { platform: "discord".into(), body: body.to_string().into(), ..Forward::default() };
        let pending = PendingEvent::forward(&forward.value(), Some("b1".into()), 1);
        assert_eq!(dedup(&pending), "pt:i1");
        for nothing in [json!(null), json!({}), json!({"platform": "discord", "bodyB64": "%"})] {
            let pending = PendingEvent::forward(&nothing, Some("b2".into()), 1);
            assert!(
                matches!(pending.content, EventContent::Nothing) && pending.buffer.is_some(),
                "{pending:?}"
            );
        }
    }
}
