//! Salvage of damaged databases: rows kept, losses listed, and no failed start.

mod connector;
mod fill;
mod log;
mod newer;
mod random_damage;
mod tables;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use petasos_core::Millis;
use petasos_store::{OpenError, Salvage, Store};
use rusqlite::Connection;
use rusqlite::types::Value;

use crate::fixture::{Home, NOW, later, start, turn};
use fill::filled;

type Dump = BTreeMap<(String, String), Vec<Value>>;

fn dump(path: &Path) -> Dump {
    let db = Connection::open(path).unwrap();
    let mut rows = Dump::new();
    for (table, rowids) in tables(&db) {
        let key = if rowids { "rowid" } else { "NULL" };
        let width = "SELECT count(*) FROM pragma_table_info(?1) WHERE pk > 0";
        let width: u32 = db.query_row(width, [&table], |row| row.get(0)).unwrap();
        let mut read = db.prepare(&format!("SELECT {key}, * FROM {table}")).unwrap();
        let columns = read.column_count();
        let mut found = read.query([]).unwrap();
        while let Some(row) = found.next().unwrap() {
            let values: Vec<Value> = (0..columns).map(|at| row.get(at).unwrap()).collect();
            let key = match &values[0] {
                Value::Integer(id) => id.to_string(),
                _ => format!("{:?}", &values[1..=width as usize]),
            };
            rows.insert((table.clone(), key), values);
        }
    }
    rows.retain(|(table, key), _| table != "meta" || key.starts_with("[Text(\"test"));
    rows
}

fn tables(db: &Connection) -> Vec<(String, bool)> {
    let text = "SELECT name, NOT wr FROM pragma_table_list
         WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name";
    let mut list = db.prepare(text).unwrap();
    let rows = list.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

pub(crate) fn root(db: &Connection, table: &str) -> usize {
    let text = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    db.query_row(text, [table], |row| row.get::<_, u32>(0)).unwrap() as usize
}

/// A copy of database, log, marker and map, as a power failure leaves them.
pub(crate) fn copied(from: &Path) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let name = from.file_name().unwrap().to_str().unwrap();
    let marker = if name == "petasos.db" { ".petasos-db" } else { ".connector-db" };
    for name in [name, &format!("{name}-wal"), marker, &format!(".{name}-map")] {
        let source = from.with_file_name(name);
        if source.exists() {
            fs::copy(source, folder.path().join(name)).unwrap();
        }
    }
    let path = folder.path().join(name);
    (folder, path)
}

#[track_caller]
fn salvage(path: &Path) -> Option<Salvage> {
    let (store, salvage) = Store::open_or_salvage(path, NOW).unwrap();
    assert_eq!(store.damage().unwrap(), [], "the new database is sound");
    store.close().unwrap();
    salvage
}

fn is_listed(salvage: &Salvage, table: &str, key: &str) -> bool {
    let losses = salvage.losses.iter().filter(|loss| loss.table == table);
    losses.flat_map(|loss| &loss.ranges).any(|range| match (key.parse::<i64>(), &range.key) {
        (Ok(id), None) => range.from.is_none_or(|from| id >= from) && range.to.is_none_or(|to| id <= to),
        (Ok(_), Some(_)) => false,
        (Err(_), Some(name)) => key.contains(name.as_str()),
        (Err(_), None) => true,
    })
}

#[test]
fn keeps_every_row_counter_and_word_of_a_sound_database() {
    let home = filled();
    let before = dump(&home.path());
    let sequences = |path: &Path| -> Vec<(String, i64)> {
        let db = Connection::open(path).unwrap();
        let mut read = db.prepare("SELECT name, seq FROM sqlite_sequence ORDER BY name").unwrap();
        read.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
    };
    let counters = sequences(&home.path());
    let (_folder, path) = copied(&home.path());
    Store::note_damage(&path, "a read failed").unwrap();
    let report = salvage(&path).expect("noted damage is salvaged");
    assert_eq!((report.losses.len(), report.unknown_before), (0, None), "{}", report.text());
    assert_eq!(report.why, "a read failed");
    assert!(dump(&path) == before, "every row is there");
    assert_eq!(sequences(&path), counters);
    let store = Store::open(&path).unwrap();
    assert!(!store.search("needle", None, 10).unwrap().is_empty(), "the search index is rebuilt");
    assert!(store.database_size().unwrap().incremental, "free pages can be given back");
    drop(store);
    assert!(salvage(&path).is_none(), "the second start finds a sound database");
}

