//! Runs: they outlive their clients, stream events to every reader, wait for approvals, and end in one final state.

use std::path::Path;
use std::time::Duration;

use crate::support::api::{Api, KEY, chat_body, event_name, scripted_answer};
use crate::support::http::{HttpRequest, SseFrame};
use crate::support::{SOON, assert_took_at_most, eventually, wait_for_file};
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Point};
use petasos_runtime::clock;
use serde_json::{Value, json};

const TERMINAL: &str = "terminal: {enabled: true, sandbox: 'off', login_shell: false}\n";

/// The event names of a stream, without repetitions, and its text.
fn summarise(frames: &[SseFrame]) -> (Vec<String>, String) {
    let mut names = Vec::new();
    let mut text = String::new();
    for frame in frames {
        let Some(name) = event_name(frame) else { continue };
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

fn scripted_api(more: &str) -> Api {
    let api = Api::with_config(more);
    api.program.model.respond(scripted_answer);
    api
}

#[test]
fn run_is_accepted_streamed_and_retrievable() {
    let api = scripted_api("");
    let run = api.start_run(&json!({ "input": "tool:clock", "model": "x" }));
    assert!(run.starts_with("run_") && run.len() == "run_".len() + 32, "{run}");
    let frames = api.events(&run, None).rest();
    let (names, text) = summarise(&frames);
    assert_eq!(names, ["tool.started", "tool.completed", "message.delta", "run.completed"]);
    for event in frames.iter().filter(|it| !it.data.is_empty()).map(SseFrame::json) {
        assert_eq!(event["run_id"], run.as_str(), "{event}");
        assert!(event["timestamp"].is_f64() || event["timestamp"].is_u64(), "{event}");
    }
    assert_eq!(frames.last().and_then(|it| it.comment.as_deref()), Some("stream closed"));
    let shown = api.wait_run(&run, "completed");
    assert_eq!(shown["output"], text.as_str());
    assert_eq!((&shown["object"], &shown["model"]), (&json!("hermes.run"), &json!("x")));
    assert_eq!(shown["last_event"], "run.completed");
    // A later reader gets the same events.
    assert_eq!(summarise(&api.events(&run, None).rest()), (names, text));
    assert_eq!(api.get("/v1/runs/run_nope").json()["error"]["code"], "run_not_found");
    let stopped = api.post(&format!("/v1/runs/{run}/stop"), &json!({}));
    assert_eq!((stopped.status, &stopped.json()["error"]["code"]), (404, &json!("run_not_found")));
}

#[test]
fn event_stream_resumes_after_crash_without_repeats() {
    let mut api = Api::start();
    let gate = Gate::new();
    let words = "one two three four five six";
    api.program.model.script_many([
        Answer::tool("clock", json!({})),
        Answer::text(words).chunks(6).gate(Point::AfterDelta(3), &gate),
    ]);
    let run = api.start_run(&json!({ "input": "count" }));
    let mut stream = api.events(&run, None);
    let mut before = Vec::new();
    while summarise(&before).1.split_whitespace().count() < 3 {
        before.push(stream.next_frame().expect("an event"));
    }
    let last = before.last().and_then(|it| it.id.clone()).expect("an id");
    api.program.kill();
    gate.open();
    api.program.model.script(Answer::text(words).chunks(6));
    api.launch();
    let after = api.events(&run, Some(&last)).rest();
    let (names, _) = summarise(&after);
    assert_eq!(names, ["message.delta", "run.completed"], "no earlier event");
    before.extend(after);
    assert_eq!(summarise(&before).1, words);
    assert_eq!(api.wait_run(&run, "completed")["output"], words);
    let asked = api.program.model.requests().pop().expect("a request");
    assert_eq!(asked.messages().iter().filter(|it| it["role"] == "tool").count(), 1);
    // A stream resumed after any event has the remaining events.
    let whole = api.events(&run, None).rest();
    for (at, frame) in whole.iter().enumerate().filter(|(_, it)| it.id.is_some()) {
        let rest = api.events(&run, frame.id.as_deref()).rest();
        let ids = |frames: &[SseFrame]| frames.iter().filter_map(|it| it.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&rest), ids(&whole[at + 1..]), "after {:?}", frame.id);
    }
    let wrong = api
        .request("GET", &format!("/v1/runs/{run}/events"))
        .header("Last-Event-ID", "../../x")
        .send(&api.address);
    assert_eq!(wrong.expect("an answer").json()["error"]["code"], "invalid_event_id");
}

#[test]
fn event_stream_restarts_text_that_changed_after_crash() {
    let mut api = Api::start();
    let gate = Gate::new();
    api.program.model.script(Answer::text("red green blue").chunks(3).gate(Point::AfterDelta(2), &gate));
    let run = api.start_run(&json!({ "input": "colours" }));
    let mut stream = api.events(&run, None);
    let mut before = Vec::new();
    while summarise(&before).1.split_whitespace().count() < 2 {
        before.push(stream.next_frame().expect("an event"));
    }
    let last = before.last().and_then(|it| it.id.clone()).expect("an id");
    api.program.kill();
    gate.open();
    api.program.model.script(Answer::text("black white").chunks(2));
    api.launch();
    let after = api.events(&run, Some(&last)).rest();
    assert_eq!(summarise(&after).0, ["message.restarted", "message.delta", "run.completed"]);
    before.extend(after);
    assert_eq!(summarise(&before).1, "black white");
}

/// Number of processes whose working directory is below this folder.
fn processes_in(home: &Path) -> usize {
    let home = home.canonicalize().expect("a home");
    let entries = std::fs::read_dir("/proc").expect("processes");
    let folders = entries.filter_map(|entry| std::fs::read_link(entry.ok()?.path().join("cwd")).ok());
    folders.filter(|folder| folder.starts_with(&home)).count()
}

#[test]
fn stopping_run_kills_its_tool() {
    let api = scripted_api(TERMINAL);
    let home = api.program.home.path();
    let run = api.start_run(&json!({ "input": format!("run: {}", wait_for_file(&home.join("never"))) }));
    eventually("the tool runs", || processes_in(home) > 0);
    let asked = clock::monotonic();
    let reply = api.post(&format!("/v1/runs/{run}/stop"), &json!({}));
    assert_eq!(reply.json(), json!({ "run_id": run, "status": "stopping" }));
    api.wait_run(&run, "cancelled");
    assert_took_at_most(Duration::from_secs(4), asked);
    let frames = api.events(&run, None).rest();
    assert_eq!(summarise(&frames).0.last().map(String::as_str), Some("run.cancelled"));
    // Killed before the run ends; the kernel removes the process a moment later.
    eventually("the process is gone", || processes_in(home) == 0);
}

fn next_approval_request(stream: &mut crate::support::http::EventStream) -> Value {
    loop {
        let event = stream.next_frame().expect("an event").json();
        if event["event"] == "approval.request" {
            return event;
        }
        assert_eq!(event["event"], "tool.started", "{event}");
    }
}

#[test]
fn run_waits_for_approval_and_continues() {
    let api = scripted_api(TERMINAL);
    let folder = api.program.home.path().join("workspace/x");
    std::fs::create_dir_all(&folder).expect("made");
    let run = api.start_run(&json!({ "input": "run: rm -rf ./x && echo removed" }));
    let mut events = api.events(&run, None);
    let asked = next_approval_request(&mut events);
    assert_eq!(asked["command"], "rm -rf ./x && echo removed");
    assert_eq!(asked["choices"], json!(["once", "session", "always", "deny"]));
    assert_eq!((&asked["allow_permanent"], &asked["run_id"]), (&json!(true), &json!(run)));
    assert_eq!(asked["pattern_key"], asked["pattern_keys"][0]);
    let waiting = api.wait_run(&run, "waiting_for_approval");
    assert_eq!(waiting["last_event"], "approval.request");
    assert_eq!(waiting["approval"]["approval_id"], asked["approval_id"]);
    assert!(folder.exists(), "run without approval");

    let path = format!("/v1/runs/{run}/approval");
    let bad = api.post(&path, &json!({ "choice": "maybe" }));
    assert_eq!((bad.status, &bad.json()["error"]["code"]), (400, &json!("invalid_approval_choice")));
    let other = api.post(&path, &json!({ "choice": "once", "approval_id": "q00000000" }));
    assert_eq!((other.status, &other.json()["error"]["code"]), (409, &json!("approval_not_pending")));
    assert!(folder.exists(), "approved by the answer to another request");

    let reply = api.post(&path, &json!({ "choice": "approve", "approval_id": asked["approval_id"] }));
    assert_eq!(
        reply.json(),
        json!({ "object": "hermes.run.approval_response", "run_id": run, "choice": "once", "resolved": 1 })
    );
    let rest = events.rest();
    let answered =
        rest.iter().find(|it| event_name(it).as_deref() == Some("approval.responded")).expect("told").json();
    assert_eq!((&answered["choice"], &answered["resolved"]), (&json!("once"), &json!(1)));
    assert_eq!(
        summarise(&rest).0,
        ["approval.responded", "tool.completed", "message.delta", "run.completed"]
    );
    assert!(!folder.exists());
    let done = api.wait_run(&run, "completed");
    let output = done["output"].as_str().expect("an output");
    assert!(output.contains("removed") && output.contains("allowed it once"), "{output}");
    let again = api.post(&path, &json!({ "choice": "once" }));
    assert_eq!((again.status, &again.json()["error"]["code"]), (409, &json!("approval_not_active")));
    // A later reader gets the same events in the same order.
    assert_eq!(
        summarise(&api.events(&run, None).rest()).0,
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
fn denied_run_skips_command_and_gives_model_the_reason() {
    let api = scripted_api(TERMINAL);
    let folder = api.program.home.path().join("workspace/x");
    std::fs::create_dir_all(&folder).expect("made");
    let run = api.start_run(&json!({ "input": "run: rm -rf ./x" }));
    next_approval_request(&mut api.events(&run, None));
    let body = json!({ "choice": "deny", "reason": "use the trash" });
    assert_eq!(api.post(&format!("/v1/runs/{run}/approval"), &body).json()["resolved"], 1);
    let done = api.wait_run(&run, "completed");
    let output = done["output"].as_str().expect("an output");
    assert!(output.contains("BLOCKED") && output.contains("use the trash"), "{output}");
    assert!(folder.exists());
}

#[test]
fn approval_applies_to_one_run_of_a_session() {
    let api = scripted_api(TERMINAL);
    let folder = api.program.home.path().join("workspace/x");
    let start = || api.start_run(&json!({ "input": "run: rm -rf ./x", "session_id": "shared" }));
    let first = start();
    let second = start();
    std::fs::create_dir_all(&folder).expect("made");
    api.wait_run(&first, "waiting_for_approval");
    let early = api.post(&format!("/v1/runs/{second}/approval"), &json!({ "choice": "once", "all": true }));
    assert_eq!((early.status, &early.json()["error"]["code"]), (409, &json!("approval_not_pending")));
    assert!(folder.exists());
    api.post(&format!("/v1/runs/{first}/approval"), &json!({ "choice": "once", "all": true }));
    api.wait_run(&first, "completed");
    assert!(!folder.exists());
    std::fs::create_dir_all(&folder).expect("made");
    api.wait_run(&second, "waiting_for_approval");
    assert!(folder.exists(), "run without approval");
    api.post(&format!("/v1/runs/{second}/approval"), &json!({ "choice": "deny" }));
    api.wait_run(&second, "completed");
    assert!(folder.exists());
}

#[test]
fn expired_approval_denies_and_run_continues() {
    let api = scripted_api(&format!("{TERMINAL}approvals: {{timeout: 5}}\n"));
    let folder = api.program.home.path().join("workspace/x");
    std::fs::create_dir_all(&folder).expect("made");
    let run = api.start_run(&json!({ "input": "run: rm -rf ./x" }));
    let frames = api.events(&run, None).rest();
    assert_eq!(
        summarise(&frames).0,
        [
            "tool.started",
            "approval.request",
            "approval.expired",
            "tool.completed",
            "message.delta",
            "run.completed"
        ]
    );
    let output = api.wait_run(&run, "completed")["output"].to_string();
    assert!(output.contains("silence is not consent"), "{output}");
    assert!(folder.exists());
}

#[test]
fn crash_expires_open_approval_of_a_run() {
    let mut api = scripted_api(TERMINAL);
    let folder = api.program.home.path().join("workspace/x");
    std::fs::create_dir_all(&folder).expect("made");
    let run = api.start_run(&json!({ "input": "run: rm -rf ./x" }));
    next_approval_request(&mut api.events(&run, None));
    api.kill_and_restart();
    let frames = api.events(&run, None).rest();
    let (names, text) = summarise(&frames);
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
    assert!(folder.exists(), "run without approval");
    let late = api.post(&format!("/v1/runs/{run}/approval"), &json!({ "choice": "once" }));
    assert_eq!(late.json()["error"]["code"], "approval_not_active");
}

#[test]
fn refuses_dangerous_command_without_approval_channel() {
    let api = scripted_api(TERMINAL);
    let folder = api.program.home.path().join("workspace/x");
    std::fs::create_dir_all(&folder).expect("made");
    let chat = api.post("/v1/chat/completions", &chat_body("run: rm -rf ./x"));
    assert_eq!(chat.status, 200, "{}", chat.body);
    assert!(chat.body.contains("this channel cannot ask anyone"), "{}", chat.body);
    let response = api.post("/v1/responses", &json!({ "input": "run: rm -rf ./x" }));
    assert!(response.body.contains("this channel cannot ask anyone"), "{}", response.body);
    assert!(folder.exists());
}

#[test]
fn accepted_run_survives_kill_and_stop() {
    let mut api = Api::start();
    let gate = api.program.model.gate(Point::Before);
    let run = api.start_run(&json!({ "input": "first" }));
    assert!(gate.wait(SOON), "the model was never asked");
    api.program.kill();
    api.launch();
    assert!(gate.wait_for(1, SOON), "never resumed");
    let (_, log, _) = api.program.terminate();
    assert!(log.contains("interrupted=1"), "{log}");
    gate.open();
    api.launch();
    assert_eq!(api.wait_run(&run, "completed")["output"], "echo: first");
    let rows = api.get(&format!("/api/sessions/{run}/messages")).json()["data"].clone();
    let roles: Vec<_> = rows.as_array().expect("rows").iter().map(|row| row["role"].clone()).collect();
    assert_eq!(roles, ["user", "assistant"], "one message, one answer: {rows}");
}

#[test]
fn model_failure_fails_the_run() {
    let api = Api::start();
    api.program.model.respond(|_| Answer::status(401, "bad key"));
    let run = api.start_run(&json!({ "input": "hello" }));
    let failed = api.wait_run(&run, "failed");
    assert!(failed["error"].is_string() && failed.get("output").is_none(), "{failed}");
    assert_eq!(summarise(&api.events(&run, None).rest()).0, ["run.failed"]);
    let response = api.post("/v1/responses", &json!({ "input": "hello" }));
    assert_eq!((response.status, &response.json()["error"]["code"]), (502, &json!("agent_error")));
    let id = response.header("x-petasos-run-id").expect("a name");
    assert_eq!(api.get(&format!("/v1/responses/{id}")).json()["status"], "failed");
    let session = api.post("/api/sessions", &json!({ "id": "s" }));
    assert_eq!(session.status, 201);
    assert_eq!(api.post("/api/sessions/s/chat", &json!({ "message": "x" })).status, 502);
}

#[test]
fn idempotency_key_of_run_survives_crash() {
    let mut api = Api::start();
    let start = |api: &Api, text: &str| {
        let request = api.request("POST", "/v1/runs").header("Idempotency-Key", "nightly");
        api.send(&request.json(&json!({ "input": text })))
    };
    let first = start(&api, "report");
    assert_eq!(first.status, 202, "{}", first.body);
    api.kill_and_restart();
    let again = start(&api, "report");
    assert_eq!((again.status, again.json()), (202, first.json()));
    let other = start(&api, "another report");
    assert_eq!((other.status, &other.json()["error"]["code"]), (409, &json!("idempotency_key_reused")));
    // The same key on another endpoint is another request.
    let chat = api
        .request("POST", "/v1/chat/completions")
        .header("Idempotency-Key", "nightly")
        .json(&chat_body("report"));
    assert_eq!(api.send(&chat).status, 409);
    let run = first.json()["run_id"].as_str().expect("a name").to_owned();
    api.wait_run(&run, "completed");
    assert_eq!(
        api.program.model.read(|state| state.requests().filter(|it| it.last_user.contains("report")).count()),
        1
    );
}

#[test]
fn key_without_admin_scope_approves_only_once() {
    let works = "k-works-0123456789abcdef";
    let keys = format!(
        "{TERMINAL}platforms.api_server.extra.keys:\n  works: {{key: {works}, scopes: [read, agent]}}\n"
    );
    let api = scripted_api(&keys);
    let folder = api.program.home.path().join("workspace/x");
    let post = |path: &str, body: &Value| {
        api.send(
            &HttpRequest::new("POST", path).header("Authorization", format!("Bearer {works}")).json(body),
        )
    };
    let start_waiting = || {
        std::fs::create_dir_all(&folder).expect("made");
        let started = post("/v1/runs", &json!({ "input": "run: rm -rf ./x" })).json();
        let path = format!("/v1/runs/{}", started["run_id"].as_str().expect("a name"));
        let shown = eventually("the run waits for approval", || {
            let request = HttpRequest::new("GET", &path).header("Authorization", format!("Bearer {works}"));
            let shown = api.send(&request).json();
            (shown["status"] == "waiting_for_approval").then_some(shown)
        });
        (path, shown)
    };
    let (path, shown) = start_waiting();
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
    assert!(folder.exists(), "a rejected answer approved the command");
    assert_eq!(post(&answer, &json!({ "choice": "once" })).json()["resolved"], 1);
    // The approval covered one command only.
    start_waiting();
    let allowed = crate::support::expect_success(&api.program.run(&["approvals"]));
    assert!(allowed.contains("No lasting approvals"), "{allowed}");
}

#[test]
fn runs_belong_to_their_key_and_end_with_their_client() {
    let other = "k-other-0123456789abcdef";
    let keys =
        format!("platforms.api_server.extra.keys:\n  other: {{key: {other}, scopes: [read, agent]}}\n");
    let api = Api::with_config(&keys);
    let gate = api.program.model.gate(Point::Before);
    // The client of a request without streaming disconnects.
    let request = api
        .request("POST", "/v1/chat/completions")
        .header("Idempotency-Key", "mine")
        .json(&chat_body("wait"));
    let socket = request.send_only(&api.address).expect("a connection");
    assert!(gate.wait(SOON), "the model was never asked");
    drop(socket);
    assert!(gate.wait_gone(1, SOON), "the model call is still open");
    gate.open();
    let reply = api.send(&request);
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (502, &json!("agent_incomplete")));
    let run = reply.header("x-petasos-run-id").expect("a name").to_owned();
    api.wait_run(&run, "cancelled");
    let theirs = HttpRequest::new("GET", "/v1/runs/x").header("Authorization", format!("Bearer {other}"));
    let path = format!("/v1/runs/{run}");
    let theirs = HttpRequest { path: &path, ..theirs };
    assert_eq!(api.send(&theirs).status, 404, "the run of another key");
    assert_eq!(
        api.send(&HttpRequest::new("GET", &path).header("Authorization", format!("Bearer {KEY}"))).status,
        200
    );
}
