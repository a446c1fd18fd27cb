//! The link: Socket Mode.

use std::time::Duration;

use petasos_core::Fault as Meaning;
use petasos_core::Route;
use petasos_core::message::{ChatType, Delivery};
use petasos_fakes::slack::{Fault, Incoming, State, World};
use petasos_platforms::{Health, Part, SendOptions, Taken};
use serde_json::json;

use crate::rig::{APP_TOKEN, Rig, SOON, adapter, degraded, next, rig, rig_with, take, take_until, texts};

const BRIEF: Duration = Duration::from_millis(50);

fn mention(channel: &str, text: &str) -> Incoming {
    Incoming::new(channel, "U7", format!("<@U1BOT> {text}"))
}

#[tokio::test]
async fn an_envelope_is_acknowledged_only_after_the_commit() {
    let rig = rig();
    rig.fake.add_user("U7", "Ada");
    let ts = rig.fake.push_text("D1", "U7", "hello");
    let ((), told) = rig
        .listen(None, async |batches| {
            let batch = next(batches).await;
            let event = &batch.events[0];
            assert_eq!((event.text.as_str(), event.dedup.clone()), ("hello", format!("T1:D1:{ts}")));
            assert_eq!(
                (event.source.chat_type, event.source.scope_id.as_deref()),
                (ChatType::Dm, Some("T1"))
            );
            assert_eq!(event.source.user_name.as_deref(), Some("Ada"));
            assert!(rig.fake.acks().is_empty(), "not before the commit");
            batch.done.send(Taken::Committed).expect("it waits");
            rig.acked(1).await;
        })
        .await;
    assert_eq!(told[..2], [Health::Connecting, Health::Polling]);
    let ack = &rig.fake.acks()[0];
    assert_eq!((ack.delivery, ack.payload.clone()), (Some(0), json!(null)));
    assert!(ack.took.expect("in time") < Duration::from_secs(3));
    assert_eq!(rig.fake.calls_of("apps.connections.open")[0].token, APP_TOKEN);
}

#[tokio::test]
async fn what_the_gateway_does_not_take_is_said_again_and_known() {
    let rig = rig();
    rig.fake.set_patience(Duration::from_millis(200));
    rig.fake.push_text("D1", "U7", "keep me");
    let ((), told) = rig
        .listen(None, async |batches| {
            let first = next(batches).await;
            let dedup = first.events[0].dedup.clone();
            first.done.send(Taken::NotTaken).expect("it waits");
            assert!(rig.fake.acks().is_empty(), "not taken, not acknowledged");
            let again = take_until(batches, rig.acked(1)).await;
            assert_eq!((again[0].text.as_str(), again[0].dedup.clone()), ("keep me", dedup));
        })
        .await;
    assert_eq!(degraded(&told), ["slack_not_taken"]);
    assert!(rig.fake.look(|world| world.deliveries()[0].repeated) >= 1);
}

#[tokio::test]
async fn a_commit_that_takes_too_long_is_not_acknowledged_and_its_repetition_is() {
    let rig = rig_with(|config| config.ack_within = 4 * BRIEF);
    rig.fake.set_patience(5 * BRIEF);
    rig.fake.push_text("D1", "U7", "slow");
    rig.listen(None, async |batches| {
        let slow = next(batches).await;
        let repeated = |world: &World| (world.deliveries()[0].repeated >= 1).then_some(());
        rig.wait_until("Slack has lost patience", repeated).await;
        slow.done.send(Taken::Committed).expect("it waits");
        let again = take_until(batches, rig.acked(1)).await;
        assert_eq!(slow.events[0].dedup, again[0].dedup);
    })
    .await;
    let acks = rig.fake.acks();
    assert!(acks.iter().all(|ack| ack.envelope != "envelope-1"), "too late for the first: {acks:?}");
    assert_eq!(rig.fake.look(|world| world.deliveries()[0].state.clone()), State::Acked);
}

