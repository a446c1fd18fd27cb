//! The stored cursor, committed with every batch.
//!
//! It holds the session to resume, the positions and gaps of the channels (`crate::backfill`), and the threads in which the
//! bot has written, so that they stay its own after a restart.
//! Everything it claims is committed: a sequence number moves only with the batch that carries its events.

use std::collections::{BTreeMap, HashSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::backfill::cursor::{Bounds, Cursor, Position};
use crate::backfill::gaps::Listing;

/// Discord lists no private channels, and the channels of a server with every new session.
const BOUNDS: Bounds = Bounds { unlisted: 500, listed: 100, gaps: 1000 };
const THREADS: usize = 500;
/// Channels are not in step: a delivered message may be newer than one of another channel that is still to come.
/// Ten seconds of ids.
const OUT_OF_STEP: u64 = 10_000 << 22;

/// By channel and server.
pub(super) type Channels = Cursor<u64, u64, u64>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub(super) struct Place {
    pub(super) session: Option<Session>,
    pub(super) me: Option<Me>,
    pub(super) channels: Channels,
    threads: VecDeque<u64>,
    /// When the first session began, as the id a message of that moment would have.
    begun: Option<u64>,
    /// The newest message that a socket delivered. A fetched one says nothing about other channels.
    heard: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) resume_url: Option<String>,
    /// The last event that is on disk.
    pub(super) sequence: u64,
}

/// The bot itself, as READY names it; a resumed session does not repeat it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Me {
    pub(super) id: u64,
    pub(super) application: Option<u64>,
}

impl Default for Place {
    fn default() -> Self {
        Stored::default().into()
    }
}

impl Place {
    /// An unreadable cursor is a start from nothing: Discord's sessions end anyway.
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

    /// A socket delivered it. `guild`: `None` in private.
    pub(super) fn heard(&mut self, guild: Option<u64>, channel: u64, message: u64) {
        self.heard = self.heard.max(Some(message));
        self.saw(guild, channel, message);
    }

    /// Nothing older is missing in this channel, except in its gap.
    pub(super) fn saw(&mut self, guild: Option<u64>, channel: u64, message: u64) {
        self.channels.saw(Position { channel, scope: guild, id: message });
    }

    pub(super) fn begin(&mut self, moment: u64) {
        self.begun.get_or_insert(moment);
    }

    /// A new session delivers nothing from before it: every channel of these servers has a gap. Gives how many channels
    /// were given up.
    pub(super) fn lose_session(&mut self, guilds: &HashSet<u64>, floor: u64) -> usize {
        let Some(newest) = self.newest() else { return 0 };
        let left = self.channels.retain_scopes(|guild| guilds.contains(guild));
        let no_room = self.channels.interrupted(floor);
        for guild in guilds {
            self.channels.gaps.open_scope(*guild, newest, floor, Listing::Awaited);
        }
        left + no_room
    }

