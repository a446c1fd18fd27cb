//! The bounds of the backfill: a bound that is reached delays messages, it never drops one unseen.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use petasos_fakes::slack::{BOT, Fault, Incoming};
use petasos_platforms::Taken;
use petasos_platforms::slack::Config;

use crate::rig::{Rig, adapter, all_read, any_age, next, rig_with, take, texts};

/// The fake's first message is younger than this by a few seconds.
fn barely_open_window() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    now - Duration::from_secs(1_700_000_000) + Duration::from_secs(2)
}

/// A link that heard "hello" in these channels; its cursor.
async fn acquainted(rig: &Rig, channels: &[&str]) -> String {
    let mut cursor = None;
    rig.listen(None, async |batches| {
        for (done, channel) in channels.iter().enumerate() {
            rig.fake.push(Incoming::new(*channel, "U5", format!("<@{BOT}> hello")));
            let batch = next(batches).await;
            cursor = batch.cursor.clone();
            batch.done.send(Taken::Committed).expect("the adapter waits");
            rig.acked(done + 1).await;
        }
    })
    .await;
    cursor.expect("a cursor")
}

/// The same Slack and another process.
fn restarted(rig: &Rig, change: impl FnOnce(&mut Config)) -> Rig {
    Rig { adapter: adapter(&rig.fake, change), fake: rig.fake.clone() }
}

#[tokio::test]
async fn refused_messages_of_very_many_channels_are_all_fetched() {
    const CHANNELS: usize = 520;
    let much = |config: &mut Config| {
        any_age(config);
        config.catch_up.messages = 1000;
    };
    for crashes in [false, true] {
        let rig = rig_with(much);
        let mut cursor = None;
        let mut missing: Vec<String> = (0..CHANNELS).map(|number| format!("in D{number:04}")).collect();
        rig.listen(None, async |batches| {
            rig.fake.push_text("D9999", "U5", "first");
            let first = next(batches).await;
            for number in 0..CHANNELS {
                rig.fake.push_text(&format!("D{number:04}"), "U5", &format!("in D{number:04}"));
            }
            all_read(&rig).await;
            rig.fake.give_up_deliveries();
            first.done.send(Taken::NotTaken).expect("the adapter waits");
            let second = next(batches).await;
            second.done.send(Taken::NotTaken).expect("the adapter waits");
            while !missing.is_empty() {
                let batch = next(batches).await;
                missing.retain(|text| !texts(&batch.events).contains(&text.as_str()));
                cursor = batch.cursor.clone().or(cursor.take());
                batch.done.send(Taken::Committed).expect("the adapter waits");
                if crashes {
                    break;
                }
            }
        })
        .await;
        if crashes {
            assert!(!missing.is_empty(), "the crash came too late");
            let again = restarted(&rig, much);
            again
                .listen(cursor.as_deref(), async |batches| {
                    while !missing.is_empty() {
                        let batch = next(batches).await;
                        missing.retain(|text| !texts(&batch.events).contains(&text.as_str()));
                        batch.done.send(Taken::Committed).expect("the adapter waits");
                    }
                })
                .await;
        }
    }
}

#[tokio::test]
async fn a_gap_that_cannot_be_filled_at_once_does_not_age_out() {
    let rig = rig_with(any_age);
    let cursor = acquainted(&rig, &["D1"]).await;
    rig.fake.push_text("D1", "U5", "missed");
    rig.fake.give_up_deliveries();
    rig.fake.on("conversations.history").always().does(Fault::Status(503));
    let window = barely_open_window();
    let again = restarted(&rig, |config| config.catch_up.window = window);
    let (events, _) = again
        .listen(Some(&cursor), async |batches| {
            let closed = UNIX_EPOCH + Duration::from_secs(1_700_000_000 + 4) + window;
            again
                .wait_until("asked when the window is over", move |world| {
                    let asked = world.calls_of("conversations.history").next().is_some();
                    (asked && SystemTime::now() > closed).then_some(())
                })
                .await;
            rig.fake.clear_faults();
            take(batches, 1).await
        })
        .await;
    assert_eq!(texts(&events), ["missed"]);
}

#[tokio::test]
async fn a_message_below_fifty_pages_of_others_is_fetched() {
    let rig = rig_with(any_age);
    let cursor = acquainted(&rig, &["C1"]).await;
    rig.fake.push(Incoming::new("C1", "U5", format!("<@{BOT}> missed")));
    for _ in 0..10_200 {
        rig.fake.push(Incoming::new("C1", "U5", "not for the bot"));
    }
    rig.fake.give_up_deliveries();
    let again = restarted(&rig, any_age);
    let (events, _) = again.listen(Some(&cursor), async |batches| take(batches, 1).await).await;
    assert_eq!(texts(&events), ["missed"]);
}

#[tokio::test]
async fn an_open_gap_survives_a_link_that_begins_anew_in_the_same_process() {
    let rig = rig_with(any_age);
    rig.listen(None, async |batches| {
        rig.fake.push_text("D1", "U5", "refused");
        let refused = next(batches).await;
        rig.fake.give_up_deliveries();
        rig.fake.on("conversations.history").always().does(Fault::Hang);
        refused.done.send(Taken::NotTaken).expect("the adapter waits");
        rig.wait_until("asked", |world| world.calls_of("conversations.history").next().map(drop)).await;
    })
    .await;
    rig.fake.clear_faults();
    let (events, _) = rig.listen(None, async |batches| take(batches, 1).await).await;
    assert_eq!(texts(&events), ["refused"]);
}

#[tokio::test]
async fn messages_that_cannot_be_fetched_are_counted_in_the_link_status() {
    let rig = rig_with(any_age);
    let cursor = acquainted(&rig, &["D1", "C1"]).await;
    rig.fake.push_text("D1", "U5", "too old");
    rig.fake.push(Incoming::new("C1", "U5", format!("<@{BOT}> in a closed channel")));
    rig.fake.give_up_deliveries();
    rig.fake.archive("C1");
    let again = restarted(&rig, |_| {});
    again
        .listen(Some(&cursor), async |batches| {
            // Every live message lets the link go on.
            while again.adapter.lacks().is_empty() {
                rig.fake.push_text("D2", "U5", "live");
                take(batches, 1).await;
            }
        })
        .await;
    let lacks = again.adapter.lacks();
    let [lack] = lacks.as_slice() else { panic!("{lacks:?}") };
    assert_eq!(lack.code, "slack_backfill_incomplete");
    assert_eq!(
        lack.reason,
        "1 older than missed_message_backfill.window_seconds, 1 channels whose history the bot may not read"
    );
}
