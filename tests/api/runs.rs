//! Runs of the real gateway: they belong to the server, are told to whoever comes for them, ask before they do harm, and
//! end in one final state.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::api::{Api, KEY, name, obey, said};
use crate::support::http::{Ask, Frame};
use crate::support::{SOON, assert_took_at_most, wait_for_file};
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Point};
use serde_json::{Value, json};

const TERMINAL: &str = "terminal: {enabled: true, login_shell: false}\n";

/// What a stream of events says, one after the other: its names, and texts put together.
fn told(frames: &[Frame]) -> (Vec<String>, String) {
    let mut names = Vec::new();
    let mut text = String::new();
    for frame in frames {
        let Some(name) = name(frame) else { continue };
        match name.as_str() {
            "message.delta" => text.push_str(frame.json()["delta"].as_str().expect("a text")),
            "message.restarted" => text.clear(),
            _ => {}
        }
        if names.last() != Some(&name) {
            names.push(name);
        }
    }
    (names, text)
}

fn obedient(more: &str) -> Api {
    let api = Api::with(more);
    api.bench.model.respond(obey);
    api
}

#[test]
fn a_run_is_accepted_followed_and_shown_to_everybody_who_asks() {
    let api = obedient("");
    let run = api.start_run(&json!({ "input": "tool:clock", "model": "x" }));
    assert!(run.starts_with("run_") && run.len() == "run_".len() + 32, "{run}");
    let frames = api.events(&run, None).rest();
    let (names, text) = told(&frames);
    assert_eq!(names, ["tool.started", "tool.completed", "message.delta", "run.completed"]);
    for event in frames.iter().filter(|it| !it.data.is_empty()).map(Frame::json) {
        assert_eq!(event["run_id"], run.as_str(), "{event}");
        assert!(event["timestamp"].is_f64() || event["timestamp"].is_u64(), "{event}");
    }
    assert_eq!(frames.last().and_then(|it| it.comment.as_deref()), Some("stream closed"));
    let shown = api.await_run(&run, "completed");
    assert_eq!(shown["output"], text.as_str());
    assert_eq!((&shown["object"], &shown["model"]), (&json!("hermes.run"), &json!("x")));
    assert_eq!(shown["last_event"], "run.completed");
    // A second reader, afterwards, is told the same.
    assert_eq!(told(&api.events(&run, None).rest()), (names, text));
    assert_eq!(api.get("/v1/runs/run_nope").json()["error"]["code"], "run_not_found");
    let stopped = api.post(&format!("/v1/runs/{run}/stop"), &json!({}));
    assert_eq!((stopped.status, &stopped.json()["error"]["code"]), (404, &json!("run_not_found")));
}

#[test]
fn a_reader_who_comes_back_after_a_crash_is_told_the_rest_and_no_more() {
    let mut api = Api::start();
    let gate = Gate::new();
    let words = "one two three four five six";
    api.bench.model.script_many([
        Answer::tool("clock", json!({})),
        Answer::text(words).chunks(6).gate(Point::AfterDelta(3), &gate),
    ]);
    let run = api.start_run(&json!({ "input": "count" }));
    let mut stream = api.events(&run, None);
    let mut before = Vec::new();
    while told(&before).1.split_whitespace().count() < 3 {
        before.push(stream.frame().expect("an event"));
    }
    let last = before.last().and_then(|it| it.id.clone()).expect("an id");
    api.bench.kill();
    gate.open();
    api.bench.model.script(Answer::text(words).chunks(6));
    api.launch();
    let after = api.events(&run, Some(&last)).rest();
    let (names, _) = told(&after);
    assert_eq!(names, ["message.delta", "run.completed"], "nothing that was told before");
    before.extend(after);
    assert_eq!(told(&before).1, words);
    assert_eq!(api.await_run(&run, "completed")["output"], words);
    // Its tool was not run again.
    let asked = api.bench.model.requests().pop().expect("a request");
    assert_eq!(asked.messages().iter().filter(|it| it["role"] == "tool").count(), 1);
    // And every other place leads to the rest, too.
    let whole = api.events(&run, None).rest();
    for (at, frame) in whole.iter().enumerate().filter(|(_, it)| it.id.is_some()) {
        let rest = api.events(&run, frame.id.as_deref()).rest();
        let ids = |frames: &[Frame]| frames.iter().filter_map(|it| it.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&rest), ids(&whole[at + 1..]), "after {:?}", frame.id);
    }
    let wrong = api
        .ask("GET", &format!("/v1/runs/{run}/events"))
        .header("Last-Event-ID", "../../x")
        .send(&api.address);
    assert_eq!(wrong.expect("an answer").json()["error"]["code"], "invalid_event_id");
}

