//! Decides what follows a failed call. Pure: jitter is an argument.

use std::time::Duration;

use petasos_core::backoff::{MODEL, MODEL_MALFORMED, Schedule, backoff};

use crate::model::failure::ModelFailureClass;

const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);
/// Consecutive timeouts after which retries stop.
const MAX_TIMEOUTS: u32 = 5;

/// Attempts so far, including the failed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attempts {
    /// Failed calls to this model for this request; at least 1.
    pub(crate) failed: u32,
    pub(crate) retries: u32,
    /// Consecutive timeouts, over several requests.
    pub(crate) timeouts: u32,
    pub(crate) fallback: bool,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) base: Duration,
    /// Jitter, 0 to 1000: adds up to half of the wait.
    pub(crate) jitter: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryStep {
    Retry(Duration),
    Fallback,
    GiveUp,
}

pub(crate) fn next_step(attempts: &Attempts, class: ModelFailureClass) -> RetryStep {
    let otherwise = if attempts.fallback { RetryStep::Fallback } else { RetryStep::GiveUp };
    let retries = attempts.retries;
    let (limit, wait) = match class {
        ModelFailureClass::Auth
        | ModelFailureClass::Billing
        | ModelFailureClass::Tls
        | ModelFailureClass::ContextOverflow
        | ModelFailureClass::PayloadTooLarge
        | ModelFailureClass::OutputLimit
        | ModelFailureClass::ModelNotFound
        | ModelFailureClass::Refused
        | ModelFailureClass::BadRequest
        | ModelFailureClass::Empty
        | ModelFailureClass::Truncated => return otherwise,
        // The fallback can answer now; this model only later.
        ModelFailureClass::RateLimit | ModelFailureClass::Malformed if attempts.fallback => return otherwise,
        ModelFailureClass::RateLimit => (retries, attempts.retry_after.map(|wait| wait.min(MAX_RETRY_AFTER))),
        ModelFailureClass::Malformed => {
            let schedule = Schedule { base: attempts.base * 5 / 2, ..MODEL_MALFORMED };
            (retries, Some(backoff(&schedule, attempts.failed, attempts.jitter)))
        }
        ModelFailureClass::Timeout if attempts.timeouts >= MAX_TIMEOUTS => return otherwise,
        ModelFailureClass::Unreachable if attempts.fallback => (retries.min(1), None),
        ModelFailureClass::StreamCut => (retries.min(2), None),
        ModelFailureClass::Overloaded => {
            (retries, attempts.retry_after.map(|wait| wait.min(MAX_RETRY_AFTER)))
        }
        ModelFailureClass::ServerError | ModelFailureClass::Timeout | ModelFailureClass::Unreachable => {
            (retries, None)
        }
    };
    if attempts.failed > limit {
        return otherwise;
    }
    let schedule = Schedule { base: attempts.base, ..MODEL };
    RetryStep::Retry(wait.unwrap_or_else(|| backoff(&schedule, attempts.failed, attempts.jitter)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALONE: Attempts = Attempts {
        failed: 1,
        retries: 3,
        timeouts: 0,
        fallback: false,
        retry_after: None,
        base: Duration::from_secs(2),
        jitter: 0,
    };
    const BACKED: Attempts = Attempts { fallback: true, ..ALONE };

    #[track_caller]
    fn check(attempts: Attempts, class: ModelFailureClass, want: RetryStep) {
        assert_eq!(next_step(&attempts, class), want, "{class:?} {attempts:?}");
    }

    fn wait(seconds: u64) -> RetryStep {
        RetryStep::Retry(Duration::from_secs(seconds))
    }

    #[test]
    fn retries_transient_failures_with_doubling_waits() {
        for class in [
            ModelFailureClass::ServerError,
            ModelFailureClass::Overloaded,
            ModelFailureClass::Timeout,
            ModelFailureClass::Unreachable,
        ] {
            check(ALONE, class, wait(2));
            check(Attempts { failed: 3, ..ALONE }, class, wait(8));
            check(Attempts { failed: 4, ..ALONE }, class, RetryStep::GiveUp);
            check(Attempts { failed: 4, ..BACKED }, class, RetryStep::Fallback);
        }
        check(Attempts { failed: 30, retries: 99, ..ALONE }, ModelFailureClass::ServerError, wait(60));
    }

    #[test]
    fn jitter_adds_at_most_half() {
        check(Attempts { jitter: 1000, ..ALONE }, ModelFailureClass::ServerError, wait(3));
    }

    #[test]
    fn rate_limit_uses_fallback_or_waits_as_requested() {
        check(BACKED, ModelFailureClass::RateLimit, RetryStep::Fallback);
        check(ALONE, ModelFailureClass::RateLimit, wait(2));
        let after =
            |seconds| Attempts { retry_after: Some(Duration::from_secs(seconds)), jitter: 700, ..ALONE };
        check(after(17), ModelFailureClass::RateLimit, wait(17));
        check(after(9999), ModelFailureClass::RateLimit, wait(600));
        check(Attempts { failed: 4, ..after(1) }, ModelFailureClass::RateLimit, RetryStep::GiveUp);
    }

    #[test]
    fn never_retries_permanent_failures() {
        let hopeless = [
            ModelFailureClass::Auth,
            ModelFailureClass::Billing,
            ModelFailureClass::Tls,
            ModelFailureClass::ContextOverflow,
            ModelFailureClass::PayloadTooLarge,
            ModelFailureClass::OutputLimit,
            ModelFailureClass::ModelNotFound,
            ModelFailureClass::Refused,
            ModelFailureClass::BadRequest,
        ];
        for class in hopeless {
            check(ALONE, class, RetryStep::GiveUp);
            check(BACKED, class, RetryStep::Fallback);
        }
    }

    #[test]
    fn leaves_unreachable_host_after_two_attempts() {
        check(BACKED, ModelFailureClass::Unreachable, wait(2));
        check(Attempts { failed: 2, ..BACKED }, ModelFailureClass::Unreachable, RetryStep::Fallback);
    }

    #[test]
    fn malformed_and_cut_responses_have_their_own_schedule() {
        check(BACKED, ModelFailureClass::Malformed, RetryStep::Fallback);
        check(ALONE, ModelFailureClass::Malformed, wait(5));
        check(Attempts { failed: 9, retries: 9, ..ALONE }, ModelFailureClass::Malformed, wait(120));
        check(Attempts { failed: 2, ..ALONE }, ModelFailureClass::StreamCut, wait(4));
        check(Attempts { failed: 3, ..ALONE }, ModelFailureClass::StreamCut, RetryStep::GiveUp);
    }

    #[test]
    fn stops_after_five_consecutive_timeouts() {
        check(Attempts { timeouts: 4, ..ALONE }, ModelFailureClass::Timeout, wait(2));
        check(Attempts { timeouts: 5, ..ALONE }, ModelFailureClass::Timeout, RetryStep::GiveUp);
    }
}
