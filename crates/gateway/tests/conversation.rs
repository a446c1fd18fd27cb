//! Conversations over Telegram and the page: busy sessions, commands, tools, streaming.

mod support;

use std::time::Duration;

use petasos_core::admission::BusyMode;
use petasos_core::transcript::Role;
use petasos_fakes::model::{Answer, Point};
use petasos_fakes::telegram::{Fault, Incoming};
use petasos_runtime::clock;
use serde_json::json;
use support::{GatewayFixture, SOON, eventually};

#[test]
fn answers_a_message_in_its_own_chat() {
    let fixture = GatewayFixture::new(|_| {});
    fixture.telegram.push_text(7, 7, "ping");
    fixture.expect_messages(7, &["echo: ping"]);
}

#[test]
fn page_reads_its_answer_from_the_transcript() {
    let fixture = GatewayFixture::new(|_| {});
    let key = fixture.send_web("c1", "ping");
    let mut view = fixture.runtime.block_on(fixture.handle().view(&key)).expect("a view");
    let rows = fixture.runtime.block_on(async {
        let session =
            view.wait_for(|view| view.session.is_some()).await.expect("alive").session.clone().expect("some");
        tokio::time::timeout(SOON, view.wait_for(|view| view.live.is_none() && view.rows.is_some()))
            .await
            .expect("soon")
            .expect("alive");
        fixture.handle().rows(&session, petasos_core::ids::RowId(0), 100).await.expect("rows")
    });
    let said: Vec<_> = rows.iter().map(|said| (said.message.role, said.message.content.as_str())).collect();
    assert_eq!(said, [(Role::User, "ping"), (Role::Assistant, "echo: ping")]);
}

#[test]
fn sends_the_model_only_the_conversation_so_far() {
    let fixture = GatewayFixture::new(|_| {});
    fixture.telegram.push_text(7, 7, "one");
    fixture.expect_messages(7, &["echo: one"]);
    fixture.telegram.push_text(7, 7, "/help");
    fixture.expect_last_message(7, "/help");
    fixture.telegram.push_text(7, 7, "two");
    fixture.expect_last_message(7, "echo: two");
    let requests = fixture.model.requests();
    let said: Vec<_> =
        requests[1].messages().iter().skip(1).map(|it| it["content"].as_str().unwrap_or("")).collect();
    assert_eq!(said, ["one", "echo: one", "two"]);
}

#[test]
fn runs_a_tool_and_uses_its_result() {
    let fixture = GatewayFixture::new(|_| {});
    fixture.model.script(
        Answer::text("I will note that.")
            .and_tool("write_file", json!({"path": "note.txt", "content": "milk"})),
    );
    fixture.model.script(Answer::text("Noted."));
    fixture.telegram.push_text(7, 7, "note: milk");
    fixture.expect_messages(7, &["I will note that.", "Noted."]);
    let note = std::fs::read_to_string(fixture.home.path().join("workspace/note.txt")).expect("the file");
    assert_eq!(note, "milk");
    let second = &fixture.model.requests()[1];
    let roles: Vec<_> =
        second.messages().iter().map(|it| it["role"].as_str().unwrap_or("").to_owned()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "tool"]);
}

#[test]
fn newer_message_interrupts_by_default_with_notice() {
    let fixture = GatewayFixture::new(|_| {});
    let gate = fixture.model.gate(Point::Before);
    fixture.telegram.push_text(7, 7, "first");
    assert!(gate.wait(SOON));
    fixture.telegram.push_text(7, 7, "second");
    fixture.expect_last_message(7, "Interrupting current task");
    gate.open();
    fixture.expect_last_message(7, "echo: second");
    assert!(!fixture.telegram.texts(7).iter().any(|text| text.contains("echo: first")));
}

#[test]
fn queue_mode_answers_everything_in_order() {
    let fixture = GatewayFixture::new(|settings| settings.busy = BusyMode::Queue);
    let gate = fixture.model.gate(Point::Before);
    fixture.telegram.push_text(7, 7, "first");
    assert!(gate.wait(SOON));
    fixture.telegram.push_text(7, 7, "second");
    fixture.expect_last_message(7, "Queued for the next turn");
    gate.open();
    fixture.expect_last_message(7, "echo: second");
    let texts = fixture.telegram.texts(7);
    assert_eq!(
        texts.iter().filter(|text| text.starts_with("echo")).collect::<Vec<_>>(),
        ["echo: first", "echo: second"]
    );
}

