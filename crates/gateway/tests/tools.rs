//! Tools of a turn: their order, their limits, and what the model is told when it goes astray.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod support;

use std::fs::File;
use std::time::Duration;

use petasos_agent::TerminalConfig;
use petasos_core::admission::BusyMode;
use petasos_core::transcript::Role;
use petasos_core::turn::Patience;
use petasos_fakes::model::{Answer, Fault, Point};
use petasos_gateway::Stall;
use serde_json::{Value, json};
use support::{World, eventually};

fn read(path: &str) -> Value {
    json!({ "path": path })
}

fn write(path: &str) -> Value {
    json!({"path": path, "content": "x"})
}

/// The results of the last request, in its order: the call, and what the model was told.
fn results(world: &World) -> Vec<(String, String)> {
    let last = world.model.requests().last().expect("a request").clone();
    let rows = last.messages().iter().filter(|row| row["role"] == "tool");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    rows.map(|row| (text(&row["tool_call_id"]), text(&row["content"]))).collect()
}

/// A file that takes a while to be read, and little room on disk.
fn slow_file(world: &World, name: &str) {
    let workspace = world.home().join("workspace");
    std::fs::create_dir_all(&workspace).expect("a folder");
    // Text at its beginning: what begins with nothing is not read.
    std::fs::write(workspace.join(name), "a\n".repeat(8192)).expect("written");
    File::options().write(true).open(workspace.join(name)).expect("open").set_len(160 << 20).expect("long");
}

#[test]
fn results_stand_in_the_order_of_their_calls_and_a_mixed_answer_goes_on() {
    let world = World::new(|_| {});
    let batch = Answer::tool("clock", json!({}))
        .and_tool("no_such_tool", json!({}))
        .and_tool("write_file", write("a.txt"))
        .and_tool("functions.Read-File", read("a.txt"))
        .and_tool("read_file", read("./a.txt"))
        .and_tool("read_file", read("a.txt"));
    world.model.script_many([batch, Answer::text("done")]);
    world.telegram.push_text(7, 7, "go");
    world.shows(7, &["done"]);
    let results = results(&world);
    let ids: Vec<_> = results.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["call_1", "call_2", "call_3", "call_4", "call_5", "call_6"]);
    let text = |at: usize| results[at].1.as_str();
    assert!(text(1).contains("Unknown tool: no_such_tool") && text(1).contains("read_file"), "{}", text(1));
    assert!(text(3).contains("1|x") && text(4).contains("1|x"), "what was written before is read");
    assert!(
        text(5).contains("the same call as call_4") || text(5).contains("The same call as call_4"),
        "{}",
        text(5)
    );
    let stored: Vec<_> = world.transcript(7).into_iter().filter(|(role, _)| *role == Role::Tool).collect();
    assert_eq!(stored.len(), 6);
    assert!(stored[5].1.contains("same call"), "stored in the same order");
}

#[test]
fn calls_that_do_not_touch_each_other_overlap_in_time() {
    let world = World::new(|_| {});
    slow_file(&world, "slow");
    let batch = Answer::tool("read_file", read("slow")).and_tool("write_file", write("quick"));
    world.model.script_many([batch, Answer::text("done")]);
    world.telegram.push_text(7, 7, "go");
    let quick = world.home().join("workspace/quick");
    eventually("written", || quick.exists().then_some(()));
    let rows = world.transcript(7);
    assert!(rows.iter().all(|(role, _)| *role != Role::Tool), "the first one still runs: {rows:?}");
    world.shows(7, &["done"]);
    let ids: Vec<_> = results(&world).into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, ["call_1", "call_2"]);
}

#[test]
fn calls_that_run_together_have_a_deadline_and_their_effect_is_then_unknown() {
    let world = World::new(|settings| settings.tools_patience = Some(Duration::from_millis(100)));
    slow_file(&world, "slow");
    let batch = Answer::tool("write_file", write("quick")).and_tool("read_file", read("slow"));
    world.model.script_many([batch, Answer::text("done")]);
    world.telegram.push_text(7, 7, "go");
    world.shows(7, &["done"]);
    let results = results(&world);
    assert!(results[0].1.contains("bytes_written"), "{}", results[0].1);
    let late: Value = serde_json::from_str(&results[1].1).expect("JSON");
    assert_eq!(late["effect_disposition"], "unknown", "{late}");
}

#[test]
fn a_call_that_fails_again_unchanged_is_pointed_out_to_the_model() {
    let world = World::new(|_| {});
    let missing = || Answer::tool("read_file", read("no such file"));
    world.model.script_many([missing(), missing(), Answer::text("I give up.")]);
    world.telegram.push_text(7, 7, "read it");
    world.shows(7, &["I give up."]);
    let requests = world.model.requests();
    let warned = requests.iter().map(|it| it.body().to_string().matches("[Tool loop warning: ").count());
    assert_eq!(warned.collect::<Vec<_>>(), [0, 0, 1]);
}

