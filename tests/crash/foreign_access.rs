//! Other programs that use the database of a running gateway, or remove its files.

use std::ops::Range;

use crate::support::foreign_client::{ForeignClient, kill_count};
use crate::support::{ProgramFixture, SOON, eventually};

const MARK: &str = "Recovered reply";
const MESSAGES_PER_KILL: i64 = 10;

fn push(fixture: &ProgramFixture, chats: Range<i64>) {
    for chat in chats {
        fixture.telegram.push_text(chat, chat, format!("hello from {chat}"));
    }
}

fn answered(fixture: &ProgramFixture, chats: Range<i64>) -> usize {
    let answer = |chat: i64| format!("echo: hello from {chat}");
    fixture.telegram.read(|state| {
        chats.filter(|chat| state.texts(*chat).iter().any(|text| text.ends_with(&answer(*chat)))).count()
    })
}

#[track_caller]
fn assert_answered_without_unmarked_copies(fixture: &ProgramFixture, chats: Range<i64>) {
    let all = usize::try_from(chats.end - chats.start).expect("a count");
    eventually("every message is answered", || answered(fixture, chats.clone()) == all);
    fixture.wait_idle();
    for chat in chats {
        let answer = format!("echo: hello from {chat}");
        let texts = fixture.telegram.texts(chat);
        let unmarked = texts.iter().filter(|text| **text == answer).count();
        let marked = texts.iter().filter(|text| text.contains(MARK)).count();
        assert!(unmarked <= 1, "an unmarked duplicate in chat {chat}: {texts:?}");
        assert_eq!(unmarked + marked, texts.len(), "something else in chat {chat}: {texts:?}");
    }
}

/// Resets the restart guards, which these tests do not cover.
fn reset_restart_guards(fixture: &ProgramFixture) {
    for name in ["gateway/restart_loop.json", "gateway-starts.log"] {
        let _ = std::fs::remove_file(fixture.home.path().join(name));
    }
}

fn stored_messages(fixture: &ProgramFixture) -> i64 {
    let db = rusqlite::Connection::open(fixture.database()).expect("the database");
    db.query_row("SELECT count(*) FROM seen", [], |row| row.get(0)).expect("a count")
}

#[test]
fn kills_beside_foreign_database_client_lose_nothing() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    let client = ForeignClient::start(&fixture.database(), "inbox");
    let first = 1000;
    let mut last = first;
    for round in 0..kill_count() {
        let batch = last..last + MESSAGES_PER_KILL;
        last = batch.end;
        client.wait_next_round();
        push(&fixture, batch.clone());
        // Killed after none, some or all of the batch.
        let enough = usize::try_from(round * 3 % 11).expect("a count");
        eventually("enough answers", || answered(&fixture, batch.clone()) >= enough);
        if round % 2 == 1 {
            client.wait_next_round();
        }
        fixture.kill();
        reset_restart_guards(&fixture);
        fixture.start();
        eventually("the batch is answered", || {
            answered(&fixture, batch.clone()) == MESSAGES_PER_KILL as usize
        });
    }
    assert_answered_without_unmarked_copies(&fixture, first..last);
    drop(client);
    fixture.kill();
    assert_eq!(stored_messages(&fixture), last - first, "messages known after the last kill");
}

#[test]
fn commands_read_latest_commit_beside_foreign_client() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    let client = ForeignClient::start(&fixture.database(), "inbox");
    for chat in 1..6 {
        client.wait_next_round();
        push(&fixture, chat..chat + 1);
        fixture.wait_messages(chat, 1);
        let listed = fixture.run(&["sessions", "--json"]);
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
        let count = listed.as_array().or_else(|| listed["sessions"].as_array()).map(Vec::len);
        assert_eq!(count, usize::try_from(chat).ok(), "{listed}");
    }
}

#[test]
fn recovers_removed_files_and_notifies_owner() {
    for removed in ["-wal", "-shm", ""] {
        let mut fixture = ProgramFixture::with_config("");
        std::fs::write(fixture.home.path().join(".env"), "TELEGRAM_HOME_CHANNEL=77\n").expect("written");
        fixture.start();
        push(&fixture, 1..4);
        eventually("answers", || answered(&fixture, 1..4) == 3);
        fixture.wait_idle();
        let file = format!("{}{removed}", fixture.database().display());
        std::fs::remove_file(&file).expect("removed");
        push(&fixture, 4..7);
        eventually("answers after the recovery", || answered(&fixture, 4..7) == 3);
        let notice = fixture.telegram.wait_until(SOON, |state| {
            state.texts(77).iter().any(|text| text.contains("files of my database")).then_some(())
        });
        assert!(notice.is_some(), "{:?}", fixture.telegram.texts(77));
        assert_eq!(fixture.status()["store_recoveries"], 1);
        assert_eq!(fixture.status()["store_trouble"], serde_json::Value::Null);
        fixture.kill();
        reset_restart_guards(&fixture);
        fixture.start();
        push(&fixture, 7..8);
        assert_answered_without_unmarked_copies(&fixture, 1..8);
        fixture.kill();
        assert_eq!(stored_messages(&fixture), 7, "messages known after {removed:?} was removed");
    }
}

#[test]
fn notices_removed_files_without_a_commit() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    push(&fixture, 1..2);
    fixture.wait_messages(1, 1);
    fixture.wait_idle();
    std::fs::remove_file(format!("{}-wal", fixture.database().display())).expect("removed");
    eventually("the recovery", || fixture.status()["store_recoveries"] == 1);
    fixture.kill();
    assert_eq!(stored_messages(&fixture), 1);
}

#[test]
fn failing_recovery_is_reported_and_blocks_acknowledgement() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    push(&fixture, 1..2);
    fixture.wait_messages(1, 1);
    fixture.wait_idle();
    // A directory at the path of the copy makes the recovery fail.
    let blocked = format!("{}-recovery~", fixture.database().display());
    std::fs::create_dir(&blocked).expect("made");
    std::fs::remove_file(format!("{}-wal", fixture.database().display())).expect("removed");
    push(&fixture, 2..5);
    eventually("the status reports it", || fixture.status()["store_trouble"].is_string());
    assert_eq!(fixture.status()["state"], "degraded");
    assert_eq!(answered(&fixture, 2..5), 0);
    assert!(fixture.telegram.pending_updates() > 0, "acknowledged without storage");
    std::fs::remove_dir(&blocked).expect("removed");
    assert_answered_without_unmarked_copies(&fixture, 1..5);
    assert_eq!(fixture.status()["store_recoveries"], 1);
    fixture.kill();
    assert_eq!(stored_messages(&fixture), 4);
}

#[test]
fn stop_after_log_removal_loses_nothing() {
    for copy_is_possible in [true, false] {
        let mut fixture = ProgramFixture::new();
        fixture.start();
        push(&fixture, 1..2);
        fixture.wait_messages(1, 1);
        fixture.wait_idle();
        if !copy_is_possible {
            std::fs::create_dir(format!("{}-recovery~", fixture.database().display())).expect("made");
        }
        std::fs::remove_file(format!("{}-wal", fixture.database().display())).expect("removed");
        let (_, said, _) = fixture.terminate();
        assert_eq!(stored_messages(&fixture), 1, "{said}");
    }
}
