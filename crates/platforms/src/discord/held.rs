//! Messages that the socket brought while something older of their channel is still missing.
//!
//! They wait for it, so that a channel is heard in order, but not for ever: where the missing cannot be had, what is
//! said now is heard before it. They are not on disk, so the cursor stays before the first of them; what finds no
//! room does not wait.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::Instant;
use twilight_model::id::Id;
use twilight_model::id::marker::{ChannelMarker, MessageMarker};

use super::session::Event;

const MOST: usize = 1024;

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) channel: u64,
    pub(super) sequence: u64,
    pub(super) data: Box<RawValue>,
    arrived: Instant,
}

/// In the order of the socket.
#[derive(Debug, Default)]
pub(super) struct Held(VecDeque<Waiting>);

/// Where a message belongs.
#[derive(Deserialize)]
pub(super) struct Spoken {
    pub(super) id: Id<MessageMarker>,
    pub(super) channel_id: Id<ChannelMarker>,
}

impl Held {
    /// False: there is no room.
    pub(super) fn put(&mut self, channel: u64, event: &Event) -> bool {
        let room = self.0.len() < MOST;
        if room {
            let (sequence, data) = (event.sequence, event.data.clone());
            self.0.push_back(Waiting { channel, sequence, data, arrived: Instant::now() });
        }
        room
    }

    /// Before this event everything was heard.
    pub(super) fn first(&self) -> Option<u64> {
        self.0.front().map(|waiting| waiting.sequence)
    }

    /// The channel that has waited longest, and since when. `moved`: when the catch-up of a channel brought something
    /// last.
    pub(super) fn longest(&self, moved: impl Fn(u64) -> Option<Instant>) -> Option<(Instant, u64)> {
        let since =
            |it: &Waiting| (moved(it.channel).map_or(it.arrived, |at| at.max(it.arrived)), it.channel);
        self.0.iter().map(since).min()
    }

    /// Those that need not wait any longer.
    pub(super) fn release(&mut self, waits: impl Fn(u64) -> bool) -> Vec<Waiting> {
        let (held, free) = self.0.drain(..).partition(|waiting| waits(waiting.channel));
        self.0 = held;
        let free: VecDeque<Waiting> = free;
        free.into()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
