//! Inbox states, turns that run once, and replay detection.

use petasos_core::InboxId;
use petasos_core::journal::{MessageOutcome, Write};
use petasos_store::{Accepted, EnqueueOutcome, Error, MessageStage};

use crate::fixture::{Home, NOW, draft, finish, inbound, key, later, link, start, turn};

#[test]
fn message_is_accepted_once_across_a_restart() {
    let mut home = Home::new();
    let id = home.accept("7", "42");
    let mut home = home.reopen();
    let again = home.write(|tx| tx.accept(&inbound("7", "42"), &key("7"), later(5)));
    assert_eq!(again, Accepted::Duplicate(id));
    assert_eq!(home.store.queued(&key("7")).unwrap().len(), 1);
}

#[test]
fn a_message_and_its_cursor_are_one_commit() {
    let mut home = Home::new();
    let group = home.store.group().unwrap();
    group
        .job(|tx| {
            tx.accept(&inbound("7", "1"), &key("7"), NOW)?;
            tx.put_cursor(&link(), "2")
        })
        .unwrap();
    drop(group);
    assert_eq!(home.store.cursor(&link()).unwrap(), None);
    home.write(|tx| tx.put_cursor(&link(), "2"));
    home.write(|tx| tx.put_cursor(&link(), "3"));
    assert_eq!(home.reopen().store.cursor(&link()).unwrap().as_deref(), Some("3"));
}

#[test]
fn keys_with_work_lists_waiting_and_running_sessions() {
    let mut home = Home::new();
    let a = home.accept("a", "1");
    let b = home.accept("b", "2");
    home.accept("c", "3");
    let first = turn("a", &[a]);
    let second = turn("b", &[b]);
    home.apply(&start(&first)).unwrap();
    home.apply(&start(&second)).unwrap();
    home.apply(&finish("a", &first, "done")).unwrap();
    assert_eq!(home.store.keys_with_work().unwrap(), [key("b"), key("c")]);
    assert_eq!(home.store.open_turns().unwrap(), std::slice::from_ref(&second));
    assert_eq!(home.store.open_turn_of(&key("b")).unwrap(), Some(second));
    assert_eq!(home.store.open_turn_of(&key("a")).unwrap(), None);
}

#[test]
fn ended_turn_cannot_change_or_end_again() {
    let mut home = Home::new();
    let id = home.accept("7", "1");
    let turn = turn("7", &[id]);
    home.apply(&start(&turn)).unwrap();
    home.apply(&finish("7", &turn, "answer")).unwrap();
    assert!(matches!(home.apply(&[Write::PutTurn(turn.clone())]), Err(Error::Conflict(_))));
    assert!(matches!(home.apply(&start(&turn)), Err(Error::Conflict(_))));
    assert!(matches!(home.apply(&finish("7", &turn, "twice")), Err(Error::Conflict(_))));
    assert_eq!(home.store.items_of_turn(turn.id).unwrap().len(), 1);
    let (outcome, _) = home.store.turn(turn.id).unwrap().unwrap().ended.unwrap();
    assert_eq!(outcome, MessageOutcome::Answered);
}

#[test]
fn a_session_runs_one_turn_at_a_time() {
    let mut home = Home::new();
    let a = home.accept("7", "1");
    let b = home.accept("7", "2");
    home.apply(&start(&turn("7", &[a]))).unwrap();
    assert!(matches!(home.apply(&start(&turn("7", &[b]))), Err(Error::Conflict(_))));
    assert_eq!(home.store.queued(&key("7")).unwrap().len(), 1, "the refused start left no claim");
}

#[test]
fn a_message_belongs_to_one_turn() {
    let mut home = Home::new();
    let a = home.accept("7", "1");
    let b = home.accept("8", "2");
    let first = turn("7", &[a]);
    home.apply(&start(&first)).unwrap();
    home.apply(&[Write::ClaimInbox { inbox: vec![a], turn: first.id }]).expect("again for the same turn");
    let thief = Write::ClaimInbox { inbox: vec![a], turn: turn("8", &[b]).id };
    assert!(matches!(home.apply(&[thief]), Err(Error::Conflict(_))));
}

#[test]
fn first_outcome_is_final() {
    let mut home = Home::new();
    let id = home.accept("7", "1");
    let settle = |outcome| Write::SettleInbox { inbox: vec![id], outcome, at: NOW };
    home.apply(&[settle(MessageOutcome::Cancelled)]).unwrap();
    home.apply(&[settle(MessageOutcome::Answered)]).unwrap();
    let receipt = home.store.receipt_of(id).unwrap().unwrap();
    assert_eq!(receipt.stage, MessageStage::Settled { outcome: MessageOutcome::Cancelled, at: NOW });
    assert_eq!(home.store.settled(MessageOutcome::Cancelled, 10).unwrap().len(), 1);
    let unknown = Write::SettleInbox { inbox: vec![InboxId(999)], outcome: MessageOutcome::Dead, at: NOW };
    assert_eq!(home.apply(&[unknown]), Err(Error::Missing("accepted message")));
}

