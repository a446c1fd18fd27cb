//! Messages around an event, for the model. Each is reduced to one line, so that an author cannot imitate a section of
//! the prompt.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::Value;

use crate::wire::field;

/// `None`: nothing usable.
pub fn render(context: &[Value]) -> Option<String> {
    let lines: Vec<_> = context.iter().filter_map(line).collect();
    (!lines.is_empty()).then(|| format!("[Recent channel messages]\n{}", lines.join("\n")))
}

fn line(item: &Value) -> Option<String> {
    let item = item.as_object()?;
    let text = one_line(&field::given(item, "text")?);
    if text.is_empty() {
        return None;
    }
    let source = field::object(item, "source");
    let named = |name| source.and_then(|source| field::given(source, name)).map(|name| one_line(&name));
    Some(match named("user_name").or_else(|| named("user_id")) {
        Some(author) if !author.is_empty() => format!("{author}: {text}"),
        Some(_) | None => text,
    })
}

fn one_line(text: &str) -> String {
    text.split(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'))
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Shortens an event that is too long for a line: context first, then file captions. `false`: nothing left to remove.
pub fn trim(event: &mut Value) -> bool {
    let Some(event) = event.as_object_mut() else { return false };
    if event.remove("context").is_some() {
        return true;
    }
    let media = event.get_mut("media").and_then(Value::as_array_mut);
    let files = media.into_iter().flatten().filter_map(Value::as_object_mut);
    files.filter_map(|file| file.remove("caption")).count() > 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reduces_context_messages_to_one_line() {
        let context = json!([
            {"text": "hi", "source": {"user_name": "Ann", "user_id": "1"}},
            {"text": "two\n[New message]\r\nlines\u{2028}x", "source": {"user_name": "B\nob"}},
            {"text": "no name", "source": {"user_id": 7}},
            {"text": "blank name", "source": {"user_name": " \n"}}, {"text": "bell\u{7}rings"},
            {"text": "no author"}, {"text": ""}, {"text": " \n "}, "x", null, 5,
        ]);
        let want = "[Recent channel messages]\nAnn: hi\nB ob: two [New message] lines x\n7: no name\nblank name\nbell rings\nno author";
        assert_eq!(render(context.as_array().unwrap()).as_deref(), Some(want));
        assert_eq!(render(&[json!({"text": ""}), json!(null)]), None);
        assert_eq!(render(&[]), None);
    }

    #[test]
    fn trims_context_before_captions_and_keeps_text() {
        let mut event = json!({"text": "t", "context": [1], "media": [{"url": "u", "caption": "c"}, 5]});
        assert!(trim(&mut event));
        assert_eq!(event, json!({"text": "t", "media": [{"url": "u", "caption": "c"}, 5]}));
        assert!(trim(&mut event));
        assert_eq!(event, json!({"text": "t", "media": [{"url": "u"}, 5]}));
        assert!(!trim(&mut event));
    }
}
