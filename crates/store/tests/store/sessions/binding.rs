//! Session binding, resume marks and resets: the D cases of the specification.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use petasos_core::journal::Write;
use petasos_core::session::{
    BackgroundWork, CrashRecovery, EndReason, Entry, FreshnessWindow, ModelOverride, ResetMode,
    ResetPolicies, ResetPolicy, ResetReason, Resolution, ResolveMode, ResumeReason,
};
use petasos_core::transcript::{Message, Usage, UsageRecord};
use petasos_core::{Millis, SessionKey};
use petasos_store::{BindRequest, BoundSession, Error, FinalizeFrom, Result, SessionImport, Tx, local_time};

use crate::fixture::{Home, NOW, key, later, session, source, start, turn};

const RECENT: Duration = Duration::from_secs(120);

fn bind(
    tx: &Tx<'_>,
    resolve: ResolveMode,
    mode: ResetMode,
    background: BackgroundWork,
    now: Millis,
) -> Result<BoundSession> {
    let policy = ResetPolicy { mode, idle_minutes: 60, ..ResetPolicy::default() };
    let key = key("7");
    let source = source("7");
    let binding = BindRequest {
        key: &key,
        source: &source,
        mode: resolve,
        policy: &policy,
        window: FreshnessWindow::default(),
        background,
    };
    tx.get_or_create(&binding, now)
}

/// Binding of the next message of chat 7, without a reset policy.
fn next(home: &mut Home, now: Millis) -> BoundSession {
    home.write(|tx| bind(tx, ResolveMode::Continue, ResetMode::None, BackgroundWork::None, now))
}

/// Entry of a new session, as `/new` begins it.
fn forced(home: &mut Home, now: Millis) -> Entry {
    home.write(|tx| bind(tx, ResolveMode::ForceNew, ResetMode::None, BackgroundWork::None, now)).entry
}

fn idle(home: &mut Home, background: BackgroundWork, now: Millis) -> BoundSession {
    home.write(|tx| bind(tx, ResolveMode::Continue, ResetMode::Idle, background, now))
}

fn entry(home: &Home) -> Entry {
    home.store.entry(&key("7")).unwrap().unwrap()
}

fn mark(home: &mut Home, reason: ResumeReason) -> bool {
    home.write(|tx| tx.mark_resume_pending(&key("7"), reason, NOW))
}

fn crash(home: &mut Home, mode: CrashRecovery) -> usize {
    home.write(|tx| tx.suspend_recently_active(mode, RECENT, later(60)))
}

fn append_user(home: &mut Home, text: &str) {
    let id = entry(home).session_id;
    home.write(|tx| tx.append(&id, &Message::user(text, NOW)));
}

#[test]
fn marking_a_known_session_stores_reason_and_time() {
    let mut home = Home::new();
    next(&mut home, NOW);
    assert!(mark(&mut home, ResumeReason::RestartTimeout));
    let it = entry(&home);
    assert!(it.resume_pending);
    assert_eq!(
        (it.resume_reason, it.last_resume_marked_at),
        (Some(ResumeReason::RestartTimeout), Some(local_time(NOW)))
    );
    assert!(mark(&mut home, ResumeReason::ShutdownTimeout));
    assert_eq!(entry(&home).resume_reason, Some(ResumeReason::ShutdownTimeout));
    assert_eq!(home.store.pending_resumes().unwrap().len(), 1);
}

#[test]
fn an_unknown_session_is_neither_marked_nor_cleared() {
    let mut home = Home::new();
    assert!(!mark(&mut home, ResumeReason::RestartTimeout));
    assert!(!home.write(|tx| tx.clear_resume_pending(&key("7"))));
    assert!(!home.write(|tx| tx.suspend_session(&key("7"))));
}

#[test]
fn a_suspended_session_is_not_marked_and_stays_suspended() {
    let mut home = Home::new();
    next(&mut home, NOW);
    assert!(home.write(|tx| tx.suspend_session(&key("7"))));
    assert!(!mark(&mut home, ResumeReason::RestartTimeout));
    assert!(entry(&home).suspended && !entry(&home).resume_pending);
    assert_eq!(home.store.pending_resumes().unwrap(), []);
}

