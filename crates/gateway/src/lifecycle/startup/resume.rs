//! What a process takes up from the one before it, as soon as the platform it belongs to is connected.
//!
//! Owns nothing: every candidate is in the store as an open turn, a mark or a waiting message. If we die before it
//! is taken up, the next start finds it again.

use std::sync::Arc;

use petasos_core::session::resumes_by_itself;
use petasos_core::{Inbound, Source};
use petasos_store::{Candidate, Marked, local_time};

use crate::inbound::ingest::Ingest;

/// Takes these up.
pub(crate) async fn take_up(ingest: &Arc<Ingest>, candidates: Vec<Candidate>) {
    for candidate in candidates {
        match candidate {
            Candidate::Turn(key) => ingest.router.resume(key).await,
            Candidate::Waiting(key) => ingest.router.wake(key).await,
            Candidate::Marked(marked) => continue_marked(ingest, *marked).await,
        }
    }
}

/// A turn without a message: the model is told that the session is back.
async fn continue_marked(ingest: &Arc<Ingest>, Marked { entry, source, window }: Marked) {
    let key = entry.session_key.clone();
    let still = ingest.db.read({
        let key = key.clone();
        move |reader| {
            // Its platform may have come hours after us.
            let now = local_time(crate::clock::now());
            let pending = reader.entry(&key)?.is_some_and(|entry| resumes_by_itself(&entry, window, now));
            Ok(pending && reader.open_turn_of(&key)?.is_none() && reader.queued(&key)?.is_empty())
        }
    });
    match still.await {
        Ok(true) => {}
        // Somebody wrote meanwhile, and is answered with the same note.
        Ok(false) => return,
        Err(error) => {
            tracing::warn!(%key, %error, "a marked session is not taken up");
            return;
        }
    }
    let dedup = format!("resume:{}:{}", key, crate::clock::now().0);
    // Nothing in particular is replied to.
    let inbound = Inbound::internal(Source { message_id: None, ..source }, dedup, "");
    if let Err(error) = ingest.submit(inbound).await {
        tracing::warn!(%key, %error, "a marked session is not taken up");
    }
}
