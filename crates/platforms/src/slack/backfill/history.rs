//! One backfill round: reads the history of channels with a gap over the Web API.
//!
//! Reads private chats first, then other channels, then the newest threads that the bot takes part in. Slack
//! returns a channel's newest messages first, so the oldest ones are known only at the end; an unfinished
//! channel is continued in the next round (`ChannelScan`). A channel that cannot be read now delivers
//! nothing, and its gap stays open.

use std::time::Duration;

use petasos_core::Fault;
use petasos_runtime::clock;
use serde::Deserialize;
use serde_json::value::RawValue;
use tracing::{info, warn};

use crate::backfill::gaps::ReadExtent;
use crate::backfill::round::{self, Round};
use crate::inbound::Unreadable;
use crate::slack::Slack;
use crate::slack::inbound::parse::is_private;
use crate::slack::link::EnvelopeContent;
use crate::slack::link::cursor::{Fill, Gap, Ts};

const PAGE_SIZE: &str = "200";
/// Requests per channel or thread in one round.
const MAX_PAGES: usize = 50;
/// Each thread takes at least one request.
const MAX_THREADS: usize = 20;
/// Unfinished channels; each holds at most the messages of one round.
const MAX_SCANS: usize = 8;
const ATTEMPTS: u32 = 4;
const MAX_WAIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(in crate::slack) struct FetchedRound {
    pub(super) messages: Vec<EnvelopeContent>,
    pub(super) fills: Vec<Fill>,
    pub(super) listings: Vec<ChannelListing>,
    /// Channels and workspaces that could not be read now.
    pub(super) deferred: Vec<String>,
}

#[derive(Debug)]
pub(super) struct ChannelListing {
    pub(super) team: String,
    pub(super) number: u64,
    /// `None`: the workspace does not list its channels.
    pub(super) channels: Option<Vec<String>>,
}

#[derive(Debug, Default)]
pub(super) struct RoundJob {
    pub(super) gaps: Vec<(String, Gap)>,
    /// Workspaces whose channels are listed, with the number of their gap.
    pub(super) teams: Vec<(String, u64)>,
}

#[derive(Deserialize)]
struct HistoryResponse {
    messages: Vec<Box<RawValue>>,
    response_metadata: Option<ResponseMetadata>,
}

#[derive(Deserialize)]
struct ChannelListResponse {
    channels: Vec<ListedChannel>,
    response_metadata: Option<ResponseMetadata>,
}

#[derive(Deserialize)]
struct ListedChannel {
    id: String,
}

#[derive(Deserialize)]
struct ResponseMetadata {
    #[serde(default)]
    next_cursor: String,
}

/// Even an unreadable message has a ts.
#[derive(Deserialize)]
struct MessageWithTs {
    ts: String,
}

type RawMessage = (Ts, Box<RawValue>);

/// The top level of a channel, or one thread: addressed messages, oldest first.
#[derive(Debug, Default)]
struct HistoryPart {
    messages: Vec<RawMessage>,
    too_old: Vec<Ts>,
    /// Newer messages were left out.
    truncated: bool,
}

/// An unfinished channel: the messages found so far, and where to continue.
#[derive(Debug, Default)]
pub(in crate::slack) struct ChannelScan {
    number: u64,
    latest: Option<Ts>,
    part: HistoryPart,
}

pub(in crate::slack) type ChannelScans = std::collections::BTreeMap<String, ChannelScan>;

impl HistoryPart {
    fn add(&mut self, messages: Vec<RawMessage>, floor: Ts, limit: usize) {
        let (old, new): (Vec<_>, Vec<_>) = messages.into_iter().partition(|(ts, _)| *ts < floor);
        self.too_old.extend(old.into_iter().map(|(ts, _)| ts));
        self.messages.extend(new);
        self.messages.sort_by_key(|(ts, _)| *ts);
        self.truncated |= self.messages.len() > limit;
        self.messages.truncate(limit);
    }

    fn extent(&self) -> ReadExtent<Ts> {
        let last = self.messages.last().filter(|_| self.truncated);
        last.map_or(ReadExtent::Complete, |(ts, _)| ReadExtent::Through(*ts))
    }
}

struct Deferred;

struct ChannelGap<'a> {
    team: &'a str,
    channel: &'a str,
    gap: &'a Gap,
}