#[test]
fn queue_mode_gives_separate_messages_separate_turns() {
    let fixture = GatewayFixture::new(|settings| {
        settings.busy = BusyMode::Queue;
        settings.busy_ack = false;
    });
    let gate = fixture.model.gate(Point::Before);
    fixture.telegram.push_text(7, 7, "first");
    assert!(gate.wait(SOON));
    for (waiting, text) in [(1, "second"), (2, "third")] {
        fixture.telegram.push_text(7, 7, text);
        eventually("accepted", || (fixture.read(|reader| reader.backlog()).queued == waiting).then_some(()));
        // Messages within a second share a turn.
        let accepted = clock::monotonic();
        eventually("a pause", || (accepted.elapsed() > Duration::from_millis(1_100)).then_some(()));
    }
    // One poll brings both, so they arrive together.
    fixture.telegram.push_many(["fourth,", "in two parts"].map(|text| Incoming::text(7, 7, text)));
    eventually("accepted", || (fixture.read(|reader| reader.backlog()).queued == 4).then_some(()));
    gate.open();
    fixture
        .expect_messages(7, &["echo: first", "echo: second", "echo: third", "echo: fourth,\n\nin two parts"]);
}

#[test]
fn steer_mode_adds_a_message_to_the_running_turn() {
    let fixture = GatewayFixture::new(|settings| settings.busy = BusyMode::Steer);
    let gate = fixture.model.gate(Point::Before);
    fixture.model.script(Answer::tool("clock", json!({})));
    fixture.model.script(Answer::text("done"));
    fixture.telegram.push_text(7, 7, "what time is it");
    assert!(gate.wait(SOON));
    fixture.telegram.push_text(7, 7, "answer in French");
    fixture.expect_last_message(7, "Steered into current run");
    gate.open();
    fixture.expect_last_message(7, "done");
    let last = fixture.model.requests().last().expect("a request").body().to_string();
    assert!(last.contains("answer in French"), "{last}");
    assert_eq!(fixture.model.requests().len(), 2, "no turn of its own");
}

#[test]
fn refuses_messages_when_the_queue_is_full() {
    let fixture = GatewayFixture::new(|settings| settings.busy = BusyMode::Queue);
    let gate = fixture.model.gate(Point::Before);
    fixture.telegram.push_text(7, 7, "first");
    assert!(gate.wait(SOON));
    for number in 0..33 {
        fixture.telegram.push_text(7, 7, format!("more {number}"));
    }
    fixture.expect_last_message(7, "Too many messages are waiting");
    gate.open();
    fixture.expect_last_message(7, "more 31");
}

#[test]
fn stop_ends_the_turn_and_keeps_the_session() {
    let fixture = GatewayFixture::new(|_| {});
    let gate = fixture.model.gate(Point::Before);
    fixture.telegram.push_text(7, 7, "long work");
    assert!(gate.wait(SOON));
    fixture.telegram.push_text(7, 7, "/stop");
    fixture.expect_last_message(7, "Stopped");
    gate.open();
    fixture.telegram.push_text(7, 7, "next");
    fixture.expect_last_message(7, "echo: next");
    assert!(!fixture.telegram.texts(7).iter().any(|text| text.contains("echo: long work")));
    let last = fixture.model.requests().last().expect("a request").body().to_string();
    assert!(last.contains("long work"), "the session goes on");
}

#[test]
fn new_starts_over_and_resume_restores() {
    let fixture = GatewayFixture::new(|_| {});
    fixture.telegram.push_text(7, 7, "my name is Ada");
    fixture.expect_last_message(7, "echo: my name is Ada");
    fixture.telegram.push_text(7, 7, "/new");
    fixture.expect_last_message(7, "New session");
    fixture.telegram.push_text(7, 7, "who am I");
    fixture.expect_last_message(7, "echo: who am I");
    let last = fixture.model.requests().last().expect("a request").body().to_string();
    assert!(!last.contains("Ada"));
    fixture.telegram.push_text(7, 7, "/resume Ada");
    fixture.expect_last_message(7, "Back in");
    fixture.telegram.push_text(7, 7, "and now");
    fixture.expect_last_message(7, "echo: and now");
    let last = fixture.model.requests().last().expect("a request").body().to_string();
    assert!(last.contains("Ada") && !last.contains("who am I"));
}

