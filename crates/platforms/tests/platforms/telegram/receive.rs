//! Long polling against a fake Bot API.

use petasos_core::Fault as ExpectedFault;
use petasos_fakes::telegram::{Fault, Incoming, Outcome};
use petasos_platforms::telegram::MenuCommand;
use petasos_platforms::{CommitResult, LinkHealth};
use petasos_runtime::clock;
use serde_json::json;
use std::time::Duration;

use super::fixture::{
    TEST_TIMEOUT, TOKEN, commit_events, degraded, fixture, fixture_with, next_batch, route, texts,
};

const OTHER_POLLER: &str = "Conflict: terminated by other getUpdates request";

#[tokio::test]
async fn confirms_an_ordered_backlog_only_after_the_commit() {
    let fixture = fixture();
    for text in ["one", "two", "three"] {
        fixture.fake.push_text(5, 5, text);
    }
    let ((), health_log) = fixture
        .listen(None, async |batches| {
            let batch = next_batch(batches).await;
            assert_eq!(texts(&batch.events), ["one", "two", "three"]);
            assert_eq!(fixture.fake.pending_updates(), 3, "not confirmed before the commit");
            let cursor: i64 = batch.cursor.expect("a cursor").parse().expect("a number");
            batch.done.send(CommitResult::Committed).expect("it waits");
            fixture
                .wait_until("confirmed", move |state| {
                    (state.confirmed_offset() == Some(cursor)).then_some(())
                })
                .await;
            assert_eq!(fixture.fake.pending_updates(), 0);
            fixture.wait_until("webhook", |state| state.calls_of("deleteWebhook").next().map(drop)).await;
        })
        .await;
    assert_eq!(health_log[..2], [LinkHealth::Connecting, LinkHealth::Backfilling]);
    let webhook = &fixture.fake.calls_of("deleteWebhook")[0];
    assert!(!webhook.params.flag("drop_pending_updates"), "a backlog is never discarded");
}

#[tokio::test]
async fn drains_a_backlog_with_short_polls_and_reports_its_end() {
    let fixture = fixture();
    fixture.fake.push_many((0..250).map(|number| Incoming::text(5, 5, number.to_string())));
    let ((), health_log) = fixture
        .listen(None, async |batches| {
            assert_eq!(commit_events(batches, 250).await.len(), 250);
            fixture
                .wait_until("lingers", |state| {
                    state
                        .calls_of("getUpdates")
                        .any(|call| call.params.int("timeout") > Some(0))
                        .then_some(())
                })
                .await;
            fixture.fake.push_text(5, 5, "live");
            assert_eq!(texts(&commit_events(batches, 1).await), ["live"]);
        })
        .await;
    let states = |state: LinkHealth| health_log.iter().filter(|it| **it == state).count();
    assert_eq!(
        (states(LinkHealth::Backfilling), health_log.get(4)),
        (3, Some(&LinkHealth::Connected)),
        "{health_log:?}"
    );
    let polls = fixture.fake.calls_of("getUpdates");
    let lingers: Vec<_> = polls.iter().map(|call| call.params.int("timeout") > Some(0)).collect();
    assert_eq!(lingers[..5], [false, false, false, false, true], "the last short one brings nothing");
}

