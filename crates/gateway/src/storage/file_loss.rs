//! Notifies the owner when another program removed the database's files while they were in use.
//!
//! Owns nothing. The notification is written after the recovery, into the new file. A crash in between leaves only the log
//! line.

use crate::background::notifications::Notifications;
use crate::storage::database::Db;

const NOTICE: &str = "💾 Another program removed or replaced files of my database while I was running. I moved \
    all data into a new file; no accepted message was lost. Please find out which program it was: reading and \
    backing up with SQLite tools is fine, but do not delete or move `petasos.db` and its `-wal` and `-shm` files.";

pub(crate) async fn run(db: Db, notifications: Notifications) {
    let mut upkeep = db.file_status();
    let mut reported = upkeep.borrow_and_update().recoveries;
    loop {
        petasos_runtime::select! {
            () = notifications.shutdown.stopped() => return,
            Ok(()) = upkeep.changed() => {}
            else => return notifications.shutdown.stopped().await,
        }
        let found = upkeep.borrow_and_update().recoveries;
        if found > reported {
            reported = found;
            notifications.notify_owner(NOTICE).await;
        }
    }
}
