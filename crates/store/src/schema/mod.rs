//! The schema as a list of steps. A step, once released, is never edited; a new one is added.

use rusqlite::{Connection, TransactionBehavior};

use crate::error::Result;

const STEPS: &[&str] = &[include_str!("001.sql")];

/// "PTSS": tells our files from other SQLite databases.
pub(crate) const APPLICATION: i32 = 0x5054_5353;

/// The schema this build writes.
pub const KNOWN: u32 = STEPS.len() as u32;

pub(crate) fn version(db: &Connection) -> Result<u32> {
    Ok(db.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}

pub(crate) fn application(db: &Connection) -> Result<i32> {
    Ok(db.query_row("PRAGMA application_id", [], |row| row.get(0))?)
}

/// Bring the file to `KNOWN`, one transaction per step: a crash leaves a whole earlier schema.
pub(crate) fn migrate(db: &mut Connection) -> Result<()> {
    for (number, step) in (1_u32..).zip(STEPS).skip(version(db)? as usize) {
        let tx = db.transaction_with_behavior(TransactionBehavior::Exclusive)?;
        tx.execute_batch(step)?;
        tx.pragma_update(None, "application_id", APPLICATION)?;
        tx.pragma_update(None, "user_version", number)?;
        tx.commit()?;
    }
    Ok(())
}
