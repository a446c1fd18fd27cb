//! Everything the fake knows: channels, sessions, the rules and the record of what was received.
//!
//! One lock guards it (`Shared` in the parent module); a test looks at it through `wait_until`.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::channel::{Channel, DIRECT, Message};
use super::incoming::{APPLICATION_ID, BOT_ID, Incoming, person, snowflake};
use super::sessions::{Event, Sessions};
use crate::files::Stored;
use crate::keep::Log;
use crate::road::Record;

/// One REST request, in order of arrival.
#[derive(Debug, Clone)]
pub struct Call {
    pub number: u64,
    /// `createMessage`, `editMessage`, …; the method and path where it is unknown.
    pub route: String,
    pub channel: Option<u64>,
    pub body: Value,
    pub query: HashMap<String, String>,
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
        code: u64,
    },
    /// The connection was reset by a fault.
    Reset,
    /// Rubbish, or half an answer.
    Garbled,
    /// The caller hung up first.
    Abandoned,
}

/// One frame that a client sent over its socket.
#[derive(Debug, Clone)]
pub struct Heard {
    pub connection: u64,
    /// The path the socket was opened at.
    pub path: String,
    pub op: u64,
    pub data: Value,
    pub at: Instant,
}

/// What people have just seen the bot do.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    Sent(Message),
    Edited(Message),
    Deleted { channel: u64, id: u64 },
    Typing { channel: u64 },
    Reacted { channel: u64, id: u64, emoji: String },
    Answered { interaction: u64, answer: Value },
}

/// How the gateway behaves.
#[derive(Debug, Clone)]
pub(crate) struct Manner {
    pub(crate) interval: Duration,
    /// The socket stays open and says nothing, not even an acknowledgement.
    pub(crate) silent: bool,
    pub(crate) acks: bool,
    /// IDENTIFY and RESUME are heard and never answered.
    pub(crate) mute_at_ready: bool,
    /// IDENTIFY and RESUME are answered with this close code.
    pub(crate) refuses: Option<u16>,
    /// READY names the guilds, and they are not listed until told.
    pub(crate) late_guilds: bool,
}

impl Default for Manner {
    fn default() -> Self {
        let interval = Duration::from_millis(41_250);
        Self { interval, silent: false, acks: true, mute_at_ready: false, refuses: None, late_guilds: false }
    }
}

#[derive(Debug, Default)]
pub struct World {
    pub(crate) channels: BTreeMap<u64, Channel>,
    pub(crate) guilds: Vec<u64>,
    pub(crate) sessions: Sessions,
    pub(crate) manner: Manner,
    pub(crate) calls: Log<Call>,
    pub(crate) heard: Log<Heard>,
    /// What clients closed their sockets with; `None` is a socket that just ended.
    pub(crate) closes: Vec<Option<u16>>,
    pub(crate) nonces: HashMap<(u64, String), u64>,
    /// Interactions that wait for their answer, with their tokens.
    pub(crate) interactions: HashMap<u64, (String, bool)>,
    pub(crate) commands: Value,
    /// Who has which.
    pub(crate) roles: Vec<(u64, u64)>,
    /// Attachments that can be fetched, by path.
    pub(crate) files: HashMap<String, Stored>,
    pub(crate) reactions: Vec<(u64, u64, String)>,
    /// `None`: any token will do.
    pub(crate) token: Option<String>,
    pub(crate) starts_left: Option<u64>,
    pub(crate) address: String,
    pub(crate) last_id: u64,
}

impl World {
    /// The bot's messages in a channel as they stand now, oldest first.
    pub fn messages(&self, channel: u64) -> impl DoubleEndedIterator<Item = &Message> {
        self.channels.get(&channel).into_iter().flat_map(Channel::by_bot)
    }

    #[must_use]
    pub fn texts(&self, channel: u64) -> Vec<String> {
        self.messages(channel).map(|message| message.content.clone()).collect()
    }

    pub fn calls(&self) -> impl DoubleEndedIterator<Item = &Call> {
        self.calls.iter()
    }

    pub fn calls_of(&self, route: &str) -> impl DoubleEndedIterator<Item = &Call> {
        self.calls.iter().filter(move |call| call.route.eq_ignore_ascii_case(route))
    }

    /// What clients said over their sockets: 1 heartbeat, 2 identify, 6 resume.
    pub fn heard(&self, op: u64) -> impl DoubleEndedIterator<Item = &Heard> {
        self.heard.iter().filter(move |heard| heard.op == op)
    }

    #[must_use]
    pub fn closes(&self) -> &[Option<u16>] {
        &self.closes
    }

    /// Sockets that are open now.
    #[must_use]
    pub fn connected(&self) -> usize {
        self.sessions.connected()
    }