#[test]
fn a_mark_survives_reopening_the_store() {
    let mut home = Home::new();
    next(&mut home, NOW);
    mark(&mut home, ResumeReason::ShutdownTimeout);
    let it = entry(&home.reopen());
    assert_eq!((it.resume_pending, it.resume_reason), (true, Some(ResumeReason::ShutdownTimeout)));
}

#[test]
fn clearing_empties_the_three_fields_once() {
    let mut home = Home::new();
    next(&mut home, NOW);
    let before = entry(&home);
    assert!(!home.write(|tx| tx.clear_resume_pending(&key("7"))));
    mark(&mut home, ResumeReason::RestartTimeout);
    assert!(home.write(|tx| tx.clear_resume_pending(&key("7"))));
    assert_eq!(entry(&home), before);
}

#[test]
fn a_marked_session_keeps_its_transcript_and_its_mark() {
    let mut home = Home::new();
    let first = next(&mut home, NOW).entry;
    mark(&mut home, ResumeReason::RestartTimeout);
    let again = next(&mut home, later(10));
    assert_eq!(again.resolution, Resolution::Resume);
    assert_eq!(again.entry.session_id, first.session_id);
    assert!(again.entry.resume_pending && !again.entry.was_auto_reset);
}

#[test]
fn suspended_session_starts_fresh_even_if_marked() {
    for marked in [false, true] {
        let mut home = Home::new();
        let first = next(&mut home, NOW).entry;
        if marked {
            mark(&mut home, ResumeReason::RestartTimeout);
        }
        home.write(|tx| tx.suspend_session(&key("7")));
        let fresh = next(&mut home, later(10)).entry;
        assert_ne!(fresh.session_id, first.session_id);
        assert_eq!((fresh.was_auto_reset, fresh.auto_reset_reason), (true, Some(ResetReason::Suspended)));
        let old = home.store.session(&first.session_id).unwrap().unwrap();
        assert_eq!(old.ended.unwrap().reason, "suspended");
    }
}

#[test]
fn crash_recovery_suspends_recent_unmarked_sessions() {
    let mut home = Home::new();
    next(&mut home, NOW);
    mark(&mut home, ResumeReason::RestartTimeout);
    assert_eq!(crash(&mut home, CrashRecovery::Suspend), 0);
    assert!(!entry(&home).suspended && entry(&home).resume_pending);
    let other = Entry::new(key("8"), session("b"), Some(source("8")), local_time(NOW));
    let old = Entry::new(key("9"), session("c"), None, local_time(Millis(NOW.0 - 600_000)));
    home.write(|tx| tx.put_entry(&other));
    home.write(|tx| tx.put_entry(&old));
    assert_eq!(crash(&mut home, CrashRecovery::Suspend), 1);
    assert!(home.store.entry(&key("8")).unwrap().unwrap().suspended);
    assert!(!home.store.entry(&key("9")).unwrap().unwrap().suspended);
    assert!(entry(&home).resume_pending && !entry(&home).suspended);
}

#[test]
fn resume_mode_marks_recent_sessions_as_interrupted() {
    let mut home = Home::new();
    next(&mut home, NOW);
    assert_eq!(crash(&mut home, CrashRecovery::Journal), 0);
    assert_eq!(crash(&mut home, CrashRecovery::Resume), 1);
    assert_eq!(entry(&home).resume_reason, Some(ResumeReason::RestartInterrupted));
}

#[test]
fn an_old_mark_expires_only_under_a_policy() {
    let mut home = Home::new();
    let first = next(&mut home, NOW).entry;
    mark(&mut home, ResumeReason::RestartTimeout);
    assert_eq!(next(&mut home, later(7200)).entry.session_id, first.session_id);
    let reset = idle(&mut home, BackgroundWork::Live, later(7200)).entry;
    assert_eq!(reset.auto_reset_reason, Some(ResetReason::ResumePendingExpired));
}

#[test]
fn idle_session_is_reset_unless_background_work_runs() {
    let mut home = Home::new();
    let first = next(&mut home, NOW).entry;
    assert_eq!(idle(&mut home, BackgroundWork::Live, later(61 * 60)).entry.session_id, first.session_id);
    let kept = idle(&mut home, BackgroundWork::None, later(61 * 60 + 59 * 60)).entry;
    assert_eq!(kept.session_id, first.session_id);
    let reset = idle(&mut home, BackgroundWork::None, later(3 * 61 * 60)).entry;
    assert_eq!(reset.auto_reset_reason, Some(ResetReason::Idle));
    assert!(!reset.reset_had_activity);
}

