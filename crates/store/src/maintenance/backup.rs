//! Consistent copies of a database in use, and their verification.

use std::collections::BTreeMap;
use std::path::Path;

use petasos_core::Millis;
use rusqlite::{Connection, OpenFlags};
use serde::{Deserialize, Serialize};

use crate::connection::{Reader, Reads};
use crate::error::{Error, OpenError, Result};
use crate::salvage::BACKUP_COPY;
use crate::schema::{self, DatabaseKind, Schema};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedCopy {
    pub schema: u32,
    pub rows: BTreeMap<String, u64>,
    pub progress: DatabaseProgress,
}

/// Progress marks that show which of two databases is newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseProgress {
    /// Rows ever inserted into tables with AUTOINCREMENT. Pruning does not lower it.
    pub inserted: i64,
    /// Time of the newest remaining row.
    pub last_change: Millis,
}

impl DatabaseProgress {
    /// Whether this database may contain changes that the other lacks. `inserted` grows within one database; between
    /// different databases only the times are comparable.
    pub fn is_newer_than(&self, other: &Self) -> bool {
        self.inserted > other.inserted || self.last_change > other.last_change
    }
}

impl Reader {
    /// Writes a consistent, compact copy to an unused path, without blocking other processes.
    pub fn copy_to(&self, target: &Path) -> Result<()> {
        let name = target.to_str().ok_or_else(|| Error::Io("the path is not UTF-8".into()))?;
        // The source stays read-only; only the copy is written.
        self.sql("PRAGMA query_only = OFF")?.execute([])?;
        let copied = self.sql("VACUUM INTO ?1")?.execute([name]);
        self.sql("PRAGMA query_only = ON")?.execute([])?;
        copied?;
        Ok(())
    }
}

impl Reads {
    pub fn progress(&self) -> Result<DatabaseProgress> {
        let inserted: Option<i64> =
            self.sql("SELECT sum(seq) FROM sqlite_sequence")?.query_row([], |row| row.get(0))?;
        let last: Option<i64> = self
            .sql(
                "SELECT max(at) FROM (SELECT max(received_at) AS at FROM inbox UNION ALL
                 SELECT (SELECT at FROM messages ORDER BY id DESC LIMIT 1) UNION ALL
                 SELECT max(created_at) FROM outbox)",
            )?
            .query_row([], |row| row.get(0))?;
        let last_change = crate::value::time(last.unwrap_or(0));
        Ok(DatabaseProgress { inserted: inserted.unwrap_or(0), last_change })
    }
}

/// Opens a copy that no process uses, and verifies all of it.
pub fn check_copy(path: &Path) -> Result<CheckedCopy, OpenError> {
    let (reads, schema) = open_checked(path, &schema::GATEWAY)?;
    let read = || Ok(CheckedCopy { schema, rows: row_counts(&reads)?, progress: reads.progress()? });
    read().map_err(|error| OpenError::Failed { path: path.into(), error })
}

/// Completes a copy of a connector's database and verifies all of it. Returns the number of rows. The connector that
/// starts on this copy treats its requests as unknown.
pub fn finish_connector_copy(path: &Path) -> Result<u64, OpenError> {
    let failed = |error: Error| OpenError::Failed { path: path.into(), error };
    let mark = |db: Connection| -> Result<()> {
        db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?1, 'yes')", [BACKUP_COPY])?;
        db.close().map_err(|(_, error)| error.into())
    };
    Connection::open(path).map_err(Error::from).and_then(mark).map_err(failed)?;
    let (reads, _) = open_checked(path, &schema::CONNECTOR)?;
    Ok(row_counts(&reads).map_err(failed)?.values().sum())
}

/// The copy and its schema version.
fn open_checked(path: &Path, schema: &Schema) -> Result<(Reads, u32), OpenError> {
    let checked = check(path, schema).map_err(|error| OpenError::Failed { path: path.into(), error })?;
    checked.map_err(|detail| OpenError::Corrupt { path: path.into(), detail })
}

fn check(path: &Path, schema: &Schema) -> Result<Result<(Reads, u32), String>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let reads = Reads::new(Connection::open_with_flags(path, flags)?);
    let version: u32 = reads.sql("PRAGMA user_version")?.query_row([], |row| row.get(0))?;
    let kind: i32 = reads.sql("PRAGMA application_id")?.query_row([], |row| row.get(0))?;
    if kind != schema.application() {
        let kind = match schema.kind {
            DatabaseKind::Gateway => "gateway",
            DatabaseKind::Connector => "connector",
        };
        return Ok(Err(format!("it is not a database of a Petasos {kind}")));
    }
    if !(1..=schema.known()).contains(&version) {
        return Ok(Err(format!("its schema {version} is not known to this version")));
    }
    if let Some(first) = reads.damage()?.first() {
        return Ok(Err(first.to_string()));
    }
    Ok(Ok((reads, version)))
}

fn row_counts(reads: &Reads) -> Result<BTreeMap<String, u64>> {
    let mut list =
        reads.sql("SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite_%'")?;
    let names = list.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
    let counted = names.into_iter().map(|name| {
        let rows: i64 =
            reads.sql(&format!("SELECT count(*) FROM {name}"))?.query_row([], |row| row.get(0))?;
        Ok((name, crate::value::count(rows)))
    });
    counted.collect()
}
