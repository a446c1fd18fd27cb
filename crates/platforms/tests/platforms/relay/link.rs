//! Connection: handshake, backlog, acknowledgements, loss and reconnects.

use std::time::Duration;

use petasos_core::Fault;
use petasos_fakes::connector::event;
use petasos_platforms::relay::Identity;
use petasos_platforms::{CommitResult, LinkHealth};
use serde_json::json;

use super::rig::{platform, rig, rig_with, said};

#[tokio::test]
async fn acknowledges_stored_events_after_commit() {
    let rig = rig();
    let id = rig.fake.push(said("buffered"));
    let mut line = rig.up().await;
    let batch = line.next().await;
    assert_eq!(batch.events[0].text, "buffered");
    assert!(rig.fake.read(|world| world.acks.is_empty()), "not on disk yet");
    batch.done.send(CommitResult::Committed).expect("it waits");
    rig.until("an acknowledgement", move |world| (world.acks == [id.clone()]).then_some(())).await;
    rig.fake.push_live(said("live"));
    assert_eq!(line.texts(1).await, ["live"]);
    let last = rig.fake.push(said("last"));
    assert_eq!(line.texts(1).await, ["last"]);
    rig.until("its acknowledgement", move |world| (world.acks.last() == Some(&last)).then_some(())).await;
    assert_eq!(rig.fake.read(|world| world.acks.len()), 2);
    assert_eq!(rig.fake.read(|world| (world.malformed_lines, world.bearers[0].clone())), (0, None));
}

#[tokio::test]
async fn redials_lost_connections_but_not_after_shutdown() {
    let rig = rig();
    rig.fake.close_after_descriptor(1);
    let line = rig.start();
    rig.until("a second handshake", |world| (world.frames("hello").len() >= 2).then_some(())).await;
    line.task.abort();
    assert!(line.task.await.is_err_and(|error| error.is_cancelled()));
    rig.until("the end", |world| (world.open() == 0).then_some(())).await;
    assert_eq!(rig.dials_so_far().await, 2);
}

#[tokio::test]
async fn redelivers_after_gateway_crash() {
    let rig = rig();
    let ids: Vec<_> = (1..=5).map(|n| rig.fake.push(said(&n.to_string()))).collect();
    let mut line = rig.up().await;
    let batch = line.next().await;
    assert!(!batch.events.is_empty());
    // Dropped during the commit: nothing was acknowledged.
    line.task.abort();
    rig.until("its end", |world| (world.open() == 0).then_some(())).await;
    assert!(rig.fake.read(|world| world.acks.is_empty()));
    let mut line = rig.up().await;
    let texts = line.texts(5).await;
    assert_eq!(texts, ["1", "2", "3", "4", "5"]);
    rig.until("all of it", move |world| (world.acks == ids && world.backlog() == 0).then_some(())).await;
}

#[tokio::test]
async fn repeated_events_have_the_same_key() {
    let rig = rig();
    rig.fake.push(said("once"));
    let mut line = rig.up().await;
    let first = line.next().await.events.remove(0).dedup;
    rig.fake.close(1001, "");
    rig.until("a second handshake", |world| (world.frames("hello").len() == 2).then_some(())).await;
    // The first batch was dropped unanswered, so it is also retried by itself.
    let again = line.take(1).await.remove(0).dedup;
    assert_eq!(first, again);
}

#[tokio::test]
async fn rejected_event_delays_no_others() {
    let rig = rig();
    let first = rig.fake.push(said("first"));
    let mut line = rig.up().await;
    line.next().await.done.send(CommitResult::Invalid).expect("it waits");
    let second = rig.fake.push(said("second"));
    assert_eq!(line.texts(1).await, ["second"]);
    let acked = second.clone();
    rig.until("the second", move |world| (world.acks == [acked.clone()]).then_some(())).await;
    assert_eq!(line.texts(1).await, ["first"], "tried again by itself");
    rig.until("both", move |world| (world.acks == [second.clone(), first.clone()]).then_some(())).await;
    assert_eq!(rig.fake.read(|world| world.connections()), 1);
}

