//! Relay support: restores what is known about chats, and notifies the connector before a shutdown.

use std::sync::Arc;
use std::time::Duration;

use petasos_core::Millis;

use crate::links::channels::Channels;
use crate::storage::database::Db;

/// For the connector's confirmation that it keeps new messages.
pub(crate) const GRANTED_WITHIN: Duration = Duration::from_secs(2);

/// Only the most recently used sessions are read.
const MAX_ENTRIES: usize = 2048;

/// Restores the owners of chats, for messages to chats that have not written since the start.
pub(crate) async fn restore_chats(channels: &Channels, db: &Db) {
    let Some(relay) = channels.relay() else { return };
    match db.read(|reader| reader.entries_since(Millis(0), MAX_ENTRIES)).await {
        Ok(entries) => {
            // Oldest first, so that the newest stay in the relay's cache.
            entries
                .iter()
                .rev()
                .filter_map(|entry| entry.origin.as_ref())
                .for_each(|source| relay.learn(source));
        }
        Err(error) => {
            tracing::warn!(%error, "the connector may decline messages to chats that have not written yet");
        }
    }
}

/// Best effort: a connector that does not respond keeps unacknowledged messages anyway.
pub(crate) async fn go_idle(channels: Arc<Channels>) {
    if let Some(relay) = channels.relay() {
        let granted = relay.go_idle(GRANTED_WITHIN).await;
        tracing::info!(granted, "announced the shutdown to the connector");
    }
}
