//! Heartbeat state: when the next one is due, and whether the socket still answers. Pure.

use std::time::Duration;

use tokio::time::Instant;

use crate::discord::Liveness;

#[derive(Debug)]
pub(in crate::discord) struct HeartbeatMonitor {
    interval: Duration,
    next: Instant,
    /// When the heartbeat that waits for its acknowledgement was sent.
    sent_at: Option<Instant>,
    last_ack: Instant,
    latency: Duration,
    failed_checks: u32,
}

/// The last heartbeat was not acknowledged before the next was due.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::discord) struct MissedAck;

impl HeartbeatMonitor {
    /// `share`: part of the first interval to wait, from 0 to 1, so that clients do not synchronise.
    pub(in crate::discord) fn new(now: Instant, interval: Duration, share: f64) -> Self {
        Self {
            interval,
            next: now + interval.mul_f64(share.clamp(0.0, 1.0)),
            sent_at: None,
            last_ack: now,
            latency: Duration::ZERO,
            failed_checks: 0,
        }
    }

    pub(in crate::discord) fn due(&self) -> Instant {
        self.next
    }

    pub(in crate::discord) fn beat(&mut self, now: Instant) -> Result<(), MissedAck> {
        if self.sent_at.is_some() {
            return Err(MissedAck);
        }
        (self.sent_at, self.next) = (Some(now), now + self.interval);
        Ok(())
    }

    /// The gateway may request a heartbeat at any time.
    pub(in crate::discord) fn requested(&mut self, now: Instant) {
        self.sent_at.get_or_insert(now);
    }

    pub(in crate::discord) fn acknowledged(&mut self, now: Instant) {
        if let Some(sent) = self.sent_at.take() {
            self.latency = now - sent;
        }
        self.last_ack = now;
    }

    /// Returns the age of the last acknowledgement after too many failed checks in a row.
    pub(in crate::discord) fn check(&mut self, now: Instant, limits: &Liveness) -> Option<Duration> {
        let age = now - self.last_ack;
        let latency = self.sent_at.map_or(self.latency, |sent| now - sent);
        let over = |span: Duration, limit: Duration| !limit.is_zero() && span > limit;
        if !over(age, limits.ack_age) && !over(latency, limits.latency) {
            self.failed_checks = 0;
            return None;
        }
        self.failed_checks += 1;
        (self.failed_checks >= limits.failures.max(1)).then_some(age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_runtime::clock;

    const LIMITS: Liveness = Liveness {
        interval: Duration::from_secs(15),
        failures: 2,
        ack_age: Duration::from_secs(60),
        latency: Duration::from_secs(30),
    };

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn first_heartbeat_is_due_within_the_first_interval() {
        let now = clock::monotonic();
        for (share, want) in [(0.0, 0), (0.5, 20), (1.0, 40), (7.0, 40)] {
            assert_eq!(HeartbeatMonitor::new(now, seconds(40), share).due(), now + seconds(want));
        }
    }

    #[test]
    fn fails_if_a_heartbeat_is_not_acknowledged_by_the_next() {
        let start = clock::monotonic();
        let mut heartbeat = HeartbeatMonitor::new(start, seconds(40), 0.0);
        assert_eq!(heartbeat.beat(start), Ok(()));
        heartbeat.acknowledged(start + seconds(1));
        assert_eq!(heartbeat.due(), start + seconds(40));
        assert_eq!(heartbeat.beat(start + seconds(40)), Ok(()));
        assert_eq!(heartbeat.beat(start + seconds(80)), Err(MissedAck));
    }

    #[test]
    fn fails_only_after_repeated_stale_acknowledgements() {
        let start = clock::monotonic();
        let mut heartbeat = HeartbeatMonitor::new(start, seconds(400), 1.0);
        assert_eq!(heartbeat.check(start + seconds(60), &LIMITS), None);
        assert_eq!(heartbeat.check(start + seconds(61), &LIMITS), None, "once");
        heartbeat.acknowledged(start + seconds(62));
        assert_eq!(heartbeat.check(start + seconds(63), &LIMITS), None, "well again");
        assert_eq!(heartbeat.check(start + seconds(123), &LIMITS), None);
        assert_eq!(heartbeat.check(start + seconds(138), &LIMITS), Some(seconds(76)));
    }

    #[test]
    fn checks_latency_unless_switched_off() {
        let start = clock::monotonic();
        let slow = |limits: &Liveness| {
            let mut heartbeat = HeartbeatMonitor::new(start, seconds(40), 0.0);
            heartbeat.beat(start).expect("the first");
            [31, 32].map(|at| heartbeat.check(start + seconds(at), limits).is_some())
        };
        assert_eq!(slow(&LIMITS), [false, true]);
        assert_eq!(slow(&Liveness { latency: Duration::ZERO, ..LIMITS }), [false, false]);
    }
}
