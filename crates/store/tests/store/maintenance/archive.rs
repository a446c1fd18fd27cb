//! Archiving and restoring sessions.

use petasos_core::session::Entry;
use petasos_core::transcript::Message;
use petasos_core::{Millis, SessionId};
use petasos_store::{ArchiveCandidate, ArchiveRule, RestoreOutcome, TranscriptRow, local_time};
use serde_json::Value;

use crate::fill::fill;
use crate::fixture::{Home, NOW, key, later};

/// More than one batch of deletions.
const MESSAGES: usize = 700;

/// Two sessions; that of chat 0 was used first.
fn home() -> Home {
    let mut home = Home::new();
    fill(&mut home.store, 0, 2, MESSAGES, NOW).unwrap();
    home
}

fn id(chat: usize) -> SessionId {
    SessionId(format!("20261101_000000_{chat:08x}"))
}

fn used_at() -> Millis {
    Millis(NOW.0 - 2000)
}

fn oldest(home: &Home) -> ArchiveCandidate {
    home.store.archivable(ArchiveRule::Since(later(1))).unwrap().expect("a conversation that may leave")
}

fn export(home: &Home, it: &ArchiveCandidate) -> Vec<String> {
    let mut lines = Vec::new();
    let lossy = home.store.export(it, |line| {
        lines.push(line.to_owned());
        Ok(())
    });
    assert_eq!(lossy.unwrap(), 0);
    lines
}

fn rows(home: &Home, chat: usize) -> usize {
    home.store.rows_last(&id(chat), 10_000).unwrap().len()
}

#[test]
fn finds_the_least_recently_used_session() {
    let home = home();
    let at = |before| home.store.archivable(ArchiveRule::Since(before)).unwrap().map(|it| it.id);
    assert_eq!(at(used_at()), None, "used at that moment");
    assert_eq!(at(Millis(used_at().0 + 1000)), Some(id(0)));
    assert_eq!(at(later(1)), Some(id(0)));
    let found = oldest(&home);
    assert_eq!((found.messages, found.last_at, found.key), (MESSAGES as u64, used_at(), key("0")));
}

#[test]
fn bound_sessions_are_kept_until_they_end() {
    let mut home = home();
    let unbound =
        |home: &Home| home.store.archivable(ArchiveRule::UnboundSince(later(60))).unwrap().map(|it| it.id);
    assert_eq!(unbound(&home), None, "both are bound to a chat");
    home.write(|tx| tx.end_session(&id(1), "session_reset", NOW));
    assert_eq!(unbound(&home), Some(id(1)));
    home.write(|tx| tx.unbind_session(&id(0)));
    assert_eq!(unbound(&home), Some(id(0)), "the least recently used of both");
}

#[test]
fn exports_messages_in_order() {
    let home = home();
    let lines: Vec<Value> =
        export(&home, &oldest(&home)).iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["messages"], MESSAGES);
    assert_eq!(lines[1]["table"], "sessions");
    let ids: Vec<i64> = lines[2..].iter().map(|line| line["row"]["id"].as_i64().unwrap()).collect();
    assert_eq!(ids.len(), MESSAGES);
    assert!(ids.is_sorted());
    assert_eq!(
        (lines[0]["first_row"].as_i64(), lines[0]["last_row"].as_i64()),
        (ids.first().copied(), ids.last().copied())
    );
}

