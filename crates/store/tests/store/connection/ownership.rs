//! Other programs may open, read, write, back up and close the database during use: the log stays linked, and commits of
//! this process stay visible to them.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use petasos_store::{Reader, Store};

use crate::fixture::{Home, key, own_process};

const DATABASE: &str = "PETASOS_TEST_OUTSIDE_DATABASE";

/// Runs [`client_in_another_process`] in a new process of this test binary.
#[track_caller]
fn outside_client(path: &Path) -> ClientReport {
    let done =
        own_process("connection::ownership::client_in_another_process").env(DATABASE, path).output().unwrap();
    let output = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{output}");
    let value =
        |name: &str| output.split_whitespace().find_map(|word| word.strip_prefix(name)).expect("a value");
    ClientReport { locked: value("locked=").parse().unwrap(), rows: value("rows=").parse().unwrap() }
}

#[derive(Debug, PartialEq, Eq)]
struct ClientReport {
    /// Whether a process holds a POSIX lock on the database file.
    locked: bool,
    rows: usize,
}

#[test]
#[ignore = "run by the tests of this module as another process"]
fn client_in_another_process() {
    let Some(path) = std::env::var_os(DATABASE).map(PathBuf::from) else { return };
    // Older SQLite releases rely on this lock alone; recent ones detect that the log is in use.
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let free = rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok();
    drop(file);
    let db = rusqlite::Connection::open(&path).unwrap();
    let rows: i64 = db.query_row("SELECT count(*) FROM inbox", [], |row| row.get(0)).unwrap();
    db.execute_batch("CREATE TEMP TABLE scratch (x); INSERT INTO scratch VALUES (1)").unwrap();
    db.execute("VACUUM INTO ?1", [path.with_extension("copy").to_str().unwrap()]).unwrap();
    std::fs::remove_file(path.with_extension("copy")).unwrap();
    // Checkpoints and unlinks the log if this is the last connection.
    db.close().unwrap();
    println!("locked={} rows={rows}", !free);
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn inode(path: &Path) -> Option<u64> {
    path.metadata().ok().map(|about| about.ino())
}

#[test]
fn log_stays_linked_while_other_programs_open_and_close() {
    let mut home = Home::new();
    let path = home.path();
    home.accept("7", "0");
    let log = inode(&beside(&path, "-wal"));
    assert!(log.is_some());
    let mut kept = vec![];
    for number in 1..6 {
        // Opened earlier, kept open, and opened and closed at once: each could drop the locks of this process.
        kept.push(Reader::open(&path).unwrap());
        drop(Reader::open(&path).unwrap());
        drop(kept.first().unwrap().quick_check());
        assert_eq!(outside_client(&path), ClientReport { locked: true, rows: number });
        assert_eq!(inode(&beside(&path, "-wal")), log, "the log was unlinked after {number} readers");
        home.accept("7", &number.to_string());
    }
    assert_eq!(home.crash().store.queued(&key("7")).unwrap().len(), 6);
}

#[test]
fn opening_the_store_a_second_time_keeps_the_locks_of_the_first() {
    let mut home = Home::new();
    let path = home.path();
    home.accept("7", "0");
    let log = inode(&beside(&path, "-wal"));
    Store::open(&path).unwrap().close().unwrap();
    assert_eq!(outside_client(&path), ClientReport { locked: true, rows: 1 });
    assert_eq!(inode(&beside(&path, "-wal")), log);
}

#[test]
fn last_program_to_close_checkpoints_the_log() {
    let mut home = Home::new();
    home.accept("7", "0");
    let path = home.path();
    let Home { folder: _folder, store } = home;
    drop(Reader::open(&path).unwrap());
    store.close().unwrap();
    assert_eq!(inode(&beside(&path, "-wal")), None);
    assert_eq!(outside_client(&path), ClientReport { locked: false, rows: 1 });
}

#[test]
fn opens_paths_with_reserved_uri_characters() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a b?c#d%41&immutable=0", "ünïcode", "con:trol\n"] {
        let inner = folder.path().join(name);
        std::fs::create_dir(&inner).unwrap();
        let path = inner.join("petasos.db");
        Store::open(&path).unwrap().close().unwrap();
        Store::open(&path).unwrap().close().unwrap();
        Reader::open(&path).unwrap();
    }
    let mut names: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names.len(), 3, "nothing was created elsewhere: {names:?}");
}
