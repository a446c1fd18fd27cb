//! How long to wait after a failed or lost connection, and when to give the link up. Pure.
//!
//! With the usual base of 1 s: 1, 2, 4, 8, 16 s, and the sixth failure in a row ends the link. A connection
//! starts this anew only when it has proved itself: one that breaks as soon as it stands must not be
//! dialled in a frenzy.

use std::time::Duration;

use petasos_core::Fault;

use super::Error;

const TRIES: u32 = 5;

#[derive(Debug)]
pub(super) struct Ladder {
    base: Duration,
    failures: u32,
}

impl Ladder {
    pub(super) fn new(base: Duration) -> Self {
        Self { base, failures: 0 }
    }

    pub(super) fn proved(&mut self) {
        self.failures = 0;
    }

    /// How long to wait before the next try, or the error with which the link ends.
    pub(super) fn after(&mut self, error: Error) -> Result<Duration, Error> {
        let named = match error.fault() {
            Fault::Fatal => return Err(error),
            Fault::Later { after } => after.unwrap_or_default(),
            Fault::Refused => Duration::ZERO,
        };
        self.failures += 1;
        if self.failures > TRIES {
            return Err(Error::Unreachable(Box::new(error)));
        }
        Ok(named.max(self.base * (1 << (self.failures - 1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slack::api::Sort;

    fn lost() -> Error {
        Error::Dropped("reset".into())
    }

    #[test]
    fn waits_double_and_the_sixth_failure_is_the_end() {
        let mut ladder = Ladder::new(Duration::from_secs(1));
        let waits: Vec<u64> = (0..5).map(|_| ladder.after(lost()).expect("a wait").as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16]);
        assert_eq!(ladder.after(lost()), Err(Error::Unreachable(Box::new(lost()))));
        ladder.proved();
        assert_eq!(ladder.after(lost()), Ok(Duration::from_secs(1)));
    }

    #[test]
    fn a_named_wait_is_kept_and_a_bad_token_ends_at_once() {
        let mut ladder = Ladder::new(Duration::from_secs(1));
        let after = Some(Duration::from_secs(30));
        assert_eq!(ladder.after(Error::Limited { after }), Ok(Duration::from_secs(30)));
        let token = Error::Answered { error: "invalid_auth".into(), needed: None, token: Sort::App };
        assert_eq!(ladder.after(token.clone()), Err(token));
    }
}
