//! The smaller tables, and forgetting.

use std::sync::atomic::Ordering;
use std::time::Duration;

use petasos_core::journal::{Outcome, Write};
use petasos_core::outbox::State;
use petasos_core::pairing::{Approval, Book};
use petasos_core::session::Entry;
use petasos_core::{Millis, SessionId};
use petasos_store::{
    Accepted, CompletionState, Error, PairingAnswer, ProcessEnd, ProcessRow, Unread, local_time,
};

use crate::fixture::{Home, NOW, finish, inbound, key, lane, later, session, start, telegram, turn};

const DAY: u64 = 86_400;
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn completed_work_is_reported_once_and_used_with_its_message() {
    let mut home = Home::new();
    let origin = inbound("7", "1").source;
    let report = |home: &mut Home| {
        home.write(|tx| tx.complete_work("d1", (&key("7"), None), &origin, "completion", "{\"exit\":0}", NOW))
    };
    let id = report(&mut home);
    assert_eq!(report(&mut home), id);
    assert_eq!(home.store.queued_completions().unwrap()[0].origin, origin);
    let message = inbound("7", "completion:d1");
    let accepted = home.write(|tx| {
        let accepted = tx.accept(&message, &key("7"), NOW)?;
        assert!(tx.completion_delivered(id, accepted.id())?);
        Ok(accepted.id())
    });
    let mut home = home.reopen();
    assert_eq!(home.store.queued_completions().unwrap(), []);
    let waiting = home.store.completions(&key("7")).unwrap();
    assert_eq!((waiting.len(), waiting[0].state), (1, CompletionState::Delivered));
    assert!(!home.write(|tx| tx.completion_delivered(id, accepted)), "once");
    home.write(|tx| tx.prune(later(400 * DAY)));
    assert_eq!(home.store.completions(&key("7")).unwrap().len(), 1, "not used, not forgotten");
    assert!(!home.store.is_old_news(accepted).unwrap());
    let settle = Write::SettleInbox { inbox: vec![accepted], outcome: Outcome::Answered, at: NOW };
    home.write(|tx| tx.apply(std::slice::from_ref(&settle), NOW));
    assert_eq!(home.store.completions(&key("7")).unwrap(), []);
    assert_eq!(report(&mut home), id, "a late second report changes nothing");
    assert_eq!(home.store.queued_completions().unwrap(), []);
}

#[test]
fn work_that_nobody_can_be_told_of_is_listed_with_its_reason_and_forgotten_later() {
    let mut home = Home::new();
    let origin = inbound("7", "1").source;
    let session = SessionId("s1".into());
    let id = home.write(|tx| {
        let to = (&key("7"), Some(&session));
        tx.complete_work("waits", to, &origin, "completion", "{}", NOW)?;
        tx.complete_work("gone", to, &origin, "completion", "{}", NOW)
    });
    assert!(home.write(|tx| tx.completion_undeliverable(id, "it is over", NOW)));
    assert!(!home.write(|tx| tx.completion_undeliverable(id, "again", NOW)), "once");
    let mut home = home.reopen();
    let untold = home.store.untold_completions(10).unwrap();
    let about: Vec<_> = untold.iter().map(|it| (it.dispatch.as_str(), it.reason.as_deref())).collect();
    assert_eq!(about, [("gone", Some("it is over")), ("waits", None)]);
    assert_eq!(untold[0].session, Some(session));
    assert_eq!(home.store.untold_completions(1).unwrap().len(), 1);
    let queued = home.store.queued_completions().unwrap();
    assert_eq!((queued.len(), queued[0].dispatch.as_str()), (1, "waits"));
    home.write(|tx| tx.prune(later(400 * DAY)));
    let left = home.store.untold_completions(10).unwrap();
    assert_eq!((left.len(), left[0].dispatch.as_str()), (1, "waits"));
}