impl Slack {
    pub(super) async fn fetch_round(&self, job: RoundJob) -> FetchedRound {
        let limit = self.config.backfill.messages;
        let channels = job.gaps.len();
        let mut rounds = Vec::new();
        let mut deferred = Vec::new();
        let mut listings = Vec::new();
        for (channel, gap) in &job.gaps {
            let Some(team) = &gap.scope else { continue };
            let target = ChannelGap { team, channel, gap };
            match self.read_top_level(&target, limit).await {
                Ok(Some((part, extent))) => {
                    let mut round = Round::new(channel.clone(), gap);
                    self.parse_part(&mut round, part, extent, &target);
                    rounds.push((target, round));
                }
                Ok(None) => {}
                Err(Deferred) => deferred.push(channel.clone()),
            }
        }
        // Includes threads that began in the messages just read.
        let mut threads = self.state().newest_threads();
        threads.retain(|(channel, _)| rounds.iter().any(|(target, _)| target.channel == *channel));
        for (channel, thread) in threads.into_iter().take(MAX_THREADS) {
            let Some(index) = rounds.iter().position(|(target, _)| target.channel == channel) else {
                continue;
            };
            let (target, round) = &mut rounds[index];
            match self.read_thread(target, &thread, limit).await {
                Ok((part, extent)) => self.parse_part(round, part, extent, target),
                Err(Deferred) => {
                    deferred.push(channel);
                    rounds.remove(index);
                }
            }
        }
        for (team, number) in job.teams {
            match self.list_channels(&team).await {
                Ok(channels) => listings.push(ChannelListing { team, number, channels }),
                Err(Deferred) => deferred.push(team),
            }
        }
        let rounds = rounds.into_iter().map(|(_, round)| round).collect();
        let (messages, fills) = round::take_oldest(rounds, limit, |channel| is_private(channel));
        info!(platform = "slack", channels, filled = fills.len(), found = messages.len(), "backfill round");
        FetchedRound { messages, fills, listings, deferred }
    }

    /// In the order of sending, because a thread begins with its first message.
    fn parse_part(
        &self,
        round: &mut Round<String, Ts, EnvelopeContent>,
        part: HistoryPart,
        extent: ReadExtent<Ts>,
        target: &ChannelGap<'_>,
    ) {
        let parse = |(ts, raw): RawMessage| match self.parse_fetched(&raw, (target.team, target.channel)) {
            Ok(parsed) => Some((ts, EnvelopeContent::Event(Box::new(parsed?.event)))),
            Err(why) => {
                let id = format!("{}:{ts}", target.channel);
                warn!(platform = "slack", message = id, %why, "unreadable message stored");
                Some((ts, EnvelopeContent::Unreadable(Unreadable::new(Some(id), why, raw.get()))))
            }
        };
        round.add(part.messages.into_iter().filter_map(parse).collect(), part.too_old, extent);
    }

    /// The oldest `limit` messages, read newest first. `None`: not finished in this round.
    async fn read_top_level(
        &self,
        target: &ChannelGap<'_>,
        limit: usize,
    ) -> Result<Option<(HistoryPart, ReadExtent<Ts>)>, Deferred> {
        let Gap { after, floor, number, .. } = *target.gap;
        let unfinished = self.state().scans.remove(target.channel).filter(|scan| scan.number == number);
        let mut scan = unfinished.unwrap_or_else(|| ChannelScan { number, ..ChannelScan::default() });
        let oldest = after.to_string();
        let latest = scan.latest.map(|ts| ts.to_string());
        let mut next = String::new();
        for _ in 0..MAX_PAGES {
            let mut query =
                vec![("channel", target.channel), ("oldest", oldest.as_str()), ("limit", PAGE_SIZE)];
            query.extend(latest.as_deref().map(|latest| ("latest", latest)));
            query.extend(Some(("cursor", next.as_str())).filter(|(_, cursor)| !cursor.is_empty()));
            let page =
                match self.request::<HistoryResponse>(target.team, "conversations.history", &query).await {
                    Ok(Some(page)) => page,
                    Ok(None) => return Ok(Some((HistoryPart::default(), ReadExtent::Refused))),
                    Err(Deferred) => {
                        self.store_scan(target.channel, scan);
                        return Err(Deferred);
                    }
                };
            let messages = with_ts(page.messages);
            let first = messages.iter().map(|(ts, _)| *ts).min();
            scan.latest = first.or(scan.latest);
            scan.part.add(self.filter_addressed(messages, target, |ts| ts > after), floor, limit);
            next = page.response_metadata.map(|it| it.next_cursor).unwrap_or_default();
            // Of messages that are too old, one page is enough.
            if next.is_empty() || first.is_some_and(|first| first < floor) {
                let extent = scan.part.extent();
                return Ok(Some((scan.part, extent)));
            }
        }
        self.store_scan(target.channel, scan);
        Ok(None)
    }

    fn store_scan(&self, channel: &str, scan: ChannelScan) {
        let mut state = self.state();
        if state.scans.len() < MAX_SCANS && scan.latest.is_some() {
            state.scans.insert(channel.to_owned(), scan);
        }
    }

