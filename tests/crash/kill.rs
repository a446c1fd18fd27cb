//! `kill -9` at every stage of a message, then a restart: no loss, no repeated turn, no unmarked duplicate.

use std::time::Duration;

use crate::support::{ProgramFixture, SOON, assert_took_at_most, user_text};
use petasos_fakes::model::{Answer, Point};
use petasos_fakes::telegram::Side;
use petasos_runtime::clock;

/// The chats that write in each test: two, or `PETASOS_KILL_MESSAGES`.
fn chats() -> impl Iterator<Item = i64> {
    let count = std::env::var("PETASOS_KILL_MESSAGES").ok().and_then(|it| it.parse().ok()).unwrap_or(2);
    101..101 + count
}

fn message_count() -> u64 {
    chats().count() as u64
}

const MARK: &str = "Recovered reply";

fn push_messages(fixture: &ProgramFixture) {
    for chat in chats() {
        fixture.telegram.push_text(chat, chat, format!("hello from {chat}"));
    }
}

#[derive(Clone, Copy)]
enum Shutdown {
    Kill,
    Term,
}

impl Shutdown {
    fn apply(self, fixture: &mut ProgramFixture) {
        match self {
            Self::Kill => drop(fixture.kill()),
            Self::Term => drop(fixture.terminate()),
        }
    }
}

/// Restarts and checks: each chat gets its own answer once, and further copies only with a mark.
#[track_caller]
fn restart_and_check(fixture: &mut ProgramFixture, allow_marked: bool) {
    let started = clock::monotonic();
    fixture.start();
    for chat in chats() {
        let answer = format!("echo: hello from {chat}");
        let found = fixture.telegram.wait_until(SOON, |state| {
            let texts = state.texts(chat);
            texts.iter().any(|text| text.ends_with(&answer)).then_some(texts)
        });
        let texts = found
            .unwrap_or_else(|| panic!("chat {chat} was never answered: {:?}", fixture.telegram.texts(chat)));
        assert_took_at_most(Duration::from_secs(2), started);
        drop(texts);
    }
    fixture.wait_idle();
    for chat in chats() {
        let answer = format!("echo: hello from {chat}");
        let texts: Vec<_> = fixture
            .telegram
            .texts(chat)
            .into_iter()
            .filter(|text| !text.contains("Gateway shutting down"))
            .collect();
        let unmarked = texts.iter().filter(|text| **text == answer).count();
        let marked = texts.iter().filter(|text| text.contains(MARK)).count();
        assert!(unmarked <= 1, "an unmarked duplicate in chat {chat}: {texts:?}");
        assert_eq!(unmarked + marked, texts.len(), "something else in chat {chat}: {texts:?}");
        assert!(unmarked + marked >= 1, "no answer in chat {chat}");
        assert!(allow_marked || marked == 0, "marked without need in chat {chat}: {texts:?}");
    }
}

fn model_calls(fixture: &ProgramFixture) -> usize {
    fixture.model.requests().len()
}

#[test]
fn kill_after_fetching_updates_loses_nothing() {
    for shutdown in [Shutdown::Kill, Shutdown::Term] {
        let mut fixture = ProgramFixture::new();
        fixture.start();
        let answered = |state: &petasos_fakes::telegram::State| {
            state
                .calls_of("getUpdates")
                .filter(|poll| poll.outcome == petasos_fakes::telegram::Outcome::Ok)
                .count()
        };
        let before = fixture.telegram.read(answered);
        push_messages(&fixture);
        let fetched = fixture.telegram.wait_until(SOON, |state| (answered(state) > before).then_some(()));
        assert!(fetched.is_some(), "the updates were never fetched");
        shutdown.apply(&mut fixture);
        match shutdown {
            Shutdown::Kill => restart_and_check(&mut fixture, true),
            Shutdown::Term => {
                // Answered, or refused with a notice because of the shutdown.
                fixture.start();
                for chat in chats() {
                    let text = fixture.wait_messages(chat, 1).concat();
                    assert!(
                        text.ends_with(&format!("hello from {chat}"))
                            || text.contains("not accepting new work")
                    );
                }
            }
        }
    }
}

#[test]
fn kill_after_acknowledging_updates_loses_nothing() {
    for shutdown in [Shutdown::Kill, Shutdown::Term] {
        let mut fixture = ProgramFixture::new();
        let gate = fixture.model.gate(Point::Before);
        fixture.start();
        push_messages(&fixture);
        let acknowledged =
            fixture.telegram.wait_until(SOON, |state| (state.pending_updates() == 0).then_some(()));
        assert!(acknowledged.is_some(), "the offset never moved");
        shutdown.apply(&mut fixture);
        gate.open();
        restart_and_check(&mut fixture, false);
    }
}

#[test]
fn kill_before_model_call_loses_nothing() {
    for shutdown in [Shutdown::Kill, Shutdown::Term] {
        let mut fixture = ProgramFixture::new();
        fixture.model.down();
        fixture.start();
        push_messages(&fixture);
        let acknowledged =
            fixture.telegram.wait_until(SOON, |state| (state.pending_updates() == 0).then_some(()));
        assert!(acknowledged.is_some(), "the offset never moved");
        shutdown.apply(&mut fixture);
        fixture.model.up().expect("the model comes back");
        restart_and_check(&mut fixture, false);
        assert_eq!(model_calls(&fixture), chats().count());
    }
}

