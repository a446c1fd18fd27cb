//! Answers that were not delivered, or with unknown outcome, when the process ended.

use petasos_core::outbox::State;
use petasos_fakes::telegram::Fault;

use crate::support::{GatewayFixture, eventually};

#[test]
fn resends_answer_of_unknown_outcome_with_mark() {
    let mut world = GatewayFixture::new(|_| {});
    world.telegram.on("sendMessage").does(Fault::HangAfter);
    world.telegram.push_text(7, 7, "hello");
    world.expect_messages(7, &["echo: hello"]);
    world.crash();
    world.start();
    world.expect_last_message(7, "Recovered reply");
    world.wait_until_delivered();
    world.restart();
    world.telegram.push_text(7, 7, "/help");
    world.expect_last_message(7, "/resume");
    let texts = world.telegram.texts(7);
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert!(texts[1].ends_with("echo: hello"), "{texts:?}");
    assert_eq!(world.model.requests().len(), 1, "the turn is not run again");
}

#[test]
fn sends_unsent_answer_once_without_mark() {
    let mut world = GatewayFixture::new(|_| {});
    world.telegram.on("sendMessage").does(Fault::status(500, "Internal Server Error"));
    world.telegram.push_text(7, 7, "hello");
    eventually("postponed", || {
        let due = world.read(|reader| reader.items_in(State::Due, 10));
        due.iter().any(|item| item.last_error.is_some()).then_some(())
    });
    world.crash();
    world.start();
    world.expect_messages(7, &["echo: hello"]);
    world.wait_until_delivered();
    world.telegram.push_text(7, 7, "/help");
    world.expect_last_message(7, "/resume");
    assert_eq!(world.telegram.texts(7).len(), 2, "{:?}", world.telegram.texts(7));
    assert_eq!(world.model.requests().len(), 1, "the turn is not run again");
}
