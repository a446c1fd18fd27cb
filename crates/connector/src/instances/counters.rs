//! Counters of an instance since its task started.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Superseded sockets per minute before a warning.
const MAX_SUPERSEDED: usize = 3;
const MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct InstanceCounters {
    pub(crate) superseded: u64,
    pub(crate) dead_lettered: u64,
    recent: VecDeque<Instant>,
}

impl InstanceCounters {
    /// `true`: happens too often, because two processes use one gateway id. Reported once a minute.
    pub(crate) fn record_superseded(&mut self, now: Instant) -> bool {
        self.superseded += 1;
        while self.recent.front().is_some_and(|at| now.duration_since(*at) > MINUTE) {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
        let often = self.recent.len() > MAX_SUPERSEDED;
        if often {
            self.recent.clear();
        }
        often
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_runtime::clock;

    #[test]
    fn reports_sockets_that_replace_each_other() {
        let start = clock::monotonic();
        let mut counters = InstanceCounters::default();
        let mut often = |seconds: &[u64]| {
            let at = |second: &u64| counters.record_superseded(start + Duration::from_secs(*second));
            seconds.iter().map(at).collect::<Vec<_>>()
        };
        assert_eq!(often(&[0, 30, 59, 61, 91, 121]), [false; 6], "now and then");
        assert_eq!(often(&[200, 201, 202, 203, 204]), [false, false, false, true, false]);
        assert_eq!(counters.superseded, 11);
    }
}
