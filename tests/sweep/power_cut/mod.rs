//! Simulated power cuts of a database: all synced data stays, unsynced sectors stay at random.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Sectors are written whole or not at all.
const SECTOR: usize = 512;

pub fn recorder() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sweep/power_cut/recorder.c");
        let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("power-{}.so", std::process::id()));
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o"])
            .arg(&built)
            .args([source, "-ldl", "-pthread"])
            .status()
            .expect("a C compiler, which building the program needs as well");
        assert!(made.success(), "the recorder cannot be built");
        built
    })
}

enum FileOperation {
    Write { at: usize, data: Vec<u8> },
    Truncate(usize),
    Sync,
}

/// Which unsynced sectors survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnsyncedData {
    Dropped,
    /// A pseudo-random half, by this seed.
    Partial(u64),
}

#[derive(Debug, Default, Clone, Copy)]
pub struct LossCounts {
    pub syncs: usize,
    pub sectors: usize,
}

/// Rewrites the database files to their state after a power cut. Returns the number of syncs and of unsynced sectors.
pub fn apply(log: &Path, unsynced: UnsyncedData) -> LossCounts {
    let mut files: BTreeMap<PathBuf, Vec<FileOperation>> = BTreeMap::new();
    for (path, operation) in parse_log(&std::fs::read(log).expect("a record")) {
        files.entry(path).or_default().push(operation);
    }
    assert!(!files.is_empty(), "nothing was recorded");
    let mut lost = LossCounts::default();
    for (path, operations) in &files {
        std::fs::write(path, replay(operations, unsynced, &mut lost)).expect("written");
    }
    for shared in files.keys().map(|path| path.with_file_name("petasos.db-shm")) {
        // Shared memory does not survive; the file may not exist.
        let _ = std::fs::remove_file(shared);
    }
    lost
}

fn replay(operations: &[FileOperation], unsynced: UnsyncedData, lost: &mut LossCounts) -> Vec<u8> {
    let last = operations
        .iter()
        .rposition(|operation| matches!(operation, FileOperation::Sync))
        .map_or(0, |at| at + 1);
    lost.syncs += operations.iter().filter(|operation| matches!(operation, FileOperation::Sync)).count();
    let mut file = Vec::new();
    for (at, operation) in operations.iter().enumerate() {
        match operation {
            FileOperation::Sync => {}
            FileOperation::Truncate(size) if at < last => file.resize(*size, 0),
            FileOperation::Truncate(_) => {}
            FileOperation::Write { at: offset, data } if at < last => write_at(&mut file, *offset, data),
            FileOperation::Write { at: offset, data } => {
                for (number, sector) in data.chunks(SECTOR).enumerate() {
                    lost.sectors += 1;
                    if let UnsyncedData::Partial(seed) = unsynced
                        && mix(seed ^ (at * 4096 + number) as u64).is_multiple_of(2)
                    {
                        write_at(&mut file, offset + number * SECTOR, sector);
                    }
                }
            }
        }
    }
    file
}

fn write_at(file: &mut Vec<u8>, at: usize, data: &[u8]) {
    if file.len() < at + data.len() {
        file.resize(at + data.len(), 0);
    }
    file[at..at + data.len()].copy_from_slice(data);
}

fn mix(seed: u64) -> u64 {
    let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 27)
}

/// A truncated log is valid up to its last complete record: the rest was never synced.
fn parse_log(mut log: &[u8]) -> Vec<(PathBuf, FileOperation)> {
    let mut operations = Vec::new();
    while let Some((path, operation, rest)) = parse_record(log) {
        operations.push((path, operation));
        log = rest;
    }
    operations
}

fn parse_record(log: &[u8]) -> Option<(PathBuf, FileOperation, &[u8])> {
    let (op, log) = log.split_first()?;
    let (length, log) = log.split_first_chunk::<2>()?;
    let (path, log) = log.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    let (offset, log) = log.split_first_chunk::<8>()?;
    let (size, log) = log.split_first_chunk::<4>()?;
    let offset = usize::try_from(u64::from_le_bytes(*offset)).ok()?;
    let size = usize::try_from(u32::from_le_bytes(*size)).ok()?;
    let path = PathBuf::from(std::str::from_utf8(path).ok()?);
    match op {
        b'W' => {
            let (data, rest) = log.split_at_checked(size)?;
            Some((path, FileOperation::Write { at: offset, data: data.to_vec() }, rest))
        }
        b'T' => Some((path, FileOperation::Truncate(offset), log)),
        b'S' => Some((path, FileOperation::Sync, log)),
        _ => None,
    }
}
