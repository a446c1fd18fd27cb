//! `.restart_failure_counts`: a copy of what the store counts, for older tools.
//!
//! The store is right. One task writes the file after it, so a crash may leave it one change behind; it is read only
//! once, by the first start on a home.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

use crate::home;
use crate::sessions::Shell;

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

pub(crate) async fn run(shell: Arc<Shell>) {
    loop {
        mirror(&shell).await;
        petasos_runtime::select! {
            () = shell.stopper.stopped() => return,
            () = shell.counts.changed.notified() => {}
        }
    }
}

/// Makes the file say what the store says.
pub(crate) async fn mirror(shell: &Shell) {
    let counts = match shell.db.read(|reader| reader.failure_counts()).await {
        Ok(counts) => counts,
        Err(error) => {
            tracing::warn!(%error, "the counts of interrupted sessions cannot be read");
            return;
        }
    };
    shell.counts.on_file.store(!counts.is_empty(), Ordering::Relaxed);
    let home = shell.home.clone();
    let written = petasos_runtime::blocking(move || home::counts::write(&home, &counts)).await;
    if let Ok(Err(error)) = written {
        tracing::warn!(%error, ".restart_failure_counts cannot be written");
    }
}
