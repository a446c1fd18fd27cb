//! Keeps house: old rows and files go, and conversations whose time is over end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use petasos_core::SessionKey;
use petasos_core::session::Policies;
use petasos_store::FinalizeFrom;
use tokio::time::Instant;

use crate::clock;
use crate::inbound::downloads::Fetcher;
use crate::lifecycle::shutdown::Stopper;
use crate::runtime::commit::Commit;
use crate::storage::cleanup;
use crate::storage::database::Db;

const SWEEP: Duration = Duration::from_secs(300);
const FIRST_SWEEP: Duration = Duration::from_secs(60);
/// How often the cache is looked through.
const FILES: Duration = SWEEP;
/// How often the folders of conversations and jobs are.
const FOLDERS: Duration = Duration::from_secs(6 * 3600);
const FIRST_FOLDERS: Duration = Duration::from_secs(600);
/// Keys of the routing table that are read at a time.
const KEYS: usize = 1000;
/// Between two steps of a pass over folders or keys.
const STEP_PAUSE: Duration = Duration::from_millis(200);
const SWEEP_STEP: Duration = Duration::from_secs(1);
/// A conversation nobody used for this long starts anew; its transcript stays.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(90 * 24 * 3600);

/// What the sweep uses.
#[derive(Debug)]
pub(crate) struct Sweep {
    pub(crate) db: Db,
    pub(crate) home: PathBuf,
    pub(crate) resets: Policies,
    pub(crate) fetcher: Arc<Fetcher>,
    pub(crate) stopper: Stopper,
}

pub(crate) async fn run(sweep: Sweep) {
    let mut pause = FIRST_SWEEP;
    let mut files_at = Instant::now() + FIRST_SWEEP;
    let mut folders_at = Instant::now() + FIRST_FOLDERS;
    let mut from = FinalizeFrom::default();
    loop {
        petasos_runtime::select! {
            () = sweep.stopper.stopped() => return,
            () = tokio::time::sleep(pause) => {}
        }
        let (now, resets, behind) = (clock::now(), sweep.resets.clone(), from.clone());
        let swept = sweep.db.write(Commit::Sweep, move |tx| {
            let pruned = tx.prune(now)?;
            tx.prune_entries(now.before(FORGOTTEN_AFTER))?;
            let expired = tx.finalize_expired(&resets, now, &behind)?;
            Ok((pruned, expired))
        });
        pause = match swept.await {
            Ok((pruned, expired)) => {
                if expired.ended > 0 {
                    tracing::info!(sessions = expired.ended, "sessions ended by their reset policy");
                }
                // Bounded steps keep commits short.
                let more = pruned.more || (expired.ended > 0 && expired.next.is_some());
                from = expired.next.unwrap_or_default();
                if more { SWEEP_STEP } else { SWEEP }
            }
            Err(error) => {
                tracing::warn!(%error, "old rows could not be cleared away");
                SWEEP
            }
        };
        if files_at <= Instant::now() {
            files_at = Instant::now() + FILES;
            sweep_files(&sweep).await;
        }
        if folders_at <= Instant::now() {
            folders_at = Instant::now() + FOLDERS;
            sweep_folders(&sweep).await;
        }
    }
}

/// What conversations that nobody knows any more left goes, and what jobs wrote long ago.
async fn sweep_folders(sweep: &Sweep) {
    let mut unused = match find_unused(sweep).await {
        Ok(unused) => unused,
        Err(error) => return tracing::warn!(%error, "old folders could not be listed"),
    };
    if let Err(error) = keep_known(sweep, &mut unused).await {
        return tracing::warn!(%error, "no folder was cleared: its conversation may go on");
    }
    let home = sweep.home.clone();
    let cleared = move || cleanup::clear(&home, &unused);
    match petasos_runtime::blocking(cleared).await {
        Ok(Ok(0)) => {}
        Ok(Ok(gone)) => tracing::info!(gone, "old folders and files of conversations and jobs are gone"),
        Ok(Err(error)) => tracing::warn!(%error, "old folders could not be cleared"),
        Err(_panicked) => tracing::error!("clearing old folders panicked"),
    }
}

/// Step by step, so that neither a thread nor the disk is busy for long.
async fn find_unused(sweep: &Sweep) -> std::io::Result<cleanup::Unused> {
    let mut pass = cleanup::Pass::new(&sweep.home);
    loop {
        let step = petasos_runtime::blocking(move || pass.step(SystemTime::now())).await;
        match step.map_err(std::io::Error::other)?? {
            Ok(unused) => return Ok(unused),
            Err(next) => pass = next,
        }
        tokio::time::sleep(STEP_PAUSE).await;
    }
}

/// Takes out what belongs to conversations in the routing table. The table is read page by page, and only if there is
/// anything to take out of.
async fn keep_known(sweep: &Sweep, unused: &mut cleanup::Unused) -> Result<(), crate::Error> {
    let mut after = Some(SessionKey(String::new()));
    while let Some(behind) = after.take().filter(|_| !unused.is_empty()) {
        let page = sweep.db.read(move |reader| reader.keys_after(&behind, KEYS)).await?;
        page.iter().for_each(|key| unused.keep(key));
        after = page.last().cloned();
        tokio::time::sleep(STEP_PAUSE).await;
    }
    Ok(())
}

/// Old files of the cache go, but for those of messages that are still to be answered.
async fn sweep_files(sweep: &Sweep) {
    let referred = match sweep.db.read(|reader| reader.cached_files()).await {
        Ok(files) => files.into_iter().map(PathBuf::from).collect(),
        Err(error) => return tracing::warn!(%error, "the cache was not cleared: its files may be waited for"),
    };
    let fetcher = sweep.fetcher.clone();
    match petasos_runtime::blocking(move || fetcher.clean(&referred)).await {
        Ok(Ok(0)) => {}
        Ok(Ok(files)) => tracing::info!(files, "old files of the cache are gone"),
        Ok(Err(error)) => tracing::warn!(%error, "the cache could not be cleared"),
        Err(_panicked) => tracing::error!("clearing the cache panicked"),
    }
}
