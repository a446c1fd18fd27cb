//! Refuses files of a newer program: only that program knows their tables.
//!
//! A damaged version number looks like a newer version. The table list decides: if it matches a known version, the
//! number is damaged.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::Connection;
use rusqlite::types::Value;

use crate::error::{OpenError, Result};
use crate::salvage::btree::Trees;
use crate::salvage::files::SalvageNote;
use crate::salvage::pages::Pages;
use crate::salvage::{failed, is_header, read_root_map};
use crate::schema::Schema;

/// Type, name and definition of each schema object.
type Definitions = BTreeSet<(String, String, String)>;

/// Whether the version number is damaged. Fails if a newer program wrote the file.
pub(super) fn is_version_damaged(path: &Path, pages: &Pages, schema: &Schema) -> Result<bool, OpenError> {
    let Some(found) = unknown_version(pages, schema) else { return Ok(false) };
    let noted = read_root_map(path).schema;
    let ours = (1..=schema.known()).contains(&noted)
        && definitions_in(pages)
            == definitions_of(schema, noted)
                .map_err(|error| crate::connection::open::open_error(path, error))?;
    if ours { Ok(true) } else { Err(newer_error(path, found, schema)) }
}

/// Fails if a newer program began this salvage or wrote the file.
pub(super) fn refuse_newer(path: &Path, note: &SalvageNote, schema: &Schema) -> Result<(), OpenError> {
    if note.schema > schema.known() {
        return Err(newer_error(path, note.schema, schema));
    }
    let aside = note.damaged_path(path);
    let file = if aside.exists() { &aside } else { path };
    let pages = Pages::open(file).map_err(|error| failed(path, error))?;
    is_version_damaged(path, &pages, schema).map(drop)
}

/// Version in a valid header that this program does not know.
fn unknown_version(pages: &Pages, schema: &Schema) -> Option<u32> {
    let first = pages.page(1)?;
    let stored = u32::from_be_bytes([first[60], first[61], first[62], first[63]]);
    (is_header(&first) && stored > schema.known()).then_some(stored)
}

fn newer_error(path: &Path, found: u32, schema: &Schema) -> OpenError {
    OpenError::Newer { path: path.into(), found, known: schema.known() }
}

fn definitions_in(pages: &Pages) -> Definitions {
    let mut found = Definitions::new();
    Trees::new(pages).walk(1, &mut |walked| {
        for record in walked.records {
            if let [Value::Text(kind), Value::Text(name), _, _, Value::Text(text)] = record.values.as_slice()
                && !name.starts_with("sqlite_")
            {
                found.insert((kind.clone(), name.clone(), text.clone()));
            }
        }
    });
    found
}

fn definitions_of(schema: &Schema, version: u32) -> Result<Definitions> {
    let mut db = Connection::open_in_memory()?;
    schema.migrate_to(&mut db, version)?;
    let mut list = db.prepare("SELECT type, name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND sql IS NOT NULL")?;
    let rows = list.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
