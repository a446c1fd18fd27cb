//! Due runs, and the policy for runs that were missed.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use jiff::tz::TimeZone;

use super::schedule::Schedule;
use crate::Millis;

/// Which missed runs are caught up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissedRunMode {
    /// The latest one, if it is within the grace period.
    #[default]
    Once,
    Skip,
    /// Each one within the grace period.
    All,
}

impl MissedRunMode {
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "once" => Some(Self::Once),
            "skip" => Some(Self::Skip),
            "all" => Some(Self::All),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CatchUpPolicy {
    pub missed: MissedRunMode,
    /// Older runs are skipped.
    pub grace: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueRuns {
    /// Runs to start, oldest first.
    pub run: Vec<Millis>,
    /// Number of runs that passed and are not started.
    pub skipped: u32,
    /// The next occurrence. `None`: the schedule is over.
    pub next: Option<Millis>,
}

/// A run that is at most this late is not missed.
const ON_TIME: Duration = Duration::from_secs(90);
const MAX_CAUGHT_UP: usize = 24;
/// Maximum number of occurrences counted; after that, `skipped` is a lower bound.
const MAX_COUNTED: u32 = 1000;

/// `next`: the first occurrence that is not handled yet.
pub fn due_runs(
    schedule: &Schedule,
    zone: &TimeZone,
    next: Millis,
    now: Millis,
    policy: CatchUpPolicy,
) -> DueRuns {
    let mut passed: Vec<Millis> = Vec::new();
    let mut at = Some(next);
    let mut count = 0u32;
    while let Some(moment) = at.filter(|moment| *moment <= now && count < MAX_COUNTED) {
        count += 1;
        passed.push(moment);
        if passed.len() > MAX_CAUGHT_UP {
            passed.remove(0);
        }
        at = schedule.next(moment, zone);
    }
    let late = |moment: &Millis| now.since(*moment);
    if let Some(first) = at.filter(|moment| *moment <= now) {
        // Only the last occurrences can be caught up.
        passed = last_occurrences(schedule, zone, first, now);
        at = schedule.next(now, zone);
    }
    let run: Vec<Millis> = match policy.missed {
        MissedRunMode::Once => passed
            .last()
            .filter(|last| late(last) <= policy.grace.max(ON_TIME))
            .copied()
            .into_iter()
            .collect(),
        MissedRunMode::Skip => {
            passed.last().filter(|last| late(last) <= ON_TIME).copied().into_iter().collect()
        }
        MissedRunMode::All => {
            passed.into_iter().filter(|one| late(one) <= policy.grace.max(ON_TIME)).collect()
        }
    };
    let caught_up = u32::try_from(run.len()).unwrap_or(u32::MAX);
    DueRuns { run, skipped: count.saturating_sub(caught_up), next: at }
}

/// The last occurrences of a span, oldest first. `first` is one of them.
fn last_occurrences(schedule: &Schedule, zone: &TimeZone, first: Millis, until: Millis) -> Vec<Millis> {
    let mut found = VecDeque::new();
    let mut until = until;
    while found.len() < MAX_CAUGHT_UP && first <= until {
        let last = last_occurrence(schedule, zone, first, until);
        found.push_front(last);
        let Some(before) = last.0.checked_sub(1) else { break };
        until = Millis(before);
    }
    found.into()
}

/// Bisects: no occurrence lies in a discarded half.
fn last_occurrence(schedule: &Schedule, zone: &TimeZone, first: Millis, until: Millis) -> Millis {
    let mut last = first;
    let mut end = until;
    while last < end {
        let middle = Millis(last.0 + (end.0 - last.0) / 2);
        match schedule.next(middle, zone).filter(|moment| *moment <= end) {
            Some(later) => last = later,
            None => end = middle,
        }
    }
    last
}