#[test]
fn expired_session_ends_once_and_the_next_message_starts_fresh() {
    let mut home = Home::new();
    let first = next(&mut home, NOW).entry;
    let default = ResetPolicy { mode: ResetMode::Idle, idle_minutes: 60, ..ResetPolicy::default() };
    let policies = ResetPolicies { default, ..ResetPolicies::default() };
    let mut ended = |at| home.write(|tx| tx.finalize_expired(&policies, at, &FinalizeFrom::default())).ended;
    assert_eq!(ended(later(59 * 60)), 0);
    assert_eq!(ended(later(61 * 60)), 1);
    assert_eq!(ended(later(62 * 60)), 0, "once");
    let row = home.store.session(&first.session_id).unwrap().unwrap();
    assert_eq!(row.ended.map(|end| end.reason).as_deref(), Some("session_reset"));
    let fresh = idle(&mut home, BackgroundWork::None, later(63 * 60)).entry;
    assert_ne!(fresh.session_id, first.session_id);
    assert_eq!(fresh.auto_reset_reason, Some(ResetReason::Idle));
    assert!(!fresh.expiry_finalized);
}

const LEGACY: &str = r#"{
    "_README": "LEGACY MIRROR",
    "agent:main:telegram:dm:123": {"session_key": "agent:main:telegram:dm:123", "session_id": "20261115_181205_13f6a7af",
        "created_at": "2026-11-15T18:12:05.741101", "updated_at": "2026-11-15T18:12:05.741101", "platform": "telegram",
        "resume_pending": true, "last_resume_marked_at": "not-a-timestamp", "resume_reason": "restart_timeout",
        "model_override": {"model": "m", "api_key": "sk-secret"},
        "origin": {"platform": "telegram", "chat_id": "123", "chat_name": "Bob"}},
    "agent:main:google_chat:dm:spaces/AAA": {"session_key": "x", "session_id": "ok",
        "created_at": "2026-11-15T18:12:05", "updated_at": "2026-11-15T18:12:05"},
    "agent:main:telegram:dm:bad": {"session_id": 5},
    "agent:main:telegram:dm:bool": true,
    "agent:main:telegram:dm:up": {"session_key": "k", "session_id": "../x",
        "created_at": "2026-11-15T18:12:05", "updated_at": "2026-11-15T18:12:05"},
    "agent:main:telegram:dm:dir": {"session_key": "k", "session_id": "a/b",
        "created_at": "2026-11-15T18:12:05", "updated_at": "2026-11-15T18:12:05"},
    "/abs": {"session_key": "/abs", "session_id": "ok2",
        "created_at": "2026-11-15T18:12:05", "updated_at": "2026-11-15T18:12:05"}
}"#;

#[test]
fn sessions_file_is_imported_entry_by_entry() {
    let mut home = Home::new();
    let imported = home.write(|tx| tx.import_sessions(LEGACY));
    assert_eq!(imported, Some(SessionImport { imported: 2, existing: 0, skipped: 5 }));
    let bob = home.store.entry(&SessionKey("agent:main:telegram:dm:123".into())).unwrap().unwrap();
    assert_eq!((bob.resume_pending, bob.last_resume_marked_at), (true, None));
    let spaces = SessionKey("agent:main:google_chat:dm:spaces/AAA".into());
    assert_eq!(home.store.entry(&spaces).unwrap().unwrap().session_key, spaces);
    assert_eq!(home.store.session(&bob.session_id).unwrap().unwrap().display_name.as_deref(), Some("Bob"));
    let again = home.write(|tx| tx.import_sessions(LEGACY));
    assert_eq!(again, Some(SessionImport { imported: 0, existing: 2, skipped: 5 }));
    for broken in ["", "{", "[1]", "true"] {
        assert_eq!(home.write(|tx| tx.import_sessions(broken)), None, "{broken:?}");
    }
}

