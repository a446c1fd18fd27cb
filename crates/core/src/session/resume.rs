//! Operations on entries around a stop, a crash and a person's wish.
//!
//! Each changes one entry (or says that there is none) and answers whether it did; the caller stores what
//! has changed.

use core::time::Duration;

use super::entry::{Entry, ResumeReason};
use super::freshness::Window;
use super::local::LocalTime;
use super::resolve::EndReason;
use crate::ids::SessionId;

/// What to do after a crash with sessions that were in use shortly before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CrashRecovery {
    /// Start them afresh.
    Suspend,
    /// Take them to be interrupted.
    Resume,
    /// Nothing: the journal knows which turns were running, and those are marked already.
    #[default]
    Journal,
}

/// What becomes of a turn that was found open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It goes on.
    Resume,
    /// It is not tried again: it was interrupted too often.
    Stuck,
    /// Too long ago: its author is told instead.
    Stale,
    /// Its author may not talk to us any more.
    Unwelcome,
}

/// What goes into that decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Circumstances {
    /// It is recent enough.
    pub fresh: bool,
    /// Its author may still talk to us.
    pub welcome: bool,
}

pub fn fate(entry: Option<&Entry>, circumstances: Circumstances) -> Fate {
    let Circumstances { fresh, welcome } = circumstances;
    match (welcome, entry.is_some_and(|entry| entry.suspended), fresh) {
        (false, _, _) => Fate::Unwelcome,
        (true, true, _) => Fate::Stuck,
        (true, false, false) => Fate::Stale,
        (true, false, true) => Fate::Resume,
    }
}

impl Fate {
    /// What the author of a turn that does not go on is told. `None`: nothing.
    pub const fn notice(self) -> Option<&'static str> {
        match self {
            Self::Stuck => Some(
                "⚠️ I could not finish this: this conversation was interrupted several times in a row, so I have stopped \
                 trying. Your next message starts a new session; send it again if you still want it.",
            ),
            Self::Stale => Some(
                "⚠️ I was interrupted before I could answer this, too long ago to go on by myself. Send it again if \
                 you still want it.",
            ),
            Self::Resume | Self::Unwelcome => None,
        }
    }
}

/// Whether a mark lets the gateway take a session up without being asked: it is recent, and the reason one of ours.
pub fn resumes_by_itself(entry: &Entry, window: Window, now: LocalTime) -> bool {
    let fresh = window.holds(entry.last_resume_marked_at.map(|at| now.since(at)));
    let ours = match &entry.resume_reason {
        Some(
            ResumeReason::RestartTimeout | ResumeReason::ShutdownTimeout | ResumeReason::RestartInterrupted,
        ) => true,
        Some(ResumeReason::Other(_)) | None => false,
    };
    entry.resume_pending && !entry.suspended && ours && fresh
}

/// Marks a session whose turn is being interrupted. False: unknown, or suspended, which wins.
pub fn mark_resume_pending(entry: Option<&mut Entry>, reason: ResumeReason, now: LocalTime) -> bool {
    let Some(entry) = entry.filter(|entry| !entry.suspended) else {
        return false;
    };
    entry.resume_pending = true;
    entry.resume_reason = Some(reason);
    entry.last_resume_marked_at = Some(now);
    true
}

/// A successful turn ends the need to resume. False: unknown, or not marked.
pub fn clear_resume_pending(entry: Option<&mut Entry>) -> bool {
    let Some(entry) = entry.filter(|entry| entry.resume_pending) else {
        return false;
    };
    entry.resume_pending = false;
    entry.resume_reason = None;
    entry.last_resume_marked_at = None;
    true
}

/// The next message starts afresh. False: unknown.
pub fn suspend(entry: Option<&mut Entry>) -> bool {
    let Some(entry) = entry else { return false };
    entry.suspended = true;
    true
}

/// After a crash: deals with the sessions used within `window`, except those marked or suspended already.
/// Returns how many were changed.
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

/// `/new`: the same chat with a new transcript, and how the old one ends. A model chosen for the old session goes
/// with it.
pub fn reset(entry: &Entry, fresh: SessionId, now: LocalTime) -> (Entry, EndReason) {
    (Entry { is_fresh_reset: true, ..rebound(entry, fresh, now) }, EndReason::SessionReset)
}