#[tokio::test]
async fn a_slow_commit_gathers_what_comes_meanwhile() {
    let rig = rig();
    rig.fake.push_text("D1", "U7", "one");
    rig.listen(None, async |batches| {
        let first = next(batches).await;
        for text in ["two", "three"] {
            rig.fake.push_text("D1", "U7", text);
        }
        let sent = |world: &World| {
            let sent = world.deliveries().iter().all(|it| matches!(it.state, State::Sent { .. }));
            sent.then_some(())
        };
        rig.wait_until("all three are with us", sent).await;
        // A pong shows that everything before it was read.
        rig.fake.ping();
        rig.wait_until("a pong", |world| (world.heartbeats().0 >= 1).then_some(())).await;
        first.done.send(Taken::Committed).expect("it waits");
        let second = next(batches).await;
        assert_eq!(texts(&second.events), ["two", "three"]);
        second.done.send(Taken::Committed).expect("it waits");
        rig.acked(3).await;
    })
    .await;
}

#[tokio::test]
async fn a_message_and_its_mention_have_one_identity() {
    let rig = rig();
    rig.fake.push_mention(mention("C1", "hi"));
    let (events, _) = rig
        .listen(None, async |batches| {
            let events = take(batches, 2).await;
            rig.acked(2).await;
            events
        })
        .await;
    assert_eq!(events[0], events[1]);
}

#[tokio::test]
async fn what_is_not_for_us_is_acknowledged_without_a_commit() {
    let rig = rig();
    rig.fake.push_text("C1", "U7", "not for the bot");
    rig.listen(None, async |batches| {
        rig.acked(1).await;
        assert!(batches.try_recv().is_err());
    })
    .await;
}

