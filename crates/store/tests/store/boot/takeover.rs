//! Recovery at start, bookkeeping at stop, and the start of a turn.

use std::collections::BTreeMap;
use std::time::Duration;

use petasos_core::Route;
use petasos_core::message::Delivery;
use petasos_core::session::{CrashRecovery, Entry, FreshnessWindow, ResumeReason};
use petasos_core::transcript::Message;
use petasos_core::turn::{Turn, TurnEffect, TurnLimits};
use petasos_store::{
    BootPolicy, BootReport, BootResult, HoldScope, HomeState, ResumeCandidate, SessionImport, SuspectHold,
    TurnBatch, local_time,
};

use crate::fixture::{Home, NOW, finish, key, lane, later, session, source, start, turn};

fn take_over(home: &mut Home, found: &HomeState) -> BootResult {
    let hold = SuspectHold { scope: HoldScope::LastTry, pause: Duration::ZERO, stable: Duration::ZERO };
    let crash_recovery = CrashRecovery::Journal;
    let window = FreshnessWindow::default();
    let terms = BootPolicy { crash_recovery, window, limits: TurnLimits::default(), hold };
    home.write(|tx| tx.take_over(found, &terms, |_, _| Ok(true), NOW))
}

fn put_entry(home: &mut Home, chat: &str) -> Entry {
    let entry = Entry::new(key(chat), session("s1"), None, local_time(NOW));
    home.write(|tx| tx.put_entry(&entry));
    entry
}

fn executing(home: &mut Home, chat: &str) -> Turn {
    let inbox = home.accept(chat, chat);
    let turn = turn(chat, &[inbox]);
    home.apply(&start(&turn)).unwrap();
    put_entry(home, chat);
    turn
}

fn is_marked(home: &Home, chat: &str) -> bool {
    home.store.entry(&key(chat)).unwrap().unwrap().resume_pending
}

#[test]
fn first_start_imports_a_sessions_file_once() {
    let file = r#"{"agent:main:telegram:dm:7": {"session_key": "agent:main:telegram:dm:7", "session_id": "s7",
        "created_at": "2026-11-15T18:12:05", "updated_at": "2026-11-15T18:12:05"}}"#;
    for (sessions, imported) in [
        (Some(file), Some(Some(SessionImport { imported: 1, existing: 0, skipped: 0 }))),
        (Some("torn"), Some(None)),
        (None, None),
    ] {
        let mut home = Home::new();
        assert!(!home.store.sessions_imported().unwrap());
        let found =
            HomeState { clean: true, sessions_json: sessions.map(str::to_owned), ..HomeState::default() };
        assert_eq!(take_over(&mut home, &found).report.imported, imported, "{sessions:?}");
        assert!(home.store.sessions_imported().unwrap(), "{sessions:?}");
        assert_eq!(home.store.bound(&key("7")).unwrap().is_some(), sessions == Some(file));
        assert_eq!(take_over(&mut home, &found).report.imported, None, "{sessions:?}, the second start");
    }
}

#[test]
fn start_skips_and_counts_an_unreadable_entry() {
    let mut home = Home::new();
    executing(&mut home, "7");
    home.raw().execute("UPDATE routing SET entry = 'torn'", []).unwrap();
    let booted = take_over(&mut home, &HomeState { clean: true, ..HomeState::default() });
    assert!(booted.report.skipped_rows > 0 && booted.report.has_unreadable_rows());
    let resumed: Vec<_> = booted.candidates.values().flatten().collect();
    assert!(matches!(resumed[..], [ResumeCandidate::Turn(it)] if *it == key("7")), "{resumed:?}");
}

#[test]
fn any_unreadable_row_counts() {
    for (lost_turns, unreadable, skipped_rows, any) in [
        (0, 0, 0, false),
        (1, 0, 0, true),
        (0, 1, 0, true),
        (0, 0, 1, true),
        (0, 1, 1, true),
        (1, 0, 1, true),
    ] {
        let report = BootReport { lost_turns, unreadable, skipped_rows, ..BootReport::default() };
        assert_eq!(report.has_unreadable_rows(), any, "{report:?}");
    }
}

#[test]
fn stop_returns_only_newly_marked_sessions() {
    let mut home = Home::new();
    put_entry(&mut home, "7");
    put_entry(&mut home, "8");
    let reason = ResumeReason::ShutdownTimeout;
    let mark = |home: &mut Home, chats: &[&str]| {
        home.write(|tx| tx.mark_running_sessions(chats.iter().map(|chat| key(chat)), &reason, NOW))
    };
    assert_eq!(mark(&mut home, &["7"]), [key("7")]);
    assert_eq!(mark(&mut home, &["7", "8", "unknown"]), [key("8")]);
}

#[test]
fn only_interrupted_turns_stay_marked_and_are_counted() {
    let mut home = Home::new();
    let cut_off = executing(&mut home, "7");
    let finished = executing(&mut home, "8");
    let reason = ResumeReason::ShutdownTimeout;
    let marked = home.write(|tx| tx.mark_running_sessions([key("7"), key("8")], &reason, NOW));
    home.apply(&finish("8", &finished, "answer")).unwrap();
    let worked = BTreeMap::from([(cut_off.id, key("7")), (finished.id, key("8"))]);
    assert_eq!(home.write(|tx| tx.finish_stop(&marked, &worked, &reason, later(1))), 1);
    assert_eq!((is_marked(&home, "7"), is_marked(&home, "8")), (true, false));
    let counts = home.store.failure_counts().unwrap();
    assert_eq!((counts.count(&key("7")), counts.count(&key("8"))), (1, 0));
}

#[test]
fn start_notice_of_a_turn_is_delivered() {
    for (notice, delivery, delivered) in [
        (Some("a new session"), Delivery::Push, true),
        (Some("a new session"), Delivery::Pull, false),
        (None, Delivery::Push, false),
        (None, Delivery::Pull, false),
    ] {
        let mut home = Home::new();
        let entry = put_entry(&mut home, "7");
        let inbox = vec![home.accept("7", "1")];
        let route = Route::to_source(&source("7"), delivery);
        let batch = TurnBatch { route, inbox, internal: false, rows: vec![Message::user("hello", NOW)] };
        let notice = notice.map(str::to_owned);
        let begun = home.write(|tx| tx.begin_turn(&entry, notice.clone(), batch, TurnLimits::default(), NOW));
        let effects = begun.unwrap().effects;
        let deliver = TurnEffect::Deliver { lane: lane("telegram:7") };
        assert_eq!(effects.contains(&deliver), delivered, "{notice:?} {delivery:?}");
        assert_eq!(home.store.due_of_lane(&lane("telegram:7"), 9).unwrap().len(), usize::from(delivered));
    }
}
