//! Which transcript the next message of a key continues: the one decision table.
//!
//! The caller looks everything up first (and follows a chain of compressed transcripts to its tip), asks
//! once, and applies the answer: the new entry, and whether an old row ends.

use alloc::borrow::ToOwned;
use alloc::string::String;

use super::entry::{Entry, ResetReason};
use super::freshness::Window;
use super::local::LocalTime;
use super::policy::{Mode, ResetPolicy};
use crate::ids::{SessionId, SessionKey};
use crate::message::Source;

/// What is known about a key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lookup<'a> {
    pub entry: Option<&'a Entry>,
    /// The row of the entry's transcript.
    pub row: &'a Row,
    /// The latest row of this key that may be taken up again: live or ended by accident, with a message.
    pub recoverable: Option<&'a SessionId>,
    pub background: Background,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row {
    Live,
    Ended(EndReason),
    /// There is none, or it could not be read: the entry is trusted.
    Unknown,
}

/// Whether a background process of the session is running (and young enough to count).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Background {
    None,
    Live,
    /// Could not be checked. Counts as live: losing a session is worse than keeping one.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    Continue,
    ForceNew,
}

/// Why a transcript ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndReason {
    SessionReset,
    SessionSwitch,
    Reset(ResetReason),
    Compression,
    AgentClose,
    WsOrphanReap,
    /// Written by another program.
    Other(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// Same transcript, used now.
    Keep,
    /// Same transcript, and its interrupted turn is continued: the mark stays until a turn succeeds.
    Resume,
    /// Reopen this row and bind the key to it.
    Recover(SessionId),
    /// A new transcript. `reset`: because the old one was over, which the user may have to be told.
    /// `end`: close the old row with this reason; `None` leaves it as it is.
    New { reset: Option<ResetReason>, end: Option<EndReason> },
}

/// The decision table; the first line that fits counts.
pub fn resolve(
    lookup: &Lookup<'_>,
    ask: Ask,
    policy: &ResetPolicy,
    window: Window,
    now: LocalTime,
) -> Resolution {
    match ask {
        Ask::ForceNew => {
            return Resolution::New { reset: None, end: closing(lookup, EndReason::SessionReset) };
        }
        Ask::Continue => {}
    }
    let Some(entry) = lookup.entry else {
        return recovered(lookup);
    };
    if let Some(reason) = reset_reason(entry, lookup.background, policy, window, now) {
        return Resolution::New { reset: Some(reason), end: closing(lookup, EndReason::Reset(reason)) };
    }
    match lookup.row {
        Row::Ended(_) => recovered(lookup),
        Row::Live | Row::Unknown if entry.resume_pending => Resolution::Resume,
        Row::Live | Row::Unknown => Resolution::Keep,
    }
}

impl Resolution {
    /// The entry as it must be stored. `fresh` names the transcript if a new one begins.
    pub fn apply(
        &self,
        entry: Option<Entry>,
        key: &SessionKey,
        origin: &Source,
        fresh: &SessionId,
        now: LocalTime,
    ) -> Entry {
        let begin = |id: &SessionId| Entry::new(key.clone(), id.clone(), Some(origin.clone()), now);
        match self {
            Self::Keep | Self::Resume => Entry { updated_at: now, ..entry.unwrap_or_else(|| begin(fresh)) },
            Self::Recover(id) => {
                let bound = entry.unwrap_or_else(|| begin(id));
                Entry { session_id: id.clone(), updated_at: now, expiry_finalized: false, ..bound }
            }
            Self::New { reset, end: _ } => {
                let used = entry.is_some_and(|old| old.last_prompt_tokens > 0);
                Entry {
                    was_auto_reset: reset.is_some(),
                    auto_reset_reason: *reset,
                    reset_had_activity: reset.is_some() && used,
                    ..begin(fresh)
                }
            }
        }
    }
}

impl EndReason {
    pub fn as_str(&self) -> &str {
        match self {
            Self::SessionReset => "session_reset",
            Self::SessionSwitch => "session_switch",
            Self::Reset(reason) => reason.as_str(),
            Self::Compression => "compression",
            Self::AgentClose => "agent_close",
            Self::WsOrphanReap => "ws_orphan_reap",
            Self::Other(name) => name,
        }
    }

    pub fn parse(name: &str) -> Self {
        use ResetReason::{Daily, Idle, ResumePendingExpired, Suspended};
        [Self::SessionReset, Self::SessionSwitch, Self::Compression, Self::AgentClose, Self::WsOrphanReap]
            .into_iter()
            .chain([Idle, Daily, Suspended, ResumePendingExpired].map(Self::Reset))
            .find(|reason| reason.as_str() == name)
            .unwrap_or_else(|| Self::Other(name.to_owned()))
    }

    /// Ended because something went away, not because someone meant it: may be reopened.
    pub fn is_accidental(&self) -> bool {
        match self {
            Self::AgentClose | Self::WsOrphanReap => true,
            Self::SessionReset
            | Self::SessionSwitch
            | Self::Reset(_)
            | Self::Compression
            | Self::Other(_) => false,
        }
    }
}

fn reset_reason(
    entry: &Entry,
    background: Background,
    policy: &ResetPolicy,
    window: Window,
    now: LocalTime,
) -> Option<ResetReason> {
    if entry.suspended {
        return Some(ResetReason::Suspended);
    }
    let timed = match background {
        Background::None => policy.due(entry.updated_at, now),
        Background::Live | Background::Unknown => None,
    };
    let marked_at = entry.last_resume_marked_at.unwrap_or(entry.updated_at);
    let expired =
        entry.resume_pending && policy.mode != Mode::None && !window.holds(Some(now.since(marked_at)));
    timed.or(expired.then_some(ResetReason::ResumePendingExpired))
}

fn recovered(lookup: &Lookup<'_>) -> Resolution {
    match lookup.recoverable {
        Some(id) => Resolution::Recover(id.clone()),
        None => Resolution::New { reset: None, end: None },
    }
}

/// An end that someone meant keeps its reason.
fn closing(lookup: &Lookup<'_>, reason: EndReason) -> Option<EndReason> {
    lookup.entry?;
    match lookup.row {
        Row::Live | Row::Unknown => Some(reason),
        Row::Ended(earlier) => earlier.is_accidental().then_some(reason),
    }
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
