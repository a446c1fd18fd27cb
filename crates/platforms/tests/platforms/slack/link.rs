//! The link: Socket Mode.

use std::time::Duration;

use petasos_core::Fault as ExpectedFault;
use petasos_core::Route;
use petasos_core::message::{ChatType, Delivery};
use petasos_fakes::slack::{DeliveryState, Fault, Incoming, State};
use petasos_platforms::{CommitResult, LinkHealth, Part, SendOptions};
use serde_json::json;

use super::fixture::{
    APP_TOKEN, SlackFixture, TEST_TIMEOUT, adapter, commit_events, commit_until, degraded, fixture,
    fixture_with, next_batch, texts,
};
use crate::harness::wait_as_demanded;

const BRIEF: Duration = Duration::from_millis(50);

fn mention(channel: &str, text: &str) -> Incoming {
    Incoming::new(channel, "U7", format!("<@U1BOT> {text}"))
}

#[tokio::test]
async fn acknowledges_an_envelope_only_after_the_commit() {
    let fixture = fixture();
    fixture.fake.add_user("U7", "Ada");
    let ts = fixture.fake.push_text("D1", "U7", "hello");
    let ((), health_log) = fixture
        .listen(None, async |batches| {
            let batch = next_batch(batches).await;
            let event = &batch.events[0];
            assert_eq!((event.text.as_str(), event.dedup.clone()), ("hello", format!("T1:D1:{ts}")));
            assert_eq!(
                (event.source.chat_type, event.source.scope_id.as_deref()),
                (ChatType::Dm, Some("T1"))
            );
            assert_eq!(event.source.user_name.as_deref(), Some("Ada"));
            assert!(fixture.fake.acks().is_empty(), "not before the commit");
            batch.done.send(CommitResult::Committed).expect("the adapter waits");
            fixture.wait_for_acks(1).await;
        })
        .await;
    assert_eq!(health_log[..2], [LinkHealth::Connecting, LinkHealth::Connected]);
    let ack = &fixture.fake.acks()[0];
    assert_eq!((ack.delivery, ack.payload.clone()), (Some(0), json!(null)));
    assert!(ack.took.expect("in time") < Duration::from_secs(3));
    assert_eq!(fixture.fake.calls_of("apps.connections.open")[0].token, APP_TOKEN);
}

#[tokio::test]
async fn redelivers_envelopes_that_were_not_stored() {
    let fixture = fixture();
    fixture.fake.set_ack_timeout(Duration::from_millis(200));
    fixture.fake.push_text("D1", "U7", "keep me");
    let ((), health_log) = fixture
        .listen(None, async |batches| {
            let first = next_batch(batches).await;
            let dedup = first.events[0].dedup.clone();
            first.done.send(CommitResult::NotStored).expect("the adapter waits");
            assert!(fixture.fake.acks().is_empty(), "not stored, not acknowledged");
            let again = commit_until(batches, fixture.wait_for_acks(1)).await;
            assert_eq!((again[0].text.as_str(), again[0].dedup.clone()), ("keep me", dedup));
        })
        .await;
    assert_eq!(degraded(&health_log), ["slack_not_taken"]);
    assert!(fixture.fake.read(|state| state.deliveries()[0].repeated) >= 1);
}

#[tokio::test]
async fn acknowledges_the_redelivery_after_a_slow_commit() {
    let fixture = fixture_with(|config| config.ack_timeout = 4 * BRIEF);
    fixture.fake.set_ack_timeout(5 * BRIEF);
    fixture.fake.push_text("D1", "U7", "slow");
    fixture
        .listen(None, async |batches| {
            let slow = next_batch(batches).await;
            let repeated = |state: &State| (state.deliveries()[0].repeated >= 1).then_some(());
            fixture.wait_until("a redelivery", repeated).await;
            slow.done.send(CommitResult::Committed).expect("the adapter waits");
            let again = commit_until(batches, fixture.wait_for_acks(1)).await;
            assert_eq!(slow.events[0].dedup, again[0].dedup);
        })
        .await;
    let acks = fixture.fake.acks();
    assert!(acks.iter().all(|ack| ack.envelope != "envelope-1"), "too late for the first: {acks:?}");
    assert_eq!(fixture.fake.read(|state| state.deliveries()[0].state.clone()), DeliveryState::Acked);
}

