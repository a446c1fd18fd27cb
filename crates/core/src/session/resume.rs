//! Changes to entries at stops, crashes and user commands.
//!
//! Functions that take `&mut Entry` return whether they changed it; the caller stores the change.

use core::time::Duration;

use super::entry::{Entry, ResumeReason};
use super::freshness::FreshnessWindow;
use super::local::LocalTime;
use super::resolve::EndReason;
use crate::ids::SessionId;

/// The treatment of recently active sessions after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CrashRecovery {
    Suspend,
    Resume,
    /// Nothing: the journal knows the running turns, which are marked already.
    #[default]
    Journal,
}

/// Decision about a turn that was found open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResumeDecision {
    Resume,
    /// Given up: interrupted too often.
    Stuck,
    /// Given up with a notice: interrupted too long ago.
    Stale,
    /// Given up: the author has lost access.
    Unauthorised,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResumeConditions {
    pub fresh: bool,
    pub authorised: bool,
}

pub fn resume_decision(entry: Option<&Entry>, circumstances: ResumeConditions) -> ResumeDecision {
    let ResumeConditions { fresh, authorised: welcome } = circumstances;
    match (welcome, entry.is_some_and(|entry| entry.suspended), fresh) {
        (false, _, _) => ResumeDecision::Unauthorised,
        (true, true, _) => ResumeDecision::Stuck,
        (true, false, false) => ResumeDecision::Stale,
        (true, false, true) => ResumeDecision::Resume,
    }
}

impl ResumeDecision {
    /// The notice for the author of a turn that is given up.
    pub const fn notice(self) -> Option<&'static str> {
        match self {
            Self::Stuck => Some(crate::notices::STUCK),
            Self::Stale => Some(crate::notices::STALE),
            Self::Resume | Self::Unauthorised => None,
        }
    }
}

/// Whether the gateway resumes the session without a new message: the mark is fresh and has one of our reasons.
pub fn resumes_by_itself(entry: &Entry, window: FreshnessWindow, now: LocalTime) -> bool {
    let fresh = window.contains(entry.last_resume_marked_at.map(|at| now.since(at)));
    let ours = match &entry.resume_reason {
        Some(
            ResumeReason::RestartTimeout | ResumeReason::ShutdownTimeout | ResumeReason::RestartInterrupted,
        ) => true,
        Some(ResumeReason::Other(_)) | None => false,
    };
    entry.resume_pending && !entry.suspended && ours && fresh
}

/// Marks a session whose turn is interrupted. False: unknown or suspended.
pub fn mark_resume_pending(entry: Option<&mut Entry>, reason: ResumeReason, now: LocalTime) -> bool {
    let Some(entry) = entry.filter(|entry| !entry.suspended) else {
        return false;
    };
    entry.resume_pending = true;
    entry.resume_reason = Some(reason);
    entry.last_resume_marked_at = Some(now);
    true
}

/// Clears the mark after a successful turn. False: unknown or not marked.
pub fn clear_resume_pending(entry: Option<&mut Entry>) -> bool {
    let Some(entry) = entry.filter(|entry| entry.resume_pending) else {
        return false;
    };
    entry.resume_pending = false;
    entry.resume_reason = None;
    entry.last_resume_marked_at = None;
    true
}

/// Makes the next message start a new transcript. False: unknown.
pub fn suspend(entry: Option<&mut Entry>) -> bool {
    let Some(entry) = entry else { return false };
    entry.suspended = true;
    true
}

/// Applies `mode` to sessions used within `window` that are neither marked nor suspended. Returns the number of changes.
pub fn suspend_recently_active<'a>(
    entries: impl IntoIterator<Item = &'a mut Entry>,
    mode: CrashRecovery,
    window: Duration,
    now: LocalTime,
) -> usize {
    let since = now.before(window);
    let recent =
        |entry: &&'a mut Entry| !entry.resume_pending && !entry.suspended && entry.updated_at >= since;
    let changed = |entry: &'a mut Entry| match mode {
        CrashRecovery::Suspend => suspend(Some(entry)),
        CrashRecovery::Resume => mark_resume_pending(Some(entry), ResumeReason::RestartInterrupted, now),
        CrashRecovery::Journal => false,
    };
    entries.into_iter().filter(recent).map(changed).filter(|changed| *changed).count()
}

/// `/resume`: an entry bound to an existing transcript, and the end reason of the old one. `None`: it is bound already.
pub fn switch(entry: &Entry, target: SessionId, now: LocalTime) -> Option<(Entry, EndReason)> {
    if entry.session_id == target {
        return None;
    }
    Some((rebound(entry, target, now), EndReason::SessionSwitch))
}

