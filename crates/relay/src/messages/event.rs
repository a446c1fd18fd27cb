//! Inbound messages on the wire and their conversion.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::{Value, json};

use super::context;
use crate::wire::field;
use crate::wire::field::Object;
use crate::wire::frame::Malformed;
use petasos_core::Millis;
use petasos_core::message::{Attachment, ChatType, Inbound, Platform, Source};

#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub text: String,
    /// `text`, `photo`, `voice`, `command`, …
    pub kind: String,
    pub message_id: Option<String>,
    /// The connector's id of this event; several may concern one message. Extension; other implementations ignore it.
    pub event_id: Option<String>,
    /// Send time in milliseconds. Extension, as above.
    pub sent_at: Option<Millis>,
    /// An edit of the message: a separate event.
    pub is_edit: bool,
    pub quoted: Option<String>,
    pub files: Vec<Attachment>,
    /// Oldest first.
    pub context: Vec<Value>,
    pub prompt_response: Option<PromptResponse>,
    pub source: Source,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptResponse {
    pub prompt_id: String,
    pub option_id: String,
}

const KINDS: [&str; 9] =
    ["text", "location", "photo", "video", "audio", "voice", "document", "sticker", "command"];
/// Files, and context messages, of an event.
const MOST: usize = 50;
const LONGEST_ID: usize = 256;

impl Event {
    pub fn read(value: &Value) -> Result<Self, Malformed> {
        let event = value.as_object().ok_or(Malformed::NotAnObject)?;
        let from = field::object(event, "source").ok_or(Malformed::Field("source"))?;
        let source = source(from);
        let kind = kind(field::given(event, "message_type"));
        let quote = field::object(event, "reply_to").and_then(|quote| field::given(quote, "text"));
        let choice = field::object(event, "prompt_response").and_then(|choice| {
            let (prompt_id, option_id) =
                (field::given(choice, "prompt_id")?, field::given(choice, "option_id")?);
            Some(PromptResponse { prompt_id, option_id })
        });
        let context = field::list(event, "context");
        Ok(Self {
            text: field::text(event, "text").unwrap_or_default(),
            message_id: field::given(event, "message_id").or_else(|| source.message_id.clone()),
            event_id: field::given(event, "event_id").filter(|id| id.len() <= LONGEST_ID),
            sent_at: event.get("sent_at_ms").and_then(Value::as_u64).map(Millis),
            is_edit: field::truth(from, "message_is_edit") || field::truth(event, "message_is_edit"),
            quoted: quote,
            files: files(event, &kind),
            context: context[context.len().saturating_sub(MOST)..].to_vec(),
            prompt_response: choice,
            kind,
            source,
        })
    }

    /// The deduplication key: the connector's event id, else the message id, else buffer id and content, because a
    /// connector may restart its numbering. `None`: no key. `digest`: of the raw event.
    pub fn identity(&self, buffer: Option<&str>, digest: impl FnOnce() -> String) -> Option<String> {
        let chat = self.source.chat_id.as_deref().unwrap_or_default();
        if let Some(event) = &self.event_id {
            return Some(format!("{chat}:event:{event}"));
        }
        match (&self.message_id, buffer) {
            (Some(message), _) if !self.is_edit => Some(format!("{chat}:{message}")),
            (Some(_) | None, Some(buffer)) => Some(format!("buffer:{buffer}:{}", digest())),
            (Some(_) | None, None) => None,
        }
    }

    /// `with_context`: the platform's descriptor supports context.
    pub fn inbound(self, dedup: String, with_context: bool) -> Inbound {
        let neighbours = with_context && self.source.chat_type != ChatType::Dm;
        let chosen = self.prompt_response.map(|choice| choice.option_id).filter(|_| self.text.is_empty());
        let mut source = self.source;
        source.message_id = self.message_id;
        Inbound {
            source,
            dedup,
            text: chosen.unwrap_or(self.text),
            attachments: self.files,
            quoted: self.quoted,
            context: neighbours.then(|| context::render(&self.context)).flatten(),
            sent_at: self.sent_at,
            internal: false,
            reply_route: None,
            fingerprints: Vec::new(),
        }
    }

