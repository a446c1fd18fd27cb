//! What is due now, and what becomes of what nobody was there for.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use jiff::tz::TimeZone;

use super::schedule::Schedule;
use crate::Millis;

/// What happens to runs whose time passed while nobody was there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Missed {
    /// One run makes up for all of them, if the last one is not too long ago.
    #[default]
    Once,
    /// None is made up for.
    Skip,
    /// Each is, if it is not too long ago.
    All,
}

impl Missed {
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
pub struct Terms {
    pub missed: Missed,
    /// How long ago is too long ago.
    pub grace: Duration,
}

/// What is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Oldest first.
    pub run: Vec<Millis>,
    /// How many more there were.
    pub skipped: u32,
    /// When to look again. `None`: it is over.
    pub next: Option<Millis>,
}

/// As late as this is not missed.
const ON_TIME: Duration = Duration::from_secs(90);
/// Runs that are made up for at once.
const MOST: usize = 24;
/// Occurrences that are counted one by one; a machine that was off for longer says "at least".
const COUNTED: u32 = 1000;

/// `next`: the first occurrence that nobody has dealt with yet.
pub fn due(schedule: &Schedule, zone: &TimeZone, next: Millis, now: Millis, terms: Terms) -> Due {
    let mut passed: Vec<Millis> = Vec::new();
    let (mut at, mut count) = (Some(next), 0u32);
    while let Some(moment) = at.filter(|moment| *moment <= now && count < COUNTED) {
        count += 1;
        passed.push(moment);
        if passed.len() > MOST {
            passed.remove(0);
        }
        at = schedule.next(moment, zone);
    }
    let late = |moment: &Millis| now.since(*moment);
    if let Some(first) = at.filter(|moment| *moment <= now) {
        // What may be made up for is at the other end.
        passed = last_ones(schedule, zone, first, now);
        at = schedule.next(now, zone);
    }
    let run: Vec<Millis> = match terms.missed {
        Missed::Once => {
            passed.last().filter(|last| late(last) <= terms.grace.max(ON_TIME)).copied().into_iter().collect()
        }
        Missed::Skip => passed.last().filter(|last| late(last) <= ON_TIME).copied().into_iter().collect(),
        Missed::All => passed.into_iter().filter(|one| late(one) <= terms.grace.max(ON_TIME)).collect(),
    };
    let made_up = u32::try_from(run.len()).unwrap_or(u32::MAX);
    Due { run, skipped: count.saturating_sub(made_up), next: at }
}

/// The last moments of a span, oldest first, however many there are in it. `first` is one of them.
fn last_ones(schedule: &Schedule, zone: &TimeZone, first: Millis, until: Millis) -> Vec<Millis> {
    let mut found = VecDeque::new();
    let mut until = until;
    while found.len() < MOST && first <= until {
        let last = last_one(schedule, zone, first, until);
        found.push_front(last);
        // A clock of milliseconds: nothing lies between.
        let Some(before) = last.0.checked_sub(1) else { break };
        until = Millis(before);
    }
    found.into()
}

/// By halving: no moment lies in what is cut off.
fn last_one(schedule: &Schedule, zone: &TimeZone, first: Millis, until: Millis) -> Millis {
    let (mut last, mut end) = (first, until);
    while last < end {
        let middle = Millis(last.0 + (end.0 - last.0) / 2);
        match schedule.next(middle, zone).filter(|moment| *moment <= end) {
            Some(later) => last = later,
            None => end = middle,
        }
    }
    last
}
