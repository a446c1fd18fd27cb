//! Backfill: fetches the messages that no socket delivered.
//!
//! Rounds (`history.rs`) follow each other until no gap is open. One round or its commit is under way at a
//! time, and a gap closes only with the commit of its messages (`crate::backfill`).

pub(in crate::slack) mod history;

use crate::backfill::gaps::ReadExtent;
use crate::backfill::schedule::RequestSchedule;
use crate::slack::Error;
use crate::slack::inbound::parse::is_private;
use crate::slack::link::cursor::{self, Fill, Position, Ts};
use crate::slack::link::{EnvelopeContent, SlackLink};
use history::{ChannelListing, FetchedRound, RoundJob};
use petasos_runtime::clock;

/// Messages of one round, and the gaps that they fill.
#[derive(Debug, Default)]
pub(in crate::slack) struct FetchedBatch {
    pub(in crate::slack) messages: Vec<EnvelopeContent>,
    pub(in crate::slack) fills: Vec<Fill>,
}

impl SlackLink<'_> {
    /// For the first socket after a time without one.
    pub(in crate::slack) fn open_gaps(&mut self) {
        let mut state = self.slack.state();
        cursor::open_all_gaps(&mut state.channels, self.window_start());
        state.scans.clear();
        self.fetching = None;
        self.schedule = RequestSchedule::new();
    }

    /// For messages that were delivered and are not on disk.
    pub(in crate::slack) fn open_gaps_before(&self, positions: Vec<Position>) {
        let floor = self.window_start();
        let mut state = self.slack.state();
        for position in positions {
            // Every channel is in a workspace, so its gap finds room.
            let _opened = state.channels.open_gap_before(position, floor);
        }
    }

    fn window_start(&self) -> Ts {
        Ts::window_start(self.slack.config.backfill.window)
    }

    pub(in crate::slack) fn defer_backfill(&mut self) {
        self.schedule.defer(None, self.slack.config.reconnect_base, clock::monotonic());
    }

    /// Starts a round if a gap is open and no round is under way.
    pub(in crate::slack) fn request_next(&mut self) {
        // Before the first socket, the bot users of the workspaces are not known.
        let busy = self.fetching.is_some() || self.fetched.is_some() || self.committing.is_some();
        if busy || !self.established {
            return;
        }
        let mut state = self.slack.state();
        if state.channels.gaps.is_empty() || self.slack.config.backfill.messages == 0 {
            state.channels.gaps.clear();
            self.schedule = RequestSchedule::new();
            drop(state);
            self.report_if_filled();
            return;
        }
        let gaps = &state.channels.gaps;
        let mut job = RoundJob {
            gaps: gaps.fillable().map(|(channel, gap)| (channel.clone(), gap.clone())).collect(),
            teams: gaps.scopes_to_list().map(|(team, gap)| (team.clone(), gap.number)).collect(),
        };
        drop(state);
        job.gaps.sort_by_key(|(channel, _)| self.schedule.rank(channel, is_private(channel)));
        job.gaps.iter().for_each(|(channel, _)| self.schedule.record_request(channel));
        let slack = self.slack;
        let wait = self.schedule.wait(clock::monotonic());
        self.fetching = Some(Box::pin(async move {
            clock::sleep(wait).await;
            slack.fetch_round(job).await
        }));
    }

    pub(in crate::slack) fn handle_round(&mut self, round: FetchedRound) -> Result<(), Error> {
        let FetchedRound { messages, fills, listings, deferred } = round;
        if !deferred.is_empty() {
            deferred.iter().for_each(|channel| self.schedule.record_failure(channel));
            self.defer_backfill();
        }
        let mut state = self.slack.state();
        for ChannelListing { team, number, channels } in listings {
            match channels {
                Some(channels) => {
                    let channels = channels.into_iter().map(|channel| (channel, None)).collect();
                    state.channels.gaps.apply_listing(&team, number, channels);
                }
                None => {
                    state.channels.gaps.close_scope(&team, number);
                    state.loss.skipped(1);
                }
            }
        }
        for fill in fills.iter().filter(|fill| fill.extent != ReadExtent::Refused) {
            self.schedule.record_progress(&fill.channel, clock::monotonic());
        }
        if messages.is_empty() {
            if deferred.is_empty() {
                self.schedule.succeeded();
            }
            state.record_commit(None, &[], &fills);
        } else {
            self.fetched = Some(FetchedBatch { messages, fills });
        }
        Ok(())
    }
}
