//! One chat as its user sees it: the bot's messages after all edits and deletions.
//!
//! Message numbers grow by one per chat and are never used twice; the user's own messages take numbers
//! too, but are not kept.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::{Value, json};

use super::incoming::unix_now;
use super::markdown::Formatted;
use super::refusal::Refusal;
use crate::files::Upload;
use crate::keep::Keep;

/// A message of the bot, as it stands now.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub chat: i64,
    pub id: i64,
    /// What the user reads: marks of the parse mode are gone.
    pub text: String,
    /// What the bot sent.
    pub source: String,
    pub formatted: Formatted,
    pub parse_mode: Option<String>,
    pub thread: Option<i64>,
    pub reply_to: Option<i64>,
    pub reply_markup: Option<Value>,
    pub silent: bool,
    pub edits: u32,
    /// What it carries; the text is its caption.
    pub file: Option<Upload>,
}

impl Message {
    /// The `Message` object of the Bot API.
    pub(crate) fn wire(&self) -> Value {
        let mut wire = json!({
            "message_id": self.id,
            "from": super::incoming::bot(),
            "chat": super::incoming::chat(self.chat),
            "date": unix_now(),
            "text": self.text,
        });
        if let Some(thread) = self.thread {
            wire["message_thread_id"] = thread.into();
        }
        if let Some(reply_to) = self.reply_to {
            wire["reply_to_message"] = json!({"message_id": reply_to, "chat": {"id": self.chat}});
        }
        if let Some(markup) = &self.reply_markup {
            wire["reply_markup"] = markup.clone();
        }
        if self.edits > 0 {
            wire["edit_date"] = unix_now().into();
        }
        wire
    }

    fn shows_the_same(&self, other: &Formatted, markup: Option<&Value>) -> bool {
        self.formatted == *other && self.reply_markup.as_ref() == markup
    }
}

/// A streamed preview that is not a message yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    pub id: i64,
    pub text: String,
    pub thread: Option<i64>,
}

#[derive(Debug, Default)]
pub(crate) struct Chat {
    last_id: i64,
    messages: BTreeMap<i64, Message>,
    topics: BTreeSet<i64>,
    pub(crate) draft: Option<Draft>,
    pub(crate) reactions: HashMap<i64, Vec<String>>,
}

/// What a new message says; the chat adds the number.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) source: String,
    pub(crate) formatted: Formatted,
    pub(crate) parse_mode: Option<String>,
    pub(crate) reply_markup: Option<Value>,
    pub(crate) file: Option<Upload>,
}

/// Where a new message goes within its chat.
#[derive(Debug, Default)]
pub(crate) struct Place {
    pub(crate) thread: Option<i64>,
    pub(crate) reply_to: Option<i64>,
    pub(crate) silent: bool,
}

const NOT_MODIFIED: &str = "message is not modified: specified new message content and reply markup \
                            are exactly the same as a current content and reply markup of the message";

impl Chat {
    pub(crate) fn next_id(&mut self) -> i64 {
        self.last_id += 1;
        self.last_id
    }

    /// A number that a test chose itself.
    pub(crate) fn used_id(&mut self, id: i64) {
        self.last_id = self.last_id.max(id);
    }

    pub(crate) fn existed(&self, id: i64) -> bool {
        (1..=self.last_id).contains(&id)
    }

    pub(crate) fn add_topic(&mut self, thread: i64) {
        self.used_id(thread);
        self.topics.insert(thread);
    }

    pub(crate) fn remove_topic(&mut self, thread: i64) {
        self.topics.remove(&thread);
    }

    /// A chat without known topics takes any thread; the General topic must not be named.
    pub(crate) fn check_thread(&self, thread: Option<i64>) -> Result<(), Refusal> {
        let Some(thread) = thread else { return Ok(()) };
        let known = self.topics.contains(&thread) || (self.topics.is_empty() && thread != 1);
        if known { Ok(()) } else { Err(Refusal::bad("message thread not found")) }
    }

    pub(crate) fn send(&mut self, chat: i64, said: Said, place: Place, keep: Keep) -> Message {
        let Said { source, formatted, parse_mode, reply_markup, file } = said;
        let Place { thread, reply_to, silent } = place;
        let id = self.next_id();
        self.draft = None;
        let text = formatted.text.clone();
        let message = Message {
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
        self.forget(keep);
        message
    }

    pub(crate) fn edit(&mut self, id: i64, said: Said) -> Result<Message, Refusal> {
        let message = self.editable(id)?;
        if message.shows_the_same(&said.formatted, said.reply_markup.as_ref()) {
            return Err(Refusal::bad(NOT_MODIFIED));
        }
        message.text.clone_from(&said.formatted.text);
        message.source = said.source;
        message.formatted = said.formatted;
        message.parse_mode = said.parse_mode;
        message.reply_markup = said.reply_markup;
        message.edits += 1;
        Ok(message.clone())
    }

    pub(crate) fn edit_markup(&mut self, id: i64, markup: Option<Value>) -> Result<Message, Refusal> {
        let message = self.editable(id)?;
        if message.reply_markup == markup {
            return Err(Refusal::bad(NOT_MODIFIED));
        }
        message.reply_markup = markup;
        message.edits += 1;
        Ok(message.clone())
    }

    /// Users' messages can be deleted too; of those only the number is known.
    pub(crate) fn delete(&mut self, id: i64) -> Result<(), Refusal> {
        if self.messages.remove(&id).is_none() && !self.existed(id) {
            return Err(Refusal::bad("message to delete not found"));
        }
        Ok(())
    }

    pub(crate) fn visible(&self) -> impl DoubleEndedIterator<Item = &Message> {
        self.messages.values()
    }

    pub(crate) fn clear(&mut self) {
        self.messages.clear();
        self.reactions.clear();
        self.draft = None;
    }

    fn editable(&mut self, id: i64) -> Result<&mut Message, Refusal> {
        self.messages.get_mut(&id).ok_or_else(|| Refusal::bad("message to edit not found"))
    }

    /// The newest stays in any case: it may yet be edited.
    fn forget(&mut self, keep: Keep) {
        let most = match keep {
            Keep::All => return,
            Keep::Last(most) => most.max(1),
            Keep::Nothing => 1,
        };
        while self.messages.len() > most {
            self.messages.pop_first();
        }
    }
}
