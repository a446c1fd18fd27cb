//! A fake Discord: the gateway over WebSocket and the REST API, and what people see of both.
//!
//! State survives `down` and `up`, and any number of clients coming and going. Requests follow one road:
//! recorded on arrival, held or refused by the rules, applied under the lock, then answered, or not.
//! Sessions outlive their sockets until `forget_sessions`, so a client may RESUME.

mod channel;
mod fault;
mod gateway;
mod http;
mod incoming;
mod refusal;
mod routes;
mod sessions;
mod world;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::runtime::Handle;

pub use channel::Message;
pub use fault::{Fault, When};
pub use incoming::{APPLICATION_ID, BOT_ID, BOT_NAME, Incoming};
pub use world::{Call, Change, Heard, Outcome, World};

pub use crate::rules::Side;

use crate::files::Stored;
use crate::gate::Gate;
use crate::server::Server;
use channel::{Channel, DIRECT, FORUM, TEXT, THREAD};
use sessions::Order;
use world::Manner;

/// The handle. Dropping it stops the service and resets its connections.
#[derive(Debug)]
pub struct Discord {
    shared: Arc<Shared>,
    server: Server,
}

type Shared = crate::shared::Shared<World, Change, Fault, u64>;

impl Discord {
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
        shared.world.change(|world| world.address = server.addr().to_string());
        Ok(Self { shared, server })
    }

    /// `http://127.0.0.1:PORT/api/v10`.
    #[must_use]
    pub fn api_base(&self) -> String {
        format!("http://{}/api/v10", self.server.addr())
    }

    /// `ws://127.0.0.1:PORT/gateway`, which is also what `GET /gateway/bot` answers.
    #[must_use]
    pub fn gateway_url(&self) -> String {
        format!("ws://{}/gateway", self.server.addr())
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

    /// From now on other tokens are refused: 401 over REST, 4004 on the socket.
    pub fn expect_token(&self, token: impl Into<String>) {
        let token = token.into();
        self.shared.world.change(|world| world.token = Some(token));
    }

    pub fn add_guild(&self, guild: u64) {
        self.shared.world.change(|world| world.guilds.push(guild));
    }

    pub fn add_channel(&self, guild: u64, channel: u64, name: &str) {
        self.add(Channel { name: name.to_owned(), ..Channel::new(channel, TEXT, Some(guild)) });
    }

    pub fn add_forum(&self, guild: u64, channel: u64, name: &str) {
        self.add(Channel { name: name.to_owned(), ..Channel::new(channel, FORUM, Some(guild)) });
    }

    pub fn add_thread(&self, guild: u64, parent: u64, thread: u64, name: &str) {
        let channel = Channel::new(thread, THREAD, Some(guild));
        self.add(Channel { name: name.to_owned(), parent: Some(parent), ..channel });
    }

    pub fn add_direct(&self, channel: u64) {
        self.add(Channel::new(channel, DIRECT, None));
    }

    fn add(&self, channel: Channel) {
        self.shared.world.change(|world| world.channels.insert(channel.id, channel));
    }

    pub fn give_role(&self, user: u64, role: u64) {
        self.shared.world.change(|world| world.roles.push((user, role)));
    }

    /// Somebody writes; the message's number is returned.
    pub fn push_text(&self, channel: u64, user: u64, content: impl Into<String>) -> u64 {
        self.push(Incoming::text(channel, user, content))
    }

    pub fn push(&self, incoming: Incoming) -> u64 {
        self.shared.ring(|world| world.push(&incoming))
    }

    /// Somebody presses a button below a message; the interaction's number is returned.
    pub fn push_button(&self, channel: u64, user: u64, message: u64, custom_id: &str) -> u64 {
        let data = json!({ "custom_id": custom_id, "component_type": 2 });
        self.shared.ring(|world| world.interact(channel, user, 3, data, Some(message)))
    }

    /// Somebody runs a slash command, with options by name.
    pub fn push_command(&self, channel: u64, user: u64, name: &str, options: &[(&str, &str)]) -> u64 {
        let options: Vec<Value> =
            options.iter().map(|(name, value)| json!({ "name": name, "type": 3, "value": value })).collect();
        let data = json!({ "id": "1", "name": name, "type": 1, "options": options });
        self.shared.ring(|world| world.interact(channel, user, 2, data, None))
    }

    /// Any event for every session.
    pub fn push_event(&self, kind: &str, data: Value) {
        self.shared.ring(|world| world.sessions.dispatch(kind, &data));
    }

    /// Any frame for every open socket, be it JSON or not. Gives how many there are.
    pub fn push_frame(&self, text: impl Into<String>) -> usize {
        self.order(&Order::Say(text.into()))
    }

    /// Asks every client to reconnect (op 7). Gives how many there are.
    pub fn ask_to_reconnect(&self) -> usize {
        self.push_frame(json!({ "op": 7, "d": null }).to_string())
    }

    /// Op 9: the session can be resumed.
    pub fn invalidate_resumable(&self) {
        self.push_frame(json!({ "op": 9, "d": true }).to_string());
    }

    /// Op 9: the session is over.
    pub fn invalidate(&self) {
        self.forget_sessions();
        self.push_frame(json!({ "op": 9, "d": false }).to_string());
    }

    /// Closes every socket with this code. Gives how many there were.
    pub fn close(&self, code: u16) -> usize {
        self.order(&Order::Close(code))
    }

    /// Cuts every socket without a word; REST goes on. Gives how many there were.
    pub fn cut_sockets(&self) -> usize {
        self.order(&Order::Cut)
    }

    /// No session can be resumed any more; open sockets hear nothing further.
    pub fn forget_sessions(&self) {
        self.shared.world.change(|world| world.sessions.forget());
    }

    pub fn forget_nonces(&self) {
        self.shared.world.change(|world| world.nonces.clear());
    }

    /// What HELLO says from now on; 41.25 s unless told.
    pub fn heartbeat_interval(&self, interval: Duration) {
        self.manner(|manner| manner.interval = interval);
    }

    /// Sockets stay open, or are opened and greeted, and nothing else comes through them.
    pub fn silence(&self) {
        self.manner(|manner| manner.silent = true);
    }

    pub fn speak(&self) {
        self.manner(|manner| manner.silent = false);
    }

    /// Heartbeats are heard and not acknowledged, while events go on.
    pub fn withhold_acks(&self) {
        self.manner(|manner| manner.acks = false);
    }

    pub fn give_acks(&self) {
        self.manner(|manner| manner.acks = true);
    }

    /// IDENTIFY and RESUME are never answered.
    pub fn withhold_ready(&self) {
        self.manner(|manner| manner.mute_at_ready = true);
    }

    /// READY names the guilds, but none is listed until `list_guilds`.
    pub fn withhold_guilds(&self) {
        self.manner(|manner| manner.late_guilds = true);
    }

    pub fn list_guilds(&self) {
        self.shared.ring(|world| {
            world.manner.late_guilds = false;
            for event in world.listed() {
                world.sessions.dispatch(&event.kind, &event.data);
            }
        });
    }

    /// IDENTIFY and RESUME are answered by closing with this code.
    pub fn refuse_sessions(&self, code: u16) {
        self.manner(|manner| manner.refuses = Some(code));
    }

    pub fn accept_sessions(&self) {
        self.manner(|manner| (manner.refuses, manner.mute_at_ready) = (None, false));
    }

    /// How many sessions may still be started today.
    pub fn starts_left(&self, left: u64) {
        self.shared.world.change(|world| world.starts_left = Some(left));
    }

    /// A file that can be fetched without a token; its address is returned.
    pub fn add_file(&self, name: &str, content: impl Into<Bytes>) -> String {
        self.store(name, Stored::Content(content.into()))
    }

    /// The same, but the download sends the client to another address.
    pub fn add_redirect(&self, name: &str, to: impl Into<String>) -> String {
        self.store(name, Stored::Elsewhere(to.into()))
    }

    fn store(&self, name: &str, stored: Stored) -> String {
        let path = format!("/cdn/{name}");
        self.shared.world.change(|world| world.files.insert(path.clone(), stored));
        format!("http://{}{path}", self.server.addr())
    }

    /// Starts a rule for a route, `*` for all: `on("createMessage").channel(1).nth(2).does(fault)`.
    pub fn on(&self, route: impl Into<String>) -> When<'_> {
        When::new(&self.shared.rules, route.into())
    }

    /// Stops every request of a route until released.
    #[must_use]
    pub fn gate(&self, route: impl Into<String>, side: Side) -> Gate {
        self.on(route).gate(side)
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

    /// The bot's messages as they stand now, oldest first.
    #[must_use]
    pub fn visible(&self, channel: u64) -> Vec<Message> {
        self.look(|world| world.messages(channel).cloned().collect())
    }

    /// What the bot put below messages: channel, message, emoji.
    #[must_use]
    pub fn reactions(&self) -> Vec<(u64, u64, String)> {
        self.look(|world| world.reactions().to_vec())
    }

    /// Only the texts of `visible`.
    #[must_use]
    pub fn texts(&self, channel: u64) -> Vec<String> {
        self.look(|world| world.texts(channel))
    }

    #[must_use]
    pub fn calls_of(&self, route: &str) -> Vec<Call> {
        self.look(|world| world.calls_of(route).cloned().collect())
    }

    /// What clients said over their sockets: 1 heartbeat, 2 identify, 6 resume.
    #[must_use]
    pub fn heard(&self, op: u64) -> Vec<Heard> {
        self.look(|world| world.heard(op).cloned().collect())
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

    /// Calls `observer` for everything people see the bot do, before the bot is answered. It may use the
    /// handle, and must be quick.
    pub fn observe(&self, observer: impl Fn(&Change) + Send + Sync + 'static) {
        self.shared.observe(observer);
    }

    fn order(&self, order: &Order) -> usize {
        self.shared.ring(|world| world.sessions.order(order))
    }

    fn manner(&self, change: impl FnOnce(&mut Manner)) {
        self.shared.ring(|world| change(&mut world.manner));
    }
}
