//! From what was read to what is on disk, and only then acknowledged.
//!
//! Owns the envelopes that wait, the one commit under way and the one backfill round. Whatever arrives meanwhile goes into the next
//! commit, so a slow store makes batches larger and never blocks the socket. An envelope whose commit is refused or
//! late, or for which there is no room, is not acknowledged: Slack says it again, and the inbox knows it by `dedup`.
//! Slack does so only a few times, so its channel has a gap from then on (`crate::backfill`), and rounds follow until it is
//! filled. A crash at any point leaves an envelope unacknowledged, too, and the cursor before it.

use std::time::Duration;

use petasos_core::Inbound;
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use super::Error;
use super::cursor::{self, Fill, Position, Ts};
use super::history::{Fetched, List, Work};
use super::parse::is_private;
use super::receive::Link;
use crate::backfill::gaps::Reached;
use crate::backfill::schedule::Schedule;
use crate::intake::{self, NotTaken};

/// Envelopes that may wait for the commit under way; more are left to Slack, which says them again.
pub(super) const MOST_WAITING: usize = 256;

/// What an envelope holds.
#[derive(Debug)]
pub(super) enum Told {
    Event(Box<Inbound>),
    Unreadable(intake::Unreadable),
}

impl Told {
    fn position(&self) -> Option<Position> {
        match self {
            Self::Event(event) => cursor::position(event),
            Self::Unreadable(_) => None,
        }
    }
}

/// An envelope that is acknowledged when its event is committed.
#[derive(Debug)]
pub(super) struct Due {
    socket: u64,
    /// `None`: it cannot be read, and so not be acknowledged.
    envelope: Option<String>,
    arrived: Instant,
    reply: Option<Value>,
}

/// Fetched messages, and the gaps that they fill.
pub(super) type Closing = (Vec<Told>, Vec<Fill>);

/// Whether a batch was kept, and what to do then.
pub(super) struct Committed {
    taken: Result<(), NotTaken>,
    dues: Vec<Due>,
    told: Vec<Position>,
    cursor: Option<String>,
    fills: Vec<Fill>,
}

