//! Backup and restore with the real program: the procedures of docs/operations.md.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::support::{Bench, SOON, failed, fine, json};
use petasos_fakes::model::Point;
use petasos_fakes::telegram::Fault;

const OWNER: i64 = 900;

fn backup(bench: &Bench, more: &[&str]) -> PathBuf {
    let made = json(&bench.run(&[&["backup", "--json"], more].concat()));
    PathBuf::from(made["path"].as_str().expect("a path"))
}

fn talked(bench: &mut Bench, text: &str, count: usize) {
    bench.telegram.push_text(101, 101, text);
    bench.wait_messages(101, count);
    bench.settle();
}

fn transcript(home: &Path) -> Vec<String> {
    let db = rusqlite::Connection::open(home.join("petasos.db")).expect("a database");
    let mut read = db.prepare("SELECT content FROM messages WHERE role = 'user' ORDER BY id").expect("sql");
    read.query_map([], |row| row.get(0)).expect("rows").map(|row| row.expect("text")).collect()
}

#[test]
fn backs_up_a_running_gateway_and_restores_into_a_new_home() {
    let mut bench = Bench::new();
    fs::create_dir_all(bench.home.path().join("memories/people")).expect("a directory");
    fs::write(bench.home.path().join("memories/MEMORY.md"), "likes tea").expect("written");
    fs::write(bench.home.path().join(".env"), "SECRET_ONE=abc\n").expect("written");
    bench.start();
    talked(&mut bench, "before", 1);
    let path = backup(&bench, &[]);
    talked(&mut bench, "after", 2);
    assert!(!path.join(".env").exists());
    let config = fs::read_to_string(path.join("config.yaml")).expect("a configuration");
    assert!(!config.contains("123:abc") && !config.contains("sk-test"), "{config}");
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(path.join("petasos.db")).expect("there").permissions().mode() & 0o777, 0o600);
    let status = fine(&bench.run(&["status"]));
    assert!(status.contains("backup    just now"), "{status}");

    let other = tempfile::tempdir().expect("a directory");
    let home = other.path().join("new");
    let said = fine(
        &bench
            .command(&["restore", path.to_str().expect("UTF-8"), "--home", home.to_str().expect("UTF-8")])
            .output()
            .expect("runs"),
    );
    assert!(said.contains("no credentials") && said.contains("next: petasos run"), "{said}");
    assert!(transcript(&home).iter().any(|text| text.contains("before")));
    assert!(!transcript(&home).iter().any(|text| text.contains("after")));
    assert_eq!(fs::read_to_string(home.join("memories/MEMORY.md")).expect("there"), "likes tea");
}

#[test]
fn includes_credentials_only_when_asked_and_keeps_as_many_as_asked() {
    let mut bench = Bench::new();
    fs::write(bench.home.path().join(".env"), "SECRET_ONE=abc\n").expect("written");
    bench.start();
    talked(&mut bench, "hello", 1);
    let first = backup(&bench, &["--include-secrets"]);
    assert_eq!(fs::read_to_string(first.join(".env")).expect("there"), "SECRET_ONE=abc\n");
    assert!(fs::read_to_string(first.join("config.yaml")).expect("there").contains("123:abc"));
    let (second, third) = (backup(&bench, &[]), backup(&bench, &["--keep", "2"]));
    assert!(!first.exists() && second.exists() && third.exists());
    let out = bench.home.path().join("elsewhere");
    backup(&bench, &["--out", out.to_str().expect("UTF-8")]);
    let again = failed(&bench.run(&["backup", "--out", out.to_str().expect("UTF-8")]), 1);
    assert!(again.contains("exists") && again.contains("next:"), "{again}");
}

#[test]
fn restore_refuses_a_running_gateway_a_newer_home_and_a_changed_backup() {
    let mut bench = Bench::new();
    bench.start();
    talked(&mut bench, "before", 1);
    let path = backup(&bench, &["--include-secrets"]);
    let restore = ["restore", path.to_str().expect("UTF-8")];
    let held = failed(&bench.run(&restore), 1);
    assert!(held.contains("another gateway is running"), "{held}");
    talked(&mut bench, "after", 2);
    bench.terminate();
    let newer = failed(&bench.run(&restore), 1);
    assert!(newer.contains("newer than the backup") && newer.contains("--force"), "{newer}");
    assert!(transcript(bench.home.path()).iter().any(|text| text.contains("after")));

    let forced = json(&bench.run(&["restore", restore[1], "--force", "--json"]));
    let aside = PathBuf::from(forced["replaced"].as_str().expect("kept aside"));
    assert!(transcript(&aside).iter().any(|text| text.contains("after")));
    assert!(!transcript(bench.home.path()).iter().any(|text| text.contains("after")));
    bench.start();
    talked(&mut bench, "again", 3);
    bench.terminate();

    let database = path.join("petasos.db");
    let mut bytes = fs::read(&database).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&database, bytes).expect("writable");
    let changed = failed(&bench.run(&["restore", restore[1], "--force"]), 1);
    assert!(changed.contains("was changed") && changed.contains("next:"), "{changed}");
    let absent = failed(&bench.run(&["restore", "/nonexistent"]), 1);
    assert!(absent.contains("is no backup"), "{absent}");
}