#[test]
fn kill_during_model_call_repeats_it_once() {
    for shutdown in [Shutdown::Kill, Shutdown::Term] {
        let mut fixture = ProgramFixture::new();
        let gate = fixture.model.gate(Point::Before);
        fixture.start();
        push_messages(&fixture);
        assert!(gate.wait_for(message_count(), SOON), "the model was never asked");
        shutdown.apply(&mut fixture);
        gate.open();
        restart_and_check(&mut fixture, false);
        assert_eq!(model_calls(&fixture), 2 * chats().count(), "each call is repeated once");
    }
}

#[test]
fn kill_during_streamed_answer_finishes_it() {
    let mut fixture = ProgramFixture::with_config("streaming:\n  enabled: true\n  transport: edit\n");
    let gate = fixture.model.gate(Point::AfterDelta(2));
    fixture
        .model
        .respond(|request| Answer::text(format!("echo: {}", user_text(&request.last_user))).chunks(4));
    fixture.start();
    push_messages(&fixture);
    for chat in chats() {
        fixture.wait_messages(chat, 1);
    }
    fixture.kill();
    gate.open();
    fixture.start();
    for chat in chats() {
        let answer = format!("echo: hello from {chat}");
        // If the id of the preview was not stored, a marked copy follows the unfinished preview.
        let done = fixture.telegram.wait_until(SOON, |state| {
            let texts = state.texts(chat);
            let last = texts.last()?;
            let marked = last.contains(MARK) && last.ends_with(&answer);
            (texts == [answer.clone()] || marked).then_some(())
        });
        assert!(done.is_some(), "{:?}", fixture.telegram.texts(chat));
    }
}

#[test]
fn kill_after_model_answer_loses_nothing() {
    for shutdown in [Shutdown::Kill, Shutdown::Term] {
        let mut fixture = ProgramFixture::new();
        let gate = fixture.model.gate(Point::Before);
        fixture.start();
        push_messages(&fixture);
        assert!(gate.wait_for(message_count(), SOON), "the model was never asked");
        gate.open();
        let answered = fixture.model.wait_until(SOON, |state| {
            state
                .requests()
                .all(|request| request.outcome() == petasos_fakes::model::RequestOutcome::Answered)
                .then_some(())
        });
        assert!(answered.is_some(), "the model never answered");
        shutdown.apply(&mut fixture);
        restart_and_check(&mut fixture, true);
    }
}

#[test]
fn kill_before_send_arrives_delivers_answer() {
    for shutdown in [Shutdown::Kill, Shutdown::Term] {
        let mut fixture = ProgramFixture::new();
        let gate = fixture.telegram.gate("sendMessage", Side::Before);
        fixture.start();
        push_messages(&fixture);
        assert!(gate.wait_for(message_count(), SOON), "nothing was sent");
        let calls = model_calls(&fixture);
        shutdown.apply(&mut fixture);
        gate.open();
        restart_and_check(&mut fixture, true);
        assert_eq!(model_calls(&fixture), calls, "a finished turn ran again");
    }
}

#[test]
fn kill_before_send_result_gives_one_marked_copy() {
    let mut fixture = ProgramFixture::new();
    let gate = fixture.telegram.gate("sendMessage", Side::After);
    fixture.start();
    push_messages(&fixture);
    assert!(gate.wait_for(message_count(), SOON), "nothing was sent");
    let calls = model_calls(&fixture);
    fixture.kill();
    gate.open();
    restart_and_check(&mut fixture, true);
    for chat in chats() {
        let texts = fixture.telegram.texts(chat);
        assert_eq!(texts.len(), 2, "not one marked copy after an unknown outcome: {texts:?}");
        assert!(texts[1].contains(MARK) && texts[1].contains("may be a duplicate"), "{texts:?}");
    }
    assert_eq!(model_calls(&fixture), calls, "a finished turn ran again");
}

#[test]
fn kill_after_send_repeats_no_turn() {
    for shutdown in [Shutdown::Kill, Shutdown::Term] {
        let mut fixture = ProgramFixture::new();
        fixture.start();
        push_messages(&fixture);
        for chat in chats() {
            fixture.wait_messages(chat, 1);
        }
        let calls = model_calls(&fixture);
        shutdown.apply(&mut fixture);
        restart_and_check(&mut fixture, true);
        assert_eq!(model_calls(&fixture), calls, "a finished turn ran again");
    }
}

#[test]
fn kill_when_idle_repeats_nothing() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    push_messages(&fixture);
    for chat in chats() {
        fixture.wait_messages(chat, 1);
    }
    fixture.wait_idle();
    fixture.kill();
    restart_and_check(&mut fixture, false);
    assert_eq!(model_calls(&fixture), chats().count());
}

#[test]
fn answers_messages_that_arrived_during_downtime() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    fixture.kill();
    push_messages(&fixture);
    restart_and_check(&mut fixture, false);
}

