//! Responses: kept, gone on from, streamed, and left by their clients.

use std::time::Instant;

use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Point};
use serde_json::{Value, json};

use super::{id_of, shown, text_of};
use crate::support::SOON;
use crate::support::api::{Api, obey};
use crate::support::http::Frame;

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
fn a_response_whose_conversation_is_gone_is_not_found() {
    let api = Api::start();
    let first = api.post("/v1/responses", &json!({ "input": "one" }));
    let session = first.header("x-hermes-session-id").expect("a session").to_owned();
    let after = || {
        let body = json!({ "input": "two", "previous_response_id": id_of(&first) });
        (api.post("/v1/responses", &body).status, api.post("/v1/runs", &body).status)
    };
    assert_eq!(api.send(&api.ask("DELETE", &format!("/api/sessions/{session}"))).status, 200);
    assert_eq!(after(), (404, 404));
    let run = api.start_run(&json!({ "input": "three", "session_id": session }));
    api.await_run(&run, "completed");
    assert_eq!(after(), (404, 404), "another conversation with the same id");
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
    while told.split_whitespace().count() < 3 {
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
        assert!(left.elapsed() < SOON, "{found}");
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
