//! A fake Slack: the Web API over HTTP, Socket Mode over a WebSocket, and the users' view of the channels.
//!
//! The state survives `down` and `up`. A user action becomes an envelope, sent over one open socket and repeated if it
//! is not acknowledged within three seconds.

mod channel;
mod deliveries;
mod error;
mod fault;
mod http;
mod incoming;
mod methods;
mod params;
mod socket;
mod state;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use serde_json::{Value, json};

pub use channel::SlackMessage;
pub use deliveries::{DeliveryState, EventDelivery};
pub use error::ServiceError;
pub use fault::Fault;
pub use incoming::Incoming;
pub use params::Params;
pub use state::{Ack, ApiCall, Outcome, Pushed, Response, State, VisibleChange, Workspace};

pub use crate::faults::rules::Side;

use crate::server::fake::{Fake, FakeService, FileHost};
use crate::server::files::StoredFile;
use state::SocketCommand;

pub const TEAM: &str = "T1";
pub const TOKEN: &str = "xoxb-1";
pub const BOT: &str = "U1BOT";

pub type Slack = Fake<SlackApi>;

type Shared = crate::server::fake::Shared<SlackApi>;

#[derive(Debug)]
pub struct SlackApi;

impl FakeService for SlackApi {
    type State = State;
    type Fault = Fault;
    type ChatId = String;
    type Change = VisibleChange;

    fn router(shared: Arc<Shared>) -> Router {
        Router::new().fallback(http::serve).with_state(shared)
    }

    fn init(slack: &mut Slack) {
        let origin = slack.url();
        slack.shared.state.change(|state| state.origin = origin);
        slack.add_workspace(TEAM, TOKEN);
    }
}

/// Downloads need the token of a workspace.
impl FileHost for SlackApi {
    const DOWNLOADS: &'static str = "/files-pri/T1-F1/";

    fn files(state: &mut State) -> &mut HashMap<String, StoredFile> {
        &mut state.files
    }
}

impl Slack {
    /// `http://127.0.0.1:PORT/api`, to be followed by `/<method>`.
    #[must_use]
    pub fn api_base(&self) -> String {
        format!("http://{}/api", self.server.addr())
    }

    /// Installs the app in another workspace. The bot of a team `T<n>` is `U<n>BOT`.
    pub fn add_workspace(&self, team: &str, token: &str) {
        let number = team.trim_start_matches('T');
        let workspace = Workspace {
            team: team.to_owned(),
            token: token.to_owned(),
            bot_user: format!("U{number}BOT"),
            bot_id: format!("B{number}BOT"),
        };
        self.shared.state.change(|state| state.workspaces.push(workspace));
    }

    pub fn revoke(&self, token: &str) {
        self.shared.state.change(|state| state.workspaces.retain(|workspace| workspace.token != token));
    }

    pub fn expect_app_token(&self, token: impl Into<String>) {
        let token = token.into();
        self.shared.state.change(|state| state.app_token = Some(token));
    }

    pub fn add_channel(&self, team: &str, channel: &str) {
        self.shared.state.change(|state| state.add_channel(team, channel));
    }

    /// Adds a channel whose name differs from its id.
    pub fn add_named_channel(&self, team: &str, channel: &str, name: &str) {
        self.shared.state.change(|state| {
            state.add_channel(team, channel);
            state.names.insert(channel.to_owned(), name.to_owned());
        });
    }

    pub fn archive(&self, channel: &str) {
        self.shared.state.change(|state| state.channels.entry(channel.into()).or_default().archived = true);
    }

    pub fn add_user(&self, user: &str, name: &str) {
        self.shared.state.change(|state| state.users.insert(user.to_owned(), name.to_owned()));
    }

    /// Drops all unacknowledged deliveries, as after a long outage: their messages are only in the history.
    pub fn drop_deliveries(&self) {
        self.shared.state.change(|state| state.deliveries.drop_unacknowledged());
    }

    /// A user sends a message, delivered as a `message` event. Returns its timestamp.
    pub fn push_text(&self, channel: &str, user: &str, text: &str) -> String {
        self.push(Incoming::new(channel, user, text)).ts
    }

    pub fn push(&self, incoming: Incoming) -> Pushed {
        self.shared.update(|state| state.push(&incoming, &["message"]))
    }

