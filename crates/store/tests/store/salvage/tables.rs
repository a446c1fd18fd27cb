//! Damaged table pages, unlisted tables, and rows of every size.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use petasos_core::InboxId;
use petasos_store::{OpenError, Store};
use rusqlite::Connection;

use super::fill::{ROWS, filled, fills};
use super::{copied, dump, is_listed, root, salvage, tables};

use crate::fixture::{Home, NOW, inbound, key, own_process};

const PAGE: usize = 4096;
const DATABASE: &str = "PETASOS_TEST_LIMITED_DATABASE";

/// Damages the bytes of a database, given the root page of a table.
type DamageFn = fn(&mut [u8], usize);

/// Offset of the pointer to the middle cell of a table's root.
fn middle(bytes: &[u8], root: usize) -> usize {
    let start = (root - 1) * PAGE;
    assert!(matches!(bytes[start], 2 | 5), "the table has more than one page");
    let cells = usize::from(u16::from_be_bytes([bytes[start + 3], bytes[start + 4]]));
    start + 12 + 2 * (cells / 2)
}

fn page_at(bytes: &[u8], at: usize) -> usize {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

/// Page referenced by the middle cell of a table's root.
fn leaf(bytes: &[u8], root: usize) -> usize {
    let at = middle(bytes, root);
    page_at(bytes, (root - 1) * PAGE + usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]])))
}

fn spoil(bytes: &mut [u8], page: usize) {
    bytes[(page - 1) * PAGE..page * PAGE].fill(0x5a);
}

/// A copy with all rows in the database file and an empty log.
fn checkpointed(home: &Home) -> (tempfile::TempDir, PathBuf) {
    home.store.checkpoint_truncate().unwrap();
    copied(&home.path())
}

#[test]
fn loses_and_lists_only_the_rows_of_a_damaged_page() {
    let home = filled();
    let path = home.path();
    home.store.checkpoint_truncate().unwrap();
    let (rows, roots): (_, Vec<_>) = {
        let db = Connection::open(&path).unwrap();
        let names = tables(&db).into_iter().map(|(name, _)| name).filter(|name| fills(name));
        (dump(&path), names.map(|name| (root(&db, &name), name)).collect())
    };
    assert!(roots.len() > 20, "every table is tried");
    for (root, table) in roots {
        let (_folder, path) = copied(&path);
        let mut bytes = fs::read(&path).unwrap();
        let page = leaf(&bytes, root);
        spoil(&mut bytes, page);
        fs::write(&path, bytes).unwrap();
        let report = salvage(&path).unwrap_or_else(|| panic!("{table} is damaged"));
        let after = dump(&path);
        let missing: Vec<_> = rows.keys().filter(|key| !after.contains_key(*key)).collect();
        assert!(!missing.is_empty(), "{table} lost a page");
        for (of, key) in missing {
            assert!(*of == table && is_listed(&report, of, key), "{table}: {of} {key}\n{}", report.text());
        }
        let changed: Vec<_> = after.iter().filter(|(key, row)| rows.get(*key) != Some(*row)).collect();
        assert!(changed.is_empty(), "{table}: {changed:?}");
    }
}

#[test]
fn finds_tables_without_the_schema_table() {
    let (_folder, path) = checkpointed(&filled());
    let rows = dump(&path);
    // A start stores the root map.
    assert!(salvage(&path).is_none());
    let mut bytes = fs::read(&path).unwrap();
    bytes[100..PAGE].fill(0);
    fs::write(&path, bytes).unwrap();
    let report = salvage(&path).unwrap();
    assert!(report.losses.is_empty(), "{}", report.text());
    assert!(dump(&path) == rows);
}

#[test]
fn lists_lost_rows_starting_at_the_first() {
    let damages: [(&str, DamageFn); 2] = [
        ("the last page", |bytes, root| spoil(bytes, page_at(bytes, (root - 1) * PAGE + 8))),
        ("a pointer to a cell", |bytes, root| {
            let at = middle(bytes, root);
            bytes[at..at + 2].fill(0);
        }),
    ];
    for (name, damage) in damages {
        let (_folder, path) = checkpointed(&filled());
        let rows = dump(&path);
        let root = root(&Connection::open(&path).unwrap(), "messages");
        let mut bytes = fs::read(&path).unwrap();
        damage(&mut bytes, root);
        fs::write(&path, bytes).unwrap();
        let report = salvage(&path).unwrap();
        let after = dump(&path);
        let lost = rows.keys().filter(|key| !after.contains_key(*key));
        let first = lost.map(|(_, id)| id.parse::<i64>().unwrap()).min();
        assert!(first.is_some_and(|first| first > 1), "{name}: {first:?}");
        let range = &report.losses[0].ranges[0];
        assert_eq!((range.from, range.to), (first, None), "{name}: {}", report.text());
    }
}

