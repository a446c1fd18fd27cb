//! Conversations over Telegram and the page: busy sessions, commands, tools, streaming.

mod support;

use std::time::{Duration, Instant};

use petasos_core::admission::BusyMode;
use petasos_core::transcript::Role;
use petasos_fakes::model::{Answer, Point};
use petasos_fakes::telegram::{Fault, Incoming};
use serde_json::json;
use support::{SOON, World, eventually};

#[test]
fn a_message_is_answered_where_it_was_asked() {
    let world = World::new(|_| {});
    world.telegram.push_text(7, 7, "ping");
    world.shows(7, &["echo: ping"]);
}

#[test]
fn the_page_reads_its_answer_from_the_transcript() {
    let world = World::new(|_| {});
    let key = world.say("c1", "ping");
    let mut view = world.runtime.block_on(world.handle().view(&key)).expect("a view");
    let rows = world.runtime.block_on(async {
        let session =
            view.wait_for(|view| view.session.is_some()).await.expect("alive").session.clone().expect("some");
        tokio::time::timeout(SOON, view.wait_for(|view| view.live.is_none() && view.rows.is_some()))
            .await
            .expect("soon")
            .expect("alive");
        world.handle().rows(&session, petasos_core::ids::RowId(0), 100).await.expect("rows")
    });
    let said: Vec<_> = rows.iter().map(|said| (said.message.role, said.message.content.as_str())).collect();
    assert_eq!(said, [(Role::User, "ping"), (Role::Assistant, "echo: ping")]);
}

#[test]
fn the_model_sees_the_conversation_so_far_and_nothing_else() {
    let world = World::new(|_| {});
    world.telegram.push_text(7, 7, "one");
    world.shows(7, &["echo: one"]);
    world.telegram.push_text(7, 7, "/help");
    world.ends_with(7, "/help");
    world.telegram.push_text(7, 7, "two");
    world.ends_with(7, "echo: two");
    let requests = world.model.requests();
    let said: Vec<_> =
        requests[1].messages().iter().skip(1).map(|it| it["content"].as_str().unwrap_or("")).collect();
    assert_eq!(said, ["one", "echo: one", "two"]);
}

