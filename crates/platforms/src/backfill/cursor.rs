//! What the stored cursor claims: per channel, the message up to which everything is on disk.
//!
//! A position moves with every committed message; where a gap is open, the cursor claims the beginning of the gap instead.

use std::collections::BTreeMap;

use super::MessageId;
use super::gaps::{Fill, Gaps};

/// Most channels whose position is remembered, those with the newest messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Channels that are in no list.
    pub(crate) unlisted: usize,
    pub(crate) listed: usize,
    /// Channels with a gap.
    pub(crate) gaps: usize,
}

/// A committed message.
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

    /// Nothing up to this message is missing in its channel, except in its gap.
    pub(crate) fn saw(&mut self, position: Position<C, S, I>) {
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

    /// This message was delivered live and is not on disk.
    pub(crate) fn missed(&mut self, position: Position<C, S, I>, floor: I) -> bool {
        let Position { channel, scope, id } = position;
        let eve = id.previous();
        let after = self.seen.get(&channel).map_or(eve, |(_, seen)| eve.min(*seen));
        self.gaps.open(channel, scope, after, floor)
    }

    /// The live stream was interrupted: every remembered channel has a gap. Gives how many found no room.
    pub(crate) fn interrupted(&mut self, floor: I) -> usize {
        let Self { seen, gaps, .. } = self;
        let opens = |(channel, (scope, id)): (&C, &(Option<S>, I))| {
            gaps.open(channel.clone(), scope.clone(), *id, floor)
        };
        seen.iter().map(opens).filter(|opened| !opened).count()
    }

    /// These are on disk. Gives the fills that applied.
    pub(crate) fn commit<'a>(
        &mut self,
        seen: &[Position<C, S, I>],
        fills: &'a [Fill<C, I>],
    ) -> Vec<&'a Fill<C, I>> {
        seen.iter().for_each(|position| self.saw(position.clone()));
        fills.iter().filter(|fill| self.gaps.fill(fill)).collect()
    }

    pub(crate) fn retain_scopes(&mut self, ours: impl Fn(&S) -> bool) -> usize {
        self.seen.retain(|_, (scope, _)| scope.as_ref().is_none_or(&ours));
        self.gaps.retain_scopes(ours)
    }

    /// The newest message in each scope, if channels may have been forgotten: their messages up to it were delivered live.
    pub(crate) fn crowded(&self) -> BTreeMap<S, I> {
        let mut newest = BTreeMap::new();
        let listed = || self.seen.values().filter_map(|(scope, id)| Some((scope.clone()?, *id)));
        if listed().count() >= self.bounds.listed {
            for (scope, id) in listed() {
                newest.entry(scope).and_modify(|known: &mut I| *known = id.max(*known)).or_insert(id);
            }
        }
        newest
    }

    pub(crate) fn has_seen(&self, channel: &C) -> bool {
        self.seen.contains_key(channel)
    }

    /// Remembered channels; their gaps are apart.
    pub(crate) fn seen(&self) -> impl Iterator<Item = (&C, Option<&S>, I)> {
        self.seen.iter().map(|(channel, (scope, id))| (channel, scope.as_ref(), *id))
    }
}

#[cfg(test)]
mod tests {
    use super::super::gaps::Reached;
    use super::*;

    fn at(channel: u64, id: u64) -> Position<u64, u64, u64> {
        Position { channel, scope: Some(1), id }
    }

    fn cursor() -> Cursor<u64, u64, u64> {
        Cursor::new(Bounds { unlisted: 2, listed: 2, gaps: 4 })
    }

    /// Where each channel would be read from after a crash.
    #[track_caller]
    fn check(cursor: &Cursor<u64, u64, u64>, want: &[(u64, u64)]) {
        let settled = cursor.seen().filter(|(channel, _, _)| cursor.gaps.get(channel).is_none());
        let mut claims: Vec<_> = settled.map(|(channel, _, id)| (*channel, id)).collect();
        claims.extend(cursor.gaps.channels().map(|(channel, gap)| (*channel, gap.after)));
        claims.sort_unstable();
        assert_eq!(claims, want);
    }

    fn whole(cursor: &Cursor<u64, u64, u64>) -> Vec<Fill<u64, u64>> {
        let fill = |(channel, gap): (&u64, &super::super::gaps::Gap<u64, u64>)| Fill {
            channel: *channel,
            number: gap.number,
            reached: Reached::Whole,
            too_old: 0,
        };
        cursor.gaps.ready().map(fill).collect()
    }

    #[test]
    fn a_position_moves_only_forward() {
        let mut cursor = cursor();
        cursor.commit(&[at(1, 5), at(1, 4), at(2, 9)], &[]);
        check(&cursor, &[(1, 5), (2, 9)]);
    }

    #[test]
    fn a_missed_message_keeps_the_cursor_before_it() {
        let mut cursor = cursor();
        cursor.commit(&[at(1, 5)], &[]);
        assert!(cursor.missed(at(1, 7), 0) && cursor.missed(at(2, 8), 0));
        cursor.commit(&[at(1, 9), at(2, 9)], &[]);
        check(&cursor, &[(1, 5), (2, 7)]);
        cursor.missed(at(1, 4), 0);
        check(&cursor, &[(1, 3), (2, 7)]);
        let fills = whole(&cursor);
        assert_eq!(cursor.commit(&[], &fills).len(), 2);
        check(&cursor, &[(1, 9), (2, 9)]);
    }

    #[test]
    fn an_interruption_opens_a_gap_behind_every_position() {
        let mut cursor = cursor();
        cursor.commit(&[at(1, 5), at(2, 6)], &[]);
        assert_eq!(cursor.interrupted(0), 0);
        let first = whole(&cursor);
        cursor.missed(at(1, 8), 0);
        cursor.commit(&[at(1, 9), at(2, 9)], &first);
        check(&cursor, &[(1, 5), (2, 9)]);
    }

    #[test]
    fn the_quietest_channels_are_forgotten_and_that_is_known() {
        let mut cursor = cursor();
        cursor.commit(&[at(1, 5)], &[]);
        assert!(cursor.crowded().is_empty());
        for (channel, id) in [(2, 3), (3, 9), (4, 8)] {
            cursor.saw(at(channel, id));
        }
        cursor.saw(Position { channel: 50, scope: None, id: 1 });
        check(&cursor, &[(3, 9), (4, 8), (50, 1)]);
        assert_eq!(cursor.crowded(), BTreeMap::from([(1, 9)]));
    }
}
