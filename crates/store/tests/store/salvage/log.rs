//! Log frames that belong to no commit.

use std::fs;
use std::path::{Path, PathBuf};

use petasos_store::Store;
use rusqlite::Connection;

use super::{copied, dump, salvage};
use crate::fixture::Home;

const LOG_HEADER: usize = 32;
const FRAME: usize = 24 + 4096;

fn log(path: &Path) -> PathBuf {
    path.with_file_name("petasos.db-wal")
}

/// A copy with one more commit of about `pages` pages, and the bytes of its log.
fn with_commit(from: &Path, pages: usize) -> (tempfile::TempDir, PathBuf, Vec<u8>) {
    let (folder, path) = copied(from);
    let raw = Connection::open(&path).unwrap();
    raw.execute("INSERT INTO meta (key, value) VALUES ('test', ?1)", ["x".repeat(4096 * pages)]).unwrap();
    let bytes = fs::read(log(&path)).unwrap();
    // As after a kill: no checkpoint, and the wal-index stays.
    fs::copy(path.with_file_name("petasos.db-shm"), path.with_file_name("kept-shm")).unwrap();
    raw.set_db_config(rusqlite::config::DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).unwrap();
    raw.close().unwrap();
    fs::rename(path.with_file_name("kept-shm"), path.with_file_name("petasos.db-shm")).unwrap();
    assert_eq!((bytes.len() - LOG_HEADER) % FRAME, 0);
    (folder, path, bytes)
}

/// A log whose last commit overwrote the beginning of two longer ones that failed.
fn after_failed_commits() -> (tempfile::TempDir, PathBuf) {
    let home = Home::new();
    let (_one, _, longest) = with_commit(&home.path(), 30);
    let (_two, _, longer) = with_commit(&home.path(), 15);
    let (folder, path, mut bytes) = with_commit(&home.path(), 2);
    assert!(bytes.len() < longer.len() && longer.len() < longest.len());
    bytes.extend_from_slice(&longer[bytes.len()..]);
    bytes.extend_from_slice(&longest[bytes.len()..]);
    fs::write(log(&path), bytes).unwrap();
    (folder, path)
}

#[test]
fn frames_of_failed_commits_are_not_reported_as_damage() {
    let (_folder, path) = after_failed_commits();
    let report = salvage(&path);
    assert!(report.is_none(), "{}", report.map(|it| it.text()).unwrap_or_default());
    assert!(dump(&path).keys().any(|(table, key)| table == "meta" && key.contains("test")));
}

#[test]
fn detects_a_damaged_commit_before_failed_ones() {
    let (_folder, path) = after_failed_commits();
    let mut bytes = fs::read(log(&path)).unwrap();
    bytes[LOG_HEADER + FRAME + 100] ^= 1;
    fs::write(log(&path), bytes).unwrap();
    let report = salvage(&path).expect("it is damaged");
    assert!(report.why.contains("write-ahead log"), "{}", report.why);
    assert!(report.lost_cursors() && report.text().contains("\nlog:      "), "{}", report.text());
}

#[test]
fn reports_no_lost_commits_of_a_sound_log() {
    let (_folder, path) = copied(&Home::new().path());
    Store::note_damage(&path, "a read failed").unwrap();
    let report = salvage(&path).expect("noted damage is salvaged");
    assert!(!report.lost_cursors() && !report.text().contains("log:"), "{}", report.text());
}
