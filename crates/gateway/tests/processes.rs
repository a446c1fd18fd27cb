//! Background processes in a full gateway: their end is reported once, to the session that started them.

mod support;

use std::sync::Arc;
use std::time::Duration;

use petasos_agent::TerminalConfig;
use petasos_core::admission::BusyMode;
use petasos_core::transcript::Role;
use petasos_core::{Millis, Platform, SessionKey};
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, ChatRequest, Point};
use petasos_runtime::clock;
use serde_json::json;
use support::{GatewayFixture, SOON, Setup, eventually, key};

fn world(change: impl FnOnce(&mut Setup)) -> GatewayFixture {
    GatewayFixture::answering(process_model, |setup| {
        let grace = Duration::from_millis(300);
        setup.settings.terminal = Some(TerminalConfig { grace, login: false, ..TerminalConfig::default() });
        setup.settings.busy = BusyMode::Queue;
        change(setup);
    })
}

/// Model: `run: <command>` starts it in the background, `wait: <command>` also waits for it, `watch: <command>` watches for
/// READY. All other messages are echoed.
fn process_model(request: &ChatRequest) -> Answer {
    let said = request.last_user.as_str();
    let last = request.messages().last().cloned().unwrap_or_default();
    let result = last["content"].as_str().unwrap_or_default();
    let start = |command: &str| {
        Answer::tool("terminal", json!({"command": command, "background": true, "notify_on_complete": true}))
    };
    match (last["role"].as_str(), said.split_once(": ")) {
        (Some("user"), Some(("run" | "wait", command))) => start(command),
        (Some("user"), Some(("watch", command))) => {
            let asked = json!({"command": command, "background": true, "watch_patterns": ["READY"]});
            Answer::tool("terminal", asked)
        }
        (Some("tool"), Some(("wait", _))) if result.contains("Background process started") => {
            let started: serde_json::Value = serde_json::from_str(result).unwrap_or_default();
            Answer::tool("process", json!({"action": "wait", "session_id": started["session_id"]}))
        }
        (Some("tool"), Some(("wait", _))) => Answer::text(format!("waited: {result}")),
        (Some("tool"), _) => Answer::text("started"),
        _ => Answer::text(format!("heard: {said}")),
    }
}

/// Makes the model wait for the gate on `think`.
fn hold_model(world: &GatewayFixture) -> Arc<Gate> {
    let gate = Arc::new(Gate::new());
    let held = gate.clone();
    world.model.respond(move |request| {
        let answer = process_model(request);
        if request.last_user == "think" { answer.gate(Point::Before, &held) } else { answer }
    });
    gate
}

fn wait_for_file(flag: &str) -> String {
    format!(
        "while [ ! -e \"$HERMES_HOME/{flag}\" ] && [ -d \"$HERMES_HOME\" ]; do sleep 0.05; done; echo {flag} is DONE"
    )
}

/// Messages of the gateway in the chat's session.
fn completions_in_chat(world: &GatewayFixture, chat: i64) -> Vec<String> {
    let said = world.transcript(chat).into_iter();
    let users = said.filter(|(role, _)| *role == Role::User).map(|(_, text)| text);
    users.filter(|text| text.contains("[IMPORTANT: Background process")).collect()
}

/// Waits until no completion, message or outbox item is pending.
fn wait_until_idle(world: &GatewayFixture) {
    eventually("settled", || {
        let (open, live) = world.read(|reader| {
            let backlog = reader.backlog()?;
            let queued = reader.queued_completions()?.len() as u64;
            Ok((backlog.queued + backlog.claimed + queued, reader.processes(Millis(u64::MAX >> 2))?.len()))
        });
        (open == 0 && live == 0).then_some(())
    });
    world.wait_until_delivered();
}

#[test]
fn process_end_starts_its_own_turn() {
    let world = world(|_| {});
    world.telegram.push_text(7, 7, format!("run: {}", wait_for_file("go")));
    world.expect_messages(7, &["started"]);
    let asked = clock::monotonic();
    std::fs::write(world.home().join("go"), "").unwrap();
    world.expect_message(7, "completed normally (exit code 0)");
    assert!(asked.elapsed() < Duration::from_secs(30), "{:?}", asked.elapsed());
    wait_until_idle(&world);
    let told = completions_in_chat(&world, 7);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("Command: while") && told[0].contains("Output:\ngo is DONE]"), "{}", told[0]);
    assert_eq!(world.count(7, "completed normally"), 1);
}