#[test]
fn receipt_follows_a_message_from_queue_to_delivery() {
    let mut home = Home::new();
    let a = home.accept("7", "1");
    let b = home.accept("7", "2");
    let stage = |home: &Home, id| home.store.receipt_of(id).unwrap().unwrap().stage;
    assert_eq!(stage(&home, b), MessageStage::Queued { position: 2 });
    let turn = turn("7", &[a]);
    home.apply(&start(&turn)).unwrap();
    assert_eq!(stage(&home, a), MessageStage::Running { turn: turn.id, since: NOW });
    assert_eq!(stage(&home, b), MessageStage::Queued { position: 1 });
    home.apply(&finish("7", &turn, "answer")).unwrap();
    let receipt = home.store.receipt_of(a).unwrap().unwrap();
    assert_eq!(receipt.stage, MessageStage::Settled { outcome: MessageOutcome::Answered, at: NOW });
    assert_eq!(receipt.items.len(), 1);
}

#[test]
fn finds_a_message_left_unsettled_by_its_turn() {
    let mut home = Home::new();
    let id = home.accept("7", "1");
    let turn = turn("7", &[id]);
    home.apply(&start(&turn)).unwrap();
    assert_eq!(home.store.stranded().unwrap(), []);
    home.apply(&[Write::EndTurn { turn: turn.id, outcome: MessageOutcome::Answered, at: NOW }]).unwrap();
    assert_eq!(home.store.stranded().unwrap(), [id]);
}

#[test]
fn failed_decision_is_rolled_back_completely() {
    let mut home = Home::new();
    let id = home.accept("7", "1");
    let turn = turn("7", &[id]);
    let mut writes = start(&turn);
    writes.extend(finish("7", &turn, "answer"));
    writes.push(Write::EndTurn { turn: turn.id, outcome: MessageOutcome::Answered, at: NOW });
    assert!(home.apply(&writes).is_err());
    assert_eq!(home.store.queued(&key("7")).unwrap().len(), 1);
    assert_eq!(home.store.turn(turn.id).unwrap(), None);
    assert_eq!(home.store.heads().unwrap(), []);
}

#[test]
fn unreadable_message_does_not_hide_others() {
    let mut home = Home::new();
    let a = home.accept("7", "1");
    let b = home.accept("7", "2");
    let c = home.accept("7", "3");
    home.raw().execute("UPDATE inbox SET message = '{\"torn' WHERE id = ?1", [b.0]).unwrap();
    let queued: Vec<InboxId> = home.store.queued(&key("7")).unwrap().iter().map(|row| row.id).collect();
    assert_eq!(queued, [a, c]);
    assert_eq!(home.store.unreadable_inbox().unwrap(), [b]);
    let dead = |id| Write::SettleInbox { inbox: vec![id], outcome: MessageOutcome::Dead, at: NOW };
    home.apply(&[dead(b), dead(c)]).unwrap();
    assert_eq!(home.store.unreadable_inbox().unwrap(), []);
    assert_eq!(home.store.settled(MessageOutcome::Dead, 10).unwrap().len(), 1);
}

#[test]
fn untimed_fingerprint_outlives_its_message() {
    use petasos_core::message::Fingerprint;
    let mut home = Home::new();
    let untimed = Fingerprint { key: "untimed:abc".into(), within: None, recorded: true };
    let signed = |dedup: &str| {
        let mut message = inbound("7", dedup);
        message.fingerprints = vec![untimed.clone()];
        message
    };
    let first = home.write(|tx| tx.accept(&signed("1"), &key("7"), NOW));
    home.apply(&[Write::SettleInbox {
        inbox: vec![first.id()],
        outcome: MessageOutcome::Cancelled,
        at: NOW,
    }])
    .unwrap();
    let year = later(365 * 24 * 3600);
    while home.write(|tx| tx.prune(year)).rows > 0 {}
    assert_eq!(home.write(|tx| tx.accept(&signed("2"), &key("7"), year)), Accepted::Duplicate(first.id()));
    let draft = draft("7", "x");
    let outcome =
        home.write(|tx| tx.enqueue_once("telegram", "3", std::slice::from_ref(&untimed), &draft, year));
    assert_eq!(outcome, EnqueueOutcome::Received, "over a route that only forwards");
}

#[test]
fn replay_is_recognised_within_its_time_window() {
    use petasos_core::message::Fingerprint;
    use std::time::Duration;
    let mut home = Home::new();
    let signed = |dedup: &str, recorded: bool| {
        let mut message = inbound("7", dedup);
        let within = Some(Duration::from_secs(30));
        message.fingerprints = vec![Fingerprint { key: "replay:ci:abc".into(), within, recorded }];
        message
    };
    let mut accept = |message: petasos_core::Inbound, at| home.write(|tx| tx.accept(&message, &key("7"), at));
    assert!(matches!(accept(signed("0", false), NOW), Accepted::New(_)));
    let first = accept(signed("1", true), NOW);
    assert!(matches!(first, Accepted::New(_)), "what is not recorded is not known");
    assert_eq!(accept(signed("2", true), later(29)), Accepted::Duplicate(first.id()));
    assert_eq!(accept(signed("3", false), later(29)), Accepted::Duplicate(first.id()));
    let second = accept(signed("4", true), later(31));
    assert!(matches!(second, Accepted::New(_)), "its time is over");
    assert_eq!(accept(signed("5", true), later(40)), Accepted::Duplicate(second.id()));
    assert!(matches!(accept(inbound("7", "6"), later(40)), Accepted::New(_)));
}
