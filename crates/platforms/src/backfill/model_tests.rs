//! The invariant under random interleavings: a platform writes, delivers live or not, answers its history in parts, lists
//! channels, fails and restarts; the store accepts or refuses commits. The cursor never claims a message that is not on
//! disk, and in the end every message is.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::cursor::{Bounds, Cursor, Position};
use super::gaps::{Gap, Listing, Reached};
use super::round::{Round, share_out};

const SCOPE: u8 = 1;
const CHANNELS: u64 = 5;
/// Fewer gaps than channels, so that they are merged.
const BOUNDS: Bounds = Bounds { unlisted: 0, listed: 9, gaps: 2 };

type Ids = Cursor<u64, u8, u64>;
/// Messages with their channels, and the gaps that they fill.
type Fetched = (Vec<(u64, u64)>, Vec<super::gaps::Fill<u64, u64>>);

#[derive(Debug, Clone)]
enum Step {
    /// A message is written; the live stream delivers it unless it is interrupted.
    Write {
        channel: u64,
        delivered: bool,
    },
    /// Delivered messages are committed, or refused by the store.
    Commit {
        accepted: bool,
    },
    /// A round reads up to `part` messages of each of the first channels, and is committed later.
    Fetch {
        channels: usize,
        part: usize,
        most: usize,
    },
    /// The list of the channels arrives, or fails.
    List {
        answered: bool,
    },
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..CHANNELS, any::<bool>()).prop_map(|(channel, delivered)| Step::Write { channel, delivered }),
        3 => any::<bool>().prop_map(|accepted| Step::Commit { accepted }),
        3 => (1..4_usize, 1..4_usize, 1..5_usize)
            .prop_map(|(channels, part, most)| Step::Fetch { channels, part, most }),
        2 => any::<bool>().prop_map(|answered| Step::List { answered }),
        1 => Just(Step::Restart),
    ]
}

struct World {
    cursor: Ids,
    /// Messages of each channel, as the platform has them.
    written: BTreeMap<u64, BTreeSet<u64>>,
    on_disk: BTreeSet<(u64, u64)>,
    /// Delivered live, waiting for their commit.
    live: Vec<Position<u64, u8, u64>>,
    /// Fetched, waiting for their commit.
    fetched: Fetched,
    next: u64,
    /// An interruption that the adapter has not noticed.
    interrupted: bool,
}

