//! The cursor: it never claims what is not on disk, so that nothing that Slack told us is lost, even if Slack never
//! says it again.

use petasos_fakes::slack::{Fault, Side};
use petasos_platforms::Taken;
use petasos_platforms::slack::Config;
use tokio::sync::mpsc;

use crate::rig::{Rig, adapter, all_read, any_age, next, rig_with, take, texts};

/// The same Slack, which will not say anything again, and a process that knows nothing but the cursor.
fn after_a_crash(rig: &Rig) -> Rig {
    rig.fake.give_up_deliveries();
    Rig { adapter: adapter(&rig.fake, any_age), fake: rig.fake.clone() }
}

/// The next batch; its cursor, or the one before it if there is none, is what a crash would leave behind.
async fn keep(batches: &mut mpsc::Receiver<petasos_platforms::Batch>) -> (Vec<String>, Option<String>) {
    let batch = next(batches).await;
    let said = texts(&batch.events).into_iter().map(str::to_owned).collect();
    batch.done.send(Taken::Committed).expect("it waits");
    (said, batch.cursor)
}

#[tokio::test]
async fn what_is_read_during_a_commit_is_not_claimed_by_it() {
    let rig = rig_with(any_age);
    let (cursor, _) = rig
        .listen(None, async |batches| {
            let slow = rig.fake.gate("users.info", Side::Before);
            rig.fake.push_text("D1", "U5", "first");
            rig.wait_until("a name is asked for", |world| world.calls_of("users.info").next().map(|_| ()))
                .await;
            rig.fake.push_text("D1", "U5", "second");
            all_read(&rig).await;
            slow.open();
            let (said, cursor) = keep(batches).await;
            assert_eq!(said, ["first"]);
            cursor.expect("a cursor")
        })
        .await;
    let again = after_a_crash(&rig);
    let (events, _) = again.listen(Some(&cursor), async |batches| take(batches, 1).await).await;
    assert_eq!(texts(&events), ["second"]);
}

#[tokio::test]
async fn what_was_refused_is_fetched_when_slack_does_not_say_it_again() {
    for known in [true, false] {
        let rig = rig_with(any_age);
        rig.listen(None, async |batches| {
            if known {
                rig.fake.push_text("D1", "U5", "hello");
                assert_eq!(keep(batches).await.0, ["hello"]);
                rig.acked(1).await;
            }
            rig.fake.push_text("D1", "U5", "refused");
            let refused = next(batches).await;
            rig.fake.give_up_deliveries();
            refused.done.send(Taken::NotTaken).expect("it waits");
            assert_eq!(keep(batches).await.0, ["refused"], "known before: {known}");
        })
        .await;
    }
}

#[tokio::test]
async fn a_commit_after_a_refused_one_does_not_claim_it() {
    let rig = rig_with(any_age);
    let (cursor, _) = rig
        .listen(None, async |batches| {
            rig.fake.push_text("D1", "U5", "hello");
            let before = keep(batches).await.1;
            rig.acked(1).await;
            rig.fake.on("conversations.history").always().does(Fault::Hang);
            rig.fake.push_text("D1", "U5", "refused");
            let refused = next(batches).await;
            rig.fake.give_up_deliveries();
            refused.done.send(Taken::NotTaken).expect("it waits");
            rig.wait_until("it is asked for", |world| {
                world.calls_of("conversations.history").next().map(|_| ())
            })
            .await;
            rig.fake.push_text("D1", "U5", "after");
            let (said, cursor) = keep(batches).await;
            assert_eq!(said, ["after"]);
            cursor.or(before).expect("a cursor")
        })
        .await;
    rig.fake.clear_faults();
    let again = after_a_crash(&rig);
    let (events, _) = again.listen(Some(&cursor), async |batches| take(batches, 2).await).await;
    assert_eq!(texts(&events), ["refused", "after"]);
}

#[tokio::test]
async fn an_envelope_for_which_there_was_no_room_is_fetched() {
    const TOO_MANY: usize = 300;
    let much = |config: &mut Config| {
        any_age(config);
        config.catch_up.messages = 1000;
    };
    let rig = rig_with(much);
    rig.listen(None, async |batches| {
        rig.fake.push_text("D1", "U5", "first");
        let first = next(batches).await;
        for number in 0..TOO_MANY {
            rig.fake.push_text("D1", "U5", &number.to_string());
        }
        all_read(&rig).await;
        rig.fake.give_up_deliveries();
        first.done.send(Taken::Committed).expect("it waits");
        let mut all = Vec::new();
        while !all.contains(&(TOO_MANY - 1).to_string()) {
            all.extend(keep(batches).await.0);
        }
        let missing: Vec<usize> = (0..TOO_MANY).filter(|it| !all.contains(&it.to_string())).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert!(!rig.fake.calls_of("conversations.history").is_empty(), "there was room for all");
    })
    .await;
}

#[tokio::test]
async fn a_second_gap_is_not_closed_by_what_filled_the_first() {
    let rig = rig_with(any_age);
    let (cursor, _) = rig
        .listen(None, async |batches| {
            rig.fake.push_text("D1", "U5", "hello");
            let cursor = keep(batches).await.1;
            rig.acked(1).await;
            cursor
        })
        .await;
    let second = after_a_crash(&rig);
    rig.fake.push_text("D1", "U5", "in the first gap");
    rig.fake.give_up_deliveries();
    let (cursor, _) = second
        .listen(cursor.as_deref(), async |batches| {
            let first = next(batches).await;
            assert_eq!(texts(&first.events), ["in the first gap"]);
            // While that is being committed, the socket goes, somebody writes, and it comes back.
            rig.fake.on("apps.connections.open").does(Fault::Status(503));
            rig.fake.reset_sockets();
            rig.fake.push_text("D1", "U5", "in the second gap");
            rig.fake.give_up_deliveries();
            rig.opened(3).await;
            rig.fake.on("conversations.history").always().does(Fault::Hang);
            let asked = rig.fake.calls_of("conversations.history").len();
            first.done.send(Taken::Committed).expect("it waits");
            rig.wait_until("the second is asked for", move |world| {
                (world.calls_of("conversations.history").count() > asked).then_some(())
            })
            .await;
            rig.fake.push_text("D1", "U5", "live");
            let (said, cursor) = keep(batches).await;
            assert_eq!(said, ["live"]);
            cursor.or(first.cursor).expect("a cursor")
        })
        .await;
    rig.fake.clear_faults();
    let third = after_a_crash(&rig);
    let (events, _) = third.listen(Some(&cursor), async |batches| take(batches, 1).await).await;
    assert!(texts(&events).contains(&"in the second gap"), "{:?}", texts(&events));
}
