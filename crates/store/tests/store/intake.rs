//! Accepting, claiming, settling; turns that run once.

use petasos_core::journal::{Outcome, Write};
use petasos_core::{InboxId, SessionKey};
use petasos_store::{Accepted, Error, Owed, Stage};

use crate::fixture::{Home, NOW, draft, finish, inbound, key, later, link, start, turn};

#[test]
fn the_same_message_is_accepted_once_across_a_restart() {
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
fn sessions_with_work_are_those_that_wait_or_run() {
    let mut home = Home::new();
    let (a, b) = (home.accept("a", "1"), home.accept("b", "2"));
    home.accept("c", "3");
    let (first, second) = (turn("a", &[a]), turn("b", &[b]));
    home.apply(&start(&first)).unwrap();
    home.apply(&start(&second)).unwrap();
    home.apply(&finish("a", &first, "done")).unwrap();
    assert_eq!(home.store.keys_with_work().unwrap(), [key("b"), key("c")]);
    assert_eq!(home.store.open_turns().unwrap(), std::slice::from_ref(&second));
    assert_eq!(home.store.open_turn_of(&key("b")).unwrap(), Some(second));
    assert_eq!(home.store.open_turn_of(&key("a")).unwrap(), None);
}

#[test]
fn a_turn_that_has_ended_neither_runs_nor_ends_again() {
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
    assert_eq!(outcome, Outcome::Answered);
}

#[test]
fn a_session_runs_one_turn_at_a_time() {
    let mut home = Home::new();
    let (a, b) = (home.accept("7", "1"), home.accept("7", "2"));
    home.apply(&start(&turn("7", &[a]))).unwrap();
    assert!(matches!(home.apply(&start(&turn("7", &[b]))), Err(Error::Conflict(_))));
    assert_eq!(home.store.queued(&key("7")).unwrap().len(), 1, "the refused start left no claim");
}

#[test]
fn a_message_belongs_to_one_turn() {
    let mut home = Home::new();
    let (a, b) = (home.accept("7", "1"), home.accept("8", "2"));
    let first = turn("7", &[a]);
    home.apply(&start(&first)).unwrap();
    home.apply(&[Write::ClaimInbox { inbox: vec![a], turn: first.id }]).expect("again for the same turn");
    let thief = Write::ClaimInbox { inbox: vec![a], turn: turn("8", &[b]).id };
    assert!(matches!(home.apply(&[thief]), Err(Error::Conflict(_))));
}

#[test]
fn the_first_outcome_stands() {
    let mut home = Home::new();
    let id = home.accept("7", "1");
    let settle = |outcome| Write::SettleInbox { inbox: vec![id], outcome, at: NOW };
    home.apply(&[settle(Outcome::Cancelled)]).unwrap();
    home.apply(&[settle(Outcome::Answered)]).unwrap();
    let place = home.store.where_is(id).unwrap().unwrap();
    assert_eq!(place.stage, Stage::Settled { outcome: Outcome::Cancelled, at: NOW });
    assert_eq!(home.store.settled(Outcome::Cancelled, 10).unwrap().len(), 1);
    let unknown = Write::SettleInbox { inbox: vec![InboxId(999)], outcome: Outcome::Dead, at: NOW };
    assert_eq!(home.apply(&[unknown]), Err(Error::Missing("accepted message")));
}

#[test]
fn a_message_can_be_followed_from_the_queue_to_the_chat() {
    let mut home = Home::new();
    let (a, b) = (home.accept("7", "1"), home.accept("7", "2"));
    let stage = |home: &Home, id| home.store.where_is(id).unwrap().unwrap().stage;
    assert_eq!(stage(&home, b), Stage::Queued { place: 2 });
    let turn = turn("7", &[a]);
    home.apply(&start(&turn)).unwrap();
    assert_eq!(stage(&home, a), Stage::Running { turn: turn.id, since: NOW });
    assert_eq!(stage(&home, b), Stage::Queued { place: 1 });
    home.apply(&finish("7", &turn, "answer")).unwrap();
    let place = home.store.where_is(a).unwrap().unwrap();
    assert_eq!(place.stage, Stage::Settled { outcome: Outcome::Answered, at: NOW });
    assert_eq!(place.said.len(), 1);
    assert_eq!(home.store.latest_of(&key("7")).unwrap(), Some(b));
    assert_eq!(home.store.latest_of(&SessionKey("nobody".into())).unwrap(), None);
}

#[test]
fn a_message_whose_turn_forgot_it_is_found() {
    let mut home = Home::new();
    let id = home.accept("7", "1");
    let turn = turn("7", &[id]);
    home.apply(&start(&turn)).unwrap();
    assert_eq!(home.store.stranded().unwrap(), []);
    home.apply(&[Write::EndTurn { turn: turn.id, outcome: Outcome::Answered, at: NOW }]).unwrap();
    assert_eq!(home.store.stranded().unwrap(), [id]);
}

#[test]
fn a_decision_that_fails_halfway_leaves_nothing_of_itself() {
    let mut home = Home::new();
    let id = home.accept("7", "1");
    let turn = turn("7", &[id]);
    let mut writes = start(&turn);
    writes.extend(finish("7", &turn, "answer"));
    writes.push(Write::EndTurn { turn: turn.id, outcome: Outcome::Answered, at: NOW });
    assert!(home.apply(&writes).is_err());
    assert_eq!(home.store.queued(&key("7")).unwrap().len(), 1);
    assert_eq!(home.store.turn(turn.id).unwrap(), None);
    assert_eq!(home.store.next_due().unwrap(), None);
}

#[test]
fn a_message_that_cannot_be_read_does_not_hide_the_others() {
    let mut home = Home::new();
    let (a, b, c) = (home.accept("7", "1"), home.accept("7", "2"), home.accept("7", "3"));
    home.raw().execute("UPDATE inbox SET message = '{\"torn' WHERE id = ?1", [b.0]).unwrap();
    let queued: Vec<InboxId> = home.store.queued(&key("7")).unwrap().iter().map(|row| row.id).collect();
    assert_eq!(queued, [a, c]);
    assert_eq!(home.store.unreadable_inbox().unwrap(), [b]);
    let dead = |id| Write::SettleInbox { inbox: vec![id], outcome: Outcome::Dead, at: NOW };
    home.apply(&[dead(b), dead(c)]).unwrap();
    assert_eq!(home.store.unreadable_inbox().unwrap(), []);
    assert_eq!(home.store.settled(Outcome::Dead, 10).unwrap().len(), 1);
}

#[test]
fn a_fingerprint_without_a_time_outlives_the_message_it_belongs_to() {
    use petasos_core::message::Fingerprint;
    let mut home = Home::new();
    let untimed = Fingerprint { key: "untimed:abc".into(), within: None, recorded: true };
    let signed = |dedup: &str| {
        let mut message = inbound("7", dedup);
        message.fingerprints = vec![untimed.clone()];
        message
    };
    let first = home.write(|tx| tx.accept(&signed("1"), &key("7"), NOW));
    home.apply(&[Write::SettleInbox { inbox: vec![first.id()], outcome: Outcome::Cancelled, at: NOW }])
        .unwrap();
    let year = later(365 * 24 * 3600);
    while home.write(|tx| tx.prune(year)).rows > 0 {}
    assert_eq!(home.write(|tx| tx.accept(&signed("2"), &key("7"), year)), Accepted::Duplicate(first.id()));
    let draft = draft("7", "x");
    let owed = home.write(|tx| tx.owe_once("telegram", "3", std::slice::from_ref(&untimed), &draft, year));
    assert_eq!(owed, Owed::Received, "over a way that only passes on");
}

#[test]
fn replay_under_another_identity_is_the_same_message_within_its_time() {
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
