//! Detects that the database files were unlinked or replaced while they are open.
//!
//! SQLite keeps writing to a log that another program has unlinked, and a crash loses that log. The writer therefore
//! compares inode numbers after every commit and before every checkpoint, at the cost of three `stat` calls. The inode
//! number of an open file is not reused.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::connection::open::with_suffix;
use crate::error::{Error, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId(u64, u64);

impl FileId {
    pub(crate) fn of(path: &Path) -> Result<Option<Self>> {
        match fs::metadata(path) {
            Ok(about) => Ok(Some(Self(about.dev(), about.ino()))),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// A file that is missing from its path or was replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DetachedFile {
    Database,
    Log,
    SharedMemory,
}

impl std::fmt::Display for DetachedFile {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str(match self {
            Self::Database => "the database file",
            Self::Log => "its write-ahead log",
            Self::SharedMemory => "its shared-memory file",
        })
    }
}

/// Recorded once a connection holds its lock: a well-behaved program no longer unlinks these files.
#[derive(Debug, Clone)]
pub(crate) struct DatabaseFiles([TrackedFile; 3]);

#[derive(Debug, Clone)]
struct TrackedFile {
    kind: DetachedFile,
    path: PathBuf,
    id: FileId,
}

impl TrackedFile {
    fn new(kind: DetachedFile, path: PathBuf) -> Result<Self> {
        let id = FileId::of(&path)?.ok_or(Error::Detached(kind))?;
        Ok(Self { kind, path, id })
    }
}

impl DatabaseFiles {
    pub(crate) fn in_use(path: &Path) -> Result<Self> {
        Ok(Self([
            TrackedFile::new(DetachedFile::Database, path.into())?,
            TrackedFile::new(DetachedFile::Log, with_suffix(path, "-wal"))?,
            TrackedFile::new(DetachedFile::SharedMemory, with_suffix(path, "-shm"))?,
        ]))
    }

    /// Returns [`Error::Detached`] if a file is not at its path.
    pub(crate) fn check(&self) -> Result<()> {
        for TrackedFile { kind, path, id } in &self.0 {
            if FileId::of(path)? != Some(*id) {
                return Err(Error::Detached(*kind));
            }
        }
        Ok(())
    }

    /// Files that other programs put at these paths.
    pub(crate) fn replacements(&self) -> Result<Vec<(PathBuf, FileId)>> {
        let mut found = vec![];
        for TrackedFile { path, id, .. } in &self.0 {
            let now = FileId::of(path)?;
            found.extend(now.filter(|now| now != id).map(|now| (path.clone(), now)));
        }
        Ok(found)
    }
}
