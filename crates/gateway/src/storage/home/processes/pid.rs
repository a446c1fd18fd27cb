//! `gateway.pid`: who serves this home.
//!
//! Made by the process that holds `gateway.lock`, and removed by it; a crash leaves it behind, and the next holder
//! replaces it. Others believe it only after they have looked whether that process lives.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::home::files::read;
use crate::home::files::write::{self, Durable};
use crate::home::process::Record;

/// Our pid file. Dropping it leaves the file.
#[derive(Debug)]
pub struct PidFile {
    path: PathBuf,
    record: Record,
}

pub fn path(home: &Path) -> PathBuf {
    home.join("gateway.pid")
}

/// Only for the holder of the lock: a file that is there can then only be left over.
pub fn claim(home: &Path) -> io::Result<PidFile> {
    let path = path(home);
    let record = Record::of_this_process();
    write::remove(&path, Durable::Loose)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(&serde_json::to_vec(&record)?)?;
    Ok(PidFile { path, record })
}

pub fn read(home: &Path) -> Option<Record> {
    read_at(&path(home))
}

impl PidFile {
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// False: it is not ours any more, and was left to whoever has it now.
    pub fn remove(self) -> io::Result<bool> {
        remove(&self.path, &self.record)
    }
}

/// Removes the file if it names this process.
pub(crate) fn remove(path: &Path, record: &Record) -> io::Result<bool> {
    if !read_at(path).is_some_and(|found| found.is_same(record)) {
        return Ok(false);
    }
    write::remove(path, Durable::Loose)
}

fn read_at(path: &Path) -> Option<Record> {
    read::bytes_if_readable(path).and_then(|bytes| Record::parse(&bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::home::files::testing::{NO_HOMES, ruin};

    #[test]
    fn a_claim_is_private_says_who_we_are_and_goes_with_us() {
        let home = tempfile::tempdir().unwrap();
        let file = claim(home.path()).unwrap();
        assert_eq!(read(home.path()).as_ref(), Some(file.record()));
        assert_eq!(path(home.path()).metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(file.remove().unwrap() && !path(home.path()).exists());
    }

    #[test]
    fn what_a_crash_left_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        for left in [&b"18998"[..], b"", b"\xff"] {
            std::fs::write(path(home.path()), left).unwrap();
            assert!(claim(home.path()).unwrap().remove().unwrap());
        }
    }

    #[test]
    fn a_file_that_is_another_ones_by_now_stays() {
        let home = tempfile::tempdir().unwrap();
        let other = Record { start_time: Some(1), ..Record::of_this_process() };
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
    fn nothing_in_its_place_is_a_process() {
        let home = tempfile::tempdir().unwrap();
        ruin(&path(home.path()), |what| assert_eq!(read(home.path()), None, "{what}"));
        for home in NO_HOMES {
            assert_eq!(read(Path::new(home)), None, "{home:?}");
        }
    }
}
