//! Simulated power cuts: synced data stays, unsynced data is lost or survives in part.
//!
//! The recorder (`recorder.c`) appends every file operation below a recorded directory to a log in it. A test program links
//! the recorder (`DEP_PETASOS_POWER_CUT_OBJECT`, see the build script of `petasos-sim`); a program under test gets it as
//! `LD_PRELOAD=`[`RECORDER`]. [`apply`] rebuilds the directory from the log (`replay`):
//!
//! - A write to a file is durable after the next sync of that file. Unsynced writes survive as sectors of 512 bytes.
//! - A new name, a rename or a removal is durable after the next sync of its directory, as POSIX says; many file systems
//!   promise more. Unsynced ones survive as a prefix in their order, and a rename is atomic.
//! - Not covered: operations that bypass the C library, symbolic links, permissions, memory maps, and shared memory
//!   (`-shm`), which does not survive.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod log;
mod replay;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use replay::{Entry, Files};

/// The library to preload into a program under test.
pub const RECORDER: &str = concat!(env!("OUT_DIR"), "/recorder.so");
/// The log of a recorded directory. `recorder.c` has the same name.
pub const LOG: &str = ".file-operations";

/// Which unsynced data survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsyncedData {
    Dropped,
    /// A pseudo-random half, by this seed.
    Partial(u64),
    /// All of it, as after `kill -9`.
    Kept,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct LossCounts {
    /// Syncs of files and directories.
    pub syncs: usize,
    /// Unsynced sectors.
    pub sectors: usize,
    /// Unsynced names, renames and removals.
    pub names: usize,
}

/// Starts to record a directory. Everything in it counts as synced.
pub fn record(directory: &Path) {
    let mut records = Vec::new();
    baseline(directory, Path::new(""), &mut records);
    fs::write(directory.join(LOG), records).expect("a log of file operations");
}

/// Whether operations of this process are recorded: whether it was linked with the recorder.
pub fn is_recorded(directory: &Path) -> bool {
    let before = log_length(directory);
    let probe = directory.join(".probe");
    let made = fs::File::create_new(&probe).and_then(|_probe| fs::remove_file(&probe));
    made.is_ok() && log_length(directory) > before
}

/// Length of the log in bytes. Later operations are behind it.
pub fn log_length(directory: &Path) -> u64 {
    fs::metadata(directory.join(LOG)).map_or(0, |log| log.len())
}

/// Drops the last operations from the log; which ones is decided by `seed`. Those in its first `kept` bytes stay.
pub fn interrupt(directory: &Path, kept: u64, seed: u64) {
    let path = directory.join(LOG);
    let bytes = fs::read(&path).expect("a log of file operations");
    let kept = usize::try_from(kept).unwrap_or(usize::MAX);
    let ends: Vec<_> = log::ends(&bytes).into_iter().filter(|end| *end > kept).collect();
    let at = usize::try_from(replay::mix(seed) % (ends.len() as u64 + 1)).unwrap_or_default();
    let length = at.checked_sub(1).map_or(kept.min(bytes.len()), |at| ends[at]);
    fs::write(&path, &bytes[..length]).expect("a log of file operations");
}

/// Rewrites a recorded directory to its state after a power cut, and ends the recording. Files that the log does not
/// mention are left alone.
pub fn apply(directory: &Path, unsynced: UnsyncedData) -> LossCounts {
    let path = directory.join(LOG);
    let bytes = fs::read(&path).expect("a log of file operations");
    // Later writes are not recorded.
    fs::remove_file(&path).expect("a log of file operations");
    let mut files = Files::default();
    for (at, (paths, operation)) in log::parse(&bytes).into_iter().enumerate() {
        files.perform(at as u64, paths, operation);
    }
    let lost = files.losses();
    let (mentioned, left) = files.after_power_cut(unsynced);
    for name in mentioned.iter().rev().filter(|name| !left.contains_key(*name)) {
        remove(&directory.join(name));
    }
    write(directory, &left);
    lost
}

fn write(directory: &Path, left: &BTreeMap<PathBuf, Entry>) {
    for (name, entry) in left {
        let path = directory.join(name);
        match entry {
            Entry::Directory => {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).expect("a directory");
            }
            Entry::File(content) => {
                let mut options = fs::OpenOptions::new();
                let opened = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
                std::io::Write::write_all(&mut opened.expect("a file"), content).expect("written");
                // Shared memory does not survive; the file may not exist.
                let _ = fs::remove_file(path.with_file_name(shared_memory(&path)));
            }
        }
    }
}

fn shared_memory(path: &Path) -> String {
    format!("{}-shm", path.file_name().unwrap_or_default().to_string_lossy())
}

/// It may be gone, or a directory with files that the log does not mention.
fn remove(path: &Path) {
    let _ = fs::remove_file(path);
    let _ = fs::remove_dir(path);
}

fn baseline(directory: &Path, below: &Path, records: &mut Vec<u8>) {
    for entry in fs::read_dir(directory.join(below)).expect("a directory") {
        let entry = entry.expect("an entry");
        let name = below.join(entry.file_name());
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() {
            log::append(records, b'M', &name, &[]);
            baseline(directory, &name, records);
        } else if kind.is_file() && !name.to_string_lossy().ends_with("-shm") && name != Path::new(LOG) {
            log::append(records, b'C', &name, &[]);
            log::append(records, b'W', &name, &fs::read(entry.path()).expect("a file"));
            log::append(records, b'S', &name, &[]);
        }
    }
    log::append(records, b'S', below, &[]);
}
