//! Answers that were found but not, or not surely, delivered when the process ended.

use petasos_core::outbox::State;
use petasos_fakes::telegram::Fault;

use crate::support::{World, eventually};

#[test]
fn an_answer_that_may_have_arrived_comes_once_more_with_a_mark() {
    let mut world = World::new(|_| {});
    world.telegram.on("sendMessage").does(Fault::HangAfter);
    world.telegram.push_text(7, 7, "hello");
    world.shows(7, &["echo: hello"]);
    world.crash();
    world.start();
    world.ends_with(7, "Recovered reply");
    world.owes_nothing();
    world.restart();
    world.telegram.push_text(7, 7, "/help");
    world.ends_with(7, "/resume");
    let texts = world.telegram.texts(7);
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert!(texts[1].ends_with("echo: hello"), "{texts:?}");
    assert_eq!(world.model.requests().len(), 1, "the turn is not run again");
}

#[test]
fn an_answer_that_was_not_sent_comes_once_and_unmarked() {
    let mut world = World::new(|_| {});
    world.telegram.on("sendMessage").does(Fault::status(500, "Internal Server Error"));
    world.telegram.push_text(7, 7, "hello");
    eventually("postponed", || {
        let owed = world.read(|reader| reader.items_in(State::Due, 10));
        owed.iter().any(|item| item.last_error.is_some()).then_some(())
    });
    world.crash();
    world.start();
    world.shows(7, &["echo: hello"]);
    world.owes_nothing();
    world.telegram.push_text(7, 7, "/help");
    world.ends_with(7, "/resume");
    assert_eq!(world.telegram.texts(7).len(), 2, "{:?}", world.telegram.texts(7));
    assert_eq!(world.model.requests().len(), 1, "the turn is not run again");
}
