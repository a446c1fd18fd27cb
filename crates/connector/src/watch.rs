//! Changes that others made: commands on this machine write to the same database.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use petasos_gateway::Error;

use crate::instance::Ask;
use crate::shell::Shell;

const EVERY: Duration = Duration::from_millis(500);

/// Closes the sockets of gateways that may be here no longer.
pub(crate) async fn run(shell: Arc<Shell>) {
    let mut known = None;
    loop {
        match shell.db.read(|reader| reader.revision()).await {
            Ok(revision) if known == Some(revision) => {}
            Ok(revision) => match check(&shell).await {
                Ok(()) => known = Some(revision),
                Err(error) => tracing::warn!(%error, "who may be here cannot be told"),
            },
            Err(error) => tracing::warn!(%error, "the records cannot be read"),
        }
        petasos_runtime::select! {
            () = shell.stopper.stopped() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

async fn check(shell: &Arc<Shell>) -> Result<(), Error> {
    let good = shell.db.read(|reader| {
        Ok(reader.gateways()?.into_iter().filter(|row| !row.revoked).map(|row| row.id).collect())
    });
    let good: Arc<HashSet<String>> = Arc::new(good.await?);
    for (_, mailbox) in shell.instances.awake() {
        // One that has ended has no sockets.
        let _ = mailbox.send(Ask::Check { good: good.clone() }).await;
    }
    Ok(())
}