fn answers(world: &GatewayFixture, key: &SessionKey) -> Vec<String> {
    world.read(|reader| {
        let Some(session) = reader.bound(key)? else { return Ok(vec![]) };
        let rows = reader.rows_last(&session, 100)?.into_iter().map(|row| row.message);
        Ok(rows.filter(|row| row.role == Role::Assistant).map(|row| row.content).collect())
    })
}

#[test]
fn reports_process_end_to_page_and_terminal() {
    let world = world(|_| {});
    for platform in ["web", "terminal"] {
        let flag = format!("{platform}-may-end");
        let mut inbound = support::web(platform, &format!("run: {}", wait_for_file(&flag)));
        inbound.source.platform = Platform::parse(platform).expect("known");
        let key = world.submit(inbound).expect("accepted");
        let started = |it: &Vec<String>| it.last().is_some_and(|text| text == "started");
        eventually("started", || started(&answers(&world, &key)).then_some(()));
        std::fs::write(world.home().join(flag), "").unwrap();
        let heard = |it: &Vec<String>| it.iter().filter(|text| text.contains("completed normally")).count();
        eventually("told", || (heard(&answers(&world, &key)) == 1).then_some(()));
        wait_until_idle(&world);
        assert_eq!(heard(&answers(&world, &key)), 1, "{platform}: {:?}", answers(&world, &key));
    }
}

#[test]
fn process_end_waits_for_turn_and_is_not_merged() {
    let world = world(|_| {});
    let gate = hold_model(&world);
    world.telegram.push_text(7, 7, format!("run: {}", wait_for_file("go")));
    world.expect_messages(7, &["started"]);
    world.telegram.push_text(7, 7, "think");
    assert!(
        world
            .model
            .wait_until(SOON, |desk| desk.requests().any(|it| it.last_user == "think").then_some(()))
            .is_some()
    );
    std::fs::write(world.home().join("go"), "").unwrap();
    eventually("accepted", || (world.read(|reader| reader.backlog()).queued == 1).then_some(()));
    world.telegram.push_text(7, 7, "and this");
    eventually("accepted", || (world.read(|reader| reader.backlog()).queued == 2).then_some(()));
    assert_eq!(world.telegram.texts(7), ["started"], "no turn was interrupted");
    gate.open();
    world.expect_message(7, "heard: and this");
    wait_until_idle(&world);
    let texts = world.telegram.texts(7);
    assert_eq!(texts.len(), 4, "{texts:?}");
    assert_eq!((texts[1].as_str(), texts[3].as_str()), ("heard: think", "heard: and this"));
    assert!(texts[2].starts_with("heard: [IMPORTANT: Background process"), "{}", texts[2]);
}

#[test]
fn waited_for_process_end_is_not_reported_again() {
    let world = world(|_| {});
    world.telegram.push_text(7, 7, "wait: sleep 0.2; echo SLEPT");
    world.expect_message(7, "waited: ");
    wait_until_idle(&world);
    assert!(world.telegram.texts(7)[0].contains("SLEPT"));
    assert_eq!(completions_in_chat(&world, 7), Vec::<String>::new());
    world.telegram.push_text(7, 7, "hello");
    world.expect_message(7, "heard: hello");
    assert_eq!(world.telegram.texts(7).len(), 2);
}

#[test]
fn reports_watched_lines_once_across_a_crash() {
    let mut world = world(|_| {});
    world.telegram.push_text(
        7,
        7,
        format!(
            "watch: echo READY for one; {}; echo READY for two; {}",
            wait_for_file("two"),
            wait_for_file("over")
        ),
    );
    world.expect_message(7, "READY for one");
    world.wait_until_delivered();
    world.crash();
    std::fs::write(world.home().join("two"), "").unwrap();
    world.start();
    eventually("told of the second", || (completions_in_chat(&world, 7).len() == 2).then_some(()));
    std::fs::write(world.home().join("over"), "").unwrap();
    wait_until_idle(&world);
    let told = completions_in_chat(&world, 7);
    let shown: Vec<_> = told.iter().map(|text| text.rsplit_once("output:").unwrap().1).collect();
    assert_eq!(shown.len(), 2, "{told:#?}");
    assert!(shown[0].contains("for one") && shown[1].contains("for two"), "{shown:#?}");
    assert!(!shown[1].contains("for one"), "that was told before: {shown:#?}");
}

