//! One link: what comes in, how a socket ends, and what is told of it.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use petasos_core::Fault as Meaning;
use petasos_core::message::ChatType;
use petasos_core::rate_limit::Scope;
use petasos_fakes::discord::{Fault, Incoming};
use petasos_platforms::discord::{Liveness, MenuCommand};
use petasos_platforms::{Health, Taken};
use serde_json::json;

use crate::rig::{
    DIRECT, GUILD, HEARTBEAT, IDENTIFY, RESUME, ROOM, SOON, TOKEN, USER, degraded, rig, rig_on, rig_with,
    texts,
};

const QUICK: Duration = Duration::from_millis(20);

#[tokio::test]
async fn a_link_identifies_hears_and_is_alive_by_what_comes_in() {
    let rig = rig_with(|config| {
        config.menu = vec![MenuCommand { command: "new".into(), description: "Start anew".into() }];
    });
    rig.fake.heartbeat_interval(QUICK);
    let ((), told) = rig
        .listen(None, async |gateway| {
            gateway.settle("session1").await;
            rig.fake.push_text(DIRECT, USER, "hello");
            rig.fake.push_text(ROOM, USER, "talk among others");
            rig.fake.push(Incoming::text(ROOM, USER, "to you").mentioning_bot());
            let events = gateway.take(2).await;
            assert_eq!(texts(&events), ["hello", "to you"]);
            assert_eq!(events[0].source.chat_type, ChatType::Dm);
            assert_eq!(events[1].source.chat_name.as_deref(), Some("general"));
            rig.wait_heard(HEARTBEAT, 3).await;
            rig.wait_until("menu", |world| (world.commands()[0]["name"] == "new").then_some(())).await;
        })
        .await;
    assert_eq!(told[..2], [Health::Connecting, Health::Polling]);
    assert!(degraded(&told).is_empty());
    let identify = &rig.fake.heard(IDENTIFY)[0].data;
    let intents = identify["intents"].as_u64().expect("a number");
    assert_eq!(intents & (1 << 15 | 1 << 12 | 1 << 9 | 1), 1 << 15 | 1 << 12 | 1 << 9 | 1);
    assert_eq!((identify["token"].as_str(), rig.count(RESUME)), (Some(TOKEN), 0));
}

#[tokio::test]
async fn every_socket_is_opened_where_the_settings_say() {
    let rig = rig();
    let named = rig.fake.gateway_url().replace("/gateway", "/elsewhere");
    let rig = rig_on(rig.fake.clone(), |config| config.gateway_url = Some(named));
    rig.listen(None, async |gateway| {
        gateway.settle("session1").await;
        rig.fake.ask_to_reconnect();
        rig.wait_heard(RESUME, 1).await;
    })
    .await;
    let paths: Vec<_> =
        [IDENTIFY, RESUME].iter().flat_map(|op| rig.fake.heard(*op)).map(|heard| heard.path).collect();
    assert_eq!(paths, ["/elsewhere", "/elsewhere"], "not where Discord says");
}

