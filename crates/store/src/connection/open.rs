//! Opening the database file: creation, checks and refusals.
//!
//! Invariants: a refused file is left byte for byte unchanged; an empty database never replaces one that existed. A
//! marker file beside the database, written after the first schema is committed, records that it existed.
//!
//! Only SQLite opens the database, its `-wal` and its `-shm`; this code calls at most `stat`. Closing any descriptor of
//! a file drops all POSIX locks that the process holds on it. Another program would then believe that it is the last
//! user, checkpoint the log and unlink it while our connections still write to it. SQLite keeps its own descriptors
//! open until the last lock is released. `clippy.toml` in this crate enforces the rule.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::connection::reattach;
use crate::error::{Error, OpenError, Result};
use crate::schema::{self, Schema};

const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Checkpoint interval of a writer without a checkpointer.
pub(crate) const AUTOCHECKPOINT: &str = "PRAGMA wal_autocheckpoint = 1000";

/// Size up to which every start runs the full integrity check.
const FULL_CHECK_BYTES: u64 = 1 << 20;
/// Size above which a start skips the check; after an unclean shutdown `page_check` runs later.
const OPEN_CHECK_BYTES: u64 = 8 << 20;

#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) db: Connection,
    /// The file is too large to be checked at start, and the last process did not close it.
    pub(crate) unchecked: bool,
}

pub(crate) fn writer(path: &Path, schema: &Schema) -> Result<Writer, OpenError> {
    reattach::finish(path)?;
    let fresh = create_if_absent(path, schema)?;
    let mut db = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // SQLite opens a read-only file without an error.
    if db.is_readonly("main").map_err(|error| open_error(path, error.into()))? {
        return Err(open_error(path, Error::ReadOnly));
    }
    let unchecked = !fresh && !check_on_open(&db, path, schema)?;
    if fresh {
        // Only possible in a file without tables; `Store::compact` converts others.
        db.execute_batch("PRAGMA auto_vacuum = INCREMENTAL")
            .map_err(|error| open_error(path, error.into()))?;
    }
    configure(&mut db, schema).map_err(|error| open_error(path, error))?;
    write_marker(path, schema).map_err(|error| open_error(path, error.into()))?;
    Ok(Writer { db, unchecked })
}

pub(crate) fn reader(path: &Path, schema: &Schema) -> Result<Connection, OpenError> {
    if !path.exists() {
        return Err(OpenError::Absent { path: path.into() });
    }
    check_header(path, schema)?;
    let db = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    let found = check_version(&db, path, schema)?;
    if found < schema.known() {
        return Err(OpenError::Older { path: path.into(), found, known: schema.known() });
    }
    db.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -256; PRAGMA temp_store = MEMORY;")
        .map_err(|error| open_error(path, error.into()))?;
    Ok(db)
}

/// Opens the connection of a checkpointer. Closing it does not checkpoint.
pub(crate) fn checkpointer(path: &Path) -> Result<Connection, OpenError> {
    let db = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let ready = db.execute_batch("PRAGMA synchronous = FULL; PRAGMA cache_size = -64; PRAGMA mmap_size = 0;");
    // The first read opens the log.
    ready
        .map_err(Error::from)
        .and_then(|()| schema::version(&db))
        .map_err(|error| open_error(path, error))?;
    Ok(db)
}

/// Creates the file if it may be created. `true`: it is new, or empty and was never used.
fn create_if_absent(path: &Path, schema: &Schema) -> Result<bool, OpenError> {
    let folder = folder(path);
    if !folder.is_dir() {
        return Err(OpenError::NoDirectory { path: folder });
    }
    match fs::metadata(path) {
        Ok(found) if found.len() > 0 => return check_header(path, schema).map(|()| false),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(open_error(path, error.into())),
    }
    let signs = [with_suffix(path, "-wal"), folder.join(schema.marker)];
    if let Some(sign) = signs.into_iter().find(|sign| sign.exists()) {
        return Err(OpenError::Vanished { path: path.into(), sign });
    }
    create(path).map_err(|error| open_error(path, error.into()))?;
    Ok(true)
}

/// Creates an empty private file, unless one appeared meanwhile. `create_new` guarantees that the descriptor closed here
/// belongs to a new file, on which no connection can hold a lock.
#[expect(clippy::disallowed_methods, reason = "a file that did not exist before")]
pub(crate) fn create(path: &Path) -> std::io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_created) => sync_folder(path),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Syncs the directory of `path`.
#[expect(clippy::disallowed_methods, reason = "a directory")]
pub(crate) fn sync_folder(path: &Path) -> std::io::Result<()> {
    File::open(folder(path))?.sync_all()
}

