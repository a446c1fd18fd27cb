//! The link: incoming events, socket ends, reported health.

use std::time::Duration;

use petasos_core::Fault as ExpectedFault;
use petasos_core::message::ChatType;
use petasos_core::rate_limit::PenaltyScope;
use petasos_fakes::discord::{Fault, Incoming};
use petasos_platforms::discord::{Liveness, MenuCommand};
use petasos_platforms::{CommitResult, LinkHealth};
use serde_json::json;

use super::fixture::{
    CHANNEL, DM, GUILD, HEARTBEAT, IDENTIFY, RESUME, TEST_TIMEOUT, TOKEN, USER, degraded, fixture,
    fixture_on, fixture_with, texts,
};

const QUICK: Duration = Duration::from_millis(20);

#[tokio::test]
async fn identifies_and_receives_messages() {
    let fixture = fixture_with(|config| {
        config.menu = vec![MenuCommand { command: "new".into(), description: "Start anew".into() }];
    });
    fixture.fake.set_heartbeat_interval(QUICK);
    let ((), health_log) = fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            fixture.fake.push_text(DM, USER, "hello");
            fixture.fake.push_text(CHANNEL, USER, "talk among others");
            fixture.fake.push(Incoming::text(CHANNEL, USER, "to you").mentioning_bot());
            let events = gateway.commit_events(2).await;
            assert_eq!(texts(&events), ["hello", "to you"]);
            assert_eq!(events[0].source.chat_type, ChatType::Dm);
            assert_eq!(events[1].source.chat_name.as_deref(), Some("general"));
            fixture.wait_for_frames(HEARTBEAT, 3).await;
            fixture.wait_until("menu", |state| (state.commands()[0]["name"] == "new").then_some(())).await;
        })
        .await;
    assert_eq!(health_log[..2], [LinkHealth::Connecting, LinkHealth::Connected]);
    assert!(degraded(&health_log).is_empty());
    let identify = &fixture.fake.frames(IDENTIFY)[0].data;
    let intents = identify["intents"].as_u64().expect("a number");
    assert_eq!(intents & (1 << 15 | 1 << 12 | 1 << 9 | 1), 1 << 15 | 1 << 12 | 1 << 9 | 1);
    assert_eq!((identify["token"].as_str(), fixture.count(RESUME)), (Some(TOKEN), 0));
}

#[tokio::test]
async fn dials_the_configured_gateway_for_every_socket() {
    let fixture = fixture();
    let named = fixture.fake.gateway_url().replace("/gateway", "/elsewhere");
    let fixture = fixture_on(fixture.fake.clone(), |config| config.gateway_url = Some(named));
    fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            fixture.fake.request_reconnect();
            fixture.wait_for_frames(RESUME, 1).await;
        })
        .await;
    let paths: Vec<_> =
        [IDENTIFY, RESUME].iter().flat_map(|op| fixture.fake.frames(*op)).map(|heard| heard.path).collect();
    assert_eq!(paths, ["/elsewhere", "/elsewhere"], "not where Discord says");
}

#[tokio::test]
async fn heartbeats_acknowledge_only_committed_events() {
    let fixture = fixture();
    fixture.fake.set_heartbeat_interval(QUICK);
    fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            fixture
                .wait_until("the committed place", |state| {
                    state.frames(HEARTBEAT).next_back().filter(|it| it.data == 2).map(drop)
                })
                .await;
            fixture.fake.push_text(DM, USER, "not yet kept");
            let batch = gateway.next_batch().await;
            let beats = fixture.count(HEARTBEAT);
            fixture.wait_for_frames(HEARTBEAT, beats + 3).await;
            assert!(
                fixture.fake.frames(HEARTBEAT).iter().all(|it| it.data != 3),
                "acknowledged before the commit"
            );
            gateway.commit(batch);
            fixture
                .wait_until("acknowledged after the commit", |state| {
                    state.frames(HEARTBEAT).next_back().filter(|it| it.data == 3).map(drop)
                })
                .await;
        })
        .await;
}

