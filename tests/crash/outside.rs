//! Other programs use the database of a running gateway, or remove its files.

use std::ops::Range;

use crate::support::outside::{OutsideClient, kills};
use crate::support::{Bench, SOON, eventually};

const MARK: &str = "Recovered reply";
const EACH: i64 = 10;

fn push(bench: &Bench, chats: Range<i64>) {
    for chat in chats {
        bench.telegram.push_text(chat, chat, format!("hello from {chat}"));
    }
}

fn answered(bench: &Bench, chats: Range<i64>) -> usize {
    let answer = |chat: i64| format!("echo: hello from {chat}");
    bench.telegram.look(|world| {
        chats.filter(|chat| world.texts(*chat).iter().any(|text| text.ends_with(&answer(*chat)))).count()
    })
}

/// Each chat has its answer, and further copies only with a mark.
#[track_caller]
fn no_loss_and_no_unmarked_duplicate(bench: &Bench, chats: Range<i64>) {
    let all = usize::try_from(chats.end - chats.start).expect("a count");
    eventually("every message is answered", || answered(bench, chats.clone()) == all);
    bench.settle();
    for chat in chats {
        let (answer, texts) = (format!("echo: hello from {chat}"), bench.telegram.texts(chat));
        let unmarked = texts.iter().filter(|text| **text == answer).count();
        let marked = texts.iter().filter(|text| text.contains(MARK)).count();
        assert!(unmarked <= 1, "an unmarked duplicate in chat {chat}: {texts:?}");
        assert_eq!(unmarked + marked, texts.len(), "something else in chat {chat}: {texts:?}");
    }
}

/// These tests are not about restart loops.
fn forget_starts(bench: &Bench) {
    for name in ["gateway/restart_loop.json", "gateway-starts.log"] {
        let _ = std::fs::remove_file(bench.home.path().join(name));
    }
}

fn stored(bench: &Bench) -> i64 {
    let db = rusqlite::Connection::open(bench.database()).expect("the database");
    db.query_row("SELECT count(*) FROM seen", [], |row| row.get(0)).expect("a count")
}

#[test]
fn kills_lose_nothing_while_another_program_opens_and_closes_the_database() {
    let mut bench = Bench::new();
    bench.start();
    let client = OutsideClient::start(&bench.database(), "inbox");
    let first = 1000;
    let mut last = first;
    for round in 0..kills() {
        let batch = last..last + EACH;
        last = batch.end;
        client.finish_a_round();
        push(&bench, batch.clone());
        // Killed after none, some or all of the batch.
        let enough = usize::try_from(round * 3 % 11).expect("a count");
        eventually("so many answers", || answered(&bench, batch.clone()) >= enough);
        if round % 2 == 1 {
            client.finish_a_round();
        }
        bench.kill();
        forget_starts(&bench);
        bench.start();
        eventually("the batch is answered", || answered(&bench, batch.clone()) == EACH as usize);
    }
    no_loss_and_no_unmarked_duplicate(&bench, first..last);
    drop(client);
    bench.kill();
    assert_eq!(stored(&bench), last - first, "messages known after the last kill");
}

#[test]
fn companions_read_what_was_committed_last_beside_other_programs() {
    let mut bench = Bench::new();
    bench.start();
    let client = OutsideClient::start(&bench.database(), "inbox");
    for chat in 1..6 {
        client.finish_a_round();
        push(&bench, chat..chat + 1);
        bench.wait_messages(chat, 1);
        let listed = bench.run(&["sessions", "--json"]);
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).expect("JSON");
        let count = listed.as_array().or_else(|| listed["sessions"].as_array()).map(Vec::len);
        assert_eq!(count, usize::try_from(chat).ok(), "{listed}");
    }
}

#[test]
fn recovers_removed_files_and_tells_the_owner() {
    for removed in ["-wal", "-shm", ""] {
        let mut bench = Bench::with("");
        std::fs::write(bench.home.path().join(".env"), "TELEGRAM_HOME_CHANNEL=77\n").expect("written");
        bench.start();
        push(&bench, 1..4);
        eventually("answers", || answered(&bench, 1..4) == 3);
        bench.settle();
        let file = format!("{}{removed}", bench.database().display());
        std::fs::remove_file(&file).expect("removed");
        push(&bench, 4..7);
        eventually("answers after the recovery", || answered(&bench, 4..7) == 3);
        let told = bench.telegram.wait_until(SOON, |world| {
            world.texts(77).iter().any(|text| text.contains("files of my database")).then_some(())
        });
        assert!(told.is_some(), "{:?}", bench.telegram.texts(77));
        assert_eq!(bench.status()["store_recoveries"], 1);
        assert_eq!(bench.status()["store_trouble"], serde_json::Value::Null);
        bench.kill();
        forget_starts(&bench);
        bench.start();
        push(&bench, 7..8);
        no_loss_and_no_unmarked_duplicate(&bench, 1..8);
        bench.kill();
        assert_eq!(stored(&bench), 7, "messages known after {removed:?} was removed");
    }
}

#[test]
fn notices_removed_files_without_a_commit() {
    let mut bench = Bench::new();
    bench.start();
    push(&bench, 1..2);
    bench.wait_messages(1, 1);
    bench.settle();
    std::fs::remove_file(format!("{}-wal", bench.database().display())).expect("removed");
    eventually("the recovery", || bench.status()["store_recoveries"] == 1);
    bench.kill();
    assert_eq!(stored(&bench), 1);
}

#[test]
fn acknowledges_nothing_and_says_so_while_recovery_fails() {
    let mut bench = Bench::new();
    bench.start();
    push(&bench, 1..2);
    bench.wait_messages(1, 1);
    bench.settle();
    // A directory in the place of the copy: the recovery cannot write it.
    let blocked = format!("{}-recovery~", bench.database().display());
    std::fs::create_dir(&blocked).expect("made");
    std::fs::remove_file(format!("{}-wal", bench.database().display())).expect("removed");
    push(&bench, 2..5);
    eventually("the status tells", || bench.status()["store_trouble"].is_string());
    assert_eq!(bench.status()["state"], "degraded");
    assert_eq!(answered(&bench, 2..5), 0);
    assert!(bench.telegram.pending_updates() > 0, "the platform still has them");
    std::fs::remove_dir(&blocked).expect("removed");
    no_loss_and_no_unmarked_duplicate(&bench, 1..5);
    assert_eq!(bench.status()["store_recoveries"], 1);
    bench.kill();
    assert_eq!(stored(&bench), 4);
}

#[test]
fn stop_right_after_the_log_was_removed_loses_nothing() {
    for copy_is_possible in [true, false] {
        let mut bench = Bench::new();
        bench.start();
        push(&bench, 1..2);
        bench.wait_messages(1, 1);
        bench.settle();
        if !copy_is_possible {
            std::fs::create_dir(format!("{}-recovery~", bench.database().display())).expect("made");
        }
        std::fs::remove_file(format!("{}-wal", bench.database().display())).expect("removed");
        let (_, said, _) = bench.terminate();
        assert_eq!(stored(&bench), 1, "{said}");
    }
}
