//! Stored cursor, committed with every batch.
//!
//! Holds the session to resume, positions and gaps of the channels (`crate::backfill`), and the threads in
//! which the bot has written. The sequence number advances only with the batch that contains its events.

use std::collections::{BTreeMap, HashSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::backfill::cursor::{Bounds, Cursor, Position};
use crate::backfill::gaps::Listing;

/// Discord lists a server's channels with every new session, and private channels never.
const BOUNDS: Bounds = Bounds { unlisted: 500, listed: 100, gaps: 1000 };
const THREADS: usize = 500;
/// Channels are delivered independently: a message may be newer than one of another channel still to come.
/// Ten seconds of ids.
const MAX_SKEW: u64 = 10_000 << 22;

/// By channel and server.
pub(in crate::discord) type ChannelCursor = Cursor<u64, u64, u64>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredCursor", into = "StoredCursor")]
pub(in crate::discord) struct DiscordCursor {
    pub(in crate::discord) session: Option<StoredSession>,
    pub(in crate::discord) me: Option<BotIdentity>,
    pub(in crate::discord) channels: ChannelCursor,
    threads: VecDeque<u64>,
    /// Start of the first session, as a message id.
    begun: Option<u64>,
    /// Newest message delivered live. Fetched messages say nothing about other channels.
    heard: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::discord) struct StoredSession {
    pub(in crate::discord) id: String,
    pub(in crate::discord) resume_url: Option<String>,
    /// Last event on disk.
    pub(in crate::discord) sequence: u64,
}

/// From READY; a resumed session does not repeat it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::discord) struct BotIdentity {
    pub(in crate::discord) id: u64,
    pub(in crate::discord) application: Option<u64>,
}

impl Default for DiscordCursor {
    fn default() -> Self {
        StoredCursor::default().into()
    }
}

impl DiscordCursor {
    /// An unreadable cursor counts as none: Discord's sessions expire anyway.
    pub(in crate::discord) fn parse(cursor: Option<&str>) -> Self {
        cursor.and_then(|cursor| serde_json::from_str(cursor).ok()).unwrap_or_default()
    }

    pub(in crate::discord) fn serialize_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    pub(in crate::discord) fn advance_sequence(&mut self, sequence: u64) {
        if let Some(session) = &mut self.session {
            session.sequence = session.sequence.max(sequence);
        }
    }

    /// For a message delivered live. `guild` is `None` in private.
    pub(in crate::discord) fn record_live(&mut self, guild: Option<u64>, channel: u64, message: u64) {
        self.heard = self.heard.max(Some(message));
        self.advance(guild, channel, message);
    }

    /// Records that nothing older is missing in this channel, except in its gap.
    pub(in crate::discord) fn advance(&mut self, guild: Option<u64>, channel: u64, message: u64) {
        self.channels.advance(Position { channel, scope: guild, id: message });
    }

    pub(in crate::discord) fn set_start(&mut self, moment: u64) {
        self.begun.get_or_insert(moment);
    }

    /// For a new session: opens a gap in every channel of these servers. Returns how many channels were given
    /// up.
    pub(in crate::discord) fn open_session_gaps(&mut self, guilds: &HashSet<u64>, floor: u64) -> usize {
        let Some(newest) = self.newest_live() else { return 0 };
        let left = self.channels.retain_scopes(|guild| guilds.contains(guild));
        let no_room = self.channels.open_all_gaps(floor);
        for guild in guilds {
            self.channels.gaps.open_scope(*guild, newest, floor, Listing::Awaited);
        }
        left + no_room
    }

    /// Start of a channel without a position: older messages were delivered live. `None` before the
    /// first session.
    fn newest_live(&self) -> Option<u64> {
        let heard = self.heard.map(|heard| heard.saturating_sub(MAX_SKEW));
        heard.max(self.begun)
    }

    pub(in crate::discord) fn add_thread(&mut self, thread: u64) {
        if self.is_own_thread(thread) {
            return;
        }
        if self.threads.len() >= THREADS {
            self.threads.pop_front();
        }
        self.threads.push_back(thread);
    }

    pub(in crate::discord) fn is_own_thread(&self, thread: u64) -> bool {
        self.threads.contains(&thread)
    }
}

/// The format on disk.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct StoredCursor {
    session: Option<StoredSession>,
    me: Option<BotIdentity>,
    /// Newest message of each private channel.
    direct: BTreeMap<u64, u64>,
    /// Server and newest message of each server channel.
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
    /// A listed server with more gaps than the bound.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    merged: bool,
}

