//! Suspects: turns that were executing when a process died.
//!
//! Owns the list of suspects in `meta`. A crash leaves the list of the last start, with the turn on trial marked. Blame
//! is assigned in `core::lifecycle::suspects`.

use std::time::Duration;

use petasos_core::journal::Write;
use petasos_core::lifecycle::suspects::{Suspects, is_last_try, raised_count};
use petasos_core::session::ResumeReason;
use petasos_core::transcript::ToolCall;
use petasos_core::turn::{Turn, TurnLimits};
use petasos_core::{Millis, Platform, SessionKey, TurnId};

use crate::boot::{BootPolicy, BootReport};
use crate::connection::Tx;
use crate::error::Result;
use crate::value::{json, parse};

const SUSPECTS: &str = "suspects";
/// A session used within this time before a crash may have been active.
const RECENT_USE: Duration = Duration::from_secs(120);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SuspectHold {
    pub scope: HoldScope,
    /// Wait before the first suspect is resumed.
    pub pause: Duration,
    /// A suspect that runs this long is cleared.
    pub stable: Duration,
}

/// Which suspects are held and resumed one at a time; the others are resumed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldScope {
    /// All of them: starts follow each other too closely.
    All,
    /// Suspects that are given up at the next crash, if it is blamed on them alone.
    LastTry,
}

/// An open turn that may have crashed the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspect {
    pub turn: TurnId,
    pub key: SessionKey,
    pub platform: Platform,
    pub crashes: u32,
}

impl SuspectHold {
    pub(crate) fn holds(self, crashes: u32, limits: TurnLimits) -> bool {
        match self.scope {
            HoldScope::All => true,
            HoldScope::LastTry => is_last_try(crashes, limits.crashes),
        }
    }
}

impl Tx<'_> {
    /// Clears a suspect that ran for the stable interval. `false`: it is no suspect, or never ran.
    pub fn clear_suspect(&self, turn: TurnId) -> Result<bool> {
        let mut suspects = self.suspects()?;
        let cleared = suspects.clear(turn);
        if cleared {
            self.put_suspects(&suspects)?;
        }
        Ok(cleared)
    }

    /// Marks the turns that were executing, and counts the crash against the blamed ones.
    pub(crate) fn record_crash(
        &self,
        suspects: &mut Suspects,
        policy: &BootPolicy,
        now: Millis,
        report: &mut BootReport,
    ) -> Result<()> {
        let mut executing = Vec::new();
        let recorded_open_turns = self.recorded_open_turns()?;
        for turn in self.open_turns()?.into_iter().filter(|turn| !recorded_open_turns.contains(&turn.id)) {
            self.mark_resume_pending(&turn.key, ResumeReason::RestartInterrupted, now)?;
            if !self.is_waiting_for_answer(&turn)? {
                executing.push(turn);
            }
        }
        let ids: Vec<_> = executing.iter().map(|turn| turn.id).collect();
        let blamed = suspects.record_crash(&ids);
        let mut keys = Vec::new();
        for mut turn in executing.into_iter().filter(|turn| blamed.contains(&turn.id)) {
            turn.crashes = raised_count(turn.crashes, blamed.len(), policy.limits.crashes);
            keys.push(turn.key.clone());
            self.apply(&[Write::PutTurn(turn)], now)?;
        }
        self.count_crash(&keys)?;
        (report.interrupted, report.blamed) = (ids.len(), keys.len());
        report.recent = self.suspend_recently_active(policy.crash_recovery, RECENT_USE, now)?;
        Ok(())
    }

    /// Whether every running call only waited for a person, so that nothing was executing.
    fn is_waiting_for_answer(&self, turn: &Turn) -> Result<bool> {
        let running = turn.running_calls();
        if running.is_empty() {
            return Ok(false);
        }
        let questions = self.questions_of_turn(turn.id)?;
        let waits = |call: &ToolCall| questions.iter().any(|row| row.call == call.id && row.ending.is_none());
        Ok(running.iter().all(waits))
    }

    pub(crate) fn suspects(&self) -> Result<Suspects> {
        let stored = self.meta(SUSPECTS)?;
        // An unreadable list only means that suspects are resumed at once.
        Ok(stored.and_then(|text| parse(&text, "suspects").ok()).unwrap_or_default())
    }

    pub(crate) fn put_suspects(&self, suspects: &Suspects) -> Result<()> {
        self.put_meta(SUSPECTS, &json(suspects)?)
    }

    /// Stores the held suspects, and notifies their chats that the message is kept and for how long. The other suspects are
    /// resumed like any turn.
    pub(crate) fn put_held_suspects(
        &self,
        mut suspects: Suspects,
        held: &[Suspect],
        hold: SuspectHold,
        now: Millis,
    ) -> Result<()> {
        let before = suspects.clone();
        suspects.retain(|turn| held.iter().any(|suspect| suspect.turn == turn));
        let mut wait = hold.pause;
        for suspect in held {
            if suspects.needs_notice(suspect.turn, wait)
                && let Some(known) = self.turn(suspect.turn)?
            {
                self.apply(&known.turn.notice(petasos_core::notices::held_after_crashes(wait), now), now)?;
            }
            wait = wait.saturating_add(hold.stable);
        }
        if suspects == before {
            return Ok(());
        }
        self.put_suspects(&suspects)
    }
}
