//! What a power cut leaves of a database: everything that was synced, and of the rest as much as chance likes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Sectors are written whole or not at all.
const SECTOR: usize = 512;

/// The recorder, built once.
pub fn shim() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/power/shim.c");
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

enum Act {
    Write { at: usize, data: Vec<u8> },
    Truncate(usize),
    Sync,
}

/// What is left of written, unsynced sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    Nothing,
    /// By this seed.
    Some(u64),
}

/// How much a record holds.
#[derive(Debug, Default, Clone, Copy)]
pub struct Lost {
    pub syncs: usize,
    pub sectors: usize,
}

/// Puts the database files into the state after a power cut. Gives what was synced and what was lost.
pub fn cut(log: &Path, left: Left) -> Lost {
    let mut files: BTreeMap<PathBuf, Vec<Act>> = BTreeMap::new();
    for (path, act) in read(&std::fs::read(log).expect("a record")) {
        files.entry(path).or_default().push(act);
    }
    assert!(!files.is_empty(), "nothing was recorded");
    let mut lost = Lost::default();
    for (path, acts) in &files {
        std::fs::write(path, rebuilt(acts, left, &mut lost)).expect("the file as it would be");
    }
    for shared in files.keys().map(|path| path.with_file_name("petasos.db-shm")) {
        // Memory; it may not be there.
        let _ = std::fs::remove_file(shared);
    }
    lost
}

fn rebuilt(acts: &[Act], left: Left, lost: &mut Lost) -> Vec<u8> {
    let last = acts.iter().rposition(|act| matches!(act, Act::Sync)).map_or(0, |at| at + 1);
    lost.syncs += acts.iter().filter(|act| matches!(act, Act::Sync)).count();
    let mut file = Vec::new();
    for (at, act) in acts.iter().enumerate() {
        match act {
            Act::Sync => {}
            Act::Truncate(size) if at < last => file.resize(*size, 0),
            Act::Truncate(_) => {}
            Act::Write { at: offset, data } if at < last => put(&mut file, *offset, data),
            Act::Write { at: offset, data } => {
                for (number, sector) in data.chunks(SECTOR).enumerate() {
                    lost.sectors += 1;
                    if let Left::Some(seed) = left
                        && mixed(seed ^ (at * 4096 + number) as u64).is_multiple_of(2)
                    {
                        put(&mut file, offset + number * SECTOR, sector);
                    }
                }
            }
        }
    }
    file
}

fn put(file: &mut Vec<u8>, at: usize, data: &[u8]) {
    if file.len() < at + data.len() {
        file.resize(at + data.len(), 0);
    }
    file[at..at + data.len()].copy_from_slice(data);
}

fn mixed(seed: u64) -> u64 {
    let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 27)
}

/// A record that was cut off in the middle counts as far as it goes: what it lacks was never synced.
fn read(mut log: &[u8]) -> Vec<(PathBuf, Act)> {
    let mut acts = Vec::new();
    while let Some((path, act, rest)) = next(log) {
        acts.push((path, act));
        log = rest;
    }
    acts
}

fn next(log: &[u8]) -> Option<(PathBuf, Act, &[u8])> {
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
            Some((path, Act::Write { at: offset, data: data.to_vec() }, rest))
        }
        b'T' => Some((path, Act::Truncate(offset), log)),
        b'S' => Some((path, Act::Sync, log)),
        _ => None,
    }
}
