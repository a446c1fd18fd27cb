//! Hooks: they receive events, intercept commands, and cannot block the gateway.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use petasos_fakes::model::Answer;
use petasos_runtime::clock;
use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};
use support::{GatewayFixture, eventually};

/// A gateway with these hooks: name, events, script.
fn fixture_with_hooks(hooks: &[(&str, &str, &str)]) -> GatewayFixture {
    let mut world = GatewayFixture::idle(|_| {});
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

fn file(world: &GatewayFixture, hook: &str, name: &str) -> PathBuf {
    world.home().join("hooks").join(hook).join(name)
}

/// The events that a hook logged, one JSON object per line.
fn logged_events(world: &GatewayFixture, hook: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(file(world, hook, "log")).unwrap_or_default();
    // The last line may be incomplete.
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Appends the input as one line.
const APPEND_INPUT: &str = "(cat; echo) >> log";

#[test]
fn sends_events_in_order_with_context() {
    let events = "events: ['gateway:*', 'session:*', 'agent:*']";
    let world = fixture_with_hooks(&[("diary", events, APPEND_INPUT)]);
    world.model.script(Answer::tool("clock", json!({})));
    world.model.script(Answer::text("y".repeat(600)));
    world.telegram.push_text(7, 7, "x".repeat(600));
    world.expect_message(7, "yyy");
    world.telegram.push_text(7, 7, "/new");
    world.expect_last_message(7, "New session");
    let lines =
        eventually("all told", || Some(logged_events(&world, "diary")).filter(|lines| lines.len() >= 8));
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
fn hooks_deny_handle_and_rewrite_commands() {
    let says = |answer: &str| format!("{APPEND_INPUT}\necho '{answer}'");
    let deny = says(r#"{"decision":"deny","message":"Not on Sundays."}"#);
    let deploy = says(r#"{"decision":"handled","message":"Deployed."}"#);
    let silent = says(r#"{"decision":"handled"}"#);
    let rewrite = says(r#"{"decision":"rewrite","text":"/whoami"}"#);
    let text = says(r#"{"decision":"rewrite","text":"good morning"}"#);
    let world = fixture_with_hooks(&[
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
        world.expect_last_message(7, answer);
    }
    let before = world.telegram.texts(7).len();
    world.telegram.push_text(7, 7, "/hush");
    eventually("done without a word", || (logged_events(&world, "silent").len() == 1).then_some(()));
    world.telegram.push_text(7, 7, "/help");
    let two = |it: &petasos_fakes::telegram::State| (it.messages(7).count() > before).then_some(());
    assert!(world.telegram.wait_until(support::SOON, two).is_some());
    world.wait_until_delivered();
    assert_eq!(world.telegram.texts(7).len(), before + 1, "only the second command is answered");
    let asked = &logged_events(&world, "deploy")[0];
    assert_eq!(asked["event"], "command:deploy");
    assert_eq!((&asked["context"]["command"], &asked["context"]["args"]), (&json!("deploy"), &json!("now")));
    let others: Vec<_> = logged_events(&world, "a-all")
        .iter()
        .map(|it| it["context"]["command"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(
        others,
        [Some("help".into()), Some("help".into())],
        "a hook that names the command decides first"
    );
}

#[test]
fn kills_process_group_of_hanging_hook() {
    let hang = "echo $$ > pid; sleep 600 & echo $! > child; wait";
    let world = fixture_with_hooks(&[
        ("sleeper", "events: ['agent:*']\ntimeout: 2", hang),
        ("asked", "events: ['command:help']\ntimeout: 1", hang),
        ("diary", "events: [agent:end]", APPEND_INPUT),
    ]);
    let begun = clock::monotonic();
    world.telegram.push_text(7, 7, "hello");
    world.expect_messages(7, &["echo: hello"]);
    eventually("the other one is told", || (logged_events(&world, "diary").len() == 1).then_some(()));
    world.telegram.push_text(7, 7, "/help");
    world.telegram.push_text(8, 8, "and me?");
    world.expect_messages(8, &["echo: and me?"]);
    world.expect_last_message(7, "Commands:");
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    for (hook, name) in [("asked", "pid"), ("asked", "child"), ("sleeper", "pid"), ("sleeper", "child")] {
        let path = file(&world, hook, name);
        eventually("ended", || {
            let pid = std::fs::read_to_string(&path).ok()?.trim().parse().ok().and_then(Pid::from_raw)?;
            is_gone(pid).then_some(())
        });
    }
}

fn is_gone(pid: Pid) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    test_kill_process(pid).is_err() || state.is_ok_and(|stat| stat.contains(") Z "))
}

#[test]
fn hooks_with_invalid_output_allow_the_command() {
    let world = fixture_with_hooks(&[
        ("flood", "events: ['command:help']", "echo $$ > pid; head -c 100000000 /dev/zero; touch finished"),
        ("fails", "events: ['command:help']", r#"echo '{"decision":"deny"}'; exit 3"#),
        ("rubbish", "events: ['command:help']", "echo hello"),
        ("loud", "events: [agent:start]", "head -c 100000000 /dev/zero; touch finished"),
    ]);
    world.telegram.push_text(7, 7, "/help");
    world.expect_last_message(7, "Commands:");
    assert!(file(&world, "flood", "pid").exists() && !file(&world, "flood", "finished").exists());
    world.telegram.push_text(7, 7, "hello");
    world.expect_last_message(7, "echo: hello");
    eventually("its output is not read", || file(&world, "loud", "finished").exists().then_some(()));
}

#[test]
fn starts_with_invalid_hook_and_sets_event_variable() {
    let world = fixture_with_hooks(&[
        ("broken", "events: [agent:dream]", APPEND_INPUT),
        ("env", "events: [agent:start]", "env > env.tmp && mv env.tmp env"),
    ]);
    world.telegram.push_text(7, 7, "hello");
    world.expect_messages(7, &["echo: hello"]);
    let environment = eventually("told", || std::fs::read_to_string(file(&world, "env", "env")).ok());
    assert!(environment.contains("PETASOS_EVENT=agent:start"), "{environment}");
    assert!(environment.contains(&format!("PETASOS_HOME={}", world.home().display())), "{environment}");
    assert!(!file(&world, "broken", "log").exists());
}
