//! Delegation in a full gateway: dispatched once, reported once, never repeated.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on stops")]

mod support;

use std::sync::Arc;

use petasos_agent::TerminalConfig;
use petasos_core::admission::BusyMode;
use petasos_core::lifecycle::ShutdownReason;
use petasos_core::transcript::Role;
use petasos_core::{Platform, SessionKey};
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, ChatRequest, Point};
use serde_json::{Value, json};
use support::{GatewayFixture, SOON, Setup, eventually, key, web};

fn world(change: impl FnOnce(&mut Setup)) -> GatewayFixture {
    GatewayFixture::answering(delegating_model, |setup| {
        setup.settings.busy = BusyMode::Queue;
        change(setup);
    })
}

/// Model: `delegate: a | b` delegates these goals and returns the result; a child with the goal `run <command>` runs it,
/// other children report success. All other messages are echoed.
fn delegating_model(request: &ChatRequest) -> Answer {
    let last = request.messages().last().cloned().unwrap_or_default();
    let result = last["content"].as_str().unwrap_or_default();
    let said = request.last_user.as_str();
    if let Some(goal) = said.strip_prefix("Your task: ") {
        return match (last["role"].as_str(), goal.strip_prefix("run ")) {
            (Some("user"), Some(command)) => Answer::tool("terminal", json!({ "command": command })),
            (Some("tool"), _) => Answer::text(format!("tool said {result}")),
            _ if goal == "name your tools" => Answer::text(request.tools().join(",")),
            _ if goal == "talk" => Answer::text("blah ".repeat(20_000)),
            _ => Answer::text(format!("did {goal}")),
        };
    }
    match (last["role"].as_str(), said.split_once("delegate: ")) {
        (Some("user"), Some((_, goals))) => {
            let tasks: Vec<_> = goals.split(" | ").map(|goal| json!({ "goal": goal })).collect();
            Answer::tool("delegate_task", json!({ "tasks": tasks }))
        }
        (Some("tool"), _) => Answer::text(format!("got {result}")),
        _ => Answer::text(format!("heard: {said}")),
    }
}

/// Makes children whose goal contains this wait for the gate.
fn hold_children(world: &GatewayFixture, what: &'static str) -> Arc<Gate> {
    let gate = Arc::new(Gate::new());
    let held = gate.clone();
    world.model.respond(move |request| {
        let answer = delegating_model(request);
        let child = request.last_user.starts_with("Your task: ") && request.last_user.contains(what);
        if child { answer.gate(Point::Before, &held) } else { answer }
    });
    gate
}

fn completions_in_chat(world: &GatewayFixture, chat: i64) -> Vec<String> {
    let users = world.transcript(chat).into_iter().filter(|(role, _)| *role == Role::User);
    users.map(|(_, text)| text).filter(|text| text.contains("[ASYNC DELEGATION BATCH COMPLETE")).collect()
}

/// Waits until no completion, message or outbox item is pending.
fn wait_until_idle(world: &GatewayFixture) {
    eventually("settled", || {
        let open = world.read(|reader| {
            let backlog = reader.backlog()?;
            let open = reader.open_delegations()?.len() + reader.queued_completions()?.len();
            Ok(backlog.queued + backlog.claimed + open as u64)
        });
        (open == 0).then_some(())
    });
    world.wait_until_delivered();
}

/// Result of the tool call, from the last answer in the chat.
fn delegate_result(world: &GatewayFixture, key: &SessionKey) -> Value {
    let text = eventually("a result", || {
        world.read(|reader| {
            let Some(entry) = reader.entry(key)? else { return Ok(None) };
            let rows = reader.history(&entry.session_id, 100)?;
            let tool = rows.iter().rev().find(|row| row.message.role == Role::Tool);
            Ok(tool.map(|row| row.message.content.clone()))
        })
    });
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text}"))
}

