//! The link against a fake Bot API.

mod rig;

use petasos_core::Fault as Meaning;
use petasos_fakes::telegram::{Fault, Incoming, Outcome};
use petasos_platforms::telegram::MenuCommand;
use petasos_platforms::{Health, Taken};
use rig::{SOON, TOKEN, degraded, next, rig, rig_with, take, texts};
use serde_json::json;
use std::time::Duration;

const OTHER_POLLER: &str = "Conflict: terminated by other getUpdates request";

#[tokio::test]
async fn a_backlog_arrives_in_order_and_is_confirmed_only_after_the_commit() {
    let rig = rig();
    for text in ["one", "two", "three"] {
        rig.fake.push_text(5, 5, text);
    }
    let ((), told) = rig
        .listen(None, async |batches| {
            let batch = next(batches).await;
            assert_eq!(texts(&batch.events), ["one", "two", "three"]);
            assert_eq!(rig.fake.pending_updates(), 3, "not confirmed before the commit");
            let cursor: i64 = batch.cursor.expect("a cursor").parse().expect("a number");
            batch.done.send(Taken::Committed).expect("it waits");
            rig.wait_until("confirmed", move |world| {
                (world.confirmed_offset() == Some(cursor)).then_some(())
            })
            .await;
            assert_eq!(rig.fake.pending_updates(), 0);
            rig.wait_until("webhook", |world| world.calls_of("deleteWebhook").next().map(drop)).await;
        })
        .await;
    assert_eq!(told[..2], [Health::Connecting, Health::CatchingUp]);
    let webhook = &rig.fake.calls_of("deleteWebhook")[0];
    assert!(!webhook.params.flag("drop_pending_updates"), "a backlog is never discarded");
}

#[tokio::test]
async fn a_backlog_is_caught_up_without_lingering_and_its_end_is_told() {
    let rig = rig();
    rig.fake.push_many((0..250).map(|number| Incoming::text(5, 5, number.to_string())));
    let ((), told) = rig
        .listen(None, async |batches| {
            assert_eq!(take(batches, 250).await.len(), 250);
            rig.wait_until("lingers", |world| {
                world.calls_of("getUpdates").any(|call| call.params.int("timeout") > Some(0)).then_some(())
            })
            .await;
            rig.fake.push_text(5, 5, "live");
            assert_eq!(texts(&take(batches, 1).await), ["live"]);
        })
        .await;
    let states = |state: Health| told.iter().filter(|it| **it == state).count();
    assert_eq!((states(Health::CatchingUp), told.get(4)), (3, Some(&Health::Polling)), "{told:?}");
    let polls = rig.fake.calls_of("getUpdates");
    let lingers: Vec<_> = polls.iter().map(|call| call.params.int("timeout") > Some(0)).collect();
    assert_eq!(lingers[..5], [false, false, false, false, true], "the last short one brings nothing");
}

