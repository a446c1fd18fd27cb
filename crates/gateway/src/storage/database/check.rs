//! Background check of the pages of a large database after an unclean shutdown.
//!
//! A shutdown aborts the check; it runs again only after the next unclean shutdown. Reads record the damage that they find.

use std::time::Duration;

use super::Db;
use crate::Error;
use crate::clock;
use crate::lifecycle::shutdown::ShutdownHandle;

/// Between two pieces of about 1 MB.
const PAUSE: Duration = Duration::from_millis(20);

impl Db {
    pub async fn check_pages(self, shutdown: ShutdownHandle) {
        if self.unchecked {
            tracing::info!("the database was not closed by the last process; checking it in the background");
            petasos_runtime::select! {
                () = shutdown.stopped() => {}
                checked = self.check_all() => match checked {
                    Ok(pieces) => tracing::info!(pieces, "the database is intact"),
                    Err(error) => tracing::error!(%error, "the check of the database failed"),
                }
            }
        }
        drop(self);
        shutdown.stopped().await;
    }

    async fn check_all(&self) -> Result<usize, Error> {
        let mut pieces = self.read(|reader| reader.check_pieces()).await?;
        let mut done = 0;
        while let Some(piece) = pieces.pop() {
            pieces.extend(self.read(|reader| reader.check_piece(piece)).await?);
            done += 1;
            clock::sleep(PAUSE).await;
        }
        Ok(done)
    }
}
