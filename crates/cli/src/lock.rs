//! One process per home, by an advisory lock on `gateway.lock`.
//!
//! The kernel releases the lock when the process ends, so no stale lock can remain. The file is never
//! removed: after an unlink two processes could hold a lock on two different files. Its content is
//! informational; after a crash it is outdated and harmless.
//!
//! Readers take a shared lock for an instant. A process that wants the exclusive lock distinguishes a reader
//! from a holder by trying a shared lock, and retries if it met a reader.

#![expect(clippy::disallowed_methods, reason = "a file lock has no notification")]

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use petasos_config::Home;
use petasos_gateway::home::process;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, WRITABLE_ADVICE};

#[derive(Debug)]
pub struct Lock {
    file: File,
    record: LockRecord,
}

/// Content of the lock file. The process fields are read by other tools; the rest is internal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LockRecord {
    #[serde(flatten)]
    pub process: process::ProcessRecord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds the lock; `None` if its record cannot be read.
    #[error("another gateway is running on this home{}", pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    Held { pid: Option<u32> },
    #[error("{path} cannot be locked: {error}", path = path.display())]
    Io { path: PathBuf, error: io::Error },
}

impl Lock {
    pub fn acquire(path: &Path) -> Result<Self, LockError> {
        let failed = |error| LockError::Io { path: path.into(), error };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        if !try_exclusive(&file).map_err(failed)? {
            return Err(LockError::Held { pid: holder(path).map(|record| record.process.pid) });
        }
        let record =
            LockRecord { process: process::ProcessRecord::of_this_process(), socket: None, url: None };
        let mut lock = Self { file, record };
        lock.write().map_err(failed)?;
        Ok(lock)
    }

    /// Adds the gateway's addresses to the lock file. A failure only makes clients fall back to the default
    /// socket path.
    pub fn publish_endpoints(&mut self, socket: &Path, url: Option<&str>) -> io::Result<()> {
        self.record.socket = Some(socket.into());
        self.record.url = url.map(str::to_owned);
        self.write()
    }

    fn write(&mut self) -> io::Result<()> {
        let text = serde_json::to_vec(&self.record)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&text)?;
        self.file.set_len(text.len() as u64)
    }
}

/// Retries against locks that are held for an instant only.
const ATTEMPTS: u32 = 50;
const RETRY_DELAY: Duration = Duration::from_millis(2);

/// `false` if another process holds the lock.
fn try_exclusive(file: &File) -> io::Result<bool> {
    for _ in 0..ATTEMPTS {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        match file.try_lock_shared() {
            Ok(()) => file.unlock()?,
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        std::thread::sleep(RETRY_DELAY);
    }
    Ok(false)
}

pub fn is_held(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// The record of the process that holds the home. `None` if the home is free or the record cannot be read.
pub fn holder(path: &Path) -> Option<LockRecord> {
    for _ in 0..ATTEMPTS {
        if !is_held(path) {
            return None;
        }
        // The holder may be writing the file.
        if let Some(record) = read(path) {
            return Some(record);
        }
        std::thread::sleep(RETRY_DELAY);
    }
    None
}

fn read(path: &Path) -> Option<LockRecord> {
    let mut text = String::new();
    File::open(path).ok()?.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Creates the home if necessary and locks it for this process.
pub fn acquire(home: &Home) -> Result<Lock, Failure> {
    home.create().map_err(|error| {
        Failure::new(format!("{} cannot be created: {error}", home.path().display())).next(WRITABLE_ADVICE)
    })?;
    Lock::acquire(&home.lock_file()).map_err(|error| lock_failure(home, error))
}

pub fn lock_failure(home: &Home, error: LockError) -> Failure {
    match error {
        LockError::Held { .. } => Failure::new(error.to_string())
            .next("petasos status shows it, petasos stop stops it, petasos run --replace takes over from it"),
        LockError::Io { error, .. } => {
            Failure::new(format!("{} cannot be written: {error}", home.path().display()))
                .next(WRITABLE_ADVICE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_process_learns_pid_of_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gateway.lock");
        assert!(holder(&path).is_none());
        let mut lock = Lock::acquire(&path).unwrap();
        lock.publish_endpoints(Path::new("/s"), Some("http://h")).unwrap();
        let error = Lock::acquire(&path).unwrap_err().to_string();
        assert!(error.contains(&format!("(pid {})", std::process::id())), "{error}");
        assert_eq!(holder(&path).unwrap().url.as_deref(), Some("http://h"));
        drop(lock);
        assert!(holder(&path).is_none() && path.exists());
        Lock::acquire(&path).unwrap();
    }

    #[test]
    fn shared_reader_does_not_block_acquire() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gateway.lock");
        drop(Lock::acquire(&path).unwrap());
        let reader = File::open(&path).unwrap();
        reader.try_lock_shared().unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| Lock::acquire(&path));
            drop(reader);
            assert!(writer.join().unwrap().is_ok());
        });
    }

    #[test]
    fn overwrites_invalid_lock_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gateway.lock");
        std::fs::write(&path, b"\xff\xffnot json, and longer than any record would be".repeat(40)).unwrap();
        let lock = Lock::acquire(&path).unwrap();
        assert_eq!(read(&path).unwrap().process.pid, std::process::id());
        drop(lock);
    }
}
