//! Detects changes by other processes: CLI commands write to the same database.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use petasos_core::GatewayId;
use petasos_gateway::Error;
use petasos_gateway::shell::{Db, ShutdownHandle};
use petasos_runtime::clock;

use crate::instances::task::{InstanceCommand, Instances};

const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Closes sockets of gateways that lost their authorisation.
pub(crate) async fn run(db: Db, instances: Arc<Instances>, shutdown: ShutdownHandle) {
    let mut known = None;
    loop {
        match db.read(|reader| reader.revision()).await {
            Ok(revision) if known == Some(revision) => {}
            Ok(revision) => match close_unauthorised(&db, &instances).await {
                Ok(()) => known = Some(revision),
                Err(error) => tracing::warn!(%error, "cannot load authorised gateways"),
            },
            Err(error) => tracing::warn!(%error, "cannot read the revision"),
        }
        petasos_runtime::select! {
            () = shutdown.stopped() => return,
            () = clock::sleep(POLL_INTERVAL) => {}
        }
    }
}

async fn close_unauthorised(db: &Db, instances: &Instances) -> Result<(), Error> {
    let authorised = db.read(|reader| {
        Ok(reader.gateways()?.into_iter().filter(|row| !row.revoked).map(|row| row.id).collect())
    });
    let authorised: Arc<HashSet<GatewayId>> = Arc::new(authorised.await?);
    for (_, mailbox) in instances.running() {
        // A task that has ended has no sockets.
        let _ = mailbox.send(InstanceCommand::CheckAuthorisation { authorised: authorised.clone() }).await;
    }
    Ok(())
}
