//! Opening the file: what may be created, what is checked, what is refused.
//!
//! Invariants: a file that is refused is left byte for byte as it was; an empty database never takes the
//! place of one that existed. A marker file beside the database, written after the first schema is
//! committed, remembers that there was one.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::error::{Error, OpenError, Result};
use crate::schema::{self, Schema};

const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const BUSY: Duration = Duration::from_secs(5);

/// Up to this size everything is checked at every start.
const SMALL: u64 = 1 << 20;
/// Above this size the pages are checked only after an unclean end.
const LARGE: u64 = 64 << 20;

/// The read-write connection of the one writer.
pub(crate) fn writer(path: &Path, schema: &Schema) -> Result<Connection, OpenError> {
    let fresh = prepare(path, schema)?;
    let mut db = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // SQLite quietly opens what it may not write; we would find out with the first message.
    if db.is_readonly("main").map_err(|error| failed(path, error.into()))? {
        return Err(failed(path, Error::ReadOnly));
    }
    if !fresh {
        examine(&db, path, schema)?;
    }
    settle(&mut db, schema).map_err(|error| failed(path, error))?;
    remember(path, schema).map_err(|error| failed(path, error.into()))?;
    Ok(db)
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

fn create(path: &Path) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?;
    File::open(folder(path))?.sync_all()
}

/// Reads what can be told without opening the database, so that a newer one stays untouched.
fn header(path: &Path, schema: &Schema) -> Result<(), OpenError> {
    let mut head = [0_u8; 100];
    let read =
        File::open(path).and_then(|mut file| file.read(&mut head)).map_err(|e| failed(path, e.into()))?;
    if read < head.len() || !head.starts_with(MAGIC) {
        return Err(OpenError::Foreign { path: path.into() });
    }
    let found = u32::from_be_bytes([head[60], head[61], head[62], head[63]]);
    newer(path, found, schema)
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

fn examine(db: &Connection, path: &Path, schema: &Schema) -> Result<(), OpenError> {
    versions(db, path, schema)?;
    let size = fs::metadata(path).map_or(0, |found| found.len());
    let unclean = fs::metadata(beside(path, "-wal")).is_ok_and(|log| log.len() > 0);
    let check = match size {
        size if size <= SMALL => "PRAGMA integrity_check(1)",
        size if size <= LARGE || unclean => "PRAGMA quick_check(1)",
        _ => return Ok(()),
    };
    let verdict: String =
        db.query_row(check, [], |row| row.get(0)).map_err(|error| failed(path, error.into()))?;
    if verdict == "ok" {
        return Ok(());
    }
    Err(OpenError::Corrupt { path: path.into(), detail: verdict })
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
         PRAGMA wal_autocheckpoint = 1000;
         PRAGMA journal_size_limit = 16777216;
         PRAGMA cache_size = -1024;
         PRAGMA temp_store = MEMORY;
         PRAGMA mmap_size = 0;",
    )?;
    schema.migrate(db)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    Ok(())
}

fn remember(path: &Path, schema: &Schema) -> std::io::Result<()> {
    let marker = folder(path).join(schema.marker);
    if marker.exists() {
        return Ok(());
    }
    let text = "A Petasos database was created in this directory. If it is missing, something removed it.\n";
    fs::write(&marker, text)?;
    File::open(&marker)?.sync_all()?;
    File::open(folder(path))?.sync_all()
}

fn folder(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.into(),
        _ => PathBuf::from("."),
    }
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn failed(path: &Path, error: Error) -> OpenError {
    match error {
        Error::Corrupt(detail) => OpenError::Corrupt { path: path.into(), detail },
        error => OpenError::Failed { path: path.into(), error },
    }
}
