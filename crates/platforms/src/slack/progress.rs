//! How far each channel is on disk, and where something may be missing. Pure.
//!
//! Invariant: a place is never past an event that was told to us and is not on disk. Places move only with a commit;
//! where something may be missing, the cursor says the place before it, until a catch-up that began later than the
//! last such moment is on disk itself.

use petasos_core::Inbound;
use serde::{Deserialize, Serialize};

use super::memory::Recent;
use super::parse::moment;

const CHANNELS: usize = 500;

/// A message's moment, and where it was said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Moment {
    pub(super) team: String,
    pub(super) channel: String,
    pub(super) ts: String,
}

impl Moment {
    /// `None`: a command or a pressed button, which no channel's history tells again.
    pub(super) fn of(event: &Inbound) -> Option<Self> {
        let source = &event.source;
        let (team, channel) = (source.scope_id.clone()?, source.chat_id.clone()?);
        // A button is pressed later than the message below which it stands was sent.
        let ts =
            source.message_id.clone().filter(|ts| event.sent_at.is_some() && event.sent_at == moment(ts))?;
        Some(Self { team, channel, ts })
    }

    /// The last moment at which this was not said yet.
    fn eve(&self) -> Self {
        let (seconds, fraction) = self.ts.split_once('.').unwrap_or((&self.ts, "0"));
        let micros = format!("{fraction:0<6}").get(..6).and_then(|it| it.parse::<u64>().ok());
        let all = seconds.parse::<u64>().ok().and_then(|it| it.checked_mul(1_000_000)?.checked_add(micros?));
        let eve = all.unwrap_or_default().saturating_sub(1);
        Self { ts: format!("{:010}.{:06}", eve / 1_000_000, eve % 1_000_000), ..self.clone() }
    }
}

/// A channel in which something may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gap {
    /// Everything up to here is on disk.
    pub(super) from: Moment,
    /// When it was opened last: what was begun earlier does not close it.
    number: u64,
}

/// A gap in which nothing is missing any more up to a moment; `None`: nothing at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Filled {
    pub(super) gap: Gap,
    pub(super) to: Option<String>,
}

#[derive(Debug, Clone)]
pub(super) struct Progress {
    kept: Recent<Moment>,
    gaps: Recent<Gap>,
    /// Gaps ever opened.
    opened: u64,
}

impl Default for Progress {
    fn default() -> Self {
        Self { kept: Recent::new(CHANNELS), gaps: Recent::new(CHANNELS), opened: 0 }
    }
}

impl Progress {
    pub(super) fn restore(&mut self, places: Vec<Moment>) {
        for place in places {
            self.kept.put(place.channel.clone(), place);
        }
    }

    /// Nobody told us anything for a while.
    pub(super) fn away(&mut self) {
        let kept: Vec<Moment> = self.kept.values().cloned().collect();
        kept.into_iter().for_each(|from| self.open(from));
    }

    /// These were told to us, and are not on disk.
    pub(super) fn missed(&mut self, told: &[Moment]) {
        for moment in told {
            let eve = moment.eve();
            let kept = self.kept.get(&moment.channel).filter(|kept| kept.ts < eve.ts);
            self.open(kept.cloned().unwrap_or(eve));
        }
    }

    fn open(&mut self, from: Moment) {
        self.opened += 1;
        let number = self.opened;
        let older = self.gaps.get(&from.channel).filter(|gap| gap.from.ts < from.ts);
        let from = older.map(|gap| gap.from.clone()).unwrap_or(from);
        self.gaps.put(from.channel.clone(), Gap { from, number });
    }

    pub(super) fn gaps(&self) -> Vec<Gap> {
        self.gaps.values().cloned().collect()
    }

    /// Something may be missing somewhere.
    pub(super) fn is_behind(&self) -> bool {
        self.gaps.values().next().is_some()
    }

    pub(super) fn is_open(&self, channel: &str) -> bool {
        self.gaps.get(channel).is_some()
    }

