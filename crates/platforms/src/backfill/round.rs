//! One round of history requests.
//!
//! Invariant: messages that are left out are the newest of their channel, over its top level and its threads
//! together.

use super::MessageId;
use super::gaps::{Fill, Gap, ReadExtent};

#[derive(Debug)]
pub(crate) struct Round<C, I, T> {
    pub(crate) channel: C,
    number: u64,
    before: Option<I>,
    messages: Vec<(I, T)>,
    too_old: Vec<I>,
    extent: ReadExtent<I>,
}

impl<C, I: MessageId, T> Round<C, I, T> {
    pub(crate) fn new<S>(channel: C, gap: &Gap<S, I>) -> Self {
        let number = gap.number;
        let before = gap.before;
        Self {
            channel,
            number,
            before,
            messages: Vec::new(),
            too_old: Vec::new(),
            extent: ReadExtent::Complete,
        }
    }

    /// The live stream may start while the history is read.
    pub(crate) fn set_live_start(&mut self, before: Option<I>) {
        self.before = before;
    }

    /// Adds a part of the channel: its top level or a thread.
    pub(crate) fn add(&mut self, messages: Vec<(I, T)>, too_old: Vec<I>, extent: ReadExtent<I>) {
        self.messages.extend(messages);
        self.too_old.extend(too_old);
        self.extent = match (self.extent, extent) {
            (ReadExtent::Refused, _) | (_, ReadExtent::Refused) => ReadExtent::Refused,
            (ReadExtent::Through(one), ReadExtent::Through(other)) => ReadExtent::Through(one.min(other)),
            (ReadExtent::Through(one), ReadExtent::Complete)
            | (ReadExtent::Complete, ReadExtent::Through(one)) => ReadExtent::Through(one),
            (ReadExtent::Complete, ReadExtent::Complete) => ReadExtent::Complete,
        };
    }

    /// The missing messages, oldest first, and the fill to apply after their commit.
    pub(crate) fn finish(mut self) -> (Vec<(I, T)>, Fill<C, I>) {
        if let Some(before) = self.before {
            self.messages.retain(|(id, _)| *id < before);
            if matches!(self.extent, ReadExtent::Through(until) if until >= before.previous()) {
                self.extent = ReadExtent::Complete;
            }
        }
        self.messages.sort_by_key(|(id, _)| *id);
        if let ReadExtent::Through(until) = self.extent {
            self.messages.retain(|(id, _)| *id <= until);
            self.too_old.retain(|id| *id <= until);
        }
        let Self { channel, number, messages, too_old, extent, .. } = self;
        (messages, Fill { channel, number, extent, too_old: too_old.len() })
    }
}

/// The oldest `most` messages of several channels. Private chats first, then channels with few messages, so a
/// busy channel waits for the next round.
pub(crate) fn take_oldest<C, I: MessageId, T>(
    rounds: Vec<Round<C, I, T>>,
    max: usize,
    is_private: impl Fn(&C) -> bool,
) -> (Vec<T>, Vec<Fill<C, I>>) {
    let mut settled: Vec<_> = rounds.into_iter().map(Round::finish).collect();
    settled.sort_by_key(|(messages, fill)| (!is_private(&fill.channel), messages.len()));
    let mut selected = Vec::new();
    let mut fills = Vec::new();
    for (mut messages, mut fill) in settled {
        let left = max - selected.len();
        if messages.len() > left {
            messages.truncate(left);
            let Some((last, _)) = messages.last() else { continue };
            fill.extent = ReadExtent::Through(*last);
        }
        selected.extend(messages);
        fills.push(fill);
    }
    selected.sort_by_key(|(id, _)| *id);
    (selected.into_iter().map(|(_, message)| message).collect(), fills)
}

#[cfg(test)]
mod tests {
    use super::ReadExtent::{Complete, Refused, Through};
    use super::*;

    /// Channel (private below 10), messages, and how far it was read.
    type Read<'a> = (u64, &'a [u64], ReadExtent<u64>);

    fn round(channel: u64, before: Option<u64>) -> Round<u64, u64, u64> {
        Round::new(channel, &Gap { scope: None::<u64>, after: 0, before, floor: 0, number: 7 })
    }

    #[track_caller]
    fn check(read: &[Read<'_>], max: usize, want: &[u64], filled: &[(u64, ReadExtent<u64>)]) {
        let rounds = read.iter().map(|(channel, messages, extent)| {
            let mut round = round(*channel, None);
            round.add(messages.iter().map(|id| (*id, *id)).collect(), Vec::new(), *extent);
            round
        });
        let (selected, fills) = take_oldest(rounds.collect(), max, |channel| *channel < 10);
        let fills: Vec<_> = fills.iter().map(|fill| (fill.channel, fill.extent)).collect();
        assert_eq!((selected.as_slice(), fills.as_slice()), (want, filled), "{read:?}, {max}");
    }

    #[test]
    fn leaves_newest_messages_of_busy_channels_for_later() {
        let busy: Read<'_> = (11, &[1, 3, 5, 6], Complete);
        let quiet: Read<'_> = (12, &[4], Complete);
        let private: Read<'_> = (1, &[7, 2], Complete);
        let all = [busy, quiet, private];
        check(&all, 9, &[1, 2, 3, 4, 5, 6, 7], &[(1, Complete), (12, Complete), (11, Complete)]);
        check(&all, 4, &[1, 2, 4, 7], &[(1, Complete), (12, Complete), (11, Through(1))]);
        check(&all, 3, &[2, 4, 7], &[(1, Complete), (12, Complete)]);
        check(&all, 1, &[2], &[(1, Through(2))]);
        check(&[(11, &[], Complete)], 1, &[], &[(11, Complete)]);
    }

    #[test]
    fn fills_a_channel_only_as_far_as_all_of_it_was_read() {
        check(&[(11, &[1, 2, 3], Through(2))], 9, &[1, 2], &[(11, Through(2))]);
        check(&[(11, &[1, 2, 3], Through(2))], 1, &[1], &[(11, Through(1))]);
        check(&[(11, &[], Refused)], 1, &[], &[(11, Refused)]);
        let mut parts = round(11, None);
        parts.add(vec![(1, 1), (4, 4)], vec![], Through(4));
        parts.add(vec![(2, 2)], vec![1, 3], Through(2));
        parts.add(vec![(3, 3)], vec![], Complete);
        let (messages, fill) = parts.finish();
        assert_eq!((messages.len(), fill.extent, fill.too_old, fill.number), (2, Through(2), 1, 7));
    }

    #[test]
    fn live_messages_end_the_gap_and_are_left_out() {
        for (until, want) in
            [(Through(4), Through(4)), (Through(5), Complete), (Through(8), Complete), (Complete, Complete)]
        {
            let mut round = round(11, Some(6));
            round.add(vec![(8, 8), (4, 4), (6, 6)], vec![], until);
            let (messages, fill) = round.finish();
            assert_eq!((messages, fill.extent), (vec![(4, 4)], want), "{until:?}");
        }
    }
}
