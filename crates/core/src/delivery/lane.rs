//! Delivery decisions of a lane: order, rate budget, and the handling of failed sends.
//!
//! A lane has at most one operation in flight. Messages are sent in the order of their outbox ids. A preview of a streamed
//! answer is sent only when no message is due and the budget permits. A send without a result (a lost acknowledgement)
//! has an unknown outcome: `after_failure` and `after_crash` decide about the marked copy. Nothing but the outbox rows
//! survives a crash; the lane is rebuilt from them.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use core::time::Duration;

use crate::backoff::{SEND, backoff};
use crate::fault::{Fault, Reached};
use crate::outbox::{Item, Preview, State};
use crate::rate_limit::MAX_WAIT;
use crate::time::Millis;

/// The rate budget of one chat. It delays previews and typing indicators, never messages, which are only counted.
/// Penalties of the platform (`rate_limit`) delay everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateBudget {
    pace: Duration,
    full_at: Millis,
}

/// Operations that may be spent in advance before previews wait.
const BURST: u32 = 3;
const DEBT_CAP: Duration = Duration::from_secs(60);

impl RateBudget {
    pub const fn new(pace: Duration) -> Self {
        Self { pace, full_at: Millis(0) }
    }

    pub fn spend(&mut self, now: Millis) {
        let full_at = plausible(self.full_at, now, DEBT_CAP).max(now).after(self.pace);
        self.full_at = full_at.min(now.after(DEBT_CAP));
    }

    /// When a preview or a typing indicator may be sent.
    pub fn preview_at(&self, now: Millis) -> Millis {
        let ahead = self.pace.saturating_mul(BURST.saturating_sub(1));
        plausible(self.full_at, now, DEBT_CAP).before(ahead).max(now)
    }
}

/// An instant further ahead than any planned one is from before the clock was set back, and counts as now.
fn plausible(at: Millis, now: Millis, most: Duration) -> Millis {
    if at > now.after(most) { now } else { at }
}

/// When the first item of a lane may be sent.
pub fn due_at(item: &Item, now: Millis) -> Millis {
    plausible(item.not_before, now, MAX_WAIT)
}

/// Limits how often a streamed answer is updated, and stops after repeated failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreviewThrottle {
    gap: Duration,
    last: Option<Millis>,
    failures: u32,
}

/// Failed previews before streaming of the answer stops.
const MAX_FAILURES: u32 = 3;
const MAX_GAP: Duration = Duration::from_secs(10);

impl PreviewThrottle {
    pub const fn new(gap: Duration) -> Self {
        Self { gap, last: None, failures: 0 }
    }

    /// When the next preview may be sent; `None`: no more.
    pub fn next_at(&self, now: Millis) -> Option<Millis> {
        // A time ahead is from before the clock was set back.
        let last = self.last.filter(|last| *last <= now);
        (self.failures < MAX_FAILURES).then(|| last.map_or(now, |last| last.after(self.gap)).max(now))
    }

    pub fn shown(&mut self, now: Millis) {
        self.last = Some(now);
        self.failures = 0;
    }

    pub fn failed(&mut self, now: Millis, fault: Fault) {
        self.last = Some(now);
        self.gap = (self.gap * 2).min(MAX_GAP);
        self.failures = match fault {
            Fault::Later { .. } => self.failures + 1,
            Fault::Refused | Fault::Fatal => MAX_FAILURES,
        };
    }
}

/// The next operation for the first item of a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaneAction {
    /// Send a part as a new message; `marked`: as a possible duplicate.
    Send {
        part: usize,
        marked: bool,
    },
    /// Edit the preview to the first part. Idempotent.
    EditPreview {
        message: String,
    },
    /// Delete the preview, because the text is empty.
    DeletePreview {
        message: String,
    },
    Finish,
    Wait,
}

