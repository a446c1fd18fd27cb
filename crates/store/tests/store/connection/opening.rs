//! Opening: which files are created or refused, and that a refused file stays unchanged.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use petasos_store::{Error, OpenError, Reader, Result, SCHEMA, Store};
use tempfile::tempdir;

use crate::fixture::{Home, NOW, inbound, key};

#[track_caller]
fn refused(path: &Path) -> OpenError {
    Store::open(path).expect_err("this must not open")
}

fn used() -> (tempfile::TempDir, std::path::PathBuf) {
    let mut home = Home::new();
    for n in 0..200 {
        home.accept("7", &n.to_string());
    }
    let path = home.path();
    let Home { folder, store } = home;
    store.close().unwrap();
    (folder, path)
}

#[test]
fn new_database_is_private_and_has_a_marker() {
    let home = Home::new();
    assert_eq!(fs::metadata(home.path()).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(home.folder.path().join(".petasos-db").exists());
}

#[test]
fn log_and_shared_memory_are_private() {
    let mut home = Home::new();
    home.accept("7", "a");
    for suffix in ["-wal", "-shm"] {
        let mode = fs::metadata(format!("{}{suffix}", home.path().display())).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{suffix}");
    }
}

#[test]
fn a_database_of_a_newer_version_is_left_untouched() {
    let (folder, path) = used();
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.pragma_update(None, "user_version", SCHEMA + 3).unwrap();
    raw.close().unwrap();
    let before = fs::read(&path).unwrap();
    match refused(&path) {
        OpenError::Newer { found, known, .. } => assert_eq!((found, known), (SCHEMA + 3, SCHEMA)),
        other => panic!("{other}"),
    }
    assert!(matches!(Reader::open(&path), Err(OpenError::Newer { .. })));
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "no log was left beside it");
}

#[test]
fn readers_refuse_an_unmigrated_database() {
    let (_folder, path) = used();
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.pragma_update(None, "user_version", SCHEMA - 1).unwrap();
    raw.close().unwrap();
    match Reader::open(&path).expect_err("its tables are not those of this version") {
        OpenError::Older { found, known, .. } => assert_eq!((found, known), (SCHEMA - 1, SCHEMA)),
        other => panic!("{other}"),
    }
}

#[test]
fn a_damaged_database_is_left_untouched() {
    let (_folder, path) = used();
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    for byte in &mut bytes[8192..middle] {
        *byte ^= 0x5a;
    }
    fs::write(&path, &bytes).unwrap();
    assert!(matches!(refused(&path), OpenError::Corrupt { .. }));
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn incomplete_index_is_detected_in_a_small_file() {
    let (_folder, path) = used();
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute_batch("PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE name = 'inbox_session'")
        .unwrap();
    raw.close().unwrap();
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute_batch("DELETE FROM inbox WHERE id = 7").unwrap();
    raw.execute_batch("PRAGMA writable_schema = ON").unwrap();
    raw.close().unwrap();
    match refused(&path) {
        OpenError::Corrupt { detail, .. } => assert!(!detail.contains("message 7"), "{detail}"),
        other => panic!("{other}"),
    }
}

#[test]
fn file_without_a_database_header_is_refused() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("petasos.db");
    fs::write(&path, "this is an unrelated text file, and it is longer than a database header ".repeat(3))
        .unwrap();
    assert!(matches!(refused(&path), OpenError::Foreign { .. }));
    fs::write(&path, "short").unwrap();
    assert!(matches!(refused(&path), OpenError::Foreign { .. }));
}

#[test]
fn reports_a_damaged_header_of_a_known_database_as_damage() {
    for (at, byte) in [(0, b'X'), (17, 0xff), (19, 9)] {
        let (_folder, path) = used();
        let mut bytes = fs::read(&path).unwrap();
        bytes[at] = byte;
        fs::write(&path, &bytes).unwrap();
        assert!(matches!(refused(&path), OpenError::Corrupt { .. }), "byte {at}: {:?}", Store::open(&path));
        assert_eq!(fs::read(&path).unwrap(), bytes, "byte {at}");
    }
}

#[test]
fn the_database_of_another_program_is_refused() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("petasos.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    let before = fs::read(&path).unwrap();
    assert!(matches!(refused(&path), OpenError::Foreign { .. }));
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn missing_database_is_not_replaced_by_an_empty_one() {
    let (folder, path) = used();
    fs::remove_file(&path).unwrap();
    match refused(&path) {
        OpenError::Vanished { sign, .. } => assert_eq!(sign, folder.path().join(".petasos-db")),
        other => panic!("{other}"),
    }
    assert!(!path.exists());
    fs::remove_file(folder.path().join(".petasos-db")).unwrap();
    fs::write(folder.path().join("petasos.db-wal"), "").unwrap();
    assert!(matches!(refused(&path), OpenError::Vanished { .. }));
    fs::remove_file(folder.path().join("petasos.db-wal")).unwrap();
    Store::open(&path).expect("nothing says there was one");
}

#[test]
fn emptied_database_file_counts_as_missing() {
    let (_folder, path) = used();
    fs::write(&path, "").unwrap();
    assert!(matches!(refused(&path), OpenError::Vanished { .. }));
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
}

#[test]
fn unused_empty_file_becomes_a_database() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("petasos.db");
    fs::write(&path, "").unwrap();
    Store::open(&path).unwrap();
}

