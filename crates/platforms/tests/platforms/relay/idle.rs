//! Idling, sleeping and reconnecting.

use std::pin::pin;
use std::time::Duration;

use petasos_platforms::CommitResult;

use super::rig::{Rig, TEST_TIMEOUT, rig, rig_with, said};

fn relay(rig: &Rig) -> &petasos_platforms::relay::Relay {
    rig.adapter().relay().expect("a relay")
}

/// Returns when the link has read the grant: a later answer has arrived.
async fn read_grant(rig: &Rig, asking: &mut (impl Future<Output = bool> + Unpin)) {
    let fence = async {
        rig.until("a request to idle", |world| (world.frames("going_idle").len() == 1).then_some(())).await;
        rig.send_text("behind the grant").await.expect("sent");
    };
    tokio::select! {
        biased;
        answer = asking => panic!("answered {answer} while the message is not on disk"),
        () = fence => {}
    }
}

#[tokio::test]
async fn requests_idle_once_and_is_granted() {
    let rig = rig();
    let _line = rig.up().await;
    assert!(relay(&rig).go_idle(Duration::from_secs(2)).await);
    assert_eq!(rig.fake.read(|world| world.frames("going_idle").len()), 1);
}

#[tokio::test]
async fn concurrent_idle_requests_share_one_grant() {
    let rig = rig();
    rig.fake.grant_idle(Some(Duration::from_millis(100)));
    let _line = rig.up().await;
    let within = Duration::from_secs(5);
    let both = tokio::join!(relay(&rig).go_idle(within), relay(&rig).go_idle(within));
    assert_eq!(both, (true, true));
    assert_eq!(rig.fake.read(|world| world.frames("going_idle").len()), 1);
}

#[tokio::test]
async fn stays_connected_without_idle_grant() {
    let rig = rig();
    rig.fake.grant_idle(None);
    let mut line = rig.up().await;
    assert!(!relay(&rig).go_idle(Duration::from_millis(300)).await);
    rig.fake.push_live(said("still here"));
    assert_eq!(line.texts(1).await, ["still here"]);
    assert_eq!(rig.fake.read(|world| world.connections()), 1);
}

#[tokio::test]
async fn reconnects_after_late_grant() {
    let rig = rig();
    rig.fake.grant_idle(Some(Duration::from_millis(300)));
    let mut line = rig.up().await;
    assert!(!relay(&rig).go_idle(Duration::from_millis(50)).await);
    rig.until("a second connection", |world| (world.frames("hello").len() == 2).then_some(())).await;
    rig.fake.push(said("for the next connection"));
    assert_eq!(line.texts(1).await, ["for the next connection"]);
}

#[tokio::test]
async fn grant_waits_for_earlier_commits() {
    let rig = rig();
    let mut line = rig.up().await;
    rig.fake.push_live(said("just in time"));
    let batch = line.next().await;
    let mut asking = pin!(relay(&rig).go_idle(TEST_TIMEOUT));
    read_grant(&rig, &mut asking).await;
    batch.done.send(CommitResult::Committed).expect("it waits");
    assert!(asking.await);
}

#[tokio::test]
async fn reconnects_after_sleep_for_queued_events() {
    let rig = rig_with(|config| config.terms.dormant = Duration::from_millis(50));
    let mut line = rig.up().await;
    assert!(relay(&rig).go_idle(Duration::from_secs(2)).await);
    rig.fake.push(said("while you slept"));
    assert!(relay(&rig).sleep(None).await);
    assert_eq!(line.texts(1).await, ["while you slept"]);
    rig.until("its end", |world| (world.closed == 1 && world.acks.len() == 1).then_some(())).await;
    assert_eq!(rig.fake.read(|world| world.frames("hello").len()), 2);
}

#[tokio::test]
async fn sleeps_until_woken() {
    let rig = rig_with(|config| config.terms.dormant = Duration::from_millis(10));
    let _line = rig.up().await;
    assert!(relay(&rig).go_idle(Duration::from_secs(2)).await);
    assert!(relay(&rig).sleep(Some(Duration::from_secs(60))).await);
    rig.until("its end", |world| (world.closed == 1).then_some(())).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(59)).await;
    // A dialling link is not asleep.
    assert!(relay(&rig).sleep(None).await, "woken before its time");
    tokio::time::resume();
    assert_eq!(rig.fake.read(|world| world.connections()), 1);
    relay(&rig).wake().await;
    rig.until("a second connection", |world| (world.open() == 1).then_some(())).await;
}

#[tokio::test]
async fn closed_connection_revokes_the_grant() {
    let rig = rig();
    let mut line = rig.up().await;
    rig.fake.push_live(said("just in time"));
    let batch = line.next().await;
    let mut asking = pin!(relay(&rig).go_idle(TEST_TIMEOUT));
    read_grant(&rig, &mut asking).await;
    rig.fake.close(1001, "");
    let answered = tokio::time::timeout(TEST_TIMEOUT, asking).await;
    assert_eq!(answered, Ok(false), "waiting callers are released");
    batch.done.send(CommitResult::Committed).expect("it waits");
    rig.until("a second connection", |world| (world.frames("hello").len() == 2).then_some(())).await;
}

#[tokio::test]
async fn refuses_to_sleep_on_grant_of_lost_connection() {
    let rig = rig();
    let mut line = rig.up().await;
    assert!(relay(&rig).go_idle(Duration::from_secs(2)).await);
    rig.fake.push(said("behind the grant"));
    rig.fake.close(1001, "");
    assert_eq!(line.texts(1).await, ["behind the grant"]);
    assert!(!relay(&rig).sleep(Some(Duration::from_secs(60))).await, "it is awake, and was given something");
    rig.fake.push_live(said("still here"));
    assert_eq!(line.texts(1).await, ["still here"]);
}

#[tokio::test]
async fn refuses_grant_while_earlier_events_are_uncommitted() {
    let rig = rig();
    let mut line = rig.up().await;
    rig.fake.push_live(said("slow"));
    let batch = line.next().await;
    assert!(!relay(&rig).go_idle(Duration::from_secs(2)).await, "after the longest wait");
    rig.until("a connection that takes the grant back", |world| {
        (world.open() == 1 && world.closed == 1).then_some(())
    })
    .await;
    batch.done.send(CommitResult::Committed).expect("it waits");
    rig.fake.push(said("next"));
    assert_eq!(line.texts(1).await, ["next"]);
}
