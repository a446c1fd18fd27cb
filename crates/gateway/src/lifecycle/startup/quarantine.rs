//! Suspects after too many starts or at their last try: resumed one at a time, each alone for the stable interval.
//!
//! Owns which suspects are held; the durable list is in the store. A crash leaves: that list, with the suspect on trial
//! marked, so the next start counts the crash against it and holds the others again.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use petasos_core::message::Delivery;
use petasos_core::{Platform, TurnId};
use petasos_store::{Hold, Suspect};
use tokio::time::Instant;

use crate::background::completions::connected;
use crate::lifecycle::shutdown::Stopper;
use crate::links::any_changed;
use crate::links::channels::Channels;
use crate::links::supervisor::LinkHandle;
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{Planted, planted};
use crate::sessions::router::Router;
use crate::storage::database::Db;

/// How long to wait when the store refuses.
const STORE_RETRY: Duration = Duration::from_secs(1);

/// The suspects that no message may resume.
#[derive(Debug, Default)]
pub(crate) struct Quarantine(Mutex<HashSet<TurnId>>);

impl Quarantine {
    pub(crate) fn new(held: &[Suspect]) -> Self {
        Self(Mutex::new(held.iter().map(|suspect| suspect.turn).collect()))
    }

    pub(crate) fn holds(&self, turn: TurnId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&turn)
    }

    fn release(&self, turn: TurnId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&turn);
    }
}

/// What a suspect is resumed with.
#[derive(Debug)]
pub(crate) struct Release {
    pub(crate) db: Db,
    pub(crate) channels: Arc<Channels>,
    pub(crate) router: Router,
    pub(crate) quarantine: Arc<Quarantine>,
    pub(crate) stopper: Stopper,
}

/// Releases the suspects in their order, as soon as their platform is connected.
pub(crate) async fn run(with: Release, mut held: Vec<Suspect>, hold: Hold, mut links: Vec<LinkHandle>) {
    let release = async {
        if planted(Planted::ForgetsSuspects) {
            held.clear();
        }
        if !held.is_empty() {
            tokio::time::sleep(hold.pause).await;
        }
        while !held.is_empty() {
            links.iter_mut().for_each(|link| link.link.mark_unchanged());
            let next = held.iter().position(|suspect| is_reachable(&with, &links, suspect.platform));
            match next {
                Some(next) => try_alone(&with, &held.remove(next), hold.stable).await,
                None => any_changed(&mut links).await,
            }
        }
    };
    petasos_runtime::select! {
        () = release => with.stopper.stopped().await,
        () = with.stopper.stopped() => {}
    }
}

fn is_reachable(with: &Release, links: &[LinkHandle], platform: Platform) -> bool {
    let link = with.channels.adapter(platform).map(|adapter| adapter.platform().as_str());
    link.is_some_and(|link| connected(links).contains(&link))
        || with.channels.capabilities(platform).delivery == Delivery::Pull
}

/// Resumes one suspect. Returns when its turn has ended, or has run for the stable interval and is cleared.
async fn try_alone(with: &Release, suspect: &Suspect, stable: Duration) {
    tracing::warn!(turn = %suspect.turn, crashes = suspect.crashes, "resuming a suspect alone");
    with.quarantine.release(suspect.turn);
    with.router.resume(suspect.key.clone()).await;
    let until = Instant::now() + stable;
    let Some(mut view) = with.router.view(suspect.key.clone()).await else { return };
    loop {
        view.mark_unchanged();
        if !is_open(with, suspect).await {
            return;
        }
        petasos_runtime::select! {
            () = tokio::time::sleep_until(until) => break,
            changed = view.changed() => if changed.is_err() {
                // The session failed and is resumed by the router.
                tokio::time::sleep_until(until).await;
                break;
            },
        }
    }
    let turn = suspect.turn;
    while let Err(error) = with.db.write(Commit::ClearSuspect, move |tx| tx.clear_suspect(turn)).await {
        tracing::warn!(%turn, %error, "cannot clear a suspect yet");
        tokio::time::sleep(STORE_RETRY).await;
    }
}

/// A store that cannot be read leaves the suspect on trial until the stable interval is over.
async fn is_open(with: &Release, suspect: &Suspect) -> bool {
    let turn = suspect.turn;
    let read = with.db.read(move |reader| Ok(reader.turn(turn)?.is_some_and(|it| it.ended.is_none())));
    read.await.unwrap_or(true)
}