#[test]
fn work_that_a_session_has_learned_of_is_old_news() {
    let mut home = Home::new();
    let origin = inbound("7", "1").source;
    let (early, late) = home.write(|tx| {
        let report =
            |dispatch: &str| tx.complete_work(dispatch, (&key("7"), None), &origin, "completion", "{}", NOW);
        Ok((report("early")?, report("late")?))
    });
    assert!(home.write(|tx| tx.completion_consumed("early", NOW)));
    assert!(!home.write(|tx| tx.completion_consumed("early", NOW)), "once");
    assert!(!home.write(|tx| tx.completion_consumed("nobody", NOW)));
    let inbox = home.write(|tx| {
        let accepted = tx.accept(&inbound("7", "completion:late"), &key("7"), NOW)?.id();
        assert!(!tx.completion_delivered(early, accepted)?, "nobody is told");
        assert!(tx.completion_delivered(late, accepted)?);
        Ok(accepted)
    });
    assert!(home.write(|tx| tx.completion_consumed("late", NOW)));
    assert!(home.store.is_old_news(inbox).unwrap());
}

#[test]
fn a_process_is_begun_before_it_is_known_and_ends_once() {
    let mut home = Home::new();
    let row = ProcessRow {
        id: "proc_1".into(),
        key: key("7"),
        session: SessionId("s".into()),
        origin: inbound("7", "1").source,
        command: "make".into(),
        cwd: "/".into(),
        promise: "\"completion\"".into(),
        started_at: NOW,
        pid: None,
        born: None,
        end: None,
    };
    home.write(|tx| tx.begin_process(&row));
    assert_eq!(home.store.processes(later(DAY)).unwrap(), std::slice::from_ref(&row));
    home.write(|tx| tx.process_started("proc_1", 77, Some("boot:1")));
    home.write(|tx| tx.put_promise("proc_1", "\"nothing\""));
    let mut home = home.reopen();
    let known = home.store.processes(later(DAY)).unwrap();
    assert_eq!((known[0].pid, known[0].born.as_deref()), (Some(77), Some("boot:1")));
    assert_eq!(known[0].promise, "\"nothing\"");
    let live = |home: &Home, since| home.store.has_live_process(&key("7"), since).unwrap();
    assert!(
        live(&home, NOW.before(HOUR))
            && !live(&home, NOW)
            && !home.store.has_live_process(&key("8"), Millis(0)).unwrap()
    );
    let end =
        |code| ProcessEnd { exit_code: code, reason: "exited".into(), ended_by: String::new(), at: later(5) };
    assert!(home.write(|tx| tx.process_ended("proc_1", &end(Some(-15)))));
    assert!(!home.write(|tx| tx.process_ended("proc_1", &end(None))));
    assert_eq!(home.store.processes(NOW).unwrap()[0].end, Some(end(Some(-15))));
    assert_eq!(home.store.processes(later(5)).unwrap(), []);
    assert!(!live(&home, Millis(0)));
    home.write(|tx| tx.prune(later(8 * DAY)));
    assert_eq!(home.store.processes(NOW).unwrap(), []);
}

#[test]
fn a_login_lasts_as_long_as_it_is_used() {
    let mut home = Home::new();
    let token = home.write(|tx| tx.create_login("laptop", HOUR, NOW));
    let good =
        |home: &Home, seconds| home.store.check_login(token.as_str(), later(seconds)).unwrap().is_some();
    assert!(good(&home, 3599) && !good(&home, 3600));
    assert!(home.write(|tx| tx.touch_login(token.as_str(), HOUR, later(1800))));
    assert!(good(&home, 5399) && !good(&home, 5400));
    assert!(home.store.check_login("0000", NOW).unwrap().is_none());
    let listed = home.store.logins(NOW).unwrap();
    assert_eq!(listed[0].label, "laptop");
    assert!(!token.as_str().starts_with(&listed[0].id));
    assert!(home.write(|tx| tx.revoke_login_id(&listed[0].id)));
    assert!(!good(&home, 0));
    assert_eq!(format!("{token:?}"), "Token(…)");
    let file = std::fs::read(home.path()).unwrap();
    let log = std::fs::read(format!("{}-wal", home.path().display())).unwrap();
    for bytes in [file, log] {
        assert!(!bytes.windows(64).any(|window| window == token.as_str().as_bytes()), "the token is on disk");
    }
}

#[test]
fn a_login_link_works_once_and_in_time() {
    let mut home = Home::new();
    let token = home.write(|tx| tx.create_login_link(HOUR, NOW));
    assert!(!home.write(|tx| tx.redeem_login_link(token.as_str(), later(3600))));
    assert!(home.write(|tx| tx.redeem_login_link(token.as_str(), later(10))));
    assert!(!home.write(|tx| tx.redeem_login_link(token.as_str(), later(11))));
}