/// `/resume`: bound to an existing transcript, which the caller reopens, and how the old one ends. `None`: it
/// is that one already.
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
    fn an_unknown_key_is_neither_marked_nor_cleared_nor_suspended() {
        assert!(!mark_resume_pending(None, ResumeReason::RestartTimeout, now()));
        assert!(!clear_resume_pending(None));
        assert!(!suspend(None));
    }

    #[test]
    fn a_suspended_session_is_not_marked() {
        let mut it = entry();
        assert!(suspend(Some(&mut it)));
        assert!(!mark_resume_pending(Some(&mut it), ResumeReason::RestartTimeout, now()));
        assert!(it.suspended && !it.resume_pending);
    }

    #[test]
    fn clearing_empties_all_three_fields_once() {
        let mut it = marked();
        assert!(clear_resume_pending(Some(&mut it)));
        assert_eq!(it, entry());
        assert!(!clear_resume_pending(Some(&mut it)));
    }

    fn after_crash(mode: CrashRecovery, entries: &mut [Entry]) -> usize {
        suspend_recently_active(entries, mode, Duration::from_secs(120), now())
    }

    #[test]
    fn a_marked_session_survives_crash_recovery() {
        let mut entries = [marked()];
        assert_eq!(after_crash(CrashRecovery::Suspend, &mut entries), 0);
        assert!(!entries[0].suspended && entries[0].resume_pending);
    }

    #[test]
    fn in_suspend_mode_only_the_unmarked_recent_session_is_suspended() {
        let mut old = entry();
        old.updated_at = at("2026-11-15T11:57:59");
        let mut entries = [marked(), entry(), old];
        assert_eq!(after_crash(CrashRecovery::Suspend, &mut entries), 1);
        assert!(entries[0] == marked() && entries[1].suspended && !entries[2].suspended);
        assert_eq!(after_crash(CrashRecovery::Suspend, &mut entries), 0);
    }

    #[test]
    fn in_resume_mode_it_is_marked_as_interrupted() {
        let mut entries = [marked(), entry()];
        assert_eq!(after_crash(CrashRecovery::Resume, &mut entries), 1);
        assert!(entries[1].resume_pending && !entries[1].suspended);
        assert_eq!(entries[1].resume_reason, Some(ResumeReason::RestartInterrupted));
    }

    #[test]
    fn in_journal_mode_nothing_is_guessed() {
        let mut entries = [marked(), entry()];
        assert_eq!(after_crash(CrashRecovery::Journal, &mut entries), 0);
        assert_eq!(entries, [marked(), entry()]);
    }

    #[test]
    fn an_open_turn_goes_on_unless_it_is_unwelcome_stuck_or_stale() {
        let mut suspended = entry();
        suspend(Some(&mut suspended));
        for (entry, fresh, welcome, want) in [
            (Some(&entry()), true, true, Fate::Resume),
            (None, true, true, Fate::Resume),
            (Some(&entry()), false, true, Fate::Stale),
            (Some(&suspended), true, true, Fate::Stuck),
            (Some(&suspended), true, false, Fate::Unwelcome),
        ] {
            assert_eq!(fate(entry, Circumstances { fresh, welcome }), want);
            assert_eq!(want.notice().is_some(), matches!(want, Fate::Stale | Fate::Stuck));
        }
    }

    #[test]
    fn only_a_fresh_mark_of_ours_resumes_by_itself() {
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
            assert_eq!(resumes_by_itself(entry, Window::default(), now), want);
        }
    }

    #[test]
    fn a_new_session_keeps_the_chat_and_forgets_the_rest() {
        let mut old = marked();
        old.display_name = Some("Bob".into());
        old.total_tokens = 7;
        // An imported entry may name its platform and have no origin.
        (old.platform, old.chat_type) = (Platform::parse("telegram"), ChatType::Group);
        let (fresh, end) = reset(&old, SessionId("new".into()), now());
        assert!(fresh.is_fresh_reset && !fresh.was_auto_reset && !fresh.resume_pending);
        assert_eq!((fresh.session_id.as_str(), fresh.total_tokens), ("new", 0));
        assert_eq!((fresh.platform, fresh.chat_type), (old.platform, old.chat_type));
        assert_eq!((fresh.display_name.as_deref(), end), (Some("Bob"), EndReason::SessionReset));
    }

    #[test]
    fn switching_binds_the_chat_to_an_earlier_transcript() {
        let (bound, end) = switch(&marked(), SessionId("earlier".into()), now()).unwrap();
        assert_eq!((bound.session_id.as_str(), end), ("earlier", EndReason::SessionSwitch));
        assert!(!bound.resume_pending && !bound.is_fresh_reset);
        assert_eq!(switch(&marked(), SessionId("old".into()), now()), None);
    }
}