#[test]
fn rebuilds_the_search_index_as_the_triggers_write_it() {
    let home = filled();
    let indexed = |path: &Path| -> Vec<i64> {
        let db = Connection::open(path).unwrap();
        let mut read = db.prepare("SELECT id FROM words_docsize ORDER BY id").unwrap();
        read.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let raw = home.raw();
    // Distant ids, tool output and empty text: the last two are not indexed.
    for (id, role, content) in [
        (60_000, "assistant", "needle"),
        (60_001, "tool", "needle"),
        (90_000_000, "user", ""),
        (-5, "user", "needle"),
    ] {
        let row = "INSERT INTO messages (id, session, role, content, at) VALUES (?1, 's', ?2, ?3, 1)";
        raw.execute(row, (id, role, content)).unwrap();
    }
    drop(raw);
    let before = indexed(&home.path());
    assert!(before.contains(&60_000) && before.contains(&-5) && !before.contains(&60_001));
    let (_folder, path) = copied(&home.path());
    Store::note_damage(&path, "a read failed").unwrap();
    salvage(&path).expect("noted damage is salvaged");
    assert_eq!(indexed(&path), before);
    let raw = Connection::open(&path).unwrap();
    let row = "INSERT INTO messages (session, role, content, at) VALUES ('s', 'user', 'afterwards', 1)";
    raw.execute(row, []).unwrap();
    assert_eq!(indexed(&path).len(), before.len() + 1, "new rows are indexed by the trigger again");
}

#[test]
fn reports_rising_progress_of_a_salvage_and_none_without_damage() {
    let (_folder, path) = copied(&filled().path());
    let open = || {
        let mut reported = Vec::new();
        Store::open_or_salvage_changed(&path, NOW, NOW, &mut |percent| reported.push(percent))
            .unwrap()
            .0
            .close()
            .unwrap();
        reported
    };
    assert_eq!(open(), Vec::<u8>::new(), "a sound database is not salvaged");
    Store::note_damage(&path, "a read failed").unwrap();
    let reported = open();
    assert_eq!(reported.first(), Some(&0));
    assert!(
        reported.is_sorted()
            && reported.len() > 10
            && reported.last().is_some_and(|last| (90..=99).contains(last)),
        "{reported:?}"
    );
}

#[test]
fn keeps_the_damaged_files_and_writes_a_report() {
    let (_folder, path) = copied(&filled().path());
    let before = fs::read(&path).unwrap();
    let mut bytes = before.clone();
    bytes[..16].fill(0);
    fs::write(&path, &bytes).unwrap();
    let report = salvage(&path).unwrap();
    assert_eq!(fs::read(&report.moved_to).unwrap(), bytes);
    assert!(Path::new(&format!("{}-wal", report.moved_to)).exists());
    let text = fs::read_to_string(&report.report).unwrap();
    assert_eq!(text, report.text());
    assert!(text.contains("lost:     no rows"), "{text}");
}

#[test]
fn continues_an_interrupted_salvage() {
    let before = filled();
    let rows = dump(&before.path());
    let note = r#"{"stamp":"S","at":1,"why":"cut off","last_change":1}"#;
    for moved in [&[][..], &["-wal"], &["-wal", ""]] {
        let (_folder, path) = copied(&before.path());
        let beside = |suffix: &str| PathBuf::from(format!("{}{suffix}", path.display()));
        fs::write(beside("-salvage.json"), note).unwrap();
        fs::write(beside("-salvage"), "half filled").unwrap();
        for suffix in moved {
            fs::rename(beside(suffix), beside(&format!(".damaged-S{suffix}"))).unwrap();
        }
        let report = salvage(&path).expect("it goes on");
        assert_eq!(report.why, "cut off");
        assert!(dump(&path) == rows, "{moved:?}");
        assert!(!beside("-salvage.json").exists() && !beside("-salvage").exists());
    }
}

#[test]
fn removes_the_note_of_a_completed_salvage() {
    let (_folder, path) = copied(&filled().path());
    let rows = dump(&path);
    fs::copy(&path, path.with_file_name("petasos.db.damaged-S")).unwrap();
    let note = path.with_file_name("petasos.db-salvage.json");
    fs::write(&note, r#"{"stamp":"S","at":1,"why":"done","last_change":1}"#).unwrap();
    assert!(salvage(&path).is_none() && !note.exists());
    assert!(dump(&path) == rows);
}

#[test]
fn refuses_empty_missing_and_foreign_databases() {
    let (_folder, path) = copied(&filled().path());
    fs::remove_file(path.with_file_name("petasos.db-wal")).unwrap();
    fs::write(&path, "").unwrap();
    assert!(matches!(Store::open_or_salvage(&path, NOW), Err(OpenError::Vanished { .. })));
    fs::remove_file(&path).unwrap();
    assert!(matches!(Store::open_or_salvage(&path, NOW), Err(OpenError::Vanished { .. })));
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE other (a)").unwrap();
    assert!(matches!(Store::open_or_salvage(&path, NOW), Err(OpenError::Foreign { .. })));
    let newer = copied(&filled().path());
    let raw = Connection::open(&newer.1).unwrap();
    raw.pragma_update(None, "user_version", petasos_store::SCHEMA + 1).unwrap();
    raw.close().unwrap();
    let map = format!(r#"{{"schema":{},"roots":{{}}}}"#, petasos_store::SCHEMA + 1);
    fs::write(newer.1.with_file_name(".petasos.db-map"), map).unwrap();
    assert!(matches!(Store::open_or_salvage(&newer.1, NOW), Err(OpenError::Newer { .. })));
}

#[test]
fn salvages_an_emptied_database_instead_of_starting_fresh() {
    let home = Home::new();
    home.store.close().unwrap();
    let folder = home.folder;
    let path = folder.path().join("petasos.db");
    fs::remove_file(&path).unwrap();
    Connection::open(&path).unwrap().execute_batch("PRAGMA user_version = 0; VACUUM;").unwrap();
    let report = salvage(&path).expect("it is salvaged");
    assert!(report.why.contains("empty") && report.unknown_before.is_some(), "{}", report.text());
}

#[test]
fn lists_undecodable_rows() {
    let (_folder, path) = copied(&filled().path());
    let raw = Connection::open(&path).unwrap();
    raw.execute(
        "UPDATE inbox SET message = replace(message, '\"dedup\"', '\"dedxp\"') WHERE id IN (3, 4)",
        [],
    )
    .unwrap();
    raw.close().unwrap();
    let report = Store::repair(&path, NOW).unwrap().unwrap();
    assert_eq!(report.losses.len(), 1, "{}", report.text());
    let range = &report.losses[0].ranges[0];
    assert_eq!((report.losses[0].table.as_str(), range.from, range.to), ("inbox", Some(3), Some(4)));
    assert!(report.unknown_before.is_some(), "a lost message may have been answered");
}

#[test]
fn gives_up_possibly_outdated_work_and_reports_it_once() {
    let mut home = Home::new();
    let open = home.accept("7", "open");
    let turn = turn("7", &[open]);
    home.apply(&start(&turn)).unwrap();
    home.accept("8", "waiting");
    let item = home.enqueue("9", "due");
    for number in 0..20 {
        home.accept("10", &number.to_string());
    }
    let (_folder, path) = copied(&home.path());
    let log = path.with_file_name("petasos.db-wal");
    let mut bytes = fs::read(&log).unwrap();
    let middle = bytes.len() - 40 * 4120;
    bytes[middle] ^= 1;
    fs::write(&log, bytes).unwrap();
    let (mut store, report) = Store::open_or_salvage(&path, later(1)).unwrap();
    assert!(report.unwrap().log_commits > 0);
    let notice = store.write(|tx| tx.loss_notice(limits(), NOW)).unwrap().unwrap();
    let chats: Vec<_> = notice.possibly_answered.iter().map(|it| it.inbound.dedup.as_str()).collect();
    assert!(chats.contains(&"open") && chats.contains(&"waiting"), "{chats:?}");
    assert_eq!(store.backlog().unwrap().queued + store.backlog().unwrap().claimed, 0);
    assert!(store.item(item.id).unwrap().unwrap().doubtful, "it may have been sent");
    assert!(store.write(|tx| tx.loss_notice(limits(), NOW)).unwrap().is_none());
}

fn limits() -> petasos_core::turn::TurnLimits {
    petasos_core::turn::TurnLimits::default()
}

#[test]
fn records_the_time_before_which_messages_are_unknown() {
    let (_folder, path) = copied(&filled().path());
    let raw = Connection::open(&path).unwrap();
    raw.execute("UPDATE turns SET state = '{' WHERE id = 1", []).unwrap();
    raw.close().unwrap();
    assert!(Store::repair(&path, NOW).unwrap().is_some());
    let store = Store::open(&path).unwrap();
    let before = store.unknown_before().unwrap().expect("knowledge is missing");
    assert!(before <= NOW && before > Millis(0), "{before:?}");
    assert_eq!(store.last_salvage().unwrap().unwrap().losses[0].table, "turns");
}

#[test]
fn last_change_is_read_before_the_files_are_opened() {
    for open in [
        |path: &Path| Store::open_or_salvage(path, later(3600)).map(|(_, salvage)| salvage),
        |path: &Path| Store::repair(path, later(3600)),
    ] {
        let mut home = Home::new();
        home.accept("7", "a");
        home.apply(&start(&turn("7", &[petasos_core::InboxId(1)]))).unwrap();
        home.raw().execute("UPDATE turns SET state = '{'", []).unwrap();
        let (_folder, path) = copied(&home.path());
        let stopped = std::time::UNIX_EPOCH + std::time::Duration::from_millis(NOW.0);
        for file in [path.clone(), path.with_file_name("petasos.db-wal")] {
            fs::File::options().write(true).open(file).unwrap().set_modified(stopped).unwrap();
        }
        let salvage = open(&path).unwrap().expect("the turn does not decode");
        assert_eq!(salvage.unknown_before, Some(NOW));
    }
}

#[test]
fn reports_damage_instead_of_reading_past_it() {
    let (_folder, path) = copied(&filled().path());
    let raw = Connection::open(&path).unwrap();
    raw.execute("UPDATE routing SET entry = 'x'", []).unwrap();
    raw.close().unwrap();
    let damage = Store::open(&path).unwrap().damage().unwrap();
    assert_eq!(damage.len(), 1);
    assert!(damage[0].to_string().starts_with("routing"), "{}", damage[0]);
}

#[test]
fn checks_the_recovered_copy_instead_of_the_replaced_files() {
    let home = filled();
    let rows = dump(&home.path());
    let (_folder, path) = copied(&home.path());
    let recovered = path.with_file_name("petasos.db-recovery");
    Connection::open(&path).unwrap().execute("VACUUM INTO ?1", [recovered.to_str().unwrap()]).unwrap();
    fs::write(&path, "damaged").unwrap();
    assert!(salvage(&path).is_none());
    assert!(dump(&path) == rows && !recovered.exists());
}