/// Checks the main file before a connection creates or reads `-wal` and `-shm`, so that a file of a newer version stays
/// untouched.
fn check_header(path: &Path, schema: &Schema) -> Result<(), OpenError> {
    let found = open_immutable(path).and_then(|db| schema::version(&db));
    match found {
        Ok(found) => refuse_newer(path, found, schema),
        // The marker distinguishes a damaged header from a file that never was a database.
        Err(Error::NotDatabase) if !folder(path).join(schema.marker).exists() => {
            Err(OpenError::Foreign { path: path.into() })
        }
        // Read without locks, while another process may be writing these pages: the locking connection decides.
        Err(Error::Corrupt(_)) => Ok(()),
        Err(error) => Err(open_error(path, error)),
    }
}

fn open_immutable(path: &Path) -> Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Ok(Connection::open_with_flags(immutable(path), flags)?)
}

/// URI for reading a file without locks, log or shared memory.
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

fn refuse_newer(path: &Path, found: u32, schema: &Schema) -> Result<(), OpenError> {
    if found > schema.known() {
        return Err(OpenError::Newer { path: path.into(), found, known: schema.known() });
    }
    Ok(())
}

fn connect(path: &Path, access: OpenFlags) -> Result<Connection, OpenError> {
    let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(path, flags).and_then(|db| {
        db.busy_timeout(BUSY_TIMEOUT)?;
        // Until the checks have passed, closing must not checkpoint.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        // Keeps query plans independent of bound values; otherwise `LIMIT ?1` alone re-prepares every statement.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        db.set_prepared_statement_cache_capacity(96);
        Ok(db)
    });
    opened.map_err(|error| open_error(path, error.into()))
}

/// `false`: the pages should be checked later.
fn check_on_open(db: &Connection, path: &Path, schema: &Schema) -> Result<bool, OpenError> {
    check_version(db, path, schema)?;
    let size = fs::metadata(path).map_or(0, |found| found.len());
    if size > OPEN_CHECK_BYTES {
        let unclean = fs::metadata(with_suffix(path, "-wal")).is_ok_and(|log| log.len() > 0);
        return Ok(!unclean);
    }
    integrity_check(db, size).map_err(|error| open_error(path, error))?;
    Ok(true)
}

/// Full check of a small file, page check of a large one.
fn integrity_check(db: &Connection, size: u64) -> Result<()> {
    let check = if size <= FULL_CHECK_BYTES { "PRAGMA integrity_check(1)" } else { "PRAGMA quick_check(1)" };
    let verdict: String = db.query_row(check, [], |row| row.get(0))?;
    if verdict == "ok" { Ok(()) } else { Err(Error::Corrupt(verdict)) }
}

/// Checks a copy that no connection uses, without creating files beside it.
pub(crate) fn verify_copy(copy: &Path) -> Result<()> {
    let size = fs::metadata(copy)?.len();
    integrity_check(&open_immutable(copy)?, size)
}

/// Schema version of the file, after checking that it is ours and not newer.
fn check_version(db: &Connection, path: &Path, schema: &Schema) -> Result<u32, OpenError> {
    let found = schema::version(db).map_err(|error| open_error(path, error))?;
    refuse_newer(path, found, schema)?;
    let ours = schema.is_of(db).map_err(|error| open_error(path, error))?;
    let empty = "SELECT NOT EXISTS (SELECT 1 FROM sqlite_schema)";
    if ours || db.query_row(empty, [], |row| row.get(0)).map_err(|error| open_error(path, error.into()))? {
        return Ok(found);
    }
    Err(OpenError::Foreign { path: path.into() })
}

/// `synchronous = FULL` makes a returned commit durable. The log is overwritten in place (passive checkpoints only),
/// which syncs several times faster than a growing file.
fn configure(db: &mut Connection, schema: &Schema) -> Result<()> {
    let mode: String = db.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        return Err(Error::Io(format!("the file system offers no write-ahead log (journal mode {mode})")));
    }
    db.execute_batch(
        "PRAGMA synchronous = FULL;
         PRAGMA foreign_keys = ON;
         -- Bytes that the log keeps when it restarts; its growth is bounded in `checkpoint`.
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
fn write_marker(path: &Path, schema: &Schema) -> std::io::Result<()> {
    let marker = folder(path).join(schema.marker);
    if marker.exists() {
        return Ok(());
    }
    let text = "A Petasos database was created in this directory. If it is missing, something removed it.\n";
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&marker)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    sync_folder(path)
}

fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.into(),
        _ => PathBuf::from("."),
    }
}

pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(crate) fn open_error(path: &Path, error: Error) -> OpenError {
    match error {
        Error::Corrupt(detail) => OpenError::Corrupt { path: path.into(), detail },
        Error::NotDatabase => OpenError::Corrupt {
            path: path.into(),
            detail: "it does not begin with a database header".into(),
        },
        error => OpenError::Failed { path: path.into(), error },
    }
}
