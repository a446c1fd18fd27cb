//! The stored cursor: per channel, the message up to which everything is on disk.
//!
//! A position advances with every committed message. While a gap is open, the cursor stores the gap's start
//! instead.

use std::collections::BTreeMap;

use super::MessageId;
use super::gaps::{Fill, Gaps};

/// Maximum number of remembered channels; those with the newest messages are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Channels that the platform does not list.
    pub(crate) unlisted: usize,
    pub(crate) listed: usize,
    pub(crate) gaps: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Position<C, S, I> {
    pub(crate) channel: C,
    pub(crate) scope: Option<S>,
    pub(crate) id: I,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cursor<C, S, I> {
    bounds: Bounds,
    seen: BTreeMap<C, (Option<S>, I)>,
    pub(crate) gaps: Gaps<C, S, I>,
}

impl<C: Clone + Ord, S: Clone + Ord, I: MessageId> Cursor<C, S, I> {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self { bounds, seen: BTreeMap::new(), gaps: Gaps::new(bounds.gaps) }
    }

    /// Records that nothing up to this message is missing in its channel, except in its gap.
    pub(crate) fn advance(&mut self, position: Position<C, S, I>) {
        let Position { channel, scope, id } = position;
        let seen = self.seen.entry(channel).or_insert_with(|| (scope.clone(), id));
        seen.1 = seen.1.max(id);
        let (kind, most) = match scope {
            None => (false, self.bounds.unlisted),
            Some(_) => (true, self.bounds.listed),
        };
        let same = || self.seen.iter().filter(|(_, (scope, _))| scope.is_some() == kind);
        if same().count() > most {
            let oldest = same().min_by_key(|(_, (_, id))| *id).map(|(channel, _)| channel.clone());
            oldest.and_then(|channel| self.seen.remove(&channel));
        }
    }

    /// For a message that was delivered live and is not on disk.
    pub(crate) fn open_gap_before(&mut self, position: Position<C, S, I>, floor: I) -> bool {
        let Position { channel, scope, id } = position;
        let eve = id.previous();
        let after = self.seen.get(&channel).map_or(eve, |(_, seen)| eve.min(*seen));
        self.gaps.open(channel, scope, after, floor)
    }

    /// For an interrupted live stream: opens a gap in every remembered channel. Returns the number of gaps
    /// without room.
    pub(crate) fn open_all_gaps(&mut self, floor: I) -> usize {
        let Self { seen, gaps, .. } = self;
        let opens = |(channel, (scope, id)): (&C, &(Option<S>, I))| {
            gaps.open(channel.clone(), scope.clone(), *id, floor)
        };
        seen.iter().map(opens).filter(|opened| !opened).count()
    }

    /// Records committed messages. Returns the fills that applied.
    pub(crate) fn commit<'a>(
        &mut self,
        seen: &[Position<C, S, I>],
        fills: &'a [Fill<C, I>],
    ) -> Vec<&'a Fill<C, I>> {
        seen.iter().for_each(|position| self.advance(position.clone()));
        fills.iter().filter(|fill| self.gaps.fill(fill)).collect()
    }

    pub(crate) fn retain_scopes(&mut self, ours: impl Fn(&S) -> bool) -> usize {
        self.seen.retain(|_, (scope, _)| scope.as_ref().is_none_or(&ours));
        self.gaps.retain_scopes(ours)
    }

    /// Per scope, the newest position if channels may have been evicted: their messages up to it were
    /// delivered live.
    pub(crate) fn evicted_through(&self) -> BTreeMap<S, I> {
        let mut newest = BTreeMap::new();
        let listed = || self.seen.values().filter_map(|(scope, id)| Some((scope.clone()?, *id)));
        if listed().count() >= self.bounds.listed {
            for (scope, id) in listed() {
                newest.entry(scope).and_modify(|known: &mut I| *known = id.max(*known)).or_insert(id);
            }
        }
        newest
    }

    pub(crate) fn has_position(&self, channel: &C) -> bool {
        self.seen.contains_key(channel)
    }

    pub(crate) fn positions(&self) -> impl Iterator<Item = (&C, Option<&S>, I)> {
        self.seen.iter().map(|(channel, (scope, id))| (channel, scope.as_ref(), *id))
    }
}

#[cfg(test)]
mod tests {
    use super::super::gaps::ReadExtent;
    use super::*;

    fn at(channel: u64, id: u64) -> Position<u64, u64, u64> {
        Position { channel, scope: Some(1), id }
    }

    fn cursor() -> Cursor<u64, u64, u64> {
        Cursor::new(Bounds { unlisted: 2, listed: 2, gaps: 4 })
    }

    /// Compares where each channel would be read from after a crash.
    #[track_caller]
    fn check(cursor: &Cursor<u64, u64, u64>, want: &[(u64, u64)]) {
        let settled = cursor.positions().filter(|(channel, _, _)| cursor.gaps.get(channel).is_none());
        let mut claims: Vec<_> = settled.map(|(channel, _, id)| (*channel, id)).collect();
        claims.extend(cursor.gaps.channels().map(|(channel, gap)| (*channel, gap.after)));
        claims.sort_unstable();
        assert_eq!(claims, want);
    }

    fn whole(cursor: &Cursor<u64, u64, u64>) -> Vec<Fill<u64, u64>> {
        let fill = |(channel, gap): (&u64, &super::super::gaps::Gap<u64, u64>)| Fill {
            channel: *channel,
            number: gap.number,
            extent: ReadExtent::Complete,
            too_old: 0,
        };
        cursor.gaps.fillable().map(fill).collect()
    }

    #[test]
    fn positions_only_advance() {
        let mut cursor = cursor();
        cursor.commit(&[at(1, 5), at(1, 4), at(2, 9)], &[]);
        check(&cursor, &[(1, 5), (2, 9)]);
    }

    #[test]
    fn stays_before_a_missed_message() {
        let mut cursor = cursor();
        cursor.commit(&[at(1, 5)], &[]);
        assert!(cursor.open_gap_before(at(1, 7), 0) && cursor.open_gap_before(at(2, 8), 0));
        cursor.commit(&[at(1, 9), at(2, 9)], &[]);
        check(&cursor, &[(1, 5), (2, 7)]);
        cursor.open_gap_before(at(1, 4), 0);
        check(&cursor, &[(1, 3), (2, 7)]);
        let fills = whole(&cursor);
        assert_eq!(cursor.commit(&[], &fills).len(), 2);
        check(&cursor, &[(1, 9), (2, 9)]);
    }

    #[test]
    fn interruption_opens_a_gap_after_every_position() {
        let mut cursor = cursor();
        cursor.commit(&[at(1, 5), at(2, 6)], &[]);
        assert_eq!(cursor.open_all_gaps(0), 0);
        let first = whole(&cursor);
        cursor.open_gap_before(at(1, 8), 0);
        cursor.commit(&[at(1, 9), at(2, 9)], &first);
        check(&cursor, &[(1, 5), (2, 9)]);
    }

    #[test]
    fn evicts_the_quietest_channels_and_reports_it() {
        let mut cursor = cursor();
        cursor.commit(&[at(1, 5)], &[]);
        assert!(cursor.evicted_through().is_empty());
        for (channel, id) in [(2, 3), (3, 9), (4, 8)] {
            cursor.advance(at(channel, id));
        }
        cursor.advance(Position { channel: 50, scope: None, id: 1 });
        check(&cursor, &[(3, 9), (4, 8), (50, 1)]);
        assert_eq!(cursor.evicted_through(), BTreeMap::from([(1, 9)]));
    }
}
