//! Where we are: the cursor that is committed with every batch.
//!
//! It holds the session to resume and, for a gap that no session bridges, the newest message seen in each
//! channel; the gaps that are not filled yet (`gaps.rs`); also the threads in which we have spoken, so that they stay
//! ours after a restart.
//! What it says is committed, always: a sequence number moves only with the batch that carries its events.

use std::collections::{BTreeMap, HashSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::gaps::{Gap, Gaps};

/// Private channels remembered, those with the newest messages: nobody lists the others.
const DIRECT: usize = 500;
/// The same in servers, which do list them.
const ROOMS: usize = 100;
const THREADS: usize = 500;
/// Channels do not keep step: what is told of one may be a little newer than what is still to be told of another.
/// Ten seconds of numbers.
const OUT_OF_STEP: u64 = 10_000 << 22;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Place {
    pub(super) session: Option<Session>,
    pub(super) me: Option<Me>,
    /// Private channels and the newest message seen in each.
    direct: BTreeMap<u64, u64>,
    /// The same in servers, and which server it is.
    rooms: BTreeMap<u64, (u64, u64)>,
    threads: VecDeque<u64>,
    /// When we listened first, as the number a message of that moment would have.
    begun: Option<u64>,
    /// The newest message that a socket told us of. What was fetched does not count: it says nothing of other channels.
    heard: Option<u64>,
    pub(super) gaps: Gaps,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) resume_url: Option<String>,
    /// The last event that is kept.
    pub(super) sequence: u64,
}

/// Ourselves, as READY tells; a resumed session does not repeat it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Me {
    pub(super) id: u64,
    pub(super) application: Option<u64>,
}

impl Place {
    /// What cannot be read is a start from nothing: Discord's sessions end anyway.
    pub(super) fn read(cursor: Option<&str>) -> Self {
        cursor.and_then(|cursor| serde_json::from_str(cursor).ok()).unwrap_or_default()
    }

