//! After a time in which no socket stood: what was written meanwhile, fetched over REST. Slack says an event again
//! only a few times, within minutes.
//!
//! Asked are the channels that we have heard from, then the threads that we joined last; bounded by a window, by a
//! number of messages for all together, and by a number of threads. A channel from which we never heard anything is
//! not asked.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use petasos_core::Fault;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::sleep;
use tracing::{info, warn};

use super::Slack;
use super::commit::{Caught, Told};
use super::progress::{Gap, Moment};

use crate::intake::Unreadable;

/// Most messages that one request brings.
const PAGE: usize = 100;
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

impl Slack {
    /// Everything for us since these gaps began, oldest first, as far as the bounds allow.
    pub(super) async fn catch_up(&self, gaps: Vec<Gap>) -> Caught {
        let limits = self.config.catch_up;
        let mut left = limits.messages;
        let floor = floor(limits.window);
        let since = |heard: &Moment| if heard.ts < floor { floor.clone() } else { heard.ts.clone() };
        let mut found = Vec::new();
        for Gap { from: heard, .. } in &gaps {
            let messages = self.since(heard, None, &since(heard), left).await;
            left -= messages.len().min(left);
            found.extend(self.understood(messages, heard));
        }
        // Also those that began in what was just read.
        let threads = self.memory().newest_threads();
        for (channel, thread) in threads.into_iter().take(THREADS) {
            let heard = gaps.iter().map(|gap| &gap.from).find(|from| from.channel == channel);
            let Some(heard) = heard else { continue };
            let since = since(heard);
            let mut messages = self.since(heard, Some(&thread), &since, left).await;
            // The first message of a thread comes along, however old it is, and stands in the channel itself.
            messages.retain(|(ts, _)| *ts > since && *ts != thread);
            left -= messages.len().min(left);
            found.extend(self.understood(messages, heard));
        }
        if left == 0 {
            warn!(platform = "slack", "more was written than is caught up");
        }
        info!(platform = "slack", channels = gaps.len(), found = found.len(), "caught up after a gap");
        found.sort_by(|(one, _), (other, _)| one.cmp(other));
        Caught { found: found.into_iter().map(|(_, told)| told).collect(), gaps }
    }

    /// In the order in which it was said, for a thread begins with its first message.
    fn understood(&self, mut messages: Vec<(String, Box<RawValue>)>, place: &Moment) -> Vec<(String, Told)> {
        messages.sort_by(|(one, _), (other, _)| one.cmp(other));
        let read = |(ts, raw): (String, Box<RawValue>)| match self.read_fetched(&raw, place) {
            Ok(read) => Some((ts, Told::Event(Box::new(read?.event)))),
            Err(why) => {
                let id = format!("{}:{ts}", place.channel);
                warn!(platform = "slack", message = id, %why, "unreadable message set aside");
                Some((ts, Told::Unreadable(Unreadable::new(Some(id), why, raw.get()))))
            }
        };
        messages.into_iter().filter_map(read).collect()
    }

    async fn since(
        &self,
        place: &Moment,
        thread: Option<&str>,
        since: &str,
        most: usize,
    ) -> Vec<(String, Box<RawValue>)> {
        let (mut found, mut next) = (Vec::new(), String::new());
        while found.len() < most {
            let limit = (most - found.len()).min(PAGE).to_string();
            let mut query = vec![("channel", place.channel.as_str()), ("oldest", since), ("limit", &limit)];
            query.extend(thread.map(|thread| ("ts", thread)));
            query.extend(Some(("cursor", next.as_str())).filter(|(_, cursor)| !cursor.is_empty()));
            let Some(page) = self.page(place, thread, &query).await else { break };
            let dated = |raw: Box<RawValue>| {
                let ts = serde_json::from_str::<Dated>(raw.get()).map(|it| it.ts).unwrap_or_default();
                (ts, raw)
            };
            found.extend(page.messages.into_iter().map(dated));
            next = page.response_metadata.map(|it| it.next_cursor).unwrap_or_default();
            if next.is_empty() {
                break;
            }
        }
        found
    }

    /// `None`: this channel does not say, and will not.
    async fn page(&self, place: &Moment, thread: Option<&str>, query: &[(&str, &str)]) -> Option<Page> {
        let method = if thread.is_some() { "conversations.replies" } else { "conversations.history" };
        let channel = &place.channel;
        let mut wait = self.config.reconnect_base;
        for _ in 0..TRIES {
            let token = self.memory().teams.get(&place.team)?.token.clone();
            let error = match self.api.get::<Page>(&token, method, query).await {
                Ok(page) => return Some(page),
                Err(error) => error,
            };
            match error.fault() {
                // A scope that is missing is no reason to end the link: it hears what is said from now on.
                Fault::Refused | Fault::Fatal => {
                    info!(platform = "slack", channel, %error, "a channel cannot be caught up");
                    return None;
                }
                Fault::Later { after } => {
                    warn!(platform = "slack", channel, %error, "catching up is deferred");
                    sleep(after.unwrap_or(wait).min(LONGEST_WAIT)).await;
                    wait *= 2;
                }
            }
        }
        warn!(platform = "slack", channel, "catching up was given up");
        None
    }
}

/// The first moment within the window.
fn floor(window: Duration) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{:010}.000000", now.saturating_sub(window).as_secs())
}