#[test]
fn a_stranger_is_approved_by_the_code_they_were_given() {
    let mut home = Home::new();
    let asked = home.write(|tx| tx.pairing_request(telegram(), "u1", Some("Ann"), NOW));
    let PairingAnswer::Code(code) = asked else { panic!("{asked:?}") };
    let mut home = home.reopen();
    assert_eq!(home.write(|tx| tx.pairing_request(telegram(), "u1", None, later(1))), PairingAnswer::Silent);
    assert_eq!(home.write(|tx| tx.pairing_approve(telegram(), "no code", later(2))), None);
    let wrong = home.write(|tx| tx.pairing_approve(telegram(), "AAAAAAAA", later(2)));
    assert!(matches!(wrong, Some(Approval::Wrong { .. })), "{wrong:?}");
    let right = home.write(|tx| tx.pairing_approve(telegram(), &code.to_lowercase(), later(3)));
    assert!(matches!(right, Some(Approval::Approved(_))), "{right:?}");
    assert!(home.store.pairing_book(telegram()).unwrap().is_paired("u1"));
    assert_eq!(home.store.pairing_books().unwrap().len(), 1);
    assert!(home.write(|tx| tx.pairing_revoke(telegram(), "u1")));
    assert!(!home.write(|tx| tx.pairing_revoke(telegram(), "u1")));
}

#[test]
fn unlocking_pairing_forgets_the_failed_approvals() {
    let mut home = Home::new();
    let locked = Book { failures: vec![NOW; 5], locked_until: Some(later(3600)), ..Book::default() };
    home.write(|tx| tx.put_pairing_book(telegram(), &locked));
    assert!(home.write(|tx| tx.pairing_unlock(telegram())));
    assert_eq!(home.store.pairing_book(telegram()).unwrap(), Book::default());
    assert!(!home.write(|tx| tx.pairing_unlock(telegram())), "it was not locked any more");
}

#[test]
fn a_stranger_who_is_not_answered_costs_no_write() {
    let mut home = Home::new();
    home.write(|tx| tx.pairing_request(telegram(), "u1", None, NOW));
    let other = home.raw();
    let version = || other.query_row("PRAGMA data_version", [], |row| row.get::<_, i64>(0)).unwrap();
    let before = version();
    assert_eq!(home.write(|tx| tx.pairing_request(telegram(), "u1", None, later(1))), PairingAnswer::Silent);
    assert_eq!(version(), before);
    home.write(|tx| tx.pairing_request(telegram(), "u2", None, later(1)));
    assert_ne!(version(), before);
}

#[test]
fn a_pairing_book_that_cannot_be_read_lets_nobody_in_and_is_kept() {
    let mut home = Home::new();
    let asked = home.write(|tx| tx.pairing_request(telegram(), "u1", None, NOW));
    let PairingAnswer::Code(code) = asked else { panic!("{asked:?}") };
    home.write(|tx| tx.pairing_approve(telegram(), &code, NOW));
    assert!(home.store.is_paired(telegram(), "u1").unwrap());
    assert!(!home.store.is_paired(telegram(), "u2").unwrap());
    home.raw().execute("UPDATE pairing SET book = 'torn'", []).unwrap();
    assert!(!home.store.is_paired(telegram(), "u1").unwrap());
    assert_eq!(home.write(|tx| tx.pairing_request(telegram(), "u1", None, NOW)), PairingAnswer::Silent);
    let kept: String = home.raw().query_row("SELECT book FROM pairing", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, "torn");
    assert_eq!(home.store.pairing_book(telegram()), Err(Error::Unreadable("pairing book")));
}

#[test]
fn an_installation_keeps_its_name() {
    let mut home = Home::new();
    let id = home.write(|tx| tx.install_id());
    assert_eq!(home.reopen().write(|tx| tx.install_id()), id);
}

