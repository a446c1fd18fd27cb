//! A check of a large database while it is in use, in pieces that each are a short read transaction: a long one would
//! keep the log from being overwritten.
//!
//! Rows are read in the order of their keys, about a megabyte at a time, with their overflow pages. An index is one
//! piece; the largest has about a tenth of the size of its table. Free pages are not checked.

use rusqlite::params_from_iter;
use rusqlite::types::{Value, ValueRef};

use crate::error::{Error, Result};
use crate::group::Reads;

/// Bytes of values in one piece.
const PIECE: usize = 1 << 20;

/// A part of the database that is still to be checked.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckPiece(Part);

#[derive(Debug, Clone, PartialEq)]
enum Part {
    /// The rows behind `after`, or from the first one on if that is empty.
    Rows {
        table: String,
        key: Vec<String>,
        after: Vec<Value>,
    },
    Index(String),
}

impl Reads {
    /// The whole database.
    pub fn check_pieces(&self) -> Result<Vec<CheckPiece>> {
        let mut pieces = Vec::new();
        for (table, rowids) in self.tables_and_shadows()? {
            let key = if rowids { vec!["rowid".into()] } else { self.key_columns(&table)? };
            pieces.push(CheckPiece(Part::Rows { table, key, after: vec![] }));
        }
        let mut list = self.sql("SELECT name FROM sqlite_schema WHERE type = 'index' AND rootpage > 0")?;
        for name in list.query_map([], |row| row.get(0))? {
            pieces.push(CheckPiece(Part::Index(name?)));
        }
        Ok(pieces)
    }

    /// Gives the rest of a piece that was too large. Damage is [`Error::Corrupt`].
    pub fn check_piece(&self, piece: CheckPiece) -> Result<Option<CheckPiece>> {
        match piece.0 {
            Part::Index(name) => self.check_index(&name).map(|()| None),
            Part::Rows { table, key, after } => {
                let next = self.check_rows(&table, &key, after)?;
                Ok(next.map(|after| CheckPiece(Part::Rows { table, key, after })))
            }
        }
    }

    fn key_columns(&self, table: &str) -> Result<Vec<String>> {
        let mut list = self.sql("SELECT name FROM pragma_table_info(?1) WHERE pk > 0 ORDER BY pk")?;
        Ok(list.query_map([table], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
    }

    fn tables_and_shadows(&self) -> Result<Vec<(String, bool)>> {
        let mut list = self.sql(
            "SELECT name, NOT wr FROM pragma_table_list WHERE schema = 'main' AND type IN ('table', 'shadow')",
        )?;
        Ok(list.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<_>>()?)
    }

    /// Gives the key of the last row that was read, unless that was the last one of the table.
    fn check_rows(&self, table: &str, key: &[String], after: Vec<Value>) -> Result<Option<Vec<Value>>> {
        let names = key.join(", ");
        let marks = vec!["?"; after.len()].join(", ");
        let behind = if after.is_empty() { String::new() } else { format!("WHERE ({names}) > ({marks})") };
        let mut read = self.sql(&format!("SELECT {names}, * FROM {table} {behind} ORDER BY {names}"))?;
        let columns = read.column_count();
        let mut rows = read.query(params_from_iter(&after))?;
        let (mut last, mut bytes) = (after, 0);
        while let Some(row) = rows.next()? {
            let at = (0..key.len()).map(|at| row.get(at)).collect::<rusqlite::Result<Vec<Value>>>()?;
            // Nothing else shows pages that are linked twice; reading them again and again would not end.
            if !last.is_empty() && !last.iter().map(rank).lt(at.iter().map(rank)) {
                return Err(Error::Corrupt(format!("{table}: rows are out of order")));
            }
            last = at;
            for column in 0..columns {
                bytes += size(row.get_ref(column)?);
            }
            if bytes >= PIECE {
                return Ok(Some(last));
            }
        }
        Ok(None)
    }

    fn check_index(&self, name: &str) -> Result<()> {
        let text = "SELECT count(*) FROM dbstat WHERE name = ?1 AND pagetype = 'corrupted'";
        match self.sql(text)?.query_row([name], |row| row.get(0))? {
            0 => Ok(()),
            pages => Err(Error::Corrupt(format!("{name}: {pages} pages of the index are damaged"))),
        }
    }
}

/// SQLite's order of values in a key.
fn rank(value: &Value) -> (u8, i64, &[u8]) {
    match value {
        Value::Null => (0, 0, b""),
        Value::Integer(number) => (1, *number, b""),
        // No key of ours is one.
        Value::Real(_) => (1, 0, b""),
        Value::Text(text) => (2, 0, text.as_bytes()),
        Value::Blob(bytes) => (3, 0, bytes),
    }
}

const fn size(value: ValueRef<'_>) -> usize {
    match value {
        ValueRef::Null => 1,
        ValueRef::Integer(_) | ValueRef::Real(_) => 8,
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len(),
    }
}