fn rebound(entry: &Entry, id: SessionId, now: LocalTime) -> Entry {
    Entry {
        display_name: entry.display_name.clone(),
        platform: entry.platform,
        chat_type: entry.chat_type,
        ..Entry::new(entry.session_key.clone(), id, entry.origin.clone(), now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::SessionKey;
    use crate::message::{ChatType, Platform};

    fn at(text: &str) -> LocalTime {
        LocalTime::parse(text).unwrap()
    }

    fn now() -> LocalTime {
        at("2026-11-15T12:00:00")
    }

    fn entry() -> Entry {
        Entry::new(SessionKey("k".into()), SessionId("old".into()), None, now())
    }

    fn marked() -> Entry {
        let mut entry = entry();
        assert!(mark_resume_pending(Some(&mut entry), ResumeReason::RestartTimeout, now()));
        entry
    }

    #[test]
    fn marking_sets_reason_and_time() {
        let mut it = marked();
        assert!(it.resume_pending && it.last_resume_marked_at == Some(now()));
        assert_eq!(it.resume_reason, Some(ResumeReason::RestartTimeout));
        assert!(mark_resume_pending(Some(&mut it), ResumeReason::ShutdownTimeout, now()));
        assert_eq!(it.resume_reason, Some(ResumeReason::ShutdownTimeout));
    }

    #[test]
    fn ignores_unknown_keys() {
        assert!(!mark_resume_pending(None, ResumeReason::RestartTimeout, now()));
        assert!(!clear_resume_pending(None));
        assert!(!suspend(None));
    }

    #[test]
    fn does_not_mark_a_suspended_session() {
        let mut it = entry();
        assert!(suspend(Some(&mut it)));
        assert!(!mark_resume_pending(Some(&mut it), ResumeReason::RestartTimeout, now()));
        assert!(it.suspended && !it.resume_pending);
    }

    #[test]
    fn clears_all_three_resume_fields_once() {
        let mut it = marked();
        assert!(clear_resume_pending(Some(&mut it)));
        assert_eq!(it, entry());
        assert!(!clear_resume_pending(Some(&mut it)));
    }

    fn after_crash(mode: CrashRecovery, entries: &mut [Entry]) -> usize {
        suspend_recently_active(entries, mode, Duration::from_secs(120), now())
    }

    #[test]
    fn keeps_marked_sessions_in_crash_recovery() {
        let mut entries = [marked()];
        assert_eq!(after_crash(CrashRecovery::Suspend, &mut entries), 0);
        assert!(!entries[0].suspended && entries[0].resume_pending);
    }

    #[test]
    fn suspend_mode_suspends_recent_unmarked_sessions() {
        let mut old = entry();
        old.updated_at = at("2026-11-15T11:57:59");
        let mut entries = [marked(), entry(), old];
        assert_eq!(after_crash(CrashRecovery::Suspend, &mut entries), 1);
        assert!(entries[0] == marked() && entries[1].suspended && !entries[2].suspended);
        assert_eq!(after_crash(CrashRecovery::Suspend, &mut entries), 0);
    }

    #[test]
    fn resume_mode_marks_recent_sessions() {
        let mut entries = [marked(), entry()];
        assert_eq!(after_crash(CrashRecovery::Resume, &mut entries), 1);
        assert!(entries[1].resume_pending && !entries[1].suspended);
        assert_eq!(entries[1].resume_reason, Some(ResumeReason::RestartInterrupted));
    }

    #[test]
    fn journal_mode_changes_nothing() {
        let mut entries = [marked(), entry()];
        assert_eq!(after_crash(CrashRecovery::Journal, &mut entries), 0);
        assert_eq!(entries, [marked(), entry()]);
    }

    #[test]
    fn resumes_open_turns_unless_denied_stuck_or_stale() {
        let mut suspended = entry();
        suspend(Some(&mut suspended));
        for (entry, fresh, authorised, want) in [
            (Some(&entry()), true, true, ResumeDecision::Resume),
            (None, true, true, ResumeDecision::Resume),
            (Some(&entry()), false, true, ResumeDecision::Stale),
            (Some(&suspended), true, true, ResumeDecision::Stuck),
            (Some(&suspended), true, false, ResumeDecision::Unauthorised),
        ] {
            assert_eq!(resume_decision(entry, ResumeConditions { fresh, authorised }), want);
            assert_eq!(
                want.notice().is_some(),
                matches!(want, ResumeDecision::Stale | ResumeDecision::Stuck)
            );
        }
    }

    #[test]
    fn resumes_unprompted_only_with_a_fresh_own_mark() {
        let mut odd = marked();
        odd.resume_reason = Some(ResumeReason::Other("odd".into()));
        let mut suspended = marked();
        suspended.suspended = true;
        let late = at("2026-11-15T13:00:01");
        for (entry, now, want) in [
            (&marked(), now(), true),
            (&marked(), late, false),
            (&entry(), now(), false),
            (&odd, now(), false),
            (&suspended, now(), false),
        ] {
            assert_eq!(resumes_by_itself(entry, FreshnessWindow::default(), now), want);
        }
    }

    #[test]
    fn switch_keeps_only_the_chat() {
        let mut old = marked();
        old.display_name = Some("Bob".into());
        old.total_tokens = 7;
        // An imported entry may name its platform and have no origin.
        (old.platform, old.chat_type) = (Platform::parse("telegram"), ChatType::Group);
        let (bound, end) = switch(&old, SessionId("earlier".into()), now()).unwrap();
        assert!(!bound.resume_pending && !bound.is_fresh_reset && !bound.was_auto_reset);
        assert_eq!((bound.session_id.as_str(), bound.total_tokens), ("earlier", 0));
        assert_eq!((bound.platform, bound.chat_type), (old.platform, old.chat_type));
        assert_eq!((bound.display_name.as_deref(), end), (Some("Bob"), EndReason::SessionSwitch));
        assert_eq!(switch(&marked(), SessionId("old".into()), now()), None);
    }
}
