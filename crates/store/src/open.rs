//! Opening the file: what may be created, what is checked, what is refused.
//!
//! Invariants: a file that is refused is left byte for byte as it was; an empty database never takes the
//! place of one that existed. A marker file beside the database, written after the first schema is
//! committed, remembers that there was one.
//!
//! Only SQLite opens the database, its `-wal` and its `-shm`; this code calls `stat` at most. Closing any
//! descriptor of a file drops all POSIX locks that the process holds on it: another program
//! would then believe itself to be the last user, fold the log into the file and unlink the log that our
//! connections still write to. SQLite keeps its own descriptors open until the last lock is released. The rule
//! is enforced by `clippy.toml` in this crate.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::error::{Error, OpenError, Result};
use crate::reattach;
use crate::schema::{self, Schema};

const BUSY: Duration = Duration::from_secs(5);

/// Of a writer without a checkpointer.
pub(crate) const AUTOCHECKPOINT: &str = "PRAGMA wal_autocheckpoint = 1000";

/// Up to this size everything is checked at every start.
const SMALL: u64 = 1 << 20;
/// Above this size nothing is checked at a start: after an unclean end, `page_check` does it later.
const LARGE: u64 = 8 << 20;

/// The read-write connection of the one writer.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) db: Connection,
    /// The last process did not close the database, which is too large to be checked at a start.
    pub(crate) unchecked: bool,
}

pub(crate) fn writer(path: &Path, schema: &Schema) -> Result<Writer, OpenError> {
    reattach::finish(path)?;
    let fresh = prepare(path, schema)?;
    let mut db = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // SQLite quietly opens what it may not write; we would find out with the first message.
    if db.is_readonly("main").map_err(|error| failed(path, error.into()))? {
        return Err(failed(path, Error::ReadOnly));
    }
    let unchecked = !fresh && !examine(&db, path, schema)?;
    if fresh {
        // Only a file without tables can be told so; others: `Store::compact`.
        db.execute_batch("PRAGMA auto_vacuum = INCREMENTAL").map_err(|error| failed(path, error.into()))?;
    }
    settle(&mut db, schema).map_err(|error| failed(path, error))?;
    remember(path, schema).map_err(|error| failed(path, error.into()))?;
    Ok(Writer { db, unchecked })
}

/// A connection that cannot change anything, for any process.
pub(crate) fn reader(path: &Path, schema: &Schema) -> Result<Connection, OpenError> {
    if !path.exists() {
        return Err(OpenError::Absent { path: path.into() });
    }
    header(path, schema)?;
    let db = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let found = versions(&db, path, schema)?;
    if found < schema.known() {
        return Err(OpenError::Older { path: path.into(), found, known: schema.known() });
    }
    db.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -256; PRAGMA temp_store = MEMORY;")
        .map_err(|error| failed(path, error.into()))?;
    Ok(db)
}

/// The read-write connection of a checkpointer; it changes no row, and closing it folds nothing.
pub(crate) fn checkpointer(path: &Path) -> Result<Connection, OpenError> {
    let db = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let ready = db.execute_batch("PRAGMA synchronous = FULL; PRAGMA cache_size = -64; PRAGMA mmap_size = 0;");
    // The first read opens the log.
    ready.map_err(Error::from).and_then(|()| schema::version(&db)).map_err(|error| failed(path, error))?;
    Ok(db)
}

/// Makes the file if there may be one. `true`: there was none, or only an empty one that nobody ever used.
fn prepare(path: &Path, schema: &Schema) -> Result<bool, OpenError> {
    let folder = folder(path);
    if !folder.is_dir() {
        return Err(OpenError::NoDirectory { path: folder });
    }
    match fs::metadata(path) {
        Ok(found) if found.len() > 0 => return header(path, schema).map(|()| false),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed(path, error.into())),
    }
    let signs = [beside(path, "-wal"), folder.join(schema.marker)];
    if let Some(sign) = signs.into_iter().find(|sign| sign.exists()) {
        return Err(OpenError::Vanished { path: path.into(), sign });
    }
    create(path).map_err(|error| failed(path, error.into()))?;
    Ok(true)
}

/// Makes an empty private file. One that appeared meanwhile is left to SQLite: `create_new` guarantees that the
/// descriptor closed here is of a new file, on which no connection can hold a lock.
#[expect(clippy::disallowed_methods, reason = "a file that did not exist before")]
pub(crate) fn create(path: &Path) -> std::io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_created) => sync_folder(path),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes names created, renamed or removed beside `path` durable.
#[expect(clippy::disallowed_methods, reason = "a directory")]
pub(crate) fn sync_folder(path: &Path) -> std::io::Result<()> {
    File::open(folder(path))?.sync_all()
}

