//! Recorded provider streams with expected results. Each is parsed whole and in small pieces.

use petasos_core::Provider;
use petasos_core::transcript::Picture;
use serde_json::{Value, json};

use super::{Prompt, Protocol, ResponseDraft};
use crate::conversation::normalise::{ConversationItem, ItemCall};
use crate::conversation::pictures::Pictures;
use crate::model::failure::ModelFailureClass;
use crate::model::request::{Chunk, FinishReason, ToolSpec};
use crate::model::transport::sse::{EventParser, LineSplitter};

#[derive(Debug, Default)]
struct Want {
    text: &'static str,
    /// `id name arguments`.
    calls: &'static [&'static str],
    finish: Option<FinishReason>,
    /// input, output, cache read, cache write
    usage: [u64; 4],
    over: bool,
    reasoned: bool,
    error: Option<ModelFailureClass>,
}

#[track_caller]
fn check(protocol: Protocol, stream: &str, want: &Want) {
    for size in [1, 5, stream.len()] {
        let (draft, shown, error) = read(protocol, stream, size);
        assert_eq!(draft.text, want.text);
        assert_eq!(shown, want.text, "the chunks are the text");
        let calls: Vec<String> = draft
            .calls
            .iter()
            .map(|slot| format!("{} {} {}", slot.id.as_deref().unwrap_or("-"), slot.name, slot.arguments))
            .collect();
        assert_eq!(calls, want.calls);
        assert_eq!(
            (draft.finish, draft.is_complete(), draft.reasoned),
            (want.finish, want.over, want.reasoned)
        );
        let usage = draft.usage;
        assert_eq!([usage.input, usage.output, usage.cache_read, usage.cache_write], want.usage);
        assert_eq!(error, want.error);
    }
}

fn read(protocol: Protocol, stream: &str, size: usize) -> (ResponseDraft, String, Option<ModelFailureClass>) {
    let mut events = EventParser::default();
    let mut lines = LineSplitter::default();
    let mut parts = Vec::new();
    for piece in stream.as_bytes().chunks(size) {
        match protocol {
            Protocol::Ollama => parts.extend(lines.push(piece).unwrap()),
            Protocol::Chat | Protocol::Messages => parts.extend(events.push(piece).unwrap()),
        }
    }
    parts.extend(lines.rest());
    parts.extend(events.rest());
    let mut draft = ResponseDraft::new();
    let error = parts.iter().find_map(|part| protocol.apply_event(&mut draft, part, None).err());
    draft.flush();
    let shown = draft
        .take_chunks()
        .map(|chunk| match chunk {
            Chunk::Text(text) => text,
            Chunk::Reasoning | Chunk::Restart => String::new(),
        })
        .collect();
    (draft, shown, error.map(|error| error.class))
}

fn chat(deltas: &[&str]) -> String {
    deltas.iter().map(|delta| format!("data: {{\"model\":\"m\",\"choices\":[{delta}]}}\r\n\r\n")).collect()
}

#[test]
fn parses_chat_text_reasoning_comments_and_usage() {
    let mut stream = String::from(": keep-alive\n\n");
    stream += &chat(&[
        r#"{"delta":{"role":"assistant","content":null,"reasoning_content":"hm"}}"#,
        r#"{"delta":{"content":"Hel"}}"#,
        r#"{"delta":{"content":"lo"},"finish_reason":null}"#,
        r#"{"delta":{},"finish_reason":"stop"}"#,
    ]);
    stream += "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n";
    let want = Want {
        text: "Hello",
        finish: Some(FinishReason::Stop),
        usage: [6, 3, 4, 0],
        over: true,
        reasoned: true,
        ..Want::default()
    };
    check(Protocol::Chat, &stream, &want);
}

