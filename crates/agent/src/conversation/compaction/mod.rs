//! Conversation compaction: when to compact, which rows to replace, and the text of the summary. Pure; the
//! caller runs the model and commits the result.

mod plan;
mod summary;

pub use plan::{CompactedSize, CompactionInput, CompactionPlan, CompactionTrigger};
pub use summary::{fallback_summary, label_summary, summary_prompt};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextWindow {
    pub context: usize,
    /// Tokens reserved for the response.
    pub output: usize,
}

/// Windows of at least this size count as large.
const LARGE: usize = 512_000;
/// Conversations below this size are not compacted, if the window allows.
const SHORT: usize = 64_000;

impl ContextWindow {
    pub fn threshold(self) -> usize {
        let usable = self.context.saturating_sub(self.output);
        let share = if self.context < LARGE { usable / 100 * 75 } else { usable / 2 };
        match share.max(SHORT) {
            threshold if threshold < usable => threshold,
            _ => usable / 100 * 85,
        }
    }
}

/// Size at which a conversation is compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompactionLimits {
    pub tokens: usize,
    pub rows: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threshold_depends_on_window_size() {
        for (context, output, want) in [
            (1_000_000, 8_000, 496_000),
            (512_000, 0, 256_000),
            (200_000, 8_000, 144_000),
            (80_000, 4_000, 64_000),
            (65_000, 4_000, 51_850),
            (16_000, 4_000, 10_200),
            (0, 4_000, 0),
        ] {
            assert_eq!(ContextWindow { context, output }.threshold(), want, "{context} {output}");
        }
    }
}
