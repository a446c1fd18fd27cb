//! When a run begins, and what it did.

use petasos_core::Millis;

pub(crate) const START: Millis = Millis(1_790_000_000_000);

/// Counters of a run, to show that it did something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    pub steps: u64,
    pub commits: u64,
    /// `kill -9` and power cuts.
    pub crashes: u64,
    pub power_cuts: u64,
    /// Suspects that were held, and in the shipped gateway have been cleared.
    pub held: u64,
    pub stops: u64,
    pub faults: u64,
    /// Model calls.
    pub calls: u64,
    /// Requests that reached a chat.
    pub sends: u64,
    /// A connector let the gateway go idle; it slept.
    pub grants: u64,
    pub sleeps: u64,
    /// Commits that a full disk refused.
    pub refusals: u64,
    /// How often a clock was set.
    pub jumps: u64,
    /// Commands that a person consented to, and those that were not run.
    pub consents: u64,
    pub denials: u64,
    /// Summaries that were asked for.
    pub summaries: u64,
    /// Files that were handed out, and files that arrived in a chat.
    pub fetches: u64,
    pub files: u64,
    /// Runs of programs that have ended.
    pub runs: u64,
}

impl Figures {
    pub fn add(&mut self, one: Self) {
        self.steps += one.steps;
        self.commits += one.commits;
        self.crashes += one.crashes;
        self.power_cuts += one.power_cuts;
        self.held += one.held;
        self.stops += one.stops;
        self.faults += one.faults;
        self.calls += one.calls;
        self.sends += one.sends;
        self.grants += one.grants;
        self.sleeps += one.sleeps;
        self.refusals += one.refusals;
        self.jumps += one.jumps;
        self.consents += one.consents;
        self.denials += one.denials;
        self.summaries += one.summaries;
        self.fetches += one.fetches;
        self.files += one.files;
        self.runs += one.runs;
    }
}
