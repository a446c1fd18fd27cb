//! Which transcript the next message of a session key continues.
//!
//! The caller looks everything up first, following compacted transcripts to the latest one, then applies the resolution.

use alloc::borrow::ToOwned;
use alloc::string::String;

use super::entry::{Entry, ResetReason};
use super::freshness::FreshnessWindow;
use super::local::LocalTime;
use super::policy::{ResetMode, ResetPolicy};
use crate::ids::{SessionId, SessionKey};
use crate::message::Source;

/// The stored state of a session key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lookup<'a> {
    pub entry: Option<&'a Entry>,
    /// The transcript of the entry.
    pub transcript: &'a TranscriptState,
    /// The latest transcript of this key that can be reopened: open or ended by accident, with at least one message.
    pub recoverable: Option<&'a SessionId>,
    pub background: BackgroundWork,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TranscriptState {
    Live,
    Ended(EndReason),
    /// Missing or unreadable: the entry is trusted.
    Unknown,
}

/// Whether a recent background process of the session is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackgroundWork {
    None,
    Live,
    /// Unknown; counts as live, because losing a session is worse than keeping one.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolveMode {
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
    /// Continue the transcript.
    Keep,
    /// Continue the transcript and its interrupted turn; the mark stays until a turn succeeds.
    Resume,
    /// Reopen this transcript.
    Recover(SessionId),
    /// Start a new transcript. `reset`: the reason for the user, if the old one was over. `end`: the end reason to store
    /// for the old transcript; `None` leaves it unchanged.
    New { reset: Option<ResetReason>, end: Option<EndReason> },
}

/// The first rule that applies decides.
pub fn resolve(
    lookup: &Lookup<'_>,
    mode: ResolveMode,
    policy: &ResetPolicy,
    window: FreshnessWindow,
    now: LocalTime,
) -> Resolution {
    match mode {
        ResolveMode::ForceNew => {
            return Resolution::New { reset: None, end: end_reason(lookup, EndReason::SessionReset) };
        }
        ResolveMode::Continue => {}
    }
    let Some(entry) = lookup.entry else {
        return recover_or_new(lookup);
    };
    if let Some(reason) = reset_reason(entry, lookup.background, policy, window, now) {
        return Resolution::New { reset: Some(reason), end: end_reason(lookup, EndReason::Reset(reason)) };
    }
    match lookup.transcript {
        TranscriptState::Ended(_) => recover_or_new(lookup),
        TranscriptState::Live | TranscriptState::Unknown if entry.resume_pending => Resolution::Resume,
        TranscriptState::Live | TranscriptState::Unknown => Resolution::Keep,
    }
}

impl Resolution {
    /// The entry to store. `fresh`: the id for a new transcript.
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
            Self::Keep | Self::Resume => {
                Entry { updated_at: now, is_fresh_reset: false, ..entry.unwrap_or_else(|| begin(fresh)) }
            }
            Self::Recover(id) => {
                let bound = entry.unwrap_or_else(|| begin(id));
                Entry { session_id: id.clone(), updated_at: now, expiry_finalized: false, ..bound }
            }
            Self::New { reset, end } => {
                let used = entry.is_some_and(|old| old.last_prompt_tokens > 0);
                Entry {
                    is_fresh_reset: *end == Some(EndReason::SessionReset),
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

    /// Not ended on purpose, so it may be reopened.
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
    background: BackgroundWork,
    policy: &ResetPolicy,
    window: FreshnessWindow,
    now: LocalTime,
) -> Option<ResetReason> {
    if entry.suspended {
        return Some(ResetReason::Suspended);
    }
    let timed = match background {
        BackgroundWork::None => policy.due(entry.updated_at, now),
        BackgroundWork::Live | BackgroundWork::Unknown => None,
    };
    let marked_at = entry.last_resume_marked_at.unwrap_or(entry.updated_at);
    let expired = entry.resume_pending
        && policy.mode != ResetMode::None
        && !window.contains(Some(now.since(marked_at)));
    timed.or(expired.then_some(ResetReason::ResumePendingExpired))
}

fn recover_or_new(lookup: &Lookup<'_>) -> Resolution {
    match lookup.recoverable {
        Some(id) => Resolution::Recover(id.clone()),
        None => Resolution::New { reset: None, end: None },
    }
}

/// A transcript that was ended on purpose keeps its reason.
fn end_reason(lookup: &Lookup<'_>, reason: EndReason) -> Option<EndReason> {
    lookup.entry?;
    match lookup.transcript {
        TranscriptState::Live | TranscriptState::Unknown => Some(reason),
        TranscriptState::Ended(earlier) => earlier.is_accidental().then_some(reason),
    }
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
