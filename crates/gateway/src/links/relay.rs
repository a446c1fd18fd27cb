//! What a relay needs of the gateway: what stored conversations know of their chats, and a word before we leave.

use std::sync::Arc;
use std::time::Duration;

use petasos_core::Millis;

use crate::links::channels::Channels;
use crate::storage::database::Db;

/// How long a connector may take to say that it keeps what comes for us.
pub(crate) const GRANTED_WITHIN: Duration = Duration::from_secs(2);

/// Conversations read at start, the latest used.
const REMEMBERED: usize = 2048;

/// Whom each chat belongs to, for messages to chats that have not written since the start.
pub(crate) async fn remember(channels: &Channels, db: &Db) {
    let Some(relay) = channels.relay() else { return };
    match db.read(|reader| reader.entries_since(Millis(0), REMEMBERED)).await {
        Ok(entries) => {
            // The latest last: it is the last to be forgotten.
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

/// Best effort: a connector that does not answer keeps what we do not acknowledge.
pub(crate) async fn go_idle(channels: Arc<Channels>) {
    if let Some(relay) = channels.relay() {
        let granted = relay.go_idle(GRANTED_WITHIN).await;
        tracing::info!(granted, "told the connector that we leave");
    }
}
