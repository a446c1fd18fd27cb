//! One page of one channel's history, read over REST and parsed.
//!
//! Runs beside the socket's events and changes nothing of the link: the digest commits its messages.

use petasos_core::{Fault, Inbound};
use serde::Deserialize;
use serde_json::value::RawValue;
use tracing::warn;
use twilight_model::id::Id;
use twilight_model::id::marker::MessageMarker;

use super::parse::{self, Said, Spot};
use super::rooms::{Room, Rooms};
use super::{Discord, Error, wire};
use crate::backfill::gaps::{Gap, Reached};
use crate::backfill::round::Round;
use crate::intake::Unreadable;

/// The gap to read, and the state it is parsed with.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) channel: u64,
    pub(super) gap: Gap<u64, u64>,
    /// The channel and its parent, as far as they are known.
    pub(super) rooms: Rooms,
    pub(super) me: u64,
    /// It is a thread in which the bot has written.
    pub(super) joined: bool,
    pub(super) limit: usize,
}

#[derive(Debug)]
pub(super) struct Page {
    pub(super) round: Round<u64, u64, Inbound>,
    pub(super) unreadable: Vec<Unreadable>,
    /// Channels that were asked about, or opened.
    pub(super) rooms: Vec<wire::Channel>,
    /// Threads in which the bot has written.
    pub(super) joined: Vec<u64>,
    /// The last message that was read, whether it is for us or not.
    pub(super) until: u64,
    /// `None`: it was read as far as the round says.
    pub(super) failure: Option<Error>,
}

#[derive(Default)]
struct Reading {
    events: Vec<(u64, Inbound)>,
    too_old: Vec<u64>,
    unreadable: Vec<Unreadable>,
    rooms: Vec<wire::Channel>,
    joined: Vec<u64>,
    until: u64,
}

/// Every message has an id, even an unreadable one.
#[derive(Deserialize)]
struct Numbered {
    id: Id<MessageMarker>,
}

/// Active threads of a server.
#[derive(Deserialize)]
struct Threads {
    threads: Vec<wire::Channel>,
}

impl Discord {
    pub(super) async fn page(&self, job: Job) -> Page {
        let mut round = Round::new(job.channel, &job.gap);
        let mut read = Reading { until: job.gap.after, ..Reading::default() };
        let outcome = self.read(job, &mut read).await;
        let Reading { events, too_old, unreadable, rooms, joined, until } = read;
        let (reached, failure) = match outcome {
            Ok(reached) => (reached, None),
            Err(error) if error.fault() == Fault::Refused => (Reached::Refused, Some(error)),
            Err(error) => (Reached::Until(until), Some(error)),
        };
        round.add(events, too_old, reached);
        Page { round, unreadable, rooms, joined, until, failure }
    }

    async fn read(&self, mut job: Job, read: &mut Reading) -> Result<Reached<u64>, Error> {
        let (channel, limit, floor) = (job.channel, job.limit, job.gap.floor);
        let path = format!("/channels/{channel}/messages?after={}&limit={limit}", job.gap.after);
        let page = self.api.get::<Vec<Box<RawValue>>>(&path).await?;
        if page.is_empty() {
            return Ok(Reached::Whole);
        }
        let whole = page.len() < limit;
        let room = self.room(&mut job, read).await?;
        let page = numbered(page, &mut read.unreadable);
        if page.is_empty() {
            return Ok(Reached::Refused);
        }
        for (id, raw) in page {
            self.message(id, &raw, &room, &mut job, read).await?;
            read.until = id;
        }
        // Of the messages that are too old, one page is enough.
        Ok(if whole { Reached::Whole } else { Reached::Until(read.until.max(floor.saturating_sub(1))) })
    }

    /// The channels of a server, for a gap that was merged: its active threads are in a list of their own.
    pub(super) async fn list(&self, guild: u64) -> Result<Vec<wire::Channel>, Error> {
        let mut channels: Vec<wire::Channel> = self.api.get(&format!("/guilds/{guild}/channels")).await?;
        let threads = self.api.get::<Threads>(&format!("/guilds/{guild}/threads/active")).await?;
        channels.extend(threads.threads);
        Ok(channels)
    }

    async fn message(
        &self,
        id: u64,
        raw: &RawValue,
        room: &Room,
        job: &mut Job,
        read: &mut Reading,
    ) -> Result<(), Error> {
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
            read.too_old.push(id);
            return Ok(());
        }
        inbound.source.role_authorized = self.has_role(job.gap.scope, &message).await?;
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
                Err(error) => return Err(error),
            },
        };
        read.events.extend(event.map(|event| (id, event)));
        Ok(())
    }

    /// The history does not name the roles of an author; the socket does.
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
    async fn room(&self, job: &mut Job, read: &mut Reading) -> Result<Room, Error> {
        if job.gap.scope.is_none() {
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

    async fn ask(&self, channel: u64, job: &mut Job, read: &mut Reading) -> Result<Room, Error> {
        let told = self.api.get::<wire::Channel>(&format!("/channels/{channel}")).await?;
        job.rooms.put(&told, job.gap.scope);
        let room = Room::read(&told, job.gap.scope);
        read.rooms.push(told);
        Ok(room)
    }
}

/// Oldest first. A message without an id cannot be ordered.
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
