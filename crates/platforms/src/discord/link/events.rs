//! Turns gateway events into committed batches.
//!
//! Owns the cursor and the channel cache. Events are processed in order, several per batch; unreadable ones
//! are stored as such. A batch with messages is committed at once. A cursor that only moved is committed
//! after a delay: redelivered events are deduplicated. Backfill (`backfill`) runs beside it; only live
//! messages of a channel with a gap wait for it.

use std::future;
use std::time::Duration;

use petasos_core::Inbound;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::cursor::{BotIdentity, DiscordCursor, StoredSession};
use super::session::{CommittedSequence, Event, QueuedFrame};
use crate::backfill::buffer::ReorderBuffer;
use crate::backfill::schedule::RequestSchedule;
use crate::discord::backfill::{BackfillResponse, PendingRequest};
use crate::discord::inbound::channel_cache::{ChannelCache, ChannelInfo};
use crate::discord::inbound::parse::{self, ChannelContext};
use crate::discord::rest::tokens::ReplyKind;
use crate::discord::wire::{self, Ready, first_of};
use crate::discord::{Discord, Error};
use crate::inbound::{CommitError, InboundSink, LinkHealth, Unreadable};
use petasos_runtime::clock;

const MAX_BATCH: usize = 64;
/// Delay before a cursor that only moved is committed.
const CURSOR_DELAY: Duration = Duration::from_secs(5);
const MAX_BUFFERED: usize = 1024;
/// Maximum backoff after a failed commit.
const MAX_COMMIT_WAIT: Duration = Duration::from_secs(60);

pub(in crate::discord) struct EventProcessor<'a> {
    pub(in crate::discord) discord: &'a Discord,
    pub(in crate::discord) cursor: DiscordCursor,
    pub(in crate::discord) channel_cache: ChannelCache,
    pub(in crate::discord) schedule: RequestSchedule<u64>,
    pub(in crate::discord) request: Option<PendingRequest<'a>>,
    /// With their sequence numbers.
    pub(in crate::discord) buffer: ReorderBuffer<u64, (u64, Box<RawValue>)>,
    /// Messages found by the current backfill.
    pub(in crate::discord) fetched: usize,
    pub(in crate::discord) batch: Vec<Inbound>,
    pub(in crate::discord) unreadable: Vec<Unreadable>,
    sink: &'a InboundSink,
    frames: mpsc::Receiver<QueuedFrame>,
    committed: watch::Sender<Option<CommittedSequence>>,
    application: watch::Sender<Option<u64>>,
    health: mpsc::Sender<LinkHealth>,
    backfilling: watch::Sender<bool>,
    /// Last event processed.
    last_processed: u64,
    /// When the cursor moved without a commit.
    pub(in crate::discord) dirty_since: Option<Instant>,
}

/// The processor's ends of the link's channels.
pub(in crate::discord) struct ProcessorChannels {
    pub(in crate::discord) frames: mpsc::Receiver<QueuedFrame>,
    pub(in crate::discord) committed: watch::Sender<Option<CommittedSequence>>,
    /// Application id, set by a new session.
    pub(in crate::discord) application: watch::Sender<Option<u64>>,
    pub(in crate::discord) health: mpsc::Sender<LinkHealth>,
    /// Whether a backfill is running.
    pub(in crate::discord) backfilling: watch::Sender<bool>,
}

impl<'a> EventProcessor<'a> {
    pub(in crate::discord) fn new(
        discord: &'a Discord,
        mut cursor: DiscordCursor,
        sink: &'a InboundSink,
        ends: ProcessorChannels,
    ) -> Self {
        let ProcessorChannels { frames, committed, application, health, backfilling } = ends;
        if discord.config.backfill.messages == 0 {
            cursor.channels.gaps.clear();
        }
        let last_processed = cursor.session.as_ref().map_or(0, |session| session.sequence);
        Self {
            discord,
            cursor,
            channel_cache: ChannelCache::default(),
            schedule: RequestSchedule::new(),
            request: None,
            buffer: ReorderBuffer::new(MAX_BUFFERED),
            fetched: 0,
            batch: Vec::new(),
            unreadable: Vec::new(),
            sink,
            frames,
            committed,
            application,
            health,
            backfilling,
            last_processed,
            dirty_since: None,
        }
    }