#[test]
fn reports_end_of_process_that_survives_a_crash() {
    let mut world = world(|_| {});
    for (chat, flag) in [(7, "meanwhile"), (8, "later")] {
        world.telegram.push_text(chat, chat, format!("run: {}", wait_for_file(flag)));
        world.expect_messages(chat, &["started"]);
    }
    world.wait_until_delivered();
    world.crash();
    // One ends while no gateway runs.
    std::fs::write(world.home().join("meanwhile"), "").unwrap();
    let output = world.home().join("terminal/output");
    eventually("ended", || {
        let names = std::fs::read_dir(&output).unwrap().flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".exit")).count().eq(&1).then_some(())
    });
    world.start();
    world.expect_message(7, "meanwhile is DONE");
    assert_eq!(completions_in_chat(&world, 8), Vec::<String>::new(), "it still runs");
    std::fs::write(world.home().join("later"), "").unwrap();
    world.expect_message(8, "later is DONE");
    wait_until_idle(&world);
    for chat in [7, 8] {
        let told = completions_in_chat(&world, chat);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("completed normally (exit code 0)"), "{}", told[0]);
    }
    world.restart();
    world.telegram.push_text(7, 7, "hello");
    world.expect_message(7, "heard: hello");
    assert_eq!((completions_in_chat(&world, 7).len(), completions_in_chat(&world, 8).len()), (1, 1));
}

#[test]
fn shutdown_ends_processes_and_reports_after_restart() {
    let mut world = world(|_| {});
    world.telegram.push_text(7, 7, "run: sleep 61");
    world.expect_messages(7, &["started"]);
    world.stop();
    let pid = world.read(|reader| reader.processes(Millis(0)))[0].pid.unwrap();
    assert!(std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default().is_empty(), "it runs on");
    world.start();
    world.expect_message(7, "terminated by kill_all");
    wait_until_idle(&world);
    assert_eq!(completions_in_chat(&world, 7).len(), 1);
}

#[test]
fn process_end_waits_for_its_platform() {
    let mut world = world(|_| {});
    world.telegram.push_text(7, 7, format!("run: {}", wait_for_file("go")));
    world.expect_messages(7, &["started"]);
    world.wait_until_delivered();
    let asked = world.model.read(|desk| desk.request_count());
    world.telegram.down();
    world.crash();
    world.start();
    std::fs::write(world.home().join("go"), "").unwrap();
    let waiting = eventually("ended", || {
        let waiting = world.read(|reader| reader.queued_completions());
        (!waiting.is_empty()).then_some(waiting)
    });
    assert_eq!((waiting.len(), &waiting[0].key), (1, &key(7)));
    assert_eq!(world.model.read(|desk| desk.request_count()), asked, "there was no listener");
    world.telegram.up().unwrap();
    world.runtime.block_on(world.handle().link_retry("telegram")).unwrap();
    world.expect_message(7, "go is DONE");
    wait_until_idle(&world);
    assert_eq!(completions_in_chat(&world, 7).len(), 1);
}

