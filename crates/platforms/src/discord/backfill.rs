//! The backfill of this link: after a new session, the messages since the last one are fetched over REST.
//!
//! Private channels are read at once, those of a server when the server lists them and only if they have news. One request
//! at a time reads one page of one channel (`history.rs`), beside the socket's events, and is committed together with the
//! part of the gap that it fills. A failed request is repeated for as long as it takes; the others go first.
//! Lost are only messages older than the window, channels that Discord does not show, and the gaps of servers that the bot
//! has left; they are counted and reported. Discord lists no private channels: one without a position cannot be found.

use std::collections::HashSet;
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use petasos_core::Fault;
use petasos_core::link::Lack;
use serde::Deserialize;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};
use twilight_model::id::Id;
use twilight_model::id::marker::{ChannelMarker, MessageMarker};

use super::digest::Digest;
use super::history::{Job, Page};
use super::rooms::Room;
use super::session::Event;
use super::wire::{self, first_of};
use super::{Discord, Error};
use crate::backfill::gaps::Reached;
use crate::backfill::loss::Loss;

/// Most messages that one request brings.
const PAGE: usize = 100;

/// The request under way.
pub(super) type Request<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

pub(super) enum Answer {
    Page(Box<Page>),
    List { guild: u64, number: u64, channels: Result<Vec<wire::Channel>, Error> },
}

/// The address of a message.
#[derive(Deserialize)]
struct Addressed {
    id: Id<MessageMarker>,
    channel_id: Id<ChannelMarker>,
}

impl Discord {
    /// Missed messages that could not be fetched.
    pub fn lacks(&self) -> Vec<Lack> {
        self.loss(|loss| loss.lack("discord_backfill_incomplete")).into_iter().collect()
    }