#[test]
fn retry_repeats_and_undo_drops_an_exchange() {
    let fixture = GatewayFixture::new(|_| {});
    fixture.telegram.push_text(7, 7, "tell me");
    fixture.expect_last_message(7, "echo: tell me");
    fixture.telegram.push_text(7, 7, "/retry");
    fixture.expect_messages(7, &["echo: tell me", "echo: tell me"]);
    let messages = fixture.model.requests()[1].messages().len();
    assert_eq!(messages, 2, "system and the one question");
    fixture.telegram.push_text(7, 7, "/undo");
    fixture.expect_last_message(7, "Dropped the last exchange");
    fixture.telegram.push_text(7, 7, "fresh");
    fixture.expect_last_message(7, "echo: fresh");
    assert_eq!(fixture.model.requests()[2].messages().len(), 2);
}

#[test]
fn every_command_replies_without_the_model() {
    let fixture = GatewayFixture::new(|_| {});
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
        ("/platform off", "name an action"),
        ("/queue", "add the message"),
        ("/undo many", "how many exchanges"),
        ("/resume nowhere", "no such session"),
        ("/stauts", "/status"),
    ] {
        fixture.telegram.push_text(7, 7, command);
        fixture.expect_last_message(7, want);
    }
    assert!(fixture.model.requests().is_empty());
}

#[test]
fn usage_shows_the_estimated_cost() {
    let fixture = GatewayFixture::new(|_| {});
    fixture.model.script(Answer::text("hi").usage(1000, 200));
    fixture.telegram.push_text(7, 7, "hello");
    fixture.expect_last_message(7, "hi");
    fixture.telegram.push_text(7, 7, "/usage");
    // 1,000 tokens at 3 dollars and 200 at 15 dollars a million.
    fixture.expect_last_message(7, "1200 in all. Estimated cost: $0.0060.");
}

#[test]
fn reports_a_failed_model_and_answers_the_next_message() {
    let fixture = GatewayFixture::new(|_| {});
    fixture.model.script(Answer::status(401, ""));
    fixture.telegram.push_text(7, 7, "hello");
    fixture.expect_last_message(7, "rejected the API key");
    fixture.telegram.push_text(7, 7, "second try");
    fixture.expect_last_message(7, "second try");
    assert_eq!(fixture.telegram.texts(7).len(), 2);
}

#[test]
fn streams_one_message_with_a_bounded_edit_rate() {
    let fixture = GatewayFixture::new(|settings| settings.streaming.enabled = true);
    let text = "word ".repeat(60);
    let answer = text.clone();
    fixture.model.respond(move |_| Answer::text(answer.clone()).chunks(60).every(Duration::from_millis(50)));
    let started = clock::monotonic();
    fixture.telegram.push_text(7, 7, "talk");
    let done = fixture.telegram.wait_until(SOON, |fixture| (fixture.texts(7) == [text.trim()]).then_some(()));
    assert!(done.is_some(), "{:?}", fixture.telegram.texts(7));
    let took = started.elapsed();
    let operations =
        fixture.telegram.calls_of("sendMessage").len() + fixture.telegram.calls_of("editMessageText").len();
    assert!(operations >= 3, "it was shown while it grew");
    assert!(operations <= 3 + took.as_millis() as usize / 800, "{operations} operations in {took:?}");
}

#[test]
fn keeps_text_before_a_tool_above_text_after_it() {
    let fixture = GatewayFixture::new(|settings| {
        settings.streaming.enabled = true;
        settings.streaming.gap = Duration::from_millis(1);
    });
    let slow = Duration::from_millis(200);
    fixture
        .model
        .script(Answer::text("Let me look at that now.").chunks(4).every(slow).and_tool("clock", json!({})));
    fixture.model.script(Answer::text("It is late by now.").chunks(4).every(slow));
    fixture.telegram.push_text(7, 7, "time?");
    fixture.expect_messages(7, &["Let me look at that now.", "It is late by now."]);
}

#[test]
fn sends_nothing_for_a_silence_marker() {
    let fixture = GatewayFixture::new(|settings| settings.streaming.enabled = true);
    fixture.model.script(Answer::text("NO_REPLY").chunks(4).every(Duration::from_millis(200)));
    fixture.telegram.push_text(7, 7, "psst");
    let answered = fixture.model.wait_until(SOON, |desk| {
        desk.requests()
            .next()
            .filter(|it| it.outcome() == petasos_fakes::model::RequestOutcome::Answered)
            .map(|_| ())
    });
    assert!(answered.is_some(), "the model never answered");
    let key = petasos_core::SessionKey("agent:main:telegram:dm:7".into());
    let mut view = fixture.runtime.block_on(fixture.handle().view(&key)).expect("a view");
    fixture.runtime.block_on(view.wait_for(|view| view.live.is_none())).expect("the turn ends");
    // Delivered after everything that the turn enqueued in this lane.
    fixture.telegram.push_text(7, 7, "/where");
    fixture.expect_last_message(7, "answered");
    assert_eq!(fixture.telegram.texts(7).len(), 1, "{:?}", fixture.telegram.texts(7));
}

