//! Retention and pruning.

use std::sync::atomic::Ordering;
use std::time::Duration;

use petasos_core::journal::{MessageOutcome, Write};
use petasos_core::outbox::State;
use petasos_core::session::Entry;
use petasos_core::{InboxId, Millis};
use petasos_store::{Accepted, UnreadableEvent, local_time};

use crate::fixture::{Home, NOW, finish, inbound, key, lane, later, session, start, telegram, turn};

const DAY: u64 = 86_400;
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn pruning_removes_only_finished_items() {
    let mut home = Home::new();
    let answered = home.accept("7", "1");
    let running = home.accept("8", "2");
    let waiting = home.accept("9", "3");
    let done = turn("7", &[answered]);
    let open = turn("8", &[running]);
    home.apply(&start(&done)).unwrap();
    home.apply(&finish("7", &done, "answer")).unwrap();
    home.apply(&start(&open)).unwrap();
    let sent = home.store.due_of_lane(&lane("telegram:7"), 1).unwrap()[0].id;
    home.apply(&[Write::Delivered { item: sent, message: None, at: NOW }]).unwrap();
    let due = home.enqueue("9", "still due").id;
    let dead = home.enqueue("9", "given up").id;
    home.apply(&[Write::DeadLetter { item: dead, doubtful: false, error: "x".into(), at: NOW }]).unwrap();

    assert_eq!(home.write(|tx| tx.prune(later(6 * DAY))).rows, 0);
    home.write(|tx| tx.prune(later(8 * DAY)));
    assert_eq!(home.store.receipt_of(answered).unwrap(), None);
    assert_eq!(home.store.item(sent).unwrap(), None);
    assert_eq!(home.store.turn(done.id).unwrap(), None);
    let again = home.write(|tx| tx.accept(&inbound("7", "1"), &key("7"), later(8 * DAY)));
    assert_eq!(again, Accepted::Duplicate(answered), "its identity is remembered longer");

    home.write(|tx| tx.prune(later(29 * DAY)));
    assert_eq!(home.item(dead).state, State::Dead, "a person has a month to look at it");

    home.write(|tx| tx.prune(later(4000 * DAY)));
    assert!(
        home.store.receipt_of(running).unwrap().is_some()
            && home.store.receipt_of(waiting).unwrap().is_some()
    );
    assert_eq!(home.store.open_turns().unwrap().len(), 1);
    assert_eq!(home.item(due).state, State::Due);
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
fn long_backlog_is_pruned_in_bounded_steps() {
    let mut home = Home::new();
    home.write(|tx| {
        for n in 0..1200 {
            let id = tx.accept(&inbound("7", &n.to_string()), &key("7"), NOW)?.id();
            tx.apply(
                &[Write::SettleInbox { inbox: vec![id], outcome: MessageOutcome::Refused, at: NOW }],
                NOW,
            )?;
        }
        Ok(())
    });
    let mut calls = 1;
    while home.write(|tx| tx.prune(later(40 * DAY))).more {
        calls += 1;
    }
    assert!((3..6).contains(&calls), "{calls}");
    assert_eq!(home.store.latest_inbox_before(&key("7"), InboxId(i64::MAX)).unwrap(), None);
}

#[test]
fn unreadable_events_are_deduplicated_and_bounded() {
    let mut home = Home::new();
    let unread = |event: Option<&str>| UnreadableEvent {
        id: 0,
        link: "telegram/1".into(),
        event: event.map(str::to_owned),
        why: "odd".into(),
        size: 9,
        at: NOW,
    };
    home.write(|tx| tx.record_unreadable(&unread(Some("7")), "{odd"));
    home.write(|tx| tx.record_unreadable(&unread(Some("7")), "{odd"));
    home.write(|tx| tx.record_unreadable(&unread(None), "noise"));
    let kept = home.store.unreadable_events(9).unwrap();
    assert_eq!(kept.iter().map(|it| it.event.as_deref()).collect::<Vec<_>>(), [None, Some("7")]);
    assert_eq!(home.store.unreadable_raw(kept[1].id).unwrap().as_deref(), Some("{odd"));
    home.write(|tx| (0..1000).try_for_each(|_| tx.record_unreadable(&unread(None), "noise")));
    assert_eq!(home.store.unreadable_count().unwrap(), 1000);
    assert_eq!(home.store.unreadable_raw(kept[1].id).unwrap(), None);

    home.write(|tx| tx.prune(later(29 * DAY)));
    assert_eq!(home.store.unreadable_count().unwrap(), 1000);
    while home.write(|tx| tx.prune(later(31 * DAY))).more {}
    assert_eq!(home.store.unreadable_count().unwrap(), 0);
}

#[test]
fn forgets_least_recently_used_topics() {
    let mut home = Home::new();
    let used = |home: &mut Home, name: String, at: Millis| {
        let made =
            Write::TopicCreated { platform: telegram(), chat_id: "7".into(), name, thread: "1".into(), at };
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

/// One signature per millisecond, starting `from` milliseconds after `NOW`.
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
fn forgets_failure_counts_of_removed_sessions() {
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
fn samples_the_size_daily_and_reports_growth() {
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
