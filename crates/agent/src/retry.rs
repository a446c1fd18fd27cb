//! What to do after a failed call. Pure: the roll of the dice is passed in.

use std::time::Duration;

use petasos_core::backoff::{MODEL, MODEL_MALFORMED, Schedule, backoff};

use crate::failure::Class;

/// The longest wait that a server may ask of us.
const PATIENCE: Duration = Duration::from_secs(600);
/// Silent streams in a row after which we stop hoping.
const SILENCES: u32 = 5;

/// How it went so far, this failure included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempts {
    /// Failed calls to this model within this answer: at least 1.
    pub failed: u32,
    /// Repetitions allowed.
    pub retries: u32,
    /// Calls in a row, over several answers, that fell silent.
    pub silent: u32,
    /// Another model is waiting in the chain.
    pub fallback: bool,
    /// What the server asked us to wait.
    pub retry_after: Option<Duration>,
    /// First wait of the backoff.
    pub base: Duration,
    /// Chance, 0 to 1000: adds up to half of the wait.
    pub roll: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Retry(Duration),
    Fallback,
    GiveUp,
}

pub fn next_step(attempts: &Attempts, class: Class) -> Step {
    let otherwise = if attempts.fallback { Step::Fallback } else { Step::GiveUp };
    let patient = attempts.retries;
    let (limit, wait) = match class {
        Class::Auth
        | Class::Billing
        | Class::Tls
        | Class::ContextOverflow
        | Class::PayloadTooLarge
        | Class::OutputLimit
        | Class::ModelNotFound
        | Class::Refused
        | Class::BadRequest
        | Class::Empty
        | Class::Truncated => return otherwise,
        // Another model can answer now; this one only later.
        Class::RateLimit | Class::Malformed if attempts.fallback => return otherwise,
        Class::RateLimit => (patient, attempts.retry_after.map(|wait| wait.min(PATIENCE))),
        Class::Malformed => {
            let schedule = Schedule { base: attempts.base * 5 / 2, ..MODEL_MALFORMED };
            (patient, Some(backoff(&schedule, attempts.failed, attempts.roll)))
        }
        Class::Timeout if attempts.silent >= SILENCES => return otherwise,
        Class::Unreached if attempts.fallback => (patient.min(1), None),
        Class::Cut => (patient.min(2), None),
        Class::Overloaded => (patient, attempts.retry_after.map(|wait| wait.min(PATIENCE))),
        Class::ServerError | Class::Timeout | Class::Unreached => (patient, None),
    };
    if attempts.failed > limit {
        return otherwise;
    }
    let schedule = Schedule { base: attempts.base, ..MODEL };
    Step::Retry(wait.unwrap_or_else(|| backoff(&schedule, attempts.failed, attempts.roll)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Attempts = Attempts {
        failed: 1,
        retries: 3,
        silent: 0,
        fallback: false,
        retry_after: None,
        base: Duration::from_secs(2),
        roll: 0,
    };
    const BACKED: Attempts = Attempts { fallback: true, ..ALONE };

    #[track_caller]
    fn check(attempts: Attempts, class: Class, want: Step) {
        assert_eq!(next_step(&attempts, class), want, "{class:?} {attempts:?}");
    }

    fn wait(seconds: u64) -> Step {
        Step::Retry(Duration::from_secs(seconds))
    }

    #[test]
    fn passing_faults_are_retried_with_doubling_waits() {
        for class in [Class::ServerError, Class::Overloaded, Class::Timeout, Class::Unreached] {
            check(ALONE, class, wait(2));
            check(Attempts { failed: 3, ..ALONE }, class, wait(8));
            check(Attempts { failed: 4, ..ALONE }, class, Step::GiveUp);
            check(Attempts { failed: 4, ..BACKED }, class, Step::Fallback);
        }
        check(Attempts { failed: 30, retries: 99, ..ALONE }, Class::ServerError, wait(60));
    }

    #[test]
    fn jitter_adds_at_most_half() {
        check(Attempts { roll: 1000, ..ALONE }, Class::ServerError, wait(3));
    }

    #[test]
    fn a_rate_limit_goes_to_the_fallback_or_waits_as_told() {
        check(BACKED, Class::RateLimit, Step::Fallback);
        check(ALONE, Class::RateLimit, wait(2));
        let told = |seconds| Attempts { retry_after: Some(Duration::from_secs(seconds)), roll: 700, ..ALONE };
        check(told(17), Class::RateLimit, wait(17));
        check(told(9999), Class::RateLimit, wait(600));
        check(Attempts { failed: 4, ..told(1) }, Class::RateLimit, Step::GiveUp);
    }

    #[test]
    fn what_will_not_pass_is_never_retried() {
        let hopeless = [
            Class::Auth,
            Class::Billing,
            Class::Tls,
            Class::ContextOverflow,
            Class::PayloadTooLarge,
            Class::OutputLimit,
            Class::ModelNotFound,
            Class::Refused,
            Class::BadRequest,
        ];
        for class in hopeless {
            check(ALONE, class, Step::GiveUp);
            check(BACKED, class, Step::Fallback);
        }
    }

    #[test]
    fn an_unreachable_host_is_left_after_two_attempts() {
        check(BACKED, Class::Unreached, wait(2));
        check(Attempts { failed: 2, ..BACKED }, Class::Unreached, Step::Fallback);
    }

    #[test]
    fn a_malformed_body_waits_longer_and_a_cut_stream_is_asked_twice_more() {
        check(BACKED, Class::Malformed, Step::Fallback);
        check(ALONE, Class::Malformed, wait(5));
        check(Attempts { failed: 9, retries: 9, ..ALONE }, Class::Malformed, wait(120));
        check(Attempts { failed: 2, ..ALONE }, Class::Cut, wait(4));
        check(Attempts { failed: 3, ..ALONE }, Class::Cut, Step::GiveUp);
    }

    #[test]
    fn five_silent_streams_in_a_row_end_the_hope() {
        check(Attempts { silent: 4, ..ALONE }, Class::Timeout, wait(2));
        check(Attempts { silent: 5, ..ALONE }, Class::Timeout, Step::GiveUp);
    }
}
