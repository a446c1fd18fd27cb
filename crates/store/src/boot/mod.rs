//! Recovery at process start and bookkeeping at process stop, each one job.
//!
//! The turn journal shows which turns were interrupted; nothing is inferred from times. A crash during recovery leaves
//! the previous state, and the next start repeats the recovery. The decisions are made in `petasos-core`.

pub(crate) mod suspects;

use std::collections::{BTreeMap, HashSet};

use petasos_core::journal::{MessageOutcome, Write};
use petasos_core::lifecycle::suspects::Suspects;
use petasos_core::message::Delivery;
use petasos_core::outbox::Draft;
use petasos_core::rate_limit::Penalty;
use petasos_core::session::{
    CrashRecovery, Entry, FreshnessWindow, ResumeConditions, ResumeDecision, ResumeReason, last_activity,
    resume_decision, resumes_by_itself,
};
use petasos_core::turn::{self, Event, TurnLimits};
use petasos_core::{InboxId, LaneId, Millis, Platform, SessionKey, Source, TurnId};

use crate::boot::suspects::{Suspect, SuspectHold};
use crate::clock::local_time;
use crate::connection::{Reads, Tx};
use crate::error::{Error, Result};
use crate::sessions::import::SessionImport;

const IMPORTED: &str = "sessions_json_imported";
/// Ids of open turns that are not executing: the last stop left them open, or they are not resumed yet.
const OPEN_TURNS: &str = "turns_left_open";
/// Id of the last restart whose requester was notified.
const RESTART_REPORTED: &str = "restart_told";

/// Files in the home that recovery reads, besides the database.
#[derive(Debug, Default)]
pub struct HomeState {
    /// The last stop was complete and interrupted no turn.
    pub clean: bool,
    /// Content of a `sessions.json` to import once.
    pub sessions_json: Option<String>,
    pub failure_counts: Option<String>,
    /// Id of the restart, and the notices for the chats that requested it.
    pub restart_notices: Option<(String, Vec<Draft>)>,
}

#[derive(Debug, Clone, Copy)]
pub struct BootPolicy {
    pub crash_recovery: CrashRecovery,
    pub window: FreshnessWindow,
    pub limits: TurnLimits,
    pub hold: SuspectHold,
}

#[derive(Debug, Default)]
pub struct BootResult {
    pub due: Vec<LaneId>,
    pub candidates: ResumeCandidates,
    /// Suspects to be resumed one at a time, in this order.
    pub held: Vec<Suspect>,
    /// Rate limits still in force from the last process.
    pub penalties: Vec<Penalty>,
    pub report: BootReport,
}

/// Sessions to resume, by the platform whose link they wait for.
pub type ResumeCandidates = BTreeMap<Platform, Vec<ResumeCandidate>>;

/// A session with unfinished work.
#[derive(Debug, Clone)]
pub enum ResumeCandidate {
    Turn(SessionKey),
    /// Marked as interrupted, without an open turn.
    Marked(Box<MarkedSession>),
    /// It has unclaimed messages.
    Waiting(SessionKey),
}

#[derive(Debug, Clone)]
pub struct MarkedSession {
    pub entry: Entry,
    pub source: Source,
    pub window: FreshnessWindow,
}

/// Counts for the log.
#[derive(Debug, Default)]
pub struct BootReport {
    pub imported: Option<Option<SessionImport>>,
    /// Sends of unknown outcome, to be repeated as possible duplicates.
    pub doubtful: usize,
    pub lost_turns: usize,
    /// Claimed messages whose turn has ended without them. Always zero unless a decision is wrong.
    pub stranded: usize,
    pub unreadable: usize,
    /// Turns that were executing when the last process died, how many of them are blamed, and how many sessions were in use.
    pub interrupted: usize,
    pub blamed: usize,
    pub recent: usize,
    /// Turns that were executing when a process died and are resumed.
    pub suspects: usize,
    pub stuck: usize,
    pub given_up: Vec<(TurnId, ResumeDecision)>,
    pub skipped_rows: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnreadableWork {
    pub turns: usize,
    pub messages: usize,
}

impl BootReport {
    pub const fn has_unreadable_rows(&self) -> bool {
        self.lost_turns + self.unreadable + self.skipped_rows > 0
    }

