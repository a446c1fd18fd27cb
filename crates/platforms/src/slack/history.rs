//! One round of the backfill: the history of channels with a gap, read over REST. Slack repeats an event only a few times,
//! within minutes.
//!
//! Read are the channels with a gap, private ones first, then the threads that the bot joined last. A channel is read newest
//! first, so its oldest messages are known only at its end; one that is not finished in this round is continued in the
//! next one (`Scan`). A channel that cannot be read now delivers nothing, and its gap stays open.

use petasos_core::Fault;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::Duration;
use tokio::time::sleep;
use tracing::{info, warn};

use super::Slack;
use super::commit::Told;
use super::cursor::{Fill, Gap, Ts};
use super::parse::is_private;
use crate::backfill::gaps::Reached;
use crate::backfill::round::{self, Round};
use crate::intake::Unreadable;

/// Most messages that one request brings.
const PAGE: &str = "200";
/// Requests for one channel or thread in one round.
const PAGES: usize = 50;
/// Threads that are read: each is a request.
const THREADS: usize = 20;
/// Unfinished channels that are continued; each holds as many messages as a round delivers.
const SCANS: usize = 8;
const TRIES: u32 = 4;
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What a round found, and which gaps it fills once it is on disk.
#[derive(Debug)]
pub(super) struct Fetched {
    pub(super) found: Vec<Told>,
    pub(super) fills: Vec<Fill>,
    pub(super) lists: Vec<List>,
    /// Channels that could not be read now.
    pub(super) deferred: Vec<String>,
}

/// The channels of a workspace; `None`: it does not list them.
#[derive(Debug)]
pub(super) struct List {
    pub(super) team: String,
    pub(super) number: u64,
    pub(super) channels: Option<Vec<String>>,
}

/// The work of a round.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) gaps: Vec<(String, Gap)>,
    /// Workspaces whose channels are to be listed.
    pub(super) teams: Vec<(String, u64)>,
}

#[derive(Deserialize)]
struct Page {
    messages: Vec<Box<RawValue>>,
    response_metadata: Option<Next>,
}

#[derive(Deserialize)]
struct Listed {
    channels: Vec<Conversation>,
    response_metadata: Option<Next>,
}

#[derive(Deserialize)]
struct Conversation {
    id: String,
}

#[derive(Deserialize)]
struct Next {
    #[serde(default)]
    next_cursor: String,
}

/// Every message has one, even an unreadable one.
#[derive(Deserialize)]
struct Dated {
    ts: String,
}

type Message = (Ts, Box<RawValue>);

/// A part of a channel: messages for us, oldest first.
#[derive(Debug, Default)]
struct Part {
    messages: Vec<Message>,
    too_old: Vec<Ts>,
    /// There are more, all of them newer.
    cut: bool,
}

/// A channel that was not read to its end: from where to go on, and what was found.
#[derive(Debug, Default)]
pub(super) struct Scan {
    number: u64,
    latest: Option<Ts>,
    part: Part,
}

/// Unfinished channels, by id.
pub(super) type Scans = std::collections::BTreeMap<String, Scan>;

impl Part {
    fn add(&mut self, messages: Vec<Message>, floor: Ts, most: usize) {
        let (old, new): (Vec<_>, Vec<_>) = messages.into_iter().partition(|(ts, _)| *ts < floor);
        self.too_old.extend(old.into_iter().map(|(ts, _)| ts));
        self.messages.extend(new);
        self.messages.sort_by_key(|(ts, _)| *ts);
        self.cut |= self.messages.len() > most;
        self.messages.truncate(most);
    }

    fn reached(&self) -> Reached<Ts> {
        let last = self.messages.last().filter(|_| self.cut);
        last.map_or(Reached::Whole, |(ts, _)| Reached::Until(*ts))
    }
}

/// It may be readable later.
struct Deferred;

/// Where one channel stands.
struct Place<'a> {
    team: &'a str,
    channel: &'a str,
    gap: &'a Gap,
}

