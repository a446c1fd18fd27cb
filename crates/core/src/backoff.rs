//! Exponential backoff with jitter.
//!
//! A schedule grows from `base` to `cap`. `attempt` is the number of the failed attempt, from one. `roll` is a random
//! number; only its remainder by 1001 is used.

use core::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jitter {
    None,
    /// Up to this share (per mille) shorter or longer; [`MIDDLE_ROLL`] changes nothing.
    Around(u32),
    Above(u32),
    Below(u32),
    /// Up to this much longer.
    Extra(Duration),
}

/// The roll that leaves a wait with [`Jitter::Around`] unchanged.
pub const MIDDLE_ROLL: u64 = 500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    Double,
    Add(Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    pub base: Duration,
    pub growth: Growth,
    pub cap: Duration,
    pub jitter: Jitter,
}

/// Links: 30, 60, 120, 240, then 300 s, ± 20 %.
pub const RECONNECT: Schedule = schedule(30, 300, Jitter::Around(200));
/// Messages, if the platform names no wait: 2, 4, 8 … s plus up to a second.
pub const SEND: Schedule = schedule(2, 300, Jitter::Extra(Duration::from_secs(1)));
/// Failed model calls: 2, 4, 8 … 60 s plus up to half.
pub const MODEL: Schedule = schedule(2, 60, Jitter::Above(500));
/// Malformed model answers: 5, 10, 20 … 120 s plus up to half.
pub const MODEL_MALFORMED: Schedule = schedule(5, 120, Jitter::Above(500));

const fn schedule(base: u64, cap: u64, spread: Jitter) -> Schedule {
    let base = Duration::from_secs(base);
    let cap = Duration::from_secs(cap);
    Schedule { base, growth: Growth::Double, cap, jitter: spread }
}

pub fn backoff(schedule: &Schedule, attempt: u32, roll: u64) -> Duration {
    let steps = attempt.saturating_sub(1);
    let grown = match schedule.growth {
        Growth::Double => schedule.base.saturating_mul(1 << steps.min(31)),
        Growth::Add(step) => schedule.base.saturating_add(step.saturating_mul(steps)),
    };
    let wait = grown.min(schedule.cap);
    let roll = u32::try_from(roll % 1001).unwrap_or_default();
    match schedule.jitter {
        Jitter::None => wait,
        Jitter::Around(share) => wait - share_of(wait, share) + share_of(share_of(wait, share) * 2, roll),
        Jitter::Above(share) => wait + share_of(share_of(wait, share), roll),
        Jitter::Below(share) => wait - share_of(share_of(wait, share), roll),
        Jitter::Extra(most) => wait + share_of(most, roll),
    }
}

fn share_of(span: Duration, per_mille: u32) -> Duration {
    span * per_mille / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(schedule: &Schedule, roll: u64, want_ms: &[u64]) {
        for (attempt, want) in (1..).zip(want_ms) {
            let wait = backoff(schedule, attempt, roll);
            assert_eq!(wait, Duration::from_millis(*want), "attempt {attempt}, roll {roll}");
        }
    }

    #[test]
    fn links_wait_30_to_300_seconds_with_jitter() {
        check(&RECONNECT, 500, &[30_000, 60_000, 120_000, 240_000, 300_000, 300_000]);
        check(&RECONNECT, 0, &[24_000, 48_000, 96_000, 192_000, 240_000, 240_000]);
        check(&RECONNECT, 1000, &[36_000, 72_000, 144_000, 288_000, 360_000, 360_000]);
    }

    #[test]
    fn messages_double_from_two_seconds_plus_jitter() {
        check(&SEND, 0, &[2_000, 4_000, 8_000]);
        check(&SEND, 1000, &[3_000, 5_000, 9_000]);
    }

    #[test]
    fn model_calls_double_up_to_a_minute_plus_jitter() {
        check(&MODEL, 0, &[2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
        check(&MODEL, 1000, &[3_000, 6_000, 12_000, 24_000, 48_000, 90_000]);
        check(&MODEL_MALFORMED, 0, &[5_000, 10_000, 20_000, 40_000, 80_000, 120_000]);
    }

    #[test]
    fn accepts_any_attempt_and_any_roll() {
        assert_eq!(backoff(&RECONNECT, 0, 500), Duration::from_secs(30));
        assert_eq!(backoff(&RECONNECT, u32::MAX, 500), Duration::from_secs(300));
        assert!(backoff(&MODEL, 3, u64::MAX) <= Duration::from_secs(12));
    }
}
