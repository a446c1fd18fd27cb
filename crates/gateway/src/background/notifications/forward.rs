//! Forwards messages that an external program posts, unchanged.
//!
//! Owns nothing. The idempotency key and the outbox item are one commit, so a repeated post, after a crash or a lost
//! response, waits for the same item.

use std::sync::Arc;
use std::time::Duration;

use petasos_core::OutboxId;
use petasos_core::outbox::{Draft, State};
use petasos_platforms::{Post, PostOutcome};
use petasos_store::{EnqueueOutcome, Tx};

use crate::inbound::ingest::Ingest;
use crate::runtime::commit::Commit;
use crate::{Error, clock};

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Enqueues the message and responds when it is delivered or dead-lettered, or when the time limit has passed.
pub(crate) async fn forward(ingest: Arc<Ingest>, platform: &'static str, account: String, post: Post) {
    let Post { dedup, fingerprints, route, text, within, mut done } = post;
    let Ok(route) = ingest.homes.resolve(route) else {
        let _ = done.send(PostOutcome::NoHomeChannel);
        return;
    };
    let lane = route.lane();
    let now = clock::now();
    let draft = Draft::notice(route, text);
    let dedup = format!("{account}:{dedup}");
    let enqueue = move |tx: &Tx<'_>| tx.enqueue_once(platform, &dedup, &fingerprints, &draft, now);
    let enqueued = ingest.db.write(Commit::Forward, enqueue).await;
    let posted = match enqueued {
        Ok(enqueued) => {
            ingest.lanes.wake(lane).await;
            petasos_runtime::select! {
                posted = delivered(&ingest, enqueued, within) => posted,
                () = done.closed() => return,
            }
        }
        Err(error) => {
            tracing::warn!(platform, %error, "cannot accept a forwarded message; its sender keeps it");
            PostOutcome::NotStored
        }
    };
    // The caller may have gone; the item stays in the outbox.
    let _ = done.send(posted);
}

async fn delivered(ingest: &Ingest, enqueued: EnqueueOutcome, within: Duration) -> PostOutcome {
    let Some(id) = enqueued.id() else { return PostOutcome::Delivered { duplicate: true } };
    let again = match final_state(ingest, id).await {
        Ok(over) => over.is_some() && matches!(enqueued, EnqueueOutcome::Existing(_)),
        Err(_unreadable) => false,
    };
    let watch = async {
        loop {
            match final_state(ingest, id).await {
                Ok(Some(State::Dead)) => return PostOutcome::Dead,
                Ok(Some(_)) => return PostOutcome::Delivered { duplicate: again },
                // Read errors are retried; the timeout below bounds the time.
                Ok(None) | Err(_) => clock::sleep(POLL_INTERVAL).await,
            }
        }
    };
    tokio::time::timeout(within, watch).await.unwrap_or(PostOutcome::Queued)
}

/// `None`: not delivered yet. A missing item was delivered and pruned, or dropped by a person.
async fn final_state(ingest: &Ingest, id: OutboxId) -> Result<Option<State>, Error> {
    let item = ingest.db.read(move |reader| reader.item(id)).await?;
    Ok(match item.map(|item| item.state) {
        Some(State::Streaming | State::Due | State::Sending) => None,
        Some(State::Dead) => Some(State::Dead),
        Some(State::Done) | None => Some(State::Done),
    })
}