#[tokio::test]
async fn restart_resumes_after_the_last_commit() {
    let fixture = fixture();
    let (cursor, _) = fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            fixture.fake.push_text(DM, USER, "kept");
            gateway.commit_events(1).await;
            fixture.fake.push_text(DM, USER, "heard and not kept");
            drop(gateway.next_batch().await);
            gateway.cursor.clone().expect("a cursor")
        })
        .await;
    fixture.fake.push_text(DM, USER, "while we were away");
    let again = fixture_on(fixture.fake.clone(), |_| {});
    let (events, health_log) = again
        .listen(Some(&cursor), async |gateway| {
            let mut events = gateway.commit_events(2).await;
            for text in ["live", "and well"] {
                again.fake.push_text(DM, USER, text);
                events.extend(gateway.commit_events(1).await);
            }
            events
        })
        .await;
    assert_eq!(texts(&events), ["heard and not kept", "while we were away", "live", "and well"]);
    assert_eq!((again.count(IDENTIFY), again.count(RESUME)), (1, 1));
    let resume = &again.fake.frames(RESUME)[0];
    assert_eq!(
        (resume.data["session_id"].as_str(), resume.data["seq"].as_u64()),
        (Some("session1"), Some(3))
    );
    assert_eq!(resume.path, "/resume", "at the address that READY named");
    assert!(health_log.contains(&LinkHealth::Connected));
}

#[tokio::test]
async fn offers_batches_again_until_stored() {
    let fixture = fixture();
    let ((), health_log) = fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            fixture.fake.push_text(DM, USER, "keep me");
            gateway.next_batch().await.done.send(CommitResult::NotStored).expect("it waits");
            drop(gateway.next_batch().await);
            assert_eq!(texts(&gateway.commit_events(1).await), ["keep me"]);
        })
        .await;
    assert_eq!(degraded(&health_log), ["discord_not_taken", "discord_not_taken"]);
    assert_eq!(fixture.count(IDENTIFY) + fixture.count(RESUME), 1, "the socket stays");
}

#[tokio::test]
async fn unreadable_event_does_not_block_the_others() {
    let fixture = fixture();
    fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            fixture.fake.push_text(DM, USER, "before");
            fixture.fake.push_event("MESSAGE_CREATE", json!({ "id": "nine", "author": 5 }));
            fixture.fake.push_event("INTERACTION_CREATE", json!([]));
            fixture.fake.push_event("TELEPATHY", json!({ "id": "1" }));
            fixture.fake.push_frame("{not json");
            fixture.fake.push_frame(json!({ "op": 77 }).to_string());
            fixture.fake.push_text(DM, USER, "after");
            assert_eq!(texts(&gateway.commit_events(2).await), ["before", "after"]);
        })
        .await;
    assert_eq!(fixture.count(RESUME), 0);
}

#[tokio::test]
async fn resumes_when_asked_to_reconnect() {
    let fixture = fixture();
    let ((), health_log) = fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            fixture.fake.request_reconnect();
            fixture.fake.push_text(DM, USER, "between");
            assert_eq!(texts(&gateway.commit_events(1).await), ["between"]);
            fixture.wait_for_frames(RESUME, 1).await;
        })
        .await;
    assert_eq!(fixture.count(IDENTIFY), 1);
    assert_eq!(degraded(&health_log), ["discord_reconnect_asked"]);
    assert_eq!(fixture.fake.read(|state| state.closes()[0]), Some(4000), "not 1000: the session must live");
}

#[tokio::test]
async fn queued_events_are_not_duplicated_by_a_resume() {
    let fixture = fixture();
    fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            fixture.fake.push_text(DM, USER, "waits");
            let batch = gateway.next_batch().await;
            fixture.fake.request_reconnect();
            fixture.wait_for_frames(RESUME, 1).await;
            assert_eq!(fixture.fake.frames(RESUME)[0].data["seq"], 2, "behind the last commit");
            fixture.fake.push_text(DM, USER, "next");
            assert_eq!(texts(&gateway.commit(batch)), ["waits"]);
            assert_eq!(texts(&gateway.commit_events(1).await), ["next"]);
        })
        .await;
}

#[tokio::test]
async fn close_codes_resume_or_start_a_new_session() {
    for (code, identifies, resumes) in [(4000, 1, 1), (1001, 1, 1), (4008, 1, 1), (4007, 2, 0), (4009, 2, 0)]
    {
        let fixture = fixture();
        fixture
            .listen(None, async |gateway| {
                gateway.wait_for_session("session1").await;
                fixture.fake.close(code);
                fixture
                    .wait_until("a second session or socket", |state| {
                        (state.frames(IDENTIFY).count() + state.frames(RESUME).count() == 2).then_some(())
                    })
                    .await;
                fixture.fake.push_text(DM, USER, "after");
                assert_eq!(texts(&gateway.commit_events(1).await), ["after"], "{code}");
            })
            .await;
        assert_eq!((fixture.count(IDENTIFY), fixture.count(RESUME)), (identifies, resumes), "{code}");
    }
}

