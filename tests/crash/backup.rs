//! Backup and restore: the procedures of docs/operations.md.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::support::{ProgramFixture, SOON, expect_failure, expect_json, expect_success};
use petasos_fakes::model::Point;
use petasos_fakes::telegram::Fault;

const OWNER: i64 = 900;

fn make_backup(fixture: &ProgramFixture, more: &[&str]) -> PathBuf {
    let made = expect_json(&fixture.run(&[&["backup", "--json"], more].concat()));
    PathBuf::from(made["path"].as_str().expect("a path"))
}

fn exchange(fixture: &mut ProgramFixture, text: &str, count: usize) {
    fixture.telegram.push_text(101, 101, text);
    fixture.wait_messages(101, count);
    fixture.wait_idle();
}

fn transcript(home: &Path) -> Vec<String> {
    let db = rusqlite::Connection::open(home.join("petasos.db")).expect("a database");
    let mut read = db.prepare("SELECT content FROM messages WHERE role = 'user' ORDER BY id").expect("sql");
    read.query_map([], |row| row.get(0)).expect("rows").map(|row| row.expect("text")).collect()
}

#[test]
fn backs_up_a_running_gateway_and_restores_into_a_new_home() {
    let mut fixture = ProgramFixture::new();
    fs::create_dir_all(fixture.home.path().join("memories/people")).expect("a directory");
    fs::write(fixture.home.path().join("memories/MEMORY.md"), "likes tea").expect("written");
    fs::write(fixture.home.path().join(".env"), "SECRET_ONE=abc\n").expect("written");
    fixture.start();
    exchange(&mut fixture, "before", 1);
    let path = make_backup(&fixture, &[]);
    exchange(&mut fixture, "after", 2);
    assert!(!path.join(".env").exists());
    let config = fs::read_to_string(path.join("config.yaml")).expect("a configuration");
    assert!(!config.contains("123:abc") && !config.contains("sk-test"), "{config}");
    assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(path.join("petasos.db")).expect("there").permissions().mode() & 0o777, 0o600);
    let status = expect_success(&fixture.run(&["status"]));
    assert!(status.contains("backup    just now"), "{status}");

    let other = tempfile::tempdir().expect("a directory");
    let home = other.path().join("new");
    let said = expect_success(
        &fixture
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
fn backup_includes_credentials_and_prunes_on_request() {
    let mut fixture = ProgramFixture::new();
    fs::write(fixture.home.path().join(".env"), "SECRET_ONE=abc\n").expect("written");
    fixture.start();
    exchange(&mut fixture, "hello", 1);
    let first = make_backup(&fixture, &["--include-secrets"]);
    assert_eq!(fs::read_to_string(first.join(".env")).expect("there"), "SECRET_ONE=abc\n");
    assert!(fs::read_to_string(first.join("config.yaml")).expect("there").contains("123:abc"));
    let second = make_backup(&fixture, &[]);
    let third = make_backup(&fixture, &["--keep", "2"]);
    assert!(!first.exists() && second.exists() && third.exists());
    let out = fixture.home.path().join("elsewhere");
    make_backup(&fixture, &["--out", out.to_str().expect("UTF-8")]);
    let again = expect_failure(&fixture.run(&["backup", "--out", out.to_str().expect("UTF-8")]), 1);
    assert!(again.contains("exists") && again.contains("next:"), "{again}");
}

#[test]
fn restore_refuses_running_newer_or_changed() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    exchange(&mut fixture, "before", 1);
    let path = make_backup(&fixture, &["--include-secrets"]);
    let restore = ["restore", path.to_str().expect("UTF-8")];
    let held = expect_failure(&fixture.run(&restore), 1);
    assert!(held.contains("another gateway is running"), "{held}");
    exchange(&mut fixture, "after", 2);
    fixture.terminate();
    let newer = expect_failure(&fixture.run(&restore), 1);
    assert!(newer.contains("newer than the backup") && newer.contains("--force"), "{newer}");
    assert!(transcript(fixture.home.path()).iter().any(|text| text.contains("after")));

    let forced = expect_json(&fixture.run(&["restore", restore[1], "--force", "--json"]));
    let aside = PathBuf::from(forced["replaced"].as_str().expect("kept aside"));
    assert!(transcript(&aside).iter().any(|text| text.contains("after")));
    assert!(!transcript(fixture.home.path()).iter().any(|text| text.contains("after")));
    fixture.start();
    exchange(&mut fixture, "again", 3);
    fixture.terminate();

    let database = path.join("petasos.db");
    let mut bytes = fs::read(&database).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&database, bytes).expect("writable");
    let changed = expect_failure(&fixture.run(&["restore", restore[1], "--force"]), 1);
    assert!(changed.contains("was modified") && changed.contains("next:"), "{changed}");
    let absent = expect_failure(&fixture.run(&["restore", "/nonexistent"]), 1);
    assert!(absent.contains("is not a backup"), "{absent}");
}

