//! Files of a newer program are refused and left unchanged.

use std::fs;
use std::path::{Path, PathBuf};

use petasos_store::{OpenError, SCHEMA, Store};
use rusqlite::Connection;

use super::{copied, dump, salvage};
use crate::fixture::{Home, NOW};

fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

/// A database of the next schema version, with the root map of this version.
fn newer() -> (tempfile::TempDir, PathBuf) {
    let (folder, path) = copied(&Home::new().path());
    let raw = Connection::open(&path).unwrap();
    raw.execute_batch("CREATE TABLE later (a)").unwrap();
    raw.pragma_update(None, "user_version", SCHEMA + 1).unwrap();
    raw.close().unwrap();
    assert!(path.with_file_name(".petasos.db-map").exists());
    (folder, path)
}

#[track_caller]
fn is_refused(path: &Path, files: &[&Path]) {
    let before: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    let refused = Store::open_or_salvage(path, NOW).map(drop).unwrap_err();
    assert!(matches!(refused, OpenError::Newer { found, .. } if found == SCHEMA + 1), "{refused}");
    let after: Vec<_> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    assert!(before == after, "the files are as they were");
}

#[test]
fn refuses_a_newer_database_whose_map_is_out_of_date() {
    let (_folder, path) = newer();
    is_refused(&path, &[&path]);
    Store::note_damage(&path, "a read failed").unwrap();
    is_refused(&path, &[&path, &beside(&path, "-damaged")]);
}

#[test]
fn refuses_to_continue_the_salvage_of_a_newer_program() {
    let old = r#"{"stamp":"S","at":1,"why":"cut off","last_change":1}"#;
    let (_folder, path) = newer();
    let note = beside(&path, "-salvage.json");
    let aside = beside(&path, ".damaged-S");
    fs::write(&note, old).unwrap();
    is_refused(&path, &[&path, &note]);
    fs::rename(&path, &aside).unwrap();
    is_refused(&path, &[&aside, &note]);
    // Without a header only the note names the program that began.
    fs::write(&aside, [0; 4096]).unwrap();
    fs::write(&note, old.replace("\"at\"", &format!("\"schema\":{},\"at\"", SCHEMA + 1))).unwrap();
    is_refused(&path, &[&aside, &note]);
    assert!(!path.exists());
}

#[test]
fn refuses_an_unreadable_salvage_note() {
    let (_folder, path) = copied(&Home::new().path());
    fs::write(beside(&path, "-salvage.json"), "{").unwrap();
    let refused = Store::open_or_salvage(&path, NOW).map(drop).unwrap_err().to_string();
    assert!(refused.contains("petasos.db-salvage.json cannot be read"), "{refused}");
}

#[test]
fn salvages_a_database_whose_version_number_is_damaged() {
    let home = Home::new();
    let rows = dump(&home.path());
    let (_folder, path) = copied(&home.path());
    let raw = Connection::open(&path).unwrap();
    raw.pragma_update(None, "user_version", SCHEMA + 1).unwrap();
    raw.close().unwrap();
    let report = salvage(&path).expect("it is salvaged");
    assert!(report.why.contains("version") && report.losses.is_empty(), "{}", report.text());
    assert!(dump(&path) == rows);
}

#[test]
fn removes_a_root_map_that_cannot_be_updated() {
    let home = Home::new();
    let path = home.path();
    let map = path.with_file_name(".petasos.db-map");
    drop(home.store);
    fs::write(&map, r#"{"schema":1,"roots":{}}"#).unwrap();
    // Blocks the temporary file of the new map.
    fs::create_dir(path.with_file_name(".petasos.db-map.tmp")).unwrap();
    Store::open(&path).unwrap();
    assert!(!map.exists());
}

#[test]
fn map_names_the_new_version_before_a_migration() {
    let home = Home::new();
    let path = home.path();
    let map = path.with_file_name(".petasos.db-map");
    let raw = home.raw();
    drop(home.store);
    // The step fails because its table exists, like a migration cut off by a crash.
    raw.pragma_update(None, "user_version", SCHEMA - 1).unwrap();
    raw.close().unwrap();
    let version = |number: u32| format!("\"schema\":{number}");
    let before = fs::read_to_string(&map).unwrap().replace(&version(SCHEMA), &version(SCHEMA - 1));
    fs::write(&map, &before).unwrap();
    Store::open(&path).map(drop).unwrap_err();
    assert_eq!(fs::read_to_string(&map).unwrap(), before.replace(&version(SCHEMA - 1), &version(SCHEMA)));
}
