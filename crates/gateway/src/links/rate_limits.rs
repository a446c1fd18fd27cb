//! Persists the rate limits that platforms impose.
//!
//! One task per adapter, in a gateway and in a connector. The adapter's `RateLimits` enforce the limits; this task stores new
//! penalties and deletes expired ones. A lane whose send was refused stores the penalty together with the postponed item;
//! penalties of other requests (typing, reactions, preview edits, the command menu) are stored here, and a crash before
//! that commit loses them.

use std::sync::Arc;
use std::time::Duration;

use petasos_core::rate_limit::Penalty;
use petasos_core::{Millis, Platform};
use petasos_platforms::Adapter;

use crate::clock;
use crate::lifecycle::shutdown::ShutdownHandle;
use crate::links::channels::Channels;
use crate::runtime::commit::Commit;
use crate::storage::database::Db;

const STORE_RETRY: Duration = Duration::from_secs(1);
/// Bounded because the clock may be set.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// Applies stored penalties. Those of unconfigured platforms stay in the store until they expire.
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

pub async fn persist(adapter: Arc<Adapter>, db: Db, shutdown: ShutdownHandle) {
    let limits = adapter.limits();
    // Rows restored at boot are deleted when they expire.
    let mut next_end = limits.next_end();
    loop {
        let now = clock::now();
        let unsaved = limits.unsaved();
        if !unsaved.is_empty() || next_end.is_some_and(|end| end <= now) {
            if let Err(error) = store(&db, unsaved.clone(), now).await {
                tracing::warn!(%error, platform = %adapter.platform(), "cannot store a rate limit");
                if shutdown.stopping() {
                    return;
                }
                clock::sleep(STORE_RETRY).await;
                continue;
            }
            limits.saved(&unsaved);
            next_end = None;
        }
        // Includes penalties that are only in the store.
        next_end = next_end.into_iter().chain(limits.next_end()).min();
        if limits.unsaved().is_empty() && shutdown.stopping() {
            return;
        }
        let latest = now.after(MAX_SLEEP);
        petasos_runtime::select! {
            () = limits.changed() => {}
            () = clock::sleep_until(next_end.unwrap_or(latest).min(latest)) => {}
            () = shutdown.stopped() => {}
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
