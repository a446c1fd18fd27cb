//! Platform events that no adapter could parse, kept for the operator. Bounded by number here and by age in retention.

use petasos_core::Millis;
use rusqlite::{OptionalExtension, Row, params};

use crate::connection::{Reads, Tx};
use crate::error::Result;
use crate::value::{at, count, sql_limit, time_at};

const MAX_ROWS: i64 = 1000;

/// An unparsable event, without its raw text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableEvent {
    pub id: i64,
    /// Platform and account: `telegram/123`.
    pub link: String,
    pub event: Option<String>,
    pub why: String,
    /// Bytes before truncation.
    pub size: u64,
    pub at: Millis,
}

impl Reads {
    pub fn unreadable_events(&self, limit: usize) -> Result<Vec<UnreadableEvent>> {
        let mut read =
            self.sql("SELECT id, link, event, why, size, at FROM unreadable ORDER BY id DESC LIMIT ?1")?;
        read.query_and_then([sql_limit(limit)], unread)?.collect()
    }

    pub fn unreadable_raw(&self, id: i64) -> Result<Option<String>> {
        let mut read = self.sql("SELECT raw FROM unreadable WHERE id = ?1")?;
        Ok(read.query_row([id], |row| row.get(0)).optional()?)
    }

    pub fn unreadable_count(&self) -> Result<u64> {
        Ok(count(self.sql("SELECT count(*) FROM unreadable")?.query_row([], |row| row.get(0))?))
    }
}

impl Tx<'_> {
    /// Ignores an event that is already stored. `unread.id` is not used.
    pub fn record_unreadable(&self, unread: &UnreadableEvent, raw: &str) -> Result<()> {
        let UnreadableEvent { id: _, link, event, why, size, at: when } = unread;
        let size = i64::try_from(*size).unwrap_or(i64::MAX);
        self.sql(
            "INSERT OR IGNORE INTO unreadable (link, event, why, size, raw, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![link, event, why, size, raw, at(*when)])?;
        self.sql("DELETE FROM unreadable WHERE id <= (SELECT max(id) FROM unreadable) - ?1")?
            .execute([MAX_ROWS])?;
        Ok(())
    }
}

fn unread(row: &Row<'_>) -> Result<UnreadableEvent> {
    Ok(UnreadableEvent {
        id: row.get(0)?,
        link: row.get(1)?,
        event: row.get(2)?,
        why: row.get(3)?,
        size: count(row.get(4)?),
        at: time_at(row, 5)?,
    })
}