#[tokio::test]
async fn poison_between_good_envelopes_is_skipped_and_acknowledged() {
    let rig = rig();
    rig.fake.push_text("D1", "U7", "one");
    rig.fake.push_envelope("events_api", json!({ "team_id": "T1", "event": { "type": "message", "ts": 5 } }));
    rig.fake.push_frame(r#"{"envelope_id":"$ENVELOPE","type":["odd"]}"#);
    rig.fake.push_envelope("telepathy", json!({}));
    rig.fake.push_text("D1", "U7", "two");
    let ((), told) = rig
        .listen(None, async |batches| {
            assert_eq!(texts(&take(batches, 2).await), ["one", "two"]);
            rig.acked(5).await;
        })
        .await;
    assert_eq!(degraded(&told), ["slack_unreadable_envelope", "slack_unreadable_envelope"]);
}

#[tokio::test]
async fn a_thread_that_called_us_is_heard_without_a_call_also_after_a_restart() {
    let rig = rig();
    let root = rig.fake.push(mention("C1", "help")).ts;
    let (cursor, _) = rig
        .listen(None, async |batches| {
            let batch = next(batches).await;
            assert_eq!(batch.events[0].source.thread_id.as_deref(), Some(root.as_str()));
            batch.done.send(Taken::Committed).expect("it waits");
            rig.acked(1).await;
            rig.fake.push(Incoming::new("C1", "U8", "me too").thread(&root));
            assert_eq!(texts(&take(batches, 1).await), ["me too"]);
            rig.acked(2).await;
            batch.cursor
        })
        .await;
    let next_process = Rig { adapter: adapter(&rig.fake, |_| {}), fake: rig.fake.clone() };
    rig.fake.push(Incoming::new("C1", "U8", "other thread").thread("1.1"));
    rig.fake.push(Incoming::new("C1", "U8", "still there?").thread(&root));
    next_process
        .listen(cursor.as_deref(), async |batches| {
            assert_eq!(texts(&take(batches, 1).await), ["still there?"]);
        })
        .await;
}

#[tokio::test]
async fn whoever_calls_us_into_a_thread_need_not_repeat_what_was_said() {
    let rig = rig();
    let root = rig.fake.push_text("C1", "U8", "the build is broken");
    let replies = [mention("C1", "why?").thread(&root), mention("C1", "and now?").thread(&root)];
    let (events, _) = rig
        .listen(None, async |batches| {
            rig.acked(1).await;
            let mut events = Vec::new();
            for reply in replies {
                rig.fake.push(reply);
                events.extend(take(batches, 1).await);
            }
            events
        })
        .await;
    assert_eq!(events[0].quoted.as_deref(), Some("<@U8> (unverified): the build is broken"));
    assert_eq!(events[1].quoted, None, "by now it is in the session");
}

#[tokio::test]
async fn a_slack_that_is_slow_to_tell_names_delays_nothing_for_long() {
    let rig = rig();
    for method in ["users.info", "conversations.replies"] {
        rig.fake.on(method).always().does(Fault::Hang);
    }
    rig.fake.push(mention("C1", "why?").thread("1.1"));
    rig.listen(None, async |batches| {
        assert_eq!(texts(&take(batches, 1).await), ["why?"]);
        rig.acked(1).await;
    })
    .await;
    assert!(rig.fake.acks()[0].took.is_some_and(|took| took < Duration::from_millis(2500)));
}

#[tokio::test]
async fn a_refresh_opens_the_next_socket_before_the_old_one_ends_and_loses_nothing() {
    for reason in ["warning", "refresh_requested"] {
        let rig = rig();
        let ((), told) = rig
            .listen(None, async |batches| {
                rig.opened(1).await;
                rig.fake.push_text("D1", "U7", "on its way");
                let batch = next(batches).await;
                rig.fake.announce_disconnect(reason);
                rig.opened(2).await;
                assert_eq!(rig.fake.look(|world| world.open_sockets()), 2, "the old one is still there");
                batch.done.send(Taken::Committed).expect("it waits");
                rig.acked(1).await;
                assert_eq!(rig.fake.acks()[0].connection, 1, "over the socket it came from");
                rig.fake.close_leaving();
                rig.fake.push_text("D1", "U7", "after");
                assert_eq!(texts(&take(batches, 1).await), ["after"]);
                rig.acked(2).await;
            })
            .await;
        assert_eq!(degraded(&told), [""; 0], "{reason}");
        let repeated = rig.fake.look(|world| world.deliveries().iter().map(|it| it.repeated).sum::<u32>());
        assert_eq!((repeated, rig.fake.acks()[1].connection), (0, 2), "{reason}");
    }
}

#[tokio::test]
async fn a_refresh_that_fails_at_first_is_tried_again() {
    let rig = rig();
    let ((), told) = rig
        .listen(None, async |batches| {
            rig.opened(1).await;
            rig.fake.on("apps.connections.open").does(Fault::error("internal_error"));
            rig.fake.announce_disconnect("refresh_requested");
            rig.opened(2).await;
            rig.fake.push_text("D1", "U7", "after");
            assert_eq!(texts(&take(batches, 1).await), ["after"]);
        })
        .await;
    assert_eq!(degraded(&told), ["slack_server_error"]);
}

#[tokio::test]
async fn a_disabled_link_is_fatal_and_says_what_to_do() {
    let rig = rig();
    let stopper = rig.fake.clone();
    let disable = tokio::task::spawn_blocking(move || {
        stopper.wait_until(SOON, |world| (world.open_sockets() == 1).then_some(())).expect("a socket");
        stopper.announce_disconnect("link_disabled");
    });
    let (error, _) = rig.listen_to_the_end().await;
    disable.await.expect("announced");
    assert_eq!((error.code(), error.fault()), ("slack_link_disabled", Meaning::Fatal));
    assert!(error.to_string().contains("Socket Mode"), "{error}");
}

#[tokio::test]
async fn a_silent_socket_is_found_and_rebuilt_and_what_it_swallowed_comes_again() {
    let rig = rig_with(|config| (config.ping_interval, config.silence) = (BRIEF, 6 * BRIEF));
    rig.fake.set_patience(4 * BRIEF);
    let ((), told) = rig
        .listen(None, async |batches| {
            rig.opened(1).await;
            rig.fake.silence();
            rig.fake.push_text("D1", "U7", "are you there?");
            assert_eq!(take_until(batches, rig.acked(1)).await[0].text, "are you there?");
        })
        .await;
    assert_eq!(degraded(&told)[0], "slack_socket_silent");
    assert!(rig.fake.look(|world| world.opened()) >= 2);
}

#[tokio::test]
async fn a_quiet_socket_that_answers_pings_is_left_alone() {
    let rig = rig_with(|config| (config.ping_interval, config.silence) = (BRIEF / 2, 20 * BRIEF));
    let ((), told) = rig
        .listen(None, async |_| {
            let pings = |world: &World| (world.heartbeats().1 >= 60).then_some(());
            rig.wait_until("pings for longer than the silence", pings).await;
        })
        .await;
    assert_eq!((degraded(&told).len(), rig.fake.look(|world| world.opened())), (0, 1));
}

#[tokio::test]
async fn a_lost_socket_is_dialled_again_at_once() {
    let rig = rig();
    let ((), told) = rig
        .listen(None, async |batches| {
            rig.opened(1).await;
            rig.fake.reset_sockets();
            rig.opened(2).await;
            rig.fake.close_sockets();
            rig.opened(3).await;
            rig.fake.push_text("D1", "U7", "after");
            assert_eq!(texts(&take(batches, 1).await), ["after"]);
        })
        .await;
    assert_eq!(degraded(&told), ["slack_socket_lost", "slack_socket_lost"]);
    assert_eq!(rig.fake.calls_of("auth.test").len(), 1, "we know who we are");
}

#[tokio::test]
async fn an_outage_loses_nothing() {
    let rig = rig_with(|config| config.reconnect_base = Duration::from_millis(40));
    rig.listen(None, async |batches| {
        rig.fake.push_text("D1", "U7", "before");
        assert_eq!(texts(&take(batches, 1).await), ["before"]);
        rig.acked(1).await;
        rig.fake.down();
        for text in ["one", "two", "three"] {
            rig.fake.push_text("D1", "U7", text);
        }
        rig.fake.up().expect("the port is ours");
        assert_eq!(texts(&take(batches, 3).await), ["one", "two", "three"]);
    })
    .await;
}

#[tokio::test]
async fn a_socket_that_never_says_hello_is_given_up() {
    let rig = rig_with(|config| config.hello_timeout = 2 * BRIEF);
    rig.fake.on("hello").does(Fault::Hang);
    let (error, told) = rig.listen_to_the_end().await;
    assert_eq!((error.code(), error.fault()), ("slack_socket_silent", Meaning::Later { after: None }));
    assert!(degraded(&told).is_empty(), "{told:?}");
}

#[tokio::test]
async fn a_slack_that_was_never_reached_is_given_back_to_the_supervisor_at_once() {
    let rig = rig();
    rig.fake.on("apps.connections.open").always().does(Fault::Status(502));
    let (error, told) = rig.listen_to_the_end().await;
    assert_eq!(error.fault(), Meaning::Later { after: None });
    assert_eq!((rig.fake.calls_of("apps.connections.open").len(), degraded(&told).len()), (1, 0));
}

#[tokio::test]
async fn a_slack_that_dies_is_given_back_at_the_sixth_failure() {
    let rig = rig();
    rig.fake.on("apps.connections.open").nth(2).always().does(Fault::Status(502));
    let died = async {
        rig.opened(1).await;
        rig.fake.reset_sockets();
    };
    let ((error, told), ()) = tokio::join!(rig.listen_to_the_end(), died);
    assert_eq!((error.code(), error.fault()), ("slack_network_error", Meaning::Later { after: None }));
    assert_eq!((rig.fake.calls_of("apps.connections.open").len(), degraded(&told).len()), (6, 5));
}

#[tokio::test]
async fn being_told_to_slow_down_is_passed_on_and_heeded() {
    let rig = rig();
    rig.fake.on("apps.connections.open").does(Fault::TooMany(1));
    let (error, _) = rig.listen_to_the_end().await;
    let after = Some(Duration::from_secs(1));
    assert_eq!((error.code(), error.fault()), ("slack_rate_limited", Meaning::Later { after }));
    let (held, _) = rig.listen_to_the_end().await;
    assert_eq!((held.code(), held.is_held()), ("slack_rate_limited", true), "{held}");
    let Meaning::Later { after: Some(left) } = held.fault() else { panic!("{held}") };
    tokio::time::sleep(left).await;
    rig.fake.on("apps.connections.open").nth(2).does(Fault::TooMany(1));
    let slowed = async |_: &mut _| {
        rig.opened(1).await;
        rig.fake.reset_sockets();
        rig.opened(2).await;
    };
    let ((), told) = rig.listen(None, slowed).await;
    assert!(degraded(&told).contains(&"slack_rate_limited"), "{told:?}");
    let at: Vec<_> = rig.fake.calls_of("apps.connections.open").iter().map(|call| call.at).collect();
    assert!(at[3] - at[2] >= Duration::from_secs(1), "{:?}", at[3] - at[2]);
}

#[tokio::test]
async fn bad_tokens_are_fatal_named_and_never_shown() {
    type Spoil = fn(&Rig);
    let cases: [(Spoil, &str, &str); 4] = [
        (|rig| rig.fake.expect_app_token("xapp-other"), "slack_invalid_auth", "SLACK_APP_TOKEN"),
        (|rig| rig.fake.revoke("xoxb-1"), "slack_invalid_auth", "SLACK_BOT_TOKEN"),
        (
            |rig| rig.fake.on("auth.test").does(Fault::error("account_inactive")),
            "slack_invalid_auth",
            "account_inactive",
        ),
        (
            |rig| rig.fake.on("apps.connections.open").does(Fault::missing_scope("connections:write")),
            "slack_missing_scope",
            "connections:write",
        ),
    ];
    for (spoil, code, words) in cases {
        let rig = rig();
        spoil(&rig);
        let (error, _) = rig.listen_to_the_end().await;
        assert_eq!((error.code(), error.fault()), (code, Meaning::Fatal));
        let said = format!("{error} {error:?}");
        assert!(said.contains(words) && !said.contains(APP_TOKEN) && !said.contains("xoxb-1"), "{said}");
    }
}

#[tokio::test]
async fn missing_tokens_are_fatal_before_anybody_is_asked() {
    let rig = rig_with(|config| config.bot_tokens = vec![]);
    let (error, _) = rig.listen_to_the_end().await;
    assert_eq!((error.code(), error.fault()), ("slack_missing_bot_token", Meaning::Fatal));
    assert_eq!(rig.fake.look(|world| world.calls().count()), 0);
}

#[tokio::test]
async fn a_slash_command_is_acknowledged_and_answered_to_its_author_alone() {
    let rig = rig();
    let url = rig.fake.push_command("C1", "U7", "/petasos", "status");
    let (events, _) = rig
        .listen(None, async |batches| {
            let events = take(batches, 1).await;
            rig.acked(1).await;
            events
        })
        .await;
    assert_eq!(texts(&events), ["/status"]);
    let notice = json!({ "response_type": "ephemeral", "text": "Running /status…" });
    assert_eq!(rig.fake.acks()[0].payload, notice);
    let to = Route::back_to(&events[0].source, Delivery::Push);
    let options = SendOptions { reply: true, ..SendOptions::default() };
    let receipt = rig.adapter.send(&to, &Part::plain("all is well"), &options).await.expect("sent");
    assert_eq!(receipt.message_id, None);
    let responses = rig.fake.look(|world| world.responses().to_vec());
    let body = json!({ "response_type": "ephemeral", "replace_original": true, "text": "all is well" });
    assert_eq!((responses[0].url.clone(), responses[0].body.clone()), (url, body));
    assert!(rig.fake.visible("C1").is_empty(), "nothing public");
}

#[tokio::test]
async fn a_pressed_button_arrives_from_where_it_stands() {
    let rig = rig();
    let root = rig.fake.push(mention("C1", "delete everything")).ts;
    rig.listen(None, async |batches| {
        let asked = take(batches, 1).await;
        let to = Route::back_to(&asked[0].source, Delivery::Push);
        let button = |data: &str| petasos_core::outbox::Button { label: data.into(), data: data.into() };
        let buttons = [button("ea:once:1"), button("ea:deny:1")];
        let options = SendOptions { buttons: &buttons, ..SendOptions::default() };
        let receipt = rig.adapter.send(&to, &Part::plain("really?"), &options).await.expect("sent");
        let ts = receipt.message_id.expect("an id");
        rig.fake.push_press("C1", "U7", &ts, "ea:deny:1").expect("it is there");
        let pressed = take(batches, 1).await;
        assert_eq!(
            (texts(&pressed), pressed[0].source.thread_id.as_deref()),
            (vec!["ea:deny:1"], Some(&*root))
        );
        rig.adapter.answer_callback(&pressed[0].dedup, None).await.expect("nothing to do");
        rig.acked(2).await;
    })
    .await;
}

#[test]
fn the_link_can_run_on_any_thread() {
    fn movable<T: Send>(_: T) {}
    let rig = rig();
    let (intake, _batches) = petasos_platforms::Intake::new(1);
    movable(rig.adapter.receive(None, &intake, &mut |_| {}));
    movable(rig.adapter.send(&crate::rig::route("C1", None), &Part::plain("x"), &SendOptions::default()));
}