#[test]
fn a_tool_is_called_and_its_result_is_used() {
    let world = World::new(|_| {});
    world.model.script(
        Answer::text("I will note that.")
            .and_tool("write_file", json!({"path": "note.txt", "content": "milk"})),
    );
    world.model.script(Answer::text("Noted."));
    world.telegram.push_text(7, 7, "note: milk");
    world.shows(7, &["I will note that.", "Noted."]);
    let note = std::fs::read_to_string(world.home.path().join("workspace/note.txt")).expect("the file");
    assert_eq!(note, "milk");
    let second = &world.model.requests()[1];
    let roles: Vec<_> =
        second.messages().iter().map(|it| it["role"].as_str().unwrap_or("").to_owned()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool"]);
}

#[test]
fn a_newer_message_interrupts_by_default_and_says_so() {
    let world = World::new(|_| {});
    let gate = world.model.gate(Point::Before);
    world.telegram.push_text(7, 7, "first");
    assert!(gate.wait(SOON));
    world.telegram.push_text(7, 7, "second");
    world.ends_with(7, "Interrupting current task");
    gate.open();
    world.ends_with(7, "echo: second");
    assert!(!world.telegram.texts(7).iter().any(|text| text.contains("echo: first")));
}

#[test]
fn in_queue_mode_everything_is_answered_in_order() {
    let world = World::new(|settings| settings.busy = BusyMode::Queue);
    let gate = world.model.gate(Point::Before);
    world.telegram.push_text(7, 7, "first");
    assert!(gate.wait(SOON));
    world.telegram.push_text(7, 7, "second");
    world.ends_with(7, "Queued for the next turn");
    gate.open();
    world.ends_with(7, "echo: second");
    let texts = world.telegram.texts(7);
    assert_eq!(
        texts.iter().filter(|text| text.starts_with("echo")).collect::<Vec<_>>(),
        ["echo: first", "echo: second"]
    );
}

#[test]
fn in_queue_mode_texts_that_come_one_by_one_are_turns_of_their_own() {
    let world = World::new(|settings| {
        settings.busy = BusyMode::Queue;
        settings.busy_ack = false;
    });
    let gate = world.model.gate(Point::Before);
    world.telegram.push_text(7, 7, "first");
    assert!(gate.wait(SOON));
    for (waiting, text) in [(1, "second"), (2, "third")] {
        world.telegram.push_text(7, 7, text);
        eventually("accepted", || (world.read(|reader| reader.backlog()).queued == waiting).then_some(()));
        // What is sent within a second belongs together.
        let accepted = Instant::now();
        eventually("a pause", || (accepted.elapsed() > Duration::from_millis(1_100)).then_some(()));
    }
    // One poll brings both, so both arrive at the same moment.
    world.telegram.push_many(["fourth,", "in two parts"].map(|text| Incoming::text(7, 7, text)));
    eventually("accepted", || (world.read(|reader| reader.backlog()).queued == 4).then_some(()));
    gate.open();
    world.shows(7, &["echo: first", "echo: second", "echo: third", "echo: fourth,\n\nin two parts"]);
}

#[test]
fn in_steer_mode_a_message_joins_the_running_turn() {
    let world = World::new(|settings| settings.busy = BusyMode::Steer);
    let gate = world.model.gate(Point::Before);
    world.model.script(Answer::tool("clock", json!({})));
    world.model.script(Answer::text("done"));
    world.telegram.push_text(7, 7, "what time is it");
    assert!(gate.wait(SOON));
    world.telegram.push_text(7, 7, "answer in French");
    world.ends_with(7, "Steered into current run");
    gate.open();
    world.ends_with(7, "done");
    let last = world.model.requests().last().expect("a request").body().to_string();
    assert!(last.contains("answer in French"), "{last}");
    assert_eq!(world.model.requests().len(), 2, "no turn of its own");
}

#[test]
fn the_queue_has_an_end_and_says_so() {
    let world = World::new(|settings| settings.busy = BusyMode::Queue);
    let gate = world.model.gate(Point::Before);
    world.telegram.push_text(7, 7, "first");
    assert!(gate.wait(SOON));
    for number in 0..33 {
        world.telegram.push_text(7, 7, format!("more {number}"));
    }
    world.ends_with(7, "Too many messages are waiting");
    gate.open();
    world.ends_with(7, "more 31");
}

#[test]
fn stop_ends_the_turn_and_keeps_the_session() {
    let world = World::new(|_| {});
    let gate = world.model.gate(Point::Before);
    world.telegram.push_text(7, 7, "long work");
    assert!(gate.wait(SOON));
    world.telegram.push_text(7, 7, "/stop");
    world.ends_with(7, "Stopped");
    gate.open();
    world.telegram.push_text(7, 7, "next");
    world.ends_with(7, "echo: next");
    assert!(!world.telegram.texts(7).iter().any(|text| text.contains("echo: long work")));
    let last = world.model.requests().last().expect("a request").body().to_string();
    assert!(last.contains("long work"), "the session goes on");
}

#[test]
fn new_forgets_and_resume_brings_back() {
    let world = World::new(|_| {});
    world.telegram.push_text(7, 7, "my name is Ada");
    world.ends_with(7, "echo: my name is Ada");
    world.telegram.push_text(7, 7, "/new");
    world.ends_with(7, "New session");
    world.telegram.push_text(7, 7, "who am I");
    world.ends_with(7, "echo: who am I");
    let last = world.model.requests().last().expect("a request").body().to_string();
    assert!(!last.contains("Ada"));
    world.telegram.push_text(7, 7, "/resume Ada");
    world.ends_with(7, "Back in");
    world.telegram.push_text(7, 7, "and now");
    world.ends_with(7, "echo: and now");
    let last = world.model.requests().last().expect("a request").body().to_string();
    assert!(last.contains("Ada") && !last.contains("who am I"));
}

#[test]
fn retry_asks_again_and_undo_forgets() {
    let world = World::new(|_| {});
    world.telegram.push_text(7, 7, "tell me");
    world.ends_with(7, "echo: tell me");
    world.telegram.push_text(7, 7, "/retry");
    world.shows(7, &["echo: tell me", "echo: tell me"]);
    let messages = world.model.requests()[1].messages().len();
    assert_eq!(messages, 2, "system and the one question");
    world.telegram.push_text(7, 7, "/undo");
    world.ends_with(7, "Dropped the last exchange");
    world.telegram.push_text(7, 7, "fresh");
    world.ends_with(7, "echo: fresh");
    assert_eq!(world.model.requests()[2].messages().len(), 2);
}

#[test]
fn every_command_answers_and_none_reaches_the_model() {
    let world = World::new(|_| {});
    for (command, want) in [
        ("/help", "/resume"),
        ("/start", "Petasos"),
        ("/status", "idle"),
        ("/sessions", "Sessions of this chat"),
        ("/model", "fake"),
        ("/model other", "now uses other"),
        ("/usage", "tokens"),
        ("/where", "no earlier message"),
        ("/whoami", "telegram"),
        ("/platform", "telegram: connected"),
        ("/platform retry icq", "no platform icq"),
        ("/platform off", "Say what to do"),
        ("/queue", "Say what to queue"),
        ("/undo many", "Say how many"),
        ("/resume nowhere", "no such session"),
        ("/stauts", "/status"),
    ] {
        world.telegram.push_text(7, 7, command);
        world.ends_with(7, want);
    }
    assert!(world.model.requests().is_empty());
}

#[test]
fn usage_tells_the_estimated_cost() {
    let world = World::new(|_| {});
    world.model.script(Answer::text("hi").usage(1000, 200));
    world.telegram.push_text(7, 7, "hello");
    world.ends_with(7, "hi");
    world.telegram.push_text(7, 7, "/usage");
    // 1,000 tokens at 3 dollars and 200 at 15 dollars a million.
    world.ends_with(7, "1200 in all. Estimated cost: $0.0060.");
}

#[test]
fn a_failed_model_is_told_and_the_next_message_works() {
    let world = World::new(|_| {});
    world.model.script(Answer::status(401, ""));
    world.telegram.push_text(7, 7, "hello");
    world.ends_with(7, "refused our API key");
    world.telegram.push_text(7, 7, "second try");
    world.ends_with(7, "second try");
    assert_eq!(world.telegram.texts(7).len(), 2);
}

#[test]
fn a_streamed_answer_is_one_message_edited_at_a_bounded_pace() {
    let world = World::new(|settings| settings.streaming.enabled = true);
    let text = "word ".repeat(60);
    let answer = text.clone();
    world.model.respond(move |_| Answer::text(answer.clone()).chunks(60).every(Duration::from_millis(50)));
    let started = Instant::now();
    world.telegram.push_text(7, 7, "talk");
    let done = world.telegram.wait_until(SOON, |world| (world.texts(7) == [text.trim()]).then_some(()));
    assert!(done.is_some(), "{:?}", world.telegram.texts(7));
    let took = started.elapsed();
    let operations =
        world.telegram.calls_of("sendMessage").len() + world.telegram.calls_of("editMessageText").len();
    assert!(operations >= 3, "it was shown while it grew");
    assert!(operations <= 3 + took.as_millis() as usize / 800, "{operations} operations in {took:?}");
}

#[test]
fn what_was_said_before_a_tool_stays_above_what_is_said_after_it() {
    let world = World::new(|settings| {
        settings.streaming.enabled = true;
        settings.streaming.gap = Duration::from_millis(1);
    });
    let slow = Duration::from_millis(200);
    world
        .model
        .script(Answer::text("Let me look at that now.").chunks(4).every(slow).and_tool("clock", json!({})));
    world.model.script(Answer::text("It is late by now.").chunks(4).every(slow));
    world.telegram.push_text(7, 7, "time?");
    world.shows(7, &["Let me look at that now.", "It is late by now."]);
}

#[test]
fn silence_is_kept() {
    let world = World::new(|settings| settings.streaming.enabled = true);
    world.model.script(Answer::text("NO_REPLY").chunks(4).every(Duration::from_millis(200)));
    world.telegram.push_text(7, 7, "psst");
    let answered = world.model.wait_until(SOON, |desk| {
        desk.requests()
            .next()
            .filter(|it| it.outcome() == petasos_fakes::model::Outcome::Answered)
            .map(|_| ())
    });
    assert!(answered.is_some(), "the model never answered");
    let key = petasos_core::SessionKey("agent:main:telegram:dm:7".into());
    let mut view = world.runtime.block_on(world.handle().view(&key)).expect("a view");
    world.runtime.block_on(view.wait_for(|view| view.live.is_none())).expect("the turn ends");
    // Behind everything the turn may have owed, in the same lane.
    world.telegram.push_text(7, 7, "/where");
    world.ends_with(7, "answered");
    assert_eq!(world.telegram.texts(7).len(), 1, "{:?}", world.telegram.texts(7));
}

#[test]
fn a_long_answer_is_split_and_a_failed_part_alone_is_repeated() {
    let world = World::new(|_| {});
    let text = "All work and no play makes Jack a dull boy. ".repeat(220);
    world.model.script(Answer::text(text));
    world.telegram.on("sendMessage").nth(2).does(Fault::status(500, "Internal Server Error"));
    world.telegram.push_text(7, 7, "write");
    world.ends_with(7, "(3/3)");
    let texts = world.telegram.texts(7);
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert_eq!(world.telegram.calls_of("sendMessage").len(), 4);
}

#[test]
fn a_lost_acknowledgement_gives_one_marked_copy() {
    let world = World::new(|_| {});
    world.telegram.on("sendMessage").does(Fault::ResetAfter);
    world.telegram.push_text(7, 7, "hello");
    world.ends_with(7, "Recovered reply");
    let texts = world.telegram.texts(7);
    assert_eq!(texts.len(), 2);
    assert_eq!(texts[0], "echo: hello");
}

#[test]
fn too_many_requests_waits_as_long_as_told() {
    let world = World::new(|_| {});
    world.telegram.on("sendMessage").does(Fault::too_many(2));
    let started = Instant::now();
    world.telegram.push_text(7, 7, "hello");
    world.shows(7, &["echo: hello"]);
    assert!(started.elapsed() >= Duration::from_secs(2));
}

#[test]
fn a_blocked_bot_gives_up_and_lists_the_message() {
    let world = World::new(|_| {});
    world.telegram.on("sendMessage").does(Fault::blocked());
    world.telegram.push_text(7, 7, "hello");
    let asked =
        world.telegram.wait_until(SOON, |world| (world.calls_of("sendMessage").count() == 1).then_some(()));
    assert!(asked.is_some());
    world.telegram.push_text(8, 8, "still there?");
    world.shows(8, &["echo: still there?"]);
    let dead = world
        .runtime
        .block_on(world.handle().outbox(petasos_core::outbox::State::Dead, 10))
        .expect("the outbox");
    assert_eq!(dead.len(), 1);
    assert!(
        dead[0].last_error.as_deref().is_some_and(|error| error.contains("blocked")),
        "{:?}",
        dead[0].last_error
    );
}

#[test]
fn typing_is_shown_while_the_model_thinks() {
    let world = World::new(|_| {});
    let gate = world.model.gate(Point::Before);
    world.telegram.push_text(7, 7, "hello");
    let typing = world.telegram.wait_until(SOON, |world| world.calls_of("sendChatAction").next().map(|_| ()));
    assert!(typing.is_some());
    gate.open();
    world.shows(7, &["echo: hello"]);
}

#[test]
fn the_two_halves_of_a_split_message_are_one_turn() {
    let world = World::new(|_| {});
    world.telegram.push_text(7, 7, "a".repeat(4096));
    world.telegram.push_text(7, 7, "and the rest");
    world.ends_with(7, "and the rest");
    assert_eq!(world.model.requests().len(), 1);
}

#[test]
fn the_same_message_twice_starts_one_turn() {
    let world = World::new(|_| {});
    let inbound = support::web("c1", "once");
    let first = world.runtime.block_on(world.handle().submit(inbound.clone())).expect("accepted");
    let again = world.runtime.block_on(world.handle().submit(inbound)).expect("known");
    assert_eq!((first.duplicate, again.duplicate), (false, true));
    assert_eq!(first.inbox, again.inbox);
}

#[test]
fn a_message_right_after_new_is_answered_in_the_new_session() {
    let world = World::new(|_| {});
    world.telegram.push_text(7, 7, "about cats");
    world.ends_with(7, "echo: about cats");
    world.telegram.push_many([Incoming::text(7, 7, "/new"), Incoming::text(7, 7, "about dogs")]);
    world.ends_with(7, "echo: about dogs");
    let last = world.model.requests().last().expect("a request").body().to_string();
    assert!(!last.contains("cats"), "{last}");
}

#[test]
fn a_command_cannot_be_queued_for_the_model() {
    let world = World::new(|_| {});
    world.telegram.push_text(7, 7, "/queue /stop");
    world.ends_with(7, "Only messages can be queued");
    assert!(world.model.requests().is_empty());
}

#[test]
fn a_pressed_button_brings_back_its_session() {
    let world = World::new(|_| {});
    world.telegram.push_text(7, 7, "about cats");
    world.ends_with(7, "echo: about cats");
    world.telegram.push_text(7, 7, "/new");
    world.ends_with(7, "New session");
    world.telegram.push_text(7, 7, "about dogs");
    world.ends_with(7, "echo: about dogs");
    world.telegram.push_text(7, 7, "/sessions");
    world.ends_with(7, "Sessions of this chat");
    let list = world.telegram.visible(7).pop().expect("a message");
    let keyboard = list.reply_markup.expect("buttons").to_string();
    assert!(keyboard.contains("about cats"), "{keyboard}");
    let from = keyboard.find("/resume ").expect("a command");
    let pressed: String = keyboard[from..].chars().take_while(|c| *c != '"').collect();
    world.telegram.push_callback(7, 7, list.id, &pressed);
    world.ends_with(7, "Back in “about cats”");
    let answered =
        world.telegram.wait_until(SOON, |world| world.calls_of("answerCallbackQuery").next().map(|_| ()));
    assert!(answered.is_some(), "the button was never acknowledged");
}

#[test]
fn whoever_may_not_talk_to_us_learns_nothing_from_a_button() {
    let world = World::with(|setup| {
        setup.access.allow_all = false;
        setup.access.users = vec!["7".into()];
    });
    world.telegram.push_text(7, 7, "hello");
    world.ends_with(7, "echo: hello");
    let button = world.telegram.visible(7).pop().expect("a message").id;
    world.telegram.push_callback(7, 66, button, "/status");
    world.telegram.push_callback(7, 7, button, "/whoami");
    let answered = || world.telegram.calls_of("answerCallbackQuery");
    support::eventually("acknowledged", || (!answered().is_empty()).then_some(()));
    world.owes_nothing();
    assert_eq!(answered().len(), 1, "{:?}", answered());
}

#[test]
fn commands_follow_their_tiers() {
    let platform = petasos_core::Platform::parse("telegram").expect("known");
    let world = World::new(|settings| {
        let admins = vec!["1".to_owned()];
        let tier = petasos_core::access::Tier { admins, commands: Some(vec!["status".into()]) };
        let tiers = petasos_core::access::Tiers { dm: tier, ..Default::default() };
        settings.tiers.insert(platform, tiers);
    });
    for (user, command, want) in [
        (1, "/new", "New session"),
        (2, "/new", "not open to you"),
        (2, "/status", "idle"),
        (2, "/help", "/new"),
    ] {
        world.telegram.push_text(user, user, command);
        world.ends_with(user, want);
    }
    world.telegram.push_text(2, 2, "hi");
    world.ends_with(2, "echo: hi");
}

#[test]
fn a_reset_nobody_asked_for_is_told_to_the_user_and_once_to_the_model() {
    let world = World::new(|settings| {
        settings.resets.default.mode = petasos_core::session::Mode::Idle;
        settings.resets.default.idle_minutes = 0;
    });
    world.telegram.push_text(7, 7, "one");
    world.ends_with(7, "echo: one");
    world.telegram.push_text(7, 7, "two");
    world.ends_with(7, "two");
    assert!(world.telegram.texts(7).iter().any(|text| text.contains("Session automatically reset (idle)")));
    let asked = world.model.requests().last().expect("a request").body().to_string();
    assert!(asked.contains("[System note:") && !asked.contains("echo: one"), "{asked}");
}
