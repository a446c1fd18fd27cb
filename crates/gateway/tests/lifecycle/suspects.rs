//! Turns that were executing when the process died: blamed, held, resumed one at a time, given up.

use std::sync::Arc;
use std::time::Duration;

use petasos_core::SessionKey;
use petasos_core::journal::Outcome;
use petasos_core::outbox::State;
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Point};
use petasos_gateway::home::{boots, counts};

use super::corners::accepted_before;
use super::resume::hears;
use super::stop::RESTART;
use crate::support::planted::{Planted, Tail};
use crate::support::{SOON, Setup, World, eventually, key};

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(200);

/// The breaker trips at this start (0: never); suspects wait for `stable`.
fn tripping_at(max_restarts: usize, stable: Duration) -> impl FnOnce(&mut Setup) {
    move |setup| {
        setup.lifetime.loop_guard.max_restarts = max_restarts;
        setup.lifetime.loop_guard.stable = stable;
    }
}

fn open_turn(chat: i64) -> Planted {
    Planted { tail: Tail::OpenTurn, ..Planted::new(chat) }
}

/// How often the open turn of a chat was blamed for a crash.
fn blamed(world: &World, chat: i64) -> Option<u32> {
    let key = key(chat);
    world.read(move |reader| Ok(reader.open_turn_of(&key)?.map(|turn| turn.crashes)))
}

fn wants(world: &mut World, stable: Duration) {
    world.setup.lifetime.loop_guard.stable = stable;
}

#[test]
fn held_suspect_is_resumed_by_itself_after_the_wait_its_chat_was_told() {
    let mut world = World::idle(tripping_at(1, NEVER));
    world.plant(&open_turn(7));
    world.start();
    world.sees(7, "run for about 3600 seconds without another restart");
    hears(&world, 8);
    // The wait grows with every start: 2 hours, which the notice covers roughly, then 3 hours, then no more.
    for chat in 21..=23 {
        world.crash();
        world.start();
        hears(&world, chat);
    }
    world.sees(7, "run for about 10800 seconds without another restart");
    assert_eq!(blamed(&world, 7), Some(1), "it did not run when the others died");
    assert_eq!(world.failures(7), 1);
    assert!(world.model.requests().iter().all(|it| it.last_user == "are you there?"));
    wants(&mut world, SHORT);
    world.restart();
    world.sees(7, "the question before");
    assert_eq!(world.count(7, "Your message is kept"), 2, "{:?}", world.telegram.texts(7));
    let file = std::fs::read_to_string(boots::path(world.home())).expect("the breaker's file");
    assert_eq!(file.matches(',').count(), 4, "five starts had a suspect: {file}");
}

#[test]
fn chat_of_a_held_suspect_is_notified_in_the_first_commit_of_a_start() {
    let mut world = World::idle(tripping_at(1, NEVER));
    world.plant(&open_turn(7));
    world.start();
    // No wait: the commit that takes over enqueues the notice, before anything else of the process runs.
    let enqueued = world.read(|reader| {
        let states = [State::Due, State::Sending, State::Done];
        Ok(states
            .map(|state| reader.items_in(state, 10))
            .into_iter()
            .collect::<Result<Vec<_>, _>>()?
            .concat())
    });
    let kept = enqueued.iter().filter(|item| item.draft.text.contains("Your message is kept"));
    assert!(kept.count() > 0, "{enqueued:?}");
}

#[test]
fn messages_behind_a_held_suspect_wait_for_it() {
    let mut world = World::idle(tripping_at(1, NEVER));
    world.plant(&open_turn(7));
    accepted_before(&world, 7, "first?");
    world.start();
    world.sees(7, "Your message is kept");
    world.telegram.push_text(7, 7, "second?");
    world.ends_with(7, "Queued for the next turn");
    world.telegram.push_text(7, 7, "/status");
    world.ends_with(7, "continues by itself soon");
    assert_eq!(world.model.requests().len(), 0);
    wants(&mut world, SHORT);
    world.restart();
    world.sees(7, "the question before");
    world.sees(7, "second?");
    assert_eq!(world.model.requests().len(), 2);
}

#[test]
fn stop_drops_a_held_suspect() {
    let mut world = World::idle(tripping_at(1, NEVER));
    world.plant(&open_turn(7));
    world.start();
    world.sees(7, "Your message is kept");
    world.telegram.push_text(7, 7, "/stop");
    world.ends_with(7, "Stopped. The session goes on.");
    assert_eq!(blamed(&world, 7), None);
    world.telegram.push_text(7, 7, "are you there?");
    world.ends_with(7, "are you there?");
    assert_eq!(world.model.requests().len(), 1);
}

