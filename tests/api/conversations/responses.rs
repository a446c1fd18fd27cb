//! Responses: stored, continued, streamed, and abandoned by their clients.

use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Point};
use serde_json::{Value, json};

use super::{expect_id, last_model_input, output_text};
use crate::support::api::{Api, scripted_answer};
use crate::support::eventually;
use crate::support::http::SseFrame;

#[test]
fn response_is_stored_continued_and_deleted() {
    let mut api = Api::start();
    let first =
        api.post("/v1/responses", &json!({ "input": "one", "instructions": "be brief", "model": "x" }));
    let id = expect_id(&first);
    assert!(id.starts_with("resp_") && id.len() == "resp_".len() + 28, "{id}");
    let body = first.json();
    assert_eq!(
        (&body["object"], &body["status"], &body["model"]),
        (&json!("response"), &json!("completed"), &json!("x"))
    );
    assert_eq!(output_text(&body), "echo: one");
    api.kill_and_restart();
    let kept = api.get(&format!("/v1/responses/{id}"));
    assert_eq!((kept.status, kept.json()), (200, body));
    let second = api.post("/v1/responses", &json!({ "input": "two", "previous_response_id": id }));
    assert_eq!(output_text(&second.json()), "echo: two");
    assert_eq!(last_model_input(&api), ["one", "echo: one", "two"]);
    assert_eq!(first.header("x-hermes-session-id"), second.header("x-hermes-session-id"));
    let asked = api.program.model.requests().pop().expect("a request");
    assert!(asked.body().to_string().contains("be brief"), "instructions carry over");
    // Continuing the first response again starts another branch.
    let other = api.post("/v1/responses", &json!({ "input": "three", "previous_response_id": id }));
    assert_eq!(last_model_input(&api), ["one", "echo: one", "three"]);
    assert_ne!(first.header("x-hermes-session-id"), other.header("x-hermes-session-id"));

    let path = format!("/v1/responses/{id}");
    let gone = api.send(&api.request("DELETE", &path));
    assert_eq!(gone.json(), json!({ "id": id, "object": "response", "deleted": true }));
    assert_eq!(api.get(&path).status, 404);
    assert_eq!(api.send(&api.request("DELETE", &path)).status, 404);
    let after = api.post("/v1/responses", &json!({ "input": "x", "previous_response_id": id }));
    assert_eq!(after.status, 404);
    // A response with `store: false` is not retrievable.
    let unkept = expect_id(&api.post("/v1/responses", &json!({ "input": "x", "store": false })));
    assert_eq!(api.get(&format!("/v1/responses/{unkept}")).status, 404);
}

#[test]
fn response_of_deleted_session_is_not_found() {
    let api = Api::start();
    let first = api.post("/v1/responses", &json!({ "input": "one" }));
    let session = first.header("x-hermes-session-id").expect("a session").to_owned();
    let after = || {
        let body = json!({ "input": "two", "previous_response_id": expect_id(&first) });
        (api.post("/v1/responses", &body).status, api.post("/v1/runs", &body).status)
    };
    assert_eq!(api.send(&api.request("DELETE", &format!("/api/sessions/{session}"))).status, 200);
    assert_eq!(after(), (404, 404));
    let run = api.start_run(&json!({ "input": "three", "session_id": session }));
    api.wait_run(&run, "completed");
    assert_eq!(after(), (404, 404), "another conversation with the same id");
}

#[test]
fn named_conversation_continues_after_restart() {
    let mut api = Api::start();
    let respond = |api: &Api, text: &str| {
        let reply = api.post("/v1/responses", &json!({ "input": text, "conversation": "garden" }));
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.header("x-hermes-session-id").expect("a session").to_owned()
    };
    let first = respond(&api, "one");
    api.program.terminate();
    api.launch();
    assert_eq!(respond(&api, "two"), first);
    assert_eq!(last_model_input(&api), ["one", "echo: one", "two"]);
    let history = json!([{ "role": "user", "content": "a" }, { "role": "assistant", "content": "b" }]);
    api.post("/v1/responses", &json!({ "input": "c", "conversation_history": history }));
    assert_eq!(last_model_input(&api), ["a", "b", "c"]);
    let items = json!([{ "role": "user", "content": [{ "type": "input_text", "text": "first" }] },
                       { "role": "assistant", "content": [{ "type": "output_text", "text": "yes" }] },
                       { "role": "user", "content": "and now" }]);
    assert_eq!(output_text(&api.post("/v1/responses", &json!({ "input": items })).json()), "echo: and now");
    assert_eq!(last_model_input(&api), ["first", "yes", "and now"]);
}

#[test]
fn response_streams_events_in_order() {
    let api = Api::start();
    api.program.model.respond(scripted_answer);
    let body = json!({ "input": "tool:clock", "stream": true });
    let frames = api.stream("/v1/responses", &body).rest();
    let events: Vec<Value> = frames.iter().map(SseFrame::json).collect();
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
    assert_eq!(deltas, output_text(last));
}

#[test]
fn abandoned_response_becomes_incomplete_without_retry() {
    let api = Api::start();
    let gate = Gate::new();
    api.program.model.script(Answer::text("one two three four").chunks(4).gate(Point::AfterDelta(2), &gate));
    let mut stream = api.stream("/v1/responses", &json!({ "input": "count", "stream": true }));
    let mut id = None;
    let mut text = String::new();
    while text.split_whitespace().count() < 3 {
        let event = stream.next_frame().expect("an event").json();
        text.push_str(event["delta"].as_str().unwrap_or_default());
        id = id.or_else(|| event["response"]["id"].as_str().map(str::to_owned));
    }
    drop(stream);
    let path = format!("/v1/responses/{}", id.expect("an id"));
    let found = eventually("the response is incomplete", || {
        let found = api.get(&path).json();
        assert!(found["status"] == "incomplete" || found["status"] == "in_progress", "{found}");
        (found["status"] == "incomplete").then_some(found)
    });
    assert_eq!(output_text(&found).trim(), text.trim());
    gate.open();
    assert_eq!(api.program.model.requests().len(), 1);
}

// The words end in punctuation: a last letter may be held back, because a secret may start with it.
#[test]
fn streams_first_word_before_second_exists() {
    let api = Api::start();
    let gate = Gate::new();
    for (path, body) in [
        ("/v1/chat/completions", json!({ "stream": true, "messages": [{ "role": "user", "content": "x" }] })),
        ("/v1/responses", json!({ "stream": true, "input": "x" })),
    ] {
        api.program.model.script(Answer::text("alpha! beta!").chunks(2).gate(Point::AfterDelta(1), &gate));
        let mut stream = api.stream(path, &body);
        loop {
            let frame = stream.next_frame().expect("a frame").json();
            let chat = frame["choices"][0]["delta"]["content"].as_str();
            if chat.or(frame["delta"].as_str()).is_some_and(|text| text.contains("alpha!")) {
                break;
            }
        }
        assert_eq!(gate.waiting(), 1, "{path}: the rest was sent early");
        gate.pass_one();
        assert!(stream.rest().iter().any(|frame| frame.data.contains("beta!")), "{path}");
    }
}
