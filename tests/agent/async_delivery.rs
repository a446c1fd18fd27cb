//! Async delivery: a channel that can deliver later accepts notifications, any other declines them at once. The channel of
//! the turn decides.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::api::{Api, chat_body};
use crate::support::{ProgramFixture, eventually, wait_for_file};
use petasos_fakes::model::{Answer, ChatRequest};
use rusqlite::Connection;
use serde_json::{Value, json};

const CONFIG: &str = "terminal:\n  enabled: true\n  sandbox: 'off'\n  login_shell: false\n\
                      display:\n  busy_input_mode: queue\n  busy_ack_enabled: false\n";

/// `<tool> {…}` calls that tool; subagents report success; other text is echoed.
fn scripted_answer(request: &ChatRequest) -> Answer {
    let said = crate::support::user_text(&request.last_user);
    if request.messages().last().is_some_and(|row| row["role"] == "tool") {
        return Answer::text("done");
    }
    if let Some(goal) = said.strip_prefix("Your task: ") {
        return Answer::text(format!("did {goal}"));
    }
    let asked = said.split_once(' ').and_then(|(tool, json)| Some((tool, serde_json::from_str(json).ok()?)));
    match asked {
        Some((tool, arguments)) => Answer::tool(tool, arguments),
        None => Answer::text(format!("heard: {said}")),
    }
}

fn start() -> Api {
    let fixture = ProgramFixture::builder().telegram().with(CONFIG).build();
    fixture.model.respond(scripted_answer);
    let mut api = Api { program: fixture, address: String::new() };
    api.launch();
    api
}

fn tool_result(fixture: &ProgramFixture, input: &str) -> Option<Value> {
    let requests = fixture.model.requests();
    let about = requests.iter().filter(|request| crate::support::user_text(&request.last_user) == input);
    let row = about
        .filter_map(|it| it.messages().last().filter(|row| row["role"] == "tool").cloned())
        .next_back()?;
    serde_json::from_str(row["content"].as_str()?).ok()
}

#[derive(Debug, Clone, Copy)]
enum Channel {
    Chat,
    Responses,
    Run,
    Telegram,
}

#[track_caller]
fn call_tool(api: &Api, channel: Channel, tool: &str, arguments: &Value) -> Value {
    let input = format!("{tool} {arguments}");
    match channel {
        Channel::Chat => assert_eq!(api.post("/v1/chat/completions", &chat_body(&input)).status, 200),
        Channel::Responses => {
            assert_eq!(api.post("/v1/responses", &json!({"model": "x", "input": input})).status, 200);
        }
        Channel::Run => drop(api.wait_run(&api.start_run(&json!({ "input": input })), "completed")),
        Channel::Telegram => drop(api.program.telegram.push_text(7, 7, input.clone())),
    }
    eventually("shown", || tool_result(&api.program, &input).is_some());
    tool_result(&api.program, &input).expect("shown")
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// Arguments of a background process that ends when the file exists. The note makes the input unique.
fn input(flag: &Path, note: &str, wanted: &Value) -> Value {
    let command = format!("{}; echo READY {note}", wait_for_file(flag));
    let mut arguments = json!({"command": command, "background": true});
    arguments.as_object_mut().expect("an object").extend(wanted.as_object().expect("an object").clone());
    arguments
}

fn count(fixture: &ProgramFixture, question: &str) -> i64 {
    let store = Connection::open(fixture.database()).expect("a store");
    store.query_row(question, [], |row| row.get(0)).expect("a count")
}

const PLAIN: [&str; 5] = ["output", "session_id", "pid", "exit_code", "error"];

fn with<'a>(more: &[&'a str]) -> BTreeSet<&'a str> {
    PLAIN.iter().chain(more).copied().collect()
}

#[test]
fn channel_without_async_delivery_declines_notification() {
    let api = start();
    let flag = api.program.home.path().join("go");
    let wishes = [json!({"notify_on_complete": true}), json!({"watch_patterns": ["READY"]})];
    for (at, channel) in [Channel::Chat, Channel::Responses, Channel::Run].into_iter().enumerate() {
        for (which, wanted) in wishes.iter().enumerate() {
            let result = call_tool(&api, channel, "terminal", &input(&flag, &format!("{at}{which}"), wanted));
            assert_eq!(
                keys(&result),
                with(&["notify_on_complete", "notify_unsupported"]),
                "{channel:?} {wanted}: {result}"
            );
            assert_eq!(result["notify_on_complete"], false);
            let note = result["notify_unsupported"].as_str().expect("a text");
            assert!(note.contains("process(action='poll')") && note.contains("running"), "{note}");
            let process = PathBuf::from(format!("/proc/{}", result["pid"]));
            assert!(process.exists(), "{channel:?}: it does not run");
        }
    }
    assert_eq!(count(&api.program, "SELECT count(*) FROM processes WHERE promise <> '\"nothing\"'"), 0);
    let asked = api.program.model.read(|state| state.request_count());
    std::fs::write(&flag, "").expect("a flag");
    eventually("ended", || count(&api.program, "SELECT count(*) FROM processes WHERE ended_at IS NULL") == 0);
    assert_eq!(count(&api.program, "SELECT count(*) FROM processes"), 6);
    assert_eq!(count(&api.program, "SELECT count(*) FROM completions"), 0, "a completion is queued");
    assert_eq!(api.program.model.read(|state| state.request_count()), asked);
}

/// The session id of Telegram chat 7.
fn session_id(fixture: &ProgramFixture) -> String {
    let store = Connection::open(fixture.database()).expect("a store");
    let read =
        "SELECT json_extract(entry, '$.session_id') FROM routing WHERE session_key LIKE '%telegram%:7'";
    store.query_row(read, [], |row| row.get(0)).expect("a session")
}