#[test]
fn splits_a_long_answer_and_retries_only_failed_parts() {
    let fixture = GatewayFixture::new(|_| {});
    let text = "All work and no play makes Jack a dull boy. ".repeat(220);
    fixture.model.script(Answer::text(text));
    fixture.telegram.on("sendMessage").nth(2).does(Fault::status(500, "Internal Server Error"));
    fixture.telegram.push_text(7, 7, "write");
    fixture.expect_last_message(7, "(3/3)");
    let texts = fixture.telegram.texts(7);
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert_eq!(fixture.telegram.calls_of("sendMessage").len(), 4);
}

#[test]
fn lost_acknowledgement_gives_one_marked_copy() {
    let fixture = GatewayFixture::new(|_| {});
    fixture.telegram.on("sendMessage").does(Fault::ResetAfter);
    fixture.telegram.push_text(7, 7, "hello");
    fixture.expect_last_message(7, "Recovered reply");
    let texts = fixture.telegram.texts(7);
    assert_eq!(texts.len(), 2);
    assert_eq!(texts[0], "echo: hello");
}

#[test]
fn rate_limited_send_waits_as_long_as_required() {
    let fixture = GatewayFixture::new(|_| {});
    fixture.telegram.on("sendMessage").does(Fault::too_many(2));
    let started = clock::monotonic();
    fixture.telegram.push_text(7, 7, "hello");
    fixture.expect_messages(7, &["echo: hello"]);
    assert!(started.elapsed() >= Duration::from_secs(2));
}

#[test]
fn dead_letters_messages_of_a_blocked_bot() {
    let fixture = GatewayFixture::new(|_| {});
    fixture.telegram.on("sendMessage").does(Fault::blocked());
    fixture.telegram.push_text(7, 7, "hello");
    let asked = fixture
        .telegram
        .wait_until(SOON, |fixture| (fixture.calls_of("sendMessage").count() == 1).then_some(()));
    assert!(asked.is_some());
    fixture.telegram.push_text(8, 8, "still there?");
    fixture.expect_messages(8, &["echo: still there?"]);
    let dead = fixture
        .runtime
        .block_on(fixture.handle().outbox(petasos_core::outbox::State::Dead, 10))
        .expect("the outbox");
    assert_eq!(dead.len(), 1);
    assert!(
        dead[0].last_error.as_deref().is_some_and(|error| error.contains("blocked")),
        "{:?}",
        dead[0].last_error
    );
}

#[test]
fn shows_typing_while_the_model_works() {
    let fixture = GatewayFixture::new(|_| {});
    let gate = fixture.model.gate(Point::Before);
    fixture.telegram.push_text(7, 7, "hello");
    let typing =
        fixture.telegram.wait_until(SOON, |fixture| fixture.calls_of("sendChatAction").next().map(|_| ()));
    assert!(typing.is_some());
    gate.open();
    fixture.expect_messages(7, &["echo: hello"]);
}

#[test]
fn joins_the_two_halves_of_a_split_message() {
    let fixture = GatewayFixture::new(|_| {});
    fixture.telegram.push_text(7, 7, "a".repeat(4096));
    fixture.telegram.push_text(7, 7, "and the rest");
    fixture.expect_last_message(7, "and the rest");
    assert_eq!(fixture.model.requests().len(), 1);
}

#[test]
fn duplicate_message_starts_one_turn() {
    let fixture = GatewayFixture::new(|_| {});
    let inbound = support::web("c1", "once");
    let first = fixture.runtime.block_on(fixture.handle().submit(inbound.clone())).expect("accepted");
    let again = fixture.runtime.block_on(fixture.handle().submit(inbound)).expect("known");
    assert_eq!((first.duplicate, again.duplicate), (false, true));
    assert_eq!(first.inbox, again.inbox);
}

