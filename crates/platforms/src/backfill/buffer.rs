//! Reorder buffer: live messages that wait for older ones of their channel, or for their commit.
//!
//! They are not on disk, so no cursor may pass them.

use std::collections::VecDeque;

use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct BufferedMessage<C, T> {
    /// `None`: it waits for no older message.
    pub(crate) channel: Option<C>,
    pub(crate) arrived: Instant,
    pub(crate) message: T,
}

/// In order of arrival.
#[derive(Debug)]
pub(crate) struct ReorderBuffer<C, T> {
    max: usize,
    held: VecDeque<BufferedMessage<C, T>>,
}

impl<C: Clone + Ord, T> ReorderBuffer<C, T> {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, held: VecDeque::new() }
    }

    /// Returns the message if the buffer is full.
    pub(crate) fn push(&mut self, channel: Option<C>, arrived: Instant, message: T) -> Result<(), T> {
        if self.held.len() >= self.max {
            return Err(message);
        }
        self.held.push_back(BufferedMessage { channel, arrived, message });
        Ok(())
    }

    pub(crate) fn first(&self) -> Option<&T> {
        self.held.front().map(|held| &held.message)
    }

    /// When the oldest message arrived.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.held.iter().map(|held| held.arrived).min()
    }

    /// The channel that has waited longest for older messages, and since when. `moved`: when its backfill
    /// last advanced.
    pub(crate) fn longest_waiting(&self, moved: impl Fn(&C) -> Option<Instant>) -> Option<(Instant, C)> {
        let since = |held: &BufferedMessage<C, T>| {
            let channel = held.channel.clone()?;
            Some((moved(&channel).map_or(held.arrived, |at| at.max(held.arrived)), channel))
        };
        self.held.iter().filter_map(since).min()
    }

    /// Removes the messages that no longer wait.
    pub(crate) fn release(&mut self, waits: impl Fn(&BufferedMessage<C, T>) -> bool) -> Vec<T> {
        let (held, free): (VecDeque<_>, VecDeque<_>) = self.held.drain(..).partition(waits);
        self.held = held;
        free.into_iter().map(|held| held.message).collect()
    }

    pub(crate) fn clear(&mut self) {
        self.held.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_runtime::clock;
    use std::time::Duration;

    #[test]
    fn holds_waiting_channels_in_order_within_the_bound() {
        let start = clock::monotonic();
        let mut buffer = ReorderBuffer::new(3);
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        for (channel, message) in [(Some(1), 10), (Some(2), 20), (None, 30)] {
            assert_eq!(buffer.push(channel, at(message), message), Ok(()));
        }
        assert_eq!(buffer.push(Some(1), at(40), 40), Err(40));
        assert_eq!((buffer.first(), buffer.oldest()), (Some(&10), Some(at(10))));
        assert_eq!(buffer.longest_waiting(|_| None), Some((at(10), 1)));
        let moved = |channel: &u64| (*channel == 1).then(|| at(25));
        assert_eq!(buffer.longest_waiting(moved), Some((at(20), 2)));
        assert_eq!(buffer.release(|held| held.channel == Some(2)), [10, 30]);
        assert_eq!(buffer.release(|_| false), [20]);
    }
}
