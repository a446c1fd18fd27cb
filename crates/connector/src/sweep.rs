//! What is of no use any more goes, once an hour.

use petasos_gateway::Commit;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use petasos_gateway::{Error, clock};

use crate::files;
use crate::requests::MEMORY;
use crate::shell::Shell;

const EVERY: Duration = Duration::from_secs(3600);
/// Platforms repeat what they are not sure we have; none does so for longer.
const SEEN: Duration = Duration::from_secs(30 * 24 * 3600);

pub(crate) async fn run(shell: Arc<Shell>) {
    loop {
        if let Err(error) = once(&shell).await {
            tracing::warn!(%error, "what is old stays for another hour");
        }
        tokio::select! {
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
            tx.drop_media_before(now)
        })
        .await?;
    for id in gone {
        match tokio::fs::remove_file(files::folder(shell).join(&id)).await {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                tracing::warn!(%error, "a file that nobody wants stays");
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}
