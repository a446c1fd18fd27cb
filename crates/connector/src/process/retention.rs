//! Hourly retention: deletes expired records, and files without a row that a crash left behind.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use petasos_gateway::shell::{Db, ShutdownHandle};
use petasos_gateway::{Commit, Error, clock};

use crate::outbound::requests::ANSWER_RETENTION;

const INTERVAL: Duration = Duration::from_secs(3600);
/// Longer than any platform repeats a message.
const IDENTITY_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);
const REVOKED_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

/// `folder`: the files in transit.
pub(crate) async fn run(db: Db, folder: PathBuf, shutdown: ShutdownHandle) {
    loop {
        if let Err(error) = sweep(&db, folder.clone()).await {
            tracing::warn!(%error, "retention sweep failed");
        }
        petasos_runtime::select! {
            () = shutdown.stopped() => return,
            () = clock::sleep(INTERVAL) => {}
        }
    }
}

async fn sweep(db: &Db, folder: PathBuf) -> Result<(), Error> {
    let now = clock::now();
    let expired = db
        .write(Commit::Connector, move |tx| {
            tx.prune_identities(now.before(IDENTITY_RETENTION), now.before(ANSWER_RETENTION))?;
            tx.drop_permissions_before(now)?;
            tx.drop_tokens_before(now)?;
            tx.drop_revoked_before(now.before(REVOKED_RETENTION))?;
            tx.drop_media_before(now)
        })
        .await?;
    let referenced = db.read(|reader| reader.media_here()).await?;
    let swept = petasos_runtime::blocking(move || {
        expired.iter().for_each(|id| remove(&folder.join(id)));
        remove_orphans(&folder, &referenced)
    });
    swept.await.map_err(|_panicked| Error::Io("the sweep of connector-media panicked".into()))?
}

fn remove_orphans(folder: &Path, referenced: &HashSet<String>) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::Io(format!("connector-media cannot be read: {error}"));
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let has_row = entry.file_name().to_str().is_some_and(|name| referenced.contains(name));
        let written = entry.metadata().and_then(|about| about.modified());
        // A file that is being written has no row yet.
        let old = written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > INTERVAL));
        if old && !has_row {
            remove(&entry.path());
        }
    }
    Ok(())
}

fn remove(path: &Path) {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!(%error, "cannot delete an expired file");
        }
        Ok(()) | Err(_) => {}
    }
}
