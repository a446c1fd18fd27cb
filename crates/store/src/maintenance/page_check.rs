//! Integrity check of a large database during use, in pieces: one long read transaction would block the log from
//! restarting.
//!
//! Rows are read in key order, about a megabyte at a time, with their overflow pages. An index is one piece; the largest
//! has about a tenth of the size of its table. Free pages are not checked.

use rusqlite::params_from_iter;
use rusqlite::types::{Value, ValueRef};

use crate::connection::Reads;
use crate::error::{Error, Result};

const PIECE_BYTES: usize = 1 << 20;

/// A part of the database that is still unchecked.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckPiece(Part);

#[derive(Debug, Clone, PartialEq)]
enum Part {
    /// Rows after the key `after`, or all rows if it is empty.
    Rows {
        table: String,
        key: Vec<String>,
        after: Vec<Value>,
    },
    Index(String),
}

impl Reads {
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

    /// Checks one piece, and returns the remainder of a large one. Damage is [`Error::Corrupt`].
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

    /// Returns the key of the last row read, or `None` at the end of the table.
    fn check_rows(&self, table: &str, key: &[String], after: Vec<Value>) -> Result<Option<Vec<Value>>> {
        let names = key.join(", ");
        let marks = vec!["?"; after.len()].join(", ");
        let behind = if after.is_empty() { String::new() } else { format!("WHERE ({names}) > ({marks})") };
        let mut read = self.sql(&format!("SELECT {names}, * FROM {table} {behind} ORDER BY {names}"))?;
        let columns = read.column_count();
        let mut rows = read.query(params_from_iter(&after))?;
        let mut last = after;
        let mut bytes = 0;
        while let Some(row) = rows.next()? {
            let at = (0..key.len()).map(|at| row.get(at)).collect::<rusqlite::Result<Vec<Value>>>()?;
            // The only sign of pages that are linked twice; without this check a cycle would be read forever.
            if !last.is_empty() && !last.iter().map(key_order).lt(at.iter().map(key_order)) {
                return Err(Error::Corrupt(format!("{table}: rows are out of order")));
            }
            last = at;
            for column in 0..columns {
                bytes += size(row.get_ref(column)?);
            }
            if bytes >= PIECE_BYTES {
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

/// SQLite's order of key values.
fn key_order(value: &Value) -> (u8, i64, &[u8]) {
    match value {
        Value::Null => (0, 0, b""),
        Value::Integer(number) => (1, *number, b""),
        // No key column is REAL.
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
