//! What ends after the answer: a channel that can bring it promises so, one that ends with its answer says at once that
//! it cannot, and whichever handles the turn decides.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::api::{Api, said};
use crate::support::{Bench, eventually, wait_for_file};
use petasos_fakes::model::{Answer, Request};
use rusqlite::Connection;
use serde_json::{Value, json};

const CONFIG: &str = "terminal:\n  enabled: true\n  login_shell: false\n\
                      display:\n  busy_input_mode: queue\n  busy_ack_enabled: false\n";

/// `<tool> {…}` calls that tool; a child says that it did its task; whatever else is said comes back.
fn obey(request: &Request) -> Answer {
    let said = crate::support::said(&request.last_user);
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

/// A gateway on Telegram that programs may talk to, too.
fn start() -> Api {
    let bench = Bench::setup().telegram().with(CONFIG).build();
    bench.model.respond(obey);
    let mut api = Api { bench, address: String::new() };
    api.launch();
    api
}

/// What the model was shown for this wish.
fn shown(bench: &Bench, wish: &str) -> Option<Value> {
    let requests = bench.model.requests();
    let about = requests.iter().filter(|request| crate::support::said(&request.last_user) == wish);
    let row = about
        .filter_map(|it| it.messages().last().filter(|row| row["role"] == "tool").cloned())
        .next_back()?;
    serde_json::from_str(row["content"].as_str()?).ok()
}

/// The ways in which a turn can be asked for.
#[derive(Debug, Clone, Copy)]
enum Way {
    Chat,
    Responses,
    Run,
    Telegram,
}

/// Has a tool called over this channel, and gives its result.
#[track_caller]
fn call(api: &Api, way: Way, tool: &str, arguments: &Value) -> Value {
    let wish = format!("{tool} {arguments}");
    match way {
        Way::Chat => assert_eq!(api.post("/v1/chat/completions", &said(&wish)).status, 200),
        Way::Responses => {
            assert_eq!(api.post("/v1/responses", &json!({"model": "x", "input": wish})).status, 200);
        }
        Way::Run => drop(api.await_run(&api.start_run(&json!({ "input": wish })), "completed")),
        Way::Telegram => drop(api.bench.telegram.push_text(7, 7, wish.clone())),
    }
    eventually("shown", || shown(&api.bench, &wish).is_some());
    shown(&api.bench, &wish).expect("shown")
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

/// A background process that ends when the file is there, and what is wanted of its end. The note makes it one of its kind.
fn wish(flag: &Path, note: &str, wanted: &Value) -> Value {
    let command = format!("{}; echo READY {note}", wait_for_file(flag));
    let mut arguments = json!({"command": command, "background": true});
    arguments.as_object_mut().expect("an object").extend(wanted.as_object().expect("an object").clone());
    arguments
}

fn count(bench: &Bench, question: &str) -> i64 {
    let store = Connection::open(bench.database()).expect("a store");
    store.query_row(question, [], |row| row.get(0)).expect("a count")
}

const PLAIN: [&str; 5] = ["output", "session_id", "pid", "exit_code", "error"];

fn with<'a>(more: &[&'a str]) -> BTreeSet<&'a str> {
    PLAIN.iter().chain(more).copied().collect()
}

#[test]
fn where_the_answer_is_the_end_nothing_is_promised_and_that_is_said() {
    let api = start();
    let flag = api.bench.home.path().join("go");
    let wishes = [json!({"notify_on_complete": true}), json!({"watch_patterns": ["READY"]})];
    for (at, way) in [Way::Chat, Way::Responses, Way::Run].into_iter().enumerate() {
        for (which, wanted) in wishes.iter().enumerate() {
            let result = call(&api, way, "terminal", &wish(&flag, &format!("{at}{which}"), wanted));
            assert_eq!(
                keys(&result),
                with(&["notify_on_complete", "notify_unsupported"]),
                "{way:?} {wanted}: {result}"
            );
            assert_eq!(result["notify_on_complete"], false);
            let note = result["notify_unsupported"].as_str().expect("a text");
            assert!(note.contains("process(action='poll')") && note.contains("running"), "{note}");
            let process = PathBuf::from(format!("/proc/{}", result["pid"]));
            assert!(process.exists(), "{way:?}: it does not run");
        }
    }
    assert_eq!(count(&api.bench, "SELECT count(*) FROM processes WHERE promise <> '\"nothing\"'"), 0);
    let asked = api.bench.model.look(|desk| desk.request_count());
    std::fs::write(&flag, "").expect("a flag");
    eventually("ended", || count(&api.bench, "SELECT count(*) FROM processes WHERE ended_at IS NULL") == 0);
    assert_eq!(count(&api.bench, "SELECT count(*) FROM processes"), 6);
    assert_eq!(count(&api.bench, "SELECT count(*) FROM completions"), 0, "nobody is owed anything");
    assert_eq!(api.bench.model.look(|desk| desk.request_count()), asked);
}