#[test]
fn forgetting_takes_only_what_is_over() {
    let mut home = Home::new();
    let answered = home.accept("7", "1");
    let running = home.accept("8", "2");
    let waiting = home.accept("9", "3");
    let (done, open) = (turn("7", &[answered]), turn("8", &[running]));
    home.apply(&start(&done)).unwrap();
    home.apply(&finish("7", &done, "answer")).unwrap();
    home.apply(&start(&open)).unwrap();
    let sent = home.store.due_of_lane(&lane("telegram:7"), 1).unwrap()[0].id;
    home.apply(&[Write::Delivered { item: sent, message: None, at: NOW }]).unwrap();
    let owed = home.owe("9", "still owed").id;
    let dead = home.owe("9", "given up").id;
    home.apply(&[Write::Bury { item: dead, doubtful: false, error: "x".into(), at: NOW }]).unwrap();

    assert_eq!(home.write(|tx| tx.prune(later(6 * DAY))).rows, 0);
    home.write(|tx| tx.prune(later(8 * DAY)));
    assert_eq!(home.store.where_is(answered).unwrap(), None);
    assert_eq!(home.store.item(sent).unwrap(), None);
    assert_eq!(home.store.turn(done.id).unwrap(), None);
    let again = home.write(|tx| tx.accept(&inbound("7", "1"), &key("7"), later(8 * DAY)));
    assert_eq!(again, Accepted::Duplicate(answered), "its identity is remembered longer");

    home.write(|tx| tx.prune(later(29 * DAY)));
    assert_eq!(home.item(dead).state, State::Dead, "a person has a month to look at it");

    home.write(|tx| tx.prune(later(4000 * DAY)));
    assert!(
        home.store.where_is(running).unwrap().is_some() && home.store.where_is(waiting).unwrap().is_some()
    );
    assert_eq!(home.store.open_turns().unwrap().len(), 1);
    assert_eq!(home.item(owed).state, State::Due);
    assert_eq!(home.store.item(dead).unwrap(), None);
    for (chat, dedup) in [("8", "2"), ("9", "3")] {
        let again = home.write(|tx| tx.accept(&inbound(chat, dedup), &key(chat), later(4000 * DAY)));
        assert!(matches!(again, Accepted::Duplicate(_)), "{dedup} has no outcome yet");
    }
    assert!(matches!(
        home.write(|tx| tx.accept(&inbound("7", "1"), &key("7"), later(4000 * DAY))),
        Accepted::New(id) if id > waiting
    ));
}

#[test]
fn a_long_backlog_is_forgotten_in_bounded_steps() {
    let mut home = Home::new();
    home.write(|tx| {
        for n in 0..1200 {
            let id = tx.accept(&inbound("7", &n.to_string()), &key("7"), NOW)?.id();
            tx.apply(&[Write::SettleInbox { inbox: vec![id], outcome: Outcome::Refused, at: NOW }], NOW)?;
        }
        Ok(())
    });
    let mut calls = 1;
    while home.write(|tx| tx.prune(later(40 * DAY))).more {
        calls += 1;
    }
    assert!((3..6).contains(&calls), "{calls}");
    assert_eq!(home.store.latest_of(&key("7")).unwrap(), None);
}

#[test]
fn what_could_not_be_read_is_kept_once_and_the_newest_thousand_stay() {
    let mut home = Home::new();
    let unread = |event: Option<&str>| Unread {
        id: 0,
        link: "telegram/1".into(),
        event: event.map(str::to_owned),
        why: "odd".into(),
        size: 9,
        at: NOW,
    };
    home.write(|tx| tx.keep_unreadable(&unread(Some("7")), "{odd"));
    home.write(|tx| tx.keep_unreadable(&unread(Some("7")), "{odd"));
    home.write(|tx| tx.keep_unreadable(&unread(None), "noise"));
    let kept = home.store.unreadable_events(9).unwrap();
    assert_eq!(kept.iter().map(|it| it.event.as_deref()).collect::<Vec<_>>(), [None, Some("7")]);
    assert_eq!(home.store.unreadable_raw(kept[1].id).unwrap().as_deref(), Some("{odd"));
    home.write(|tx| (0..1000).try_for_each(|_| tx.keep_unreadable(&unread(None), "noise")));
    assert_eq!(home.store.unreadable_count().unwrap(), 1000);
    assert_eq!(home.store.unreadable_raw(kept[1].id).unwrap(), None);

    home.write(|tx| tx.prune(later(29 * DAY)));
    assert_eq!(home.store.unreadable_count().unwrap(), 1000);
    while home.write(|tx| tx.prune(later(31 * DAY))).more {}
    assert_eq!(home.store.unreadable_count().unwrap(), 0);
}