#[tokio::test]
async fn a_heartbeat_names_only_what_is_committed() {
    let rig = rig();
    rig.fake.heartbeat_interval(QUICK);
    rig.listen(None, async |gateway| {
        gateway.settle("session1").await;
        rig.wait_until("the committed place", |world| {
            world.heard(HEARTBEAT).next_back().filter(|it| it.data == 2).map(drop)
        })
        .await;
        rig.fake.push_text(DIRECT, USER, "not yet kept");
        let batch = gateway.next().await;
        let beats = rig.count(HEARTBEAT);
        rig.wait_heard(HEARTBEAT, beats + 3).await;
        assert!(rig.fake.heard(HEARTBEAT).iter().all(|it| it.data != 3), "told before it was kept");
        gateway.keep(batch);
        rig.wait_until("told once it is kept", |world| {
            world.heard(HEARTBEAT).next_back().filter(|it| it.data == 3).map(drop)
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn a_restart_resumes_behind_the_last_commit_and_hears_what_was_missed() {
    let rig = rig();
    let (cursor, _) = rig
        .listen(None, async |gateway| {
            gateway.settle("session1").await;
            rig.fake.push_text(DIRECT, USER, "kept");
            gateway.take(1).await;
            rig.fake.push_text(DIRECT, USER, "heard and not kept");
            drop(gateway.next().await);
            gateway.cursor.clone().expect("a cursor")
        })
        .await;
    rig.fake.push_text(DIRECT, USER, "while we were away");
    let again = rig_on(rig.fake.clone(), |_| {});
    let (events, told) = again
        .listen(Some(&cursor), async |gateway| {
            let mut events = gateway.take(2).await;
            for text in ["live", "and well"] {
                again.fake.push_text(DIRECT, USER, text);
                events.extend(gateway.take(1).await);
            }
            events
        })
        .await;
    assert_eq!(texts(&events), ["heard and not kept", "while we were away", "live", "and well"]);
    assert_eq!((again.count(IDENTIFY), again.count(RESUME)), (1, 1));
    let resume = &again.fake.heard(RESUME)[0];
    assert_eq!(
        (resume.data["session_id"].as_str(), resume.data["seq"].as_u64()),
        (Some("session1"), Some(3))
    );
    assert_eq!(resume.path, "/resume", "at the address that READY named");
    assert!(told.contains(&Health::Polling));
}

#[tokio::test]
async fn what_the_gateway_does_not_take_is_offered_again() {
    let rig = rig();
    let ((), told) = rig
        .listen(None, async |gateway| {
            gateway.settle("session1").await;
            rig.fake.push_text(DIRECT, USER, "keep me");
            gateway.next().await.done.send(Taken::NotTaken).expect("it waits");
            drop(gateway.next().await);
            assert_eq!(texts(&gateway.take(1).await), ["keep me"]);
        })
        .await;
    assert_eq!(degraded(&told), ["discord_not_taken", "discord_not_taken"]);
    assert_eq!(rig.count(IDENTIFY) + rig.count(RESUME), 1, "the socket stays");
}

#[tokio::test]
async fn one_poison_event_does_not_block_its_neighbours() {
    let rig = rig();
    rig.listen(None, async |gateway| {
        gateway.settle("session1").await;
        rig.fake.push_text(DIRECT, USER, "before");
        rig.fake.push_event("MESSAGE_CREATE", json!({ "id": "nine", "author": 5 }));
        rig.fake.push_event("INTERACTION_CREATE", json!([]));
        rig.fake.push_event("TELEPATHY", json!({ "id": "1" }));
        rig.fake.push_frame("{not json");
        rig.fake.push_frame(json!({ "op": 77 }).to_string());
        rig.fake.push_text(DIRECT, USER, "after");
        assert_eq!(texts(&gateway.take(2).await), ["before", "after"]);
    })
    .await;
    assert_eq!(rig.count(RESUME), 0);
}

#[tokio::test]
async fn a_gateway_that_asks_to_reconnect_is_resumed_without_identifying() {
    let rig = rig();
    let ((), told) = rig
        .listen(None, async |gateway| {
            gateway.settle("session1").await;
            rig.fake.ask_to_reconnect();
            rig.fake.push_text(DIRECT, USER, "between");
            assert_eq!(texts(&gateway.take(1).await), ["between"]);
            rig.wait_heard(RESUME, 1).await;
        })
        .await;
    assert_eq!(rig.count(IDENTIFY), 1);
    assert_eq!(degraded(&told), ["discord_reconnect_asked"]);
    assert_eq!(rig.fake.look(|world| world.closes()[0]), Some(4000), "not 1000: the session must live");
}

#[tokio::test]
async fn what_waits_to_be_kept_is_not_taken_twice_when_the_socket_is_resumed() {
    let rig = rig();
    rig.listen(None, async |gateway| {
        gateway.settle("session1").await;
        rig.fake.push_text(DIRECT, USER, "waits");
        let batch = gateway.next().await;
        rig.fake.ask_to_reconnect();
        rig.wait_heard(RESUME, 1).await;
        assert_eq!(rig.fake.heard(RESUME)[0].data["seq"], 2, "behind the last commit");
        rig.fake.push_text(DIRECT, USER, "next");
        assert_eq!(texts(&gateway.keep(batch)), ["waits"]);
        assert_eq!(texts(&gateway.take(1).await), ["next"]);
    })
    .await;
}

#[tokio::test]
async fn close_codes_resume_or_begin_anew() {
    for (code, identifies, resumes) in [(4000, 1, 1), (1001, 1, 1), (4008, 1, 1), (4007, 2, 0), (4009, 2, 0)]
    {
        let rig = rig();
        rig.listen(None, async |gateway| {
            gateway.settle("session1").await;
            rig.fake.close(code);
            rig.wait_until("a second session or socket", |world| {
                (world.heard(IDENTIFY).count() + world.heard(RESUME).count() == 2).then_some(())
            })
            .await;
            rig.fake.push_text(DIRECT, USER, "after");
            assert_eq!(texts(&gateway.take(1).await), ["after"], "{code}");
        })
        .await;
        assert_eq!((rig.count(IDENTIFY), rig.count(RESUME)), (identifies, resumes), "{code}");
    }
}

#[tokio::test]
async fn close_codes_that_stay_are_fatal_and_say_what_to_do() {
    for (close, code, word) in [
        (4004, "discord_invalid_token", "token"),
        (4010, "discord_gateway_refused", "update"),
        (4011, "discord_gateway_refused", "servers"),
        (4012, "discord_gateway_refused", "update"),
        (4013, "discord_gateway_refused", "update"),
        (4014, "discord_disallowed_intents", "Message Content Intent"),
    ] {
        let rig = rig();
        rig.fake.refuse_sessions(close);
        let (error, told) = rig.listen_to_the_end(None).await;
        assert_eq!((error.code(), error.fault()), (code, Meaning::Fatal));
        assert!(error.to_string().contains(word), "{error}");
        assert_eq!((rig.count(IDENTIFY), told), (1, vec![Health::Connecting]), "no second try");
    }
}

#[tokio::test]
async fn a_bad_token_is_fatal_and_never_shown() {
    let rig = rig();
    rig.fake.expect_token("other");
    let (error, _) = rig.listen_to_the_end(None).await;
    assert_eq!((error.code(), error.fault()), ("discord_invalid_token", Meaning::Fatal));
    assert!(!format!("{error} {error:?}").contains("secret"));
    assert_eq!(rig.count(IDENTIFY), 0, "REST has said so before a socket was opened");
}

#[tokio::test]
async fn a_session_that_is_over_is_followed_by_a_new_one() {
    let rig = rig();
    let ((), told) = rig
        .listen(None, async |gateway| {
            gateway.settle("session1").await;
            rig.fake.invalidate();
            gateway.settle("session2").await;
            rig.fake.push_text(DIRECT, USER, "after");
            assert_eq!(texts(&gateway.take(1).await), ["after"]);
        })
        .await;
    assert_eq!((rig.count(IDENTIFY), rig.count(RESUME)), (2, 0));
    assert_eq!(degraded(&told), ["discord_invalid_session"]);
}

#[tokio::test]
async fn a_session_that_is_only_interrupted_is_resumed() {
    let rig = rig();
    rig.listen(None, async |gateway| {
        gateway.settle("session1").await;
        rig.fake.invalidate_resumable();
        rig.wait_heard(RESUME, 1).await;
        rig.fake.push_text(DIRECT, USER, "after");
        assert_eq!(texts(&gateway.take(1).await), ["after"]);
    })
    .await;
    assert_eq!(rig.count(IDENTIFY), 1);
}

#[tokio::test]
async fn a_missed_acknowledgement_closes_the_socket_and_resumes() {
    let rig = rig();
    rig.fake.heartbeat_interval(QUICK);
    let ((), told) = rig
        .listen(None, async |gateway| {
            gateway.settle("session1").await;
            rig.fake.withhold_acks();
            rig.wait_heard(RESUME, 1).await;
            rig.fake.give_acks();
            rig.fake.push_text(DIRECT, USER, "after");
            assert_eq!(texts(&gateway.take(1).await), ["after"]);
        })
        .await;
    assert_eq!(rig.count(IDENTIFY), 1);
    assert_eq!(degraded(&told)[0], "discord_heartbeat_missed");
    assert_eq!(rig.fake.look(|world| world.closes()[0]), Some(4000));
}

#[tokio::test]
async fn a_socket_that_is_open_and_silent_is_given_back_to_the_supervisor() {
    let rig = rig_with(|config| {
        config.liveness =
            Liveness { interval: QUICK, failures: 2, ack_age: QUICK * 13, latency: Duration::ZERO };
    });
    // The looks find it before the second beat is due.
    rig.fake.heartbeat_interval(QUICK * 10);
    let silence = rig.fake.clone();
    let listening = rig.listen_to_the_end(None);
    let (ended, ()) = tokio::join!(listening, async {
        rig.wait_heard(HEARTBEAT, 2).await;
        silence.silence();
    });
    let (error, _) = ended;
    assert_eq!(error.code(), "discord_websocket_health_stale");
    assert_eq!(error.fault(), Meaning::Later { after: None });
    rig.wait_until("the old socket is gone", |world| (world.connected() == 0).then_some(())).await;
}

#[tokio::test]
async fn a_quiet_link_whose_heartbeats_are_acknowledged_is_left_alone() {
    let rig = rig_with(|config| {
        config.liveness =
            Liveness { interval: QUICK, failures: 2, ack_age: Duration::from_secs(5), latency: SOON };
    });
    // An acknowledgement must be back before the next one is due, on a busy machine, too.
    rig.fake.heartbeat_interval(QUICK * 20);
    let ((), told) = rig
        .listen(None, async |gateway| {
            gateway.settle("session1").await;
            rig.wait_heard(HEARTBEAT, 6).await;
        })
        .await;
    assert!(degraded(&told).is_empty());
    assert!(
        told.iter().filter(|it| **it == Health::Polling).count() >= 4,
        "a pulse for each acknowledgement"
    );
}

#[tokio::test]
async fn a_gateway_that_never_becomes_ready_is_no_link() {
    let rig = rig_with(|config| config.connect_timeout = Duration::from_millis(100));
    rig.fake.withhold_ready();
    let (error, told) = rig.listen_to_the_end(None).await;
    assert_eq!((error.code(), error.fault()), ("discord_not_ready", Meaning::Later { after: None }));
    assert!(!told.contains(&Health::Polling));
    rig.wait_until("its socket is gone", |world| (world.connected() == 0).then_some(())).await;
}

#[tokio::test]
async fn a_service_that_was_never_reached_is_given_back_to_the_supervisor_at_once() {
    let rig = rig();
    rig.fake.down();
    let (error, told) = rig.listen_to_the_end(None).await;
    assert_eq!((error.code(), error.fault()), ("discord_connect_error", Meaning::Later { after: None }));
    assert!(degraded(&told).is_empty(), "{told:?}");
}

#[tokio::test]
async fn a_service_that_goes_down_is_given_back_at_the_sixth_failure() {
    let rig = rig();
    let went_down = async {
        rig.wait_heard(IDENTIFY, 1).await;
        rig.wait_until("listening", |world| world.heard(1).next().map(|_| ())).await;
        rig.fake.down();
    };
    rig.fake.heartbeat_interval(Duration::from_millis(20));
    let ((error, told), ()) = tokio::join!(rig.listen_to_the_end(None), went_down);
    assert_eq!((error.code(), error.fault()), ("discord_network_error", Meaning::Later { after: None }));
    assert_eq!(degraded(&told).len(), 5, "{told:?}");
}

#[tokio::test]
async fn a_cut_connection_is_resumed_at_once() {
    let rig = rig();
    rig.listen(None, async |gateway| {
        gateway.settle("session1").await;
        rig.fake.cut_sockets();
        rig.wait_heard(RESUME, 1).await;
        rig.fake.push_text(DIRECT, USER, "after");
        assert_eq!(texts(&gateway.take(1).await), ["after"]);
    })
    .await;
}

#[tokio::test]
async fn too_many_sessions_a_day_are_waited_for() {
    let rig = rig();
    rig.fake.starts_left(0);
    let (error, _) = rig.listen_to_the_end(None).await;
    let after = Some(Duration::from_secs(4 * 3600));
    assert_eq!((error.code(), error.fault()), ("discord_session_limit", Meaning::Later { after }));
    assert_eq!(rig.count(IDENTIFY), 0);
}

#[tokio::test]
async fn threads_are_places_and_stay_ours_after_a_restart() {
    let rig = rig();
    rig.fake.add_thread(GUILD, ROOM, 80, "a talk");
    let (cursor, _) = rig
        .listen(None, async |gateway| {
            gateway.settle("session1").await;
            rig.adapter
                .send(&crate::rig::route(80), &petasos_platforms::Part::plain("hi"), &Default::default())
                .await
                .expect("sent");
            rig.fake.push_text(80, USER, "go on");
            let events = gateway.take(1).await;
            assert_eq!(events[0].source.chat_type, ChatType::Thread);
            assert_eq!(events[0].source.parent_chat_id.as_deref(), Some("70"));
            gateway.cursor.clone().expect("a cursor")
        })
        .await;
    let again = rig_on(rig.fake.clone(), |_| {});
    again.fake.push_text(80, USER, "still there?");
    let (events, _) = again.listen(Some(&cursor), async |gateway| gateway.take(1).await).await;
    assert_eq!(texts(&events), ["still there?"]);
    assert_eq!(
        events[0].source.chat_name.as_deref(),
        Some("a talk"),
        "asked for: a resume lists no channels"
    );
}

#[tokio::test]
async fn a_mention_is_answered_in_a_thread_of_its_own() {
    let rig = rig_with(|config| config.auto_thread = true);
    rig.listen(None, async |gateway| {
        gateway.settle("session1").await;
        let id = rig.fake.push(Incoming::text(ROOM, USER, "what is up?").mentioning_bot());
        let events = gateway.take(1).await;
        assert_eq!(events[0].source.chat_type, ChatType::Thread);
        assert_eq!(events[0].source.chat_id, Some(id.to_string()));
        assert_eq!(events[0].source.parent_chat_id.as_deref(), Some("70"));
        rig.fake.push_text(id, USER, "and now?");
        assert_eq!(texts(&gateway.take(1).await), ["and now?"], "no mention is needed there");
    })
    .await;
}

#[tokio::test]
async fn a_thread_that_cannot_be_opened_is_said_and_the_message_dropped() {
    let rig = rig_with(|config| config.auto_thread = true);
    rig.fake.on("startThread").does(Fault::status(403, 50013, "Missing Permissions"));
    rig.listen(None, async |gateway| {
        gateway.settle("session1").await;
        rig.fake.push(Incoming::text(ROOM, USER, "what is up?").mentioning_bot());
        rig.wait_until("the notice", |world| world.messages(ROOM).next().map(drop)).await;
        rig.fake.push_text(DIRECT, USER, "next");
        assert_eq!(texts(&gateway.take(1).await), ["next"]);
    })
    .await;
    assert!(rig.fake.texts(ROOM)[0].contains("could not open a thread"));
}

#[tokio::test]
async fn message_is_taken_without_a_thread_while_its_channel_is_rate_limited() {
    let rig = rig_with(|config| config.auto_thread = true);
    rig.fake.on("startThread").does(Fault::too_many(40.0));
    rig.listen(None, async |gateway| {
        gateway.settle("session1").await;
        for text in ["first", "second"] {
            rig.fake.push(Incoming::text(ROOM, USER, text).mentioning_bot());
            let events = gateway.take(1).await;
            assert_eq!((events[0].text.as_str(), events[0].source.chat_id.as_deref()), (text, Some("70")));
        }
    })
    .await;
    assert_eq!(rig.fake.calls_of("startThread").len(), 1, "the refusal names its wait");
    assert!(rig.fake.texts(ROOM).is_empty(), "{:?}", rig.fake.texts(ROOM));
    let [penalty] = &rig.adapter.limits().all()[..] else { panic!("one penalty") };
    assert_eq!(penalty.scope, Scope::Chat(ROOM.to_string()));
}

#[tokio::test]
async fn notice_of_a_missing_thread_is_not_sent_to_a_rate_limited_channel() {
    let rig = rig_with(|config| config.auto_thread = true);
    rig.fake.on("startThread").always().does(Fault::status(403, 50013, "Missing Permissions"));
    rig.fake.on("createMessage").does(Fault::too_many(40.0));
    rig.listen(None, async |gateway| {
        gateway.settle("session1").await;
        for text in ["first", "second"] {
            rig.fake.push(Incoming::text(ROOM, USER, text).mentioning_bot());
            assert_eq!(texts(&gateway.take(1).await), [text]);
        }
    })
    .await;
    assert_eq!(rig.fake.calls_of("createMessage").len(), 1);
}

#[tokio::test]
async fn commands_and_buttons_come_in_and_are_answered_once() {
    let rig = rig();
    rig.listen(None, async |gateway| {
        gateway.settle("session1").await;
        rig.fake.push_command(ROOM, USER, "status", &[("args", "all")]);
        rig.fake.push_button(DIRECT, USER, 1, "ea:once:7");
        let events = gateway.take(2).await;
        assert_eq!(texts(&events), ["/status all", "ea:once:7"]);
        for event in &events {
            rig.adapter.answer_callback(&event.dedup, None).await.expect("answered");
            rig.adapter.answer_callback(&event.dedup, None).await.expect("nothing left to do");
        }
        rig.adapter.answer_callback("175928847299117063", None).await.expect("not an interaction");
    })
    .await;
    let answers = rig.fake.calls_of("answerInteraction");
    let kinds: Vec<_> =
        answers.iter().map(|call| (&call.body["type"], &call.body["data"]["flags"])).collect();
    assert_eq!(kinds, [(&json!(4), &json!(64)), (&json!(6), &json!(null))]);
}
