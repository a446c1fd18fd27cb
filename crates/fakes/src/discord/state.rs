//! The state of the fake: channels, sessions, and the recorded calls and frames.
//!
//! One lock guards it; tests read it through the handle.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::channel::{DIRECT, DiscordChannel, DiscordMessage};
use super::error::ServiceError;
use super::http::RestRequest;
use super::incoming::{APPLICATION_ID, BOT_ID, Incoming, person, snowflake};
use super::sessions::{Event, Sessions};
use crate::faults::pipeline::{CallOutcome, CallRecord};
use crate::server::files::StoredFile;
use crate::server::log::Log;

#[derive(Debug, Clone)]
pub struct ApiCall {
    pub number: u64,
    /// `createMessage`, `editMessage`, …; the method and path where it is unknown.
    pub route: String,
    pub channel: Option<u64>,
    pub body: Value,
    pub query: HashMap<String, String>,
    pub at: Instant,
    /// It had its effect, whatever the response.
    pub applied: bool,
    pub outcome: Outcome,
}

pub type Outcome = CallOutcome<ServiceError>;

#[derive(Debug, Clone)]
pub struct ReceivedFrame {
    pub connection: u64,
    pub path: String,
    pub op: u64,
    pub data: Value,
    pub at: Instant,
}

#[derive(Debug, Clone, PartialEq)]
pub enum VisibleChange {
    Sent(DiscordMessage),
    Edited(DiscordMessage),
    Deleted { channel: u64, id: u64 },
    Typing { channel: u64 },
    Reacted { channel: u64, id: u64, emoji: String },
    Answered { interaction: u64, answer: Value },
}

/// The behaviour of the gateway towards clients.
#[derive(Debug, Clone)]
pub(crate) struct GatewayBehaviour {
    pub(crate) interval: Duration,
    /// Sockets stay open and send nothing, not even acknowledgements.
    pub(crate) silent: bool,
    pub(crate) acks: bool,
    /// IDENTIFY and RESUME get no response.
    pub(crate) withholds_ready: bool,
    /// IDENTIFY and RESUME get this close code.
    pub(crate) close_code: Option<u16>,
    /// READY names the guilds, but no GUILD_CREATE follows.
    pub(crate) late_guilds: bool,
}

impl Default for GatewayBehaviour {
    fn default() -> Self {
        let interval = Duration::from_millis(41_250);
        Self {
            interval,
            silent: false,
            acks: true,
            withholds_ready: false,
            close_code: None,
            late_guilds: false,
        }
    }
}

#[derive(Debug, Default)]
pub struct State {
    pub(crate) channels: BTreeMap<u64, DiscordChannel>,
    pub(crate) guilds: Vec<u64>,
    pub(crate) sessions: Sessions,
    pub(crate) behaviour: GatewayBehaviour,
    pub(crate) calls: Log<ApiCall>,
    pub(crate) frames: Log<ReceivedFrame>,
    /// Close codes of clients; `None` for a socket that ended without a close frame.
    pub(crate) closes: Vec<Option<u16>>,
    pub(crate) nonces: HashMap<(u64, String), u64>,
    /// Interactions by id: their token, and whether they were answered.
    pub(crate) interactions: HashMap<u64, (String, bool)>,
    pub(crate) commands: Value,
    pub(crate) roles: Vec<(u64, u64)>,
    pub(crate) files: HashMap<String, StoredFile>,
    pub(crate) reactions: Vec<(u64, u64, String)>,
    /// `None` accepts any token.
    pub(crate) token: Option<String>,
    pub(crate) starts_left: Option<u64>,
    pub(crate) address: String,
    pub(crate) last_id: u64,
}

impl State {
    /// The bot's messages in a channel as they stand now, oldest first.
    pub fn messages(&self, channel: u64) -> impl DoubleEndedIterator<Item = &DiscordMessage> {
        self.channels.get(&channel).into_iter().flat_map(DiscordChannel::by_bot)
    }

    #[must_use]
    pub fn texts(&self, channel: u64) -> Vec<String> {
        self.messages(channel).map(|message| message.content.clone()).collect()
    }

    pub fn calls(&self) -> impl DoubleEndedIterator<Item = &ApiCall> {
        self.calls.iter()
    }

    pub fn calls_of(&self, route: &str) -> impl DoubleEndedIterator<Item = &ApiCall> {
        self.calls.iter().filter(move |call| call.route.eq_ignore_ascii_case(route))
    }

    /// Frames from clients with this opcode: 1 heartbeat, 2 identify, 6 resume.
    pub fn frames(&self, op: u64) -> impl DoubleEndedIterator<Item = &ReceivedFrame> {
        self.frames.iter().filter(move |frame| frame.op == op)
    }

    #[must_use]
    pub fn closes(&self) -> &[Option<u16>] {
        &self.closes
    }

    #[must_use]
    pub fn connected(&self) -> usize {
        self.sessions.connected()
    }

    /// The commands of the last bulk overwrite, or null.
    #[must_use]
    pub fn commands(&self) -> &Value {
        &self.commands
    }

    #[must_use]
    pub fn reactions(&self) -> &[(u64, u64, String)] {
        &self.reactions
    }