#[test]
fn duplicate_updates_are_answered_once() {
    let mut fixture = ProgramFixture::new();
    fixture.telegram.on("getUpdates").times(4).does(petasos_fakes::telegram::Fault::duplicate_updates());
    fixture.start();
    push_messages(&fixture);
    for chat in chats() {
        fixture.wait_messages(chat, 1);
    }
    fixture.wait_idle();
    fixture.kill();
    restart_and_check(&mut fixture, false);
    assert_eq!(model_calls(&fixture), chats().count());
}

#[test]
fn queued_commands_run_in_order_after_restart() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    fixture.telegram.push_text(7, 7, "before");
    fixture.wait_messages(7, 1);
    fixture.wait_idle();
    fixture.kill();
    fixture.telegram.push_text(7, 7, "/new");
    fixture.telegram.push_text(7, 7, "after");
    fixture.start();
    let texts = fixture.wait_messages(7, 3);
    assert!(texts[1].contains("New session"), "{texts:?}");
    assert_eq!(texts[2], "echo: after");
}

#[test]
fn queued_stop_cancels_the_resumed_turn() {
    let mut fixture = ProgramFixture::new();
    let gate = fixture.model.gate(Point::Before);
    fixture.start();
    fixture.telegram.push_text(7, 7, "long work");
    assert!(gate.wait(SOON), "the model was never asked");
    fixture.kill();
    fixture.telegram.push_text(7, 7, "/stop");
    fixture.start();
    let stopped = fixture
        .telegram
        .wait_until(SOON, |state| state.texts(7).iter().any(|text| text.contains("Stopped")).then_some(()));
    assert!(stopped.is_some(), "{:?}", fixture.telegram.texts(7));
    gate.open();
    fixture.wait_idle();
    assert!(
        !fixture.telegram.texts(7).iter().any(|text| text.contains("echo")),
        "{:?}",
        fixture.telegram.texts(7)
    );
}

#[test]
fn open_turn_waits_for_disabled_platform() {
    let mut fixture = ProgramFixture::new();
    let gate = fixture.model.gate(Point::Before);
    fixture.start();
    fixture.telegram.push_text(7, 7, "hello");
    assert!(gate.wait(SOON), "the model was never asked");
    fixture.kill();
    gate.open();
    let config = fixture.home.path().join("config.yaml");
    let with = std::fs::read_to_string(&config).expect("config");
    std::fs::write(&config, with.replace("enabled: true", "enabled: false")).expect("config");
    fixture.launch();
    fixture.wait_state("running");
    let status = fixture.status();
    assert_eq!(status["inbox"]["running"], 1, "{status}");
    fixture.kill();
    assert_eq!(model_calls(&fixture), 1, "called the model for an unreachable chat");
    std::fs::write(&config, with).expect("config");
    fixture.start();
    assert_eq!(fixture.wait_messages(7, 1), ["echo: hello"]);
    assert_eq!(model_calls(&fixture), 2);
}

#[test]
fn queued_message_is_acknowledged_once() {
    let mut fixture = ProgramFixture::new();
    let gate = fixture.model.gate(Point::Before);
    fixture.start();
    fixture.telegram.push_text(7, 7, "first");
    assert!(gate.wait(SOON), "the model was never asked");
    fixture.telegram.push_text(7, 7, "/queue second");
    fixture.wait_messages(7, 1);
    fixture.wait_outbox_empty();
    fixture.kill();
    gate.open();
    fixture.start();
    let done = fixture.telegram.wait_until(SOON, |state| {
        state.texts(7).iter().any(|text| text == "echo: second").then(|| state.texts(7))
    });
    let texts = done.unwrap_or_else(|| panic!("{:?}", fixture.telegram.texts(7)));
    assert_eq!(texts.iter().filter(|text| text.contains("Queued")).count(), 1, "{texts:?}");
    assert_eq!(texts.iter().filter(|text| text.starts_with("echo")).count(), 2, "{texts:?}");
}

#[test]
fn kill_after_tool_call_does_not_repeat_it() {
    let mut fixture = ProgramFixture::new();
    let gate = fixture.model.gate(Point::Before);
    let arguments = serde_json::json!({"path": "note.txt", "content": "milk"});
    fixture.model.script(Answer::tool("write_file", arguments));
    fixture.start();
    fixture.telegram.push_text(7, 7, "note milk");
    assert!(gate.wait(SOON), "the model was never asked");
    gate.pass_one();
    let note = fixture.home.path().join("workspace/note.txt");
    let used = fixture.model.wait_until(SOON, |state| (state.request_count() == 2).then_some(()));
    assert!(used.is_some(), "the result was never shown to the model");
    std::fs::remove_file(&note).expect("the tool ran");
    fixture.kill();
    gate.open();
    fixture.start();
    assert_eq!(fixture.wait_messages(7, 1), ["echo: note milk"]);
    assert!(!note.exists(), "the tool ran a second time");
    let last = fixture.model.requests().last().expect("a request").messages().to_vec();
    let results = last.iter().filter(|message| message["role"] == "tool").count();
    assert_eq!(results, 1, "{last:?}");
}
