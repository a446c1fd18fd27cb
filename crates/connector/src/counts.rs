//! What befell an instance since its task began, for onlookers.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Sockets that may be superseded within a minute before it is worth a word.
const MOST_TAKEN_OVER: usize = 3;
const MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// Sockets that a newer one took the place of.
    pub(crate) superseded: u64,
    /// What was put aside instead of being delivered.
    pub(crate) put_aside: u64,
    /// When sockets were superseded, of late.
    of_late: VecDeque<Instant>,
}

impl Counts {
    /// `true`: it happens too often. Two processes with one name take the socket from each other, for ever, unless
    /// somebody looks. Said once a minute.
    pub(crate) fn superseded(&mut self, now: Instant) -> bool {
        self.superseded += 1;
        while self.of_late.front().is_some_and(|at| now.duration_since(*at) > MINUTE) {
            self.of_late.pop_front();
        }
        self.of_late.push_back(now);
        let often = self.of_late.len() > MOST_TAKEN_OVER;
        if often {
            self.of_late.clear();
        }
        often
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_that_take_over_from_each_other_are_noticed_and_others_are_not() {
        let start = Instant::now();
        let mut counts = Counts::default();
        let mut often = |seconds: &[u64]| {
            let at = |second: &u64| counts.superseded(start + Duration::from_secs(*second));
            seconds.iter().map(at).collect::<Vec<_>>()
        };
        assert_eq!(often(&[0, 30, 59, 61, 91, 121]), [false; 6], "now and then");
        assert_eq!(often(&[200, 201, 202, 203, 204]), [false, false, false, true, false]);
        assert_eq!(counts.superseded, 11);
    }
}
