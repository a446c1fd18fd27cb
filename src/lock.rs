//! One process per home, by an advisory lock on `gateway.lock`.
//!
//! The kernel drops the lock with the process, however it ends, so there is no stale state to clean up. The
//! file itself is never removed: whoever unlinks a lock file lets two processes hold "the" lock. What is
//! written in it is only for people and companion commands; after a crash it is out of date, and harmless.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Who holds the home. Dropping it lets go.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    record: Record,
}

/// The first four fields are a contract with other tools, the rest is ours.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) pid: u32,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    argv: Vec<String>,
    /// Ticks since boot at which the process started; tells a pid from one that was used before.
    #[serde(default)]
    start_time: Option<u64>,
    /// Where companions reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) socket: Option<PathBuf>,
    /// Where its web page is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum NotTaken {
    /// Another process has it; `None` if it did not say who it is.
    #[error("another gateway is running on this home{}", pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    Held { pid: Option<u32> },
    #[error("{path} cannot be locked: {error}", path = path.display())]
    Io { path: PathBuf, error: io::Error },
}

impl Lock {
    pub(crate) fn take(path: &Path) -> Result<Self, NotTaken> {
        let failed = |error| NotTaken::Io { path: path.into(), error };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(NotTaken::Held { pid: read(path).map(|record| record.pid) });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut lock = Self { file, record: Record::of_this_process() };
        lock.write().map_err(failed)?;
        Ok(lock)
    }

    /// Adds where the gateway can be reached. Failing costs only the convenience.
    pub(crate) fn announce(&mut self, socket: &Path, url: Option<&str>) -> io::Result<()> {
        self.record.socket = Some(socket.into());
        self.record.url = url.map(str::to_owned);
        self.write()
    }

    fn write(&mut self) -> io::Result<()> {
        let text = serde_json::to_vec(&self.record)?;
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&text)
    }
}

/// Who holds the home now. `None`: nobody.
pub(crate) fn holder(path: &Path) -> Option<Record> {
    let file = File::open(path).ok()?;
    match file.try_lock_shared() {
        Ok(()) => None,
        Err(TryLockError::WouldBlock) => read(path),
        Err(TryLockError::Error(_)) => None,
    }
}

fn read(path: &Path) -> Option<Record> {
    let mut text = String::new();
    File::open(path).ok()?.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

impl Record {
    fn of_this_process() -> Self {
        Self {
            pid: std::process::id(),
            kind: "hermes-gateway".into(),
            argv: std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
            start_time: start_time(),
            socket: None,
            url: None,
        }
    }
}

/// Field 22 of `/proc/self/stat`; the name in field 2 may hold anything, so counting starts behind it.
fn start_time() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_has_one_holder_and_the_second_learns_who() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gateway.lock");
        assert!(holder(&path).is_none());
        let mut lock = Lock::take(&path).unwrap();
        lock.announce(Path::new("/s"), Some("http://h")).unwrap();
        let told = Lock::take(&path).unwrap_err().to_string();
        assert!(told.contains(&format!("(pid {})", std::process::id())), "{told}");
        assert_eq!(holder(&path).unwrap().url.as_deref(), Some("http://h"));
        drop(lock);
        assert!(holder(&path).is_none() && path.exists());
        Lock::take(&path).unwrap();
    }

    #[test]
    fn rubbish_in_the_file_does_not_matter() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gateway.lock");
        std::fs::write(&path, b"\xff\xffnot json, and longer than any record would be".repeat(40)).unwrap();
        let lock = Lock::take(&path).unwrap();
        assert_eq!(read(&path).unwrap().pid, std::process::id());
        drop(lock);
    }
}
