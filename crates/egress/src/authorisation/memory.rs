//! Decisions that are kept in memory only.

use std::collections::{BTreeMap, VecDeque};

use crate::approver::HostDecision;
use crate::credentials::SandboxId;
use crate::policy::rule::HostRule;

/// The oldest decisions are forgotten first; a forgotten one is asked for again.
const MAX_DECISIONS: usize = 4096;
const MAX_RUNS: usize = 1024;
/// Questions that one run may cause, answered or not.
const MAX_QUESTIONS_PER_RUN: u32 = 50;

#[derive(Debug, Default)]
pub(super) struct DecisionMemory {
    decisions: BTreeMap<(DecisionReach, HostRule), HostDecision>,
    order: VecDeque<(DecisionReach, HostRule)>,
    asked: BTreeMap<SandboxId, u32>,
    runs: VecDeque<SandboxId>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum DecisionReach {
    Session(String),
    Run(SandboxId),
}

impl DecisionMemory {
    pub(super) fn decision(&self, sandbox: &SandboxId, host: &HostRule) -> Option<HostDecision> {
        let reaches =
            [DecisionReach::Session(sandbox.session().to_owned()), DecisionReach::Run(sandbox.clone())];
        reaches.into_iter().find_map(|reach| self.decisions.get(&(reach, host.clone())).copied())
    }

    pub(super) fn record(&mut self, sandbox: &SandboxId, host: &HostRule, decision: HostDecision) {
        let reach = match decision {
            HostDecision::Denied => Some(DecisionReach::Session(sandbox.session().to_owned())),
            HostDecision::Once | HostDecision::NoAnswer => Some(DecisionReach::Run(sandbox.clone())),
            // Stored by the approver.
            HostDecision::Session | HostDecision::Always => None,
            // Nothing was shown, and asking may be possible a moment later.
            HostDecision::CannotAsk => return,
        };
        self.count_question(sandbox);
        if let Some(reach) = reach {
            self.remember((reach, host.clone()), decision);
        }
    }

    pub(super) fn may_ask(&self, sandbox: &SandboxId) -> bool {
        self.asked.get(sandbox).is_none_or(|asked| *asked < MAX_QUESTIONS_PER_RUN)
    }

    fn remember(&mut self, key: (DecisionReach, HostRule), decision: HostDecision) {
        if self.decisions.insert(key.clone(), decision).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > MAX_DECISIONS
            && let Some(oldest) = self.order.pop_front()
        {
            self.decisions.remove(&oldest);
        }
    }

    fn count_question(&mut self, sandbox: &SandboxId) {
        if !self.asked.contains_key(sandbox) {
            self.runs.push_back(sandbox.clone());
        }
        let asked = self.asked.entry(sandbox.clone()).or_default();
        *asked = asked.saturating_add(1);
        if self.runs.len() > MAX_RUNS
            && let Some(oldest) = self.runs.pop_front()
        {
            self.asked.remove(&oldest);
        }
    }
}