#[test]
fn missing_folder_is_reported_and_not_created() {
    let folder = tempdir().unwrap();
    let missing = folder.path().join("nowhere");
    assert!(matches!(refused(&missing.join("petasos.db")), OpenError::NoDirectory { .. }));
    assert!(!missing.exists());
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    assert!(matches!(refused(&file.join("petasos.db")), OpenError::NoDirectory { .. }));
}

#[test]
fn folder_at_the_database_path_is_an_error() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("petasos.db");
    fs::create_dir(&path).unwrap();
    assert!(matches!(refused(&path), OpenError::Failed { .. }));
    assert!(path.is_dir());
}

#[test]
fn reader_sees_commits_and_creates_no_file() {
    let mut home = Home::new();
    home.accept("7", "a");
    let reader = Reader::open(home.path()).unwrap();
    assert_eq!(reader.queued(&key("7")).unwrap().len(), 1);
    home.accept("7", "b");
    assert_eq!(reader.queued(&key("7")).unwrap().len(), 2);
    let absent = home.folder.path().join("other.db");
    assert!(matches!(Reader::open(&absent), Err(OpenError::Absent { .. })));
    assert!(!absent.exists());
}

#[test]
fn snapshot_is_consistent_and_ends_after_its_closure() {
    let mut home = Home::new();
    home.accept("7", "a");
    let reader = Reader::open(home.path()).unwrap();
    let waiting = |reader: &Reader| Ok(reader.queued(&key("7"))?.len());
    let seen = reader.snapshot(|reader| {
        let first = waiting(reader)?;
        home.accept("7", "b");
        Ok((first, reader.snapshot(waiting)?, waiting(reader)?))
    });
    assert_eq!(seen, Ok((1, 1, 1)));
    assert_eq!(reader.snapshot(waiting), Ok(2));
    let failed = reader.snapshot(|reader| {
        waiting(reader)?;
        Err::<(), _>(Error::Missing("answer"))
    });
    assert_eq!(failed, Err(Error::Missing("answer")));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        reader.snapshot(|reader| -> Result<()> {
            waiting(reader)?;
            panic!("a question may")
        })
    }));
    assert!(panicked.is_err());
    home.accept("7", "c");
    assert_eq!(waiting(&reader), Ok(3), "no earlier moment is held");
}

#[test]
fn quick_check_distinguishes_sound_and_damaged_files() {
    let mut home = Home::new();
    home.accept("7", "a");
    let path = home.path();
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'inbox'";
    let page: u32 = home.raw().query_row(root, [], |row| row.get(0)).unwrap();
    let Home { folder: _folder, store } = home;
    store.close().unwrap();
    assert_eq!(Reader::open(&path).unwrap().quick_check(), Ok(None));
    let mut bytes = fs::read(&path).unwrap();
    let page = (page as usize - 1) * 4096;
    bytes[page..page + 4096].fill(0xff);
    fs::write(&path, bytes).unwrap();
    let found = Reader::open(&path).unwrap().quick_check();
    assert!(matches!(found, Ok(Some(_))), "{found:?}");
}

#[test]
fn full_disk_is_reported_and_leaves_no_partial_write() {
    let mut home = Home::new();
    home.accept("7", "before");
    home.store.limit_pages(1).unwrap();
    let mut large = inbound("7", "large");
    large.text = "x".repeat(4 << 20);
    assert_eq!(home.store.write(|tx| tx.accept(&large, &key("7"), NOW)), Err(Error::Full));
    home.store.limit_pages(1_000_000).unwrap();
    assert_eq!(home.store.queued(&key("7")).unwrap().len(), 1);
    home.accept("7", "large");
    let home = home.reopen();
    assert_eq!(home.store.queued(&key("7")).unwrap().len(), 2);
}

#[test]
fn full_disk_within_a_group_loses_no_job_silently() {
    let mut home = Home::new();
    home.store.limit_pages(1).unwrap();
    let group = home.store.group().unwrap();
    let small = group.job(|tx| tx.accept(&inbound("7", "small"), &key("7"), NOW));
    let mut large = inbound("7", "large");
    large.text = "x".repeat(4 << 20);
    assert_eq!(group.job(|tx| tx.accept(&large, &key("7"), NOW)), Err(Error::Full));
    let committed = group.commit();
    let kept = home.store.queued(&key("7")).unwrap().len();
    match (small.is_ok(), committed) {
        (true, Ok(())) => assert_eq!(kept, 1),
        (false, _) | (true, Err(_)) => assert_eq!(kept, 0),
    }
}

/// The header is read without locks: pages being checkpointed must not look like damage.
#[test]
fn readers_open_while_the_file_grows_under_checkpoints() {
    let mut home = Home::new();
    let path = home.path();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| {
            let mut opened = 0;
            while !done.load(std::sync::atomic::Ordering::Acquire) {
                Reader::open(&path).expect("a sound database opens");
                opened += 1;
            }
            opened
        });
        for n in 0..60 {
            let mut large = inbound("7", &n.to_string());
            large.text = "x".repeat(200_000);
            home.write(|tx| tx.accept(&large, &key("7"), NOW));
            home.store.checkpoint_passive().unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Release);
        assert!(opening.join().expect("no reader failed") > 0);
    });
}
