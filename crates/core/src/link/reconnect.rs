//! Reconnect policy of adapters: how long to wait before the next dial, and when to give up.
//!
//! An adapter that keeps its session while it reconnects (a poll offset, a resumable session, a second socket) dials in
//! its own loop. It passes a `ResumeHint` for each failure to its `Reconnector`. A link that is given up ends with an
//! error, and the longer waits of `Link` begin.

use core::time::Duration;

use crate::backoff::{Growth, Jitter, Schedule, backoff};
use crate::fault::Fault;

/// The roll for a policy without jitter.
pub const NO_JITTER: u64 = 0;

/// How to continue after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumeHint {
    /// Dial again and resume the session if possible.
    Resume,
    /// The session is over; start a new one after this wait at the earliest.
    NewSession { after: Duration },
    /// Dial again after this wait at the earliest.
    RetryAfter(Duration),
    /// The peer denies a client that it accepted before: a second client or a revoked credential.
    Denied,
    /// The adapter can remove the cause itself. Every second failure is retried at once.
    Removable,
    /// Dialling again does not help: end the link.
    GiveUp,
}

impl From<Fault> for ResumeHint {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Later { after: Some(after) } => Self::RetryAfter(after),
            Fault::Later { after: None } | Fault::Refused => Self::Resume,
            Fault::Fatal => Self::GiveUp,
        }
    }
}

/// The waits after consecutive failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetrySchedule {
    /// Number of failures that are retried without a wait.
    pub immediate: u32,
    /// Waits after those.
    pub schedule: Schedule,
    /// The number of the failure that is not retried. `None`: all are.
    pub give_up_at: Option<u32>,
}

impl RetrySchedule {
    /// The wait after this many consecutive failures; `None`: give up.
    pub fn wait(&self, failures: u32, roll: u64) -> Option<Duration> {
        if self.give_up_at.is_some_and(|last| failures >= last) {
            return None;
        }
        match failures.saturating_sub(self.immediate) {
            0 => Some(Duration::ZERO),
            attempt => Some(backoff(&self.schedule, attempt, roll)),
        }
    }
}

/// The reconnect policy of one kind of link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReconnectPolicy {
    pub broken: RetrySchedule,
    pub denied: RetrySchedule,
    /// A connection that lasted this long resets the counts.
    pub stable: Duration,
}

impl ReconnectPolicy {
    /// Telegram's long poll. Base 5 s: 5, 10, 20, 40, 60 … s, given up at failure 11; against another poller 20, 30, 40,
    /// 50, 60 s, given up at failure 6.
    pub const fn long_poll(base: Duration) -> Self {
        let cap = base.saturating_mul(12);
        let conflict = Schedule {
            base: base.saturating_mul(4),
            growth: Growth::Add(base.saturating_mul(2)),
            cap,
            jitter: Jitter::None,
        };
        Self {
            broken: RetrySchedule {
                immediate: 0,
                schedule: doubling(base, cap, Jitter::None),
                give_up_at: Some(11),
            },
            denied: RetrySchedule { immediate: 0, schedule: conflict, give_up_at: Some(6) },
            stable: Duration::ZERO,
        }
    }

    /// Discord's gateway. Base 1 s: 0, 1, 2, 4, 8 s, given up at failure 6.
    pub const fn resumed_socket(base: Duration) -> Self {
        Self::socket(base, 1, Duration::ZERO)
    }

    /// Slack's Socket Mode. Base 1 s: 1, 2, 4, 8, 16 s, given up at failure 6. A connection that fails right after it
    /// came up does not reset the count.
    pub const fn unresumed_socket(base: Duration) -> Self {
        Self::socket(base, 0, Duration::from_secs(30))
    }

    /// The relay. Doubles from `base` to `cap`, minus up to half so that gateways do not return all at once, and never
    /// gives up. A denial is retried once at once, with a fresh token.
    pub const fn relay(base: Duration, cap: Duration) -> Self {
        let schedule = doubling(base, cap, Jitter::Below(500));
        Self {
            broken: RetrySchedule { immediate: 0, schedule, give_up_at: None },
            denied: RetrySchedule { immediate: 1, schedule, give_up_at: Some(2) },
            stable: Duration::from_secs(60),
        }
    }

