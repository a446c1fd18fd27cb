//! A fake connector: the server's end of the relay's contract 1, one gateway, and what people see of its chats.
//!
//! Events that are pushed wait in a queue until they are acknowledged, and go to every new connection in order; those
//! that are passed go to the open one and are forgotten. Whatever the gateway says is on record. State survives `down`
//! and `up`.

mod http;
mod socket;
mod world;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::sync::Notify;

pub use world::{Message, Posted, Reply, World};

use crate::rules::Saying;
use crate::server::Server;
use crate::watched::Watched;
use world::Wish;

/// The handle. Dropping it stops the service and resets its connections.
#[derive(Debug)]
pub struct Connector {
    shared: Arc<Shared>,
    server: Server,
}

#[derive(Debug)]
struct Shared {
    world: Watched<World>,
    bell: Notify,
}

impl Shared {
    fn ring<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        let done = self.world.change(act);
        self.bell.notify_waiters();
        done
    }
}

impl Connector {
    pub fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared { world: Watched::new(World::default()), bell: Notify::new() });
        let router = Router::new()
            .route("/relay", get(socket::upgrade))
            .route("/relay/{what}", post(http::post))
            .route("/relay/media/{id}", get(http::media))
            .with_state(shared.clone());
        Ok(Self { server: Server::start(0, router)?, shared })
    }

    /// Without a path: the gateway knows where the socket is.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.server.addr())
    }

    /// Gives how many connections there were.
    pub fn down(&self) -> usize {
        self.server.down()
    }

    pub fn up(&self) -> io::Result<()> {
        self.server.up()
    }

    /// Says and answers nothing on the connections there are, without closing them.
    pub fn silence(&self) {
        self.shared.ring(|world| world.wish(&Wish::Silence));
    }

    /// An event that is kept until it is acknowledged. Gives its number.
    pub fn push(&self, event: Value) -> String {
        self.shared.ring(|world| world.push("inbound", "event", event))
    }

    /// The same for a request of a platform.
    pub fn push_forward(&self, forward: Value) -> String {
        self.shared.ring(|world| world.push("passthrough_forward", "forward", forward))
    }

    /// An event without a number: whoever is not there misses it.
    pub fn pass(&self, event: Value) {
        self.say(&format!("{}\n", json!({"type": "inbound", "event": event})));
    }

    /// As it is, in one message of the socket.
    pub fn say(&self, text: &str) {
        self.shared.ring(|world| world.wish(&Wish::Text(text.to_owned())));
    }

    pub fn say_bytes(&self, bytes: &[u8]) {
        self.shared.ring(|world| world.wish(&Wish::Bytes(bytes.to_owned())));
    }

    /// Closes the connections there are.
    pub fn close(&self, code: u16, reason: &str) {
        self.shared.ring(|world| world.wish(&Wish::Close(code, reason.to_owned())));
    }

    /// The next `times` connections are closed like this before anything is said.
    pub fn refuse(&self, times: usize, code: u16, reason: &str) {
        let refusal = (code, reason.to_owned());
        self.shared.world.change(|world| world.refusals.extend(std::iter::repeat_n(refusal, times)));
    }

    /// The next `times` connections are closed right behind their first descriptor.
    pub fn drop_behind_descriptor(&self, times: usize) {
        self.shared.world.change(|world| world.short_lives = times);
    }

    /// The next `times` hellos get no descriptor.
    pub fn mute(&self, times: usize) {
        self.shared.world.change(|world| world.mute = times);
    }

    /// What a follow-up of this conversation may name leads to this chat.
    pub fn hold(&self, session: &str, kind: &str, chat: &str) {
        let name = (session.to_owned(), kind.to_owned());
        self.shared.world.change(|world| world.held.insert(name, chat.to_owned()));
    }

    /// How `going_idle` is answered: after this wait, or never.
    pub fn grant_idle(&self, after: Option<Duration>) {
        self.shared.world.change(|world| world.grants = after);
    }

    /// What the next hello of this platform is answered with.
    pub fn describe(&self, platform: &str, change: impl FnOnce(&mut Value)) {
        self.shared.world.change(|world| change(world.descriptor(platform)));
    }

    /// The next message that is sent meets this.
    pub fn trouble(&self, reply: Reply) {
        self.trouble_saying(|_| true, reply);
    }

    /// The next message that is sent or changed and whose text is like this meets this.
    pub fn trouble_saying(&self, saying: Saying, reply: Reply) {
        self.shared.world.change(|world| world.replies.push_back((saying, reply)));
    }

    /// How many of them have met a message so far.
    #[must_use]
    pub fn troubled(&self) -> u64 {
        self.read(|world| world.troubled)
    }

    /// Resets every connection. Gives how many there were.
    pub fn cut(&self) -> usize {
        self.server.reset_connections()
    }

    /// How the next request to this endpoint (`provision`, `policy`, …) is answered.
    pub fn answer(&self, endpoint: &str, status: u16, body: Value) {
        let answer = (endpoint.to_owned(), status, body);
        self.shared.world.change(|world| world.answers.push_back(answer));
    }

    pub fn read<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        self.shared.world.read(look)
    }

    /// Looks now and after every change, until `look` finds something or time is up.
    pub fn wait_until<T>(&self, within: Duration, look: impl FnMut(&World) -> Option<T>) -> Option<T> {
        self.shared.world.wait_until(within, look)
    }

    /// What people see in a chat.
    #[must_use]
    pub fn visible(&self, chat: &str) -> Vec<Message> {
        self.read(|world| world.chats.get(chat).cloned().unwrap_or_default())
    }
}

/// An event as somebody would cause it.
#[must_use]
pub fn event(platform: &str, chat: &str, kind: &str, text: &str, message: Option<&str>) -> Value {
    let mut event = json!({
        "text": text, "message_type": "text",
        "source": {"platform": platform, "chat_id": chat, "chat_type": kind, "user_id": "u1", "user_name": "Ann"},
    });
    if let Some(message) = message {
        event["message_id"] = message.into();
    }
    event
}