#[tokio::test]
async fn permanent_close_codes_are_fatal_and_give_advice() {
    for (close, code, word) in [
        (4004, "discord_invalid_token", "token"),
        (4010, "discord_gateway_refused", "update"),
        (4011, "discord_gateway_refused", "servers"),
        (4012, "discord_gateway_refused", "update"),
        (4013, "discord_gateway_refused", "update"),
        (4014, "discord_disallowed_intents", "Message Content Intent"),
    ] {
        let fixture = fixture();
        fixture.fake.refuse_sessions(close);
        let (error, health_log) = fixture.run_until_link_ends(None).await;
        assert_eq!((error.code(), error.fault()), (code, ExpectedFault::Fatal));
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!((fixture.count(IDENTIFY), health_log), (1, vec![LinkHealth::Connecting]), "no second try");
    }
}

#[tokio::test]
async fn bad_token_is_fatal_and_never_shown() {
    let fixture = fixture();
    fixture.fake.expect_token("other");
    let (error, _) = fixture.run_until_link_ends(None).await;
    assert_eq!((error.code(), error.fault()), ("discord_invalid_token", ExpectedFault::Fatal));
    assert!(!format!("{error} {error:?}").contains("secret"));
    assert_eq!(fixture.count(IDENTIFY), 0, "REST has said so before a socket was opened");
}

#[tokio::test]
async fn starts_a_new_session_after_an_invalid_one() {
    let fixture = fixture();
    let ((), health_log) = fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            fixture.fake.invalidate();
            gateway.wait_for_session("session2").await;
            fixture.fake.push_text(DM, USER, "after");
            assert_eq!(texts(&gateway.commit_events(1).await), ["after"]);
        })
        .await;
    assert_eq!((fixture.count(IDENTIFY), fixture.count(RESUME)), (2, 0));
    assert_eq!(degraded(&health_log), ["discord_invalid_session"]);
}

#[tokio::test]
async fn resumes_an_interrupted_session() {
    let fixture = fixture();
    fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            fixture.fake.invalidate_resumable();
            fixture.wait_for_frames(RESUME, 1).await;
            fixture.fake.push_text(DM, USER, "after");
            assert_eq!(texts(&gateway.commit_events(1).await), ["after"]);
        })
        .await;
    assert_eq!(fixture.count(IDENTIFY), 1);
}

#[tokio::test]
async fn missed_acknowledgement_closes_the_socket_and_resumes() {
    let fixture = fixture();
    fixture.fake.set_heartbeat_interval(QUICK);
    let ((), health_log) = fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            fixture.fake.withhold_acks();
            fixture.wait_for_frames(RESUME, 1).await;
            fixture.fake.resume_acks();
            fixture.fake.push_text(DM, USER, "after");
            assert_eq!(texts(&gateway.commit_events(1).await), ["after"]);
        })
        .await;
    assert_eq!(fixture.count(IDENTIFY), 1);
    assert_eq!(degraded(&health_log)[0], "discord_heartbeat_missed");
    assert_eq!(fixture.fake.read(|state| state.closes()[0]), Some(4000));
}

#[tokio::test]
async fn gives_up_on_an_open_but_silent_socket() {
    let fixture = fixture_with(|config| {
        config.liveness =
            Liveness { interval: QUICK, failures: 2, ack_age: QUICK * 13, latency: Duration::ZERO };
    });
    // The checks find it before the second heartbeat is due.
    fixture.fake.set_heartbeat_interval(QUICK * 10);
    let silence = fixture.fake.clone();
    let harness = fixture.run_until_link_ends(None);
    let (ended, ()) = tokio::join!(harness, async {
        fixture.wait_for_frames(HEARTBEAT, 2).await;
        silence.silence();
    });
    let (error, _) = ended;
    assert_eq!(error.code(), "discord_websocket_health_stale");
    assert_eq!(error.fault(), ExpectedFault::Later { after: None });
    fixture.wait_until("the old socket is gone", |state| (state.connected() == 0).then_some(())).await;
}

