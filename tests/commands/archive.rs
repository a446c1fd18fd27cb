//! `sessions archive`, `sessions restore` and what `doctor` tells of retention.

use petasos_core::message::ChatType;
use petasos_core::session::Entry;
use petasos_core::transcript::Message;
use petasos_core::{Millis, Platform, SessionId, SessionKey, Source};
use petasos_store::{Store, local_time};

use crate::support::{Bench, eventually, failed, fine, json, stdout};

const DAY: u64 = 24 * 3600 * 1000;

fn now() -> u64 {
    petasos_gateway::clock::now().0
}

#[test]
fn doctor_tells_from_when_on_conversations_are_archived() {
    let bench = Bench::new();
    let announce = |at: u64| {
        let mut store = Store::open(bench.database()).expect("a database");
        store.write(|tx| tx.put_meta("archive_announced_at", &at.to_string())).expect("stored");
    };
    announce(now());
    assert!(stdout(&bench.run(&["doctor"])).contains("warn retention"), "it is still to come");
    announce(now() - 8 * DAY);
    assert!(stdout(&bench.run(&["doctor"])).contains("ok   retention"), "the notice period is over");
}

/// A conversation of a chat with two messages, used then.
fn talk(store: &mut Store, chat: &str, at: Millis) -> SessionId {
    let (id, key) = (SessionId(format!("old_{chat}")), SessionKey(format!("agent:main:telegram:dm:{chat}")));
    let source = Source::new(Platform::parse("telegram").expect("known"), ChatType::Dm, chat);
    let begin = store.write(|tx| {
        tx.bind_session(&Entry::new(key.clone(), id.clone(), Some(source.clone()), local_time(at)), at)?;
        tx.append(&id, &Message::user("about umbrellas", at))?;
        tx.append(&id, &Message::assistant("about lanterns", at)).map(drop)
    });
    begin.expect("stored");
    id
}

#[test]
fn archived_conversations_are_listed_and_restored() {
    let mut bench = Bench::with("retention: {max_age_days: 30, notice_days: 0, every_seconds: 1}\n");
    let home = &["sessions", "archive"];
    assert!(fine(&bench.run(home)).contains("no conversation has been archived"));
    let id = talk(&mut Store::open(bench.database()).expect("a database"), "7", Millis(now() - 40 * DAY));
    bench.start();
    eventually("archived", || fine(&bench.run(home)).contains(id.as_str()));
    let listed = json(&bench.run(&["sessions", "archive", "--json"]));
    assert_eq!((&listed[0]["messages"], &listed[0]["title"]), (&2.into(), &"about umbrellas".into()));
    let file = std::path::PathBuf::from(listed[0]["file"].as_str().expect("a path"));
    assert!(file.exists());
    failed(&bench.run(&["sessions", "show", id.as_str()]), 1);
    bench.terminate();
    let restored = fine(&bench.run(&["sessions", "restore", id.as_str()]));
    assert!(restored.contains("is back, with 2 messages"), "{restored}");
    assert!(fine(&bench.run(&["sessions", "show", id.as_str()])).contains("about lanterns"));
    assert!(fine(&bench.run(home)).contains("no conversation has been archived") && !file.exists());
    failed(&bench.run(&["sessions", "restore", id.as_str()]), 1);
}