#[test]
fn a_text_that_begins_otherwise_after_a_crash_is_told_anew() {
    let mut api = Api::start();
    let gate = Gate::new();
    api.bench.model.script(Answer::text("red green blue").chunks(3).gate(Point::AfterDelta(2), &gate));
    let run = api.start_run(&json!({ "input": "colours" }));
    let mut stream = api.events(&run, None);
    let mut before = Vec::new();
    while told(&before).1.split_whitespace().count() < 2 {
        before.push(stream.frame().expect("an event"));
    }
    let last = before.last().and_then(|it| it.id.clone()).expect("an id");
    api.bench.kill();
    gate.open();
    api.bench.model.script(Answer::text("black white").chunks(2));
    api.launch();
    let after = api.events(&run, Some(&last)).rest();
    assert_eq!(told(&after).0, ["message.restarted", "message.delta", "run.completed"]);
    before.extend(after);
    assert_eq!(told(&before).1, "black white");
}

/// Processes that work in a folder below this one.
fn at_work(home: &Path) -> usize {
    let home = home.canonicalize().expect("a home");
    let entries = std::fs::read_dir("/proc").expect("processes");
    let folders = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path().join("cwd")).ok());
    folders.filter(|folder| folder.starts_with(&home)).count()
}

#[test]
fn a_run_that_is_stopped_ends_with_its_tool() {
    let api = obedient(TERMINAL);
    let home = api.bench.home.path();
    let run = api.start_run(&json!({ "input": format!("run: {}", wait_for_file(&home.join("never"))) }));
    let until = Instant::now() + SOON;
    while at_work(home) == 0 {
        assert!(Instant::now() < until, "never began: {}", api.get(&format!("/v1/runs/{run}")).body);
    }
    let asked = Instant::now();
    let reply = api.post(&format!("/v1/runs/{run}/stop"), &json!({}));
    assert_eq!(reply.json(), json!({ "run_id": run, "status": "stopping" }));
    api.await_run(&run, "cancelled");
    assert_took_at_most(Duration::from_secs(4), asked);
    let frames = api.events(&run, None).rest();
    assert_eq!(told(&frames).0.last().map(String::as_str), Some("run.cancelled"));
    // Killed before the run ends; the system takes it away a moment later.
    while at_work(home) > 0 {
        assert!(asked.elapsed() < SOON, "its process is still there");
    }
}

/// The run's question, as its events tell it.
fn question(stream: &mut crate::support::http::Stream) -> Value {
    loop {
        let event = stream.frame().expect("an event").json();
        if event["event"] == "approval.request" {
            return event;
        }
        assert_eq!(event["event"], "tool.started", "{event}");
    }
}

