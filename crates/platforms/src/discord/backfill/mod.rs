//! Backfill: after a new session, the messages since the last one are fetched over REST.
//!
//! Private channels are read at once; a server's channels when the server lists them, and only if they have
//! news. One request at a time reads one page of one channel (`history.rs`), and is committed with the part
//! of the gap that it fills. Failed requests are retried without limit, after the others.
//!
//! Lost, counted and reported are messages older than the window, channels that Discord does not show, and
//! gaps of servers that the bot has left. Discord lists no private channels, so one without a position cannot
//! be found.

mod history;

use std::collections::HashSet;
use std::pin::Pin;
use std::time::Duration;

use petasos_core::Fault;
use petasos_core::link::PartialOutage;
use serde::Deserialize;
use tracing::{info, warn};
use twilight_model::id::Id;
use twilight_model::id::marker::{ChannelMarker, MessageMarker};

use crate::backfill::gaps::ReadExtent;
use crate::backfill::loss::Loss;
use crate::discord::inbound::channel_cache::ChannelInfo;
use crate::discord::link::events::EventProcessor;
use crate::discord::link::session::Event;
use crate::discord::wire::{self, first_of};
use crate::discord::{Discord, Error};
use history::{HistoryPage, PageJob};
use petasos_runtime::clock;

const MAX_PAGE: usize = 100;

pub(in crate::discord) type PendingRequest<'a> = Pin<Box<dyn Future<Output = BackfillResponse> + Send + 'a>>;

pub(in crate::discord) enum BackfillResponse {
    Page(Box<HistoryPage>),
    List { guild: u64, number: u64, channels: Result<Vec<wire::DiscordChannel>, Error> },
}

#[derive(Deserialize)]
struct MessageAddress {
    id: Id<MessageMarker>,
    channel_id: Id<ChannelMarker>,
}

impl Discord {
    pub fn partial_outages(&self) -> Vec<PartialOutage> {
        self.loss(|loss| loss.partial_outage("discord_backfill_incomplete")).into_iter().collect()
    }

    fn loss<T>(&self, change: impl FnOnce(&mut Loss) -> T) -> T {
        change(&mut self.loss.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}

impl EventProcessor<'_> {
    /// For a new session, which delivers nothing from before it.
    pub(in crate::discord) fn open_gaps(&mut self, guilds: &HashSet<u64>) {
        let limits = self.discord.config.backfill;
        // The buffered messages belong to the old session and are in the gap.
        self.buffer.clear();
        self.request = None;
        self.schedule = crate::backfill::schedule::RequestSchedule::new();
        if limits.messages > 0 {
            let left_out = self.cursor.open_session_gaps(guilds, oldest_id(clock::now().0, limits.window));
            self.discord.loss(|loss| loss.skipped(left_out));
        }
    }

    pub(in crate::discord) fn apply_guild_listing(&mut self, guild: &wire::Guild) {
        let id = guild.id.get();
        let Some(number) = self.cursor.channels.gaps.scope(&id).map(|gap| gap.number) else { return };
        self.apply_listing(id, number, guild.channels.iter().chain(&guild.threads));
    }

    fn apply_listing<'c>(
        &mut self,
        guild: u64,
        number: u64,
        channels: impl Iterator<Item = &'c wire::DiscordChannel>,
    ) {
        let channel_cache =
            channels.map(|channel| (channel.id.get(), ChannelInfo::from_wire(channel, Some(guild))));
        let read = |(channel, info): &(u64, ChannelInfo)| {
            info.has_messages && self.discord.filter.allows_channel(&self.channel_cache.names(*channel, info))
        };
        let channel_cache: Vec<_> =
            channel_cache.filter(read).map(|(id, info)| (id, info.newest.or(Some(0)))).collect();
        self.cursor.channels.gaps.apply_listing(&guild, number, channel_cache);
        self.report_if_filled();
    }

    pub(in crate::discord) fn remove_guild(&mut self, guild: u64) {
        let left_out = self.cursor.channels.retain_scopes(|scope| *scope != guild);
        self.discord.loss(|loss| loss.skipped(left_out));
        self.report_if_filled();
    }

    /// Whether a live message waits for older ones of its channel.
    pub(in crate::discord) fn buffer_if_gap(&mut self, event: &Event) -> bool {
        let Ok(MessageAddress { id, channel_id }) = serde_json::from_str(event.data.get()) else {
            return false;
        };
        let channel = channel_id.get();
        let gaps = &mut self.cursor.channels.gaps;
        if gaps.get(&channel).is_none() {
            return false;
        }
        gaps.set_live_start(&channel, id.get());
        let held = (event.sequence, event.data.clone());
        !self.schedule.is_overtaken(&channel)
            && self.buffer.push(Some(channel), clock::monotonic(), held).is_ok()
    }

    /// Starts the next request if a gap is open and no request is pending.
    pub(in crate::discord) fn request_next(&mut self) {
        if self.request.is_some() {
            return;
        }
        let gaps = &self.cursor.channels.gaps;
        let discord = self.discord;
        let rank = |(channel, gap): &(&u64, &crate::backfill::gaps::Gap<u64, u64>)| {
            self.schedule.rank(channel, gap.scope.is_none())
        };
        if let Some((channel, gap)) = gaps.fillable().min_by_key(rank) {
            let channel = *channel;
            let gap = gap.clone();
            let job = PageJob {
                channel,
                gap,
                channel_cache: self.channel_cache.with_parent(channel),
                me: self.me(),
                joined: self.cursor.is_own_thread(channel),
                limit: discord.config.backfill.messages.clamp(1, MAX_PAGE),
            };
            self.schedule.record_request(&channel);
            let wait = self.schedule.wait(clock::monotonic());
            self.request = Some(Box::pin(async move {
                clock::sleep(wait).await;
                BackfillResponse::Page(Box::new(discord.read_page(job).await))
            }));
        } else if let Some((guild, gap)) = gaps.scopes_to_list().next() {
            let guild = *guild;
            let number = gap.number;
            let wait = self.schedule.wait(clock::monotonic());
            self.request = Some(Box::pin(async move {
                clock::sleep(wait).await;
                BackfillResponse::List { guild, number, channels: discord.list_guild_channels(guild).await }
            }));
        }
    }

