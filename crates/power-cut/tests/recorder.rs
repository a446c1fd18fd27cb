//! Power cuts of files that this test program writes: the recorder is linked into it.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use petasos_power_cut::{LOG, UnsyncedData, apply, interrupt, is_recorded, log_length, record};

fn recorded() -> tempfile::TempDir {
    let home = tempfile::tempdir().expect("a directory");
    fs::write(home.path().join("before"), "old").expect("written");
    record(home.path());
    home
}

fn sync(path: &Path) {
    File::open(path).and_then(|file| file.sync_all()).expect("synced");
}

#[track_caller]
fn check(home: &Path, name: &str, want: Option<&str>) {
    let found = fs::read(home.join(name)).ok().map(|found| String::from_utf8_lossy(&found).into_owned());
    assert_eq!(found.as_deref(), want, "{name}");
}

#[test]
fn keeps_synced_writes_and_drops_others() {
    let home = recorded();
    assert!(is_recorded(home.path()));
    let path = home.path().join("file");
    let mut file = File::create(&path).expect("created");
    file.write_all(b"synced").expect("written");
    file.sync_data().expect("synced");
    sync(home.path());
    file.write_all(b", unsynced").expect("written");
    file.set_len(2).expect("truncated");
    let lost = apply(home.path(), UnsyncedData::Dropped);
    check(home.path(), "file", Some("synced"));
    check(home.path(), "before", Some("old"));
    assert!(lost.syncs >= 4 && lost.sectors == 2, "{lost:?}");
    assert!(!home.path().join(LOG).exists());
}

#[test]
fn rename_without_sync_leaves_old_file() {
    let home = recorded();
    let replace = |synced: bool| {
        let temporary = home.path().join("new");
        fs::write(&temporary, "new").expect("written");
        if synced {
            sync(&temporary);
        }
        fs::rename(temporary, home.path().join("before")).expect("renamed");
    };
    replace(true);
    apply(home.path(), UnsyncedData::Dropped);
    check(home.path(), "before", Some("old"));
    record(home.path());
    replace(false);
    sync(home.path());
    apply(home.path(), UnsyncedData::Dropped);
    check(home.path(), "before", Some(""));
    record(home.path());
    replace(true);
    sync(home.path());
    apply(home.path(), UnsyncedData::Dropped);
    check(home.path(), "before", Some("new"));
    check(home.path(), "new", None);
}

#[test]
fn file_in_unsynced_directory_is_lost() {
    for (parent_synced, want) in [(false, None), (true, Some("content"))] {
        let home = recorded();
        let folder = home.path().join("folder");
        fs::create_dir(&folder).expect("created");
        fs::write(folder.join("file"), "content").expect("written");
        sync(&folder.join("file"));
        sync(&folder);
        if parent_synced {
            sync(home.path());
        }
        apply(home.path(), UnsyncedData::Dropped);
        check(home.path(), "folder/file", want);
    }
}

#[test]
fn unsynced_removal_and_link_are_undone() {
    let home = recorded();
    fs::hard_link(home.path().join("before"), home.path().join("link")).expect("linked");
    fs::remove_file(home.path().join("before")).expect("removed");
    apply(home.path(), UnsyncedData::Dropped);
    check(home.path(), "before", Some("old"));
    check(home.path(), "link", None);
}

#[test]
fn sectors_survive_by_seed() {
    let survivors = |seed| {
        let home = recorded();
        let mut file = File::create(home.path().join("file")).expect("created");
        sync(home.path());
        file.write_all(&[7; 64 * 512]).expect("written");
        apply(home.path(), UnsyncedData::Partial(seed));
        let left = fs::read(home.path().join("file")).expect("read");
        let torn = left.chunks(512).filter(|sector| sector.iter().any(|byte| *byte != sector[0])).count();
        assert_eq!(torn, 0);
        left
    };
    assert_eq!(survivors(1), survivors(1));
    assert_ne!(survivors(1), survivors(2));
    let half = survivors(1).iter().filter(|byte| **byte == 7).count() / 512;
    assert!((16..48).contains(&half), "{half}");
}

#[test]
fn kill_keeps_every_byte_of_uninterrupted_log() {
    let home = recorded();
    let mut file = File::options().read(true).append(true).open(home.path().join("before")).expect("opened");
    file.write_all(b" and new").expect("written");
    file.seek(SeekFrom::Start(0)).expect("sought");
    let again = file.try_clone().expect("a second descriptor");
    again.set_len(6).expect("truncated");
    fs::rename(home.path().join("before"), home.path().join("after")).expect("renamed");
    apply(home.path(), UnsyncedData::Kept);
    check(home.path(), "before", None);
    check(home.path(), "after", Some("old an"));
}

#[test]
fn interruption_keeps_a_prefix_of_the_operations() {
    let mut seen = std::collections::BTreeSet::new();
    for seed in 0..40 {
        let home = recorded();
        let path = home.path().join("before");
        let mut file = File::options().append(true).open(path).expect("opened");
        file.write_all(b"1").expect("written");
        let kept = log_length(home.path());
        file.write_all(b"2").expect("written");
        file.write_all(b"3").expect("written");
        interrupt(home.path(), kept, seed);
        apply(home.path(), UnsyncedData::Kept);
        seen.insert(fs::read_to_string(home.path().join("before")).expect("read"));
    }
    assert_eq!(Vec::from_iter(seen), ["old1", "old12", "old123"]);
}

#[test]
fn files_that_the_log_does_not_mention_stay() {
    let home = recorded();
    let log = home.path().join(LOG);
    let bytes = fs::read(&log).expect("read");
    fs::write(home.path().join("other"), "other").expect("written");
    fs::write(&log, bytes).expect("written");
    apply(home.path(), UnsyncedData::Dropped);
    check(home.path(), "other", Some("other"));
}
