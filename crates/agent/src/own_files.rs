//! Database files of this process, which nothing else in it may open: closing any descriptor of one drops the locks
//! that SQLite holds through all others.
//!
//! `O_PATH` opens nothing that could drop a lock, so a file is looked at through such a descriptor first.

use std::fs::Metadata;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::io::Errno;

static OWN: RwLock<Vec<Own>> = RwLock::new(Vec::new());

#[derive(Debug, PartialEq, Eq)]
struct Own {
    path: PathBuf,
    /// When it was announced: it may have been moved since.
    then: Option<(u64, u64)>,
}

/// Announces an open database; from now on `open_file` refuses it and the files beside it under every name.
pub fn announce_database(path: &Path) {
    let mut own = OWN.write().unwrap_or_else(PoisonError::into_inner);
    for suffix in ["", "-wal", "-shm", "-journal"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let path = PathBuf::from(name);
        let file = Own { then: identity(&path), path };
        if !own.contains(&file) {
            own.push(file);
        }
    }
}

/// Opens for reading without waiting (a named pipe has nobody at its other end), follows no link at `name`, and refuses
/// the files of a database of ours.
pub fn open_file<Fd: AsFd>(parent: Fd, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    let looked = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(parent, name, looked, Mode::empty())?;
    let stat = rustix::fs::fstat(&fd)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
        return Err(Errno::LOOP);
    }
    if is_own((stat.st_dev, stat.st_ino)) {
        return Err(Errno::ACCESS);
    }
    // The file that was looked at, whatever lies at its name by now.
    let read = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, format!("/proc/self/fd/{}", fd.as_raw_fd()), read, Mode::empty())
}

fn is_own(file: (u64, u64)) -> bool {
    let own = OWN.read().unwrap_or_else(PoisonError::into_inner);
    own.iter().any(|it| it.then == Some(file) || identity(&it.path) == Some(file))
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    path.metadata().ok().map(|about: Metadata| (about.dev(), about.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_a_database_under_every_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        for name in ["own.db", "own.db-shm", "other.db"] {
            std::fs::write(at(name), "x").expect("written");
        }
        std::fs::hard_link(at("own.db"), at("copy.txt")).expect("linked");
        std::os::unix::fs::symlink(at("other.db"), at("link")).expect("linked");
        announce_database(&at("own.db"));
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