#[tokio::test]
async fn keeps_order_while_the_store_refuses_everything() {
    let rig = rig();
    let first = rig.fake.push(said("first"));
    let mut line = rig.up().await;
    for _try in 0..4 {
        let batch = line.next().await;
        assert_eq!((batch.events.len(), batch.unreadable.len()), (1, 0));
        batch.done.send(CommitResult::NotStored).expect("it waits");
    }
    let second = rig.fake.push(said("second"));
    assert_eq!(line.texts(2).await, ["first", "second"]);
    rig.until("both", move |world| (world.acks == [first.clone(), second.clone()]).then_some(())).await;
    assert_eq!(rig.fake.read(|world| world.connections()), 1);
}

#[tokio::test]
async fn stores_event_as_unreadable_after_three_rejections() {
    let rig = rig();
    let poison = rig.fake.push(said("poison"));
    let mut line = rig.up().await;
    for _try in 0..3 {
        let batch = line.next().await;
        assert_eq!(batch.events.len(), 1);
        batch.done.send(CommitResult::Invalid).expect("it waits");
    }
    let aside = line.next().await;
    assert_eq!((aside.events.len(), aside.unreadable.len()), (0, 1));
    assert!(rig.fake.read(|world| world.acks.is_empty()), "it is not on disk yet");
    aside.done.send(CommitResult::Committed).expect("it waits");
    rig.until("its acknowledgement", move |world| (world.acks == [poison.clone()]).then_some(())).await;
}

#[tokio::test]
async fn acknowledges_repeat_during_commit_once() {
    let rig = rig();
    let number = rig.fake.push(said("once"));
    let mut line = rig.up().await;
    let first = line.next().await;
    rig.fake.close(1001, "");
    rig.until("a second handshake", |world| (world.frames("hello").len() == 2).then_some(())).await;
    let identity = first.events[0].dedup.clone();
    first.done.send(CommitResult::Committed).expect("it waits");
    let again = line.next().await;
    assert_eq!(again.events[0].dedup, identity, "the inbox knows it by that");
    assert!(rig.fake.read(|world| world.acks.is_empty()), "the connection it came on is gone");
    again.done.send(CommitResult::Duplicate).expect("it waits");
    rig.fake.push(said("next"));
    assert_eq!(line.texts(1).await, ["next"]);
    let acks = rig.until("both", |world| (world.acks.len() >= 2).then(|| world.acks.clone())).await;
    assert_eq!((acks.len(), &acks[0]), (2, &number));
}

#[tokio::test]
async fn answers_requests_during_a_commit() {
    let rig = rig();
    rig.fake.push(said("slow"));
    let mut line = rig.up().await;
    let held = line.next().await;
    let sent = tokio::time::timeout(super::rig::TEST_TIMEOUT, rig.send_text("meanwhile")).await;
    sent.expect("no event waits for the disk").expect("sent");
    assert!(rig.fake.read(|world| world.acks.is_empty()));
    held.done.send(CommitResult::Committed).expect("it waits");
}

#[tokio::test]
async fn sends_hellos_in_order_and_reads_descriptors() {
    let rig = rig_with(|config| {
        config.identities.push(Identity { platform: platform("telegram"), bot_id: "bot9".into() });
    });
    rig.fake.describe("telegram", |it| it["max_message_length"] = json!(900));
    let line = rig.up().await;
    rig.fake.close(1001, "");
    let hellos = rig.until("hellos on both connections", |world| {
        let hellos = world.frames("hello");
        (hellos.len() == 4).then(|| hellos.into_iter().cloned().collect::<Vec<_>>())
    });
    let want = [("discord", "app"), ("telegram", "bot9")];
    for (hello, (platform, bot)) in hellos.await.iter().zip(want.iter().cycle()) {
        assert_eq!((hello["platform"].as_str(), hello["botId"].as_str()), (Some(*platform), Some(*bot)));
    }
    line.until_up().await;
    let length = |at: usize| rig.adapters[at].capabilities().max_message;
    let ensure_descriptor = async {
        while (length(0), length(1)) != (2000, 900) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::rig::TEST_TIMEOUT, ensure_descriptor).await.expect("both are described");
}