impl From<StoredCursor> for DiscordCursor {
    fn from(stored: StoredCursor) -> Self {
        let StoredCursor { session, me, direct, rooms, threads, begun, heard, gaps } = stored;
        let mut channels = ChannelCursor::new(BOUNDS);
        let direct = direct.into_iter().map(|(channel, id)| (channel, None, id));
        let rooms = rooms.into_iter().map(|(channel, (guild, id))| (channel, Some(guild), id));
        direct
            .chain(rooms)
            .for_each(|(channel, scope, id)| channels.advance(Position { channel, scope, id }));
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

impl From<DiscordCursor> for StoredCursor {
    fn from(cursor: DiscordCursor) -> Self {
        let DiscordCursor { session, me, channels, threads, begun, heard } = cursor;
        let mut direct = BTreeMap::new();
        let mut rooms = BTreeMap::new();
        for (channel, guild, id) in channels.positions() {
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
    fn cursor_survives_a_round_trip() {
        let session = Some(StoredSession { id: "s".into(), resume_url: None, sequence: 3 });
        let mut cursor = DiscordCursor { session, ..DiscordCursor::default() };
        cursor.advance_sequence(5);
        cursor.advance_sequence(4);
        cursor.record_live(Some(1), 7, 70);
        cursor.record_live(None, 8, 80);
        cursor.add_thread(9);
        cursor.open_session_gaps(&HashSet::from([1]), 4);
        let again = DiscordCursor::parse(Some(&cursor.serialize_json()));
        assert_eq!(again.serialize_json(), cursor.serialize_json());
        assert_eq!(again.session.map(|it| it.sequence), Some(5));
    }

    #[test]
    fn reads_and_writes_the_stored_format_of_earlier_versions() {
        let stored = r#"{"session":{"id":"s","resume_url":null,"sequence":5},"me":{"id":9,"application":null},"direct":{"8":80},"rooms":{"7":[1,70]},"threads":[9],"begun":3,"heard":80,"gaps":{"channels":{"7":{"guild":1,"after":70,"floor":4},"8":{"guild":null,"after":80,"floor":4}},"servers":{"1":{"guild":1,"after":60,"floor":4}}}}"#;
        assert_eq!(DiscordCursor::parse(Some(stored)).serialize_json(), stored);
    }

    #[test]
    fn merged_gap_survives_a_restart() {
        let mut cursor = DiscordCursor::default();
        cursor.channels.gaps.open_scope(1, 60, 4, Listing::Split(Some(7)));
        let again = DiscordCursor::parse(Some(&cursor.serialize_json()));
        let merged: Vec<_> =
            again.channels.gaps.scopes_to_list().map(|(guild, gap)| (*guild, gap.after)).collect();
        assert_eq!(merged, [(1, 60)]);
    }

    #[test]
    fn unreadable_cursor_starts_from_nothing() {
        for cursor in [None, Some(""), Some("7"), Some("{\"session\":5}")] {
            assert_eq!(DiscordCursor::parse(cursor), DiscordCursor::default(), "{cursor:?}");
        }
    }

    fn list(cursor: &mut DiscordCursor, channels: Vec<(u64, Option<u64>)>) {
        let number = cursor.channels.gaps.scope(&1).map_or(0, |gap| gap.number);
        cursor.channels.gaps.apply_listing(&1, number, channels);
    }

    fn ready(cursor: &DiscordCursor) -> Vec<(u64, u64)> {
        cursor.channels.gaps.fillable().map(|(channel, gap)| (*channel, gap.after)).collect()
    }

    #[test]
    fn lost_session_opens_a_gap_in_each_channel() {
        let mut cursor = DiscordCursor::default();
        let servers = HashSet::from([1]);
        assert_eq!(cursor.open_session_gaps(&servers, 0), 0);
        assert!(cursor.channels.gaps.is_empty(), "we never listened");
        cursor.record_live(Some(1), 7, 70);
        cursor.record_live(Some(1), 7, 60);
        cursor.record_live(Some(2), 9, 90);
        cursor.record_live(None, 8, 80);
        assert_eq!(cursor.open_session_gaps(&servers, 0), 0);
        assert_eq!(ready(&cursor), [(8, 80)], "the server has not listed its channels");
        list(&mut cursor, vec![]);
        assert_eq!(ready(&cursor), [(7, 70), (8, 80)], "and we are not on the other one");
        cursor.record_live(None, 8, 85);
        cursor.open_session_gaps(&servers, 0);
        assert_eq!(ready(&cursor), [(8, 80)], "still open");
    }

    #[test]
    fn new_channels_start_just_before_the_newest_live_message() {
        let long = 5 * MAX_SKEW;
        let since = |cursor: &DiscordCursor| {
            let mut cursor = cursor.clone();
            cursor.open_session_gaps(&HashSet::from([1]), 0);
            list(&mut cursor, vec![(77, Some(u64::MAX))]);
            ready(&cursor).into_iter().find(|(channel, _)| *channel == 77).map(|(_, after)| after)
        };
        let mut cursor = DiscordCursor::default();
        cursor.set_start(long);
        cursor.set_start(long + 5);
        cursor.advance(None, 8, 2 * long);
        assert_eq!(since(&cursor), Some(long), "since we listened first");
        cursor.record_live(None, 8, long + 1);
        assert_eq!(since(&cursor), Some(long), "never from before that");
        cursor.record_live(None, 8, 2 * long);
        assert_eq!(since(&cursor), Some(2 * long - MAX_SKEW));
    }

    #[test]
    fn evicts_the_quietest_channels_and_oldest_threads() {
        let mut cursor = DiscordCursor::default();
        for number in 1..=1000 {
            cursor.advance(None, number, number);
            cursor.add_thread(number);
        }
        let seen: Vec<_> = cursor.channels.positions().map(|(channel, _, _)| *channel).collect();
        assert_eq!((seen.first(), seen.len()), (Some(&501), 500));
        assert!(!cursor.is_own_thread(500) && cursor.is_own_thread(501));
    }
}
