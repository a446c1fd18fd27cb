//! What the adapter remembers between an envelope and a message: who we are, which channel belongs to which
//! workspace, which threads we take part in, what people are called.
//!
//! Owned by the adapter behind one short lock. All of it is bounded, and all of it can be found out again,
//! but for the threads and how far we have heard (`cursor.rs`): they are the link's cursor, and are committed with
//! the batch that changes them.

use std::collections::{HashMap, HashSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::cursor::{self, Channels, Fill, Position, Stored};
use super::history::Scans;
use super::losses::Losses;
use super::team::Teams;
use crate::backfill::gaps::Reached;
use crate::backfill::loss::Loss;

/// Threads in which we are heard without being called.
const THREADS: usize = 500;
const PLACES: usize = 2000;
const NAMES: usize = 2000;
const CALLS: usize = 500;

#[derive(Debug)]
pub(super) struct Memory {
    pub(super) teams: Teams,
    pub(super) losses: Losses,
    /// Where to write to a chat: its workspace and its channel.
    pub(super) places: Recent<Place>,
    /// Asked for already; `None`: nobody would say.
    pub(super) names: Recent<Option<String>>,
    /// Workspaces in which we may not show that we are thinking.
    pub(super) without_status: HashSet<String>,
    /// The same for marks.
    pub(super) without_marks: HashSet<String>,
    /// Messages that call us, for a while.
    pub(super) calls: Recent<()>,
    threads: Recent<()>,
    /// Of these, the ones in which something was said before us that we have not read.
    entered: Recent<()>,
    pub(super) channels: Channels,
    pub(super) scans: Scans,
    /// Missed messages that could not be fetched.
    pub(super) loss: Loss,
    /// The cursor on disk.
    kept: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) team: String,
    pub(super) channel: String,
}

#[derive(Serialize, Deserialize)]
struct Cursor {
    threads: Vec<String>,
    #[serde(default)]
    heard: Vec<Stored>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            teams: Teams::default(),
            losses: Losses::default(),
            places: Recent::new(PLACES),
            names: Recent::new(NAMES),
            without_status: HashSet::new(),
            without_marks: HashSet::new(),
            calls: Recent::new(CALLS),
            threads: Recent::new(THREADS),
            entered: Recent::new(THREADS),
            channels: cursor::new(),
            scans: Scans::new(),
            loss: Loss::default(),
            kept: None,
        }
    }
}

impl Memory {
    /// Goes on from a kept cursor; one that cannot be read is as good as none.
    pub(super) fn restore(&mut self, cursor: Option<&str>) {
        let kept = cursor.and_then(|text| serde_json::from_str::<Cursor>(text).ok());
        let Some(Cursor { threads, heard }) = kept else { return };
        for thread in threads {
            self.threads.put(thread, ());
        }
        cursor::restore(&mut self.channels, heard);
        self.kept = cursor.map(str::to_owned);
    }

    /// The threads that we joined last, newest first: channel and beginning.
    pub(super) fn newest_threads(&self) -> Vec<(String, String)> {
        let split = |key: &String| key.split_once('/').map(|(a, b)| (a.to_owned(), b.to_owned()));
        self.threads.order.iter().rev().filter_map(split).collect()
    }

    pub(super) fn takes_part(&self, channel: &str, thread: &str) -> bool {
        self.threads.get(&key(channel, thread)).is_some()
    }

    /// From now on we are heard there without being called.
    pub(super) fn join(&mut self, channel: &str, thread: &str) {
        if !self.takes_part(channel, thread) {
            self.threads.put(key(channel, thread), ());
        }
    }

    /// The same, in a thread that others have begun.
    pub(super) fn enter(&mut self, channel: &str, thread: &str) {
        if !self.takes_part(channel, thread) {
            self.entered.put(key(channel, thread), ());
        }
        self.join(channel, thread);
    }

    /// Whether what was said there before us is still to be read; asked once.
    pub(super) fn enters(&mut self, channel: &str, thread: &str) -> bool {
        self.entered.take(&key(channel, thread)).is_some()
    }

    /// What is true once these are on disk, if that is anything new.
    pub(super) fn cursor(&self, told: &[Position], fills: &[Fill]) -> Option<String> {
        let threads = self.threads.order.iter().cloned().collect();
        let mut then = self.channels.clone();
        then.commit(told, fills);
        let cursor = serde_json::to_string(&Cursor { threads, heard: cursor::store(&then) }).ok();
        cursor.filter(|cursor| self.kept.as_ref() != Some(cursor))
    }

    /// They are.
    pub(super) fn keep(&mut self, cursor: Option<String>, told: &[Position], fills: &[Fill]) {
        self.kept = cursor.or(self.kept.take());
        for fill in self.channels.commit(told, fills) {
            self.loss.too_old(fill.too_old);
            match fill.reached {
                Reached::Refused => self.loss.refused(&fill.channel),
                Reached::Whole => self.loss.readable(&fill.channel),
                Reached::Until(_) => {}
            }
        }
    }
}

pub(super) fn key(channel: &str, thread: &str) -> String {
    format!("{channel}/{thread}")
}

/// A map that forgets the oldest entry when it is full.
#[derive(Debug, Clone)]
pub(super) struct Recent<V> {
    most: usize,
    entries: HashMap<String, V>,
    order: VecDeque<String>,
}

impl<V> Recent<V> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, entries: HashMap::new(), order: VecDeque::new() }
    }

    pub(super) fn get(&self, key: &str) -> Option<&V> {
        self.entries.get(key)
    }

    pub(super) fn take(&mut self, key: &str) -> Option<V> {
        let value = self.entries.remove(key)?;
        self.order.retain(|other| other != key);
        Some(value)
    }

    pub(super) fn put(&mut self, key: String, value: V) {
        if self.entries.insert(key.clone(), value).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > self.most {
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
    fn threads_outlive_the_process_and_the_oldest_are_forgotten() {
        let mut memory = Memory::default();
        memory.join("C1", "1.1");
        memory.join("C1", "1.1");
        let cursor = memory.cursor(&[], &[]).expect("something new");
        assert_eq!(memory.cursor(&[], &[]), Some(cursor.clone()), "not on disk yet");
        memory.keep(Some(cursor.clone()), &[], &[]);
        assert_eq!(memory.cursor(&[], &[]), None, "kept already");

        let mut next = Memory::default();
        next.restore(Some(&cursor));
        assert!(next.takes_part("C1", "1.1") && !next.takes_part("C2", "1.1"));
        for number in 0..THREADS {
            next.join("C2", &number.to_string());
        }
        assert!(!next.takes_part("C1", "1.1") && next.takes_part("C2", "0"));
        assert!(!next.enters("C2", "0"), "begun with us");
        next.enter("C3", "1.1");
        next.enter("C3", "1.1");
        assert!(next.takes_part("C3", "1.1") && next.enters("C3", "1.1") && !next.enters("C3", "1.1"));
        let old = r#"{"threads":["C9/1.1"]}"#;
        next.restore(Some(old));
        assert!(next.takes_part("C9", "1.1"), "a cursor of an older version is understood");
        next.restore(Some("not a cursor"));
        next.restore(None);
    }
}
