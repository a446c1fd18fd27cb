//! Periodic cleanup: prunes old rows, cached files and folders, and ends conversations that their reset policy expires.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use petasos_core::SessionKey;
use petasos_core::session::ResetPolicies;
use petasos_store::FinalizeFrom;

use crate::clock;
use crate::inbound::downloads::Downloader;
use crate::lifecycle::shutdown::ShutdownHandle;
use crate::runtime::commit::Commit;
use crate::storage::cleanup;
use crate::storage::database::Db;

const INTERVAL: Duration = Duration::from_secs(300);
const FIRST_DELAY: Duration = Duration::from_secs(60);
const CACHE_INTERVAL: Duration = INTERVAL;
const FOLDER_INTERVAL: Duration = Duration::from_secs(6 * 3600);
const FIRST_FOLDER_DELAY: Duration = Duration::from_secs(600);
const KEYS_PER_READ: usize = 1000;
/// Between two steps over folders or keys.
const STEP_PAUSE: Duration = Duration::from_millis(200);
const MORE_DELAY: Duration = Duration::from_secs(1);
/// Unused routing entries are removed after this; the transcript stays.
const ENTRY_RETENTION: Duration = Duration::from_secs(90 * 24 * 3600);

#[derive(Debug)]
pub(crate) struct Sweep {
    pub(crate) db: Db,
    pub(crate) home: PathBuf,
    pub(crate) resets: ResetPolicies,
    pub(crate) downloader: Arc<Downloader>,
    pub(crate) shutdown: ShutdownHandle,
}

pub(crate) async fn run(sweep: Sweep) {
    let mut pause = FIRST_DELAY;
    let mut files_at = clock::monotonic() + FIRST_DELAY;
    let mut folders_at = clock::monotonic() + FIRST_FOLDER_DELAY;
    let mut from = FinalizeFrom::default();
    loop {
        petasos_runtime::select! {
            () = sweep.shutdown.stopped() => return,
            () = clock::sleep(pause) => {}
        }
        let now = clock::now();
        let resets = sweep.resets.clone();
        let behind = from.clone();
        let swept = sweep.db.write(Commit::Sweep, move |tx| {
            let pruned = tx.prune(now)?;
            tx.prune_entries(now.before(ENTRY_RETENTION))?;
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
                if more { MORE_DELAY } else { INTERVAL }
            }
            Err(error) => {
                tracing::warn!(%error, "cannot prune old rows");
                INTERVAL
            }
        };
        if files_at <= clock::monotonic() {
            files_at = clock::monotonic() + CACHE_INTERVAL;
            clean_cache(&sweep).await;
        }
        if folders_at <= clock::monotonic() {
            folders_at = clock::monotonic() + FOLDER_INTERVAL;
            remove_unused_folders(&sweep).await;
        }
    }
}

/// Removes folders of forgotten conversations and old output of jobs.
async fn remove_unused_folders(sweep: &Sweep) {
    let mut unused = match find_unused(sweep).await {
        Ok(unused) => unused,
        Err(error) => return tracing::warn!(%error, "cannot list old folders"),
    };
    if let Err(error) = exclude_known_sessions(sweep, &mut unused).await {
        return tracing::warn!(%error, "no folders removed: cannot read which conversations exist");
    }
    let home = sweep.home.clone();
    let cleared = move || cleanup::remove_old(&home, &unused);
    match petasos_runtime::blocking(cleared).await {
        Ok(Ok(0)) => {}
        Ok(Ok(gone)) => tracing::info!(gone, "removed old folders and files of conversations and jobs"),
        Ok(Err(error)) => tracing::warn!(%error, "cannot remove old folders"),
        Err(_panicked) => tracing::error!("removing old folders panicked"),
    }
}

/// In bounded steps, to limit the load on the disk.
async fn find_unused(sweep: &Sweep) -> std::io::Result<cleanup::UnusedFolders> {
    let mut pass = cleanup::FolderPass::new(&sweep.home);
    loop {
        let step = petasos_runtime::blocking(move || pass.step(clock::file_time())).await;
        match step.map_err(std::io::Error::other)?? {
            Ok(unused) => return Ok(unused),
            Err(next) => pass = next,
        }
        clock::sleep(STEP_PAUSE).await;
    }
}

/// Excludes folders of sessions in the routing table. Reads the table page by page, and only if there are candidates.
async fn exclude_known_sessions(
    sweep: &Sweep,
    unused: &mut cleanup::UnusedFolders,
) -> Result<(), crate::Error> {
    let mut after = Some(SessionKey(String::new()));
    while let Some(behind) = after.take().filter(|_| !unused.is_empty()) {
        let page = sweep.db.read(move |reader| reader.keys_after(&behind, KEYS_PER_READ)).await?;
        page.iter().for_each(|key| unused.exclude(key));
        after = page.last().cloned();
        clock::sleep(STEP_PAUSE).await;
    }
    Ok(())
}

/// Removes old files of the cache, except those of unanswered messages.
async fn clean_cache(sweep: &Sweep) {
    let referred = match sweep.db.read(|reader| reader.cached_files()).await {
        Ok(files) => files.into_iter().map(PathBuf::from).collect(),
        Err(error) => {
            return tracing::warn!(%error, "cache not cleaned: cannot read which files are still needed");
        }
    };
    let downloader = sweep.downloader.clone();
    match petasos_runtime::blocking(move || downloader.clean(&referred)).await {
        Ok(Ok(0)) => {}
        Ok(Ok(files)) => tracing::info!(files, "removed old files of the cache"),
        Ok(Err(error)) => tracing::warn!(%error, "cannot clean the cache"),
        Err(_panicked) => tracing::error!("cleaning the cache panicked"),
    }
}