#[tokio::test]
async fn new_connection_replaces_descriptors() {
    let rig = rig();
    let _line = rig.up().await;
    assert_eq!(rig.adapter().capabilities().max_message, 2000);
    rig.fake.describe("discord", |it| it["max_message_length"] = json!(1000));
    rig.fake.close(1001, "");
    let changed = async {
        while rig.adapter().capabilities().max_message != 1000 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(super::rig::TEST_TIMEOUT, changed).await.expect("adopted");
    let long = "word ".repeat(300);
    assert!(rig.adapter().render(&long).iter().all(|part| part.text.chars().count() <= 1000));
}

#[tokio::test]
async fn returns_failed_first_dial_to_supervisor() {
    let rig = rig();
    rig.fake.down();
    let error = rig.start().ended().await;
    assert!(matches!(error.fault(), Fault::Later { .. }), "{error}");
    assert_eq!(error.code(), "relay_network_error");
}

#[tokio::test]
async fn followers_report_the_connection_state() {
    let rig = rig_with(|config| {
        config.identities.push(Identity { platform: platform("telegram"), bot_id: String::new() });
    });
    let follower = super::rig::Rig { fake: rig.fake.clone(), adapters: vec![rig.adapters[1].clone()] };
    let following = follower.start();
    let _leading = rig.up().await;
    following.until_up().await;
    assert_eq!(rig.fake.read(|world| world.connections()), 1, "one connection for both");
}

#[tokio::test]
async fn passes_on_context_interactions_and_interrupts() {
    let rig = rig();
    rig.fake.describe("discord", |it| it["supports_context"] = json!(true));
    let mut line = rig.up().await;
    let mut asked = event("discord", "room", "group", "what?", Some("m1"));
    asked["context"] = json!([{"text": "before", "source": {"user_name": "Bo"}}]);
    rig.fake.push(asked);
    let heard = line.take(1).await.remove(0);
    assert_eq!(heard.context.as_deref(), Some("[Recent channel messages]\nBo: before"));
    // {"id":"i1","type":2,"data":{"name":"new"},"channel_id":"c1","user":{"id":"u1"}}
    let body = "eyJpZCI6ImkxIiwidHlwZSI6MiwiZGF0YSI6eyJuYW1lIjoibmV3In0sImNoYW5uZWxfaWQiOiJjMSIsInVzZXIiOnsiaWQiOiJ1MSJ9fQ==";
    rig.fake.push_forward(json!({"platform": "discord", "bodyB64": body}));
    assert_eq!(line.texts(1).await, ["/new"]);
    let odd = rig.fake.push_forward(json!({"platform": "discord", "bodyB64": "%%%"}));
    rig.until("an unanswerable request", move |world| (world.acks.last() == Some(&odd)).then_some(())).await;
    rig.fake.send(
        "{\"type\":\"interrupt_inbound\",\"session_key\":\"agent:main:discord:dm:c1\",\"chat_id\":\"c1\"}\n",
    );
    let key = tokio::time::timeout(super::rig::TEST_TIMEOUT, line.interrupts.recv()).await.expect("in time");
    assert_eq!(key.expect("a key").as_str(), "agent:main:discord:dm:c1");
}

#[tokio::test]
async fn closes_connection_without_heartbeat() {
    let rig = rig_with(|config| {
        config.ping_every = Duration::from_millis(50);
        config.silence = Duration::from_millis(200);
    });
    let line = rig.up().await;
    rig.fake.silence();
    rig.until("a second connection", |world| (world.connections() == 2).then_some(())).await;
    let told = line.told.lock().expect("whole").clone();
    assert!(told.contains(&LinkHealth::Degraded { reason: "relay_silent" }), "{told:?}");
}

#[tokio::test]
async fn times_out_on_silent_connector() {
    let rig = rig_with(|config| config.terms.handshake = Duration::from_millis(200));
    rig.fake.ignore_hellos(1);
    let line = rig.start();
    rig.until("a second try", |world| (world.frames("hello").len() == 2).then_some(())).await;
    rig.until("the end of the first", |world| (world.closed == 1).then_some(())).await;
    line.until_up().await;
    assert_eq!(rig.fake.read(|world| (world.connections(), world.open())), (2, 1));
    rig.send_text("at last").await.expect("it is up");
}