#[test]
fn message_right_after_new_uses_the_new_session() {
    let fixture = GatewayFixture::new(|_| {});
    fixture.telegram.push_text(7, 7, "about cats");
    fixture.expect_last_message(7, "echo: about cats");
    fixture.telegram.push_many([Incoming::text(7, 7, "/new"), Incoming::text(7, 7, "about dogs")]);
    fixture.expect_last_message(7, "echo: about dogs");
    let last = fixture.model.requests().last().expect("a request").body().to_string();
    assert!(!last.contains("cats"), "{last}");
}

#[test]
fn refuses_to_queue_a_command() {
    let fixture = GatewayFixture::new(|_| {});
    fixture.telegram.push_text(7, 7, "/queue /stop");
    fixture.expect_last_message(7, "Only messages can be queued");
    assert!(fixture.model.requests().is_empty());
}

#[test]
fn pressed_button_resumes_its_session() {
    let fixture = GatewayFixture::new(|_| {});
    fixture.telegram.push_text(7, 7, "about cats");
    fixture.expect_last_message(7, "echo: about cats");
    fixture.telegram.push_text(7, 7, "/new");
    fixture.expect_last_message(7, "New session");
    fixture.telegram.push_text(7, 7, "about dogs");
    fixture.expect_last_message(7, "echo: about dogs");
    fixture.telegram.push_text(7, 7, "/sessions");
    fixture.expect_last_message(7, "Sessions of this chat");
    let list = fixture.telegram.visible(7).pop().expect("a message");
    let keyboard = list.reply_markup.expect("buttons").to_string();
    assert!(keyboard.contains("about cats"), "{keyboard}");
    let from = keyboard.find("/resume ").expect("a command");
    let pressed: String = keyboard[from..].chars().take_while(|c| *c != '"').collect();
    fixture.telegram.push_callback(7, 7, list.id, &pressed);
    fixture.expect_last_message(7, "Back in “about cats”");
    let answered = fixture
        .telegram
        .wait_until(SOON, |fixture| fixture.calls_of("answerCallbackQuery").next().map(|_| ()));
    assert!(answered.is_some(), "the button was never acknowledged");
}

#[test]
fn unauthorised_user_learns_nothing_from_a_button() {
    let fixture = GatewayFixture::with(|setup| {
        setup.access.allow_all = false;
        setup.access.users = vec!["7".into()];
    });
    fixture.telegram.push_text(7, 7, "hello");
    fixture.expect_last_message(7, "echo: hello");
    let button = fixture.telegram.visible(7).pop().expect("a message").id;
    fixture.telegram.push_callback(7, 66, button, "/status");
    fixture.telegram.push_callback(7, 7, button, "/whoami");
    let answered = || fixture.telegram.calls_of("answerCallbackQuery");
    support::eventually("acknowledged", || (!answered().is_empty()).then_some(()));
    fixture.wait_until_delivered();
    assert_eq!(answered().len(), 1, "{:?}", answered());
}

#[test]
fn commands_respect_their_tiers() {
    let platform = petasos_core::Platform::parse("telegram").expect("known");
    let fixture = GatewayFixture::new(|settings| {
        let admins = vec!["1".to_owned()];
        let tier = petasos_core::access::Tier { admins, commands: Some(vec!["status".into()]) };
        let tiers = petasos_core::access::Tiers { dm: tier, ..Default::default() };
        settings.tiers.insert(platform, tiers);
    });
    for (user, command, want) in [
        (1, "/new", "New session"),
        (2, "/new", "You may not use"),
        (2, "/status", "idle"),
        (2, "/help", "/new"),
    ] {
        fixture.telegram.push_text(user, user, command);
        fixture.expect_last_message(user, want);
    }
    fixture.telegram.push_text(2, 2, "hi");
    fixture.expect_last_message(2, "echo: hi");
}

#[test]
fn automatic_reset_notifies_user_and_model_once() {
    let fixture = GatewayFixture::new(|settings| {
        settings.resets.default.mode = petasos_core::session::ResetMode::Idle;
        settings.resets.default.idle_minutes = 0;
    });
    fixture.telegram.push_text(7, 7, "one");
    fixture.expect_last_message(7, "echo: one");
    fixture.telegram.push_text(7, 7, "two");
    fixture.expect_last_message(7, "two");
    assert!(fixture.telegram.texts(7).iter().any(|text| text.contains("Session automatically reset (idle)")));
    let asked = fixture.model.requests().last().expect("a request").body().to_string();
    assert!(asked.contains("[System note:") && !asked.contains("echo: one"), "{asked}");
}