#[test]
fn restore_refuses_a_newer_home_whose_settled_messages_were_pruned() {
    let mut bench = Bench::new();
    bench.start();
    talked(&mut bench, "before", 1);
    let path = backup(&bench, &["--include-secrets"]);
    talked(&mut bench, "after", 2);
    bench.terminate();
    let raw = rusqlite::Connection::open(bench.database()).expect("a database");
    raw.execute("DELETE FROM inbox WHERE state = 'settled'", []).expect("pruned");
    raw.close().expect("closed");
    let newer = failed(&bench.run(&["restore", path.to_str().expect("UTF-8")]), 1);
    assert!(newer.contains("newer than the backup"), "{newer}");
}

#[test]
fn restore_refuses_a_fresh_home_used_after_an_old_backup() {
    let mut bench = Bench::new();
    bench.start();
    for (count, text) in ["one", "two", "three"].into_iter().enumerate() {
        talked(&mut bench, text, count + 1);
    }
    let path = backup(&bench, &["--include-secrets"]);
    bench.terminate();
    fs::remove_file(bench.home.path().join(".petasos-db")).expect("removed");
    fs::remove_file(bench.database()).expect("removed");
    // A stop leaves the log behind when a reader outlives the writer.
    for ending in ["-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{ending}", bench.database().display()));
    }
    bench.start();
    talked(&mut bench, "four", 4);
    bench.terminate();
    let newer = failed(&bench.run(&["restore", path.to_str().expect("UTF-8")]), 1);
    assert!(newer.contains("newer than the backup"), "{newer}");
    assert!(transcript(bench.home.path()).iter().any(|text| text.contains("four")));
}

/// The backup has an open turn (chat 101) and an undelivered answer (chat 102); both end well after it was made.
#[test]
fn restored_work_is_reported_or_marked_and_never_repeated_unmarked() {
    let mut bench = Bench::with(&format!("telegram:\n  home_channel: \"{OWNER}\"\n"));
    bench.start();
    bench.telegram.on("sendMessage").chat(102).always().does(Fault::too_many(1));
    bench.telegram.push_text(102, 102, "quick");
    bench
        .telegram
        .wait_until(SOON, |world| {
            world.calls_of("sendMessage").any(|call| call.chat() == Some(102)).then_some(())
        })
        .expect("the answer is refused for now");
    let gate = bench.model.gate(Point::Before);
    bench.telegram.push_text(101, 101, "slow");
    assert!(gate.wait(SOON), "the turn is open");
    let path = backup(&bench, &["--include-secrets"]);
    gate.open();
    bench.telegram.clear_faults();
    bench.wait_messages(101, 1);
    bench.wait_messages(102, 1);
    bench.settle();
    bench.terminate();
    bench.telegram.push_text(103, 103, "while it was stopped");
    let calls = bench.model.requests().len();
    let restored = fine(&bench.run(&["restore", path.to_str().expect("UTF-8"), "--force"]));
    assert!(restored.contains("not answered again"), "{restored}");
    bench.start();
    for (chat, text) in [(101, "slow"), (103, "while it was stopped")] {
        let told = bench.telegram.wait_until(SOON, |world| {
            world.texts(chat).iter().any(|it| it.contains(&format!("• {text}"))).then_some(())
        });
        assert!(told.is_some(), "{:?}", bench.telegram.texts(chat));
    }
    let copies = bench.wait_messages(102, 2);
    assert!(copies[1].contains("may be a duplicate"), "the copy is marked: {copies:?}");
    let told = bench.wait_messages(OWNER, 1).join("\n");
    assert!(told.contains("restored from a backup") && told.contains("may have been answered: 1;"), "{told}");
    bench.settle();
    assert_eq!(bench.model.requests().len(), calls, "nothing ran again");
    assert_eq!(bench.telegram.texts(101).len(), 2);
}

#[test]
fn the_next_backup_removes_what_killed_ones_left() {
    let mut bench = Bench::new();
    bench.start();
    talked(&mut bench, "hello", 1);
    let path = backup(&bench, &[]);
    let directory = path.parent().expect("a directory");
    let left = directory.join("petasos-backup-20200101T000000000Z.part");
    let other = directory.join("mine.part");
    for made in [&left, &other] {
        fs::create_dir(made).expect("made");
        fs::write(made.join("petasos.db"), "half").expect("written");
    }
    backup(&bench, &[]);
    assert!(!left.exists() && other.exists() && path.exists());

    let lock = fs::File::create(directory.join(".lock")).expect("a lock");
    lock.lock().expect("locked");
    let busy = failed(&bench.run(&["backup"]), 1);
    assert!(busy.contains("another backup is being made") && busy.contains("next:"), "{busy}");
}

#[test]
fn a_backup_says_how_much_space_is_missing() {
    let mut bench = Bench::new();
    bench.start();
    talked(&mut bench, "hello", 1);
    // No space is free on this file system.
    let full = failed(&bench.run(&["backup", "--out", "/proc/petasos-backup"]), 1);
    assert!(full.contains("MB are needed") && full.contains("0 MB are free"), "{full}");
}
