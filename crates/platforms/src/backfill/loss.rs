//! Messages that a backfill cannot fetch, counted for the link's status.

use std::collections::BTreeSet;

use petasos_core::link::PartialOutage;

/// Maximum number of channels remembered by name.
const MAX_NAMED: usize = 1000;

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Loss {
    too_old: usize,
    refused: BTreeSet<String>,
    skipped: usize,
}

impl Loss {
    /// Addressed messages older than the window.
    pub(crate) fn too_old(&mut self, messages: usize) {
        self.too_old += messages;
    }

    /// A channel whose history the bot may not read.
    pub(crate) fn refused(&mut self, channel: impl ToString) {
        if self.refused.len() < MAX_NAMED {
            self.refused.insert(channel.to_string());
        } else {
            self.skipped += 1;
        }
    }

    pub(crate) fn readable_again(&mut self, channel: impl ToString) {
        self.refused.remove(&channel.to_string());
    }

    /// Channels, or lists of channels, that could not be fetched.
    pub(crate) fn skipped(&mut self, channels: usize) {
        self.skipped += channels;
    }

    pub(crate) fn partial_outage(&self, code: &str) -> Option<PartialOutage> {
        let parts = [
            (self.too_old, "message", "older than missed_message_backfill.window_seconds"),
            (self.refused.len(), "channel", "whose history the bot may not read"),
            (self.skipped, "channel", "that could not be fetched"),
        ];
        let reasons: Vec<String> = parts
            .into_iter()
            .filter(|(count, ..)| *count > 0)
            .map(|(count, noun, detail)| {
                format!("{count} {noun}{} {detail}", if count == 1 { "" } else { "s" })
            })
            .collect();
        let outage =
            |reason| PartialOutage { part: "missed messages".to_owned(), code: code.to_owned(), reason };
        (!reasons.is_empty()).then(|| outage(reasons.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_losses_until_a_channel_is_readable_again() {
        let mut loss = Loss::default();
        assert_eq!(loss.partial_outage("c"), None);
        loss.too_old(2);
        loss.refused(7);
        loss.refused(7);
        loss.skipped(3);
        let reason = |loss: &Loss| loss.partial_outage("c").map(|outage| outage.reason);
        let want = "2 messages older than missed_message_backfill.window_seconds, 1 channel whose history the bot \
                    may not read, 3 channels that could not be fetched";
        assert_eq!(reason(&loss).as_deref(), Some(want));
        loss.readable_again(7);
        assert!(!reason(&loss).is_some_and(|reason| reason.contains("may not read")));
    }
}
