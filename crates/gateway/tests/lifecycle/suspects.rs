//! Suspects, turns that were executing in a crash: counted, held, resumed one at a time, given up.

use std::sync::Arc;
use std::time::Duration;

use petasos_core::SessionKey;
use petasos_core::journal::MessageOutcome;
use petasos_core::outbox::State;
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Point};
use petasos_gateway::home::{boots, counts};

use super::edge_cases::accepted_before;
use super::resume::hears;
use super::stop::RESTART;
use crate::support::planted::{PlantedSession, TranscriptTail};
use crate::support::{GatewayFixture, SOON, Setup, eventually, key};

/// Longer than any test.
const NEVER: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(200);

/// Configures the breaker to trip at this start (0: never) with this stable interval.
fn tripping_at(max_restarts: usize, stable: Duration) -> impl FnOnce(&mut Setup) {
    move |setup| {
        setup.lifetime.loop_guard.max_restarts = max_restarts;
        setup.lifetime.loop_guard.stable = stable;
    }
}

fn open_turn(chat: i64) -> PlantedSession {
    PlantedSession { tail: TranscriptTail::OpenTurn, ..PlantedSession::new(chat) }
}

fn crash_count(world: &GatewayFixture, chat: i64) -> Option<u32> {
    let key = key(chat);
    world.read(move |reader| Ok(reader.open_turn_of(&key)?.map(|turn| turn.crashes)))
}

fn set_breaker(world: &mut GatewayFixture, stable: Duration) {
    world.setup.lifetime.loop_guard.stable = stable;
}

#[test]
fn held_suspect_resumes_after_announced_wait() {
    let mut world = GatewayFixture::idle(tripping_at(1, NEVER));
    world.plant(&open_turn(7));
    world.start();
    world.expect_message(7, "run for about 3600 seconds without another restart");
    hears(&world, 8);
    // The wait grows with every start: 2 hours, roughly as announced, then 3 hours, then no longer.
    for chat in 21..=23 {
        world.crash();
        world.start();
        hears(&world, chat);
    }
    world.expect_message(7, "run for about 10800 seconds without another restart");
    assert_eq!(crash_count(&world, 7), Some(1), "it did not run when the others died");
    assert_eq!(world.failures(7), 1);
    assert!(world.model.requests().iter().all(|it| it.last_user == "are you there?"));
    set_breaker(&mut world, SHORT);
    world.restart();
    world.expect_message(7, "the question before");
    assert_eq!(world.count(7, "Your message is kept"), 2, "{:?}", world.telegram.texts(7));
    let file = std::fs::read_to_string(boots::path(world.home())).expect("the breaker's file");
    assert_eq!(file.matches(',').count(), 4, "five starts had a suspect: {file}");
}

#[test]
fn takeover_commit_notifies_chat_of_held_suspect() {
    let mut world = GatewayFixture::idle(tripping_at(1, NEVER));
    world.plant(&open_turn(7));
    world.start();
    // Read at once: the takeover commit enqueues the notice.
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
    let mut world = GatewayFixture::idle(tripping_at(1, NEVER));
    world.plant(&open_turn(7));
    accepted_before(&world, 7, "first?");
    world.start();
    world.expect_message(7, "Your message is kept");
    world.telegram.push_text(7, 7, "second?");
    world.expect_last_message(7, "Queued for the next turn");
    world.telegram.push_text(7, 7, "/status");
    world.expect_last_message(7, "continues by itself soon");
    assert_eq!(world.model.requests().len(), 0);
    set_breaker(&mut world, SHORT);
    world.restart();
    world.expect_message(7, "the question before");
    world.expect_message(7, "second?");
    assert_eq!(world.model.requests().len(), 2);
}

#[test]
fn stop_drops_a_held_suspect() {
    let mut world = GatewayFixture::idle(tripping_at(1, NEVER));
    world.plant(&open_turn(7));
    world.start();
    world.expect_message(7, "Your message is kept");
    world.telegram.push_text(7, 7, "/stop");
    world.expect_last_message(7, "Stopped. You can continue");
    assert_eq!(crash_count(&world, 7), None);
    world.telegram.push_text(7, 7, "are you there?");
    world.expect_last_message(7, "are you there?");
    assert_eq!(world.model.requests().len(), 1);
}

