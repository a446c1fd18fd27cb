//! User actions as `Update` objects: messages in private chats, groups and topics, and button presses.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

pub const BOT_ID: i64 = 7_000_000_001;
pub const BOT_USERNAME: &str = "petasos_fake_bot";

/// A message from a user. A negative chat id is a group, as on the real service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    chat: i64,
    user: i64,
    text: String,
    name: Option<String>,
    thread: Option<i64>,
    reply_to: Option<i64>,
    edits: Option<i64>,
    fields: Value,
}

impl Incoming {
    pub fn text(chat: i64, user: i64, text: impl Into<String>) -> Self {
        Self {
            chat,
            user,
            text: text.into(),
            name: None,
            thread: None,
            reply_to: None,
            edits: None,
            fields: Value::Null,
        }
    }

    /// A photo in two sizes; the larger one is this file.
    pub fn photo(chat: i64, user: i64, file_id: &str, size: usize, caption: &str) -> Self {
        let small =
            json!({"file_id": "thumb", "file_unique_id": "t", "width": 90, "height": 60, "file_size": 900});
        let large = json!({
            "file_id": file_id, "file_unique_id": "l", "width": 900, "height": 600, "file_size": size,
        });
        Self::text(chat, user, "").with(json!({"text": null, "caption": caption, "photo": [small, large]}))
    }

    /// Adds or replaces fields of the message; null removes one.
    #[must_use]
    pub fn with(mut self, fields: Value) -> Self {
        self.fields = fields;
        self
    }

    /// Posts it in a topic of a forum, which the chat then knows.
    #[must_use]
    pub fn topic(mut self, thread: i64) -> Self {
        self.thread = Some(thread);
        self
    }

    /// Makes it a reply to a message of the bot.
    #[must_use]
    pub fn reply_to(mut self, message: i64) -> Self {
        self.reply_to = Some(message);
        self
    }

    /// Sets the first name and username; by default they follow from the user id.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Makes it an edit of this message.
    #[must_use]
    pub fn edits(mut self, message: i64) -> Self {
        self.edits = Some(message);
        self
    }

    pub(crate) fn address(&self) -> (i64, Option<i64>) {
        (self.chat, self.thread)
    }

    pub(crate) fn edited_message(&self) -> Option<i64> {
        self.edits
    }

    /// The update without its id.
    pub(crate) fn update(&self, message_id: i64) -> Value {
        let mut chat = chat(self.chat);
        let mut message = json!({
            "message_id": message_id,
            "from": user(self.user, self.name.as_deref()),
            "date": unix_now(),
            "text": self.text,
        });
        if let Some(thread) = self.thread {
            chat["is_forum"] = true.into();
            message["message_thread_id"] = thread.into();
            message["is_topic_message"] = true.into();
        }
        message["chat"] = chat;
        if let Some(reply_to) = self.reply_to {
            message["reply_to_message"] = json!({
                "message_id": reply_to, "from": bot(), "chat": {"id": self.chat}, "date": unix_now(),
            });
        }
        let entities = entities(&self.text);
        if !entities.is_empty() {
            message["entities"] = entities.into();
        }
        for (name, value) in self.fields.as_object().into_iter().flatten() {
            message[name.as_str()] = value.clone();
        }
        message.as_object_mut().into_iter().for_each(|fields| fields.retain(|_, value| !value.is_null()));
        if self.edits.is_some() {
            message["edit_date"] = unix_now().into();
            return json!({"edited_message": message});
        }
        json!({"message": message})
    }
}

/// The update of a button press, without its id.
pub(crate) fn callback(id: &str, presser: i64, message: &Value, data: &str) -> Value {
    json!({"callback_query": {
        "id": id,
        "from": user(presser, None),
        "message": message,
        "chat_instance": "1",
        "data": data,
    }})
}

pub(crate) fn bot() -> Value {
    json!({"id": BOT_ID, "is_bot": true, "first_name": "Fake", "username": BOT_USERNAME})
}

pub(crate) fn chat(id: i64) -> Value {
    if id < 0 {
        return json!({"id": id, "type": "supergroup", "title": format!("Group {id}")});
    }
    json!({"id": id, "type": "private", "first_name": format!("User {id}"), "username": format!("user{id}")})
}

pub(crate) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn user(id: i64, name: Option<&str>) -> Value {
    let (first_name, username) = match name {
        Some(name) => (name.to_owned(), name.to_lowercase()),
        None => (format!("User {id}"), format!("user{id}")),
    };
    json!({"id": id, "is_bot": false, "first_name": first_name, "username": username, "language_code": "en"})
}

/// The entities of commands and mentions.
fn entities(text: &str) -> Vec<Value> {
    let mut found = Vec::new();
    let mut offset = 0;
    for word in text.split_inclusive(char::is_whitespace) {
        let name = word.trim_end();
        let kind = match name.as_bytes() {
            [b'/', b'a'..=b'z' | b'A'..=b'Z', ..] => Some("bot_command"),
            [b'@', b'a'..=b'z' | b'A'..=b'Z', ..] => Some("mention"),
            _ => None,
        };
        if let Some(kind) = kind {
            let tail = |next: char| !next.is_ascii_alphanumeric() && !matches!(next, '_' | '@');
            let length = name[1..].find(tail).map_or(name.len(), |end| end + 1);
            found.push(json!({"type": kind, "offset": offset, "length": length}));
        }
        offset += word.encode_utf16().count();
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Incoming, entities};

    #[test]
    fn finds_entities_of_commands_and_mentions() {
        assert!(entities("plain text, a/b").is_empty());
        assert_eq!(
            entities("😀 /stop@bot now, @ann!"),
            [
                json!({"type": "bot_command", "offset": 3, "length": 9}),
                json!({"type": "mention", "offset": 18, "length": 4}),
            ]
        );
    }

    #[test]
    fn topic_message_names_its_thread_and_chat() {
        let update = Incoming::text(-5, 2, "hi").topic(9).reply_to(3).update(4);
        let message = &update["message"];
        assert_eq!(message["message_thread_id"], 9);
        assert_eq!(message["chat"]["is_forum"], true);
        assert_eq!(message["chat"]["type"], "supergroup");
        assert_eq!(message["reply_to_message"]["message_id"], 3);
    }
}