/// The transcript of Telegram's chat 7.
fn transcript(bench: &Bench) -> String {
    let store = Connection::open(bench.database()).expect("a store");
    let read =
        "SELECT json_extract(entry, '$.session_id') FROM routing WHERE session_key LIKE '%telegram%:7'";
    store.query_row(read, [], |row| row.get(0)).expect("a session")
}

#[test]
fn refusal_of_later_delivery_ends_with_its_turn_in_the_same_session() {
    let api = start();
    let flag = api.bench.home.path().join("go");
    let wanted = json!({"notify_on_complete": true});
    let promised = call(&api, Way::Telegram, "terminal", &wish(&flag, "a", &wanted));
    assert_eq!(promised["notify_on_complete"], true);
    api.bench.settle();
    let asked = format!("terminal {}", wish(&flag, "b", &wanted));
    let run = api.start_run(&json!({"input": asked, "session_id": transcript(&api.bench)}));
    api.await_run(&run, "completed");
    let refused = shown(&api.bench, &asked).expect("shown");
    assert_eq!(refused["notify_on_complete"], false, "{refused}");
    let again = call(&api, Way::Telegram, "terminal", &wish(&flag, "c", &wanted));
    assert_eq!(again["notify_on_complete"], true, "{again}");
    let sessions = "SELECT count(DISTINCT session) FROM messages WHERE role = 'user'";
    assert_eq!(count(&api.bench, sessions), 1, "all in one transcript");
}

#[test]
fn where_something_can_follow_it_is_promised_and_it_comes_once() {
    let api = start();
    let flag = api.bench.home.path().join("go");
    // Over the other channel first: its answer does not stick to anything.
    let refused = call(&api, Way::Chat, "terminal", &wish(&flag, "a", &json!({"notify_on_complete": true})));
    assert_eq!(refused["notify_on_complete"], false);
    let result =
        call(&api, Way::Telegram, "terminal", &wish(&flag, "b", &json!({"notify_on_complete": true})));
    assert_eq!(keys(&result), with(&["notify_on_complete"]), "{result}");
    assert_eq!(result["notify_on_complete"], true);
    let watched =
        call(&api, Way::Telegram, "terminal", &wish(&flag, "c", &json!({"watch_patterns": ["READY"]})));
    assert_eq!(keys(&watched), with(&["watch_patterns"]), "{watched}");
    let silent = call(&api, Way::Telegram, "terminal", &wish(&flag, "d", &json!({})));
    assert_eq!(keys(&silent), with(&["hint"]), "{silent}");
    let refused = call(&api, Way::Run, "terminal", &wish(&flag, "e", &json!({"notify_on_complete": true})));
    assert_eq!(refused["notify_on_complete"], false);
    let waits =
        "SELECT count(*) FROM processes WHERE promise = '\"completion\"' AND session_key LIKE '%telegram%'";
    assert_eq!(count(&api.bench, waits), 1, "one is waited for");
    std::fs::write(&flag, "").expect("a flag");
    eventually("ended", || count(&api.bench, "SELECT count(*) FROM processes WHERE ended_at IS NULL") == 0);
    eventually("told", || {
        count(&api.bench, "SELECT count(*) FROM completions WHERE state = 'consumed'") >= 1
    });
    api.bench.settle();
    let id = result["session_id"].as_str().expect("a name");
    let texts = api.bench.telegram.texts(7);
    let told =
        texts.iter().filter(|text| text.contains(id) && text.contains("completed normally (exit code 0)"));
    assert_eq!(told.count(), 1, "{texts:?}");
    let others = "SELECT count(*) FROM completions WHERE session_key NOT LIKE '%telegram%'";
    assert_eq!(count(&api.bench, others), 0);
}

#[test]
fn work_that_is_given_away_is_done_before_the_answer_where_nothing_can_follow_it() {
    let api = start();
    for way in [Way::Chat, Way::Responses, Way::Run] {
        let tasks = json!({"tasks": [{"goal": format!("one {way:?}")}, {"goal": format!("two {way:?}")}]});
        let result = call(&api, way, "delegate_task", &tasks);
        let want = ["results", "total_duration_seconds", "live_transcripts", "note"];
        assert_eq!(keys(&result), want.into_iter().collect(), "{way:?}: {result}");
        assert!(result["note"].as_str().expect("a note").contains("synchronously"), "{result}");
        for (at, name) in ["one", "two"].into_iter().enumerate() {
            let entry = &result["results"][at];
            assert_eq!(entry["summary"], format!("did {name} {way:?}"));
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
    assert_eq!(count(&api.bench, "SELECT count(*) FROM delegations"), 0, "nothing is owed");
    assert_eq!(count(&api.bench, "SELECT count(*) FROM completions"), 0);
    let sent = call(&api, Way::Telegram, "delegate_task", &json!({"goal": "three"}));
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
    eventually("told", || api.bench.telegram.texts(7).iter().any(|text| text.contains(&head)));
}
