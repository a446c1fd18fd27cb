//! Copies of a database in use, and progress comparison.

use petasos_core::Millis;
use petasos_store::{DatabaseProgress, Reader, SCHEMA, check_copy};

use crate::fixture::{Home, NOW};

#[test]
fn database_is_newer_if_it_has_more_rows_or_a_later_change() {
    let progress = |(inserted, last_change)| DatabaseProgress { inserted, last_change: Millis(last_change) };
    for (one, other, newer) in [
        ((2, 1), (1, 5), true),
        ((1, 5), (2, 1), true),
        ((2, 5), (1, 1), true),
        ((2, 1), (1, 1), true),
        ((1, 2), (1, 1), true),
        ((1, 1), (1, 1), false),
        ((1, 1), (2, 1), false),
        ((1, 1), (1, 2), false),
        ((1, 1), (2, 5), false),
    ] {
        assert_eq!(progress(one).is_newer_than(&progress(other)), newer, "{one:?} {other:?}");
    }
}

#[test]
fn checked_copy_has_the_original_rows_and_progress() {
    let mut home = Home::new();
    home.accept("7", "1");
    home.accept("7", "2");
    home.enqueue("7", "three");
    let copy = home.folder.path().join("copy.db");
    Reader::open(home.path()).unwrap().copy_to(&copy).unwrap();
    let checked = check_copy(&copy).unwrap();
    assert_eq!((checked.schema, checked.progress), (SCHEMA, home.store.progress().unwrap()));
    assert_eq!(checked.progress, DatabaseProgress { inserted: 3, last_change: NOW });
    for (table, rows) in [("inbox", 2), ("seen", 2), ("outbox", 1), ("turns", 0)] {
        assert_eq!(checked.rows.get(table), Some(&rows), "{table}");
    }
}
