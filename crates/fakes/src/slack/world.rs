//! Everything the fake knows: workspaces, channels, deliveries, connections, rules and the record of calls.
//!
//! One lock guards it (`Shared` in the parent module); a test looks at it through `wait_until`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;

use super::chat::{Channel, Message};
use super::deliveries::{Deliveries, Delivery};
use super::incoming::{self, Incoming};
use super::params::Params;
use crate::files::Stored;
use crate::keep::Log;
use crate::road::Record;

/// One request, in order of arrival.
#[derive(Debug, Clone)]
pub struct Call {
    pub number: u64,
    pub method: String,
    /// As it was sent in `Authorization`.
    pub token: String,
    pub params: Arc<Params>,
    pub at: Instant,
    /// It had its effect, whatever the caller was told.
    pub applied: bool,
    pub outcome: Outcome,
}

/// What the caller was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Not answered yet.
    Pending,
    Ok,
    Refused {
        status: u16,
        error: String,
    },
    /// The connection was reset by a fault.
    Reset,
    Garbled,
    /// The caller hung up first.
    Abandoned,
}

/// What people have just seen happen.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    Sent(Message),
    Edited(Message),
    Deleted { channel: String, ts: String },
    Status { channel: String, thread: String, status: String },
    Responded(Response),
}

/// What was posted to a response address.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    pub url: String,
    pub body: Value,
}

/// An acknowledgement, as it came over a socket.
#[derive(Debug, Clone, PartialEq)]
pub struct Ack {
    pub envelope: String,
    /// What it acknowledges; `None`: nothing that is still waited for.
    pub delivery: Option<u64>,
    pub took: Option<Duration>,
    pub connection: u64,
    pub at: Instant,
    pub payload: Value,
}

/// A workspace in which the app is installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    pub team: String,
    pub token: String,
    /// The bot's user id, and its id as a bot.
    pub bot_user: String,
    pub bot_id: String,
}

/// A file on its way to a channel.
#[derive(Debug, Clone)]
pub(crate) struct Brought {
    pub(crate) name: String,
    pub(crate) length: usize,
    pub(crate) content: Option<Bytes>,
}

/// What a test wants of an open socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wish {
    Say(String),
    Ping,
    Close,
    Reset,
    Silence,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) number: u64,
    pub(crate) wishes: VecDeque<Wish>,
    pub(crate) silent: bool,
    /// Told to go: gets nothing new.
    pub(crate) leaving: bool,
}

#[derive(Debug, Default)]
pub struct World {
    /// `http://127.0.0.1:PORT`, where the fake can be reached.
    pub(crate) origin: String,
    pub(crate) app_token: Option<String>,
    pub(crate) workspaces: Vec<Workspace>,
    pub(crate) channels: HashMap<String, Channel>,
    /// What channels are called; one without a name is called by its id.
    pub(crate) names: HashMap<String, String>,
    pub(crate) users: HashMap<String, String>,
    pub(crate) deliveries: Deliveries,
    pub(crate) connections: Vec<Connection>,
    pub(crate) opened: u64,
    pub(crate) acks: Vec<Ack>,
    pub(crate) pongs: u64,
    pub(crate) pings: u64,
    pub(crate) responses: Vec<Response>,
    pub(crate) calls: Log<Call>,
    /// What people have shared, by path.
    pub(crate) files: HashMap<String, Stored>,
    /// What we were promised, by id, and then brought.
    pub(crate) uploads: HashMap<String, Brought>,
    pub(crate) clock: u64,
}

impl World {
    /// The bot's messages in a channel as people see them now, oldest first.
    pub fn messages(&self, channel: &str) -> impl DoubleEndedIterator<Item = &Message> {
        self.channels.get(channel).into_iter().flat_map(|channel| &channel.messages)
    }

    #[must_use]
    pub fn texts(&self, channel: &str) -> Vec<String> {
        self.messages(channel).map(|message| message.text.clone()).collect()
    }

    /// The status line of a thread, if one was ever set.
    #[must_use]
    pub fn status(&self, channel: &str, thread: &str) -> Option<&str> {
        let statuses = &self.channels.get(channel)?.statuses;
        statuses.iter().rev().find(|(of, _)| of == thread).map(|(_, status)| status.as_str())
    }

    /// The names of the emoji that the bot put below a message.
    #[must_use]
    pub fn marks(&self, channel: &str, ts: &str) -> Vec<String> {
        let marks = self.channels.get(channel).into_iter().flat_map(|channel| &channel.marks);
        marks.filter(|(of, _)| of == ts).map(|(_, name)| name.clone()).collect()
    }

    pub fn calls(&self) -> impl DoubleEndedIterator<Item = &Call> {
        self.calls.iter()
    }

    pub fn calls_of(&self, method: &str) -> impl DoubleEndedIterator<Item = &Call> {
        self.calls.iter().filter(move |call| call.method == method)
    }

    #[must_use]
    pub fn acks(&self) -> &[Ack] {
        &self.acks
    }

    #[must_use]
    pub fn deliveries(&self) -> &[Delivery] {
        self.deliveries.all()
    }

    /// Sockets that were ever opened.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// Sockets that are open now; a silent one is not counted.
    #[must_use]
    pub fn open_sockets(&self) -> usize {
        self.connections.iter().filter(|connection| !connection.silent).count()
    }

    /// Answers to our pings, and pings of the client.
    #[must_use]
    pub fn heartbeats(&self) -> (u64, u64) {
        (self.pongs, self.pings)
    }

    #[must_use]
    pub fn responses(&self) -> &[Response] {
        &self.responses
    }

    pub(crate) fn arrive(&mut self, method: &str, token: &str, params: &Arc<Params>) -> u64 {
        let number = self.calls.next();
        self.calls.push(Call {
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

    /// A new moment: no two messages have the same.
    pub(crate) fn tick(&mut self) -> String {
        self.clock += 1;
        format!("{}.{:06}", 1_700_000_000 + self.clock, self.clock)
    }

    /// `kinds`: the events that tell of it, which share its moment.
    pub(crate) fn push(&mut self, said: &Incoming, kinds: &[&str]) -> Pushed {
        let team = self.team_of(said.team.as_deref(), &said.channel);
        let ts = self.tick();
        let bot = self.bot_of(&team);
        let mut numbers = Vec::new();
        for kind in kinds {
            let event = said.event(kind, &team, &ts);
            if *kind == "message" {
                self.channels.entry(said.channel.clone()).or_default().heard.push(event.clone());
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

impl Record for World {
    type Outcome = Outcome;
    const ABANDONED: Outcome = Outcome::Abandoned;

    fn entry(&mut self, number: u64) -> Option<(&mut bool, &mut Outcome)> {
        self.calls.get_mut(number).map(|call| (&mut call.applied, &mut call.outcome))
    }
}

/// What a pushed message got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    pub ts: String,
    pub deliveries: Vec<u64>,
}
