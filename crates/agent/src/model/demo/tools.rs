//! Tool calls of the demo model, and its replies to their results.

use petasos_core::transcript::Message;
use serde_json::{Value, json};

use super::{DemoAction, captures, script};

pub(super) fn wanted(words: &str) -> Option<DemoAction> {
    let words = words.trim();
    let plain = script::normalise(words);
    write(words)
        .or_else(|| read(words))
        .or_else(|| list(&plain))
        .or_else(|| search(words))
        .or_else(|| clock(&plain))
}

fn write(words: &str) -> Option<DemoAction> {
    let direct = r"(?is)^(?:please |can you |could you )*(?:write|create|make|save)(?: me)?(?: a| the| to)?(?: new)?(?: file)?(?: called| named)? (\S*[./]\S*|\S+)(?: file)?,? (?:with|saying|containing|that says)(?: the)?(?: text| content| words)?:? (.+)$";
    let turned = r"(?is)^(?:please |can you |could you )*(?:write|save|put) (.+) (?:to|into|in|as)(?: a| the)?(?: file)?(?: called| named)? (\S+\.\S+)$";
    if let Some(found) = captures(turned, words) {
        return Some(write_call(&found[1], &found[0]));
    }
    let found = captures(direct, words).filter(|found| found[0].contains('.') || words.contains("file"))?;
    Some(write_call(&found[0], &found[1]))
}

fn write_call(path: &str, content: &str) -> DemoAction {
    let content = format!("{}\n", unquote(content));
    DemoAction::Call { name: "write_file", arguments: json!({"path": unquote(path), "content": content}) }
}

fn read(words: &str) -> Option<DemoAction> {
    let pattern = r"(?i)^(?:please |can you |could you )*(?:read|show|open|cat|print|display)(?: me)?(?: the| my)?( file)?(?: called| named)? (\S+)(?: file)?[?.!]?$";
    let found = captures(pattern, words)?;
    let path = unquote(found[1].trim_end_matches(['?', '!']));
    let named = !found[0].is_empty() || path.trim_end_matches('.').contains(['.', '/']);
    named.then(|| DemoAction::Call { name: "read_file", arguments: json!({ "path": path }) })
}

fn list(plain: &str) -> Option<DemoAction> {
    let phrases = [
        "list files",
        "list the files",
        "list my files",
        "what files",
        "which files",
        "show files",
        "show my files",
    ];
    phrases.iter().any(|phrase| plain.contains(phrase)).then(|| DemoAction::Call {
        name: "search_files",
        arguments: json!({"pattern": ".", "target": "files"}),
    })
}

fn search(words: &str) -> Option<DemoAction> {
    let pattern = r"(?i)^(?:please |can you |could you )*(?:search|look|grep|find)(?: in)?(?: the| my| all)?(?: files| workspace)?(?: for)? (.+?)(?: in (?:the |my )?files)?[?.!]?$";
    let found = captures(pattern, words)?;
    let sought = regex::escape(&unquote(&found[0]));
    Some(DemoAction::Call { name: "search_files", arguments: json!({ "pattern": sought }) })
}

fn clock(plain: &str) -> Option<DemoAction> {
    let phrases = [
        "what time",
        "the time",
        "time is it",
        "what day",
        "what date",
        "which day",
        "date today",
        "today s date",
        "current date",
        "what is the date",
    ];
    phrases
        .iter()
        .any(|phrase| plain.contains(phrase))
        .then(|| DemoAction::Call { name: "clock", arguments: json!({}) })
}

pub(super) fn report(results: &[&Message]) -> String {
    results.iter().map(|result| describe(result)).collect::<Vec<_>>().join("\n\n")
}

fn describe(result: &Message) -> String {
    let value: Value = serde_json::from_str(&result.content).unwrap_or(Value::Null);
    if let Some(error) = value["error"].as_str() {
        return format!("That did not work. The tool said: {error}");
    }
    match result.tool_name.as_deref().unwrap_or_default() {
        "clock" => format!(
            "It is {}, {} ({}).",
            text(&value["weekday"]),
            text(&value["time"]),
            text(&value["timezone"])
        ),
        "write_file" => {
            let path = text(&value["path"]);
            format!(
                "Done: `{path}` now holds {} bytes. Say `read file {path}` to see it.",
                value["bytes_written"]
            )
        }
        "read_file" => {
            let more =
                if value["truncated"] == true { "\n\nThere is more of it than I show here." } else { "" };
            format!("Here it is:\n\n```\n{}\n```{more}", lines(text(&value["content"])))
        }
        "search_files" => found(&value),
        _ => "The tool has answered, but I have no words for its result.".to_owned(),
    }
}

fn found(value: &Value) -> String {
    let entries = value["matches"].as_array().or_else(|| value["files"].as_array());
    let shown: Vec<String> = entries
        .into_iter()
        .flatten()
        .take(10)
        .map(|entry| match entry.as_str() {
            Some(path) => format!("- `{path}`"),
            None => {
                format!("- `{}` line {}: {}", text(&entry["path"]), entry["line"], text(&entry["content"]))
            }
        })
        .collect();
    match value["total_count"].as_u64().unwrap_or_default() {
        0 => "I found nothing. Try `write a file notes.txt with buy milk` first.".to_owned(),
        1 => format!("I found one:\n\n{}", shown.join("\n")),
        count => format!("I found {count}:\n\n{}", shown.join("\n")),
    }
}

/// The first lines of a file without line numbers.
fn lines(content: &str) -> String {
    let plain = |line: &str| line.split_once('|').map_or(line, |(_, text)| text).to_owned();
    content.lines().take(40).map(plain).collect::<Vec<_>>().join("\n")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn unquote(text: &str) -> String {
    text.trim().trim_matches(['"', '\'', '`', '“', '”', '„']).to_owned()
}
