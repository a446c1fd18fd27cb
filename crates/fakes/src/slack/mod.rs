//! A fake Slack: the Web API over HTTP, Socket Mode over a WebSocket, and what people see of it.
//!
//! State survives `down` and `up`. Requests follow one road: recorded on arrival, held or refused by the
//! rules, applied under the lock, then answered, or not. What people do becomes an envelope that is said
//! to one open socket, and again when it is not acknowledged within three seconds.

mod chat;
mod deliveries;
mod fault;
mod http;
mod incoming;
mod methods;
mod params;
mod refusal;
mod socket;
mod world;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::runtime::Handle;

pub use chat::Message;
pub use deliveries::{Delivery, State};
pub use fault::{Fault, When};
pub use incoming::Incoming;
pub use params::Params;
pub use world::{Ack, Call, Change, Outcome, Pushed, Response, Workspace, World};

pub use crate::rules::Side;

use crate::files::Stored;
use crate::gate::Gate;
use crate::server::Server;
use world::Wish;

/// The workspace that is there from the start: T1, whose bot U1BOT has the token `xoxb-1`.
pub const TEAM: &str = "T1";
pub const TOKEN: &str = "xoxb-1";
pub const BOT: &str = "U1BOT";

/// The handle. Dropping it stops the service and resets its connections.
#[derive(Debug)]
pub struct Slack {
    shared: Arc<Shared>,
    server: Server,
}

type Shared = crate::shared::Shared<World, Change, Fault, String>;

