//! The channels we know: what kind each is, what it is called and where it belongs.
//!
//! A message names only the number of its channel. The list is a cache: what is missing is asked for, so it
//! may be emptied at any time.

use std::collections::HashMap;

use super::wire::{Channel, Guild};

/// Discord's numbers for channels that hang below another one.
const THREADS: [u8; 3] = [10, 11, 12];
/// Kinds in which people write: text, direct, voice, group, announcements, threads, stage.
const WRITTEN: [u8; 9] = [0, 1, 2, 3, 5, 10, 11, 12, 13];
/// A very large server has some thousand channels and threads.
const MOST: usize = 10_000;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Room {
    pub(super) guild: Option<u64>,
    pub(super) parent: Option<u64>,
    pub(super) name: Option<String>,
    pub(super) is_thread: bool,
    /// Its newest message, as told when the channel was listed.
    pub(super) newest: Option<u64>,
    /// People write in it.
    pub(super) written: bool,
}

#[derive(Debug, Default)]
pub(super) struct Rooms(HashMap<u64, Room>);

impl Rooms {
    pub(super) fn get(&self, channel: u64) -> Option<&Room> {
        self.0.get(&channel)
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn put(&mut self, channel: &Channel, guild: Option<u64>) {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(channel.id.get(), Room::read(channel, guild));
    }

    pub(super) fn put_guild(&mut self, guild: &Guild) {
        for channel in guild.channels.iter().chain(&guild.threads) {
            self.put(channel, Some(guild.id.get()));
        }
    }

    pub(super) fn remove(&mut self, channel: u64) {
        self.0.remove(&channel);
    }

    /// A channel and what it belongs to, as far as they are known.
    pub(super) fn around(&self, channel: u64) -> Self {
        let parent = self.get(channel).and_then(|room| room.parent);
        let known = |id: u64| self.get(id).map(|room| (id, room.clone()));
        Self([Some(channel), parent].into_iter().flatten().filter_map(known).collect())
    }

    /// Every name by which the settings may speak of a channel.
    pub(super) fn keys(&self, channel: u64, room: &Room) -> Vec<String> {
        let mut keys = vec![channel.to_string()];
        keys.extend(room.name.clone());
        if let Some(parent) = room.parent {
            keys.push(parent.to_string());
            keys.extend(self.get(parent).and_then(|parent| parent.name.clone()));
        }
        keys
    }
}

impl Room {
    pub(super) fn read(channel: &Channel, guild: Option<u64>) -> Self {
        let is_thread = THREADS.contains(&channel.kind);
        Self {
            guild: channel.guild_id.map(|id| id.get()).or(guild),
            // A channel's parent is only the heading it is listed under, but the settings may name it.
            parent: channel.parent_id.map(|id| id.get()),
            name: channel.name.clone(),
            is_thread,
            newest: channel.last_message_id.map(|id| id.get()),
            written: WRITTEN.contains(&channel.kind),
        }
    }
}
