//! The gateway's side of a link: events become messages, messages become committed batches.
//!
//! Owns the place (`place.rs`) and the list of channels. Events are taken in the order of the socket, several
//! at a time; one that cannot be read is set aside. A batch with messages is committed at once; a place that only
//! moved is committed after a while, for whatever comes again meanwhile is known by its id.
//! Missed messages are fetched beside that (`backfill.rs`); only live messages of a channel with a gap wait for them.

use std::future;
use std::time::Duration;

use petasos_core::Inbound;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::warn;

use super::backfill::{self, Answer, Request};
use super::cursor::{Me, Place, Session};
use super::parse::{self, Spot};
use super::rooms::{Room, Rooms};
use super::session::{Arrived, Event, Kept};
use super::tokens::Wants;
use super::wire::{self, Ready, first_of};
use super::{Discord, Error};
use crate::backfill::buffer::Buffer;
use crate::backfill::schedule::Schedule;
use crate::intake::{Health, Intake, NotTaken, Unreadable};

/// Events that become one batch.
const BATCH: usize = 64;
/// How long a place that only moved may wait.
const MOVED: Duration = Duration::from_secs(5);
/// Live messages that wait for older ones.
const HELD: usize = 1024;
/// Longest wait for a gateway that cannot keep a batch.
const LONGEST: Duration = Duration::from_secs(60);

pub(super) struct Digest<'a> {
    pub(super) discord: &'a Discord,
    pub(super) place: Place,
    pub(super) rooms: Rooms,
    pub(super) schedule: Schedule<u64>,
    pub(super) request: Option<Request<'a>>,
    /// Live messages with their sequence numbers.
    pub(super) buffer: Buffer<u64, (u64, Box<RawValue>)>,
    /// Messages that the backfill under way has found.
    pub(super) found: usize,
    /// What the next batch holds.
    pub(super) batch: Vec<Inbound>,
    pub(super) unreadable: Vec<Unreadable>,
    intake: &'a Intake,
    arrived: mpsc::Receiver<Arrived>,
    kept: watch::Sender<Option<Kept>>,
    greeted: watch::Sender<Option<u64>>,
    told: mpsc::Sender<Health>,
    behind: watch::Sender<bool>,
    /// The last event of the session that was looked at.
    reached: u64,
    /// When the place moved without being committed.
    pub(super) moved: Option<Instant>,
}

/// The digest's ends of the channels to the rest of a link.
pub(super) struct Ends {
    pub(super) arrived: mpsc::Receiver<Arrived>,
    pub(super) kept: watch::Sender<Option<Kept>>,
    /// The application's id, once a new session was greeted.
    pub(super) greeted: watch::Sender<Option<u64>>,
    pub(super) told: mpsc::Sender<Health>,
    /// Whether something that was missed is being fetched.
    pub(super) behind: watch::Sender<bool>,
}

impl<'a> Digest<'a> {
    pub(super) fn new(discord: &'a Discord, mut place: Place, intake: &'a Intake, ends: Ends) -> Self {
        let Ends { arrived, kept, greeted, told, behind } = ends;
        if discord.config.catch_up.messages == 0 {
            place.channels.gaps.clear();
        }
        let reached = place.session.as_ref().map_or(0, |session| session.sequence);
        Self {
            discord,
            place,
            rooms: Rooms::default(),
            schedule: Schedule::new(),
            request: None,
            buffer: Buffer::new(HELD),
            found: 0,
            batch: Vec::new(),
            unreadable: Vec::new(),
            intake,
            arrived,
            kept,
            greeted,
            told,
            behind,
            reached,
            moved: None,
        }
    }

    pub(super) async fn run(mut self) -> Error {
        let now = Instant::now;
        loop {
            self.request_next();
            let behind = self.request.is_some();
            self.behind.send_if_modified(|said| std::mem::replace(said, behind) != behind);
            let due = self.moved.map(|moved| moved + MOVED);
            let waiting = self.buffer.longest(|channel| self.schedule.moved_at(channel));
            let overdue = waiting.map(|(since, channel)| (since + self.discord.config.hold, channel));
            let outcome = tokio::select! {
                arrived = self.arrived.recv() => match arrived {
                    Some(arrived) => self.take(arrived).await,
                    None => return Error::Closed,
                },
                answer = answer(&mut self.request) => self.answered(answer).await,
                () = sleep_until(overdue.map_or_else(now, |(at, _)| at)), if overdue.is_some() => {
                    match overdue {
                        Some((_, channel)) => self.overtake(channel).await,
                        None => Ok(()),
                    }
                }
                () = sleep_until(due.unwrap_or_else(now)), if due.is_some() => self.commit().await,
            };
            if let Err(error) = outcome {
                return error;
            }
        }
    }

