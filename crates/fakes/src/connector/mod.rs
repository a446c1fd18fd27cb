//! A fake connector: the server's end of contract 1 of the relay, for one gateway, and the users' view of its chats.
//!
//! Pushed events wait in a queue until they are acknowledged, and go to every new connection in order; live events go
//! to the open connections only. The state survives `down` and `up`.

mod http;
mod socket;
mod state;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use serde_json::{Value, json};

pub use state::{ConnectorMessage, OutboundFault, PostedRequest, State};

use crate::faults::rules::TextPredicate;
use crate::server::fake::{Fake, FakeService};
use state::SocketCommand;

/// A fake connector. Its `url()` has no path: the gateway adds that of the socket.
pub type Connector = Fake<RelayServer>;

type Shared = crate::server::fake::Shared<RelayServer>;

#[derive(Debug)]
pub struct RelayServer;

impl FakeService for RelayServer {
    type State = State;
    type Fault = Infallible;
    type ChatId = Infallible;
    type Change = Infallible;

    fn router(shared: Arc<Shared>) -> Router {
        Router::new()
            .route("/relay", get(socket::upgrade))
            .route("/relay/{endpoint}", post(http::post))
            .route("/relay/media/{id}", get(http::media))
            .with_state(shared)
    }
}

impl Connector {
    /// Stops reading from and writing to the open connections, without closing them.
    pub fn silence(&self) {
        self.shared.update(|state| state.command_all(&SocketCommand::Silence));
    }

    /// Queues an event until it is acknowledged. Returns its buffer id.
    pub fn push(&self, event: Value) -> String {
        self.shared.update(|state| state.push("inbound", "event", event))
    }

    /// Queues a forwarded platform request until it is acknowledged. Returns its buffer id.
    pub fn push_forward(&self, forward: Value) -> String {
        self.shared.update(|state| state.push("passthrough_forward", "forward", forward))
    }

    /// Sends an event without a buffer id to the open connections.
    pub fn push_live(&self, event: Value) {
        self.send(&format!("{}\n", json!({"type": "inbound", "event": event})));
    }

    /// Sends one WebSocket message.
    pub fn send(&self, text: &str) {
        self.shared.update(|state| state.command_all(&SocketCommand::Text(text.to_owned())));
    }

    pub fn send_bytes(&self, bytes: &[u8]) {
        self.shared.update(|state| state.command_all(&SocketCommand::Bytes(bytes.to_owned())));
    }

    pub fn close(&self, code: u16, reason: &str) {
        self.shared.update(|state| state.command_all(&SocketCommand::Close(code, reason.to_owned())));
    }

    /// Closes the next `times` connections before their hello.
    pub fn refuse(&self, times: usize, code: u16, reason: &str) {
        let close = (code, reason.to_owned());
        self.shared.state.change(|state| state.close_frames.extend(std::iter::repeat_n(close, times)));
    }

    /// Closes the next `times` connections right after their first descriptor.
    pub fn close_after_descriptor(&self, times: usize) {
        self.shared.state.change(|state| state.closes_after_descriptor = times);
    }

    /// Does not respond to the next `times` hellos.
    pub fn ignore_hellos(&self, times: usize) {
        self.shared.state.change(|state| state.ignored_hellos = times);
    }

    /// Lets follow-ups of this session and kind reach a chat.
    pub fn permit_follow_up(&self, session: &str, kind: &str, chat: &str) {
        let name = (session.to_owned(), kind.to_owned());
        self.shared.state.change(|state| state.permissions.insert(name, chat.to_owned()));
    }

    /// Sets the delay before `going_idle` is acknowledged; `None`: never.
    pub fn grant_idle(&self, after: Option<Duration>) {
        self.shared.state.change(|state| state.idle_after = after);
    }

    /// Changes the descriptor of a platform, from the next hello on.
    pub fn describe(&self, platform: &str, change: impl FnOnce(&mut Value)) {
        self.shared.state.change(|state| change(state.descriptor(platform)));
    }

    /// Injects a fault into the next outbound message.
    pub fn fail_next(&self, fault: OutboundFault) {
        self.fail_next_matching(|_| true, fault);
    }

    /// Injects a fault into the next outbound message whose text matches.
    pub fn fail_next_matching(&self, text: TextPredicate, fault: OutboundFault) {
        self.shared.state.change(|state| state.faults.push_back((text, fault)));
    }

    /// The number of messages that met a fault so far.
    #[must_use]
    pub fn faults_applied(&self) -> u64 {
        self.read(|state| state.faults_applied)
    }

    /// Sets the response to the next request to this endpoint (`provision`, `policy`, …).
    pub fn respond_next(&self, endpoint: &str, status: u16, body: Value) {
        let response = (endpoint.to_owned(), status, body);
        self.shared.state.change(|state| state.responses.push_back(response));
    }

    #[must_use]
    pub fn visible(&self, chat: &str) -> Vec<ConnectorMessage> {
        self.read(|state| state.chats.get(chat).cloned().unwrap_or_default())
    }
}

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
