//! The state of the fake: chats, the update queue and the recorded calls.
//!
//! One lock guards it; tests read it through the handle.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;

use super::chat::{ChatState, MessageDraft, TelegramMessage};
use super::error::ServiceError;
use super::incoming::{self, Incoming};
use super::params::Params;
use super::updates::Updates;
use super::webhook::{Webhook, WebhookPost};
use crate::faults::pipeline::{CallOutcome, CallRecord};
use crate::server::files::StoredFile;
use crate::server::log::{Log, Retention};

/// One request, in order of arrival.
#[derive(Debug, Clone)]
pub struct ApiCall {
    pub number: u64,
    /// In the documented spelling.
    pub method: String,
    pub params: Arc<Params>,
    pub at: Instant,
    /// It had its effect, whatever the response.
    pub applied: bool,
    pub outcome: Outcome,
}

impl ApiCall {
    #[must_use]
    pub fn chat(&self) -> Option<i64> {
        self.params.int("chat_id")
    }

    #[must_use]
    pub fn text(&self) -> Option<&str> {
        self.params.str("text")
    }
}

pub type Outcome = CallOutcome<ServiceError>;

/// A change that a user sees.
#[derive(Debug, Clone, PartialEq)]
pub enum VisibleChange {
    Sent(TelegramMessage),
    Edited(TelegramMessage),
    Deleted { chat: i64, id: i64 },
    Drafted { chat: i64, draft: MessageDraft },
    Typing { chat: i64 },
    Reacted { chat: i64, id: i64, emoji: Vec<String> },
}

#[derive(Debug, Default)]
pub struct State {
    pub(crate) chats: HashMap<i64, ChatState>,
    pub(crate) updates: Updates,
    pub(crate) calls: Log<ApiCall>,
    pub(crate) retention: Option<Retention>,
    pub(crate) files: HashMap<String, StoredFile>,
    pub(crate) callbacks: HashSet<String>,
    pub(crate) commands: Value,
    /// `None` accepts any token.
    pub(crate) token: Option<String>,
    pub(crate) sent: u64,
    pub(crate) webhook: Option<Webhook>,
    pub(crate) posts: Vec<WebhookPost>,
}

impl State {
    /// The bot's messages in a chat as the user sees them now, oldest first.
    #[must_use]
    pub fn visible(&self, chat: i64) -> Vec<TelegramMessage> {
        self.messages(chat).cloned().collect()
    }

    pub fn messages(&self, chat: i64) -> impl DoubleEndedIterator<Item = &TelegramMessage> {
        self.chats.get(&chat).into_iter().flat_map(ChatState::visible)
    }

    #[must_use]
    pub fn texts(&self, chat: i64) -> Vec<String> {
        self.messages(chat).map(|message| message.text.clone()).collect()
    }

    #[must_use]
    pub fn last(&self, chat: i64) -> Option<&TelegramMessage> {
        self.messages(chat).next_back()
    }

    #[must_use]
    pub fn draft(&self, chat: i64) -> Option<&MessageDraft> {
        self.chats.get(&chat)?.draft.as_ref()
    }

    #[must_use]
    pub fn reactions(&self, chat: i64, message: i64) -> Vec<String> {
        let chat = self.chats.get(&chat);
        chat.and_then(|chat| chat.reactions.get(&message)).cloned().unwrap_or_default()
    }

    pub fn calls(&self) -> impl DoubleEndedIterator<Item = &ApiCall> {
        self.calls.iter()
    }

    pub fn calls_of(&self, method: &str) -> impl DoubleEndedIterator<Item = &ApiCall> {
        self.calls.iter().filter(move |call| call.method.eq_ignore_ascii_case(method))
    }

    /// Calls ever received, still on record or not.
    #[must_use]
    pub fn call_count(&self) -> u64 {
        self.calls.next()
    }

    /// Messages ever sent, still on record or not.
    #[must_use]
    pub fn sent_count(&self) -> u64 {
        self.sent
    }

    #[must_use]
    pub fn pending_updates(&self) -> usize {
        self.updates.pending()
    }

    /// The highest offset of a poll; it confirms all lower updates.
    #[must_use]
    pub fn confirmed_offset(&self) -> Option<i64> {
        self.updates.confirmed()
    }

    /// The address of the webhook, if one is set.
    #[must_use]
    pub fn webhook_url(&self) -> Option<&str> {
        self.webhook.as_ref().map(|webhook| webhook.url.as_str())
    }

    /// Finished attempts to deliver an update to a webhook, oldest first.
    #[must_use]
    pub fn posts(&self) -> &[WebhookPost] {
        &self.posts
    }

    /// The commands of the last `setMyCommands`, or null.
    #[must_use]
    pub fn commands(&self) -> &Value {
        &self.commands
    }

    pub(crate) fn chat_mut(&mut self, chat: i64) -> &mut ChatState {
        self.chats.entry(chat).or_default()
    }

    pub(crate) fn record_call(&mut self, method: &str, params: &Arc<Params>) -> u64 {
        let number = self.calls.next();
        self.calls.push(ApiCall {
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
        let (chat, thread) = incoming.address();
        let target = self.chat_mut(chat);
        if let Some(thread) = thread {
            target.add_topic(thread);
        }
        let message_id = incoming.edited_message().unwrap_or_else(|| target.next_id());
        target.reserve_id(message_id);
        Pushed { update_id: self.updates.push(incoming.update(message_id)), message_id }
    }

    pub(crate) fn push_callback(&mut self, chat: i64, user: i64, message: i64, data: &str) -> i64 {
        let message_json =
            self.messages(chat).find(|known| known.id == message).map(TelegramMessage::to_json);
        let message_json = message_json.unwrap_or_else(
            || serde_json::json!({"message_id": message, "chat": incoming::chat(chat), "date": 0}),
        );
        let id = format!("cb{}", self.callbacks.len() + 1);
        let update = incoming::callback(&id, user, &message_json, data);
        self.callbacks.insert(id);
        self.updates.push(update)
    }

    /// Pushes a raw update. Its message ids count as used, so that replies to them are accepted.
    pub(crate) fn push_update(&mut self, update: Value) -> i64 {
        for kind in ["message", "edited_message", "channel_post"] {
            let message = &update[kind];
            if let (Some(chat), Some(id)) = (message["chat"]["id"].as_i64(), message["message_id"].as_i64()) {
                self.chat_mut(chat).reserve_id(id);
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
        self.chats.values_mut().for_each(ChatState::clear);
    }
}

impl CallRecord for State {
    type Error = ServiceError;

    fn entry(&mut self, number: u64) -> Option<(&mut bool, &mut Outcome)> {
        self.calls.get_mut(number).map(|call| (&mut call.applied, &mut call.outcome))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pushed {
    pub update_id: i64,
    pub message_id: i64,
}
