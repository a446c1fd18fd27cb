//! One process per home, by an advisory lock on `gateway.lock`.
//!
//! The kernel drops the lock with the process, however it ends, so there is no stale state to clean up. The
//! file itself is never removed: whoever unlinks a lock file lets two processes hold "the" lock. What is
//! written in it is only for people and companion commands; after a crash it is out of date, and harmless.
//!
//! Whoever only looks shares the lock for an instant. A process that wants it for itself tells those from a holder
//! (with whom nobody can share) and tries again.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use petasos_config::Home;
use petasos_gateway::home::process;
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, WRITABLE};

/// Who holds the home. Dropping it lets go.
#[derive(Debug)]
pub struct Lock {
    file: File,
    record: Record,
}

/// The process is a contract with other tools, the rest is ours.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    #[serde(flatten)]
    pub process: process::Record,
    /// Where companions reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<PathBuf>,
    /// Where its web page is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    /// Another process has it; `None` if it did not say who it is.
    #[error("another gateway is running on this home{}", pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    Held { pid: Option<u32> },
    #[error("{path} cannot be locked: {error}", path = path.display())]
    Io { path: PathBuf, error: io::Error },
}

impl Lock {
    pub fn take(path: &Path) -> Result<Self, NotTaken> {
        let failed = |error| NotTaken::Io { path: path.into(), error };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        if !exclusively(&file).map_err(failed)? {
            return Err(NotTaken::Held { pid: holder(path).map(|record| record.process.pid) });
        }
        let record = Record { process: process::Record::of_this_process(), socket: None, url: None };
        let mut lock = Self { file, record };
        lock.write().map_err(failed)?;
        Ok(lock)
    }

    /// Adds where the gateway can be reached. Failing costs only the convenience.
    pub fn announce(&mut self, socket: &Path, url: Option<&str>) -> io::Result<()> {
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

/// How often, and how far apart, something is tried again that others disturb for an instant only.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(2);

/// `false`: somebody has it.
fn exclusively(file: &File) -> io::Result<bool> {
    for _ in 0..TRIES {
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
        std::thread::sleep(PAUSE);
    }
    Ok(false)
}

/// Whether somebody holds the home now.
pub fn is_held(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// Who holds the home now. `None`: nobody, or somebody who has not said who it is.
pub fn holder(path: &Path) -> Option<Record> {
    for _ in 0..TRIES {
        if !is_held(path) {
            return None;
        }
        // It may be writing just now.
        if let Some(record) = read(path) {
            return Some(record);
        }
        std::thread::sleep(PAUSE);
    }
    None
}

fn read(path: &Path) -> Option<Record> {
    let mut text = String::new();
    File::open(path).ok()?.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Takes the home for this process.
pub fn take(home: &Home) -> Result<Lock, Failure> {
    home.create().map_err(|error| {
        Failure::new(format!("{} cannot be created: {error}", home.path().display())).next(WRITABLE)
    })?;
    Lock::take(&home.lock_file()).map_err(|error| not_taken(home, error))
}

pub fn not_taken(home: &Home, error: NotTaken) -> Failure {
    match error {
        NotTaken::Held { .. } => Failure::new(error.to_string())
            .next("petasos status shows it, petasos stop ends it, petasos run --replace takes its place"),
        NotTaken::Io { error, .. } => {
            Failure::new(format!("{} cannot be written: {error}", home.path().display())).next(WRITABLE)
        }
    }
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
    fn those_who_look_do_not_keep_anybody_from_taking_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gateway.lock");
        drop(Lock::take(&path).unwrap());
        let looking = File::open(&path).unwrap();
        looking.try_lock_shared().unwrap();
        std::thread::scope(|scope| {
            let taking = scope.spawn(|| Lock::take(&path));
            drop(looking);
            assert!(taking.join().unwrap().is_ok());
        });
    }

    #[test]
    fn rubbish_in_the_file_does_not_matter() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gateway.lock");
        std::fs::write(&path, b"\xff\xffnot json, and longer than any record would be".repeat(40)).unwrap();
        let lock = Lock::take(&path).unwrap();
        assert_eq!(read(&path).unwrap().process.pid, std::process::id());
        drop(lock);
    }
}
