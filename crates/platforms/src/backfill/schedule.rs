//! Which request of a backfill is next, and when. Time is an argument.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// Longest wait for a service that named none.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Schedule<C> {
    channels: BTreeMap<C, Progress>,
    /// Failures in a row.
    failures: u32,
    wait: Duration,
}

#[derive(Debug, Default)]
struct Progress {
    /// Requests, and those that failed since the last good one.
    asked: u32,
    failed: u32,
    /// When a request last brought something.
    moved: Option<Instant>,
    /// Live messages no longer wait for older ones.
    overtaken: bool,
}

impl<C: Clone + Ord> Schedule<C> {
    pub(crate) fn new() -> Self {
        Self { channels: BTreeMap::new(), failures: 0, wait: Duration::ZERO }
    }

    /// Lower goes first: channels that failed come last, private chats come first.
    pub(crate) fn rank(&self, channel: &C, private: bool) -> (u32, bool, u32, C) {
        let (failed, asked) = self.channels.get(channel).map_or((0, 0), |it| (it.failed, it.asked));
        (failed, !private, asked, channel.clone())
    }

    pub(crate) fn asked(&mut self, channel: &C) {
        self.of(channel).asked += 1;
    }

    /// A request brought something.
    pub(crate) fn moved(&mut self, channel: &C, now: Instant) {
        let progress = self.of(channel);
        (progress.moved, progress.failed) = (Some(now), 0);
    }

    pub(crate) fn moved_at(&self, channel: &C) -> Option<Instant> {
        self.channels.get(channel)?.moved
    }

    pub(crate) fn failed(&mut self, channel: &C) {
        self.of(channel).failed += 1;
    }

    /// Defers the next request. `named`: the wait that the service asked for.
    pub(crate) fn defer(&mut self, named: Option<Duration>, base: Duration) {
        let doubled = base.saturating_mul(1 << self.failures.min(16)).min(LONGEST_WAIT.max(base));
        self.failures += 1;
        self.wait = named.unwrap_or(doubled);
    }

    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// How long the next request is deferred.
    pub(crate) fn wait(&self) -> Duration {
        self.wait
    }

    /// The same; the wait is over when the request is made.
    pub(crate) fn take_wait(&mut self) -> Duration {
        std::mem::take(&mut self.wait)
    }

    pub(crate) fn overtake(&mut self, channel: &C) {
        self.of(channel).overtaken = true;
    }

    pub(crate) fn is_overtaken(&self, channel: &C) -> bool {
        self.channels.get(channel).is_some_and(|it| it.overtaken)
    }

    pub(crate) fn forget(&mut self, channel: &C) {
        self.channels.remove(channel);
    }

    fn of(&mut self, channel: &C) -> &mut Progress {
        self.channels.entry(channel.clone()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_channels_go_last_and_private_chats_first() {
        let mut schedule = Schedule::new();
        let next = |schedule: &Schedule<u64>| {
            [10, 11, 2].into_iter().min_by_key(|channel| schedule.rank(channel, *channel < 10))
        };
        assert_eq!(next(&schedule), Some(2));
        schedule.failed(&2);
        assert_eq!(next(&schedule), Some(10));
        schedule.asked(&10);
        assert_eq!(next(&schedule), Some(11));
        schedule.moved(&2, Instant::now());
        assert_eq!(next(&schedule), Some(2));
    }

    #[test]
    fn waits_double_up_to_a_minute_unless_the_service_names_one() {
        let (mut schedule, base) = (Schedule::<u64>::new(), Duration::from_secs(1));
        for want in [1, 2, 4, 8, 16, 32, 60, 60] {
            schedule.defer(None, base);
            assert_eq!(schedule.take_wait().as_secs(), want);
        }
        schedule.defer(Some(Duration::from_secs(90)), base);
        assert_eq!((schedule.wait().as_secs(), schedule.take_wait().as_secs()), (90, 90));
        assert_eq!(schedule.wait(), Duration::ZERO);
        schedule.succeeded();
        schedule.defer(None, base);
        assert_eq!(schedule.wait(), base);
    }
}
