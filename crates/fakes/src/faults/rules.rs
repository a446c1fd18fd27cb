//! Fault rules: which requests meet which fault, and how often.
//!
//! Owns the rules of one fake; `F` is its fault type, `P` its chat id. Rules apply on arrival: a request that is
//! already being served, such as a waiting long poll, does not meet a new rule. The table has its own lock, always
//! taken inside the state's lock.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::gate::{Barrier, Gate};
use super::pipeline::MatchedRules;

/// Before or after the request is processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Before,
    After,
}

#[derive(Debug, Clone)]
pub(crate) enum RuleAction<F> {
    Fault(F),
    Gate(Side, Arc<Barrier>),
}

/// Builds a rule. By default a fault applies once, and a gate stops every request.
#[derive(Debug)]
#[must_use = "a rule does nothing until `does` or `gate`"]
pub struct RuleBuilder<'a, F, P> {
    rules: &'a Rules<F, P>,
    name: String,
    chat: Option<P>,
    text: Option<TextPredicate>,
    skip: u64,
    times: Times,
}

/// Selects requests by their text.
pub type TextPredicate = fn(&str) -> bool;

#[derive(Debug)]
enum Times {
    Default,
    Exactly(u64),
    Always,
}

impl<'a, F, P> RuleBuilder<'a, F, P> {
    pub(crate) fn new(rules: &'a Rules<F, P>, name: String) -> Self {
        Self { rules, name, chat: None, text: None, skip: 0, times: Times::Default }
    }

    /// Only requests for this chat. Each fake wraps it under the term of its service.
    pub(crate) fn in_chat(mut self, chat: P) -> Self {
        self.chat = Some(chat);
        self
    }

    pub fn text_matching(mut self, text: TextPredicate) -> Self {
        self.text = Some(text);
        self
    }

    /// From the `n`th matching request on, counting from 1; only that one unless `times` or `always`.
    pub fn nth(mut self, n: u64) -> Self {
        self.skip = n.saturating_sub(1);
        if matches!(self.times, Times::Default) {
            self.times = Times::Exactly(1);
        }
        self
    }

    pub fn times(mut self, k: u64) -> Self {
        self.times = Times::Exactly(k);
        self
    }

    pub fn always(mut self) -> Self {
        self.times = Times::Always;
        self
    }

    pub fn does(self, fault: F) {
        let left = match self.times {
            Times::Default => Some(1),
            Times::Exactly(k) => Some(k),
            Times::Always => None,
        };
        self.add(left, RuleAction::Fault(fault));
    }

    #[must_use]
    pub fn gate(self, side: Side) -> Gate {
        let gate = Gate::new();
        let left = match self.times {
            Times::Default | Times::Always => None,
            Times::Exactly(k) => Some(k),
        };
        self.add(left, RuleAction::Gate(side, gate.barrier()));
        gate
    }

    fn add(self, left: Option<u64>, action: RuleAction<F>) {
        let Self { rules, name, chat, text, skip, times: _ } = self;
        rules.lock().rules.push(Rule { name, chat, text, skip, left, action });
    }
}

#[derive(Debug)]
pub(crate) struct Rules<F, P>(Mutex<Table<F, P>>);

#[derive(Debug)]
struct Table<F, P> {
    rules: Vec<Rule<F, P>>,
    faults_applied: u64,
    /// Where requests hang; replaced on release.
    hang: Arc<Barrier>,
}

#[derive(Debug)]
struct Rule<F, P> {
    /// `*` is every request.
    name: String,
    chat: Option<P>,
    text: Option<TextPredicate>,
    /// Matching requests to let pass first.
    skip: u64,
    /// `None`: always.
    left: Option<u64>,
    action: RuleAction<F>,
}