impl Slack {
    pub(super) async fn fetch_missed(&self, work: Work) -> Fetched {
        let (most, asked) = (self.config.catch_up.messages, work.gaps.len());
        let (mut rounds, mut deferred, mut lists) = (Vec::new(), Vec::new(), Vec::new());
        for (channel, gap) in &work.gaps {
            let Some(team) = &gap.scope else { continue };
            let place = Place { team, channel, gap };
            match self.top_level(&place, most).await {
                Ok(Some((part, reached))) => {
                    let mut round = Round::new(channel.clone(), gap);
                    self.parse_part(&mut round, part, reached, &place);
                    rounds.push((place, round));
                }
                Ok(None) => {}
                Err(Deferred) => deferred.push(channel.clone()),
            }
        }
        // Also those that began in the messages that were just read.
        let mut threads = self.memory().newest_threads();
        threads.retain(|(channel, _)| rounds.iter().any(|(place, _)| place.channel == *channel));
        for (channel, thread) in threads.into_iter().take(THREADS) {
            let Some(at) = rounds.iter().position(|(place, _)| place.channel == channel) else { continue };
            let (place, round) = &mut rounds[at];
            match self.thread(place, &thread, most).await {
                Ok((part, reached)) => self.parse_part(round, part, reached, place),
                Err(Deferred) => {
                    deferred.push(channel);
                    rounds.remove(at);
                }
            }
        }
        for (team, number) in work.teams {
            match self.list(&team).await {
                Ok(channels) => lists.push(List { team, number, channels }),
                Err(Deferred) => deferred.push(team),
            }
        }
        let rounds = rounds.into_iter().map(|(_, round)| round).collect();
        let (found, fills) = round::share_out(rounds, most, |channel| is_private(channel));
        info!(
            platform = "slack",
            channels = asked,
            filled = fills.len(),
            found = found.len(),
            "backfill round"
        );
        Fetched { found, fills, lists, deferred }
    }

    /// In the order of sending, because a thread begins with its first message.
    fn parse_part(
        &self,
        round: &mut Round<String, Ts, Told>,
        part: Part,
        reached: Reached<Ts>,
        place: &Place<'_>,
    ) {
        let parse = |(ts, raw): Message| match self.read_fetched(&raw, (place.team, place.channel)) {
            Ok(read) => Some((ts, Told::Event(Box::new(read?.event)))),
            Err(why) => {
                let id = format!("{}:{ts}", place.channel);
                warn!(platform = "slack", message = id, %why, "unreadable message set aside");
                Some((ts, Told::Unreadable(Unreadable::new(Some(id), why, raw.get()))))
            }
        };
        round.add(part.messages.into_iter().filter_map(parse).collect(), part.too_old, reached);
    }

    /// The oldest `most` messages of a channel, which is read newest first. `None`: not finished in this round.
    async fn top_level(
        &self,
        place: &Place<'_>,
        most: usize,
    ) -> Result<Option<(Part, Reached<Ts>)>, Deferred> {
        let Gap { after, floor, number, .. } = *place.gap;
        let kept = self.memory().scans.remove(place.channel).filter(|scan| scan.number == number);
        let mut scan = kept.unwrap_or_else(|| Scan { number, ..Scan::default() });
        let (oldest, latest) = (after.to_string(), scan.latest.map(|ts| ts.to_string()));
        let mut next = String::new();
        for _ in 0..PAGES {
            let mut query = vec![("channel", place.channel), ("oldest", oldest.as_str()), ("limit", PAGE)];
            query.extend(latest.as_deref().map(|latest| ("latest", latest)));
            query.extend(Some(("cursor", next.as_str())).filter(|(_, cursor)| !cursor.is_empty()));
            let page = match self.ask::<Page>(place.team, "conversations.history", &query).await {
                Ok(Some(page)) => page,
                Ok(None) => return Ok(Some((Part::default(), Reached::Refused))),
                Err(Deferred) => {
                    self.put_aside(place.channel, scan);
                    return Err(Deferred);
                }
            };
            let messages = dated(page.messages);
            let first = messages.iter().map(|(ts, _)| *ts).min();
            scan.latest = first.or(scan.latest);
            scan.part.add(self.for_us(messages, place, |ts| ts > after), floor, most);
            next = page.response_metadata.map(|it| it.next_cursor).unwrap_or_default();
            // Of the messages that are too old, one page is enough.
            if next.is_empty() || first.is_some_and(|first| first < floor) {
                let reached = scan.part.reached();
                return Ok(Some((scan.part, reached)));
            }
        }
        self.put_aside(place.channel, scan);
        Ok(None)
    }

