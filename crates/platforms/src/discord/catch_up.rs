//! After a gap that no session bridges: what was written meanwhile, fetched over REST.
//!
//! Private channels are asked at once, those of a server when the server lists them: only where the newest message is
//! one we have not seen. One request at a time brings one stretch of one channel (`stretch.rs`), beside what the
//! socket brings; it is committed together with how much of the gap it fills. A request that fails is made again, for
//! as long as it takes; meanwhile the others go first. Given up is only what is older than the window, what Discord
//! will not tell us, and what is beyond the number of channels; it is counted and reported.
//! A private channel in which we never heard anything cannot be found this way; Discord lists none.

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use petasos_core::Fault;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::Error;
use super::digest::Digest;
use super::gaps::Gap;
use super::held::Spoken;
use super::rooms::Room;
use super::session::Event;
use super::stretch::{End, Job, Stretch};
use super::wire::{self, first_of};

/// Most messages that one request brings.
const PAGE: usize = 100;
/// Longest wait for a service that named none.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// A stretch that is being read.
pub(super) type Reading<'a> = Pin<Box<dyn Future<Output = Stretch> + Send + 'a>>;

/// What only this link knows of a catch-up.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    channels: HashMap<u64, Progress>,
    /// Requests that failed in a row.
    failures: u32,
    /// Before the next request.
    wait: Duration,
    tally: Tally,
}

#[derive(Debug, Default)]
struct Progress {
    /// Requests, and those that failed since the last good one.
    asked: u32,
    failed: u32,
    /// When something came of it last.
    moved: Option<Instant>,
    /// The first message that the session itself told us of: it tells us of all that follow.
    live: Option<u64>,
    /// What is said now does not wait any longer for what was said before.
    overtaken: bool,
}

/// For the report.
#[derive(Debug, Default)]
struct Tally {
    found: usize,
    too_old: usize,
    channels_refused: usize,
    channels_left_out: usize,
}

impl Rounds {
    fn of(&mut self, channel: u64) -> &mut Progress {
        self.channels.entry(channel).or_default()
    }

    /// When the catch-up of a channel brought something last.
    pub(super) fn moved(&self, channel: u64) -> Option<Instant> {
        self.channels.get(&channel)?.moved
    }

    /// Whose turn it is: what failed comes last, private channels come first.
    fn next(&self, ready: impl Iterator<Item = (u64, Gap)>) -> Option<(u64, Gap)> {
        ready.min_by_key(|(channel, gap)| {
            let (failed, asked) = self.channels.get(channel).map_or((0, 0), |it| (it.failed, it.asked));
            (failed, gap.guild.is_some(), asked, *channel)
        })
    }

    fn deferred(&mut self, channel: u64, named: Option<Duration>, base: Duration) {
        self.of(channel).failed += 1;
        let doubled = base.saturating_mul(1 << self.failures.min(16)).min(LONGEST_WAIT);
        self.failures += 1;
        self.wait = named.unwrap_or(doubled);
    }
}

impl<'a> Digest<'a> {
    /// A new session: whatever was written since the last one is not in it.
    pub(super) fn open_gaps(&mut self, guilds: &HashSet<u64>) {
        let limits = self.discord.config.catch_up;
        // What waits was told by a session that is over. It is in the gap.
        self.held.clear();
        self.reading = None;
        self.rounds.channels.clear();
        if limits.messages > 0 {
            let left_out = self.place.lose_session(guilds, floor(now(), limits.window));
            self.rounds.tally.channels_left_out += left_out;
        }
    }

    pub(super) fn list(&mut self, guild: &wire::Guild) {
        let id = guild.id.get();
        if !self.place.gaps.is_expected(id) {
            return;
        }
        let listed = guild.channels.iter().chain(&guild.threads);
        let rooms: Vec<(u64, Room)> =
            listed.map(|channel| (channel.id.get(), Room::read(channel, Some(id)))).collect();
        let heard = |(channel, room): &&(u64, Room)| {
            room.written && self.discord.gate.opens(&self.rooms.keys(*channel, room))
        };
        let rooms = rooms.iter().filter(heard).map(|(channel, room)| (*channel, room));
        self.rounds.tally.channels_left_out += self.place.gaps.listed(id, rooms);
        self.report_if_filled();
    }

    /// We are no longer on this server.
    pub(super) fn leave(&mut self, guild: u64) {
        self.rounds.tally.channels_left_out += self.place.gaps.leave(guild);
        self.report_if_filled();
    }

    /// Whether a message that the socket brought waits for what was said before it.
    pub(super) fn hold(&mut self, event: &Event) -> bool {
        let Ok(Spoken { id, channel_id }) = serde_json::from_str(event.data.get()) else { return false };
        let channel = channel_id.get();
        if self.place.gaps.get(channel).is_none() {
            return false;
        }
        let progress = self.rounds.of(channel);
        progress.live.get_or_insert(id.get());
        !progress.overtaken && self.held.put(channel, event)
    }

