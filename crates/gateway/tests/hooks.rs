//! The owner's own programs: told what happens, asked before commands, and unable to hold anything up.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use petasos_fakes::model::Answer;
use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};
use support::{World, eventually};

/// A home with these hooks: name, events, script.
fn hooked(hooks: &[(&str, &str, &str)]) -> World {
    let mut world = World::idle(|_| {});
    for (name, yaml, script) in hooks {
        let folder = world.home().join("hooks").join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("HOOK.yaml"), format!("name: {name}\n{yaml}\n")).expect("written");
        let handler = folder.join("handler");
        std::fs::write(&handler, format!("#!/bin/sh\n{script}\n")).expect("written");
        std::fs::set_permissions(&handler, std::fs::Permissions::from_mode(0o755)).expect("set");
    }
    world.start();
    world
}

fn file(world: &World, hook: &str, name: &str) -> PathBuf {
    world.home().join("hooks").join(hook).join(name)
}

/// Everything that a hook wrote down, one JSON per line.
fn heard(world: &World, hook: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(file(world, hook, "log")).unwrap_or_default();
    // The last line may be half written.
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Appends what it reads, as one line.
const WRITE_DOWN: &str = "(cat; echo) >> log";

#[test]
fn each_event_is_told_in_order_with_who_where_and_what() {
    let events = "events: ['gateway:*', 'session:*', 'agent:*']";
    let world = hooked(&[("diary", events, WRITE_DOWN)]);
    world.model.script(Answer::tool("clock", json!({})));
    world.model.script(Answer::text("y".repeat(600)));
    world.telegram.push_text(7, 7, "x".repeat(600));
    world.sees(7, "yyy");
    world.telegram.push_text(7, 7, "/new");
    world.ends_with(7, "New session");
    let lines = eventually("all told", || Some(heard(&world, "diary")).filter(|lines| lines.len() >= 8));
    let names: Vec<_> = lines.iter().filter_map(|line| line["event"].as_str()).collect();
    let want = [
        "gateway:startup",
        "session:start",
        "agent:start",
        "agent:step",
        "agent:end",
        "session:end",
        "session:reset",
        "session:start",
    ];
    assert_eq!(names, want);
    let context = |at: usize| &lines[at]["context"];
    assert_eq!(context(0)["platforms"], json!(["telegram"]));
    for at in 1..8 {
        let about = context(at);
        assert_eq!((&about["platform"], &about["chat_type"]), (&json!("telegram"), &json!("dm")), "{at}");
        assert_eq!((&about["user_id"], &about["chat_id"]), (&json!("7"), &json!("7")), "{at}");
        assert!(about["session_id"].is_string() && about["thread_id"].is_null(), "{at}: {about}");
    }
    for at in 2..5 {
        assert_eq!(context(at)["message"], json!("x".repeat(500)), "{at}");
    }
    assert_eq!((&context(3)["tool_names"], &context(3)["iteration"]), (&json!(["clock"]), &json!(1)));
    assert_eq!(
        (&context(4)["response"], &context(4)["outcome"]),
        (&json!("y".repeat(500)), &json!("answered"))
    );
    assert_eq!(context(5)["session_id"], context(4)["session_id"], "the old one ends");
    assert_eq!(context(6)["session_id"], context(7)["session_id"]);
    assert_ne!(context(5)["session_id"], context(7)["session_id"]);
}

#[test]
fn a_command_is_denied_done_or_turned_into_another() {
    let says = |answer: &str| format!("{WRITE_DOWN}\necho '{answer}'");
    let deny = says(r#"{"decision":"deny","message":"Not on Sundays."}"#);
    let deploy = says(r#"{"decision":"handled","message":"Deployed."}"#);
    let silent = says(r#"{"decision":"handled"}"#);
    let rewrite = says(r#"{"decision":"rewrite","text":"/whoami"}"#);
    let text = says(r#"{"decision":"rewrite","text":"good morning"}"#);
    let world = hooked(&[
        ("a-all", "events: ['command:*']", &says("")),
        ("deny", "events: ['command:undo']", &deny),
        ("deploy", "events: ['command:deploy']", &deploy),
        ("silent", "events: ['command:hush']", &silent),
        ("rewrite", "events: ['command:status']", &rewrite),
        ("text", "events: ['command:hi']", &text),
    ]);
    for (said, answer) in [
        ("/undo 2", "Not on Sundays."),
        ("/deploy now", "Deployed."),
        ("/status", "🪪"),
        ("/hi", "echo: good morning"),
        ("/help", "Commands:"),
    ] {
        world.telegram.push_text(7, 7, said);
        world.ends_with(7, answer);
    }
    let before = world.telegram.texts(7).len();
    world.telegram.push_text(7, 7, "/hush");
    eventually("done without a word", || (heard(&world, "silent").len() == 1).then_some(()));
    world.telegram.push_text(7, 7, "/help");
    let two = |it: &petasos_fakes::telegram::World| (it.messages(7).count() > before).then_some(());
    assert!(world.telegram.wait_until(support::SOON, two).is_some());
    world.owes_nothing();
    assert_eq!(world.telegram.texts(7).len(), before + 1, "only the second command is answered");
    let asked = &heard(&world, "deploy")[0];
    assert_eq!(asked["event"], "command:deploy");
    assert_eq!((&asked["context"]["command"], &asked["context"]["args"]), (&json!("deploy"), &json!("now")));
    let others: Vec<_> = heard(&world, "a-all")
        .iter()
        .map(|it| it["context"]["command"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(others, [Some("help".into()), Some("help".into())], "whoever names a command decides first");
}

#[test]
fn a_hook_that_hangs_is_ended_with_all_it_started_and_blocks_nothing() {
    let hang = "echo $$ > pid; sleep 600 & echo $! > child; wait";
    let world = hooked(&[
        ("sleeper", "events: ['agent:*']\ntimeout: 2", hang),
        ("asked", "events: ['command:help']\ntimeout: 1", hang),
        ("diary", "events: [agent:end]", WRITE_DOWN),
    ]);
    let begun = Instant::now();
    world.telegram.push_text(7, 7, "hello");
    world.shows(7, &["echo: hello"]);
    eventually("the other one is told", || (heard(&world, "diary").len() == 1).then_some(()));
    world.telegram.push_text(7, 7, "/help");
    world.telegram.push_text(8, 8, "and me?");
    world.shows(8, &["echo: and me?"]);
    world.ends_with(7, "Commands:");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    for (hook, name) in [("asked", "pid"), ("asked", "child"), ("sleeper", "pid"), ("sleeper", "child")] {
        let path = file(&world, hook, name);
        eventually("ended", || {
            let pid = std::fs::read_to_string(&path).ok()?.trim().parse().ok().and_then(Pid::from_raw)?;
            is_gone(pid).then_some(())
        });
    }
}

/// Whoever is only waited for is gone, too.
fn is_gone(pid: Pid) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    test_kill_process(pid).is_err() || state.is_ok_and(|stat| stat.contains(") Z "))
}

#[test]
fn a_flood_of_output_an_error_and_rubbish_are_as_good_as_silence() {
    let world = hooked(&[
        ("flood", "events: ['command:help']", "echo $$ > pid; head -c 100000000 /dev/zero; touch finished"),
        ("fails", "events: ['command:help']", r#"echo '{"decision":"deny"}'; exit 3"#),
        ("rubbish", "events: ['command:help']", "echo hello"),
        ("loud", "events: [agent:start]", "head -c 100000000 /dev/zero; touch finished"),
    ]);
    world.telegram.push_text(7, 7, "/help");
    world.ends_with(7, "Commands:");
    assert!(file(&world, "flood", "pid").exists() && !file(&world, "flood", "finished").exists());
    world.telegram.push_text(7, 7, "hello");
    world.ends_with(7, "echo: hello");
    eventually("nobody reads what it says", || file(&world, "loud", "finished").exists().then_some(()));
}

#[test]
fn a_broken_hook_keeps_nothing_from_starting_and_each_knows_its_event() {
    let world = hooked(&[
        ("broken", "events: [agent:dream]", WRITE_DOWN),
        ("env", "events: [agent:start]", "env > env.tmp && mv env.tmp env"),
    ]);
    world.telegram.push_text(7, 7, "hello");
    world.shows(7, &["echo: hello"]);
    let environment = eventually("told", || std::fs::read_to_string(file(&world, "env", "env")).ok());
    assert!(environment.contains("PETASOS_EVENT=agent:start"), "{environment}");
    assert!(environment.contains(&format!("PETASOS_HOME={}", world.home().display())), "{environment}");
    assert!(!file(&world, "broken", "log").exists());
}
