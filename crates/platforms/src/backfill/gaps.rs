//! Ranges of channels in which messages may be missing.
//!
//! A gap belongs to a channel. The channels of a scope (a server or a workspace) can be listed, so gaps that exceed the
//! bound are merged into one gap of their scope, which is split again when there is room.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::MessageId;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gap<S, I> {
    /// `None`: the channel is in no list, so its gap cannot be merged.
    pub(crate) scope: Option<S>,
    /// Everything up to this message is on disk.
    pub(crate) after: I,
    /// The first message of the live stream, which delivers everything from there on.
    pub(crate) before: Option<I>,
    /// Older messages are not fetched. Fixed when the gap opens, so a gap that cannot be filled does not age out.
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
    /// The platform will list the channels by itself; until then it is not known how to read them.
    Awaited,
    /// The list has to be asked for. The gaps of the channels up to this one are open.
    Split(Option<C>),
}

impl<C: Ord, I> ScopeGap<C, I> {
    /// Messages of this channel may be missing because of this gap.
    fn covers(&self, channel: &C) -> bool {
        match &self.listing {
            Listing::Awaited => true,
            Listing::Split(done) => done.as_ref().is_none_or(|done| channel > done),
        }
    }
}

/// How far the history of a channel was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reached<I> {
    Whole,
    Until(I),
    /// The platform will not show it.
    Refused,
}

/// What a commit changes about one gap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fill<C, I> {
    pub(crate) channel: C,
    pub(crate) number: u64,
    pub(crate) reached: Reached<I>,
    /// Messages for us that are older than the floor.
    pub(crate) too_old: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gaps<C, S, I> {
    most: usize,
    opened: u64,
    channels: BTreeMap<C, Gap<S, I>>,
    scopes: BTreeMap<S, ScopeGap<C, I>>,
}

