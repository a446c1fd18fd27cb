//! Files removed or replaced under an open store: no commit counts before everything is in a new file.

use std::fs;
use std::path::{Path, PathBuf};

use petasos_store::{Detached, Error, Reader, Store};

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

/// Takes files away, and checks that a commit notices and that a recovery loses nothing.
#[track_caller]
fn recovers(what: Detached, remove: impl FnOnce(&Path)) -> Home {
    let mut home = Home::new();
    let path = home.path();
    home.accept("7", "before");
    let old_reader = home.store.place().reader().unwrap();
    remove(&path);
    assert_eq!(home.store.check_files(), Err(Error::Detached(what)));
    assert_eq!(commit(&mut home, "meanwhile"), Err(Error::Detached(what)));
    let before = home.store.place().generation();
    home.store.reattach().unwrap();
    assert_eq!(home.store.place().generation(), before + 1);
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
    recovers(Detached::Log, |path| remove(path, "-wal"));
}

#[test]
fn recovers_from_removed_shared_memory() {
    recovers(Detached::SharedMemory, |path| remove(path, "-shm"));
}

#[test]
fn recovers_from_a_removed_database() {
    recovers(Detached::Database, |path| remove(path, ""));
    recovers(Detached::Database, |path| ["", "-wal", "-shm"].iter().for_each(|suffix| remove(path, suffix)));
}

#[test]
fn recovers_from_a_log_that_another_client_created_anew() {
    recovers(Detached::Log, |path| {
        remove(path, "-wal");
        remove(path, "-shm");
        fs::write(beside(path, "-wal"), "").unwrap();
    });
}

#[test]
fn keeps_a_file_that_was_put_in_place_of_the_database() {
    let mut home = Home::new();
    let path = home.path();
    home.accept("7", "before");
    let other = Home::new().folder.path().join("petasos.db");
    fs::create_dir_all(other.parent().unwrap()).unwrap();
    Store::open(&other).unwrap().close().unwrap();
    fs::rename(&other, &path).unwrap();
    assert_eq!(commit(&mut home, "meanwhile"), Err(Error::Detached(Detached::Database)));
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
fn finishes_a_recovery_that_a_power_failure_cut_off() {
    let mut home = Home::new();
    let path = home.path();
    home.accept("7", "before");
    remove(&path, "-wal");
    commit(&mut home, "meanwhile").unwrap_err();
    home.store.reattach().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let moved = folder.path().join("petasos.db");
    // As after the rename of the copy, with the old file and a log of it still in place.
    home.raw().execute("VACUUM INTO ?1", [beside(&moved, "-recovery").to_str().unwrap()]).unwrap();
    fs::write(&moved, "old").unwrap();
    fs::write(beside(&moved, "-wal"), "old").unwrap();
    fs::write(folder.path().join(".petasos-db"), "").unwrap();
    let store = Store::open(&moved).unwrap();
    waiting(&store, 2);
    assert!(!beside(&moved, "-recovery").exists());
}

#[test]
fn leaves_everything_as_it_is_when_recovery_is_impossible() {
    let mut home = Home::new();
    let path = home.path();
    home.accept("7", "before");
    remove(&path, "-wal");
    // A directory in the place of the copy.
    fs::create_dir(beside(&path, "-recovery~")).unwrap();
    commit(&mut home, "meanwhile").unwrap_err();
    home.store.reattach().unwrap_err();
    assert_eq!(home.store.check_files(), Err(Error::Detached(Detached::Log)), "still not acknowledged");
    waiting(&home.store, 2);
    fs::remove_dir(beside(&path, "-recovery~")).unwrap();
    home.store.reattach().unwrap();
    waiting(&home.crash().store, 2);
}

#[test]
fn refuses_to_checkpoint_or_fold_a_removed_log() {
    let mut home = Home::new();
    let path = home.path();
    let checkpointer = home.store.checkpointer().unwrap();
    home.accept("7", "before");
    remove(&path, "-wal");
    let size = fs::metadata(&path).unwrap().len();
    assert_eq!(checkpointer.run(), Err(Error::Detached(Detached::Log)));
    assert_eq!(home.store.fold(), Err(Error::Detached(Detached::Log)));
    assert_eq!(fs::metadata(&path).unwrap().len(), size);
}

#[test]
fn copies_a_removed_log_into_the_database_as_a_last_resort() {
    for removed in [&["-wal"][..], &["-shm"], &["-wal", "-shm"]] {
        let mut home = Home::new();
        home.accept("7", "before");
        removed.iter().for_each(|suffix| remove(&home.path(), suffix));
        home.store.fold_removed_log().unwrap();
        let home = home.crash();
        waiting(&home.store, 1);
    }
}

#[test]
fn refuses_to_copy_a_removed_log_beside_another_writer() {
    let mut home = Home::new();
    let path = home.path();
    home.accept("7", "before");
    remove(&path, "-wal");
    fs::write(beside(&path, "-wal"), "").unwrap();
    assert_eq!(home.store.fold_removed_log(), Err(Error::Detached(Detached::Log)));
    remove(&path, "");
    assert_eq!(home.store.fold_removed_log(), Err(Error::Detached(Detached::Database)));
}