#[tokio::test]
async fn keeps_a_quiet_link_with_acknowledged_heartbeats() {
    let fixture = fixture_with(|config| {
        config.liveness =
            Liveness { interval: QUICK, failures: 2, ack_age: Duration::from_secs(5), latency: TEST_TIMEOUT };
    });
    // Long enough for acknowledgements on a busy machine.
    fixture.fake.set_heartbeat_interval(QUICK * 20);
    let ((), health_log) = fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            fixture.wait_for_frames(HEARTBEAT, 6).await;
        })
        .await;
    assert!(degraded(&health_log).is_empty());
    assert!(
        health_log.iter().filter(|it| **it == LinkHealth::Connected).count() >= 4,
        "a pulse for each acknowledgement"
    );
}

#[tokio::test]
async fn gives_up_if_the_gateway_never_becomes_ready() {
    let fixture = fixture_with(|config| config.connect_timeout = Duration::from_millis(100));
    fixture.fake.withhold_ready();
    let (error, health_log) = fixture.run_until_link_ends(None).await;
    assert_eq!((error.code(), error.fault()), ("discord_not_ready", ExpectedFault::Later { after: None }));
    assert!(!health_log.contains(&LinkHealth::Connected));
    fixture.wait_until("its socket is gone", |state| (state.connected() == 0).then_some(())).await;
}

#[tokio::test]
async fn gives_up_at_once_if_the_service_was_never_reached() {
    let fixture = fixture();
    fixture.fake.down();
    let (error, health_log) = fixture.run_until_link_ends(None).await;
    assert_eq!(
        (error.code(), error.fault()),
        ("discord_connect_error", ExpectedFault::Later { after: None })
    );
    assert!(degraded(&health_log).is_empty(), "{health_log:?}");
}

#[tokio::test]
async fn gives_up_at_the_sixth_failure_after_an_outage() {
    let fixture = fixture();
    let went_down = async {
        fixture.wait_for_frames(IDENTIFY, 1).await;
        fixture.wait_until("listening", |state| state.frames(1).next().map(|_| ())).await;
        fixture.fake.down();
    };
    fixture.fake.set_heartbeat_interval(Duration::from_millis(20));
    let ((error, health_log), ()) = tokio::join!(fixture.run_until_link_ends(None), went_down);
    assert_eq!(
        (error.code(), error.fault()),
        ("discord_network_error", ExpectedFault::Later { after: None })
    );
    assert_eq!(degraded(&health_log).len(), 5, "{health_log:?}");
}

#[tokio::test]
async fn resumes_a_cut_connection_at_once() {
    let fixture = fixture();
    fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            fixture.fake.reset_sockets();
            fixture.wait_for_frames(RESUME, 1).await;
            fixture.fake.push_text(DM, USER, "after");
            assert_eq!(texts(&gateway.commit_events(1).await), ["after"]);
        })
        .await;
}

#[tokio::test]
async fn waits_when_the_daily_session_limit_is_reached() {
    let fixture = fixture();
    fixture.fake.set_remaining_starts(0);
    let (error, _) = fixture.run_until_link_ends(None).await;
    let after = Some(Duration::from_secs(4 * 3600));
    assert_eq!((error.code(), error.fault()), ("discord_session_limit", ExpectedFault::Later { after }));
    assert_eq!(fixture.count(IDENTIFY), 0);
}

#[tokio::test]
async fn own_threads_stay_known_after_a_restart() {
    let fixture = fixture();
    fixture.fake.add_thread(GUILD, CHANNEL, 80, "a talk");
    let (cursor, _) = fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            fixture
                .adapter
                .send(&super::fixture::route(80), &petasos_platforms::Part::plain("hi"), &Default::default())
                .await
                .expect("sent");
            fixture.fake.push_text(80, USER, "go on");
            let events = gateway.commit_events(1).await;
            assert_eq!(events[0].source.chat_type, ChatType::Thread);
            assert_eq!(events[0].source.parent_chat_id.as_deref(), Some("70"));
            gateway.cursor.clone().expect("a cursor")
        })
        .await;
    let again = fixture_on(fixture.fake.clone(), |_| {});
    again.fake.push_text(80, USER, "still there?");
    let (events, _) = again.listen(Some(&cursor), async |gateway| gateway.commit_events(1).await).await;
    assert_eq!(texts(&events), ["still there?"]);
    assert_eq!(
        events[0].source.chat_name.as_deref(),
        Some("a talk"),
        "asked for: a resume lists no channels"
    );
}