#[tokio::test]
async fn batches_events_that_arrive_during_a_commit() {
    let fixture = fixture();
    fixture.fake.push_text("D1", "U7", "one");
    fixture
        .listen(None, async |batches| {
            let first = next_batch(batches).await;
            for text in ["two", "three"] {
                fixture.fake.push_text("D1", "U7", text);
            }
            let sent = |state: &State| {
                let sent = state.deliveries().iter().all(|it| matches!(it.state, DeliveryState::Sent { .. }));
                sent.then_some(())
            };
            fixture.wait_until("all three are sent", sent).await;
            // A pong shows that every earlier frame was read.
            fixture.fake.ping();
            fixture.wait_until("a pong", |state| (state.heartbeats().0 >= 1).then_some(())).await;
            first.done.send(CommitResult::Committed).expect("the adapter waits");
            let second = next_batch(batches).await;
            assert_eq!(texts(&second.events), ["two", "three"]);
            second.done.send(CommitResult::Committed).expect("the adapter waits");
            fixture.wait_for_acks(3).await;
        })
        .await;
}

#[tokio::test]
async fn message_and_its_app_mention_share_a_dedup_key() {
    let fixture = fixture();
    fixture.fake.push_mention(mention("C1", "hi"));
    let (events, _) = fixture
        .listen(None, async |batches| {
            let events = commit_events(batches, 2).await;
            fixture.wait_for_acks(2).await;
            events
        })
        .await;
    assert_eq!(events[0], events[1]);
}

#[tokio::test]
async fn acknowledges_events_for_others_without_a_commit() {
    let fixture = fixture();
    fixture.fake.push_text("C1", "U7", "not for the bot");
    fixture
        .listen(None, async |batches| {
            fixture.wait_for_acks(1).await;
            assert!(batches.try_recv().is_err());
        })
        .await;
}

