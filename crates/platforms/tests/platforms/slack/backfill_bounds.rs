//! Bounds of the backfill: reaching one delays messages and never drops them silently.

use std::time::Duration;

use petasos_core::Millis;
use petasos_fakes::slack::{BOT, Fault, Incoming};
use petasos_platforms::CommitResult;
use petasos_platforms::slack::Config;
use petasos_runtime::clock;

use super::fixture::{
    SlackFixture, commit_events, fixture_with, next_batch, restarted, texts, unlimited_window,
    wait_until_all_read,
};

/// A few seconds longer than the age of the fake's first message.
fn barely_open_window() -> Duration {
    clock::now().since(Millis(1_700_000_000_000)) + Duration::from_secs(2)
}

/// Runs a link that received "hello" in these channels; returns its cursor.
async fn cursor_with_channels(fixture: &SlackFixture, channels: &[&str]) -> String {
    let mut cursor = None;
    fixture
        .listen(None, async |batches| {
            for (index, channel) in channels.iter().enumerate() {
                fixture.fake.push(Incoming::new(*channel, "U5", format!("<@{BOT}> hello")));
                let batch = next_batch(batches).await;
                cursor = batch.cursor.clone();
                batch.done.send(CommitResult::Committed).expect("the adapter waits");
                fixture.wait_for_acks(index + 1).await;
            }
        })
        .await;
    cursor.expect("a cursor")
}

#[tokio::test]
async fn fetches_refused_messages_of_more_channels_than_the_gap_bound() {
    const CHANNELS: usize = 520;
    let large = |config: &mut Config| {
        unlimited_window(config);
        config.backfill.messages = 1000;
    };
    for crashes in [false, true] {
        let fixture = fixture_with(large);
        let mut cursor = None;
        let mut missing: Vec<String> = (0..CHANNELS).map(|number| format!("in D{number:04}")).collect();
        fixture
            .listen(None, async |batches| {
                fixture.fake.push_text("D9999", "U5", "first");
                let first = next_batch(batches).await;
                for number in 0..CHANNELS {
                    fixture.fake.push_text(&format!("D{number:04}"), "U5", &format!("in D{number:04}"));
                }
                wait_until_all_read(&fixture).await;
                fixture.fake.drop_deliveries();
                first.done.send(CommitResult::NotStored).expect("the adapter waits");
                let second = next_batch(batches).await;
                second.done.send(CommitResult::NotStored).expect("the adapter waits");
                while !missing.is_empty() {
                    let batch = next_batch(batches).await;
                    missing.retain(|text| !texts(&batch.events).contains(&text.as_str()));
                    cursor = batch.cursor.clone().or(cursor.take());
                    batch.done.send(CommitResult::Committed).expect("the adapter waits");
                    if crashes {
                        break;
                    }
                }
            })
            .await;
        if crashes {
            assert!(!missing.is_empty(), "the crash came too late");
            let again = restarted(&fixture, large);
            again
                .listen(cursor.as_deref(), async |batches| {
                    while !missing.is_empty() {
                        let batch = next_batch(batches).await;
                        missing.retain(|text| !texts(&batch.events).contains(&text.as_str()));
                        batch.done.send(CommitResult::Committed).expect("the adapter waits");
                    }
                })
                .await;
        }
    }
}

#[tokio::test]
async fn open_gap_does_not_age_out() {
    let fixture = fixture_with(unlimited_window);
    let cursor = cursor_with_channels(&fixture, &["D1"]).await;
    fixture.fake.push_text("D1", "U5", "missed");
    fixture.fake.drop_deliveries();
    fixture.fake.on("conversations.history").always().does(Fault::ProxyError(503));
    let window = barely_open_window();
    let again = restarted(&fixture, |config| config.backfill.window = window);
    let (events, _) = again
        .listen(Some(&cursor), async |batches| {
            let closed = Millis(1_700_000_004_000).after(window);
            again
                .wait_until("a request after the end of the window", move |state| {
                    let requested = state.calls_of("conversations.history").next().is_some();
                    (requested && clock::now() > closed).then_some(())
                })
                .await;
            fixture.fake.clear_faults();
            commit_events(batches, 1).await
        })
        .await;
    assert_eq!(texts(&events), ["missed"]);
}

#[tokio::test]
async fn fetches_a_message_behind_fifty_pages() {
    let fixture = fixture_with(unlimited_window);
    let cursor = cursor_with_channels(&fixture, &["C1"]).await;
    fixture.fake.push(Incoming::new("C1", "U5", format!("<@{BOT}> missed")));
    for _ in 0..10_200 {
        fixture.fake.push(Incoming::new("C1", "U5", "not for the bot"));
    }
    fixture.fake.drop_deliveries();
    let again = restarted(&fixture, unlimited_window);
    let (events, _) = again.listen(Some(&cursor), async |batches| commit_events(batches, 1).await).await;
    assert_eq!(texts(&events), ["missed"]);
}

#[tokio::test]
async fn open_gap_survives_a_new_link_in_the_same_process() {
    let fixture = fixture_with(unlimited_window);
    fixture
        .listen(None, async |batches| {
            fixture.fake.push_text("D1", "U5", "refused");
            let refused = next_batch(batches).await;
            fixture.fake.drop_deliveries();
            fixture.fake.on("conversations.history").always().does(Fault::Hang);
            refused.done.send(CommitResult::NotStored).expect("the adapter waits");
            fixture
                .wait_until("a history request", |state| {
                    state.calls_of("conversations.history").next().map(drop)
                })
                .await;
        })
        .await;
    fixture.fake.clear_faults();
    let (events, _) = fixture.listen(None, async |batches| commit_events(batches, 1).await).await;
    assert_eq!(texts(&events), ["refused"]);
}

#[tokio::test]
async fn counts_unfetchable_messages_in_the_link_status() {
    let fixture = fixture_with(unlimited_window);
    let cursor = cursor_with_channels(&fixture, &["D1", "C1"]).await;
    fixture.fake.push_text("D1", "U5", "too old");
    fixture.fake.push(Incoming::new("C1", "U5", format!("<@{BOT}> in a closed channel")));
    fixture.fake.drop_deliveries();
    fixture.fake.archive("C1");
    let again = restarted(&fixture, |_| {});
    again
        .listen(Some(&cursor), async |batches| {
            // Every live message makes the link continue.
            while again.adapter.partial_outages().is_empty() {
                fixture.fake.push_text("D2", "U5", "live");
                commit_events(batches, 1).await;
            }
        })
        .await;
    let outages = again.adapter.partial_outages();
    let [outage] = outages.as_slice() else { panic!("{outages:?}") };
    assert_eq!(outage.code, "slack_backfill_incomplete");
    assert_eq!(
        outage.reason,
        "1 message older than missed_message_backfill.window_seconds, 1 channel whose history the bot may not read"
    );
}
