//! Making room in a transcript: what is hidden from the model, what stands in its place, and when to leave it be.
//!
//! Nothing is deleted: hidden rows stay where they are, and one summary row takes their place. A pass is one
//! transaction; a crash before it has changed nothing.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::RowId;
use crate::time::Millis;

/// What one pass changes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Relief {
    /// Tool results whose text the model no longer sees.
    pub emptied: Vec<RowId>,
    pub replaced: Option<Replaced>,
    /// When the next pass may come.
    pub pace: Pace,
    /// Tokens of the prompt up to the newest assistant row, as far as we can tell; `None`: unchanged.
    pub prompt: Option<u64>,
}

/// Rows that a summary stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// Everything up to this row is hidden from the model, an earlier summary included ...
    pub through: RowId,
    /// ... but for these.
    pub keep: Vec<RowId>,
    /// The hidden row in whose place the summary stands.
    pub place: RowId,
    pub summary: String,
}

/// How a conversation's passes went. Stored with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Pace {
    /// No pass of our own accord before then.
    #[serde(default)]
    pub not_before: Millis,
    /// Passes in a row that made no room.
    #[serde(default)]
    pub ineffective: u32,
    /// Summaries in a row that did not come in time.
    #[serde(default)]
    pub timeouts: u32,
}

/// How a pass went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    Effective,
    Ineffective,
    /// The summary did not come in time.
    TimedOut,
    /// It could not be had.
    Failed,
}

/// Passes in a row without effect after which we stop trying.
const INEFFECTIVE: u32 = 2;
const AFTER_FAILURE: Duration = Duration::from_secs(600);
const AFTER_TIMEOUTS: [Duration; 3] =
    [Duration::from_secs(60), Duration::from_secs(300), Duration::from_secs(900)];

impl Pace {
    /// Whether a pass may be made without being asked for.
    pub fn allows(&self, now: Millis) -> bool {
        self.ineffective < INEFFECTIVE && now >= self.not_before
    }

    /// Whether a summary may be asked for.
    pub fn rested(&self, now: Millis) -> bool {
        now >= self.not_before
    }

    pub fn after(self, pass: Pass, now: Millis) -> Self {
        match pass {
            Pass::Effective => Self::default(),
            Pass::Ineffective => Self { ineffective: self.ineffective.saturating_add(1), ..Self::default() },
            Pass::TimedOut => {
                let rung = usize::try_from(self.timeouts).unwrap_or(usize::MAX).min(AFTER_TIMEOUTS.len() - 1);
                let timeouts = self.timeouts.saturating_add(1);
                Self { not_before: now.after(AFTER_TIMEOUTS[rung]), timeouts, ..self }
            }
            Pass::Failed => Self { not_before: now.after(AFTER_FAILURE), ..self },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = Millis(1_000_000);

    #[test]
    fn two_passes_without_effect_are_enough_and_one_with_effect_forgets_them() {
        let once = Pace::default().after(Pass::Ineffective, NOW);
        assert!(once.allows(NOW));
        assert!(!once.after(Pass::Ineffective, NOW).allows(NOW));
        assert!(once.after(Pass::Effective, NOW).after(Pass::Ineffective, NOW).allows(NOW));
    }

    #[test]
    fn a_failure_rests_for_ten_minutes_and_timeouts_climb_a_ladder() {
        let failed = Pace::default().after(Pass::Failed, NOW);
        assert!(!failed.allows(NOW.after(Duration::from_secs(599))));
        assert!(failed.allows(NOW.after(Duration::from_secs(600))));
        assert!(!failed.rested(NOW.after(Duration::from_secs(599))));
        assert!(failed.rested(NOW.after(Duration::from_secs(600))));
        let mut pace = Pace::default();
        for seconds in [60, 300, 900, 900] {
            pace = pace.after(Pass::TimedOut, NOW);
            assert_eq!(pace.not_before, NOW.after(Duration::from_secs(seconds)));
        }
    }
}