impl<F, P> Rules<F, P> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Table { rules: Vec::new(), faults_applied: 0, hang: Arc::default() }))
    }

    /// Releases the requests that hang now.
    pub(crate) fn release_hangs(&self) {
        let hang = std::mem::take(&mut self.lock().hang);
        hang.open();
    }

    /// Removes all rules and releases all hanging requests; requests at a gate wait for their gate.
    pub(crate) fn clear(&self) {
        self.lock().rules.clear();
        self.release_hangs();
    }

    pub(crate) fn faults_applied(&self) -> u64 {
        self.lock().faults_applied
    }

    fn lock(&self) -> MutexGuard<'_, Table<F, P>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: Clone, P: PartialEq> Rules<F, P> {
    /// Applies the rules to a request and drops those that are exhausted. A fault that is not `ready` waits for
    /// another request.
    pub(crate) fn apply(
        &self,
        name: &str,
        chat: Option<P>,
        text: Option<&str>,
        ready: impl Fn(&F) -> bool,
    ) -> MatchedRules<F> {
        let mut table = self.lock();
        let apply = |rule: &mut Rule<F, P>| rule.matches(name, chat.as_ref(), text, &ready);
        let actions: Vec<RuleAction<F>> = table.rules.iter_mut().filter_map(apply).collect();
        table.faults_applied +=
            actions.iter().filter(|action| matches!(action, RuleAction::Fault(_))).count() as u64;
        table.rules.retain(|rule| !rule.is_exhausted());
        MatchedRules { actions, hang: table.hang.clone() }
    }
}

impl<F: Clone, P: PartialEq> Rule<F, P> {
    fn matches(
        &mut self,
        name: &str,
        chat: Option<&P>,
        text: Option<&str>,
        ready: impl Fn(&F) -> bool,
    ) -> Option<RuleAction<F>> {
        let named = self.name == "*" || self.name.eq_ignore_ascii_case(name);
        let here = self.chat.is_none() || self.chat.as_ref() == chat;
        let early = matches!(&self.action, RuleAction::Fault(fault) if !ready(fault));
        let matches = self.text.is_none_or(|predicate| text.is_some_and(predicate));
        if !named || !here || !matches || early {
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
        Some(self.action.clone())
    }

    fn is_exhausted(&self) -> bool {
        let opened = match &self.action {
            RuleAction::Gate(_, barrier) => barrier.is_open(),
            RuleAction::Fault(_) => false,
        };
        opened || self.left == Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::{RuleBuilder, Rules};

    type Builder<'a> = RuleBuilder<'a, &'static str, u64>;

    /// Checks which of eight requests match; even ones go to chat 2, odd ones to chat 1.
    #[track_caller]
    fn check(name: &str, build: impl FnOnce(Builder<'_>) -> Builder<'_>, want: &[u64]) {
        let rules = Rules::new();
        build(RuleBuilder::new(&rules, name.to_owned())).does("fault");
        let apply = |number: u64| {
            let text = format!("text {number}");
            rules.apply("sendMessage", Some(2 - number % 2), Some(&text), |_| true)
        };
        let hit = |number: &u64| !apply(*number).actions.is_empty();
        let got: Vec<u64> = (1..=8).filter(hit).collect();
        assert_eq!((got.as_slice(), rules.faults_applied()), (want, want.len() as u64), "{name}");
    }

    #[test]
    fn rules_match_the_requests_they_name() {
        check("SENDmessage", |when| when, &[1]);
        check("sendMessage", |when| when.nth(3), &[3]);
        check("sendMessage", |when| when.in_chat(2).nth(2).times(2), &[4, 6]);
        check("*", |when| when.nth(7).always(), &[7, 8]);
        check("editMessageText", |when| when.always(), &[]);
        check("sendMessage", |when| when.in_chat(3).always(), &[]);
        check("*", |when| when.text_matching(|text| text.contains('5')), &[5]);
    }

    #[test]
    fn fault_waits_until_it_is_ready() {
        let rules: Rules<_, u64> = Rules::new();
        RuleBuilder::new(&rules, "getUpdates".to_owned()).does("again");
        let hits = |ready: bool| rules.apply("getUpdates", None, None, |_| ready).actions.len();
        assert_eq!([hits(false), hits(true), hits(true)], [0, 1, 0]);
    }
}
