//! Runs and delegations: each ends once.

use petasos_core::RunId;
use petasos_core::journal::{MessageOutcome, Write};
use petasos_store::{DelegationRow, NewRun, RunEnd};

use crate::fixture::{Home, NOW, key, later, session, source};

#[test]
fn run_ends_when_its_message_settles_without_a_turn() {
    let mut home = Home::new();
    let inbox = home.accept("7", "1");
    let session = session("s1");
    let key = key("7");
    let id = RunId::from("r1");
    let new = NewRun { id: &id, inbox, owner: "o", session: &session, key: &key, options: "{}" };
    home.write(|tx| tx.begin_run(&new, NOW));
    assert_eq!(home.store.run(&id).unwrap().unwrap().end, None);
    for (outcome, at) in [(MessageOutcome::Cancelled, later(5)), (MessageOutcome::Refused, later(6))] {
        home.apply(&[Write::SettleInbox { inbox: vec![inbox], outcome, at }]).unwrap();
    }
    let RunEnd { outcome, at, answer, .. } = home.store.run(&id).unwrap().unwrap().end.unwrap();
    assert_eq!((outcome, at, answer), (MessageOutcome::Cancelled, later(5), None));
}

#[test]
fn delegation_keeps_its_first_end() {
    let mut home = Home::new();
    let row = DelegationRow {
        id: "d1".into(),
        key: key("7"),
        session: session("s1"),
        origin: source("7"),
        tasks: "[]".into(),
        started_at: NOW,
        status: None,
    };
    home.write(|tx| tx.begin_delegation(&row));
    assert_eq!(home.store.open_delegations().unwrap(), std::slice::from_ref(&row));
    for (id, status, ended) in [("d1", "done", true), ("d1", "failed", false), ("unknown", "done", false)] {
        assert_eq!(
            home.write(|tx| tx.delegation_ended(&id.into(), status, "{}", NOW)),
            ended,
            "{id} {status}"
        );
    }
    assert_eq!(home.store.open_delegations().unwrap(), []);
    assert_eq!(home.store.delegation(&row.id).unwrap().unwrap().status.as_deref(), Some("done"));
}
