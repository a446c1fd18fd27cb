//! Salvage of a damaged database: its files are moved, never deleted, and read row by row into a new database.
//!
//! The order of the steps makes every crash recoverable:
//!
//! | step | a crash after it leaves |
//! |---|---|
//! | write a note (`petasos.db-salvage.json`) | the damaged database in place; the next start continues |
//! | rename log, shared memory and database, in this order | the same, partly under the new names |
//! | fill the new database (`petasos.db-salvage`) | a partial file, which the next start replaces |
//! | write the report, rename the new database to its final path | the note, which the next start removes |
//! | remove the note | nothing |
//!
//! Damage that neither a checksum nor a structural check shows (a flipped bit within a text) is not detected.

mod btree;
mod connector;
mod copy;
mod decode;
mod files;
mod newer;
mod notice;
mod pages;
mod report;

use std::io;
use std::path::{Path, PathBuf};

use petasos_core::Millis;

pub(crate) use connector::BACKUP_COPY;
pub(crate) use copy::{RootMap, root_map_of};
pub(crate) use decode::RULES;
pub use notice::{LossCause, LossNotice, mark_restored};
pub use report::{LostRange, Salvage, TableLoss};

use crate::connection::reattach;
use crate::connection::{Reads, Store};
use crate::error::{Error, OpenError};
use crate::schema::{self, DatabaseKind, Schema};
use btree::Trees;
use files::SalvageNote;
use pages::{MAGIC, Pages};

/// The last salvage, in the table `meta` of both kinds of database.
pub(crate) const LAST: &str = "salvage";
/// Present until the owner is notified of the last salvage.
pub(crate) const NOTICE_PENDING: &str = "salvage_untold";
/// Time of the restored backup, in milliseconds; present until the owner is notified of the restore.
pub(crate) const RESTORE_PENDING: &str = "restore_untold";
/// Deduplication rows older than this time (milliseconds) may be missing.
pub(crate) const UNKNOWN_BEFORE: &str = "dedupe_unknown_before";

impl Store {
    /// Opens the database, and salvages a damaged one first. The caller holds the home: no other process has the database
    /// open for writing, and this process has no connection to it.
    pub fn open_or_salvage(
        path: impl AsRef<Path>,
        now: Millis,
    ) -> Result<(Self, Option<Salvage>), OpenError> {
        let last_change = Self::last_change(path.as_ref(), now);
        Self::open_or_salvage_changed(path, last_change, now, &mut |_percent| {})
    }

    /// Last change of database or log. Call before opening them: closing a connection checkpoints the log.
    pub fn last_change(path: &Path, now: Millis) -> Millis {
        files::last_change(path).unwrap_or(now).min(now)
    }

    /// For a database that this process opened before: `last_change` is from before that. `progress` receives the percentage
    /// done, from the start of a salvage on.
    pub fn open_or_salvage_changed(
        path: impl AsRef<Path>,
        last_change: Millis,
        now: Millis,
        progress: &mut dyn FnMut(u8),
    ) -> Result<(Self, Option<Salvage>), OpenError> {
        open_or_salvage(path.as_ref(), &schema::GATEWAY, last_change, now, progress)
    }

    /// [`Self::open_or_salvage_changed`] for the database of a connector.
    pub fn open_or_salvage_connector(
        path: impl AsRef<Path>,
        last_change: Millis,
        now: Millis,
        progress: &mut dyn FnMut(u8),
    ) -> Result<(Self, Option<Salvage>), OpenError> {
        open_or_salvage(path.as_ref(), &schema::CONNECTOR, last_change, now, progress)
    }

    /// Checks the whole file and salvages it if it is damaged. `None`: it is sound.
    pub fn repair(path: impl AsRef<Path>, now: Millis) -> Result<Option<Salvage>, OpenError> {
        repair(path.as_ref(), &schema::GATEWAY, now)
    }

    /// [`Self::repair`] for the database of a connector.
    pub fn repair_connector(path: impl AsRef<Path>, now: Millis) -> Result<Option<Salvage>, OpenError> {
        repair(path.as_ref(), &schema::CONNECTOR, now)
    }

    /// Records damage found during use, so that the next start salvages.
    pub fn note_damage(path: &Path, detail: &str) -> io::Result<()> {
        files::note_damage(path, detail)
    }

    /// Records undecodable rows, so that the next start decodes all rows and salvages if necessary.
    pub fn note_unreadable_rows(path: &Path) -> io::Result<()> {
        files::note_unreadable_rows(path)
    }
}

fn open_or_salvage(
    path: &Path,
    schema: &'static Schema,
    last_change: Millis,
    now: Millis,
    progress: &mut dyn FnMut(u8),
) -> Result<(Store, Option<Salvage>), OpenError> {
    // A recovered copy supersedes the files that it replaces.
    reattach::finish(path)?;
    let resumed = resume(path, schema, progress)?;
    let (store, salvaged) = match resumed {
        Some(salvaged) => (Store::open_as(path, schema)?, Some(salvaged)),
        None => open_checked(path, schema, last_change, now, progress)?,
    };
    files::clear_damage_notes(path).map_err(|error| failed(path, error))?;
    Ok((store, salvaged))
}

