//! After a gap that no session bridges: what was written meanwhile, fetched over REST.
//!
//! Private channels are asked at once, those of a server when the server lists them: only where the newest
//! message is one we have not seen. Bounded by a window and by a number of messages for all channels together.
//! A private channel in which we never heard anything cannot be found this way; Discord lists none.

use std::collections::HashSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use petasos_core::Fault;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};
use twilight_model::id::Id;
use twilight_model::id::marker::MessageMarker;

use super::Error;
use super::digest::Digest;
use super::place::Place;
use super::wire::first_of;

/// Most messages that one request brings.
const PAGE: usize = 100;
/// How long servers may take to list their channels.
const PATIENCE: Duration = Duration::from_secs(60);
const TRIES: u32 = 4;
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// A gap that is being caught up.
#[derive(Debug)]
pub(super) struct Gap {
    /// The place before it.
    before: Place,
    /// Servers that have not listed their channels yet.
    guilds: HashSet<u64>,
    /// Nothing older than this.
    floor: u64,
    left: usize,
    until: Instant,
}

impl Digest<'_> {
    /// `before`: where we were before this session.
    pub(super) async fn open_gap(&mut self, before: Place, guilds: HashSet<u64>) -> Result<(), Error> {
        let limits = self.discord.config.catch_up;
        if before.newest().is_none() || limits.messages == 0 {
            self.gap = None;
            return Ok(());
        }
        let direct: Vec<(u64, u64)> = before.direct().collect();
        let floor = floor(now(), limits.window);
        let (left, until) = (limits.messages, Instant::now() + PATIENCE);
        self.gap = Some(Gap { before, guilds, floor, left, until });
        for (channel, seen) in direct {
            self.catch_up(channel, seen).await?;
        }
        self.close_if_done();
        Ok(())
    }

    pub(super) async fn catch_up_guild(&mut self, guild: u64) -> Result<(), Error> {
        let Some(gap) = &mut self.gap else { return Ok(()) };
        if !gap.guilds.remove(&guild) {
            return Ok(());
        }
        let behind = |(channel, newest): (u64, u64)| {
            let seen = gap.before.seen_in(channel)?;
            (newest > seen && newest > gap.floor).then_some((channel, seen))
        };
        let channels: Vec<(u64, u64)> = self.rooms.written(guild).into_iter().filter_map(behind).collect();
        for (channel, seen) in channels {
            self.catch_up(channel, seen).await?;
        }
        self.close_if_done();
        Ok(())
    }

    /// A server that is down lists nothing: the others must not wait for it for ever.
    pub(super) fn close_overdue_gap(&mut self) {
        if let Some(gap) = self.gap.take_if(|gap| Instant::now() >= gap.until) {
            warn!(
                platform = "discord",
                servers = gap.guilds.len(),
                "servers not caught up: they are not there"
            );
        }
    }

    fn close_if_done(&mut self) {
        if let Some(gap) = self.gap.take_if(|gap| gap.guilds.is_empty()) {
            info!(platform = "discord", left = gap.left, "caught up after a gap");
        }
    }

    /// Everything behind `seen` in one channel, oldest first, as far as the bounds allow.
    async fn catch_up(&mut self, channel: u64, seen: u64) -> Result<(), Error> {
        let Some(gap) = &self.gap else { return Ok(()) };
        let (mut after, mut left) = (seen.max(gap.floor), gap.left);
        while left > 0 {
            let limit = left.min(PAGE);
            let Some(mut page) = self.page(channel, after, limit).await? else { break };
            page.sort_by_key(|(id, _)| *id);
            let Some((newest, _)) = page.last() else { break };
            after = *newest;
            left -= page.len().min(left);
            let whole = page.len() >= limit;
            for (_, raw) in &page {
                let event = Box::pin(self.message(raw)).await;
                self.batch.extend(event);
            }
            if !whole {
                break;
            }
        }
        if let Some(gap) = &mut self.gap {
            gap.left = left;
        }
        if left == 0 {
            warn!(platform = "discord", channel, "more was written than is caught up");
        }
        Ok(())
    }

    /// `None`: this channel does not say, and will not.
    async fn page(
        &mut self,
        channel: u64,
        after: u64,
        limit: usize,
    ) -> Result<Option<Vec<(u64, Box<RawValue>)>>, Error> {
        let path = format!("/channels/{channel}/messages?after={after}&limit={limit}");
        let mut wait = self.discord.config.reconnect_base;
        for _ in 0..TRIES {
            let error = match self.discord.api.get::<Vec<Box<RawValue>>>(&path).await {
                Ok(page) => return Ok(Some(self.numbered(page))),
                Err(error) => error,
            };
            match error.fault() {
                Fault::Fatal => return Err(error),
                Fault::Refused => {
                    info!(platform = "discord", channel, %error, "a channel cannot be caught up");
                    return Ok(None);
                }
                Fault::Later { after } => {
                    warn!(platform = "discord", channel, %error, "catching up is deferred");
                    sleep(after.unwrap_or(wait).min(LONGEST_WAIT)).await;
                    wait *= 2;
                }
            }
        }
        warn!(platform = "discord", channel, "catching up was given up");
        Ok(None)
    }

    fn numbered(&mut self, page: Vec<Box<RawValue>>) -> Vec<(u64, Box<RawValue>)> {
        #[derive(serde::Deserialize)]
        struct Numbered {
            id: Id<MessageMarker>,
        }
        let number = |raw: Box<RawValue>| Some((self.readable::<Numbered>(&raw, "message")?.id.get(), raw));
        page.into_iter().filter_map(number).collect()
    }
}

/// Milliseconds since 1970.
pub(super) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// The smallest number a message within the window can have.
fn floor(now: u64, window: Duration) -> u64 {
    first_of(now.saturating_sub(u64::try_from(window.as_millis()).unwrap_or(u64::MAX)))
}
