//! What one round of requests delivers.
//!
//! Invariant: messages that are left out are the newest of their channel, over its top level and its threads together.

use super::MessageId;
use super::gaps::{Fill, Gap, Reached};

/// Messages of one channel.
#[derive(Debug)]
pub(crate) struct Round<C, I, T> {
    pub(crate) channel: C,
    number: u64,
    before: Option<I>,
    found: Vec<(I, T)>,
    /// Messages for us that are older than the floor.
    too_old: Vec<I>,
    reached: Reached<I>,
}

impl<C, I: MessageId, T> Round<C, I, T> {
    pub(crate) fn new<S>(channel: C, gap: &Gap<S, I>) -> Self {
        let (number, before) = (gap.number, gap.before);
        Self { channel, number, before, found: Vec::new(), too_old: Vec::new(), reached: Reached::Whole }
    }

    /// The live stream may have begun while the history was read.
    pub(crate) fn goes_live(&mut self, before: Option<I>) {
        self.before = before;
    }

    /// One part of the channel: its top level or a thread.
    pub(crate) fn add(&mut self, found: Vec<(I, T)>, too_old: Vec<I>, reached: Reached<I>) {
        self.found.extend(found);
        self.too_old.extend(too_old);
        self.reached = match (self.reached, reached) {
            (Reached::Refused, _) | (_, Reached::Refused) => Reached::Refused,
            (Reached::Until(one), Reached::Until(other)) => Reached::Until(one.min(other)),
            (Reached::Until(one), Reached::Whole) | (Reached::Whole, Reached::Until(one)) => {
                Reached::Until(one)
            }
            (Reached::Whole, Reached::Whole) => Reached::Whole,
        };
    }

    /// The messages that were missing, oldest first, and what they fill once they are on disk.
    pub(crate) fn settle(mut self) -> (Vec<(I, T)>, Fill<C, I>) {
        if let Some(before) = self.before {
            self.found.retain(|(id, _)| *id < before);
            if matches!(self.reached, Reached::Until(until) if until >= before.previous()) {
                self.reached = Reached::Whole;
            }
        }
        self.found.sort_by_key(|(id, _)| *id);
        if let Reached::Until(until) = self.reached {
            self.found.retain(|(id, _)| *id <= until);
            self.too_old.retain(|id| *id <= until);
        }
        let Self { channel, number, found, too_old, reached, .. } = self;
        (found, Fill { channel, number, reached, too_old: too_old.len() })
    }
}

/// The oldest `most` messages of several channels, oldest first. Private chats come first, then channels with few
/// messages: a busy channel waits for the next round, not the others for it.
pub(crate) fn share_out<C, I: MessageId, T>(
    rounds: Vec<Round<C, I, T>>,
    most: usize,
    is_private: impl Fn(&C) -> bool,
) -> (Vec<T>, Vec<Fill<C, I>>) {
    let mut settled: Vec<_> = rounds.into_iter().map(Round::settle).collect();
    settled.sort_by_key(|(found, fill)| (!is_private(&fill.channel), found.len()));
    let (mut taken, mut fills) = (Vec::new(), Vec::new());
    for (mut found, mut fill) in settled {
        let left = most - taken.len();
        if found.len() > left {
            found.truncate(left);
            let Some((last, _)) = found.last() else { continue };
            fill.reached = Reached::Until(*last);
        }
        taken.extend(found);
        fills.push(fill);
    }
    taken.sort_by_key(|(id, _)| *id);
    (taken.into_iter().map(|(_, message)| message).collect(), fills)
}

#[cfg(test)]
mod tests {
    use super::Reached::{Refused, Until, Whole};
    use super::*;

    /// A channel, its messages, and how far it was read. Channels below 10 are private.
    type Read<'a> = (u64, &'a [u64], Reached<u64>);

    fn round(channel: u64, before: Option<u64>) -> Round<u64, u64, u64> {
        Round::new(channel, &Gap { scope: None::<u64>, after: 0, before, floor: 0, number: 7 })
    }

    #[track_caller]
    fn check(read: &[Read<'_>], most: usize, want: &[u64], filled: &[(u64, Reached<u64>)]) {
        let rounds = read.iter().map(|(channel, found, reached)| {
            let mut round = round(*channel, None);
            round.add(found.iter().map(|id| (*id, *id)).collect(), Vec::new(), *reached);
            round
        });
        let (taken, fills) = share_out(rounds.collect(), most, |channel| *channel < 10);
        let fills: Vec<_> = fills.iter().map(|fill| (fill.channel, fill.reached)).collect();
        assert_eq!((taken.as_slice(), fills.as_slice()), (want, filled), "{read:?}, {most}");
    }

    #[test]
    fn the_newest_of_a_busy_channel_are_left_for_the_next_round() {
        let busy: Read<'_> = (11, &[1, 3, 5, 6], Whole);
        let quiet: Read<'_> = (12, &[4], Whole);
        let private: Read<'_> = (1, &[7, 2], Whole);
        let all = [busy, quiet, private];
        check(&all, 9, &[1, 2, 3, 4, 5, 6, 7], &[(1, Whole), (12, Whole), (11, Whole)]);
        check(&all, 4, &[1, 2, 4, 7], &[(1, Whole), (12, Whole), (11, Until(1))]);
        check(&all, 3, &[2, 4, 7], &[(1, Whole), (12, Whole)]);
        check(&all, 1, &[2], &[(1, Until(2))]);
        check(&[(11, &[], Whole)], 1, &[], &[(11, Whole)]);
    }

    #[test]
    fn a_channel_is_filled_no_further_than_all_of_it_was_read() {
        check(&[(11, &[1, 2, 3], Until(2))], 9, &[1, 2], &[(11, Until(2))]);
        check(&[(11, &[1, 2, 3], Until(2))], 1, &[1], &[(11, Until(1))]);
        check(&[(11, &[], Refused)], 1, &[], &[(11, Refused)]);
        let mut parts = round(11, None);
        parts.add(vec![(1, 1), (4, 4)], vec![], Until(4));
        parts.add(vec![(2, 2)], vec![1, 3], Until(2));
        parts.add(vec![(3, 3)], vec![], Whole);
        let (found, fill) = parts.settle();
        assert_eq!((found.len(), fill.reached, fill.too_old, fill.number), (2, Until(2), 1, 7));
    }

    #[test]
    fn messages_of_the_live_stream_are_not_taken_and_end_the_gap() {
        for (until, want) in [(Until(4), Until(4)), (Until(5), Whole), (Until(8), Whole), (Whole, Whole)] {
            let mut round = round(11, Some(6));
            round.add(vec![(8, 8), (4, 4), (6, 6)], vec![], until);
            let (found, fill) = round.settle();
            assert_eq!((found, fill.reached), (vec![(4, 4)], want), "{until:?}");
        }
    }
}
