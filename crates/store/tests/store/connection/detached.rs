//! Files removed or replaced under an open store: no commit is acknowledged until everything is in a new file.

use std::fs;
use std::path::{Path, PathBuf};

use petasos_store::{DetachedFile, Error, Reader, Store};

use crate::fixture::{Home, NOW, inbound, key};

fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

fn commit(home: &mut Home, dedup: &str) -> Result<(), Error> {
    home.store.write(|tx| tx.accept(&inbound("7", dedup), &key("7"), NOW)).map(drop)
}

#[track_caller]
fn waiting(store: &Store, want: usize) {
    assert_eq!(store.queued(&key("7")).unwrap().len(), want);
}

/// Removes files, and checks that a commit detects it and that recovery loses nothing.
#[track_caller]
fn recovers(what: DetachedFile, remove: impl FnOnce(&Path)) -> Home {
    let mut home = Home::new();
    let path = home.path();
    home.accept("7", "before");
    let old_reader = home.store.location().reader().unwrap();
    remove(&path);
    assert_eq!(home.store.check_files(), Err(Error::Detached(what)));
    assert_eq!(commit(&mut home, "meanwhile"), Err(Error::Detached(what)));
    let before = home.store.location().generation();
    home.store.reattach().unwrap();
    assert_eq!(home.store.location().generation(), before + 1);
    assert_eq!(home.store.check_files(), Ok(()));
    commit(&mut home, "after").unwrap();
    waiting(&home.store, 3);
    assert_eq!(old_reader.quick_check(), Ok(None), "readers from before are not disturbed");
    drop(old_reader);
    assert_eq!(home.store.check_files(), Ok(()), "closing them removes nothing of ours");
    assert_eq!(Reader::open(&path).unwrap().queued(&key("7")).unwrap().len(), 3);
    let home = home.crash();
    waiting(&home.store, 3);
    home
}

fn remove(path: &Path, suffix: &str) {
    fs::remove_file(beside(path, suffix)).unwrap();
}

#[test]
fn recovers_from_a_removed_log() {
    recovers(DetachedFile::Log, |path| remove(path, "-wal"));
}

#[test]
fn recovers_from_removed_shared_memory() {
    recovers(DetachedFile::SharedMemory, |path| remove(path, "-shm"));
}

#[test]
fn recovers_from_a_removed_database() {
    recovers(DetachedFile::Database, |path| remove(path, ""));
    recovers(DetachedFile::Database, |path| {
        ["", "-wal", "-shm"].iter().for_each(|suffix| remove(path, suffix))
    });
}

#[test]
fn recovers_from_a_log_recreated_by_another_client() {
    recovers(DetachedFile::Log, |path| {
        remove(path, "-wal");
        remove(path, "-shm");
        fs::write(beside(path, "-wal"), "").unwrap();
    });
}

#[test]
fn keeps_a_foreign_file_found_at_the_database_path() {
    let mut home = Home::new();
    let path = home.path();
    home.accept("7", "before");
    let other = Home::new().folder.path().join("petasos.db");
    fs::create_dir_all(other.parent().unwrap()).unwrap();
    Store::open(&other).unwrap().close().unwrap();
    fs::rename(&other, &path).unwrap();
    assert_eq!(commit(&mut home, "meanwhile"), Err(Error::Detached(DetachedFile::Database)));
    home.store.reattach().unwrap();
    waiting(&home.store, 2);
    let kept: Vec<_> = fs::read_dir(home.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains(".replaced-"))
        .collect();
    assert_eq!(kept.len(), 1, "{kept:?}");
}

#[test]
fn finishes_a_recovery_interrupted_by_a_power_failure() {
    let mut home = Home::new();
    let path = home.path();
    home.accept("7", "before");
    remove(&path, "-wal");
    commit(&mut home, "meanwhile").unwrap_err();
    home.store.reattach().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let moved = folder.path().join("petasos.db");
    // The state after the copy was renamed, with the old file and its log still in place.
    home.raw().execute("VACUUM INTO ?1", [beside(&moved, "-recovery").to_str().unwrap()]).unwrap();
    fs::write(&moved, "old").unwrap();
    fs::write(beside(&moved, "-wal"), "old").unwrap();
    fs::write(folder.path().join(".petasos-db"), "").unwrap();
    let store = Store::open(&moved).unwrap();
    waiting(&store, 2);
    assert!(!beside(&moved, "-recovery").exists());
}

#[test]
fn failed_recovery_leaves_everything_unchanged() {
    let mut home = Home::new();
    let path = home.path();
    home.accept("7", "before");
    remove(&path, "-wal");
    // A directory at the path of the copy makes the recovery fail.
    fs::create_dir(beside(&path, "-recovery~")).unwrap();
    commit(&mut home, "meanwhile").unwrap_err();
    home.store.reattach().unwrap_err();
    assert_eq!(home.store.check_files(), Err(Error::Detached(DetachedFile::Log)), "still not acknowledged");
    waiting(&home.store, 2);
    fs::remove_dir(beside(&path, "-recovery~")).unwrap();
    home.store.reattach().unwrap();
    waiting(&home.crash().store, 2);
}

#[test]
fn refuses_to_checkpoint_a_removed_log() {
    let mut home = Home::new();
    let path = home.path();
    let checkpointer = home.store.checkpointer().unwrap();
    home.accept("7", "before");
    remove(&path, "-wal");
    let size = fs::metadata(&path).unwrap().len();
    assert_eq!(checkpointer.run(), Err(Error::Detached(DetachedFile::Log)));
    assert_eq!(home.store.checkpoint_truncate(), Err(Error::Detached(DetachedFile::Log)));
    assert_eq!(fs::metadata(&path).unwrap().len(), size);
}

#[test]
fn checkpoints_a_removed_log_as_a_last_resort() {
    for removed in [&["-wal"][..], &["-shm"], &["-wal", "-shm"]] {
        let mut home = Home::new();
        home.accept("7", "before");
        removed.iter().for_each(|suffix| remove(&home.path(), suffix));
        home.store.checkpoint_removed_log().unwrap();
        let home = home.crash();
        waiting(&home.store, 1);
    }
}

#[test]
fn refuses_to_checkpoint_a_removed_log_beside_another_writer() {
    let mut home = Home::new();
    let path = home.path();
    home.accept("7", "before");
    remove(&path, "-wal");
    fs::write(beside(&path, "-wal"), "").unwrap();
    assert_eq!(home.store.checkpoint_removed_log(), Err(Error::Detached(DetachedFile::Log)));
    remove(&path, "");
    assert_eq!(home.store.checkpoint_removed_log(), Err(Error::Detached(DetachedFile::Database)));
}