#[test]
fn declined_async_delivery_applies_to_its_turn_only() {
    let api = start();
    let flag = api.program.home.path().join("go");
    let wanted = json!({"notify_on_complete": true});
    let promised = call_tool(&api, Channel::Telegram, "terminal", &input(&flag, "a", &wanted));
    assert_eq!(promised["notify_on_complete"], true);
    api.program.wait_idle();
    let asked = format!("terminal {}", input(&flag, "b", &wanted));
    let run = api.start_run(&json!({"input": asked, "session_id": session_id(&api.program)}));
    api.wait_run(&run, "completed");
    let refused = tool_result(&api.program, &asked).expect("shown");
    assert_eq!(refused["notify_on_complete"], false, "{refused}");
    let again = call_tool(&api, Channel::Telegram, "terminal", &input(&flag, "c", &wanted));
    assert_eq!(again["notify_on_complete"], true, "{again}");
    let sessions = "SELECT count(DISTINCT session) FROM messages WHERE role = 'user'";
    assert_eq!(count(&api.program, sessions), 1, "all in one transcript");
}

#[test]
fn channel_with_async_delivery_notifies_once() {
    let api = start();
    let flag = api.program.home.path().join("go");
    // The API first: its refusal must not carry over.
    let refused =
        call_tool(&api, Channel::Chat, "terminal", &input(&flag, "a", &json!({"notify_on_complete": true})));
    assert_eq!(refused["notify_on_complete"], false);
    let result = call_tool(
        &api,
        Channel::Telegram,
        "terminal",
        &input(&flag, "b", &json!({"notify_on_complete": true})),
    );
    assert_eq!(keys(&result), with(&["notify_on_complete"]), "{result}");
    assert_eq!(result["notify_on_complete"], true);
    let watched = call_tool(
        &api,
        Channel::Telegram,
        "terminal",
        &input(&flag, "c", &json!({"watch_patterns": ["READY"]})),
    );
    assert_eq!(keys(&watched), with(&["watch_patterns"]), "{watched}");
    let silent = call_tool(&api, Channel::Telegram, "terminal", &input(&flag, "d", &json!({})));
    assert_eq!(keys(&silent), with(&["hint"]), "{silent}");
    let refused =
        call_tool(&api, Channel::Run, "terminal", &input(&flag, "e", &json!({"notify_on_complete": true})));
    assert_eq!(refused["notify_on_complete"], false);
    let waits =
        "SELECT count(*) FROM processes WHERE promise = '\"completion\"' AND session_key LIKE '%telegram%'";
    assert_eq!(count(&api.program, waits), 1, "one notification is pending");
    std::fs::write(&flag, "").expect("a flag");
    eventually("ended", || count(&api.program, "SELECT count(*) FROM processes WHERE ended_at IS NULL") == 0);
    eventually("reported", || {
        count(&api.program, "SELECT count(*) FROM completions WHERE state = 'consumed'") >= 1
    });
    api.program.wait_idle();
    let id = result["session_id"].as_str().expect("a name");
    let texts = api.program.telegram.texts(7);
    let told =
        texts.iter().filter(|text| text.contains(id) && text.contains("completed normally (exit code 0)"));
    assert_eq!(told.count(), 1, "{texts:?}");
    let others = "SELECT count(*) FROM completions WHERE session_key NOT LIKE '%telegram%'";
    assert_eq!(count(&api.program, others), 0);
}

#[test]
fn delegation_without_async_delivery_runs_synchronously() {
    let api = start();
    for channel in [Channel::Chat, Channel::Responses, Channel::Run] {
        let tasks =
            json!({"tasks": [{"goal": format!("one {channel:?}")}, {"goal": format!("two {channel:?}")}]});
        let result = call_tool(&api, channel, "delegate_task", &tasks);
        let want = ["results", "total_duration_seconds", "live_transcripts", "note"];
        assert_eq!(keys(&result), want.into_iter().collect(), "{channel:?}: {result}");
        assert!(result["note"].as_str().expect("a note").contains("synchronously"), "{result}");
        for (at, name) in ["one", "two"].into_iter().enumerate() {
            let entry = &result["results"][at];
            assert_eq!(entry["summary"], format!("did {name} {channel:?}"));
            assert_eq!((&entry["task_index"], &entry["status"]), (&json!(at), &json!("completed")));
            let want = [
                "task_index",
                "status",
                "summary",
                "api_calls",
                "duration_seconds",
                "model",
                "exit_reason",
                "tokens",
                "tool_trace",
                "live_transcript",
            ];
            assert_eq!(keys(entry), want.into_iter().collect(), "{entry}");
        }
    }
    assert_eq!(count(&api.program, "SELECT count(*) FROM delegations"), 0, "a delegation is queued");
    assert_eq!(count(&api.program, "SELECT count(*) FROM completions"), 0);
    let sent = call_tool(&api, Channel::Telegram, "delegate_task", &json!({"goal": "three"}));
    let want = [
        "status",
        "mode",
        "count",
        "delegation_id",
        "goals",
        "note",
        "live_transcripts",
        "live_transcripts_hint",
    ];
    assert_eq!(keys(&sent), want.into_iter().collect(), "{sent}");
    assert_eq!((&sent["status"], &sent["mode"]), (&json!("dispatched"), &json!("background")));
    let id = sent["delegation_id"].as_str().expect("a name");
    let head = format!("[ASYNC DELEGATION BATCH COMPLETE — {id}]");
    eventually("told", || api.program.telegram.texts(7).iter().any(|text| text.contains(&head)));
}
