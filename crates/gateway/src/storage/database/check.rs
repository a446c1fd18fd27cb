//! Checks the pages of a large database after an unclean end, while it is in use.
//!
//! A stop ends the check; it begins anew only after the next unclean end. Reads note the damage that they find.

use std::time::Duration;

use super::Db;
use crate::Error;
use crate::lifecycle::shutdown::Stopper;

/// Between two pieces of about a megabyte.
const PAUSE: Duration = Duration::from_millis(20);

impl Db {
    /// Runs until the stop.
    pub async fn check_pages(self, stopper: Stopper) {
        if self.unchecked {
            tracing::info!("the database was not closed by the last process; checking it in the background");
            petasos_runtime::select! {
                () = stopper.stopped() => {}
                checked = self.check_all() => match checked {
                    Ok(pieces) => tracing::info!(pieces, "the database is sound"),
                    Err(error) => tracing::error!(%error, "the check of the database failed"),
                }
            }
        }
        drop(self);
        stopper.stopped().await;
    }

    /// Gives the number of pieces.
    async fn check_all(&self) -> Result<usize, Error> {
        let mut pieces = self.read(|reader| reader.check_pieces()).await?;
        let mut done = 0;
        while let Some(piece) = pieces.pop() {
            pieces.extend(self.read(|reader| reader.check_piece(piece)).await?);
            done += 1;
            tokio::time::sleep(PAUSE).await;
        }
        Ok(done)
    }
}
