//! The model going wrong on demand: faults, and habits of servers that are almost compatible.

use std::time::Duration;

use petasos_fakes::Model;
use petasos_fakes::model::{Answer, Fault, Outcome, Point, Quirk};
use serde_json::json;

use crate::client::SOON;
use crate::model::{ANTHROPIC, OLLAMA, OPENAI, ask, joined, objects};

#[test]
fn refusals_carry_status_body_and_waiting_time() {
    let fake = Model::start().unwrap();
    for (answer, status, retry, text) in [
        (Answer::too_many(4), 429, Some("4"), "rate_limit_error"),
        (Answer::status(503, "<html>busy</html>"), 503, None, "<html>busy</html>"),
        (Answer::status(401, ""), 401, None, "authentication_error"),
    ] {
        fake.script(answer);
        let reply = ask(&fake, OPENAI, true).unwrap();
        assert_eq!((reply.status, reply.header("retry-after")), (status, retry));
        assert!(reply.text().contains(text), "{}", reply.text());
    }
    fake.script(Answer::status(529, ""));
    assert!(ask(&fake, ANTHROPIC, true).unwrap().text().contains("overloaded_error"));
}

#[test]
fn connections_are_reset_or_cut_where_told() {
    let fake = Model::start().unwrap();
    for path in [OPENAI, ANTHROPIC, OLLAMA] {
        fake.script(Answer::failing(Fault::ResetBefore));
        assert!(ask(&fake, path, true).is_err(), "{path}");
        let cut = |after| Answer::text("abcd").chunks(4).fault(Fault::CutAfter(after));
        for after in [1, 3] {
            fake.script(cut(after));
            let reply = ask(&fake, path, true).unwrap();
            assert!(reply.cut, "{path}");
            let content = ["/choices/0/delta/content", "/delta/text", "/message/content"];
            let got: String = content.iter().map(|pointer| joined(&objects(&reply), pointer)).collect();
            assert_eq!(got, "abcd"[..after], "{path}");
        }
        fake.script(cut(1));
        assert!(ask(&fake, path, false).unwrap().cut, "{path} whole");
    }
    assert!(fake.requests().iter().all(|request| request.outcome() == Outcome::Cut));
}

#[test]
fn an_error_object_ends_the_stream() {
    let fake = Model::start().unwrap();
    for (path, pointer) in [(OPENAI, "/error/message"), (ANTHROPIC, "/error/message"), (OLLAMA, "/error")] {
        fake.script(
            Answer::text("ab").chunks(2).fault(Fault::ErrorAfter { deltas: 1, message: "oh".into() }),
        );
        let reply = ask(&fake, path, true).unwrap();
        assert!(!reply.cut);
        assert_eq!(objects(&reply).last().unwrap().pointer(pointer).unwrap(), "oh", "{path}");
    }
}

#[test]
fn odd_tool_calls_are_as_odd_as_told() {
    let fake = Model::start().unwrap();
    let calls = |quirk| {
        fake.script(Answer::tool("f", json!({"a": 1})).and_tool("g", json!({"b": 2})).quirk(quirk));
        let got = objects(&ask(&fake, OPENAI, true).unwrap());
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
fn habits_of_real_servers() {
    let fake = Model::start().unwrap();
    let streamed = |answer: Answer, path| {
        fake.script(answer);
        ask(&fake, path, true).unwrap().text()
    };
    assert!(streamed(Answer::text("a").quirk(Quirk::KeepAlives), OPENAI).contains("\n\n: keep-alive\n\n"));
    assert!(!streamed(Answer::text("a").quirk(Quirk::NoDone), OPENAI).contains("[DONE]"));
    assert!(!streamed(Answer::text("a").quirk(Quirk::NoDone), ANTHROPIC).contains("message_stop"));
    assert!(!streamed(Answer::text("a").quirk(Quirk::NoDone), OLLAMA).contains("\"done\":true"));
    assert!(!streamed(Answer::text("a").quirk(Quirk::NoUsage), OPENAI).contains("usage"));
    fake.script(Answer::text("abc").chunks(3).quirk(Quirk::SplitWrites));
    let split = ask(&fake, OPENAI, true).unwrap();
    assert!(split.text().ends_with("data: [DONE]\n\n"));
    assert_eq!(split.chunks, 2 * split.text().matches("data: ").count());
    assert!(streamed(Answer::text("a").reasoning("hm"), OPENAI).contains("reasoning_content"));
    assert!(streamed(Answer::text("a").finish("weird"), ANTHROPIC).contains("\"stop_reason\":\"weird\""));
    let empty = streamed(Answer::empty(), OPENAI);
    assert!(empty.contains("\"finish_reason\":\"stop\""), "{empty}");
    fake.script(Answer::failing(Fault::Garbage));
    let garbage = ask(&fake, OPENAI, false).unwrap();
    assert!(garbage.status == 200 && String::from_utf8(garbage.body).is_err());
}

#[test]
fn a_hanging_answer_says_nothing_until_released() {
    for point in [Point::Before, Point::AfterDelta(1)] {
        let fake = Model::start().unwrap();
        fake.script(Answer::text("ab").chunks(2).every(Duration::from_millis(1)).fault(Fault::Hang(point)));
        std::thread::scope(|scope| {
            let hanging = scope.spawn(|| ask(&fake, OPENAI, true));
            assert!(fake.wait_requests(1, SOON));
            assert_eq!(fake.requests()[0].outcome(), Outcome::Pending);
            fake.release_hangs();
            let reply = hanging.join().unwrap().unwrap();
            assert_eq!(joined(&objects(&reply), "/choices/0/delta/content"), "ab", "{point:?}");
        });
    }
}
