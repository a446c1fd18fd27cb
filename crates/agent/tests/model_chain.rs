//! The model chain against a fake provider: retries, broken streams, continuations, fallbacks.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use petasos_agent::{
    Chunk, FinishReason, ModelChain, ModelConfig, ModelFailure, ModelFailureClass, ModelRequest,
    ModelResponse, Prices, Provider, Secret, Tools,
};
use petasos_core::transcript::{EffectState, Message, Picture, ToolCall};
use petasos_core::{Millis, SessionId};
use petasos_fakes::Model;
use petasos_fakes::model::{Answer, Fault, Point, Quirk, RequestOutcome};
use serde_json::json;

const LONG: Duration = Duration::from_secs(20);

fn config(model: &Model, provider: Provider) -> ModelConfig {
    ModelConfig {
        base_url: Some(format!("{}/v1", model.url())),
        api_key: Some(Secret::new("sk-test-key")),
        retry_base: Duration::from_millis(1),
        ..ModelConfig::new(provider, "m")
    }
}

fn request(messages: Vec<Message>) -> ModelRequest {
    ModelRequest {
        system: "be kind".into(),
        messages,
        note: None,
        closing: None,
        tools: Tools::default().specs(),
        model: None,
        session: SessionId("s".into()),
    }
}

fn hello() -> ModelRequest {
    request(vec![Message::user("hello", Millis(0))])
}

/// Sends the request, and checks that the chunks are the text of the response.
fn complete(
    config: ModelConfig,
    request: &ModelRequest,
) -> (Result<ModelResponse, ModelFailure>, Vec<Chunk>) {
    let chain = ModelChain::new(config).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut chunks = Vec::new();
    let answer = runtime.block_on(chain.complete(request, &mut |chunk| chunks.push(chunk)));
    if let Ok(answer) = &answer {
        let mut text = String::new();
        for chunk in &chunks {
            match chunk {
                Chunk::Text(piece) => text.push_str(piece),
                Chunk::Restart => text.clear(),
                Chunk::Reasoning => {}
            }
        }
        assert_eq!(text, answer.text);
    }
    (answer, chunks)
}

/// The response to `hello` of a model with this script, and the number of requests it took.
fn script(answers: impl IntoIterator<Item = Answer>) -> (Result<ModelResponse, ModelFailure>, usize) {
    let model = Model::start().unwrap();
    model.script_many(answers);
    model.respond(|_| Answer::text("beyond the script"));
    let (answer, _) = complete(config(&model, Provider::Custom), &hello());
    (answer, model.requests().len())
}

#[track_caller]
fn recovers(answers: impl IntoIterator<Item = Answer>, want: &str, requests: usize) -> ModelResponse {
    let (answer, count) = script(answers);
    let answer = answer.unwrap();
    assert_eq!((answer.text.as_str(), count), (want, requests));
    answer
}

#[track_caller]
fn fails(answers: impl IntoIterator<Item = Answer>, want: ModelFailureClass, requests: usize) -> String {
    let (answer, count) = script(answers);
    let failure = answer.unwrap_err();
    assert_eq!((failure.class, count), (want, requests), "{failure}");
    assert!(!failure.message.contains("sk-") && !failure.message.contains('<'), "{failure}");
    failure.message
}

#[test]
fn all_protocols_stream_text_and_calls() {
    for provider in
        [Provider::Custom, Provider::OpenAi, Provider::OpenRouter, Provider::Anthropic, Provider::Ollama]
    {
        let model = Model::start().unwrap();
        model.expect_key("sk-test-key");
        let answer = Answer::text("Hello you")
            .chunks(3)
            .reasoning("hm")
            .usage(7, 5)
            .quirk(Quirk::SplitWrites)
            .quirk(Quirk::KeepAlives)
            .and_tool("clock", json!({"timezone": "UTC"}))
            .and_tool("read_file", json!({"path": "a"}));
        model.script(answer);
        let (answer, chunks) = complete(config(&model, provider), &hello());
        let answer = answer.unwrap();
        assert_eq!(
            (answer.text.as_str(), answer.finish, answer.partial),
            ("Hello you", FinishReason::Calls, false)
        );
        let calls: Vec<_> =
            answer.calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str())).collect();
        assert_eq!(
            calls,
            [("clock", r#"{"timezone":"UTC"}"#), ("read_file", r#"{"path":"a"}"#)],
            "{provider:?}"
        );
        assert_eq!(
            (answer.usage.tokens.input, answer.usage.tokens.output, answer.model.as_str()),
            (7, 5, "m"),
            "{provider:?}"
        );
        assert!(chunks.contains(&Chunk::Reasoning), "{provider:?}");
        assert_eq!(
            model.requests()[0].tools(),
            ["read_file", "write_file", "patch", "search_files", "clock"]
        );
    }
}

