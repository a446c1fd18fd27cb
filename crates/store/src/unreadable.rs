//! What no adapter could read, as it came: for a person to look at. Bounded by number here, by age in retention.

use petasos_core::Millis;
use rusqlite::{OptionalExtension, Row, params};

use crate::error::Result;
use crate::group::{Reads, Tx};
use crate::value::{at, count, rows, time_at};

/// Rows that are kept; the newest stay.
const MOST: i64 = 1000;

/// One of them, without its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unread {
    pub id: i64,
    /// Platform and account: `telegram/123`.
    pub link: String,
    /// The platform's own id of it.
    pub event: Option<String>,
    pub why: String,
    /// Bytes, before it was cut.
    pub size: u64,
    pub at: Millis,
}

impl Reads {
    pub fn unreadable_events(&self, limit: usize) -> Result<Vec<Unread>> {
        let mut read =
            self.sql("SELECT id, link, event, why, size, at FROM unreadable ORDER BY id DESC LIMIT ?1")?;
        read.query_and_then([rows(limit)], unread)?.collect()
    }

    /// The text of one, as far as it was kept.
    pub fn unreadable_raw(&self, id: i64) -> Result<Option<String>> {
        let mut read = self.sql("SELECT raw FROM unreadable WHERE id = ?1")?;
        Ok(read.query_row([id], |row| row.get(0)).optional()?)
    }

    pub fn unreadable_count(&self) -> Result<u64> {
        Ok(count(self.sql("SELECT count(*) FROM unreadable")?.query_row([], |row| row.get(0))?))
    }
}

impl Tx<'_> {
    /// Keeps one. `unread.id` is chosen here; an event that is there already is not kept twice.
    pub fn keep_unreadable(&self, unread: &Unread, raw: &str) -> Result<()> {
        let Unread { id: _, link, event, why, size, at: when } = unread;
        let size = i64::try_from(*size).unwrap_or(i64::MAX);
        self.sql(
            "INSERT OR IGNORE INTO unreadable (link, event, why, size, raw, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![link, event, why, size, raw, at(*when)])?;
        self.sql("DELETE FROM unreadable WHERE id <= (SELECT max(id) FROM unreadable) - ?1")?
            .execute([MOST])?;
        Ok(())
    }
}

fn unread(row: &Row<'_>) -> Result<Unread> {
    Ok(Unread {
        id: row.get(0)?,
        link: row.get(1)?,
        event: row.get(2)?,
        why: row.get(3)?,
        size: count(row.get(4)?),
        at: time_at(row, 5)?,
    })
}
