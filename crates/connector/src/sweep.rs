//! What is of no use any more goes, once an hour.

use petasos_gateway::Commit;
use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use petasos_gateway::{Error, clock};

use crate::files;
use crate::requests::MEMORY;
use crate::shell::Shell;

const EVERY: Duration = Duration::from_secs(3600);
/// Platforms repeat what they are not sure we have; none does so for longer.
const SEEN: Duration = Duration::from_secs(30 * 24 * 3600);

/// A revoked gateway stays listed for so long, and its name stays taken.
const REVOKED: Duration = Duration::from_secs(30 * 24 * 3600);

pub(crate) async fn run(shell: Arc<Shell>) {
    loop {
        if let Err(error) = once(&shell).await {
            tracing::warn!(%error, "what is old stays for another hour");
        }
        petasos_runtime::select! {
            () = shell.stopper.stopped() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

async fn once(shell: &Shell) -> Result<(), Error> {
    let now = clock::now();
    let gone = shell
        .db
        .write(Commit::Connector, move |tx| {
            tx.forget_before(now.before(SEEN), now.before(MEMORY))?;
            tx.drop_permissions_before(now)?;
            tx.drop_tokens_before(now)?;
            tx.drop_revoked_before(now.before(REVOKED))?;
            tx.drop_media_before(now)
        })
        .await?;
    let folder = files::folder(shell);
    let known = shell.db.read(|reader| reader.media_here()).await?;
    let swept = petasos_runtime::blocking(move || {
        gone.iter().for_each(|id| remove(&folder.join(id)));
        strays(&folder, &known)
    });
    swept.await.map_err(|_panicked| Error::Io("the sweep of connector-media panicked".into()))?
}

/// Files that lie here and belong to nobody: whoever was to write their row has died.
fn strays(folder: &Path, known: &HashSet<String>) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::Io(format!("connector-media cannot be read: {error}"));
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let named = entry.file_name().to_str().is_some_and(|name| known.contains(name));
        let written = entry.metadata().and_then(|about| about.modified());
        // One that is being written now has no row yet.
        let old = written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > EVERY));
        if old && !named {
            remove(&entry.path());
        }
    }
    Ok(())
}

fn remove(path: &Path) {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!(%error, "a file that nobody wants stays");
        }
        Ok(()) | Err(_) => {}
    }
}
