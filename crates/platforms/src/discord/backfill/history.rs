//! Reads one page of a channel's history over REST.
//!
//! Runs beside the socket and changes no link state: the event processor commits the messages.

use petasos_core::{Fault, Inbound};
use serde::Deserialize;
use serde_json::value::RawValue;
use tracing::warn;
use twilight_model::id::Id;
use twilight_model::id::marker::MessageMarker;

use crate::backfill::gaps::{Gap, ReadExtent};
use crate::backfill::round::Round;
use crate::discord::inbound::channel_cache::{ChannelCache, ChannelInfo};
use crate::discord::inbound::parse::{self, ChannelContext, ParsedMessage};
use crate::discord::{Discord, Error, wire};
use crate::inbound::Unreadable;

#[derive(Debug)]
pub(in crate::discord) struct PageJob {
    pub(in crate::discord) channel: u64,
    pub(in crate::discord) gap: Gap<u64, u64>,
    /// The channel and its parent, as far as they are known.
    pub(in crate::discord) channel_cache: ChannelCache,
    pub(in crate::discord) me: u64,
    /// The bot has written in this thread.
    pub(in crate::discord) joined: bool,
    pub(in crate::discord) limit: usize,
}

#[derive(Debug)]
pub(in crate::discord) struct HistoryPage {
    pub(in crate::discord) round: Round<u64, u64, Inbound>,
    pub(in crate::discord) unreadable: Vec<Unreadable>,
    /// Channels that were fetched or created.
    pub(in crate::discord) channel_cache: Vec<wire::DiscordChannel>,
    /// Threads in which the bot has written.
    pub(in crate::discord) joined: Vec<u64>,
    /// The last message read, whether addressed to the bot or not.
    pub(in crate::discord) until: u64,
    /// `None`: read as far as the round says.
    pub(in crate::discord) failure: Option<Error>,
}

#[derive(Default)]
struct PageReader {
    events: Vec<(u64, Inbound)>,
    too_old: Vec<u64>,
    unreadable: Vec<Unreadable>,
    channel_cache: Vec<wire::DiscordChannel>,
    joined: Vec<u64>,
    until: u64,
}

/// Even an unreadable message has an id.
#[derive(Deserialize)]
struct MessageWithId {
    id: Id<MessageMarker>,
}

#[derive(Deserialize)]
struct ActiveThreads {
    threads: Vec<wire::DiscordChannel>,
}

impl Discord {
    pub(in crate::discord) async fn read_page(&self, job: PageJob) -> HistoryPage {
        let mut round = Round::new(job.channel, &job.gap);
        let mut read = PageReader { until: job.gap.after, ..PageReader::default() };
        let outcome = self.read(job, &mut read).await;
        let PageReader { events, too_old, unreadable, channel_cache, joined, until } = read;
        let (reached, failure) = match outcome {
            Ok(reached) => (reached, None),
            Err(error) if error.fault() == Fault::Refused => (ReadExtent::Refused, Some(error)),
            Err(error) => (ReadExtent::Through(until), Some(error)),
        };
        round.add(events, too_old, reached);
        HistoryPage { round, unreadable, channel_cache, joined, until, failure }
    }

    async fn read(&self, mut job: PageJob, read: &mut PageReader) -> Result<ReadExtent<u64>, Error> {
        let channel = job.channel;
        let limit = job.limit;
        let floor = job.gap.floor;
        let path = format!("/channels/{channel}/messages?after={}&limit={limit}", job.gap.after);
        let page = self.api.get::<Vec<Box<RawValue>>>(&path).await?;
        if page.is_empty() {
            return Ok(ReadExtent::Complete);
        }
        let whole = page.len() < limit;
        let info = self.channel_info(&mut job, read).await?;
        let page = sort_by_id(page, &mut read.unreadable);
        if page.is_empty() {
            return Ok(ReadExtent::Refused);
        }
        for (id, raw) in page {
            self.message(id, &raw, &info, &mut job, read).await?;
            read.until = id;
        }
        // Of messages that are too old, one page is enough.
        Ok(if whole {
            ReadExtent::Complete
        } else {
            ReadExtent::Through(read.until.max(floor.saturating_sub(1)))
        })
    }

