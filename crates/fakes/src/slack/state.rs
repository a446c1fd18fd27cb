//! The state of the fake: workspaces, channels, deliveries, sockets and the recorded calls.
//!
//! One lock guards it; tests read it through the handle.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;

use super::channel::{SlackChannel, SlackMessage};
use super::deliveries::{Deliveries, EventDelivery};
use super::error::ServiceError;
use super::incoming::{self, Incoming};
use super::params::Params;
use crate::faults::pipeline::{CallOutcome, CallRecord};
use crate::server::files::StoredFile;
use crate::server::log::Log;

#[derive(Debug, Clone)]
pub struct ApiCall {
    pub number: u64,
    pub method: String,
    pub token: String,
    pub params: Arc<Params>,
    pub at: Instant,
    /// It had its effect, whatever the response.
    pub applied: bool,
    pub outcome: Outcome,
}

pub type Outcome = CallOutcome<ServiceError>;

#[derive(Debug, Clone, PartialEq)]
pub enum VisibleChange {
    Sent(SlackMessage),
    Edited(SlackMessage),
    Deleted { channel: String, ts: String },
    Status { channel: String, thread: String, status: String },
    Responded(Response),
}

/// A post to a response URL.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    pub url: String,
    pub body: Value,
}

/// An acknowledgement from a socket.
#[derive(Debug, Clone, PartialEq)]
pub struct Ack {
    pub envelope: String,
    /// The acknowledged delivery; `None` if unknown or too late.
    pub delivery: Option<u64>,
    pub took: Option<Duration>,
    pub connection: u64,
    pub at: Instant,
    pub payload: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    pub team: String,
    pub token: String,
    pub bot_user: String,
    pub bot_id: String,
}

/// A file upload that is not shared yet.
#[derive(Debug, Clone)]
pub(crate) struct PendingUpload {
    pub(crate) name: String,
    pub(crate) length: usize,
    pub(crate) content: Option<Bytes>,
}

/// An open socket's behaviour, set by a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SocketCommand {
    Send(String),
    Ping,
    Close,
    Reset,
    Silence,
}

#[derive(Debug)]
pub(crate) struct SocketState {
    pub(crate) number: u64,
    pub(crate) commands: VecDeque<SocketCommand>,
    pub(crate) silent: bool,
    /// Its end was announced; it gets no more deliveries.
    pub(crate) leaving: bool,
}

#[derive(Debug, Default)]
pub struct State {
    pub(crate) origin: String,
    pub(crate) app_token: Option<String>,
    pub(crate) workspaces: Vec<Workspace>,
    pub(crate) channels: HashMap<String, SlackChannel>,
    /// Channel names, if they differ from the ids.
    pub(crate) names: HashMap<String, String>,
    pub(crate) users: HashMap<String, String>,
    pub(crate) deliveries: Deliveries,
    pub(crate) connections: Vec<SocketState>,
    pub(crate) opened: u64,
    pub(crate) acks: Vec<Ack>,
    pub(crate) pongs: u64,
    pub(crate) pings: u64,
    pub(crate) responses: Vec<Response>,
    pub(crate) calls: Log<ApiCall>,
    pub(crate) files: HashMap<String, StoredFile>,
    pub(crate) uploads: HashMap<String, PendingUpload>,
    pub(crate) clock: u64,
}

impl State {
    /// The bot's messages in a channel as people see them now, oldest first.
    pub fn messages(&self, channel: &str) -> impl DoubleEndedIterator<Item = &SlackMessage> {
        self.channels.get(channel).into_iter().flat_map(|channel| &channel.messages)
    }

    #[must_use]
    pub fn texts(&self, channel: &str) -> Vec<String> {
        self.messages(channel).map(|message| message.text.clone()).collect()
    }

    #[must_use]
    pub fn status(&self, channel: &str, thread: &str) -> Option<&str> {
        let statuses = &self.channels.get(channel)?.statuses;
        statuses.iter().rev().find(|(of, _)| of == thread).map(|(_, status)| status.as_str())
    }

