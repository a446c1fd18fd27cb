//! Suspects: turns that were executing when the process died.
//!
//! A crash counts against the suspect on trial, which was resumed alone after a pause; without one it counts against every
//! executing turn. A shared crash never raises a count to the limit at which a turn is given up, and a suspect one below the
//! limit is resumed only on trial. Waiting messages, deliveries and turns left open by a stop are never suspects.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::TurnId;

/// Uncleared suspects, stored across restarts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Suspects(BTreeMap<i64, Suspicion>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Suspicion {
    /// The wait in seconds of the last notice to the chat. `None`: no notice yet.
    #[serde(default)]
    announced: Option<u64>,
    /// Resumed alone and not yet stable.
    #[serde(default)]
    trial: bool,
}

/// The crash count after a crash that is shared by `blamed` turns or sessions. `limit`: the count at which they are given
/// up.
pub fn raised_count(crashes: u32, blamed: usize, limit: u32) -> u32 {
    let raised = crashes.saturating_add(1);
    if blamed <= 1 || raised < limit { raised } else { crashes }
}

/// Whether one more unshared crash reaches the limit.
pub fn is_last_try(crashes: u32, limit: u32) -> bool {
    crashes.saturating_add(1) >= limit
}

impl Suspects {
    /// Records a crash during these turns and returns those it counts against.
    pub fn record_crash(&mut self, executing: &[TurnId]) -> Vec<TurnId> {
        let on_trial = |turn: &&TurnId| self.0.get(&turn.0).is_some_and(|suspicion| suspicion.trial);
        let tried: Vec<_> = executing.iter().filter(on_trial).copied().collect();
        for turn in executing {
            self.0.entry(turn.0).or_default();
        }
        self.0.values_mut().for_each(|suspicion| suspicion.trial = false);
        if tried.is_empty() { executing.to_vec() } else { tried }
    }

    /// Removes turns that are no longer open.
    pub fn retain(&mut self, open: impl Fn(TurnId) -> bool) {
        self.0.retain(|turn, _| open(TurnId(*turn)));
    }

    pub fn contains(&self, turn: TurnId) -> bool {
        self.0.contains_key(&turn.0)
    }

    /// Whether to notify the chat of this wait. Later starts repeat the notice only when the wait has more than doubled.
    pub fn needs_notice(&mut self, turn: TurnId, wait: Duration) -> bool {
        let Some(suspicion) = self.0.get_mut(&turn.0) else { return false };
        let seconds = wait.as_secs();
        if suspicion.announced.is_some_and(|announced| seconds <= announced.saturating_mul(2)) {
            return false;
        }
        suspicion.announced = Some(seconds);
        true
    }

    /// Marks a resumed suspect as on trial. False: not a suspect.
    pub fn start_trial(&mut self, turn: TurnId) -> bool {
        let suspicion = self.0.get_mut(&turn.0);
        suspicion.map(|suspicion| suspicion.trial = true).is_some()
    }

    /// Clears a suspect that has run for the stable interval. False: not a suspect, or never resumed.
    pub fn clear(&mut self, turn: TurnId) -> bool {
        let tried = self.0.get(&turn.0).is_some_and(|suspicion| suspicion.trial);
        tried && self.0.remove(&turn.0).is_some()
    }
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
        assert_eq!(suspects.record_crash(&[A, B]), [A, B]);
        assert!(suspects.contains(A) && suspects.contains(B) && !suspects.contains(C));
        assert_eq!(suspects.record_crash(&[B]), [B]);
    }

    /// The counts of A, B and C after crashes in which these were executing, none of them on trial.
    #[track_caller]
    fn check_counts<const N: usize>(crashes: [&[TurnId]; N], limit: u32, want: [u32; 3]) {
        let mut suspects = Suspects::default();
        let mut counts = [0; 3];
        for executing in crashes {
            let blamed = suspects.record_crash(executing);
            for (turn, count) in [A, B, C].into_iter().zip(&mut counts) {
                if blamed.contains(&turn) {
                    *count = raised_count(*count, blamed.len(), limit);
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
        suspects.record_crash(&[A, B]);
        assert!(suspects.start_trial(A) && !suspects.start_trial(C));
        assert_eq!(suspects.record_crash(&[A, C]), [A]);
        assert!(suspects.contains(B) && suspects.contains(C));
        assert_eq!(suspects.record_crash(&[A, C]), [A, C], "a trial ends with its process");
    }

    #[test]
    fn clears_only_a_suspect_that_ran() {
        let mut suspects = Suspects::default();
        suspects.record_crash(&[A, B]);
        assert!(!suspects.clear(A) && suspects.start_trial(A) && suspects.clear(A) && !suspects.clear(A));
        assert!(!suspects.contains(A) && suspects.contains(B));
        assert_eq!(suspects.record_crash(&[A, C]), [A, C], "a cleared turn is like any other");
    }

    #[test]
    fn repeats_the_notice_only_when_the_wait_has_more_than_doubled() {
        let mut suspects = Suspects::default();
        suspects.record_crash(&[A]);
        assert!(!suspects.needs_notice(B, Duration::ZERO), "no suspect");
        let mut announced = Vec::new();
        for seconds in (10..=200).step_by(10).chain([10]) {
            suspects.record_crash(&[A]);
            if suspects.needs_notice(A, Duration::from_secs(seconds)) {
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
    fn notice_names_the_wait_and_the_stop_command() {
        for (wait, shown) in [(0, "about 1 second "), (90, "about 90 seconds")] {
            let notice = crate::notices::held_after_crashes(Duration::from_secs(wait));
            assert!(notice.contains(shown) && notice.contains("/stop"), "{notice}");
        }
    }
}
