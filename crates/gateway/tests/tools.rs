//! Tool calls of a turn: order, limits, and warnings to the model.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod support;

use std::fs::File;
use std::time::Duration;

use petasos_agent::TerminalConfig;
use petasos_core::admission::BusyMode;
use petasos_core::transcript::Role;
use petasos_core::turn::LoopLimits;
use petasos_fakes::model::{Answer, Fault, Point};
use petasos_gateway::StallLimits;
use serde_json::{Value, json};
use support::{GatewayFixture, eventually};

fn path_argument(path: &str) -> Value {
    json!({ "path": path })
}

fn write_arguments(path: &str) -> Value {
    json!({"path": path, "content": "x"})
}

/// The tool results of the last request, in order.
fn tool_results(fixture: &GatewayFixture) -> Vec<(String, String)> {
    let last = fixture.model.requests().last().expect("a request").clone();
    let rows = last.messages().iter().filter(|row| row["role"] == "tool");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    rows.map(|row| (text(&row["tool_call_id"]), text(&row["content"]))).collect()
}

/// A sparse file that takes a while to read.
fn create_slow_file(fixture: &GatewayFixture, name: &str) {
    let workspace = fixture.home().join("workspace");
    std::fs::create_dir_all(&workspace).expect("a folder");
    // Starts with text: a file that starts with zero bytes is refused as binary.
    std::fs::write(workspace.join(name), "a\n".repeat(8192)).expect("written");
    File::options().write(true).open(workspace.join(name)).expect("open").set_len(160 << 20).expect("long");
}

#[test]
fn orders_results_by_call_and_continues_after_errors() {
    let fixture = GatewayFixture::new(|_| {});
    let batch = Answer::tool("clock", json!({}))
        .and_tool("no_such_tool", json!({}))
        .and_tool("write_file", write_arguments("a.txt"))
        .and_tool("functions.Read-File", path_argument("a.txt"))
        .and_tool("read_file", path_argument("./a.txt"))
        .and_tool("read_file", path_argument("a.txt"));
    fixture.model.script_many([batch, Answer::text("done")]);
    fixture.telegram.push_text(7, 7, "go");
    fixture.expect_messages(7, &["done"]);
    let tool_results = tool_results(&fixture);
    let ids: Vec<_> = tool_results.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["call_1", "call_2", "call_3", "call_4", "call_5", "call_6"]);
    let text = |at: usize| tool_results[at].1.as_str();
    assert!(text(1).contains("Unknown tool: no_such_tool") && text(1).contains("read_file"), "{}", text(1));
    assert!(text(3).contains("1|x") && text(4).contains("1|x"), "what was written before is read");
    assert!(
        text(5).contains("the same call as call_4") || text(5).contains("The same call as call_4"),
        "{}",
        text(5)
    );
    let stored: Vec<_> = fixture.transcript(7).into_iter().filter(|(role, _)| *role == Role::Tool).collect();
    assert_eq!(stored.len(), 6);
    assert!(stored[5].1.contains("same call"), "stored in the same order");
}

#[test]
fn runs_independent_calls_concurrently() {
    let fixture = GatewayFixture::new(|_| {});
    create_slow_file(&fixture, "slow");
    let batch =
        Answer::tool("read_file", path_argument("slow")).and_tool("write_file", write_arguments("quick"));
    fixture.model.script_many([batch, Answer::text("done")]);
    fixture.telegram.push_text(7, 7, "go");
    let quick = fixture.home().join("workspace/quick");
    eventually("written", || quick.exists().then_some(()));
    let rows = fixture.transcript(7);
    assert!(rows.iter().all(|(role, _)| *role != Role::Tool), "the first one still runs: {rows:?}");
    fixture.expect_messages(7, &["done"]);
    let ids: Vec<_> = tool_results(&fixture).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, ["call_1", "call_2"]);
}

#[test]
fn concurrent_calls_past_deadline_have_unknown_effect() {
    let fixture = GatewayFixture::new(|settings| settings.tools_patience = Some(Duration::from_millis(100)));
    create_slow_file(&fixture, "slow");
    let batch =
        Answer::tool("write_file", write_arguments("quick")).and_tool("read_file", path_argument("slow"));
    fixture.model.script_many([batch, Answer::text("done")]);
    fixture.telegram.push_text(7, 7, "go");
    fixture.expect_messages(7, &["done"]);
    let tool_results = tool_results(&fixture);
    assert!(tool_results[0].1.contains("bytes_written"), "{}", tool_results[0].1);
    let late: Value = serde_json::from_str(&tool_results[1].1).expect("JSON");
    assert_eq!(late["effect_disposition"], "unknown", "{late}");
}

#[test]
fn warns_the_model_about_a_repeated_failing_call() {
    let fixture = GatewayFixture::new(|_| {});
    let missing = || Answer::tool("read_file", path_argument("no such file"));
    fixture.model.script_many([missing(), missing(), Answer::text("I give up.")]);
    fixture.telegram.push_text(7, 7, "read it");
    fixture.expect_messages(7, &["I give up."]);
    let requests = fixture.model.requests();
    let warned = requests.iter().map(|it| it.body().to_string().matches("[Tool loop warning: ").count());
    assert_eq!(warned.collect::<Vec<_>>(), [0, 0, 1]);
}

