//! Resumes the work of the previous process as soon as its platform is connected.
//!
//! Owns nothing: every candidate is in the store, as an open turn, a mark or a waiting message. After a crash the next
//! start finds it again.

use std::sync::Arc;

use petasos_core::session::resumes_by_itself;
use petasos_core::{Inbound, Source};
use petasos_store::{MarkedSession, ResumeCandidate, local_time};

use crate::inbound::ingest::Ingest;

pub(crate) async fn resume_candidates(ingest: &Arc<Ingest>, candidates: Vec<ResumeCandidate>) {
    for candidate in candidates {
        match candidate {
            ResumeCandidate::Turn(key) => ingest.router.resume(key).await,
            ResumeCandidate::Waiting(key) => ingest.router.wake(key).await,
            ResumeCandidate::Marked(marked) => continue_marked(ingest, *marked).await,
        }
    }
}

/// Starts a turn without a message, with a note to the model about the interruption.
async fn continue_marked(ingest: &Arc<Ingest>, MarkedSession { entry, source, window }: MarkedSession) {
    let key = entry.session_key.clone();
    let still = ingest.db.read({
        let key = key.clone();
        move |reader| {
            // The platform may have connected long after the start.
            let now = local_time(crate::clock::now());
            let pending = reader.entry(&key)?.is_some_and(|entry| resumes_by_itself(&entry, window, now));
            Ok(pending && reader.open_turn_of(&key)?.is_none() && reader.queued(&key)?.is_empty())
        }
    });
    match still.await {
        Ok(true) => {}
        // A message arrived meanwhile; its turn gets the same note.
        Ok(false) => return,
        Err(error) => {
            tracing::warn!(%key, %error, "cannot resume a marked session");
            return;
        }
    }
    let dedup = format!("resume:{}:{}", key, crate::clock::now().0);
    // There is no message to reply to.
    let inbound = Inbound::internal(Source { message_id: None, ..source }, dedup, "");
    if let Err(error) = ingest.submit(inbound).await {
        tracing::warn!(%key, %error, "cannot resume a marked session");
    }
}