#[tokio::test]
async fn updates_without_a_number_make_no_storm() {
    let rig = rig();
    for _ in 0..5 {
        rig.fake.push_raw_answer(r#"{"ok":true,"result":[{"message":{}}]}"#);
    }
    let began = std::time::Instant::now();
    rig.listen(None, async |_batches| {
        rig.wait_until("five polls", |world| (world.calls_of("getUpdates").count() > 5).then_some(())).await;
    })
    .await;
    assert!(began.elapsed() >= Duration::from_millis(500), "a breath after each");
}

#[tokio::test]
async fn what_the_gateway_does_not_take_comes_again() {
    let rig = rig();
    rig.fake.push_text(5, 5, "keep me");
    let ((), told) = rig
        .listen(None, async |batches| {
            next(batches).await.done.send(Taken::NotTaken).expect("it waits");
            drop(next(batches).await);
            assert_eq!(texts(&take(batches, 1).await), ["keep me"]);
        })
        .await;
    assert_eq!(degraded(&told), ["telegram_not_taken", "telegram_not_taken"]);
}

#[tokio::test]
async fn the_link_goes_on_from_its_cursor() {
    let rig = rig();
    let first = rig.fake.push_text(5, 5, "old");
    rig.fake.push_text(5, 5, "new");
    let cursor = (first + 1).to_string();
    rig.listen(Some(&cursor), async |batches| assert_eq!(texts(&take(batches, 1).await), ["new"])).await;
}

#[tokio::test]
async fn one_poison_update_does_not_block_the_others() {
    let rig = rig();
    rig.fake.push_update(json!({ "message": { "message_id": "nine" } }));
    rig.fake.push_update(json!({ "telepathy": true }));
    let good = rig.fake.push_text(5, 5, "good");
    let last = rig.fake.push_update(json!({ "message": 5 }));
    rig.listen(None, async |batches| {
        let batch = next(batches).await;
        assert_eq!(texts(&batch.events), ["good"]);
        assert_eq!(batch.events[0].dedup, good.to_string());
        assert_eq!(batch.cursor, Some((last + 1).to_string()));
    })
    .await;
}

#[tokio::test]
async fn server_errors_and_rubbish_are_ridden_out_with_the_backlog_kept() {
    let rig = rig();
    rig.fake.on("getUpdates").times(3).does(Fault::status(502, "Bad Gateway"));
    rig.fake.on("getUpdates").nth(4).does(Fault::Garbage);
    rig.fake.on("getUpdates").nth(5).does(Fault::ResetBefore);
    rig.fake.push_text(5, 5, "patient");
    let ((), told) =
        rig.listen(None, async |batches| assert_eq!(texts(&take(batches, 1).await), ["patient"])).await;
    let server = "telegram_server_error";
    assert_eq!(degraded(&told), [server, server, server, "telegram_network_error", "telegram_network_error"]);
    assert_eq!(told.iter().filter(|state| **state == Health::CatchingUp).count(), 1);
}

#[tokio::test]
async fn a_dead_network_is_given_back_to_the_supervisor_at_the_eleventh_failure() {
    let rig = rig();
    rig.fake.on("getUpdates").always().does(Fault::status(502, "Bad Gateway"));
    let (error, told) = rig.listen_to_the_end().await;
    assert_eq!((error.code(), error.fault()), ("telegram_network_error", Meaning::Later { after: None }));
    assert_eq!((rig.polls(), degraded(&told).len()), (11, 10));
}

#[tokio::test]
async fn a_poll_that_brings_nothing_while_updates_wait_is_made_anew() {
    let rig = rig_with(|config| config.probe_every = Duration::from_millis(100));
    // The first poll does not linger; the second would for longer than the test waits.
    rig.fake.on("getUpdates").nth(2).does(Fault::WithholdUpdates);
    let ((), told) = rig
        .listen(None, async |batches| {
            rig.wait_until("lingers", |world| (world.calls_of("getUpdates").count() == 2).then_some(()))
                .await;
            let before = rig.fake.calls_of("getWebhookInfo").len();
            rig.fake.push_text(5, 5, "withheld");
            assert_eq!(texts(&take(batches, 1).await), ["withheld"]);
            assert!(rig.fake.calls_of("getWebhookInfo").len() >= before + 2, "it asked twice");
        })
        .await;
    // On a busy machine the new poll may take longer than two probes, and is made anew as well.
    let mut reasons = degraded(&told);
    reasons.dedup();
    assert_eq!(reasons, ["telegram_updates_withheld"]);
    let outcomes: Vec<_> = rig.fake.calls_of("getUpdates").into_iter().map(|call| call.outcome).collect();
    let refused = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Refused { .. })).count();
    assert_eq!(refused, 0, "the old poll was gone before the new one: {outcomes:?}");
}

#[tokio::test]
async fn a_poll_is_left_alone_while_it_brings_what_comes_or_nothing_does() {
    let rig = rig_with(|config| config.probe_every = Duration::from_millis(5));
    let ((), told) = rig
        .listen(None, async |batches| {
            for number in 0..20 {
                rig.fake.push_text(5, 5, number.to_string());
                assert_eq!(texts(&take(batches, 1).await), [number.to_string()]);
            }
            let looks = rig.fake.calls_of("getWebhookInfo").len() + 10;
            rig.wait_until("ten quiet looks", move |world| {
                (world.calls_of("getWebhookInfo").count() >= looks).then_some(())
            })
            .await;
        })
        .await;
    assert_eq!(degraded(&told), [""; 0]);
    assert!(rig.polls() <= 22, "one for each text, the first, and the one that waits: {}", rig.polls());
}

#[tokio::test]
async fn another_poller_is_waited_for_and_never_polled_against() {
    let rig = rig();
    rig.fake.on("getUpdates").does(Fault::status(409, OTHER_POLLER));
    rig.fake.push_text(5, 5, "after");
    let ((), told) =
        rig.listen(None, async |batches| assert_eq!(texts(&take(batches, 1).await), ["after"])).await;
    assert_eq!(degraded(&told), ["telegram_polling_conflict"]);
    let refused = |outcome: &Outcome| matches!(outcome, Outcome::Refused { code: 409, .. });
    let conflicts = rig.fake.calls_of("getUpdates").iter().filter(|call| refused(&call.outcome)).count();
    assert_eq!(conflicts, 1, "our own polls do not overlap");
}

#[tokio::test]
async fn another_poller_that_stays_ends_the_link_with_a_long_pause() {
    let rig = rig();
    rig.fake.on("getUpdates").always().does(Fault::status(409, OTHER_POLLER));
    let (error, told) = rig.listen_to_the_end().await;
    let pause = Meaning::Later { after: Some(Duration::from_secs(300)) };
    assert_eq!((error.code(), error.fault()), ("telegram_polling_conflict", pause));
    assert_eq!((rig.polls(), degraded(&told).len()), (6, 5));
}

#[tokio::test]
async fn a_webhook_that_is_in_the_way_is_removed_at_once() {
    let rig = rig();
    let webhook = "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook first";
    rig.fake.on("getUpdates").does(Fault::status(409, webhook));
    rig.fake.push_text(5, 5, "after");
    let ((), told) = rig
        .listen(None, async |batches| {
            assert_eq!(texts(&take(batches, 1).await), ["after"]);
            rig.wait_until("once at the start, once for it", |world| {
                (world.calls_of("deleteWebhook").count() >= 2).then_some(())
            })
            .await;
        })
        .await;
    assert!(degraded(&told).is_empty());
}