fn repair(path: &Path, schema: &'static Schema, now: Millis) -> Result<Option<Salvage>, OpenError> {
    let last_change = Store::last_change(path, now);
    let progress: &mut dyn FnMut(u8) = &mut |_percent| {};
    let (store, salvaged) = open_or_salvage(path, schema, last_change, now, progress)?;
    let damage = store.damage().map_err(|error| OpenError::Failed { path: path.into(), error })?;
    store.close().map_err(|error| OpenError::Failed { path: path.into(), error })?;
    match damage.first() {
        None => Ok(salvaged),
        Some(first) => salvage(path, schema, first.to_string(), last_change, now, progress).map(Some),
    }
}

/// Continues a salvage that a crash interrupted.
fn resume(
    path: &Path,
    schema: &'static Schema,
    progress: &mut dyn FnMut(u8),
) -> Result<Option<Salvage>, OpenError> {
    let Some(note) = SalvageNote::unfinished(path).map_err(|error| failed(path, error))? else {
        return Ok(None);
    };
    newer::refuse_newer(path, &note, schema)?;
    if note.damaged_path(path).exists() && path.exists() {
        SalvageNote::finish(path).map_err(|error| failed(path, error))?;
        return Ok(None);
    }
    run(path, schema, &note, progress).map(Some)
}

/// Opens the database, salvaging it if the files or SQLite show damage.
fn open_checked(
    path: &Path,
    schema: &'static Schema,
    last_change: Millis,
    now: Millis,
    progress: &mut dyn FnMut(u8),
) -> Result<(Store, Option<Salvage>), OpenError> {
    let why = match visible_damage(path, schema)? {
        // SQLite must not open the files: it would drop everything that it cannot verify.
        Some(why) => why,
        None => match Store::open_as(path, schema) {
            Ok(store) => {
                match undecodable_row(&store)
                    .map_err(|error| OpenError::Failed { path: path.into(), error })?
                {
                    None => return Ok((store, None)),
                    Some(why) => why,
                }
            }
            Err(error) => match damage_in(path, schema, &error) {
                Some(why) => why,
                None => return Err(error),
            },
        },
    };
    let salvaged = salvage(path, schema, why, last_change, now, progress)?;
    Ok((Store::open_as(path, schema)?, Some(salvaged)))
}

/// First undecodable row. Skipped for a large database unless the last process recorded such rows.
fn undecodable_row(store: &Store) -> Result<Option<String>, Error> {
    if !store.is_small()? && !files::has_unreadable_rows(store.path()) {
        return Ok(None);
    }
    Ok(store.undecodable_rows()?.first().map(ToString::to_string))
}

/// Damage recorded by a running gateway, or visible in the files.
fn visible_damage(path: &Path, schema: &Schema) -> Result<Option<String>, OpenError> {
    let io = |error: io::Error| failed(path, error);
    let length = match std::fs::metadata(path) {
        Ok(found) => found.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(io(error)),
    };
    let noted = files::noted_damage(path).map_err(io)?;
    if length == 0 || !marker(path, schema).exists() {
        return Ok(noted);
    }
    let pages = Pages::open(path).map_err(io)?;
    if newer::is_version_damaged(path, &pages, schema)? {
        return Ok(noted.or_else(|| Some("the version in the header of the file is damaged".into())));
    }
    Ok(noted.or_else(|| inspect_files(&pages)))
}

/// Damage visible before SQLite opens the files: SQLite would treat a damaged log as a shorter one, an emptied database
/// as a new one, and a damaged version number as a newer program.
fn inspect_files(pages: &Pages) -> Option<String> {
    if let Some(log) = pages.log_damage() {
        let frames = log.frames;
        let commits = log.commits;
        return Some(format!(
            "the write-ahead log is damaged ({frames} frames; {commits} commits behind them)"
        ));
    }
    let Some(first) = pages.page(1) else { return Some("the file is cut off".into()) };
    // SQLite would treat a leaf without cells as a new database.
    if first.starts_with(MAGIC) && first[100] == 13 && first[103..105] == [0, 0] {
        return Some("the database was in use and is empty".into());
    }
    if !is_header(&first) || pages.size() != pages::DEFAULT_PAGE {
        return Some("the header of the file is damaged".into());
    }
    None
}

fn is_header(page: &[u8]) -> bool {
    page.starts_with(MAGIC)
        && (1..=2).contains(&page[18])
        && (1..=2).contains(&page[19])
        && page[20..24] == [0, 64, 32, 32]
        && page[44..48] == [0, 0, 0, 4]
        && page[56..60] == [0, 0, 0, 1]
}

