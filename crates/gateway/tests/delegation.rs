//! Work that is given to others, through a whole gateway: dispatched once, told once, never repeated.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on stops")]

mod support;

use std::sync::Arc;

use petasos_agent::TerminalConfig;
use petasos_core::admission::BusyMode;
use petasos_core::lifecycle::Leave;
use petasos_core::transcript::Role;
use petasos_core::{Platform, SessionKey};
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Point, Request};
use serde_json::{Value, json};
use support::{SOON, Setup, World, eventually, key, web};

fn world(change: impl FnOnce(&mut Setup)) -> World {
    World::answering(obey, |setup| {
        setup.settings.busy = BusyMode::Queue;
        change(setup);
    })
}

/// `delegate: a | b` gives these goals away and shows the result; a child whose goal is `run <command>` runs it, others
/// say that they did it. Whatever else is said comes back.
fn obey(request: &Request) -> Answer {
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

/// Children whose goal contains this wait until the gate is opened.
fn held(world: &World, what: &'static str) -> Arc<Gate> {
    let gate = Arc::new(Gate::new());
    let held = gate.clone();
    world.model.respond(move |request| {
        let answer = obey(request);
        let child = request.last_user.starts_with("Your task: ") && request.last_user.contains(what);
        if child { answer.gate(Point::Before, &held) } else { answer }
    });
    gate
}

fn told(world: &World, chat: i64) -> Vec<String> {
    let users = world.transcript(chat).into_iter().filter(|(role, _)| *role == Role::User);
    users.map(|(_, text)| text).filter(|text| text.contains("[ASYNC DELEGATION BATCH COMPLETE")).collect()
}

/// Waits until nothing is left to hand over, answer or send.
fn settled(world: &World) {
    eventually("settled", || {
        let open = world.read(|reader| {
            let backlog = reader.backlog()?;
            let open = reader.open_delegations()?.len() + reader.queued_completions()?.len();
            Ok(backlog.queued + backlog.claimed + open as u64)
        });
        (open == 0).then_some(())
    });
    world.owes_nothing();
}

/// What the call gave back, read from the last answer in the chat.
fn result(world: &World, key: &SessionKey) -> Value {
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
fn two_tasks_are_dispatched_at_once_and_told_together_in_their_order() {
    let world = world(|_| {});
    let gate = held(&world, "first");
    world.telegram.push_text(7, 7, "delegate: first | second");
    world.sees(7, "dispatched");
    let dispatched = result(&world, &key(7));
    assert_eq!(
        (&dispatched["mode"], &dispatched["count"]),
        (&json!("background"), &json!(2)),
        "{dispatched}"
    );
    let id = dispatched["delegation_id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("deleg_") && id.len() == 14, "{id}");
    // The second has long ended, and nobody is told yet.
    assert!(
        world
            .model
            .wait_until(SOON, |desk| desk
                .requests()
                .any(|it| it.last_user == "Your task: second")
                .then_some(()))
            .is_some()
    );
    assert_eq!(told(&world, 7), Vec::<String>::new());
    gate.open();
    world.sees(7, "heard: [ASYNC DELEGATION BATCH COMPLETE");
    settled(&world);
    let told = told(&world, 7);
    assert_eq!(told.len(), 1, "{told:?}");
    let (first, second) = (
        told[0].find("--- ✓ TASK 1/2: first (status=completed) ---"),
        told[0].find("--- ✓ TASK 2/2: second (status=completed) ---"),
    );
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
fn where_nothing_can_follow_the_answer_the_work_is_done_before_it() {
    let world = world(|_| {});
    let mut inbound = web("caller", "delegate: sum up | look around");
    inbound.source.platform = Platform::parse("api_server").unwrap();
    let key = world.submit(inbound).unwrap();
    let result = result(&world, &key);
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
    settled(&world);
    assert_eq!(world.read(|reader| reader.queued_completions()).len(), 0);
}

#[test]
fn too_many_tasks_are_refused_and_children_have_fewer_tools() {
    let world = world(|setup| {
        setup.settings.terminal = Some(TerminalConfig { login: false, ..TerminalConfig::default() });
    });
    world.telegram.push_text(7, 7, "delegate: a | b | c | d");
    world.sees(7, "delegation.max_concurrent_children");
    assert_eq!(world.read(|reader| reader.sessions(None, 20)).len(), 1, "nobody was started");
    std::fs::create_dir_all(world.home().join("workspace/x")).unwrap();
    world.telegram.push_text(7, 7, "delegate: name your tools | run rm -rf ./x | talk");
    world.sees(7, "heard: [ASYNC DELEGATION BATCH COMPLETE");
    settled(&world);
    let told = told(&world, 7);
    let names = told[0].split("name your tools (").nth(1).and_then(|rest| rest.lines().nth(2)).unwrap();
    assert!(names.contains("terminal") && !names.contains("delegate_task"), "{names}");
    assert!(told[0].contains("nobody can be asked over this channel"), "{}", told[0]);
    assert!(world.home().join("workspace/x").exists());
    let whole =
        told[0].split("(whole report: ").nth(1).and_then(|rest| rest.split(')').next()).expect("a file");
    assert_eq!(std::fs::read_to_string(whole).unwrap().len(), 100_000);
    assert!(told[0].len() < 60_000, "{}", told[0].len());
}

#[test]
fn a_full_pool_makes_the_next_batch_wait_for_its_work() {
    let world = world(|setup| setup.settings.delegation.children = 1);
    let gate = held(&world, "slow");
    world.telegram.push_text(7, 7, "delegate: slow");
    world.sees(7, "dispatched");
    world.telegram.push_text(8, 8, "delegate: quick");
    world.sees(8, "did quick");
    let result = result(&world, &key(8));
    assert!(result["note"].as_str().unwrap().contains("delegation.max_concurrent_children"), "{result}");
    gate.open();
    settled(&world);
    assert_eq!((told(&world, 7).len(), told(&world, 8).len()), (1, 0));
}

#[test]
fn who_writes_while_others_work_for_the_turn_waits_and_does_not_interrupt_them() {
    let world = world(|setup| {
        setup.settings.busy = BusyMode::Interrupt;
        setup.settings.delegation.children = 1;
    });
    let gate = held(&world, "slow");
    world.telegram.push_text(7, 7, "delegate: slow");
    world.sees(7, "dispatched");
    // The pool is full: this one waits for its work.
    world.telegram.push_text(8, 8, "delegate: slow as well");
    assert!(gate.wait_for(2, SOON), "nobody works");
    world.telegram.push_text(8, 8, "hello");
    eventually("accepted", || (world.read(|reader| reader.backlog()).queued == 1).then_some(()));
    gate.open();
    world.sees(8, "heard: hello");
    let texts = world.telegram.texts(8);
    assert!(texts[0].contains("did slow as well") && texts.len() == 2, "{texts:?}");
    settled(&world);
}

#[test]
fn a_crash_is_told_once_as_unknown_and_nothing_is_done_again() {
    let mut world = world(|_| {});
    let _gate = held(&world, "slow");
    world.telegram.push_text(7, 7, "delegate: slow work");
    world.sees(7, "dispatched");
    assert!(
        world
            .model
            .wait_until(SOON, |desk| desk
                .requests()
                .any(|it| it.last_user == "Your task: slow work")
                .then_some(()))
            .is_some()
    );
    world.owes_nothing();
    world.crash();
    world.start();
    world.sees(7, "heard: [ASYNC DELEGATION BATCH COMPLETE");
    settled(&world);
    let told = told(&world, 7);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].contains("status=unknown") && told[0].contains("UNKNOWN") && told[0].contains("slow work"),
        "{}",
        told[0]
    );
    let asked =
        world.model.look(|desk| desk.requests().filter(|it| it.last_user == "Your task: slow work").count());
    assert_eq!(asked, 1, "the child was not taken up");
    world.restart();
    world.telegram.push_text(7, 7, "hello");
    world.sees(7, "heard: hello");
    assert_eq!(self::told(&world, 7).len(), 1);
}

#[test]
fn a_new_conversation_hears_nothing_of_the_old_ones_work_but_a_notice() {
    let world = world(|_| {});
    let _gate = held(&world, "slow");
    world.telegram.push_text(7, 7, "delegate: slow work");
    world.sees(7, "dispatched");
    world.telegram.push_text(7, 7, "/new");
    world.sees(7, "New session");
    world.sees(7, "From an earlier conversation: delegated work has ended (interrupted)");
    settled(&world);
    assert_eq!(told(&world, 7), Vec::<String>::new());
    world.telegram.push_text(7, 7, "hello");
    world.sees(7, "heard: hello");
    assert_eq!(world.count(7, "From an earlier conversation"), 1);
    assert_eq!(world.transcript(7).len(), 2, "{:?}", world.transcript(7));
}

#[test]
fn a_stop_ends_the_work_and_so_does_the_end_of_whoever_waits_for_it() {
    let world = world(|_| {});
    let _gate = held(&world, "slow");
    world.telegram.push_text(7, 7, "delegate: slow work");
    world.sees(7, "dispatched");
    world.telegram.push_text(7, 7, "/stop");
    world.sees(7, "Stopped.");
    world.sees(7, "heard: [ASYNC DELEGATION BATCH COMPLETE");
    settled(&world);
    assert!(told(&world, 7)[0].contains("(status=interrupted)"), "{:?}", told(&world, 7));

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
    eventually("everybody has stopped", || {
        let backlog = world.read(|reader| reader.backlog());
        (backlog.queued + backlog.claimed == 0).then_some(())
    });
}

#[test]
fn nobody_gives_work_away_while_the_gateway_leaves() {
    let mut world = world(|setup| setup.lifetime.drain_timeout = SOON);
    let gate = Arc::new(Gate::new());
    let held = gate.clone();
    world.model.respond(move |request| match request.last_user.as_str() {
        "delegate: late work" if request.body()["messages"].as_array().is_some_and(|all| all.len() == 2) => {
            obey(request).gate(Point::Before, &held)
        }
        _ => obey(request),
    });
    world.telegram.push_text(7, 7, "delegate: late work");
    assert!(gate.wait_for(1, SOON), "nobody thinks");
    world.begin_to_leave(Leave::Stop);
    gate.open();
    world.sees(7, "the gateway is going down. Do the work yourself.");
    world.end();
    assert_eq!(world.read(|reader| reader.sessions(None, 20)).len(), 1, "no child was begun");
    assert_eq!(world.read(|reader| reader.open_delegations()).len(), 0);
}