#[test]
fn a_run_asks_before_it_does_harm_and_goes_on_with_the_answer() {
    let api = obedient(TERMINAL);
    let folder = api.bench.home.path().join("workspace/x");
    std::fs::create_dir_all(&folder).expect("made");
    let run = api.start_run(&json!({ "input": "run: rm -rf ./x && echo removed" }));
    let mut events = api.events(&run, None);
    let asked = question(&mut events);
    assert_eq!(asked["command"], "rm -rf ./x && echo removed");
    assert_eq!(asked["choices"], json!(["once", "session", "always", "deny"]));
    assert_eq!((&asked["allow_permanent"], &asked["run_id"]), (&json!(true), &json!(run)));
    assert_eq!(asked["pattern_key"], asked["pattern_keys"][0]);
    let waiting = api.await_run(&run, "waiting_for_approval");
    assert_eq!(waiting["last_event"], "approval.request");
    assert_eq!(waiting["approval"]["approval_id"], asked["approval_id"]);
    assert!(folder.exists(), "nobody has agreed yet");

    let path = format!("/v1/runs/{run}/approval");
    let bad = api.post(&path, &json!({ "choice": "maybe" }));
    assert_eq!((bad.status, &bad.json()["error"]["code"]), (400, &json!("invalid_approval_choice")));
    let other = api.post(&path, &json!({ "choice": "once", "approval_id": "q00000000" }));
    assert_eq!((other.status, &other.json()["error"]["code"]), (409, &json!("approval_not_pending")));
    assert!(folder.exists(), "that was the answer to another question");

    let reply = api.post(&path, &json!({ "choice": "approve", "approval_id": asked["approval_id"] }));
    assert_eq!(
        reply.json(),
        json!({ "object": "hermes.run.approval_response", "run_id": run, "choice": "once", "resolved": 1 })
    );
    let rest = events.rest();
    let answered =
        rest.iter().find(|it| name(it).as_deref() == Some("approval.responded")).expect("told").json();
    assert_eq!((&answered["choice"], &answered["resolved"]), (&json!("once"), &json!(1)));
    assert_eq!(told(&rest).0, ["approval.responded", "tool.completed", "message.delta", "run.completed"]);
    assert!(!folder.exists());
    let done = api.await_run(&run, "completed");
    let output = done["output"].as_str().expect("an output");
    assert!(output.contains("removed") && output.contains("allowed it once"), "{output}");
    let again = api.post(&path, &json!({ "choice": "once" }));
    assert_eq!((again.status, &again.json()["error"]["code"]), (409, &json!("approval_not_active")));
    // Whoever comes later hears of it, too, in the same order.
    assert_eq!(
        told(&api.events(&run, None).rest()).0,
        [
            "tool.started",
            "approval.request",
            "approval.responded",
            "tool.completed",
            "message.delta",
            "run.completed"
        ]
    );
}

#[test]
fn a_run_that_is_denied_does_not_do_it_and_the_model_hears_why() {
    let api = obedient(TERMINAL);
    let folder = api.bench.home.path().join("workspace/x");
    std::fs::create_dir_all(&folder).expect("made");
    let run = api.start_run(&json!({ "input": "run: rm -rf ./x" }));
    question(&mut api.events(&run, None));
    let body = json!({ "choice": "deny", "reason": "use the trash" });
    assert_eq!(api.post(&format!("/v1/runs/{run}/approval"), &body).json()["resolved"], 1);
    let done = api.await_run(&run, "completed");
    let output = done["output"].as_str().expect("an output");
    assert!(output.contains("BLOCKED") && output.contains("use the trash"), "{output}");
    assert!(folder.exists());
}

#[test]
fn an_answer_to_one_run_is_none_to_another_of_the_same_conversation() {
    let api = obedient(TERMINAL);
    let folder = api.bench.home.path().join("workspace/x");
    let ask = || api.start_run(&json!({ "input": "run: rm -rf ./x", "session_id": "shared" }));
    let (first, second) = (ask(), ask());
    std::fs::create_dir_all(&folder).expect("made");
    api.await_run(&first, "waiting_for_approval");
    let early = api.post(&format!("/v1/runs/{second}/approval"), &json!({ "choice": "once", "all": true }));
    assert_eq!((early.status, &early.json()["error"]["code"]), (409, &json!("approval_not_pending")));
    assert!(folder.exists());
    api.post(&format!("/v1/runs/{first}/approval"), &json!({ "choice": "once", "all": true }));
    api.await_run(&first, "completed");
    assert!(!folder.exists());
    std::fs::create_dir_all(&folder).expect("made");
    api.await_run(&second, "waiting_for_approval");
    assert!(folder.exists(), "agreed to by nobody");
    api.post(&format!("/v1/runs/{second}/approval"), &json!({ "choice": "deny" }));
    api.await_run(&second, "completed");
    assert!(folder.exists());
}

#[test]
fn silence_is_no_consent_and_the_run_goes_on() {
    let api = obedient(&format!("{TERMINAL}approvals: {{timeout: 5}}\n"));
    let folder = api.bench.home.path().join("workspace/x");
    std::fs::create_dir_all(&folder).expect("made");
    let run = api.start_run(&json!({ "input": "run: rm -rf ./x" }));
    let frames = api.events(&run, None).rest();
    assert_eq!(
        told(&frames).0,
        [
            "tool.started",
            "approval.request",
            "approval.expired",
            "tool.completed",
            "message.delta",
            "run.completed"
        ]
    );
    let output = api.await_run(&run, "completed")["output"].to_string();
    assert!(output.contains("silence is not consent"), "{output}");
    assert!(folder.exists());
}