    async fn take(&mut self, first: Arrived) -> Result<(), Error> {
        let (mut next, mut taken, mut urgent) = (Some(first), 0, false);
        while let Some(arrived) = next {
            match arrived {
                Arrived::Event(event) => {
                    urgent |= matches!(event.kind.as_str(), "READY" | "GUILD_CREATE");
                    self.digest(&event).await;
                    self.reached = event.sequence;
                }
                Arrived::Unreadable(frame) => self.unreadable.push(frame),
            }
            taken += 1;
            next = if taken < BATCH { self.arrived.try_recv().ok() } else { None };
        }
        self.moved.get_or_insert_with(Instant::now);
        if urgent || !self.batch.is_empty() || !self.unreadable.is_empty() {
            return self.commit().await;
        }
        Ok(())
    }

    async fn digest(&mut self, event: &Event) {
        let data = &event.data;
        match event.kind.as_str() {
            "READY" => self.ready(data),
            "GUILD_CREATE" => {
                if let Some(guild) = self.readable::<wire::Guild>(data, "guild").filter(|it| !it.unavailable)
                {
                    self.rooms.put_guild(&guild);
                    self.list(&guild);
                }
            }
            // One that is only out of order comes back.
            "GUILD_DELETE" => {
                if let Some(guild) = self.readable::<wire::Guild>(data, "guild").filter(|it| !it.unavailable)
                {
                    self.leave(guild.id.get());
                }
            }
            "MESSAGE_CREATE" if self.hold(event) => {}
            "MESSAGE_CREATE" => {
                let event = self.message(data).await;
                self.batch.extend(event);
            }
            "INTERACTION_CREATE" => {
                let event = self.interaction(data).await;
                self.batch.extend(event);
            }
            "CHANNEL_CREATE" | "CHANNEL_UPDATE" | "THREAD_CREATE" | "THREAD_UPDATE" => {
                if let Some(channel) = self.readable::<wire::Channel>(data, "channel") {
                    self.rooms.put(&channel, None);
                }
            }
            "CHANNEL_DELETE" | "THREAD_DELETE" => {
                if let Some(channel) = self.readable::<wire::Channel>(data, "channel") {
                    self.rooms.remove(channel.id.get());
                }
            }
            _not_ours => {}
        }
    }

    fn ready(&mut self, data: &RawValue) {
        let Some(ready) = self.readable::<Ready>(data, "READY") else { return };
        let application = ready.application.map(|it| it.id.get());
        self.open_gaps(&ready.guilds.iter().map(|guild| guild.id.get()).collect());
        let (id, resume_url) = (ready.session_id, ready.resume_gateway_url);
        self.place.session = Some(Session { id, resume_url, sequence: 0 });
        self.place.me = Some(Me { id: ready.user.id.get(), application });
        self.place.begin(first_of(backfill::now()).saturating_sub(1));
        self.rooms.clear();
        let _nobody_asks = self.greeted.send(application);
    }

    /// What was said, if it is for us.
    pub(super) async fn message(&mut self, raw: &RawValue) -> Option<Inbound> {
        let message = self.readable::<wire::Message>(raw, "message")?;
        let (channel, guild) = (message.channel_id.get(), message.guild_id.map(|id| id.get()));
        let room = self.room(channel, guild).await;
        self.place.heard(guild.or(room.guild), channel, message.id.get());
        let me = self.me();
        if message.author.id.get() == me {
            if room.is_thread {
                self.place.joined(channel);
            }
            return None;
        }
        let keys = self.rooms.keys(channel, &room);
        let joined = self.place.has_joined(channel);
        let spot = Spot { platform: self.discord.platform, me, room: &room, keys: &keys, joined };
        let said = parse::said(&message, &spot, &self.discord.gate)?;
        let (inbound, id) = (said.inbound, message.id.get());
        let Some(name) = said.thread else { return Some(inbound) };
        match self.discord.open_thread(channel, id, &name).await {
            Ok(opened) => {
                if let Some(thread) = &opened.channel {
                    self.rooms.put(thread, guild.or(room.guild));
                }
                self.place.joined(opened.id);
                Some(parse::moved(inbound, opened.id, &name))
            }
            Err(error) => self.discord.without_thread(inbound, channel, id, &error).await,
        }
    }