    pub(in crate::discord) async fn run(mut self) -> Error {
        let now = clock::monotonic;
        loop {
            self.request_next();
            let backfilling = self.request.is_some();
            self.backfilling
                .send_if_modified(|reported| std::mem::replace(reported, backfilling) != backfilling);
            let due = self.dirty_since.map(|dirty_since| dirty_since + CURSOR_DELAY);
            let waiting = self.buffer.longest_waiting(|channel| self.schedule.last_progress(channel));
            let overdue =
                waiting.map(|(since, channel)| (since + self.discord.config.max_reorder_wait, channel));
            let result = tokio::select! {
                frame = self.frames.recv() => match frame {
                    Some(frame) => self.process_batch(frame).await,
                    None => return Error::Closed,
                },
                answer = next_response(&mut self.request) => self.handle_response(answer).await,
                () = sleep_until(overdue.map_or_else(now, |(at, _)| at)), if overdue.is_some() => {
                    match overdue {
                        Some((_, channel)) => self.overtake(channel).await,
                        None => Ok(()),
                    }
                }
                () = sleep_until(due.unwrap_or_else(now)), if due.is_some() => self.commit().await,
            };
            if let Err(error) = result {
                return error;
            }
        }
    }

    async fn process_batch(&mut self, first: QueuedFrame) -> Result<(), Error> {
        let mut next = Some(first);
        let mut processed = 0;
        let mut urgent = false;
        while let Some(frame) = next {
            match frame {
                QueuedFrame::Event(event) => {
                    urgent |= matches!(event.kind.as_str(), "READY" | "GUILD_CREATE");
                    self.process(&event).await;
                    self.last_processed = event.sequence;
                }
                QueuedFrame::Unreadable(frame) => self.unreadable.push(frame),
            }
            processed += 1;
            next = if processed < MAX_BATCH { self.frames.try_recv().ok() } else { None };
        }
        self.dirty_since.get_or_insert_with(clock::monotonic);
        if urgent || !self.batch.is_empty() || !self.unreadable.is_empty() {
            return self.commit().await;
        }
        Ok(())
    }

    async fn process(&mut self, event: &Event) {
        let data = &event.data;
        match event.kind.as_str() {
            "READY" => self.ready(data),
            "GUILD_CREATE" => {
                if let Some(guild) =
                    self.parse_or_store::<wire::Guild>(data, "guild").filter(|it| !it.unavailable)
                {
                    self.channel_cache.insert_guild(&guild);
                    self.apply_guild_listing(&guild);
                }
            }
            // An unavailable server comes back.
            "GUILD_DELETE" => {
                if let Some(guild) =
                    self.parse_or_store::<wire::Guild>(data, "guild").filter(|it| !it.unavailable)
                {
                    self.remove_guild(guild.id.get());
                }
            }
            "MESSAGE_CREATE" if self.buffer_if_gap(event) => {}
            "MESSAGE_CREATE" => {
                let event = self.message(data).await;
                self.batch.extend(event);
            }
            "INTERACTION_CREATE" => {
                let event = self.interaction(data).await;
                self.batch.extend(event);
            }
            "CHANNEL_CREATE" | "CHANNEL_UPDATE" | "THREAD_CREATE" | "THREAD_UPDATE" => {
                if let Some(channel) = self.parse_or_store::<wire::DiscordChannel>(data, "channel") {
                    self.channel_cache.insert(&channel, None);
                }
            }
            "CHANNEL_DELETE" | "THREAD_DELETE" => {
                if let Some(channel) = self.parse_or_store::<wire::DiscordChannel>(data, "channel") {
                    self.channel_cache.remove(channel.id.get());
                }
            }
            _not_ours => {}
        }
    }

    fn ready(&mut self, data: &RawValue) {
        let Some(ready) = self.parse_or_store::<Ready>(data, "READY") else { return };
        let application = ready.application.map(|it| it.id.get());
        self.open_gaps(&ready.guilds.iter().map(|guild| guild.id.get()).collect());
        let id = ready.session_id;
        let resume_url = ready.resume_gateway_url;
        self.cursor.session = Some(StoredSession { id, resume_url, sequence: 0 });
        self.cursor.me = Some(BotIdentity { id: ready.user.id.get(), application });
        self.cursor.set_start(first_of(clock::now().0).saturating_sub(1));
        self.channel_cache.clear();
        let _nobody_asks = self.application.send(application);
    }

    pub(in crate::discord) async fn message(&mut self, raw: &RawValue) -> Option<Inbound> {
        let message = self.parse_or_store::<wire::DiscordMessage>(raw, "message")?;
        let channel = message.channel_id.get();
        let guild = message.guild_id.map(|id| id.get());
        let info = self.channel_info(channel, guild).await;
        self.cursor.record_live(guild.or(info.guild), channel, message.id.get());
        let me = self.me();
        if message.author.id.get() == me {
            if info.is_thread {
                self.cursor.add_thread(channel);
            }
            return None;
        }
        let names = self.channel_cache.names(channel, &info);
        let joined = self.cursor.is_own_thread(channel);
        let context =
            ChannelContext { platform: self.discord.platform, me, info: &info, names: &names, joined };
        let parsed = parse::message_event(&message, &context, &self.discord.filter)?;
        let inbound = parsed.inbound;
        let id = message.id.get();
        let Some(name) = parsed.thread else { return Some(inbound) };
        match self.discord.open_thread(channel, id, &name).await {
            Ok(opened) => {
                if let Some(thread) = &opened.channel {
                    self.channel_cache.insert(thread, guild.or(info.guild));
                }
                self.cursor.add_thread(opened.id);
                Some(parse::into_thread(inbound, opened.id, &name))
            }
            Err(error) => self.discord.handle_thread_failure(inbound, channel, id, &error).await,
        }
    }

