//! A gap that no session bridges is caught up over REST, within its bounds.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use petasos_fakes::discord::{Fault, Incoming};
use petasos_platforms::discord::Config;

use crate::rig::{DIRECT, GUILD, IDENTIFY, RESUME, ROOM, Rig, USER, rig, rig_on, texts};

const HOUR: Duration = Duration::from_secs(3600);

/// A link that has heard one private message, and is gone; the service has forgotten its session.
async fn left_behind() -> (Rig, String) {
    left_behind_for(Duration::ZERO).await
}

/// The same, and the message is this old.
async fn left_behind_for(ago: Duration) -> (Rig, String) {
    let rig = rig();
    let (cursor, _) = rig
        .listen(None, async |gateway| {
            gateway.settle("session1").await;
            rig.fake.push(Incoming::text(DIRECT, USER, "before").ago(ago));
            gateway.take(1).await;
            gateway.cursor.clone().expect("a cursor")
        })
        .await;
    rig.fake.forget_sessions();
    (rig, cursor)
}

/// What a new link with this cursor hears first.
async fn heard(old: &Rig, cursor: &str, count: usize, change: impl FnOnce(&mut Config)) -> Vec<String> {
    let rig = rig_on(old.fake.clone(), change);
    let session = format!("session{}", old.count(IDENTIFY) + 1);
    let (events, _) = rig
        .listen(Some(cursor), async |gateway| {
            let events = gateway.take(count).await;
            gateway.settle(&session).await;
            events
        })
        .await;
    texts(&events).into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn what_was_written_meanwhile_is_heard_everywhere_and_once() {
    let (old, cursor) = left_behind().await;
    old.fake.push_text(DIRECT, USER, "private one");
    old.fake.push_text(DIRECT, USER, "private two");
    old.fake.push(Incoming::text(ROOM, USER, "in a channel never heard before").mentioning_bot());
    old.fake.push_text(ROOM, USER, "not for us");
    let got = heard(&old, &cursor, 3, |_| {}).await;
    assert_eq!(got, ["private one", "private two", "in a channel never heard before"]);
    assert_eq!((old.count(RESUME), old.count(IDENTIFY)), (1, 2));
}

#[tokio::test]
async fn nothing_older_than_the_window_and_no_more_than_the_bound() {
    let (old, cursor) = left_behind_for(HOUR * 8).await;
    old.fake.push(Incoming::text(DIRECT, USER, "long ago").ago(HOUR * 7));
    for number in 0..5 {
        old.fake.push_text(DIRECT, USER, format!("number {number}"));
    }
    let got = heard(&old, &cursor, 3, |config| config.catch_up.messages = 3).await;
    assert_eq!(got, ["number 0", "number 1", "number 2"]);
    let asked = old.fake.calls_of("getMessages");
    assert_eq!(asked.len(), 1, "the bound is for all channels together");
}

#[tokio::test]
async fn the_old_place_stays_until_everything_is_caught_up() {
    let (old, cursor) = left_behind().await;
    old.fake.push_text(DIRECT, USER, "missed");
    old.fake.push(Incoming::text(ROOM, USER, "also missed").mentioning_bot());
    old.fake.withhold_guilds();
    let rig = rig_on(old.fake.clone(), |_| {});
    rig.listen(Some(&cursor), async |gateway| {
        let batch = gateway.next().await;
        assert_eq!(texts(&batch.events), ["missed"]);
        assert_eq!(batch.cursor, None, "a crash here must begin again");
        gateway.keep(batch);
    })
    .await;
    old.fake.forget_sessions();
    old.fake.list_guilds();
    assert_eq!(heard(&old, &cursor, 2, |_| {}).await, ["missed", "also missed"]);
}

#[tokio::test]
async fn a_slow_service_is_waited_for_and_a_closed_channel_passed_over() {
    let (old, cursor) = left_behind().await;
    old.fake.add_channel(GUILD, 71, "secret");
    old.fake.push(Incoming::text(71, USER, "behind a door").mentioning_bot());
    old.fake.push_text(DIRECT, USER, "private");
    old.fake.push(Incoming::text(ROOM, USER, "public").mentioning_bot());
    old.fake.on("getMessages").channel(71).always().does(Fault::missing_access());
    old.fake.on("getMessages").channel(DIRECT).does(Fault::too_many(0.01));
    old.fake.on("getMessages").channel(ROOM).times(2).does(Fault::status(500, 0, "Internal Server Error"));
    let got = heard(&old, &cursor, 2, |_| {}).await;
    assert_eq!(got, ["private", "public"]);
}

#[tokio::test]
async fn a_link_that_never_heard_a_word_is_caught_up_from_its_first_start() {
    let rig = rig();
    rig.fake.push(
        Incoming::text(ROOM, USER, "before we were here").ago(Duration::from_secs(60)).mentioning_bot(),
    );
    let (cursor, _) = rig
        .listen(None, async |gateway| {
            gateway.settle("session1").await;
            gateway.cursor.clone().expect("a cursor")
        })
        .await;
    rig.fake.forget_sessions();
    rig.fake.push(Incoming::text(ROOM, USER, "while we were away").mentioning_bot());
    assert_eq!(heard(&rig, &cursor, 1, |_| {}).await, ["while we were away"]);
}

#[tokio::test]
async fn a_first_start_catches_nothing_up() {
    let rig = rig();
    rig.fake.push_text(DIRECT, USER, "before we were here");
    rig.listen(None, async |gateway| {
        gateway.settle("session1").await;
        rig.fake.push_text(DIRECT, USER, "hello");
        assert_eq!(texts(&gateway.take(1).await), ["hello"]);
    })
    .await;
    assert!(rig.fake.calls_of("getMessages").is_empty());
}
