//! The cursor never passes a message that is not on disk, so no message is lost even if Slack does not
//! deliver it again.

use petasos_fakes::slack::{Fault, Side};
use petasos_platforms::CommitResult;
use petasos_platforms::slack::Config;
use tokio::sync::mpsc;

use super::fixture::{
    SlackFixture, commit_events, fixture_with, next_batch, restarted, texts, unlimited_window,
    wait_until_all_read,
};

/// A new process with the cursor only. Slack delivers nothing again.
fn after_a_crash(fixture: &SlackFixture) -> SlackFixture {
    fixture.fake.drop_deliveries();
    restarted(fixture, unlimited_window)
}

/// Commits the next batch; returns its texts and cursor.
async fn commit_next(
    batches: &mut mpsc::Receiver<petasos_platforms::InboundBatch>,
) -> (Vec<String>, Option<String>) {
    let batch = next_batch(batches).await;
    let received = texts(&batch.events).into_iter().map(str::to_owned).collect();
    batch.done.send(CommitResult::Committed).expect("the adapter waits");
    (received, batch.cursor)
}

#[tokio::test]
async fn commit_does_not_cover_messages_read_during_it() {
    let fixture = fixture_with(unlimited_window);
    let (cursor, _) = fixture
        .listen(None, async |batches| {
            let slow = fixture.fake.gate("users.info", Side::Before);
            fixture.fake.push_text("D1", "U5", "first");
            fixture
                .wait_until("a user name request", |state| state.calls_of("users.info").next().map(|_| ()))
                .await;
            fixture.fake.push_text("D1", "U5", "second");
            wait_until_all_read(&fixture).await;
            slow.open();
            let (received, cursor) = commit_next(batches).await;
            assert_eq!(received, ["first"]);
            cursor.expect("a cursor")
        })
        .await;
    let again = after_a_crash(&fixture);
    let (events, _) = again.listen(Some(&cursor), async |batches| commit_events(batches, 1).await).await;
    assert_eq!(texts(&events), ["second"]);
}

#[tokio::test]
async fn fetches_refused_messages_that_slack_does_not_redeliver() {
    for known in [true, false] {
        let fixture = fixture_with(unlimited_window);
        fixture
            .listen(None, async |batches| {
                if known {
                    fixture.fake.push_text("D1", "U5", "hello");
                    assert_eq!(commit_next(batches).await.0, ["hello"]);
                    fixture.wait_for_acks(1).await;
                }
                fixture.fake.push_text("D1", "U5", "refused");
                let refused = next_batch(batches).await;
                fixture.fake.drop_deliveries();
                refused.done.send(CommitResult::NotStored).expect("the adapter waits");
                assert_eq!(commit_next(batches).await.0, ["refused"], "known before: {known}");
            })
            .await;
    }
}

#[tokio::test]
async fn later_commit_does_not_cover_a_refused_one() {
    let fixture = fixture_with(unlimited_window);
    let (cursor, _) = fixture
        .listen(None, async |batches| {
            fixture.fake.push_text("D1", "U5", "hello");
            let before = commit_next(batches).await.1;
            fixture.wait_for_acks(1).await;
            fixture.fake.on("conversations.history").always().does(Fault::Hang);
            fixture.fake.push_text("D1", "U5", "refused");
            let refused = next_batch(batches).await;
            fixture.fake.drop_deliveries();
            refused.done.send(CommitResult::NotStored).expect("the adapter waits");
            fixture
                .wait_until("a history request", |state| {
                    state.calls_of("conversations.history").next().map(|_| ())
                })
                .await;
            fixture.fake.push_text("D1", "U5", "after");
            let (received, cursor) = commit_next(batches).await;
            assert_eq!(received, ["after"]);
            cursor.or(before).expect("a cursor")
        })
        .await;
    fixture.fake.clear_faults();
    let again = after_a_crash(&fixture);
    let (events, _) = again.listen(Some(&cursor), async |batches| commit_events(batches, 2).await).await;
    assert_eq!(texts(&events), ["refused", "after"]);
}

#[tokio::test]
async fn fetches_envelopes_that_found_the_buffer_full() {
    const MORE_THAN_BUFFERED: usize = 300;
    let large = |config: &mut Config| {
        unlimited_window(config);
        config.backfill.messages = 1000;
    };
    let fixture = fixture_with(large);
    fixture
        .listen(None, async |batches| {
            fixture.fake.push_text("D1", "U5", "first");
            let first = next_batch(batches).await;
            for number in 0..MORE_THAN_BUFFERED {
                fixture.fake.push_text("D1", "U5", &number.to_string());
            }
            wait_until_all_read(&fixture).await;
            fixture.fake.drop_deliveries();
            first.done.send(CommitResult::Committed).expect("the adapter waits");
            let mut all = Vec::new();
            while !all.contains(&(MORE_THAN_BUFFERED - 1).to_string()) {
                all.extend(commit_next(batches).await.0);
            }
            let missing: Vec<usize> =
                (0..MORE_THAN_BUFFERED).filter(|it| !all.contains(&it.to_string())).collect();
            assert!(missing.is_empty(), "{missing:?}");
            assert!(!fixture.fake.calls_of("conversations.history").is_empty(), "the buffer held them all");
        })
        .await;
}

#[tokio::test]
async fn fill_of_a_first_gap_does_not_close_a_second() {
    let fixture = fixture_with(unlimited_window);
    let (cursor, _) = fixture
        .listen(None, async |batches| {
            fixture.fake.push_text("D1", "U5", "hello");
            let cursor = commit_next(batches).await.1;
            fixture.wait_for_acks(1).await;
            cursor
        })
        .await;
    let second = after_a_crash(&fixture);
    fixture.fake.push_text("D1", "U5", "in the first gap");
    fixture.fake.drop_deliveries();
    let (cursor, _) = second
        .listen(cursor.as_deref(), async |batches| {
            let first = next_batch(batches).await;
            assert_eq!(texts(&first.events), ["in the first gap"]);
            // During that commit, the socket is lost, a message is sent, and a new socket opens.
            fixture.fake.on("apps.connections.open").does(Fault::ProxyError(503));
            fixture.fake.reset_sockets();
            fixture.fake.push_text("D1", "U5", "in the second gap");
            fixture.fake.drop_deliveries();
            fixture.wait_for_sockets(3).await;
            fixture.fake.on("conversations.history").always().does(Fault::Hang);
            let requests = fixture.fake.calls_of("conversations.history").len();
            first.done.send(CommitResult::Committed).expect("the adapter waits");
            fixture
                .wait_until("a request for the second gap", move |state| {
                    (state.calls_of("conversations.history").count() > requests).then_some(())
                })
                .await;
            fixture.fake.push_text("D1", "U5", "live");
            let (received, cursor) = commit_next(batches).await;
            assert_eq!(received, ["live"]);
            cursor.or(first.cursor).expect("a cursor")
        })
        .await;
    fixture.fake.clear_faults();
    let third = after_a_crash(&fixture);
    let (events, _) = third.listen(Some(&cursor), async |batches| commit_events(batches, 1).await).await;
    assert!(texts(&events).contains(&"in the second gap"), "{:?}", texts(&events));
}