    /// These are on disk, and so is everything that was missing where it is filled.
    pub(super) fn keep(&mut self, told: &[Moment], filled: &[Filled]) {
        for moment in told {
            if self.kept.get(&moment.channel).is_none_or(|kept| kept.ts < moment.ts) {
                self.kept.put(moment.channel.clone(), moment.clone());
            }
        }
        for Filled { gap: Gap { from, number }, to } in filled {
            if self.gaps.get(&from.channel).is_none_or(|open| open.number != *number) {
                continue;
            }
            match to {
                None => drop(self.gaps.take(&from.channel)),
                Some(ts) => {
                    let from = Moment { ts: ts.clone(), ..from.clone() };
                    self.gaps.put(from.channel.clone(), Gap { from, number: *number });
                }
            }
        }
    }

    /// From where to catch up, were we to begin anew.
    pub(super) fn places(&self) -> Vec<Moment> {
        let settled = self.kept.values().filter(|kept| self.gaps.get(&kept.channel).is_none());
        settled.chain(self.gaps.values().map(|gap| &gap.from)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(channel: &str, ts: &str) -> Moment {
        Moment { team: "T1".into(), channel: channel.into(), ts: format!("{:0>10}.000000", ts) }
    }

    fn places(progress: &Progress) -> Vec<(String, String)> {
        let short = |place: Moment| (place.channel, place.ts.trim_start_matches('0').to_owned());
        progress.places().into_iter().map(short).collect()
    }

    /// All that is open, filled.
    fn whole(progress: &Progress) -> Vec<Filled> {
        progress.gaps().into_iter().map(|gap| Filled { gap, to: None }).collect()
    }

    #[track_caller]
    fn check(progress: &Progress, want: &[(&str, &str)]) {
        let want: Vec<_> = want.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        assert_eq!(places(progress), want);
    }

    #[test]
    fn a_place_moves_only_forward_and_only_with_what_is_kept() {
        let mut progress = Progress::default();
        progress.keep(&[at("C1", "5"), at("C1", "4"), at("D1", "9")], &[]);
        check(&progress, &[("C1", "5.000000"), ("D1", "9.000000")]);
        let mut next = Progress::default();
        next.restore(progress.places());
        assert_eq!(next.places(), progress.places());
    }

    #[test]
    fn what_is_missed_keeps_its_channel_before_it_whatever_is_kept_later() {
        let mut progress = Progress::default();
        progress.keep(&[at("C1", "5")], &[]);
        progress.missed(&[at("C1", "7"), at("D1", "8")]);
        progress.keep(&[at("C1", "9"), at("D1", "9")], &[]);
        check(&progress, &[("C1", "5.000000"), ("D1", "7.999999")]);
        // One that comes after a later one.
        progress.missed(&[at("C1", "4")]);
        check(&progress, &[("C1", "3.999999"), ("D1", "7.999999")]);
        let gaps = whole(&progress);
        progress.keep(&[], &gaps);
        check(&progress, &[("C1", "9.000000"), ("D1", "9.000000")]);
    }

    #[test]
    fn what_is_filled_in_part_stays_open_from_there() {
        let mut progress = Progress::default();
        progress.keep(&[at("C1", "5")], &[]);
        progress.away();
        let gap = progress.gaps().remove(0);
        let part = Filled { gap, to: Some(at("C1", "7").ts) };
        progress.keep(&[at("C1", "6"), at("C1", "7"), at("C1", "9")], std::slice::from_ref(&part));
        check(&progress, &[("C1", "7.000000")]);
        assert!(progress.is_open("C1"));
        progress.missed(&[at("C1", "6")]);
        progress.keep(&[], &[part]);
        check(&progress, &[("C1", "5.999999")]);
    }

    #[test]
    fn a_gap_that_was_opened_again_is_not_closed_by_what_began_before() {
        let mut progress = Progress::default();
        progress.keep(&[at("C1", "5"), at("D1", "5")], &[]);
        progress.away();
        let first = whole(&progress);
        progress.missed(&[at("C1", "8")]);
        progress.keep(&[at("C1", "9"), at("D1", "9")], &first);
        check(&progress, &[("D1", "9.000000"), ("C1", "5.000000")]);
        let second = whole(&progress);
        progress.keep(&[], &second);
        check(&progress, &[("C1", "9.000000"), ("D1", "9.000000")]);
    }
}