#[test]
fn model_api_key_never_reaches_the_disk() {
    let mut home = Home::new();
    home.write(|tx| tx.import_sessions(LEGACY));
    let path = home.path();
    let bob = SessionKey("agent:main:telegram:dm:123".into());
    let chosen = home.store.entry(&bob).unwrap().unwrap().model_override;
    assert_eq!(chosen, Some(ModelOverride { model: Some("m".into()), ..ModelOverride::default() }));
    for suffix in ["", "-wal"] {
        let bytes = std::fs::read(format!("{}{suffix}", path.display())).unwrap();
        assert!(!bytes.windows(9).any(|window| window == b"sk-secret"), "{suffix}");
    }
}

#[expect(clippy::disallowed_methods, reason = "callers in other threads")]
#[test]
fn concurrent_callers_for_one_key_share_one_session() {
    let mut home = Home::new();
    let (requests, received) = mpsc::sync_channel::<mpsc::SyncSender<Entry>>(64);
    let callers: Vec<_> = (0..50)
        .map(|_| {
            let requests = requests.clone();
            thread::spawn(move || {
                let (tx, answer) = mpsc::sync_channel(1);
                requests.send(tx).unwrap();
                answer.recv().unwrap()
            })
        })
        .collect();
    drop(requests);
    while let Ok(first) = received.recv() {
        let group = home.store.group().unwrap();
        let answers: Vec<_> = std::iter::once(first)
            .chain(received.try_iter())
            .map(|to| {
                (
                    to,
                    group
                        .job(|tx| bind(tx, ResolveMode::Continue, ResetMode::None, BackgroundWork::None, NOW))
                        .unwrap(),
                )
            })
            .collect();
        group.commit().unwrap();
        for (to, bound) in answers {
            to.send(bound.entry).unwrap();
        }
    }
    let ids: std::collections::BTreeSet<_> =
        callers.into_iter().map(|it| it.join().unwrap().session_id).collect();
    assert_eq!(ids.len(), 1);
    assert_eq!(home.store.sessions(None, 100).unwrap().len(), 1);
}

#[test]
fn only_accidentally_ended_sessions_are_reopened() {
    let mut home = Home::new();
    let first = next(&mut home, NOW).entry;
    append_user(&mut home, "hello");
    assert!(home.write(|tx| tx.end_session(&first.session_id, "agent_close", NOW)));
    let again = next(&mut home, later(1));
    assert_eq!(again.resolution, Resolution::Recover(first.session_id.clone()));
    assert_eq!(home.store.session(&first.session_id).unwrap().unwrap().ended, None);
    let fresh = forced(&mut home, later(2));
    assert_eq!(next(&mut home, later(3)).entry.session_id, fresh.session_id);
    let old = home.store.session(&first.session_id).unwrap().unwrap();
    assert_eq!(old.ended.unwrap().reason, "session_reset");
    assert!(
        !home.write(|tx| tx.end_session(&first.session_id, "idle", later(9))),
        "a meant end keeps its reason"
    );
}

#[test]
fn empty_accidentally_ended_session_is_not_reopened() {
    let mut home = Home::new();
    let first = next(&mut home, NOW).entry;
    home.write(|tx| tx.end_session(&first.session_id, "agent_close", NOW));
    assert_ne!(next(&mut home, later(1)).entry.session_id, first.session_id);
}

#[test]
fn force_new_ends_the_old_transcript() {
    let mut home = Home::new();
    let first = next(&mut home, NOW).entry;
    assert_ne!(forced(&mut home, later(1)).session_id, first.session_id);
    let old = home.store.session(&first.session_id).unwrap().unwrap();
    assert_eq!(old.ended.unwrap().reason, "session_reset");
}

#[test]
fn switching_rebinds_an_earlier_session() {
    let mut home = Home::new();
    let first = next(&mut home, NOW).entry.session_id;
    let second = forced(&mut home, later(1)).session_id;
    let bound = home.write(|tx| tx.switch_session(&key("7"), &first, later(2))).unwrap();
    assert_eq!(bound.session_id, first);
    assert_eq!(home.store.session(&first).unwrap().unwrap().ended, None);
    assert_eq!(home.store.session(&second).unwrap().unwrap().ended.unwrap().reason, "session_switch");
    assert_eq!(home.write(|tx| tx.switch_session(&key("7"), &first, later(3))), None);
    let unknown = home.store.write(|tx| tx.switch_session(&key("7"), &session("none"), later(4)));
    assert_eq!(unknown, Err(Error::Missing("session")));
}

