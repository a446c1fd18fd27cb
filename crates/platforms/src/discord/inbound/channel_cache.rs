//! Cache of channels: kind, name and parent.
//!
//! Messages carry only a channel id. Missing channels are fetched, so the cache may be emptied at any time.

use std::collections::HashMap;

use crate::discord::wire::{DiscordChannel, Guild};

const THREAD_KINDS: [u8; 3] = [10, 11, 12];
/// Text, direct, voice, group, announcements, threads, stage.
const TEXT_KINDS: [u8; 9] = [0, 1, 2, 3, 5, 10, 11, 12, 13];
/// Very large servers have a few thousand channels and threads.
const MAX_CHANNELS: usize = 10_000;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::discord) struct ChannelInfo {
    pub(in crate::discord) guild: Option<u64>,
    pub(in crate::discord) parent: Option<u64>,
    pub(in crate::discord) name: Option<String>,
    pub(in crate::discord) is_thread: bool,
    /// Newest message when the channel was listed.
    pub(in crate::discord) newest: Option<u64>,
    pub(in crate::discord) has_messages: bool,
}

#[derive(Debug, Default)]
pub(in crate::discord) struct ChannelCache(HashMap<u64, ChannelInfo>);

impl ChannelCache {
    pub(in crate::discord) fn get(&self, channel: u64) -> Option<&ChannelInfo> {
        self.0.get(&channel)
    }

    pub(in crate::discord) fn clear(&mut self) {
        self.0.clear();
    }

    pub(in crate::discord) fn insert(&mut self, channel: &DiscordChannel, guild: Option<u64>) {
        if self.0.len() >= MAX_CHANNELS {
            self.0.clear();
        }
        self.0.insert(channel.id.get(), ChannelInfo::from_wire(channel, guild));
    }

    pub(in crate::discord) fn insert_guild(&mut self, guild: &Guild) {
        for channel in guild.channels.iter().chain(&guild.threads) {
            self.insert(channel, Some(guild.id.get()));
        }
    }

    pub(in crate::discord) fn remove(&mut self, channel: u64) {
        self.0.remove(&channel);
    }

    /// A cache of the channel and its parent only.
    pub(in crate::discord) fn with_parent(&self, channel: u64) -> Self {
        let parent = self.get(channel).and_then(|info| info.parent);
        let known = |id: u64| self.get(id).map(|info| (id, info.clone()));
        Self([Some(channel), parent].into_iter().flatten().filter_map(known).collect())
    }

    /// Every name that the settings may use for a channel.
    pub(in crate::discord) fn names(&self, channel: u64, info: &ChannelInfo) -> Vec<String> {
        let mut names = vec![channel.to_string()];
        names.extend(info.name.clone());
        if let Some(parent) = info.parent {
            names.push(parent.to_string());
            names.extend(self.get(parent).and_then(|parent| parent.name.clone()));
        }
        names
    }
}

impl ChannelInfo {
    pub(in crate::discord) fn from_wire(channel: &DiscordChannel, guild: Option<u64>) -> Self {
        let is_thread = THREAD_KINDS.contains(&channel.kind);
        Self {
            guild: channel.guild_id.map(|id| id.get()).or(guild),
            // The parent is only a category, but the settings may name it.
            parent: channel.parent_id.map(|id| id.get()),
            name: channel.name.clone(),
            is_thread,
            newest: channel.last_message_id.map(|id| id.get()),
            has_messages: TEXT_KINDS.contains(&channel.kind),
        }
    }
}
