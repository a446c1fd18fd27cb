//! How a process takes over from the one before it, and what a stop leaves it: one job each.
//!
//! The journal knows which turns were cut off; nothing is guessed from times. If we die in the middle, nothing of
//! it has happened, and the next start does the same. What to do is decided in core.

use std::collections::{BTreeMap, HashSet};

use petasos_core::journal::{Outcome, Write};
use petasos_core::lifecycle::suspects::Suspects;
use petasos_core::message::Delivery;
use petasos_core::outbox::Draft;
use petasos_core::rate_limit::Penalty;
use petasos_core::session::{
    Circumstances, CrashRecovery, Entry, Fate, ResumeReason, Window, fate, last_activity, resumes_by_itself,
};
use petasos_core::turn::{self, Event, Limits};
use petasos_core::{InboxId, LaneId, Millis, Platform, SessionKey, Source, TurnId};

use crate::clock::local_time;
use crate::error::{Error, Result};
use crate::group::{Reads, Tx};
use crate::legacy::Imported;
use crate::suspects::{Hold, Suspect};

const IMPORTED: &str = "sessions_json_imported";
/// Open turns that do not run, as their numbers: a stop left them so, or nobody has taken them up yet.
const LEFT_OPEN: &str = "turns_left_open";
/// Which restart was last answered with "back again".
const TOLD: &str = "restart_told";

/// What lies in the home besides the database.
#[derive(Debug, Default)]
pub struct Found {
    /// The stop before was complete: nobody was interrupted.
    pub clean: bool,
    /// A `sessions.json`, to be taken over once.
    pub sessions: Option<String>,
    /// A `.restart_failure_counts`.
    pub counts: Option<String>,
    /// Who is to be told that we are back, and the restart that was.
    pub back: Option<(String, Vec<Draft>)>,
}

/// What goes into the decisions.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    pub crash_recovery: CrashRecovery,
    pub window: Window,
    pub limits: Limits,
    pub hold: Hold,
}

/// What the new process has to do.
#[derive(Debug, Default)]
pub struct Booted {
    /// Lanes with something to send.
    pub due: Vec<LaneId>,
    pub candidates: Candidates,
    /// Suspects that are not among the candidates: they are resumed one at a time, in this order.
    pub held: Vec<Suspect>,
    /// Rate limits that platforms imposed on the process before and that are still in force.
    pub penalties: Vec<Penalty>,
    pub report: Report,
}

/// Candidates by the platform they wait for.
pub type Candidates = BTreeMap<Platform, Vec<Candidate>>;

/// A session with something left from before.
#[derive(Debug, Clone)]
pub enum Candidate {
    /// Its turn was cut off.
    Turn(SessionKey),
    /// It is marked as interrupted, and has no open turn.
    Marked(Box<Marked>),
    /// Messages wait that no turn has taken.
    Waiting(SessionKey),
}

#[derive(Debug, Clone)]
pub struct Marked {
    pub entry: Entry,
    pub source: Source,
    /// How long the mark counts.
    pub window: Window,
}

/// What was found and done, for the log.
#[derive(Debug, Default)]
pub struct Report {
    pub imported: Option<Option<Imported>>,
    /// Sends of unknown outcome: they are repeated with a mark.
    pub doubtful: usize,
    /// Open turns that cannot be read.
    pub lost_turns: usize,
    /// Accepted messages whose turn is over without them. Should never be any.
    pub stranded: usize,
    /// Accepted messages that cannot be read.
    pub unreadable: usize,
    /// Turns that were executing when the last process died, those of them that are blamed for it, and sessions that it
    /// may have been working on.
    pub cut_off: usize,
    pub blamed: usize,
    pub recent: usize,
    /// Turns that go on and were executing when a process died.
    pub suspects: usize,
    /// Sessions that were interrupted too often.
    pub stuck: usize,
    pub given_up: Vec<(TurnId, Fate)>,
    /// Rows that cannot be read and were passed over.
    pub passed_over: usize,
}

