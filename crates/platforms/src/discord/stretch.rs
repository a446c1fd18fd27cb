//! One stretch of one channel's history, read over REST and understood.
//!
//! Touches nothing of the link: it runs beside the socket's events, and what it brings is the digest's to commit.

use petasos_core::{Fault, Inbound};
use serde::Deserialize;
use serde_json::value::RawValue;
use tracing::warn;
use twilight_model::id::Id;
use twilight_model::id::marker::MessageMarker;

use super::gaps::Gap;
use super::parse::{self, Said, Spot};
use super::rooms::{Room, Rooms};
use super::{Discord, Error, wire};
use crate::http::Failure;
use crate::intake::Unreadable;

/// What is to be read, and what we know of its channel.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) channel: u64,
    pub(super) gap: Gap,
    /// The channel and what it belongs to, as far as they are known.
    pub(super) rooms: Rooms,
    pub(super) me: u64,
    /// It is a thread in which we have spoken.
    pub(super) joined: bool,
    pub(super) limit: usize,
}

/// What was read.
#[derive(Debug)]
pub(super) struct Stretch {
    pub(super) channel: u64,
    /// For us, with their numbers, oldest first.
    pub(super) events: Vec<(u64, Inbound)>,
    pub(super) unreadable: Vec<Unreadable>,
    /// For us, and older than what is fetched.
    pub(super) too_old: usize,
    /// Channels that were asked about, or opened.
    pub(super) rooms: Vec<wire::Channel>,
    /// Threads in which we have spoken.
    pub(super) joined: Vec<u64>,
    /// Nothing is missing up to this message.
    pub(super) until: u64,
    pub(super) end: End,
}

/// Where it ended.
#[derive(Debug)]
pub(super) enum End {
    /// At the newest message.
    Whole,
    /// There is more.
    More,
    /// It was not said; it may be later.
    Later(Error),
    /// It will not be said.
    Refused(Error),
    Fatal(Error),
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        match error.fault() {
            Fault::Later { .. } => Self::Later(error),
            Fault::Refused => Self::Refused(error),
            Fault::Fatal => Self::Fatal(error),
        }
    }
}

/// What every message has, even one we cannot read.
#[derive(Deserialize)]
struct Numbered {
    id: Id<MessageMarker>,
}

impl Discord {
    pub(super) async fn stretch(&self, job: Job) -> Stretch {
        let mut read = Stretch {
            channel: job.channel,
            events: Vec::new(),
            unreadable: Vec::new(),
            too_old: 0,
            rooms: Vec::new(),
            joined: Vec::new(),
            until: job.gap.after,
            end: End::Whole,
        };
        if let Err(end) = self.read(job, &mut read).await {
            read.end = end;
        }
        read
    }

    async fn read(&self, mut job: Job, read: &mut Stretch) -> Result<(), End> {
        let Job { channel, gap, limit, .. } = job;
        let path = format!("/channels/{channel}/messages?after={}&limit={limit}", gap.after);
        let page = self.api.get::<Vec<Box<RawValue>>>(&path).await?;
        if page.is_empty() {
            return Ok(());
        }
        let whole = page.len() < limit;
        let room = self.room(&mut job, read).await?;
        let page = numbered(page, &mut read.unreadable);
        if page.is_empty() {
            return Err(End::Refused(Failure::Garbage("messages without numbers".into()).into()));
        }
        for (id, raw) in page {
            self.hear(id, &raw, &room, &mut job, read).await?;
            read.until = id;
        }
        // Of what is too old a page is enough.
        read.until = if whole { read.until } else { read.until.max(gap.floor.saturating_sub(1)) };
        read.end = if whole { End::Whole } else { End::More };
        Ok(())
    }

    async fn hear(
        &self,
        id: u64,
        raw: &RawValue,
        room: &Room,
        job: &mut Job,
        read: &mut Stretch,
    ) -> Result<(), End> {
        let channel = job.channel;
        let message = match serde_json::from_str::<wire::Message>(raw.get()) {
            Ok(message) => message,
            Err(error) => {
                let what = "message";
                warn!(platform = "discord", what, at = error.column(), "unreadable event set aside");
                read.unreadable.push(Unreadable::shape(Some(id.to_string()), &error, raw.get()));
                return Ok(());
            }
        };
        if message.author.id.get() == job.me && room.is_thread {
            job.joined = true;
            read.joined.push(channel);
        }
        let keys = job.rooms.keys(channel, room);
        let spot = Spot { platform: self.platform, me: job.me, room, keys: &keys, joined: job.joined };
        let Some(Said { mut inbound, thread }) = parse::said(&message, &spot, &self.gate) else {
            return Ok(());
        };
        if id < job.gap.floor {
            read.too_old += 1;
            return Ok(());
        }
        inbound.source.role_authorized = self.has_role(job.gap.guild, &message).await?;
        let event = match thread {
            None => Some(inbound),
            Some(name) => match self.open_thread(channel, id, &name).await {
                Ok(opened) => {
                    read.joined.push(opened.id);
                    read.rooms.extend(opened.channel);
                    Some(parse::moved(inbound, opened.id, &name))
                }
                Err(error) if error.fault() == Fault::Refused => {
                    self.without_thread(inbound, channel, id, &error).await
                }
                Err(error) => return Err(error.into()),
            },
        };
        read.events.extend(event.map(|event| (id, event)));
        Ok(())
    }

    /// What the socket tells with a message is not in what REST tells: the author's roles are asked for.
    async fn has_role(&self, guild: Option<u64>, message: &wire::Message) -> Result<bool, Error> {
        let Some(guild) = guild.filter(|_| self.gate.knows_roles()) else { return Ok(false) };
        let path = format!("/guilds/{guild}/members/{}", message.author.id);
        match self.api.get::<wire::Member>(&path).await {
            Ok(member) => Ok(self.gate.admits_role(Some(&member))),
            // No longer a member, or hidden from us.
            Err(error) if error.fault() == Fault::Refused => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Asked for where it was not listed: a thread that was closed meanwhile, or a session that was only resumed.
    async fn room(&self, job: &mut Job, read: &mut Stretch) -> Result<Room, Error> {
        if job.gap.guild.is_none() {
            return Ok(Room::default());
        }
        if let Some(room) = job.rooms.get(job.channel) {
            return Ok(room.clone());
        }
        let room = self.ask(job.channel, job, read).await?;
        if let Some(parent) = room.parent.filter(|parent| job.rooms.get(*parent).is_none()) {
            // The settings may know it by its parent's name.
            match self.ask(parent, job, read).await {
                Err(error) if error.fault() != Fault::Refused => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(room)
    }

    async fn ask(&self, channel: u64, job: &mut Job, read: &mut Stretch) -> Result<Room, Error> {
        let told = self.api.get::<wire::Channel>(&format!("/channels/{channel}")).await?;
        job.rooms.put(&told, job.gap.guild);
        let room = Room::read(&told, job.gap.guild);
        read.rooms.push(told);
        Ok(room)
    }
}

/// Oldest first. One that has no number has no place among the others.
fn numbered(page: Vec<Box<RawValue>>, unreadable: &mut Vec<Unreadable>) -> Vec<(u64, Box<RawValue>)> {
    let mut known = Vec::with_capacity(page.len());
    for raw in page {
        match serde_json::from_str::<Numbered>(raw.get()) {
            Ok(Numbered { id }) => known.push((id.get(), raw)),
            Err(error) => {
                warn!(platform = "discord", what = "message", "unreadable event set aside");
                unreadable.push(Unreadable::shape(None, &error, raw.get()));
            }
        }
    }
    known.sort_by_key(|(id, _)| *id);
    known
}
