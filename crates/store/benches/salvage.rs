//! Time to salvage a large damaged database.
//!
//! The rows of each session are spread over the whole table, as in a home used for months. Pages of `messages` and of its
//! indexes are overwritten. `PETASOS_SALVAGE_CHATS` (100,000) sets the size.

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![allow(clippy::expect_used)]

#[path = "../tests/store/fill.rs"]
mod fill;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use petasos_core::Millis;
use petasos_store::Store;
use rusqlite::Connection;

const CHATS: usize = 100_000;
const MESSAGES_EACH: usize = 10;
const NOW: Millis = Millis(1_800_000_000_000);
/// Overwritten pages per tree.
const DAMAGED: usize = 5;

fn main() {
    let chats = std::env::var("PETASOS_SALVAGE_CHATS").ok().and_then(|it| it.parse().ok()).unwrap_or(CHATS);
    let folder = tempfile::Builder::new().prefix("salvage-").tempdir().expect("a directory");
    let path = folder.path().join("petasos.db");
    let filled = timed(|| fill_home(&path, chats));
    let bytes = std::fs::metadata(&path).expect("a file").len();
    println!(
        "{chats} conversations, {} messages, {} MB, made in {filled:.1?}",
        chats * MESSAGES_EACH,
        bytes >> 20
    );
    damage(&path);
    Store::note_damage(&path, "benchmark").expect("noted");
    let mut lost = 0;
    let salvaged = timed(|| {
        let (store, salvage) = Store::open_or_salvage(&path, NOW).expect("salvaged");
        let salvage = salvage.expect("damaged");
        lost = salvage.losses.iter().map(|loss| loss.ranges.len()).sum();
        println!("{} rows kept, {lost} ranges lost", salvage.rows);
        store.close().expect("closed");
    });
    assert!(lost > 0, "the damage was found");
    println!("salvage: {salvaged:.1?}");
}

fn timed(work: impl FnOnce()) -> Duration {
    let started = Instant::now();
    work();
    started.elapsed()
}

fn fill_home(path: &Path, chats: usize) {
    let mut store = Store::open(path).expect("a store");
    fill::fill(&mut store, 1_000_000, chats, MESSAGES_EACH, NOW).expect("filled");
    store.close().expect("closed");
    let db = Connection::open(path).expect("a database");
    // Renumbered so that message 0 of all sessions comes first, then message 1, and so on.
    let rounds = format!(
        "PRAGMA synchronous = OFF;
         CREATE TEMP TABLE spread AS SELECT * FROM messages ORDER BY (id - 1) % {MESSAGES_EACH}, id;
         DELETE FROM messages;
         UPDATE temp.spread SET id = rowid;
         INSERT INTO messages SELECT * FROM temp.spread;
         PRAGMA wal_checkpoint(TRUNCATE);"
    );
    db.execute_batch(&rounds).expect("renumbered");
    db.close().expect("closed");
}

/// Overwrites evenly spread leaf pages of the table and of its indexes.
#[expect(clippy::disallowed_methods, reason = "a database that no connection uses")]
fn damage(path: &Path) {
    let db = Connection::open(path).expect("a database");
    let mut pages: Vec<u32> = Vec::new();
    for name in ["messages", "messages_session", "messages_seen"] {
        let mut list = db
            .prepare("SELECT pageno FROM dbstat WHERE name = ?1 AND pagetype = 'leaf' ORDER BY path")
            .expect("dbstat");
        let leaves: Vec<u32> =
            list.query_map([name], |row| row.get(0)).expect("rows").map(|row| row.expect("a page")).collect();
        pages.extend(leaves.iter().step_by(leaves.len().div_ceil(DAMAGED)));
    }
    db.close().expect("closed");
    let file = File::options().write(true).open(path).expect("a file");
    for page in pages {
        file.write_all_at(&[0xff; 100], u64::from(page - 1) * 4096).expect("written");
    }
    file.sync_all().expect("synced");
}