    /// The first denial ends the link.
    pub const fn without_retry_of_denial(self) -> Self {
        Self { denied: RetrySchedule { give_up_at: Some(1), ..self.denied }, ..self }
    }

    /// The same waits without giving up.
    pub const fn without_limit(self) -> Self {
        Self { broken: RetrySchedule { give_up_at: None, ..self.broken }, ..self }
    }

    const fn socket(base: Duration, immediate: u32, stable: Duration) -> Self {
        let schedule = doubling(base, base.saturating_mul(16), Jitter::None);
        let pace = RetrySchedule { immediate, schedule, give_up_at: Some(6) };
        Self { broken: pace, denied: pace, stable }
    }
}

const fn doubling(base: Duration, cap: Duration, spread: Jitter) -> Schedule {
    Schedule { base, growth: Growth::Double, cap, jitter: spread }
}

/// Counts the failures of one link since it last worked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reconnector {
    policy: ReconnectPolicy,
    failures: u32,
    denials: u32,
}

impl Reconnector {
    pub const fn new(policy: ReconnectPolicy) -> Self {
        Self { policy, failures: 0, denials: 0 }
    }

    /// The wait before the next dial; `None`: give the link up.
    pub fn next_wait(&mut self, hint: ResumeHint, roll: u64) -> Option<Duration> {
        match hint {
            ResumeHint::Resume => self.failed(roll),
            ResumeHint::NewSession { after } | ResumeHint::RetryAfter(after) => {
                self.failed(roll).map(|wait| wait.max(after))
            }
            ResumeHint::Denied => {
                self.denials = self.denials.saturating_add(1);
                self.policy.denied.wait(self.denials, roll)
            }
            ResumeHint::Removable => {
                self.failed(roll)?;
                if !self.failures.is_multiple_of(2) {
                    return Some(Duration::ZERO);
                }
                self.policy.broken.wait(self.failures / 2, roll)
            }
            ResumeHint::GiveUp => None,
        }
    }

    /// The link works.
    pub fn reset(&mut self) {
        (self.failures, self.denials) = (0, 0);
    }

    /// Restarts the waits; denials stay counted.
    pub fn reset_waits(&mut self) {
        self.failures = 0;
    }

    /// A connection has ended after this time.
    pub fn connection_lasted(&mut self, span: Duration) {
        if span >= self.policy.stable {
            self.reset();
        }
    }

    fn failed(&mut self, roll: u64) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        self.policy.broken.wait(self.failures, roll)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    use ResumeHint::{Denied, GiveUp, NewSession, Removable, Resume, RetryAfter};

    const FIVE: Duration = Duration::from_secs(5);
    const ONE: Duration = Duration::from_secs(1);
    const CAP: Duration = Duration::from_secs(30);

    /// Expected seconds before each dial; `None`: given up.
    #[track_caller]
    fn check(reconnector: &mut Reconnector, hints: &[ResumeHint], want: &[Option<u64>]) {
        let waits: Vec<_> =
            hints.iter().map(|hint| reconnector.next_wait(*hint, 0).map(|it| it.as_secs())).collect();
        assert_eq!(waits, want, "{hints:?}");
    }

    #[test]
    fn applies_waits_and_limits_of_each_kind_of_link() {
        let poll = ReconnectPolicy::long_poll(FIVE);
        let relay = ReconnectPolicy::relay(ONE, CAP);
        let (resumed, unresumed) =
            (ReconnectPolicy::resumed_socket(ONE), ReconnectPolicy::unresumed_socket(ONE));
        for (policy, hint, want, then) in [
            (poll, Resume, &[5, 10, 20, 40, 60, 60, 60, 60, 60, 60][..], None),
            (poll, Denied, &[20, 30, 40, 50, 60], None),
            (poll, Removable, &[0, 5, 0, 10, 0, 20, 0, 40, 0, 60], None),
            (poll.without_limit(), Resume, &[5, 10, 20, 40, 60, 60, 60, 60, 60, 60, 60, 60], Some(60)),
            (resumed, Resume, &[0, 1, 2, 4, 8], None),
            (unresumed, Resume, &[1, 2, 4, 8, 16], None),
            (relay, Resume, &[1, 2, 4, 8, 16, 30, 30], Some(30)),
            (relay, Denied, &[0], None),
        ] {
            let want: Vec<_> = want.iter().map(|it| Some(*it)).chain([then]).collect();
            let hints: Vec<_> = want.iter().map(|_| hint).collect();
            check(&mut Reconnector::new(policy), &hints, &want);
            check(&mut Reconnector::new(policy), &[GiveUp], &[None]);
        }
    }

