//! Conversations of programs with the real gateway: responses, sessions, jobs, keys, pages of others, and a gateway that
//! wants to rest.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Point};
use serde_json::{Value, json};
use support::SOON;
use support::api::{Api, KEY, content, obey, said};
use support::http::{Ask, Frame, Reply};

fn text_of(response: &Value) -> String {
    let items = response["output"].as_array().expect("items").iter();
    let messages = items.filter(|item| item["type"] == "message");
    messages.map(|item| item["content"][0]["text"].as_str().expect("a text")).collect()
}

fn id_of(reply: &Reply) -> String {
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()["id"].as_str().expect("an id").to_owned()
}

/// What the model was shown last, without what the system says.
fn shown(api: &Api) -> Vec<String> {
    let asked = api.bench.model.requests().pop().expect("a request");
    let said = asked.messages().iter().filter(|it| it["role"] != "system");
    said.map(|it| it["content"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_response_is_kept_gone_on_from_and_forgotten() {
    let mut api = Api::start();
    let first =
        api.post("/v1/responses", &json!({ "input": "one", "instructions": "be brief", "model": "x" }));
    let id = id_of(&first);
    assert!(id.starts_with("resp_") && id.len() == "resp_".len() + 28, "{id}");
    let body = first.json();
    assert_eq!(
        (&body["object"], &body["status"], &body["model"]),
        (&json!("response"), &json!("completed"), &json!("x"))
    );
    assert_eq!(text_of(&body), "echo: one");
    api.crash();
    let kept = api.get(&format!("/v1/responses/{id}"));
    assert_eq!((kept.status, kept.json()), (200, body));
    let second = api.post("/v1/responses", &json!({ "input": "two", "previous_response_id": id }));
    assert_eq!(text_of(&second.json()), "echo: two");
    assert_eq!(shown(&api), ["one", "echo: one", "two"]);
    assert_eq!(first.header("x-hermes-session-id"), second.header("x-hermes-session-id"));
    let asked = api.bench.model.requests().pop().expect("a request");
    assert!(asked.body().to_string().contains("be brief"), "instructions carry over");
    // From the first once more: another branch.
    let other = api.post("/v1/responses", &json!({ "input": "three", "previous_response_id": id }));
    assert_eq!(shown(&api), ["one", "echo: one", "three"]);
    assert_ne!(first.header("x-hermes-session-id"), other.header("x-hermes-session-id"));

    let path = format!("/v1/responses/{id}");
    let gone = api.send(&api.ask("DELETE", &path));
    assert_eq!(gone.json(), json!({ "id": id, "object": "response", "deleted": true }));
    assert_eq!(api.get(&path).status, 404);
    assert_eq!(api.send(&api.ask("DELETE", &path)).status, 404);
    let after = api.post("/v1/responses", &json!({ "input": "x", "previous_response_id": id }));
    assert_eq!(after.status, 404);
    // One that nobody is to see again was never there.
    let unkept = id_of(&api.post("/v1/responses", &json!({ "input": "x", "store": false })));
    assert_eq!(api.get(&format!("/v1/responses/{unkept}")).status, 404);
}

#[test]
fn a_conversation_has_a_name_and_goes_on_after_a_restart() {
    let mut api = Api::start();
    let ask = |api: &Api, text: &str| {
        let reply = api.post("/v1/responses", &json!({ "input": text, "conversation": "garden" }));
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.header("x-hermes-session-id").expect("a session").to_owned()
    };
    let first = ask(&api, "one");
    api.bench.terminate();
    api.launch();
    assert_eq!(ask(&api, "two"), first);
    assert_eq!(shown(&api), ["one", "echo: one", "two"]);
    let told = json!([{ "role": "user", "content": "a" }, { "role": "assistant", "content": "b" }]);
    api.post("/v1/responses", &json!({ "input": "c", "conversation_history": told }));
    assert_eq!(shown(&api), ["a", "b", "c"]);
    let items = json!([{ "role": "user", "content": [{ "type": "input_text", "text": "first" }] },
                       { "role": "assistant", "content": [{ "type": "output_text", "text": "yes" }] },
                       { "role": "user", "content": "and now" }]);
    assert_eq!(text_of(&api.post("/v1/responses", &json!({ "input": items })).json()), "echo: and now");
    assert_eq!(shown(&api), ["first", "yes", "and now"]);
}

#[test]
fn a_response_is_streamed_as_events_in_their_order() {
    let api = Api::start();
    api.bench.model.respond(obey);
    let body = json!({ "input": "tool:clock", "stream": true });
    let frames = api.stream("/v1/responses", &body).rest();
    let events: Vec<Value> = frames.iter().map(Frame::json).collect();
    let kinds: Vec<_> = events.iter().map(|it| it["type"].as_str().expect("a type")).collect();
    for (frame, kind) in frames.iter().zip(&kinds) {
        assert_eq!(frame.event.as_deref(), Some(*kind));
    }
    let numbers: Vec<_> = events.iter().map(|it| it["sequence_number"].as_u64().expect("a number")).collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    let mut order = kinds.clone();
    order.dedup();
    assert_eq!(
        order,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.output_item.done",
            "response.output_item.added",
            "response.output_item.done",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    let last = &events[events.len() - 1]["response"];
    let items: Vec<_> =
        last["output"].as_array().expect("items").iter().map(|it| it["type"].clone()).collect();
    assert_eq!(items, ["function_call", "function_call_output", "message"]);
    let id = last["id"].as_str().expect("an id");
    assert_eq!(api.get(&format!("/v1/responses/{id}")).json()["output"], last["output"]);
    let deltas: String = events.iter().filter_map(|it| it["delta"].as_str()).collect();
    assert_eq!(deltas, text_of(last));
}

#[test]
fn a_response_whose_client_leaves_is_incomplete_at_once_and_the_model_is_not_asked_again() {
    let api = Api::start();
    let gate = Gate::new();
    api.bench.model.script(Answer::text("one two three four").chunks(4).gate(Point::AfterDelta(2), &gate));
    let mut stream = api.stream("/v1/responses", &json!({ "input": "count", "stream": true }));
    let mut id = None;
    let mut told = String::new();
    while told.split_whitespace().count() < 2 {
        let event = stream.frame().expect("an event").json();
        told.push_str(event["delta"].as_str().unwrap_or_default());
        id = id.or_else(|| event["response"]["id"].as_str().map(str::to_owned));
    }
    drop(stream);
    let left = Instant::now();
    let path = format!("/v1/responses/{}", id.expect("an id"));
    loop {
        let found = api.get(&path).json();
        if found["status"] == "incomplete" {
            assert_eq!(text_of(&found).trim(), told.trim());
            break;
        }
        assert_eq!(found["status"], "in_progress");
        assert!(left.elapsed() < Duration::from_secs(2), "{found}");
    }
    gate.open();
    assert_eq!(api.bench.model.requests().len(), 1);
}

#[test]
fn the_first_word_leaves_before_the_second_is_there() {
    let api = Api::start();
    let gate = Gate::new();
    for (path, body) in [
        ("/v1/chat/completions", json!({ "stream": true, "messages": [{ "role": "user", "content": "x" }] })),
        ("/v1/responses", json!({ "stream": true, "input": "x" })),
    ] {
        api.bench.model.script(Answer::text("alpha beta").chunks(2).gate(Point::AfterDelta(1), &gate));
        let mut stream = api.stream(path, &body);
        loop {
            let frame = stream.frame().expect("a frame").json();
            let chat = frame["choices"][0]["delta"]["content"].as_str();
            if chat.or(frame["delta"].as_str()).is_some_and(|text| text.contains("alpha")) {
                break;
            }
        }
        assert_eq!(gate.waiting(), 1, "{path}: the rest has not been said yet");
        gate.pass_one();
        assert!(stream.rest().iter().any(|frame| frame.data.contains("beta")), "{path}");
    }
}

#[test]
fn conversations_are_made_talked_in_branched_and_removed() {
    let api = Api::start();
    api.bench.model.respond(obey);
    let made =
        api.post("/api/sessions", &json!({ "id": "s-one", "title": "Garden", "system_prompt": "be kind" }));
    assert_eq!(made.status, 201, "{}", made.body);
    let session = &made.json()["session"];
    assert_eq!(
        (&session["id"], &session["title"], &session["has_system_prompt"]),
        (&json!("s-one"), &json!("Garden"), &json!(true))
    );
    assert!(!made.body.contains("be kind"), "never the prompt itself");
    let again = api.post("/api/sessions", &json!({ "id": "s-one" }));
    assert_eq!((again.status, &again.json()["error"]["code"]), (409, &json!("session_exists")));
    let auto = api.post("/api/sessions", &json!({}));
    assert!(auto.json()["session"]["id"].as_str().is_some_and(|id| id.starts_with("api_")), "{}", auto.body);

    let chat = api.post("/api/sessions/s-one/chat", &json!({ "message": "tool:clock" }));
    assert_eq!(chat.status, 200, "{}", chat.body);
    assert_eq!(chat.json()["object"], "hermes.session.chat.completion");
    assert!(chat.json()["message"]["content"].as_str().is_some_and(|text| text.starts_with("got ")));
    let asked = api.bench.model.requests().pop().expect("a request");
    assert!(asked.body().to_string().contains("be kind"));
    let rows = api.get("/api/sessions/s-one/messages").json();
    let roles: Vec<_> =
        rows["data"].as_array().expect("rows").iter().map(|row| row["role"].clone()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"], "{rows}");
    assert_eq!(rows["data"][1]["tool_calls"][0]["function"]["name"], "clock");

    let forked = api.post("/api/sessions/s-one/fork", &json!({ "id": "s-two" }));
    assert_eq!(
        (forked.status, &forked.json()["session"]["title"]),
        (201, &json!("Garden #2")),
        "{}",
        forked.body
    );
    assert_eq!(api.get("/api/sessions/s-one").json()["session"]["end_reason"], "branched");
    let copied = api.get("/api/sessions/s-two/messages").json();
    assert_eq!(copied["data"].as_array().map(Vec::len), Some(4));
    assert_eq!(api.post("/api/sessions/s-one/fork", &json!({ "id": "s-two" })).status, 409);
    let patched = api.send(&api.ask("PATCH", "/api/sessions/s-two").json(&json!({ "title": "Orchard" })));
    assert_eq!(patched.json()["session"]["title"], "Orchard");
    let listed = api.get("/api/sessions?limit=1&source=api_server").json();
    assert_eq!(
        (listed["data"].as_array().map(Vec::len), &listed["has_more"], &listed["limit"]),
        (Some(1), &json!(true), &json!(1))
    );
    let deleted = api.send(&api.ask("DELETE", "/api/sessions/s-two"));
    assert_eq!(deleted.json(), json!({ "object": "hermes.session.deleted", "id": "s-two", "deleted": true }));
    assert_eq!(api.get("/api/sessions/s-two").status, 404);
    assert_eq!(api.get("/api/sessions/s-two/messages").status, 404);
}

#[test]
fn a_conversation_is_streamed_with_everything_that_happens() {
    let api = Api::start();
    api.bench.model.respond(obey);
    api.post("/api/sessions", &json!({ "id": "s" }));
    let frames = api.stream("/api/sessions/s/chat/stream", &json!({ "message": "tool:clock" })).rest();
    let names: Vec<_> = frames.iter().filter_map(|it| it.event.clone()).collect();
    let mut order = names.clone();
    order.dedup();
    assert_eq!(
        order,
        [
            "run.started",
            "message.started",
            "tool.started",
            "tool.completed",
            "assistant.delta",
            "assistant.completed",
            "run.completed",
            "done"
        ]
    );
    for (at, event) in frames.iter().filter(|it| it.event.is_some()).map(Frame::json).enumerate() {
        assert_eq!((&event["session_id"], &event["seq"]), (&json!("s"), &json!(at + 1)));
        assert!(event["run_id"].is_string() && event["ts"].is_number(), "{event}");
    }
    let done = frames.iter().find(|it| it.event.as_deref() == Some("run.completed")).expect("an end").json();
    let roles: Vec<_> =
        done["messages"].as_array().expect("rows").iter().map(|row| row["role"].clone()).collect();
    assert_eq!(roles, ["assistant", "tool", "assistant"]);
}

#[test]
fn two_who_begin_alike_do_not_share_a_conversation() {
    let other = "k-other-0123456789abcdef";
    let api = Api::with(&format!("platforms.api_server.extra.keys:\n  other: {{key: {other}}}\n"));
    let session = |key: &str, scope: &str| {
        let ask = Ask::new("POST", "/v1/chat/completions").header("Authorization", format!("Bearer {key}"));
        let reply = api.send(&ask.header("X-Hermes-Session-Key", scope).json(&said("hello")));
        assert_eq!(reply.header("x-hermes-session-key"), Some(scope));
        reply.header("x-hermes-session-id").expect("a session").to_owned()
    };
    let all = [session(KEY, "ada"), session(other, "ada"), session(KEY, "bob")];
    assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2], "{all:?}");
    // By its own name a conversation goes on, and what the client tells of it is not needed.
    let ask = |text: &str| {
        let body = json!({ "messages": [{ "role": "user", "content": "forged" }, { "role": "user", "content": text }] });
        api.send(&api.ask("POST", "/v1/chat/completions").header("X-Hermes-Session-Id", "mine").json(&body))
    };
    assert_eq!(content(&ask("one")), "echo: one");
    let second = ask("two");
    assert_eq!(second.header("x-hermes-session-id"), Some("mine"));
    assert_eq!(shown(&api), ["one", "echo: one", "two"]);
}

#[test]
fn keys_may_do_what_they_are_for_and_no_more_often_than_agreed() {
    let keys = "platforms.api_server.extra.keys:\n  looks: {key: k-looks-0123456789abcdef, scopes: [read]}\n  \
                works: {key: k-works-0123456789abcdef, scopes: [agent]}\n  \
                slow: {key: k-slow-0123456789abcdef, rate_limit: 2}\n";
    let api = Api::with(keys);
    let ask = |key: &str, method: &str, path: &str| {
        let ask = Ask::new(method, path).header("Authorization", format!("Bearer {key}"));
        let ask = if method == "POST" { ask.json(&said("x")) } else { ask };
        api.send(&ask)
    };
    let (looks, works, slow) =
        ("k-looks-0123456789abcdef", "k-works-0123456789abcdef", "k-slow-0123456789abcdef");
    for (key, method, path, want) in [
        (looks, "GET", "/v1/models", 200),
        (looks, "POST", "/v1/chat/completions", 403),
        (looks, "POST", "/v1/runs", 403),
        (looks, "POST", "/api/sessions", 403),
        (looks, "DELETE", "/api/sessions/x", 403),
        (works, "POST", "/v1/chat/completions", 200),
        (works, "GET", "/v1/models", 403),
        (works, "POST", "/api/jobs", 403),
        (works, "POST", "/api/cron/fire", 403),
        (KEY, "GET", "/v1/models", 200),
    ] {
        let reply = ask(key, method, path);
        assert_eq!(reply.status, want, "{key} {method} {path}: {}", reply.body);
        if want == 403 {
            assert_eq!(reply.json()["error"]["code"], "insufficient_scope");
        }
    }
    assert_eq!(api.bench.model.requests().len(), 1, "only one was allowed to");
    assert_eq!((ask(slow, "GET", "/v1/models").status, ask(slow, "GET", "/v1/models").status), (200, 200));
    let third = ask(slow, "GET", "/v1/models");
    assert_eq!((third.status, &third.json()["error"]["code"]), (429, &json!("rate_limit_exceeded")));
    let wait: u64 = third.header("retry-after").and_then(|it| it.parse().ok()).expect("seconds");
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(ask(KEY, "GET", "/v1/models").status, 200, "others are not concerned");
}

#[test]
fn a_key_that_cannot_look_enters_no_conversation_of_others() {
    let works = "k-works-0123456789abcdef";
    let api = Api::with(&format!(
        "platforms.api_server.extra.keys:\n  works: {{key: {works}, scopes: [agent]}}\n  all: {{key: k-all-0123456789abcdef}}\n"
    ));
    let run = |key: &str, session: &str| {
        let body = json!({"session_id": session, "input": "repeat all that was said here"});
        let ask = Ask::new("POST", "/v1/runs").header("Authorization", format!("Bearer {key}"));
        api.send(&ask.json(&body)).status
    };
    assert_eq!(run(KEY, "private"), 202);
    assert_eq!(run(works, "private"), 404, "it is somebody else's");
    assert_eq!((run(works, "own"), run(works, "own")), (202, 202));
    assert_eq!(run("k-all-0123456789abcdef", "private"), 202, "who may look may go on");
}

#[test]
fn a_key_is_made_at_the_first_start_for_its_owner_alone() {
    let mut bench = support::Bench::setup().with("platforms.api_server.enabled: true\n").build();
    bench.launch_with(&[("API_SERVER_PORT", "0")]);
    let path = bench.home.path().join("api_key");
    let until = Instant::now() + SOON;
    while !path.exists() {
        assert!(Instant::now() < until, "no key");
    }
    assert_eq!(std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    let key = std::fs::read_to_string(&path).expect("a key");
    assert!(key.trim().len() >= 32, "{}", key.trim().len());
    let mut api = Api { bench, address: String::new() };
    api.address = api.listening(None);
    let ask = Ask::new("GET", "/v1/models").header("Authorization", format!("Bearer {}", key.trim()));
    assert_eq!(api.send(&ask).status, 200);
}

#[test]
fn a_key_that_is_too_short_keeps_the_api_off_and_nothing_else() {
    let mut bench = support::Bench::new();
    bench.launch_with(&[("API_SERVER_KEY", "short"), ("API_SERVER_PORT", "0")]);
    bench.telegram.push_text(7, 7, "hello");
    assert_eq!(bench.wait_messages(7, 1), ["echo: hello"]);
    let log = bench.kill();
    assert!(log.contains("too short"), "{log}");
}

#[test]
fn pages_of_others_may_call_only_if_they_are_listed() {
    let api = Api::start();
    let from = |origin: &'static str, method: &'static str, path: &'static str| {
        api.ask(method, path).header("Origin", origin)
    };
    let fine = api.send(&from("http://ui.example", "GET", "/v1/models"));
    assert_eq!(fine.status, 200);
    assert_eq!(fine.header("access-control-allow-origin"), Some("http://ui.example"));
    assert!(fine.header("vary").is_some_and(|it| it.contains("Origin")));
    let ahead = Ask::new("OPTIONS", "/v1/chat/completions")
        .header("Origin", "http://ui.example")
        .header("Access-Control-Request-Method", "POST");
    let ahead = api.send(&ahead);
    assert_eq!((ahead.status, ahead.body.as_str()), (200, ""));
    let headers = ahead.header("access-control-allow-headers").expect("headers");
    for wanted in ["Authorization", "Content-Type", "Idempotency-Key", "X-Hermes-Session-Id", "Last-Event-ID"]
    {
        assert!(headers.contains(wanted), "{headers}");
    }
    assert!(ahead.header("access-control-allow-methods").is_some_and(|it| it.contains("PATCH")));
    assert_eq!(ahead.header("access-control-max-age"), Some("600"));
    for path in ["/v1/models", "/health", "/v1/chat/completions", "/api/sessions"] {
        for method in ["GET", "OPTIONS"] {
            let reply = api.send(&from("http://evil.example", method, path));
            assert_eq!((reply.status, reply.body.as_str()), (403, ""), "{method} {path}");
            assert!(reply.header("access-control-allow-origin").is_none());
            assert_eq!(reply.header("x-frame-options"), Some("DENY"));
        }
    }
    for (name, want) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("x-xss-protection", "0"),
    ] {
        assert_eq!(fine.header(name), Some(want), "{name}");
    }
    assert!(fine.header("content-security-policy").is_some_and(|it| it.contains("default-src 'none'")));
    assert!(
        fine.header("strict-transport-security").is_some() && fine.header("permissions-policy").is_some()
    );
}

#[test]
fn while_the_gateway_drains_nothing_new_starts_and_what_runs_is_finished() {
    let api = Api::start();
    let gate = api.bench.model.gate(Point::Before);
    let run = api.start_run(&json!({ "input": "before" }));
    assert!(gate.wait(SOON), "the model was never asked");
    let marker = api.bench.home.path().join(".drain_request.json");
    std::fs::write(&marker, r#"{"action":"drain"}"#).expect("a marker");
    api.bench.await_state("draining");
    api.post("/api/sessions", &json!({ "id": "s" }));
    for (path, body) in [
        ("/v1/chat/completions", said("x")),
        ("/v1/responses", json!({ "input": "x" })),
        ("/v1/runs", json!({ "input": "x" })),
        ("/api/sessions/s/chat", json!({ "message": "x" })),
    ] {
        let reply = api.post(path, &body);
        assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{path}");
        assert_eq!(reply.json()["error"]["code"], "gateway_draining", "{path}");
    }
    assert_eq!(api.get("/health").status, 200);
    assert_eq!(api.get("/health/detailed").json()["gateway_state"], "draining");
    assert_eq!(api.get(&format!("/v1/runs/{run}")).json()["status"], "running");
    gate.open();
    api.await_run(&run, "completed");
    std::fs::remove_file(&marker).expect("removed");
    api.bench.await_state("running");
    assert_eq!(content(&api.post("/v1/chat/completions", &said("after"))), "echo: after");
}

#[test]
fn one_gate_for_everything_that_puts_the_agent_to_work() {
    let api = Api::with("gateway:\n  api_server:\n    max_concurrent_runs: 10\n    queue_seconds: 0.1\n");
    let gate = api.bench.model.gate(Point::Before);
    api.post("/api/sessions", &json!({ "id": "s" }));
    let runs: Vec<_> = (0..10).map(|at| api.start_run(&json!({ "input": format!("slow {at}") }))).collect();
    for (path, body) in [
        ("/v1/chat/completions", said("x")),
        ("/v1/responses", json!({ "input": "x" })),
        ("/v1/runs", json!({ "input": "x" })),
        ("/api/sessions/s/chat", json!({ "message": "x" })),
        ("/api/sessions/s/chat/stream", json!({ "message": "x" })),
    ] {
        let reply = api.post(path, &body);
        assert_eq!((reply.status, reply.header("retry-after")), (429, Some("1")), "{path}: {}", reply.body);
    }
    gate.open();
    for run in runs {
        api.await_run(&run, "completed");
    }
}

#[test]
fn what_there_is_can_be_asked_under_every_profile() {
    let api = Api::with("platforms.api_server.extra.model_routes: {fast: small-model}\n");
    for prefix in ["", "/p/main"] {
        let models = api.get(&format!("{prefix}/v1/models")).json();
        let ids: Vec<_> =
            models["data"].as_array().expect("models").iter().map(|it| it["id"].clone()).collect();
        assert_eq!(ids, ["petasos", "fast"]);
        let able = api.get(&format!("{prefix}/v1/capabilities")).json();
        assert_eq!(able["object"], "hermes.api_server.capabilities");
        assert_eq!(able["endpoints"]["run_approval"]["path"], "/v1/runs/{id}/approval");
        assert_eq!(able["features"]["approval_events"], true);
        assert!(api.get(&format!("{prefix}/v1/skills")).json()["data"].is_array());
        let sets = api.get(&format!("{prefix}/v1/toolsets")).json();
        assert!(sets["data"].as_array().is_some_and(|sets| !sets.is_empty()), "{sets}");
        let health = api.get(&format!("{prefix}/health/detailed")).json();
        assert_eq!(
            (&health["readiness"]["status"], &health["gateway_state"]),
            (&json!("ok"), &json!("running"))
        );
    }
    let mut body = said("x");
    body["model"] = json!("fast");
    assert_eq!(api.send(&api.ask("POST", "/p/main/v1/chat/completions").json(&body)).json()["model"], "fast");
    let asked = api.bench.model.requests().pop().expect("a request");
    assert_eq!(asked.body()["model"], "small-model");
    let document = api.get("/openapi.json").json();
    assert_eq!(document["openapi"], "3.1.0");
    assert!(document["paths"].as_object().is_some_and(|paths| paths.len() > 20));
}

#[test]
fn jobs_are_made_changed_fired_and_removed() {
    let api = Api::start();
    let made =
        api.post("/api/jobs", &json!({ "name": "report", "schedule": "every 2h", "prompt": "say hi" }));
    assert_eq!(made.status, 200, "{}", made.body);
    let id = made.json()["job"]["id"].as_str().expect("an id").to_owned();
    assert!(id.len() == 12 && id.bytes().all(|it| it.is_ascii_hexdigit()), "{id}");
    let path = format!("/api/jobs/{id}");
    assert_eq!(api.get("/api/jobs").json()["jobs"].as_array().map(Vec::len), Some(1));
    let changed = api.send(&api.ask("PATCH", &path).json(&json!({ "name": "weather" })));
    assert_eq!(changed.json()["job"]["name"], "weather");
    assert_eq!(api.post(&format!("{path}/pause"), &json!({})).json()["job"]["enabled"], false);
    assert_eq!(api.post(&format!("{path}/resume"), &json!({})).json()["job"]["enabled"], true);
    let fired = api.post("/api/cron/fire", &json!({ "job_id": id }));
    assert_eq!((fired.status, fired.json()), (202, json!({ "status": "accepted", "job_id": id })));
    let ran = api
        .bench
        .model
        .wait_until(SOON, |desk| desk.requests().find(|it| it.last_user.contains("say hi")).map(drop));
    assert!(ran.is_some(), "never run");
    assert_eq!(api.post("/api/cron/fire", &json!({ "job_id": "aaaaaaaaaaaa" })).status, 404);
    assert_eq!(api.send(&api.ask("DELETE", &path)).json(), json!({ "ok": true }));
    assert_eq!(api.get(&path).status, 404);
}

#[test]
fn open_webui_gets_what_it_asks_for() {
    let api = Api::start();
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("vectors/open_webui.json")).expect("a list of cases");
    assert!(cases.len() > 10);
    for case in cases {
        let (name, want) = (&case["name"], &case["want"]);
        let mut ask =
            Ask::new(case["method"].as_str().expect("a method"), case["path"].as_str().expect("a path"));
        for (name, value) in case["headers"].as_object().expect("headers") {
            ask.headers.push((name, value.as_str().expect("a value").to_owned()));
        }
        ask.body = case.get("body").map(Value::to_string);
        let text = if want["stream"] == true {
            let stream = ask.open(&api.address).expect("a stream");
            assert_eq!(stream.status, 200, "{name}");
            let frames = stream.rest();
            assert_eq!(frames.last().map(|it| it.data.as_str()), Some("[DONE]"), "{name}");
            let last = frames[frames.len() - 2].json();
            assert_eq!(last["choices"][0]["finish_reason"], "stop", "{name}");
            assert!(last["usage"]["total_tokens"].is_u64(), "{name}: {last}");
            support::api::joined(&frames)
        } else {
            let reply = api.send(&ask);
            assert_eq!(reply.status, 200, "{name}: {}", reply.body);
            match want.as_object().and_then(|want| want.keys().next()).map(String::as_str) {
                Some("list") => reply.json()["data"][0]["id"].as_str().expect("a model").to_owned(),
                Some("empty") => reply.body,
                _ => content(&reply),
            }
        };
        match (want["text"].as_str(), want["starts"].as_str()) {
            (Some(want), _) => assert_eq!(text, want, "{name}"),
            (None, Some(want)) => assert!(text.starts_with(want), "{name}: {text}"),
            (None, None) if want["list"] == true => assert_eq!(text, "petasos", "{name}"),
            (None, None) => assert_eq!(text, "", "{name}"),
        }
    }
    let told = api.bench.model.requests();
    let rewritten = told.iter().rfind(|it| it.last_user == "go on").expect("asked").body().to_string();
    assert!(rewritten.contains("something else altogether"), "{rewritten}");
    let pictured = told.iter().find(|it| it.body().to_string().contains("data:image/png;base64,iVBOR"));
    assert!(pictured.is_some(), "the model never saw the picture");
}

const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

#[test]
fn pictures_come_in_and_outlive_a_crash() {
    let mut api = Api::start();
    let gate = api.bench.model.gate(Point::Before);
    let part = json!({ "type": "input_image", "image_url": format!("data:image/png;base64,{PNG}") });
    let input =
        json!([{ "role": "user", "content": [{ "type": "input_text", "text": "what is this" }, part] }]);
    let run = api.start_run(&json!({ "input": input }));
    assert!(gate.wait(SOON), "the model was never asked");
    api.crash();
    gate.open();
    api.await_run(&run, "completed");
    let asked = api.bench.model.requests().pop().expect("a request").body().to_string();
    assert!(asked.contains(PNG), "the model saw no picture");
    // Nothing but pictures, and what calls itself one is one.
    for (part, code) in [
        (json!({ "type": "image_url", "image_url": { "url": "file:///etc/passwd" } }), "invalid_image_url"),
        (
            json!({ "type": "image_url", "image_url": { "url": "data:text/html;base64,PGI+" } }),
            "invalid_image_url",
        ),
        (json!({ "type": "input_file", "file_id": "x" }), "unsupported_content_type"),
    ] {
        let reply =
            api.post("/v1/chat/completions", &json!({ "messages": [{ "role": "user", "content": [part] }] }));
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (400, &json!(code)));
        assert_eq!(reply.json()["error"]["param"], "messages[0].content");
    }
    // An address within our own network is not asked, and the model hears that there is no picture.
    let near = format!("{}/x.png", api.bench.model.url());
    let part = json!({ "type": "image_url", "image_url": { "url": near } });
    let body =
        json!({ "messages": [{ "role": "user", "content": [{ "type": "text", "text": "look" }, part] }] });
    let reply = api.post("/v1/chat/completions", &body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert!(content(&reply).contains("could not be read"), "{}", reply.body);
}

#[test]
fn pictures_that_an_answer_names_are_in_it_if_they_may_leave() {
    use base64::Engine;
    let api = Api::start();
    let picture = api.bench.home.path().join("workspace/cat.png");
    let bytes = base64::engine::general_purpose::STANDARD.decode(PNG).expect("a picture");
    std::fs::create_dir_all(picture.parent().expect("a folder")).expect("made");
    std::fs::write(&picture, bytes).expect("written");
    let key = api.bench.home.path().join("config.yaml");
    let text = format!("Here is a cat.\nMEDIA:{}\nMEDIA:{}", picture.display(), key.display());
    api.bench.model.respond(move |_| Answer::text(text.clone()));
    let shown = format!("![image](data:image/png;base64,{PNG})");
    let fine = |text: &str| {
        assert!(text.contains("Here is a cat.") && text.contains(&shown), "{text}");
        assert!(text.contains("config.yaml was not sent") && !text.contains("sk-test"), "{text}");
    };
    fine(&content(&api.post("/v1/chat/completions", &said("a cat"))));
    let response = api.post("/v1/responses", &json!({ "input": "a cat" })).json();
    fine(&text_of(&response));
    assert_eq!(
        api.get(&format!("/v1/responses/{}", response["id"].as_str().expect("an id"))).json(),
        response
    );
    let run = api.start_run(&json!({ "input": "a cat" }));
    fine(api.await_run(&run, "completed")["output"].as_str().expect("an output"));
    let mut body = said("a cat");
    body["stream"] = json!(true);
    fine(&support::api::joined(&api.stream("/v1/chat/completions", &body).rest()));
}