#[test]
fn reports_parallel_tasks_together_in_order() {
    let world = world(|_| {});
    let gate = hold_children(&world, "first");
    world.telegram.push_text(7, 7, "delegate: first | second");
    world.expect_message(7, "dispatched");
    let dispatched = delegate_result(&world, &key(7));
    assert_eq!(
        (&dispatched["mode"], &dispatched["count"]),
        (&json!("background"), &json!(2)),
        "{dispatched}"
    );
    let id = dispatched["delegation_id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("deleg_") && id.len() == 14, "{id}");
    // The second child has ended, but nothing is reported yet.
    assert!(
        world
            .model
            .wait_until(SOON, |desk| desk
                .requests()
                .any(|it| it.last_user == "Your task: second")
                .then_some(()))
            .is_some()
    );
    assert_eq!(completions_in_chat(&world, 7), Vec::<String>::new());
    gate.open();
    world.expect_message(7, "heard: [ASYNC DELEGATION BATCH COMPLETE");
    wait_until_idle(&world);
    let told = completions_in_chat(&world, 7);
    assert_eq!(told.len(), 1, "{told:?}");
    let first = told[0].find("--- ✓ TASK 1/2: first (status=completed) ---");
    let second = told[0].find("--- ✓ TASK 2/2: second (status=completed) ---");
    assert!(told[0].contains(&id) && first.is_some() && first < second, "{}", told[0]);
    assert!(told[0].find("did first") < second && told[0].find("did second") > second, "{}", told[0]);
    let transcript = std::fs::read_to_string(dispatched["live_transcripts"][0].as_str().unwrap()).unwrap();
    assert!(transcript.contains("Your task: first") && transcript.contains("did first"), "{transcript}");
    let parent = world.entry(7).unwrap().session_id;
    let children = world.read(|reader| reader.sessions(None, 20));
    let children: Vec<_> =
        children.iter().filter(|row| row.platform.as_deref() == Some("subagent")).collect();
    assert_eq!(children.len(), 2);
    assert!(children.iter().all(|row| row.parent.as_ref() == Some(&parent)));
}

#[test]
fn runs_synchronously_if_channel_ends_with_answer() {
    let world = world(|_| {});
    let mut inbound = web("caller", "delegate: sum up | look around");
    inbound.source.platform = Platform::parse("api_server").unwrap();
    let key = world.submit(inbound).unwrap();
    let result = delegate_result(&world, &key);
    let entries = result["results"].as_array().unwrap();
    assert_eq!(
        (&entries[0]["summary"], &entries[1]["summary"]),
        (&json!("did sum up"), &json!("did look around"))
    );
    assert_eq!(
        (&entries[0]["status"], &entries[0]["exit_reason"]),
        (&json!("completed"), &json!("completed"))
    );
    assert!(
        result["note"].as_str().unwrap().contains("synchronously") && result["status"].is_null(),
        "{result}"
    );
    wait_until_idle(&world);
    assert_eq!(world.read(|reader| reader.queued_completions()).len(), 0);
}

#[test]
fn refuses_too_many_tasks_and_restricts_children() {
    let world = world(|setup| {
        setup.settings.terminal = Some(TerminalConfig { login: false, ..TerminalConfig::default() });
    });
    world.telegram.push_text(7, 7, "delegate: a | b | c | d");
    world.expect_message(7, "delegation.max_concurrent_children");
    assert_eq!(world.read(|reader| reader.sessions(None, 20)).len(), 1, "no subagent was started");
    std::fs::create_dir_all(world.home().join("workspace/x")).unwrap();
    world.telegram.push_text(7, 7, "delegate: name your tools | run rm -rf ./x | talk");
    world.expect_message(7, "heard: [ASYNC DELEGATION BATCH COMPLETE");
    wait_until_idle(&world);
    let told = completions_in_chat(&world, 7);
    let names = told[0].split("name your tools (").nth(1).and_then(|rest| rest.lines().nth(2)).unwrap();
    assert!(names.contains("terminal") && !names.contains("delegate_task"), "{names}");
    assert!(told[0].contains("this channel cannot ask anyone"), "{}", told[0]);
    assert!(world.home().join("workspace/x").exists());
    let whole =
        told[0].split("(whole report: ").nth(1).and_then(|rest| rest.split(')').next()).expect("a file");
    assert_eq!(std::fs::read_to_string(whole).unwrap().len(), 100_000);
    assert!(told[0].len() < 60_000, "{}", told[0].len());
}

#[test]
fn full_pool_runs_next_batch_synchronously() {
    let world = world(|setup| setup.settings.delegation.children = 1);
    let gate = hold_children(&world, "slow");
    world.telegram.push_text(7, 7, "delegate: slow");
    world.expect_message(7, "dispatched");
    world.telegram.push_text(8, 8, "delegate: quick");
    world.expect_message(8, "did quick");
    let result = delegate_result(&world, &key(8));
    assert!(result["note"].as_str().unwrap().contains("delegation.max_concurrent_children"), "{result}");
    gate.open();
    wait_until_idle(&world);
    assert_eq!((completions_in_chat(&world, 7).len(), completions_in_chat(&world, 8).len()), (1, 0));
}

#[test]
fn messages_wait_while_a_turn_waits_for_children() {
    let world = world(|setup| {
        setup.settings.busy = BusyMode::Interrupt;
        setup.settings.delegation.children = 1;
    });
    let gate = hold_children(&world, "slow");
    world.telegram.push_text(7, 7, "delegate: slow");
    world.expect_message(7, "dispatched");
    // The pool is full, so this batch runs synchronously.
    world.telegram.push_text(8, 8, "delegate: slow as well");
    assert!(gate.wait_for(2, SOON), "no turn runs");
    world.telegram.push_text(8, 8, "hello");
    eventually("accepted", || (world.read(|reader| reader.backlog()).queued == 1).then_some(()));
    gate.open();
    world.expect_message(8, "heard: hello");
    let texts = world.telegram.texts(8);
    assert!(texts[0].contains("did slow as well") && texts.len() == 2, "{texts:?}");
    wait_until_idle(&world);
}

#[test]
fn reports_crashed_batch_once_as_unknown() {
    let mut world = world(|_| {});
    let _gate = hold_children(&world, "slow");
    world.telegram.push_text(7, 7, "delegate: slow work");
    world.expect_message(7, "dispatched");
    assert!(
        world
            .model
            .wait_until(SOON, |desk| desk
                .requests()
                .any(|it| it.last_user == "Your task: slow work")
                .then_some(()))
            .is_some()
    );
    world.wait_until_delivered();
    world.crash();
    world.start();
    world.expect_message(7, "heard: [ASYNC DELEGATION BATCH COMPLETE");
    wait_until_idle(&world);
    let told = completions_in_chat(&world, 7);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("status=unknown") && told[0].contains("UNKNOWN") && told[0].contains("slow work"),
        "{}",
        told[0]
    );
    let asked =
        world.model.read(|desk| desk.requests().filter(|it| it.last_user == "Your task: slow work").count());
    assert_eq!(asked, 1, "the child was not taken up");
    world.restart();
    world.telegram.push_text(7, 7, "hello");
    world.expect_message(7, "heard: hello");
    assert_eq!(self::completions_in_chat(&world, 7).len(), 1);
}