#[test]
fn stop_drops_held_suspect_without_session_entry() {
    let mut world = GatewayFixture::idle(tripping_at(1, NEVER));
    world.plant(&open_turn(7));
    world.start();
    let stop = |world: &GatewayFixture, chat: i64| {
        world.runtime.block_on(world.handle().stop_turn(&key(chat))).expect("it runs")
    };
    assert!(!stop(&world, 8), "there is nothing to stop");
    let status = world.runtime.block_on(world.handle().status()).expect("a status");
    assert_eq!(status.sessions, 0, "and no session is started for that");
    assert!(stop(&world, 7));
    assert_eq!(crash_count(&world, 7), None);
    assert!(!stop(&world, 7), "it is stopped already");
    world.telegram.push_text(7, 7, "are you there?");
    world.expect_last_message(7, "are you there?");
    assert_eq!(world.model.requests().len(), 1);
}

#[test]
fn turn_left_open_by_a_stop_is_no_suspect() {
    let mut world = GatewayFixture::with(tripping_at(1, NEVER));
    let gate = world.hold_model_on("slow");
    world.telegram.push_text(7, 7, "slow");
    assert!(gate.wait(SOON));
    world.shut_down(RESTART);
    gate.open();
    world.start();
    world.expect_message(7, "echo: [System note:");
    assert!(!boots::path(world.home()).exists());
}

#[test]
fn respawn_storm_holds_suspects_and_nothing_else() {
    let mut world = GatewayFixture::idle(|setup| {
        setup.lifetime.loop_guard.max_restarts = 0;
        setup.lifetime.storm_pause = Some(NEVER);
    });
    world.plant(&open_turn(7));
    accepted_before(&world, 9, "and me?");
    world.start();
    world.expect_message(7, "Your message is kept");
    world.expect_last_message(9, "echo: and me?");
    hears(&world, 8);
    world.setup.lifetime.storm_pause = None;
    world.restart();
    world.expect_message(7, "the question before");
}

