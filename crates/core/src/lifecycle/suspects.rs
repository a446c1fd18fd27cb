//! Turns that were executing when the process died.
//!
//! All of them are suspects. Each crash is counted against the suspect on trial, which was resumed alone after a pause, if
//! there was one; otherwise against every turn that was executing. A crash that several turns share raises a count at most to
//! one below the limit at which a turn is given up; a suspect at that count is resumed only on trial. Messages that only
//! waited, deliveries and turns that a stop left open are never suspects.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::TurnId;

/// Suspects that are not cleared yet, stored across restarts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Suspects(BTreeMap<i64, Suspicion>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Suspicion {
    /// The wait in seconds that its chat was last told. `None`: it was told nothing.
    #[serde(default)]
    announced: Option<u64>,
    /// It was resumed alone and has not run for the stable interval yet.
    #[serde(default)]
    trial: bool,
}

/// The crash count of a turn or session that shares the blame for a crash with others; `blamed` counts all of them.
/// `limit`: the count at which it is given up.
pub fn raised(crashes: u32, blamed: usize, limit: u32) -> u32 {
    let raised = crashes.saturating_add(1);
    if blamed <= 1 || raised < limit { raised } else { crashes }
}

/// Whether the next crash that is counted against this turn alone gives it up.
pub fn is_last_try(crashes: u32, limit: u32) -> bool {
    crashes.saturating_add(1) >= limit
}

impl Suspects {
    /// A process died while these turns were executing. Returns those that the crash is counted against.
    pub fn crashed(&mut self, executing: &[TurnId]) -> Vec<TurnId> {
        let on_trial = |turn: &&TurnId| self.0.get(&turn.0).is_some_and(|suspicion| suspicion.trial);
        let tried: Vec<_> = executing.iter().filter(on_trial).copied().collect();
        for turn in executing {
            self.0.entry(turn.0).or_default();
        }
        self.0.values_mut().for_each(|suspicion| suspicion.trial = false);
        if tried.is_empty() { executing.to_vec() } else { tried }
    }

    /// Forgets every turn that is not among these.
    pub fn retain(&mut self, open: impl Fn(TurnId) -> bool) {
        self.0.retain(|turn, _| open(TurnId(*turn)));
    }

    pub fn contains(&self, turn: TurnId) -> bool {
        self.0.contains_key(&turn.0)
    }

    /// Whether its chat is to be notified that it waits this long after a start. Later starts repeat the notice only when the
    /// wait has more than doubled, so a chain of starts sends few of them.
    pub fn announce(&mut self, turn: TurnId, wait: Duration) -> bool {
        let Some(suspicion) = self.0.get_mut(&turn.0) else { return false };
        let seconds = wait.as_secs();
        if suspicion.announced.is_some_and(|announced| seconds <= announced.saturating_mul(2)) {
            return false;
        }
        suspicion.announced = Some(seconds);
        true
    }

    /// It runs again. False: it is no suspect.
    pub fn resumed(&mut self, turn: TurnId) -> bool {
        let suspicion = self.0.get_mut(&turn.0);
        suspicion.map(|suspicion| suspicion.trial = true).is_some()
    }

    /// It has run for the stable interval. False: it is no suspect, or never ran.
    pub fn clear(&mut self, turn: TurnId) -> bool {
        let tried = self.0.get(&turn.0).is_some_and(|suspicion| suspicion.trial);
        tried && self.0.remove(&turn.0).is_some()
    }
}