impl Slack {
    /// On a free port, with one workspace.
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
        let slack = Self { server: start(router)?, shared };
        let origin = format!("http://{}", slack.server.addr());
        slack.shared.world.change(|world| world.origin = origin);
        slack.add_workspace(TEAM, TOKEN);
        Ok(slack)
    }

    /// `http://127.0.0.1:PORT/api`, to be followed by `/<method>`.
    #[must_use]
    pub fn api_base(&self) -> String {
        format!("http://{}/api", self.server.addr())
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

    /// The app is installed in one more workspace. Its bot is `U<n>BOT` for a team `T<n>`.
    pub fn add_workspace(&self, team: &str, token: &str) {
        let number = team.trim_start_matches('T');
        let workspace = Workspace {
            team: team.to_owned(),
            token: token.to_owned(),
            bot_user: format!("U{number}BOT"),
            bot_id: format!("B{number}BOT"),
        };
        self.shared.world.change(|world| world.workspaces.push(workspace));
    }

    /// The token is good no longer.
    pub fn revoke(&self, token: &str) {
        self.shared.world.change(|world| world.workspaces.retain(|workspace| workspace.token != token));
    }

    /// From now on other app tokens are refused.
    pub fn expect_app_token(&self, token: impl Into<String>) {
        let token = token.into();
        self.shared.world.change(|world| world.app_token = Some(token));
    }

    pub fn add_channel(&self, team: &str, channel: &str) {
        self.shared.world.change(|world| world.add_channel(team, channel));
    }

    /// The same, under a name of its own.
    pub fn add_named_channel(&self, team: &str, channel: &str, name: &str) {
        self.shared.world.change(|world| {
            world.add_channel(team, channel);
            world.names.insert(channel.to_owned(), name.to_owned());
        });
    }

    pub fn archive(&self, channel: &str) {
        self.shared.world.change(|world| world.channels.entry(channel.into()).or_default().archived = true);
    }

    /// Makes `users.info` know somebody.
    pub fn add_user(&self, user: &str, name: &str) {
        self.shared.world.change(|world| world.users.insert(user.to_owned(), name.to_owned()));
    }

    /// The app was away for too long: what it has not acknowledged is only in the history.
    pub fn give_up_deliveries(&self) {
        self.shared.world.change(|world| world.deliveries.give_up());
    }

    /// Somebody writes; told as a `message` event. Its moment is returned.
    pub fn push_text(&self, channel: &str, user: &str, text: &str) -> String {
        self.push(Incoming::new(channel, user, text)).ts
    }

    pub fn push(&self, said: Incoming) -> Pushed {
        self.shared.ring(|world| world.push(&said, &["message"]))
    }

    /// Told twice, as an app hears it that listens to both: as `message` and as `app_mention`.
    pub fn push_mention(&self, said: Incoming) -> Pushed {
        self.shared.ring(|world| world.push(&said, &["message", "app_mention"]))
    }

    /// Somebody types a slash command. The response address is returned.
    pub fn push_command(&self, channel: &str, user: &str, command: &str, text: &str) -> String {
        self.shared.ring(|world| {
            let team = world.team_of(None, channel);
            let number = world.deliveries().len() as u64;
            let url = format!("{}/response/{number}", world.origin);
            let payload = incoming::command(&team, number, &url, (channel, user), (command, text));
            world.deliveries.push("slash_commands", payload);
            url
        })
    }

    /// Somebody presses the button with this value below a message of the bot.
    pub fn push_press(&self, channel: &str, user: &str, ts: &str, value: &str) -> Option<u64> {
        self.shared.ring(|world| {
            let message = world.messages(channel).find(|message| message.ts == ts)?.clone();
            let button = message.button(value)?;
            let team = world.team_of(None, channel);
            let number = world.deliveries().len() as u64;
            let url = format!("{}/response/{number}", world.origin);
            let wire = message.wire(&world.bot_of(&team));
            let payload = incoming::pressed(&team, number, &url, (channel, user), &wire, &button);
            Some(world.deliveries.push("interactive", payload))
        })
    }

    /// Any payload in an envelope of any kind.
    pub fn push_envelope(&self, kind: &str, payload: Value) -> u64 {
        self.shared.ring(|world| world.deliveries.push(kind, payload))
    }

    /// Any text as a frame; `$ENVELOPE` in it becomes the id that is to be acknowledged.
    pub fn push_frame(&self, frame: &str) -> u64 {
        self.shared.ring(|world| world.deliveries.push("", Value::String(frame.to_owned())))
    }

    /// How long an acknowledgement is waited for; three seconds unless told.
    pub fn set_patience(&self, patience: Duration) {
        self.shared.ring(|world| world.deliveries.patience = patience);
    }

    /// Announces the end of every open socket (`warning`, `refresh_requested`, `link_disabled`). They stay
    /// open and get nothing new.
    pub fn announce_disconnect(&self, reason: &str) {
        let frame =
            json!({ "type": "disconnect", "reason": reason, "debug_info": { "host": "applink-fake" } });
        self.shared.ring(|world| {
            for connection in &mut world.connections {
                connection.leaving = true;
                connection.wishes.push_back(Wish::Say(frame.to_string()));
            }
        });
    }

    /// Closes the sockets whose end was announced.
    pub fn close_leaving(&self) {
        self.wish(|connection| connection.leaving, &Wish::Close);
    }

    /// Gives how many there were.
    pub fn close_sockets(&self) -> usize {
        self.wish(|_| true, &Wish::Close)
    }

    /// Gives how many there were.
    pub fn reset_sockets(&self) -> usize {
        self.wish(|_| true, &Wish::Reset)
    }

    pub fn ping(&self) {
        self.wish(|_| true, &Wish::Ping);
    }

    /// From now on nothing is read from the open sockets and nothing said over them; they stay open.
    pub fn silence(&self) {
        self.wish(|_| true, &Wish::Silence);
        self.shared.world.change(|world| {
            world.connections.iter_mut().for_each(|connection| connection.silent = true);
        });
    }

    /// A file that people have shared; its private address is returned.
    pub fn add_file(&self, name: &str, content: impl Into<Bytes>) -> String {
        self.store(name, Stored::Content(content.into()))
    }

    /// The same, but the download sends the client to another address.
    pub fn add_redirect(&self, name: &str, to: impl Into<String>) -> String {
        self.store(name, Stored::Elsewhere(to.into()))
    }

    fn store(&self, name: &str, stored: Stored) -> String {
        let path = format!("/files-pri/T1-F1/{name}");
        self.shared.world.change(|world| world.files.insert(path.clone(), stored));
        format!("http://{}{path}", self.server.addr())
    }

    /// Starts a rule for a method, `*` for all: `on("chat.postMessage").channel("C1").does(fault)`.
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

    #[must_use]
    pub fn visible(&self, channel: &str) -> Vec<Message> {
        self.look(|world| world.messages(channel).cloned().collect())
    }

    /// The names of the emoji that the bot put below a message.
    #[must_use]
    pub fn marks(&self, channel: &str, ts: &str) -> Vec<String> {
        self.look(|world| world.marks(channel, ts))
    }

    #[must_use]
    pub fn texts(&self, channel: &str) -> Vec<String> {
        self.look(|world| world.texts(channel))
    }

    #[must_use]
    pub fn calls_of(&self, method: &str) -> Vec<Call> {
        self.look(|world| world.calls_of(method).cloned().collect())
    }

    #[must_use]
    pub fn acks(&self) -> Vec<Ack> {
        self.look(|world| world.acks().to_vec())
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

    /// Calls `observer` for everything people see happen, before the bot is answered. It may use the
    /// handle, and must be quick.
    pub fn observe(&self, observer: impl Fn(&Change) + Send + Sync + 'static) {
        self.shared.observe(observer);
    }

    fn wish(&self, of: impl Fn(&world::Connection) -> bool, wish: &Wish) -> usize {
        self.shared.ring(|world| {
            let wanted = world.connections.iter_mut().filter(|connection| of(connection));
            wanted.map(|connection| connection.wishes.push_back(wish.clone())).count()
        })
    }
}
