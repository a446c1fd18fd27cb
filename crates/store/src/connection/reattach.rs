//! Recovery of a database whose files were unlinked or replaced while it was open.
//!
//! The connection still reads and writes through its open descriptors, but no path leads to those files. Recovery copies
//! the whole database from the connection to a new file, which replaces the old one.
//!
//! | step | a power failure after it leaves |
//! |---|---|
//! | copy to `<database>-recovery~`, check and sync it | the files at the paths unchanged; the next recovery removes the copy |
//! | link files of other programs as `<name>.replaced-<inode>` | the same, with a second name for them |
//! | rename to `<database>-recovery`, sync the directory | the copy; the next open of a writer completes the recovery ([`finish`]) |
//! | remove the old `-wal` and `-shm` | the same |
//! | rename to `<database>`, sync the directory | the recovered database |
//!
//! A crash before the rename to `-recovery` loses the commits that are only in the unlinked log, including acknowledged
//! ones since the last checkpoint. Later commits are not acknowledged. A stop recovers first; if that fails, it
//! checkpoints the unlinked log ([`crate::Store::checkpoint_removed_log`]).
//!
//! A failed step leaves the connection unchanged, and the recovery can be retried. A copy that fails its check (another
//! program wrote to the file) replaces nothing.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags};

use crate::connection::files::{DatabaseFiles, FileId};
use crate::connection::open::{self, with_suffix};
use crate::error::{Error, OpenError, Result};

const COPY: &str = "-recovery~";
const READY: &str = "-recovery";

/// Makes a checked copy of the whole database for [`finish`].
pub(crate) fn prepare(
    db: &Connection,
    path: &Path,
    files: &DatabaseFiles,
    own_copy: Option<FileId>,
) -> Result<()> {
    let copy = with_suffix(path, COPY);
    remove(&copy)?;
    open::create(&copy)?;
    let mut to = Connection::open_with_flags(&copy, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // All pages in one step: a consistent snapshot.
    Backup::new(db, &mut to)?.run_to_completion(i32::MAX, Duration::ZERO, None)?;
    to.close().map_err(|(_, error)| Error::from(error))?;
    open::verify_copy(&copy)?;
    sync(&copy)?;
    preserve_replacements(files, own_copy)?;
    fs::rename(&copy, with_suffix(path, READY))?;
    open::sync_folder(path)?;
    Ok(())
}

/// Installs a prepared copy, even one from another process.
pub(crate) fn finish(path: &Path) -> Result<(), OpenError> {
    let ready = with_suffix(path, READY);
    if !ready.exists() {
        return Ok(());
    }
    install(path, &ready).map_err(|error| OpenError::Failed { path: path.into(), error: error.into() })
}

fn install(path: &Path, ready: &Path) -> std::io::Result<()> {
    remove(&with_suffix(path, "-wal"))?;
    remove(&with_suffix(path, "-shm"))?;
    fs::rename(ready, path)?;
    open::sync_folder(path)
}

/// Gives files that other programs put at our paths a second name, so that they are not lost. `own_copy`: our own copy
/// from a failed recovery.
fn preserve_replacements(files: &DatabaseFiles, own_copy: Option<FileId>) -> Result<()> {
    for (path, id) in files.replacements()? {
        if Some(id) == own_copy || fs::metadata(&path)?.len() == 0 {
            continue;
        }
        let kept = replaced_path(&path)?;
        match fs::hard_link(&path, &kept) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn replaced_path(path: &Path) -> std::io::Result<PathBuf> {
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(path)?);
    Ok(with_suffix(path, &format!(".replaced-{inode}")))
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
