//! Recovery of a database whose files were unlinked or replaced while it was open.
//!
//! The connection still reads and writes everything through its open descriptors, but what it commits is in files
//! that no path leads to. So the whole database is copied from the connection into a new file, which takes the
//! place of the old one.
//!
//! | step | a power failure after it leaves |
//! |---|---|
//! | copy to `<database>-recovery~`, check it, sync it | the files at the paths as they were; the copy is ignored, and removed by the next recovery |
//! | keep files of other programs as `<name>.replaced-<inode>` | the same, with a second name for them |
//! | rename to `<database>-recovery`, sync the directory | the copy; the next open of a writer does the rest ([`finish`]) |
//! | remove `-wal` and `-shm`, which belong to the old file | the same |
//! | rename to `<database>`, sync the directory | the copy at its place |
//!
//! A crash before the rename to `-recovery` loses commits that are only in the unlinked log: those made since the last
//! checkpoint, including acknowledged ones from before the removal. Commits after it are not acknowledged. A stop
//! recovers first; if that fails it copies the unlinked log into the database ([`crate::Store::fold_removed_log`]).
//!
//! If a step fails, the connection stays as it is and the recovery can be tried again. A copy that does not pass
//! the check (another program wrote to the file meanwhile) never takes the place of anything.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags};

use crate::error::{Error, OpenError, Result};
use crate::files::{FileId, Files};
use crate::open::{self, beside};

const COPY: &str = "-recovery~";
const READY: &str = "-recovery";

/// Makes a checked copy of the whole database and puts it where [`finish`] finds it.
pub(crate) fn prepare(db: &Connection, path: &Path, files: &Files, known: Option<FileId>) -> Result<()> {
    let copy = beside(path, COPY);
    remove(&copy)?;
    open::create(&copy)?;
    let mut to = Connection::open_with_flags(&copy, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // All pages in one step: one moment of the database.
    Backup::new(db, &mut to)?.run_to_completion(i32::MAX, Duration::ZERO, None)?;
    to.close().map_err(|(_, error)| Error::from(error))?;
    open::verify_copy(&copy)?;
    sync(&copy)?;
    keep(files, known)?;
    fs::rename(&copy, beside(path, READY))?;
    open::sync_folder(path)?;
    Ok(())
}

/// Puts a prepared copy into place, whichever process prepared it.
pub(crate) fn finish(path: &Path) -> Result<(), OpenError> {
    let ready = beside(path, READY);
    if !ready.exists() {
        return Ok(());
    }
    put_in_place(path, &ready).map_err(|error| OpenError::Failed { path: path.into(), error: error.into() })
}

fn put_in_place(path: &Path, ready: &Path) -> std::io::Result<()> {
    remove(&beside(path, "-wal"))?;
    remove(&beside(path, "-shm"))?;
    fs::rename(ready, path)?;
    open::sync_folder(path)
}

/// A second name for what other programs put in place of our files, so that nothing of it is lost. `known`: our own
/// copy, from a recovery that did not get further.
fn keep(files: &Files, known: Option<FileId>) -> Result<()> {
    for (path, id) in files.replacements()? {
        if Some(id) == known || fs::metadata(&path)?.len() == 0 {
            continue;
        }
        let kept = replaced(&path)?;
        match fs::hard_link(&path, &kept) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn replaced(path: &Path) -> std::io::Result<PathBuf> {
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(path)?);
    Ok(beside(path, &format!(".replaced-{inode}")))
}

fn remove(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[expect(clippy::disallowed_methods, reason = "a copy that no connection uses")]
fn sync(copy: &Path) -> std::io::Result<()> {
    File::open(copy)?.sync_all()
}
