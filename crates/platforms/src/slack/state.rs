//! Adapter state behind one short lock: workspaces, chats, own threads, user names.
//!
//! All of it is bounded. The own threads and the channel positions are the link's cursor, committed with the
//! batch that changes them; the rest is rebuilt after a restart.

use std::collections::{HashMap, HashSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::backfill::history::ChannelScans;
use super::link::cursor::{self, ChannelCursor, Fill, Position, StoredPosition};
use super::workspaces::Workspaces;
use super::workspaces::outages::WorkspaceOutages;
use crate::backfill::gaps::ReadExtent;
use crate::backfill::loss::Loss;

const MAX_THREADS: usize = 500;
const MAX_CHATS: usize = 2000;
const MAX_NAMES: usize = 2000;
const MAX_ADDRESSED: usize = 500;

#[derive(Debug)]
pub(super) struct SlackState {
    pub(super) workspaces: Workspaces,
    pub(super) outages: WorkspaceOutages,
    /// By chat id; a user id stands for the direct conversation.
    pub(super) chats: RecentMap<ChatLocation>,
    /// `None`: Slack names none.
    pub(super) user_names: RecentMap<Option<String>>,
    /// Workspaces that refuse the typing indicator.
    pub(super) typing_refused: HashSet<String>,
    /// Workspaces that refuse status reactions.
    pub(super) reactions_refused: HashSet<String>,
    /// Recent messages that address the bot.
    pub(super) addressed: RecentMap<()>,
    /// Threads in which the bot needs no mention.
    threads: RecentMap<()>,
    /// Those with earlier messages that the bot has not read.
    unread_threads: RecentMap<()>,
    pub(super) channels: ChannelCursor,
    pub(super) scans: ChannelScans,
    /// Missed messages that could not be fetched.
    pub(super) loss: Loss,
    /// The cursor on disk.
    stored: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChatLocation {
    pub(super) team: String,
    pub(super) channel: String,
}

#[derive(Serialize, Deserialize)]
struct StoredCursor {
    threads: Vec<String>,
    #[serde(default)]
    heard: Vec<StoredPosition>,
}

impl Default for SlackState {
    fn default() -> Self {
        Self {
            workspaces: Workspaces::default(),
            outages: WorkspaceOutages::default(),
            chats: RecentMap::new(MAX_CHATS),
            user_names: RecentMap::new(MAX_NAMES),
            typing_refused: HashSet::new(),
            reactions_refused: HashSet::new(),
            addressed: RecentMap::new(MAX_ADDRESSED),
            threads: RecentMap::new(MAX_THREADS),
            unread_threads: RecentMap::new(MAX_THREADS),
            channels: cursor::new_cursor(),
            scans: ChannelScans::new(),
            loss: Loss::default(),
            stored: None,
        }
    }
}

impl SlackState {
    /// An unreadable cursor counts as none.
    pub(super) fn restore(&mut self, cursor: Option<&str>) {
        let parsed = cursor.and_then(|text| serde_json::from_str::<StoredCursor>(text).ok());
        let Some(StoredCursor { threads, heard }) = parsed else { return };
        for thread in threads {
            self.threads.insert(thread, ());
        }
        cursor::restore(&mut self.channels, heard);
        self.stored = cursor.map(str::to_owned);
    }

    /// Channel and first message of the bot's threads, newest first.
    pub(super) fn newest_threads(&self) -> Vec<(String, String)> {
        let split = |key: &String| key.split_once('/').map(|(a, b)| (a.to_owned(), b.to_owned()));
        self.threads.order.iter().rev().filter_map(split).collect()
    }

    pub(super) fn is_own_thread(&self, channel: &str, thread: &str) -> bool {
        self.threads.get(&message_key(channel, thread)).is_some()
    }

    pub(super) fn add_thread(&mut self, channel: &str, thread: &str) {
        if !self.is_own_thread(channel, thread) {
            self.threads.insert(message_key(channel, thread), ());
        }
    }

    /// For a thread that began without the bot.
    pub(super) fn add_existing_thread(&mut self, channel: &str, thread: &str) {
        if !self.is_own_thread(channel, thread) {
            self.unread_threads.insert(message_key(channel, thread), ());
        }
        self.add_thread(channel, thread);
    }

    /// Whether the thread has earlier messages that the bot has not read. Returns true once.
    pub(super) fn take_unread_thread(&mut self, channel: &str, thread: &str) -> bool {
        self.unread_threads.remove(&message_key(channel, thread)).is_some()
    }

    /// The cursor after this commit, if it differs from the stored one.
    pub(super) fn cursor_after(&self, positions: &[Position], fills: &[Fill]) -> Option<String> {
        let threads = self.threads.order.iter().cloned().collect();
        let mut channels = self.channels.clone();
        channels.commit(positions, fills);
        let stored = StoredCursor { threads, heard: cursor::to_stored(&channels) };
        let cursor = serde_json::to_string(&stored).ok();
        cursor.filter(|cursor| self.stored.as_ref() != Some(cursor))
    }

    pub(super) fn record_commit(&mut self, cursor: Option<String>, positions: &[Position], fills: &[Fill]) {
        self.stored = cursor.or(self.stored.take());
        for fill in self.channels.commit(positions, fills) {
            self.loss.too_old(fill.too_old);
            match fill.extent {
                ReadExtent::Refused => self.loss.refused(&fill.channel),
                ReadExtent::Complete => self.loss.readable_again(&fill.channel),
                ReadExtent::Through(_) => {}
            }
        }
    }
}

pub(super) fn message_key(channel: &str, message: &str) -> String {
    format!("{channel}/{message}")
}

/// Evicts the oldest entry when it is full.
#[derive(Debug, Clone)]
pub(super) struct RecentMap<V> {
    max: usize,
    entries: HashMap<String, V>,
    order: VecDeque<String>,
}

impl<V> RecentMap<V> {
    fn new(max: usize) -> Self {
        Self { max, entries: HashMap::new(), order: VecDeque::new() }
    }

    pub(super) fn get(&self, key: &str) -> Option<&V> {
        self.entries.get(key)
    }

    fn remove(&mut self, key: &str) -> Option<V> {
        let value = self.entries.remove(key)?;
        self.order.retain(|other| other != key);
        Some(value)
    }

    pub(super) fn insert(&mut self, key: String, value: V) {
        if self.entries.insert(key.clone(), value).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > self.max {
            if let Some(oldest) = self.order.pop_front() {
                self.entries.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_threads_and_evicts_the_oldest() {
        let mut state = SlackState::default();
        state.add_thread("C1", "1.1");
        state.add_thread("C1", "1.1");
        let cursor = state.cursor_after(&[], &[]).expect("a change");
        assert_eq!(state.cursor_after(&[], &[]), Some(cursor.clone()), "not on disk yet");
        state.record_commit(Some(cursor.clone()), &[], &[]);
        assert_eq!(state.cursor_after(&[], &[]), None, "already stored");

        let mut next = SlackState::default();
        next.restore(Some(&cursor));
        assert!(next.is_own_thread("C1", "1.1") && !next.is_own_thread("C2", "1.1"));
        for number in 0..MAX_THREADS {
            next.add_thread("C2", &number.to_string());
        }
        assert!(!next.is_own_thread("C1", "1.1") && next.is_own_thread("C2", "0"));
        assert!(!next.take_unread_thread("C2", "0"), "begun with the bot");
        next.add_existing_thread("C3", "1.1");
        next.add_existing_thread("C3", "1.1");
        assert!(next.is_own_thread("C3", "1.1"));
        assert!(next.take_unread_thread("C3", "1.1") && !next.take_unread_thread("C3", "1.1"));
        let old = r#"{"threads":["C9/1.1"]}"#;
        next.restore(Some(old));
        assert!(next.is_own_thread("C9", "1.1"), "a cursor of an older version is understood");
        next.restore(Some("not a cursor"));
        next.restore(None);
    }
}
