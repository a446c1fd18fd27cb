//! `sessions archive`, `sessions restore`, and the retention check of `doctor`.

use petasos_core::message::ChatType;
use petasos_core::session::Entry;
use petasos_core::transcript::Message;
use petasos_core::{Millis, Platform, SessionId, SessionKey, Source};
use petasos_store::{Store, local_time};

use crate::support::{ProgramFixture, eventually, expect_failure, expect_json, expect_success, stdout};

const DAY: u64 = 24 * 3600 * 1000;

fn now() -> u64 {
    petasos_gateway::clock::now().0
}

#[test]
fn doctor_announces_archiving() {
    let fixture = ProgramFixture::new();
    let announce = |at: u64| {
        let mut store = Store::open(fixture.database()).expect("a database");
        store.write(|tx| tx.put_meta("archive_announced_at", &at.to_string())).expect("stored");
    };
    announce(now());
    assert!(stdout(&fixture.run(&["doctor"])).contains("warn retention"), "the notice period has not passed");
    announce(now() - 8 * DAY);
    assert!(stdout(&fixture.run(&["doctor"])).contains("ok   retention"), "the notice period has passed");
}

/// Stores a session with two messages of this time.
fn store_session(store: &mut Store, chat: &str, at: Millis) -> SessionId {
    let id = SessionId(format!("old_{chat}"));
    let key = SessionKey(format!("agent:main:telegram:dm:{chat}"));
    let source = Source::new(Platform::parse("telegram").expect("known"), ChatType::Dm, chat);
    let stored = store.write(|tx| {
        tx.bind_session(&Entry::new(key.clone(), id.clone(), Some(source.clone()), local_time(at)), at)?;
        tx.append(&id, &Message::user("about umbrellas", at))?;
        tx.append(&id, &Message::assistant("about lanterns", at)).map(drop)
    });
    stored.expect("stored");
    id
}

#[test]
fn archived_conversations_are_listed_and_restored() {
    let mut fixture =
        ProgramFixture::with_config("retention: {max_age_days: 30, notice_days: 0, every_seconds: 1}\n");
    let list = &["sessions", "archive"];
    assert!(expect_success(&fixture.run(list)).contains("No archived conversations"));
    let id = store_session(
        &mut Store::open(fixture.database()).expect("a database"),
        "7",
        Millis(now() - 40 * DAY),
    );
    fixture.start();
    eventually("archived", || expect_success(&fixture.run(list)).contains(id.as_str()));
    let listed = expect_json(&fixture.run(&["sessions", "archive", "--json"]));
    assert_eq!((&listed[0]["messages"], &listed[0]["title"]), (&2.into(), &"about umbrellas".into()));
    let file = std::path::PathBuf::from(listed[0]["file"].as_str().expect("a path"));
    assert!(file.exists());
    expect_failure(&fixture.run(&["sessions", "show", id.as_str()]), 1);
    fixture.terminate();
    let restored = expect_success(&fixture.run(&["sessions", "restore", id.as_str()]));
    assert!(restored.contains("with 2 messages"), "{restored}");
    assert!(expect_success(&fixture.run(&["sessions", "show", id.as_str()])).contains("about lanterns"));
    assert!(expect_success(&fixture.run(list)).contains("No archived conversations") && !file.exists());
    expect_failure(&fixture.run(&["sessions", "restore", id.as_str()]), 1);
}