    /// For a merged gap. Active threads are in a list of their own.
    pub(in crate::discord) async fn list_guild_channels(
        &self,
        guild: u64,
    ) -> Result<Vec<wire::DiscordChannel>, Error> {
        let mut channels: Vec<wire::DiscordChannel> =
            self.api.get(&format!("/guilds/{guild}/channels")).await?;
        let threads = self.api.get::<ActiveThreads>(&format!("/guilds/{guild}/threads/active")).await?;
        channels.extend(threads.threads);
        Ok(channels)
    }

    async fn message(
        &self,
        id: u64,
        raw: &RawValue,
        info: &ChannelInfo,
        job: &mut PageJob,
        read: &mut PageReader,
    ) -> Result<(), Error> {
        let channel = job.channel;
        let message = match serde_json::from_str::<wire::DiscordMessage>(raw.get()) {
            Ok(message) => message,
            Err(error) => {
                let what = "message";
                warn!(platform = "discord", what, at = error.column(), "unreadable event stored");
                read.unreadable.push(Unreadable::shape(Some(id.to_string()), &error, raw.get()));
                return Ok(());
            }
        };
        if message.author.id.get() == job.me && info.is_thread {
            job.joined = true;
            read.joined.push(channel);
        }
        let names = job.channel_cache.names(channel, info);
        let context =
            ChannelContext { platform: self.platform, me: job.me, info, names: &names, joined: job.joined };
        let Some(ParsedMessage { mut inbound, thread }) =
            parse::message_event(&message, &context, &self.filter)
        else {
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
                    read.channel_cache.extend(opened.channel);
                    Some(parse::into_thread(inbound, opened.id, &name))
                }
                Err(error) if error.fault() == Fault::Refused => {
                    self.handle_thread_failure(inbound, channel, id, &error).await
                }
                Err(error) => return Err(error),
            },
        };
        read.events.extend(event.map(|event| (id, event)));
        Ok(())
    }

    /// Unlike the socket, the history does not name an author's roles.
    async fn has_role(&self, guild: Option<u64>, message: &wire::DiscordMessage) -> Result<bool, Error> {
        let Some(guild) = guild.filter(|_| self.filter.uses_roles()) else { return Ok(false) };
        let path = format!("/guilds/{guild}/members/{}", message.author.id);
        match self.api.get::<wire::Member>(&path).await {
            Ok(member) => Ok(self.filter.has_allowed_role(Some(&member))),
            // No longer a member, or hidden from the bot.
            Err(error) if error.fault() == Fault::Refused => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Fetched if it was not listed: the thread was archived, or the session was resumed.
    async fn channel_info(&self, job: &mut PageJob, read: &mut PageReader) -> Result<ChannelInfo, Error> {
        if job.gap.scope.is_none() {
            return Ok(ChannelInfo::default());
        }
        if let Some(info) = job.channel_cache.get(job.channel) {
            return Ok(info.clone());
        }
        let info = self.fetch_channel(job.channel, job, read).await?;
        if let Some(parent) = info.parent.filter(|parent| job.channel_cache.get(*parent).is_none()) {
            // The settings may name the parent.
            match self.fetch_channel(parent, job, read).await {
                Err(error) if error.fault() != Fault::Refused => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(info)
    }

    async fn fetch_channel(
        &self,
        channel: u64,
        job: &mut PageJob,
        read: &mut PageReader,
    ) -> Result<ChannelInfo, Error> {
        let channel_data = self.api.get::<wire::DiscordChannel>(&format!("/channels/{channel}")).await?;
        job.channel_cache.insert(&channel_data, job.gap.scope);
        let info = ChannelInfo::from_wire(&channel_data, job.gap.scope);
        read.channel_cache.push(channel_data);
        Ok(info)
    }
}

/// Oldest first. A message without an id cannot be ordered.
fn sort_by_id(page: Vec<Box<RawValue>>, unreadable: &mut Vec<Unreadable>) -> Vec<(u64, Box<RawValue>)> {
    let mut known = Vec::with_capacity(page.len());
    for raw in page {
        match serde_json::from_str::<MessageWithId>(raw.get()) {
            Ok(MessageWithId { id }) => known.push((id.get(), raw)),
            Err(error) => {
                warn!(platform = "discord", what = "message", "unreadable event stored");
                unreadable.push(Unreadable::shape(None, &error, raw.get()));
            }
        }
    }
    known.sort_by_key(|(id, _)| *id);
    known
}
