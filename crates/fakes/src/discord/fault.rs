//! What can be made to go wrong with a request, and the rules that say when.
//!
//! Rules are asked when a request arrives: one that is already being served is not touched by a new rule.

use std::sync::Arc;
use std::time::Duration;

use crate::gate::Door;

/// "Processed" means: the message is visible before the trouble starts.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// Waits, then carries on as usual.
    Delay(Duration),
    /// Refuses, unprocessed. `retry_after` (seconds) makes it a rate limit.
    Status { status: u16, code: u64, message: String, retry_after: Option<f64> },
    /// Resets the connection, unprocessed.
    ResetBefore,
    /// Processed, then the connection is reset without an answer: a lost acknowledgement.
    ResetAfter,
    /// Unprocessed and unanswered until `release_hangs`; then carries on as usual.
    Hang,
    /// Processed, then unanswered until `release_hangs`.
    HangAfter,
    /// Status 502 and a page of HTML, unprocessed: somebody in between has answered.
    Page,
    /// Status 200 and rubbish, unprocessed.
    Garbage,
    /// Processed, but only half of the answer arrives before the connection ends.
    HalfBody,
}

impl Fault {
    pub fn status(status: u16, code: u64, message: impl Into<String>) -> Self {
        Self::Status { status, code, message: message.into(), retry_after: None }
    }

    /// The rate limit, in the real service's words.
    #[must_use]
    pub fn too_many(retry_after: f64) -> Self {
        let message = "You are being rate limited.".to_owned();
        Self::Status { status: 429, code: 0, message, retry_after: Some(retry_after) }
    }

    /// The bot may not write there.
    #[must_use]
    pub fn missing_access() -> Self {
        Self::status(403, 50001, "Missing Access")
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
    /// `*` is every route.
    pub(crate) route: String,
    pub(crate) channel: Option<u64>,
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
    pub(crate) fn take(&mut self, route: &str, channel: Option<u64>) -> Vec<Act> {
        let acts = self.0.iter_mut().filter_map(|rule| rule.hit(route, channel)).collect();
        self.0.retain(|rule| !rule.used_up());
        acts
    }
}

impl Rule {
    fn hit(&mut self, route: &str, channel: Option<u64>) -> Option<Act> {
        let named = self.route == "*" || self.route.eq_ignore_ascii_case(route);
        let here = self.channel.is_none() || self.channel == channel;
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

    /// Which of eight requests are hit; even ones go to channel 2, odd ones to channel 1.
    #[track_caller]
    fn check(route: &str, channel: Option<u64>, skip: u64, left: Option<u64>, want: &[u64]) {
        let mut rules = Rules::default();
        rules.add(Rule { route: route.into(), channel, skip, left, act: Act::Fault(Fault::Hang) });
        let hit = |number: &u64| !rules.take("createMessage", Some(2 - number % 2)).is_empty();
        let got: Vec<u64> = (1..=8).filter(hit).collect();
        assert_eq!(got, want, "{route} {channel:?} skip {skip} left {left:?}");
    }

    #[test]
    fn rules_hit_what_they_name() {
        check("CREATEmessage", None, 0, Some(1), &[1]);
        check("createMessage", None, 2, Some(1), &[3]);
        check("createMessage", Some(2), 1, Some(2), &[4, 6]);
        check("*", None, 6, None, &[7, 8]);
        check("editMessage", None, 0, None, &[]);
    }
}