#[test]
fn stop_turn_drops_a_held_suspect_that_has_no_session_entry() {
    let mut world = World::idle(tripping_at(1, NEVER));
    world.plant(&open_turn(7));
    world.start();
    let stop = |world: &World, chat: i64| {
        world.runtime.block_on(world.handle().stop_turn(&key(chat))).expect("it runs")
    };
    assert!(!stop(&world, 8), "there is nothing to stop");
    let status = world.runtime.block_on(world.handle().status()).expect("a status");
    assert_eq!(status.sessions, 0, "and no session is started for that");
    assert!(stop(&world, 7));
    assert_eq!(blamed(&world, 7), None);
    assert!(!stop(&world, 7), "it is stopped already");
    world.telegram.push_text(7, 7, "are you there?");
    world.ends_with(7, "are you there?");
    assert_eq!(world.model.requests().len(), 1);
}

#[test]
fn turn_left_open_by_a_stop_is_no_suspect() {
    let mut world = World::with(tripping_at(1, NEVER));
    let gate = world.thinks_long_about("slow");
    world.telegram.push_text(7, 7, "slow");
    assert!(gate.wait(SOON));
    world.leave(RESTART);
    gate.open();
    world.start();
    world.sees(7, "echo: [System note:");
    assert!(!boots::path(world.home()).exists());
}

#[test]
fn respawn_storm_holds_suspects_and_nothing_else() {
    let mut world = World::idle(|setup| {
        setup.lifetime.loop_guard.max_restarts = 0;
        setup.lifetime.storm_pause = Some(NEVER);
    });
    world.plant(&open_turn(7));
    accepted_before(&world, 9, "and me?");
    world.start();
    world.sees(7, "Your message is kept");
    world.ends_with(9, "echo: and me?");
    hears(&world, 8);
    world.setup.lifetime.storm_pause = None;
    world.restart();
    world.sees(7, "the question before");
}

/// A model that never answers "poison" and answers "slow" when the gate opens.
fn poison_and_slow(world: &World) -> (Arc<Gate>, Arc<Gate>) {
    let (poison, slow) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
    let gates = (poison.clone(), slow.clone());
    world.model.respond(move |request| {
        let answer = Answer::text(format!("echo: {}", request.last_user));
        match &request.last_user {
            text if text.ends_with("poison") => answer.gate(Point::Before, &gates.0),
            text if text.ends_with("slow") => answer.gate(Point::Before, &gates.1),
            _other => answer,
        }
    });
    (poison, slow)
}

fn asked(world: &World, text: &str) -> usize {
    world.model.requests().iter().filter(|it| it.last_user.ends_with(text)).count()
}

#[track_caller]
fn asks(world: &World, text: &str, times: usize) {
    eventually("asked", || (asked(world, text) >= times).then_some(()));
}

/// Every turn has ended: a streamed answer is shown earlier.
#[track_caller]
fn settles(world: &World) {
    eventually("settled", || world.read(|reader| reader.open_turns()).is_empty().then_some(()));
}

/// Chat 7 asked for a poison turn, which is given up; chat 8 was its neighbour. Gives the number of the turn.
fn given_up(world: &mut World, text: &str) -> i64 {
    let (_poison, slow) = poison_and_slow(world);
    world.telegram.push_text(7, 7, text);
    asks(world, "poison", 1);
    world.telegram.push_text(8, 8, "slow");
    asks(world, "slow", 1);
    let turn = world.read(|reader| reader.open_turn_of(&key(7))).expect("an open turn").id.0;
    world.crash();
    world.start();
    // Both are resumed at once: one crash is no loop.
    asks(world, "poison", 2);
    asks(world, "slow", 2);
    world.crash();
    world.setup.lifetime.storm_pause = Some(SHORT);
    world.start();
    asks(world, "poison", 3);
    assert_eq!((asked(world, "slow"), blamed(world, 8)), (2, Some(2)), "one at a time");
    world.crash();
    slow.open();
    world.start();
    world.sees(7, "interrupted 3 times while working on it, so I have stopped trying");
    world.sees(8, "slow");
    assert_eq!(asked(world, "poison"), 3);
    settles(world);
    turn
}