#[test]
fn new_conversation_gets_only_notice_of_old_batch() {
    let world = world(|_| {});
    let _gate = hold_children(&world, "slow");
    world.telegram.push_text(7, 7, "delegate: slow work");
    world.expect_message(7, "dispatched");
    world.telegram.push_text(7, 7, "/new");
    world.expect_message(7, "New session");
    world.expect_message(7, "From an earlier conversation: delegated work has ended (interrupted)");
    wait_until_idle(&world);
    assert_eq!(completions_in_chat(&world, 7), Vec::<String>::new());
    world.telegram.push_text(7, 7, "hello");
    world.expect_message(7, "heard: hello");
    assert_eq!(world.count(7, "From an earlier conversation"), 1);
    assert_eq!(world.transcript(7).len(), 2, "{:?}", world.transcript(7));
}

#[test]
fn stop_and_end_of_caller_cancel_children() {
    let world = world(|_| {});
    let _gate = hold_children(&world, "slow");
    world.telegram.push_text(7, 7, "delegate: slow work");
    world.expect_message(7, "dispatched");
    world.telegram.push_text(7, 7, "/stop");
    world.expect_message(7, "Stopped.");
    world.expect_message(7, "heard: [ASYNC DELEGATION BATCH COMPLETE");
    wait_until_idle(&world);
    assert!(
        completions_in_chat(&world, 7)[0].contains("(status=interrupted)"),
        "{:?}",
        completions_in_chat(&world, 7)
    );

    let mut inbound = web("caller", "delegate: slow again");
    inbound.source.platform = Platform::parse("api_server").unwrap();
    let waiting = world.submit(inbound).unwrap();
    assert!(
        world
            .model
            .wait_until(SOON, |desk| desk
                .requests()
                .any(|it| it.last_user == "Your task: slow again")
                .then_some(()))
            .is_some()
    );
    assert!(world.runtime.block_on(world.handle().stop_turn(&waiting)).unwrap());
    eventually("all turns have stopped", || {
        let backlog = world.read(|reader| reader.backlog());
        (backlog.queued + backlog.claimed == 0).then_some(())
    });
}

#[test]
fn refuses_delegation_during_shutdown() {
    let mut world = world(|setup| setup.lifetime.drain_timeout = SOON);
    let gate = Arc::new(Gate::new());
    let held = gate.clone();
    world.model.respond(move |request| match request.last_user.as_str() {
        "delegate: late work" if request.body()["messages"].as_array().is_some_and(|all| all.len() == 2) => {
            delegating_model(request).gate(Point::Before, &held)
        }
        _ => delegating_model(request),
    });
    world.telegram.push_text(7, 7, "delegate: late work");
    assert!(gate.wait_for(1, SOON), "no model call is open");
    world.begin_shutdown(ShutdownReason::Stop);
    gate.open();
    world.expect_message(7, "The gateway is shutting down and starts no new work. Do the work yourself.");
    world.wait_for_exit();
    assert_eq!(world.read(|reader| reader.sessions(None, 20)).len(), 1, "no child was begun");
    assert_eq!(world.read(|reader| reader.open_delegations()).len(), 0);
}
