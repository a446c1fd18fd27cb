//! What can be made to go wrong, and the rules that say when.
//!
//! Rules are asked when a request arrives. Besides the methods there are two places of the socket that a
//! rule can name: `socket` (the upgrade) and `hello` (before the first word).

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::gate::Door;

/// "Processed" means: the message is visible before the trouble starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Waits, then carries on as usual.
    Delay(Duration),
    /// Status 200 and `ok: false` with these fields, unprocessed.
    Refuse(Value),
    /// 429 with `Retry-After`, unprocessed.
    TooMany(u64),
    /// A bare status without JSON, unprocessed: somebody in between has answered.
    Status(u16),
    /// Resets the connection, unprocessed.
    ResetBefore,
    /// Processed, then the connection is reset without an answer: a lost acknowledgement.
    ResetAfter,
    /// Unprocessed and unanswered until `release_hangs`; then carries on as usual.
    Hang,
    /// Processed, then unanswered until `release_hangs`.
    HangAfter,
    /// Status 200 and rubbish, unprocessed.
    Garbage,
}

impl Fault {
    pub fn error(error: &str) -> Self {
        Self::Refuse(json!({ "ok": false, "error": error }))
    }

    /// The token was not granted what the method needs.
    #[must_use]
    pub fn missing_scope(needed: &str) -> Self {
        Self::Refuse(json!({
            "ok": false, "error": "missing_scope", "needed": needed, "provided": "app_mentions:read",
        }))
    }
}

/// On which side of the processing a gate stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Before,
    After,
}

#[derive(Debug, Clone)]
pub(crate) enum Act {
    Fault(Fault),
    Gate(Side, Arc<Door>),
}

#[derive(Debug)]
pub(crate) struct Rule {
    /// `*` is every method.
    pub(crate) method: String,
    pub(crate) channel: Option<String>,
    /// Matching requests to let pass first.
    pub(crate) skip: u64,
    /// `None`: for ever.
    pub(crate) left: Option<u64>,
    pub(crate) act: Act,
}

#[derive(Debug, Default)]
pub(crate) struct Rules(Vec<Rule>);

impl Rules {
    pub(crate) fn add(&mut self, rule: Rule) {
        self.0.push(rule);
    }

    /// Gates go too; requests already standing there are their gate's business.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// What shall happen to this request; rules that are used up are dropped.
    pub(crate) fn take(&mut self, method: &str, channel: Option<&str>) -> Vec<Act> {
        let acts = self.0.iter_mut().filter_map(|rule| rule.hit(method, channel)).collect();
        self.0.retain(|rule| !rule.used_up());
        acts
    }
}

impl Rule {
    fn hit(&mut self, method: &str, channel: Option<&str>) -> Option<Act> {
        let named = self.method == "*" || self.method == method;
        let here = self.channel.is_none() || self.channel.as_deref() == channel;
        if !named || !here {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.left = match self.left {
            None => None,
            Some(left) => Some(left.checked_sub(1)?),
        };
        Some(self.act.clone())
    }

    fn used_up(&self) -> bool {
        let opened = match &self.act {
            Act::Gate(_, door) => door.is_open(),
            Act::Fault(_) => false,
        };
        opened || self.left == Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::{Act, Fault, Rule, Rules};

    /// Which of eight requests are hit; even ones go to C2, odd ones to C1.
    #[track_caller]
    fn check(method: &str, channel: Option<&str>, skip: u64, left: Option<u64>, want: &[u64]) {
        let mut rules = Rules::default();
        let act = Act::Fault(Fault::Hang);
        rules.add(Rule { method: method.into(), channel: channel.map(str::to_owned), skip, left, act });
        let place = |number: &u64| if number.is_multiple_of(2) { "C2" } else { "C1" };
        let hit = |number: &u64| !rules.take("chat.postMessage", Some(place(number))).is_empty();
        let got: Vec<u64> = (1..=8).filter(hit).collect();
        assert_eq!(got, want, "{method} {channel:?} skip {skip} left {left:?}");
    }

    #[test]
    fn rules_hit_what_they_name() {
        check("chat.postMessage", None, 0, Some(1), &[1]);
        check("chat.postMessage", None, 2, Some(1), &[3]);
        check("chat.postMessage", Some("C2"), 1, Some(2), &[4, 6]);
        check("*", None, 6, None, &[7, 8]);
        check("chat.update", None, 0, None, &[]);
        check("chat.postMessage", Some("C3"), 0, None, &[]);
    }
}