#[test]
fn who_goes_on_in_circles_loses_the_tools_where_that_is_wanted() {
    let world = World::new(|settings| settings.limits.patience.stop = Some(Patience::STOP));
    let missing = || Answer::tool("read_file", read("no such file"));
    world.model.script_many((0..5).map(|_| missing()).chain([Answer::text("It is not there.")]));
    world.telegram.push_text(7, 7, "read it");
    world.ends_with(7, "Tell me how to go on.)");
    let requests = world.model.requests();
    assert_eq!(requests.len(), 6);
    assert!(requests[4].tools().contains(&"read_file") && requests[5].tools().is_empty());
    assert!(requests[5].last_user.contains("round in circles"), "{}", requests[5].last_user);
}

#[test]
fn when_the_steps_are_used_up_the_model_sums_up_without_tools_and_the_user_is_told() {
    let world = World::new(|settings| settings.limits.steps = 2);
    let clock = || Answer::tool("clock", json!({}));
    world.model.script_many([clock(), clock(), Answer::text("It is late.")]);
    world.telegram.push_text(7, 7, "what time is it");
    world.sees(7, "It is late.\n\n(I have stopped here: the number of steps");
    let requests = world.model.requests();
    assert_eq!(requests.len(), 3);
    assert!(!requests[1].tools().is_empty() && requests[1].last_user == "what time is it");
    assert!(requests[2].tools().is_empty() && requests[2].last_user.contains("used up"));
    world.telegram.push_text(7, 7, "thanks");
    world.ends_with(7, "echo: thanks");
    let after = world.model.requests().last().expect("a request").body().to_string();
    assert!(!after.contains("no more tools"), "never stored");
}

#[test]
fn three_answers_in_a_row_that_ask_only_for_tools_that_do_not_exist_end_the_turn() {
    let world = World::new(|_| {});
    world.model.script_many((0..3).map(|_| Answer::tool("teleport", json!({}))));
    world.telegram.push_text(7, 7, "beam me up");
    world.sees(7, "tools that I do not have");
    assert_eq!(world.model.requests().len(), 3);
    world.telegram.push_text(7, 7, "hello");
    world.ends_with(7, "echo: hello");
}

#[test]
fn a_result_that_is_too_large_is_put_aside_and_can_be_paged() {
    let world = World::new(|settings| {
        let terminal = TerminalConfig { login: false, output: 100_000, ..TerminalConfig::default() };
        settings.terminal = Some(terminal);
    });
    world.model.respond(|request| {
        let results: Vec<_> = request.messages().iter().filter(|row| row["role"] == "tool").collect();
        let text = |at: usize| results[at]["content"].as_str().unwrap_or_default();
        match results.len() {
            0 => Answer::tool("terminal", json!({"command": "seq -f 'number %g' 8000"})),
            1 => {
                let path = text(0).split("is in ").nth(1).and_then(|rest| rest.split(',').next());
                Answer::tool("read_file", json!({"path": path, "offset": 7000, "limit": 2000}))
            }
            _ => Answer::text(format!("{} / {}", text(0).len(), text(1).contains("number 8000\\n"))),
        }
    });
    world.telegram.push_text(7, 7, "count");
    world.sees(7, " / true");
    let shown: usize =
        world.telegram.texts(7)[0].split(' ').next().and_then(|it| it.parse().ok()).expect("a size");
    assert!(shown < 2_500, "{shown}");
}

#[test]
fn a_steered_message_stands_in_the_last_of_several_results() {
    let world = World::new(|settings| {
        settings.busy = BusyMode::Steer;
        settings.busy_ack = false;
    });
    slow_file(&world, "slow");
    let batch = Answer::tool("read_file", read("slow")).and_tool("clock", json!({}));
    world.model.script_many([batch, Answer::text("done")]);
    world.telegram.push_text(7, 7, "go");
    eventually("acting", || {
        world.transcript(7).iter().any(|(role, _)| *role == Role::Assistant).then_some(())
    });
    world.telegram.push_text(7, 7, "in French");
    world.shows(7, &["done"]);
    let marked: Vec<_> = results(&world)
        .iter()
        .map(|(_, text)| text.ends_with("\nin French\n[/OUT-OF-BAND USER MESSAGE]"))
        .collect();
    assert_eq!(marked, [false, true]);
    let users = world.transcript(7).into_iter().filter(|(role, _)| *role == Role::User).count();
    assert_eq!(users, 1, "no row of its own");
}

#[test]
fn a_turn_in_which_nothing_happens_is_announced_and_ended() {
    let (warn, stop) = (Some(Duration::from_millis(300)), Some(Duration::from_millis(900)));
    let world = World::new(|settings| settings.stall = Stall { warn, stop });
    world.model.script(Answer::text("never").fault(Fault::Hang(Point::Before)));
    world.telegram.push_text(7, 7, "think");
    world.sees(7, "⚠️ Nothing has happened for 0 seconds (waiting for the model)");
    world.sees(7, "⏱ I have stopped: nothing has happened");
    world.telegram.push_text(7, 7, "hello");
    world.ends_with(7, "echo: hello");
    assert_eq!(world.count(7, "Nothing has happened"), 1);
    world.model.release_hangs();
}
