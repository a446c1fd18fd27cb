//! Order and timing of backfill requests. Time is an argument.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// Maximum backoff if the service names no wait.
const MAX_WAIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct RequestSchedule<C> {
    channels: BTreeMap<C, ChannelProgress>,
    /// In a row.
    failures: u32,
    /// No request begins before this time. An absolute time, so that a deferral cannot outlast itself.
    next_at: Option<Instant>,
}

#[derive(Debug, Default)]
struct ChannelProgress {
    /// `failures` counts those since the last success.
    requests: u32,
    failures: u32,
    last_progress: Option<Instant>,
    /// Live messages no longer wait for older ones.
    overtaken: bool,
}

impl<C: Clone + Ord> RequestSchedule<C> {
    pub(crate) fn new() -> Self {
        Self { channels: BTreeMap::new(), failures: 0, next_at: None }
    }

    /// Lower goes first: private chats first, failed channels last.
    pub(crate) fn rank(&self, channel: &C, private: bool) -> (u32, bool, u32, C) {
        let (failed, asked) = self.channels.get(channel).map_or((0, 0), |it| (it.failures, it.requests));
        (failed, !private, asked, channel.clone())
    }

    pub(crate) fn record_request(&mut self, channel: &C) {
        self.progress_mut(channel).requests += 1;
    }

    pub(crate) fn record_progress(&mut self, channel: &C, now: Instant) {
        let progress = self.progress_mut(channel);
        (progress.last_progress, progress.failures) = (Some(now), 0);
    }

    pub(crate) fn last_progress(&self, channel: &C) -> Option<Instant> {
        self.channels.get(channel)?.last_progress
    }

    pub(crate) fn record_failure(&mut self, channel: &C) {
        self.progress_mut(channel).failures += 1;
    }

    /// Defers the next request. `named`: the wait that the service asked for.
    pub(crate) fn defer(&mut self, named: Option<Duration>, base: Duration, now: Instant) {
        let doubled = base.saturating_mul(1 << self.failures.min(16)).min(MAX_WAIT.max(base));
        self.failures += 1;
        self.next_at = now.checked_add(named.unwrap_or(doubled));
    }

    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Time until the next request may begin.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        self.next_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now))
    }

    pub(crate) fn overtake(&mut self, channel: &C) {
        self.progress_mut(channel).overtaken = true;
    }

    pub(crate) fn is_overtaken(&self, channel: &C) -> bool {
        self.channels.get(channel).is_some_and(|it| it.overtaken)
    }

    pub(crate) fn remove(&mut self, channel: &C) {
        self.channels.remove(channel);
    }

    fn progress_mut(&mut self, channel: &C) -> &mut ChannelProgress {
        self.channels.entry(channel.clone()).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_runtime::clock;

    #[test]
    fn ranks_private_chats_first_and_failed_channels_last() {
        let mut schedule = RequestSchedule::new();
        let next = |schedule: &RequestSchedule<u64>| {
            [10, 11, 2].into_iter().min_by_key(|channel| schedule.rank(channel, *channel < 10))
        };
        assert_eq!(next(&schedule), Some(2));
        schedule.record_failure(&2);
        assert_eq!(next(&schedule), Some(10));
        schedule.record_request(&10);
        assert_eq!(next(&schedule), Some(11));
        schedule.record_progress(&2, clock::monotonic());
        assert_eq!(next(&schedule), Some(2));
    }

    #[test]
    fn backoff_doubles_to_a_minute_unless_a_wait_is_named() {
        let mut schedule = RequestSchedule::<u64>::new();
        let base = Duration::from_secs(1);
        let now = clock::monotonic();
        for want in [1, 2, 4, 8, 16, 32, 60, 60] {
            schedule.defer(None, base, now);
            assert_eq!(schedule.wait(now).as_secs(), want);
        }
        schedule.defer(Some(Duration::from_secs(90)), base, now);
        assert_eq!(schedule.wait(now).as_secs(), 90);
        schedule.succeeded();
        schedule.defer(None, base, now);
        assert_eq!(schedule.wait(now), base);
    }

    #[test]
    fn deferral_ends_at_its_time() {
        let mut schedule = RequestSchedule::<u64>::new();
        let base = Duration::from_secs(8);
        let now = clock::monotonic();
        assert_eq!(schedule.wait(now), Duration::ZERO);
        schedule.defer(None, base, now);
        for (passed, left) in [(0, 8), (5, 3), (8, 0), (100, 0)] {
            let wait = schedule.wait(now + Duration::from_secs(passed));
            assert_eq!(wait.as_secs(), left, "{passed} s later");
        }
    }
}
