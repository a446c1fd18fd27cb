//! One chat as its user sees it: the bot's messages after all edits and deletions.
//!
//! Message ids grow by one per chat and are never reused. The user's messages get ids too, but are not stored.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value, json};

use super::error::ServiceError;
use super::incoming::unix_now;
use super::markdown::Formatted;
use crate::server::files::Upload;
use crate::server::log::Retention;

#[derive(Debug, Clone, PartialEq)]
pub struct TelegramMessage {
    pub chat: i64,
    pub id: i64,
    /// The visible text, without the markup of the parse mode.
    pub text: String,
    /// The text as sent.
    pub source: String,
    pub formatted: Formatted,
    pub parse_mode: Option<String>,
    pub thread: Option<i64>,
    pub reply_to: Option<i64>,
    pub reply_markup: Option<Value>,
    pub silent: bool,
    pub edits: u32,
    /// The attached file; the text is its caption.
    pub file: Option<Upload>,
}

impl TelegramMessage {
    /// The `Message` object of the Bot API.
    pub(crate) fn to_json(&self) -> Value {
        let mut message = json!({
            "message_id": self.id,
            "from": super::incoming::bot(),
            "chat": super::incoming::chat(self.chat),
            "date": unix_now(),
            "text": self.text,
        });
        if let Some(thread) = self.thread {
            message["message_thread_id"] = thread.into();
        }
        if let Some(reply_to) = self.reply_to {
            message["reply_to_message"] = json!({"message_id": reply_to, "chat": {"id": self.chat}});
        }
        if let Some(markup) = &self.reply_markup {
            message["reply_markup"] = markup.clone();
        }
        if self.edits > 0 {
            message["edit_date"] = unix_now().into();
        }
        message
    }

    fn is_unchanged(&self, other: &Formatted, markup: Option<&Value>) -> bool {
        self.formatted == *other && self.reply_markup.as_ref() == markup
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageDraft {
    pub id: i64,
    pub text: String,
    pub thread: Option<i64>,
}

#[derive(Debug, Default)]
pub(crate) struct ChatState {
    last_id: i64,
    messages: BTreeMap<i64, TelegramMessage>,
    topics: BTreeSet<i64>,
    pub(crate) draft: Option<MessageDraft>,
    pub(crate) reactions: HashMap<i64, Vec<String>>,
}

/// The content of a new message, without its id.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) source: String,
    pub(crate) formatted: Formatted,
    pub(crate) parse_mode: Option<String>,
    pub(crate) reply_markup: Option<Value>,
    pub(crate) file: Option<Upload>,
}

#[derive(Debug, Default)]
pub(crate) struct SendOptions {
    pub(crate) thread: Option<i64>,
    pub(crate) reply_to: Option<i64>,
    pub(crate) silent: bool,
}

const NOT_MODIFIED: &str = "message is not modified: specified new message content and reply markup \
                            are exactly the same as a current content and reply markup of the message";

impl ChatState {
    pub(crate) fn next_id(&mut self) -> i64 {
        self.last_id += 1;
        self.last_id
    }

    /// Marks an id that a test chose as used.
    pub(crate) fn reserve_id(&mut self, id: i64) {
        self.last_id = self.last_id.max(id);
    }

    pub(crate) fn existed(&self, id: i64) -> bool {
        (1..=self.last_id).contains(&id)
    }

    pub(crate) fn add_topic(&mut self, thread: i64) {
        self.reserve_id(thread);
        self.topics.insert(thread);
    }

    pub(crate) fn remove_topic(&mut self, thread: i64) {
        self.topics.remove(&thread);
    }

    /// A chat without known topics accepts any thread except the General topic.
    pub(crate) fn check_thread(&self, thread: Option<i64>) -> Result<(), ServiceError> {
        let Some(thread) = thread else { return Ok(()) };
        let known = self.topics.contains(&thread) || (self.topics.is_empty() && thread != 1);
        if known { Ok(()) } else { Err(ServiceError::bad_request("message thread not found")) }
    }

    pub(crate) fn send(
        &mut self,
        chat: i64,
        content: Content,
        options: SendOptions,
        retention: Retention,
    ) -> TelegramMessage {
        let Content { source, formatted, parse_mode, reply_markup, file } = content;
        let SendOptions { thread, reply_to, silent } = options;
        let id = self.next_id();
        self.draft = None;
        let text = formatted.text.clone();
        let message = TelegramMessage {
            chat,
            id,
            text,
            source,
            formatted,
            parse_mode,
            thread,
            reply_to,
            reply_markup,
            silent,
            edits: 0,
            file,
        };
        self.messages.insert(id, message.clone());
        self.shrink(retention);
        message
    }

    pub(crate) fn edit(&mut self, id: i64, content: Content) -> Result<TelegramMessage, ServiceError> {
        let message = self.editable(id)?;
        if message.is_unchanged(&content.formatted, content.reply_markup.as_ref()) {
            return Err(ServiceError::bad_request(NOT_MODIFIED));
        }
        message.text.clone_from(&content.formatted.text);
        message.source = content.source;
        message.formatted = content.formatted;
        message.parse_mode = content.parse_mode;
        message.reply_markup = content.reply_markup;
        message.edits += 1;
        Ok(message.clone())
    }

    pub(crate) fn edit_markup(
        &mut self,
        id: i64,
        markup: Option<Value>,
    ) -> Result<TelegramMessage, ServiceError> {
        let message = self.editable(id)?;
        if message.reply_markup == markup {
            return Err(ServiceError::bad_request(NOT_MODIFIED));
        }
        message.reply_markup = markup;
        message.edits += 1;
        Ok(message.clone())
    }

    /// A user's message can be deleted too; only its id is known.
    pub(crate) fn delete(&mut self, id: i64) -> Result<(), ServiceError> {
        if self.messages.remove(&id).is_none() && !self.existed(id) {
            return Err(ServiceError::bad_request("message to delete not found"));
        }
        Ok(())
    }

    pub(crate) fn visible(&self) -> impl DoubleEndedIterator<Item = &TelegramMessage> {
        self.messages.values()
    }

    pub(crate) fn clear(&mut self) {
        self.messages.clear();
        self.reactions.clear();
        self.draft = None;
    }

    fn editable(&mut self, id: i64) -> Result<&mut TelegramMessage, ServiceError> {
        self.messages.get_mut(&id).ok_or_else(|| ServiceError::bad_request("message to edit not found"))
    }

    /// Always keeps the newest message, which may still be edited.
    fn shrink(&mut self, retention: Retention) {
        let most = match retention {
            Retention::All => return,
            Retention::Last(most) => most.max(1),
            Retention::Nothing => 1,
        };
        while self.messages.len() > most {
            self.messages.pop_first();
        }
    }
}