    #[must_use]
    pub fn reactions(&self, channel: &str, ts: &str) -> Vec<String> {
        let reactions = self.channels.get(channel).into_iter().flat_map(|channel| &channel.reactions);
        reactions.filter(|(of, _)| of == ts).map(|(_, name)| name.clone()).collect()
    }

    pub fn calls(&self) -> impl DoubleEndedIterator<Item = &ApiCall> {
        self.calls.iter()
    }

    pub fn calls_of(&self, method: &str) -> impl DoubleEndedIterator<Item = &ApiCall> {
        self.calls.iter().filter(move |call| call.method == method)
    }

    #[must_use]
    pub fn acks(&self) -> &[Ack] {
        &self.acks
    }

    #[must_use]
    pub fn deliveries(&self) -> &[EventDelivery] {
        self.deliveries.all()
    }

    #[must_use]
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// The number of open sockets that are not silent.
    #[must_use]
    pub fn open_sockets(&self) -> usize {
        self.connections.iter().filter(|connection| !connection.silent).count()
    }

    #[must_use]
    pub fn heartbeats(&self) -> (u64, u64) {
        (self.pongs, self.pings)
    }

    #[must_use]
    pub fn responses(&self) -> &[Response] {
        &self.responses
    }

    pub(crate) fn record_call(&mut self, method: &str, token: &str, params: &Arc<Params>) -> u64 {
        let number = self.calls.next();
        self.calls.push(ApiCall {
            number,
            method: method.to_owned(),
            token: token.to_owned(),
            params: params.clone(),
            at: crate::now(),
            applied: false,
            outcome: Outcome::Pending,
        });
        number
    }

    pub(crate) fn add_channel(&mut self, team: &str, channel: &str) {
        self.channels.entry(channel.to_owned()).or_default().team = team.to_owned();
    }

    pub(crate) fn next_ts(&mut self) -> String {
        self.clock += 1;
        format!("{}.{:06}", 1_700_000_000 + self.clock, self.clock)
    }

    /// Pushes one event per kind, all with the timestamp of the message.
    pub(crate) fn push(&mut self, incoming: &Incoming, kinds: &[&str]) -> Pushed {
        let team = self.team_of(incoming.team.as_deref(), &incoming.channel);
        let ts = self.next_ts();
        let bot = self.bot_of(&team);
        let mut numbers = Vec::new();
        for kind in kinds {
            let event = incoming.event(kind, &team, &ts);
            if *kind == "message" {
                self.channels.entry(incoming.channel.clone()).or_default().incoming.push(event.clone());
            }
            let number = self.deliveries.all().len() as u64;
            let payload = incoming::callback(&team, &bot, number, &event);
            numbers.push(self.deliveries.push("events_api", payload));
        }
        Pushed { ts, deliveries: numbers }
    }

    pub(crate) fn team_of(&mut self, named: Option<&str>, channel: &str) -> String {
        let known = self.channels.get(channel).map(|channel| channel.team.clone());
        let first = || self.workspaces.first().map(|workspace| workspace.team.clone());
        let team = named.map(str::to_owned).or(known).or_else(first).unwrap_or_default();
        self.add_channel(&team, channel);
        team
    }

    pub(crate) fn bot_of(&self, team: &str) -> String {
        let workspace = self.workspaces.iter().find(|workspace| workspace.team == team);
        workspace.map(|workspace| workspace.bot_user.clone()).unwrap_or_default()
    }
}

impl CallRecord for State {
    type Error = ServiceError;

    fn entry(&mut self, number: u64) -> Option<(&mut bool, &mut Outcome)> {
        self.calls.get_mut(number).map(|call| (&mut call.applied, &mut call.outcome))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    pub ts: String,
    pub deliveries: Vec<u64>,
}
