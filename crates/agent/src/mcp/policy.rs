//! When a server is tried again, and when it is left alone. Pure: time comes in.

use std::time::{Duration, Instant};

/// Attempts in a row before a server is only tried now and then.
const TRIES: u32 = 5;
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
const PARKED: Duration = Duration::from_secs(300);
/// Failed calls in a row after which none is made for a while.
const FAILURES: u32 = 3;
const REST: Duration = Duration::from_secs(60);

/// A connection that stayed this long was a good one.
pub(super) const STEADY: Duration = Duration::from_secs(60);

/// How long to wait after this many failed attempts in a row.
pub(super) fn pause(failed: u32) -> Duration {
    if failed > TRIES {
        return PARKED;
    }
    LONGEST.min(FIRST * 2u32.saturating_pow(failed.saturating_sub(1)))
}

pub(super) fn is_parked(failed: u32) -> bool {
    failed > TRIES
}

/// Keeps calls away from a server that fails them.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    failed: u32,
    until: Option<Instant>,
}

impl Breaker {
    /// How long the server is still left alone; `None`: it may be called.
    pub(super) fn resting(&self, now: Instant) -> Option<Duration> {
        self.until.and_then(|until| until.checked_duration_since(now)).filter(|left| !left.is_zero())
    }

    pub(super) fn succeeded(&mut self) {
        *self = Self::default();
    }

    pub(super) fn failed(&mut self, now: Instant) {
        self.failed += 1;
        if self.failed >= FAILURES {
            // One more try after the rest; if it fails as well, the rest begins anew.
            self.until = Some(now + REST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_tried_five_times_with_growing_waits_and_then_now_and_then() {
        let waits: Vec<_> = (1..=8).map(|failed| pause(failed).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 300, 300, 300]);
        assert!(!is_parked(5) && is_parked(6));
    }

    #[test]
    fn three_failed_calls_in_a_row_give_a_minute_of_rest() {
        let (mut breaker, now) = (Breaker::default(), Instant::now());
        breaker.failed(now);
        breaker.failed(now);
        breaker.succeeded();
        breaker.failed(now);
        breaker.failed(now);
        assert_eq!(breaker.resting(now), None);
        breaker.failed(now);
        assert_eq!(breaker.resting(now), Some(REST));
        let later = now + REST;
        assert_eq!(breaker.resting(later), None);
        breaker.failed(later);
        assert_eq!(breaker.resting(later), Some(REST), "the one try failed, too");
    }
}
