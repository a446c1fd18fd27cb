//! Messages that somebody outside wants passed on as they are.
//!
//! Owns nothing. Identity and outbox item are one commit, so whoever posts the same again, because we died or because
//! the answer was lost, waits for the same item: it is neither lost nor owed twice.

use std::sync::Arc;
use std::time::Duration;

use petasos_core::OutboxId;
use petasos_core::outbox::{Draft, State};
use petasos_platforms::{Post, Posted};
use petasos_store::{Owed, Tx};

use crate::inbound::ingest::Ingest;
use crate::runtime::commit::Commit;
use crate::{Error, clock};

/// How often an item is looked at while somebody waits for it.
const GLANCE: Duration = Duration::from_millis(50);

/// Owes the message and answers when it is delivered, given up, or has taken too long.
pub(crate) async fn carry(ingest: Arc<Ingest>, platform: &'static str, account: String, post: Post) {
    let Post { dedup, fingerprints, route, text, within, mut done } = post;
    let Ok(route) = ingest.homes.lead(route) else {
        let _ = done.send(Posted::NoHome);
        return;
    };
    let (lane, now) = (route.lane(), clock::now());
    let draft = Draft::notice(route, text);
    let dedup = format!("{account}:{dedup}");
    let owe = move |tx: &Tx<'_>| tx.owe_once(platform, &dedup, &fingerprints, &draft, now);
    let owed = ingest.db.write(Commit::PassOn, owe).await;
    let posted = match owed {
        Ok(owed) => {
            ingest.deliver.due(lane).await;
            petasos_runtime::select! {
                posted = delivered(&ingest, owed, within) => posted,
                // Nobody waits any longer.
                () = done.closed() => return,
            }
        }
        Err(error) => {
            tracing::warn!(platform, %error, "a message to be passed on is not accepted; its sender keeps it");
            Posted::NotTaken
        }
    };
    // Whoever asked may have gone; the item is owed all the same.
    let _ = done.send(posted);
}

async fn delivered(ingest: &Ingest, owed: Owed, within: Duration) -> Posted {
    let Some(id) = owed.id() else { return Posted::Delivered { again: true } };
    let again = match is_over(ingest, id).await {
        Ok(over) => over.is_some() && matches!(owed, Owed::Known(_)),
        Err(_unreadable) => false,
    };
    let watch = async {
        loop {
            match is_over(ingest, id).await {
                Ok(Some(State::Dead)) => return Posted::Dead,
                Ok(Some(_)) => return Posted::Delivered { again },
                // A store that cannot be read for the moment is asked again; the time is bounded below.
                Ok(None) | Err(_) => tokio::time::sleep(GLANCE).await,
            }
        }
    };
    tokio::time::timeout(within, watch).await.unwrap_or(Posted::Owed)
}

/// How the item ended; `None`: it is still owed. One that is gone was done, or a person dropped it.
async fn is_over(ingest: &Ingest, id: OutboxId) -> Result<Option<State>, Error> {
    let item = ingest.db.read(move |reader| reader.item(id)).await?;
    Ok(match item.map(|item| item.state) {
        Some(State::Streaming | State::Due | State::Sending) => None,
        Some(State::Dead) => Some(State::Dead),
        Some(State::Done) | None => Some(State::Done),
    })
}
