//! Tells the owner that another program removed the database's files while they were in use.
//!
//! Owns nothing. The notification is written after the recovery, into the new file; before that nothing can be
//! written. A crash in between leaves the log line only.

use std::sync::Arc;

use crate::links::outages;
use crate::sessions::Shell;

const TEXT: &str = "💾 Another program removed or replaced files of my database while I was running. I have put \
    everything into a new file: no accepted message was lost. Please find out which program it was; reading and \
    backing up with SQLite tools is fine, but deleting or moving `petasos.db` and its `-wal` and `-shm` files is not.";

pub(crate) async fn run(shell: Arc<Shell>) {
    let mut upkeep = shell.db.upkeep();
    let mut told = upkeep.borrow_and_update().recoveries;
    loop {
        petasos_runtime::select! {
            () = shell.stopper.stopped() => return,
            Ok(()) = upkeep.changed() => {}
            else => return shell.stopper.stopped().await,
        }
        let found = upkeep.borrow_and_update().recoveries;
        if found > told {
            told = found;
            outages::notify(&shell, shell.homes.routes(), TEXT).await;
        }
    }
}