#[test]
fn suspects_at_their_last_try_are_held_although_the_breaker_is_off() {
    let mut world = World::with(tripping_at(0, NEVER));
    let (_poison, slow) = poison_and_slow(&world);
    world.telegram.push_text(7, 7, "poison");
    world.telegram.push_text(8, 8, "slow");
    for times in 1..=2 {
        asks(&world, "poison", times);
        asks(&world, "slow", times);
        world.crash();
        world.start();
    }
    for chat in [7, 8] {
        world.sees(chat, "run for about");
        assert_eq!(blamed(&world, chat), Some(2));
    }
    hears(&world, 9);
    assert_eq!((asked(&world, "poison"), asked(&world, "slow")), (2, 2), "neither is resumed yet");
    assert!(!boots::path(world.home()).exists());
    slow.open();
    wants(&mut world, SHORT);
    world.restart();
    asks(&world, "poison", 3);
    world.crash();
    world.start();
    world.sees(7, "interrupted 3 times while working on it, so I have stopped trying");
    world.sees(8, "slow");
    settles(&world);
    assert_eq!(world.count(8, "I have stopped trying"), 0, "{:?}", world.telegram.texts(8));
}

#[test]
fn poison_turn_is_given_up_and_its_neighbour_is_answered() {
    let mut world = World::with(tripping_at(0, NEVER));
    let turn = given_up(&mut world, "poison");
    assert_eq!(world.read(|reader| reader.settled(Outcome::Dead, 10)).len(), 1);
    assert!(world.entry(7).is_some_and(|entry| entry.suspended), "three blamed crashes in a row");
    assert!(world.entry(8).is_some_and(|entry| !entry.suspended));
    assert_eq!(world.failures(8), 0);
    eventually("forgotten", || (!counts::path(world.home()).exists()).then_some(()));
    let notice = world.telegram.texts(7).pop().expect("a notice");
    for command in [format!("/retry {turn}"), format!("/drop {turn}")] {
        assert!(notice.contains(&command), "{notice}");
    }
}

#[test]
fn given_up_message_is_retried_edited_and_dropped() {
    let mut world = World::with(tripping_at(0, NEVER));
    let turn = given_up(&mut world, "poison");
    world.telegram.push_text(8, 8, format!("/retry {turn}"));
    world.ends_with(8, "I gave up no message of that number here.");
    world.telegram.push_text(7, 7, format!("/retry {turn} rephrased"));
    world.ends_with(7, "rephrased");
    settles(&world);
    world.telegram.push_text(7, 7, format!("/retry {turn}"));
    asks(&world, "poison", 4);
    world.telegram.push_text(7, 7, "/stop");
    world.ends_with(7, "Stopped. The session goes on.");
    world.telegram.push_text(7, 7, format!("/drop {turn}"));
    world.ends_with(7, "Dropped.");
    assert!(world.read(|reader| reader.settled(Outcome::Dead, 10)).is_empty());
    world.telegram.push_text(7, 7, format!("/drop {turn}"));
    world.ends_with(7, "I gave up no message of that number here.");
}

#[test]
fn retry_of_a_given_up_queued_message_repeats_its_words_only() {
    let mut world = World::with(tripping_at(0, NEVER));
    let turn = given_up(&mut world, "/queue poison");
    world.model.respond(|request| Answer::text(format!("asked: {}", request.last_user)));
    world.telegram.push_text(7, 7, format!("/retry {turn}"));
    world.ends_with(7, "]\n\npoison");
}

#[test]
fn suspect_that_runs_for_the_stable_interval_is_cleared() {
    let mut world = World::idle(tripping_at(1, SHORT));
    let slow = Arc::new(Gate::new());
    world.model.respond({
        let slow = slow.clone();
        move |_| Answer::text("echo").gate(Point::Before, &slow)
    });
    world.plant(&open_turn(7));
    world.plant(&open_turn(8));
    world.start();
    // Neither has ended: the second is resumed because the first ran for long enough.
    assert!(slow.wait_for(2, SOON));
    let cleared = |world: &World| world.read(|reader| reader.meta("suspects")).as_deref() == Some("{}");
    eventually("both are cleared", || cleared(&world).then_some(()));
    world.crash();
    slow.open();
    world.setup.lifetime.loop_guard.max_restarts = 0;
    world.start();
    for chat in [7, 8] {
        world.ends_with(chat, "echo");
    }
}

#[test]
fn page_conversation_of_a_held_suspect_shows_the_notice() {
    let mut world = World::with(tripping_at(1, NEVER));
    let gate = world.thinks_long_about("slow");
    let key: SessionKey = world.say("c1", "slow");
    assert!(gate.wait(SOON));
    world.crash();
    world.start();
    let told = world.read(move |reader| {
        let session = reader.entry(&key)?.expect("an entry").session_id;
        let rows = reader.rows_last(&session, 100)?;
        Ok(rows.iter().filter(|row| row.message.content.contains("Your message is kept")).count())
    });
    assert_eq!(told, 1);
}
