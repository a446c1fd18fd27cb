//! Backfill of messages sent while no socket was open.

use std::time::Duration;

use petasos_fakes::slack::{BOT, Fault, Incoming, Side};
use petasos_platforms::slack::Config;
use petasos_platforms::{CommitResult, LinkHealth};
use petasos_runtime::clock;

use super::fixture::{
    SlackFixture, adapter, commit_events, commit_until, fixture_with, next_batch, restarted, texts,
    unlimited_window, wait_until_all_read,
};

/// Sends messages that no socket delivers.
fn while_offline(fixture: &SlackFixture, send: impl FnOnce(&SlackFixture)) {
    send(fixture);
    fixture.fake.drop_deliveries();
}

fn restarted_unlimited(fixture: &SlackFixture, change: impl FnOnce(&mut Config)) -> SlackFixture {
    restarted(fixture, |config| {
        unlimited_window(config);
        change(config);
    })
}

/// After "hello" in a channel and in private: the bot's thread in the channel, and the cursor.
async fn after_first_messages(fixture: &SlackFixture) -> (String, String) {
    let mut cursor = None;
    let (root, _) = fixture
        .listen(None, async |batches| {
            let root = fixture.fake.push_mention(Incoming::new("C1", "U5", format!("<@{BOT}> hello"))).ts;
            fixture.fake.push_text("D1", "U5", "hello");
            let mut received = 0;
            while received < 3 {
                let batch = next_batch(batches).await;
                received += batch.events.len();
                cursor = batch.cursor.clone().or(cursor.take());
                batch.done.send(CommitResult::Committed).expect("the adapter waits");
            }
            fixture.wait_for_acks(3).await;
            root
        })
        .await;
    (root, cursor.expect("a cursor"))
}

#[tokio::test]
async fn backfills_missed_messages_once_and_in_order() {
    let fixture = fixture_with(unlimited_window);
    let (root, cursor) = after_first_messages(&fixture).await;
    while_offline(&fixture, |fixture| {
        fixture.fake.push_text("D1", "U5", "one");
        fixture.fake.push(Incoming::new("C1", "U5", "not for the bot"));
        fixture.fake.push(Incoming::new("C1", "U5", "two").thread(&root));
        let begun = fixture.fake.push_mention(Incoming::new("C1", "U5", format!("<@{BOT}> three"))).ts;
        fixture.fake.push(Incoming::new("C1", "U5", "four").thread(&begun));
    });
    let again = restarted_unlimited(&fixture, |_| {});
    let mut kept = None;
    let (events, _) = again
        .listen(Some(&cursor), async |batches| {
            let batch = next_batch(batches).await;
            kept = batch.cursor.clone();
            batch.done.send(CommitResult::Committed).expect("the adapter waits");
            batch.events
        })
        .await;
    assert_eq!(texts(&events), ["one", "two", "three", "four"]);
    let mut identities: Vec<&str> = events.iter().map(|event| event.dedup.as_str()).collect();
    identities.dedup();
    assert_eq!(identities.len(), 4);

    let third = restarted_unlimited(&fixture, |_| {});
    let (events, _) = third
        .listen(kept.as_deref(), async |batches| {
            third.wait_for_sockets(3).await;
            fixture.fake.push_text("D1", "U5", "live");
            commit_events(batches, 1).await
        })
        .await;
    // It may be both fetched and delivered live.
    assert!(texts(&events).iter().all(|text| *text == "live"), "nothing is missing any more: {events:?}");
}

#[tokio::test]
async fn fetched_and_live_messages_have_the_same_dedup_key() {
    let fixture = fixture_with(unlimited_window);
    let (_, cursor) = after_first_messages(&fixture).await;
    fixture.fake.push_text("D1", "U5", "one");
    let again = restarted_unlimited(&fixture, |_| {});
    let (events, _) = again.listen(Some(&cursor), async |batches| commit_events(batches, 2).await).await;
    assert_eq!(texts(&events), ["one", "one"]);
    assert_eq!(events[0].dedup, events[1].dedup);
}

