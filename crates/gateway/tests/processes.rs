//! Background processes through a whole gateway: their end reaches the session that started them, once.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use petasos_agent::TerminalConfig;
use petasos_core::admission::BusyMode;
use petasos_core::transcript::Role;
use petasos_core::{Millis, Platform, SessionKey};
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Point, Request};
use serde_json::json;
use support::{SOON, Setup, World, eventually, key};

fn world(change: impl FnOnce(&mut Setup)) -> World {
    World::answering(obey, |setup| {
        let grace = Duration::from_millis(300);
        setup.settings.terminal = Some(TerminalConfig { grace, login: false, ..TerminalConfig::default() });
        setup.settings.busy = BusyMode::Queue;
        change(setup);
    })
}

/// `run: <command>` starts it in the background, `wait: <command>` also waits for it, `watch: <command>` wants to hear when it
/// is READY; whatever else is said comes back.
fn obey(request: &Request) -> Answer {
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

/// The model thinks about `think` until the gate is opened.
fn thinks(world: &World) -> Arc<Gate> {
    let gate = Arc::new(Gate::new());
    let held = gate.clone();
    world.model.respond(move |request| {
        let answer = obey(request);
        if request.last_user == "think" { answer.gate(Point::Before, &held) } else { answer }
    });
    gate
}

/// A command that ends when the file is there.
fn until(flag: &str) -> String {
    format!(
        "while [ ! -e \"$HERMES_HOME/{flag}\" ] && [ -d \"$HERMES_HOME\" ]; do sleep 0.05; done; echo {flag} is DONE"
    )
}

/// What the chat's session was told by the gateway itself.
fn told(world: &World, chat: i64) -> Vec<String> {
    let said = world.transcript(chat).into_iter();
    let users = said.filter(|(role, _)| *role == Role::User).map(|(_, text)| text);
    users.filter(|text| text.contains("[IMPORTANT: Background process")).collect()
}

/// Waits until nothing is left to hand over, answer or send.
fn settled(world: &World) {
    eventually("settled", || {
        let (open, live) = world.read(|reader| {
            let backlog = reader.backlog()?;
            let queued = reader.queued_completions()?.len() as u64;
            Ok((backlog.queued + backlog.claimed + queued, reader.processes(Millis(u64::MAX >> 2))?.len()))
        });
        (open == 0 && live == 0).then_some(())
    });
    world.owes_nothing();
}

#[test]
fn the_end_of_a_process_is_a_turn_of_its_own_at_once() {
    let world = world(|_| {});
    world.telegram.push_text(7, 7, format!("run: {}", until("go")));
    world.shows(7, &["started"]);
    let asked = Instant::now();
    std::fs::write(world.home().join("go"), "").unwrap();
    world.sees(7, "completed normally (exit code 0)");
    assert!(asked.elapsed() < Duration::from_secs(30), "{:?}", asked.elapsed());
    settled(&world);
    let told = told(&world, 7);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("Command: while") && told[0].contains("Output:\ngo is DONE]"), "{}", told[0]);
    assert_eq!(world.count(7, "completed normally"), 1);
}

/// Answers in the transcript of a polled conversation.
fn answers(world: &World, key: &SessionKey) -> Vec<String> {
    world.read(|reader| {
        let Some(session) = reader.bound(key)? else { return Ok(vec![]) };
        let rows = reader.rows_last(&session, 100)?.into_iter().map(|row| row.message);
        Ok(rows.filter(|row| row.role == Role::Assistant).map(|row| row.content).collect())
    })
}

#[test]
fn end_of_a_process_reaches_page_and_terminal_conversations() {
    let world = world(|_| {});
    for platform in ["web", "terminal"] {
        let flag = format!("{platform}-may-end");
        let mut inbound = support::web(platform, &format!("run: {}", until(&flag)));
        inbound.source.platform = Platform::parse(platform).expect("known");
        let key = world.submit(inbound).expect("accepted");
        let started = |it: &Vec<String>| it.last().is_some_and(|text| text == "started");
        eventually("started", || started(&answers(&world, &key)).then_some(()));
        std::fs::write(world.home().join(flag), "").unwrap();
        let heard = |it: &Vec<String>| it.iter().filter(|text| text.contains("completed normally")).count();
        eventually("told", || (heard(&answers(&world, &key)) == 1).then_some(()));
        settled(&world);
        assert_eq!(heard(&answers(&world, &key)), 1, "{platform}: {:?}", answers(&world, &key));
    }
}

