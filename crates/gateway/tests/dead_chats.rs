//! Dead chats: one refusal is enough, and one message from the chat revives it.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod support;

use std::time::Duration;

use petasos_core::dead_chat::DeadChat;
use petasos_core::journal::Write;
use petasos_core::message::{ChatType, Delivery};
use petasos_core::outbox::{Draft, Kind, State};
use petasos_core::{Millis, OutboxId, Route, Source};
use petasos_fakes::telegram::Fault;
use petasos_gateway::{Streaming, clock};
use support::{GatewayFixture, eventually, telegram};

fn enqueue(text: &str) -> Write {
    let route = Route::to_source(&Source::new(telegram(), ChatType::Dm, "7"), Delivery::Push);
    let session_key = None;
    let turn = None;
    let buttons = vec![];
    Write::Enqueue(Draft { route, session_key, turn, kind: Kind::Notice, text: text.into(), buttons })
}

fn mark_dead(at: Millis) -> Write {
    let reason = "Forbidden: bot was blocked by the user".into();
    Write::MarkChatDead { platform: telegram(), chat_id: "7".into(), reason, at }
}

fn dead_chats(fixture: &GatewayFixture) -> Vec<DeadChat> {
    fixture.read(|reader| reader.dead_chats())
}

fn dead_letters(fixture: &GatewayFixture) -> Vec<(OutboxId, String)> {
    let items = fixture.read(|reader| reader.items_in(State::Dead, 10));
    items.into_iter().map(|item| (item.id, item.last_error.unwrap_or_default())).collect()
}

/// A fixture with messages enqueued for a chat that died `age` ago.
fn fixture_with_dead_chat(age: Duration, texts: &[&str]) -> GatewayFixture {
    let fixture = GatewayFixture::idle(|_| {});
    let writes = texts.iter().map(|text| enqueue(text)).chain([mark_dead(clock::now().before(age))]);
    let writes: Vec<_> = writes.collect();
    fixture.write(|tx| tx.apply(&writes, clock::now()));
    fixture
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn one_refusal_kills_a_chat_and_a_message_revives_it() {
    for streaming in [false, true] {
        let mut fixture = GatewayFixture::new(|settings| {
            settings.streaming =
                Streaming { enabled: streaming, gap: Duration::from_millis(50), ..Streaming::default() };
        });
        fixture.telegram.on("sendMessage").always().does(Fault::blocked());
        fixture.telegram.push_text(7, 7, "hello");
        let chats = eventually("marked", || Some(dead_chats(&fixture)).filter(|chats| !chats.is_empty()));
        assert!(chats[0].reason.contains("blocked"), "{chats:?}");
        eventually("given up", || (dead_letters(&fixture).len() == 1).then_some(()));
        assert_eq!(fixture.telegram.calls_of("sendMessage").len(), 1, "streaming: {streaming}");
        fixture.stop();
        fixture.write(|tx| tx.apply(&[enqueue("one"), enqueue("two")], clock::now()));
        fixture.start();
        let items = eventually("given up", || Some(dead_letters(&fixture)).filter(|items| items.len() == 3));
        assert!(items[1..].iter().all(|(_, why)| why.starts_with("dead_target")), "{items:?}");
        assert_eq!(fixture.telegram.calls_of("sendMessage").len(), 1, "streaming: {streaming}");
        fixture.telegram.clear_faults();
        fixture.telegram.push_text(7, 7, "I am back");
        fixture.expect_messages(7, &["echo: I am back"]);
        fixture.wait_until_delivered();
        assert!(dead_chats(&fixture).is_empty());
    }
}

#[test]
fn probes_a_dead_chat_once_a_day() {
    let mut fixture = fixture_with_dead_chat(25 * HOUR, &["one", "two"]);
    fixture.telegram.on("sendMessage").always().does(Fault::blocked());
    fixture.start();
    eventually("given up", || (dead_letters(&fixture).len() == 2).then_some(()));
    assert_eq!(fixture.telegram.calls_of("sendMessage").len(), 1);
    let probed = dead_chats(&fixture)[0].clone();
    assert!(probed.probed_at.is_some() && probed.marked_at < clock::now().before(24 * HOUR), "{probed:?}");

    let mut fixture = fixture_with_dead_chat(25 * HOUR, &["one", "two"]);
    fixture.start();
    fixture.expect_messages(7, &["one", "two"]);
    fixture.wait_until_delivered();
    assert!(dead_chats(&fixture).is_empty());
}

#[test]
fn network_error_of_a_probe_is_no_refusal() {
    let mut fixture = fixture_with_dead_chat(25 * HOUR, &["one"]);
    fixture.telegram.on("sendMessage").does(Fault::status(500, "Internal Server Error"));
    fixture.start();
    let again = fixture
        .telegram
        .wait_until(support::SOON, |it| (it.calls_of("sendMessage").count() >= 2).then_some(()));
    assert!(again.is_some(), "it was tried once");
    fixture.wait_until_delivered();
    assert_eq!(fixture.telegram.texts(7).len(), 1);
    assert!(dead_chats(&fixture).is_empty() && dead_letters(&fixture).is_empty());
}

#[test]
fn retries_a_dead_letter_on_request() {
    let mut fixture = fixture_with_dead_chat(HOUR, &["one"]);
    fixture.start();
    let items = eventually("given up", || Some(dead_letters(&fixture)).filter(|items| items.len() == 1));
    assert!(fixture.telegram.calls_of("sendMessage").is_empty());
    let again = fixture.runtime.block_on(fixture.handle().outbox_retry(items[0].0)).expect("asked");
    assert!(again);
    fixture.expect_messages(7, &["one"]);
    assert!(dead_chats(&fixture).is_empty());
}