#[tokio::test]
async fn updates_without_an_id_cause_no_request_storm() {
    let fixture = fixture();
    for _ in 0..5 {
        fixture.fake.push_raw_response(r#"{"ok":true,"result":[{"message":{}}]}"#);
    }
    let began = clock::monotonic();
    fixture
        .listen(None, async |_batches| {
            fixture
                .wait_until("five polls", |state| (state.calls_of("getUpdates").count() > 5).then_some(()))
                .await;
        })
        .await;
    assert!(began.elapsed() >= Duration::from_millis(500), "a breath after each");
}

#[tokio::test]
async fn redelivers_batches_that_were_not_stored() {
    let fixture = fixture();
    fixture.fake.push_text(5, 5, "keep me");
    let ((), health_log) = fixture
        .listen(None, async |batches| {
            next_batch(batches).await.done.send(CommitResult::NotStored).expect("it waits");
            drop(next_batch(batches).await);
            assert_eq!(texts(&commit_events(batches, 1).await), ["keep me"]);
        })
        .await;
    assert_eq!(degraded(&health_log), ["telegram_not_taken", "telegram_not_taken"]);
}

#[tokio::test]
async fn continues_from_the_stored_cursor() {
    let fixture = fixture();
    let first = fixture.fake.push_text(5, 5, "old");
    fixture.fake.push_text(5, 5, "new");
    let cursor = (first + 1).to_string();
    fixture
        .listen(Some(&cursor), async |batches| assert_eq!(texts(&commit_events(batches, 1).await), ["new"]))
        .await;
}

#[tokio::test]
async fn unreadable_update_does_not_block_the_others() {
    let fixture = fixture();
    fixture.fake.push_update(json!({ "message": { "message_id": "nine" } }));
    fixture.fake.push_update(json!({ "telepathy": true }));
    let good = fixture.fake.push_text(5, 5, "good");
    let last = fixture.fake.push_update(json!({ "message": 5 }));
    fixture
        .listen(None, async |batches| {
            let batch = next_batch(batches).await;
            assert_eq!(texts(&batch.events), ["good"]);
            assert_eq!(batch.events[0].dedup, good.to_string());
            assert_eq!(batch.cursor, Some((last + 1).to_string()));
        })
        .await;
}

#[tokio::test]
async fn keeps_the_backlog_through_server_errors() {
    let fixture = fixture();
    fixture.fake.on("getUpdates").times(3).does(Fault::status(502, "Bad Gateway"));
    fixture.fake.on("getUpdates").nth(4).does(Fault::Garbage);
    fixture.fake.on("getUpdates").nth(5).does(Fault::ResetBefore);
    fixture.fake.push_text(5, 5, "patient");
    let ((), health_log) = fixture
        .listen(None, async |batches| assert_eq!(texts(&commit_events(batches, 1).await), ["patient"]))
        .await;
    let server = "telegram_server_error";
    assert_eq!(
        degraded(&health_log),
        [server, server, server, "telegram_network_error", "telegram_network_error"]
    );
    assert_eq!(health_log.iter().filter(|state| **state == LinkHealth::Backfilling).count(), 1);
}

#[tokio::test]
async fn gives_up_at_the_eleventh_failed_poll() {
    let fixture = fixture();
    fixture.fake.on("getUpdates").always().does(Fault::status(502, "Bad Gateway"));
    let (error, health_log) = fixture.run_until_link_ends().await;
    assert_eq!(
        (error.code(), error.fault()),
        ("telegram_network_error", ExpectedFault::Later { after: None })
    );
    assert_eq!((fixture.polls(), degraded(&health_log).len()), (11, 10));
}

#[tokio::test]
async fn restarts_a_stalled_poll() {
    let fixture = fixture_with(|config| config.stall_check_interval = Duration::from_millis(100));
    // The first poll returns at once; the second would be held longer than the test waits.
    fixture.fake.on("getUpdates").nth(2).does(Fault::withhold_updates());
    let ((), health_log) = fixture
        .listen(None, async |batches| {
            fixture
                .wait_until("lingers", |state| (state.calls_of("getUpdates").count() == 2).then_some(()))
                .await;
            let before = fixture.fake.calls_of("getWebhookInfo").len();
            fixture.fake.push_text(5, 5, "withheld");
            assert_eq!(texts(&commit_events(batches, 1).await), ["withheld"]);
            assert!(fixture.fake.calls_of("getWebhookInfo").len() >= before + 2, "it asked twice");
        })
        .await;
    // On a busy machine the new poll may outlast two checks and be repeated.
    let mut reasons = degraded(&health_log);
    reasons.dedup();
    assert_eq!(reasons, ["telegram_updates_withheld"]);
    let outcomes: Vec<_> = fixture.fake.calls_of("getUpdates").into_iter().map(|call| call.outcome).collect();
    let refused = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Refused(_))).count();
    assert_eq!(refused, 0, "the old poll was gone before the new one: {outcomes:?}");
}