    fn loss<T>(&self, change: impl FnOnce(&mut Loss) -> T) -> T {
        change(&mut self.loss.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

impl Digest<'_> {
    /// A new session: it delivers nothing from before it.
    pub(super) fn open_gaps(&mut self, guilds: &HashSet<u64>) {
        let limits = self.discord.config.catch_up;
        // Messages in the buffer were delivered by a session that is over. They are in the gap.
        self.buffer.clear();
        self.request = None;
        self.schedule = crate::backfill::schedule::Schedule::new();
        if limits.messages > 0 {
            let left_out = self.place.lose_session(guilds, floor(now(), limits.window));
            self.discord.loss(|loss| loss.left_out(left_out));
        }
    }

    /// A server lists its channels.
    pub(super) fn list(&mut self, guild: &wire::Guild) {
        let id = guild.id.get();
        let Some(number) = self.place.channels.gaps.scope(&id).map(|gap| gap.number) else { return };
        self.listed(id, number, guild.channels.iter().chain(&guild.threads));
    }

    fn listed<'c>(&mut self, guild: u64, number: u64, channels: impl Iterator<Item = &'c wire::Channel>) {
        let rooms = channels.map(|channel| (channel.id.get(), Room::read(channel, Some(guild))));
        let read = |(channel, room): &(u64, Room)| {
            room.written && self.discord.gate.opens(&self.rooms.keys(*channel, room))
        };
        let rooms: Vec<_> = rooms.filter(read).map(|(id, room)| (id, room.newest.or(Some(0)))).collect();
        self.place.channels.gaps.listed(&guild, number, rooms);
        self.report_if_filled();
    }

    /// The bot is no longer on this server.
    pub(super) fn leave(&mut self, guild: u64) {
        let left_out = self.place.channels.retain_scopes(|scope| *scope != guild);
        self.discord.loss(|loss| loss.left_out(left_out));
        self.report_if_filled();
    }

    /// Whether a live message waits for older ones of its channel.
    pub(super) fn hold(&mut self, event: &Event) -> bool {
        let Ok(Addressed { id, channel_id }) = serde_json::from_str(event.data.get()) else { return false };
        let channel = channel_id.get();
        let gaps = &mut self.place.channels.gaps;
        if gaps.get(&channel).is_none() {
            return false;
        }
        gaps.live(&channel, id.get());
        let held = (event.sequence, event.data.clone());
        !self.schedule.is_overtaken(&channel) && self.buffer.push(Some(channel), Instant::now(), held).is_ok()
    }

    /// Makes the next request, if a gap is open and no request is under way.
    pub(super) fn request_next(&mut self) {
        if self.request.is_some() {
            return;
        }
        let gaps = &self.place.channels.gaps;
        let discord = self.discord;
        let rank = |(channel, gap): &(&u64, &crate::backfill::gaps::Gap<u64, u64>)| {
            self.schedule.rank(channel, gap.scope.is_none())
        };
        if let Some((channel, gap)) = gaps.ready().min_by_key(rank) {
            let (channel, gap) = (*channel, gap.clone());
            let job = Job {
                channel,
                gap,
                rooms: self.rooms.around(channel),
                me: self.me(),
                joined: self.place.has_joined(channel),
                limit: discord.config.catch_up.messages.clamp(1, PAGE),
            };
            self.schedule.asked(&channel);
            let wait = self.schedule.take_wait();
            self.request = Some(Box::pin(async move {
                sleep(wait).await;
                Answer::Page(Box::new(discord.page(job).await))
            }));
        } else if let Some((guild, gap)) = gaps.to_list().next() {
            let (guild, number, wait) = (*guild, gap.number, self.schedule.take_wait());
            self.request = Some(Box::pin(async move {
                sleep(wait).await;
                Answer::List { guild, number, channels: discord.list(guild).await }
            }));
        }
    }

    /// Takes an answer, and the live messages that waited for it.
    pub(super) async fn answered(&mut self, answer: Answer) -> Result<(), Error> {
        self.request = None;
        match answer {
            Answer::Page(page) => self.fill(*page)?,
            Answer::List { guild, number, channels: Ok(channels) } => {
                channels.iter().for_each(|channel| self.rooms.put(channel, Some(guild)));
                self.listed(guild, number, channels.iter());
                self.schedule.succeeded();
            }
            Answer::List { guild, number, channels: Err(error) } => match error.fault() {
                Fault::Fatal => return Err(error),
                Fault::Later { after } => self.defer(after, &error),
                Fault::Refused => {
                    warn!(platform = "discord", guild, %error, "cannot list the channels of a server");
                    self.place.channels.gaps.close_scope(&guild, number);
                    self.discord.loss(|loss| loss.left_out(1));
                }
            },
        }
        self.report_if_filled();
        self.release().await;
        self.moved.get_or_insert_with(Instant::now);
        if self.batch.is_empty() { Ok(()) } else { self.commit().await }
    }

    fn fill(&mut self, page: Page) -> Result<(), Error> {
        let Page { mut round, unreadable, rooms, joined, until, failure } = page;
        let channel = round.channel;
        // Without a gap, the bot has left the server meanwhile.
        let Some(gap) = self.place.channels.gaps.get(&channel) else { return Ok(()) };
        let (scope, after) = (gap.scope, gap.after);
        let until = gap.before.map_or(until, |before| until.min(before.saturating_sub(1)));
        round.goes_live(gap.before);
        for room in &rooms {
            self.rooms.put(room, scope);
        }
        joined.into_iter().for_each(|thread| self.place.joined(thread));
        let (found, fill) = round.settle();
        if !self.place.channels.gaps.fill(&fill) {
            return Ok(());
        }
        self.unreadable.extend(unreadable);
        self.found += found.len();
        self.batch.extend(found.into_iter().map(|(_, event)| event));
        self.discord.loss(|loss| loss.too_old(fill.too_old));
        if until > after {
            self.schedule.moved(&channel, Instant::now());
            self.place.saw(scope, channel, until);
        }
        match fill.reached {
            Reached::Until(_) => {}
            Reached::Whole => {
                self.schedule.forget(&channel);
                self.discord.loss(|loss| loss.readable(channel));
            }
            Reached::Refused => {
                self.schedule.forget(&channel);
                // A server also lists channels that the bot was never let into: nothing is lost there.
                if self.place.channels.has_seen(&channel) {
                    self.discord.loss(|loss| loss.refused(channel));
                }
            }
        }
        match failure {
            Some(error) => self.failed(channel, fill.reached, error),
            None => {
                self.schedule.succeeded();
                Ok(())
            }
        }
    }

    fn failed(&mut self, channel: u64, reached: Reached<u64>, error: Error) -> Result<(), Error> {
        match error.fault() {
            Fault::Fatal => return Err(error),
            Fault::Refused => warn!(platform = "discord", channel, %error, "cannot backfill a channel"),
            // The live stream has taken over.
            Fault::Later { .. } if reached == Reached::Whole => {}
            Fault::Later { after } => {
                self.schedule.failed(&channel);
                self.defer(after, &error);
            }
        }
        Ok(())
    }

    fn defer(&mut self, named: Option<Duration>, error: &Error) {
        warn!(platform = "discord", %error, "backfill deferred");
        self.schedule.defer(named, self.discord.config.reconnect_base);
    }

    /// Live messages that have waited long enough go before the missing ones.
    pub(super) async fn overtake(&mut self, channel: u64) -> Result<(), Error> {
        warn!(platform = "discord", channel, "live messages go before missing ones");
        self.schedule.overtake(&channel);
        self.release().await;
        self.commit().await
    }

    async fn release(&mut self) {
        let (gaps, schedule) = (&self.place.channels.gaps, &self.schedule);
        let waits = |channel: &u64| gaps.get(channel).is_some() && !schedule.is_overtaken(channel);
        for (_, data) in self.buffer.release(|held| held.channel.as_ref().is_some_and(waits)) {
            let event = self.message(&data).await;
            self.batch.extend(event);
        }
    }

    fn report_if_filled(&mut self) {
        if self.place.channels.gaps.is_empty() {
            let found = std::mem::take(&mut self.found);
            let lost = self.discord.loss(|loss| loss.lack("")).map(|lack| lack.reason);
            info!(platform = "discord", found, lost, "backfill finished");
        }
    }
}

/// Milliseconds since 1970.
pub(super) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// The smallest id of a message within the window.
fn floor(now: u64, window: Duration) -> u64 {
    first_of(now.saturating_sub(u64::try_from(window.as_millis()).unwrap_or(u64::MAX)))
}
