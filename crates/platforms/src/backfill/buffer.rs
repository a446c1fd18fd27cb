//! The reorder buffer: live messages that wait for older ones of their channel, or for their commit.
//!
//! Its messages are not on disk, so no cursor passes them. A message that finds no room is given back.

use std::collections::VecDeque;

use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct Held<C, T> {
    /// `None`: it waits for no other message.
    pub(crate) channel: Option<C>,
    pub(crate) arrived: Instant,
    pub(crate) message: T,
}

/// In the order of arrival.
#[derive(Debug)]
pub(crate) struct Buffer<C, T> {
    most: usize,
    held: VecDeque<Held<C, T>>,
}

impl<C: Clone + Ord, T> Buffer<C, T> {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, held: VecDeque::new() }
    }

    /// Gives the message back if there is no room.
    pub(crate) fn push(&mut self, channel: Option<C>, arrived: Instant, message: T) -> Result<(), T> {
        if self.held.len() >= self.most {
            return Err(message);
        }
        self.held.push_back(Held { channel, arrived, message });
        Ok(())
    }

    pub(crate) fn first(&self) -> Option<&T> {
        self.held.front().map(|held| &held.message)
    }

    /// When the message that waits longest arrived.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.held.iter().map(|held| held.arrived).min()
    }

    /// The channel that has waited longest for older messages, and since when. `moved`: when its backfill last advanced.
    pub(crate) fn longest(&self, moved: impl Fn(&C) -> Option<Instant>) -> Option<(Instant, C)> {
        let since = |held: &Held<C, T>| {
            let channel = held.channel.clone()?;
            Some((moved(&channel).map_or(held.arrived, |at| at.max(held.arrived)), channel))
        };
        self.held.iter().filter_map(since).min()
    }

    /// Takes out the messages that need not wait any longer.
    pub(crate) fn release(&mut self, waits: impl Fn(&Held<C, T>) -> bool) -> Vec<T> {
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
    use std::time::Duration;

    #[test]
    fn only_the_channels_that_wait_are_held_in_order_and_within_the_bound() {
        let (start, mut buffer) = (Instant::now(), Buffer::new(3));
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        for (channel, message) in [(Some(1), 10), (Some(2), 20), (None, 30)] {
            assert_eq!(buffer.push(channel, at(message), message), Ok(()));
        }
        assert_eq!(buffer.push(Some(1), at(40), 40), Err(40));
        assert_eq!((buffer.first(), buffer.oldest()), (Some(&10), Some(at(10))));
        assert_eq!(buffer.longest(|_| None), Some((at(10), 1)));
        let moved = |channel: &u64| (*channel == 1).then(|| at(25));
        assert_eq!(buffer.longest(moved), Some((at(20), 2)));
        assert_eq!(buffer.release(|held| held.channel == Some(2)), [10, 30]);
        assert_eq!(buffer.release(|_| false), [20]);
    }
}
