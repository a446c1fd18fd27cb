//! Named sessions, and a client with many sessions.

use serde_json::{Value, json};

use super::last_model_input;
use crate::support::api::{Api, KEY, chat_body, content, scripted_answer, streamed_text};
use crate::support::http::{HttpRequest, SseFrame};

#[test]
fn sessions_are_created_used_forked_and_deleted() {
    let api = Api::start();
    api.program.model.respond(scripted_answer);
    let made =
        api.post("/api/sessions", &json!({ "id": "s-one", "title": "Garden", "system_prompt": "be kind" }));
    assert_eq!(made.status, 201, "{}", made.body);
    let session = &made.json()["session"];
    assert_eq!(
        (&session["id"], &session["title"], &session["has_system_prompt"]),
        (&json!("s-one"), &json!("Garden"), &json!(true))
    );
    assert!(!made.body.contains("be kind"), "the system prompt is returned");
    let again = api.post("/api/sessions", &json!({ "id": "s-one" }));
    assert_eq!((again.status, &again.json()["error"]["code"]), (409, &json!("session_exists")));
    let auto = api.post("/api/sessions", &json!({}));
    assert!(auto.json()["session"]["id"].as_str().is_some_and(|id| id.starts_with("api_")), "{}", auto.body);

    let chat = api.post("/api/sessions/s-one/chat", &json!({ "message": "tool:clock" }));
    assert_eq!(chat.status, 200, "{}", chat.body);
    assert_eq!(chat.json()["object"], "hermes.session.chat.completion");
    assert!(chat.json()["message"]["content"].as_str().is_some_and(|text| text.starts_with("got ")));
    let asked = api.program.model.requests().pop().expect("a request");
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
    let patched = api.send(&api.request("PATCH", "/api/sessions/s-two").json(&json!({ "title": "Orchard" })));
    assert_eq!(patched.json()["session"]["title"], "Orchard");
    let listed = api.get("/api/sessions?limit=1&source=api_server").json();
    assert_eq!(
        (listed["data"].as_array().map(Vec::len), &listed["has_more"], &listed["limit"]),
        (Some(1), &json!(true), &json!(1))
    );
    let deleted = api.send(&api.request("DELETE", "/api/sessions/s-two"));
    assert_eq!(deleted.json(), json!({ "object": "hermes.session.deleted", "id": "s-two", "deleted": true }));
    assert_eq!(api.get("/api/sessions/s-two").status, 404);
    assert_eq!(api.get("/api/sessions/s-two/messages").status, 404);
}

#[test]
fn session_chat_streams_all_events() {
    let api = Api::start();
    api.program.model.respond(scripted_answer);
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
    for (at, event) in frames.iter().filter(|it| it.event.is_some()).map(SseFrame::json).enumerate() {
        assert_eq!((&event["session_id"], &event["seq"]), (&json!("s"), &json!(at + 1)));
        assert!(event["run_id"].is_string() && event["ts"].is_number(), "{event}");
    }
    let done = frames.iter().find(|it| it.event.as_deref() == Some("run.completed")).expect("an end").json();
    let roles: Vec<_> =
        done["messages"].as_array().expect("rows").iter().map(|row| row["role"].clone()).collect();
    assert_eq!(roles, ["assistant", "tool", "assistant"]);
}

#[test]
fn equal_first_messages_do_not_share_a_session() {
    let other = "k-other-0123456789abcdef";
    let api = Api::with_config(&format!("platforms.api_server.extra.keys:\n  other: {{key: {other}}}\n"));
    let session = |key: &str, scope: &str| {
        let request =
            HttpRequest::new("POST", "/v1/chat/completions").header("Authorization", format!("Bearer {key}"));
        let reply = api.send(&request.header("X-Hermes-Session-Key", scope).json(&chat_body("hello")));
        assert_eq!(reply.header("x-hermes-session-key"), Some(scope));
        reply.header("x-hermes-session-id").expect("a session").to_owned()
    };
    let all = [session(KEY, "ada"), session(other, "ada"), session(KEY, "bob")];
    assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2], "{all:?}");
    // A named session continues; the history in the request is ignored.
    let send = |text: &str| {
        let body = json!({ "messages": [{ "role": "user", "content": "forged" }, { "role": "user", "content": text }] });
        api.send(
            &api.request("POST", "/v1/chat/completions").header("X-Hermes-Session-Id", "mine").json(&body),
        )
    };
    assert_eq!(content(&send("one")), "echo: one");
    let second = send("two");
    assert_eq!(second.header("x-hermes-session-id"), Some("mine"));
    assert_eq!(last_model_input(&api), ["one", "echo: one", "two"]);
}

#[test]
fn serves_open_webui_requests() {
    let api = Api::start();
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("../../vectors/open_webui.json")).expect("a list of cases");
    assert!(cases.len() > 10);
    for case in cases {
        let name = &case["name"];
        let want = &case["want"];
        let mut request = HttpRequest::new(
            case["method"].as_str().expect("a method"),
            case["path"].as_str().expect("a path"),
        );
        for (name, value) in case["headers"].as_object().expect("headers") {
            request.headers.push((name, value.as_str().expect("a value").to_owned()));
        }
        request.body = case.get("body").map(Value::to_string);
        let text = if want["stream"] == true {
            let stream = request.open(&api.address).expect("a stream");
            assert_eq!(stream.status, 200, "{name}");
            let frames = stream.rest();
            assert_eq!(frames.last().map(|it| it.data.as_str()), Some("[DONE]"), "{name}");
            let last = frames[frames.len() - 2].json();
            assert_eq!(last["choices"][0]["finish_reason"], "stop", "{name}");
            assert!(last["usage"]["total_tokens"].is_u64(), "{name}: {last}");
            streamed_text(&frames)
        } else {
            let reply = api.send(&request);
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
    let requests = api.program.model.requests();
    let rewritten = requests.iter().rfind(|it| it.last_user == "go on").expect("asked").body().to_string();
    assert!(rewritten.contains("something else altogether"), "{rewritten}");
    let pictured = requests.iter().find(|it| it.body().to_string().contains("data:image/png;base64,iVBOR"));
    assert!(pictured.is_some(), "the model got no image");
}