    /// Treats an unreadable row as missing, so that one damaged row does not prevent a start.
    fn readable<T>(&mut self, read: Result<Option<T>>) -> Result<Option<T>> {
        match read {
            Err(Error::Unreadable(_)) => {
                self.skipped_rows += 1;
                Ok(None)
            }
            read => read,
        }
    }
}

impl Reads {
    /// Whether the import of `sessions.json` is done, even if there was no file.
    pub fn sessions_imported(&self) -> Result<bool> {
        Ok(self.meta(IMPORTED)?.is_some())
    }
}

impl Tx<'_> {
    /// Must run once, before any task. `is_authorised`: whether this author may still use the agent.
    pub fn take_over(
        &self,
        home: &HomeState,
        policy: &BootPolicy,
        is_authorised: impl Fn(&Tx<'_>, &Source) -> Result<bool>,
        now: Millis,
    ) -> Result<BootResult> {
        let mut report = BootReport { imported: self.import_legacy(home)?, ..BootReport::default() };
        self.drop_banners()?;
        report.doubtful = self.recover_sending()?.doubtful;
        let unreadable = self.give_up_unreadable(now)?;
        (report.lost_turns, report.unreadable) = (unreadable.turns, unreadable.messages);
        report.stranded = self.dead_letter_inbox(self.stranded()?, now)?;
        // Must precede the marking below, which would make every turn look recent.
        let fresh = self.fresh_turns(policy.window, now, &mut report)?;
        // Likewise: a session only used shortly before the crash is marked for its next message, not resumed here.
        let marked = self.pending_resumes()?;
        let mut suspects = self.suspects()?;
        if !home.clean {
            self.record_crash(&mut suspects, policy, now, &mut report)?;
        }
        report.stuck = self.suspend_stuck()?.len();
        let mut candidates = ResumeCandidates::new();
        let (resumed_keys, mut held) = self.collect_open_turns(
            &mut candidates,
            &suspects,
            &fresh,
            policy,
            &is_authorised,
            now,
            &mut report,
        )?;
        held.sort_by_key(|it| (it.crashes, it.turn.0));
        self.put_held_suspects(suspects, &held, policy.hold, now)?;
        self.collect_marked_sessions(
            &mut candidates,
            &resumed_keys,
            &marked,
            policy,
            &is_authorised,
            now,
            &mut report,
        )?;
        self.record_open_turns()?;
        self.enqueue_restart_notices(home, now)?;
        let due = self.heads()?.into_iter().map(|head| head.lane).collect();
        let penalties = self.penalties_in_force(now)?;
        Ok(BootResult { due, candidates, held, penalties, report })
    }

    /// Ends open turns and settles waiting messages that cannot be read.
    pub fn give_up_unreadable(&self, now: Millis) -> Result<UnreadableWork> {
        let turns = self.end_unreadable_turns(now)?;
        let messages = self.dead_letter_inbox(self.unreadable_inbox()?, now)?;
        Ok(UnreadableWork { turns, messages })
    }

    /// Records that an open turn executes again: later crashes count against it. A suspect is on trial until cleared.
    pub fn turn_resumed(&self, turn: TurnId) -> Result<()> {
        let mut suspects = self.suspects()?;
        if suspects.start_trial(turn) {
            self.put_suspects(&suspects)?;
        }
        let mut open = self.recorded_open_turns()?;
        if !open.remove(&turn) {
            return Ok(());
        }
        self.put_open_turns(open)
    }

    /// Called before a stop does anything slow. Returns the sessions that were not marked before.
    pub fn mark_running_sessions(
        &self,
        running: impl IntoIterator<Item = SessionKey>,
        reason: &ResumeReason,
        now: Millis,
    ) -> Result<Vec<SessionKey>> {
        let mut marked = Vec::new();
        for key in running {
            let before = self.entry(&key)?.is_some_and(|entry| entry.resume_pending);
            if self.mark_resume_pending(&key, reason.clone(), now)? && !before {
                marked.push(key);
            }
        }
        Ok(marked)
    }

    /// Called when no session runs any more. Clears the marks set by this stop, except for sessions whose turn is still open.
    /// Returns the number of interrupted sessions.
    pub fn finish_stop(
        &self,
        marked: &[SessionKey],
        worked: &BTreeMap<TurnId, SessionKey>,
        reason: &ResumeReason,
        now: Millis,
    ) -> Result<usize> {
        let mut cut_off = Vec::new();
        for (turn, key) in worked {
            if self.open_turn_of(key)?.is_some_and(|open| open.id == *turn) {
                cut_off.push(key.clone());
            }
        }
        for key in marked.iter().filter(|key| !cut_off.contains(key)) {
            self.clear_resume_pending(key)?;
        }
        for key in &cut_off {
            self.mark_resume_pending(key, reason.clone(), now)?;
        }
        self.count_stop(&cut_off)?;
        self.record_open_turns()?;
        Ok(cut_off.len())
    }

    fn import_legacy(&self, home: &HomeState) -> Result<Option<Option<SessionImport>>> {
        if self.meta(IMPORTED)?.is_some() {
            return Ok(None);
        }
        self.put_meta(IMPORTED, "yes")?;
        if let Some(counts) = &home.failure_counts {
            self.import_failure_counts(counts)?;
        }
        home.sessions_json.as_deref().map(|text| self.import_sessions(text)).transpose()
    }

    /// Settles messages that no turn can process, so that they are listed as dead letters.
    fn dead_letter_inbox(&self, inbox: Vec<InboxId>, at: Millis) -> Result<usize> {
        let count = inbox.len();
        self.apply(&[Write::SettleInbox { inbox, outcome: MessageOutcome::Dead, at }], at)?;
        Ok(count)
    }

    /// Records the open turns as not executing, so that a crash is not blamed on them.
    fn record_open_turns(&self) -> Result<()> {
        self.put_open_turns(self.open_turns()?.into_iter().map(|turn| turn.id))
    }

    fn put_open_turns(&self, turns: impl IntoIterator<Item = TurnId>) -> Result<()> {
        let numbers: Vec<_> = turns.into_iter().map(|turn| turn.0.to_string()).collect();
        self.put_meta(OPEN_TURNS, &numbers.join(","))
    }

    pub(crate) fn recorded_open_turns(&self) -> Result<HashSet<TurnId>> {
        let stored = self.meta(OPEN_TURNS)?.unwrap_or_default();
        Ok(stored.split(',').filter_map(|number| number.parse().ok().map(TurnId)).collect())
    }

    /// Open turns whose conversation changed or was marked within the window.
    fn fresh_turns(
        &self,
        window: FreshnessWindow,
        now: Millis,
        report: &mut BootReport,
    ) -> Result<HashSet<TurnId>> {
        let mut fresh = HashSet::new();
        for turn in self.open_turns()? {
            let marked =
                report.readable(self.entry(&turn.key))?.and_then(|entry| entry.last_resume_marked_at);
            let mark_age = marked.map(|at| local_time(now).since(at));
            let history = report.readable(self.history(&turn.session, 1).map(Some))?.unwrap_or_default();
            let history: Vec<_> = history.into_iter().map(|said| said.message).collect();
            let moved = last_activity(&history).unwrap_or(turn.started_at).max(turn.started_at);
            if window.contains(Some(now.since(moved))) || (marked.is_some() && window.contains(mark_age)) {
                fresh.insert(turn.id);
            }
        }
        Ok(fresh)
    }

    /// Collects sessions with open turns or waiting messages. Returns the resumed keys and the held suspects.
    #[expect(clippy::too_many_arguments, reason = "one step of `take_over`, which has it all at hand")]
    fn collect_open_turns(
        &self,
        candidates: &mut ResumeCandidates,
        suspects: &Suspects,
        fresh: &HashSet<TurnId>,
        policy: &BootPolicy,
        is_authorised: &impl Fn(&Tx<'_>, &Source) -> Result<bool>,
        now: Millis,
        report: &mut BootReport,
    ) -> Result<(HashSet<SessionKey>, Vec<Suspect>)> {
        let mut resumed_keys = HashSet::new();
        let mut held = Vec::new();
        for turn in self.open_turns()? {
            let entry = report.readable(self.entry(&turn.key))?;
            // The author of the message, not of the session: a session may be shared.
            let message = report.readable(self.pending(InboxId::from(turn.id)))?;
            let author = message.map(|pending| pending.inbound.source);
            let author = author.or_else(|| entry.as_ref().and_then(|entry| entry.origin.clone()));
            let authorised = author.map_or(Ok(true), |source| is_authorised(self, &source))?;
            match resume_decision(
                entry.as_ref(),
                ResumeConditions { fresh: fresh.contains(&turn.id), authorised },
            ) {
                // Takes precedence: the author is notified that the turn was tried too often.
                ResumeDecision::Resume | ResumeDecision::Stuck | ResumeDecision::Stale
                    if turn.crashes >= policy.limits.crashes =>
                {
                    report.given_up.push((turn.id, ResumeDecision::Stuck));
                    let tried = Event::Recovered { clean: true, repeatable: vec![], unstarted: vec![] };
                    let (_, decision) = turn::step(turn, policy.limits, now, tried);
                    self.apply(&decision.writes, now)?;
                }
                ResumeDecision::Resume => {
                    resumed_keys.insert(turn.key.clone());
                    let platform = turn.route.platform;
                    let suspect = suspects.contains(turn.id);
                    report.suspects += usize::from(suspect);
                    if suspect && policy.hold.holds(turn.crashes, policy.limits) {
                        held.push(Suspect { turn: turn.id, key: turn.key, platform, crashes: turn.crashes });
                    } else {
                        candidates.entry(platform).or_default().push(ResumeCandidate::Turn(turn.key));
                    }
                }
                decision @ (ResumeDecision::Stuck | ResumeDecision::Stale | ResumeDecision::Unauthorised) => {
                    report.given_up.push((turn.id, decision));
                    let notice = decision.notice().map(str::to_owned);
                    let (_, decision) = turn::step(turn, policy.limits, now, Event::GivenUp { notice });
                    self.apply(&decision.writes, now)?;
                }
            }
        }
        for key in self.keys_with_work()? {
            if let Some(first) = self.queued(&key)?.into_iter().next()
                && resumed_keys.insert(key.clone())
            {
                let platform = first.inbound.source.platform;
                candidates.entry(platform).or_default().push(ResumeCandidate::Waiting(key));
            }
        }
        Ok((resumed_keys, held))
    }

    #[expect(clippy::too_many_arguments, reason = "one step of `take_over`, which has it all at hand")]
    fn collect_marked_sessions(
        &self,
        candidates: &mut ResumeCandidates,
        resumed_keys: &HashSet<SessionKey>,
        marked: &[Entry],
        policy: &BootPolicy,
        is_authorised: &impl Fn(&Tx<'_>, &Source) -> Result<bool>,
        now: Millis,
        report: &mut BootReport,
    ) -> Result<()> {
        for entry in marked {
            // Reads the entry again: it may have been suspended since. A session that ever had a turn here would have an open
            // one, so a mark without a turn comes from another gateway.
            let Some(entry) = report.readable(self.entry(&entry.session_key))? else { continue };
            let Some(source) = entry.origin.clone() else { continue };
            if resumed_keys.contains(&entry.session_key)
                || self.has_turns(&entry.session_key)?
                || !resumes_by_itself(&entry, policy.window, local_time(now))
                || !is_authorised(self, &source)?
            {
                continue;
            }
            let platform = source.platform;
            let window = policy.window;
            let marked = ResumeCandidate::Marked(Box::new(MarkedSession { entry, source, window }));
            candidates.entry(platform).or_default().push(marked);
        }
        Ok(())
    }

    /// Enqueues the "back again" notices once per restart.
    fn enqueue_restart_notices(&self, home: &HomeState, now: Millis) -> Result<()> {
        let Some((restart, drafts)) = &home.restart_notices else { return Ok(()) };
        if self.meta(RESTART_REPORTED)?.as_ref() == Some(restart) {
            return Ok(());
        }
        self.put_meta(RESTART_REPORTED, restart)?;
        let pushed = drafts.iter().filter(|it| it.route.delivery == Delivery::Push);
        let writes: Vec<_> = pushed.cloned().map(Write::Enqueue).collect();
        self.apply(&writes, now)
    }
}
