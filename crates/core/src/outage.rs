//! When the owner hears that a platform is down, and that it is back: once each, and not for every hiccup.

use core::time::Duration;

use crate::link::State;
use crate::time::Millis;

/// One platform's outage, if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Outage {
    #[default]
    None,
    /// Nobody was told yet.
    Since(Millis),
    Told(Millis),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    Down { since: Millis },
    Back { since: Millis },
}

impl Outage {
    /// The second value is to be told. `patience`: an outage shorter than this is nobody's business.
    #[must_use]
    pub fn step(self, link: &State, patience: Duration, now: Millis) -> (Self, Option<News>) {
        match (self, link) {
            (Self::None | Self::Since(_), State::Up { .. } | State::Paused) => (Self::None, None),
            (Self::Told(since), State::Up { .. }) => (Self::None, Some(News::Back { since })),
            // Whoever paused it knows.
            (Self::Told(_), State::Paused) => (Self::None, None),
            (Self::None, State::Connecting | State::Waiting { .. } | State::Fatal { .. }) => {
                (Self::Since(now), None)
            }
            (Self::Since(since), State::Connecting | State::Waiting { .. } | State::Fatal { .. }) => {
                if now.since(since) < patience {
                    return (self, None);
                }
                (Self::Told(since), Some(News::Down { since }))
            }
            (Self::Told(_), State::Connecting | State::Waiting { .. } | State::Fatal { .. }) => (self, None),
        }
    }

    /// When to look again, if nothing happens before.
    pub fn due(self, patience: Duration) -> Option<Millis> {
        match self {
            Self::Since(since) => Some(since.after(patience)),
            Self::None | Self::Told(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(180);
    const UP: State = State::Up { since: Millis(0), last_inbound: Millis(0) };

    fn broken() -> State {
        State::Waiting { until: Millis(0), slow: false, code: "c".into(), reason: "r".into() }
    }

    /// Feeds states at their seconds and tells what was told.
    #[track_caller]
    fn told(story: &[(u64, State)], want: &[Option<News>]) {
        let mut outage = Outage::default();
        for ((second, state), want) in story.iter().zip(want) {
            let (next, news) = outage.step(state, PATIENCE, Millis(second * 1000));
            assert_eq!(news, *want, "at {second} s");
            outage = next;
        }
    }

    #[test]
    fn a_short_outage_is_nobodys_business() {
        told(&[(0, UP), (10, broken()), (100, State::Connecting), (189, broken()), (190, UP)], &[None; 5]);
    }

    #[test]
    fn a_long_one_is_told_once_and_so_is_its_end() {
        let since = Millis(10_000);
        told(
            &[(0, UP), (10, broken()), (190, State::Connecting), (400, broken()), (500, UP), (501, UP)],
            &[None, None, Some(News::Down { since }), None, Some(News::Back { since }), None],
        );
    }

    #[test]
    fn what_the_operator_paused_is_no_outage() {
        told(&[(0, broken()), (180, State::Paused), (400, UP)], &[None; 3]);
        let down = News::Down { since: Millis(0) };
        told(
            &[(0, broken()), (180, broken()), (181, State::Paused), (400, UP)],
            &[None, Some(down), None, None],
        );
    }

    #[test]
    fn it_says_when_to_look_again() {
        let (outage, _) = Outage::default().step(&broken(), PATIENCE, Millis(1_000));
        assert_eq!(outage.due(PATIENCE), Some(Millis(181_000)));
        assert_eq!(outage.step(&broken(), PATIENCE, Millis(181_000)).0.due(PATIENCE), None);
    }
}
