//! Instants in whole milliseconds.

use core::time::Duration;

use serde::{Deserialize, Serialize};

/// A wall-clock instant: milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    /// The instant `span` later. Saturates instead of wrapping.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(millis(span)))
    }

    /// The instant `span` earlier. Saturates at the epoch.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(millis(span)))
    }

    /// Time since `earlier`; zero if it lies ahead (the clock was set back).
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measures_zero_after_the_clock_was_set_back() {
        assert_eq!(Millis(5).since(Millis(9)), Duration::ZERO);
        assert_eq!(Millis(9).since(Millis(5)), Duration::from_millis(4));
    }

    #[test]
    fn saturates_at_both_ends() {
        assert_eq!(Millis(u64::MAX).after(Duration::from_secs(1)), Millis(u64::MAX));
        assert_eq!(Millis(3).before(Duration::from_secs(1)), Millis(0));
    }
}
