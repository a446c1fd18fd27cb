//! Reconnect delays and circuit breaker of MCP servers. Pure: time is an argument.

use std::time::Duration;
use tokio::time::Instant;

/// Failed attempts after which the long interval applies.
const MAX_ATTEMPTS: u32 = 5;
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(60);
const PARKED_DELAY: Duration = Duration::from_secs(300);
/// Consecutive failed calls that open the circuit.
const MAX_FAILURES: u32 = 3;
const OPEN_FOR: Duration = Duration::from_secs(60);

/// A connection of this length resets the delay.
pub(super) const STABLE: Duration = Duration::from_secs(60);

pub(super) fn reconnect_delay(failed: u32) -> Duration {
    if failed > MAX_ATTEMPTS {
        return PARKED_DELAY;
    }
    MAX_DELAY.min(FIRST_DELAY * 2u32.saturating_pow(failed.saturating_sub(1)))
}

pub(super) fn is_parked(failed: u32) -> bool {
    failed > MAX_ATTEMPTS
}

#[derive(Debug, Default)]
pub(super) struct CircuitBreaker {
    failed: u32,
    until: Option<Instant>,
}

impl CircuitBreaker {
    /// Time until calls are allowed again; `None`: they are.
    pub(super) fn remaining(&self, now: Instant) -> Option<Duration> {
        self.until.and_then(|until| until.checked_duration_since(now)).filter(|left| !left.is_zero())
    }

    pub(super) fn succeeded(&mut self) {
        *self = Self::default();
    }

    pub(super) fn failed(&mut self, now: Instant) {
        self.failed += 1;
        if self.failed >= MAX_FAILURES {
            // After the pause one more call is allowed; if it fails, the circuit opens again.
            self.until = Some(now + OPEN_FOR);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_runtime::clock;

    #[test]
    fn reconnects_five_times_with_backoff_then_slowly() {
        let waits: Vec<_> = (1..=8).map(|failed| reconnect_delay(failed).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 300, 300, 300]);
        assert!(!is_parked(5) && is_parked(6));
    }

    #[test]
    fn opens_for_a_minute_after_three_failed_calls() {
        let mut breaker = CircuitBreaker::default();
        let now = clock::monotonic();
        breaker.failed(now);
        breaker.failed(now);
        breaker.succeeded();
        breaker.failed(now);
        breaker.failed(now);
        assert_eq!(breaker.remaining(now), None);
        breaker.failed(now);
        assert_eq!(breaker.remaining(now), Some(OPEN_FOR));
        let later = now + OPEN_FOR;
        assert_eq!(breaker.remaining(later), None);
        breaker.failed(later);
        assert_eq!(breaker.remaining(later), Some(OPEN_FOR), "the trial call failed, too");
    }
}
