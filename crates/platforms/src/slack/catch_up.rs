//! After a time in which no socket stood: what was written meanwhile, fetched over REST. Slack says an event again
//! only a few times, within minutes.
//!
//! Asked are the channels that we have heard from, private ones first, then the threads that we joined last; bounded by
//! a window and by a number of threads. A channel from which we never heard anything is not asked.
//!
//! One round brings a bounded number of messages, the oldest (`haul.rs`); what is left is the next round's. A channel that
//! could not be read to its end gives nothing, and its gap stays open.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use petasos_core::Fault;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::sleep;
use tracing::{info, warn};

use super::Slack;
use super::commit::{Caught, Told};
use super::haul::{self, Haul};
use super::parse::is_private;
use super::progress::{Gap, Moment};
use crate::intake::Unreadable;

/// Most messages that one request brings.
const PAGE: &str = "200";
/// Requests for one channel or thread in one round.
const PAGES: usize = 50;
/// Threads that are asked for replies: each is a request.
const THREADS: usize = 20;
const TRIES: u32 = 4;
const LONGEST_WAIT: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct Page {
    messages: Vec<Box<RawValue>>,
    response_metadata: Option<Next>,
}

#[derive(Deserialize)]
struct Next {
    #[serde(default)]
    next_cursor: String,
}

/// What every message has, even one we cannot read.
#[derive(Deserialize)]
struct Dated {
    ts: String,
}

/// Said at a moment.
type Dating = (String, Box<RawValue>);

/// What concerns us in a part of a channel, oldest first.
#[derive(Default)]
struct Stretch {
    messages: Vec<Dating>,
    /// There is more, all of it later.
    cut: bool,
}

impl Stretch {
    fn add(&mut self, messages: impl Iterator<Item = Dating>, most: usize) {
        self.messages.extend(messages);
        self.messages.sort_by(|(one, _), (other, _)| one.cmp(other));
        self.cut |= self.messages.len() > most;
        self.messages.truncate(most);
    }

    fn until(&self) -> Option<String> {
        self.messages.last().filter(|_| self.cut).map(|(ts, _)| ts.clone())
    }
}

/// It may be said later, and was not said now.
struct Deferred;

impl Slack {
    /// The oldest for us since these gaps began, and which of them are closed by it.
    pub(super) async fn catch_up(&self, mut gaps: Vec<Gap>) -> Caught {
        let limits = self.config.catch_up;
        let (most, floor) = (limits.messages, floor(limits.window));
        let since = |heard: &Moment| if heard.ts < floor { floor.clone() } else { heard.ts.clone() };
        let asked = gaps.len();
        gaps.sort_by_key(|gap| !is_private(&gap.from.channel));
        let mut hauls = Vec::new();
        for gap in gaps {
            let Ok(read) = self.since(&gap.from, None, &since(&gap.from), most).await else { continue };
            let (mut haul, until) = (Haul::new(gap), read.until());
            let found = self.understood(read, &haul.gap.from);
            haul.add(found, until);
            hauls.push(haul);
        }
        // Also those that began in what was just read.
        let mut threads = self.memory().newest_threads();
        threads.retain(|(channel, _)| hauls.iter().any(|haul| haul.gap.from.channel == *channel));
        for (channel, thread) in threads.into_iter().take(THREADS) {
            let Some(at) = hauls.iter().position(|haul| haul.gap.from.channel == channel) else { continue };
            let heard = &hauls[at].gap.from;
            let Ok(read) = self.since(heard, Some(&thread), &since(heard), most).await else {
                hauls.remove(at);
                continue;
            };
            let until = read.until();
            let found = self.understood(read, heard);
            hauls[at].add(found, until);
        }
        let deferred = hauls.len() < asked;
        let (found, filled) = haul::share_out(hauls, most);
        let whole = filled.iter().filter(|filled| filled.to.is_none()).count();
        info!(platform = "slack", channels = asked, whole, found = found.len(), "caught up after a gap");
        Caught { found, filled, deferred }
    }