/// How many open rows could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenUp {
    pub turns: usize,
    pub messages: usize,
}

impl Report {
    pub const fn has_unreadable_rows(&self) -> bool {
        self.lost_turns + self.unreadable + self.passed_over > 0
    }

    /// What cannot be read is as good as not there: one damaged row must not keep the gateway from starting.
    fn readable<T>(&mut self, read: Result<Option<T>>) -> Result<Option<T>> {
        match read {
            Err(Error::Unreadable(_)) => {
                self.passed_over += 1;
                Ok(None)
            }
            read => read,
        }
    }
}

impl Reads {
    /// Whether a `sessions.json` was looked for, and taken over if there was one.
    pub fn sessions_imported(&self) -> Result<bool> {
        Ok(self.meta(IMPORTED)?.is_some())
    }
}

impl Tx<'_> {
    /// To be called once, before anything runs. `welcome`: whether this author may still talk to us.
    pub fn take_over(
        &self,
        found: &Found,
        terms: &Terms,
        welcome: impl Fn(&Tx<'_>, &Source) -> Result<bool>,
        now: Millis,
    ) -> Result<Booted> {
        let mut report = Report { imported: self.import(found)?, ..Report::default() };
        self.drop_banners()?;
        report.doubtful = self.recover_sending()?.doubtful;
        let unreadable = self.give_up_unreadable(now)?;
        (report.lost_turns, report.unreadable) = (unreadable.turns, unreadable.messages);
        report.stranded = self.give_up(self.stranded()?, now)?;
        // Before marking: a mark made now would make everything look recent.
        let fresh = self.fresh_turns(terms.window, now, &mut report)?;
        // Likewise: who was merely used shortly before a crash is marked for the next message, not for a turn of ours.
        let marked = self.pending_resumes()?;
        let mut suspects = self.suspects()?;
        if !found.clean {
            self.after_a_crash(&mut suspects, terms, now, &mut report)?;
        }
        report.stuck = self.suspend_stuck()?.len();
        let mut candidates = Candidates::new();
        let (going_on, mut held) =
            self.open_ones(&mut candidates, &suspects, &fresh, terms, &welcome, now, &mut report)?;
        held.sort_by_key(|it| (it.crashes, it.turn.0));
        self.keep_suspects(suspects, &held, terms.hold, now)?;
        self.marked_ones(&mut candidates, &going_on, &marked, terms, &welcome, now, &mut report)?;
        self.leave_all_open()?;
        self.tell_of_the_restart(found, now)?;
        let due = self.heads()?.into_iter().map(|head| head.lane).collect();
        let penalties = self.penalties_in_force(now)?;
        Ok(Booted { due, candidates, held, penalties, report })
    }

    /// Ends turns and settles messages that are open and cannot be read: no process could resume them.
    pub fn give_up_unreadable(&self, now: Millis) -> Result<GivenUp> {
        let turns = self.end_unreadable_turns(now)?;
        let messages = self.give_up(self.unreadable_inbox()?, now)?;
        Ok(GivenUp { turns, messages })
    }

    /// An open turn runs again: from now on a crash is its own. A suspect is on trial until it is cleared.
    pub fn turn_taken_up(&self, turn: TurnId) -> Result<()> {
        let mut suspects = self.suspects()?;
        if suspects.resumed(turn) {
            self.put_suspects(&suspects)?;
        }
        let mut open = self.left_open()?;
        if !open.remove(&turn) {
            return Ok(());
        }
        self.put_left_open(open)
    }

    /// Before a stop does anything slow. Gives the sessions that were not marked before.
    pub fn mark_at_work(
        &self,
        at_work: impl IntoIterator<Item = SessionKey>,
        reason: &ResumeReason,
        now: Millis,
    ) -> Result<Vec<SessionKey>> {
        let mut marked = Vec::new();
        for key in at_work {
            let before = self.entry(&key)?.is_some_and(|entry| entry.resume_pending);
            if self.mark_resume_pending(&key, reason.clone(), now)? && !before {
                marked.push(key);
            }
        }
        Ok(marked)
    }

    /// When no session runs any more, the journal knows who was cut off: of those that were `marked` by this stop
    /// only they stay so, and they alone count as interrupted. Gives how many.
    pub fn close_books(
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
        self.leave_all_open()?;
        Ok(cut_off.len())
    }

    fn import(&self, found: &Found) -> Result<Option<Option<Imported>>> {
        if self.meta(IMPORTED)?.is_some() {
            return Ok(None);
        }
        self.put_meta(IMPORTED, "yes")?;
        if let Some(counts) = &found.counts {
            self.import_failure_counts(counts)?;
        }
        found.sessions.as_deref().map(|text| self.import_sessions(text)).transpose()
    }

    /// Should never find anything; if it does, it is said and listed, not passed over.
    fn give_up(&self, inbox: Vec<InboxId>, at: Millis) -> Result<usize> {
        let count = inbox.len();
        self.apply(&[Write::SettleInbox { inbox, outcome: Outcome::Dead, at }], at)?;
        Ok(count)
    }

    /// Notes which turns are open and do not run: if the process dies, it is not because of them.
    fn leave_all_open(&self) -> Result<()> {
        self.put_left_open(self.open_turns()?.into_iter().map(|turn| turn.id))
    }

    fn put_left_open(&self, turns: impl IntoIterator<Item = TurnId>) -> Result<()> {
        let numbers: Vec<_> = turns.into_iter().map(|turn| turn.0.to_string()).collect();
        self.put_meta(LEFT_OPEN, &numbers.join(","))
    }

    pub(crate) fn left_open(&self) -> Result<HashSet<TurnId>> {
        let noted = self.meta(LEFT_OPEN)?.unwrap_or_default();
        Ok(noted.split(',').filter_map(|number| number.parse().ok().map(TurnId)).collect())
    }

    /// Open turns whose conversation moved, or was marked, within the window.
    fn fresh_turns(&self, window: Window, now: Millis, report: &mut Report) -> Result<HashSet<TurnId>> {
        let mut fresh = HashSet::new();
        for turn in self.open_turns()? {
            let marked =
                report.readable(self.entry(&turn.key))?.and_then(|entry| entry.last_resume_marked_at);
            let mark_age = marked.map(|at| local_time(now).since(at));
            let history = report.readable(self.history(&turn.session, 1).map(Some))?.unwrap_or_default();
            let history: Vec<_> = history.into_iter().map(|said| said.message).collect();
            let moved = last_activity(&history).unwrap_or(turn.started_at).max(turn.started_at);
            if window.holds(Some(now.since(moved))) || (marked.is_some() && window.holds(mark_age)) {
                fresh.insert(turn.id);
            }
        }
        Ok(fresh)
    }

    /// Open turns and waiting messages. Gives the sessions that go on (a turn takes the messages that wait behind it
    /// along) and the suspects that are held.
    #[expect(clippy::too_many_arguments, reason = "one step of `take_over`, which has it all at hand")]
    fn open_ones(
        &self,
        candidates: &mut Candidates,
        suspects: &Suspects,
        fresh: &HashSet<TurnId>,
        terms: &Terms,
        welcome: &impl Fn(&Tx<'_>, &Source) -> Result<bool>,
        now: Millis,
        report: &mut Report,
    ) -> Result<(HashSet<SessionKey>, Vec<Suspect>)> {
        let mut going_on = HashSet::new();
        let mut held = Vec::new();
        for turn in self.open_turns()? {
            let entry = report.readable(self.entry(&turn.key))?;
            // Who asked, and not who opened the conversation: it may be shared.
            let asked = report.readable(self.pending(InboxId::from(turn.id)))?;
            let author = asked.map(|pending| pending.inbound.source);
            let author = author.or_else(|| entry.as_ref().and_then(|entry| entry.origin.clone()));
            let welcome = author.map_or(Ok(true), |source| welcome(self, &source))?;
            match fate(entry.as_ref(), Circumstances { fresh: fresh.contains(&turn.id), welcome }) {
                // Whatever else is true of it: its author learns that it was tried too often.
                Fate::Resume | Fate::Stuck | Fate::Stale if turn.crashes >= terms.limits.crashes => {
                    report.given_up.push((turn.id, Fate::Stuck));
                    let tried = Event::Recovered { clean: true, repeatable: vec![], unstarted: vec![] };
                    let (_, decision) = turn::step(turn, terms.limits, now, tried);
                    self.apply(&decision.writes, now)?;
                }
                Fate::Resume => {
                    going_on.insert(turn.key.clone());
                    let platform = turn.route.platform;
                    let suspect = suspects.contains(turn.id);
                    report.suspects += usize::from(suspect);
                    if suspect && terms.hold.holds(turn.crashes, terms.limits) {
                        let (turn, key, crashes) = (turn.id, turn.key, turn.crashes);
                        held.push(Suspect { turn, key, platform, crashes });
                    } else {
                        candidates.entry(platform).or_default().push(Candidate::Turn(turn.key));
                    }
                }
                fate @ (Fate::Stuck | Fate::Stale | Fate::Unwelcome) => {
                    report.given_up.push((turn.id, fate));
                    let notice = fate.notice().map(str::to_owned);
                    let (_, decision) = turn::step(turn, terms.limits, now, Event::GivenUp { notice });
                    self.apply(&decision.writes, now)?;
                }
            }
        }
        for key in self.keys_with_work()? {
            if let Some(first) = self.queued(&key)?.into_iter().next()
                && going_on.insert(key.clone())
            {
                let platform = first.inbound.source.platform;
                candidates.entry(platform).or_default().push(Candidate::Waiting(key));
            }
        }
        Ok((going_on, held))
    }

    #[expect(clippy::too_many_arguments, reason = "one step of `take_over`, which has it all at hand")]
    fn marked_ones(
        &self,
        candidates: &mut Candidates,
        going_on: &HashSet<SessionKey>,
        marked: &[Entry],
        terms: &Terms,
        welcome: &impl Fn(&Tx<'_>, &Source) -> Result<bool>,
        now: Millis,
        report: &mut Report,
    ) -> Result<()> {
        for entry in marked {
            // As it is now: it may have been suspended since. A session that ever had a turn here needs none of ours:
            // the journal would show it open. What is left comes from another gateway.
            let Some(entry) = report.readable(self.entry(&entry.session_key))? else { continue };
            let Some(source) = entry.origin.clone() else { continue };
            if going_on.contains(&entry.session_key)
                || self.has_turns(&entry.session_key)?
                || !resumes_by_itself(&entry, terms.window, local_time(now))
                || !welcome(self, &source)?
            {
                continue;
            }
            let (platform, window) = (source.platform, terms.window);
            let marked = Candidate::Marked(Box::new(Marked { entry, source, window }));
            candidates.entry(platform).or_default().push(marked);
        }
        Ok(())
    }

    /// "Back again", once per restart.
    fn tell_of_the_restart(&self, found: &Found, now: Millis) -> Result<()> {
        let Some((restart, drafts)) = &found.back else { return Ok(()) };
        if self.meta(TOLD)?.as_ref() == Some(restart) {
            return Ok(());
        }
        self.put_meta(TOLD, restart)?;
        let pushed = drafts.iter().filter(|it| it.route.delivery == Delivery::Push);
        let owed: Vec<_> = pushed.cloned().map(Write::Owe).collect();
        self.apply(&owed, now)
    }
}