    /// Encodes an event for the wire. `url` returns download addresses of files; other attachments become text, which
    /// every gateway can read.
    pub fn to_value(inbound: &Inbound, url: impl Fn(&Attachment) -> Option<String>) -> Value {
        let files: Vec<_> = inbound.attachments.iter().filter_map(|file| Some((url(file)?, file))).collect();
        let media: Vec<_> = files.iter().map(|(url, file)| media_value(url, file)).collect();
        let urls: Vec<_> = files.iter().map(|(url, _)| url).collect();
        let kind = match inbound.attachments.first() {
            Some(file) => kind(Some(file.kind.clone())),
            None if inbound.text.starts_with('/') => "command".to_owned(),
            None => "text".to_owned(),
        };
        let source = serde_json::to_value(&inbound.source).unwrap_or_default();
        let mut event = json!({
            "text": words(inbound),
            "message_type": kind,
            "message_id": inbound.source.message_id,
            "event_id": inbound.dedup,
            "sent_at_ms": inbound.sent_at,
            "media_urls": urls,
            "media": media,
            "source": source,
        });
        if let Some(quoted) = &inbound.quoted {
            event["reply_to"] = json!({ "text": quoted });
        }
        event
    }
}

fn words(inbound: &Inbound) -> String {
    let mut text = inbound.text.clone();
    for it in inbound.attachments.iter().filter(|it| !it.is_file()) {
        let line = if text.is_empty() { "" } else { "\n" };
        text.push_str(&format!("{line}[{}: {}]", it.kind, it.reference));
    }
    text
}

fn media_value(url: &str, file: &Attachment) -> Value {
    json!({"url": url, "kind": file.kind, "mime": file.mime, "size": file.size, "filename": file.name})
}

fn kind(name: Option<String>) -> String {
    let name = name.unwrap_or_default();
    match name.as_str() {
        "image" => "photo".to_owned(),
        known if KINDS.contains(&known) => name,
        _unknown => "text".to_owned(),
    }
}

fn source(from: &Object) -> Source {
    let platform = field::given(from, "platform").and_then(|name| Platform::parse(&name));
    let chat_type = match field::given(from, "chat_type").as_deref() {
        None | Some("dm") => ChatType::Dm,
        Some("channel") => ChatType::Channel,
        Some("thread") => ChatType::Thread,
        Some("forum") => ChatType::Forum,
        // An unknown kind has several members.
        Some(_group) => ChatType::Group,
    };
    let named = |names: &[&str]| names.iter().find_map(|name| field::given(from, name));
    let given = |name| field::given(from, name);
    Source {
        chat_name: given("chat_name"),
        user_id: given("user_id"),
        user_name: named(&["user_display_name", "user_name", "user_handle"]),
        thread_id: given("thread_id"),
        chat_topic: given("chat_topic"),
        user_id_alt: given("user_id_alt"),
        chat_id_alt: given("chat_id_alt"),
        scope_id: given("scope_id"),
        parent_chat_id: given("parent_chat_id"),
        message_id: given("message_id"),
        profile: given("profile"),
        is_bot: field::truth(from, "is_bot"),
        ..Source::new(
            platform.unwrap_or_else(Platform::relay),
            chat_type,
            field::text(from, "chat_id").unwrap_or_default(),
        )
    }
}

/// Looks up `media` metadata by address, not by position.
fn files(event: &Object, kind: &str) -> Vec<Attachment> {
    let about: Vec<_> = field::list(event, "media").iter().filter_map(Value::as_object).collect();
    let mut urls: Vec<String> = Vec::new();
    let named = field::list(event, "media_urls").iter().filter_map(Value::as_str).map(ToString::to_string);
    for url in named.chain(about.iter().filter_map(|file| field::given(file, "url"))) {
        if !url.is_empty() && !urls.contains(&url) && urls.len() < MOST {
            urls.push(url);
        }
    }
    urls.into_iter()
        .map(|url| {
            let file = about.iter().find(|file| field::given(file, "url").as_ref() == Some(&url));
            let text = |name| file.and_then(|file| field::given(file, name));
            let word = text("kind").map_or_else(|| kind.to_owned(), |word| self::kind(Some(word)));
            Attachment {
                // These kinds are no files, whatever the message type says.
                kind: if matches!(word.as_str(), "text" | "command" | "location") {
                    "document".into()
                } else {
                    word
                },
                name: text("filename"),
                mime: text("mime"),
                size: file.and_then(|file| file.get("size")).and_then(Value::as_u64),
                reference: url,
                ..Attachment::default()
            }
        })
        .collect()
}

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;