#[tokio::test]
async fn fills_the_gap_of_a_lost_socket() {
    let fixture = fixture_with(unlimited_window);
    fixture
        .listen(None, async |batches| {
            fixture.fake.push_text("D1", "U5", "hello");
            commit_events(batches, 1).await;
            fixture.fake.on("apps.connections.open").times(2).does(Fault::ProxyError(503));
            fixture.fake.reset_sockets();
            while_offline(&fixture, |fixture| drop(fixture.fake.push_text("D1", "U5", "into the gap")));
            let events = commit_events(batches, 1).await;
            assert_eq!(texts(&events), ["into the gap"]);
        })
        .await;
}

#[tokio::test]
async fn fetches_again_until_stored_and_keeps_the_cursor() {
    let fixture = fixture_with(unlimited_window);
    let (_, cursor) = after_first_messages(&fixture).await;
    while_offline(&fixture, |fixture| drop(fixture.fake.push_text("D1", "U5", "missed")));
    let again = restarted_unlimited(&fixture, |_| {});
    again
        .listen(Some(&cursor), async |batches| {
            let first = next_batch(batches).await;
            assert_eq!(texts(&first.events), ["missed"]);
            first.done.send(CommitResult::NotStored).expect("the adapter waits");
            let second = next_batch(batches).await;
            assert_eq!(texts(&second.events), ["missed"]);
            let closed = second.cursor.clone().expect("a cursor");
            assert_ne!(closed, cursor);
            second.done.send(CommitResult::Committed).expect("the adapter waits");
        })
        .await;
}

#[tokio::test]
async fn one_deferral_delays_one_round() {
    const WAIT: Duration = Duration::from_secs(1);
    const MISSED: usize = 8;
    let fixture = fixture_with(unlimited_window);
    let (_, cursor) = after_first_messages(&fixture).await;
    while_offline(&fixture, |fixture| {
        (0..MISSED).for_each(|number| drop(fixture.fake.push_text("D1", "U5", &number.to_string())));
    });
    let again = restarted_unlimited(&fixture, |config| {
        config.backfill.messages = 1;
        config.reconnect_base = WAIT;
    });
    let mut delayed = 0;
    again
        .listen(Some(&cursor), async |batches| {
            let refused = next_batch(batches).await;
            refused.done.send(CommitResult::NotStored).expect("the adapter waits");
            for number in 0..MISSED {
                let asked = clock::monotonic();
                let batch = next_batch(batches).await;
                assert_eq!(texts(&batch.events), [number.to_string()]);
                delayed += usize::from(asked.elapsed() >= WAIT / 2);
                batch.done.send(CommitResult::Committed).expect("the adapter waits");
            }
        })
        .await;
    // A busy machine may delay another one.
    assert!((1..MISSED / 2).contains(&delayed), "{delayed} of {MISSED} rounds were delayed");
}

