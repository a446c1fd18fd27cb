use super::*;
use crate::message::{ChatType, Platform};

fn at(text: &str) -> LocalTime {
    LocalTime::parse(text).unwrap()
}

const NOON: &str = "2026-11-15T12:00:00";

fn id(name: &str) -> SessionId {
    SessionId(name.into())
}

fn source() -> Source {
    Source::new(Platform::parse("telegram").unwrap(), ChatType::Dm, "1")
}

fn entry(change: impl FnOnce(&mut Entry)) -> Entry {
    let mut entry = Entry::new(SessionKey("k".into()), id("old"), Some(source()), at(NOON));
    change(&mut entry);
    entry
}

/// A situation; the defaults are an ordinary message.
struct Situation {
    entry: Option<Entry>,
    transcript: TranscriptState,
    recoverable: Option<SessionId>,
    background: BackgroundWork,
    request: ResolveMode,
    mode: ResetMode,
    now: &'static str,
}

fn situation(entry: impl Into<Option<Entry>>) -> Situation {
    Situation {
        entry: entry.into(),
        transcript: TranscriptState::Live,
        recoverable: None,
        background: BackgroundWork::None,
        request: ResolveMode::Continue,
        mode: ResetMode::None,
        now: "2026-11-15T12:59:00",
    }
}

impl Situation {
    fn resolve(&self) -> Resolution {
        let lookup = Lookup {
            entry: self.entry.as_ref(),
            transcript: &self.transcript,
            recoverable: self.recoverable.as_ref(),
            background: self.background,
        };
        let policy = ResetPolicy { mode: self.mode, idle_minutes: 60, ..ResetPolicy::default() };
        resolve(&lookup, self.request, &policy, FreshnessWindow::from_seconds(3600), at(self.now))
    }

    fn apply(self) -> Entry {
        let resolution = self.resolve();
        resolution.apply(self.entry, &SessionKey("k".into()), &source(), &id("new"), at(self.now))
    }
}

fn new_because(reason: ResetReason) -> Resolution {
    Resolution::New { reset: Some(reason), end: Some(EndReason::Reset(reason)) }
}

const LATE: &str = "2026-11-15T13:01:00";
const TWO_HOURS_LATER: &str = "2026-11-15T14:00:00";

fn marked(entry: &mut Entry) {
    entry.resume_pending = true;
    entry.last_resume_marked_at = Some(at(NOON));
}

#[test]
fn continues_the_session_with_an_ordinary_message() {
    let after = situation(entry(|_| {})).apply();
    assert_eq!((after.session_id, after.updated_at), (id("old"), at("2026-11-15T12:59:00")));
}

#[test]
fn resumes_a_marked_session_with_its_id() {
    let marked_case = situation(entry(marked));
    assert_eq!(marked_case.resolve(), Resolution::Resume);
    let after = marked_case.apply();
    assert_eq!(after.session_id, id("old"));
    assert!(after.resume_pending && !after.was_auto_reset && after.auto_reset_reason.is_none());
}

#[test]
fn resets_a_suspended_session_with_a_reason() {
    let suspended = situation(entry(|it| {
        it.suspended = true;
        it.last_prompt_tokens = 9;
    }));
    assert_eq!(suspended.resolve(), new_because(ResetReason::Suspended));
    let after = suspended.apply();
    assert_eq!((after.session_id, after.auto_reset_reason), (id("new"), Some(ResetReason::Suspended)));
    assert!(after.was_auto_reset && after.reset_had_activity && !after.suspended);
}

#[test]
fn prefers_suspension_over_a_resume_mark() {
    let both = situation(entry(|it| {
        marked(it);
        it.suspended = true;
    }));
    assert_eq!(both.resolve(), new_because(ResetReason::Suspended));
    assert!(!both.apply().resume_pending);
}

#[test]
fn expires_old_marks_unless_resets_are_off() {
    let idle = |it: &mut Entry| {
        marked(it);
        it.updated_at = at("2026-11-15T13:30:00");
    };
    let case_of = |mode| Situation { mode, now: TWO_HOURS_LATER, ..situation(entry(idle)) };
    assert_eq!(case_of(ResetMode::Idle).resolve(), new_because(ResetReason::ResumePendingExpired));
    assert_eq!(case_of(ResetMode::None).resolve(), Resolution::Resume);
}

#[test]
fn dates_a_mark_without_time_by_the_last_use() {
    let unstamped = |it: &mut Entry| it.resume_pending = true;
    let daily = Situation { mode: ResetMode::Daily, now: TWO_HOURS_LATER, ..situation(entry(unstamped)) };
    assert_eq!(daily.resolve(), new_because(ResetReason::ResumePendingExpired));
}

