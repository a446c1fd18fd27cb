//! From what a connector passes on to what the gateway keeps. Pure, but for the random name of what has none.

use aws_lc_rs::digest::{SHA256, digest};
use petasos_core::{Inbound, Platform};
use petasos_relay::action::held;
use petasos_relay::{Event, Forward};
use petasos_runtime::random;
use serde_json::Value;

use crate::AdapterKind;
use crate::discord::interaction;
use crate::intake::Unreadable;

/// What waits for its commit. Dropping it unacknowledged means that the connector says it again.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) what: What,
    /// The number to acknowledge, and the connection it came over.
    pub(super) buffer: Option<String>,
    pub(super) generation: u64,
    /// As it came, for when it cannot be kept as what it is.
    raw: String,
    /// How often the gateway could not keep it.
    pub(super) refused: u32,
    /// It is tried by itself.
    pub(super) alone: bool,
}

#[derive(Debug)]
pub(super) enum What {
    Event(Box<Inbound>),
    Unreadable(Unreadable),
    /// It never will be for us; the number alone is owed.
    Nothing,
}

/// Longest piece of a buffer's number that names what cannot be read.
const LONGEST_ID: usize = 64;

impl Told {
    /// What it holds in memory, about.
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
                let dedup = read.identity(buffer.as_deref(), || hash(&raw)).unwrap_or_else(unique);
                let context = context(&read);
                let what = What::Event(Box::new(read.inbound(dedup, context)));
                Self { what, buffer, generation, raw, refused: 0, alone: false }
            }
            Err(why) => Self::unreadable(why, &raw, buffer, generation),
        }
    }

    /// A request that a platform made there. What no turn can answer is only acknowledged.
    pub(super) fn forward(forward: &Value, buffer: Option<String>, generation: u64) -> Self {
        let raw = forward.to_string();
        let what = match Forward::read(forward).ok().and_then(|forward| forwarded(&forward)) {
            Some((event, permission)) if !event.text.is_empty() || event.prompt_response.is_some() => {
                let name = event.message_id.clone().unwrap_or_else(|| hash(&raw));
                let mut inbound = event.inbound(format!("pt:{name}"), false);
                // An interaction is no message: it is answered through what the connector holds of it.
                inbound.source.message_id = Some(held(permission));
                What::Event(Box::new(inbound))
            }
            Some(_) | None => What::Nothing,
        };
        Self { what, buffer, generation, raw, refused: 0, alone: false }
    }

    pub(super) fn unreadable(
        why: impl std::fmt::Display,
        raw: &str,
        buffer: Option<String>,
        generation: u64,
    ) -> Self {
        let id = buffer.as_ref().map(|id| id.chars().take(LONGEST_ID).collect());
        let what = What::Unreadable(Unreadable::new(id, why, raw));
        Self { what, buffer, generation, raw: raw.to_owned(), refused: 0, alone: false }
    }

    /// The same, put aside: it was refused too often as what it is.
    pub(super) fn put_aside(self) -> Self {
        let (refused, alone) = (self.refused, self.alone);
        let aside = Self::unreadable("it could not be kept", &self.raw, self.buffer, self.generation);
        Self { refused, alone, ..aside }
    }
}

/// What somebody did, and what the connector holds to answer it, if the platform's own adapter knows such requests.
fn forwarded(forward: &Forward) -> Option<(Event, &'static str)> {
    match AdapterKind::of(Platform::parse(&forward.platform)?) {
        AdapterKind::Discord => Some((interaction::event(forward)?, interaction::PERMISSION)),
        AdapterKind::Telegram | AdapterKind::Slack | AdapterKind::Webhook | AdapterKind::External(_) => None,
    }
}

fn hash(raw: &str) -> String {
    digest(&SHA256, raw.as_bytes()).as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// For what comes without a number and without a name: it comes once.
pub(super) fn unique() -> String {
    random::bytes::<16>().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_adapters_that_know_such_requests_answer_them() {
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

    fn told(event: &Value, buffer: Option<&str>) -> Told {
        Told::event(event, buffer.map(str::to_owned), 1, |_| true)
    }

    fn dedup(told: &Told) -> &str {
        match &told.what {
            What::Event(event) => &event.dedup,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_comes_again_is_known_and_what_is_new_is_not() {
        let event =
            |text: &str, id: Value| json!({"text": text, "message_id": id, "source": {"chat_id": "c"}});
        let same = |one: &Told, other: &Told| dedup(one) == dedup(other);
        let named = event("hi", "m1".into());
        assert!(same(&told(&named, Some("b1")), &told(&named, Some("b2"))), "by its message");
        let nameless = event("hi", Value::Null);
        assert!(same(&told(&nameless, Some("b1")), &told(&nameless, Some("b1"))), "by its number");
        let other = event("ho", Value::Null);
        assert!(!same(&told(&nameless, Some("b1")), &told(&other, Some("b1"))), "numbers begin anew");
        assert!(!same(&told(&nameless, None), &told(&nameless, None)), "it comes once");
    }

    #[test]
    fn what_cannot_be_read_is_kept_as_it_came_and_acknowledged() {
        let told = told(&json!({"text": "sad news", "source": "x"}), Some("b1"));
        let What::Unreadable(kept) = &told.what else { panic!("{told:?}") };
        assert!(kept.raw.contains("sad news") && !kept.why.contains("sad"));
        assert_eq!(told.buffer.as_deref(), Some("b1"));
    }

    #[test]
    fn an_interaction_is_an_event_and_the_rest_is_only_acknowledged() {
        let body =
            json!({"id": "i1", "type": 2, "data": {"name": "new"}, "channel_id": "c", "user": {"id": "u"}});
        let forward =
            Forward { platform: "discord".into(), body: body.to_string().into(), ..Forward::default() };
        let told = Told::forward(&forward.value(), Some("b1".into()), 1);
        assert_eq!(dedup(&told), "pt:i1");
        for nothing in [json!(null), json!({}), json!({"platform": "discord", "bodyB64": "%"})] {
            let told = Told::forward(&nothing, Some("b2".into()), 1);
            assert!(matches!(told.what, What::Nothing) && told.buffer.is_some(), "{told:?}");
        }
    }
}
