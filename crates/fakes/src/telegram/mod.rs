//! A fake Telegram: the Bot API over HTTP, and what a user sees of it.
//!
//! State survives `down` and `up`, and any number of bots coming and going. Requests follow one road:
//! recorded on arrival, held or refused by the rules, applied under the lock, then answered, or not.

mod chat;
mod fault;
mod http;
mod incoming;
mod markdown;
mod methods;
mod params;
mod refusal;
mod updates;
mod webhook;
mod world;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

pub use chat::{Draft, Message};
pub use fault::{Fault, When};
pub use incoming::{BOT_ID, BOT_USERNAME, Incoming};
pub use markdown::{Entity, Formatted, Kind};
pub use params::Params;
pub use webhook::Post;
pub use world::{Call, Change, Outcome, Pushed, World};

pub use crate::rules::Side;

use crate::files::Stored;
use crate::gate::Gate;
use crate::keep::Keep;
use crate::server::Server;

/// The handle. Dropping it stops the service and resets its connections.
#[derive(Debug)]
pub struct Telegram {
    shared: Arc<Shared>,
    server: Server,
    /// Delivers to the webhook; dropped with us.
    _postman: JoinSet<()>,
}

type Shared = crate::shared::Shared<World, Change, Fault, i64>;

impl Telegram {
    /// On a free port.
    pub fn start() -> io::Result<Self> {
        Self::start_on(0)
    }

    pub fn start_on(port: u16) -> io::Result<Self> {
        Self::serve(|router| Server::start(port, router))
    }

    /// On a test's runtime, whose clock may stand still.
    pub fn start_in(runtime: &Handle) -> io::Result<Self> {
        Self::serve(|router| Server::start_in(runtime, router))
    }