#[test]
fn forgets_topics_that_were_not_used_for_longest() {
    let mut home = Home::new();
    let used = |home: &mut Home, name: String, at: Millis| {
        let made =
            Write::TopicMade { platform: telegram(), chat_id: "7".into(), name, thread: "1".into(), at };
        home.write(|tx| tx.apply(&[made], at));
    };
    let is_known = |home: &Home, name: &str| home.store.topic(telegram(), "7", name).unwrap().is_some();
    used(&mut home, "used".into(), NOW);
    used(&mut home, "unused".into(), NOW);
    used(&mut home, "used".into(), later(DAY));
    assert_eq!(home.write(|tx| tx.prune_topics(later(DAY))), 1);
    assert_eq!((is_known(&home, "used"), is_known(&home, "unused")), (true, false));
    (0..999).for_each(|number| used(&mut home, number.to_string(), later(DAY + 2)));
    used(&mut home, "used".into(), later(DAY + 3));
    used(&mut home, "one more".into(), later(DAY + 3));
    assert!(is_known(&home, "used"), "one that was used before goes");
    assert_eq!(home.write(|tx| tx.prune_topics(later(2 * DAY))), 500, "a batch");
}

/// One in each millisecond, the first one `from` milliseconds after `NOW`.
fn add_signatures(home: &Home, from: u64, count: u64) {
    let rows = format!(
        "WITH RECURSIVE n (i) AS (SELECT {from} UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {from} + {count})
         INSERT INTO signatures (key, inbox, at) SELECT 'k' || i, 1, {} + i FROM n",
        NOW.0
    );
    home.raw().execute_batch(&rows).unwrap();
}

#[test]
fn keeps_the_newest_signatures_and_reads_only_new_ones() {
    let mut home = Home::new();
    let left = |home: &Home| -> (i64, i64) {
        let read = "SELECT count(*), min(at) FROM signatures";
        home.raw().query_row(read, [], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? - NOW.0 as i64))).unwrap()
    };
    add_signatures(&home, 0, 250_600);
    assert!(home.write(|tx| tx.prune(later(DAY))).more);
    assert!(!home.write(|tx| tx.prune(later(DAY))).more);
    assert_eq!(left(&home), (250_000, 600));
    add_signatures(&home, DAY * 1000, 7);
    let steps = home.store.count_steps();
    home.write(|tx| tx.prune(later(DAY + 60)));
    assert_eq!(left(&home), (250_000, 607));
    assert!(steps.load(Ordering::Relaxed) < 5_000, "{steps:?}");
}

#[test]
fn counts_signatures_once_while_there_are_few() {
    let mut home = Home::new();
    home.write(|tx| tx.prune(NOW));
    add_signatures(&home, 0, 20_000);
    home.write(|tx| tx.prune(later(DAY)));
    let steps = home.store.count_steps();
    home.write(|tx| tx.prune(later(DAY + 60)));
    assert!(steps.load(Ordering::Relaxed) < 5_000, "{steps:?}");
}

#[test]
fn forgets_failure_counts_of_conversations_that_are_gone() {
    let mut home = Home::new();
    home.write(|tx| {
        tx.put_entry(&Entry::new(key("7"), session("s7"), None, local_time(NOW)))?;
        tx.count_crash(&[key("7"), key("8")])
    });
    home.write(|tx| tx.prune(NOW));
    let counted: i64 = home.raw().query_row("SELECT count(*) FROM failures", [], |row| row.get(0)).unwrap();
    assert!(counted == 1 && home.write(|tx| tx.forget_failures(&key("7"))));
}

#[test]
fn notes_the_size_once_a_day_and_tells_the_growth() {
    let mut home = Home::new();
    let fill = |home: &mut Home, name: &str| home.write(|tx| tx.put_meta(name, &"x".repeat(1 << 20)));
    let growth = |home: &Home, at| home.store.growth_per_day(at).unwrap();
    home.write(|tx| tx.sample_size(NOW));
    assert_eq!(growth(&home, later(DAY - 1)), None, "less than a day");
    fill(&mut home, "first");
    home.write(|tx| tx.sample_size(later(HOUR.as_secs())));
    let daily = growth(&home, later(2 * DAY)).unwrap();
    assert!((500_000..600_000).contains(&daily), "{daily}: a megabyte in two days, from the first sample");
    (1..=15).for_each(|day| home.write(|tx| tx.sample_size(later(day * DAY))));
    assert_eq!(growth(&home, later(16 * DAY)), Some(0), "the first sample is forgotten");
}
