//! Backfill: fetching the messages that the live stream did not deliver.
//!
//! For platforms with ordered message ids and a readable history. The modules are pure: `gaps` (missing
//! ranges), `cursor` (what may be stored), `round` (what one round delivers), `schedule` (the next request),
//! `buffer` (live messages that wait) and `loss` (what is reported as lost). The adapters own the requests,
//! the stored format and the commits.
//!
//! Invariant: **the cursor never passes an event that is not on disk.** A gap moves or closes only with the
//! commit of its messages. At a bound, gaps are merged into a wider one, never dropped. A crash leaves gaps
//! as wide or wider, so messages may be delivered twice but not lost; the inbox deduplicates.

pub(crate) mod buffer;
pub(crate) mod cursor;
pub(crate) mod gaps;
pub(crate) mod loss;
#[cfg(test)]
mod model_tests;
pub(crate) mod round;
pub(crate) mod schedule;

pub(crate) trait MessageId: Copy + Ord {
    /// The next smaller id.
    fn previous(self) -> Self;
}

impl MessageId for u64 {
    fn previous(self) -> Self {
        self.saturating_sub(1)
    }
}
