//! Reconnect policy: how long an adapter waits before it dials again, and when it gives the link up.
//!
//! An adapter keeps its session while it reconnects (a poll offset, a session to resume, a second socket), so its
//! own loop dials again. It reports each failure as a `Hint` and does what `Redial` decides. A link that is given up
//! ends with an error, and the supervisor's longer waits begin (`Link`).

use core::time::Duration;

use crate::backoff::{Growth, Schedule, Spread, backoff};
use crate::fault::Fault;

/// The roll for a policy without jitter.
pub const NO_JITTER: u64 = 0;

/// How an error of an adapter says to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// Dial again; a session that can be resumed is resumed.
    Resume,
    /// The session is over; the next one starts after this wait at the earliest.
    NewSession { after: Duration },
    /// Dial again after this wait at the earliest.
    RetryAfter(Duration),
    /// The peer denies a client that it accepted before: a second client, or a revoked credential.
    Denied,
    /// The adapter can remove the cause itself. Every other failure is retried at once.
    Removable,
    /// Dialling again does not help: the link ends.
    GiveUp,
}

impl From<Fault> for Hint {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Later { after: Some(after) } => Self::RetryAfter(after),
            Fault::Later { after: None } | Fault::Refused => Self::Resume,
            Fault::Fatal => Self::GiveUp,
        }
    }
}

/// How failures in a row are retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Failures in a row that are retried without a wait.
    pub immediate: u32,
    /// Waits behind those.
    pub schedule: Schedule,
    /// The number of the failure in a row that is not retried. `None`: all are.
    pub give_up_at: Option<u32>,
}

impl Pace {
    /// The wait after this many failures in a row; `None`: give up.
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

/// What a kind of link reconnects by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    pub broken: Pace,
    pub denied: Pace,
    /// A connection that stood this long resets the counts.
    pub stable: Duration,
}

impl Policy {
    /// Telegram's long poll. With a base of 5 s: 5, 10, 20, 40, 60 … s, given up at the eleventh failure; behind
    /// another poller 20, 30, 40, 50, 60 s, given up at the sixth.
    pub const fn long_poll(base: Duration) -> Self {
        let cap = base.saturating_mul(12);
        let conflict = Schedule {
            base: base.saturating_mul(4),
            growth: Growth::Add(base.saturating_mul(2)),
            cap,
            spread: Spread::None,
        };
        Self {
            broken: Pace { immediate: 0, schedule: doubling(base, cap, Spread::None), give_up_at: Some(11) },
            denied: Pace { immediate: 0, schedule: conflict, give_up_at: Some(6) },
            stable: Duration::ZERO,
        }
    }

    /// Discord's gateway. With a base of 1 s: 0, 1, 2, 4, 8 s, given up at the sixth failure.
    pub const fn resumed_socket(base: Duration) -> Self {
        Self::socket(base, 1, Duration::ZERO)
    }

    /// Slack's Socket Mode. With a base of 1 s: 1, 2, 4, 8, 16 s, given up at the sixth failure. A connection that
    /// breaks as soon as it stands does not reset the count.
    pub const fn unresumed_socket(base: Duration) -> Self {
        Self::socket(base, 0, Duration::from_secs(30))
    }

    /// The relay. Doubles from `base` to `cap`, up to half of it sooner so that gateways do not return all at once,
    /// and never gives up. A denial is retried once at once, with a fresh token.
    pub const fn relay(base: Duration, cap: Duration) -> Self {
        let schedule = doubling(base, cap, Spread::Below(500));
        Self {
            broken: Pace { immediate: 0, schedule, give_up_at: None },
            denied: Pace { immediate: 1, schedule, give_up_at: Some(2) },
            stable: Duration::from_secs(60),
        }
    }

    /// A first denial ends the link.
    pub const fn without_retry_of_denial(self) -> Self {
        Self { denied: Pace { give_up_at: Some(1), ..self.denied }, ..self }
    }

    /// The same waits without giving up.
    pub const fn without_limit(self) -> Self {
        Self { broken: Pace { give_up_at: None, ..self.broken }, ..self }
    }

    const fn socket(base: Duration, immediate: u32, stable: Duration) -> Self {
        let schedule = doubling(base, base.saturating_mul(16), Spread::None);
        let pace = Pace { immediate, schedule, give_up_at: Some(6) };
        Self { broken: pace, denied: pace, stable }
    }
}

const fn doubling(base: Duration, cap: Duration, spread: Spread) -> Schedule {
    Schedule { base, growth: Growth::Double, cap, spread }
}

/// The failures of one link since it last worked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Redial {
    policy: Policy,
    failures: u32,
    denials: u32,
}

impl Redial {
    pub const fn new(policy: Policy) -> Self {
        Self { policy, failures: 0, denials: 0 }
    }

    /// The wait before the next dial; `None`: the link is given up.
    pub fn after(&mut self, hint: Hint, roll: u64) -> Option<Duration> {
        match hint {
            Hint::Resume => self.failed(roll),
            Hint::NewSession { after } | Hint::RetryAfter(after) => {
                self.failed(roll).map(|wait| wait.max(after))
            }
            Hint::Denied => {
                self.denials = self.denials.saturating_add(1);
                self.policy.denied.wait(self.denials, roll)
            }
            Hint::Removable => {
                self.failed(roll)?;
                if !self.failures.is_multiple_of(2) {
                    return Some(Duration::ZERO);
                }
                self.policy.broken.wait(self.failures / 2, roll)
            }
            Hint::GiveUp => None,
        }
    }

