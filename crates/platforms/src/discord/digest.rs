//! The gateway's side of a link: events become messages, messages become committed batches.
//!
//! Owns the place (`place.rs`) and the list of channels. Events are taken in the order of the socket, several
//! at a time; one that cannot be read is set aside. A batch with messages is committed at once; a place that only
//! moved is committed after a while, for whatever comes again meanwhile is known by its id.
//! While a gap is being caught up the old place stays committed, so a crash begins the catch-up again.

use std::time::Duration;

use petasos_core::Inbound;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::warn;

use super::catch_up::{self, Gap};
use super::parse::{self, Spot};
use super::place::{Me, Place, Session};
use super::rooms::{Room, Rooms};
use super::session::{Arrived, Event, Kept};
use super::tokens::Wants;
use super::wire::{self, Ready, first_of};
use super::{Discord, Error};
use crate::intake::{Health, Intake, NotTaken, Unreadable};

/// Events that become one batch.
const BATCH: usize = 64;
/// How long a place that only moved may wait.
const MOVED: Duration = Duration::from_secs(5);
/// Longest wait for a gateway that cannot keep a batch.
const LONGEST: Duration = Duration::from_secs(60);

pub(super) struct Digest<'a> {
    pub(super) discord: &'a Discord,
    pub(super) place: Place,
    pub(super) rooms: Rooms,
    pub(super) gap: Option<Gap>,
    /// What the next batch holds.
    pub(super) batch: Vec<Inbound>,
    unreadable: Vec<Unreadable>,
    intake: &'a Intake,
    arrived: mpsc::Receiver<Arrived>,
    kept: watch::Sender<Option<Kept>>,
    greeted: watch::Sender<Option<u64>>,
    told: mpsc::Sender<Health>,
    /// When the place moved without being committed.
    moved: Option<Instant>,
}

/// The digest's ends of the channels to the rest of a link.
pub(super) struct Ends {
    pub(super) arrived: mpsc::Receiver<Arrived>,
    pub(super) kept: watch::Sender<Option<Kept>>,
    /// The application's id, once a new session was greeted.
    pub(super) greeted: watch::Sender<Option<u64>>,
    pub(super) told: mpsc::Sender<Health>,
}

impl<'a> Digest<'a> {
    pub(super) fn new(discord: &'a Discord, place: Place, intake: &'a Intake, ends: Ends) -> Self {
        let Ends { arrived, kept, greeted, told } = ends;
        let (rooms, gap, moved) = (Rooms::default(), None, None);
        let (batch, unreadable) = (Vec::new(), Vec::new());
        Self { discord, place, rooms, gap, batch, unreadable, intake, arrived, kept, greeted, told, moved }
    }

    pub(super) async fn run(mut self) -> Error {
        loop {
            let due = self.moved.map(|moved| moved + MOVED);
            let outcome = tokio::select! {
                arrived = self.arrived.recv() => match arrived {
                    Some(arrived) => self.take(arrived).await,
                    None => return Error::Closed,
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    self.close_overdue_gap();
                    if self.gap.is_none() {
                        self.commit().await
                    } else {
                        self.moved = Some(Instant::now());
                        Ok(())
                    }
                }
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
                    self.digest(&event).await?;
                    self.place.passed(event.sequence);
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

    async fn digest(&mut self, event: &Event) -> Result<(), Error> {
        let data = &event.data;
        match event.kind.as_str() {
            "READY" => return self.ready(data).await,
            "GUILD_CREATE" => return self.guild(data).await,
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
        Ok(())
    }

    /// A new session. Whatever was written since the last one is not in it.
    async fn ready(&mut self, data: &RawValue) -> Result<(), Error> {
        let Some(ready) = self.readable::<Ready>(data, "READY") else { return Ok(()) };
        let application = ready.application.map(|it| it.id.get());
        let before = self.place.clone();
        let (id, resume_url) = (ready.session_id, ready.resume_gateway_url);
        self.place.session = Some(Session { id, resume_url, sequence: 0 });
        self.place.me = Some(Me { id: ready.user.id.get(), application });
        self.place.begin(first_of(catch_up::now()).saturating_sub(1));
        self.rooms.clear();
        let _nobody_asks = self.greeted.send(application);
        self.open_gap(before, ready.guilds.iter().map(|guild| guild.id.get()).collect()).await
    }

    async fn guild(&mut self, data: &RawValue) -> Result<(), Error> {
        let Some(guild) = self.readable::<wire::Guild>(data, "guild") else { return Ok(()) };
        if guild.unavailable {
            return Ok(());
        }
        self.rooms.put_guild(&guild);
        self.catch_up_guild(guild.id.get()).await
    }

    /// What was said, if it is for us. Wherever it came from, it counts as seen.
    pub(super) async fn message(&mut self, raw: &RawValue) -> Option<Inbound> {
        let message = self.readable::<wire::Message>(raw, "message")?;
        let (channel, guild) = (message.channel_id.get(), message.guild_id.map(|id| id.get()));
        let room = self.room(channel, guild).await;
        self.place.saw(guild.or(room.guild), channel, message.id.get());
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
        match said.thread {
            Some(name) => self.in_thread(said.inbound, channel, message.id.get(), &name).await,
            None => Some(said.inbound),
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

    fn me(&self) -> u64 {
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

    /// The same message in a thread of its own. If none can be opened, its author is told and it is dropped;
    /// if that cannot be said either, it is answered where it stands.
    async fn in_thread(
        &mut self,
        inbound: Inbound,
        channel: u64,
        message: u64,
        name: &str,
    ) -> Option<Inbound> {
        let path = format!("/channels/{channel}/messages/{message}/threads");
        let body = json!({ "name": name, "auto_archive_duration": 1440 });
        let thread = match self.discord.api.post::<wire::Channel>(&path, &body).await {
            Ok(thread) => {
                self.rooms.put(&thread, inbound.source.scope_id.as_ref().and_then(|id| id.parse().ok()));
                thread.id.get()
            }
            // A thread that grows from a message has the message's number.
            Err(error) if error.is_thread_there() => message,
            Err(error) => {
                warn!(platform = "discord", channel, %error, "no thread could be opened");
                let told = self.discord.excuse(channel, message).await;
                return told.is_err().then_some(inbound);
            }
        };
        self.place.joined(thread);
        Some(parse::moved(inbound, thread, name))
    }

    /// Asks until the gateway has the batch. Its own trouble is no reason to give the link up.
    pub(super) async fn commit(&mut self) -> Result<(), Error> {
        let cursor = self.gap.is_none().then(|| self.place.write());
        let mut wait = self.discord.config.reconnect_base;
        loop {
            match self.intake.commit(self.batch.clone(), self.unreadable.clone(), cursor.clone()).await {
                Ok(()) => break,
                Err(NotTaken::Closed) => return Err(Error::Closed),
                Err(NotTaken::Refused) => {
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
        self.moved = self.gap.is_some().then(Instant::now);
        if let (Some(_), Some(session)) = (cursor, &self.place.session) {
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
