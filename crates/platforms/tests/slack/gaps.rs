//! What was said while no socket stood.

use petasos_fakes::slack::{BOT, Fault, Incoming};
use petasos_platforms::Taken;

use crate::rig::{Rig, adapter, any_age, next, rig_with, take, take_until, texts};

fn away(rig: &Rig, say: impl FnOnce(&Rig)) {
    say(rig);
    rig.fake.give_up_deliveries();
}

/// A link that hears "hello" in a channel, where we have a thread then, and in private; its cursor.
async fn acquainted(rig: &Rig) -> (String, String) {
    let mut cursor = None;
    let (root, _) = rig
        .listen(None, async |batches| {
            let root = rig.fake.push_mention(Incoming::new("C1", "U5", format!("<@{BOT}> hello"))).ts;
            rig.fake.push_text("D1", "U5", "hello");
            let mut heard = 0;
            while heard < 3 {
                let batch = next(batches).await;
                heard += batch.events.len();
                cursor = batch.cursor.clone().or(cursor.take());
                batch.done.send(Taken::Committed).expect("it waits");
            }
            rig.acked(3).await;
            root
        })
        .await;
    (root, cursor.expect("a cursor"))
}

#[tokio::test]
async fn what_was_written_while_we_were_away_is_heard_in_order_and_once() {
    let rig = rig_with(any_age);
    let (root, cursor) = acquainted(&rig).await;
    away(&rig, |rig| {
        rig.fake.push_text("D1", "U5", "one");
        rig.fake.push(Incoming::new("C1", "U5", "not for the bot"));
        rig.fake.push(Incoming::new("C1", "U5", "two").thread(&root));
        let begun = rig.fake.push_mention(Incoming::new("C1", "U5", format!("<@{BOT}> three"))).ts;
        rig.fake.push(Incoming::new("C1", "U5", "four").thread(&begun));
    });
    let again = Rig { adapter: adapter(&rig.fake, any_age), fake: rig.fake.clone() };
    let mut kept = None;
    let (events, _) = again
        .listen(Some(&cursor), async |batches| {
            let batch = next(batches).await;
            kept = batch.cursor.clone();
            batch.done.send(Taken::Committed).expect("it waits");
            batch.events
        })
        .await;
    assert_eq!(texts(&events), ["one", "two", "three", "four"]);
    let mut identities: Vec<&str> = events.iter().map(|event| event.dedup.as_str()).collect();
    identities.dedup();
    assert_eq!(identities.len(), 4);

    let third = Rig { adapter: adapter(&rig.fake, any_age), fake: rig.fake.clone() };
    let (events, _) = third
        .listen(kept.as_deref(), async |batches| {
            third.opened(3).await;
            rig.fake.push_text("D1", "U5", "live");
            take(batches, 1).await
        })
        .await;
    assert_eq!(texts(&events), ["live"], "caught up is caught up");
}

#[tokio::test]
async fn what_is_fetched_has_the_identity_of_what_is_told() {
    let rig = rig_with(any_age);
    let (_, cursor) = acquainted(&rig).await;
    rig.fake.push_text("D1", "U5", "one");
    let again = Rig { adapter: adapter(&rig.fake, any_age), fake: rig.fake.clone() };
    let (events, _) = again.listen(Some(&cursor), async |batches| take(batches, 2).await).await;
    assert_eq!(texts(&events), ["one", "one"]);
    assert_eq!(events[0].dedup, events[1].dedup);
}

#[tokio::test]
async fn a_socket_that_was_lost_leaves_a_gap_that_is_closed() {
    let rig = rig_with(any_age);
    rig.listen(None, async |batches| {
        rig.fake.push_text("D1", "U5", "hello");
        take(batches, 1).await;
        rig.fake.on("apps.connections.open").times(2).does(Fault::Status(503));
        rig.fake.reset_sockets();
        away(&rig, |rig| drop(rig.fake.push_text("D1", "U5", "into the gap")));
        let events = take(batches, 1).await;
        assert_eq!(texts(&events), ["into the gap"]);
    })
    .await;
}

#[tokio::test]
async fn what_is_not_taken_is_fetched_again_and_the_cursor_stays_before_the_gap() {
    let rig = rig_with(any_age);
    let (_, cursor) = acquainted(&rig).await;
    away(&rig, |rig| drop(rig.fake.push_text("D1", "U5", "missed")));
    let again = Rig { adapter: adapter(&rig.fake, any_age), fake: rig.fake.clone() };
    again
        .listen(Some(&cursor), async |batches| {
            let first = next(batches).await;
            assert_eq!(texts(&first.events), ["missed"]);
            first.done.send(Taken::NotTaken).expect("it waits");
            let second = next(batches).await;
            assert_eq!(texts(&second.events), ["missed"]);
            let closed = second.cursor.clone().expect("a cursor");
            assert_ne!(closed, cursor);
            second.done.send(Taken::Committed).expect("it waits");
        })
        .await;
}

#[tokio::test]
async fn limits_waits_and_closed_channels_hold_nobody_else_up() {
    let rig = rig_with(any_age);
    let (_, cursor) = acquainted(&rig).await;
    away(&rig, |rig| {
        rig.fake.push(Incoming::new("C1", "U5", format!("<@{BOT}> barred")));
        rig.fake.push_text("D1", "U5", "heard");
    });
    rig.fake.archive("C1");
    rig.fake.on("conversations.history").nth(1).does(Fault::TooMany(1));
    let again = Rig { adapter: adapter(&rig.fake, any_age), fake: rig.fake.clone() };
    let (events, _) = again.listen(Some(&cursor), async |batches| take(batches, 1).await).await;
    assert_eq!(texts(&events), ["heard"]);

    let off = adapter(&rig.fake, |config| config.catch_up.messages = 0);
    let off = Rig { adapter: off, fake: rig.fake.clone() };
    let asked = rig.fake.calls_of("conversations.history").len();
    let (events, _) = off
        .listen(Some(&cursor), async |batches| {
            let opened = off.opened(3);
            take_until(batches, opened).await;
            off.fake.push_text("D1", "U5", "live");
            let events = take(batches, 1).await;
            off.acked(4).await;
            events
        })
        .await;
    assert_eq!(texts(&events), ["live"]);
    assert_eq!(rig.fake.calls_of("conversations.history").len(), asked);

    // A window that ends after everything that was said.
    let recent = Rig { adapter: adapter(&rig.fake, |_| {}), fake: rig.fake.clone() };
    let (events, _) = recent
        .listen(Some(&cursor), async |batches| {
            let asked = recent.wait_until("it asked", move |world| {
                (world.calls_of("conversations.history").count() > asked).then_some(())
            });
            take_until(batches, asked).await;
            recent.fake.push_text("D1", "U5", "live too");
            take(batches, 1).await
        })
        .await;
    assert_eq!(texts(&events), ["live too"]);
}
