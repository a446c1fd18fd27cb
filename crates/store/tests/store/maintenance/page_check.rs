//! Deferred check of a large database after an unclean shutdown.

use std::fs;
use std::path::{Path, PathBuf};

use petasos_store::{CheckPiece, Error, Reader, Result, Store};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::fixture::{Home, NOW};
use crate::salvage::{copied, root};

const PAGE: usize = 4096;

/// Files left by a crash: `megabytes` of transcript in the database, one commit in the log.
fn crashed(megabytes: u32) -> (TempDir, PathBuf) {
    let mut home = Home::new();
    let raw = home.raw();
    raw.execute_batch("BEGIN").unwrap();
    for number in 0..megabytes * 1000 {
        raw.prepare_cached("INSERT INTO messages (session, role, content, at) VALUES (?1, 'user', ?2, 1)")
            .unwrap()
            .execute((format!("session {}", number % 50), "x".repeat(1000)))
            .unwrap();
    }
    raw.execute_batch("COMMIT").unwrap();
    raw.close().unwrap();
    home.store.checkpoint_truncate().unwrap();
    home.accept("7", "1");
    copied(&home.path())
}

/// Bytes read from files by this thread.
#[cfg(target_os = "linux")]
fn bytes_read() -> u64 {
    let counters = fs::read_to_string("/proc/thread-self/io").unwrap();
    counters.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn open_after_a_crash_is_independent_of_database_size() {
    let [few, many] = [10, 40].map(|megabytes| {
        let (_folder, path) = crashed(megabytes);
        let before = bytes_read();
        let (store, salvage) = Store::open_or_salvage(&path, NOW).unwrap();
        let read = bytes_read() - before;
        assert!(salvage.is_none() && store.is_unchecked());
        read
    });
    assert!(few > 0, "nothing was counted");
    assert!(many <= few + few / 10, "{few} bytes of 10 MB, {many} bytes of 40 MB");
}

#[test]
fn a_small_or_cleanly_closed_database_needs_no_later_check() {
    let (_folder, path) = crashed(2);
    assert!(!Store::open(&path).unwrap().is_unchecked(), "checked while it was opened");
    let (_folder, path) = crashed(10);
    Store::open(&path).unwrap().close().unwrap();
    assert!(!Store::open(&path).unwrap().is_unchecked(), "closed cleanly");
}

/// Checks all pieces and returns their number.
fn check(path: &Path) -> Result<usize> {
    let reader = Reader::open(path).unwrap();
    let mut pieces: Vec<CheckPiece> = reader.check_pieces()?;
    let mut done = 0;
    while let Some(piece) = pieces.pop() {
        done += 1;
        pieces.extend(reader.check_piece(piece)?);
    }
    Ok(done)
}

#[test]
fn a_sound_database_passes_in_pieces_of_about_a_megabyte() {
    let few = check(&crashed(2).1).unwrap();
    let many = check(&crashed(12).1).unwrap();
    assert!((8..=12).contains(&(many - few)), "{few} pieces of 2 MB, {many} pieces of 12 MB");
}

/// Leaf pages of a table or index, in order.
fn leaves(path: &Path, name: &str) -> Vec<usize> {
    let raw = Connection::open(path).unwrap();
    let text = "SELECT pageno FROM dbstat WHERE name = ?1 AND pagetype = 'leaf' ORDER BY path";
    let mut read = raw.prepare(text).unwrap();
    let pages = read.query_map([name], |row| row.get::<_, u32>(0)).unwrap();
    pages.map(|page| page.unwrap() as usize).collect()
}

fn spoil(path: &Path, page: usize, bytes: &[u8]) {
    let mut file = fs::read(path).unwrap();
    let start = (page - 1) * PAGE;
    file[start..start + bytes.len()].copy_from_slice(bytes);
    fs::write(path, file).unwrap();
}

#[test]
fn damaged_pages_of_tables_and_indexes_are_found() {
    let (_folder, sound) = crashed(10);
    Store::open(&sound).unwrap().close().unwrap();
    for name in ["messages", "messages_session", "messages_seen", "words_data", "words_idx", "seen"] {
        let (_folder, path) = copied(&sound);
        let pages = leaves(&path, name);
        spoil(&path, pages[pages.len() / 2], &[0xff; 100]);
        assert!(matches!(check(&path), Err(Error::Corrupt(_))), "{name}");
    }
}

#[test]
fn circular_child_pointer_is_found() {
    let (_folder, path) = crashed(10);
    drop(Store::open(&path).unwrap());
    let raw = Connection::open(&path).unwrap();
    let top = root(&raw, "messages");
    raw.close().unwrap();
    let bytes = fs::read(&path).unwrap();
    let start = (top - 1) * PAGE;
    let cell = |index: usize| {
        let at = start + 12 + 2 * index;
        start + usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
    };
    let first = cell(0);
    let second = cell(1);
    let mut damaged = bytes.clone();
    damaged.copy_within(first..first + 4, second);
    fs::write(&path, damaged).unwrap();
    assert!(matches!(check(&path), Err(Error::Corrupt(_))));
}