#[test]
fn parses_interleaved_parallel_chat_calls() {
    let stream = chat(&[
        r#"{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"one","arguments":""}}]}}"#,
        r#"{"delta":{"tool_calls":[{"index":1,"id":"b","function":{"name":"two","arguments":"{\"x\""}}]}}"#,
        r#"{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"y\":"}}]}}"#,
        r#"{"delta":{"tool_calls":[{"index":1,"function":{"arguments":":1}"}},{"index":0,"function":{"arguments":"2}"}}]}}"#,
        r#"{"delta":{},"finish_reason":"tool_calls"}"#,
    ]);
    let calls = &[r#"a one {"y":2}"#, r#"b two {"x":1}"#];
    check(
        Protocol::Chat,
        &stream,
        &Want { calls, finish: Some(FinishReason::Calls), over: true, ..Want::default() },
    );
}

#[test]
fn separates_chat_calls_without_index_or_id() {
    let end = r#"{"delta":{},"finish_reason":"tool_calls"}"#;
    let table: [(&[&str], &'static [&'static str]); 4] = [
        (
            &[
                r#"{"delta":{"tool_calls":[{"id":"a","function":{"name":"one","arguments":"{}"}},{"id":"b","function":{"name":"two","arguments":"{}"}}]}}"#,
            ],
            &["a one {}", "b two {}"],
        ),
        (
            &[
                r#"{"delta":{"tool_calls":[{"function":{"name":"one","arguments":{"z":1}}},{"function":{"name":"one","arguments":{"z":2}}}]}}"#,
            ],
            &[r#"- one {"z":1}"#, r#"- one {"z":2}"#],
        ),
        (
            &[
                r#"{"delta":{"tool_calls":[{"id":"a","function":{"name":"one","arguments":"{"}}]}}"#,
                r#"{"delta":{"tool_calls":[{"function":{"arguments":"}"}}]}}"#,
            ],
            &["a one {}"],
        ),
        (
            &[
                r#"{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"one","arguments":"{}"}},{"index":0,"id":"b","function":{"name":"two","arguments":"{}"}}]}}"#,
            ],
            &["a one {}", "b two {}"],
        ),
    ];
    for (deltas, calls) in table {
        let stream = chat(deltas) + &chat(&[end]);
        check(
            Protocol::Chat,
            &stream,
            &Want { calls, finish: Some(FinishReason::Calls), over: true, ..Want::default() },
        );
    }
}

#[test]
fn handles_unusual_chat_stream_ends() {
    let hello = r#"{"delta":{"content":"Hi"}}"#;
    let odd = chat(&[hello, r#"{"delta":{},"finish_reason":"because"}"#]);
    check(
        Protocol::Chat,
        &odd,
        &Want { text: "Hi", finish: Some(FinishReason::Other), over: true, ..Want::default() },
    );
    check(Protocol::Chat, &chat(&[hello]), &Want { text: "Hi", ..Want::default() });
    let only_done = chat(&[hello]) + "data: [DONE]\n\n";
    check(Protocol::Chat, &only_done, &Want { text: "Hi", over: true, ..Want::default() });
    let error = chat(&[hello]) + "data: {\"error\":{\"code\":429,\"message\":\"slow\"}}\n\n";
    let want = Want { text: "Hi", error: Some(ModelFailureClass::RateLimit), ..Want::default() };
    check(Protocol::Chat, &error, &want);
    let garbage = Want { text: "Hi", error: Some(ModelFailureClass::Malformed), ..Want::default() };
    check(Protocol::Chat, &(chat(&[hello]) + "data: {what\n\n"), &garbage);
}

#[test]
fn hides_reasoning_in_chat_text() {
    let stream = chat(&[
        r#"{"delta":{"content":"<thi"}}"#,
        r#"{"delta":{"content":"nk>secret</think>\n\nHi"}}"#,
        r#"{"delta":{},"finish_reason":"stop"}"#,
    ]);
    let want = Want { text: "Hi", finish: Some(FinishReason::Stop), over: true, ..Want::default() };
    check(Protocol::Chat, &stream, &want);
}

#[test]
fn parses_unstreamed_chat_response() {
    let stream = "data: {\"choices\":[{\"message\":{\"content\":\"Hi\"},\"finish_reason\":\"length\"}]}\n\n";
    let want = Want { text: "Hi", finish: Some(FinishReason::Length), over: true, ..Want::default() };
    check(Protocol::Chat, stream, &want);
}

#[test]
fn parses_anthropic_text_reasoning_and_call() {
    let events = [
        r#"{"type":"message_start","message":{"model":"c","usage":{"input_tokens":5,"output_tokens":1,"cache_read_input_tokens":7,"cache_creation_input_tokens":2}}}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}"#,
        r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"ping"}"#,
        r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Let me see."}}"#,
        r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t","name":"clock","input":{}}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}"#,
        r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"1}"}}"#,
        r#"{"type":"something_new"}"#,
        r#"{"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":9}}"#,
        r#"{"type":"message_stop"}"#,
    ];
    let stream: String = events.iter().map(|event| format!("event: x\ndata: {event}\n\n")).collect();
    let want = Want {
        text: "Let me see.",
        calls: &[r#"t clock {"a":1}"#],
        finish: Some(FinishReason::Calls),
        usage: [5, 9, 7, 2],
        over: true,
        reasoned: true,
        error: None,
    };
    check(Protocol::Messages, &stream, &want);
}

#[test]
fn reports_error_event_in_anthropic_stream() {
    let stream = "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n\
                  event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    let want = Want { text: "Hi", error: Some(ModelFailureClass::Overloaded), ..Want::default() };
    check(Protocol::Messages, stream, &want);
}

#[test]
fn parses_ollama_lines() {
    let stream = concat!(
        "{\"model\":\"l\",\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"hm\"},\"done\":false}\n\n",
        "{\"message\":{\"content\":\"Hi\"},\"done\":false}\n",
        "{\"message\":{\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"one\",\"arguments\":{\"a\":1}}},{\"function\":{\"name\":\"one\",\"arguments\":{}}}]},\"done\":false}\n",
        "{\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\"prompt_eval_count\":4,\"eval_count\":2}"
    );
    let want = Want {
        text: "Hi",
        calls: &[r#"- one {"a":1}"#, "- one {}"],
        finish: Some(FinishReason::Stop),
        usage: [4, 2, 0, 0],
        over: true,
        reasoned: true,
        error: None,
    };
    check(Protocol::Ollama, stream, &want);
    let failed = Want { error: Some(ModelFailureClass::ServerError), ..Want::default() };
    check(Protocol::Ollama, "{\"error\":\"out of memory\"}\n", &failed);
}

fn conversation() -> Vec<ConversationItem> {
    let Value::Object(arguments) = json!({"b": 1, "a": 2}) else { unreachable!() };
    let call = ItemCall { id: "x.1".into(), name: "clock".into(), arguments };
    vec![
        ConversationItem::user("first"),
        ConversationItem::Assistant { text: "hi ".into(), calls: vec![] },
        ConversationItem::user("time?"),
        ConversationItem::Assistant { text: String::new(), calls: vec![call] },
        ConversationItem::Result { id: "x.1".into(), name: "clock".into(), content: "noon".into() },
        ConversationItem::user("and?"),
    ]
}

fn request(provider: Provider) -> Value {
    request_of(provider, &conversation(), &Pictures::default())
}

fn request_of(provider: Provider, items: &[ConversationItem], pictures: &Pictures) -> Value {
    let tool =
        ToolSpec { name: "clock".into(), description: "d".into(), parameters: json!({"type": "object"}) };
    let routing = (provider == Provider::OpenRouter).then(|| json!({"only": ["one"]}));
    let prompt = Prompt {
        model: "m",
        system: "s",
        items,
        pictures,
        tools: &[tool],
        max_output: Some(9),
        context: 100,
        session: "key",
        routing: routing.as_ref(),
    };
    Protocol::of(provider).request(provider, &prompt)
}

#[test]
fn sends_upstream_routing_to_openrouter_only() {
    assert_eq!(request(Provider::OpenRouter)["provider"], json!({"only": ["one"]}));
    assert_eq!(request(Provider::OpenAi).get("provider"), None);
}

#[tokio::test]
async fn encodes_pictures_for_each_provider() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.png").to_str().expect("text").to_owned();
    std::fs::write(&path, b"abc").expect("written");
    let picture = Picture { path, mime: "image/png".into() };
    let items = [ConversationItem::User { text: "what is this?".into(), pictures: vec![picture] }];
    let pictures = Pictures::load(&items).await;
    let last_message = |provider| {
        let body = request_of(provider, &items, &pictures);
        body["messages"].as_array().and_then(|messages| messages.last().cloned()).expect("a message")
    };
    let text = json!({"type": "text", "text": "what is this?"});
    let url = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}});
    assert_eq!(last_message(Provider::Custom), json!({"role": "user", "content": [text, url]}));
    let source = json!({"type": "base64", "media_type": "image/png", "data": "YWJj"});
    let blocks = &last_message(Provider::Anthropic)["content"];
    assert_eq!(blocks[0], json!({"type": "image", "source": source}));
    assert_eq!(blocks[1]["text"], "what is this?");
    let ollama = json!({"role": "user", "content": "what is this?", "images": ["YWJj"]});
    assert_eq!(last_message(Provider::Ollama), ollama);
    let none = request_of(Provider::Custom, &items, &Pictures::default());
    assert_eq!(none["messages"][1], json!({"role": "user", "content": "what is this?"}));
}