impl<C: Clone + Ord, S: Clone + Ord, I: MessageId> Gaps<C, S, I> {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, opened: 0, channels: BTreeMap::new(), scopes: BTreeMap::new() }
    }

    /// Opens a gap, or widens the one that is open. False: there is no room, and nothing to merge.
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

    /// Any channel of this scope may have a gap.
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

    /// Makes room: the gap of one channel becomes part of its scope's.
    fn merge_one(&mut self) -> bool {
        let last = self.channels.iter().rev().find(|(_, gap)| gap.scope.is_some());
        let Some((channel, Gap { scope: Some(scope), after, floor, .. })) = last else { return false };
        let (channel, scope, after, floor) = (channel.clone(), scope.clone(), *after, *floor);
        self.channels.remove(&channel);
        self.open_scope(scope, after, floor, Listing::Split(None));
        true
    }

    /// The channels of a scope with their newest messages (`None`: not known). Opens their gaps as far as there is room.
    /// A list that was asked for before the gap was widened (`number`) does not apply.
    pub(crate) fn listed(&mut self, scope: &S, number: u64, mut channels: Vec<(C, Option<I>)>) {
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

    /// Forgets the gaps of every scope but these. Gives how many channels had one.
    pub(crate) fn retain_scopes(&mut self, ours: impl Fn(&S) -> bool) -> usize {
        let before = self.channels.len();
        self.channels.retain(|_, gap| gap.scope.as_ref().is_none_or(&ours));
        self.scopes.retain(|scope, _| ours(scope));
        before - self.channels.len()
    }

    /// The live stream delivers this message and those after it.
    pub(crate) fn live(&mut self, channel: &C, id: I) {
        if let Some(gap) = self.channels.get_mut(channel) {
            gap.before.get_or_insert(id);
        }
    }

    /// True: it applied.
    pub(crate) fn fill(&mut self, fill: &Fill<C, I>) -> bool {
        let Some(gap) = self.channels.get_mut(&fill.channel).filter(|gap| gap.number == fill.number) else {
            return false;
        };
        match fill.reached {
            Reached::Until(id) => gap.after = gap.after.max(id),
            Reached::Whole | Reached::Refused => drop(self.channels.remove(&fill.channel)),
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
    pub(crate) fn ready(&self) -> impl Iterator<Item = (&C, &Gap<S, I>)> {
        let awaits = |scope: &S| self.scopes.get(scope).is_some_and(|it| it.listing == Listing::Awaited);
        self.channels.iter().filter(move |(_, gap)| !gap.scope.as_ref().is_some_and(awaits))
    }

    /// Scopes whose channels are to be asked for now.
    pub(crate) fn to_list(&self) -> impl Iterator<Item = (&S, &ScopeGap<C, I>)> {
        let room = !self.is_full();
        self.scopes.iter().filter(move |(_, it)| room && it.listing != Listing::Awaited)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.channels.is_empty() && self.scopes.is_empty()
    }

    fn is_full(&self) -> bool {
        self.channels.len() >= self.most
    }

    fn next_number(&mut self) -> u64 {
        self.opened += 1;
        self.opened
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 3;

    fn gaps(open: &[(u64, Option<u64>, u64)]) -> Gaps<u64, u64, u64> {
        let mut gaps = Gaps::new(MOST);
        for (channel, scope, after) in open {
            assert!(gaps.open(*channel, *scope, *after, 3));
        }
        gaps
    }

    #[track_caller]
    fn check(gaps: &Gaps<u64, u64, u64>, channels: &[(u64, u64)], scopes: &[(u64, u64)]) {
        let ready: Vec<_> = gaps.ready().map(|(channel, gap)| (*channel, gap.after)).collect();
        let wide: Vec<_> = gaps.scopes().map(|(scope, gap)| (*scope, gap.after)).collect();
        assert_eq!((ready.as_slice(), wide.as_slice()), (channels, scopes));
    }

    fn fill(gaps: &Gaps<u64, u64, u64>, channel: u64, reached: Reached<u64>) -> Fill<u64, u64> {
        let number = gaps.get(&channel).map_or(0, |gap| gap.number);
        Fill { channel, number, reached, too_old: 0 }
    }

    fn list(gaps: &mut Gaps<u64, u64, u64>, scope: u64, channels: &[(u64, Option<u64>)]) {
        let number = gaps.scope(&scope).map_or(0, |gap| gap.number);
        gaps.listed(&scope, number, channels.to_vec());
    }

    #[test]
    fn an_open_gap_only_widens_and_keeps_its_floor() {
        let mut gaps = gaps(&[(50, None, 10)]);
        assert!(gaps.open(50, None, 20, 9));
        check(&gaps, &[(50, 10)], &[]);
        assert_eq!(gaps.get(&50).map(|gap| gap.floor), Some(3));
        gaps.open(50, None, 5, 9);
        check(&gaps, &[(50, 5)], &[]);
    }

    #[test]
    fn a_fill_moves_forward_and_closes() {
        let mut gaps = gaps(&[(50, None, 10)]);
        for (until, want) in [(15, 15), (12, 15)] {
            assert!(gaps.fill(&fill(&gaps, 50, Reached::Until(until))));
            check(&gaps, &[(50, want)], &[]);
        }
        gaps.fill(&fill(&gaps, 50, Reached::Whole));
        assert!(gaps.is_empty());
    }

    #[test]
    fn a_fill_that_began_before_the_gap_was_widened_does_not_apply() {
        for late in [Reached::Whole, Reached::Until(30), Reached::Refused] {
            let mut gaps = gaps(&[(50, None, 10)]);
            gaps.live(&50, 20);
            let late = fill(&gaps, 50, late);
            gaps.open(50, None, 25, 3);
            assert!(!gaps.fill(&late));
            check(&gaps, &[(50, 10)], &[]);
            assert_eq!(gaps.get(&50).and_then(|gap| gap.before), None, "the stream was interrupted");
        }
    }

    #[test]
    fn an_awaited_scope_holds_its_channels_until_it_lists_them() {
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
    fn a_gap_that_opens_inside_the_gap_of_its_scope_begins_with_it() {
        let mut gaps = gaps(&[(69, Some(1), 20)]);
        gaps.open_scope(1, 12, 3, Listing::Awaited);
        gaps.open(70, Some(1), 20, 9);
        list(&mut gaps, 1, &[(69, Some(30)), (70, Some(30))]);
        check(&gaps, &[(69, 20), (70, 12)], &[]);
        assert_eq!(gaps.get(&70).map(|gap| gap.floor), Some(3));
    }

    #[test]
    fn gaps_beyond_the_bound_are_merged_and_split_again() {
        let full = [(1, Some(9), 10), (2, Some(9), 10), (3, Some(9), 10)];
        let mut gaps = gaps(&full);
        assert!(gaps.open(4, Some(9), 8, 2) && gaps.open(5, Some(9), 7, 3));
        check(&gaps, &[(1, 10), (2, 10), (3, 10)], &[(9, 7)]);
        assert_eq!(gaps.to_list().count(), 0, "no room");
        gaps.fill(&fill(&gaps, 1, Reached::Whole));
        gaps.fill(&fill(&gaps, 2, Reached::Whole));
        assert_eq!(gaps.to_list().count(), 1);
        let all: Vec<_> = (1..=5).map(|channel| (channel, None)).collect();
        list(&mut gaps, 9, &all);
        check(&gaps, &[(1, 7), (2, 7), (3, 10)], &[(9, 7)]);
        for channel in 1..=3 {
            gaps.fill(&fill(&gaps, channel, Reached::Whole));
        }
        list(&mut gaps, 9, &all);
        check(&gaps, &[(4, 7), (5, 7)], &[]);
        assert_eq!(gaps.get(&4).map(|gap| gap.floor), Some(2));
    }

    #[test]
    fn a_channel_that_is_in_no_list_makes_another_one_merge() {
        let mut gaps = gaps(&[(1, None, 10), (2, Some(9), 11), (3, None, 10)]);
        assert!(gaps.open(4, None, 10, 3));
        check(&gaps, &[(1, 10), (3, 10), (4, 10)], &[(9, 11)]);
        assert!(!gaps.open(5, None, 10, 3), "nothing is left to merge");
    }

    #[test]
    fn a_list_that_was_asked_for_before_the_gap_widened_does_not_apply() {
        let mut gaps = gaps(&[]);
        gaps.open_scope(9, 10, 3, Listing::Split(None));
        let number = gaps.scope(&9).map_or(0, |gap| gap.number);
        gaps.open_scope(9, 5, 3, Listing::Split(None));
        gaps.listed(&9, number, vec![(1, None)]);
        gaps.close_scope(&9, number);
        check(&gaps, &[], &[(9, 5)]);
    }

    #[test]
    fn the_gaps_of_a_scope_that_was_left_are_counted() {
        let mut gaps = gaps(&[(70, Some(1), 10), (80, Some(2), 10), (50, None, 10)]);
        assert_eq!(gaps.retain_scopes(|scope| *scope == 2), 1);
        check(&gaps, &[(50, 10), (80, 10)], &[]);
    }
}
