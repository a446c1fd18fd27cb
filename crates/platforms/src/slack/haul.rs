//! What a catch-up brought of each channel, and how much of it one round takes. Pure.
//!
//! Invariant: a channel's place never passes something that was not taken: what is left out is always the newest of its
//! channel, over its top level and its threads together.

use super::parse::is_private;
use super::progress::{Filled, Gap};

/// What was found in one channel.
#[derive(Debug)]
pub(super) struct Haul<T> {
    pub(super) gap: Gap,
    found: Vec<(String, T)>,
    /// After this moment there is more than was read. `None`: this is all.
    until: Option<String>,
}

impl<T> Haul<T> {
    pub(super) fn new(gap: Gap) -> Self {
        Self { gap, found: Vec::new(), until: None }
    }

    /// `until`: what was said later there is not in it.
    pub(super) fn add(&mut self, found: Vec<(String, T)>, until: Option<String>) {
        self.found.extend(found);
        self.until = match (self.until.take(), until) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    /// Oldest first, up to where nothing is missing.
    fn settle(&mut self) {
        if let Some(until) = &self.until {
            self.found.retain(|(ts, _)| ts <= until);
        }
        self.found.sort_by(|(one, _), (other, _)| one.cmp(other));
    }
}

/// The oldest `most`, oldest first, and what is closed by them. Private chats come first, then those in which little was
/// said: a busy channel waits for the next round, not the others for it.
pub(super) fn share_out<T>(mut hauls: Vec<Haul<T>>, most: usize) -> (Vec<T>, Vec<Filled>) {
    hauls.iter_mut().for_each(Haul::settle);
    hauls.sort_by_key(|haul| (!is_private(&haul.gap.from.channel), haul.found.len()));
    let (mut taken, mut filled) = (Vec::new(), Vec::new());
    for Haul { gap, mut found, mut until } in hauls {
        let left = most - taken.len();
        if found.len() > left {
            found.truncate(left);
            let Some((last, _)) = found.last() else { continue };
            until = Some(last.clone());
        }
        taken.extend(found);
        filled.push(Filled { gap, to: until });
    }
    taken.sort_by(|(one, _), (other, _)| one.cmp(other));
    (taken.into_iter().map(|(_, told)| told).collect(), filled)
}

#[cfg(test)]
mod tests {
    use super::super::progress::{Moment, Progress};
    use super::*;

    /// A channel, what was found in it, and where its reading stopped.
    type Read<'a> = (&'a str, &'a [&'a str], Option<&'a str>);

    /// The whole of what is taken, and how far each channel is then; one that is not named has all of it left.
    #[track_caller]
    fn check(read: &[Read<'_>], most: usize, want: &[&str], closed: &[(&str, Option<&str>)]) {
        let mut progress = Progress::default();
        let place = |(channel, _, _): &Read<'_>| Moment {
            team: "T1".into(),
            channel: (*channel).to_owned(),
            ts: "0".into(),
        };
        progress.restore(read.iter().map(place).collect());
        progress.away();
        let mut hauls = Vec::new();
        for (gap, (_, found, until)) in progress.gaps().into_iter().zip(read) {
            let mut haul = Haul::new(gap);
            haul.add(found.iter().map(|ts| ((*ts).to_owned(), *ts)).collect(), until.map(str::to_owned));
            hauls.push(haul);
        }
        let (taken, filled) = share_out(hauls, most);
        let filled: Vec<_> =
            filled.iter().map(|it| (it.gap.from.channel.as_str(), it.to.as_deref())).collect();
        assert_eq!((taken.as_slice(), filled.as_slice()), (want, closed), "{read:?}, {most}");
    }

    #[test]
    fn what_is_left_out_is_the_newest_of_a_busy_channel() {
        let busy: Read<'_> = ("C1", &["1", "3", "5", "6"], None);
        let quiet: Read<'_> = ("C2", &["4"], None);
        let private: Read<'_> = ("D1", &["7", "2"], None);
        check(
            &[busy, quiet, private],
            9,
            &["1", "2", "3", "4", "5", "6", "7"],
            &[("D1", None), ("C2", None), ("C1", None)],
        );
        check(
            &[busy, quiet, private],
            4,
            &["1", "2", "4", "7"],
            &[("D1", None), ("C2", None), ("C1", Some("1"))],
        );
        check(&[busy, quiet, private], 3, &["2", "4", "7"], &[("D1", None), ("C2", None)]);
        check(&[busy, quiet, private], 1, &["2"], &[("D1", Some("2"))]);
        check(&[("C1", &[], None)], 1, &[], &[("C1", None)]);
    }

    #[test]
    fn a_channel_is_closed_no_further_than_everything_in_it_was_read() {
        check(&[("C1", &["1", "2", "3"], Some("2"))], 9, &["1", "2"], &[("C1", Some("2"))]);
        check(&[("C1", &["1", "2", "3"], Some("2"))], 1, &["1"], &[("C1", Some("1"))]);
        let mut haul = Haul::new(gap());
        haul.add(vec![("1".into(), ()), ("4".into(), ())], Some("4".into()));
        haul.add(vec![("2".into(), ())], Some("2".into()));
        haul.add(vec![("3".into(), ())], None);
        haul.settle();
        assert_eq!((haul.found.len(), haul.until.as_deref()), (2, Some("2")));
    }

    fn gap() -> Gap {
        let mut progress = Progress::default();
        progress.missed(&[Moment { team: "T1".into(), channel: "C1".into(), ts: "9".into() }]);
        progress.gaps().remove(0)
    }
}