#[test]
fn restore_refuses_a_newer_home_whose_settled_messages_were_pruned() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    exchange(&mut fixture, "before", 1);
    let path = make_backup(&fixture, &["--include-secrets"]);
    exchange(&mut fixture, "after", 2);
    fixture.terminate();
    let raw = rusqlite::Connection::open(fixture.database()).expect("a database");
    raw.execute("DELETE FROM inbox WHERE state = 'settled'", []).expect("pruned");
    raw.close().expect("closed");
    let newer = expect_failure(&fixture.run(&["restore", path.to_str().expect("UTF-8")]), 1);
    assert!(newer.contains("newer than the backup"), "{newer}");
}

#[test]
fn restore_refuses_a_fresh_home_used_after_an_old_backup() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    for (count, text) in ["one", "two", "three"].into_iter().enumerate() {
        exchange(&mut fixture, text, count + 1);
    }
    let path = make_backup(&fixture, &["--include-secrets"]);
    fixture.terminate();
    fs::remove_file(fixture.home.path().join(".petasos-db")).expect("removed");
    fs::remove_file(fixture.database()).expect("removed");
    // A stop leaves the log behind when a reader outlives the writer.
    for ending in ["-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{ending}", fixture.database().display()));
    }
    fixture.start();
    exchange(&mut fixture, "four", 4);
    fixture.terminate();
    let newer = expect_failure(&fixture.run(&["restore", path.to_str().expect("UTF-8")]), 1);
    assert!(newer.contains("newer than the backup"), "{newer}");
    assert!(transcript(fixture.home.path()).iter().any(|text| text.contains("four")));
}

/// The backup has an open turn (chat 101) and an undelivered answer (chat 102). Both end normally after the backup.
#[test]
fn restored_work_is_reported_or_marked() {
    let mut fixture = ProgramFixture::with_config(&format!("telegram:\n  home_channel: \"{OWNER}\"\n"));
    fixture.start();
    fixture.telegram.on("sendMessage").chat(102).always().does(Fault::too_many(1));
    fixture.telegram.push_text(102, 102, "quick");
    fixture
        .telegram
        .wait_until(SOON, |state| {
            state.calls_of("sendMessage").any(|call| call.chat() == Some(102)).then_some(())
        })
        .expect("the answer is refused temporarily");
    let gate = fixture.model.gate(Point::Before);
    fixture.telegram.push_text(101, 101, "slow");
    assert!(gate.wait(SOON), "the turn has not started");
    let path = make_backup(&fixture, &["--include-secrets"]);
    gate.open();
    fixture.telegram.clear_faults();
    fixture.wait_messages(101, 1);
    fixture.wait_messages(102, 1);
    fixture.wait_idle();
    fixture.terminate();
    fixture.telegram.push_text(103, 103, "while it was stopped");
    let calls = fixture.model.requests().len();
    let restored = expect_success(&fixture.run(&["restore", path.to_str().expect("UTF-8"), "--force"]));
    assert!(restored.contains("not answered again"), "{restored}");
    fixture.start();
    for (chat, text) in [(101, "slow"), (103, "while it was stopped")] {
        let notices = fixture.telegram.wait_until(SOON, |state| {
            state.texts(chat).iter().any(|it| it.contains(&format!("• {text}"))).then_some(())
        });
        assert!(notices.is_some(), "{:?}", fixture.telegram.texts(chat));
    }
    let copies = fixture.wait_messages(102, 2);
    assert!(copies[1].contains("may be a duplicate"), "the copy is not marked: {copies:?}");
    let notices = fixture.wait_messages(OWNER, 1).join("\n");
    assert!(
        notices.contains("restored from a backup") && notices.contains("may have been answered: 1."),
        "{notices}"
    );
    fixture.wait_idle();
    assert_eq!(fixture.model.requests().len(), calls, "a turn ran again");
    assert_eq!(fixture.telegram.texts(101).len(), 2);
}

#[test]
fn next_backup_removes_partial_backups() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    exchange(&mut fixture, "hello", 1);
    let path = make_backup(&fixture, &[]);
    let directory = path.parent().expect("a directory");
    let left = directory.join("petasos-backup-20200101T000000000Z.part");
    let other = directory.join("mine.part");
    for made in [&left, &other] {
        fs::create_dir(made).expect("made");
        fs::write(made.join("petasos.db"), "half").expect("written");
    }
    make_backup(&fixture, &[]);
    assert!(!left.exists() && other.exists() && path.exists());

    let lock = fs::File::create(directory.join(".lock")).expect("a lock");
    lock.lock().expect("locked");
    let busy = expect_failure(&fixture.run(&["backup"]), 1);
    assert!(busy.contains("another backup is being made") && busy.contains("next:"), "{busy}");
}

#[test]
fn backup_reports_missing_disk_space() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    exchange(&mut fixture, "hello", 1);
    // This file system has no free space.
    let full = expect_failure(&fixture.run(&["backup", "--out", "/proc/petasos-backup"]), 1);
    assert!(full.contains("MB needed") && full.contains("0 MB free"), "{full}");
}
