//! Questions, stored approvals, and amended messages.

use petasos_approval::{Category, Choice};
use petasos_core::journal::Write;
use petasos_core::outbox::{Button, OldPreview, Preview, State};
use petasos_core::{OutboxId, TurnId};
use petasos_store::QuestionRow;

use crate::fixture::{Home, NOW, draft, key, lane, later, session, source};

fn question(id: &str, chat: &str) -> QuestionRow {
    QuestionRow {
        id: id.into(),
        key: key(chat),
        session: session("s1"),
        turn: TurnId(5),
        call: format!("call-{id}"),
        origin: source(chat),
        kind: "approval".into(),
        body: "{}".into(),
        outbox: Some(OutboxId(9)),
        asked_row: None,
        ended_row: None,
        asked_at: NOW,
        expires_at: later(60),
        ending: None,
    }
}

fn ids(rows: &[QuestionRow]) -> Vec<&str> {
    rows.iter().map(|row| row.id.as_str()).collect()
}

#[test]
fn questions_are_listed_in_order_and_end_once() {
    let mut home = Home::new();
    for row in [question("z", "7"), question("a", "7"), question("b", "8")] {
        home.write(|tx| tx.insert_question(&row));
    }
    let mut home = home.crash();
    assert_eq!(ids(&home.store.open_questions(&key("7")).unwrap()), ["z", "a"]);
    assert_eq!(home.store.question("z").unwrap(), Some(question("z", "7")));
    assert!(home.write(|tx| tx.end_question("z", "\"yes\"", NOW)));
    assert!(!home.write(|tx| tx.end_question("z", "\"no\"", NOW)), "the first end stands");
    assert_eq!(home.store.question("z").unwrap().unwrap().ending.as_deref(), Some("\"yes\""));
    assert_eq!(ids(&home.store.open_questions(&key("7")).unwrap()), ["a"]);
    assert_eq!(ids(&home.store.all_open_questions().unwrap()), ["a", "b"]);
    assert_eq!(ids(&home.store.questions_of_turn(TurnId(5)).unwrap()), ["z", "a", "b"]);
    home.write(|tx| tx.prune(later(8 * 24 * 3600)));
    assert_eq!(
        ids(&home.store.questions_of_turn(TurnId(5)).unwrap()),
        ["a", "b"],
        "what waits is never pruned"
    );
}

#[test]
fn approvals_apply_within_the_scope_of_the_choice() {
    let mut home = Home::new();
    let here = session("s1");
    let there = session("s2");
    home.write(|tx| {
        tx.approve(&here, &[Category::Git, Category::Obscured], Choice::Session, NOW)?;
        tx.approve(&here, &[Category::Sql], Choice::Always, NOW)?;
        tx.approve(&here, &[Category::Disk], Choice::Once, NOW)
    });
    let mut home = home.crash();
    let covers = |home: &Home, session: &petasos_core::SessionId, category| {
        home.store.approved(session).unwrap().covers(session.as_str(), category)
    };
    for (session, category, want) in [
        (&here, Category::Git, true),
        (&there, Category::Git, false),
        (&there, Category::Sql, true),
        (&here, Category::Obscured, false),
        (&here, Category::Disk, false),
    ] {
        assert_eq!(covers(&home, session, category), want, "{session} {category:?}");
    }
    let listed = home.store.all_approved().unwrap();
    let listed: Vec<_> = listed.iter().map(|it| (it.kind.as_str(), it.session.as_ref())).collect();
    assert_eq!(listed, [("sql_destructive", None), ("git_destructive", Some(&here))], "everywhere first");
    for (kind, want) in [("disk", 0), ("sql_destructive", 1), ("sql_destructive", 0)] {
        assert_eq!(home.write(|tx| tx.forget_approved(Some(kind))), want, "{kind}");
    }
    assert!(!covers(&home, &here, Category::Sql) && covers(&home, &here, Category::Git));
    assert_eq!(home.write(|tx| tx.forget_approved(None)), 1);
    assert!(!covers(&home, &here, Category::Git));
}

fn question_message(home: &mut Home) -> OutboxId {
    let buttons = vec![Button { label: "Yes".into(), data: "ea:once:q".into() }];
    let id = home
        .write(|tx| tx.enqueue_new(&petasos_core::outbox::Draft { buttons, ..draft("7", "May I?") }, NOW));
    assert_eq!(home.item(id).draft.buttons.len(), 1);
    id
}

#[test]
fn unsent_message_is_amended_in_place() {
    let mut home = Home::new();
    let id = question_message(&mut home);
    home.write(|tx| tx.amend(id, "Denied.", NOW));
    let item = home.item(id);
    assert_eq!((item.draft.text.as_str(), item.draft.buttons.len(), item.state), ("Denied.", 0, State::Due));
    assert_eq!(home.store.due_of_lane(&lane("telegram:7"), 9).unwrap().len(), 1);
}

#[test]
fn sent_message_is_amended_by_its_platform_id() {
    for known in [true, false] {
        let mut home = Home::new();
        let id = question_message(&mut home);
        home.apply(&[Write::Sending { item: id }]).unwrap();
        let delivered = Write::Delivered { item: id, message: Some("42".into()), at: NOW };
        if known {
            home.apply(std::slice::from_ref(&delivered)).unwrap();
        }
        home.write(|tx| tx.amend(id, "Denied.", NOW));
        if !known {
            let waiting = home.store.due_of_lane(&lane("telegram:7"), 9).unwrap().pop().unwrap();
            assert_eq!(waiting.preview, Preview::None, "its name is not known yet");
            home.apply(&[delivered]).unwrap();
        }
        let due = home.store.due_of_lane(&lane("telegram:7"), 9).unwrap();
        assert_eq!(due.len(), 1);
        assert_eq!((&due[0].preview, due[0].draft.text.as_str()), (&Preview::Shown("42".into()), "Denied."));
        assert!(due[0].id > id && due[0].draft.buttons.is_empty());
        let item = due[0].id;
        for (left, preview) in
            [(OldPreview::MaybeVisible, Preview::Requested), (OldPreview::Gone, Preview::None)]
        {
            home.apply(&[Write::Sending { item }, Write::SendAsNew { item, old_preview: left }]).unwrap();
            let anew = home.item(item);
            assert_eq!((anew.preview, anew.state, anew.doubtful), (preview, State::Due, false));
        }
    }
}

#[test]
fn amending_a_dead_item_sends_a_new_message() {
    let mut home = Home::new();
    let id = question_message(&mut home);
    home.apply(&[Write::DeadLetter { item: id, doubtful: false, error: "x".into(), at: NOW }]).unwrap();
    home.write(|tx| tx.amend(id, "Denied.", NOW));
    let due = home.store.due_of_lane(&lane("telegram:7"), 9).unwrap();
    assert_eq!((due.len(), &due[0].preview), (1, &Preview::None));
}