/// `parts`: the number of parts of the text (0 if it is empty). `memory`: how long the platform recognises a repeated
/// idempotency key; within it, a repeated part needs no mark.
pub fn next_action(item: &Item, parts: usize, memory: Option<Duration>, now: Millis) -> LaneAction {
    match item.state {
        State::Streaming => return LaneAction::Wait,
        State::Done | State::Dead => return LaneAction::Finish,
        State::Due | State::Sending => {}
    }
    let next = item.sent.len();
    let marked = item.doubtful && (item.retired_keys > 0 || !recognised(item, memory, now));
    match &item.preview {
        Preview::Shown(message) if next == 0 && parts == 0 => {
            LaneAction::DeletePreview { message: message.clone() }
        }
        Preview::Shown(message) if next == 0 => LaneAction::EditPreview { message: message.clone() },
        Preview::Shown(_) | Preview::None | Preview::Requested if next >= parts => LaneAction::Finish,
        Preview::Requested => LaneAction::Send { part: next, marked: item.doubtful || next == 0 },
        Preview::Shown(_) | Preview::None => LaneAction::Send { part: next, marked },
    }
}

/// False if the clock was set back, since the time of the first attempt is unknown then.
fn recognised(item: &Item, memory: Option<Duration>, now: Millis) -> bool {
    memory.zip(item.tried_at).is_some_and(|(memory, tried)| now >= tried && now.since(tried) < memory)
}

/// The idempotency key of a part, the same for each attempt. A marked copy gets another key, because the platform would
/// answer a known key with the old text. Retired keys are not used again.
pub fn idempotency_key(item: &Item, part: usize, marked: bool) -> String {
    let copy = match (marked, item.retired_keys) {
        (false, _) => String::new(),
        (true, 0) => "m".to_owned(),
        (true, spent) => format!("m{spent}"),
    };
    format!("{}:{}:{part}{copy}", item.created_at.0, item.id)
}

/// Whether the outcome under the current key is unknowable, so that a marked copy under a new key is needed.
pub fn retires_key(act: &LaneAction, reached: Reached) -> bool {
    reached == Reached::Unknowable && matches!(act, LaneAction::Send { .. })
}

/// The action for an item whose operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureAction {
    /// Retry. `doubtful`: the part may be visible already, so the next copy is marked.
    Retry { at: Millis, doubtful: bool },
    /// Give the item up. `doubtful`: a manual retry is marked.
    DeadLetter { doubtful: bool },
}

/// Older items are given up.
pub const MAX_AGE: Duration = Duration::from_secs(24 * 3600);
/// Retry interval after a fatal fault. A link that recovers makes its items due earlier.
const FATAL_RETRY: Duration = Duration::from_secs(300);

pub fn after_failure(
    item: &Item,
    act: &LaneAction,
    fault: Fault,
    reached: Reached,
    now: Millis,
    roll: u64,
) -> FailureAction {
    let repeatable = match act {
        LaneAction::EditPreview { .. }
        | LaneAction::DeletePreview { .. }
        | LaneAction::Finish
        | LaneAction::Wait => true,
        LaneAction::Send { .. } => false,
    };
    let doubtful = item.doubtful || (reached != Reached::No && !repeatable);
    if now.since(item.created_at) > MAX_AGE {
        return FailureAction::DeadLetter { doubtful };
    }
    let wait = match fault {
        Fault::Refused => return FailureAction::DeadLetter { doubtful },
        Fault::Later { after: Some(after) } => after.min(MAX_WAIT),
        Fault::Later { after: None } => backoff(&SEND, item.attempts.saturating_add(1), roll),
        Fault::Fatal => FATAL_RETRY,
    };
    FailureAction::Retry { at: now.after(wait), doubtful }
}

/// An item with this many attempts whose sender crashed is given up, since it would block its chat.
const MAX_CRASHES: u32 = 5;

/// The action for an item whose sender crashed. `reached`: `No` if nothing was sent yet, `Maybe` if the item was found
/// in `Sending`.
pub fn after_crash(item: &Item, reached: Reached, now: Millis, roll: u64) -> FailureAction {
    let tried = item.attempts.saturating_add(1);
    let edits = matches!(item.preview, Preview::Shown(_)) && item.sent.is_empty();
    let doubtful = item.doubtful || (reached != Reached::No && !edits);
    if tried >= MAX_CRASHES || now.since(item.created_at) > MAX_AGE {
        return FailureAction::DeadLetter { doubtful };
    }
    FailureAction::Retry { at: now.after(backoff(&SEND, tried, roll)), doubtful }
}

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;