#[tokio::test]
async fn unreadable_envelope_does_not_block_the_others() {
    let fixture = fixture();
    fixture.fake.push_text("D1", "U7", "one");
    fixture
        .fake
        .push_envelope("events_api", json!({ "team_id": "T1", "event": { "type": "message", "ts": 5 } }));
    fixture.fake.push_frame(r#"{"envelope_id":"$ENVELOPE","type":["odd"]}"#);
    fixture.fake.push_envelope("telepathy", json!({}));
    fixture.fake.push_text("D1", "U7", "two");
    let ((), health_log) = fixture
        .listen(None, async |batches| {
            assert_eq!(texts(&commit_events(batches, 2).await), ["one", "two"]);
            fixture.wait_for_acks(5).await;
        })
        .await;
    assert_eq!(degraded(&health_log), ["slack_unreadable_envelope", "slack_unreadable_envelope"]);
}

#[tokio::test]
async fn own_threads_need_no_mention_even_after_a_restart() {
    let fixture = fixture();
    let root = fixture.fake.push(mention("C1", "help")).ts;
    let (cursor, _) = fixture
        .listen(None, async |batches| {
            let batch = next_batch(batches).await;
            assert_eq!(batch.events[0].source.thread_id.as_deref(), Some(root.as_str()));
            batch.done.send(CommitResult::Committed).expect("the adapter waits");
            fixture.wait_for_acks(1).await;
            fixture.fake.push(Incoming::new("C1", "U8", "me too").thread(&root));
            assert_eq!(texts(&commit_events(batches, 1).await), ["me too"]);
            fixture.wait_for_acks(2).await;
            batch.cursor
        })
        .await;
    let next_process = SlackFixture { adapter: adapter(&fixture.fake, |_| {}), fake: fixture.fake.clone() };
    fixture.fake.push(Incoming::new("C1", "U8", "other thread").thread("1.1"));
    fixture.fake.push(Incoming::new("C1", "U8", "still there?").thread(&root));
    next_process
        .listen(cursor.as_deref(), async |batches| {
            assert_eq!(texts(&commit_events(batches, 1).await), ["still there?"]);
        })
        .await;
}

#[tokio::test]
async fn mention_in_a_thread_includes_earlier_messages_once() {
    let fixture = fixture();
    let root = fixture.fake.push_text("C1", "U8", "the build is broken");
    let replies = [mention("C1", "why?").thread(&root), mention("C1", "and now?").thread(&root)];
    let (events, _) = fixture
        .listen(None, async |batches| {
            fixture.wait_for_acks(1).await;
            let mut events = Vec::new();
            for reply in replies {
                fixture.fake.push(reply);
                events.extend(commit_events(batches, 1).await);
            }
            events
        })
        .await;
    assert_eq!(events[0].quoted.as_deref(), Some("<@U8> (unverified): the build is broken"));
    assert_eq!(events[1].quoted, None, "already in the session");
}

#[tokio::test]
async fn slow_name_requests_do_not_delay_the_acknowledgement() {
    let fixture = fixture();
    for method in ["users.info", "conversations.replies"] {
        fixture.fake.on(method).always().does(Fault::Hang);
    }
    fixture.fake.push(mention("C1", "why?").thread("1.1"));
    fixture
        .listen(None, async |batches| {
            assert_eq!(texts(&commit_events(batches, 1).await), ["why?"]);
            fixture.wait_for_acks(1).await;
        })
        .await;
    assert!(fixture.fake.acks()[0].took.is_some_and(|took| took < Duration::from_millis(2500)));
}

#[tokio::test]
async fn refresh_opens_the_next_socket_first_and_loses_nothing() {
    for reason in ["warning", "refresh_requested"] {
        let fixture = fixture();
        let ((), health_log) = fixture
            .listen(None, async |batches| {
                fixture.wait_for_sockets(1).await;
                fixture.fake.push_text("D1", "U7", "on its way");
                let batch = next_batch(batches).await;
                fixture.fake.announce_disconnect(reason);
                fixture.wait_for_sockets(2).await;
                assert_eq!(fixture.fake.read(|state| state.open_sockets()), 2, "the old one is still open");
                batch.done.send(CommitResult::Committed).expect("the adapter waits");
                fixture.wait_for_acks(1).await;
                assert_eq!(fixture.fake.acks()[0].connection, 1, "over the socket that delivered it");
                fixture.fake.close_leaving();
                fixture.fake.push_text("D1", "U7", "after");
                assert_eq!(texts(&commit_events(batches, 1).await), ["after"]);
                fixture.wait_for_acks(2).await;
            })
            .await;
        assert_eq!(degraded(&health_log), [""; 0], "{reason}");
        let repeated =
            fixture.fake.read(|state| state.deliveries().iter().map(|it| it.repeated).sum::<u32>());
        assert_eq!((repeated, fixture.fake.acks()[1].connection), (0, 2), "{reason}");
    }
}

#[tokio::test]
async fn retries_a_failed_refresh() {
    let fixture = fixture();
    let ((), health_log) = fixture
        .listen(None, async |batches| {
            fixture.wait_for_sockets(1).await;
            fixture.fake.on("apps.connections.open").does(Fault::error("internal_error"));
            fixture.fake.announce_disconnect("refresh_requested");
            fixture.wait_for_sockets(2).await;
            fixture.fake.push_text("D1", "U7", "after");
            assert_eq!(texts(&commit_events(batches, 1).await), ["after"]);
        })
        .await;
    assert_eq!(degraded(&health_log), ["slack_server_error"]);
}

#[tokio::test]
async fn disabled_socket_mode_is_fatal_and_gives_advice() {
    let fixture = fixture();
    let stopper = fixture.fake.clone();
    let disable = petasos_runtime::blocking(move || {
        stopper
            .wait_until(TEST_TIMEOUT, |state| (state.open_sockets() == 1).then_some(()))
            .expect("a socket");
        stopper.announce_disconnect("link_disabled");
    });
    let (error, _) = fixture.run_until_link_ends().await;
    disable.await.expect("announced");
    assert_eq!((error.code(), error.fault()), ("slack_link_disabled", ExpectedFault::Fatal));
    assert!(error.to_string().contains("Socket Mode"), "{error}");
}

#[tokio::test]
async fn replaces_a_silent_socket_and_receives_lost_events_again() {
    let fixture = fixture_with(|config| {
        config.ping_interval = BRIEF;
        config.silence = 6 * BRIEF;
    });
    fixture.fake.set_ack_timeout(4 * BRIEF);
    let ((), health_log) = fixture
        .listen(None, async |batches| {
            fixture.wait_for_sockets(1).await;
            fixture.fake.silence();
            fixture.fake.push_text("D1", "U7", "are you there?");
            assert_eq!(commit_until(batches, fixture.wait_for_acks(1)).await[0].text, "are you there?");
        })
        .await;
    assert_eq!(degraded(&health_log)[0], "slack_socket_silent");
    assert!(fixture.fake.read(|state| state.opened()) >= 2);
}

#[tokio::test]
async fn keeps_a_quiet_socket_that_answers_pings() {
    let fixture = fixture_with(|config| {
        config.ping_interval = BRIEF / 2;
        config.silence = 20 * BRIEF;
    });
    let ((), health_log) = fixture
        .listen(None, async |_| {
            let pings = |state: &State| (state.heartbeats().1 >= 60).then_some(());
            fixture.wait_until("pings for longer than the silence", pings).await;
        })
        .await;
    assert_eq!((degraded(&health_log).len(), fixture.fake.read(|state| state.opened())), (0, 1));
}

#[tokio::test]
async fn reconnects_a_lost_socket_at_once() {
    let fixture = fixture();
    let ((), health_log) = fixture
        .listen(None, async |batches| {
            fixture.wait_for_sockets(1).await;
            fixture.fake.reset_sockets();
            fixture.wait_for_sockets(2).await;
            fixture.fake.close_sockets();
            fixture.wait_for_sockets(3).await;
            fixture.fake.push_text("D1", "U7", "after");
            assert_eq!(texts(&commit_events(batches, 1).await), ["after"]);
        })
        .await;
    assert_eq!(degraded(&health_log), ["slack_socket_lost", "slack_socket_lost"]);
    assert_eq!(fixture.fake.calls_of("auth.test").len(), 1, "still signed in");
}

#[tokio::test]
async fn loses_nothing_in_an_outage() {
    let fixture = fixture_with(|config| config.reconnect_base = Duration::from_millis(40));
    fixture
        .listen(None, async |batches| {
            fixture.fake.push_text("D1", "U7", "before");
            assert_eq!(texts(&commit_events(batches, 1).await), ["before"]);
            fixture.wait_for_acks(1).await;
            fixture.fake.down();
            for text in ["one", "two", "three"] {
                fixture.fake.push_text("D1", "U7", text);
            }
            fixture.fake.up().expect("the port is ours");
            assert_eq!(texts(&commit_events(batches, 3).await), ["one", "two", "three"]);
        })
        .await;
}

#[tokio::test]
async fn gives_up_on_a_socket_without_hello() {
    let fixture = fixture_with(|config| config.hello_timeout = 2 * BRIEF);
    fixture.fake.on("hello").does(Fault::Hang);
    let (error, health_log) = fixture.run_until_link_ends().await;
    assert_eq!((error.code(), error.fault()), ("slack_socket_silent", ExpectedFault::Later { after: None }));
    assert!(degraded(&health_log).is_empty(), "{health_log:?}");
}

#[tokio::test]
async fn gives_up_at_once_if_slack_was_never_reached() {
    let fixture = fixture();
    fixture.fake.on("apps.connections.open").always().does(Fault::ProxyError(502));
    let (error, health_log) = fixture.run_until_link_ends().await;
    assert_eq!(error.fault(), ExpectedFault::Later { after: None });
    assert_eq!((fixture.fake.calls_of("apps.connections.open").len(), degraded(&health_log).len()), (1, 0));
}

#[tokio::test]
async fn gives_up_at_the_sixth_failure_after_an_outage() {
    let fixture = fixture();
    fixture.fake.on("apps.connections.open").nth(2).always().does(Fault::ProxyError(502));
    let outage = async {
        fixture.wait_for_sockets(1).await;
        fixture.fake.reset_sockets();
    };
    let ((error, health_log), ()) = tokio::join!(fixture.run_until_link_ends(), outage);
    assert_eq!((error.code(), error.fault()), ("slack_network_error", ExpectedFault::Later { after: None }));
    assert_eq!((fixture.fake.calls_of("apps.connections.open").len(), degraded(&health_log).len()), (6, 5));
}

#[tokio::test]
async fn reports_and_respects_rate_limits() {
    let fixture = fixture();
    fixture.fake.on("apps.connections.open").does(Fault::too_many(1));
    let (error, _) = fixture.run_until_link_ends().await;
    let after = Some(Duration::from_secs(1));
    assert_eq!((error.code(), error.fault()), ("slack_rate_limited", ExpectedFault::Later { after }));
    let (penalized, _) = fixture.run_until_link_ends().await;
    assert_eq!((penalized.code(), penalized.is_penalized()), ("slack_rate_limited", true), "{penalized}");
    let ExpectedFault::Later { after: Some(left) } = penalized.fault() else { panic!("{penalized}") };
    wait_as_demanded(left).await;
    fixture.fake.on("apps.connections.open").nth(2).does(Fault::too_many(1));
    let limited = async |_: &mut _| {
        fixture.wait_for_sockets(1).await;
        fixture.fake.reset_sockets();
        fixture.wait_for_sockets(2).await;
    };
    let ((), health_log) = fixture.listen(None, limited).await;
    assert!(degraded(&health_log).contains(&"slack_rate_limited"), "{health_log:?}");
    let at: Vec<_> = fixture.fake.calls_of("apps.connections.open").iter().map(|call| call.at).collect();
    assert!(at[3] - at[2] >= Duration::from_secs(1), "{:?}", at[3] - at[2]);
}

#[tokio::test]
async fn bad_tokens_are_fatal_and_never_shown() {
    type Setup = fn(&SlackFixture);
    let cases: [(Setup, &str, &str); 4] = [
        (|fixture| fixture.fake.expect_app_token("xapp-other"), "slack_invalid_auth", "SLACK_APP_TOKEN"),
        (|fixture| fixture.fake.revoke("xoxb-1"), "slack_invalid_auth", "SLACK_BOT_TOKEN"),
        (
            |fixture| fixture.fake.on("auth.test").does(Fault::error("account_inactive")),
            "slack_invalid_auth",
            "account_inactive",
        ),
        (
            |fixture| {
                fixture.fake.on("apps.connections.open").does(Fault::missing_scope("connections:write"))
            },
            "slack_missing_scope",
            "connections:write",
        ),
    ];
    for (setup, code, words) in cases {
        let fixture = fixture();
        setup(&fixture);
        let (error, _) = fixture.run_until_link_ends().await;
        assert_eq!((error.code(), error.fault()), (code, ExpectedFault::Fatal));
        let text = format!("{error} {error:?}");
        assert!(text.contains(words) && !text.contains(APP_TOKEN) && !text.contains("xoxb-1"), "{text}");
    }
}

#[tokio::test]
async fn missing_tokens_are_fatal_without_a_request() {
    let fixture = fixture_with(|config| config.bot_tokens = vec![]);
    let (error, _) = fixture.run_until_link_ends().await;
    assert_eq!((error.code(), error.fault()), ("slack_missing_bot_token", ExpectedFault::Fatal));
    assert_eq!(fixture.fake.read(|state| state.calls().count()), 0);
}

#[tokio::test]
async fn answers_a_slash_command_in_private() {
    let fixture = fixture();
    let url = fixture.fake.push_command("C1", "U7", "/petasos", "status");
    let (events, _) = fixture
        .listen(None, async |batches| {
            let events = commit_events(batches, 1).await;
            fixture.wait_for_acks(1).await;
            events
        })
        .await;
    assert_eq!(texts(&events), ["/status"]);
    let notice = json!({ "response_type": "ephemeral", "text": "Running /status…" });
    assert_eq!(fixture.fake.acks()[0].payload, notice);
    let to = Route::to_source(&events[0].source, Delivery::Push);
    let options = SendOptions { reply: true, ..SendOptions::default() };
    let receipt = fixture.adapter.send(&to, &Part::plain("all is well"), &options).await.expect("sent");
    assert_eq!(receipt.message_id, None);
    let responses = fixture.fake.read(|state| state.responses().to_vec());
    let body = json!({ "response_type": "ephemeral", "replace_original": true, "text": "all is well" });
    assert_eq!((responses[0].url.clone(), responses[0].body.clone()), (url, body));
    assert!(fixture.fake.visible("C1").is_empty(), "nothing public");
}

#[tokio::test]
async fn receives_a_pressed_button_in_its_thread() {
    let fixture = fixture();
    let root = fixture.fake.push(mention("C1", "delete everything")).ts;
    fixture
        .listen(None, async |batches| {
            let request = commit_events(batches, 1).await;
            let to = Route::to_source(&request[0].source, Delivery::Push);
            let button = |data: &str| petasos_core::outbox::Button { label: data.into(), data: data.into() };
            let buttons = [button("ea:once:1"), button("ea:deny:1")];
            let options = SendOptions { buttons: &buttons, ..SendOptions::default() };
            let receipt = fixture.adapter.send(&to, &Part::plain("really?"), &options).await.expect("sent");
            let ts = receipt.message_id.expect("an id");
            fixture.fake.push_press("C1", "U7", &ts, "ea:deny:1").expect("the button exists");
            let pressed = commit_events(batches, 1).await;
            assert_eq!(
                (texts(&pressed), pressed[0].source.thread_id.as_deref()),
                (vec!["ea:deny:1"], Some(&*root))
            );
            fixture.adapter.answer_callback(&pressed[0].dedup, None).await.expect("nothing to do");
            fixture.wait_for_acks(2).await;
        })
        .await;
}

#[test]
fn link_futures_are_send() {
    fn assert_send<T: Send>(_: T) {}
    let fixture = fixture();
    let (sink, _batches) = petasos_platforms::InboundSink::new(1);
    assert_send(fixture.adapter.receive(None, &sink, &mut |_| {}));
    assert_send(fixture.adapter.send(
        &super::fixture::route("C1", None),
        &Part::plain("x"),
        &SendOptions::default(),
    ));
}