#[test]
fn reports_damage_to_any_header_constant() {
    for at in [0, 18, 19, 21, 47, 59] {
        let (_folder, path) = checkpointed(&Home::new());
        let mut bytes = fs::read(&path).unwrap();
        bytes[at] = 9;
        fs::write(&path, bytes).unwrap();
        let report = salvage(&path).unwrap_or_else(|| panic!("byte {at} is damaged"));
        assert_eq!(report.why, "the header of the file is damaged", "byte {at}");
    }
}

#[test]
fn finds_tables_without_a_root_map() {
    let (_folder, path) = checkpointed(&filled());
    let rows = dump(&path);
    fs::remove_file(path.with_file_name(".petasos.db-map")).unwrap();
    Store::note_damage(&path, "a read failed").unwrap();
    let report = salvage(&path).unwrap();
    assert!(report.losses.is_empty() && dump(&path) == rows, "{}", report.text());
}

#[test]
fn uses_the_root_map_if_the_listed_root_has_another_kind() {
    let (_folder, path) = checkpointed(&filled());
    let rows = dump(&path);
    let raw = Connection::open(&path).unwrap();
    raw.execute_batch(
        "PRAGMA writable_schema = ON;
         UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'cursors')
         WHERE name = 'inbox'",
    )
    .unwrap();
    raw.close().unwrap();
    Store::note_damage(&path, "a read failed").unwrap();
    let report = salvage(&path).unwrap();
    assert!(report.losses.is_empty() && dump(&path) == rows, "{}", report.text());
}

#[test]
fn skips_ids_if_rows_and_their_counter_are_lost() {
    for (damage, next) in [("", ROWS + 1), ("UPDATE turns SET state = '{' WHERE id = 1", ROWS + 1_000_001)] {
        let (_folder, path) = checkpointed(&filled());
        let raw = Connection::open(&path).unwrap();
        raw.execute_batch(damage).unwrap();
        let counters = root(&raw, "sqlite_sequence");
        raw.close().unwrap();
        let mut bytes = fs::read(&path).unwrap();
        spoil(&mut bytes, counters);
        fs::write(&path, bytes).unwrap();
        salvage(&path).unwrap();
        let mut store = Store::open(&path).unwrap();
        let accepted = store.write(|tx| tx.accept(&inbound("7", "next"), &key("7"), NOW)).unwrap();
        assert_eq!(accepted.id(), InboxId(next), "{damage}");
    }
}

#[test]
fn salvages_rows_of_any_size_and_integers_of_any_width() {
    let home = Home::new();
    let raw = home.raw();
    let mut add = raw
        .prepare("INSERT INTO messages (id, session, role, content, at) VALUES (?1, 's', 'tool', ?2, ?3)")
        .unwrap();
    // From single-page rows to rows with several overflow pages, through every remainder.
    for number in 1..=160_u8 {
        add.execute((number, "x".repeat(3_800 + 60 * usize::from(number)), number)).unwrap();
    }
    for bits in [7, 8, 15, 16, 23, 24, 31, 32, 47, 48, 62] {
        for number in [(1_i64 << bits) - 1, 1 << bits, -(1 << bits), -(1 << bits) - 1] {
            add.execute((1_000_000 + number, "", number)).unwrap();
        }
    }
    drop(add);
    raw.close().map_err(|(_, error)| error).unwrap();
    let (_folder, path) = copied(&home.path());
    let rows = dump(&path);
    Store::note_damage(&path, "a read failed").unwrap();
    let report = salvage(&path).unwrap();
    assert!(report.losses.is_empty() && dump(&path) == rows, "{}", report.text());
}

#[test]
fn salvage_continues_after_a_full_disk() {
    let mut home = Home::new();
    // More than the page cache holds, so that rows are written before the commit.
    home.write(|tx| {
        (0..48).try_for_each(|number| tx.put_meta(&format!("test{number}"), &"x".repeat(1 << 20)))
    });
    let (_folder, path) = checkpointed(&home);
    drop(home);
    let rows = dump(&path);
    Store::note_damage(&path, "a read failed").unwrap();
    let limited = own_process("salvage::tables::salvage_with_limited_file_size");
    // With the signal ignored, a write beyond the limit fails as on a full disk.
    let done = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 16384; exec \"$0\" \"$@\""])
        .arg(limited.get_program())
        .args(limited.get_args())
        .env(DATABASE, &path)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    let report = salvage(&path).expect("it goes on");
    assert!(report.losses.is_empty() && dump(&path) == rows, "{}", report.text());
}

#[test]
#[ignore = "run by a test of this module as another process"]
fn salvage_with_limited_file_size() {
    let Some(path) = std::env::var_os(DATABASE) else { return };
    let failed = Store::open_or_salvage(Path::new(&path), NOW).map(drop).unwrap_err();
    assert!(matches!(failed, OpenError::Failed { .. }), "{failed}");
    assert!(
        failed.to_string().contains("SQLite code"),
        "the first error, not one that follows from it: {failed}"
    );
}