    /// What the last bulk overwrite set; null before.
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

    /// A channel nobody has set up is a direct one.
    pub(crate) fn channel_mut(&mut self, channel: u64) -> &mut Channel {
        self.channels.entry(channel).or_insert_with(|| Channel::new(channel, DIRECT, None))
    }

    pub(crate) fn push(&mut self, incoming: &Incoming) -> u64 {
        let id = match incoming.ago {
            Duration::ZERO => self.next_id(),
            ago => snowflake(ago, self.calls.next() + self.channels.len() as u64),
        };
        let mut author = person(incoming.user, incoming.bot);
        author["bot"] = incoming.bot.into();
        let quoted = incoming.reply_to.and_then(|id| self.channels.get(&incoming.channel)?.messages.get(&id));
        let quoted = quoted.map_or(Value::Null, |message| message.wire.clone());
        let wire = json!({
            "id": id.to_string(), "channel_id": incoming.channel.to_string(), "type": incoming.kind,
            "author": author, "content": incoming.content, "mentions": incoming.mentions,
            "attachments": incoming.attachments, "timestamp": "2026-11-16T00:00:00.000000+00:00",
            "referenced_message": quoted, "mention_roles": [], "mention_everyone": false,
        });
        let message = Message {
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

    /// Keeps a message and tells every session of it; what comes over the socket names its guild and the author's roles.
    pub(crate) fn publish(&mut self, kind: &str, message: Message) {
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
        let place = self.channel_mut(channel).clone();
        let mut wire = json!({
            "id": id.to_string(), "application_id": APPLICATION_ID.to_string(), "type": kind, "token": token,
            "version": 1, "channel_id": channel.to_string(), "channel": place.wire(), "data": data,
        });
        match place.guild {
            Some(guild) => {
                wire["guild_id"] = guild.to_string().into();
                wire["member"] = json!({ "user": person(user, false), "roles": [] });
            }
            None => wire["user"] = person(user, false),
        }
        if let Some(message) = message.and_then(|id| place.messages.get(&id)) {
            wire["message"] = message.wire.clone();
        }
        self.interactions.insert(id, (token, false));
        self.sessions.dispatch("INTERACTION_CREATE", &wire);
        id
    }

    /// READY and the guilds, as a fresh session begins.
    pub(crate) fn greeting(&self, session: &str) -> Vec<Event> {
        let guilds: Vec<Value> =
            self.guilds.iter().map(|id| json!({ "id": id.to_string(), "unavailable": true })).collect();
        let ready = json!({
            "v": 10, "user": person(BOT_ID, true), "guilds": guilds, "session_id": session,
            "resume_gateway_url": format!("ws://{}/resume", self.address),
            "application": { "id": APPLICATION_ID.to_string(), "flags": 0 },
        });
        let mut events = vec![Event { kind: "READY".into(), data: ready }];
        if !self.manner.late_guilds {
            events.extend(self.listed());
        }
        events
    }

    pub(crate) fn listed(&self) -> Vec<Event> {
        self.guilds.iter().map(|guild| self.guild(*guild)).collect()
    }

    fn guild(&self, guild: u64) -> Event {
        let within = self.channels.values().filter(|channel| channel.guild == Some(guild));
        let (threads, channels): (Vec<&Channel>, Vec<&Channel>) = within.partition(|it| it.is_thread());
        // Channels within a guild do not repeat its id.
        let wires = |list: Vec<&Channel>| -> Vec<Value> {
            let bare = |mut wire: Value| {
                wire.as_object_mut().map(|fields| fields.remove("guild_id"));
                wire
            };
            list.into_iter().map(|channel| bare(channel.wire())).collect()
        };
        let data = json!({
            "id": guild.to_string(), "name": format!("guild{guild}"), "unavailable": false,
            "channels": wires(channels), "threads": wires(threads),
        });
        Event { kind: "GUILD_CREATE".into(), data }
    }

    pub(crate) fn arrive(&mut self, route: &str, channel: Option<u64>, asked: &super::http::Asked) -> u64 {
        let number = self.calls.next();
        self.calls.push(Call {
            number,
            route: route.to_owned(),
            channel,
            body: asked.body.clone(),
            query: asked.query.clone(),
            at: crate::now(),
            applied: false,
            outcome: Outcome::Pending,
        });
        number
    }
}

impl Record for World {
    type Outcome = Outcome;
    const ABANDONED: Outcome = Outcome::Abandoned;

    fn entry(&mut self, number: u64) -> Option<(&mut bool, &mut Outcome)> {
        self.calls.get_mut(number).map(|call| (&mut call.applied, &mut call.outcome))
    }
}