    async fn interaction(&mut self, raw: &RawValue) -> Option<Inbound> {
        let interaction = self.parse_or_store::<wire::Interaction>(raw, "interaction")?;
        let channel = interaction.channel_id?.get();
        let guild = interaction.guild_id.map(|id| id.get());
        let health = interaction.channel.as_ref().map(|channel| ChannelInfo::from_wire(channel, guild));
        let info = match health {
            Some(info) => info,
            None => self.channel_info(channel, guild).await,
        };
        let names = self.channel_cache.names(channel, &info);
        let me = self.me();
        let joined = self.cursor.is_own_thread(channel);
        let context =
            ChannelContext { platform: self.discord.platform, me, info: &info, names: &names, joined };
        let event = parse::interaction_event(&interaction, &context, &self.discord.filter)?;
        let wants =
            if interaction.kind == parse::COMMAND { ReplyKind::Message } else { ReplyKind::Acknowledge };
        self.discord.tokens.insert(&interaction.id, &interaction.token, wants);
        Some(event)
    }

    pub(in crate::discord) fn me(&self) -> u64 {
        let health = self.cursor.me.map(|me| me.id);
        health.or_else(|| self.discord.account.parse().ok()).unwrap_or_default()
    }

    /// Fetched if it was not listed: messages do not name the kind of their channel.
    async fn channel_info(&mut self, channel: u64, guild: Option<u64>) -> ChannelInfo {
        if let Some(info) = self.channel_cache.get(channel) {
            return info.clone();
        }
        if guild.is_none() {
            return ChannelInfo::default();
        }
        let Some(info) = self.fetch_channel(channel, guild).await else {
            return ChannelInfo { guild, ..ChannelInfo::default() };
        };
        if let Some(parent) = info.parent.filter(|parent| self.channel_cache.get(*parent).is_none()) {
            // The settings may name the parent.
            self.fetch_channel(parent, guild).await;
        }
        info
    }

    async fn fetch_channel(&mut self, channel: u64, guild: Option<u64>) -> Option<ChannelInfo> {
        match self.discord.api.get::<wire::DiscordChannel>(&format!("/channels/{channel}")).await {
            Ok(health) => {
                self.channel_cache.insert(&health, guild);
                Some(ChannelInfo::from_wire(&health, guild))
            }
            Err(error) => {
                warn!(platform = "discord", channel, %error, "cannot fetch a channel; treating it as a plain one");
                None
            }
        }
    }

    /// Retries until the gateway has committed the batch. Failed commits do not end the link.
    pub(in crate::discord) async fn commit(&mut self) -> Result<(), Error> {
        // Messages in the buffer are not on disk.
        self.cursor.advance_sequence(
            self.buffer.first().map_or(self.last_processed, |(first, _)| first.saturating_sub(1)),
        );
        let cursor = self.cursor.serialize_json();
        let mut wait = self.discord.config.reconnect_base;
        loop {
            match self.sink.commit(self.batch.clone(), self.unreadable.clone(), Some(cursor.clone())).await {
                Ok(()) => break,
                Err(CommitError::Closed) => return Err(Error::Closed),
                Err(CommitError::Refused | CommitError::Invalid) => {
                    let reason = "discord_not_taken";
                    warn!(platform = "discord", reason, ?wait, "batch deferred");
                    let _crowded = self.health.try_send(LinkHealth::Degraded { reason });
                    clock::sleep(wait).await;
                    wait = (wait * 2).min(MAX_COMMIT_WAIT);
                }
            }
        }
        self.batch.clear();
        self.unreadable.clear();
        self.dirty_since = None;
        if let Some(session) = &self.cursor.session {
            let committed = CommittedSequence { session: session.id.clone(), sequence: session.sequence };
            let _nobody_asks = self.committed.send(Some(committed));
        }
        Ok(())
    }

    /// One bad event must not block the others.
    pub(in crate::discord) fn parse_or_store<'de, T: serde::Deserialize<'de>>(
        &mut self,
        raw: &'de RawValue,
        what: &str,
    ) -> Option<T> {
        match serde_json::from_str(raw.get()) {
            Ok(read) => Some(read),
            Err(error) => {
                warn!(platform = "discord", what, at = error.column(), "unreadable event stored");
                self.unreadable.push(Unreadable::shape(wire::id_of(raw), &error, raw.get()));
                None
            }
        }
    }
}

/// Pending while no request is under way.
async fn next_response(request: &mut Option<PendingRequest<'_>>) -> BackfillResponse {
    match request {
        Some(request) => request.await,
        None => future::pending().await,
    }
}
