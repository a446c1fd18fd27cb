//! When the owner hears that a platform is down, and that it is back: once each, and not for every hiccup.
//!
//! Homes are the chats where the owner wants to hear of it, by their place in the configuration. One that cannot be
//! reached itself hears of an outage that still lasts when it can.

use alloc::vec::Vec;
use core::time::Duration;

use crate::link::Standing;
use crate::time::Millis;

/// One platform's outage, if there is one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outage {
    since: Option<Millis>,
    /// It has lasted long enough to be news.
    noted: bool,
    told: Vec<usize>,
}

/// What is to be told to these homes. There may be none: then it is only worth a line in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    Down { since: Millis, to: Vec<usize> },
    Back { since: Millis, to: Vec<usize> },
}

impl Outage {
    /// `reachable`: the homes on platforms that are up. `patience`: an outage shorter than this is nobody's business.
    #[must_use]
    pub fn step(
        self,
        link: Standing,
        reachable: &[usize],
        patience: Duration,
        now: Millis,
    ) -> (Self, Option<News>) {
        match link {
            // Whoever paused it knows.
            Standing::Paused => (Self::default(), None),
            Standing::Up => (Self::default(), self.back(reachable)),
            Standing::Down => self.down(reachable, patience, now),
        }
    }

    /// When to look again, if nothing happens before.
    pub fn due(&self, patience: Duration) -> Option<Millis> {
        self.since.filter(|_| !self.noted).map(|since| since.after(patience))
    }

    fn back(self, reachable: &[usize]) -> Option<News> {
        let since = self.since.filter(|_| self.noted)?;
        let mut to = self.told;
        to.extend(missing(reachable, &to));
        Some(News::Back { since, to })
    }

    fn down(mut self, reachable: &[usize], patience: Duration, now: Millis) -> (Self, Option<News>) {
        let since = *self.since.get_or_insert(now);
        if now.since(since) < patience {
            return (self, None);
        }
        let to = missing(reachable, &self.told);
        if self.noted && to.is_empty() {
            return (self, None);
        }
        self.noted = true;
        self.told.extend(&to);
        (self, Some(News::Down { since, to }))
    }
}

fn missing(wanted: &[usize], known: &[usize]) -> Vec<usize> {
    wanted.iter().filter(|home| !known.contains(home)).copied().collect()
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use Standing::{Down, Paused, Up};

    const PATIENCE: Duration = Duration::from_secs(180);
    const SINCE: Millis = Millis(10_000);

    fn down(to: &[usize]) -> Option<News> {
        Some(News::Down { since: SINCE, to: to.to_vec() })
    }

    fn back(to: &[usize]) -> Option<News> {
        Some(News::Back { since: SINCE, to: to.to_vec() })
    }

    /// Seconds, how the link stands and which homes can be reached then; and what is told.
    #[track_caller]
    fn told(story: &[(u64, Standing, &[usize], Option<News>)]) {
        let mut outage = Outage::default();
        for (second, link, reachable, want) in story {
            let (next, news) = outage.step(*link, reachable, PATIENCE, Millis(second * 1000));
            assert_eq!(news, *want, "at {second} s");
            outage = next;
        }
    }

    #[test]
    fn a_short_outage_is_nobodys_business() {
        told(&[(0, Up, &[0], None), (10, Down, &[0], None), (189, Down, &[0], None), (189, Up, &[0], None)]);
    }

    #[test]
    fn a_long_one_is_told_once_and_so_is_its_end() {
        told(&[
            (0, Up, &[0, 1], None),
            (10, Down, &[1], None),
            (190, Down, &[1], down(&[1])),
            (400, Down, &[1], None),
            (500, Up, &[0, 1], back(&[1, 0])),
            (501, Up, &[0, 1], None),
        ]);
    }

    #[test]
    fn a_home_that_comes_back_first_hears_of_the_others() {
        told(&[
            (10, Down, &[], None),
            (190, Down, &[], down(&[])),
            (600, Down, &[1], down(&[1])),
            (601, Down, &[1, 2], down(&[2])),
            (700, Up, &[0, 2], back(&[1, 2, 0])),
        ]);
    }

    #[test]
    fn an_outage_of_everything_is_told_when_it_is_over() {
        told(&[(10, Down, &[], None), (190, Down, &[], down(&[])), (500, Up, &[0], back(&[0]))]);
    }

    #[test]
    fn what_the_operator_paused_is_no_outage() {
        told(&[(10, Down, &[0], None), (180, Paused, &[0], None), (400, Up, &[0], None)]);
        told(&[
            (10, Down, &[0], None),
            (190, Down, &[0], down(&[0])),
            (191, Paused, &[0], None),
            (400, Up, &[0], None),
        ]);
    }

    #[test]
    fn it_says_when_to_look_again() {
        let (outage, _) = Outage::default().step(Down, &[], PATIENCE, Millis(1_000));
        assert_eq!(outage.due(PATIENCE), Some(Millis(181_000)));
        let (outage, news) = outage.step(Down, &[], PATIENCE, Millis(181_000));
        assert_eq!(news, Some(News::Down { since: Millis(1_000), to: vec![] }));
        assert_eq!(outage.due(PATIENCE), None);
    }
}
