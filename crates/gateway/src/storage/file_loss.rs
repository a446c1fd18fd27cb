//! Tells the owner that another program removed the database's files while they were in use.
//!
//! Owns nothing. The notification is written after the recovery, into the new file; before that nothing can be
//! written. A crash in between leaves the log line only.

use crate::background::notifications::Notifications;
use crate::storage::database::Db;

const TEXT: &str = "💾 Another program removed or replaced files of my database while I was running. I have put \
    everything into a new file: no accepted message was lost. Please find out which program it was; reading and \
    backing up with SQLite tools is fine, but deleting or moving `petasos.db` and its `-wal` and `-shm` files is not.";

pub(crate) async fn run(db: Db, notifications: Notifications) {
    let mut upkeep = db.upkeep();
    let mut told = upkeep.borrow_and_update().recoveries;
    loop {
        petasos_runtime::select! {
            () = notifications.stopper.stopped() => return,
            Ok(()) = upkeep.changed() => {}
            else => return notifications.stopper.stopped().await,
        }
        let found = upkeep.borrow_and_update().recoveries;
        if found > told {
            told = found;
            notifications.tell_owner(TEXT).await;
        }
    }
}
