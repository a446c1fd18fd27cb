//! Chat completions in OpenAI's format, and runs that outlive their clients.

use std::time::Duration;

use crate::support::api::{Api, KEY, chat_body, content, streamed_text};
use crate::support::http::{HttpRequest, SseFrame};
use crate::support::{SOON, eventually};
use petasos_fakes::model::Answer;
use serde_json::json;

#[test]
fn chat_completion_has_openai_shape() {
    let api = Api::start();
    api.program.model.script(Answer::text("Hi there").usage(100, 10));
    let reply = api.post(
        "/v1/chat/completions",
        &json!({ "model": "x", "messages": [{ "role": "system", "content": "be nice" },
                                            { "role": "user", "content": "hello" }] }),
    );
    assert_eq!(reply.status, 200, "{}", reply.body);
    let body = reply.json();
    assert_eq!(content(&reply), "Hi there");
    assert_eq!(body["object"], "chat.completion");
    assert_eq!(body["model"], "x");
    assert_eq!(body["choices"][0]["finish_reason"], "stop");
    assert_eq!(body["usage"], json!({ "prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110 }));
    let id = body["id"].as_str().expect("an id");
    assert!(id.starts_with("chatcmpl-") && id.len() == "chatcmpl-".len() + 29, "{id}");
    assert!(reply.header("x-hermes-session-id").is_some_and(|id| id.starts_with("api-")));
    let asked = api.program.model.requests().pop().expect("a request");
    assert!(asked.body().to_string().contains("be nice"), "{}", asked.body());
}

#[test]
fn matching_history_continues_the_session() {
    let api = Api::start();
    let first = api.post("/v1/chat/completions", &chat_body("one"));
    let history = json!([{ "role": "user", "content": "one" }, { "role": "assistant", "content": content(&first) },
                      { "role": "user", "content": "two" }]);
    let second = api.post("/v1/chat/completions", &json!({ "messages": history }));
    assert_eq!(content(&second), "echo: two");
    assert_eq!(first.header("x-hermes-session-id"), second.header("x-hermes-session-id"));
    // A different history is another session.
    let history = json!([{ "role": "user", "content": "one" }, { "role": "assistant", "content": "something else" },
                      { "role": "user", "content": "two" }]);
    let third = api.post("/v1/chat/completions", &json!({ "messages": history }));
    assert_eq!(content(&third), "echo: two");
    assert_ne!(first.header("x-hermes-session-id"), third.header("x-hermes-session-id"));
    let asked = api.program.model.requests().pop().expect("a request").body().to_string();
    assert!(asked.contains("something else") && !asked.contains("echo: one"), "{asked}");
}

#[test]
fn stream_shows_tools_and_text_and_ends_with_usage() {
    let api = Api::start();
    api.program.model.script_many([
        Answer::tool("clock", json!({})),
        Answer::text("It is noon, more or less.").chunks(5).usage(200, 20),
    ]);
    let mut body = chat_body("what time is it");
    body["stream"] = json!(true);
    let frames = api.stream("/v1/chat/completions", &body).rest();
    assert_eq!(frames[0].json()["choices"][0]["delta"]["role"], "assistant");
    let tools: Vec<_> = frames
        .iter()
        .filter(|it| it.event.as_deref() == Some("hermes.tool.progress"))
        .map(SseFrame::json)
        .collect();
    assert_eq!(tools.len(), 2, "{frames:?}");
    assert_eq!((&tools[0]["status"], &tools[1]["status"]), (&json!("running"), &json!("completed")));
    assert_eq!(tools[0]["toolCallId"], tools[1]["toolCallId"]);
    assert_eq!(streamed_text(&frames), "It is noon, more or less.");
    let last = frames[frames.len() - 2].json();
    assert_eq!(last["choices"][0]["finish_reason"], "stop");
    assert!(last["usage"]["total_tokens"].as_u64().is_some_and(|total| total >= 220), "{last}");
    assert_eq!(frames[frames.len() - 1].data, "[DONE]");
}

#[test]
fn model_failure_is_an_api_error() {
    let api = Api::start();
    for _ in 0..2 {
        api.program.model.script(Answer::status(401, "bad key"));
    }
    let reply = api.post("/v1/chat/completions", &chat_body("hello"));
    assert_eq!(reply.status, 502, "{}", reply.body);
    assert_eq!(reply.json()["error"]["code"], "agent_error");
    assert_eq!(reply.header("x-should-retry"), Some("false"));
    assert_eq!(reply.header("x-hermes-completed"), Some("false"));
    let mut body = chat_body("hello");
    body["stream"] = json!(true);
    let frames = api.stream("/v1/chat/completions", &body).rest();
    let last = frames[frames.len() - 2].json();
    assert_eq!(last["choices"][0]["finish_reason"], "error");
    assert!(last["error"]["message"].is_string(), "{last}");
}

#[test]
fn requires_api_key_except_for_health() {
    let api = Api::start();
    for path in ["/health", "/v1/health"] {
        assert_eq!(api.send(&HttpRequest::new("GET", path)).json()["status"], "ok");
    }
    for header in ["", "Bearer wrong", &format!("Bearer {KEY}x"), &format!("Basic {KEY}")] {
        let request = HttpRequest::new("POST", "/v1/chat/completions")
            .header("Authorization", header)
            .json(&chat_body("x"));
        let reply = api.send(&request);
        let error = json!({ "error": { "message": "Invalid API key", "type": "invalid_request_error",
                                       "param": null, "code": "invalid_api_key" } });
        assert_eq!((reply.status, reply.json()), (401, error), "{header:?}");
    }
    assert_eq!(api.send(&HttpRequest::new("GET", "/v1/nowhere")).status, 401);
    assert_eq!(api.get("/v1/nowhere").status, 404);
    assert_eq!(api.program.model.requests().len(), 0);
}

#[test]
fn idempotency_key_gives_one_run_across_restart() {
    let mut api = Api::start();
    let request = |text: &str| {
        api.request("POST", "/v1/chat/completions").header("Idempotency-Key", "k1").json(&chat_body(text))
    };
    let (one, two) = std::thread::scope(|scope| {
        let twice = [(); 2].map(|()| scope.spawn(|| api.send(&request("hello"))));
        let [one, two] = twice.map(|it| it.join().expect("an answer"));
        (one, two)
    });
    assert_eq!((one.status, &one.body), (200, &two.body));
    let other = api.send(&request("something else"));
    assert_eq!((other.status, other.json()["error"]["code"].clone()), (409, json!("idempotency_key_reused")));
    api.program.kill();
    api.launch();
    let again =
        api.request("POST", "/v1/chat/completions").header("Idempotency-Key", "k1").json(&chat_body("hello"));
    assert_eq!(api.send(&again).body, one.body);
    assert_eq!(api.program.model.requests().len(), 1);
}

#[test]
fn run_limit_answers_429_with_retry_after() {
    let api =
        Api::with_config("gateway:\n  api_server:\n    max_concurrent_runs: 2\n    queue_seconds: 0.1\n");
    let gate = petasos_fakes::Gate::new();
    api.program
        .model
        .script_many((0..2).map(|_| Answer::text("late").gate(petasos_fakes::model::Point::Before, &gate)));
    std::thread::scope(|scope| {
        let busy = ["a", "b"].map(|text| scope.spawn(|| api.post("/v1/chat/completions", &chat_body(text))));
        assert!(api.program.model.wait_requests(2, SOON));
        let reply = api.post("/v1/chat/completions", &chat_body("c"));
        assert_eq!(reply.status, 429, "{}", reply.body);
        assert_eq!(reply.header("retry-after"), Some("1"));
        assert_eq!(
            reply.json()["error"],
            json!({ "message": "Too many concurrent runs (max 2)", "type": "rate_limit_error", "param": null,
                    "code": "rate_limit_exceeded" })
        );
        gate.open();
        for busy in busy {
            assert_eq!(content(&busy.join().expect("an answer")), "late");
        }
    });
    assert_eq!(api.post("/v1/chat/completions", &chat_body("d")).status, 200);
}

#[test]
fn disconnect_cancels_run_unless_detached() {
    let api = Api::start();
    let body = json!({ "stream": true, "messages": [{ "role": "user", "content": "count" }] });
    let slow = || {
        Answer::text("one two three four five six seven eight").chunks(40).every(Duration::from_millis(50))
    };
    for (detach, want) in [(false, "cancelled"), (true, "completed")] {
        api.program.model.script(slow());
        let detached = if detach { "true" } else { "false" };
        let request =
            api.request("POST", "/v1/chat/completions").header("X-Petasos-Detach", detached).json(&body);
        let mut stream = request.open(&api.address).expect("a stream");
        let run =
            stream.headers.iter().find(|(name, _)| name == "x-petasos-run-id").expect("a name").1.clone();
        let has_text = |frame: &SseFrame| {
            !frame.json()["choices"][0]["delta"]["content"].as_str().unwrap_or("").is_empty()
        };
        while !has_text(&stream.next_frame().expect("a frame")) {}
        drop(stream);
        let path = format!("/v1/runs/{run}");
        eventually(want, || {
            let status = api.get(&path).json()["status"].clone();
            assert!(status == want || status == "running" || status == "stopping", "{status}");
            status == want
        });
    }
}
