//! Stores the rate limits that platforms impose, so that they outlive the process.
//!
//! One task per adapter, in a gateway and in a connector. The adapter's `Limits` hold back the requests; this writes what they record and deletes what is
//! over. A lane whose send was refused stores the wait with the postponed item, in one commit; what other requests
//! meet (typing, reactions, edits of previews, the command menu) is stored here right after. A crash before that
//! commit forgets the wait.

use std::sync::Arc;
use std::time::Duration;

use petasos_core::rate_limit::Penalty;
use petasos_core::{Millis, Platform};
use petasos_platforms::Adapter;

use crate::clock;
use crate::lifecycle::shutdown::Stopper;
use crate::links::channels::Channels;
use crate::runtime::commit::Commit;
use crate::storage::database::Db;

/// How long to wait when the store refuses.
const STORE_RETRY: Duration = Duration::from_secs(1);
/// A sleep is never longer: the clock may be set.
const LOOK: Duration = Duration::from_secs(60);

/// Puts stored penalties in force. Those of a platform that is switched off stay in the store until they are over.
pub(crate) fn restore(channels: &Channels, penalties: Vec<Penalty>) {
    for adapter in channels.adapters() {
        let served = |platform: Platform| channels.is_served_by(platform, adapter);
        let own = penalties.iter().filter(|penalty| served(penalty.platform)).cloned();
        adapter.limits().restore(clock::now, own);
    }
    for penalty in penalties {
        let seconds = penalty.until.since(clock::now()).as_secs();
        tracing::info!(limit = %penalty, seconds, reason = penalty.reason, "rate limit still in force");
    }
}

/// Stores what the adapter records until `stopper` stops it.
pub async fn keep(adapter: Arc<Adapter>, db: Db, stopper: Stopper) {
    let limits = adapter.limits();
    // Rows restored at boot are deleted when they expire.
    let mut next_end = limits.next_end();
    loop {
        let (now, unsaved) = (clock::now(), limits.unsaved());
        if !unsaved.is_empty() || next_end.is_some_and(|end| end <= now) {
            if let Err(error) = store(&db, unsaved.clone(), now).await {
                tracing::warn!(%error, platform = %adapter.platform(), "a rate limit cannot be stored");
                if stopper.stopping() {
                    return;
                }
                tokio::time::sleep(STORE_RETRY).await;
                continue;
            }
            limits.saved(&unsaved);
            next_end = None;
        }
        // One that the adapter has forgotten meanwhile is still in the store.
        next_end = next_end.into_iter().chain(limits.next_end()).min();
        if limits.unsaved().is_empty() && stopper.stopping() {
            return;
        }
        let look = now.after(LOOK);
        petasos_runtime::select! {
            () = limits.changed() => {}
            () = clock::sleep_until(next_end.unwrap_or(look).min(look)) => {}
            () = stopper.stopped() => {}
        }
    }
}

async fn store(db: &Db, unsaved: Vec<Penalty>, now: Millis) -> Result<(), crate::Error> {
    let job = db.write(Commit::RateLimit, move |tx| {
        unsaved.iter().try_for_each(|penalty| tx.put_penalty(penalty))?;
        tx.expire_penalties(now).map(drop)
    });
    job.await
}
