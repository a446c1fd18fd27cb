//! Recorded streams and what must be read from them. Each is read whole, and byte by byte.

use petasos_core::Provider;
use petasos_core::transcript::Picture;
use serde_json::{Value, json};

use super::{Draft, Prompt, Protocol};
use crate::failure::Class;
use crate::hygiene::{Call, Item};
use crate::pictures::Pictures;
use crate::request::{Chunk, Finish, ToolSpec};
use crate::sse::{Events, Lines};

#[derive(Debug, Default)]
struct Want {
    text: &'static str,
    /// `id name arguments`.
    calls: &'static [&'static str],
    finish: Option<Finish>,
    /// input, output, cache read, cache write
    usage: [u64; 4],
    over: bool,
    reasoned: bool,
    error: Option<Class>,
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
        assert_eq!((draft.finish, draft.over(), draft.reasoned), (want.finish, want.over, want.reasoned));
        let usage = draft.usage;
        assert_eq!([usage.input, usage.output, usage.cache_read, usage.cache_write], want.usage);
        assert_eq!(error, want.error);
    }
}

fn read(protocol: Protocol, stream: &str, size: usize) -> (Draft, String, Option<Class>) {
    let (mut events, mut lines) = (Events::default(), Lines::default());
    let mut parts = Vec::new();
    for piece in stream.as_bytes().chunks(size) {
        match protocol {
            Protocol::Ollama => parts.extend(lines.push(piece).unwrap()),
            Protocol::Chat | Protocol::Messages => parts.extend(events.push(piece).unwrap()),
        }
    }
    parts.extend(lines.rest());
    parts.extend(events.rest());
    let mut draft = Draft::new();
    let error = parts.iter().find_map(|part| protocol.absorb(&mut draft, part, None).err());
    draft.flush();
    let shown = draft
        .fresh()
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
fn chat_text_with_thoughts_comments_and_usage() {
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
        finish: Some(Finish::Stop),
        usage: [6, 3, 4, 0],
        over: true,
        reasoned: true,
        ..Want::default()
    };
    check(Protocol::Chat, &stream, &want);
}

#[test]
fn chat_parallel_calls_interleaved() {
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
        &Want { calls, finish: Some(Finish::Calls), over: true, ..Want::default() },
    );
}

#[test]
fn chat_calls_without_index_or_id_or_with_one_index_for_all() {
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
            &Want { calls, finish: Some(Finish::Calls), over: true, ..Want::default() },
        );
    }
}