impl World {
    fn new() -> Self {
        let mut cursor = Ids::new(BOUNDS);
        let written = (0..CHANNELS).map(|channel| (channel, BTreeSet::new())).collect();
        (0..CHANNELS).for_each(|channel| cursor.saw(at(channel, 0)));
        let (live, fetched) = (Vec::new(), (Vec::new(), Vec::new()));
        Self { cursor, written, on_disk: BTreeSet::new(), live, fetched, next: 1, interrupted: false }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Write { channel, delivered } => {
                let id = self.next;
                self.next += 1;
                self.written.entry(channel).or_default().insert(id);
                if delivered {
                    // A live stream that works again was noticed to be interrupted before.
                    self.notice();
                    self.live.push(at(channel, id));
                } else {
                    self.interrupted = true;
                }
            }
            Step::Commit { accepted } => self.commit(accepted),
            Step::Fetch { channels, part, most } => self.fetch(channels, part, most),
            Step::List { answered } => {
                let open = self.cursor.gaps.to_list().next().map(|(scope, gap)| (*scope, gap.number));
                if let Some((scope, number)) = open.filter(|_| answered) {
                    let all = (0..CHANNELS).map(|channel| (channel, None)).collect();
                    self.cursor.gaps.listed(&scope, number, all);
                }
            }
            Step::Restart => {
                self.cursor = restored(&self.cursor);
                (self.live, self.fetched, self.interrupted) = (Vec::new(), (Vec::new(), Vec::new()), false);
                assert_eq!(self.cursor.interrupted(0), 0);
            }
        }
        self.check();
    }

    fn notice(&mut self) {
        if std::mem::take(&mut self.interrupted) {
            assert_eq!(self.cursor.interrupted(0), 0);
        }
    }

    fn commit(&mut self, accepted: bool) {
        let live = std::mem::take(&mut self.live);
        let (found, fills) = std::mem::take(&mut self.fetched);
        let positions = found.iter().map(|(channel, id)| at(*channel, *id)).chain(live);
        let positions: Vec<_> = positions.collect();
        if accepted {
            self.on_disk.extend(positions.iter().map(|it| (it.channel, it.id)));
            self.cursor.commit(&positions, &fills);
        } else {
            positions.into_iter().for_each(|missed| assert!(self.cursor.missed(missed, 0)));
        }
    }

    fn fetch(&mut self, channels: usize, part: usize, most: usize) {
        let gaps: Vec<(u64, Gap<u8, u64>)> =
            self.cursor.gaps.ready().take(channels).map(|(channel, gap)| (*channel, gap.clone())).collect();
        let rounds = gaps.into_iter().map(|(channel, gap)| {
            let all = &self.written[&channel];
            let page: Vec<u64> = all.range(gap.after + 1..).take(part).copied().collect();
            let whole = all.range(gap.after + 1..).count() == page.len();
            let reached = page.last().filter(|_| !whole).map_or(Reached::Whole, |last| Reached::Until(*last));
            let mut round = Round::new(channel, &gap);
            round.add(page.into_iter().map(|id| (id, (channel, id))).collect(), Vec::new(), reached);
            round
        });
        self.fetched = share_out(rounds.collect(), most, |channel| *channel == 0);
    }

    /// Every message that the cursor claims is on disk, or in the live stream that is not noticed to be interrupted.
    fn check(&self) {
        let after_crash = restored(&self.cursor);
        for (channel, ids) in &self.written {
            let mut begins = after_crash.seen().find(|(it, _, _)| *it == channel).map_or(0, |(_, _, id)| id);
            if let Some(gap) = after_crash.gaps.get(channel) {
                begins = begins.min(gap.after);
            }
            if let Some(gap) = after_crash.gaps.scope(&SCOPE) {
                begins = begins.min(gap.after);
            }
            let passed = ids.range(..=begins).find(|id| !self.on_disk.contains(&(*channel, **id)));
            assert!(passed.is_none() || self.interrupted, "channel {channel}: {passed:?} passed by {begins}");
        }
        assert!(self.cursor.gaps.channels().count() <= BOUNDS.gaps);
    }

    fn all_on_disk(&self) -> bool {
        self.written.iter().all(|(channel, ids)| ids.iter().all(|id| self.on_disk.contains(&(*channel, *id))))
    }
}

fn at(channel: u64, id: u64) -> Position<u64, u8, u64> {
    Position { channel, scope: Some(SCOPE), id }
}

/// As a platform stores it: the beginning of the gap instead of the position, and merged gaps.
fn restored(cursor: &Ids) -> Ids {
    let mut next = Ids::new(BOUNDS);
    for (channel, _, id) in cursor.seen() {
        let claim = cursor.gaps.get(channel).map_or(id, |gap| gap.after);
        next.saw(at(*channel, claim));
    }
    for (channel, gap) in cursor.gaps.channels() {
        next.gaps.open(*channel, gap.scope, gap.after, gap.floor);
    }
    for (scope, gap) in cursor.gaps.scopes() {
        next.gaps.open_scope(*scope, gap.after, gap.floor, Listing::Split(None));
    }
    next
}

proptest! {
    #[test]
    fn the_cursor_never_passes_a_missing_message_and_all_are_delivered(
        steps in prop::collection::vec(step(), 1..60)
    ) {
        let mut world = World::new();
        steps.iter().for_each(|step| world.step(step));
        world.notice();
        for _ in 0..200 {
            world.step(&Step::Commit { accepted: true });
            world.step(&Step::Fetch { channels: 3, part: 2, most: 4 });
            world.step(&Step::Commit { accepted: true });
            world.step(&Step::List { answered: true });
        }
        prop_assert!(world.all_on_disk(), "undelivered");
        prop_assert!(world.cursor.gaps.is_empty(), "still open: {:?}", world.cursor.gaps);
    }
}
