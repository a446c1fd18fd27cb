//! The record of what was received: how much of it is kept, and finding an entry again by its number.

use std::collections::VecDeque;

/// How much a fake remembers of what it received. Benchmarks say `Nothing` or `Last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    All,
    Last(usize),
    Nothing,
}

/// Entries are numbered from 0 in order of arrival; the oldest are forgotten first.
#[derive(Debug)]
pub(crate) struct Log<T> {
    keep: Keep,
    entries: VecDeque<T>,
    next: u64,
}

impl<T> Default for Log<T> {
    fn default() -> Self {
        Self { keep: Keep::All, entries: VecDeque::new(), next: 0 }
    }
}

impl<T> Log<T> {
    /// The number the next entry will get; also how many there ever were.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn push(&mut self, entry: T) {
        self.next += 1;
        self.entries.push_back(entry);
        self.shrink();
    }

    /// `None`: it has been forgotten.
    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let first = self.next - self.entries.len() as u64;
        let at = usize::try_from(number.checked_sub(first)?).ok()?;
        self.entries.get_mut(at)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.entries.iter()
    }

    pub(crate) fn keep(&mut self, keep: Keep) {
        self.keep = keep;
        self.shrink();
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
    }

    fn shrink(&mut self) {
        let most = match self.keep {
            Keep::All => return,
            Keep::Last(most) => most,
            Keep::Nothing => 0,
        };
        let extra = self.entries.len().saturating_sub(most);
        self.entries.drain(..extra);
    }
}

#[cfg(test)]
mod tests {
    use super::{Keep, Log};

    #[track_caller]
    fn check(keep: Keep, want: &[u64]) {
        let mut log = Log::default();
        log.keep(keep);
        (0..4).for_each(|entry| log.push(entry));
        assert_eq!(log.iter().copied().collect::<Vec<u64>>(), want, "{keep:?}");
        assert_eq!(log.next(), 4);
        for number in 0..6 {
            let found = log.get_mut(number).map(|entry| *entry);
            assert_eq!(found, want.contains(&number).then_some(number), "{keep:?}: entry {number}");
        }
    }

    #[test]
    fn keeps_what_it_was_told_and_finds_it_by_number() {
        check(Keep::All, &[0, 1, 2, 3]);
        check(Keep::Last(2), &[2, 3]);
        check(Keep::Nothing, &[]);
    }
}