#[test]
fn a_question_of_a_run_is_lost_in_a_crash_and_what_it_was_about_is_not_run() {
    let mut api = obedient(TERMINAL);
    let folder = api.bench.home.path().join("workspace/x");
    std::fs::create_dir_all(&folder).expect("made");
    let run = api.start_run(&json!({ "input": "run: rm -rf ./x" }));
    question(&mut api.events(&run, None));
    api.crash();
    let frames = api.events(&run, None).rest();
    let (names, text) = told(&frames);
    assert_eq!(
        names,
        [
            "tool.started",
            "approval.request",
            "approval.expired",
            "tool.completed",
            "message.delta",
            "run.completed"
        ]
    );
    assert!(text.contains("NOT RUN"), "{text}");
    assert!(folder.exists(), "nobody agreed to this");
    let late = api.post(&format!("/v1/runs/{run}/approval"), &json!({ "choice": "once" }));
    assert_eq!(late.json()["error"]["code"], "approval_not_active");
}

#[test]
fn where_nobody_can_be_asked_a_dangerous_command_is_refused_at_once() {
    let api = obedient(TERMINAL);
    let folder = api.bench.home.path().join("workspace/x");
    std::fs::create_dir_all(&folder).expect("made");
    let chat = api.post("/v1/chat/completions", &said("run: rm -rf ./x"));
    assert_eq!(chat.status, 200, "{}", chat.body);
    assert!(chat.body.contains("nobody can be asked"), "{}", chat.body);
    let response = api.post("/v1/responses", &json!({ "input": "run: rm -rf ./x" }));
    assert!(response.body.contains("nobody can be asked"), "{}", response.body);
    assert!(folder.exists());
}

#[test]
fn an_accepted_run_outlives_a_kill_and_a_stop() {
    let mut api = Api::start();
    let gate = api.bench.model.gate(Point::Before);
    let run = api.start_run(&json!({ "input": "first" }));
    assert!(gate.wait(SOON), "the model was never asked");
    api.bench.kill();
    api.launch();
    assert!(gate.wait_for(1, SOON), "never taken up again");
    let (_, said, _) = api.bench.terminate();
    assert!(said.contains("interrupted=1"), "{said}");
    gate.open();
    api.launch();
    assert_eq!(api.await_run(&run, "completed")["output"], "echo: first");
    let rows = api.get(&format!("/api/sessions/{run}/messages")).json()["data"].clone();
    let roles: Vec<_> = rows.as_array().expect("rows").iter().map(|row| row["role"].clone()).collect();
    assert_eq!(roles, ["user", "assistant"], "one question, one answer: {rows}");
}

#[test]
fn a_run_whose_model_fails_is_failed() {
    let api = Api::start();
    api.bench.model.respond(|_| Answer::status(401, "bad key"));
    let run = api.start_run(&json!({ "input": "hello" }));
    let failed = api.await_run(&run, "failed");
    assert!(failed["error"].is_string() && failed.get("output").is_none(), "{failed}");
    assert_eq!(told(&api.events(&run, None).rest()).0, ["run.failed"]);
    let response = api.post("/v1/responses", &json!({ "input": "hello" }));
    assert_eq!((response.status, &response.json()["error"]["code"]), (502, &json!("agent_error")));
    let id = response.header("x-petasos-run-id").expect("a name");
    assert_eq!(api.get(&format!("/v1/responses/{id}")).json()["status"], "failed");
    let session = api.post("/api/sessions", &json!({ "id": "s" }));
    assert_eq!(session.status, 201);
    assert_eq!(api.post("/api/sessions/s/chat", &json!({ "message": "x" })).status, 502);
}