#[tokio::test]
async fn answers_a_mention_in_a_new_thread() {
    let fixture = fixture_with(|config| config.auto_thread = true);
    fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            let id = fixture.fake.push(Incoming::text(CHANNEL, USER, "what is up?").mentioning_bot());
            let events = gateway.commit_events(1).await;
            assert_eq!(events[0].source.chat_type, ChatType::Thread);
            assert_eq!(events[0].source.chat_id, Some(id.to_string()));
            assert_eq!(events[0].source.parent_chat_id.as_deref(), Some("70"));
            fixture.fake.push_text(id, USER, "and now?");
            assert_eq!(texts(&gateway.commit_events(1).await), ["and now?"], "no mention is needed there");
        })
        .await;
}

#[tokio::test]
async fn notifies_and_drops_a_message_without_its_thread() {
    let fixture = fixture_with(|config| config.auto_thread = true);
    fixture.fake.on("startThread").does(Fault::status(403, 50013, "Missing Permissions"));
    fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            fixture.fake.push(Incoming::text(CHANNEL, USER, "what is up?").mentioning_bot());
            fixture.wait_until("the notice", |state| state.messages(CHANNEL).next().map(drop)).await;
            fixture.fake.push_text(DM, USER, "next");
            assert_eq!(texts(&gateway.commit_events(1).await), ["next"]);
        })
        .await;
    assert!(fixture.fake.texts(CHANNEL)[0].contains("could not open a thread"));
}

#[tokio::test]
async fn accepts_messages_without_a_thread_while_rate_limited() {
    let fixture = fixture_with(|config| config.auto_thread = true);
    fixture.fake.on("startThread").does(Fault::too_many(40.0));
    fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            for text in ["first", "second"] {
                fixture.fake.push(Incoming::text(CHANNEL, USER, text).mentioning_bot());
                let events = gateway.commit_events(1).await;
                assert_eq!(
                    (events[0].text.as_str(), events[0].source.chat_id.as_deref()),
                    (text, Some("70"))
                );
            }
        })
        .await;
    assert_eq!(fixture.fake.calls_of("startThread").len(), 1, "the refusal names its wait");
    assert!(fixture.fake.texts(CHANNEL).is_empty(), "{:?}", fixture.fake.texts(CHANNEL));
    let [penalty] = &fixture.adapter.limits().all()[..] else { panic!("one penalty") };
    assert_eq!(penalty.scope, PenaltyScope::Chat(CHANNEL.to_string()));
}

#[tokio::test]
async fn sends_no_thread_notice_to_a_rate_limited_channel() {
    let fixture = fixture_with(|config| config.auto_thread = true);
    fixture.fake.on("startThread").always().does(Fault::status(403, 50013, "Missing Permissions"));
    fixture.fake.on("createMessage").does(Fault::too_many(40.0));
    fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            for text in ["first", "second"] {
                fixture.fake.push(Incoming::text(CHANNEL, USER, text).mentioning_bot());
                assert_eq!(texts(&gateway.commit_events(1).await), [text]);
            }
        })
        .await;
    assert_eq!(fixture.fake.calls_of("createMessage").len(), 1);
}

#[tokio::test]
async fn receives_commands_and_buttons_and_answers_them_once() {
    let fixture = fixture();
    fixture
        .listen(None, async |gateway| {
            gateway.wait_for_session("session1").await;
            fixture.fake.push_command(CHANNEL, USER, "status", &[("args", "all")]);
            fixture.fake.push_button(DM, USER, 1, "ea:once:7");
            let events = gateway.commit_events(2).await;
            assert_eq!(texts(&events), ["/status all", "ea:once:7"]);
            for event in &events {
                fixture.adapter.answer_callback(&event.dedup, None).await.expect("answered");
                fixture.adapter.answer_callback(&event.dedup, None).await.expect("nothing left to do");
            }
            fixture.adapter.answer_callback("175928847299117063", None).await.expect("not an interaction");
        })
        .await;
    let answers = fixture.fake.calls_of("answerInteraction");
    let kinds: Vec<_> =
        answers.iter().map(|call| (&call.body["type"], &call.body["data"]["flags"])).collect();
    assert_eq!(kinds, [(&json!(4), &json!(64)), (&json!(6), &json!(null))]);
}