#[tokio::test]
async fn slow_or_closed_channels_do_not_block_others() {
    let fixture = fixture_with(unlimited_window);
    let (_, cursor) = after_first_messages(&fixture).await;
    while_offline(&fixture, |fixture| {
        fixture.fake.push(Incoming::new("C1", "U5", format!("<@{BOT}> blocked")));
        fixture.fake.push_text("D1", "U5", "open");
    });
    fixture.fake.archive("C1");
    fixture.fake.on("conversations.history").nth(1).does(Fault::too_many(1));
    let again = restarted_unlimited(&fixture, |_| {});
    let (events, _) = again.listen(Some(&cursor), async |batches| commit_events(batches, 1).await).await;
    assert_eq!(texts(&events), ["open"]);

    let off = adapter(&fixture.fake, |config| config.backfill.messages = 0);
    let off = SlackFixture { adapter: off, fake: fixture.fake.clone() };
    let requests = fixture.fake.calls_of("conversations.history").len();
    let (events, _) = off
        .listen(Some(&cursor), async |batches| {
            let opened = off.wait_for_sockets(3);
            commit_until(batches, opened).await;
            off.fake.push_text("D1", "U5", "live");
            let events = commit_events(batches, 1).await;
            off.wait_for_acks(4).await;
            events
        })
        .await;
    assert_eq!(texts(&events), ["live"]);
    assert_eq!(fixture.fake.calls_of("conversations.history").len(), requests);

    // A window that begins after every message.
    let recent = SlackFixture { adapter: adapter(&fixture.fake, |_| {}), fake: fixture.fake.clone() };
    let (events, _) = recent
        .listen(Some(&cursor), async |batches| {
            let requested = recent.wait_until("a history request", move |state| {
                (state.calls_of("conversations.history").count() > requests).then_some(())
            });
            commit_until(batches, requested).await;
            recent.fake.push_text("D1", "U5", "live too");
            commit_events(batches, 1).await
        })
        .await;
    assert_eq!(texts(&events), ["live too"]);
}

#[tokio::test]
async fn unreadable_channel_keeps_its_gap_and_does_not_block_others() {
    const FAILURES: u64 = 9;
    let fixture = fixture_with(unlimited_window);
    let (_, cursor) = after_first_messages(&fixture).await;
    while_offline(&fixture, |fixture| {
        fixture.fake.push_text("D1", "U5", "in private");
        fixture.fake.push(Incoming::new("C1", "U5", format!("<@{BOT}> in the channel")));
    });
    let fail = || {
        fixture.fake.on("conversations.history").channel("D1").times(FAILURES).does(Fault::ProxyError(503))
    };
    fail();
    let mut kept = None;
    let (first, _) = restarted_unlimited(&fixture, |_| {})
        .listen(Some(&cursor), async |batches| {
            let first = next_batch(batches).await;
            kept = first.cursor.clone();
            first.done.send(CommitResult::Committed).expect("the adapter waits");
            let second = commit_events(batches, 1).await;
            assert_eq!(texts(&second), ["in private"]);
            first.events
        })
        .await;
    assert_eq!(texts(&first), ["in the channel"]);
    let refused = |call: &petasos_fakes::slack::ApiCall| !call.applied;
    assert_eq!(fixture.fake.calls_of("conversations.history").iter().filter(|it| refused(it)).count(), 9);

    // A crash between the two commits.
    fail();
    let again = restarted_unlimited(&fixture, |_| {});
    let (events, _) = again.listen(kept.as_deref(), async |batches| commit_events(batches, 1).await).await;
    assert_eq!(texts(&events), ["in private"]);
}

#[tokio::test]
async fn rounds_deliver_the_oldest_messages_until_none_is_missing() {
    let few = |config: &mut Config| config.backfill.messages = 3;
    let fixture = fixture_with(unlimited_window);
    let (root, cursor) = after_first_messages(&fixture).await;
    while_offline(&fixture, |fixture| {
        for number in 0..300 {
            fixture.fake.push(Incoming::new("C1", "U5", format!("not for the bot {number}")));
        }
        fixture.fake.push(Incoming::new("C1", "U5", "c1").thread(&root));
        for number in 1..=5 {
            fixture.fake.push_text("D1", "U5", &format!("d{number}"));
        }
        fixture.fake.push_mention(Incoming::new("C1", "U5", format!("<@{BOT}> c2")));
        fixture.fake.push(Incoming::new("C1", "U5", "c3").thread(&root));
    });
    let rounds: [&[&str]; 3] = [&["d1", "d2", "d3"], &["c1", "d4", "d5"], &["c2", "c3"]];
    let mut cursors = vec![cursor];
    restarted_unlimited(&fixture, few)
        .listen(Some(&cursors[0].clone()), async |batches| {
            for want in rounds {
                let batch = next_batch(batches).await;
                assert_eq!(texts(&batch.events), want);
                cursors.push(batch.cursor.clone().expect("a cursor"));
                batch.done.send(CommitResult::Committed).expect("the adapter waits");
            }
        })
        .await;
    for (round, cursor) in cursors.iter().enumerate().take(rounds.len()) {
        let again = restarted_unlimited(&fixture, few);
        let (batch, _) = again.listen(Some(cursor), async |batches| next_batch(batches).await.events).await;
        assert_eq!(texts(&batch), rounds[round], "after a crash behind round {round}");
    }
}