#[test]
fn resets_an_idle_marked_session_as_idle() {
    let late = Situation { mode: ResetMode::Idle, now: LATE, ..situation(entry(marked)) };
    assert_eq!(late.resolve(), new_because(ResetReason::Idle));
}

#[test]
fn resets_after_an_idle_hour_only() {
    let case_at = |now| Situation { mode: ResetMode::Idle, now, ..situation(entry(|_| {})) };
    assert_eq!(case_at(LATE).resolve(), new_because(ResetReason::Idle));
    assert_eq!(case_at("2026-11-15T12:59:00").resolve(), Resolution::Keep);
    assert!(!case_at(LATE).apply().reset_had_activity);
}

#[test]
fn keeps_a_session_with_background_work() {
    for background in [BackgroundWork::Live, BackgroundWork::Unknown] {
        let late = Situation { mode: ResetMode::Both, now: LATE, background, ..situation(entry(|_| {})) };
        assert_eq!(late.resolve(), Resolution::Keep, "{background:?}");
    }
}

#[test]
fn recovers_or_replaces_an_ended_transcript() {
    let ended = |recoverable| Situation {
        transcript: TranscriptState::Ended(EndReason::AgentClose),
        recoverable,
        ..situation(entry(|_| {}))
    };
    assert_eq!(ended(Some(id("old"))).resolve(), Resolution::Recover(id("old")));
    let expired = Situation {
        entry: Some(entry(|it| it.expiry_finalized = true)),
        now: LATE,
        ..ended(Some(id("other")))
    };
    let other = expired.apply();
    assert_eq!((other.session_id, other.updated_at), (id("other"), at(LATE)));
    assert!(!other.expiry_finalized, "it may expire again");
    let fresh = ended(None);
    assert_eq!(fresh.resolve(), Resolution::New { reset: None, end: None });
    assert!(!fresh.apply().was_auto_reset);
}

#[test]
fn keeps_a_deliberate_end_reason_on_reset() {
    let ended = |reason| Situation {
        transcript: TranscriptState::Ended(reason),
        recoverable: Some(id("old")),
        mode: ResetMode::Idle,
        now: LATE,
        ..situation(entry(|_| {}))
    };
    assert_eq!(ended(EndReason::AgentClose).resolve(), new_because(ResetReason::Idle));
    assert_eq!(
        ended(EndReason::SessionReset).resolve(),
        Resolution::New { reset: Some(ResetReason::Idle), end: None }
    );
}

#[test]
fn recovers_the_last_transcript_without_an_entry() {
    let lost =
        Situation { transcript: TranscriptState::Unknown, recoverable: Some(id("lost")), ..situation(None) };
    assert_eq!(lost.resolve(), Resolution::Recover(id("lost")));
    assert_eq!(lost.apply().session_id, id("lost"));
    let first = Situation { transcript: TranscriptState::Unknown, ..situation(None) };
    assert_eq!(first.resolve(), Resolution::New { reset: None, end: None });
    let entry = first.apply();
    assert!(entry.session_id == id("new") && !entry.was_auto_reset && !entry.is_fresh_reset);
}

#[test]
fn forced_new_session_overrides_all_rules() {
    let forced = Situation {
        request: ResolveMode::ForceNew,
        recoverable: Some(id("old")),
        ..situation(entry(marked))
    };
    let want = Resolution::New { reset: None, end: Some(EndReason::SessionReset) };
    assert_eq!(forced.resolve(), want);
    assert_eq!(
        Situation { request: ResolveMode::ForceNew, ..situation(None) }.resolve(),
        Resolution::New { reset: None, end: None }
    );
}

#[test]
fn fresh_reset_lasts_until_the_next_message() {
    let forced = Situation { request: ResolveMode::ForceNew, ..situation(entry(|_| {})) };
    let reset = forced.apply();
    assert!(reset.is_fresh_reset && !reset.was_auto_reset);
    assert!(!situation(Some(reset)).apply().is_fresh_reset);
    let idle = situation(entry(|it| it.suspended = true));
    assert!(!idle.apply().is_fresh_reset, "an automatic reset");
}

#[test]
fn end_reasons_have_stable_names() {
    for name in [
        "session_reset",
        "session_switch",
        "idle",
        "daily",
        "suspended",
        "resume_pending_expired",
        "compression",
        "agent_close",
        "ws_orphan_reap",
        "someone else's",
    ] {
        assert_eq!(EndReason::parse(name).as_str(), name);
    }
    assert!(EndReason::parse("agent_close").is_accidental() && !EndReason::parse("idle").is_accidental());
}