impl Link<'_> {
    /// For the next commit.
    pub(super) fn wait(&mut self, at: usize, envelope: Option<String>, reply: Option<Value>, told: Told) {
        let (socket, arrived, position) = (self.sockets[at].number, Instant::now(), told.position());
        let channel = position.as_ref().map(|position| position.channel.clone());
        let due = Due { socket, envelope, arrived, reply };
        if self.waiting.push(channel, arrived, (told, due)).is_err() {
            warn!(platform = "slack", "too much waits for the store; an envelope is left to Slack");
            self.missed(position.into_iter().collect());
        }
    }

    /// These were delivered and are not on disk.
    fn missed(&self, told: Vec<Position>) {
        let floor = self.floor();
        let mut memory = self.slack.memory();
        for position in told {
            // Every channel is in a workspace, so its gap finds room.
            let _opened = memory.channels.missed(position, floor);
        }
    }

    fn floor(&self) -> Ts {
        Ts::floor(self.slack.config.catch_up.window)
    }

    /// Neither the store nor Slack is asked again at once.
    fn put_off(&mut self) {
        self.schedule.defer(None, self.slack.config.reconnect_base);
    }

    /// No socket delivered anything until now.
    pub(super) fn was_away(&mut self) {
        let mut memory = self.slack.memory();
        cursor::interrupted(&mut memory.channels, self.floor());
        memory.scans.clear();
        (self.fetching, self.schedule) = (None, Schedule::new());
    }

    /// Begins a round, if a gap is open and no round is under way.
    pub(super) fn backfill(&mut self) {
        // Before the first socket the tokens of the workspaces are not known.
        let busy = self.fetching.is_some() || self.closing.is_some() || self.committing.is_some();
        if busy || !self.stood {
            return;
        }
        let mut memory = self.slack.memory();
        if memory.channels.gaps.is_empty() || self.slack.config.catch_up.messages == 0 {
            memory.channels.gaps.clear();
            self.schedule = Schedule::new();
            drop(memory);
            self.up_to_date();
            return;
        }
        let gaps = &memory.channels.gaps;
        let mut work = Work {
            gaps: gaps.ready().map(|(channel, gap)| (channel.clone(), gap.clone())).collect(),
            teams: gaps.to_list().map(|(team, gap)| (team.clone(), gap.number)).collect(),
        };
        drop(memory);
        work.gaps.sort_by_key(|(channel, _)| self.schedule.rank(channel, is_private(channel)));
        work.gaps.iter().for_each(|(channel, _)| self.schedule.asked(channel));
        let (slack, wait) = (self.slack, self.schedule.wait());
        self.fetching = Some(Box::pin(async move {
            sleep(wait).await;
            slack.fetch_missed(work).await
        }));
    }

    pub(super) fn fetched(
        &mut self,
        Fetched { found, fills, lists, deferred }: Fetched,
    ) -> Result<(), Error> {
        if !deferred.is_empty() {
            deferred.iter().for_each(|channel| self.schedule.failed(channel));
            self.put_off();
        }
        let mut memory = self.slack.memory();
        for List { team, number, channels } in lists {
            match channels {
                Some(channels) => {
                    let channels = channels.into_iter().map(|channel| (channel, None)).collect();
                    memory.channels.gaps.listed(&team, number, channels);
                }
                None => {
                    memory.channels.gaps.close_scope(&team, number);
                    memory.loss.left_out(1);
                }
            }
        }
        for fill in fills.iter().filter(|fill| fill.reached != Reached::Refused) {
            self.schedule.moved(&fill.channel, Instant::now());
        }
        if found.is_empty() {
            memory.keep(None, &[], &fills);
        } else {
            self.closing = Some((found, fills));
        }
        Ok(())
    }

    /// When a message that waits for older ones waits no longer.
    pub(super) fn release(&self) -> Option<Instant> {
        // A commit under way is followed by the next one anyway.
        self.waiting.oldest().filter(|_| self.committing.is_none()).map(|arrived| arrived + self.hold())
    }

    /// How long a message may wait for what was said before it; it is to be acknowledged in time all the same.
    fn hold(&self) -> Duration {
        self.slack.config.ack_within / 2
    }

    /// Messages that may go to disk now. A message does not overtake those of its channel that are being fetched.
    fn take_ready(&mut self) -> Vec<(Told, Due)> {
        let hold = self.hold();
        if self.schedule.wait() > hold {
            return self.waiting.release(|_| false);
        }
        let memory = self.slack.memory();
        let closing = self.closing.as_ref().map(|(_, fills)| fills.as_slice()).unwrap_or_default();
        let behind = |channel: &String| {
            let closes = |fill: &Fill| !matches!(fill.reached, Reached::Until(_)) && fill.channel == *channel;
            memory.channels.gaps.get(channel).is_some() && !closing.iter().any(closes)
        };
        self.waiting
            .release(|held| held.arrived.elapsed() < hold && held.channel.as_ref().is_some_and(behind))
    }

    pub(super) fn commit_waiting(&mut self) {
        if self.committing.is_some() {
            return;
        }
        let ready = self.take_ready();
        let (found, fills) = self.closing.take().unwrap_or_default();
        if ready.is_empty() && found.is_empty() {
            return;
        }
        let (live, dues): (Vec<Told>, Vec<Due>) = ready.into_iter().unzip();
        let (mut events, mut unreadable) = (Vec::new(), Vec::new());
        // Fetched messages are older than live ones.
        for told in found.into_iter().chain(live) {
            match told {
                Told::Event(event) => events.push(*event),
                Told::Unreadable(envelope) => unreadable.push(envelope),
            }
        }
        let (slack, intake) = (self.slack, self.intake);
        self.committing = Some(Box::pin(async move {
            slack.complete(&mut events).await;
            let told: Vec<Position> = events.iter().filter_map(cursor::position).collect();
            let cursor = slack.memory().cursor(&told, &fills);
            let taken = intake.commit(events, unreadable, cursor.clone()).await;
            Committed { taken, dues, told, cursor, fills }
        }));
    }

    pub(super) async fn committed(&mut self, done: Committed) -> Result<(), Error> {
        let Committed { taken, dues, told, cursor, fills } = done;
        match taken {
            Ok(()) => {
                self.redial.reset();
                self.slack.memory().keep(cursor, &told, &fills);
            }
            Err(NotTaken::Refused | NotTaken::Unfit) => {
                let reason = "slack_not_taken";
                warn!(
                    platform = "slack",
                    reason,
                    envelopes = dues.len(),
                    "left to Slack, which says it again"
                );
                // Slack may stop saying it before we can take it.
                self.missed(told);
                self.put_off();
                self.troubled(reason);
                return Ok(());
            }
            Err(NotTaken::Closed) => return Err(Error::Closed),
        }
        for due in dues {
            let (Some(envelope), waited) = (due.envelope, due.arrived.elapsed()) else { continue };
            if waited > self.slack.config.ack_within {
                debug!(platform = "slack", envelope, ?waited, "too late to acknowledge");
                continue;
            }
            if let Some(at) = self.position(due.socket) {
                self.acknowledge(at, &envelope, due.reply).await?;
            }
        }
        Ok(())
    }
}
