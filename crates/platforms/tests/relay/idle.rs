//! Going idle, being left alone, and coming back.

use std::pin::pin;
use std::time::Duration;

use petasos_platforms::Taken;

use crate::rig::{Rig, SOON, rig, rig_with, said};

fn relay(rig: &Rig) -> &petasos_platforms::relay::Relay {
    rig.adapter().relay().expect("a relay")
}

/// Returns when the link has read the grant: the result of a message that was sent behind the request has arrived.
async fn read_grant(rig: &Rig, asking: &mut (impl Future<Output = bool> + Unpin)) {
    let fence = async {
        rig.until("a request to idle", |world| (world.frames("going_idle").len() == 1).then_some(())).await;
        rig.say("behind the grant").await.expect("sent");
    };
    tokio::select! {
        biased;
        answer = asking => panic!("answered {answer} while the message is not on disk"),
        () = fence => {}
    }
}

#[tokio::test]
async fn going_idle_is_granted_and_asked_for_once() {
    let rig = rig();
    let _line = rig.up().await;
    assert!(relay(&rig).go_idle(Duration::from_secs(2)).await);
    assert_eq!(rig.fake.read(|world| world.frames("going_idle").len()), 1);
}

#[tokio::test]
async fn two_who_ask_at_once_hear_the_same() {
    let rig = rig();
    rig.fake.grant_idle(Some(Duration::from_millis(100)));
    let _line = rig.up().await;
    let within = Duration::from_secs(5);
    let both = tokio::join!(relay(&rig).go_idle(within), relay(&rig).go_idle(within));
    assert_eq!(both, (true, true));
    assert_eq!(rig.fake.read(|world| world.frames("going_idle").len()), 1);
}

#[tokio::test]
async fn without_a_grant_the_connection_goes_on() {
    let rig = rig();
    rig.fake.grant_idle(None);
    let mut line = rig.up().await;
    assert!(!relay(&rig).go_idle(Duration::from_millis(300)).await);
    rig.fake.pass(said("still here"));
    assert_eq!(line.texts(1).await, ["still here"]);
    assert_eq!(rig.fake.read(|world| world.connections()), 1);
}

#[tokio::test]
async fn a_grant_that_comes_too_late_is_followed_by_a_new_connection() {
    let rig = rig();
    rig.fake.grant_idle(Some(Duration::from_millis(300)));
    let mut line = rig.up().await;
    assert!(!relay(&rig).go_idle(Duration::from_millis(50)).await);
    rig.until("a second connection", |world| (world.frames("hello").len() == 2).then_some(())).await;
    rig.fake.push(said("for whoever is there"));
    assert_eq!(line.texts(1).await, ["for whoever is there"]);
}

#[tokio::test]
async fn a_grant_waits_for_what_came_before_it() {
    let rig = rig();
    let mut line = rig.up().await;
    rig.fake.pass(said("just in time"));
    let batch = line.next().await;
    let mut asking = pin!(relay(&rig).go_idle(SOON));
    read_grant(&rig, &mut asking).await;
    batch.done.send(Taken::Committed).expect("it waits");
    assert!(asking.await);
}

#[tokio::test]
async fn one_who_sleeps_is_gone_and_comes_back_for_what_waits() {
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
async fn one_who_is_held_asleep_stays_so_until_it_is_called() {
    let rig = rig_with(|config| config.terms.dormant = Duration::from_millis(10));
    let _line = rig.up().await;
    assert!(relay(&rig).go_idle(Duration::from_secs(2)).await);
    assert!(relay(&rig).sleep(Some(Duration::from_secs(60))).await);
    rig.until("its end", |world| (world.closed == 1).then_some(())).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(59)).await;
    // A link that dials is not asleep.
    assert!(relay(&rig).sleep(None).await, "woken before its time");
    tokio::time::resume();
    assert_eq!(rig.fake.read(|world| world.connections()), 1);
    relay(&rig).wake().await;
    rig.until("a second connection", |world| (world.open() == 1).then_some(())).await;
}

#[tokio::test]
async fn a_connection_that_ends_behind_the_grant_takes_it_away() {
    let rig = rig();
    let mut line = rig.up().await;
    rig.fake.pass(said("just in time"));
    let batch = line.next().await;
    let mut asking = pin!(relay(&rig).go_idle(SOON));
    read_grant(&rig, &mut asking).await;
    rig.fake.close(1001, "");
    let answered = tokio::time::timeout(SOON, asking).await;
    assert_eq!(answered, Ok(false), "whoever waits is not left waiting");
    batch.done.send(Taken::Committed).expect("it waits");
    rig.until("a second connection", |world| (world.frames("hello").len() == 2).then_some(())).await;
}

#[tokio::test]
async fn nobody_sleeps_on_a_grant_of_a_connection_that_is_gone() {
    let rig = rig();
    let mut line = rig.up().await;
    assert!(relay(&rig).go_idle(Duration::from_secs(2)).await);
    rig.fake.push(said("behind the grant"));
    rig.fake.close(1001, "");
    assert_eq!(line.texts(1).await, ["behind the grant"]);
    assert!(!relay(&rig).sleep(Some(Duration::from_secs(60))).await, "it is awake, and was given something");
    rig.fake.pass(said("still here"));
    assert_eq!(line.texts(1).await, ["still here"]);
}

#[tokio::test]
async fn a_grant_is_not_used_while_what_came_before_it_is_not_on_disk() {
    let rig = rig();
    let mut line = rig.up().await;
    rig.fake.pass(said("slow"));
    let batch = line.next().await;
    assert!(!relay(&rig).go_idle(Duration::from_secs(2)).await, "after the longest wait");
    rig.until("a connection that takes the grant back", |world| {
        (world.open() == 1 && world.closed == 1).then_some(())
    })
    .await;
    batch.done.send(Taken::Committed).expect("it waits");
    rig.fake.push(said("next"));
    assert_eq!(line.texts(1).await, ["next"]);
}
