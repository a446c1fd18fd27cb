//! Chats that refuse us: one refusal is enough, and one word from there opens them again.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod support;

use std::time::Duration;

use petasos_core::dead::DeadChat;
use petasos_core::journal::Write;
use petasos_core::message::{ChatType, Delivery};
use petasos_core::outbox::{Draft, Kind, State};
use petasos_core::{Millis, OutboxId, Route, Source};
use petasos_fakes::telegram::Fault;
use petasos_gateway::{Streaming, clock};
use support::{World, eventually, telegram};

fn owed(text: &str) -> Write {
    let route = Route::back_to(&Source::new(telegram(), ChatType::Dm, "7"), Delivery::Push);
    let (session_key, turn, buttons) = (None, None, vec![]);
    Write::Owe(Draft { route, session_key, turn, kind: Kind::Notice, text: text.into(), buttons })
}

fn marked(at: Millis) -> Write {
    let reason = "Forbidden: bot was blocked by the user".into();
    Write::ChatDead { platform: telegram(), chat_id: "7".into(), reason, at }
}

fn dead(world: &World) -> Vec<DeadChat> {
    world.read(|reader| reader.dead_chats())
}

fn given_up(world: &World) -> Vec<(OutboxId, String)> {
    let items = world.read(|reader| reader.items_in(State::Dead, 10));
    items.into_iter().map(|item| (item.id, item.last_error.unwrap_or_default())).collect()
}

/// With what is owed to a chat that was marked so long ago.
fn owing(age: Duration, texts: &[&str]) -> World {
    let world = World::idle(|_| {});
    let writes = texts.iter().map(|text| owed(text)).chain([marked(clock::now().before(age))]);
    let writes: Vec<_> = writes.collect();
    world.write(|tx| tx.apply(&writes, clock::now()));
    world
}

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn one_refusal_is_enough_and_a_word_from_there_opens_the_chat_again() {
    for streaming in [false, true] {
        let mut world = World::new(|settings| {
            settings.streaming =
                Streaming { enabled: streaming, gap: Duration::from_millis(50), ..Streaming::default() };
        });
        world.telegram.on("sendMessage").always().does(Fault::blocked());
        world.telegram.push_text(7, 7, "hello");
        let chats = eventually("marked", || Some(dead(&world)).filter(|chats| !chats.is_empty()));
        assert!(chats[0].reason.contains("blocked"), "{chats:?}");
        eventually("given up", || (given_up(&world).len() == 1).then_some(()));
        assert_eq!(world.telegram.calls_of("sendMessage").len(), 1, "streaming: {streaming}");
        world.stop();
        world.write(|tx| tx.apply(&[owed("one"), owed("two")], clock::now()));
        world.start();
        let items = eventually("given up", || Some(given_up(&world)).filter(|items| items.len() == 3));
        assert!(items[1..].iter().all(|(_, why)| why.starts_with("dead_target")), "{items:?}");
        assert_eq!(world.telegram.calls_of("sendMessage").len(), 1, "streaming: {streaming}");
        world.telegram.clear_faults();
        world.telegram.push_text(7, 7, "I am back");
        world.shows(7, &["echo: I am back"]);
        world.owes_nothing();
        assert!(dead(&world).is_empty());
    }
}

#[test]
fn one_message_a_day_goes_to_a_dead_chat_and_its_fate_decides_for_the_rest() {
    let mut world = owing(25 * HOUR, &["one", "two"]);
    world.telegram.on("sendMessage").always().does(Fault::blocked());
    world.start();
    eventually("given up", || (given_up(&world).len() == 2).then_some(()));
    assert_eq!(world.telegram.calls_of("sendMessage").len(), 1);
    let probed = dead(&world)[0].clone();
    assert!(probed.probed_at.is_some() && probed.marked_at < clock::now().before(24 * HOUR), "{probed:?}");

    let mut world = owing(25 * HOUR, &["one", "two"]);
    world.start();
    world.shows(7, &["one", "two"]);
    world.owes_nothing();
    assert!(dead(&world).is_empty());
}

#[test]
fn a_probe_that_meets_a_bad_network_is_not_a_refusal() {
    let mut world = owing(25 * HOUR, &["one"]);
    world.telegram.on("sendMessage").does(Fault::status(500, "Internal Server Error"));
    world.start();
    let again = world
        .telegram
        .wait_until(support::SOON, |it| (it.calls_of("sendMessage").count() >= 2).then_some(()));
    assert!(again.is_some(), "it was tried once");
    world.owes_nothing();
    assert_eq!(world.telegram.texts(7).len(), 1);
    assert!(dead(&world).is_empty() && given_up(&world).is_empty());
}

#[test]
fn who_asks_for_another_try_gets_it() {
    let mut world = owing(HOUR, &["one"]);
    world.start();
    let items = eventually("given up", || Some(given_up(&world)).filter(|items| items.len() == 1));
    assert!(world.telegram.calls_of("sendMessage").is_empty());
    let again = world.runtime.block_on(world.handle().outbox_retry(items[0].0)).expect("asked");
    assert!(again);
    world.shows(7, &["one"]);
    assert!(dead(&world).is_empty());
}
