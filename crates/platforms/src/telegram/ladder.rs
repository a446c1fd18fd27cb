//! How long to wait after a failed poll, and when to give the link up. Pure.
//!
//! With the usual base of 5 s: a network failure waits 5, 10, 20, 40, 60, 60 … s and ends the link at the
//! eleventh in a row; another poller waits 20, 30, 40, 50, 60 s and ends it at the sixth. Any answered
//! poll starts both anew.

use std::time::Duration;

use petasos_core::Fault;

use super::Error;

const NETWORK_TRIES: u32 = 10;
const CONFLICT_TRIES: u32 = 5;
/// The longest wait, in bases.
const CEILING: u32 = 12;

#[derive(Debug)]
pub(super) struct Ladder {
    base: Duration,
    failures: u32,
    conflicts: u32,
    refusals: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Wait { span: Duration, reason: &'static str },
    DropWebhook,
    End(Error),
}

impl Ladder {
    pub(super) fn new(base: Duration) -> Self {
        Self { base, failures: 0, conflicts: 0, refusals: 0 }
    }

    pub(super) fn answered(&mut self) {
        self.failures = 0;
        self.conflicts = 0;
    }

    pub(super) fn taken(&mut self) {
        self.refusals = 0;
    }

    /// The gateway could not keep a batch. Its own trouble is no reason to give the link up.
    pub(super) fn after_refusal(&mut self) -> Step {
        self.refusals = self.refusals.saturating_add(1);
        Step::Wait { span: self.doubled(self.refusals), reason: "telegram_not_taken" }
    }

    pub(super) fn after(&mut self, error: Error) -> Step {
        if error.fault() == Fault::Fatal {
            return Step::End(error);
        }
        if error.is_webhook_active() {
            return self.after_webhook(error);
        }
        if matches!(error, Error::Answered { code: 409, .. }) {
            return self.after_conflict(&error);
        }
        self.failures += 1;
        if self.failures > NETWORK_TRIES {
            return Step::End(Error::Unreachable(Box::new(error)));
        }
        let span = match error.fault() {
            Fault::Later { after: Some(named) } => named.max(self.doubled(self.failures)),
            Fault::Later { after: None } | Fault::Refused | Fault::Fatal => self.doubled(self.failures),
        };
        Step::Wait { span, reason: error.code() }
    }

    fn after_conflict(&mut self, error: &Error) -> Step {
        self.conflicts += 1;
        if self.conflicts > CONFLICT_TRIES {
            return Step::End(Error::Conflict);
        }
        Step::Wait { span: self.base * (2 + 2 * self.conflicts), reason: error.code() }
    }

    /// Removed at once the first time; whoever sets it again and again gets the waits of a failure.
    fn after_webhook(&mut self, error: Error) -> Step {
        self.failures += 1;
        match self.failures {
            1 => Step::DropWebhook,
            2..=NETWORK_TRIES if self.failures.is_multiple_of(2) => {
                Step::Wait { span: self.doubled(self.failures / 2), reason: error.code() }
            }
            2..=NETWORK_TRIES => Step::DropWebhook,
            _ => Step::End(Error::Unreachable(Box::new(error))),
        }
    }

    fn doubled(&self, attempt: u32) -> Duration {
        let factor = 1u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(CEILING);
        self.base * factor.clamp(1, CEILING)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Failure;

    fn answered(code: u16, description: &str) -> Error {
        Error::Answered { code, description: description.into(), retry_after: None, migrated_to: None }
    }

    fn ladder() -> Ladder {
        Ladder::new(Duration::from_secs(5))
    }

    fn seconds(step: Step) -> u64 {
        match step {
            Step::Wait { span, .. } => span.as_secs(),
            Step::DropWebhook | Step::End(_) => panic!("a wait, not {step:?}"),
        }
    }

    #[test]
    fn a_dead_network_is_tried_ten_times_and_then_given_up() {
        let mut ladder = ladder();
        let waits: Vec<u64> = (0..10).map(|_| seconds(ladder.after(answered(502, "Bad Gateway")))).collect();
        assert_eq!(waits, [5, 10, 20, 40, 60, 60, 60, 60, 60, 60]);
        let Step::End(error) = ladder.after(Failure::Lost("reset".into()).into()) else { panic!("the end") };
        assert_eq!(error.code(), "telegram_network_error");
        assert_eq!(error.fault(), Fault::Later { after: None });
    }

    #[test]
    fn another_poller_is_given_five_chances() {
        let mut ladder = ladder();
        let conflict = || answered(409, "Conflict: terminated by other getUpdates request");
        let waits: Vec<u64> = (0..5).map(|_| seconds(ladder.after(conflict()))).collect();
        assert_eq!(waits, [20, 30, 40, 50, 60]);
        assert_eq!(ladder.after(conflict()), Step::End(Error::Conflict));
    }

    #[test]
    fn an_answered_poll_starts_anew() {
        let mut ladder = ladder();
        assert_eq!(seconds(ladder.after(answered(500, "x"))), 5);
        assert_eq!(seconds(ladder.after(answered(500, "x"))), 10);
        ladder.answered();
        assert_eq!(seconds(ladder.after(answered(500, "x"))), 5);
    }

    #[test]
    fn a_named_wait_is_kept_and_a_bad_token_ends_at_once() {
        let mut ladder = ladder();
        let flood = Error::Answered {
            code: 429,
            description: "slow".into(),
            retry_after: Some(Duration::from_secs(33)),
            migrated_to: None,
        };
        assert_eq!(seconds(ladder.after(flood)), 33);
        let token = answered(401, "Unauthorized");
        assert_eq!(ladder.after(token.clone()), Step::End(token));
    }

    #[test]
    fn a_webhook_is_removed_without_waiting_but_not_in_a_frenzy() {
        let mut ladder = ladder();
        let webhook = || answered(409, "Conflict: can't use getUpdates method while webhook is active");
        assert_eq!(ladder.after(webhook()), Step::DropWebhook);
        assert_eq!(seconds(ladder.after(webhook())), 5);
        assert_eq!(ladder.after(webhook()), Step::DropWebhook);
    }

    #[test]
    fn a_gateway_in_trouble_never_ends_the_link() {
        let mut ladder = ladder();
        let waits: Vec<u64> = (0..40).map(|_| seconds(ladder.after_refusal())).collect();
        assert_eq!(waits[..5], [5, 10, 20, 40, 60]);
        assert_eq!(waits[39], 60);
    }
}
