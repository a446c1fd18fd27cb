//! Integrity check of a whole database: its structure, and whether every row decodes.

use std::collections::BTreeMap;
use std::fmt;

use rusqlite::types::ValueRef;
use serde::Serialize;

use crate::connection::Reads;
use crate::error::{Error, Result};
use crate::salvage::RULES;

const MAX_FINDINGS: i64 = 20;
/// Size up to which every start decodes all rows.
const SMALL_BYTES: i64 = 1 << 20;

/// A damaged part of the database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Damage {
    /// Reported by SQLite's integrity check.
    Structure { detail: String },
    /// Range of rows with an undecodable column.
    Rows { table: String, column: String, first: String, last: String, count: u64 },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Structure { detail } => f.write_str(detail),
            Self::Rows { table, column, first, last, count: 1 } if first == last => {
                write!(f, "{table}, row {first}: {column} cannot be decoded")
            }
            Self::Rows { table, column, first, last, count } => {
                write!(f, "{table}, rows {first} to {last} ({count}): {column} cannot be decoded")
            }
        }
    }
}

impl Reads {
    /// All damage; reads the whole file.
    pub fn damage(&self) -> Result<Vec<Damage>> {
        let found = self.structure()?;
        if found.is_empty() { self.undecodable_rows() } else { Ok(found) }
    }

    /// First finding of SQLite's quick check; `None`: sound. Reads the whole file.
    pub fn quick_check(&self) -> Result<Option<String>> {
        let verdict = self.sql("PRAGMA quick_check(1)")?.query_row([], |row| row.get::<_, String>(0));
        match verdict.map_err(Error::from) {
            Ok(verdict) => Ok(Some(verdict).filter(|verdict| verdict != "ok")),
            Err(Error::Corrupt(detail)) => Ok(Some(detail)),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn undecodable_rows(&self) -> Result<Vec<Damage>> {
        let mut found = Vec::new();
        for (table, rowids) in self.tables()? {
            match self.undecodable(&table, rowids) {
                Ok(columns) => found.extend(columns),
                Err(Error::Corrupt(detail)) => {
                    found.push(Damage::Structure { detail: format!("{table}: {detail}") });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Table names, and whether they have row ids.
    fn tables(&self) -> Result<Vec<(String, bool)>> {
        let mut list = self.sql(
            "SELECT name, NOT wr FROM pragma_table_list
             WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name",
        )?;
        Ok(list.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<rusqlite::Result<_>>()?)
    }

    fn structure(&self) -> Result<Vec<Damage>> {
        let mut found = Vec::new();
        let listed = self.sql(&format!("PRAGMA integrity_check({MAX_FINDINGS})")).and_then(|mut check| {
            let mut rows = check.query([])?;
            while let Some(row) = rows.next()? {
                let detail: String = row.get(0)?;
                if detail != "ok" {
                    found.push(Damage::Structure { detail });
                }
            }
            Ok(())
        });
        match listed {
            Err(Error::Corrupt(detail)) => found.push(Damage::Structure { detail }),
            Err(Error::NotDatabase) => {
                found.push(Damage::Structure { detail: Error::NotDatabase.to_string() })
            }
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        Ok(found)
    }

    /// Columns of `SELECT *`, read as bytes because names in a damaged schema may not be text.
    fn column_names(&self, table: &str) -> Result<Vec<String>> {
        let mut read =
            self.sql("SELECT CAST(name AS BLOB) FROM pragma_table_xinfo(?1) WHERE hidden <> 1 ORDER BY cid")?;
        let names = read.query_and_then([table], |row| {
            let name = String::from_utf8(row.get(0)?);
            name.map_err(|_not_text| Error::Corrupt("a column name is not text".into()))
        })?;
        names.collect()
    }

    /// One range per undecodable column.
    fn undecodable(&self, table: &str, rowids: bool) -> Result<Vec<Damage>> {
        let key = if rowids { "rowid" } else { "NULL" };
        let mut read = self.sql(&format!("SELECT *, {key} FROM {table}"))?;
        let names = self.column_names(table)?;
        let last = names.len();
        let rules: Vec<_> = names.iter().map(|name| decode_rule(table, name)).collect();
        let mut ranges: BTreeMap<usize, (String, String, u64)> = BTreeMap::new();
        let mut rows = read.query([])?;
        while let Some(row) = rows.next()? {
            for (at, rule) in rules.iter().enumerate() {
                if decodes(row.get_ref(at)?, *rule) {
                    continue;
                }
                let name = match row.get_ref(last)? {
                    ValueRef::Integer(id) => id.to_string(),
                    ValueRef::Null | ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_) => {
                        "(unnumbered)".into()
                    }
                };
                let range = ranges.entry(at).or_insert_with(|| (name.clone(), name.clone(), 0));
                range.1 = name;
                range.2 += 1;
            }
        }
        let listed = ranges.into_iter().map(|(at, (first, last, count))| {
            let table = table.to_owned();
            let column = names[at].clone();
            Damage::Rows { table, column, first, last, count }
        });
        Ok(listed.collect())
    }

    pub(crate) fn is_small(&self) -> Result<bool> {
        let size: i64 = self
            .sql("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")?
            .query_row([], |row| row.get(0))?;
        Ok(size <= SMALL_BYTES)
    }
}

type DecodeRule = fn(&str) -> bool;

fn decode_rule(table: &str, column: &str) -> Option<DecodeRule> {
    RULES.iter().find(|(of, name, _)| *of == table && *name == column).map(|(.., rule)| *rule)
}

fn decodes(value: ValueRef<'_>, rule: Option<DecodeRule>) -> bool {
    match value {
        ValueRef::Text(bytes) => {
            std::str::from_utf8(bytes).is_ok_and(|text| rule.is_none_or(|rule| rule(text)))
        }
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_) => true,
    }
}