    /// Applies a response and releases the live messages that waited for it.
    pub(in crate::discord) async fn handle_response(
        &mut self,
        answer: BackfillResponse,
    ) -> Result<(), Error> {
        self.request = None;
        match answer {
            BackfillResponse::Page(page) => self.fill(*page)?,
            BackfillResponse::List { guild, number, channels: Ok(channels) } => {
                channels.iter().for_each(|channel| self.channel_cache.insert(channel, Some(guild)));
                self.apply_listing(guild, number, channels.iter());
                self.schedule.succeeded();
            }
            BackfillResponse::List { guild, number, channels: Err(error) } => match error.fault() {
                Fault::Fatal => return Err(error),
                Fault::Later { after } => self.defer(after, &error),
                Fault::Refused => {
                    warn!(platform = "discord", guild, %error, "cannot list the channels of a server");
                    self.cursor.channels.gaps.close_scope(&guild, number);
                    self.discord.loss(|loss| loss.skipped(1));
                }
            },
        }
        self.report_if_filled();
        self.release().await;
        self.dirty_since.get_or_insert_with(clock::monotonic);
        if self.batch.is_empty() { Ok(()) } else { self.commit().await }
    }

    fn fill(&mut self, page: HistoryPage) -> Result<(), Error> {
        let HistoryPage { mut round, unreadable, channel_cache, joined, until, failure } = page;
        let channel = round.channel;
        // Without a gap, the bot has left the server in the meantime.
        let Some(gap) = self.cursor.channels.gaps.get(&channel) else { return Ok(()) };
        let scope = gap.scope;
        let after = gap.after;
        let until = gap.before.map_or(until, |before| until.min(before.saturating_sub(1)));
        round.set_live_start(gap.before);
        for info in &channel_cache {
            self.channel_cache.insert(info, scope);
        }
        joined.into_iter().for_each(|thread| self.cursor.add_thread(thread));
        let (messages, fill) = round.finish();
        if !self.cursor.channels.gaps.fill(&fill) {
            return Ok(());
        }
        self.unreadable.extend(unreadable);
        self.fetched += messages.len();
        self.batch.extend(messages.into_iter().map(|(_, event)| event));
        self.discord.loss(|loss| loss.too_old(fill.too_old));
        if until > after {
            self.schedule.record_progress(&channel, clock::monotonic());
            self.cursor.advance(scope, channel, until);
        }
        match fill.extent {
            ReadExtent::Through(_) => {}
            ReadExtent::Complete => {
                self.schedule.remove(&channel);
                self.discord.loss(|loss| loss.readable_again(channel));
            }
            ReadExtent::Refused => {
                self.schedule.remove(&channel);
                // Servers also list channels that the bot could never read; those are no loss.
                if self.cursor.channels.has_position(&channel) {
                    self.discord.loss(|loss| loss.refused(channel));
                }
            }
        }
        match failure {
            Some(error) => self.handle_failure(channel, fill.extent, error),
            None => {
                self.schedule.succeeded();
                Ok(())
            }
        }
    }

    fn handle_failure(&mut self, channel: u64, reached: ReadExtent<u64>, error: Error) -> Result<(), Error> {
        match error.fault() {
            Fault::Fatal => return Err(error),
            Fault::Refused => warn!(platform = "discord", channel, %error, "cannot backfill a channel"),
            // The live stream has taken over.
            Fault::Later { .. } if reached == ReadExtent::Complete => {}
            Fault::Later { after } => {
                self.schedule.record_failure(&channel);
                self.defer(after, &error);
            }
        }
        Ok(())
    }

    fn defer(&mut self, named: Option<Duration>, error: &Error) {
        warn!(platform = "discord", %error, "backfill deferred");
        self.schedule.defer(named, self.discord.config.reconnect_base, clock::monotonic());
    }

    /// Releases live messages that have waited too long for older ones.
    pub(in crate::discord) async fn overtake(&mut self, channel: u64) -> Result<(), Error> {
        warn!(platform = "discord", channel, "backfill stalled; releasing live messages");
        self.schedule.overtake(&channel);
        self.release().await;
        self.commit().await
    }

    async fn release(&mut self) {
        let gaps = &self.cursor.channels.gaps;
        let schedule = &self.schedule;
        let waits = |channel: &u64| gaps.get(channel).is_some() && !schedule.is_overtaken(channel);
        for (_, data) in self.buffer.release(|held| held.channel.as_ref().is_some_and(waits)) {
            let event = self.message(&data).await;
            self.batch.extend(event);
        }
    }

    fn report_if_filled(&mut self) {
        if self.cursor.channels.gaps.is_empty() {
            let messages = std::mem::take(&mut self.fetched);
            let lost = self.discord.loss(|loss| loss.partial_outage("")).map(|lack| lack.reason);
            info!(platform = "discord", messages, lost, "backfill finished");
        }
    }
}

/// The smallest message id within the window.
fn oldest_id(now: u64, window: Duration) -> u64 {
    first_of(now.saturating_sub(u64::try_from(window.as_millis()).unwrap_or(u64::MAX)))
}
