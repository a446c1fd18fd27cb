//! Outage notices to the owner: one when a platform has been down for the grace period, one when it is back.
//!
//! Home chats are indexes into the configuration. A home that is unreachable is notified as soon as it is reachable, if
//! the outage still lasts.

use alloc::vec::Vec;
use core::time::Duration;

use crate::link::Availability;
use crate::time::Millis;

/// One platform's outage, if there is one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outage {
    since: Option<Millis>,
    announced: bool,
    notified: Vec<usize>,
}

/// A notice for the homes in `to`. An empty `to` is only logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutageNotice {
    Down { since: Millis, to: Vec<usize> },
    Recovered { since: Millis, to: Vec<usize> },
}

impl Outage {
    /// `reachable`: homes on connected platforms. `grace`: shorter outages are not reported.
    #[must_use]
    pub fn step(
        self,
        link: Availability,
        reachable: &[usize],
        grace: Duration,
        now: Millis,
    ) -> (Self, Option<OutageNotice>) {
        match link {
            Availability::Paused => (Self::default(), None),
            Availability::Up => (Self::default(), self.back(reachable)),
            Availability::Down => self.down(reachable, grace, now),
        }
    }

    /// The next time to call `step` if no event comes before.
    pub fn due(&self, grace: Duration) -> Option<Millis> {
        self.since.filter(|_| !self.announced).map(|since| since.after(grace))
    }

    fn back(self, reachable: &[usize]) -> Option<OutageNotice> {
        let since = self.since.filter(|_| self.announced)?;
        let mut to = self.notified;
        to.extend(missing(reachable, &to));
        Some(OutageNotice::Recovered { since, to })
    }

    fn down(mut self, reachable: &[usize], grace: Duration, now: Millis) -> (Self, Option<OutageNotice>) {
        let since = *self.since.get_or_insert(now);
        if now.since(since) < grace {
            return (self, None);
        }
        let to = missing(reachable, &self.notified);
        if self.announced && to.is_empty() {
            return (self, None);
        }
        self.announced = true;
        self.notified.extend(&to);
        (self, Some(OutageNotice::Down { since, to }))
    }
}

fn missing(wanted: &[usize], known: &[usize]) -> Vec<usize> {
    wanted.iter().filter(|home| !known.contains(home)).copied().collect()
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use Availability::{Down, Paused, Up};

    const GRACE: Duration = Duration::from_secs(180);
    const SINCE: Millis = Millis(10_000);

    fn down(to: &[usize]) -> Option<OutageNotice> {
        Some(OutageNotice::Down { since: SINCE, to: to.to_vec() })
    }

    fn back(to: &[usize]) -> Option<OutageNotice> {
        Some(OutageNotice::Recovered { since: SINCE, to: to.to_vec() })
    }

    /// Each row: second, availability of the link, reachable homes, expected notice.
    #[track_caller]
    fn check(rows: &[(u64, Availability, &[usize], Option<OutageNotice>)]) {
        let mut outage = Outage::default();
        for (second, link, reachable, want) in rows {
            let (next, news) = outage.step(*link, reachable, GRACE, Millis(second * 1000));
            assert_eq!(news, *want, "at {second} s");
            outage = next;
        }
    }

    #[test]
    fn ignores_outages_shorter_than_the_grace_period() {
        check(&[(0, Up, &[0], None), (10, Down, &[0], None), (189, Down, &[0], None), (189, Up, &[0], None)]);
    }

    #[test]
    fn reports_a_long_outage_and_its_end_once() {
        check(&[
            (0, Up, &[0, 1], None),
            (10, Down, &[1], None),
            (190, Down, &[1], down(&[1])),
            (400, Down, &[1], None),
            (500, Up, &[0, 1], back(&[1, 0])),
            (501, Up, &[0, 1], None),
        ]);
    }

    #[test]
    fn notifies_a_home_once_it_is_reachable() {
        check(&[
            (10, Down, &[], None),
            (190, Down, &[], down(&[])),
            (600, Down, &[1], down(&[1])),
            (601, Down, &[1, 2], down(&[2])),
            (700, Up, &[0, 2], back(&[1, 2, 0])),
        ]);
    }

    #[test]
    fn reports_a_total_outage_when_it_is_over() {
        check(&[(10, Down, &[], None), (190, Down, &[], down(&[])), (500, Up, &[0], back(&[0]))]);
    }

    #[test]
    fn ignores_links_paused_by_the_operator() {
        check(&[(10, Down, &[0], None), (180, Paused, &[0], None), (400, Up, &[0], None)]);
        check(&[
            (10, Down, &[0], None),
            (190, Down, &[0], down(&[0])),
            (191, Paused, &[0], None),
            (400, Up, &[0], None),
        ]);
    }

    #[test]
    fn is_due_at_the_end_of_the_grace_period() {
        let (outage, _) = Outage::default().step(Down, &[], GRACE, Millis(1_000));
        assert_eq!(outage.due(GRACE), Some(Millis(181_000)));
        let (outage, news) = outage.step(Down, &[], GRACE, Millis(181_000));
        assert_eq!(news, Some(OutageNotice::Down { since: Millis(1_000), to: vec![] }));
        assert_eq!(outage.due(GRACE), None);
    }
}
