//! A damaged database: moved aside, never deleted, and read row by row into a new one.
//!
//! Order of steps, so that a crash between any two leaves something to go on from:
//!
//! | step | a crash behind it leaves |
//! |---|---|
//! | a note is written (`petasos.db-salvage.json`) | the damaged database in its place; the next start goes on |
//! | log, shared memory and database are renamed, in this order | the same, in part under the new names |
//! | the new database is filled (`petasos.db-salvage`) | a half-filled file, which the next start replaces |
//! | the report is written, the new database takes the old one's name | the note, which the next start removes |
//! | the note is removed | nothing |
//!
//! Damage that no checksum and no check of the structure shows (a flipped bit within a text) is not found.

mod btree;
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

pub(crate) use copy::{Map, map_of};
pub(crate) use decode::RULES;
pub use notice::{Cause, LossNotice, mark_restored};
pub use report::{Loss, Range, Salvage};

use crate::error::{Error, OpenError};
use crate::group::{Reads, Store};
use crate::reattach;
use crate::schema::{self, Schema};
use btree::Trees;
use files::Begun;
use pages::{MAGIC, Pages};

/// The last salvage, in the table `meta`.
pub(crate) const LAST: &str = "salvage";
/// Present until the owner is told of the last salvage.
pub(crate) const UNTOLD: &str = "salvage_untold";
/// When the restored backup was made (milliseconds); present until the owner is told of the restore.
pub(crate) const RESTORED: &str = "restore_untold";
/// Deduplication rows from before this time (milliseconds) may be missing.
pub(crate) const UNKNOWN_BEFORE: &str = "dedupe_unknown_before";

impl Store {
    /// Opens the database; a damaged one is salvaged first. The caller holds the home: no other process has the
    /// database open for writing, and this one has no connection to it.
    pub fn open_or_salvage(
        path: impl AsRef<Path>,
        now: Millis,
    ) -> Result<(Self, Option<Salvage>), OpenError> {
        let last_change = Self::last_change(path.as_ref(), now);
        Self::open_or_salvage_changed(path, last_change, now, &mut |_percent| {})
    }

    /// When database or log last changed. To be asked before anything opens them: closing a connection folds the log.
    pub fn last_change(path: &Path, now: Millis) -> Millis {
        files::last_change(path).unwrap_or(now).min(now)
    }

    /// The same for a database that this process opened before: `last_change` is from before that. `progress` is called
    /// from the beginning of a salvage on, with the percentage done.
    pub fn open_or_salvage_changed(
        path: impl AsRef<Path>,
        last_change: Millis,
        now: Millis,
        progress: &mut dyn FnMut(u8),
    ) -> Result<(Self, Option<Salvage>), OpenError> {
        let path = path.as_ref();
        // A recovered copy is the database; the files that it replaces say nothing about it.
        reattach::finish(path)?;
        let resumed = resume(path, &schema::GATEWAY, progress)?;
        let (store, salvaged) = match resumed {
            Some(salvaged) => (Self::open(path)?, Some(salvaged)),
            None => look(path, &schema::GATEWAY, last_change, now, progress)?,
        };
        files::forget_damage(path).map_err(|error| failed(path, error))?;
        Ok((store, salvaged))
    }

    /// Looks at the whole file and salvages it if anything is wrong. `None`: it is sound.
    pub fn repair(path: impl AsRef<Path>, now: Millis) -> Result<Option<Salvage>, OpenError> {
        let path = path.as_ref();
        let last_change = Self::last_change(path, now);
        let progress: &mut dyn FnMut(u8) = &mut |_percent| {};
        let (store, salvaged) = Self::open_or_salvage_changed(path, last_change, now, progress)?;
        let damage = store.damage().map_err(|error| OpenError::Failed { path: path.into(), error })?;
        store.close().map_err(|error| OpenError::Failed { path: path.into(), error })?;
        match damage.first() {
            None => Ok(salvaged),
            Some(first) => {
                salvage(path, &schema::GATEWAY, first.to_string(), last_change, now, progress).map(Some)
            }
        }
    }

    /// Remembers damage found while the database is in use: the next start salvages.
    pub fn note_damage(path: &Path, detail: &str) -> io::Result<()> {
        files::note_damage(path, detail)
    }

    /// Remembers that rows do not decode: the next start decodes all of them, and salvages if it finds such rows.
    pub fn note_unreadable_rows(path: &Path) -> io::Result<()> {
        files::note_unreadable_rows(path)
    }
}

/// Goes on with a salvage that a crash cut off.
fn resume(
    path: &Path,
    schema: &'static Schema,
    progress: &mut dyn FnMut(u8),
) -> Result<Option<Salvage>, OpenError> {
    let Some(begun) = Begun::unfinished(path).map_err(|error| failed(path, error))? else { return Ok(None) };
    newer::refuse(path, &begun, schema)?;
    if begun.aside(path).exists() && path.exists() {
        Begun::finish(path).map_err(|error| failed(path, error))?;
        return Ok(None);
    }
    finish(path, schema, &begun, progress).map(Some)
}

