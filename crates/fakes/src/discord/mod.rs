//! A fake Discord: the gateway over WebSocket, the REST API, and the users' view of the channels.
//!
//! The state survives `down` and `up`. Sessions outlive their sockets until `forget_sessions`, so that a client can
//! RESUME.

mod channel;
mod error;
mod fault;
mod gateway;
mod http;
mod incoming;
mod routes;
mod sessions;
mod state;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use serde_json::{Value, json};

pub use channel::DiscordMessage;
pub use error::ServiceError;
pub use fault::Fault;
pub use incoming::{APPLICATION_ID, BOT_ID, BOT_NAME, Incoming};
pub use state::{ApiCall, Outcome, ReceivedFrame, State, VisibleChange};

pub use crate::faults::rules::Side;

use crate::server::fake::{Fake, FakeService, FileHost};
use crate::server::files::StoredFile;
use channel::{DIRECT, DiscordChannel, FORUM, TEXT, THREAD};
use sessions::SocketCommand;
use state::GatewayBehaviour;

pub type Discord = Fake<DiscordApi>;

type Shared = crate::server::fake::Shared<DiscordApi>;

#[derive(Debug)]
pub struct DiscordApi;

impl FakeService for DiscordApi {
    type State = State;
    type Fault = Fault;
    type ChatId = u64;
    type Change = VisibleChange;

    fn router(shared: Arc<Shared>) -> Router {
        Router::new().fallback(http::serve).with_state(shared)
    }

    fn init(discord: &mut Discord) {
        let address = discord.server.addr().to_string();
        discord.shared.state.change(|state| state.address = address);
    }
}

/// Downloads need no token.
impl FileHost for DiscordApi {
    const DOWNLOADS: &'static str = "/cdn/";

    fn files(state: &mut State) -> &mut HashMap<String, StoredFile> {
        &mut state.files
    }
}

impl Discord {
    /// `http://127.0.0.1:PORT/api/v10`.
    #[must_use]
    pub fn api_base(&self) -> String {
        format!("http://{}/api/v10", self.server.addr())
    }

    /// `ws://127.0.0.1:PORT/gateway`, as in the response of `GET /gateway/bot`.
    #[must_use]
    pub fn gateway_url(&self) -> String {
        format!("ws://{}/gateway", self.server.addr())
    }

    /// Refuses other tokens from now on: 401 over REST, 4004 on the socket.
    pub fn expect_token(&self, token: impl Into<String>) {
        let token = token.into();
        self.shared.state.change(|state| state.token = Some(token));
    }

    pub fn add_guild(&self, guild: u64) {
        self.shared.state.change(|state| state.guilds.push(guild));
    }

    pub fn add_channel(&self, guild: u64, channel: u64, name: &str) {
        self.add(DiscordChannel { name: name.to_owned(), ..DiscordChannel::new(channel, TEXT, Some(guild)) });
    }

    pub fn add_forum(&self, guild: u64, channel: u64, name: &str) {
        self.add(DiscordChannel {
            name: name.to_owned(),
            ..DiscordChannel::new(channel, FORUM, Some(guild))
        });
    }

    pub fn add_thread(&self, guild: u64, parent: u64, thread: u64, name: &str) {
        let channel = DiscordChannel::new(thread, THREAD, Some(guild));
        self.add(DiscordChannel { name: name.to_owned(), parent: Some(parent), ..channel });
    }

    pub fn add_direct(&self, channel: u64) {
        self.add(DiscordChannel::new(channel, DIRECT, None));
    }

    fn add(&self, channel: DiscordChannel) {
        self.shared.state.change(|state| state.channels.insert(channel.id, channel));
    }

    pub fn add_role(&self, user: u64, role: u64) {
        self.shared.state.change(|state| state.roles.push((user, role)));
    }

    /// A user sends a message. Returns its id.
    pub fn push_text(&self, channel: u64, user: u64, content: impl Into<String>) -> u64 {
        self.push(Incoming::text(channel, user, content))
    }

    pub fn push(&self, incoming: Incoming) -> u64 {
        self.shared.update(|state| state.push(&incoming))
    }

    /// A user presses a button of a message. Returns the id of the interaction.
    pub fn push_button(&self, channel: u64, user: u64, message: u64, custom_id: &str) -> u64 {
        let data = json!({ "custom_id": custom_id, "component_type": 2 });
        self.shared.update(|state| state.interact(channel, user, 3, data, Some(message)))
    }

    /// A user runs a slash command with named options. Returns the id of the interaction.
    pub fn push_command(&self, channel: u64, user: u64, name: &str, options: &[(&str, &str)]) -> u64 {
        let options: Vec<Value> =
            options.iter().map(|(name, value)| json!({ "name": name, "type": 3, "value": value })).collect();
        let data = json!({ "id": "1", "name": name, "type": 1, "options": options });
        self.shared.update(|state| state.interact(channel, user, 2, data, None))
    }

