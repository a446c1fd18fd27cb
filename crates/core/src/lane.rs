//! One chat's way out: its order, its rate budget, and what a failed send means.
//!
//! A lane has at most one operation under way. Messages leave in the order of their outbox ids; a preview
//! of an answer that is still growing goes out only when nothing is due and the budget allows it.
//! What a crash leaves: the outbox rows. A lane itself is rebuilt from them.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use core::time::Duration;

use crate::backoff::{SEND, backoff};
use crate::fault::{Fault, Reached};
use crate::outbox::{Item, Preview, State};
use crate::rate_limit::LONGEST_WAIT;
use crate::time::Millis;

/// The rate budget of one chat. Messages are never held back by it, only counted; previews and typing
/// wait until it has recovered. A platform's own refusal holds back everything: `rate_limit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    pace: Duration,
    /// When everything spent so far will have been earned back.
    level: Millis,
}

/// How many operations may be spent ahead before previews wait.
const BURST: u32 = 3;
/// No debt reaches further than this.
const DEBT_CAP: Duration = Duration::from_secs(60);

impl Budget {
    pub const fn new(pace: Duration) -> Self {
        Self { pace, level: Millis(0) }
    }

    pub fn spend(&mut self, now: Millis) {
        let level = credible(self.level, now, DEBT_CAP).max(now).after(self.pace);
        self.level = level.min(now.after(DEBT_CAP));
    }

    /// When a preview or a typing sign may leave.
    pub fn preview_at(&self, now: Millis) -> Millis {
        let ahead = self.pace.saturating_mul(BURST.saturating_sub(1));
        credible(self.level, now, DEBT_CAP).before(ahead).max(now)
    }
}

/// Further ahead than we ever set it, an instant comes from before the clock was set back: it counts as now.
fn credible(at: Millis, now: Millis, most: Duration) -> Millis {
    if at > now.after(most) { now } else { at }
}

/// When the first item of a lane may leave.
pub fn due_at(item: &Item, now: Millis) -> Millis {
    credible(item.not_before, now, LONGEST_WAIT)
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
        // One that lies ahead was shown before the clock was set back.
        let last = self.last.filter(|last| *last <= now);
        (self.strikes < STRIKES).then(|| last.map_or(now, |last| last.after(self.gap)).max(now))
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
    Replace { message: String },
    /// Take the preview back: there is nothing to say.
    Withdraw { message: String },
    /// Everything is out.
    Finish,
    /// Not yet: the turn is still speaking.
    Hold,
}

/// `parts`: how many parts its text has (0 for an empty text). `memory`: how long the platform recognises a message
/// that comes again under the same key; within it a copy replaces nothing and needs no mark.
pub fn act(item: &Item, parts: usize, memory: Option<Duration>, now: Millis) -> Act {
    match item.state {
        State::Streaming => return Act::Hold,
        State::Done | State::Dead => return Act::Finish,
        State::Due | State::Sending => {}
    }
    let next = item.sent.len();
    let doubtful = item.doubtful && (item.spent > 0 || !recognised(item, memory, now));
    match &item.preview {
        Preview::Shown(message) if next == 0 && parts == 0 => Act::Withdraw { message: message.clone() },
        Preview::Shown(message) if next == 0 => Act::Replace { message: message.clone() },
        Preview::Shown(_) | Preview::None | Preview::Asked if next >= parts => Act::Finish,
        Preview::Asked => Act::Send { part: next, marked: item.doubtful || next == 0 },
        Preview::Shown(_) | Preview::None => Act::Send { part: next, marked: doubtful },
    }
}

/// A clock that was set back tells nothing about how long ago it was.
fn recognised(item: &Item, memory: Option<Duration>, now: Millis) -> bool {
    memory.zip(item.tried_at).is_some_and(|(memory, tried)| now >= tried && now.since(tried) < memory)
}

/// The same for every try of a part, and another one for its marked copy: under a known key a platform would answer
/// with the old text. One that is spent is not used again.
pub fn key(item: &Item, part: usize, marked: bool) -> String {
    let copy = match (marked, item.spent) {
        (false, _) => String::new(),
        (true, 0) => "m".to_owned(),
        (true, spent) => format!("m{spent}"),
    };
    format!("{}:{}:{part}{copy}", item.created_at.0, item.id)
}

/// Nobody will ever tell what became of it under this key: its copy needs another one, and the mark.
pub fn spends_key(act: &Act, reached: Reached) -> bool {
    reached == Reached::Untold && matches!(act, Act::Send { .. })
}

/// What becomes of an item whose operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setback {
    /// Try again. `doubtful`: the part may be visible already, so the next copy is marked.
    Again { at: Millis, doubtful: bool },
    /// Give it up; `doubtful` as above, should a person retry it.
    Bury { doubtful: bool },
}

/// An item older than this is given up.
pub const PATIENCE: Duration = Duration::from_secs(24 * 3600);
/// Without credentials nothing works; a fixed link pokes its lanes, so this is only a fallback.
const UNTIL_FIXED: Duration = Duration::from_secs(300);

pub fn setback(item: &Item, act: &Act, fault: Fault, reached: Reached, now: Millis, roll: u64) -> Setback {
    let repeatable = match act {
        Act::Replace { .. } | Act::Withdraw { .. } | Act::Finish | Act::Hold => true,
        Act::Send { .. } => false,
    };
    let doubtful = item.doubtful || (reached != Reached::No && !repeatable);
    if now.since(item.created_at) > PATIENCE {
        return Setback::Bury { doubtful };
    }
    let wait = match fault {
        Fault::Refused => return Setback::Bury { doubtful },
        Fault::Later { after: Some(after) } => after.min(LONGEST_WAIT),
        Fault::Later { after: None } => backoff(&SEND, item.attempts.saturating_add(1), roll),
        Fault::Fatal => UNTIL_FIXED,
    };
    Setback::Again { at: now.after(wait), doubtful }
}

/// So many tries, the last of them a crash, and an item is given up: it would hold back its chat for ever.
const CRASHES: u32 = 5;

/// What becomes of an item whose sender crashed. `reached`: before it handed anything over (`No`), or at a
/// point we do not know (`Maybe`: the item was found in `Sending`).
pub fn crashed(item: &Item, reached: Reached, now: Millis, roll: u64) -> Setback {
    let tried = item.attempts.saturating_add(1);
    let replaces = matches!(item.preview, Preview::Shown(_)) && item.sent.is_empty();
    let doubtful = item.doubtful || (reached != Reached::No && !replaces);
    if tried >= CRASHES || now.since(item.created_at) > PATIENCE {
        return Setback::Bury { doubtful };
    }
    Setback::Again { at: now.after(backoff(&SEND, tried, roll)), doubtful }
}

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;