#[test]
fn archives_in_batches_and_restores_completely() {
    let mut home = home();
    let before = home.store.rows_last(&id(0), 10_000).unwrap();
    let leaving = oldest(&home);
    let lines = export(&home, &leaving);
    assert!(home.write(|tx| tx.archive_session(&leaving, Some(("0.jsonl.gz", 123)), later(5))));
    assert_eq!(home.store.session(&id(0)).unwrap(), None);
    assert_eq!(home.store.archive_bytes().unwrap(), 123);
    let listed = home.store.archives(10).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!((&listed[0].id, listed[0].messages, listed[0].bytes), (&id(0), MESSAGES as u64, 123));
    assert_eq!((listed[0].file.as_deref(), listed[0].archived_at), (Some("0.jsonl.gz"), later(5)));
    assert_eq!(home.store.archive_of(&id(0)).unwrap().as_ref(), listed.first());
    assert_eq!(home.store.archive_of_chat(&key("0")).unwrap().as_ref(), listed.first());
    let steps: Vec<_> = std::iter::repeat_with(|| home.write(|tx| tx.remove_archived()))
        .map(|step| (step.rows, step.more))
        .take(3)
        .collect();
    assert_eq!(steps, [(500, true), (MESSAGES - 500, true), (0, false)]);
    assert_eq!((rows(&home, 0), rows(&home, 1)), (0, MESSAGES));
    let restored = home.write(|tx| tx.restore(lines.iter().cloned().map(Ok), later(9)));
    assert_eq!(restored, RestoreOutcome::Done { id: id(0), messages: MESSAGES as u64 });
    assert_eq!(home.store.rows_last(&id(0), 10_000).unwrap(), before);
    assert!(home.store.archives(10).unwrap().is_empty());
    let again = home.write(|tx| tx.restore(lines.iter().cloned().map(Ok), later(9)));
    assert_eq!(again, RestoreOutcome::Present(id(0)));
}

#[test]
fn session_used_meanwhile_is_not_archived() {
    let mut home = home();
    let leaving = oldest(&home);
    home.write(|tx| tx.append(&id(0), &Message::user("one more", used_at())));
    assert!(!home.write(|tx| tx.archive_session(&leaving, Some(("0.jsonl.gz", 1)), later(5))));
    assert_eq!((rows(&home, 0), home.store.archives(10).unwrap().len()), (MESSAGES + 1, 0));
    assert!(home.store.session(&id(0)).unwrap().is_some());
}

#[test]
fn reusing_a_session_id_deletes_the_archived_messages() {
    let mut home = home();
    let leaving = oldest(&home);
    assert!(home.write(|tx| tx.archive_session(&leaving, None, later(5))));
    assert_eq!(rows(&home, 0), MESSAGES, "deleted later, in batches");
    home.write(|tx| {
        tx.create_session(&id(0), &key("0"), None, None, later(6))?;
        tx.put_entry(&Entry::new(key("0"), id(0), None, local_time(later(6))))
    });
    assert_eq!((rows(&home, 0), rows(&home, 1)), (0, MESSAGES));
}

#[test]
fn deletes_only_the_rows_of_deleted_archive_files() {
    let mut home = home();
    for name in ["0.jsonl.gz", "1.jsonl.gz"] {
        let leaving = oldest(&home);
        assert!(home.write(|tx| tx.archive_session(&leaving, Some((name, 1)), later(5))));
    }
    while home.write(|tx| tx.remove_archived()).more {}
    home.write(|tx| tx.delete_archive_rows(&["0.jsonl.gz".to_owned()]));
    let left: Vec<_> = home.store.archives(10).unwrap().into_iter().map(|it| it.id).collect();
    assert_eq!(left, [id(1)]);
}

#[test]
fn restore_keeps_row_ids_of_other_sessions_apart() {
    let from = home();
    let mut to = Home::new();
    let lines = export(&from, &oldest(&from));
    fill(&mut to.store, 5, 1, 3, NOW).unwrap();
    let restored = to.write(|tx| tx.restore(lines.iter().cloned().map(Ok), NOW));
    assert_eq!(restored, RestoreOutcome::Done { id: id(0), messages: MESSAGES as u64 });
    let after = to.store.rows_last(&id(0), 10_000).unwrap();
    assert_eq!(after.first().map(|row| row.id.0), Some(4), "the first number that is free");
    let texts =
        |rows: &[TranscriptRow]| rows.iter().map(|row| row.message.content.clone()).collect::<Vec<_>>();
    assert_eq!(texts(&after), texts(&from.store.rows_last(&id(0), 10_000).unwrap()));
    assert_eq!(rows(&to, 5), 3);
}

#[test]
fn marks_exported_rows_with_invalid_utf8() {
    let home = home();
    let leaving = oldest(&home);
    home.raw().execute("UPDATE messages SET content = CAST(X'41FF' AS TEXT) WHERE id = 3", []).unwrap();
    let mut marked = Vec::new();
    let lossy = home.store.export(&leaving, |line| {
        let line: Value = serde_json::from_str(line).unwrap();
        marked.extend((line["lossy"] == true).then(|| line["row"]["id"].clone()));
        Ok(())
    });
    assert_eq!((lossy, marked), (Ok(1), vec![3.into()]));
}
