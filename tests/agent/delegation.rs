//! Delegated tasks across kills: reported once, never started twice.

use std::sync::Arc;

use crate::support::{ProgramFixture, SOON, user_text};
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, ChatRequest, Point};
use rusqlite::Connection;
use serde_json::json;

const CONFIG: &str = "display:\n  busy_input_mode: queue\n  busy_ack_enabled: false\n";
const HEAD: &str = "[ASYNC DELEGATION BATCH COMPLETE";

/// `delegate: a | b` delegates these goals; subagents report success; other text is echoed.
fn scripted_answer(request: &ChatRequest) -> Answer {
    let said = user_text(&request.last_user);
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

/// The model waits at the gate for every input with this prefix.
fn gated_fixture(prefix: &'static str) -> (ProgramFixture, Arc<Gate>) {
    let mut fixture = ProgramFixture::with_config(CONFIG);
    let gate = Arc::new(Gate::new());
    let held = gate.clone();
    fixture.model.respond(move |request| {
        let answer = scripted_answer(request);
        if user_text(&request.last_user).starts_with(prefix) {
            answer.gate(Point::Before, &held)
        } else {
            answer
        }
    });
    fixture.start();
    (fixture, gate)
}

#[track_caller]
fn wait_report(fixture: &ProgramFixture) {
    let seen = fixture
        .telegram
        .wait_until(SOON, |state| state.texts(7).iter().any(|text| text.contains(HEAD)).then_some(()));
    assert!(seen.is_some(), "no report: {:?}", fixture.telegram.texts(7));
    fixture.wait_idle();
}

/// Sends another message, and waits for its answer and for an idle gateway.
#[track_caller]
fn exchange_hello(fixture: &ProgramFixture) {
    fixture.telegram.push_text(7, 7, "hello");
    let heard = |texts: Vec<String>| texts.iter().any(|text| text == "heard: hello").then_some(());
    let seen = fixture.telegram.wait_until(SOON, |state| heard(state.texts(7)));
    assert!(seen.is_some(), "never answered: {:?}", fixture.telegram.texts(7));
    fixture.wait_idle();
}

fn report_rows(fixture: &ProgramFixture) -> Vec<String> {
    let store = Connection::open(fixture.database()).expect("a store");
    let mut read = store
        .prepare("SELECT content FROM messages WHERE role = 'user' AND content LIKE '%[ASYNC DELEGATION%'")
        .expect("a question");
    let rows = read.query_map([], |row| row.get(0)).expect("answers");
    rows.collect::<Result<_, _>>().expect("rows")
}

fn model_calls(fixture: &ProgramFixture, input: &str) -> usize {
    fixture.model.read(|state| state.requests().filter(|it| user_text(&it.last_user) == input).count())
}

/// Reports in the chat that are not marked as a possible duplicate.
fn unmarked_reports(fixture: &ProgramFixture) -> usize {
    let texts = fixture.telegram.texts(7);
    texts.iter().filter(|text| text.contains(HEAD) && !text.contains("Recovered reply")).count()
}

#[test]
fn reports_delegated_tasks_together_once_in_order() {
    let (mut fixture, gate) = gated_fixture("Your task: first");
    fixture.telegram.push_text(7, 7, "delegate: first | second");
    assert_eq!(fixture.wait_messages(7, 1), ["dispatched"]);
    assert!(gate.wait(SOON), "no subagent runs");
    assert_eq!(report_rows(&fixture), Vec::<String>::new());
    gate.open();
    wait_report(&fixture);
    let rows_before = report_rows(&fixture);
    assert_eq!((rows_before.len(), unmarked_reports(&fixture)), (1, 1), "{rows_before:?}");
    let text = &rows_before[0];
    let positions = [
        "TASK 1/2: first (status=completed)",
        "did first",
        "TASK 2/2: second (status=completed)",
        "did second",
    ]
    .map(|it| text.find(it).unwrap_or_else(|| panic!("no {it}: {text}")));
    assert!(positions.is_sorted(), "{text}");
    fixture.kill();
    fixture.start();
    exchange_hello(&fixture);
    assert_eq!((report_rows(&fixture), unmarked_reports(&fixture)), (rows_before, 1), "reported again");
}

#[test]
fn killed_subagents_are_reported_unknown_once_and_not_rerun() {
    let (mut fixture, gate) = gated_fixture("Your task: ");
    fixture.telegram.push_text(7, 7, "delegate: slow work");
    assert_eq!(fixture.wait_messages(7, 1), ["dispatched"]);
    assert!(gate.wait(SOON), "no subagent runs");
    fixture.wait_outbox_empty();
    fixture.kill();
    fixture.start();
    wait_report(&fixture);
    let all = report_rows(&fixture);
    assert_eq!((all.len(), unmarked_reports(&fixture)), (1, 1), "{all:?}");
    assert!(all[0].contains("status=unknown") && all[0].contains("UNKNOWN"), "{all:?}");
    assert!(all[0].contains("TASK 1/1: slow work"), "{all:?}");
    assert_eq!(model_calls(&fixture, "Your task: slow work"), 1, "the subagent ran again");
    gate.open();
    fixture.kill();
    fixture.start();
    exchange_hello(&fixture);
    assert_eq!((report_rows(&fixture).len(), unmarked_reports(&fixture)), (1, 1));
    assert_eq!(model_calls(&fixture, "Your task: slow work"), 1);
}

#[test]
fn kill_during_delegation_report_reports_once() {
    let (mut fixture, gate) = gated_fixture(HEAD);
    fixture.telegram.push_text(7, 7, "delegate: quick work");
    assert_eq!(fixture.wait_messages(7, 1), ["dispatched"]);
    assert!(gate.wait(SOON), "the results never come");
    fixture.wait_outbox_empty();
    fixture.kill();
    gate.open();
    fixture.start();
    wait_report(&fixture);
    let all = report_rows(&fixture);
    assert_eq!((all.len(), unmarked_reports(&fixture)), (1, 1), "{all:?}");
    assert!(all[0].contains("status=completed") && all[0].contains("did quick work"), "{all:?}");
    assert_eq!(model_calls(&fixture, "Your task: quick work"), 1);
}
