//! A fake Telegram: the Bot API over HTTP, and a user's view of each chat.
//!
//! The state survives `down` and `up`, and restarts of the bot.

mod chat;
mod error;
mod fault;
mod http;
mod incoming;
mod markdown;
mod methods;
mod params;
mod state;
mod updates;
mod webhook;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use serde_json::Value;

pub use chat::{MessageDraft, TelegramMessage};
pub use error::ServiceError;
pub use fault::{Fault, UpdateFault};
pub use incoming::{BOT_ID, BOT_USERNAME, Incoming};
pub use markdown::{Entity, EntityKind, Formatted};
pub use params::Params;
pub use state::{ApiCall, Outcome, Pushed, State, VisibleChange};
pub use webhook::WebhookPost;

pub use crate::faults::rules::Side;

use crate::server::fake::{Fake, FakeService, FileHost};
use crate::server::files::StoredFile;
use crate::server::log::Retention;

/// A fake Telegram; its requests go to `url()` + `/bot<token>/<method>`.
pub type Telegram = Fake<BotApi>;

type Shared = crate::server::fake::Shared<BotApi>;

#[derive(Debug)]
pub struct BotApi;

impl FakeService for BotApi {
    type State = State;
    type Fault = Fault;
    type ChatId = i64;
    type Change = VisibleChange;

    fn router(shared: Arc<Shared>) -> Router {
        Router::new().fallback(http::serve).with_state(shared)
    }

    fn init(telegram: &mut Telegram) {
        let deliveries = webhook::deliver(telegram.shared.clone());
        telegram.tasks.spawn_on(deliveries, telegram.server.runtime());
    }
}

/// A file's name is its `file_id`.
impl FileHost for BotApi {
    const DOWNLOADS: &'static str = "/file/bot/";

    fn files(state: &mut State) -> &mut HashMap<String, StoredFile> {
        &mut state.files
    }
}

impl Telegram {
    /// Refuses other tokens from now on, with 401 or 404 as the real service does.
    pub fn expect_token(&self, token: impl Into<String>) {
        let token = token.into();
        self.shared.state.change(|state| state.token = Some(token));
    }

    /// A user sends a message. Returns the id of the update.
    pub fn push_text(&self, chat: i64, user: i64, text: impl Into<String>) -> i64 {
        self.push(Incoming::text(chat, user, text)).update_id
    }

    /// A user sends a message in a topic of a forum. Returns the id of the update.
    pub fn push_topic(&self, chat: i64, thread: i64, user: i64, text: impl Into<String>) -> i64 {
        self.push(Incoming::text(chat, user, text).topic(thread)).update_id
    }

    pub fn push(&self, incoming: Incoming) -> Pushed {
        self.shared.update(|state| state.push(&incoming))
    }

    /// Pushes all messages at once, so that one poll gets as many as fit.
    pub fn push_many(&self, incoming: impl IntoIterator<Item = Incoming>) -> Vec<Pushed> {
        let incoming: Vec<Incoming> = incoming.into_iter().collect();
        self.shared.update(|state| incoming.iter().map(|one| state.push(one)).collect())
    }

    /// A user presses a button of a message. Returns the id of the update.
    pub fn push_callback(&self, chat: i64, user: i64, message: i64, data: &str) -> i64 {
        self.shared.update(|state| state.push_callback(chat, user, message, data))
    }

    /// Pushes any JSON as an update; an object without `update_id` gets one.
    pub fn push_update(&self, update: Value) -> i64 {
        self.shared.update(|state| state.push_update(update))
    }

    /// Sets the whole body of the next response to `getUpdates`, JSON or not.
    pub fn push_raw_response(&self, body: impl Into<Bytes>) {
        let body = body.into();
        self.shared.update(|state| state.updates.push_raw(body));
    }

    /// Points the webhook elsewhere, without a secret, as another user of the token could.
    pub fn redirect_webhook(&self, url: impl Into<String>) {
        let elsewhere = webhook::Webhook::at(url.into());
        self.shared.update(|state| state.webhook = Some(elsewhere));
    }

    pub fn add_topic(&self, chat: i64, thread: i64) {
        self.shared.state.change(|state| state.chat_mut(chat).add_topic(thread));
    }

    pub fn remove_topic(&self, chat: i64, thread: i64) {
        self.shared.state.change(|state| state.chat_mut(chat).remove_topic(thread));
    }

    /// The bot's messages as the user sees them, oldest first.
    #[must_use]
    pub fn visible(&self, chat: i64) -> Vec<TelegramMessage> {
        self.read(|state| state.visible(chat))
    }

    #[must_use]
    pub fn reactions(&self, chat: i64, message: i64) -> Vec<String> {
        self.read(|state| state.reactions(chat, message))
    }

    #[must_use]
    pub fn texts(&self, chat: i64) -> Vec<String> {
        self.read(|state| state.texts(chat))
    }

    #[must_use]
    pub fn calls(&self) -> Vec<ApiCall> {
        self.read(|state| state.calls().cloned().collect())
    }

    #[must_use]
    pub fn calls_of(&self, method: &str) -> Vec<ApiCall> {
        self.read(|state| state.calls_of(method).cloned().collect())
    }

    #[must_use]
    pub fn pending_updates(&self) -> usize {
        self.read(State::pending_updates)
    }

    #[must_use]
    pub fn confirmed_offset(&self) -> Option<i64> {
        self.read(State::confirmed_offset)
    }

    /// Waits until the user sees exactly these texts.
    #[must_use]
    pub fn wait_texts(&self, chat: i64, want: &[&str], timeout: Duration) -> bool {
        let same = |state: &State| state.messages(chat).map(|it| it.text.as_str()).eq(want.iter().copied());
        self.wait_until(timeout, |state| same(state).then_some(())).is_some()
    }

    /// Sets how many calls, and messages per chat, are kept; by default all. The newest message of each chat
    /// always stays.
    pub fn set_retention(&self, retention: Retention) {
        self.shared.state.change(|state| {
            state.retention = Some(retention);
            state.calls.set_retention(retention);
        });
    }

    /// Drops calls and messages, but not ids, pending updates or rules.
    pub fn clear(&self) {
        self.shared.state.change(State::clear);
    }
}