/// Tells a chat that its interrupted message waits. It names no moment: the next restart would make it wrong.
pub fn kept_notice(wait: Duration) -> String {
    format!(
        "⏸ Your message is kept. The gateway was restarted several times while working on it, so it continues by itself once \
         the gateway has run for about {} seconds without another restart. Nothing to do; /stop drops it.",
        wait.as_secs().max(1)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TurnId = TurnId(1);
    const B: TurnId = TurnId(2);
    const C: TurnId = TurnId(3);

    #[test]
    fn blames_every_executing_turn_when_none_was_on_trial() {
        let mut suspects = Suspects::default();
        assert_eq!(suspects.crashed(&[A, B]), [A, B]);
        assert!(suspects.contains(A) && suspects.contains(B) && !suspects.contains(C));
        assert_eq!(suspects.crashed(&[B]), [B]);
    }

    /// The counts of A, B and C after crashes in which these were executing, none of them on trial.
    #[track_caller]
    fn check_counts<const N: usize>(crashes: [&[TurnId]; N], limit: u32, want: [u32; 3]) {
        let mut suspects = Suspects::default();
        let mut counts = [0; 3];
        for executing in crashes {
            let blamed = suspects.crashed(executing);
            for (turn, count) in [A, B, C].into_iter().zip(&mut counts) {
                if blamed.contains(&turn) {
                    *count = raised(*count, blamed.len(), limit);
                }
            }
        }
        assert_eq!(counts, want, "{crashes:?} with limit {limit}");
    }

    #[test]
    fn shared_crashes_never_raise_a_count_to_the_limit() {
        check_counts([&[A, B]], 3, [1, 1, 0]);
        check_counts([&[A, B]; 5], 3, [2, 2, 0]);
        check_counts([&[A, B]; 5], 1, [0, 0, 0]);
        check_counts([&[A, B], &[A, C], &[A, B, C]], 3, [2, 2, 2]);
    }

    #[test]
    fn crashes_of_a_turn_that_executed_alone_reach_the_limit() {
        check_counts([&[A]; 3], 3, [3, 0, 0]);
        check_counts([&[A, B], &[A, B], &[A]], 3, [3, 2, 0]);
        check_counts([&[B], &[A, B], &[A, B], &[B]], 3, [2, 3, 0]);
    }

    #[test]
    fn last_try_is_one_below_the_limit() {
        for (crashes, limit, want) in
            [(0, 3, false), (1, 3, false), (2, 3, true), (0, 1, true), (u32::MAX, 3, true)]
        {
            assert_eq!(is_last_try(crashes, limit), want, "{crashes} of {limit}");
        }
    }

    #[test]
    fn blames_only_the_turn_on_trial_and_suspects_the_others() {
        let mut suspects = Suspects::default();
        suspects.crashed(&[A, B]);
        assert!(suspects.resumed(A) && !suspects.resumed(C));
        assert_eq!(suspects.crashed(&[A, C]), [A]);
        assert!(suspects.contains(B) && suspects.contains(C));
        assert_eq!(suspects.crashed(&[A, C]), [A, C], "a trial ends with its process");
    }

    #[test]
    fn clears_only_a_suspect_that_ran() {
        let mut suspects = Suspects::default();
        suspects.crashed(&[A, B]);
        assert!(!suspects.clear(A) && suspects.resumed(A) && suspects.clear(A) && !suspects.clear(A));
        assert!(!suspects.contains(A) && suspects.contains(B));
        assert_eq!(suspects.crashed(&[A, C]), [A, C], "a cleared turn is like any other");
    }

    #[test]
    fn repeats_the_notice_only_when_the_wait_has_more_than_doubled() {
        let mut suspects = Suspects::default();
        suspects.crashed(&[A]);
        assert!(!suspects.announce(B, Duration::ZERO), "no suspect");
        let mut announced = Vec::new();
        for seconds in (10..=200).step_by(10).chain([10]) {
            suspects.crashed(&[A]);
            if suspects.announce(A, Duration::from_secs(seconds)) {
                announced.push(seconds);
            }
            let stored = serde_json::to_string(&suspects).unwrap();
            suspects = serde_json::from_str(&stored).unwrap();
        }
        assert_eq!(announced, [10, 30, 70, 150]);
        suspects.retain(|turn| turn != A);
        assert_eq!(suspects, Suspects::default());
    }

    #[test]
    fn notice_names_the_wait_and_the_way_out() {
        for (wait, shown) in [(0, "about 1 seconds"), (90, "about 90 seconds")] {
            let notice = kept_notice(Duration::from_secs(wait));
            assert!(notice.contains(shown) && notice.contains("/stop"), "{notice}");
        }
    }
}