#[test]
fn while_a_turn_runs_it_waits_and_is_not_mixed_with_what_people_say() {
    let world = world(|_| {});
    let gate = thinks(&world);
    world.telegram.push_text(7, 7, format!("run: {}", until("go")));
    world.shows(7, &["started"]);
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
    assert_eq!(world.telegram.texts(7), ["started"], "nobody was interrupted");
    gate.open();
    world.sees(7, "heard: and this");
    settled(&world);
    let texts = world.telegram.texts(7);
    assert_eq!(texts.len(), 4, "{texts:?}");
    assert_eq!((texts[1].as_str(), texts[3].as_str()), ("heard: think", "heard: and this"));
    assert!(texts[2].starts_with("heard: [IMPORTANT: Background process"), "{}", texts[2]);
}

#[test]
fn who_waited_for_the_end_is_not_told_again() {
    let world = world(|_| {});
    world.telegram.push_text(7, 7, "wait: sleep 0.2; echo SLEPT");
    world.sees(7, "waited: ");
    settled(&world);
    assert!(world.telegram.texts(7)[0].contains("SLEPT"));
    assert_eq!(told(&world, 7), Vec::<String>::new());
    world.telegram.push_text(7, 7, "hello");
    world.sees(7, "heard: hello");
    assert_eq!(world.telegram.texts(7).len(), 2);
}

#[test]
fn a_watched_line_is_told_once_through_a_crash_and_the_next_one_is_not_missed() {
    let mut world = world(|_| {});
    world.telegram.push_text(
        7,
        7,
        format!("watch: echo READY for one; {}; echo READY for two; {}", until("two"), until("over")),
    );
    world.sees(7, "READY for one");
    world.owes_nothing();
    world.crash();
    std::fs::write(world.home().join("two"), "").unwrap();
    world.start();
    eventually("told of the second", || (told(&world, 7).len() == 2).then_some(()));
    std::fs::write(world.home().join("over"), "").unwrap();
    settled(&world);
    let told = told(&world, 7);
    let shown: Vec<_> = told.iter().map(|text| text.rsplit_once("output:").unwrap().1).collect();
    assert_eq!(shown.len(), 2, "{told:#?}");
    assert!(shown[0].contains("for one") && shown[1].contains("for two"), "{shown:#?}");
    assert!(!shown[1].contains("for one"), "that was told before: {shown:#?}");
}

#[test]
fn a_process_outlives_a_crash_and_its_end_is_told_once() {
    let mut world = world(|_| {});
    for (chat, flag) in [(7, "meanwhile"), (8, "later")] {
        world.telegram.push_text(chat, chat, format!("run: {}", until(flag)));
        world.shows(chat, &["started"]);
    }
    world.owes_nothing();
    world.crash();
    // One ends while nobody is there.
    std::fs::write(world.home().join("meanwhile"), "").unwrap();
    let output = world.home().join("terminal/output");
    eventually("ended", || {
        let names = std::fs::read_dir(&output).unwrap().flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".exit")).count().eq(&1).then_some(())
    });
    world.start();
    world.sees(7, "meanwhile is DONE");
    assert_eq!(told(&world, 8), Vec::<String>::new(), "it still runs");
    std::fs::write(world.home().join("later"), "").unwrap();
    world.sees(8, "later is DONE");
    settled(&world);
    for chat in [7, 8] {
        let told = told(&world, chat);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("completed normally (exit code 0)"), "{}", told[0]);
    }
    world.restart();
    world.telegram.push_text(7, 7, "hello");
    world.sees(7, "heard: hello");
    assert_eq!((told(&world, 7).len(), told(&world, 8).len()), (1, 1));
}

#[test]
fn a_gateway_that_leaves_ends_its_processes_and_says_so_when_it_is_back() {
    let mut world = world(|_| {});
    world.telegram.push_text(7, 7, "run: sleep 61");
    world.shows(7, &["started"]);
    world.stop();
    let pid = world.read(|reader| reader.processes(Millis(0)))[0].pid.unwrap();
    assert!(std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default().is_empty(), "it runs on");
    world.start();
    world.sees(7, "terminated by kill_all");
    settled(&world);
    assert_eq!(told(&world, 7).len(), 1);
}

#[test]
fn while_the_platform_is_away_an_end_waits_for_it() {
    let mut world = world(|_| {});
    world.telegram.push_text(7, 7, format!("run: {}", until("go")));
    world.shows(7, &["started"]);
    world.owes_nothing();
    let asked = world.model.look(|desk| desk.request_count());
    world.telegram.down();
    world.crash();
    world.start();
    std::fs::write(world.home().join("go"), "").unwrap();
    let waiting = eventually("ended", || {
        let waiting = world.read(|reader| reader.queued_completions());
        (!waiting.is_empty()).then_some(waiting)
    });
    assert_eq!((waiting.len(), &waiting[0].key), (1, &key(7)));
    assert_eq!(world.model.look(|desk| desk.request_count()), asked, "nobody could hear it");
    world.telegram.up().unwrap();
    world.runtime.block_on(world.handle().link_retry("telegram")).unwrap();
    world.sees(7, "go is DONE");
    settled(&world);
    assert_eq!(told(&world, 7).len(), 1);
}