#[tokio::test]
async fn keeps_a_working_or_idle_poll() {
    let fixture = fixture_with(|config| config.stall_check_interval = Duration::from_millis(5));
    let ((), health_log) = fixture
        .listen(None, async |batches| {
            for number in 0..20 {
                fixture.fake.push_text(5, 5, number.to_string());
                assert_eq!(texts(&commit_events(batches, 1).await), [number.to_string()]);
            }
            let looks = fixture.fake.calls_of("getWebhookInfo").len() + 10;
            fixture
                .wait_until("ten quiet looks", move |state| {
                    (state.calls_of("getWebhookInfo").count() >= looks).then_some(())
                })
                .await;
        })
        .await;
    assert_eq!(degraded(&health_log), [""; 0]);
    assert!(
        fixture.polls() <= 22,
        "one for each text, the first, and the one that waits: {}",
        fixture.polls()
    );
}

#[tokio::test]
async fn waits_for_another_poller_without_overlapping_polls() {
    let fixture = fixture();
    fixture.fake.on("getUpdates").does(Fault::status(409, OTHER_POLLER));
    fixture.fake.push_text(5, 5, "after");
    let ((), health_log) = fixture
        .listen(None, async |batches| assert_eq!(texts(&commit_events(batches, 1).await), ["after"]))
        .await;
    assert_eq!(degraded(&health_log), ["telegram_polling_conflict"]);
    let refused = |outcome: &Outcome| matches!(outcome, Outcome::Refused(error) if error.code == 409);
    let conflicts = fixture.fake.calls_of("getUpdates").iter().filter(|call| refused(&call.outcome)).count();
    assert_eq!(conflicts, 1, "our own polls do not overlap");
}

#[tokio::test]
async fn permanent_conflict_ends_the_link_with_a_long_pause() {
    let fixture = fixture();
    fixture.fake.on("getUpdates").always().does(Fault::status(409, OTHER_POLLER));
    let (error, health_log) = fixture.run_until_link_ends().await;
    let pause = ExpectedFault::Later { after: Some(Duration::from_secs(300)) };
    assert_eq!((error.code(), error.fault()), ("telegram_polling_conflict", pause));
    assert_eq!((fixture.polls(), degraded(&health_log).len()), (6, 5));
}

#[tokio::test]
async fn removes_a_conflicting_webhook_at_once() {
    let fixture = fixture();
    let webhook = "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook first";
    fixture.fake.on("getUpdates").does(Fault::status(409, webhook));
    fixture.fake.push_text(5, 5, "after");
    let ((), health_log) = fixture
        .listen(None, async |batches| {
            assert_eq!(texts(&commit_events(batches, 1).await), ["after"]);
            fixture
                .wait_until("once at the start, once for it", |state| {
                    (state.calls_of("deleteWebhook").count() >= 2).then_some(())
                })
                .await;
        })
        .await;
    assert!(degraded(&health_log).is_empty());
}

#[tokio::test]
async fn bad_token_is_fatal_and_never_shown() {
    let fixture = fixture();
    fixture.fake.expect_token("999:other");
    let (error, _) = fixture.run_until_link_ends().await;
    assert_eq!((error.code(), error.fault()), ("telegram_invalid_token", ExpectedFault::Fatal));
    assert!(!format!("{error} {error:?}").contains(TOKEN));
}

#[tokio::test]
async fn abandons_a_poll_without_response() {
    let fixture = fixture_with(|config| config.poll_grace = Duration::from_millis(200));
    fixture.fake.on("getUpdates").does(Fault::Hang);
    fixture.fake.push_text(5, 5, "after");
    let ((), health_log) = fixture
        .listen(None, async |batches| assert_eq!(texts(&commit_events(batches, 1).await), ["after"]))
        .await;
    assert_eq!(degraded(&health_log), ["telegram_network_error"]);
    fixture
        .wait_until("the first poll is given up", |state| {
            let first = state.calls_of("getUpdates").next()?;
            (first.outcome == Outcome::Abandoned).then_some(())
        })
        .await;
}

