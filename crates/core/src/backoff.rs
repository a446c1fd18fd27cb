//! How long to wait before the next try.
//!
//! A schedule grows from `base` up to `cap` and spreads the result by chance. Attempts count from one:
//! the number of the try that has just failed. A roll is any number; only its remainder by 1001 matters.

use core::time::Duration;

/// What chance does to a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    None,
    /// Up to this share (per mille) shorter or longer; a roll of 500 changes nothing.
    Around(u32),
    /// Up to this share (per mille) longer.
    Above(u32),
    /// Up to this share (per mille) shorter.
    Below(u32),
    /// Up to this much longer, however long the wait is.
    Extra(Duration),
}

/// The roll that leaves a wait `Around` as it is.
pub const EVEN: u64 = 500;

/// How a wait differs from the one before it.
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
    pub spread: Spread,
}

/// Links: 30, 60, 120, 240, then 300 s, give or take a fifth.
pub const RECONNECT: Schedule = schedule(30, 300, Spread::Around(200));
/// Messages to a platform that named no wait of its own: 2, 4, 8 … s and up to a second more.
pub const SEND: Schedule = schedule(2, 300, Spread::Extra(Duration::from_secs(1)));
/// Model calls that failed on the way: 2, 4, 8 … 60 s and up to half as much again.
pub const MODEL: Schedule = schedule(2, 60, Spread::Above(500));
/// Model answers that made no sense: 5, 10, 20 … 120 s.
pub const MODEL_MALFORMED: Schedule = schedule(5, 120, Spread::Above(500));

const fn schedule(base: u64, cap: u64, spread: Spread) -> Schedule {
    let (base, cap) = (Duration::from_secs(base), Duration::from_secs(cap));
    Schedule { base, growth: Growth::Double, cap, spread }
}

/// The wait after failed try number `attempt`.
pub fn backoff(schedule: &Schedule, attempt: u32, roll: u64) -> Duration {
    let steps = attempt.saturating_sub(1);
    let grown = match schedule.growth {
        Growth::Double => schedule.base.saturating_mul(1 << steps.min(31)),
        Growth::Add(step) => schedule.base.saturating_add(step.saturating_mul(steps)),
    };
    let wait = grown.min(schedule.cap);
    let roll = u32::try_from(roll % 1001).unwrap_or_default();
    match schedule.spread {
        Spread::None => wait,
        Spread::Around(share) => wait - share_of(wait, share) + share_of(share_of(wait, share) * 2, roll),
        Spread::Above(share) => wait + share_of(share_of(wait, share), roll),
        Spread::Below(share) => wait - share_of(share_of(wait, share), roll),
        Spread::Extra(most) => wait + share_of(most, roll),
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
    fn links_wait_from_half_a_minute_to_five_give_or_take_a_fifth() {
        check(&RECONNECT, 500, &[30_000, 60_000, 120_000, 240_000, 300_000, 300_000]);
        check(&RECONNECT, 0, &[24_000, 48_000, 96_000, 192_000, 240_000, 240_000]);
        check(&RECONNECT, 1000, &[36_000, 72_000, 144_000, 288_000, 360_000, 360_000]);
    }

    #[test]
    fn messages_double_from_two_seconds_and_add_up_to_one() {
        check(&SEND, 0, &[2_000, 4_000, 8_000]);
        check(&SEND, 1000, &[3_000, 5_000, 9_000]);
    }

    #[test]
    fn model_calls_stop_doubling_at_a_minute_and_add_up_to_half() {
        check(&MODEL, 0, &[2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
        check(&MODEL, 1000, &[3_000, 6_000, 12_000, 24_000, 48_000, 90_000]);
        check(&MODEL_MALFORMED, 0, &[5_000, 10_000, 20_000, 40_000, 80_000, 120_000]);
    }

    #[test]
    fn any_attempt_and_any_roll_are_taken() {
        assert_eq!(backoff(&RECONNECT, 0, 500), Duration::from_secs(30));
        assert_eq!(backoff(&RECONNECT, u32::MAX, 500), Duration::from_secs(300));
        assert!(backoff(&MODEL, 3, u64::MAX) <= Duration::from_secs(12));
    }
}