    async fn interaction(&mut self, raw: &RawValue) -> Option<Inbound> {
        let interaction = self.readable::<wire::Interaction>(raw, "interaction")?;
        let (channel, guild) = (interaction.channel_id?.get(), interaction.guild_id.map(|id| id.get()));
        let told = interaction.channel.as_ref().map(|channel| Room::read(channel, guild));
        let room = match told {
            Some(room) => room,
            None => self.room(channel, guild).await,
        };
        let keys = self.rooms.keys(channel, &room);
        let (me, joined) = (self.me(), self.place.has_joined(channel));
        let spot = Spot { platform: self.discord.platform, me, room: &room, keys: &keys, joined };
        let event = parse::asked(&interaction, &spot, &self.discord.gate)?;
        let wants = if interaction.kind == parse::COMMAND { Wants::Words } else { Wants::Nod };
        self.discord.tokens.put(&interaction.id, &interaction.token, wants);
        Some(event)
    }

    pub(super) fn me(&self) -> u64 {
        let told = self.place.me.map(|me| me.id);
        told.or_else(|| self.discord.account.parse().ok()).unwrap_or_default()
    }

    /// A message does not say what kind of channel it is in; what was not listed is asked for.
    async fn room(&mut self, channel: u64, guild: Option<u64>) -> Room {
        if let Some(room) = self.rooms.get(channel) {
            return room.clone();
        }
        if guild.is_none() {
            return Room::default();
        }
        let Some(room) = self.ask(channel, guild).await else {
            return Room { guild, ..Room::default() };
        };
        if let Some(parent) = room.parent.filter(|parent| self.rooms.get(*parent).is_none()) {
            // The settings may know it by its parent's name.
            self.ask(parent, guild).await;
        }
        room
    }

    async fn ask(&mut self, channel: u64, guild: Option<u64>) -> Option<Room> {
        match self.discord.api.get::<wire::Channel>(&format!("/channels/{channel}")).await {
            Ok(told) => {
                self.rooms.put(&told, guild);
                Some(Room::read(&told, guild))
            }
            Err(error) => {
                warn!(platform = "discord", channel, %error, "a channel is not known; taken for a plain one");
                None
            }
        }
    }

    /// Asks until the gateway has the batch. Its own trouble is no reason to give the link up.
    pub(super) async fn commit(&mut self) -> Result<(), Error> {
        // Messages in the buffer are not on disk.
        self.place.passed(self.buffer.first().map_or(self.reached, |(first, _)| first.saturating_sub(1)));
        let cursor = self.place.write();
        let mut wait = self.discord.config.reconnect_base;
        loop {
            match self.intake.commit(self.batch.clone(), self.unreadable.clone(), Some(cursor.clone())).await
            {
                Ok(()) => break,
                Err(NotTaken::Closed) => return Err(Error::Closed),
                Err(NotTaken::Refused | NotTaken::Unfit) => {
                    let reason = "discord_not_taken";
                    warn!(platform = "discord", reason, ?wait, "batch deferred");
                    let _crowded = self.told.try_send(Health::Degraded { reason });
                    sleep(wait).await;
                    wait = (wait * 2).min(LONGEST);
                }
            }
        }
        self.batch.clear();
        self.unreadable.clear();
        self.moved = None;
        if let Some(session) = &self.place.session {
            let kept = Kept { session: session.id.clone(), sequence: session.sequence };
            let _nobody_asks = self.kept.send(Some(kept));
        }
        Ok(())
    }

    /// What cannot be read is set aside: it must not stand in the way of the others.
    pub(super) fn readable<'de, T: serde::Deserialize<'de>>(
        &mut self,
        raw: &'de RawValue,
        what: &str,
    ) -> Option<T> {
        match serde_json::from_str(raw.get()) {
            Ok(read) => Some(read),
            Err(error) => {
                warn!(platform = "discord", what, at = error.column(), "unreadable event set aside");
                self.unreadable.push(Unreadable::shape(wire::id_of(raw), &error, raw.get()));
                None
            }
        }
    }
}

/// Never, if no request is under way.
async fn answer(request: &mut Option<Request<'_>>) -> Answer {
    match request {
        Some(request) => request.await,
        None => future::pending().await,
    }
}