    /// Dispatches any event to every session.
    pub fn push_event(&self, kind: &str, data: Value) {
        self.shared.update(|state| state.sessions.dispatch(kind, &data));
    }

    /// Sends any frame, JSON or not, over every open socket. Returns the number of sockets.
    pub fn push_frame(&self, text: impl Into<String>) -> usize {
        self.command(&SocketCommand::Send(text.into()))
    }

    /// Requests every client to reconnect (op 7). Returns the number of sockets.
    pub fn request_reconnect(&self) -> usize {
        self.push_frame(json!({ "op": 7, "d": null }).to_string())
    }

    /// Invalidates the sessions (op 9), which can be resumed.
    pub fn invalidate_resumable(&self) {
        self.push_frame(json!({ "op": 9, "d": true }).to_string());
    }

    pub fn invalidate(&self) {
        self.forget_sessions();
        self.push_frame(json!({ "op": 9, "d": false }).to_string());
    }

    /// Closes every socket with this code. Returns the number of sockets.
    pub fn close(&self, code: u16) -> usize {
        self.command(&SocketCommand::Close(code))
    }

    /// Resets every socket; REST requests continue. Returns the number of sockets.
    pub fn reset_sockets(&self) -> usize {
        self.command(&SocketCommand::Cut)
    }

    /// Drops all sessions: none can be resumed, and open sockets get no more events.
    pub fn forget_sessions(&self) {
        self.shared.state.change(|state| state.sessions.forget());
    }

    pub fn forget_nonces(&self) {
        self.shared.state.change(|state| state.nonces.clear());
    }

    /// Sets the interval in HELLO; 41.25 s by default.
    pub fn set_heartbeat_interval(&self, interval: Duration) {
        self.behaviour(|behaviour| behaviour.interval = interval);
    }

    /// From now on sockets send nothing after HELLO, and stay open.
    pub fn silence(&self) {
        self.behaviour(|behaviour| behaviour.silent = true);
    }

    pub fn end_silence(&self) {
        self.behaviour(|behaviour| behaviour.silent = false);
    }

    /// Stops acknowledging heartbeats; events continue.
    pub fn withhold_acks(&self) {
        self.behaviour(|behaviour| behaviour.acks = false);
    }

    pub fn resume_acks(&self) {
        self.behaviour(|behaviour| behaviour.acks = true);
    }

    /// Does not respond to IDENTIFY and RESUME.
    pub fn withhold_ready(&self) {
        self.behaviour(|behaviour| behaviour.withholds_ready = true);
    }

    /// READY names the guilds, but GUILD_CREATE waits until `list_guilds`.
    pub fn withhold_guilds(&self) {
        self.behaviour(|behaviour| behaviour.late_guilds = true);
    }

    pub fn list_guilds(&self) {
        self.shared.update(|state| {
            state.behaviour.late_guilds = false;
            for event in state.guild_events() {
                state.sessions.dispatch(&event.kind, &event.data);
            }
        });
    }

    /// Closes the socket with this code on IDENTIFY and RESUME.
    pub fn refuse_sessions(&self, code: u16) {
        self.behaviour(|behaviour| behaviour.close_code = Some(code));
    }

    pub fn accept_sessions(&self) {
        self.behaviour(|behaviour| {
            behaviour.close_code = None;
            behaviour.withholds_ready = false;
        });
    }

    /// Sets how many sessions can still be started today.
    pub fn set_remaining_starts(&self, left: u64) {
        self.shared.state.change(|state| state.starts_left = Some(left));
    }

    /// The bot's messages in their current state, oldest first.
    #[must_use]
    pub fn visible(&self, channel: u64) -> Vec<DiscordMessage> {
        self.read(|state| state.messages(channel).cloned().collect())
    }

    /// The bot's reactions: channel, message, emoji.
    #[must_use]
    pub fn reactions(&self) -> Vec<(u64, u64, String)> {
        self.read(|state| state.reactions().to_vec())
    }

    #[must_use]
    pub fn texts(&self, channel: u64) -> Vec<String> {
        self.read(|state| state.texts(channel))
    }

    #[must_use]
    pub fn calls_of(&self, route: &str) -> Vec<ApiCall> {
        self.read(|state| state.calls_of(route).cloned().collect())
    }

    /// Frames from clients with this opcode: 1 heartbeat, 2 identify, 6 resume.
    #[must_use]
    pub fn frames(&self, op: u64) -> Vec<ReceivedFrame> {
        self.read(|state| state.frames(op).cloned().collect())
    }

    fn command(&self, command: &SocketCommand) -> usize {
        self.shared.update(|state| state.sessions.command_all(command))
    }

    fn behaviour(&self, change: impl FnOnce(&mut GatewayBehaviour)) {
        self.shared.update(|state| change(&mut state.behaviour));
    }
}
