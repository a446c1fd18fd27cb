//! Schema migrations. A released step is never edited; changes are new steps. This includes comments inside a statement,
//! because SQLite stores them in `sqlite_schema`.

use rusqlite::{Connection, TransactionBehavior};

use crate::error::Result;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DatabaseKind {
    Gateway,
    Connector,
}

/// Schema of one kind of database file.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) kind: DatabaseKind,
    steps: &'static [&'static str],
    application: i32,
    /// Marker file that records that the database existed.
    pub(crate) marker: &'static str,
}

pub(crate) static GATEWAY: Schema = Schema {
    kind: DatabaseKind::Gateway,
    steps: GATEWAY_STEPS,
    application: 0x5054_5353,
    marker: ".petasos-db",
};

const GATEWAY_STEPS: &[&str] = &[
    include_str!("001.sql"),
    include_str!("002.sql"),
    include_str!("003.sql"),
    include_str!("004.sql"),
    include_str!("005.sql"),
];

pub(crate) static CONNECTOR: Schema = Schema {
    kind: DatabaseKind::Connector,
    steps: CONNECTOR_STEPS,
    application: 0x5054_5343,
    marker: ".connector-db",
};

/// The second step is the table `rate_limits`, as in a gateway.
const CONNECTOR_STEPS: &[&str] = &[include_str!("connector.sql"), include_str!("003.sql")];

/// Current schema version of a gateway.
pub const KNOWN: u32 = 5;

impl Schema {
    pub(crate) const fn known(&self) -> u32 {
        self.steps.len() as u32
    }

    pub(crate) const fn application(&self) -> i32 {
        self.application
    }

    pub(crate) fn is_of(&self, db: &Connection) -> Result<bool> {
        let found: i32 = db.query_row("PRAGMA application_id", [], |row| row.get(0))?;
        Ok(found == self.application)
    }

    /// Migrates to the current version, one transaction per step: a crash leaves a complete earlier version.
    pub(crate) fn migrate(&self, db: &mut Connection) -> Result<()> {
        self.migrate_to(db, self.known())
    }

    pub(crate) fn migrate_to(&self, db: &mut Connection, target: u32) -> Result<()> {
        let steps = (1_u32..).zip(self.steps).take(target as usize);
        for (number, step) in steps.skip(version(db)? as usize) {
            let tx = db.transaction_with_behavior(TransactionBehavior::Exclusive)?;
            tx.execute_batch(step)?;
            tx.pragma_update(None, "application_id", self.application)?;
            tx.pragma_update(None, "user_version", number)?;
            tx.commit()?;
        }
        Ok(())
    }
}

pub(crate) fn version(db: &Connection) -> Result<u32> {
    Ok(db.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_schema_version_matches_the_migrations() {
        assert_eq!(KNOWN, GATEWAY.known());
        assert_ne!(GATEWAY.application, CONNECTOR.application);
    }
}