#[test]
fn tolerates_quirks_of_compatible_servers() {
    for quirk in
        [Quirk::NoToolIndex, Quirk::ArgumentsAsObject, Quirk::InterleavedTools, Quirk::NoDone, Quirk::NoUsage]
    {
        let answer =
            Answer::tool("clock", json!({"a": 1})).and_tool("read_file", json!({"b": 2})).quirk(quirk);
        let said = recovers([answer], "", 1);
        let calls: Vec<_> =
            said.calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str())).collect();
        assert_eq!(calls, [("clock", r#"{"a":1}"#), ("read_file", r#"{"b":2}"#)], "{quirk:?}");
    }
}

#[test]
fn retries_transient_failures() {
    let good = || Answer::text("ok");
    recovers([Answer::status(500, ""), Answer::status(502, "<html>"), good()], "ok", 3);
    recovers([Answer::too_many(0), good()], "ok", 2);
    recovers([Answer::status(529, ""), good()], "ok", 2);
    recovers([Answer::failing(Fault::ResetBefore), good()], "ok", 2);
    recovers([Answer::failing(Fault::Garbage), good()], "ok", 2);
    recovers([Answer::text("ok").fault(Fault::CutAfter(0)), good()], "ok", 2);
}

#[test]
fn permanent_failures_end_in_one_clear_line() {
    let key = fails(
        [Answer::status(401, r#"{"error":{"message":"bad key sk-test-key"}}"#)],
        ModelFailureClass::Auth,
        1,
    );
    assert!(key.contains("key"), "{key}");
    fails([Answer::status(402, "")], ModelFailureClass::Billing, 1);
    fails([Answer::status(404, "<html>no</html>")], ModelFailureClass::ModelNotFound, 1);
    let said = fails(
        [Answer::status(400, r#"{"error":{"message":"tools: too many"}}"#)],
        ModelFailureClass::BadRequest,
        1,
    );
    assert!(said.contains("tools: too many"), "{said}");
    fails((0..4).map(|_| Answer::status(500, "")), ModelFailureClass::ServerError, 4);
    fails([Answer::text("").finish("content_filter")], ModelFailureClass::Refused, 1);
}

#[test]
fn keeps_and_continues_text_shown_before_a_cut() {
    for fault in [Fault::CutAfter(2), Fault::ErrorAfter { deltas: 2, message: "boom".into() }] {
        let model = Model::start().unwrap();
        model.script(Answer::text("one two three four").chunks(4).fault(fault));
        model.script(Answer::text(" and the rest"));
        let (answer, chunks) = complete(config(&model, Provider::Custom), &hello());
        let answer = answer.unwrap();
        assert!(
            answer.text.starts_with("one two") && answer.text.ends_with(" and the rest"),
            "{}",
            answer.text
        );
        assert!(!chunks.contains(&Chunk::Restart) && !answer.partial);
        let requests = model.requests();
        let asked = requests[1].messages();
        assert_eq!(asked[asked.len() - 2]["role"], "assistant");
        assert!(answer.text.starts_with(asked[asked.len() - 2]["content"].as_str().unwrap()));
        assert!(requests[1].last_user.contains("Go on exactly"));
    }
}

#[test]
fn repeated_cuts_leave_the_partial_text() {
    let cut = || Answer::text("a b").chunks(2).fault(Fault::CutAfter(1));
    let said = recovers([cut(), cut(), cut(), cut()], "a a a ", 3);
    assert_eq!((said.finish, said.partial), (FinishReason::Cut, true));
}

#[test]
fn cut_inside_tool_call_restarts_the_call() {
    let model = Model::start().unwrap();
    let call = || Answer::text("Let me see.").and_tool("clock", json!({"timezone": "UTC"}));
    model.script_many([call().fault(Fault::CutAfter(3)), call()]);
    let (answer, chunks) = complete(config(&model, Provider::Custom), &hello());
    let answer = answer.unwrap();
    assert_eq!((answer.text.as_str(), answer.calls.len()), ("Let me see.", 1));
    assert_eq!(chunks.iter().filter(|chunk| **chunk == Chunk::Restart).count(), 1);
}

#[test]
fn continues_truncated_answer_three_times() {
    let model = Model::start().unwrap();
    model.script_many((0..4).map(|n| Answer::text(format!("part{n} ")).finish("length")));
    let (answer, _) = complete(config(&model, Provider::Custom), &hello());
    let answer = answer.unwrap();
    assert_eq!(answer.text, "part0 part1 part2 part3 ");
    assert_eq!((answer.finish, answer.partial), (FinishReason::Length, true));
    let room: Vec<_> = model.requests().iter().map(|request| request.body()["max_tokens"].as_u64()).collect();
    assert_eq!(room, [None, Some(8192), Some(16384), Some(32768)]);
    recovers([Answer::text("a").finish("length"), Answer::text(" b")], "a b", 2);
}

#[test]
fn retries_empty_answers_then_explains() {
    recovers([Answer::empty(), Answer::empty(), Answer::text("ok")], "ok", 3);
    let line = fails((0..9).map(|_| Answer::empty()), ModelFailureClass::Empty, 4);
    assert!(line.contains("empty"), "{line}");
}

#[test]
fn nudges_after_empty_answer_to_tool_results() {
    let model = Model::start().unwrap();
    model.script_many([Answer::empty(), Answer::text("noon")]);
    let call = ToolCall { id: "c".into(), name: "clock".into(), arguments: "{}".into() };
    let rows = vec![
        Message::user("time?", Millis(0)),
        Message::tool_request("", vec![call.clone()], Millis(0)),
        Message::tool(&call, "12:00", EffectState::Known, Millis(0)),
    ];
    let (answer, _) = complete(config(&model, Provider::Custom), &request(rows));
    assert_eq!(answer.unwrap().text, "noon");
    assert!(model.requests()[1].last_user.contains("answer now"));
}

#[test]
fn fallback_answers_when_the_primary_cannot() {
    for (first, tries) in
        [(Answer::too_many(60), 1), (Answer::status(401, ""), 1), (Answer::failing(Fault::ResetBefore), 2)]
    {
        let model = Model::start().unwrap();
        let other = Model::start().unwrap();
        model.respond(move |_| first.clone());
        other.respond(|_| Answer::text("from the other"));
        let mut config = config(&model, Provider::Custom);
        config.fallbacks =
            vec![ModelConfig { model: "n".into(), ..self::config(&other, Provider::Anthropic) }];
        let chain = ModelChain::new(config).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let request = ModelRequest { model: Some("chosen".into()), ..hello() };
        for _ in 0..2 {
            let answer = runtime.block_on(chain.complete(&request, &mut |_| {})).unwrap();
            assert_eq!((answer.text.as_str(), answer.model.as_str()), ("from the other", "n"));
        }
        // The second request skips the model in cooldown.
        assert_eq!((model.requests().len(), other.requests().len()), (tries, 2));
        assert_eq!(model.requests()[0].model, "chosen");
    }
}

#[test]
fn next_question_returns_to_primary_unless_rate_limited() {
    for (first, tried_again) in [(Answer::status(401, ""), true), (Answer::too_many(60), false)] {
        let model = Model::start().unwrap();
        let other = Model::start().unwrap();
        model.script(first.clone());
        model.respond(|_| Answer::text("from the first"));
        other.respond(|_| Answer::text("from the other"));
        let mut config = config(&model, Provider::Custom);
        config.fallbacks =
            vec![ModelConfig { model: "n".into(), ..self::config(&other, Provider::Anthropic) }];
        let chain = ModelChain::new(config).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let text_for =
            |request: &ModelRequest| runtime.block_on(chain.complete(request, &mut |_| {})).unwrap().text;
        assert_eq!(text_for(&hello()), "from the other");
        let mut rows = vec![Message::user("hello", Millis(0))];
        rows.push(Message::user("and now?", Millis(1_000)));
        let want = if tried_again { "from the first" } else { "from the other" };
        assert_eq!(text_for(&request(rows)), want, "{first:?}");
    }
}

#[test]
fn reports_first_failure_of_the_chain() {
    let model = Model::start().unwrap();
    model.respond(|request| Answer::status(if request.model == "m" { 402 } else { 401 }, ""));
    let mut config = config(&model, Provider::Custom);
    config.fallbacks = vec![ModelConfig { model: "n".into(), ..config.clone() }];
    assert_eq!(complete(config, &hello()).0.unwrap_err().class, ModelFailureClass::Billing);
}

#[test]
fn returns_oversized_prompt_and_learns_the_window() {
    let model = Model::start().unwrap();
    let other = Model::start().unwrap();
    let body = r#"{"error":{"message":"This model's maximum context length is 2000 tokens."}}"#;
    model.script(Answer::status(400, body));
    model.respond(|_| Answer::text("ok"));
    let mut config = config(&model, Provider::Custom);
    config.fallbacks = vec![self::config(&other, Provider::Custom)];
    let rows: Vec<Message> = (0..40)
        .flat_map(|n| {
            [
                Message::user(format!("q{n} {}", "x".repeat(400)), Millis(0)),
                Message::assistant("a", Millis(0)),
            ]
        })
        .chain([Message::user("last", Millis(0))])
        .collect();
    let chain = ModelChain::new(config).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let asked = request(rows);
    let refused = runtime.block_on(chain.complete(&asked, &mut |_| {})).unwrap_err();
    assert_eq!((refused.class, chain.window().context), (ModelFailureClass::ContextOverflow, 2000));
    assert_eq!((model.requests().len(), other.requests().len()), (1, 0), "another model is no cure");
    assert_eq!(runtime.block_on(chain.complete(&asked, &mut |_| {})).unwrap().text, "ok");
    let sizes: Vec<_> = model.requests().iter().map(|request| request.raw.len()).collect();
    assert!(sizes[1] < sizes[0] * 2 / 3, "{sizes:?}");
    assert_eq!(model.requests()[1].last_user, "last");
}

#[test]
fn lowers_output_limit_to_what_the_provider_grants() {
    let model = Model::start().unwrap();
    let body = r#"{"error":{"message":"max_tokens: 9000 > 5000, which is the maximum allowed number of output tokens"}}"#;
    model.script_many([
        Answer::status(400, body),
        Answer::status(400, r#"{"error":"max_tokens is too large"}"#),
    ]);
    model.respond(|_| Answer::text("ok"));
    let config = ModelConfig { max_output_tokens: Some(9000), ..config(&model, Provider::Custom) };
    assert_eq!(complete(config, &hello()).0.unwrap().text, "ok");
    let room: Vec<_> = model.requests().iter().map(|request| request.body()["max_tokens"].as_u64()).collect();
    assert_eq!(room, [Some(9000), Some(5000), Some(2500)]);
}

#[test]
fn sums_usage_of_all_calls_and_keeps_the_last_prompt() {
    let model = Model::start().unwrap();
    model.script(Answer::text("a").finish("length").usage(1_000, 10));
    model.script(Answer::text("b").usage(2_000, 20));
    let prices = Some(Prices { input: 1.0, output: 10.0, ..Prices::default() });
    let answer = complete(ModelConfig { prices, ..config(&model, Provider::Custom) }, &hello()).0.unwrap();
    assert_eq!((answer.usage.tokens.input, answer.usage.tokens.output), (3_000, 30));
    assert_eq!((answer.usage.prompt, answer.usage.micro_usd), (Some(2_000), Some(3_300)));
}

#[test]
fn retries_silent_stream() {
    let model = Model::start().unwrap();
    model.script(Answer::text("never").fault(Fault::Hang(Point::Before)));
    model.script(Answer::text("a b").chunks(2).fault(Fault::Hang(Point::AfterDelta(1))));
    model.script(Answer::text("c"));
    let config = ModelConfig { stream_stale: Duration::from_millis(200), ..config(&model, Provider::Custom) };
    assert_eq!(complete(config, &hello()).0.unwrap().text, "a c");
}

#[test]
fn retries_invalid_arguments_then_passes_them_as_text() {
    let broken = || Answer::tool("clock", json!("not an object")).quirk(Quirk::ArgumentsAsObject);
    let good = recovers([broken(), Answer::tool("clock", json!({}))], "", 2);
    assert_eq!(good.calls[0].arguments, "{}");
    let bad = recovers((0..4).map(|_| broken()), "", 4);
    assert_eq!(bad.calls[0].arguments, "\"not an object\"");
}

#[test]
fn dropping_the_future_closes_the_connection() {
    let model = Model::start().unwrap();
    model.script(Answer::text("a b").chunks(2).fault(Fault::Hang(Point::AfterDelta(1))));
    let chain = ModelChain::new(config(&model, Provider::Custom)).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let (shown, mut seen) = tokio::sync::mpsc::channel(8);
        let request = hello();
        let mut forward = move |chunk| drop(shown.try_send(chunk));
        tokio::select! {
            _ = chain.complete(&request, &mut forward) => panic!("it hangs"),
            chunk = seen.recv() => assert_eq!(chunk, Some(Chunk::Text("a ".into()))),
        }
    });
    let gone = model.wait_until(LONG, |desk| {
        desk.requests().next().filter(|request| request.outcome() == RequestOutcome::Abandoned).map(|_| ())
    });
    assert!(gone.is_some());
}

#[test]
fn response_future_is_send() {
    fn movable<T: Send>(_: &T) {}
    let chain = ModelChain::new(ModelConfig::demo()).unwrap();
    let request = hello();
    let mut ignore = |_| {};
    movable(&chain.complete(&request, &mut ignore));
}

#[test]
fn raises_output_limit_spent_on_reasoning() {
    let model = Model::start().unwrap();
    model.script_many([Answer::empty().reasoning("hm").finish("length"), Answer::text("ok")]);
    assert_eq!(complete(config(&model, Provider::Custom), &hello()).0.unwrap().text, "ok");
    assert_eq!(model.requests()[1].body()["max_tokens"], 8192);
}

#[test]
fn sends_note_and_omits_notices() {
    let model = Model::start().unwrap();
    let rows = vec![Message::notice("restarted", Millis(0)), Message::user("hello", Millis(0))];
    let request = ModelRequest { note: Some("[resumed]".into()), ..request(rows) };
    complete(config(&model, Provider::Custom), &request).0.unwrap();
    assert_eq!(model.requests()[0].last_user, "[resumed]\n\nhello");
    assert!(!String::from_utf8_lossy(&model.requests()[0].raw).contains("restarted"));
}

#[test]
fn demo_model_answers_offline_and_introduces_itself() {
    let config = ModelConfig { demo_delay: Duration::ZERO, ..ModelConfig::demo() };
    assert!(ModelChain::new(config.clone()).unwrap().describe().to_string().contains("demo model"));
    let (answer, chunks) = complete(config.clone(), &hello());
    assert!(answer.unwrap().text.contains("demo model"));
    assert!(chunks.len() > 10, "word by word");
    let asked = request(vec![Message::user("what time is it?", Millis(0))]);
    let calls = complete(config, &asked).0.unwrap().calls;
    assert_eq!(calls[0].name, "clock");
}

#[test]
fn server_without_vision_gets_the_text_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.png").to_str().unwrap().to_owned();
    std::fs::write(&path, b"abc").unwrap();
    let mut row = Message::user("what is this?", Millis(0));
    row.pictures = vec![Picture { path, mime: "image/png".into() }];
    let shows = |model: &Model, at: usize| model.requests()[at].body()["messages"][1]["content"].is_array();

    let model = Model::start().unwrap();
    model.script(Answer::status(400, r#"{"error":{"message":"image input is not supported"}}"#));
    model.script(Answer::text("I see nothing."));
    let (answer, _) = complete(config(&model, Provider::Custom), &request(vec![row.clone()]));
    assert_eq!(answer.unwrap().text, "I see nothing.");
    assert_eq!((model.requests().len(), shows(&model, 0), shows(&model, 1)), (2, true, false));

    // With vision off no picture is sent.
    let model = Model::start().unwrap();
    let blind = ModelConfig { vision: false, ..config(&model, Provider::Custom) };
    complete(blind, &request(vec![row])).0.unwrap();
    assert_eq!((model.requests().len(), shows(&model, 0)), (1, false));
}
