//! What was said while no socket stood.

use std::time::Duration;

use petasos_fakes::slack::{BOT, Fault, Incoming, Side};
use petasos_platforms::{Health, Taken};

use crate::rig::{Rig, adapter, all_read, any_age, next, rig_with, take, take_until, texts};
use petasos_platforms::slack::Config;

fn away(rig: &Rig, say: impl FnOnce(&Rig)) {
    say(rig);
    rig.fake.give_up_deliveries();
}

/// The same Slack and another process.
fn another(rig: &Rig, change: impl FnOnce(&mut Config)) -> Rig {
    let change = |config: &mut Config| {
        any_age(config);
        change(config);
    };
    Rig { adapter: adapter(&rig.fake, change), fake: rig.fake.clone() }
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
    let again = another(&rig, |_| {});
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

    let third = another(&rig, |_| {});
    let (events, _) = third
        .listen(kept.as_deref(), async |batches| {
            third.opened(3).await;
            rig.fake.push_text("D1", "U5", "live");
            take(batches, 1).await
        })
        .await;
    // Perhaps fetched as well as told.
    assert!(texts(&events).iter().all(|text| *text == "live"), "caught up is caught up: {events:?}");
}

#[tokio::test]
async fn what_is_fetched_has_the_identity_of_what_is_told() {
    let rig = rig_with(any_age);
    let (_, cursor) = acquainted(&rig).await;
    rig.fake.push_text("D1", "U5", "one");
    let again = another(&rig, |_| {});
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
    let again = another(&rig, |_| {});
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
    let again = another(&rig, |_| {});
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

#[tokio::test]
async fn a_channel_that_cannot_be_read_now_keeps_its_gap_and_holds_up_no_other() {
    const OUT: u64 = 9;
    let rig = rig_with(any_age);
    let (_, cursor) = acquainted(&rig).await;
    away(&rig, |rig| {
        rig.fake.push_text("D1", "U5", "in private");
        rig.fake.push(Incoming::new("C1", "U5", format!("<@{BOT}> in the channel")));
    });
    let out = || rig.fake.on("conversations.history").channel("D1").times(OUT).does(Fault::Status(503));
    out();
    let mut kept = None;
    let (first, _) = another(&rig, |_| {})
        .listen(Some(&cursor), async |batches| {
            let first = next(batches).await;
            kept = first.cursor.clone();
            first.done.send(Taken::Committed).expect("it waits");
            let second = take(batches, 1).await;
            assert_eq!(texts(&second), ["in private"]);
            first.events
        })
        .await;
    assert_eq!(texts(&first), ["in the channel"]);
    let refused = |call: &petasos_fakes::slack::Call| !call.applied;
    assert_eq!(rig.fake.calls_of("conversations.history").iter().filter(|it| refused(it)).count(), 9);

    // A crash between the two.
    out();
    let again = another(&rig, |_| {});
    let (events, _) = again.listen(kept.as_deref(), async |batches| take(batches, 1).await).await;
    assert_eq!(texts(&events), ["in private"]);
}

#[tokio::test]
async fn rounds_follow_until_nothing_is_missing_and_each_takes_the_oldest() {
    let few = |config: &mut Config| config.catch_up.messages = 3;
    let rig = rig_with(any_age);
    let (root, cursor) = acquainted(&rig).await;
    away(&rig, |rig| {
        for number in 0..300 {
            rig.fake.push(Incoming::new("C1", "U5", format!("not for the bot {number}")));
        }
        rig.fake.push(Incoming::new("C1", "U5", "c1").thread(&root));
        for number in 1..=5 {
            rig.fake.push_text("D1", "U5", &format!("d{number}"));
        }
        rig.fake.push_mention(Incoming::new("C1", "U5", format!("<@{BOT}> c2")));
        rig.fake.push(Incoming::new("C1", "U5", "c3").thread(&root));
    });
    let rounds: [&[&str]; 3] = [&["d1", "d2", "d3"], &["c1", "d4", "d5"], &["c2", "c3"]];
    let mut cursors = vec![cursor];
    another(&rig, few)
        .listen(Some(&cursors[0].clone()), async |batches| {
            for round in rounds {
                let batch = next(batches).await;
                assert_eq!(texts(&batch.events), round);
                cursors.push(batch.cursor.clone().expect("a cursor"));
                batch.done.send(Taken::Committed).expect("it waits");
            }
        })
        .await;
    for (done, cursor) in cursors.iter().enumerate().take(rounds.len()) {
        let again = another(&rig, few);
        let (batch, _) = again.listen(Some(cursor), async |batches| next(batches).await.events).await;
        assert_eq!(texts(&batch), rounds[done], "after a crash behind round {done}");
    }
}

#[tokio::test]
async fn until_nothing_is_missing_every_sign_of_life_says_so() {
    let rig = rig_with(any_age);
    let (_, cursor) = acquainted(&rig).await;
    away(&rig, |rig| {
        for number in 1..=5 {
            rig.fake.push_text("D1", "U5", &format!("d{number}"));
        }
    });
    let few = |config: &mut Config| {
        (config.catch_up.messages, config.ping_interval) = (3, Duration::from_millis(20));
    };
    let ((), told) = another(&rig, few)
        .listen(Some(&cursor), async |batches| {
            let first = next(batches).await;
            // Signs of life that come while this batch waits are passed on once in a second.
            let pongs = rig.fake.look(|world| world.heartbeats().1);
            rig.wait_until("pings", move |world| (world.heartbeats().1 > pongs + 60).then_some(())).await;
            first.done.send(Taken::Committed).expect("it waits");
            assert_eq!(texts(&take(batches, 2).await), ["d4", "d5"]);
            rig.fake.push_text("D1", "U5", "live");
            assert_eq!(texts(&take(batches, 1).await), ["live"]);
        })
        .await;
    let behind = told.iter().filter(|state| **state == Health::CatchingUp).count();
    let done = told.iter().position(|state| *state == Health::Polling).expect("caught up");
    assert!(behind >= 2 && done == behind + 1, "{told:?}");
}

#[tokio::test]
async fn what_is_told_live_does_not_overtake_what_was_said_before_it() {
    let rig = rig_with(any_age);
    let (_, cursor) = acquainted(&rig).await;
    away(&rig, |rig| drop(rig.fake.push_text("D1", "U5", "missed")));
    let again = another(&rig, |config| config.ack_within = Duration::from_secs(40));
    let (events, _) = again
        .listen(Some(&cursor), async |batches| {
            let slow = rig.fake.gate("conversations.history", Side::Before);
            rig.opened(2).await;
            rig.fake.push_text("D1", "U5", "live");
            rig.fake.push_text("D2", "U5", "elsewhere");
            all_read(&again).await;
            let elsewhere = take(batches, 1).await;
            assert_eq!(texts(&elsewhere), ["elsewhere"], "only its own channel waits");
            slow.open();
            take(batches, 2).await
        })
        .await;
    assert_eq!(texts(&events)[..2], ["missed", "live"]);
}

#[tokio::test]
async fn a_live_message_waits_no_longer_than_it_may() {
    let rig = rig_with(any_age);
    let (_, cursor) = acquainted(&rig).await;
    rig.fake.on("conversations.history").always().does(Fault::Hang);
    let again = another(&rig, |_| {});
    let (events, _) = again
        .listen(Some(&cursor), async |batches| {
            rig.opened(2).await;
            rig.fake.push_text("D1", "U5", "live");
            let events = take(batches, 1).await;
            again.acked(4).await;
            events
        })
        .await;
    assert_eq!(texts(&events), ["live"]);
    let took = rig.fake.acks()[3].took.expect("it was waited for");
    assert!(took >= Duration::from_millis(1250), "it waited: {took:?}");
}
