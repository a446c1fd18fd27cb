//! What the adapter remembers between an envelope and a message: who we are, which channel belongs to which
//! workspace, which threads we take part in, what people are called.
//!
//! Owned by the adapter behind one short lock. All of it is bounded, and all of it can be found out again,
//! but for the threads and how far we have heard: they are the link's cursor, and are committed with the batch
//! that changed them. While a gap is being caught up, the cursor says how far we had heard before it.

use std::collections::{HashMap, HashSet, VecDeque};

use serde::{Deserialize, Serialize};

use super::team::Teams;

/// Threads in which we are heard without being called.
const THREADS: usize = 500;
const PLACES: usize = 2000;
const NAMES: usize = 2000;
const CALLS: usize = 500;
const CHANNELS: usize = 500;

#[derive(Debug)]
pub(super) struct Memory {
    pub(super) teams: Teams,
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
    /// How far we have heard each channel.
    heard: Recent<Heard>,
    /// The same before the gap that is being caught up.
    before: Option<Vec<Heard>>,
    /// There is something that the last kept cursor does not say.
    unsaved: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) team: String,
    pub(super) channel: String,
}

/// The moment of the last message that was for us.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Heard {
    pub(super) team: String,
    pub(super) channel: String,
    pub(super) ts: String,
}

#[derive(Serialize, Deserialize)]
struct Cursor {
    threads: Vec<String>,
    #[serde(default)]
    heard: Vec<Heard>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            teams: Teams::default(),
            places: Recent::new(PLACES),
            names: Recent::new(NAMES),
            without_status: HashSet::new(),
            without_marks: HashSet::new(),
            calls: Recent::new(CALLS),
            threads: Recent::new(THREADS),
            entered: Recent::new(THREADS),
            heard: Recent::new(CHANNELS),
            before: None,
            unsaved: false,
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
        for heard in heard {
            self.heard.put(heard.channel.clone(), heard);
        }
    }

    pub(super) fn heard(&mut self, team: &str, channel: &str, ts: &str) {
        if self.heard.get(channel).is_some_and(|heard| heard.ts.as_str() >= ts) {
            return;
        }
        let heard = Heard { team: team.to_owned(), channel: channel.to_owned(), ts: ts.to_owned() };
        self.heard.put(channel.to_owned(), heard);
        self.unsaved = true;
    }

    /// How far we had heard before the gap that begins now, or that is still open.
    pub(super) fn open_gap(&mut self) -> Vec<Heard> {
        let now = || self.heard.entries.values().cloned().collect();
        self.before.get_or_insert_with(now).clone()
    }

    pub(super) fn close_gap(&mut self) {
        self.unsaved |= self.before.take().is_some();
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
            self.unsaved = true;
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

    /// What to keep with the next batch, if there is anything new.
    pub(super) fn cursor(&mut self) -> Option<String> {
        std::mem::take(&mut self.unsaved).then(|| self.written(self.before.clone())).flatten()
    }

    /// What to keep with the batch that ends the gap.
    pub(super) fn cursor_after_gap(&mut self) -> Option<String> {
        self.unsaved = false;
        self.written(None)
    }

    fn written(&self, before: Option<Vec<Heard>>) -> Option<String> {
        let threads = self.threads.order.iter().cloned().collect();
        let heard = before.unwrap_or_else(|| self.heard.entries.values().cloned().collect());
        serde_json::to_string(&Cursor { threads, heard }).ok()
    }

    /// The batch was not kept.
    pub(super) fn cursor_lost(&mut self) {
        self.unsaved = true;
    }
}

pub(super) fn key(channel: &str, thread: &str) -> String {
    format!("{channel}/{thread}")
}

/// A map that forgets the oldest entry when it is full.
#[derive(Debug)]
pub(super) struct Recent<V> {
    most: usize,
    entries: HashMap<String, V>,
    order: VecDeque<String>,
}

impl<V> Recent<V> {
    fn new(most: usize) -> Self {
        Self { most, entries: HashMap::new(), order: VecDeque::new() }
    }

    pub(super) fn get(&self, key: &str) -> Option<&V> {
        self.entries.get(key)
    }

    fn take(&mut self, key: &str) -> Option<V> {
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
        assert_eq!(memory.cursor(), None);
        memory.join("C1", "1.1");
        memory.join("C1", "1.1");
        let cursor = memory.cursor().expect("something new");
        assert_eq!(memory.cursor(), None, "kept already");
        memory.cursor_lost();
        assert_eq!(memory.cursor(), Some(cursor.clone()));

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

    #[test]
    fn while_a_gap_is_open_the_cursor_stays_before_it() {
        let mut memory = Memory::default();
        memory.heard("T1", "C1", "5.000001");
        memory.heard("T1", "C1", "4.000001");
        let before = memory.cursor();
        assert!(before.as_ref().is_some_and(|it| it.contains("5.000001")), "{before:?}");
        assert_eq!(memory.open_gap().len(), 1);
        memory.heard("T1", "C1", "9.000001");
        assert_eq!(memory.cursor(), before, "a crash now begins the catch-up again");
        assert_eq!(memory.open_gap()[0].ts, "5.000001", "a second gap is the same one");
        let after = memory.cursor_after_gap();
        assert!(after.as_ref().is_some_and(|it| it.contains("9.000001")), "{after:?}");
        memory.close_gap();
        assert_eq!(memory.cursor(), after);
    }
}
