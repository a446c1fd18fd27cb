//! Writes `.restart_failure_counts`, a copy of the store's failure counts for older tools.
//!
//! The store is authoritative. A crash may leave the file one change behind; it is read only once, by the first start on a
//! home.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::home;
use crate::lifecycle::shutdown::ShutdownHandle;
use crate::storage::database::Db;

/// Tracks whether the file must be rewritten.
#[derive(Debug, Default)]
pub(crate) struct FailureCountsFile {
    /// The file is not empty, so a successful turn may change it.
    on_file: AtomicBool,
    changed: Notify,
}

impl FailureCountsFile {
    pub(crate) fn may_have_changed(&self) {
        if self.on_file.load(Ordering::Relaxed) {
            self.changed.notify_one();
        }
    }
}

pub(crate) async fn run(db: Db, home: PathBuf, file: Arc<FailureCountsFile>, shutdown: ShutdownHandle) {
    loop {
        mirror(&db, &home, &file).await;
        petasos_runtime::select! {
            () = shutdown.stopped() => return,
            () = file.changed.notified() => {}
        }
    }
}

/// Writes the store's counts to the file.
pub(crate) async fn mirror(db: &Db, home: &Path, file: &FailureCountsFile) {
    let counts = match db.read(|reader| reader.failure_counts()).await {
        Ok(counts) => counts,
        Err(error) => {
            tracing::warn!(%error, "cannot read the failure counts");
            return;
        }
    };
    file.on_file.store(!counts.is_empty(), Ordering::Relaxed);
    let home = home.to_path_buf();
    let written = petasos_runtime::blocking(move || home::counts::write(&home, &counts)).await;
    if let Ok(Err(error)) = written {
        tracing::warn!(%error, "cannot write .restart_failure_counts");
    }
}
