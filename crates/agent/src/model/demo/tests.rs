use petasos_core::Millis;
use petasos_core::transcript::{EffectState, ToolCall};
use serde_json::json;

use super::*;

fn user(text: &str) -> Message {
    Message::user(text, Millis(0))
}

/// The response in the middle of a conversation, without the introduction.
fn reply_to(words: &[&str]) -> DemoAction {
    let mut rows = vec![user("hello"), Message::assistant("Hello!", Millis(0))];
    for word in words {
        rows.push(user(word));
        rows.push(Message::assistant("ok", Millis(0)));
    }
    rows.pop();
    reply(&rows, |_| true)
}

#[track_caller]
fn check_text(words: &[&str], part: &str) {
    match reply_to(words) {
        DemoAction::Text(text) => assert!(text.contains(part), "{words:?}: {text}"),
        DemoAction::Call { name, arguments } => panic!("{words:?}: {name} {arguments}"),
    }
}

#[track_caller]
fn check_call(words: &str, name: &str, arguments: Value) {
    match reply_to(&[words]) {
        DemoAction::Call { name: got, arguments: with } => {
            assert_eq!((got, with), (name, arguments), "{words}")
        }
        DemoAction::Text(text) => panic!("{words}: {text}"),
    }
}

#[test]
fn introduces_itself_once() {
    let first = reply(&[user("hello")], |_| true);
    assert!(
        matches!(&first, DemoAction::Text(text) if text.contains("demo model") && text.contains("Hello")),
        "{first:?}"
    );
    assert!(matches!(reply_to(&["hello"]), DemoAction::Text(text) if !text.contains("demo model")));
}

#[test]
fn knows_its_script() {
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
        check_text(&[words], part);
    }
}

#[test]
fn bounds_counting() {
    check_text(&["count to 999999999"], "499, 500. Done!");
}

#[test]
fn remembers_within_the_conversation() {
    check_text(&["my name is Ada Lovelace"], "Nice to meet you, Ada Lovelace");
    check_text(&["my name is Ada", "hi", "what is my name?"], "Your name is Ada.");
    check_text(&["what's my name?"], "not told me");
    check_text(&["remember that the door code is 7", "what do you remember?"], "the door code is 7");
}

#[test]
fn calls_tools_on_request() {
    check_call("what time is it?", "clock", json!({}));
    check_call("read file notes.txt", "read_file", json!({"path": "notes.txt"}));
    check_call("please show me the file `a/b`", "read_file", json!({"path": "a/b"}));
    check_call(
        "write a file notes.txt with buy milk",
        "write_file",
        json!({"path": "notes.txt", "content": "buy milk\n"}),
    );
    check_call(
        "save \"buy milk\" to notes.txt",
        "write_file",
        json!({"path": "notes.txt", "content": "buy milk\n"}),
    );
    check_call("search for milk (2)", "search_files", json!({"pattern": r"milk \(2\)"}));
    check_call("list files", "search_files", json!({"pattern": ".", "target": "files"}));
}

#[test]
fn reports_unavailable_tool() {
    let action = reply(&[user("what time is it")], |_| false);
    assert!(matches!(action, DemoAction::Text(text) if text.contains("not available")));
}

#[test]
fn describes_tool_results() {
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
        let action =
            reply(&[user("do it"), Message::tool_request("", vec![call], Millis(0)), result], |_| true);
        assert!(matches!(&action, DemoAction::Text(text) if text.contains(part)), "{name}: {action:?}");
    }
}

#[test]
fn every_script_entry_is_reachable() {
    for (phrases, text) in script::entries() {
        for phrase in phrases.split('|') {
            let found = script::find(&script::normalise(phrase));
            assert_eq!(found.as_deref(), Some(text.trim()), "{phrase}");
        }
        assert!(text.trim().len() > 10, "{phrases}");
    }
}
