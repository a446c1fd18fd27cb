//! Messages that a backfill cannot fetch, counted for the link's status.

use std::collections::BTreeSet;

use petasos_core::link::Lack;

/// Channels that are named at most; beyond them only the count of the others grows.
const MOST: usize = 1000;

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Loss {
    too_old: usize,
    refused: BTreeSet<String>,
    left_out: usize,
}

impl Loss {
    /// Messages for us that are older than the window.
    pub(crate) fn too_old(&mut self, messages: usize) {
        self.too_old += messages;
    }

    /// A channel whose history the bot may not read.
    pub(crate) fn refused(&mut self, channel: impl ToString) {
        if self.refused.len() < MOST {
            self.refused.insert(channel.to_string());
        } else {
            self.left_out += 1;
        }
    }

    /// It can be read again.
    pub(crate) fn readable(&mut self, channel: impl ToString) {
        self.refused.remove(&channel.to_string());
    }

    /// Channels, or lists of channels, that were given up.
    pub(crate) fn left_out(&mut self, channels: usize) {
        self.left_out += channels;
    }

    pub(crate) fn lack(&self, code: &str) -> Option<Lack> {
        let parts = [
            (self.too_old, "older than missed_message_backfill.window_seconds"),
            (self.refused.len(), "channels whose history the bot may not read"),
            (self.left_out, "channels that could not be asked"),
        ];
        let said: Vec<String> = parts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        let lack = |reason| Lack { what: "missed messages".to_owned(), code: code.to_owned(), reason };
        (!said.is_empty()).then(|| lack(said.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_counted_and_a_channel_that_can_be_read_again_is_not_one() {
        let mut loss = Loss::default();
        assert_eq!(loss.lack("c"), None);
        loss.too_old(2);
        loss.refused(7);
        loss.refused(7);
        loss.left_out(3);
        let reason = |loss: &Loss| loss.lack("c").map(|lack| lack.reason);
        let want = "2 older than missed_message_backfill.window_seconds, 1 channels whose history the bot may not \
                    read, 3 channels that could not be asked";
        assert_eq!(reason(&loss).as_deref(), Some(want));
        loss.readable(7);
        assert!(!reason(&loss).is_some_and(|reason| reason.contains("may not read")));
    }
}