#[test]
fn builds_chat_requests() {
    let body = request(Provider::Custom);
    assert_eq!(body["messages"][0], json!({"role": "system", "content": "s"}));
    assert_eq!(
        body["messages"][4],
        json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "x.1", "type": "function", "function": {"name": "clock", "arguments": "{\"a\":2,\"b\":1}"}}]})
    );
    assert_eq!(body["messages"][5], json!({"role": "tool", "tool_call_id": "x.1", "content": "noon"}));
    assert_eq!(body["max_tokens"], 9);
    assert_eq!(body["stream_options"]["include_usage"], true);
    assert!(body["prompt_cache_key"].is_null());
    let own = request(Provider::OpenAi);
    assert_eq!((&own["max_completion_tokens"], &own["prompt_cache_key"]), (&json!(9), &json!("key")));
}

#[test]
fn builds_anthropic_requests_with_four_cache_breakpoints() {
    let body = request(Provider::Anthropic);
    let mark = json!({"type": "ephemeral"});
    assert_eq!(body["system"][0]["cache_control"], mark);
    let messages = body["messages"].as_array().unwrap();
    let roles: Vec<_> = messages.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant", "user"]);
    let marked: Vec<bool> = messages
        .iter()
        .map(|message| message["content"].as_array().unwrap().last().unwrap()["cache_control"] == mark)
        .collect();
    assert_eq!(marked, [false, false, true, true, true]);
    assert_eq!(messages[1]["content"][0]["text"], "hi");
    assert_eq!(messages[3]["content"][0]["id"], "x_1");
    assert_eq!(messages[4]["content"][0]["tool_use_id"], "x_1");
    assert_eq!(messages[4]["content"][1]["text"], "and?");
    assert_eq!(
        (&body["max_tokens"], &body["tools"][0]["input_schema"]),
        (&json!(9), &json!({"type": "object"}))
    );
}

#[test]
fn builds_ollama_requests_with_context_window() {
    let body = request(Provider::Ollama);
    assert_eq!(body["options"], json!({"num_ctx": 100, "num_predict": 9}));
    assert_eq!(body["messages"][4]["tool_calls"][0]["function"]["arguments"], json!({"a": 2, "b": 1}));
    assert_eq!(body["messages"][5], json!({"role": "tool", "tool_name": "clock", "content": "noon"}));
}