#[test]
fn chat_odd_ends() {
    let hello = r#"{"delta":{"content":"Hi"}}"#;
    let odd = chat(&[hello, r#"{"delta":{},"finish_reason":"because"}"#]);
    check(
        Protocol::Chat,
        &odd,
        &Want { text: "Hi", finish: Some(Finish::Other), over: true, ..Want::default() },
    );
    check(Protocol::Chat, &chat(&[hello]), &Want { text: "Hi", ..Want::default() });
    let only_done = chat(&[hello]) + "data: [DONE]\n\n";
    check(Protocol::Chat, &only_done, &Want { text: "Hi", over: true, ..Want::default() });
    let error = chat(&[hello]) + "data: {\"error\":{\"code\":429,\"message\":\"slow\"}}\n\n";
    let want = Want { text: "Hi", error: Some(Class::RateLimit), ..Want::default() };
    check(Protocol::Chat, &error, &want);
    let garbage = Want { text: "Hi", error: Some(Class::Malformed), ..Want::default() };
    check(Protocol::Chat, &(chat(&[hello]) + "data: {what\n\n"), &garbage);
}

#[test]
fn chat_thinking_in_the_text_is_hidden() {
    let stream = chat(&[
        r#"{"delta":{"content":"<thi"}}"#,
        r#"{"delta":{"content":"nk>secret</think>\n\nHi"}}"#,
        r#"{"delta":{},"finish_reason":"stop"}"#,
    ]);
    let want = Want { text: "Hi", finish: Some(Finish::Stop), over: true, ..Want::default() };
    check(Protocol::Chat, &stream, &want);
}

#[test]
fn chat_whole_answer_in_one_piece() {
    let stream = "data: {\"choices\":[{\"message\":{\"content\":\"Hi\"},\"finish_reason\":\"length\"}]}\n\n";
    let want = Want { text: "Hi", finish: Some(Finish::Length), over: true, ..Want::default() };
    check(Protocol::Chat, stream, &want);
}

#[test]
fn anthropic_text_thoughts_and_a_call() {
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
        finish: Some(Finish::Calls),
        usage: [5, 9, 7, 2],
        over: true,
        reasoned: true,
        error: None,
    };
    check(Protocol::Messages, &stream, &want);
}

#[test]
fn anthropic_error_in_the_stream() {
    let stream = "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hi\"}}\n\n\
                  event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    let want = Want { text: "Hi", error: Some(Class::Overloaded), ..Want::default() };
    check(Protocol::Messages, stream, &want);
}

#[test]
fn ollama_lines() {
    let stream = concat!(
        "{\"model\":\"l\",\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"hm\"},\"done\":false}\n\n",
        "{\"message\":{\"content\":\"Hi\"},\"done\":false}\n",
        "{\"message\":{\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"one\",\"arguments\":{\"a\":1}}},{\"function\":{\"name\":\"one\",\"arguments\":{}}}]},\"done\":false}\n",
        "{\"message\":{\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\"prompt_eval_count\":4,\"eval_count\":2}"
    );
    let want = Want {
        text: "Hi",
        calls: &[r#"- one {"a":1}"#, "- one {}"],
        finish: Some(Finish::Stop),
        usage: [4, 2, 0, 0],
        over: true,
        reasoned: true,
        error: None,
    };
    check(Protocol::Ollama, stream, &want);
    let failed = Want { error: Some(Class::ServerError), ..Want::default() };
    check(Protocol::Ollama, "{\"error\":\"out of memory\"}\n", &failed);
}

fn conversation() -> Vec<Item> {
    let Value::Object(arguments) = json!({"b": 1, "a": 2}) else { unreachable!() };
    let call = Call { id: "x.1".into(), name: "clock".into(), arguments };
    vec![
        Item::user("first"),
        Item::Assistant { text: "hi ".into(), calls: vec![] },
        Item::user("time?"),
        Item::Assistant { text: String::new(), calls: vec![call] },
        Item::Result { id: "x.1".into(), name: "clock".into(), content: "noon".into() },
        Item::user("and?"),
    ]
}

fn request(provider: Provider) -> Value {
    request_of(provider, &conversation(), &Pictures::default())
}

fn request_of(provider: Provider, items: &[Item], pictures: &Pictures) -> Value {
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
fn openrouter_gets_the_choice_of_upstream_providers() {
    assert_eq!(request(Provider::OpenRouter)["provider"], json!({"only": ["one"]}));
    assert_eq!(request(Provider::OpenAi).get("provider"), None);
}

#[tokio::test]
async fn pictures_are_shown_the_way_each_server_wants_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.png").to_str().expect("text").to_owned();
    std::fs::write(&path, b"abc").expect("written");
    let picture = Picture { path, mime: "image/png".into() };
    let items = [Item::User { text: "what is this?".into(), pictures: vec![picture] }];
    let pictures = Pictures::of(&items).await;
    let said = |provider| {
        let body = request_of(provider, &items, &pictures);
        body["messages"].as_array().and_then(|messages| messages.last().cloned()).expect("a message")
    };
    let text = json!({"type": "text", "text": "what is this?"});
    let url = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}});
    assert_eq!(said(Provider::Custom), json!({"role": "user", "content": [text, url]}));
    let source = json!({"type": "base64", "media_type": "image/png", "data": "YWJj"});
    let blocks = &said(Provider::Anthropic)["content"];
    assert_eq!(blocks[0], json!({"type": "image", "source": source}));
    assert_eq!(blocks[1]["text"], "what is this?");
    let ollama = json!({"role": "user", "content": "what is this?", "images": ["YWJj"]});
    assert_eq!(said(Provider::Ollama), ollama);
    let none = request_of(Provider::Custom, &items, &Pictures::default());
    assert_eq!(none["messages"][1], json!({"role": "user", "content": "what is this?"}));
}

#[test]
fn requests_to_chat_servers() {
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
fn requests_to_anthropic_carry_four_cache_marks_and_alternate() {
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
fn requests_to_ollama_carry_the_window_and_plain_arguments() {
    let body = request(Provider::Ollama);
    assert_eq!(body["options"], json!({"num_ctx": 100, "num_predict": 9}));
    assert_eq!(body["messages"][4]["tool_calls"][0]["function"]["arguments"], json!({"a": 2, "b": 1}));
    assert_eq!(body["messages"][5], json!({"role": "tool", "tool_name": "clock", "content": "noon"}));
}
