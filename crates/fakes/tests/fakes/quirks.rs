//! Faults of the model, and quirks of servers that are almost compatible.

use std::time::Duration;

use petasos_fakes::Model;
use petasos_fakes::model::{Answer, Fault, Point, Quirk, RequestOutcome};
use serde_json::json;

use crate::client::TIMEOUT;
use crate::model::{ANTHROPIC, OLLAMA, OPENAI, joined, objects, request};

#[test]
fn errors_have_status_body_and_retry_after() {
    let fake = Model::start().unwrap();
    for (answer, status, retry, text) in [
        (Answer::too_many(4), 429, Some("4"), "rate_limit_error"),
        (Answer::status(503, "<html>busy</html>"), 503, None, "<html>busy</html>"),
        (Answer::status(401, ""), 401, None, "authentication_error"),
    ] {
        fake.script(answer);
        let reply = request(&fake, OPENAI, true).unwrap();
        assert_eq!((reply.status, reply.header("retry-after")), (status, retry));
        assert!(reply.text().contains(text), "{}", reply.text());
    }
    fake.script(Answer::status(529, ""));
    assert!(request(&fake, ANTHROPIC, true).unwrap().text().contains("overloaded_error"));
}

#[test]
fn resets_or_cuts_connections_at_the_given_point() {
    let fake = Model::start().unwrap();
    for path in [OPENAI, ANTHROPIC, OLLAMA] {
        fake.script(Answer::failing(Fault::ResetBefore));
        assert!(request(&fake, path, true).is_err(), "{path}");
        let cut = |after| Answer::text("abcd").chunks(4).fault(Fault::CutAfter(after));
        for after in [1, 3] {
            fake.script(cut(after));
            let reply = request(&fake, path, true).unwrap();
            assert!(reply.cut, "{path}");
            let content = ["/choices/0/delta/content", "/delta/text", "/message/content"];
            let got: String = content.iter().map(|pointer| joined(&objects(&reply), pointer)).collect();
            assert_eq!(got, "abcd"[..after], "{path}");
        }
        fake.script(cut(1));
        assert!(request(&fake, path, false).unwrap().cut, "{path} whole");
    }
    assert!(fake.requests().iter().all(|request| request.outcome() == RequestOutcome::Cut));
}

#[test]
fn error_object_ends_the_stream() {
    let fake = Model::start().unwrap();
    for (path, pointer) in [(OPENAI, "/error/message"), (ANTHROPIC, "/error/message"), (OLLAMA, "/error")] {
        fake.script(
            Answer::text("ab").chunks(2).fault(Fault::ErrorAfter { deltas: 1, message: "oh".into() }),
        );
        let reply = request(&fake, path, true).unwrap();
        assert!(!reply.cut);
        assert_eq!(objects(&reply).last().unwrap().pointer(pointer).unwrap(), "oh", "{path}");
    }
}

#[test]
fn streams_tool_calls_with_quirks() {
    let fake = Model::start().unwrap();
    let calls = |quirk| {
        fake.script(Answer::tool("f", json!({"a": 1})).and_tool("g", json!({"b": 2})).quirk(quirk));
        let got = objects(&request(&fake, OPENAI, true).unwrap());
        let call = |chunk: &serde_json::Value| chunk.pointer("/choices/0/delta/tool_calls/0").cloned();
        got.iter().filter_map(call).collect::<Vec<_>>()
    };
    let bare = calls(Quirk::NoToolIndex);
    assert_eq!(bare.len(), 2);
    assert!(bare.iter().all(|call| call.get("index").is_none()));
    assert_eq!(bare[1]["function"]["arguments"], "{\"b\":2}");
    let objects = calls(Quirk::ArgumentsAsObject);
    assert_eq!(objects[0]["function"]["arguments"], json!({"a": 1}));
    let mixed = calls(Quirk::InterleavedTools);
    let order: Vec<i64> = mixed.iter().map(|call| call["index"].as_i64().unwrap()).collect();
    assert_eq!(order, [0, 1, 0, 1, 0, 1]);
}

#[test]
fn reproduces_quirks_of_real_servers() {
    let fake = Model::start().unwrap();
    let streamed = |answer: Answer, path| {
        fake.script(answer);
        request(&fake, path, true).unwrap().text()
    };
    assert!(streamed(Answer::text("a").quirk(Quirk::KeepAlives), OPENAI).contains("\n\n: keep-alive\n\n"));
    assert!(!streamed(Answer::text("a").quirk(Quirk::NoDone), OPENAI).contains("[DONE]"));
    assert!(!streamed(Answer::text("a").quirk(Quirk::NoDone), ANTHROPIC).contains("message_stop"));
    assert!(!streamed(Answer::text("a").quirk(Quirk::NoDone), OLLAMA).contains("\"done\":true"));
    assert!(!streamed(Answer::text("a").quirk(Quirk::NoUsage), OPENAI).contains("usage"));
    fake.script(Answer::text("abc").chunks(3).quirk(Quirk::SplitWrites));
    let split = request(&fake, OPENAI, true).unwrap();
    assert!(split.text().ends_with("data: [DONE]\n\n"));
    assert_eq!(split.chunks, 2 * split.text().matches("data: ").count());
    assert!(streamed(Answer::text("a").reasoning("hm"), OPENAI).contains("reasoning_content"));
    assert!(streamed(Answer::text("a").finish("weird"), ANTHROPIC).contains("\"stop_reason\":\"weird\""));
    let empty = streamed(Answer::empty(), OPENAI);
    assert!(empty.contains("\"finish_reason\":\"stop\""), "{empty}");
    fake.script(Answer::failing(Fault::Garbage));
    let garbage = request(&fake, OPENAI, false).unwrap();
    assert!(garbage.status == 200 && String::from_utf8(garbage.body).is_err());
}

#[test]
fn hanging_answer_waits_for_release() {
    for point in [Point::Before, Point::AfterDelta(1)] {
        let fake = Model::start().unwrap();
        fake.script(Answer::text("ab").chunks(2).every(Duration::from_millis(1)).fault(Fault::Hang(point)));
        std::thread::scope(|scope| {
            let hanging = scope.spawn(|| request(&fake, OPENAI, true));
            assert!(fake.wait_requests(1, TIMEOUT));
            assert_eq!(fake.requests()[0].outcome(), RequestOutcome::Pending);
            fake.release_hangs();
            let reply = hanging.join().unwrap().unwrap();
            assert_eq!(joined(&objects(&reply), "/choices/0/delta/content"), "ab", "{point:?}");
        });
    }
}
