//! The decision table, line by line.

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

/// Everything a case may vary; the rest is the everyday situation.
struct Case {
    entry: Option<Entry>,
    row: Row,
    recoverable: Option<SessionId>,
    background: Background,
    ask: Ask,
    mode: Mode,
    now: &'static str,
}

fn case(entry: impl Into<Option<Entry>>) -> Case {
    Case {
        entry: entry.into(),
        row: Row::Live,
        recoverable: None,
        background: Background::None,
        ask: Ask::Continue,
        mode: Mode::None,
        now: "2026-11-15T12:59:00",
    }
}

impl Case {
    fn resolve(&self) -> Resolution {
        let lookup = Lookup {
            entry: self.entry.as_ref(),
            row: &self.row,
            recoverable: self.recoverable.as_ref(),
            background: self.background,
        };
        let policy = ResetPolicy { mode: self.mode, idle_minutes: 60, ..ResetPolicy::default() };
        resolve(&lookup, self.ask, &policy, Window::from_seconds(3600), at(self.now))
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
fn an_ordinary_message_continues_and_touches_its_session() {
    let after = case(entry(|_| {})).apply();
    assert_eq!((after.session_id, after.updated_at), (id("old"), at("2026-11-15T12:59:00")));
}

#[test]
fn a_marked_session_keeps_its_id_and_its_mark() {
    let marked_case = case(entry(marked));
    assert_eq!(marked_case.resolve(), Resolution::Resume);
    let after = marked_case.apply();
    assert_eq!(after.session_id, id("old"));
    assert!(after.resume_pending && !after.was_auto_reset && after.auto_reset_reason.is_none());
}

#[test]
fn a_suspended_session_starts_afresh_and_says_why() {
    let suspended = case(entry(|it| {
        it.suspended = true;
        it.last_prompt_tokens = 9;
    }));
    assert_eq!(suspended.resolve(), new_because(ResetReason::Suspended));
    let after = suspended.apply();
    assert_eq!((after.session_id, after.auto_reset_reason), (id("new"), Some(ResetReason::Suspended)));
    assert!(after.was_auto_reset && after.reset_had_activity && !after.suspended);
}

#[test]
fn suspension_wins_over_a_resume_mark() {
    let both = case(entry(|it| {
        marked(it);
        it.suspended = true;
    }));
    assert_eq!(both.resolve(), new_because(ResetReason::Suspended));
    assert!(!both.apply().resume_pending);
}

#[test]
fn an_old_mark_expires_unless_the_policy_never_resets() {
    let idle = |it: &mut Entry| {
        marked(it);
        it.updated_at = at("2026-11-15T13:30:00");
    };
    let case_of = |mode| Case { mode, now: TWO_HOURS_LATER, ..case(entry(idle)) };
    assert_eq!(case_of(Mode::Idle).resolve(), new_because(ResetReason::ResumePendingExpired));
    assert_eq!(case_of(Mode::None).resolve(), Resolution::Resume);
}

#[test]
fn a_mark_without_time_is_as_old_as_the_last_use() {
    let unstamped = |it: &mut Entry| it.resume_pending = true;
    let daily = Case { mode: Mode::Daily, now: TWO_HOURS_LATER, ..case(entry(unstamped)) };
    assert_eq!(daily.resolve(), new_because(ResetReason::ResumePendingExpired));
}

#[test]
fn a_marked_session_that_is_idle_is_reset_as_idle() {
    let late = Case { mode: Mode::Idle, now: LATE, ..case(entry(marked)) };
    assert_eq!(late.resolve(), new_because(ResetReason::Idle));
}

#[test]
fn an_hour_of_silence_resets_and_a_minute_less_does_not() {
    let case_at = |now| Case { mode: Mode::Idle, now, ..case(entry(|_| {})) };
    assert_eq!(case_at(LATE).resolve(), new_because(ResetReason::Idle));
    assert_eq!(case_at("2026-11-15T12:59:00").resolve(), Resolution::Keep);
    assert!(!case_at(LATE).apply().reset_had_activity);
}

#[test]
fn a_background_process_that_may_be_alive_keeps_its_session() {
    for background in [Background::Live, Background::Unknown] {
        let late = Case { mode: Mode::Both, now: LATE, background, ..case(entry(|_| {})) };
        assert_eq!(late.resolve(), Resolution::Keep, "{background:?}");
    }
}

#[test]
fn an_ended_row_is_recovered_or_replaced_without_a_reset() {
    let ended =
        |recoverable| Case { row: Row::Ended(EndReason::AgentClose), recoverable, ..case(entry(|_| {})) };
    assert_eq!(ended(Some(id("old"))).resolve(), Resolution::Recover(id("old")));
    let expired =
        Case { entry: Some(entry(|it| it.expiry_finalized = true)), now: LATE, ..ended(Some(id("other"))) };
    let other = expired.apply();
    assert_eq!((other.session_id, other.updated_at), (id("other"), at(LATE)));
    assert!(!other.expiry_finalized, "it may expire again");
    let fresh = ended(None);
    assert_eq!(fresh.resolve(), Resolution::New { reset: None, end: None });
    assert!(!fresh.apply().was_auto_reset);
}

#[test]
fn an_ended_row_that_is_also_over_is_reset_and_keeps_an_end_that_was_meant() {
    let ended = |reason| Case {
        row: Row::Ended(reason),
        recoverable: Some(id("old")),
        mode: Mode::Idle,
        now: LATE,
        ..case(entry(|_| {}))
    };
    assert_eq!(ended(EndReason::AgentClose).resolve(), new_because(ResetReason::Idle));
    assert_eq!(
        ended(EndReason::SessionReset).resolve(),
        Resolution::New { reset: Some(ResetReason::Idle), end: None }
    );
}

#[test]
fn a_key_without_entry_recovers_its_last_row_or_begins() {
    let lost = Case { row: Row::Unknown, recoverable: Some(id("lost")), ..case(None) };
    assert_eq!(lost.resolve(), Resolution::Recover(id("lost")));
    assert_eq!(lost.apply().session_id, id("lost"));
    let first = Case { row: Row::Unknown, ..case(None) };
    assert_eq!(first.resolve(), Resolution::New { reset: None, end: None });
    let entry = first.apply();
    assert!(entry.session_id == id("new") && !entry.was_auto_reset && !entry.is_fresh_reset);
}

#[test]
fn forcing_a_new_session_overrules_everything() {
    let forced = Case { ask: Ask::ForceNew, recoverable: Some(id("old")), ..case(entry(marked)) };
    let want = Resolution::New { reset: None, end: Some(EndReason::SessionReset) };
    assert_eq!(forced.resolve(), want);
    assert_eq!(
        Case { ask: Ask::ForceNew, ..case(None) }.resolve(),
        Resolution::New { reset: None, end: None }
    );
}

#[test]
fn end_reasons_keep_their_names() {
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