#[tokio::test]
async fn loses_nothing_in_an_outage() {
    let fixture = fixture_with(|config| config.poll_backoff_base = Duration::from_millis(40));
    fixture.fake.push_text(5, 5, "before");
    fixture
        .listen(None, async |batches| {
            assert_eq!(texts(&commit_events(batches, 1).await), ["before"]);
            fixture.fake.down();
            for text in ["one", "two", "three"] {
                fixture.fake.push_text(5, 5, text);
            }
            fixture.fake.up().expect("the port is ours");
            assert_eq!(texts(&commit_events(batches, 3).await), ["one", "two", "three"]);
        })
        .await;
}

#[tokio::test]
async fn publishes_the_menu_beside_the_poll_and_may_fail() {
    let menu = vec![MenuCommand { command: "new".into(), description: "Start afresh".into() }];
    let fixture = fixture_with(|config| config.menu = menu);
    fixture.fake.on("setMyCommands").does(Fault::status(500, "Internal Server Error"));
    fixture.fake.push_text(5, 5, "x");
    fixture
        .listen(None, async |batches| {
            commit_events(batches, 1).await;
            fixture.wait_until("published", |state| state.calls_of("setMyCommands").next().map(drop)).await;
        })
        .await;
    let call = &fixture.fake.calls_of("setMyCommands")[0];
    assert_eq!(
        call.params.json("commands"),
        Some(json!([{ "command": "new", "description": "Start afresh" }]))
    );
}

#[tokio::test]
async fn messages_do_not_wait_for_menu_or_webhook_requests() {
    let menu = vec![MenuCommand { command: "new".into(), description: "Start afresh".into() }];
    let fixture = fixture_with(|config| (config.menu, config.request_timeout) = (menu, 6 * TEST_TIMEOUT));
    for method in ["setMyCommands", "deleteWebhook"] {
        fixture.fake.on(method).always().does(Fault::Hang);
    }
    fixture.fake.push_text(5, 5, "x");
    fixture.listen(None, async |batches| assert_eq!(texts(&commit_events(batches, 1).await), ["x"])).await;
}

#[tokio::test]
async fn receives_and_acknowledges_a_pressed_button() {
    let fixture = fixture();
    let part = petasos_platforms::Part::plain("choose");
    let receipt = fixture.adapter.send(&route(5), &part, &Default::default()).await.expect("sent");
    let message = receipt.message_id.expect("an id").parse().expect("a number");
    fixture.fake.push_callback(5, 7, message, "ea:once:1");
    let (events, _) = fixture.listen(None, async |batches| commit_events(batches, 1).await).await;
    assert_eq!(events[0].text, "ea:once:1");
    fixture.adapter.answer_callback(&events[0].dedup, Some("done")).await.expect("acknowledged");
    fixture.adapter.answer_callback("cb:unknown", None).await.expect("too late is no error");
    fixture.adapter.answer_callback("1001", None).await.expect("no button, nothing to do");
    assert_eq!(fixture.fake.calls_of("answerCallbackQuery").len(), 2);
}

#[tokio::test]
async fn pauses_between_polls_that_the_server_does_not_hold() {
    let fixture = fixture();
    for _ in 0..3 {
        fixture.fake.push_raw_response(r#"{"ok":true,"result":[]}"#);
    }
    fixture.listen(None, async |_| fixture.wait_until("four polls", four_polls).await).await;
    let at: Vec<_> = fixture.fake.calls_of("getUpdates").iter().map(|call| call.at).collect();
    assert!(at[2] - at[1] >= Duration::from_millis(50), "{at:?}");
}

fn four_polls(state: &petasos_fakes::telegram::State) -> Option<()> {
    (state.calls_of("getUpdates").count() >= 4).then_some(())
}

#[test]
fn link_futures_are_send() {
    fn movable<T: Send>(_: T) {}
    let fixture = fixture();
    let (sink, _batches) = petasos_platforms::InboundSink::new(1);
    movable(fixture.adapter.receive(None, &sink, &mut |_| {}));
    movable(fixture.adapter.send(&route(5), &petasos_platforms::Part::plain("x"), &Default::default()));
}
