//! Quarantine: resumes suspects one at a time, each alone for the stable interval, after too many starts or at their
//! last try.
//!
//! Owns the set of held suspects; the durable list is in the store. After a crash that list marks the suspect that was
//! running, so the next start counts the crash against it and holds the others again.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use petasos_core::message::Delivery;
use petasos_core::{Platform, TurnId};
use petasos_store::{Suspect, SuspectHold};

use crate::background::completions::connected;
use crate::clock;
use crate::lifecycle::shutdown::ShutdownHandle;
use crate::links::any_changed;
use crate::links::channels::Channels;
use crate::links::supervisor::LinkHandle;
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{PlantedBug, planted};
use crate::sessions::router::Router;
use crate::storage::database::Db;

const STORE_RETRY: Duration = Duration::from_secs(1);

/// Suspects that a message must not resume.
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

#[derive(Debug)]
pub(crate) struct SuspectRelease {
    pub(crate) db: Db,
    pub(crate) channels: Arc<Channels>,
    pub(crate) router: Router,
    pub(crate) quarantine: Arc<Quarantine>,
    pub(crate) shutdown: ShutdownHandle,
}

/// Releases the suspects in order, each as soon as its platform is connected.
pub(crate) async fn run(
    release_context: SuspectRelease,
    mut held: Vec<Suspect>,
    hold: SuspectHold,
    mut links: Vec<LinkHandle>,
) {
    let release = async {
        if planted(PlantedBug::ForgetsSuspects) {
            held.clear();
        }
        if !held.is_empty() {
            clock::sleep(hold.pause).await;
        }
        while !held.is_empty() {
            links.iter_mut().for_each(|link| link.link.mark_unchanged());
            let next =
                held.iter().position(|suspect| is_reachable(&release_context, &links, suspect.platform));
            match next {
                Some(next) => try_alone(&release_context, &held.remove(next), hold.stable).await,
                None => any_changed(&mut links).await,
            }
        }
    };
    petasos_runtime::select! {
        () = release => release_context.shutdown.stopped().await,
        () = release_context.shutdown.stopped() => {}
    }
}

fn is_reachable(release_context: &SuspectRelease, links: &[LinkHandle], platform: Platform) -> bool {
    let link = release_context.channels.adapter(platform).map(|adapter| adapter.platform().as_str());
    link.is_some_and(|link| connected(links).contains(&link))
        || release_context.channels.capabilities(platform).delivery == Delivery::Pull
}

/// Resumes one suspect. Returns when its turn has ended, or has run for the stable interval and is cleared.
async fn try_alone(release_context: &SuspectRelease, suspect: &Suspect, stable: Duration) {
    tracing::warn!(turn = %suspect.turn, crashes = suspect.crashes, "resuming a suspect alone");
    release_context.quarantine.release(suspect.turn);
    release_context.router.resume(suspect.key.clone()).await;
    let until = clock::monotonic() + stable;
    let Some(mut view) = release_context.router.view(suspect.key.clone()).await else { return };
    loop {
        view.mark_unchanged();
        if !is_open(release_context, suspect).await {
            return;
        }
        petasos_runtime::select! {
            () = tokio::time::sleep_until(until) => break,
            changed = view.changed() => if changed.is_err() {
                // The session task failed; the router resumes it.
                tokio::time::sleep_until(until).await;
                break;
            },
        }
    }
    let turn = suspect.turn;
    while let Err(error) =
        release_context.db.write(Commit::ClearSuspect, move |tx| tx.clear_suspect(turn)).await
    {
        tracing::warn!(%turn, %error, "cannot clear a suspect yet");
        clock::sleep(STORE_RETRY).await;
    }
}

async fn is_open(release_context: &SuspectRelease, suspect: &Suspect) -> bool {
    let turn = suspect.turn;
    let read =
        release_context.db.read(move |reader| Ok(reader.turn(turn)?.is_some_and(|it| it.ended.is_none())));
    read.await.unwrap_or(true)
}