    /// Delivers a message as both `message` and `app_mention`.
    pub fn push_mention(&self, incoming: Incoming) -> Pushed {
        self.shared.update(|state| state.push(&incoming, &["message", "app_mention"]))
    }

    /// A user runs a slash command. Returns the response URL.
    pub fn push_command(&self, channel: &str, user: &str, command: &str, text: &str) -> String {
        self.shared.update(|state| {
            let team = state.team_of(None, channel);
            let number = state.deliveries().len() as u64;
            let url = format!("{}/response/{number}", state.origin);
            let payload = incoming::command(&team, number, &url, (channel, user), (command, text));
            state.deliveries.push("slash_commands", payload);
            url
        })
    }

    /// A user presses the button with this value.
    pub fn push_press(&self, channel: &str, user: &str, ts: &str, value: &str) -> Option<u64> {
        self.shared.update(|state| {
            let message = state.messages(channel).find(|message| message.ts == ts)?.clone();
            let button = message.button(value)?;
            let team = state.team_of(None, channel);
            let number = state.deliveries().len() as u64;
            let url = format!("{}/response/{number}", state.origin);
            let json = message.to_json(&state.bot_of(&team));
            let payload = incoming::pressed(&team, number, &url, (channel, user), &json, &button);
            Some(state.deliveries.push("interactive", payload))
        })
    }

    /// Delivers any payload in an envelope of any kind.
    pub fn push_envelope(&self, kind: &str, payload: Value) -> u64 {
        self.shared.update(|state| state.deliveries.push(kind, payload))
    }

    /// Delivers any text as a frame; `$ENVELOPE` in it becomes the envelope id.
    pub fn push_frame(&self, frame: &str) -> u64 {
        self.shared.update(|state| state.deliveries.push("", Value::String(frame.to_owned())))
    }

    /// Sets the time until a repetition; three seconds by default.
    pub fn set_ack_timeout(&self, timeout: Duration) {
        self.shared.update(|state| state.deliveries.ack_timeout = timeout);
    }

    /// Announces the end of every open socket (`warning`, `refresh_requested`, `link_disabled`). They stay open
    /// but get no more deliveries.
    pub fn announce_disconnect(&self, reason: &str) {
        let frame =
            json!({ "type": "disconnect", "reason": reason, "debug_info": { "host": "applink-fake" } });
        self.shared.update(|state| {
            for connection in &mut state.connections {
                connection.leaving = true;
                connection.commands.push_back(SocketCommand::Send(frame.to_string()));
            }
        });
    }

    pub fn close_leaving(&self) {
        self.command(|connection| connection.leaving, &SocketCommand::Close);
    }

    /// Returns the number of sockets.
    pub fn close_sockets(&self) -> usize {
        self.command(|_| true, &SocketCommand::Close)
    }

    /// Returns the number of sockets.
    pub fn reset_sockets(&self) -> usize {
        self.command(|_| true, &SocketCommand::Reset)
    }

    pub fn ping(&self) {
        self.command(|_| true, &SocketCommand::Ping);
    }

    /// Stops reading from and writing to the open sockets, and keeps them open.
    pub fn silence(&self) {
        self.command(|_| true, &SocketCommand::Silence);
        self.shared.state.change(|state| {
            state.connections.iter_mut().for_each(|connection| connection.silent = true);
        });
    }

    #[must_use]
    pub fn visible(&self, channel: &str) -> Vec<SlackMessage> {
        self.read(|state| state.messages(channel).cloned().collect())
    }

    #[must_use]
    pub fn reactions(&self, channel: &str, ts: &str) -> Vec<String> {
        self.read(|state| state.reactions(channel, ts))
    }

    #[must_use]
    pub fn texts(&self, channel: &str) -> Vec<String> {
        self.read(|state| state.texts(channel))
    }

    #[must_use]
    pub fn calls_of(&self, method: &str) -> Vec<ApiCall> {
        self.read(|state| state.calls_of(method).cloned().collect())
    }

    #[must_use]
    pub fn acks(&self) -> Vec<Ack> {
        self.read(|state| state.acks().to_vec())
    }

    fn command(&self, selects: impl Fn(&state::SocketState) -> bool, command: &SocketCommand) -> usize {
        self.shared.update(|state| {
            let selected = state.connections.iter_mut().filter(|connection| selects(connection));
            selected.map(|connection| connection.commands.push_back(command.clone())).count()
        })
    }
}
