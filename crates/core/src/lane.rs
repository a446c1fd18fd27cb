//! One chat's way out: its order, its rate budget, and what a failed send means.
//!
//! A lane has at most one operation under way. Messages leave in the order of their outbox ids; a preview
//! of an answer that is still growing goes out only when nothing is due and the budget allows it.
//! What a crash leaves: the outbox rows. A lane itself is rebuilt from them.

use core::time::Duration;

use crate::backoff::{SEND, backoff};
use crate::fault::{Fault, Reached};
use crate::outbox::{Item, Preview, State};
use crate::time::Millis;

/// The rate budget of one chat. Messages are never held back by it, only counted; previews and typing
/// wait until it has recovered. A platform's own refusal (`penalize`) holds back everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    pace: Duration,
    /// When everything spent so far will have been earned back.
    level: Millis,
    penalty: Millis,
}

/// How many operations may be spent ahead before previews wait.
const BURST: u32 = 3;
/// No debt reaches further than this.
const DEBT_CAP: Duration = Duration::from_secs(60);

impl Budget {
    pub const fn new(pace: Duration) -> Self {
        Self { pace, level: Millis(0), penalty: Millis(0) }
    }

    pub fn spend(&mut self, now: Millis) {
        let level = self.level.max(now).after(self.pace);
        self.level = level.min(now.after(DEBT_CAP));
    }

    /// The platform told us to wait.
    pub fn penalize(&mut self, until: Millis) {
        self.penalty = self.penalty.max(until);
    }

    /// When a message that is owed may leave.
    pub fn message_at(&self, now: Millis) -> Millis {
        self.penalty.max(now)
    }

    /// When a preview or a typing sign may leave.
    pub fn preview_at(&self, now: Millis) -> Millis {
        let ahead = self.pace.saturating_mul(BURST.saturating_sub(1));
        self.level.before(ahead).max(self.penalty).max(now)
    }
}

/// How often a growing answer is shown, and when to stop trying.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rhythm {
    gap: Duration,
    last: Option<Millis>,
    strikes: u32,
}

/// Failed previews after which an answer is shown only when it is complete.
const STRIKES: u32 = 3;
const GAP_CAP: Duration = Duration::from_secs(10);

impl Rhythm {
    pub const fn new(gap: Duration) -> Self {
        Self { gap, last: None, strikes: 0 }
    }

    /// When the next preview may be shown; `None`: not any more.
    pub fn next_at(&self, now: Millis) -> Option<Millis> {
        (self.strikes < STRIKES).then(|| self.last.map_or(now, |last| last.after(self.gap)).max(now))
    }

    pub fn shown(&mut self, now: Millis) {
        self.last = Some(now);
        self.strikes = 0;
    }

    pub fn failed(&mut self, now: Millis, fault: Fault) {
        self.last = Some(now);
        self.gap = (self.gap * 2).min(GAP_CAP);
        self.strikes = match fault {
            Fault::Later { .. } => self.strikes + 1,
            Fault::Refused | Fault::Fatal => STRIKES,
        };
    }
}

/// The next thing to do for the first item of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Send part `part` as a new message; `marked`: it may be a copy, say so.
    Send { part: usize, marked: bool },
    /// Replace the preview with the first part. Repeating it is harmless.
    Replace { message: alloc::string::String },
    /// Take the preview back: there is nothing to say.
    Withdraw { message: alloc::string::String },
    /// Everything is out.
    Finish,
    /// Not yet: the turn is still speaking.
    Hold,
}

/// `parts`: how many parts its text has (0 for an empty text).
pub fn act(item: &Item, parts: usize) -> Act {
    match item.state {
        State::Streaming => return Act::Hold,
        State::Done | State::Dead => return Act::Finish,
        State::Due | State::Sending => {}
    }
    let next = item.sent.len();
    match &item.preview {
        Preview::Shown(message) if next == 0 && parts == 0 => Act::Withdraw { message: message.clone() },
        Preview::Shown(message) if next == 0 => Act::Replace { message: message.clone() },
        Preview::Shown(_) | Preview::None | Preview::Asked if next >= parts => Act::Finish,
        Preview::Asked => Act::Send { part: next, marked: item.doubtful || next == 0 },
        Preview::Shown(_) | Preview::None => Act::Send { part: next, marked: item.doubtful },
    }
}

/// What becomes of an item whose operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setback {
    /// Try again. `doubtful`: the part may be visible already, so the next copy is marked.
    Again {
        at: Millis,
        doubtful: bool,
    },
    Bury,
}

/// An item older than this is given up.
pub const PATIENCE: Duration = Duration::from_secs(24 * 3600);
/// Without credentials nothing works; a fixed link pokes its lanes, so this is only a fallback.
const UNTIL_FIXED: Duration = Duration::from_secs(300);

pub fn setback(item: &Item, act: &Act, fault: Fault, reached: Reached, now: Millis, roll: u64) -> Setback {
    if now.since(item.created_at) > PATIENCE {
        return Setback::Bury;
    }
    let repeatable = match act {
        Act::Replace { .. } | Act::Withdraw { .. } | Act::Finish | Act::Hold => true,
        Act::Send { .. } => false,
    };
    let doubtful = item.doubtful || (reached == Reached::Maybe && !repeatable);
    let wait = match fault {
        Fault::Refused => return Setback::Bury,
        Fault::Later { after: Some(after) } => after,
        Fault::Later { after: None } => backoff(&SEND, item.attempts.saturating_add(1), roll),
        Fault::Fatal => UNTIL_FIXED,
    };
    Setback::Again { at: now.after(wait), doubtful }
}

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;
