//! Messages that fail again and again: given up, reported to their authors, and not blocking other messages.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod support;

use std::time::Duration;

use petasos_fakes::model::Answer;
use petasos_fakes::wait;
use petasos_gateway::DATABASE;
use petasos_store::Store;
use rusqlite::Connection;
use support::{GatewayFixture, eventually};

const GIVEN_UP: &str = "I could not handle this message";

/// A fixture whose store refuses some rows of chat 7, as if its stored data were damaged.
fn fixture_refusing(tables: &[&str]) -> GatewayFixture {
    let mut fixture = GatewayFixture::idle(|setup| setup.settings.busy_ack = false);
    let database = fixture.home().join(DATABASE);
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
    fixture.model.respond(|request| Answer::text(format!("echo: {}", request.last_user)));
    fixture.start();
    fixture
}

fn dead_message_count(fixture: &GatewayFixture) -> i64 {
    let store = Connection::open(fixture.home().join(DATABASE)).unwrap();
    store.query_row("SELECT count(*) FROM inbox WHERE outcome = 'dead'", [], |row| row.get(0)).unwrap()
}

#[test]
fn notifies_the_author_of_an_unhandled_message() {
    let fixture = fixture_refusing(&["turns"]);
    fixture.telegram.push_text(7, 7, "hello");
    fixture.telegram.push_text(8, 8, "hello");
    fixture.expect_message(7, GIVEN_UP);
    fixture.expect_messages(8, &["echo: hello"]);
    assert_eq!((dead_message_count(&fixture), fixture.count(7, GIVEN_UP)), (1, 1));
    let listed = fixture.read(|reader| reader.unreadable_events(9));
    assert!(listed.len() == 1 && listed[0].why.contains("refused"), "{listed:?}");
    assert_eq!(fixture.model.requests().len(), 1, "the model is asked for the other chat only");
}

#[test]
fn settles_a_message_whose_notice_is_refused_too() {
    let fixture = fixture_refusing(&["turns", "outbox"]);
    fixture.telegram.push_text(7, 7, "hello");
    eventually("given up", || (dead_message_count(&fixture) == 1).then_some(()));
    fixture.telegram.push_text(8, 8, "hello");
    fixture.expect_messages(8, &["echo: hello"]);
    assert_eq!(
        (dead_message_count(&fixture), fixture.read(|reader| reader.unreadable_count())),
        (1, 1),
        "once"
    );
}

/// A session that fails rests for five seconds; after three failures in a row it gives up its first message by itself.
#[test]
fn gives_up_next_message_after_three_session_failures() {
    let fixture = fixture_refusing(&["turns"]);
    for number in 1..=4 {
        fixture.telegram.push_text(7, 7, format!("message {number}"));
        wait::eventually("given up", Duration::from_secs(30), || dead_message_count(&fixture) == number);
    }
    eventually("told", || (fixture.count(7, GIVEN_UP) == 4).then_some(()));
    assert_eq!(fixture.read(|reader| reader.unreadable_count()), 4);
    assert!(fixture.model.requests().is_empty());
    fixture.telegram.push_text(8, 8, "hello");
    fixture.expect_messages(8, &["echo: hello"]);
}