/// Dice that fall the same way every time.
fn roll(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn a_hundred_ends_at_random_moments_are_each_told_once_to_their_own_chat() {
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
    let started = |world: &World| -> usize {
        let rows = world.read(|reader| reader.processes(Millis(0)));
        rows.iter().filter(|row| row.pid.is_some()).count()
    };
    for share in [25, 50, 75] {
        eventually("begun", || (started(&world) >= share).then_some(()));
        world.crash();
        world.start();
    }
    let patience = Instant::now() + Duration::from_secs(120);
    while Instant::now() < patience {
        let open = world.read(|reader| {
            let backlog = reader.backlog()?;
            let live = reader.processes(Millis(u64::MAX >> 2))?.len() as u64;
            Ok(backlog.queued + backlog.claimed + live + reader.queued_completions()?.len() as u64)
        });
        if open == 0 {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(50));
    }
    settled(&world);
    // A call that a crash cut off may or may not have started its process; what was started is in the table.
    let rows = world.read(|reader| reader.processes(Millis(0)));
    assert!(rows.len() >= 100, "{} processes", rows.len());
    for chat in 1..=CHATS {
        let told = told(&world, chat);
        let own: Vec<_> = rows.iter().filter(|row| row.key == key(chat)).collect();
        assert_eq!(told.len(), own.len(), "chat {chat}");
        for row in own {
            let about = told.iter().filter(|text| text.contains(&row.id)).count();
            assert_eq!(about, 1, "{} in chat {chat}", row.id);
        }
        assert!(told.iter().all(|text| text.contains(&format!("chat{chat} "))), "a stranger's");
    }
}

/// What the store lists as told to nobody.
fn untold(world: &World) -> Vec<Option<String>> {
    world.read(|reader| reader.untold_completions(10)).into_iter().map(|it| it.reason).collect()
}

#[test]
fn an_end_that_waits_when_a_new_conversation_begins_is_told_to_the_chat_and_not_to_it() {
    let world = world(|_| {});
    let gate = thinks(&world);
    world.telegram.push_text(7, 7, format!("run: {}", until("go")));
    world.shows(7, &["started"]);
    world.telegram.push_text(7, 7, "think");
    assert!(gate.wait(SOON), "nobody thinks");
    std::fs::write(world.home().join("go"), "").unwrap();
    eventually("accepted", || (world.read(|reader| reader.backlog()).queued == 1).then_some(()));
    world.telegram.push_text(7, 7, "/new");
    world.sees(7, "From an earlier conversation: background process proc_");
    gate.open();
    settled(&world);
    assert_eq!(untold(&world), [Some("the conversation it was started in has ended".to_owned())]);
    world.telegram.push_text(7, 7, "hello");
    world.sees(7, "heard: hello");
    settled(&world);
    assert_eq!(told(&world, 7), Vec::<String>::new());
    assert_eq!(world.transcript(7).len(), 2, "{:?}", world.transcript(7));
    assert_eq!(world.count(7, "From an earlier conversation"), 1);
}

#[test]
fn an_end_that_comes_behind_the_wish_for_a_new_conversation_does_not_enter_it_either() {
    let mut world = world(|_| {});
    world.telegram.push_text(7, 7, format!("run: {}", until("go")));
    world.shows(7, &["started"]);
    world.owes_nothing();
    world.crash();
    let entry = world.entry(7).unwrap();
    // Both were accepted, and neither was dealt with: first the wish, then the end, which belonged here at that moment.
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
        tx.complete_work("proc_000000000000:watch:1", to, &origin, "watch_match", &event.to_string(), now)?;
        let completion = tx.completions(&key(7))?.remove(0);
        tx.hand_over(completion, "[IMPORTANT: Background process proc_000000000000 …]".into(), now).map(drop)
    });
    world.start();
    world.sees(7, "New session");
    world.sees(7, "From an earlier conversation: background process proc_000000000000 printed \"READY\"");
    world.telegram.push_text(7, 7, "hello");
    world.sees(7, "heard: hello");
    assert_eq!(told(&world, 7), Vec::<String>::new());
    assert_eq!(world.count(7, "From an earlier conversation"), 1);
    assert_eq!(untold(&world).len(), 1);
    std::fs::write(world.home().join("go"), "").unwrap();
    settled(&world);
}