    pub(crate) fn roles(&self, user: u64) -> Vec<String> {
        let theirs = self.roles.iter().filter(|(owner, _)| *owner == user);
        theirs.map(|(_, role)| role.to_string()).collect()
    }

    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id = snowflake(Duration::ZERO, 0).max(self.last_id + 1);
        self.last_id
    }

    /// Creates an unknown channel as a direct one.
    pub(crate) fn channel_mut(&mut self, channel: u64) -> &mut DiscordChannel {
        self.channels.entry(channel).or_insert_with(|| DiscordChannel::new(channel, DIRECT, None))
    }

    pub(crate) fn push(&mut self, incoming: &Incoming) -> u64 {
        let id = match incoming.ago {
            Duration::ZERO => self.next_id(),
            ago => snowflake(ago, self.calls.next() + self.channels.len() as u64),
        };
        let mut author = person(incoming.user, incoming.bot);
        author["bot"] = incoming.bot.into();
        let referenced =
            incoming.reply_to.and_then(|id| self.channels.get(&incoming.channel)?.messages.get(&id));
        let referenced = referenced.map_or(Value::Null, |message| message.wire.clone());
        let wire = json!({
            "id": id.to_string(), "channel_id": incoming.channel.to_string(), "type": incoming.kind,
            "author": author, "content": incoming.content, "mentions": incoming.mentions,
            "attachments": incoming.attachments, "timestamp": "2026-11-16T00:00:00.000000+00:00",
            "referenced_message": referenced, "mention_roles": [], "mention_everyone": false,
        });
        let message = DiscordMessage {
            id,
            channel: incoming.channel,
            content: incoming.content.clone(),
            from_bot: false,
            reply_to: incoming.reply_to,
            components: Value::Null,
            allowed_mentions: Value::Null,
            nonce: None,
            flags: 0,
            edits: 0,
            files: Vec::new(),
            wire,
        };
        self.publish("MESSAGE_CREATE", message);
        id
    }

    /// Stores a message and dispatches it to every session, with its guild and the author's roles.
    pub(crate) fn publish(&mut self, kind: &str, message: DiscordMessage) {
        let mut wire = message.wire.clone();
        let author = wire["author"]["id"].as_str().and_then(|id| id.parse().ok()).unwrap_or_default();
        let roles = self.roles(author);
        let channel = self.channel_mut(message.channel);
        if let Some(guild) = channel.guild {
            wire["guild_id"] = guild.to_string().into();
            wire["member"] = json!({ "roles": roles });
        }
        channel.messages.insert(message.id, message);
        self.sessions.dispatch(kind, &wire);
    }

    pub(crate) fn interact(
        &mut self,
        channel: u64,
        user: u64,
        kind: u64,
        data: Value,
        message: Option<u64>,
    ) -> u64 {
        let id = self.next_id();
        let token = format!("interaction-token-{id}");
        let origin = self.channel_mut(channel).clone();
        let mut wire = json!({
            "id": id.to_string(), "application_id": APPLICATION_ID.to_string(), "type": kind, "token": token,
            "version": 1, "channel_id": channel.to_string(), "channel": origin.to_json(), "data": data,
        });
        match origin.guild {
            Some(guild) => {
                wire["guild_id"] = guild.to_string().into();
                wire["member"] = json!({ "user": person(user, false), "roles": [] });
            }
            None => wire["user"] = person(user, false),
        }
        if let Some(message) = message.and_then(|id| origin.messages.get(&id)) {
            wire["message"] = message.wire.clone();
        }
        self.interactions.insert(id, (token, false));
        self.sessions.dispatch("INTERACTION_CREATE", &wire);
        id
    }

    /// The first events of a session: READY and the guilds.
    pub(crate) fn initial_events(&self, session: &str) -> Vec<Event> {
        let guilds: Vec<Value> =
            self.guilds.iter().map(|id| json!({ "id": id.to_string(), "unavailable": true })).collect();
        let ready = json!({
            "v": 10, "user": person(BOT_ID, true), "guilds": guilds, "session_id": session,
            "resume_gateway_url": format!("ws://{}/resume", self.address),
            "application": { "id": APPLICATION_ID.to_string(), "flags": 0 },
        });
        let mut events = vec![Event { kind: "READY".into(), data: ready }];
        if !self.behaviour.late_guilds {
            events.extend(self.guild_events());
        }
        events
    }

    pub(crate) fn guild_events(&self) -> Vec<Event> {
        self.guilds.iter().map(|guild| self.guild(*guild)).collect()
    }

    fn guild(&self, guild: u64) -> Event {
        let within = self.channels.values().filter(|channel| channel.guild == Some(guild));
        let (threads, channels): (Vec<&DiscordChannel>, Vec<&DiscordChannel>) =
            within.partition(|it| it.is_thread());
        // Channels within a guild do not repeat its id.
        let to_json = |list: Vec<&DiscordChannel>| -> Vec<Value> {
            let without_guild = |mut wire: Value| {
                wire.as_object_mut().map(|fields| fields.remove("guild_id"));
                wire
            };
            list.into_iter().map(|channel| without_guild(channel.to_json())).collect()
        };
        let data = json!({
            "id": guild.to_string(), "name": format!("guild{guild}"), "unavailable": false,
            "channels": to_json(channels), "threads": to_json(threads),
        });
        Event { kind: "GUILD_CREATE".into(), data }
    }

    pub(crate) fn record_call(&mut self, route: &str, channel: Option<u64>, request: &RestRequest) -> u64 {
        let number = self.calls.next();
        self.calls.push(ApiCall {
            number,
            route: route.to_owned(),
            channel,
            body: request.body.clone(),
            query: request.query.clone(),
            at: crate::now(),
            applied: false,
            outcome: Outcome::Pending,
        });
        number
    }
}

impl CallRecord for State {
    type Error = ServiceError;

    fn entry(&mut self, number: u64) -> Option<(&mut bool, &mut Outcome)> {
        self.calls.get_mut(number).map(|call| (&mut call.applied, &mut call.outcome))
    }
}
