//! Gaps: ranges of channels in which messages may be missing.
//!
//! The channels of a scope (a server or workspace) can be listed, so gaps above the bound are merged into one
//! gap of their scope, and split again when there is room.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::MessageId;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gap<S, I> {
    /// `None`: the channel cannot be listed, so its gap cannot be merged.
    pub(crate) scope: Option<S>,
    /// Everything up to this message is on disk.
    pub(crate) after: I,
    /// First message of the live stream, which delivers the rest.
    pub(crate) before: Option<I>,
    /// Older messages are not fetched. Fixed when the gap opens, so a gap does not age out.
    pub(crate) floor: I,
    /// Fencing number: a fill of an earlier opening does not apply.
    pub(crate) number: u64,
}

/// A scope in which any channel may have a gap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScopeGap<C, I> {
    pub(crate) after: I,
    pub(crate) floor: I,
    pub(crate) number: u64,
    pub(crate) listing: Listing<C>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Listing<C> {
    /// The platform will send the list.
    Awaited,
    /// The list must be requested. Gaps of channels up to this one are open.
    Split(Option<C>),
}

impl<C: Ord, I> ScopeGap<C, I> {
    fn covers(&self, channel: &C) -> bool {
        match &self.listing {
            Listing::Awaited => true,
            Listing::Split(done) => done.as_ref().is_none_or(|done| channel > done),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadExtent<I> {
    Complete,
    Through(I),
    Refused,
}

/// The effect of a commit on one gap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fill<C, I> {
    pub(crate) channel: C,
    pub(crate) number: u64,
    pub(crate) extent: ReadExtent<I>,
    /// Addressed messages older than the floor.
    pub(crate) too_old: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gaps<C, S, I> {
    max: usize,
    opened: u64,
    channels: BTreeMap<C, Gap<S, I>>,
    scopes: BTreeMap<S, ScopeGap<C, I>>,
}

impl<C: Clone + Ord, S: Clone + Ord, I: MessageId> Gaps<C, S, I> {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, opened: 0, channels: BTreeMap::new(), scopes: BTreeMap::new() }
    }

    /// Opens or widens a gap. Returns false if there is no room and no gap can be merged.
    pub(crate) fn open(&mut self, channel: C, scope: Option<S>, after: I, floor: I) -> bool {
        let number = self.next_number();
        let wider = scope.as_ref().and_then(|scope| self.scopes.get(scope)).filter(|it| it.covers(&channel));
        let (after, floor) = wider.map_or((after, floor), |it| (after.min(it.after), floor.min(it.floor)));
        if let Some(gap) = self.channels.get_mut(&channel) {
            (gap.after, gap.floor) = (gap.after.min(after), gap.floor.min(floor));
            (gap.before, gap.number) = (None, number);
            return true;
        }
        if self.is_full() {
            if let Some(scope) = scope {
                self.open_scope(scope, after, floor, Listing::Split(None));
                return true;
            }
            if !self.merge_one() {
                return false;
            }
        }
        self.channels.insert(channel, Gap { scope, after, before: None, floor, number });
        true
    }

    pub(crate) fn open_scope(&mut self, scope: S, after: I, floor: I, listing: Listing<C>) {
        let number = self.next_number();
        match self.scopes.entry(scope) {
            Entry::Vacant(free) => drop(free.insert(ScopeGap { after, floor, number, listing })),
            Entry::Occupied(mut open) => {
                let open = open.get_mut();
                (open.after, open.floor) = (open.after.min(after), open.floor.min(floor));
                open.number = number;
                if open.listing != Listing::Awaited {
                    open.listing = listing;
                }
            }
        }
    }

    /// Makes room by merging one gap into its scope's.
    fn merge_one(&mut self) -> bool {
        let last = self.channels.iter().rev().find(|(_, gap)| gap.scope.is_some());
        let Some((channel, Gap { scope: Some(scope), after, floor, .. })) = last else { return false };
        let channel = channel.clone();
        let scope = scope.clone();
        let after = *after;
        let floor = *floor;
        self.channels.remove(&channel);
        self.open_scope(scope, after, floor, Listing::Split(None));
        true
    }

    /// Opens gaps for the listed channels (with their newest message, if known) as far as there is room. A
    /// list requested before the gap was widened (`number`) does not apply.
    pub(crate) fn apply_listing(&mut self, scope: &S, number: u64, mut channels: Vec<(C, Option<I>)>) {
        let Some(open) = self.scopes.get(scope).filter(|open| open.number == number).cloned() else { return };
        let mut done = match open.listing {
            Listing::Awaited => None,
            Listing::Split(done) => done,
        };
        channels.sort_by(|(one, _), (other, _)| one.cmp(other));
        channels.retain(|(channel, _)| done.as_ref().is_none_or(|done| channel > done));
        for (channel, newest) in channels {
            let known = self.channels.get(&channel);
            let after = known.map_or(open.after, |gap| gap.after);
            if newest.is_some_and(|newest| newest <= after) {
                self.channels.remove(&channel);
            } else if known.is_none() && self.is_full() {
                let rest = ScopeGap { listing: Listing::Split(done), ..open };
                self.scopes.insert(scope.clone(), rest);
                return;
            } else if known.is_none() {
                self.open(channel.clone(), Some(scope.clone()), after, open.floor);
            }
            done = Some(channel);
        }
        self.scopes.remove(scope);
    }

    /// Removes the gaps of other scopes. Returns the number of affected channels.
    pub(crate) fn retain_scopes(&mut self, ours: impl Fn(&S) -> bool) -> usize {
        let before = self.channels.len();
        self.channels.retain(|_, gap| gap.scope.as_ref().is_none_or(&ours));
        self.scopes.retain(|scope, _| ours(scope));
        before - self.channels.len()
    }

    /// Records the first message that the live stream delivers.
    pub(crate) fn set_live_start(&mut self, channel: &C, id: I) {
        if let Some(gap) = self.channels.get_mut(channel) {
            gap.before.get_or_insert(id);
        }
    }

    /// Returns whether the fill applied.
    pub(crate) fn fill(&mut self, fill: &Fill<C, I>) -> bool {
        let Some(gap) = self.channels.get_mut(&fill.channel).filter(|gap| gap.number == fill.number) else {
            return false;
        };
        match fill.extent {
            ReadExtent::Through(id) => gap.after = gap.after.max(id),
            ReadExtent::Complete | ReadExtent::Refused => drop(self.channels.remove(&fill.channel)),
        }
        true
    }

    pub(crate) fn close_scope(&mut self, scope: &S, number: u64) {
        if self.scopes.get(scope).is_some_and(|open| open.number == number) {
            self.scopes.remove(scope);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.channels.clear();
        self.scopes.clear();
    }

    pub(crate) fn get(&self, channel: &C) -> Option<&Gap<S, I>> {
        self.channels.get(channel)
    }

    pub(crate) fn scope(&self, scope: &S) -> Option<&ScopeGap<C, I>> {
        self.scopes.get(scope)
    }

    pub(crate) fn channels(&self) -> impl Iterator<Item = (&C, &Gap<S, I>)> {
        self.channels.iter()
    }

    pub(crate) fn scopes(&self) -> impl Iterator<Item = (&S, &ScopeGap<C, I>)> {
        self.scopes.iter()
    }

    /// Gaps that can be filled now.
    pub(crate) fn fillable(&self) -> impl Iterator<Item = (&C, &Gap<S, I>)> {
        let awaits = |scope: &S| self.scopes.get(scope).is_some_and(|it| it.listing == Listing::Awaited);
        self.channels.iter().filter(move |(_, gap)| !gap.scope.as_ref().is_some_and(awaits))
    }

    /// Scopes whose channels should be requested now.
    pub(crate) fn scopes_to_list(&self) -> impl Iterator<Item = (&S, &ScopeGap<C, I>)> {
        let room = !self.is_full();
        self.scopes.iter().filter(move |(_, it)| room && it.listing != Listing::Awaited)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.channels.is_empty() && self.scopes.is_empty()
    }

    fn is_full(&self) -> bool {
        self.channels.len() >= self.max
    }

    fn next_number(&mut self) -> u64 {
        self.opened += 1;
        self.opened
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 3;

    fn gaps(open: &[(u64, Option<u64>, u64)]) -> Gaps<u64, u64, u64> {
        let mut gaps = Gaps::new(MAX);
        for (channel, scope, after) in open {
            assert!(gaps.open(*channel, *scope, *after, 3));
        }
        gaps
    }

    #[track_caller]
    fn check(gaps: &Gaps<u64, u64, u64>, channels: &[(u64, u64)], scopes: &[(u64, u64)]) {
        let ready: Vec<_> = gaps.fillable().map(|(channel, gap)| (*channel, gap.after)).collect();
        let wide: Vec<_> = gaps.scopes().map(|(scope, gap)| (*scope, gap.after)).collect();
        assert_eq!((ready.as_slice(), wide.as_slice()), (channels, scopes));
    }

    fn fill(gaps: &Gaps<u64, u64, u64>, channel: u64, extent: ReadExtent<u64>) -> Fill<u64, u64> {
        let number = gaps.get(&channel).map_or(0, |gap| gap.number);
        Fill { channel, number, extent, too_old: 0 }
    }

    fn list(gaps: &mut Gaps<u64, u64, u64>, scope: u64, channels: &[(u64, Option<u64>)]) {
        let number = gaps.scope(&scope).map_or(0, |gap| gap.number);
        gaps.apply_listing(&scope, number, channels.to_vec());
    }

    #[test]
    fn open_gap_only_widens_and_keeps_its_floor() {
        let mut gaps = gaps(&[(50, None, 10)]);
        assert!(gaps.open(50, None, 20, 9));
        check(&gaps, &[(50, 10)], &[]);
        assert_eq!(gaps.get(&50).map(|gap| gap.floor), Some(3));
        gaps.open(50, None, 5, 9);
        check(&gaps, &[(50, 5)], &[]);
    }

    #[test]
    fn fill_advances_and_closes_the_gap() {
        let mut gaps = gaps(&[(50, None, 10)]);
        for (until, want) in [(15, 15), (12, 15)] {
            assert!(gaps.fill(&fill(&gaps, 50, ReadExtent::Through(until))));
            check(&gaps, &[(50, want)], &[]);
        }
        gaps.fill(&fill(&gaps, 50, ReadExtent::Complete));
        assert!(gaps.is_empty());
    }

    #[test]
    fn ignores_a_fill_from_before_the_gap_was_widened() {
        for late in [ReadExtent::Complete, ReadExtent::Through(30), ReadExtent::Refused] {
            let mut gaps = gaps(&[(50, None, 10)]);
            gaps.set_live_start(&50, 20);
            let late = fill(&gaps, 50, late);
            gaps.open(50, None, 25, 3);
            assert!(!gaps.fill(&late));
            check(&gaps, &[(50, 10)], &[]);
            assert_eq!(gaps.get(&50).and_then(|gap| gap.before), None, "the stream was interrupted");
        }
    }

    #[test]
    fn awaited_scope_holds_its_channels_until_listed() {
        let mut gaps = gaps(&[(70, Some(1), 10), (71, Some(1), 10), (90, Some(2), 10)]);
        gaps.open_scope(1, 12, 3, Listing::Awaited);
        gaps.open_scope(1, 40, 30, Listing::Awaited);
        check(&gaps, &[(90, 10)], &[(1, 12)]);
        list(&mut gaps, 1, &[(74, Some(11)), (72, Some(20)), (71, Some(10)), (70, Some(20)), (73, Some(0))]);
        check(&gaps, &[(70, 10), (72, 12), (90, 10)], &[]);
        assert_eq!(gaps.get(&72).map(|gap| gap.floor), Some(3), "as it was when the gap opened");
        list(&mut gaps, 1, &[(75, Some(20))]);
        check(&gaps, &[(70, 10), (72, 12), (90, 10)], &[]);
    }

    #[test]
    fn gap_inside_a_scope_gap_starts_with_it() {
        let mut gaps = gaps(&[(69, Some(1), 20)]);
        gaps.open_scope(1, 12, 3, Listing::Awaited);
        gaps.open(70, Some(1), 20, 9);
        list(&mut gaps, 1, &[(69, Some(30)), (70, Some(30))]);
        check(&gaps, &[(69, 20), (70, 12)], &[]);
        assert_eq!(gaps.get(&70).map(|gap| gap.floor), Some(3));
    }

    #[test]
    fn merges_gaps_beyond_the_bound_and_splits_them_again() {
        let full = [(1, Some(9), 10), (2, Some(9), 10), (3, Some(9), 10)];
        let mut gaps = gaps(&full);
        assert!(gaps.open(4, Some(9), 8, 2) && gaps.open(5, Some(9), 7, 3));
        check(&gaps, &[(1, 10), (2, 10), (3, 10)], &[(9, 7)]);
        assert_eq!(gaps.scopes_to_list().count(), 0, "no room");
        gaps.fill(&fill(&gaps, 1, ReadExtent::Complete));
        gaps.fill(&fill(&gaps, 2, ReadExtent::Complete));
        assert_eq!(gaps.scopes_to_list().count(), 1);
        let all: Vec<_> = (1..=5).map(|channel| (channel, None)).collect();
        list(&mut gaps, 9, &all);
        check(&gaps, &[(1, 7), (2, 7), (3, 10)], &[(9, 7)]);
        for channel in 1..=3 {
            gaps.fill(&fill(&gaps, channel, ReadExtent::Complete));
        }
        list(&mut gaps, 9, &all);
        check(&gaps, &[(4, 7), (5, 7)], &[]);
        assert_eq!(gaps.get(&4).map(|gap| gap.floor), Some(2));
    }

    #[test]
    fn unlisted_channel_makes_another_gap_merge() {
        let mut gaps = gaps(&[(1, None, 10), (2, Some(9), 11), (3, None, 10)]);
        assert!(gaps.open(4, None, 10, 3));
        check(&gaps, &[(1, 10), (3, 10), (4, 10)], &[(9, 11)]);
        assert!(!gaps.open(5, None, 10, 3), "nothing is left to merge");
    }

    #[test]
    fn ignores_a_list_from_before_the_gap_was_widened() {
        let mut gaps = gaps(&[]);
        gaps.open_scope(9, 10, 3, Listing::Split(None));
        let number = gaps.scope(&9).map_or(0, |gap| gap.number);
        gaps.open_scope(9, 5, 3, Listing::Split(None));
        gaps.apply_listing(&9, number, vec![(1, None)]);
        gaps.close_scope(&9, number);
        check(&gaps, &[], &[(9, 5)]);
    }

    #[test]
    fn counts_the_gaps_of_scopes_that_were_left() {
        let mut gaps = gaps(&[(70, Some(1), 10), (80, Some(2), 10), (50, None, 10)]);
        assert_eq!(gaps.retain_scopes(|scope| *scope == 2), 1);
        check(&gaps, &[(50, 10), (80, 10)], &[]);
    }
}