    fn put_aside(&self, channel: &str, scan: Scan) {
        let mut memory = self.memory();
        if memory.scans.len() < SCANS && scan.latest.is_some() {
            memory.scans.insert(channel.to_owned(), scan);
        }
    }

    /// The oldest `most` messages of a thread, which is read oldest first.
    async fn thread(
        &self,
        place: &Place<'_>,
        thread: &str,
        most: usize,
    ) -> Result<(Part, Reached<Ts>), Deferred> {
        let Gap { after, floor, .. } = *place.gap;
        let (root, oldest) = (Ts::parse(thread), after.to_string());
        let (mut part, mut next, mut last) = (Part::default(), String::new(), after);
        for _ in 0..PAGES {
            let mut query = vec![("channel", place.channel), ("oldest", oldest.as_str()), ("limit", PAGE)];
            query.push(("ts", thread));
            query.extend(Some(("cursor", next.as_str())).filter(|(_, cursor)| !cursor.is_empty()));
            let page = self.ask::<Page>(place.team, "conversations.replies", &query).await?;
            let Some(page) = page else { return Ok((part, Reached::Whole)) };
            let messages = dated(page.messages);
            last = messages.iter().map(|(ts, _)| *ts).fold(last, Ts::max);
            // The first message of a thread comes along, however old it is, and stands in the channel itself.
            part.add(self.for_us(messages, place, |ts| ts > after && Some(ts) != root), floor, most);
            next = page.response_metadata.map(|it| it.next_cursor).unwrap_or_default();
            if next.is_empty() || part.cut {
                let reached = part.reached();
                return Ok((part, reached));
            }
        }
        Ok((part, Reached::Until(last)))
    }

    fn for_us(&self, messages: Vec<Message>, place: &Place<'_>, new: impl Fn(Ts) -> bool) -> Vec<Message> {
        let ours = |(ts, raw): &Message| new(*ts) && self.concerns_us(raw, (place.team, place.channel));
        messages.into_iter().filter(ours).collect()
    }

    /// `None`: the workspace does not list its channels.
    async fn list(&self, team: &str) -> Result<Option<Vec<String>>, Deferred> {
        let (mut found, mut next) = (Vec::new(), String::new());
        loop {
            let types = ("types", "public_channel,private_channel,mpim,im");
            let mut query = vec![types, ("exclude_archived", "true"), ("limit", PAGE)];
            query.extend(Some(("cursor", next.as_str())).filter(|(_, cursor)| !cursor.is_empty()));
            let page = self.ask::<Listed>(team, "users.conversations", &query).await?;
            let Some(page) = page else { return Ok(None) };
            found.extend(page.channels.into_iter().map(|channel| channel.id));
            next = page.response_metadata.map(|it| it.next_cursor).unwrap_or_default();
            if next.is_empty() {
                return Ok(Some(found));
            }
        }
    }

    /// `None`: Slack refuses it, and will.
    async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        team: &str,
        method: &'static str,
        query: &[(&str, &str)],
    ) -> Result<Option<T>, Deferred> {
        let mut wait = self.config.reconnect_base;
        for _ in 0..TRIES {
            let token = self.memory().teams.get(team).map(|me| me.token.clone());
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
                    sleep(after.unwrap_or(wait).min(LONGEST_WAIT)).await;
                    wait *= 2;
                }
            }
        }
        Err(Deferred)
    }
}

/// A message without a ts cannot be ordered.
fn dated(page: Vec<Box<RawValue>>) -> Vec<Message> {
    let dated = |raw: Box<RawValue>| {
        let ts = serde_json::from_str::<Dated>(raw.get()).ok().and_then(|it| Ts::parse(&it.ts));
        if ts.is_none() {
            warn!(platform = "slack", "message without a ts skipped");
        }
        Some((ts?, raw))
    };
    page.into_iter().filter_map(dated).collect()
}
