//! `.restart_failure_counts`: a copy of what the store counts, for older tools.
//!
//! The store is right. The file is written after it, so a crash may leave it one change behind; it is read only by a
//! start whose store has counted nothing yet.

use std::sync::atomic::Ordering;

use crate::home;
use crate::session::Shell;

/// Makes the file say what the store says.
pub(crate) async fn mirror(shell: &Shell) {
    let counts = match shell.db.read(|reader| reader.failure_counts()).await {
        Ok(counts) => counts,
        Err(error) => {
            tracing::warn!(%error, "the counts of interrupted sessions cannot be read");
            return;
        }
    };
    shell.counted.store(!counts.is_empty(), Ordering::Relaxed);
    let home = shell.home.clone();
    let written = tokio::task::spawn_blocking(move || home::counts::write(&home, &counts)).await;
    if let Ok(Err(error)) = written {
        tracing::warn!(%error, ".restart_failure_counts cannot be written");
    }
}