#[tokio::test]
async fn reports_backfilling_until_nothing_is_missing() {
    let fixture = fixture_with(unlimited_window);
    let (_, cursor) = after_first_messages(&fixture).await;
    while_offline(&fixture, |fixture| {
        for number in 1..=5 {
            fixture.fake.push_text("D1", "U5", &format!("d{number}"));
        }
    });
    let few = |config: &mut Config| {
        config.backfill.messages = 3;
        config.ping_interval = Duration::from_millis(20);
    };
    let ((), health_log) = restarted_unlimited(&fixture, few)
        .listen(Some(&cursor), async |batches| {
            let first = next_batch(batches).await;
            // While this batch waits, health is reported once per second.
            let pongs = fixture.fake.read(|state| state.heartbeats().1);
            fixture.wait_until("pings", move |state| (state.heartbeats().1 > pongs + 60).then_some(())).await;
            first.done.send(CommitResult::Committed).expect("the adapter waits");
            assert_eq!(texts(&commit_events(batches, 2).await), ["d4", "d5"]);
            fixture.fake.push_text("D1", "U5", "live");
            assert_eq!(texts(&commit_events(batches, 1).await), ["live"]);
        })
        .await;
    let backfilling = health_log.iter().filter(|state| **state == LinkHealth::Backfilling).count();
    let connected = health_log.iter().position(|state| *state == LinkHealth::Connected).expect("a report");
    assert!(backfilling >= 2 && connected == backfilling + 1, "{health_log:?}");
}

#[tokio::test]
async fn live_messages_wait_for_older_ones_of_their_channel() {
    let fixture = fixture_with(unlimited_window);
    let (_, cursor) = after_first_messages(&fixture).await;
    while_offline(&fixture, |fixture| drop(fixture.fake.push_text("D1", "U5", "missed")));
    let again = restarted_unlimited(&fixture, |config| config.ack_timeout = Duration::from_secs(40));
    let (events, _) = again
        .listen(Some(&cursor), async |batches| {
            let slow = fixture.fake.gate("conversations.history", Side::Before);
            fixture.wait_for_sockets(2).await;
            fixture.fake.push_text("D1", "U5", "live");
            fixture.fake.push_text("D2", "U5", "elsewhere");
            wait_until_all_read(&again).await;
            let elsewhere = commit_events(batches, 1).await;
            assert_eq!(texts(&elsewhere), ["elsewhere"], "only its own channel waits");
            slow.open();
            commit_events(batches, 2).await
        })
        .await;
    assert_eq!(texts(&events)[..2], ["missed", "live"]);
}

#[tokio::test]
async fn live_message_is_released_in_time_for_its_acknowledgement() {
    let fixture = fixture_with(unlimited_window);
    let (_, cursor) = after_first_messages(&fixture).await;
    fixture.fake.on("conversations.history").always().does(Fault::Hang);
    let again = restarted_unlimited(&fixture, |_| {});
    let (events, _) = again
        .listen(Some(&cursor), async |batches| {
            fixture.wait_for_sockets(2).await;
            fixture.fake.push_text("D1", "U5", "live");
            let events = commit_events(batches, 1).await;
            again.wait_for_acks(4).await;
            events
        })
        .await;
    assert_eq!(texts(&events), ["live"]);
    let took = fixture.fake.acks()[3].took.expect("acknowledged");
    assert!(took >= Duration::from_millis(1250), "it waited: {took:?}");
}