    /// Where a channel without a position may have news: its older messages were delivered live.
    /// `None`: there was no session yet.
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

/// The format on disk.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Stored {
    session: Option<Session>,
    me: Option<Me>,
    /// Private channels and the newest message of each.
    direct: BTreeMap<u64, u64>,
    /// The same in servers, after the server.
    rooms: BTreeMap<u64, (u64, u64)>,
    threads: VecDeque<u64>,
    begun: Option<u64>,
    heard: Option<u64>,
    gaps: StoredGaps,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct StoredGaps {
    channels: BTreeMap<u64, StoredGap>,
    servers: BTreeMap<u64, StoredGap>,
}

#[derive(Serialize, Deserialize)]
struct StoredGap {
    guild: Option<u64>,
    after: u64,
    floor: u64,
    /// A server that was listed, with more gaps than the bound.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    merged: bool,
}

impl From<Stored> for Place {
    fn from(stored: Stored) -> Self {
        let Stored { session, me, direct, rooms, threads, begun, heard, gaps } = stored;
        let mut channels = Channels::new(BOUNDS);
        let direct = direct.into_iter().map(|(channel, id)| (channel, None, id));
        let rooms = rooms.into_iter().map(|(channel, (guild, id))| (channel, Some(guild), id));
        direct.chain(rooms).for_each(|(channel, scope, id)| channels.saw(Position { channel, scope, id }));
        for (channel, StoredGap { guild, after, floor, .. }) in gaps.channels {
            channels.gaps.open(channel, guild, after, floor);
        }
        for (guild, StoredGap { after, floor, merged, .. }) in gaps.servers {
            let listing = if merged { Listing::Split(None) } else { Listing::Awaited };
            channels.gaps.open_scope(guild, after, floor, listing);
        }
        Self { session, me, channels, threads, begun, heard }
    }
}

impl From<Place> for Stored {
    fn from(place: Place) -> Self {
        let Place { session, me, channels, threads, begun, heard } = place;
        let (mut direct, mut rooms) = (BTreeMap::new(), BTreeMap::new());
        for (channel, guild, id) in channels.seen() {
            match guild {
                None => drop(direct.insert(*channel, id)),
                Some(guild) => drop(rooms.insert(*channel, (*guild, id))),
            }
        }
        let stored = |guild, after, floor, merged| StoredGap { guild, after, floor, merged };
        let gap = |(channel, gap): (&u64, &crate::backfill::gaps::Gap<u64, u64>)| {
            (*channel, stored(gap.scope, gap.after, gap.floor, false))
        };
        let servers = channels.gaps.scopes().map(|(guild, gap)| {
            (*guild, stored(Some(*guild), gap.after, gap.floor, gap.listing != Listing::Awaited))
        });
        let gaps =
            StoredGaps { channels: channels.gaps.channels().map(gap).collect(), servers: servers.collect() };
        Self { session, me, direct, rooms, threads, begun, heard, gaps }
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
        assert_eq!(again.write(), place.write());
        assert_eq!(again.session.map(|it| it.sequence), Some(5));
    }

    #[test]
    fn the_stored_format_is_that_of_earlier_versions() {
        let stored = r#"{"session":{"id":"s","resume_url":null,"sequence":5},"me":{"id":9,"application":null},"direct":{"8":80},"rooms":{"7":[1,70]},"threads":[9],"begun":3,"heard":80,"gaps":{"channels":{"7":{"guild":1,"after":70,"floor":4},"8":{"guild":null,"after":80,"floor":4}},"servers":{"1":{"guild":1,"after":60,"floor":4}}}}"#;
        assert_eq!(Place::read(Some(stored)).write(), stored);
    }

    #[test]
    fn a_merged_gap_survives_a_restart() {
        let mut place = Place::default();
        place.channels.gaps.open_scope(1, 60, 4, Listing::Split(Some(7)));
        let again = Place::read(Some(&place.write()));
        let merged: Vec<_> = again.channels.gaps.to_list().map(|(guild, gap)| (*guild, gap.after)).collect();
        assert_eq!(merged, [(1, 60)]);
    }

    #[test]
    fn an_unreadable_cursor_is_a_start_from_nothing() {
        for cursor in [None, Some(""), Some("7"), Some("{\"session\":5}")] {
            assert_eq!(Place::read(cursor), Place::default(), "{cursor:?}");
        }
    }

    fn list(place: &mut Place, channels: Vec<(u64, Option<u64>)>) {
        let number = place.channels.gaps.scope(&1).map_or(0, |gap| gap.number);
        place.channels.gaps.listed(&1, number, channels);
    }

    fn ready(place: &Place) -> Vec<(u64, u64)> {
        place.channels.gaps.ready().map(|(channel, gap)| (*channel, gap.after)).collect()
    }

    #[test]
    fn a_lost_session_leaves_a_gap_behind_what_was_heard_in_each_channel() {
        let mut place = Place::default();
        let servers = HashSet::from([1]);
        assert_eq!(place.lose_session(&servers, 0), 0);
        assert!(place.channels.gaps.is_empty(), "we never listened");
        place.heard(Some(1), 7, 70);
        place.heard(Some(1), 7, 60);
        place.heard(Some(2), 9, 90);
        place.heard(None, 8, 80);
        assert_eq!(place.lose_session(&servers, 0), 0);
        assert_eq!(ready(&place), [(8, 80)], "the server has not listed its channels");
        list(&mut place, vec![]);
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
            list(&mut place, vec![(77, Some(u64::MAX))]);
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
        let seen: Vec<_> = place.channels.seen().map(|(channel, _, _)| *channel).collect();
        assert_eq!((seen.first(), seen.len()), (Some(&501), 500));
        assert!(!place.has_joined(500) && place.has_joined(501));
    }
}