    pub(super) fn write(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(super) fn passed(&mut self, sequence: u64) {
        if let Some(session) = &mut self.session {
            session.sequence = session.sequence.max(sequence);
        }
    }

    /// A socket told us of it. `guild`: `None` in private.
    pub(super) fn heard(&mut self, guild: Option<u64>, channel: u64, message: u64) {
        self.heard = self.heard.max(Some(message));
        self.saw(guild, channel, message);
    }

    /// Nothing older is missing in this channel, but for its gap.
    pub(super) fn saw(&mut self, guild: Option<u64>, channel: u64, message: u64) {
        match guild {
            None => note(&mut self.direct, DIRECT, (channel, message), |message| *message),
            Some(guild) => note(&mut self.rooms, ROOMS, (channel, (guild, message)), |(_, message)| *message),
        }
    }

    pub(super) fn begin(&mut self, moment: u64) {
        self.begun.get_or_insert(moment);
    }

    /// A new session, which tells nothing of what was before it: from now on every channel has a gap. What was heard
    /// before it is behind `floor`, or too old. Gives how many channels were given up.
    pub(super) fn lose_session(&mut self, guilds: &HashSet<u64>, floor: u64) -> usize {
        let Some(newest) = self.newest() else { return 0 };
        let gone = self.gaps.expect(guilds, newest, floor);
        let direct = self.direct.iter().map(|(channel, after)| (*channel, None, *after));
        let rooms = self.rooms.iter().map(|(channel, (guild, after))| (*channel, Some(*guild), *after));
        let ours = |guild: Option<u64>| guild.is_none_or(|guild| guilds.contains(&guild));
        let heard: Vec<_> = direct.chain(rooms).filter(|(_, guild, _)| ours(*guild)).collect();
        let full = heard
            .into_iter()
            .filter(|(channel, guild, after)| {
                let gap = Gap { guild: *guild, after: *after, floor };
                !self.gaps.open(*channel, gap)
            })
            .count();
        gone + full
    }

    /// Where a channel that we never heard may have news: whatever was written before was written while we listened.
    /// `None`: we never listened.
    fn newest(&self) -> Option<u64> {
        let heard = self.heard.map(|heard| heard.saturating_sub(OUT_OF_STEP));
        heard.max(self.begun)
    }

    pub(super) fn joined(&mut self, thread: u64) {
        if self.has_joined(thread) {
            return;
        }
        if self.threads.len() >= THREADS {
            self.threads.pop_front();
        }
        self.threads.push_back(thread);
    }

    pub(super) fn has_joined(&self, thread: u64) -> bool {
        self.threads.contains(&thread)
    }
}

/// Of more than `most` the one with the oldest message is forgotten.
fn note<V: Copy>(
    seen: &mut BTreeMap<u64, V>,
    most: usize,
    (channel, newest): (u64, V),
    message: impl Fn(&V) -> u64,
) {
    let known = seen.entry(channel).or_insert(newest);
    if message(known) < message(&newest) {
        *known = newest;
    }
    if seen.len() > most {
        let oldest = seen.iter().min_by_key(|(_, seen)| message(seen)).map(|(channel, _)| *channel);
        oldest.and_then(|channel| seen.remove(&channel));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_it_was_written() {
        let session = Some(Session { id: "s".into(), resume_url: None, sequence: 3 });
        let mut place = Place { session, ..Place::default() };
        place.passed(5);
        place.passed(4);
        place.heard(Some(1), 7, 70);
        place.heard(None, 8, 80);
        place.joined(9);
        place.lose_session(&HashSet::from([1]), 4);
        let again = Place::read(Some(&place.write()));
        assert_eq!(again, place);
        assert_eq!(again.session.map(|it| it.sequence), Some(5));
    }

    #[test]
    fn an_unreadable_cursor_is_a_start_from_nothing() {
        for cursor in [None, Some(""), Some("7"), Some("{\"session\":5}")] {
            assert_eq!(Place::read(cursor), Place::default(), "{cursor:?}");
        }
    }

    fn ready(place: &Place) -> Vec<(u64, u64)> {
        place.gaps.ready().map(|(channel, gap)| (channel, gap.after)).collect()
    }

    #[test]
    fn a_lost_session_leaves_a_gap_behind_what_was_heard_in_each_channel() {
        let mut place = Place::default();
        let servers = HashSet::from([1]);
        assert_eq!(place.lose_session(&servers, 0), 0);
        assert!(place.gaps.is_empty(), "we never listened");
        place.heard(Some(1), 7, 70);
        place.heard(Some(1), 7, 60);
        place.heard(Some(2), 9, 90);
        place.heard(None, 8, 80);
        assert_eq!(place.lose_session(&servers, 0), 0);
        assert_eq!(ready(&place), [(8, 80)], "the server has not listed its channels");
        place.gaps.listed(1, std::iter::empty());
        assert_eq!(ready(&place), [(7, 70), (8, 80)], "and we are not on the other one");
        place.heard(None, 8, 85);
        place.lose_session(&servers, 0);
        assert_eq!(ready(&place), [(8, 80)], "still open");
    }

    #[test]
    fn a_channel_never_heard_is_caught_up_from_just_before_the_newest_message_anywhere() {
        let long = 5 * OUT_OF_STEP;
        let since = |place: &Place| {
            let mut place = place.clone();
            place.lose_session(&HashSet::from([1]), 0);
            let news = super::super::rooms::Room { newest: Some(u64::MAX), ..Default::default() };
            place.gaps.listed(1, [(77, &news)].into_iter());
            ready(&place).into_iter().find(|(channel, _)| *channel == 77).map(|(_, after)| after)
        };
        let mut place = Place::default();
        place.begin(long);
        place.begin(long + 5);
        place.saw(None, 8, 2 * long);
        assert_eq!(since(&place), Some(long), "since we listened first");
        place.heard(None, 8, long + 1);
        assert_eq!(since(&place), Some(long), "never from before that");
        place.heard(None, 8, 2 * long);
        assert_eq!(since(&place), Some(2 * long - OUT_OF_STEP));
    }

    #[test]
    fn the_quietest_channels_and_the_oldest_threads_are_forgotten() {
        let mut place = Place::default();
        for number in 1..=1000 {
            place.saw(None, number, number);
            place.joined(number);
        }
        assert_eq!(place.direct.first_key_value(), Some((&501, &501)));
        assert!(!place.has_joined(500) && place.has_joined(501));
    }
}
