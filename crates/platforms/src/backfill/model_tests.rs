//! Model test of the invariant under random interleavings of writes, deliveries, histories, failures,
//! restarts and refused commits.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::cursor::{Bounds, Cursor, Position};
use super::gaps::{Gap, Listing, ReadExtent};
use super::round::{Round, take_oldest};

const SCOPE: u8 = 1;
const CHANNELS: u64 = 5;
/// Fewer gaps than channels, so gaps are merged.
const BOUNDS: Bounds = Bounds { unlisted: 0, listed: 9, gaps: 2 };

type Ids = Cursor<u64, u8, u64>;
/// Messages with their channels, and the gaps that they fill.
type Fetched = (Vec<(u64, u64)>, Vec<super::gaps::Fill<u64, u64>>);

#[derive(Debug, Clone)]
enum ModelStep {
    /// The live stream delivers it unless it is interrupted.
    Write {
        channel: u64,
        delivered: bool,
    },
    Commit {
        accepted: bool,
    },
    /// Reads up to `part` messages of each of the first channels; committed later.
    Fetch {
        channels: usize,
        part: usize,
        max: usize,
    },
    List {
        succeeded: bool,
    },
    Restart,
}

fn step() -> impl Strategy<Value = ModelStep> {
    prop_oneof![
        4 => (0..CHANNELS, any::<bool>()).prop_map(|(channel, delivered)| ModelStep::Write { channel, delivered }),
        3 => any::<bool>().prop_map(|accepted| ModelStep::Commit { accepted }),
        3 => (1..4_usize, 1..4_usize, 1..5_usize)
            .prop_map(|(channels, part, max)| ModelStep::Fetch { channels, part, max }),
        2 => any::<bool>().prop_map(|succeeded| ModelStep::List { succeeded }),
        1 => Just(ModelStep::Restart),
    ]
}

struct BackfillModel {
    cursor: Ids,
    written: BTreeMap<u64, BTreeSet<u64>>,
    on_disk: BTreeSet<(u64, u64)>,
    /// Delivered live, not committed yet.
    live: Vec<Position<u64, u8, u64>>,
    /// Fetched, not committed yet.
    fetched: Fetched,
    next: u64,
    /// The adapter has not noticed the interruption yet.
    interrupted: bool,
}

impl BackfillModel {
    fn new() -> Self {
        let mut cursor = Ids::new(BOUNDS);
        let written = (0..CHANNELS).map(|channel| (channel, BTreeSet::new())).collect();
        (0..CHANNELS).for_each(|channel| cursor.advance(at(channel, 0)));
        let live = Vec::new();
        let fetched = (Vec::new(), Vec::new());
        Self { cursor, written, on_disk: BTreeSet::new(), live, fetched, next: 1, interrupted: false }
    }

    fn step(&mut self, step: &ModelStep) {
        match *step {
            ModelStep::Write { channel, delivered } => {
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
            ModelStep::Commit { accepted } => self.commit(accepted),
            ModelStep::Fetch { channels, part, max } => self.fetch(channels, part, max),
            ModelStep::List { succeeded } => {
                let open = self.cursor.gaps.scopes_to_list().next().map(|(scope, gap)| (*scope, gap.number));
                if let Some((scope, number)) = open.filter(|_| succeeded) {
                    let all = (0..CHANNELS).map(|channel| (channel, None)).collect();
                    self.cursor.gaps.apply_listing(&scope, number, all);
                }
            }
            ModelStep::Restart => {
                self.cursor = restored(&self.cursor);
                (self.live, self.fetched, self.interrupted) = (Vec::new(), (Vec::new(), Vec::new()), false);
                assert_eq!(self.cursor.open_all_gaps(0), 0);
            }
        }
        self.check();
    }

    fn notice(&mut self) {
        if std::mem::take(&mut self.interrupted) {
            assert_eq!(self.cursor.open_all_gaps(0), 0);
        }
    }

    fn commit(&mut self, accepted: bool) {
        let live = std::mem::take(&mut self.live);
        let (messages, fills) = std::mem::take(&mut self.fetched);
        let positions = messages.iter().map(|(channel, id)| at(*channel, *id)).chain(live);
        let positions: Vec<_> = positions.collect();
        if accepted {
            self.on_disk.extend(positions.iter().map(|it| (it.channel, it.id)));
            self.cursor.commit(&positions, &fills);
        } else {
            positions.into_iter().for_each(|missed| assert!(self.cursor.open_gap_before(missed, 0)));
        }
    }

    fn fetch(&mut self, channels: usize, part: usize, max: usize) {
        let gaps: Vec<(u64, Gap<u8, u64>)> = self
            .cursor
            .gaps
            .fillable()
            .take(channels)
            .map(|(channel, gap)| (*channel, gap.clone()))
            .collect();
        let rounds = gaps.into_iter().map(|(channel, gap)| {
            let all = &self.written[&channel];
            let page: Vec<u64> = all.range(gap.after + 1..).take(part).copied().collect();
            let whole = all.range(gap.after + 1..).count() == page.len();
            let extent = page
                .last()
                .filter(|_| !whole)
                .map_or(ReadExtent::Complete, |last| ReadExtent::Through(*last));
            let mut round = Round::new(channel, &gap);
            round.add(page.into_iter().map(|id| (id, (channel, id))).collect(), Vec::new(), extent);
            round
        });
        self.fetched = take_oldest(rounds.collect(), max, |channel| *channel == 0);
    }

    /// Checks that every message below the cursor is on disk, or the interruption is not noticed yet.
    fn check(&self) {
        let after_crash = restored(&self.cursor);
        for (channel, ids) in &self.written {
            let mut begins =
                after_crash.positions().find(|(it, _, _)| *it == channel).map_or(0, |(_, _, id)| id);
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

/// Restores a cursor as a platform stores it: with the gap's start as position, and merged gaps.
fn restored(cursor: &Ids) -> Ids {
    let mut next = Ids::new(BOUNDS);
    for (channel, _, id) in cursor.positions() {
        let claim = cursor.gaps.get(channel).map_or(id, |gap| gap.after);
        next.advance(at(*channel, claim));
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
    fn cursor_never_passes_a_missing_message(
        steps in prop::collection::vec(step(), 1..60)
    ) {
        let mut model = BackfillModel::new();
        steps.iter().for_each(|step| model.step(step));
        model.notice();
        for _ in 0..200 {
            model.step(&ModelStep::Commit { accepted: true });
            model.step(&ModelStep::Fetch { channels: 3, part: 2, max: 4 });
            model.step(&ModelStep::Commit { accepted: true });
            model.step(&ModelStep::List { succeeded: true });
        }
        prop_assert!(model.all_on_disk(), "undelivered");
        prop_assert!(model.cursor.gaps.is_empty(), "still open: {:?}", model.cursor.gaps);
    }
}
