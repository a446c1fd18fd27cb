//! The heartbeat: when the next is due, and whether the socket still answers. Pure.

use std::time::Duration;

use tokio::time::Instant;

use super::Liveness;

#[derive(Debug)]
pub(super) struct Pulse {
    interval: Duration,
    next: Instant,
    /// When the beat was sent that waits for its acknowledgement.
    waiting: Option<Instant>,
    last_ack: Instant,
    latency: Duration,
    bad_looks: u32,
}

/// The last beat was not acknowledged before the next was due: nobody is there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unanswered;

impl Pulse {
    /// `share`: how much of the first interval to wait, from 0 to 1, so that many clients do not beat as one.
    pub(super) fn new(now: Instant, interval: Duration, share: f64) -> Self {
        Self {
            interval,
            next: now + interval.mul_f64(share.clamp(0.0, 1.0)),
            waiting: None,
            last_ack: now,
            latency: Duration::ZERO,
            bad_looks: 0,
        }
    }

    pub(super) fn due(&self) -> Instant {
        self.next
    }

    pub(super) fn beat(&mut self, now: Instant) -> Result<(), Unanswered> {
        if self.waiting.is_some() {
            return Err(Unanswered);
        }
        (self.waiting, self.next) = (Some(now), now + self.interval);
        Ok(())
    }

    /// The gateway wants a beat now; that is no reason to doubt it.
    pub(super) fn asked(&mut self, now: Instant) {
        self.waiting.get_or_insert(now);
    }

    pub(super) fn acknowledged(&mut self, now: Instant) {
        if let Some(sent) = self.waiting.take() {
            self.latency = now - sent;
        }
        self.last_ack = now;
    }

    /// One look: the age of the last acknowledgement if there were too many bad looks in a row.
    pub(super) fn look(&mut self, now: Instant, limits: &Liveness) -> Option<Duration> {
        let age = now - self.last_ack;
        let latency = self.waiting.map_or(self.latency, |sent| now - sent);
        let over = |span: Duration, limit: Duration| !limit.is_zero() && span > limit;
        if !over(age, limits.ack_age) && !over(latency, limits.latency) {
            self.bad_looks = 0;
            return None;
        }
        self.bad_looks += 1;
        (self.bad_looks >= limits.failures.max(1)).then_some(age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn the_first_beat_comes_within_the_first_interval() {
        let now = Instant::now();
        for (share, want) in [(0.0, 0), (0.5, 20), (1.0, 40), (7.0, 40)] {
            assert_eq!(Pulse::new(now, seconds(40), share).due(), now + seconds(want));
        }
    }

    #[test]
    fn a_beat_that_is_not_acknowledged_by_the_next_is_the_end() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start, seconds(40), 0.0);
        assert_eq!(pulse.beat(start), Ok(()));
        pulse.acknowledged(start + seconds(1));
        assert_eq!(pulse.due(), start + seconds(40));
        assert_eq!(pulse.beat(start + seconds(40)), Ok(()));
        assert_eq!(pulse.beat(start + seconds(80)), Err(Unanswered));
    }

    #[test]
    fn an_old_acknowledgement_counts_only_when_it_stays_old() {
        let start = Instant::now();
        let mut pulse = Pulse::new(start, seconds(400), 1.0);
        assert_eq!(pulse.look(start + seconds(60), &LIMITS), None);
        assert_eq!(pulse.look(start + seconds(61), &LIMITS), None, "once");
        pulse.acknowledged(start + seconds(62));
        assert_eq!(pulse.look(start + seconds(63), &LIMITS), None, "well again");
        assert_eq!(pulse.look(start + seconds(123), &LIMITS), None);
        assert_eq!(pulse.look(start + seconds(138), &LIMITS), Some(seconds(76)));
    }

    #[test]
    fn a_slow_answer_counts_too_and_zero_switches_a_check_off() {
        let start = Instant::now();
        let slow = |limits: &Liveness| {
            let mut pulse = Pulse::new(start, seconds(40), 0.0);
            pulse.beat(start).expect("the first");
            [31, 32].map(|at| pulse.look(start + seconds(at), limits).is_some())
        };
        assert_eq!(slow(&LIMITS), [false, true]);
        assert_eq!(slow(&Liveness { latency: Duration::ZERO, ..LIMITS }), [false, false]);
    }
}