    fn serve(start: impl FnOnce(Router) -> io::Result<Server>) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(World::default()));
        let router = Router::new().fallback(http::serve).with_state(shared.clone());
        let server = start(router)?;
        let mut postman = JoinSet::new();
        postman.spawn_on(webhook::deliver(shared.clone()), server.runtime());
        Ok(Self { shared, server, _postman: postman })
    }

    /// `http://127.0.0.1:PORT`, to be followed by `/bot<token>/<method>`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.server.addr())
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.server.addr().port()
    }

    /// Resets every connection and refuses new ones, until `up`. Gives how many there were.
    pub fn down(&self) -> usize {
        self.server.down()
    }

    /// Serves again, on the same port and with the same state.
    pub fn up(&self) -> io::Result<()> {
        self.server.up()
    }

    /// Gives how many there were.
    pub fn reset_connections(&self) -> usize {
        self.server.reset_connections()
    }

    /// From now on other tokens are refused, 401 or 404 as the real service does.
    pub fn expect_token(&self, token: impl Into<String>) {
        let token = token.into();
        self.shared.world.change(|world| world.token = Some(token));
    }

    /// A user writes; the number of the update is returned.
    pub fn push_text(&self, chat: i64, user: i64, text: impl Into<String>) -> i64 {
        self.push(Incoming::text(chat, user, text)).update_id
    }

    /// A user writes in a topic of a forum.
    pub fn push_topic(&self, chat: i64, thread: i64, user: i64, text: impl Into<String>) -> i64 {
        self.push(Incoming::text(chat, user, text).topic(thread)).update_id
    }

    pub fn push(&self, incoming: Incoming) -> Pushed {
        self.shared.ring(|world| world.push(&incoming))
    }

    /// All at once: a poll sees none or as many as fit.
    pub fn push_many(&self, incoming: impl IntoIterator<Item = Incoming>) -> Vec<Pushed> {
        let incoming: Vec<Incoming> = incoming.into_iter().collect();
        self.shared.ring(|world| incoming.iter().map(|one| world.push(one)).collect())
    }

    /// A user presses a button under a message of the bot.
    pub fn push_callback(&self, chat: i64, user: i64, message: i64, data: &str) -> i64 {
        self.shared.ring(|world| world.push_callback(chat, user, message, data))
    }

    /// Any JSON as an update; an object without `update_id` gets one.
    pub fn push_update(&self, update: Value) -> i64 {
        self.shared.ring(|world| world.push_update(update))
    }

    /// The whole body of the next `getUpdates` answer, status 200, be it JSON or not.
    pub fn push_raw_answer(&self, body: impl Into<Bytes>) {
        let body = body.into();
        self.shared.ring(|world| world.updates.push_raw(body));
    }

    /// Somebody else with the token points the webhook elsewhere, without a secret.
    pub fn steal_webhook(&self, url: impl Into<String>) {
        let elsewhere = webhook::Webhook::at(url.into());
        self.shared.ring(|world| world.webhook = Some(elsewhere));
    }

    pub fn add_topic(&self, chat: i64, thread: i64) {
        self.shared.world.change(|world| world.chat_mut(chat).add_topic(thread));
    }

    pub fn remove_topic(&self, chat: i64, thread: i64) {
        self.shared.world.change(|world| world.chat_mut(chat).remove_topic(thread));
    }

    /// Makes `getFile` and the download know this file.
    pub fn add_file(&self, file_id: impl Into<String>, content: impl Into<Bytes>) {
        let (file_id, content) = (file_id.into(), Stored::Content(content.into()));
        self.shared.world.change(|world| world.files.insert(file_id, content));
    }

    /// The same, but the download sends the client to another address.
    pub fn add_redirect(&self, file_id: impl Into<String>, url: impl Into<String>) {
        let (file_id, elsewhere) = (file_id.into(), Stored::Elsewhere(url.into()));
        self.shared.world.change(|world| world.files.insert(file_id, elsewhere));
    }

    /// Starts a rule for a method, `*` for all: `on("sendMessage").chat(1).nth(2).does(fault)`.
    pub fn on(&self, method: impl Into<String>) -> When<'_> {
        When::new(&self.shared.rules, method.into())
    }

    /// Stops every request of a method until released.
    #[must_use]
    pub fn gate(&self, method: impl Into<String>, side: Side) -> Gate {
        self.on(method).gate(side)
    }

    /// How many faults have met a request so far.
    #[must_use]
    pub fn struck(&self) -> u64 {
        self.shared.rules.struck()
    }

    /// Lets go on what `Hang` and `HangAfter` hold now.
    pub fn release_hangs(&self) {
        self.shared.rules.release_hangs();
    }

    /// Forgets all rules and opens all hangs.
    pub fn clear_faults(&self) {
        self.shared.rules.clear();
    }

    /// What the user sees now: the bot's messages, oldest first.
    #[must_use]
    pub fn visible(&self, chat: i64) -> Vec<Message> {
        self.look(|world| world.visible(chat))
    }

    #[must_use]
    pub fn reactions(&self, chat: i64, message: i64) -> Vec<String> {
        self.look(|world| world.reactions(chat, message))
    }

    /// Only the texts of `visible`.
    #[must_use]
    pub fn texts(&self, chat: i64) -> Vec<String> {
        self.look(|world| world.texts(chat))
    }

    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.look(|world| world.calls().cloned().collect())
    }

    #[must_use]
    pub fn calls_of(&self, method: &str) -> Vec<Call> {
        self.look(|world| world.calls_of(method).cloned().collect())
    }

    #[must_use]
    pub fn pending_updates(&self) -> usize {
        self.look(World::pending_updates)
    }

    #[must_use]
    pub fn confirmed_offset(&self) -> Option<i64> {
        self.look(World::confirmed_offset)
    }

    /// One consistent look at everything.
    pub fn look<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        self.shared.world.read(look)
    }

    /// Looks now and after every change, until something is found or time is up. The fake stands still
    /// while `look` runs, and `look` must not call the handle.
    pub fn wait_until<T>(&self, timeout: Duration, look: impl FnMut(&World) -> Option<T>) -> Option<T> {
        self.shared.world.wait_until(timeout, look)
    }

    /// Waits until the user sees exactly these texts.
    #[must_use]
    pub fn wait_texts(&self, chat: i64, want: &[&str], timeout: Duration) -> bool {
        let same =
            |world: &World| world.messages(chat).map(|seen| seen.text.as_str()).eq(want.iter().copied());
        self.wait_until(timeout, |world| same(world).then_some(())).is_some()
    }

    /// Calls `observer` for everything a user sees happen, before the bot is answered. It may use the
    /// handle, and must be quick.
    pub fn observe(&self, observer: impl Fn(&Change) + Send + Sync + 'static) {
        self.shared.observe(observer);
    }

    /// How many calls, and messages per chat, are remembered. `All` unless told; the newest message of
    /// each chat stays in any case.
    pub fn record(&self, keep: Keep) {
        self.shared.world.change(|world| {
            world.keep = Some(keep);
            world.calls.keep(keep);
        });
    }

    /// Forgets calls and messages, not numbers, pending updates or rules.
    pub fn clear(&self) {
        self.shared.world.change(World::clear);
    }
}
