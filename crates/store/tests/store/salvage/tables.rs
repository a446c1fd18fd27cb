//! One damaged page in every table.

use std::fs;

use rusqlite::Connection;

use super::fill::{filled, fills};
use super::{copied, dump, is_listed, root, salvage, tables};

const PAGE: usize = 4096;

/// The page behind a cell in the middle of a table's root.
fn leaf(bytes: &[u8], root: usize) -> usize {
    let start = (root - 1) * PAGE;
    assert!(matches!(bytes[start], 2 | 5), "the table has more than one page");
    let cells = usize::from(u16::from_be_bytes([bytes[start + 3], bytes[start + 4]]));
    let at = start + 12 + 2 * (cells / 2);
    let cell = start + usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    u32::from_be_bytes(bytes[cell..cell + 4].try_into().unwrap()) as usize
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
        bytes[(page - 1) * PAGE..page * PAGE].fill(0x5a);
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
    let home = filled();
    home.store.fold().unwrap();
    let rows = dump(&home.path());
    let (_folder, path) = copied(&home.path());
    // A start notes where the tables begin.
    assert!(salvage(&path).is_none());
    let mut bytes = fs::read(&path).unwrap();
    bytes[100..PAGE].fill(0);
    fs::write(&path, bytes).unwrap();
    let report = salvage(&path).unwrap();
    assert!(report.losses.is_empty(), "{}", report.text());
    assert!(dump(&path) == rows);
}