#[test]
fn binding_follows_compressed_sessions_to_the_tip() {
    let mut home = Home::new();
    let first = next(&mut home, NOW).entry;
    let tip = session("tip");
    home.write(|tx| tx.create_session(&tip, &key("7"), None, Some(&first.session_id), later(1)));
    home.write(|tx| tx.end_session(&first.session_id, EndReason::Compression.as_str(), later(1)));
    let found = next(&mut home, later(2));
    assert_eq!((found.entry.session_id, found.resolution), (tip, Resolution::Keep));
}

#[test]
fn three_interrupted_stops_suspend_a_session() {
    let mut home = Home::new();
    next(&mut home, NOW);
    for stop in 0..3 {
        assert_eq!(home.write(|tx| tx.suspend_stuck()), [], "stop {stop}");
        home.write(|tx| tx.count_stop(&[key("7")]));
        home = home.reopen();
    }
    mark(&mut home, ResumeReason::RestartTimeout);
    assert_eq!(home.write(|tx| tx.suspend_stuck()), [key("7")]);
    assert!(entry(&home).suspended);
    home.write(|tx| tx.count_crash(&[key("8")]));
    home.apply(&[Write::ClearResume { key: key("8") }]).unwrap();
    assert!(home.store.failure_counts().unwrap().is_empty());
}

#[test]
fn a_successful_turn_clears_mark_and_count() {
    let mut home = Home::new();
    next(&mut home, NOW);
    mark(&mut home, ResumeReason::RestartTimeout);
    assert!(home.write(|tx| tx.import_failure_counts(r#"{"agent:main:telegram:dm:7": 2, "x": "junk"}"#)));
    assert_eq!(home.store.failure_counts().unwrap().count(&key("7")), 2);
    assert!(!home.write(|tx| tx.import_failure_counts(r#"{"x": 9}"#)), "ours are newer");
    home.apply(&[Write::ClearResume { key: key("7") }]).unwrap();
    assert!(!entry(&home).resume_pending);
    assert!(home.store.failure_counts().unwrap().is_empty());
    assert!(!home.write(|tx| tx.import_failure_counts("not json")));
}

#[test]
fn usage_is_added_to_the_session_and_its_bound_entry() {
    let mut home = Home::new();
    let id = next(&mut home, NOW).entry.session_id;
    let usage = Usage { input: 10, output: 5, cache_read: 100, cache_write: 1 };
    let bill = UsageRecord { tokens: usage, prompt: Some(usage.prompt()), micro_usd: Some(1_500_000) };
    let spend = |session| Write::AddUsage { key: key("7"), session, usage: bill };
    home.apply(&[spend(id.clone()), spend(id.clone()), spend(session("left behind"))]).unwrap();
    let it = entry(&home);
    assert_eq!((it.total_tokens, it.last_prompt_tokens), (232, 111));
    assert_eq!((it.estimated_cost_usd, it.cost_status.as_str()), (3.0, "estimated"));
    assert_eq!(home.store.session(&id).unwrap().unwrap().usage.total(), 232);
}

#[test]
fn old_entries_are_pruned_unless_in_use() {
    let mut home = Home::new();
    for (chat, suspended) in [("7", false), ("8", true), ("9", false), ("10", false), ("11", false)] {
        let entry = Entry { suspended, ..Entry::new(key(chat), session(chat), None, local_time(NOW)) };
        home.write(|tx| tx.put_entry(&entry));
    }
    let id = home.accept("9", "1");
    home.apply(&start(&turn("9", &[id]))).unwrap();
    home.accept("10", "2");
    assert_eq!(home.write(|tx| tx.prune_entries(NOW)), 0);
    assert_eq!(home.write(|tx| tx.prune_entries(later(1))), 2);
    assert_eq!(home.store.entry(&key("7")).unwrap(), None);
    assert_eq!(home.store.entries_since(Millis(0), 10).unwrap().len(), 3);
    assert!(!home.write(|tx| tx.delete_session(&session("8"))), "it is in use");
}