    /// The link works.
    pub fn reset(&mut self) {
        (self.failures, self.denials) = (0, 0);
    }

    /// The next wait is the first again; denials stay counted.
    pub fn reset_waits(&mut self) {
        self.failures = 0;
    }

    /// A connection has stood for this long.
    pub fn stood(&mut self, span: Duration) {
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

    use Hint::{Denied, GiveUp, NewSession, Removable, Resume, RetryAfter};

    const FIVE: Duration = Duration::from_secs(5);
    const ONE: Duration = Duration::from_secs(1);
    const CAP: Duration = Duration::from_secs(30);

    /// Seconds before each next dial; `None` is the end.
    #[track_caller]
    fn check(redial: &mut Redial, hints: &[Hint], want: &[Option<u64>]) {
        let waits: Vec<_> = hints.iter().map(|hint| redial.after(*hint, 0).map(|it| it.as_secs())).collect();
        assert_eq!(waits, want, "{hints:?}");
    }

    #[test]
    fn waits_and_limits_of_each_kind_of_link() {
        let (poll, relay) = (Policy::long_poll(FIVE), Policy::relay(ONE, CAP));
        let (resumed, unresumed) = (Policy::resumed_socket(ONE), Policy::unresumed_socket(ONE));
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
            check(&mut Redial::new(policy), &hints, &want);
            check(&mut Redial::new(policy), &[GiveUp], &[None]);
        }
    }

    #[test]
    fn endless_retries_stay_at_the_cap() {
        let mut redial = Redial::new(Policy::long_poll(FIVE).without_limit());
        redial.failures = u32::MAX - 1;
        check(&mut redial, &[Resume, Resume], &[Some(60), Some(60)]);
    }

    #[test]
    fn a_named_wait_is_the_least_wait_and_counts_as_a_failure() {
        let named = |seconds| RetryAfter(Duration::from_secs(seconds));
        let fresh = |seconds| NewSession { after: Duration::from_secs(seconds) };
        let poll = || Redial::new(Policy::long_poll(FIVE));
        check(&mut poll(), &[named(33), named(33), Resume], &[Some(33), Some(33), Some(20)]);
        check(&mut poll(), &[named(1), fresh(7), fresh(11)], &[Some(5), Some(10), Some(20)]);
        let mut socket = Redial::new(Policy::resumed_socket(ONE));
        let hints = [fresh(3), fresh(0), fresh(1), named(5), Resume, named(60)];
        check(&mut socket, &hints, &[Some(3), Some(1), Some(2), Some(5), Some(8), None]);
    }

    #[test]
    fn failures_and_denials_are_counted_apart() {
        let mut poll = Redial::new(Policy::long_poll(FIVE));
        let hints = [Resume, Denied, Resume, Denied, Removable];
        check(&mut poll, &hints, &[Some(5), Some(20), Some(10), Some(30), Some(0)]);
        let mut relay = Redial::new(Policy::relay(ONE, CAP));
        check(&mut relay, &[Denied, Resume, Denied], &[Some(0), Some(1), None]);
    }

    #[test]
    fn reset_starts_both_counts_anew_and_reset_waits_only_one() {
        let mut redial = Redial::new(Policy::relay(ONE, CAP));
        check(&mut redial, &[Resume, Resume, Denied], &[Some(1), Some(2), Some(0)]);
        redial.reset_waits();
        check(&mut redial, &[Resume, Denied], &[Some(1), None]);
        redial.reset();
        check(&mut redial, &[Resume, Denied], &[Some(1), Some(0)]);
    }

    #[test]
    fn only_a_connection_that_stood_long_enough_resets() {
        for (policy, stable) in [
            (Policy::unresumed_socket(ONE), Duration::from_secs(30)),
            (Policy::relay(ONE, CAP), Duration::from_secs(60)),
        ] {
            let mut redial = Redial::new(policy);
            check(&mut redial, &[Resume, Resume], &[Some(1), Some(2)]);
            redial.stood(stable - Duration::from_millis(1));
            check(&mut redial, &[Resume], &[Some(4)]);
            redial.stood(stable);
            check(&mut redial, &[Resume], &[Some(1)]);
        }
    }

    #[test]
    fn jitter_makes_waits_of_the_relay_shorter_never_longer() {
        for roll in 0..2_000 {
            let wait = Policy::relay(ONE, CAP).broken.wait(3, roll).expect("a wait");
            assert!((Duration::from_secs(2)..=Duration::from_secs(4)).contains(&wait), "{roll}: {wait:?}");
        }
    }

    #[test]
    fn faults_are_hints() {
        for (fault, hint) in [
            (Fault::Later { after: None }, Resume),
            (Fault::Later { after: Some(FIVE) }, RetryAfter(FIVE)),
            (Fault::Refused, Resume),
            (Fault::Fatal, GiveUp),
        ] {
            assert_eq!(Hint::from(fault), hint);
        }
    }
}