/// Makes the model hang on "poison" and wait for the gate on "slow".
fn poison_and_slow(world: &GatewayFixture) -> (Arc<Gate>, Arc<Gate>) {
    let poison = Arc::new(Gate::new());
    let slow = Arc::new(Gate::new());
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

fn request_count(world: &GatewayFixture, text: &str) -> usize {
    world.model.requests().iter().filter(|it| it.last_user.ends_with(text)).count()
}

#[track_caller]
fn wait_for_requests(world: &GatewayFixture, text: &str, times: usize) {
    eventually("asked", || (request_count(world, text) >= times).then_some(()));
}

/// Waits until every turn has ended; a streamed answer is visible earlier.
#[track_caller]
fn wait_until_idle(world: &GatewayFixture) {
    eventually("settled", || world.read(|reader| reader.open_turns()).is_empty().then_some(()));
}

/// Gives up a poison turn of chat 7, with a concurrent turn of chat 8. Returns the turn's number.
fn give_up_turn(world: &mut GatewayFixture, text: &str) -> i64 {
    let (_poison, slow) = poison_and_slow(world);
    world.telegram.push_text(7, 7, text);
    wait_for_requests(world, "poison", 1);
    world.telegram.push_text(8, 8, "slow");
    wait_for_requests(world, "slow", 1);
    let turn = world.read(|reader| reader.open_turn_of(&key(7))).expect("an open turn").id.0;
    world.crash();
    world.start();
    // After one crash both are resumed at once.
    wait_for_requests(world, "poison", 2);
    wait_for_requests(world, "slow", 2);
    world.crash();
    world.setup.lifetime.storm_pause = Some(SHORT);
    world.start();
    wait_for_requests(world, "poison", 3);
    assert_eq!((request_count(world, "slow"), crash_count(world, 8)), (2, Some(2)), "one at a time");
    world.crash();
    slow.open();
    world.start();
    world.expect_message(7, "interrupted 3 times while working on it, so I have stopped trying");
    world.expect_message(8, "slow");
    assert_eq!(request_count(world, "poison"), 3);
    wait_until_idle(world);
    turn
}

#[test]
fn holds_suspects_at_last_try_without_breaker() {
    let mut world = GatewayFixture::with(tripping_at(0, NEVER));
    let (_poison, slow) = poison_and_slow(&world);
    world.telegram.push_text(7, 7, "poison");
    world.telegram.push_text(8, 8, "slow");
    for times in 1..=2 {
        wait_for_requests(&world, "poison", times);
        wait_for_requests(&world, "slow", times);
        world.crash();
        world.start();
    }
    for chat in [7, 8] {
        world.expect_message(chat, "run for about");
        assert_eq!(crash_count(&world, chat), Some(2));
    }
    hears(&world, 9);
    assert_eq!(
        (request_count(&world, "poison"), request_count(&world, "slow")),
        (2, 2),
        "neither is resumed yet"
    );
    assert!(!boots::path(world.home()).exists());
    slow.open();
    set_breaker(&mut world, SHORT);
    world.restart();
    wait_for_requests(&world, "poison", 3);
    world.crash();
    world.start();
    world.expect_message(7, "interrupted 3 times while working on it, so I have stopped trying");
    world.expect_message(8, "slow");
    wait_until_idle(&world);
    assert_eq!(world.count(8, "I have stopped trying"), 0, "{:?}", world.telegram.texts(8));
}

#[test]
fn gives_up_poison_turn_and_answers_concurrent_one() {
    let mut world = GatewayFixture::with(tripping_at(0, NEVER));
    let turn = give_up_turn(&mut world, "poison");
    assert_eq!(world.read(|reader| reader.settled(MessageOutcome::Dead, 10)).len(), 1);
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
    let mut world = GatewayFixture::with(tripping_at(0, NEVER));
    let turn = give_up_turn(&mut world, "poison");
    world.telegram.push_text(8, 8, format!("/retry {turn}"));
    world.expect_last_message(8, "No message with this number was given up here.");
    world.telegram.push_text(7, 7, format!("/retry {turn} rephrased"));
    world.expect_last_message(7, "rephrased");
    wait_until_idle(&world);
    world.telegram.push_text(7, 7, format!("/retry {turn}"));
    wait_for_requests(&world, "poison", 4);
    world.telegram.push_text(7, 7, "/stop");
    world.expect_last_message(7, "Stopped. You can continue");
    world.telegram.push_text(7, 7, format!("/drop {turn}"));
    world.expect_last_message(7, "Dropped.");
    assert!(world.read(|reader| reader.settled(MessageOutcome::Dead, 10)).is_empty());
    world.telegram.push_text(7, 7, format!("/drop {turn}"));
    world.expect_last_message(7, "No message with this number was given up here.");
}

#[test]
fn retry_of_given_up_queued_message_repeats_text_only() {
    let mut world = GatewayFixture::with(tripping_at(0, NEVER));
    let turn = give_up_turn(&mut world, "/queue poison");
    world.model.respond(|request| Answer::text(format!("asked: {}", request.last_user)));
    world.telegram.push_text(7, 7, format!("/retry {turn}"));
    world.expect_last_message(7, "]\n\npoison");
}

#[test]
fn clears_suspect_after_stable_interval() {
    let mut world = GatewayFixture::idle(tripping_at(1, SHORT));
    let slow = Arc::new(Gate::new());
    world.model.respond({
        let slow = slow.clone();
        move |_| Answer::text("echo").gate(Point::Before, &slow)
    });
    world.plant(&open_turn(7));
    world.plant(&open_turn(8));
    world.start();
    // Neither turn has ended; the second is resumed because the first ran for the stable interval.
    assert!(slow.wait_for(2, SOON));
    let cleared =
        |world: &GatewayFixture| world.read(|reader| reader.meta("suspects")).as_deref() == Some("{}");
    eventually("both are cleared", || cleared(&world).then_some(()));
    world.crash();
    slow.open();
    world.setup.lifetime.loop_guard.max_restarts = 0;
    world.start();
    for chat in [7, 8] {
        world.expect_last_message(chat, "echo");
    }
}

#[test]
fn page_shows_notice_of_held_suspect() {
    let mut world = GatewayFixture::with(tripping_at(1, NEVER));
    let gate = world.hold_model_on("slow");
    let key: SessionKey = world.send_web("c1", "slow");
    assert!(gate.wait(SOON));
    world.crash();
    world.start();
    let count = world.read(move |reader| {
        let session = reader.entry(&key)?.expect("an entry").session_id;
        let rows = reader.rows_last(&session, 100)?;
        Ok(rows.iter().filter(|row| row.message.content.contains("Your message is kept")).count())
    });
    assert_eq!(count, 1);
}
