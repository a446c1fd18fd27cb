//! Registry of this process's open database files. No other code may open them: closing any descriptor of a
//! file drops the locks that SQLite holds on it.
//!
//! `open_file` inspects a file through an `O_PATH` descriptor first, which does not affect locks.

use std::fs::Metadata;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

static PROTECTED: RwLock<Vec<ProtectedFile>> = RwLock::new(Vec::new());

#[derive(Debug, PartialEq, Eq)]
struct ProtectedFile {
    path: PathBuf,
    /// Device and inode at registration; the file may have been renamed since.
    registered_as: Option<(u64, u64)>,
}

/// Registers an open database. From now on `open_file` refuses it and its side files under every name.
pub fn protect_database(path: &Path) {
    let mut protected = PROTECTED.write().unwrap_or_else(PoisonError::into_inner);
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let path = PathBuf::from(name);
        let file = ProtectedFile { registered_as: identity(&path), path };
        if !protected.contains(&file) {
            protected.push(file);
        }
    }
}

/// Opens a file for reading without blocking on named pipes. Follows no symbolic link at `name` and refuses
/// protected database files.
pub fn open_file<Fd: AsFd>(parent: Fd, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let inspect = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(parent, name, inspect, Mode::empty())?;
    let stat = rustix::fs::fstat(&fd)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
        return Err(Errno::LOOP);
    }
    if is_protected((stat.st_dev, stat.st_ino)) {
        return Err(Errno::ACCESS);
    }
    // Reopens the inspected file itself, even if `name` has been replaced meanwhile.
    let read = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, format!("/proc/self/fd/{}", fd.as_raw_fd()), read, Mode::empty())
}

fn is_protected(file: (u64, u64)) -> bool {
    let protected = PROTECTED.read().unwrap_or_else(PoisonError::into_inner);
    protected.iter().any(|it| it.registered_as == Some(file) || identity(&it.path) == Some(file))
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|metadata: Metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_protected_database_under_every_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for name in ["own.db", "own.db-shm", "other.db"] {
            std::fs::write(at(name), "x").expect("written");
        }
        std::fs::hard_link(at("own.db"), at("copy.txt")).expect("linked");
        std::os::unix::fs::symlink(at("other.db"), at("link")).expect("linked");
        protect_database(&at("own.db"));
        let opened = |name: &str| open_file(CWD, at(name)).map(drop);
        for (name, want) in [
            ("own.db", Err(Errno::ACCESS)),
            ("own.db-shm", Err(Errno::ACCESS)),
            ("copy.txt", Err(Errno::ACCESS)),
            ("other.db", Ok(())),
            ("link", Err(Errno::LOOP)),
            ("none", Err(Errno::NOENT)),
        ] {
            assert_eq!(opened(name), want, "{name}");
        }
        std::fs::rename(at("own.db"), at("moved")).expect("moved");
        assert_eq!(opened("moved"), Err(Errno::ACCESS));
        std::fs::write(at("own.db-wal"), "made later").expect("written");
        assert_eq!(opened("own.db-wal"), Err(Errno::ACCESS));
    }
}