#[test]
fn names_of_requests_hold_for_runs_too_across_a_crash() {
    let mut api = Api::start();
    let ask = |api: &Api, text: &str| {
        let ask = api.ask("POST", "/v1/runs").header("Idempotency-Key", "nightly");
        api.send(&ask.json(&json!({ "input": text })))
    };
    let first = ask(&api, "report");
    assert_eq!(first.status, 202, "{}", first.body);
    api.crash();
    let again = ask(&api, "report");
    assert_eq!((again.status, again.json()), (202, first.json()));
    let other = ask(&api, "another report");
    assert_eq!((other.status, &other.json()["error"]["code"]), (409, &json!("idempotency_key_reused")));
    // The same name elsewhere is another request, too.
    let chat =
        api.ask("POST", "/v1/chat/completions").header("Idempotency-Key", "nightly").json(&said("report"));
    assert_eq!(api.send(&chat).status, 409);
    let run = first.json()["run_id"].as_str().expect("a name").to_owned();
    api.await_run(&run, "completed");
    assert_eq!(
        api.bench.model.look(|desk| desk.requests().filter(|it| it.last_user.contains("report")).count()),
        1
    );
}

#[test]
fn key_without_admin_scope_cannot_allow_for_longer_than_once() {
    let works = "k-works-0123456789abcdef";
    let keys = format!(
        "{TERMINAL}platforms.api_server.extra.keys:\n  works: {{key: {works}, scopes: [read, agent]}}\n"
    );
    let api = obedient(&keys);
    let folder = api.bench.home.path().join("workspace/x");
    let post = |path: &str, body: &Value| {
        api.send(&Ask::new("POST", path).header("Authorization", format!("Bearer {works}")).json(body))
    };
    let waiting = || {
        std::fs::create_dir_all(&folder).expect("made");
        let started = post("/v1/runs", &json!({ "input": "run: rm -rf ./x" })).json();
        let path = format!("/v1/runs/{}", started["run_id"].as_str().expect("a name"));
        let until = Instant::now() + SOON;
        loop {
            let ask = Ask::new("GET", &path).header("Authorization", format!("Bearer {works}"));
            let shown = api.send(&ask).json();
            if shown["status"] == "waiting_for_approval" {
                return (path, shown);
            }
            assert!(Instant::now() < until, "never asked: {shown}");
            std::thread::yield_now();
        }
    };
    let (path, shown) = waiting();
    assert_eq!(shown["approval"]["choices"], json!(["once", "deny"]), "{shown}");
    assert_eq!(shown["approval"]["allow_permanent"], false);
    let answer = format!("{path}/approval");
    for choice in ["always", "session"] {
        for body in [json!({ "choice": choice }), json!({ "choice": choice, "all": true })] {
            let refused = post(&answer, &body);
            let code = &refused.json()["error"]["code"];
            assert_eq!((refused.status, code), (403, &json!("insufficient_scope")), "{body}");
        }
    }
    assert!(folder.exists(), "a refused answer allows nothing");
    assert_eq!(post(&answer, &json!({ "choice": "once" })).json()["resolved"], 1);
    // Once is once, for this key and for everybody else.
    waiting();
    let allowed = crate::support::fine(&api.bench.run(&["approvals"]));
    assert!(allowed.contains("nothing runs unasked"), "{allowed}");
}

#[test]
fn runs_are_their_owners_and_a_whole_answer_ends_with_its_client() {
    let other = "k-other-0123456789abcdef";
    let keys =
        format!("platforms.api_server.extra.keys:\n  other: {{key: {other}, scopes: [read, agent]}}\n");
    let api = Api::with(&keys);
    let gate = api.bench.model.gate(Point::Before);
    // Not streamed, and the client hangs up.
    let ask = api.ask("POST", "/v1/chat/completions").header("Idempotency-Key", "mine").json(&said("wait"));
    let socket = ask.begin(&api.address).expect("a connection");
    assert!(gate.wait(SOON), "the model was never asked");
    drop(socket);
    assert!(gate.wait_gone(1, SOON), "the model is still asked");
    gate.open();
    let reply = api.send(&ask);
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (502, &json!("agent_incomplete")));
    let run = reply.header("x-petasos-run-id").expect("a name").to_owned();
    api.await_run(&run, "cancelled");
    let theirs = Ask::new("GET", "/v1/runs/x").header("Authorization", format!("Bearer {other}"));
    let path = format!("/v1/runs/{run}");
    let theirs = Ask { path: &path, ..theirs };
    assert_eq!(api.send(&theirs).status, 404, "not theirs");
    assert_eq!(
        api.send(&Ask::new("GET", &path).header("Authorization", format!("Bearer {KEY}"))).status,
        200
    );
}
