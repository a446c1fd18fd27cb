//! Where we are: the cursor that is committed with every batch.
//!
//! It holds the session to resume and, for a gap that no session bridges, the newest message seen in each
//! channel; also the threads in which we have spoken, so that they stay ours after a restart.
//! What it says is committed, always: a sequence number moves only with the batch that carries its events.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

/// Channels remembered, each in private and in servers: those with the newest messages.
const CHANNELS: usize = 100;
const THREADS: usize = 500;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Place {
    pub(super) session: Option<Session>,
    pub(super) me: Option<Me>,
    /// Private channels and the newest message seen in each.
    direct: BTreeMap<u64, u64>,
    /// The same in servers.
    rooms: BTreeMap<u64, u64>,
    threads: VecDeque<u64>,
    /// When we listened first, as the number a message of that moment would have.
    begun: Option<u64>,
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

    /// `guild`: `None` in private.
    pub(super) fn saw(&mut self, guild: Option<u64>, channel: u64, message: u64) {
        let seen = if guild.is_none() { &mut self.direct } else { &mut self.rooms };
        let newest = seen.entry(channel).or_default();
        *newest = message.max(*newest);
        if seen.len() > CHANNELS {
            let oldest = seen.iter().min_by_key(|(_, message)| **message).map(|(channel, _)| *channel);
            oldest.and_then(|channel| seen.remove(&channel));
        }
    }

    pub(super) fn begin(&mut self, moment: u64) {
        self.begun.get_or_insert(moment);
    }

    /// The newest message seen in a channel of a server; where none was, the newest anywhere: whatever was
    /// written before it was written while we listened.
    pub(super) fn seen_in(&self, channel: u64) -> Option<u64> {
        self.rooms.get(&channel).copied().or_else(|| self.newest())
    }

    pub(super) fn direct(&self) -> impl Iterator<Item = (u64, u64)> {
        self.direct.iter().map(|(channel, message)| (*channel, *message))
    }

    /// `None`: we never listened.
    pub(super) fn newest(&self) -> Option<u64> {
        self.direct.values().chain(self.rooms.values()).chain(&self.begun).max().copied()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_it_was_written() {
        let session = Some(Session { id: "s".into(), resume_url: None, sequence: 3 });
        let mut place = Place { session, ..Place::default() };
        place.passed(5);
        place.passed(4);
        place.saw(Some(1), 7, 70);
        place.saw(None, 8, 80);
        place.joined(9);
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

    #[test]
    fn a_channel_never_heard_is_caught_up_from_the_newest_message_anywhere() {
        let mut place = Place::default();
        assert_eq!(place.seen_in(7), None);
        place.begin(50);
        place.begin(55);
        assert_eq!(place.seen_in(7), Some(50), "since we listened first");
        place.saw(Some(1), 7, 70);
        place.saw(Some(1), 7, 60);
        place.saw(None, 8, 80);
        assert_eq!((place.seen_in(7), place.seen_in(9)), (Some(70), Some(80)));
    }

    #[test]
    fn the_quietest_channels_and_the_oldest_threads_are_forgotten() {
        let mut place = Place::default();
        for number in 1..=1000 {
            place.saw(None, number, number);
            place.joined(number);
        }
        assert_eq!(place.direct().next(), Some((901, 901)));
        assert!(!place.has_joined(500) && place.has_joined(501));
    }
}
