//! Compaction: older messages of a transcript are replaced by a summary.
//!
//! Nothing is deleted: replaced rows are hidden from the model and stay in the transcript. A compaction is one transaction,
//! so a crash before it changes nothing.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::RowId;
use crate::time::Millis;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Compaction {
    /// Tool results whose text is removed for the model.
    pub emptied: Vec<RowId>,
    pub replaced: Option<ReplacedRows>,
    #[serde(rename = "pace")]
    pub throttle: CompactionThrottle,
    /// Estimated prompt tokens up to the newest assistant row; `None`: unchanged.
    pub prompt: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplacedRows {
    /// All rows up to this one are hidden, including an earlier summary,
    pub through: RowId,
    /// except these.
    pub keep: Vec<RowId>,
    /// The hidden row whose position the summary takes.
    #[serde(rename = "place")]
    pub position: RowId,
    pub summary: String,
}

/// The history of a session's compactions, stored with it, and the resulting limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CompactionThrottle {
    /// No automatic compaction before this time.
    #[serde(default)]
    pub not_before: Millis,
    #[serde(default)]
    pub ineffective: u32,
    /// Consecutive summaries that timed out.
    #[serde(default)]
    pub timeouts: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassResult {
    Effective,
    Ineffective,
    TimedOut,
    Failed,
}

/// Consecutive compactions without effect before automatic ones stop.
const MAX_INEFFECTIVE: u32 = 2;
const AFTER_FAILURE: Duration = Duration::from_secs(600);
const AFTER_TIMEOUTS: [Duration; 3] =
    [Duration::from_secs(60), Duration::from_secs(300), Duration::from_secs(900)];

impl CompactionThrottle {
    pub fn allows(&self, now: Millis) -> bool {
        self.ineffective < MAX_INEFFECTIVE && now >= self.not_before
    }

    /// Whether a requested compaction is allowed.
    pub fn allows_request(&self, now: Millis) -> bool {
        now >= self.not_before
    }

    pub fn after(self, pass: PassResult, now: Millis) -> Self {
        match pass {
            PassResult::Effective => Self::default(),
            PassResult::Ineffective => {
                Self { ineffective: self.ineffective.saturating_add(1), ..Self::default() }
            }
            PassResult::TimedOut => {
                let index =
                    usize::try_from(self.timeouts).unwrap_or(usize::MAX).min(AFTER_TIMEOUTS.len() - 1);
                let timeouts = self.timeouts.saturating_add(1);
                Self { not_before: now.after(AFTER_TIMEOUTS[index]), timeouts, ..self }
            }
            PassResult::Failed => Self { not_before: now.after(AFTER_FAILURE), ..self },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Millis = Millis(1_000_000);

    #[test]
    fn stops_after_two_ineffective_compactions() {
        let once = CompactionThrottle::default().after(PassResult::Ineffective, NOW);
        assert!(once.allows(NOW));
        assert!(!once.after(PassResult::Ineffective, NOW).allows(NOW));
        assert!(once.after(PassResult::Effective, NOW).after(PassResult::Ineffective, NOW).allows(NOW));
    }

    #[test]
    fn waits_after_failures_and_longer_after_timeouts() {
        let failed = CompactionThrottle::default().after(PassResult::Failed, NOW);
        assert!(!failed.allows(NOW.after(Duration::from_secs(599))));
        assert!(failed.allows(NOW.after(Duration::from_secs(600))));
        assert!(!failed.allows_request(NOW.after(Duration::from_secs(599))));
        assert!(failed.allows_request(NOW.after(Duration::from_secs(600))));
        let mut throttle = CompactionThrottle::default();
        for seconds in [60, 300, 900, 900] {
            throttle = throttle.after(PassResult::TimedOut, NOW);
            assert_eq!(throttle.not_before, NOW.after(Duration::from_secs(seconds)));
        }
    }
}
