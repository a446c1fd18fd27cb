//! What can be made to go wrong, and the rules that say when.
//!
//! Rules are asked when a request arrives: one that is already being served, such as a long poll that
//! waits, is not touched by a new rule.

use std::sync::Arc;
use std::time::Duration;

use crate::gate::Door;

/// "Processed" means: the message is visible, the update confirmed, before the trouble starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Waits, then carries on as usual.
    Delay(Duration),
    /// Refuses, unprocessed.
    Status { code: u16, description: String, retry_after: Option<u64> },
    /// Resets the connection, unprocessed.
    ResetBefore,
    /// Processed, then the connection is reset without an answer: a lost acknowledgement.
    ResetAfter,
    /// Unprocessed and unanswered until `release_hangs`; then carries on as usual.
    Hang,
    /// Processed, then unanswered until `release_hangs`.
    HangAfter,
    /// Status 200 and rubbish, unprocessed: somebody in between has answered.
    Garbage,
    /// Processed, but only half of the answer arrives before the connection ends.
    HalfBody,
    /// `getUpdates` only: the last delivered updates come again, whatever the offset says. Waits for a
    /// poll that has something to repeat.
    DuplicateUpdates,
}

impl Fault {
    pub fn status(code: u16, description: impl Into<String>) -> Self {
        Self::Status { code, description: description.into(), retry_after: None }
    }

    /// Flood control, in the real service's words.
    #[must_use]
    pub fn too_many(retry_after: u64) -> Self {
        let description = format!("Too Many Requests: retry after {retry_after}");
        Self::Status { code: 429, description, retry_after: Some(retry_after) }
    }

    /// The user has blocked the bot.
    #[must_use]
    pub fn blocked() -> Self {
        Self::status(403, "Forbidden: bot was blocked by the user")
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
    pub(crate) chat: Option<i64>,
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
    pub(crate) fn take(&mut self, method: &str, chat: Option<i64>, can_repeat: bool) -> Vec<Act> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let acts = self.0.iter_mut().filter_map(|rule| rule.hit(method, chat, can_repeat)).collect();
        self.0.retain(|rule| !rule.used_up());
        acts
    }
}

impl Rule {
    fn hit(&mut self, method: &str, chat: Option<i64>, can_repeat: bool) -> Option<Act> {
        let named = self.method == "*" || self.method.eq_ignore_ascii_case(method);
        let here = self.chat.is_none() || self.chat == chat;
        let early = matches!(self.act, Act::Fault(Fault::DuplicateUpdates)) && !can_repeat;
        if !named || !here || early {
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

    /// Which of eight requests are hit; even ones go to chat 2, odd ones to chat 1.
    #[track_caller]
    fn check(method: &str, chat: Option<i64>, skip: u64, left: Option<u64>, want: &[i64]) {
        let mut rules = Rules::default();
        let act = Act::Fault(Fault::Hang);
        rules.add(Rule { method: method.into(), chat, skip, left, act });
        let hit = |number: &i64| !rules.take("sendMessage", Some(2 - number % 2), true).is_empty();
        let got: Vec<i64> = (1..=8).filter(hit).collect();
        assert_eq!(got, want, "{method} {chat:?} skip {skip} left {left:?}");
    }

    #[test]
    fn rules_hit_what_they_name() {
        check("SENDmessage", None, 0, Some(1), &[1]);
        check("sendMessage", None, 2, Some(1), &[3]);
        check("sendMessage", Some(2), 1, Some(2), &[4, 6]);
        check("*", None, 6, None, &[7, 8]);
        check("editMessageText", None, 0, None, &[]);
        check("sendMessage", Some(3), 0, None, &[]);
    }

    #[test]
    fn a_repetition_waits_for_something_to_repeat() {
        let mut rules = Rules::default();
        let act = Act::Fault(Fault::DuplicateUpdates);
        rules.add(Rule { method: "getUpdates".into(), chat: None, skip: 0, left: Some(1), act });
        assert!(rules.take("getUpdates", None, false).is_empty());
        assert_eq!(rules.take("getUpdates", None, true).len(), 1);
        assert!(rules.take("getUpdates", None, true).is_empty());
    }
}
