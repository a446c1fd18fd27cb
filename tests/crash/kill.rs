//! `kill -9` at every point of a message's life, then a restart: nothing lost, nothing run twice, no
//! copy without a mark.

use std::time::{Duration, Instant};

use crate::support::{Bench, SOON, assert_took_at_most, said};
use petasos_fakes::model::{Answer, Point};
use petasos_fakes::telegram::Side;

/// Chats that write in each test: two, or as many as `PETASOS_KILL_MESSAGES` says.
fn chats() -> impl Iterator<Item = i64> {
    let count = std::env::var("PETASOS_KILL_MESSAGES").ok().and_then(|it| it.parse().ok()).unwrap_or(2);
    101..101 + count
}

fn messages() -> u64 {
    chats().count() as u64
}

const MARK: &str = "Recovered reply";

fn say(bench: &Bench) {
    for chat in chats() {
        bench.telegram.push_text(chat, chat, format!("hello from {chat}"));
    }
}

/// How a gateway ends in these tests.
#[derive(Clone, Copy)]
enum End {
    Kill,
    Term,
}

impl End {
    fn end(self, bench: &mut Bench) {
        match self {
            Self::Kill => drop(bench.kill()),
            Self::Term => drop(bench.terminate()),
        }
    }
}

/// Restarts and checks: each chat gets its own answer once, further copies only with a mark, within two
/// seconds.
#[track_caller]
fn all_is_well(bench: &mut Bench, allow_marked: bool) {
    let started = Instant::now();
    bench.start();
    for chat in chats() {
        let answer = format!("echo: hello from {chat}");
        let found = bench.telegram.wait_until(SOON, |world| {
            let texts = world.texts(chat);
            texts.iter().any(|text| text.ends_with(&answer)).then_some(texts)
        });
        let texts = found
            .unwrap_or_else(|| panic!("chat {chat} was never answered: {:?}", bench.telegram.texts(chat)));
        assert_took_at_most(Duration::from_secs(2), started);
        drop(texts);
    }
    bench.settle();
    for chat in chats() {
        let answer = format!("echo: hello from {chat}");
        let texts: Vec<_> = bench
            .telegram
            .texts(chat)
            .into_iter()
            .filter(|text| !text.contains("Gateway shutting down"))
            .collect();
        let unmarked = texts.iter().filter(|text| **text == answer).count();
        let marked = texts.iter().filter(|text| text.contains(MARK)).count();
        assert!(unmarked <= 1, "an unmarked duplicate in chat {chat}: {texts:?}");
        assert_eq!(unmarked + marked, texts.len(), "something else in chat {chat}: {texts:?}");
        assert!(unmarked + marked >= 1, "nothing in chat {chat}");
        assert!(allow_marked || marked == 0, "marked without need in chat {chat}: {texts:?}");
    }
}

fn model_calls(bench: &Bench) -> usize {
    bench.model.requests().len()
}

