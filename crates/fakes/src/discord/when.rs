//! Writing a rule: which requests, how many of them, and what happens to them.

use super::Shared;
use super::fault::{Act, Fault, Rule, Side};
use crate::gate::Gate;

/// A rule being written. Unless told otherwise a fault strikes once, and a gate stops everybody.
#[derive(Debug)]
#[must_use = "a rule does nothing until `does` or `gate`"]
pub struct When<'a> {
    shared: &'a Shared,
    route: String,
    channel: Option<u64>,
    skip: u64,
    times: Times,
}

#[derive(Debug)]
enum Times {
    Unsaid,
    Exactly(u64),
    Always,
}

impl<'a> When<'a> {
    pub(super) fn new(shared: &'a Shared, route: String) -> Self {
        Self { shared, route, channel: None, skip: 0, times: Times::Unsaid }
    }

    /// Only requests for this channel.
    pub fn channel(mut self, channel: u64) -> Self {
        self.channel = Some(channel);
        self
    }

    /// From the `n`th matching request on, counting from 1; only that one unless `times` or `always`.
    pub fn nth(mut self, n: u64) -> Self {
        self.skip = n.saturating_sub(1);
        if matches!(self.times, Times::Unsaid) {
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

    pub fn does(self, fault: Fault) {
        let left = match self.times {
            Times::Unsaid => Some(1),
            Times::Exactly(k) => Some(k),
            Times::Always => None,
        };
        self.add(left, Act::Fault(fault));
    }

    #[must_use]
    pub fn gate(self, side: Side) -> Gate {
        let gate = Gate::new();
        let left = match self.times {
            Times::Unsaid | Times::Always => None,
            Times::Exactly(k) => Some(k),
        };
        self.add(left, Act::Gate(side, gate.door()));
        gate
    }

    fn add(self, left: Option<u64>, act: Act) {
        let Self { shared, route, channel, skip, times: _ } = self;
        shared.world.change(|world| world.rules.add(Rule { route, channel, skip, left, act }));
    }
}
