//! Everything the fake knows: chats, the update queue, the rules and the record of calls.
//!
//! One lock guards it (`Shared` in the parent module); a test looks at it through `wait_until`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;

use super::chat::{Chat, Draft, Message};
use super::incoming::{self, Incoming};
use super::params::Params;
use super::updates::Updates;
use super::webhook::{Post, Webhook};
use crate::files::Stored;
use crate::keep::{Keep, Log};
use crate::road::Record;

/// One request, in order of arrival.
#[derive(Debug, Clone)]
pub struct Call {
    pub number: u64,
    /// In the documented spelling, however it was sent.
    pub method: String,
    pub params: Arc<Params>,
    pub at: Instant,
    /// It had its effect, whatever the caller was told.
    pub applied: bool,
    pub outcome: Outcome,
}

impl Call {
    #[must_use]
    pub fn chat(&self) -> Option<i64> {
        self.params.int("chat_id")
    }

    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.params.str("text")
    }
}

/// What the caller was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Not answered yet.
    Pending,
    Ok,
    Refused {
        code: u16,
        description: String,
    },
    /// The connection was reset by a fault.
    Reset,
    /// Rubbish, or half an answer.
    Garbled,
    /// The caller hung up first.
    Abandoned,
}

/// What a user has just seen happen.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    Sent(Message),
    Edited(Message),
    Deleted { chat: i64, id: i64 },
    Drafted { chat: i64, draft: Draft },
    Typing { chat: i64 },
    Reacted { chat: i64, id: i64, emoji: Vec<String> },
}

#[derive(Debug, Default)]
pub struct World {
    pub(crate) chats: HashMap<i64, Chat>,
    pub(crate) updates: Updates,
    pub(crate) calls: Log<Call>,
    pub(crate) keep: Option<Keep>,
    pub(crate) files: HashMap<String, Stored>,
    pub(crate) callbacks: HashSet<String>,
    pub(crate) commands: Value,
    /// `None`: any token will do.
    pub(crate) token: Option<String>,
    pub(crate) sent: u64,
    pub(crate) webhook: Option<Webhook>,
    pub(crate) posts: Vec<Post>,
}

impl World {
    /// The bot's messages in a chat as the user sees them now, oldest first.
    #[must_use]
    pub fn visible(&self, chat: i64) -> Vec<Message> {
        self.messages(chat).cloned().collect()
    }

    /// The same without copying.
    pub fn messages(&self, chat: i64) -> impl DoubleEndedIterator<Item = &Message> {
        self.chats.get(&chat).into_iter().flat_map(Chat::visible)
    }

    #[must_use]
    pub fn texts(&self, chat: i64) -> Vec<String> {
        self.messages(chat).map(|message| message.text.clone()).collect()
    }

    #[must_use]
    pub fn last(&self, chat: i64) -> Option<&Message> {
        self.messages(chat).next_back()
    }

    #[must_use]
    pub fn draft(&self, chat: i64) -> Option<&Draft> {
        self.chats.get(&chat)?.draft.as_ref()
    }

    #[must_use]
    pub fn reactions(&self, chat: i64, message: i64) -> Vec<String> {
        let chat = self.chats.get(&chat);
        chat.and_then(|chat| chat.reactions.get(&message)).cloned().unwrap_or_default()
    }

    pub fn calls(&self) -> impl DoubleEndedIterator<Item = &Call> {
        self.calls.iter()
    }

    pub fn calls_of(&self, method: &str) -> impl DoubleEndedIterator<Item = &Call> {
        self.calls.iter().filter(move |call| call.method.eq_ignore_ascii_case(method))
    }

    /// Calls ever received, recorded or not.
    #[must_use]
    pub fn call_count(&self) -> u64 {
        self.calls.next()
    }

    /// Messages ever made visible, recorded or not.
    #[must_use]
    pub fn sent_count(&self) -> u64 {
        self.sent
    }

    #[must_use]
    pub fn pending_updates(&self) -> usize {
        self.updates.pending()
    }

    /// The highest offset a poll has named: everything below it is confirmed.
    #[must_use]
    pub fn confirmed_offset(&self) -> Option<i64> {
        self.updates.confirmed()
    }

    /// Where the webhook points; `None`: there is none.
    #[must_use]
    pub fn webhook_url(&self) -> Option<&str> {
        self.webhook.as_ref().map(|webhook| webhook.url.as_str())
    }

    /// Every try to deliver an update to a webhook that is over, oldest first.
    #[must_use]
    pub fn posts(&self) -> &[Post] {
        &self.posts
    }

    /// What `setMyCommands` last set; null before.
    #[must_use]
    pub fn commands(&self) -> &Value {
        &self.commands
    }

    pub(crate) fn chat_mut(&mut self, chat: i64) -> &mut Chat {
        self.chats.entry(chat).or_default()
    }

    pub(crate) fn arrive(&mut self, method: &str, params: &Arc<Params>) -> u64 {
        let number = self.calls.next();
        self.calls.push(Call {
            number,
            method: method.to_owned(),
            params: params.clone(),
            at: crate::now(),
            applied: false,
            outcome: Outcome::Pending,
        });
        number
    }

    pub(crate) fn push(&mut self, incoming: &Incoming) -> Pushed {
        let (chat, thread) = incoming.place();
        let board = self.chat_mut(chat);
        if let Some(thread) = thread {
            board.add_topic(thread);
        }
        let message_id = incoming.edited_message().unwrap_or_else(|| board.next_id());
        board.used_id(message_id);
        Pushed { update_id: self.updates.push(incoming.update(message_id)), message_id }
    }

    pub(crate) fn push_callback(&mut self, chat: i64, user: i64, message: i64, data: &str) -> i64 {
        let pressed = self.messages(chat).find(|seen| seen.id == message).map(Message::wire);
        let pressed = pressed.unwrap_or_else(
            || serde_json::json!({"message_id": message, "chat": incoming::chat(chat), "date": 0}),
        );
        let id = format!("cb{}", self.callbacks.len() + 1);
        let update = incoming::callback(&id, user, &pressed, data);
        self.callbacks.insert(id);
        self.updates.push(update)
    }

    /// A raw update. Numbers it names count as used, so that replies to them are accepted.
    pub(crate) fn push_update(&mut self, update: Value) -> i64 {
        for kind in ["message", "edited_message", "channel_post"] {
            let message = &update[kind];
            if let (Some(chat), Some(id)) = (message["chat"]["id"].as_i64(), message["message_id"].as_i64()) {
                self.chat_mut(chat).used_id(id);
            }
        }
        if let Some(id) = update["callback_query"]["id"].as_str() {
            self.callbacks.insert(id.to_owned());
        }
        self.updates.push(update)
    }

    pub(crate) fn clear(&mut self) {
        self.calls.clear();
        self.posts.clear();
        self.chats.values_mut().for_each(Chat::clear);
    }
}

impl Record for World {
    type Outcome = Outcome;
    const ABANDONED: Outcome = Outcome::Abandoned;

    fn entry(&mut self, number: u64) -> Option<(&mut bool, &mut Outcome)> {
        self.calls.get_mut(number).map(|call| (&mut call.applied, &mut call.outcome))
    }
}

/// The numbers a pushed message got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pushed {
    pub update_id: i64,
    pub message_id: i64,
}