/// Checks what the main file alone says, before a connection is opened that would create or read `-wal` and
/// `-shm`: so a file of a newer version stays untouched, with nothing beside it.
fn header(path: &Path, schema: &Schema) -> Result<(), OpenError> {
    let found = open_immutable(path).and_then(|db| schema::version(&db));
    match found {
        Ok(found) => newer(path, found, schema),
        // The marker tells a damaged header from a file that never was a database.
        Err(Error::NotDatabase) if !folder(path).join(schema.marker).exists() => {
            Err(OpenError::Foreign { path: path.into() })
        }
        // Read without locks, so another process may have been writing these pages: the connection that takes them decides.
        Err(Error::Corrupt(_)) => Ok(()),
        Err(error) => Err(failed(path, error)),
    }
}

fn open_immutable(path: &Path) -> Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Ok(Connection::open_with_flags(immutable(path), flags)?)
}

/// The URI of a file that SQLite reads without locks, log or shared memory.
fn immutable(path: &Path) -> PathBuf {
    let mut uri = OsString::from(if path.is_absolute() { "file://" } else { "file:" }).into_vec();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => uri.push(*byte),
            other => uri.extend(format!("%{other:02X}").into_bytes()),
        }
    }
    uri.extend(b"?immutable=1");
    OsString::from_vec(uri).into()
}

fn newer(path: &Path, found: u32, schema: &Schema) -> Result<(), OpenError> {
    if found > schema.known() {
        return Err(OpenError::Newer { path: path.into(), found, known: schema.known() });
    }
    Ok(())
}

fn connect(path: &Path, access: OpenFlags) -> Result<Connection, OpenError> {
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(path, flags).and_then(|db| {
        db.busy_timeout(BUSY)?;
        // Until the checks have passed, closing must not fold the log into the file.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        // A plan does not depend on what is bound: otherwise `LIMIT ?1` alone makes SQLite plan again every time.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        db.set_prepared_statement_cache_capacity(96);
        Ok(db)
    });
    opened.map_err(|error| failed(path, error.into()))
}

/// `false`: its pages should be checked later.
fn examine(db: &Connection, path: &Path, schema: &Schema) -> Result<bool, OpenError> {
    versions(db, path, schema)?;
    let size = fs::metadata(path).map_or(0, |found| found.len());
    if size > LARGE {
        let unclean = fs::metadata(beside(path, "-wal")).is_ok_and(|log| log.len() > 0);
        return Ok(!unclean);
    }
    checked(db, size).map_err(|error| failed(path, error))?;
    Ok(true)
}

/// Everything in a small file, the pages of a large one.
fn checked(db: &Connection, size: u64) -> Result<()> {
    let check = if size <= SMALL { "PRAGMA integrity_check(1)" } else { "PRAGMA quick_check(1)" };
    let verdict: String = db.query_row(check, [], |row| row.get(0))?;
    if verdict == "ok" { Ok(()) } else { Err(Error::Corrupt(verdict)) }
}

/// Checks a copy that no connection uses, and creates nothing beside it.
pub(crate) fn verify_copy(copy: &Path) -> Result<()> {
    let size = fs::metadata(copy)?.len();
    checked(&open_immutable(copy)?, size)
}

/// The schema version, once it is clear that the file is ours and not from the future.
fn versions(db: &Connection, path: &Path, schema: &Schema) -> Result<u32, OpenError> {
    let found = schema::version(db).map_err(|error| failed(path, error))?;
    newer(path, found, schema)?;
    let ours = schema.is_of(db).map_err(|error| failed(path, error))?;
    let empty = "SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)";
    if ours || db.query_row(empty, [], |row| row.get(0)).map_err(|error| failed(path, error.into()))? {
        return Ok(found);
    }
    Err(OpenError::Foreign { path: path.into() })
}

/// `synchronous = FULL`: a commit that returned is on disk. The log is overwritten in place (passive
/// checkpoints only), which syncs several times faster than one that grows.
fn settle(db: &mut Connection, schema: &Schema) -> Result<()> {
    let mode: String = db.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(Error::Io(format!("the file system offers no write-ahead log (journal mode {mode})")));
    }
    db.execute_batch(
        "PRAGMA synchronous = FULL;
         PRAGMA foreign_keys = ON;
         PRAGMA journal_size_limit = 33554432;
         PRAGMA cache_size = -1024;
         PRAGMA temp_store = MEMORY;
         PRAGMA mmap_size = 0;",
    )?;
    db.execute_batch(AUTOCHECKPOINT)?;
    schema.migrate(db)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the marker is not the database")]
fn remember(path: &Path, schema: &Schema) -> std::io::Result<()> {
    let marker = folder(path).join(schema.marker);
    if marker.exists() {
        return Ok(());
    }
    let text = "A Petasos database was created in this directory. If it is missing, something removed it.\n";
    fs::write(&marker, text)?;
    File::open(&marker)?.sync_all()?;
    sync_folder(path)
}

fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.into(),
        _ => PathBuf::from("."),
    }
}

pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(crate) fn failed(path: &Path, error: Error) -> OpenError {
    match error {
        Error::Corrupt(detail) => OpenError::Corrupt { path: path.into(), detail },
        Error::NotDatabase => {
            OpenError::Corrupt { path: path.into(), detail: "its first page is no database header".into() }
        }
        error => OpenError::Failed { path: path.into(), error },
    }
}
