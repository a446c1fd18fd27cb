//! Backfill: fetching the messages that the live stream did not deliver.
//!
//! Shared by every platform with ordered message ids and a history that can be asked for. The modules are pure: they decide
//! which range of which channel is missing (`gaps`), what the stored cursor may claim (`cursor`), how much one round of
//! requests delivers (`round`), which request is next (`schedule`), which live messages wait (`buffer`) and what is
//! reported as lost (`loss`). The adapters own the requests, the stored format and the commits.
//!
//! Invariant: **the cursor never passes an event that is not on disk.** A gap moves or closes only with the commit that
//! carries its messages. A bound that is reached merges gaps into a wider one; it never drops one.
//! A crash at any point leaves gaps that are as wide or wider, so a message is delivered again rather than never; the
//! inbox deduplicates.

pub(crate) mod buffer;
pub(crate) mod cursor;
pub(crate) mod gaps;
pub(crate) mod loss;
#[cfg(test)]
mod model_tests;
pub(crate) mod round;
pub(crate) mod schedule;

/// Orders the messages of a channel.
pub(crate) trait MessageId: Copy + Ord {
    /// The largest id that is smaller.
    fn previous(self) -> Self;
}

impl MessageId for u64 {
    fn previous(self) -> Self {
        self.saturating_sub(1)
    }
}