/// Reason if this error means that our database is damaged.
fn damage_in(path: &Path, schema: &Schema, error: &OpenError) -> Option<String> {
    let ours = marker(path, schema).exists();
    match error {
        OpenError::Corrupt { detail, .. } if ours => Some(detail.clone()),
        OpenError::Foreign { .. } if ours && has_our_tables(path, schema) => {
            Some("the header of the file is damaged".into())
        }
        OpenError::Failed { error: Error::Sql(detail), .. } if ours => Some(detail.clone()),
        OpenError::Failed { error: Error::Unreadable(what), .. } if ours => {
            Some(format!("{what} is damaged"))
        }
        OpenError::Corrupt { .. }
        | OpenError::Foreign { .. }
        | OpenError::Failed { .. }
        | OpenError::Newer { .. }
        | OpenError::Older { .. }
        | OpenError::Vanished { .. }
        | OpenError::Absent { .. }
        | OpenError::NoDirectory { .. } => None,
    }
}

/// Whether the file has our tables: a foreign database that replaced ours has its own.
fn has_our_tables(path: &Path, schema: &Schema) -> bool {
    let Ok(pages) = Pages::open(path) else { return false };
    let found = copy::roots(&mut Trees::new(&pages));
    found.is_empty() || ["inbox", "queue"].iter().any(|name| found.contains_key(*name)) || {
        let map = read_root_map(path);
        map.schema <= schema.known() && found.keys().any(|name| map.roots.contains_key(name))
    }
}

fn salvage(
    path: &Path,
    schema: &'static Schema,
    why: String,
    last_change: Millis,
    now: Millis,
    progress: &mut dyn FnMut(u8),
) -> Result<Salvage, OpenError> {
    let note = SalvageNote::write(path, schema.known(), why, last_change, now)
        .map_err(|error| failed(path, error))?;
    run(path, schema, &note, progress)
}

fn run(
    path: &Path,
    schema: &'static Schema,
    note: &SalvageNote,
    progress: &mut dyn FnMut(u8),
) -> Result<Salvage, OpenError> {
    progress(0);
    let io = |error: io::Error| failed(path, error);
    note.move_aside(path).map_err(io)?;
    let aside = note.damaged_path(path);
    let pages = Pages::open(&aside).map_err(io)?;
    let filling = SalvageNote::filling(path).map_err(io)?;
    let sql = |error: Error| OpenError::Failed { path: path.into(), error };
    let copied = copy::copy(&pages, &read_root_map(path), schema, &filling, progress).map_err(sql)?;
    let mut salvage = Salvage {
        at: note.at,
        why: note.why.clone(),
        moved_to: aside.display().to_string(),
        report: note.report(path).display().to_string(),
        rows: copied.rows,
        losses: copied.losses,
        log_commits: pages.log_damage().map_or(0, |log| log.commits),
        unknown_before: None,
        consequences: Vec::new(),
    };
    match schema.kind {
        DatabaseKind::Gateway => {
            let unknown = salvage.lost_dedupe_state();
            salvage.unknown_before = unknown.then_some(note.last_change);
            notice::record_salvage(&filling, &salvage).map_err(sql)?;
        }
        DatabaseKind::Connector => connector::record_salvage(&filling, &mut salvage).map_err(sql)?,
    }
    files::write_synced(&note.report(path), salvage.text().as_bytes()).map_err(io)?;
    SalvageNote::install(path, &filling).map_err(io)?;
    SalvageNote::finish(path).map_err(io)?;
    Ok(salvage)
}

fn failed(path: &Path, error: io::Error) -> OpenError {
    OpenError::Failed { path: path.into(), error: error.into() }
}

fn marker(path: &Path, schema: &Schema) -> PathBuf {
    path.with_file_name(schema.marker)
}

fn root_map_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}-map"))
}

fn read_root_map(path: &Path) -> RootMap {
    let text = files::read_text(&root_map_path(path)).ok().flatten();
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// Writes the new version to the root map before the database is migrated.
pub(crate) fn announce_migration(path: &Path, schema: &Schema) -> Result<(), OpenError> {
    let map = read_root_map(path);
    if (1..schema.known()).contains(&map.schema) {
        write_root_map(path, &RootMap { schema: schema.known(), ..map })?;
    }
    Ok(())
}

pub(crate) fn store_map(db: &Reads, path: &Path) -> Result<(), OpenError> {
    let map = db.root_map().map_err(|error| crate::connection::open::open_error(path, error))?;
    if map == read_root_map(path) { Ok(()) } else { write_root_map(path, &map) }
}

/// Removes a map that cannot be updated: an old map would mislead a salvage, which works without one.
fn write_root_map(path: &Path, map: &RootMap) -> Result<(), OpenError> {
    let place = root_map_path(path);
    let written = serde_json::to_vec(map)
        .map_err(io::Error::from)
        .and_then(|bytes| files::write_synced(&place, &bytes))
        .or_else(|_unwritable| files::remove(&place));
    written.map_err(|error| failed(path, error))
}
