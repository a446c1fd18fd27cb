//! `.restart_failure_counts`: a copy of what the store counts, for older tools.
//!
//! The store is right. One task writes the file after it, so a crash may leave it one change behind; it is read only
//! once, by the first start on a home.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::home;
use crate::lifecycle::shutdown::Stopper;
use crate::storage::database::Db;

/// Whether the file may have to change.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// The file names sessions; a turn that ends well may take one of them out.
    on_file: AtomicBool,
    changed: Notify,
}

impl Counts {
    pub(crate) fn may_have_changed(&self) {
        if self.on_file.load(Ordering::Relaxed) {
            self.changed.notify_one();
        }
    }
}

pub(crate) async fn run(db: Db, home: PathBuf, counts: Arc<Counts>, stopper: Stopper) {
    loop {
        mirror(&db, &home, &counts).await;
        petasos_runtime::select! {
            () = stopper.stopped() => return,
            () = counts.changed.notified() => {}
        }
    }
}

/// Makes the file say what the store says.
pub(crate) async fn mirror(db: &Db, home: &Path, known: &Counts) {
    let counts = match db.read(|reader| reader.failure_counts()).await {
        Ok(counts) => counts,
        Err(error) => {
            tracing::warn!(%error, "the counts of interrupted sessions cannot be read");
            return;
        }
    };
    known.on_file.store(!counts.is_empty(), Ordering::Relaxed);
    let home = home.to_path_buf();
    let written = petasos_runtime::blocking(move || home::counts::write(&home, &counts)).await;
    if let Ok(Err(error)) = written {
        tracing::warn!(%error, ".restart_failure_counts cannot be written");
    }
}