    /// In the order in which it was said, for a thread begins with its first message.
    fn understood(&self, stretch: Stretch, place: &Moment) -> Vec<(String, Told)> {
        let read = |(ts, raw): Dating| match self.read_fetched(&raw, place) {
            Ok(read) => Some((ts, Told::Event(Box::new(read?.event)))),
            Err(why) => {
                let id = format!("{}:{ts}", place.channel);
                warn!(platform = "slack", message = id, %why, "unreadable message set aside");
                Some((ts, Told::Unreadable(Unreadable::new(Some(id), why, raw.get()))))
            }
        };
        stretch.messages.into_iter().filter_map(read).collect()
    }

    /// The oldest `most`: a channel tells its newest first, so it is read to its end; a thread tells its oldest first.
    async fn since(
        &self,
        place: &Moment,
        thread: Option<&str>,
        since: &str,
        most: usize,
    ) -> Result<Stretch, Deferred> {
        let (mut read, mut next) = (Stretch::default(), String::new());
        for _ in 0..PAGES {
            let mut query = vec![("channel", place.channel.as_str()), ("oldest", since), ("limit", PAGE)];
            query.extend(thread.map(|thread| ("ts", thread)));
            query.extend(Some(("cursor", next.as_str())).filter(|(_, cursor)| !cursor.is_empty()));
            let Some(page) = self.page(place, thread, &query).await? else { return Ok(read) };
            // The first message of a thread comes along, however old it is, and stands in the channel itself.
            let new = |ts: &str| ts > since && thread != Some(ts);
            let dated = page.messages.into_iter().filter_map(dated);
            read.add(dated.filter(|(ts, raw)| new(ts) && self.concerns_us(raw, place)), most);
            next = page.response_metadata.map(|it| it.next_cursor).unwrap_or_default();
            if next.is_empty() || (thread.is_some() && read.cut) {
                return Ok(read);
            }
        }
        warn!(
            platform = "slack",
            channel = place.channel,
            "more was written than is read; some of it is left out"
        );
        Ok(read)
    }

    /// `None`: this channel does not say, and will not.
    async fn page(
        &self,
        place: &Moment,
        thread: Option<&str>,
        query: &[(&str, &str)],
    ) -> Result<Option<Page>, Deferred> {
        let method = if thread.is_some() { "conversations.replies" } else { "conversations.history" };
        let channel = &place.channel;
        let mut wait = self.config.reconnect_base;
        for _ in 0..TRIES {
            let token = self.memory().teams.get(&place.team).map(|me| me.token.clone());
            let Some(token) = token else { return Ok(None) };
            let error = match self.api.get::<Page>(&token, method, query).await {
                Ok(page) => return Ok(Some(page)),
                Err(error) => error,
            };
            match error.fault() {
                // A scope that is missing is no reason to end the link: it hears what is said from now on.
                Fault::Refused | Fault::Fatal => {
                    info!(platform = "slack", channel, %error, "a channel cannot be caught up");
                    return Ok(None);
                }
                Fault::Later { after } => {
                    warn!(platform = "slack", channel, %error, "catching up is deferred");
                    sleep(after.unwrap_or(wait).min(LONGEST_WAIT)).await;
                    wait *= 2;
                }
            }
        }
        Err(Deferred)
    }
}

/// One that says no moment has no place among the others.
fn dated(raw: Box<RawValue>) -> Option<Dating> {
    match serde_json::from_str::<Dated>(raw.get()) {
        Ok(Dated { ts }) => Some((ts, raw)),
        Err(_) => {
            warn!(platform = "slack", "a message without a moment is passed over");
            None
        }
    }
}

/// The first moment within the window.
fn floor(window: Duration) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:010}.000000", now.saturating_sub(window).as_secs())
}