fn roll(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn reports_hundred_random_ends_once_to_their_chats() {
    const CHATS: i64 = 4;
    const EACH: i64 = 29;
    let mut world = world(|_| {});
    let mut dice = 0x9e37_79b9_7f4a_7c15;
    for number in 0..EACH {
        for chat in 1..=CHATS {
            let rest = roll(&mut dice) % 5;
            world.telegram.push_text(
                chat,
                chat,
                format!("/queue run: sleep {rest}.{number}; echo chat{chat} no{number} end"),
            );
        }
    }
    let started = |world: &GatewayFixture| -> usize {
        let rows = world.read(|reader| reader.processes(Millis(0)));
        rows.iter().filter(|row| row.pid.is_some()).count()
    };
    for share in [25, 50, 75] {
        eventually("begun", || (started(&world) >= share).then_some(()));
        world.crash();
        world.start();
    }
    let settled = || {
        let open = world.read(|reader| {
            let backlog = reader.backlog()?;
            let live = reader.processes(Millis(u64::MAX >> 2))?.len() as u64;
            Ok(backlog.queued + backlog.claimed + live + reader.queued_completions()?.len() as u64)
        });
        open == 0
    };
    petasos_fakes::wait::eventually("all work is done", Duration::from_secs(120), settled);
    wait_until_idle(&world);
    // A call that a crash interrupted may or may not have started its process; started ones are in the table.
    let rows = world.read(|reader| reader.processes(Millis(0)));
    assert!(rows.len() >= 100, "{} processes", rows.len());
    for chat in 1..=CHATS {
        let told = completions_in_chat(&world, chat);
        let own: Vec<_> = rows.iter().filter(|row| row.key == key(chat)).collect();
        assert_eq!(told.len(), own.len(), "chat {chat}");
        for row in own {
            let about = told.iter().filter(|text| text.contains(&row.id)).count();
            assert_eq!(about, 1, "{} in chat {chat}", row.id);
        }
        assert!(told.iter().all(|text| text.contains(&format!("chat{chat} "))), "a stranger's");
    }
}

/// Reasons of the undeliverable completions in the store.
fn undelivered_reasons(world: &GatewayFixture) -> Vec<Option<String>> {
    world.read(|reader| reader.unreported_completions(10)).into_iter().map(|it| it.reason).collect()
}

#[test]
fn waiting_process_end_does_not_enter_new_conversation() {
    let world = world(|_| {});
    let gate = hold_model(&world);
    world.telegram.push_text(7, 7, format!("run: {}", wait_for_file("go")));
    world.expect_messages(7, &["started"]);
    world.telegram.push_text(7, 7, "think");
    assert!(gate.wait(SOON), "no model call is open");
    std::fs::write(world.home().join("go"), "").unwrap();
    eventually("accepted", || (world.read(|reader| reader.backlog()).queued == 1).then_some(()));
    world.telegram.push_text(7, 7, "/new");
    world.expect_message(7, "From an earlier conversation: background process proc_");
    gate.open();
    wait_until_idle(&world);
    assert_eq!(
        undelivered_reasons(&world),
        [Some("the conversation it was started in has ended".to_owned())]
    );
    world.telegram.push_text(7, 7, "hello");
    world.expect_message(7, "heard: hello");
    wait_until_idle(&world);
    assert_eq!(completions_in_chat(&world, 7), Vec::<String>::new());
    assert_eq!(world.transcript(7).len(), 2, "{:?}", world.transcript(7));
    assert_eq!(world.count(7, "From an earlier conversation"), 1);
}

#[test]
fn process_end_queued_after_new_does_not_enter_it() {
    let mut world = world(|_| {});
    world.telegram.push_text(7, 7, format!("run: {}", wait_for_file("go")));
    world.expect_messages(7, &["started"]);
    world.wait_until_delivered();
    world.crash();
    let entry = world.entry(7).unwrap();
    // Both are accepted but not processed: first `/new`, then the completion, which belonged to the session at that time.
    world.write(|tx| {
        let now = petasos_gateway::clock::now();
        let origin = entry.origin.clone().unwrap();
        let wish = petasos_core::Inbound { source: origin.clone(), ..support::web("x", "/new") };
        tx.accept(&wish, &key(7), now)?;
        let event = json!({
            "type": "watch_match", "session_id": "proc_000000000000", "command": "x", "pattern": "READY",
            "output": "READY", "suppressed": 0, "at": 1,
        });
        let to = (&key(7), Some(&entry.session_id));
        tx.record_completion(
            "proc_000000000000:watch:1",
            to,
            &origin,
            "watch_match",
            &event.to_string(),
            now,
        )?;
        let completion = tx.completions(&key(7))?.remove(0);
        tx.deliver_completion(completion, "[IMPORTANT: Background process proc_000000000000 …]".into(), now)
            .map(drop)
    });
    world.start();
    world.expect_message(7, "New session");
    world.expect_message(
        7,
        "From an earlier conversation: background process proc_000000000000 printed \"READY\"",
    );
    world.telegram.push_text(7, 7, "hello");
    world.expect_message(7, "heard: hello");
    assert_eq!(completions_in_chat(&world, 7), Vec::<String>::new());
    assert_eq!(world.count(7, "From an earlier conversation"), 1);
    assert_eq!(undelivered_reasons(&world).len(), 1);
    std::fs::write(world.home().join("go"), "").unwrap();
    wait_until_idle(&world);
}
