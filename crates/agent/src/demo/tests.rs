use petasos_core::Millis;
use petasos_core::transcript::{EffectState, ToolCall};
use serde_json::json;

use super::*;

fn user(text: &str) -> Message {
    Message::user(text, Millis(0))
}

/// What it says in the middle of a conversation, where it no longer introduces itself.
fn say(words: &[&str]) -> Say {
    let mut rows = vec![user("hello"), Message::assistant("Hello!", Millis(0))];
    for word in words {
        rows.push(user(word));
        rows.push(Message::assistant("ok", Millis(0)));
    }
    rows.pop();
    reply(&rows, |_| true)
}

#[track_caller]
fn says(words: &[&str], part: &str) {
    match say(words) {
        Say::Text(text) => assert!(text.contains(part), "{words:?}: {text}"),
        Say::Call { name, arguments } => panic!("{words:?}: {name} {arguments}"),
    }
}

#[track_caller]
fn calls(words: &str, name: &str, arguments: Value) {
    match say(&[words]) {
        Say::Call { name: got, arguments: with } => assert_eq!((got, with), (name, arguments), "{words}"),
        Say::Text(text) => panic!("{words}: {text}"),
    }
}

#[test]
fn it_introduces_itself_once() {
    let first = reply(&[user("hello")], |_| true);
    assert!(
        matches!(&first, Say::Text(text) if text.contains("demo model") && text.contains("Hello")),
        "{first:?}"
    );
    assert!(matches!(say(&["hello"]), Say::Text(text) if !text.contains("demo model")));
}

#[test]
fn it_knows_its_script() {
    for (words, part) in [
        ("Hi there!", "Good to see you"),
        ("What can you do?", "Streaming"),
        ("tell me about petasos", "gateway"),
        ("What are your guarantees?", "Accepted means durable"),
        ("how does stopping work", "petasos stop"),
        ("How do I set up Telegram?", "TELEGRAM_BOT_TOKEN"),
        ("how do I set up a real model", "ANTHROPIC_API_KEY"),
        ("can I use OpenAI?", "OPENAI_API_KEY"),
        ("tell me a story please", "messenger"),
        ("write a poem", "winged hat"),
        ("show me some markdown", "```rust"),
        ("thanks!", "welcome"),
        ("12 * (3 + 4)", "**84**"),
        ("count to 5", "1, 2, 3, 4, 5. Done!"),
        ("xyzzy", "help"),
        ("", "help"),
    ] {
        says(&[words], part);
    }
}

#[test]
fn counting_is_bounded() {
    says(&["count to 999999999"], "499, 500. Done!");
}

#[test]
fn it_remembers_within_the_conversation() {
    says(&["my name is Ada Lovelace"], "Nice to meet you, Ada Lovelace");
    says(&["my name is Ada", "hi", "what is my name?"], "Your name is Ada.");
    says(&["what's my name?"], "not told me");
    says(&["remember that the door code is 7", "what do you remember?"], "the door code is 7");
}

#[test]
fn it_asks_for_tools() {
    calls("what time is it?", "clock", json!({}));
    calls("read file notes.txt", "read_file", json!({"path": "notes.txt"}));
    calls("please show me the file `a/b`", "read_file", json!({"path": "a/b"}));
    calls(
        "write a file notes.txt with buy milk",
        "write_file",
        json!({"path": "notes.txt", "content": "buy milk\n"}),
    );
    calls(
        "save \"buy milk\" to notes.txt",
        "write_file",
        json!({"path": "notes.txt", "content": "buy milk\n"}),
    );
    calls("search for milk (2)", "search_files", json!({"pattern": r"milk \(2\)"}));
    calls("list files", "search_files", json!({"pattern": ".", "target": "files"}));
}

#[test]
fn without_the_tool_it_says_so() {
    let said = reply(&[user("what time is it")], |_| false);
    assert!(matches!(said, Say::Text(text) if text.contains("not available")));
}

#[test]
fn it_tells_what_the_tool_found() {
    for (name, result, part) in [
        (
            "clock",
            json!({"time": "2026-01-01 10:00:00", "weekday": "Thursday", "timezone": "UTC"}),
            "Thursday, 2026",
        ),
        ("read_file", json!({"content": "1|milk\n2|a|b\n"}), "```\nmilk\na|b\n```"),
        ("write_file", json!({"path": "n.txt", "bytes_written": 9}), "`n.txt` now holds 9 bytes"),
        (
            "search_files",
            json!({"total_count": 1, "matches": [{"path": "n", "line": 2, "content": "milk"}]}),
            "`n` line 2: milk",
        ),
        ("search_files", json!({"total_count": 0, "matches": []}), "found nothing"),
        ("read_file", json!({"error": "x does not exist."}), "x does not exist"),
    ] {
        let call = ToolCall { id: "1".into(), name: name.into(), arguments: "{}".into() };
        let result = Message::tool(&call, result.to_string(), EffectState::Known, Millis(0));
        let said = reply(&[user("do it"), Message::asking("", vec![call], Millis(0)), result], |_| true);
        assert!(matches!(&said, Say::Text(text) if text.contains(part)), "{name}: {said:?}");
    }
}

#[test]
fn every_entry_of_the_script_can_be_reached() {
    for (phrases, text) in script::entries() {
        for phrase in phrases.split('|') {
            let found = script::find(&script::normalise(phrase));
            assert_eq!(found.as_deref(), Some(text.trim()), "{phrase}");
        }
        assert!(text.trim().len() > 10, "{phrases}");
    }
}
