//! Turns that were executing when a process died: counted, held and cleared.
//!
//! Owns the list of suspects in `meta`. A crash leaves: the list of the last start, in which the one on trial is marked.
//! Blame is decided in `core::lifecycle::suspects`.

use std::time::Duration;

use petasos_core::journal::Write;
use petasos_core::lifecycle::suspects::{Suspects, is_last_try, kept_notice, raised};
use petasos_core::session::ResumeReason;
use petasos_core::transcript::ToolCall;
use petasos_core::turn::{Limits, Turn};
use petasos_core::{Millis, Platform, SessionKey, TurnId};

use crate::boot::{Report, Terms};
use crate::error::Result;
use crate::group::Tx;
use crate::value::{json, parse};

const SUSPECTS: &str = "suspects";
/// A session used this shortly before a crash may have been in use.
const RECENT: Duration = Duration::from_secs(120);

/// How suspects are resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    pub scope: Scope,
    /// Before the first of them.
    pub pause: Duration,
    /// A suspect that has run for this long is cleared.
    pub stable: Duration,
}

/// Which suspects are held and resumed one at a time. The others are resumed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Starts follow each other too closely.
    All,
    /// Those that the next crash counted against them alone gives up.
    LastTry,
}

/// An open turn that may have taken the process down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspect {
    pub turn: TurnId,
    pub key: SessionKey,
    pub platform: Platform,
    /// How often it was blamed for a crash.
    pub crashes: u32,
}

impl Hold {
    pub(crate) fn holds(self, crashes: u32, limits: Limits) -> bool {
        match self.scope {
            Scope::All => true,
            Scope::LastTry => is_last_try(crashes, limits.crashes),
        }
    }
}

impl Tx<'_> {
    /// A suspect has run for the stable interval. False: it was none, or never ran.
    pub fn clear_suspect(&self, turn: TurnId) -> Result<bool> {
        let mut suspects = self.suspects()?;
        let cleared = suspects.clear(turn);
        if cleared {
            self.put_suspects(&suspects)?;
        }
        Ok(cleared)
    }

    /// Marks the turns that were executing and counts the crash against those that are blamed for it.
    pub(crate) fn after_a_crash(
        &self,
        suspects: &mut Suspects,
        terms: &Terms,
        now: Millis,
        report: &mut Report,
    ) -> Result<()> {
        let mut executing = Vec::new();
        let left_open = self.left_open()?;
        for turn in self.open_turns()?.into_iter().filter(|turn| !left_open.contains(&turn.id)) {
            self.mark_resume_pending(&turn.key, ResumeReason::RestartInterrupted, now)?;
            if !self.waits_for_a_person(&turn)? {
                executing.push(turn);
            }
        }
        let ids: Vec<_> = executing.iter().map(|turn| turn.id).collect();
        let blamed = suspects.crashed(&ids);
        let mut keys = Vec::new();
        for mut turn in executing.into_iter().filter(|turn| blamed.contains(&turn.id)) {
            turn.crashes = raised(turn.crashes, blamed.len(), terms.limits.crashes);
            keys.push(turn.key.clone());
            self.apply(&[Write::PutTurn(turn)], now)?;
        }
        self.count_crash(&keys)?;
        (report.cut_off, report.blamed) = (ids.len(), keys.len());
        report.recent = self.suspend_recently_active(terms.crash_recovery, RECENT, now)?;
        Ok(())
    }

    /// Every call that the turn was waiting for was itself waiting for an answer: nothing was executing.
    fn waits_for_a_person(&self, turn: &Turn) -> Result<bool> {
        let running = turn.running_calls();
        if running.is_empty() {
            return Ok(false);
        }
        let asked = self.questions_of_turn(turn.id)?;
        let waits = |call: &ToolCall| asked.iter().any(|row| row.call == call.id && row.ending.is_none());
        Ok(running.iter().all(waits))
    }

    pub(crate) fn suspects(&self) -> Result<Suspects> {
        let stored = self.meta(SUSPECTS)?;
        // Without the list, suspects are resumed at once.
        Ok(stored.and_then(|text| parse(&text, "suspects").ok()).unwrap_or_default())
    }

    pub(crate) fn put_suspects(&self, suspects: &Suspects) -> Result<()> {
        self.put_meta(SUSPECTS, &json(suspects)?)
    }

    /// Held suspects stay suspects, and their chats are told that the message is kept and for how long. Those that are
    /// resumed at once are like any other turn.
    pub(crate) fn keep_suspects(
        &self,
        mut suspects: Suspects,
        held: &[Suspect],
        hold: Hold,
        now: Millis,
    ) -> Result<()> {
        let before = suspects.clone();
        suspects.retain(|turn| held.iter().any(|suspect| suspect.turn == turn));
        let mut wait = hold.pause;
        for suspect in held {
            if suspects.announce(suspect.turn, wait)
                && let Some(known) = self.turn(suspect.turn)?
            {
                self.apply(&known.turn.notice(kept_notice(wait), now), now)?;
            }
            wait = wait.saturating_add(hold.stable);
        }
        if suspects == before {
            return Ok(());
        }
        self.put_suspects(&suspects)
    }
}