/// Opens the database, salvaged if the files show damage or SQLite finds some.
fn look(
    path: &Path,
    schema: &'static Schema,
    last_change: Millis,
    now: Millis,
    progress: &mut dyn FnMut(u8),
) -> Result<(Store, Option<Salvage>), OpenError> {
    let why = match shown(path, schema)? {
        // SQLite must not open it: it would drop what it cannot verify.
        Some(why) => why,
        None => match Store::open(path) {
            Ok(store) => {
                match checked(&store).map_err(|error| OpenError::Failed { path: path.into(), error })? {
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
    Ok((Store::open(path)?, Some(salvaged)))
}

/// A small database is decoded completely at every start, a larger one if the last process met undecodable rows.
fn checked(store: &Store) -> Result<Option<String>, Error> {
    if !store.is_small()? && !files::has_unreadable_rows(store.path()) {
        return Ok(None);
    }
    Ok(store.undecodable_rows()?.first().map(ToString::to_string))
}

/// Damage that a running gateway noted, or that the files show.
fn shown(path: &Path, schema: &Schema) -> Result<Option<String>, OpenError> {
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
    Ok(noted.or_else(|| inspect(&pages)))
}

/// Damage visible in the files before SQLite opens them: SQLite would take a damaged log for a shorter one, an empty
/// database for a new one, and a damaged version for a newer program.
fn inspect(pages: &Pages) -> Option<String> {
    if let Some(log) = pages.log_damage() {
        let (frames, commits) = (log.frames, log.commits);
        return Some(format!(
            "the write-ahead log is damaged ({frames} frames; {commits} commits behind them)"
        ));
    }
    let Some(first) = pages.page(1) else { return Some("the file is cut off".into()) };
    // A leaf without cells: SQLite would take it for a new database.
    if first.starts_with(MAGIC) && first[100] == 13 && first[103..105] == [0, 0] {
        return Some("the database was in use and is empty".into());
    }
    if !is_header(&first) || pages.size() != pages::DEFAULT_PAGE {
        return Some("the header of the file is damaged".into());
    }
    None
}

/// The constants of the header.
fn is_header(page: &[u8]) -> bool {
    page.starts_with(MAGIC)
        && (1..=2).contains(&page[18])
        && (1..=2).contains(&page[19])
        && page[20..24] == [0, 64, 32, 32]
        && page[44..48] == [0, 0, 0, 4]
        && page[56..60] == [0, 0, 0, 1]
}

/// Why this error means a damaged database of ours.
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

/// A database of another program that took the place of ours has its own tables.
fn has_our_tables(path: &Path, schema: &Schema) -> bool {
    let Ok(pages) = Pages::open(path) else { return false };
    let found = copy::roots(&mut Trees::new(&pages));
    found.is_empty() || ["inbox", "queue"].iter().any(|name| found.contains_key(*name)) || {
        let map = read_map(path);
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
    let begun =
        Begun::note(path, schema.known(), why, last_change, now).map_err(|error| failed(path, error))?;
    finish(path, schema, &begun, progress)
}

fn finish(
    path: &Path,
    schema: &'static Schema,
    begun: &Begun,
    progress: &mut dyn FnMut(u8),
) -> Result<Salvage, OpenError> {
    progress(0);
    let io = |error: io::Error| failed(path, error);
    begun.move_aside(path).map_err(io)?;
    let aside = begun.aside(path);
    let pages = Pages::open(&aside).map_err(io)?;
    let filling = Begun::filling(path).map_err(io)?;
    let sql = |error: Error| OpenError::Failed { path: path.into(), error };
    let copied = copy::copy(&pages, &read_map(path), schema, &filling, progress).map_err(sql)?;
    let mut salvage = Salvage {
        at: begun.at,
        why: begun.why.clone(),
        moved_to: aside.display().to_string(),
        report: begun.report(path).display().to_string(),
        rows: copied.rows,
        losses: copied.losses,
        log_commits: pages.log_damage().map_or(0, |log| log.commits),
        unknown_before: None,
    };
    if salvage.lost_knowledge() {
        salvage.unknown_before = Some(begun.last_change);
    }
    notice::write_down(&filling, &salvage).map_err(sql)?;
    files::write_synced(&begun.report(path), salvage.text().as_bytes()).map_err(io)?;
    Begun::put_in_place(path, &filling).map_err(io)?;
    Begun::finish(path).map_err(io)?;
    Ok(salvage)
}

fn failed(path: &Path, error: io::Error) -> OpenError {
    OpenError::Failed { path: path.into(), error: error.into() }
}

fn marker(path: &Path, schema: &Schema) -> PathBuf {
    path.with_file_name(schema.marker)
}

fn map_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}-map"))
}

fn read_map(path: &Path) -> Map {
    let text = files::read_text(&map_path(path)).ok().flatten();
    text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// Before a migration: the map names the new version before the database does.
pub(crate) fn announce(path: &Path, schema: &Schema) -> Result<(), OpenError> {
    let map = read_map(path);
    if (1..schema.known()).contains(&map.schema) {
        write_map(path, &Map { schema: schema.known(), ..map })?;
    }
    Ok(())
}

pub(crate) fn note_map(db: &Reads, path: &Path) -> Result<(), OpenError> {
    let map = db.map().map_err(|error| crate::open::failed(path, error))?;
    if map == read_map(path) { Ok(()) } else { write_map(path, &map) }
}

/// A map that cannot be written is removed: an old one would mislead a later salvage, which can do without.
fn write_map(path: &Path, map: &Map) -> Result<(), OpenError> {
    let place = map_path(path);
    let written = serde_json::to_vec(map)
        .map_err(io::Error::from)
        .and_then(|bytes| files::write_synced(&place, &bytes))
        .or_else(|_unwritable| files::remove(&place));
    written.map_err(|error| failed(path, error))
}
