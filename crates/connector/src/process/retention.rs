//! Hourly retention: deletes expired records and orphaned files.

use petasos_gateway::Commit;
use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use petasos_gateway::{Error, clock};

use crate::context::ConnectorContext;
use crate::http::files;
use crate::outbound::requests::ANSWER_RETENTION;

const INTERVAL: Duration = Duration::from_secs(3600);
/// Longer than any platform repeats a message.
const IDENTITY_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long a revoked gateway stays listed and its name reserved.
const REVOKED_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

pub(crate) async fn run(connector: Arc<ConnectorContext>) {
    loop {
        if let Err(error) = sweep(&connector).await {
            tracing::warn!(%error, "retention sweep failed");
        }
        petasos_runtime::select! {
            () = connector.shutdown.stopped() => return,
            () = clock::sleep(INTERVAL) => {}
        }
    }
}

async fn sweep(connector: &ConnectorContext) -> Result<(), Error> {
    let now = clock::now();
    let expired = connector
        .db
        .write(Commit::Connector, move |tx| {
            tx.prune_identities(now.before(IDENTITY_RETENTION), now.before(ANSWER_RETENTION))?;
            tx.drop_permissions_before(now)?;
            tx.drop_tokens_before(now)?;
            tx.drop_revoked_before(now.before(REVOKED_RETENTION))?;
            tx.drop_media_before(now)
        })
        .await?;
    let folder = files::folder(connector);
    let referenced = connector.db.read(|reader| reader.media_here()).await?;
    let swept = petasos_runtime::blocking(move || {
        expired.iter().for_each(|id| remove(&folder.join(id)));
        remove_orphans(&folder, &referenced)
    });
    swept.await.map_err(|_panicked| Error::Io("the sweep of connector-media panicked".into()))?
}

/// Deletes old files without a row, left by a process that died before it wrote the row.
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