    #[test]
    fn unlimited_retries_stay_at_the_cap() {
        let mut reconnector = Reconnector::new(ReconnectPolicy::long_poll(FIVE).without_limit());
        reconnector.failures = u32::MAX - 1;
        check(&mut reconnector, &[Resume, Resume], &[Some(60), Some(60)]);
    }

    #[test]
    fn waits_at_least_as_long_as_the_platform_demands() {
        let named = |seconds| RetryAfter(Duration::from_secs(seconds));
        let fresh = |seconds| NewSession { after: Duration::from_secs(seconds) };
        let poll = || Reconnector::new(ReconnectPolicy::long_poll(FIVE));
        check(&mut poll(), &[named(33), named(33), Resume], &[Some(33), Some(33), Some(20)]);
        check(&mut poll(), &[named(1), fresh(7), fresh(11)], &[Some(5), Some(10), Some(20)]);
        let mut socket = Reconnector::new(ReconnectPolicy::resumed_socket(ONE));
        let hints = [fresh(3), fresh(0), fresh(1), named(5), Resume, named(60)];
        check(&mut socket, &hints, &[Some(3), Some(1), Some(2), Some(5), Some(8), None]);
    }

    #[test]
    fn counts_failures_and_denials_separately() {
        let mut poll = Reconnector::new(ReconnectPolicy::long_poll(FIVE));
        let hints = [Resume, Denied, Resume, Denied, Removable];
        check(&mut poll, &hints, &[Some(5), Some(20), Some(10), Some(30), Some(0)]);
        let mut relay = Reconnector::new(ReconnectPolicy::relay(ONE, CAP));
        check(&mut relay, &[Denied, Resume, Denied], &[Some(0), Some(1), None]);
    }

    #[test]
    fn reset_clears_both_counts_and_reset_waits_one() {
        let mut reconnector = Reconnector::new(ReconnectPolicy::relay(ONE, CAP));
        check(&mut reconnector, &[Resume, Resume, Denied], &[Some(1), Some(2), Some(0)]);
        reconnector.reset_waits();
        check(&mut reconnector, &[Resume, Denied], &[Some(1), None]);
        reconnector.reset();
        check(&mut reconnector, &[Resume, Denied], &[Some(1), Some(0)]);
    }

    #[test]
    fn resets_only_after_a_stable_connection() {
        for (policy, stable) in [
            (ReconnectPolicy::unresumed_socket(ONE), Duration::from_secs(30)),
            (ReconnectPolicy::relay(ONE, CAP), Duration::from_secs(60)),
        ] {
            let mut reconnector = Reconnector::new(policy);
            check(&mut reconnector, &[Resume, Resume], &[Some(1), Some(2)]);
            reconnector.connection_lasted(stable - Duration::from_millis(1));
            check(&mut reconnector, &[Resume], &[Some(4)]);
            reconnector.connection_lasted(stable);
            check(&mut reconnector, &[Resume], &[Some(1)]);
        }
    }

    #[test]
    fn jitter_only_shortens_waits_of_the_relay() {
        for roll in 0..2_000 {
            let wait = ReconnectPolicy::relay(ONE, CAP).broken.wait(3, roll).expect("a wait");
            assert!((Duration::from_secs(2)..=Duration::from_secs(4)).contains(&wait), "{roll}: {wait:?}");
        }
    }

    #[test]
    fn converts_faults_to_hints() {
        for (fault, hint) in [
            (Fault::Later { after: None }, Resume),
            (Fault::Later { after: Some(FIVE) }, RetryAfter(FIVE)),
            (Fault::Refused, Resume),
            (Fault::Fatal, GiveUp),
        ] {
            assert_eq!(ResumeHint::from(fault), hint);
        }
    }
}
