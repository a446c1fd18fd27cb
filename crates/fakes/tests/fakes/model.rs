//! The three protocols, streamed and whole.

use petasos_fakes::Model;
use petasos_fakes::model::{Answer, ModelApi, Point, RequestOutcome};
use serde_json::{Value, json};

use crate::client::{HttpConnection, HttpResponse, TIMEOUT, post};

pub(crate) const OPENAI: &str = "/v1/chat/completions";
pub(crate) const ANTHROPIC: &str = "/v1/messages";
pub(crate) const OLLAMA: &str = "/api/chat";

pub(crate) fn body(stream: bool) -> Value {
    json!({
        "model": "m", "stream": stream, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": "hé"}],
    })
}

pub(crate) fn request(fake: &Model, path: &str, stream: bool) -> std::io::Result<HttpResponse> {
    post(fake.port(), path, "authorization: Bearer key\r\n", body(stream).to_string().as_bytes())
}

/// The JSON objects of a stream, in order.
pub(crate) fn objects(reply: &HttpResponse) -> Vec<Value> {
    let text = reply.text();
    let lines = text.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
    lines.filter(|line| line.starts_with('{')).map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// All values at a path, joined when they are strings.
pub(crate) fn joined(objects: &[Value], pointer: &str) -> String {
    objects.iter().filter_map(|object| object.pointer(pointer)?.as_str()).collect()
}

#[test]
fn echoes_in_every_protocol_without_a_script() {
    let fake = Model::start().unwrap();
    for (path, whole, delta) in [
        (OPENAI, "/choices/0/message/content", "/choices/0/delta/content"),
        (ANTHROPIC, "/content/0/text", "/delta/text"),
        (OLLAMA, "/message/content", "/message/content"),
    ] {
        assert_eq!(request(&fake, path, false).unwrap().json().pointer(whole).unwrap(), "echo: hé", "{path}");
        let streamed = request(&fake, path, true).unwrap();
        assert_eq!(joined(&objects(&streamed), delta), "echo: hé", "{path}");
    }
    let requests = fake.requests();
    assert_eq!(requests.len(), 6);
    assert_eq!(requests[2].api, ModelApi::Anthropic);
    assert_eq!((requests[5].number, requests[5].stream, requests[5].model.as_str()), (5, true, "m"));
    assert_eq!((requests[0].key(), requests[0].messages().len()), (Some("key"), 1));
    assert!(requests.iter().all(|request| request.outcome() == RequestOutcome::Answered));
}

#[test]
fn openai_streams_tool_calls_usage_and_done() {
    let fake = Model::start().unwrap();
    fake.script(
        Answer::text("abc").chunks(3).and_tool("f", json!({"a": 1})).and_tool("g", json!({})).usage(10, 5),
    );
    let reply = request(&fake, OPENAI, true).unwrap();
    assert!(reply.text().ends_with("data: [DONE]\n\n"));
    let got = objects(&reply);
    assert_eq!(got.iter().filter(|chunk| chunk.pointer("/choices/0/delta/content").is_some()).count(), 4);
    assert_eq!(joined(&got, "/choices/0/delta/tool_calls/0/function/name"), "fg");
    assert_eq!(joined(&got, "/choices/0/delta/tool_calls/0/function/arguments"), "{\"a\":1}{}");
    assert_eq!(joined(&got, "/choices/0/finish_reason"), "tool_calls");
    assert_eq!(got.last().unwrap()["usage"]["total_tokens"], 15);
    fake.script(Answer::tool("f", json!({"a": 1})));
    let whole = request(&fake, OPENAI, false).unwrap().json();
    assert_eq!(whole.pointer("/choices/0/message/tool_calls/0/function/arguments").unwrap(), "{\"a\":1}");
    assert!(whole.pointer("/choices/0/message/content").unwrap().is_null());
}

#[test]
fn anthropic_streams_events_in_the_real_order() {
    let fake = Model::start().unwrap();
    fake.script(Answer::text("ab").chunks(2).and_tool("f", json!({"a": 1})).usage(10, 5));
    let reply = request(&fake, ANTHROPIC, true).unwrap();
    let text = reply.text();
    let events: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    let want = "message_start content_block_start ping content_block_delta content_block_delta \
                content_block_stop content_block_start content_block_delta content_block_delta \
                content_block_delta content_block_stop message_delta message_stop";
    assert_eq!(events.join(" "), want);
    let got = objects(&reply);
    assert_eq!(joined(&got, "/delta/partial_json"), "{\"a\":1}");
    assert_eq!(joined(&got, "/delta/stop_reason"), "tool_use");
    assert_eq!(got[0]["message"]["usage"]["input_tokens"], 10);
    assert_eq!(got[got.len() - 2]["usage"]["output_tokens"], 5);
}

#[test]
fn ollama_streams_lines_with_whole_tool_calls() {
    let fake = Model::start().unwrap();
    fake.script(Answer::text("ab").chunks(2).and_tool("f", json!({"a": 1})).finish("length"));
    let reply = request(&fake, OLLAMA, true).unwrap();
    assert_eq!(reply.header("content-type"), Some("application/x-ndjson"));
    let got = objects(&reply);
    assert_eq!(got[2].pointer("/message/tool_calls/0/function/arguments/a").unwrap(), 1);
    assert_eq!((&got[3]["done"], &got[3]["done_reason"]), (&json!(true), &json!("length")));
}

#[test]
fn uses_script_before_responder() {
    let fake = Model::start().unwrap();
    fake.respond(|request| Answer::text(format!("re: {}", request.last_user)));
    fake.script_many([Answer::text("one"), Answer::text("two")]);
    for want in ["one", "two", "re: hé", "re: hé"] {
        let got = request(&fake, OPENAI, false).unwrap().json();
        assert_eq!(got.pointer("/choices/0/message/content").unwrap(), want);
    }
}

#[test]
fn checks_keys_and_counts_model_lists() {
    let fake = Model::start().unwrap();
    fake.set_models(["a", "b"]);
    assert_eq!(post(fake.port(), "/v1/models", "", b"").unwrap().json()["data"][1]["id"], "b");
    assert_eq!(post(fake.port(), "/api/tags", "", b"").unwrap().json()["models"][0]["name"], "a");
    assert_eq!((fake.listings(), fake.requests().len()), (2, 0));
    fake.expect_key("other");
    fake.script(Answer::text("kept"));
    assert_eq!(request(&fake, OPENAI, false).unwrap().status, 401);
    fake.expect_key("key");
    assert!(request(&fake, OPENAI, false).unwrap().text().contains("kept"));
    assert_eq!(post(fake.port(), OPENAI, "", b"{").unwrap().status, 400);
    assert_eq!(post(fake.port(), "/v1/other", "", b"{}").unwrap().status, 404);
}

#[test]
fn gate_holds_answer_before_or_within_it() {
    let fake = Model::start().unwrap();
    for point in [Point::Before, Point::AfterDelta(1)] {
        let gate = fake.gate(point);
        fake.script(Answer::text("ab").chunks(2));
        let port = fake.port();
        let held = std::thread::spawn(move || post(port, OPENAI, "", body(true).to_string().as_bytes()));
        assert!(gate.wait(TIMEOUT), "{point:?}");
        assert!(!held.is_finished());
        gate.open();
        assert_eq!(joined(&objects(&held.join().unwrap().unwrap()), "/choices/0/delta/content"), "ab");
    }
}

#[test]
fn records_caller_that_hangs_up_mid_stream() {
    let fake = Model::start().unwrap();
    let gate = fake.gate(Point::AfterDelta(1));
    let mut caller = HttpConnection::open(fake.port()).unwrap();
    caller.send(OPENAI, "", body(true).to_string().as_bytes()).unwrap();
    assert!(gate.wait(TIMEOUT));
    drop(caller);
    assert!(gate.wait_gone(1, TIMEOUT));
    let gone = |state: &petasos_fakes::model::State| {
        state.requests().find(|request| request.outcome() == RequestOutcome::Abandoned).map(|_| ())
    };
    assert!(fake.wait_until(TIMEOUT, gone).is_some());
}