#[test]
fn loop_guard_withdraws_tools_when_enabled() {
    let fixture = GatewayFixture::new(|settings| settings.limits.loops.stop = Some(LoopLimits::STOP));
    let missing = || Answer::tool("read_file", path_argument("no such file"));
    fixture.model.script_many((0..5).map(|_| missing()).chain([Answer::text("It is not there.")]));
    fixture.telegram.push_text(7, 7, "read it");
    fixture.expect_last_message(7, "Tell me how to go on.)");
    let requests = fixture.model.requests();
    assert_eq!(requests.len(), 6);
    assert!(requests[4].tools().contains(&"read_file") && requests[5].tools().is_empty());
    assert!(requests[5].last_user.contains("repeat without progress"), "{}", requests[5].last_user);
}

#[test]
fn step_limit_ends_with_a_summary_without_tools() {
    let fixture = GatewayFixture::new(|settings| settings.limits.steps = 2);
    let clock = || Answer::tool("clock", json!({}));
    fixture.model.script_many([clock(), clock(), Answer::text("It is late.")]);
    fixture.telegram.push_text(7, 7, "what time is it");
    fixture.expect_message(7, "It is late.\n\n(I have stopped here: the number of steps");
    let requests = fixture.model.requests();
    assert_eq!(requests.len(), 3);
    assert!(!requests[1].tools().is_empty() && requests[1].last_user == "what time is it");
    assert!(requests[2].tools().is_empty() && requests[2].last_user.contains("used up"));
    fixture.telegram.push_text(7, 7, "thanks");
    fixture.expect_last_message(7, "echo: thanks");
    let after = fixture.model.requests().last().expect("a request").body().to_string();
    assert!(!after.contains("no more tools"), "never stored");
}

#[test]
fn ends_turn_after_three_answers_with_unknown_tools() {
    let fixture = GatewayFixture::new(|_| {});
    fixture.model.script_many((0..3).map(|_| Answer::tool("teleport", json!({}))));
    fixture.telegram.push_text(7, 7, "beam me up");
    fixture.expect_message(7, "tools that I do not have");
    assert_eq!(fixture.model.requests().len(), 3);
    fixture.telegram.push_text(7, 7, "hello");
    fixture.expect_last_message(7, "echo: hello");
}

#[test]
fn stores_an_oversized_result_for_paging() {
    let fixture = GatewayFixture::new(|settings| {
        let terminal = TerminalConfig { login: false, output: 100_000, ..TerminalConfig::default() };
        settings.terminal = Some(terminal);
    });
    fixture.model.respond(|request| {
        let tool_results: Vec<_> = request.messages().iter().filter(|row| row["role"] == "tool").collect();
        let text = |at: usize| tool_results[at]["content"].as_str().unwrap_or_default();
        match tool_results.len() {
            0 => Answer::tool("terminal", json!({"command": "seq -f 'number %g' 8000"})),
            1 => {
                let path = text(0).split("is in ").nth(1).and_then(|rest| rest.split(',').next());
                Answer::tool("read_file", json!({"path": path, "offset": 7000, "limit": 2000}))
            }
            _ => Answer::text(format!("{} / {}", text(0).len(), text(1).contains("number 8000\\n"))),
        }
    });
    fixture.telegram.push_text(7, 7, "count");
    fixture.expect_message(7, " / true");
    let shown: usize =
        fixture.telegram.texts(7)[0].split(' ').next().and_then(|it| it.parse().ok()).expect("a size");
    assert!(shown < 2_500, "{shown}");
}

#[test]
fn appends_a_steered_message_to_the_last_result() {
    let fixture = GatewayFixture::new(|settings| {
        settings.busy = BusyMode::Steer;
        settings.busy_ack = false;
    });
    create_slow_file(&fixture, "slow");
    let batch = Answer::tool("read_file", path_argument("slow")).and_tool("clock", json!({}));
    fixture.model.script_many([batch, Answer::text("done")]);
    fixture.telegram.push_text(7, 7, "go");
    eventually("acting", || {
        fixture.transcript(7).iter().any(|(role, _)| *role == Role::Assistant).then_some(())
    });
    fixture.telegram.push_text(7, 7, "in French");
    fixture.expect_messages(7, &["done"]);
    let marked: Vec<_> = tool_results(&fixture)
        .iter()
        .map(|(_, text)| text.ends_with("\nin French\n[/OUT-OF-BAND USER MESSAGE]"))
        .collect();
    assert_eq!(marked, [false, true]);
    let users = fixture.transcript(7).into_iter().filter(|(role, _)| *role == Role::User).count();
    assert_eq!(users, 1, "no row of its own");
}

#[test]
fn warns_about_a_stalled_turn_and_aborts_it() {
    let warn = Some(Duration::from_millis(300));
    let stop = Some(Duration::from_millis(900));
    let fixture = GatewayFixture::new(|settings| settings.stall = StallLimits { warn, stop });
    fixture.model.script(Answer::text("never").fault(Fault::Hang(Point::Before)));
    fixture.telegram.push_text(7, 7, "think");
    fixture.expect_message(7, "⚠️ Nothing has happened for 0 seconds (waiting for the model)");
    fixture.expect_message(7, "⏱ I have stopped: nothing has happened");
    fixture.telegram.push_text(7, 7, "hello");
    fixture.expect_last_message(7, "echo: hello");
    assert_eq!(fixture.count(7, "Nothing has happened"), 1);
    fixture.model.release_hangs();
}