    /// Asks for the next stretch, if anything is missing and nobody is at it.
    pub(super) fn read_on(&mut self) {
        if self.reading.is_some() {
            return;
        }
        let Some((channel, gap)) = self.rounds.next(self.place.gaps.ready()) else { return };
        self.rounds.of(channel).asked += 1;
        let job = Job {
            channel,
            gap,
            rooms: self.rooms.around(channel),
            me: self.me(),
            joined: self.place.has_joined(channel),
            limit: self.discord.config.catch_up.messages.clamp(1, PAGE),
        };
        let (discord, wait) = (self.discord, std::mem::take(&mut self.rounds.wait));
        self.reading = Some(Box::pin(async move {
            sleep(wait).await;
            discord.stretch(job).await
        }));
    }

    /// Takes what was read, and what waited for it.
    pub(super) async fn caught(&mut self, stretch: Stretch) -> Result<(), Error> {
        self.reading = None;
        let channel = stretch.channel;
        // Without one: we have left that server meanwhile.
        if let Some(gap) = self.place.gaps.get(channel) {
            self.fill(gap, stretch)?;
        }
        self.report_if_filled();
        self.release().await;
        self.moved.get_or_insert_with(Instant::now);
        if self.batch.is_empty() { Ok(()) } else { self.commit().await }
    }

    fn fill(&mut self, gap: Gap, stretch: Stretch) -> Result<(), Error> {
        let Stretch { channel, events, unreadable, too_old, rooms, joined, until, end } = stretch;
        for room in &rooms {
            self.rooms.put(room, gap.guild);
        }
        joined.into_iter().for_each(|thread| self.place.joined(thread));
        let progress = self.rounds.of(channel);
        let live = progress.live;
        let reached = live.is_some_and(|live| until >= live);
        let until = live.map_or(until, |live| until.min(live.saturating_sub(1)));
        if until > gap.after {
            (progress.moved, progress.failed) = (Some(Instant::now()), 0);
            self.place.saw(gap.guild, channel, until);
        }
        // From there on the socket tells.
        let missed = events.into_iter().filter(|(id, _)| live.is_none_or(|live| *id < live));
        let before = self.batch.len();
        self.batch.extend(missed.map(|(_, event)| event));
        self.unreadable.extend(unreadable);
        self.rounds.tally.found += self.batch.len() - before;
        self.rounds.tally.too_old += too_old;
        self.place.gaps.fill(channel, until);
        match end {
            End::Fatal(error) => return Err(error),
            End::Later(error) if !reached => {
                warn!(platform = "discord", channel, %error, "catching up is deferred");
                let named = match error.fault() {
                    Fault::Later { after } => after,
                    Fault::Refused | Fault::Fatal => None,
                };
                self.rounds.deferred(channel, named, self.discord.config.reconnect_base);
                return Ok(());
            }
            End::More if !reached => {}
            End::Refused(error) => {
                warn!(platform = "discord", channel, %error, "a channel cannot be caught up");
                self.rounds.tally.channels_refused += 1;
                self.close(channel);
            }
            End::Whole | End::More | End::Later(_) => self.close(channel),
        }
        self.rounds.failures = 0;
        Ok(())
    }

    fn close(&mut self, channel: u64) {
        self.place.gaps.close(channel);
        self.rounds.channels.remove(&channel);
    }

    /// What has waited long enough for what was said before it does not wait any longer.
    pub(super) async fn overtake(&mut self, channel: u64) -> Result<(), Error> {
        warn!(platform = "discord", channel, "what is said now is heard before what was missed");
        self.rounds.of(channel).overtaken = true;
        self.release().await;
        self.commit().await
    }

    async fn release(&mut self) {
        let (gaps, rounds) = (&self.place.gaps, &self.rounds);
        let overtaken = |channel| rounds.channels.get(&channel).is_some_and(|it| it.overtaken);
        for waited in self.held.release(|channel| gaps.get(channel).is_some() && !overtaken(channel)) {
            let event = self.message(&waited.data).await;
            self.batch.extend(event);
        }
    }

    fn report_if_filled(&mut self) {
        if !self.place.gaps.is_empty() {
            return;
        }
        let Tally { found, too_old, channels_refused, channels_left_out } =
            std::mem::take(&mut self.rounds.tally);
        if too_old + channels_refused + channels_left_out > 0 {
            warn!(
                platform = "discord",
                found,
                too_old,
                channels_refused,
                channels_left_out,
                "caught up after a gap; some of it is given up: raise missed_message_backfill.window_seconds, or \
                 let the bot read the history of these channels"
            );
        } else {
            info!(platform = "discord", found, "caught up after a gap");
        }
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
