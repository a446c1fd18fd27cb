//! Messages whose handling fails again and again: given up, reported to their authors, and not blocking other messages.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod support;

use std::time::Duration;

use petasos_fakes::model::Answer;
use petasos_gateway::DATABASE;
use petasos_store::Store;
use rusqlite::Connection;
use support::{World, eventually};

const GIVEN_UP: &str = "I could not handle this message";

/// A world whose store refuses some rows of chat 7, as it would if what is stored about the chat could not be used.
fn world_refusing(tables: &[&str]) -> World {
    let mut world = World::idle(|setup| setup.settings.busy_ack = false);
    let database = world.home().join(DATABASE);
    Store::open(&database).unwrap().close().unwrap();
    let store = Connection::open(&database).unwrap();
    for table in tables {
        let refuse = format!(
            "CREATE TRIGGER refused_{table} BEFORE INSERT ON {table}
             WHEN NEW.session_key = 'agent:main:telegram:dm:7' BEGIN SELECT RAISE(ABORT, 'refused'); END"
        );
        store.execute_batch(&refuse).unwrap();
    }
    drop(store);
    world.model.respond(|request| Answer::text(format!("echo: {}", request.last_user)));
    world.start();
    world
}

fn given_up(world: &World) -> i64 {
    let store = Connection::open(world.home().join(DATABASE)).unwrap();
    store.query_row("SELECT count(*) FROM inbox WHERE outcome = 'dead'", [], |row| row.get(0)).unwrap()
}

#[test]
fn tells_the_author_of_a_message_that_cannot_be_handled() {
    let world = world_refusing(&["turns"]);
    world.telegram.push_text(7, 7, "hello");
    world.telegram.push_text(8, 8, "hello");
    world.sees(7, GIVEN_UP);
    world.shows(8, &["echo: hello"]);
    assert_eq!((given_up(&world), world.count(7, GIVEN_UP)), (1, 1));
    let listed = world.read(|reader| reader.unreadable_events(9));
    assert!(listed.len() == 1 && listed[0].why.contains("refused"), "{listed:?}");
    assert_eq!(world.model.requests().len(), 1, "the model is asked for the other chat only");
}

#[test]
fn settles_a_message_whose_notice_is_refused_too() {
    let world = world_refusing(&["turns", "outbox"]);
    world.telegram.push_text(7, 7, "hello");
    eventually("given up", || (given_up(&world) == 1).then_some(()));
    world.telegram.push_text(8, 8, "hello");
    world.shows(8, &["echo: hello"]);
    assert_eq!((given_up(&world), world.read(|reader| reader.unreadable_count())), (1, 1), "once");
}

/// A session that fails rests for five seconds; after three failures in a row it gives up its first message by itself.
#[test]
fn gives_up_the_next_message_of_a_session_that_failed_three_times() {
    let world = world_refusing(&["turns"]);
    for number in 1..=4 {
        world.telegram.push_text(7, 7, format!("message {number}"));
        eventually_within(Duration::from_secs(30), || given_up(&world) == number);
    }
    eventually("told", || (world.count(7, GIVEN_UP) == 4).then_some(()));
    assert_eq!(world.read(|reader| reader.unreadable_count()), 4);
    assert!(world.model.requests().is_empty());
    world.telegram.push_text(8, 8, "hello");
    world.shows(8, &["echo: hello"]);
}

#[track_caller]
fn eventually_within(most: Duration, look: impl Fn() -> bool) {
    let until = std::time::Instant::now() + most;
    while !look() {
        assert!(std::time::Instant::now() < until, "never");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}
