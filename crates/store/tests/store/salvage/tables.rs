//! Damaged pages of tables, tables that have to be searched for, and rows of every size.

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

/// Changes the bytes of a database, given the root page of a table.
type Damage = fn(&mut [u8], usize);

/// Where a table's root has the pointer to a cell in its middle.
fn middle(bytes: &[u8], root: usize) -> usize {
    let start = (root - 1) * PAGE;
    assert!(matches!(bytes[start], 2 | 5), "the table has more than one page");
    let cells = usize::from(u16::from_be_bytes([bytes[start + 3], bytes[start + 4]]));
    start + 12 + 2 * (cells / 2)
}

fn page_at(bytes: &[u8], at: usize) -> usize {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

/// The page behind a cell in the middle of a table's root.
fn leaf(bytes: &[u8], root: usize) -> usize {
    let at = middle(bytes, root);
    page_at(bytes, (root - 1) * PAGE + usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]])))
}

fn spoil(bytes: &mut [u8], page: usize) {
    bytes[(page - 1) * PAGE..page * PAGE].fill(0x5a);
}

/// A copy whose rows are all in the database file, none in the log.
fn folded(home: &Home) -> (tempfile::TempDir, PathBuf) {
    home.store.fold().unwrap();
    copied(&home.path())
}

#[test]
fn loses_only_the_rows_of_a_damaged_page_and_lists_them() {
    let home = filled();
    let path = home.path();
    home.store.fold().unwrap();
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
fn finds_tables_without_the_list_of_them() {
    let (_folder, path) = folded(&filled());
    let rows = dump(&path);
    // A start notes where the tables begin.
    assert!(salvage(&path).is_none());
    let mut bytes = fs::read(&path).unwrap();
    bytes[100..PAGE].fill(0);
    fs::write(&path, bytes).unwrap();
    let report = salvage(&path).unwrap();
    assert!(report.losses.is_empty(), "{}", report.text());
    assert!(dump(&path) == rows);
}

#[test]
fn lists_lost_rows_from_the_first_one_on() {
    let damages: [(&str, Damage); 2] = [
        ("the last page", |bytes, root| spoil(bytes, page_at(bytes, (root - 1) * PAGE + 8))),
        ("a pointer to a cell", |bytes, root| {
            let at = middle(bytes, root);
            bytes[at..at + 2].fill(0);
        }),
    ];
    for (name, damage) in damages {
        let (_folder, path) = folded(&filled());
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
fn names_damage_to_any_constant_of_the_header() {
    for at in [0, 18, 19, 21, 47, 59] {
        let (_folder, path) = folded(&Home::new());
        let mut bytes = fs::read(&path).unwrap();
        bytes[at] = 9;
        fs::write(&path, bytes).unwrap();
        let report = salvage(&path).unwrap_or_else(|| panic!("byte {at} is damaged"));
        assert_eq!(report.why, "the header of the file is damaged", "byte {at}");
    }
}

#[test]
fn finds_tables_without_a_map() {
    let (_folder, path) = folded(&filled());
    let rows = dump(&path);
    fs::remove_file(path.with_file_name(".petasos.db-map")).unwrap();
    Store::note_damage(&path, "a read failed").unwrap();
    let report = salvage(&path).unwrap();
    assert!(report.losses.is_empty() && dump(&path) == rows, "{}", report.text());
}

#[test]
fn takes_the_root_from_the_map_if_the_listed_one_is_of_another_kind() {
    let (_folder, path) = folded(&filled());
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
fn leaves_numbers_out_if_rows_and_their_counter_are_lost() {
    for (damage, next) in [("", ROWS + 1), ("UPDATE turns SET state = '{' WHERE id = 1", ROWS + 1_000_001)] {
        let (_folder, path) = folded(&filled());
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
fn keeps_rows_of_any_size_and_numbers_of_any_width() {
    let home = Home::new();
    let raw = home.raw();
    let mut add = raw
        .prepare("INSERT INTO messages (id, session, role, content, at) VALUES (?1, 's', 'tool', ?2, ?3)")
        .unwrap();
    // From rows that fit into a page to rows with several overflow pages, through every remainder.
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
fn fails_on_a_full_disk_and_goes_on_when_there_is_room() {
    let mut home = Home::new();
    // More than fits into the page cache: rows are written before the commit.
    home.write(|tx| {
        (0..48).try_for_each(|number| tx.put_meta(&format!("test{number}"), &"x".repeat(1 << 20)))
    });
    let (_folder, path) = folded(&home);
    drop(home);
    let rows = dump(&path);
    Store::note_damage(&path, "a read failed").unwrap();
    let limited = own_process("salvage::tables::salvage_with_limited_file_size");
    // A write beyond the limit fails, as on a full disk, if the signal is ignored.
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
