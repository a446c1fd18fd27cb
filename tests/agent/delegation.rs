//! Work that is given to others, with the real program: told once, never begun twice, whatever happens to the process.

use std::sync::Arc;

use crate::support::{Bench, SOON, said};
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Point, Request};
use rusqlite::Connection;
use serde_json::json;

const CONFIG: &str = "display:\n  busy_input_mode: queue\n  busy_ack_enabled: false\n";
const HEAD: &str = "[ASYNC DELEGATION BATCH COMPLETE";

/// `delegate: a | b` gives these goals away; children say that they did it; whatever else is said comes back.
fn obey(request: &Request) -> Answer {
    let said = said(&request.last_user);
    if request.messages().last().is_some_and(|row| row["role"] == "tool") {
        return Answer::text("dispatched");
    }
    if let Some(goal) = said.strip_prefix("Your task: ") {
        return Answer::text(format!("did {goal}"));
    }
    match said.strip_prefix("delegate: ") {
        Some(goals) => {
            let tasks: Vec<_> = goals.split(" | ").map(|goal| json!({ "goal": goal })).collect();
            Answer::tool("delegate_task", json!({ "tasks": tasks }))
        }
        None => Answer::text(format!("heard: {said}")),
    }
}

/// The model waits at the gate whenever what it is asked begins like this.
fn bench_that_waits_at(beginning: &'static str) -> (Bench, Arc<Gate>) {
    let mut bench = Bench::with(CONFIG);
    let gate = Arc::new(Gate::new());
    let held = gate.clone();
    bench.model.respond(move |request| {
        let answer = obey(request);
        if said(&request.last_user).starts_with(beginning) {
            answer.gate(Point::Before, &held)
        } else {
            answer
        }
    });
    bench.start();
    (bench, gate)
}

/// Waits until the chat was told, and until nothing is left to do.
#[track_caller]
fn told(bench: &Bench) {
    let seen = bench
        .telegram
        .wait_until(SOON, |world| world.texts(7).iter().any(|text| text.contains(HEAD)).then_some(()));
    assert!(seen.is_some(), "never told: {:?}", bench.telegram.texts(7));
    bench.settle();
}

/// Says something else, and waits until nothing is left to do.
#[track_caller]
fn hello(bench: &Bench) {
    bench.telegram.push_text(7, 7, "hello");
    let heard = |texts: Vec<String>| texts.iter().any(|text| text == "heard: hello").then_some(());
    let seen = bench.telegram.wait_until(SOON, |world| heard(world.texts(7)));
    assert!(seen.is_some(), "never answered: {:?}", bench.telegram.texts(7));
    bench.settle();
}

/// What conversations were told of work they gave away.
fn rows(bench: &Bench) -> Vec<String> {
    let store = Connection::open(bench.database()).expect("a store");
    let mut read = store
        .prepare("SELECT content FROM messages WHERE role = 'user' AND content LIKE '%[ASYNC DELEGATION%'")
        .expect("a question");
    let rows = read.query_map([], |row| row.get(0)).expect("answers");
    rows.collect::<Result<_, _>>().expect("rows")
}

fn asked(bench: &Bench, what: &str) -> usize {
    bench.model.look(|desk| desk.requests().filter(|it| said(&it.last_user) == what).count())
}

/// Answers about it that are not marked as a possible copy.
fn unmarked(bench: &Bench) -> usize {
    let texts = bench.telegram.texts(7);
    texts.iter().filter(|text| text.contains(HEAD) && !text.contains("Recovered reply")).count()
}

#[test]
fn two_tasks_are_told_together_once_in_their_order() {
    let (mut bench, gate) = bench_that_waits_at("Your task: first");
    bench.telegram.push_text(7, 7, "delegate: first | second");
    assert_eq!(bench.wait_messages(7, 1), ["dispatched"]);
    assert!(gate.wait(SOON), "nobody works");
    assert_eq!(rows(&bench), Vec::<String>::new());
    gate.open();
    told(&bench);
    let rows_before = rows(&bench);
    assert_eq!((rows_before.len(), unmarked(&bench)), (1, 1), "{rows_before:?}");
    let text = &rows_before[0];
    let places = [
        "TASK 1/2: first (status=completed)",
        "did first",
        "TASK 2/2: second (status=completed)",
        "did second",
    ]
    .map(|it| text.find(it).unwrap_or_else(|| panic!("no {it}: {text}")));
    assert!(places.is_sorted(), "{text}");
    bench.kill();
    bench.start();
    hello(&bench);
    assert_eq!((rows(&bench), unmarked(&bench)), (rows_before, 1), "and no more");
}

#[test]
fn killed_while_children_work_the_outcome_is_told_once_as_unknown_and_nothing_is_begun_again() {
    let (mut bench, gate) = bench_that_waits_at("Your task: ");
    bench.telegram.push_text(7, 7, "delegate: slow work");
    assert_eq!(bench.wait_messages(7, 1), ["dispatched"]);
    assert!(gate.wait(SOON), "nobody works");
    bench.settle_outbox();
    bench.kill();
    bench.start();
    told(&bench);
    let all = rows(&bench);
    assert_eq!((all.len(), unmarked(&bench)), (1, 1), "{all:?}");
    assert!(all[0].contains("status=unknown") && all[0].contains("UNKNOWN"), "{all:?}");
    assert!(all[0].contains("TASK 1/1: slow work"), "{all:?}");
    assert_eq!(asked(&bench, "Your task: slow work"), 1, "the child was taken up again");
    gate.open();
    bench.kill();
    bench.start();
    hello(&bench);
    assert_eq!((rows(&bench).len(), unmarked(&bench)), (1, 1));
    assert_eq!(asked(&bench, "Your task: slow work"), 1);
}

#[test]
fn killed_while_the_results_are_being_told_they_are_told_once() {
    let (mut bench, gate) = bench_that_waits_at(HEAD);
    bench.telegram.push_text(7, 7, "delegate: quick work");
    assert_eq!(bench.wait_messages(7, 1), ["dispatched"]);
    assert!(gate.wait(SOON), "the results never come");
    bench.settle_outbox();
    bench.kill();
    gate.open();
    bench.start();
    told(&bench);
    let all = rows(&bench);
    assert_eq!((all.len(), unmarked(&bench)), (1, 1), "{all:?}");
    assert!(all[0].contains("status=completed") && all[0].contains("did quick work"), "{all:?}");
    assert_eq!(asked(&bench, "Your task: quick work"), 1);
}
