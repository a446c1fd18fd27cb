//! The pid file, `gateway.pid`: the process that serves this home.
//!
//! Created and removed by the holder of `gateway.lock`. A crash leaves it behind and the next holder replaces it, so readers
//! check whether the process is alive.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::home::files::read;
use crate::home::files::write::{self, Durable};
use crate::home::process::ProcessRecord;

/// The pid file of this process. Dropping it leaves the file.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    record: ProcessRecord,
}

pub fn path(home: &Path) -> PathBuf {
    home.join("gateway.pid")
}

/// Must be called by the holder of the lock, so an existing file is stale.
pub fn claim(home: &Path) -> io::Result<PidFile> {
    let path = path(home);
    let record = ProcessRecord::of_this_process();
    write::remove(&path, Durable::Loose)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(&serde_json::to_vec(&record)?)?;
    Ok(PidFile { path, record })
}

pub fn read(home: &Path) -> Option<ProcessRecord> {
    read_at(&path(home))
}

impl PidFile {
    pub fn record(&self) -> &ProcessRecord {
        &self.record
    }

    /// `false`: another process has taken over the file.
    pub fn remove(self) -> io::Result<bool> {
        remove(&self.path, &self.record)
    }
}

pub(crate) fn remove(path: &Path, record: &ProcessRecord) -> io::Result<bool> {
    if !read_at(path).is_some_and(|found| found.is_same(record)) {
        return Ok(false);
    }
    write::remove(path, Durable::Loose)
}

fn read_at(path: &Path) -> Option<ProcessRecord> {
    read::bytes_if_readable(path).and_then(|bytes| ProcessRecord::parse(&bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::home::files::testing::{NO_HOMES, for_each_damage};

    #[test]
    fn claimed_pid_file_is_private_and_removable() {
        let home = tempfile::tempdir().unwrap();
        let file = claim(home.path()).unwrap();
        assert_eq!(read(home.path()).as_ref(), Some(file.record()));
        assert_eq!(path(home.path()).metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(file.remove().unwrap() && !path(home.path()).exists());
    }

    #[test]
    fn replaces_stale_pid_file() {
        let home = tempfile::tempdir().unwrap();
        for left in [&b"18998"[..], b"", b"\xff"] {
            std::fs::write(path(home.path()), left).unwrap();
            assert!(claim(home.path()).unwrap().remove().unwrap());
        }
    }

    #[test]
    fn keeps_pid_file_taken_over_by_another_process() {
        let home = tempfile::tempdir().unwrap();
        let other = ProcessRecord { start_time: Some(1), ..ProcessRecord::of_this_process() };
        for theirs in [&b"18998"[..], b"junk", &serde_json::to_vec(&other).unwrap()] {
            let file = claim(home.path()).unwrap();
            std::fs::write(path(home.path()), theirs).unwrap();
            assert!(!file.remove().unwrap());
            assert_eq!(std::fs::read(path(home.path())).unwrap(), theirs);
        }
        let file = claim(home.path()).unwrap();
        std::fs::remove_file(path(home.path())).unwrap();
        assert!(!file.remove().unwrap());
    }

    #[test]
    fn ignores_damaged_pid_file() {
        let home = tempfile::tempdir().unwrap();
        for_each_damage(&path(home.path()), |what| assert_eq!(read(home.path()), None, "{what}"));
        for home in NO_HOMES {
            assert_eq!(read(Path::new(home)), None, "{home:?}");
        }
    }
}
