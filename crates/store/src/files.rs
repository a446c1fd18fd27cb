//! Which files the connections of this process use, and whether those still are the files at their paths.
//!
//! SQLite keeps writing to a log that another program has unlinked; after a crash that log is lost. So
//! the writer compares inode numbers after every commit and before every checkpoint. Three calls of `stat`; the
//! numbers of files that are open here cannot be given to others.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::open::beside;

/// Device and inode number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId(u64, u64);

impl FileId {
    /// `None`: there is no such file.
    pub(crate) fn of(path: &Path) -> Result<Option<Self>> {
        match fs::metadata(path) {
            Ok(about) => Ok(Some(Self(about.dev(), about.ino()))),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// A file that is not at its path any more, or replaced by another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detached {
    Database,
    Log,
    SharedMemory,
}

impl std::fmt::Display for Detached {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(match self {
            Self::Database => "the database file",
            Self::Log => "its write-ahead log",
            Self::SharedMemory => "its shared-memory file",
        })
    }
}

/// Recorded once a connection holds its lock: from then on no well-behaved program unlinks them.
#[derive(Debug, Clone)]
pub(crate) struct Files([Named; 3]);

#[derive(Debug, Clone)]
struct Named {
    what: Detached,
    path: PathBuf,
    id: FileId,
}

impl Named {
    fn new(what: Detached, path: PathBuf) -> Result<Self> {
        let id = FileId::of(&path)?.ok_or(Error::Detached(what))?;
        Ok(Self { what, path, id })
    }
}

impl Files {
    pub(crate) fn in_use(path: &Path) -> Result<Self> {
        Ok(Self([
            Named::new(Detached::Database, path.into())?,
            Named::new(Detached::Log, beside(path, "-wal"))?,
            Named::new(Detached::SharedMemory, beside(path, "-shm"))?,
        ]))
    }

    /// Fails with [`Error::Detached`] if one of them is not at its path.
    pub(crate) fn check(&self) -> Result<()> {
        for Named { what, path, id } in &self.0 {
            if FileId::of(path)? != Some(*id) {
                return Err(Error::Detached(*what));
            }
        }
        Ok(())
    }

    /// Files at these paths that other programs put there.
    pub(crate) fn replacements(&self) -> Result<Vec<(PathBuf, FileId)>> {
        let mut found = vec![];
        for Named { path, id, .. } in &self.0 {
            let now = FileId::of(path)?;
            found.extend(now.filter(|now| now != id).map(|now| (path.clone(), now)));
        }
        Ok(found)
    }
}
