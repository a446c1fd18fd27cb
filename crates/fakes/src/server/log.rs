//! A log of received requests with bounded retention.

use std::collections::VecDeque;

/// How many received requests a fake keeps. Benchmarks need `Nothing` or `Last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    All,
    Last(usize),
    Nothing,
}

/// Entries are numbered from 0 in order of arrival; the oldest are dropped first.
#[derive(Debug)]
pub(crate) struct Log<T> {
    retention: Retention,
    entries: VecDeque<T>,
    next: u64,
}

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self { retention: Retention::All, entries: VecDeque::new(), next: 0 }
    }
}

impl<T> Log<T> {
    /// The number of the next entry, and the count of all entries so far.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn push(&mut self, entry: T) {
        self.next += 1;
        self.entries.push_back(entry);
        self.shrink();
    }

    /// `None`: the entry was dropped.
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let first = self.next - self.entries.len() as u64;
        let at = usize::try_from(number.checked_sub(first)?).ok()?;
        self.entries.get_mut(at)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.entries.iter()
    }

    pub(crate) fn set_retention(&mut self, retention: Retention) {
        self.retention = retention;
        self.shrink();
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    fn shrink(&mut self) {
        let most = match self.retention {
            Retention::All => return,
            Retention::Last(most) => most,
            Retention::Nothing => 0,
        };
        let extra = self.entries.len().saturating_sub(most);
        self.entries.drain(..extra);
    }
}

#[cfg(test)]
mod tests {
    use super::{Log, Retention};

    #[track_caller]
    fn check(retention: Retention, want: &[u64]) {
        let mut log = Log::default();
        log.set_retention(retention);
        (0..4).for_each(|entry| log.push(entry));
        assert_eq!(log.iter().copied().collect::<Vec<u64>>(), want, "{retention:?}");
        assert_eq!(log.next(), 4);
        for number in 0..6 {
            let found = log.get_mut(number).map(|entry| *entry);
            assert_eq!(found, want.contains(&number).then_some(number), "{retention:?}: entry {number}");
        }
    }

    #[test]
    fn keeps_configured_entries_and_finds_them_by_number() {
        check(Retention::All, &[0, 1, 2, 3]);
        check(Retention::Last(2), &[2, 3]);
        check(Retention::Nothing, &[]);
    }
}