#[test]
fn killed_when_the_updates_have_just_been_fetched() {
    for end in [End::Kill, End::Term] {
        let mut bench = Bench::new();
        bench.start();
        let answered = |world: &petasos_fakes::telegram::World| {
            world
                .calls_of("getUpdates")
                .filter(|poll| poll.outcome == petasos_fakes::telegram::Outcome::Ok)
                .count()
        };
        let before = bench.telegram.look(answered);
        say(&bench);
        // The poll that brings them has been answered; nothing else is waited for.
        let fetched = bench.telegram.wait_until(SOON, |world| (answered(world) > before).then_some(()));
        assert!(fetched.is_some(), "the updates were never fetched");
        end.end(&mut bench);
        match end {
            End::Kill => all_is_well(&mut bench, true),
            End::Term => {
                // Answered, or turned away because the gateway was on its way out: either way they are told.
                bench.start();
                for chat in chats() {
                    let text = bench.wait_messages(chat, 1).concat();
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
fn killed_when_the_updates_have_been_acknowledged() {
    for end in [End::Kill, End::Term] {
        let mut bench = Bench::new();
        let gate = bench.model.gate(Point::Before);
        bench.start();
        say(&bench);
        let acknowledged =
            bench.telegram.wait_until(SOON, |world| (world.pending_updates() == 0).then_some(()));
        assert!(acknowledged.is_some(), "the offset never moved");
        end.end(&mut bench);
        gate.open();
        all_is_well(&mut bench, false);
    }
}

#[test]
fn killed_before_the_model_could_be_called() {
    for end in [End::Kill, End::Term] {
        let mut bench = Bench::new();
        bench.model.down();
        bench.start();
        say(&bench);
        let acknowledged =
            bench.telegram.wait_until(SOON, |world| (world.pending_updates() == 0).then_some(()));
        assert!(acknowledged.is_some(), "the offset never moved");
        end.end(&mut bench);
        bench.model.up().expect("the model comes back");
        all_is_well(&mut bench, false);
        assert_eq!(model_calls(&bench), chats().count());
    }
}

#[test]
fn killed_during_the_model_call() {
    for end in [End::Kill, End::Term] {
        let mut bench = Bench::new();
        let gate = bench.model.gate(Point::Before);
        bench.start();
        say(&bench);
        assert!(gate.wait_for(messages(), SOON), "the model was never asked");
        end.end(&mut bench);
        gate.open();
        all_is_well(&mut bench, false);
        assert_eq!(model_calls(&bench), 2 * chats().count(), "each call is asked once more, no more");
    }
}

#[test]
fn killed_in_the_middle_of_a_streamed_answer() {
    let mut bench = Bench::with("streaming:\n  enabled: true\n  transport: edit\n");
    let gate = bench.model.gate(Point::AfterDelta(2));
    bench.model.respond(|request| Answer::text(format!("echo: {}", said(&request.last_user))).chunks(4));
    bench.start();
    say(&bench);
    for chat in chats() {
        bench.wait_messages(chat, 1);
    }
    bench.kill();
    gate.open();
    bench.start();
    for chat in chats() {
        let answer = format!("echo: hello from {chat}");
        // The preview's id was stored or not; if not, a marked copy stands below the unfinished preview.
        let done = bench.telegram.wait_until(SOON, |world| {
            let texts = world.texts(chat);
            let last = texts.last()?;
            let marked = last.contains(MARK) && last.ends_with(&answer);
            (texts == [answer.clone()] || marked).then_some(())
        });
        assert!(done.is_some(), "{:?}", bench.telegram.texts(chat));
    }
}

#[test]
fn killed_right_after_the_model_answered() {
    for end in [End::Kill, End::Term] {
        let mut bench = Bench::new();
        let gate = bench.model.gate(Point::Before);
        bench.start();
        say(&bench);
        assert!(gate.wait_for(messages(), SOON), "the model was never asked");
        gate.open();
        let answered = bench.model.wait_until(SOON, |desk| {
            desk.requests()
                .all(|request| request.outcome() == petasos_fakes::model::Outcome::Answered)
                .then_some(())
        });
        assert!(answered.is_some(), "the model never answered");
        end.end(&mut bench);
        all_is_well(&mut bench, true);
    }
}

#[test]
fn killed_while_the_send_is_on_its_way_and_has_not_arrived() {
    for end in [End::Kill, End::Term] {
        let mut bench = Bench::new();
        let gate = bench.telegram.gate("sendMessage", Side::Before);
        bench.start();
        say(&bench);
        assert!(gate.wait_for(messages(), SOON), "nothing was sent");
        let calls = model_calls(&bench);
        end.end(&mut bench);
        gate.open();
        all_is_well(&mut bench, true);
        assert_eq!(model_calls(&bench), calls, "a finished turn ran again");
    }
}

#[test]
fn killed_when_the_send_has_arrived_and_its_answer_has_not() {
    let mut bench = Bench::new();
    let gate = bench.telegram.gate("sendMessage", Side::After);
    bench.start();
    say(&bench);
    assert!(gate.wait_for(messages(), SOON), "nothing was sent");
    let calls = model_calls(&bench);
    bench.kill();
    gate.open();
    all_is_well(&mut bench, true);
    for chat in chats() {
        let texts = bench.telegram.texts(chat);
        assert_eq!(texts.len(), 2, "the outcome was unknown, so there is one marked copy: {texts:?}");
        assert!(texts[1].contains(MARK) && texts[1].contains("may be a duplicate"), "{texts:?}");
    }
    assert_eq!(model_calls(&bench), calls, "a finished turn ran again");
}

#[test]
fn killed_after_the_send() {
    for end in [End::Kill, End::Term] {
        let mut bench = Bench::new();
        bench.start();
        say(&bench);
        for chat in chats() {
            bench.wait_messages(chat, 1);
        }
        let calls = model_calls(&bench);
        end.end(&mut bench);
        all_is_well(&mut bench, true);
        assert_eq!(model_calls(&bench), calls, "a finished turn ran again");
    }
}

#[test]
fn killed_when_everything_is_done() {
    let mut bench = Bench::new();
    bench.start();
    say(&bench);
    for chat in chats() {
        bench.wait_messages(chat, 1);
    }
    bench.settle();
    bench.kill();
    all_is_well(&mut bench, false);
    assert_eq!(model_calls(&bench), chats().count());
}

#[test]
fn messages_that_arrive_while_the_gateway_is_down_are_answered() {
    let mut bench = Bench::new();
    bench.start();
    bench.kill();
    say(&bench);
    all_is_well(&mut bench, false);
}

#[test]
fn the_same_update_delivered_twice_is_answered_once() {
    let mut bench = Bench::new();
    bench.telegram.on("getUpdates").times(4).does(petasos_fakes::telegram::Fault::DuplicateUpdates);
    bench.start();
    say(&bench);
    for chat in chats() {
        bench.wait_messages(chat, 1);
    }
    bench.settle();
    bench.kill();
    all_is_well(&mut bench, false);
    assert_eq!(model_calls(&bench), chats().count());
}

#[test]
fn commands_that_waited_are_obeyed_in_their_place() {
    let mut bench = Bench::new();
    bench.start();
    bench.telegram.push_text(7, 7, "before");
    bench.wait_messages(7, 1);
    bench.settle();
    bench.kill();
    bench.telegram.push_text(7, 7, "/new");
    bench.telegram.push_text(7, 7, "after");
    bench.start();
    let texts = bench.wait_messages(7, 3);
    assert!(texts[1].contains("New session"), "{texts:?}");
    assert_eq!(texts[2], "echo: after");
}

#[test]
fn a_stop_that_waited_finds_the_turn_it_was_meant_for() {
    let mut bench = Bench::new();
    let gate = bench.model.gate(Point::Before);
    bench.start();
    bench.telegram.push_text(7, 7, "long work");
    assert!(gate.wait(SOON), "the model was never asked");
    bench.kill();
    bench.telegram.push_text(7, 7, "/stop");
    bench.start();
    let stopped = bench
        .telegram
        .wait_until(SOON, |world| world.texts(7).iter().any(|text| text.contains("Stopped")).then_some(()));
    assert!(stopped.is_some(), "{:?}", bench.telegram.texts(7));
    gate.open();
    bench.settle();
    assert!(
        !bench.telegram.texts(7).iter().any(|text| text.contains("echo")),
        "{:?}",
        bench.telegram.texts(7)
    );
}

#[test]
fn what_is_open_on_a_platform_that_is_switched_off_waits_for_it() {
    let mut bench = Bench::new();
    let gate = bench.model.gate(Point::Before);
    bench.start();
    bench.telegram.push_text(7, 7, "hello");
    assert!(gate.wait(SOON), "the model was never asked");
    bench.kill();
    gate.open();
    let config = bench.home.path().join("config.yaml");
    let with = std::fs::read_to_string(&config).expect("config");
    std::fs::write(&config, with.replace("enabled: true", "enabled: false")).expect("config");
    bench.launch();
    bench.await_state("running");
    let status = bench.status();
    assert_eq!(status["inbox"]["running"], 1, "{status}");
    bench.kill();
    assert_eq!(model_calls(&bench), 1, "asked for somebody who cannot hear the answer");
    std::fs::write(&config, with).expect("config");
    bench.start();
    assert_eq!(bench.wait_messages(7, 1), ["echo: hello"]);
    assert_eq!(model_calls(&bench), 2);
}

#[test]
fn what_was_queued_and_acknowledged_is_not_acknowledged_again() {
    let mut bench = Bench::new();
    let gate = bench.model.gate(Point::Before);
    bench.start();
    bench.telegram.push_text(7, 7, "first");
    assert!(gate.wait(SOON), "the model was never asked");
    bench.telegram.push_text(7, 7, "/queue second");
    bench.wait_messages(7, 1);
    bench.settle_outbox();
    bench.kill();
    gate.open();
    bench.start();
    let done = bench.telegram.wait_until(SOON, |world| {
        world.texts(7).iter().any(|text| text == "echo: second").then(|| world.texts(7))
    });
    let texts = done.unwrap_or_else(|| panic!("{:?}", bench.telegram.texts(7)));
    assert_eq!(texts.iter().filter(|text| text.contains("Queued")).count(), 1, "{texts:?}");
    assert_eq!(texts.iter().filter(|text| text.starts_with("echo")).count(), 2, "{texts:?}");
}

#[test]
fn killed_after_a_tool_ran_does_not_run_it_again() {
    let mut bench = Bench::new();
    let gate = bench.model.gate(Point::Before);
    let arguments = serde_json::json!({"path": "note.txt", "content": "milk"});
    bench.model.script(Answer::tool("write_file", arguments));
    bench.start();
    bench.telegram.push_text(7, 7, "note milk");
    assert!(gate.wait(SOON), "the model was never asked");
    gate.pass_one();
    let note = bench.home.path().join("workspace/note.txt");
    let used = bench.model.wait_until(SOON, |desk| (desk.request_count() == 2).then_some(()));
    assert!(used.is_some(), "the result was never shown to the model");
    std::fs::remove_file(&note).expect("the tool ran");
    bench.kill();
    gate.open();
    bench.start();
    assert_eq!(bench.wait_messages(7, 1), ["echo: note milk"]);
    assert!(!note.exists(), "the tool ran a second time");
    let last = bench.model.requests().last().expect("a request").messages().to_vec();
    let results = last.iter().filter(|message| message["role"] == "tool").count();
    assert_eq!(results, 1, "{last:?}");
}