#[tokio::test]
async fn a_bad_token_is_fatal_and_never_shown() {
    let rig = rig();
    rig.fake.expect_token("999:other");
    let (error, _) = rig.listen_to_the_end().await;
    assert_eq!((error.code(), error.fault()), ("telegram_invalid_token", Meaning::Fatal));
    assert!(!format!("{error} {error:?}").contains(TOKEN));
}

#[tokio::test]
async fn a_poll_that_is_never_answered_is_abandoned() {
    let rig = rig_with(|config| config.poll_grace = Duration::from_millis(200));
    rig.fake.on("getUpdates").does(Fault::Hang);
    rig.fake.push_text(5, 5, "after");
    let ((), told) =
        rig.listen(None, async |batches| assert_eq!(texts(&take(batches, 1).await), ["after"])).await;
    assert_eq!(degraded(&told), ["telegram_network_error"]);
    rig.wait_until("the first poll is given up", |world| {
        let first = world.calls_of("getUpdates").next()?;
        (first.outcome == Outcome::Abandoned).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_outage_loses_nothing() {
    let rig = rig_with(|config| config.poll_backoff_base = Duration::from_millis(40));
    rig.fake.push_text(5, 5, "before");
    rig.listen(None, async |batches| {
        assert_eq!(texts(&take(batches, 1).await), ["before"]);
        rig.fake.down();
        for text in ["one", "two", "three"] {
            rig.fake.push_text(5, 5, text);
        }
        rig.fake.up().expect("the port is ours");
        assert_eq!(texts(&take(batches, 3).await), ["one", "two", "three"]);
    })
    .await;
}

#[tokio::test]
async fn the_menu_is_published_beside_the_poll_and_may_fail() {
    let menu = vec![MenuCommand { command: "new".into(), description: "Start afresh".into() }];
    let rig = rig_with(|config| config.menu = menu);
    rig.fake.on("setMyCommands").does(Fault::status(500, "Internal Server Error"));
    rig.fake.push_text(5, 5, "x");
    rig.listen(None, async |batches| {
        take(batches, 1).await;
        rig.wait_until("published", |world| world.calls_of("setMyCommands").next().map(drop)).await;
    })
    .await;
    let call = &rig.fake.calls_of("setMyCommands")[0];
    assert_eq!(
        call.params.json("commands"),
        Some(json!([{ "command": "new", "description": "Start afresh" }]))
    );
}

#[tokio::test]
async fn no_message_waits_for_the_menu_or_the_webhook() {
    let menu = vec![MenuCommand { command: "new".into(), description: "Start afresh".into() }];
    let rig = rig_with(|config| (config.menu, config.request_timeout) = (menu, 6 * SOON));
    for method in ["setMyCommands", "deleteWebhook"] {
        rig.fake.on(method).always().does(Fault::Hang);
    }
    rig.fake.push_text(5, 5, "x");
    rig.listen(None, async |batches| assert_eq!(texts(&take(batches, 1).await), ["x"])).await;
}

#[tokio::test]
async fn a_pressed_button_arrives_and_is_acknowledged() {
    let rig = rig();
    let part = petasos_platforms::Part::plain("choose");
    let receipt = rig.adapter.send(&rig::route(5), &part, &Default::default()).await.expect("sent");
    let message = receipt.message_id.expect("an id").parse().expect("a number");
    rig.fake.push_callback(5, 7, message, "ea:once:1");
    let (events, _) = rig.listen(None, async |batches| take(batches, 1).await).await;
    assert_eq!(events[0].text, "ea:once:1");
    rig.adapter.answer_callback(&events[0].dedup, Some("done")).await.expect("acknowledged");
    rig.adapter.answer_callback("cb:unknown", None).await.expect("too late is no error");
    rig.adapter.answer_callback("1001", None).await.expect("no button, nothing to do");
    assert_eq!(rig.fake.calls_of("answerCallbackQuery").len(), 2);
}

#[tokio::test]
async fn a_server_that_does_not_hold_the_poll_is_not_stormed() {
    let rig = rig();
    for _ in 0..3 {
        rig.fake.push_raw_answer(r#"{"ok":true,"result":[]}"#);
    }
    rig.listen(None, async |_| rig.wait_until("four polls", four_polls).await).await;
    let at: Vec<_> = rig.fake.calls_of("getUpdates").iter().map(|call| call.at).collect();
    assert!(at[2] - at[1] >= Duration::from_millis(50), "{at:?}");
}

fn four_polls(world: &petasos_fakes::telegram::World) -> Option<()> {
    (world.calls_of("getUpdates").count() >= 4).then_some(())
}

#[test]
fn the_link_can_run_on_any_thread() {
    fn movable<T: Send>(_: T) {}
    let rig = rig();
    let (intake, _batches) = petasos_platforms::Intake::new(1);
    movable(rig.adapter.receive(None, &intake, &mut |_| {}));
    movable(rig.adapter.send(&rig::route(5), &petasos_platforms::Part::plain("x"), &Default::default()));
}