    /// The oldest `limit` messages, read oldest first.
    async fn read_thread(
        &self,
        target: &ChannelGap<'_>,
        thread: &str,
        limit: usize,
    ) -> Result<(HistoryPart, ReadExtent<Ts>), Deferred> {
        let Gap { after, floor, .. } = *target.gap;
        let root = Ts::parse(thread);
        let oldest = after.to_string();
        let mut part = HistoryPart::default();
        let mut next = String::new();
        let mut last = after;
        for _ in 0..MAX_PAGES {
            let mut query =
                vec![("channel", target.channel), ("oldest", oldest.as_str()), ("limit", PAGE_SIZE)];
            query.push(("ts", thread));
            query.extend(Some(("cursor", next.as_str())).filter(|(_, cursor)| !cursor.is_empty()));
            let page = self.request::<HistoryResponse>(target.team, "conversations.replies", &query).await?;
            let Some(page) = page else { return Ok((part, ReadExtent::Complete)) };
            let messages = with_ts(page.messages);
            last = messages.iter().map(|(ts, _)| *ts).fold(last, Ts::max);
            // Slack adds the thread's first message, however old; it is part of the top level.
            let is_new = |ts| ts > after && Some(ts) != root;
            part.add(self.filter_addressed(messages, target, is_new), floor, limit);
            next = page.response_metadata.map(|it| it.next_cursor).unwrap_or_default();
            if next.is_empty() || part.truncated {
                let extent = part.extent();
                return Ok((part, extent));
            }
        }
        Ok((part, ReadExtent::Through(last)))
    }

    fn filter_addressed(
        &self,
        messages: Vec<RawMessage>,
        target: &ChannelGap<'_>,
        is_new: impl Fn(Ts) -> bool,
    ) -> Vec<RawMessage> {
        let addressed =
            |(ts, raw): &RawMessage| is_new(*ts) && self.is_for_bot(raw, (target.team, target.channel));
        messages.into_iter().filter(addressed).collect()
    }

    /// `None`: the workspace does not list its channels.
    async fn list_channels(&self, team: &str) -> Result<Option<Vec<String>>, Deferred> {
        let mut found = Vec::new();
        let mut next = String::new();
        loop {
            let types = ("types", "public_channel,private_channel,mpim,im");
            let mut query = vec![types, ("exclude_archived", "true"), ("limit", PAGE_SIZE)];
            query.extend(Some(("cursor", next.as_str())).filter(|(_, cursor)| !cursor.is_empty()));
            let page = self.request::<ChannelListResponse>(team, "users.conversations", &query).await?;
            let Some(page) = page else { return Ok(None) };
            found.extend(page.channels.into_iter().map(|channel| channel.id));
            next = page.response_metadata.map(|it| it.next_cursor).unwrap_or_default();
            if next.is_empty() {
                return Ok(Some(found));
            }
        }
    }

    /// Retries at once: a deferred channel discards the threads that were already read. `None`: refused.
    async fn request<T: serde::de::DeserializeOwned>(
        &self,
        team: &str,
        method: &'static str,
        query: &[(&str, &str)],
    ) -> Result<Option<T>, Deferred> {
        let mut wait = self.config.reconnect_base;
        for _ in 0..ATTEMPTS {
            let token = self.state().workspaces.get(team).map(|bot| bot.token.clone());
            let Some(token) = token else { return Ok(None) };
            let error = match self.api.get::<T>(&token, method, query).await {
                Ok(page) => return Ok(Some(page)),
                Err(error) => error,
            };
            match error.fault() {
                // A missing scope does not end the link: it still delivers live messages.
                Fault::Refused | Fault::Fatal => {
                    warn!(platform = "slack", team, method, %error, "backfill refused");
                    return Ok(None);
                }
                Fault::Later { after } => {
                    warn!(platform = "slack", team, method, %error, "backfill deferred");
                    clock::sleep(after.unwrap_or(wait).min(MAX_WAIT)).await;
                    wait *= 2;
                }
            }
        }
        Err(Deferred)
    }
}

/// A message without a ts cannot be ordered.
fn with_ts(page: Vec<Box<RawValue>>) -> Vec<RawMessage> {
    let parse = |raw: Box<RawValue>| {
        let ts = serde_json::from_str::<MessageWithTs>(raw.get()).ok().and_then(|it| Ts::parse(&it.ts));
        if ts.is_none() {
            warn!(platform = "slack", "message without a ts skipped");
        }
        Some((ts?, raw))
    };
    page.into_iter().filter_map(parse).collect()
}
