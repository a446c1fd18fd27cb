//! Outbound operations.

use std::time::Duration;

use petasos_core::{Fault, Reached, Route};
use petasos_fakes::connector::{OutboundFault, event};
use petasos_platforms::{Kind, Part, SendOptions, StatusReaction};
use serde_json::json;

use super::rig::{platform, rig, rig_with, route, said};

#[tokio::test]
async fn sends_edits_and_deletes_messages() {
    let rig = rig();
    rig.fake
        .describe("discord", |it| it["supported_ops"] = json!(["send", "edit", "delete", "react", "typing"]));
    let _line = rig.up().await;
    let id = rig.send_text("half").await.expect("sent").message_id.expect("an id");
    rig.adapter().edit(&route("c1"), &id, &Part::plain("whole")).await.expect("edited");
    assert_eq!(rig.fake.visible("c1")[0].text, "whole");
    rig.adapter().typing(&route("c1")).await.expect("shown");
    let asked = Route { reply_to: Some("m1".into()), ..route("c1") };
    rig.adapter().react(&asked, StatusReaction::Seen).await.expect("marked");
    rig.adapter().react(&asked, StatusReaction::Done).await.expect("marked");
    assert_eq!(rig.fake.read(|world| world.reactions.len()), 1);
    rig.adapter().delete(&route("c1"), &id).await.expect("gone");
    assert!(rig.fake.visible("c1").is_empty());
    rig.adapter().delete(&route("c1"), &id).await.expect("gone already");
    let frame = rig.fake.read(|world| world.frames("outbound")[0].clone());
    assert_eq!((frame["platform"].as_str(), frame["botId"].as_str()), (Some("discord"), Some("app")));
}

#[tokio::test]
async fn skips_unsupported_operations() {
    let rig = rig();
    let _line = rig.up().await;
    let asked = Route { reply_to: Some("m1".into()), ..route("c1") };
    rig.adapter().react(&asked, StatusReaction::Seen).await.expect("left out");
    let stays = rig.adapter().delete(&route("c1"), "out-1").await.expect_err("it stays, and that is said");
    assert_eq!(stays.fault(), Fault::Refused);
    rig.send_text("hi").await.expect("sent");
    assert_eq!(rig.fake.read(|world| world.frames("outbound").len()), 1, "no frame for what is not offered");
}

#[tokio::test]
async fn sends_chat_metadata_with_messages() {
    let rig = rig();
    let mut line = rig.up().await;
    let mut scoped = event("discord", "room", "group", "hi", Some("m1"));
    scoped["source"]["scope_id"] = "g1".into();
    rig.fake.push(scoped);
    rig.fake.push(event("discord", "direct", "dm", "hi", Some("m2")));
    line.take(2).await;
    for (chat, want) in
        [("room", json!({"scope_id": "g1"})), ("direct", json!({"user_id": "u1"})), ("unseen", json!({}))]
    {
        rig.adapter().send(&route(chat), &Part::plain("x"), &SendOptions::default()).await.expect("sent");
        assert_eq!(rig.fake.visible(chat)[0].metadata, want);
    }
    let threaded = Route { thread_id: Some("t1".into()), ..route("room") };
    rig.adapter().send(&threaded, &Part::plain("y"), &SendOptions::default()).await.expect("sent");
    assert_eq!(rig.fake.visible("room")[1].metadata, json!({"scope_id": "g1", "thread_id": "t1"}));
}

#[tokio::test]
async fn matches_answers_to_requests_in_any_order() {
    let rig = rig();
    let _line = rig.up().await;
    rig.fake.fail_next(OutboundFault::ResultReordered);
    let (one, two) = tokio::join!(rig.send_text("one"), rig.send_text("two"));
    let id = |sent: Result<petasos_platforms::Receipt, _>| sent.expect("sent").message_id.expect("an id");
    let seen = rig.fake.visible("c1");
    let of = |text: &str| seen.iter().find(|it| it.text == text).expect("seen").id.clone();
    assert_eq!((id(one), id(two)), (of("one"), of("two")));
}

#[tokio::test]
async fn unanswered_send_has_unknown_outcome() {
    let rig = rig_with(|config| config.answer_timeout = Duration::from_millis(200));
    let _line = rig.up().await;
    rig.fake.fail_next(OutboundFault::HangAfter);
    let silent = rig.send_text("one").await.expect_err("no answer");
    assert_eq!((silent.reached(), silent.code()), (Reached::Maybe, "relay_unanswered"));
    rig.fake.fail_next(OutboundFault::ResetAfter);
    let lost = tokio::time::timeout(Duration::from_secs(1), rig.send_text("two")).await.expect("at once");
    let lost = lost.expect_err("lost");
    assert_eq!((lost.reached(), lost.kind()), (Reached::Maybe, Kind::Unknown));
    assert!(matches!(lost.fault(), Fault::Later { .. }));
    assert_eq!(rig.fake.visible("c1").len(), 2, "one try each");
}

#[tokio::test]
async fn send_without_connection_certainly_fails() {
    let rig = rig();
    let before = rig.send_text("no link").await.expect_err("no link");
    assert_eq!((before.reached(), before.kind()), (Reached::No, Kind::Transient));
    let line = rig.up().await;
    rig.fake.down();
    let waiting = async {
        loop {
            let error = rig.send_text("in between").await.expect_err("down");
            if error.reached() == Reached::No {
                return error;
            }
        }
    };
    let error = tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("the loss is seen");
    assert_eq!(error.code(), "relay_not_connected");
    rig.fake.up().expect("the port is ours");
    line.task.abort();
}

#[tokio::test]
async fn maps_refusals_to_faults() {
    let rig = rig();
    let _line = rig.up().await;
    let result = |code: &str, error: &str| {
        OutboundFault::Refuse(json!({"success": false, "code": code, "error": error}))
    };
    rig.fake.fail_next(result("egress_declined", "egress declined: no"));
    let declined = rig.send_text("x").await.expect_err("declined");
    assert_eq!((declined.fault(), declined.reached()), (Fault::Refused, Reached::No));
    assert!(declined.kind().is_dead_chat(), "nothing else is tried there");
    rig.fake.fail_next(OutboundFault::Refuse(json!({"success": false, "ambiguous": true})));
    assert_eq!(rig.send_text("x").await.expect_err("doubtful").reached(), Reached::Unknowable);
    rig.fake.fail_next(OutboundFault::Refuse(
        json!({"success": false, "code": "rate_limited", "retry_after": 3}),
    ));
    let limited = rig.send_text("x").await.expect_err("limited");
    assert_eq!(limited.fault(), Fault::Later { after: Some(Duration::from_secs(3)) });
    rig.fake.fail_next(OutboundFault::Refuse(json!({})));
    assert!(matches!(
        rig.send_text("secret words").await.expect_err("no result").fault(),
        Fault::Later { .. }
    ));
    assert!(rig.fake.visible("c1").is_empty());
}

#[tokio::test]
async fn retries_under_one_request_id_send_once() {
    let rig = rig();
    rig.fake.describe("discord", |it| it["request_memory"] = json!(600));
    let _line = rig.up().await;
    let memory = rig.adapter().idempotency_window(&route("c1")).await.expect("known");
    assert_eq!(memory, Some(Duration::from_secs(600)));
    rig.fake.fail_next(OutboundFault::ResetAfter);
    let to = route("c1");
    let part = Part::plain("once");
    let send = || {
        rig.adapter().send_idempotent(
            &to,
            &part,
            &petasos_platforms::SendOptions { reply: false, silent: false, buttons: &[], session: None },
            "out:1:0",
        )
    };
    assert_eq!(send().await.expect_err("lost").reached(), Reached::Maybe);
    let again = async {
        loop {
            match send().await {
                Ok(receipt) => return receipt,
                Err(error) => assert_eq!(error.reached(), Reached::No, "{error}"),
            }
            tokio::task::yield_now().await;
        }
    };
    let receipt = tokio::time::timeout(super::rig::TEST_TIMEOUT, again).await.expect("sent");
    let seen = rig.fake.visible("c1");
    assert_eq!((seen.len(), receipt.message_id.as_deref()), (1, Some(seen[0].id.as_str())));
}

#[tokio::test]
async fn tags_unnamed_platforms_without_bot_id() {
    let rig = rig_with(|config| config.identities.clear());
    let _line = rig.up().await;
    let to = Route { platform: platform("telegram"), ..route("c9") };
    rig.adapter().send(&to, &Part::plain("hi"), &SendOptions::default()).await.expect("sent");
    let frame = rig.fake.read(|world| world.frames("outbound")[0].clone());
    assert_eq!(frame["platform"], "telegram");
    assert!(frame.get("botId").is_none());
    let to = Route { platform: platform("relay"), ..route("c9") };
    rig.adapter().send(&to, &Part::plain("hi"), &SendOptions::default()).await.expect("sent");
    let frame = rig.fake.read(|world| world.frames("outbound")[1].clone());
    assert!(frame.get("platform").is_none());
}

#[tokio::test]
async fn answers_interactions_through_named_permission() {
    let rig = rig();
    let _line = rig.up().await;
    let key = "agent:main:discord:dm:c1";
    let follow = async |kind: &str| {
        let to = Route { reply_to: Some(format!("held:{kind}")), ..route("c1") };
        let options = SendOptions { reply: true, session: Some(key), ..SendOptions::default() };
        rig.adapter().send_idempotent(&to, &Part::plain("later"), &options, "out:7:0").await.expect("said")
    };
    let frames = |op: &'static str| {
        rig.fake.read(|world| {
            let all = world.frames("outbound").into_iter().filter(|it| it["action"]["op"] == op);
            all.cloned().collect::<Vec<_>>()
        })
    };
    rig.fake.permit_follow_up(key, "discord.interaction_token", "c1");
    assert!(follow("discord.interaction_token").await.message_id.is_some());
    let told = &frames("follow_up")[0];
    assert_eq!((&told["platform"], &told["botId"]), (&json!("discord"), &json!("app")));
    assert_eq!(
        told["action"],
        json!({"op": "follow_up", "session_key": key, "kind": "discord.interaction_token", "content": "later",
               "metadata": {}})
    );
    assert!(frames("send").is_empty());
    // For a platform without an identity, the connector chooses the credential.
    rig.fake.permit_follow_up(key, "telegram.x", "c1");
    rig.adapter()
        .send_idempotent(&route("c1"), &Part::plain("x"), &SendOptions::default(), "other")
        .await
        .expect("said");
    let to = Route { reply_to: Some("held:telegram.x".into()), ..route("c1") };
    let options = SendOptions { reply: true, session: Some(key), ..SendOptions::default() };
    rig.adapter().send_idempotent(&to, &Part::plain("y"), &options, "out:8:0").await.expect("said");
    let told = &frames("follow_up")[1];
    assert!(told.get("platform").is_none() && told.get("botId").is_none(), "{told}");
    // An expired permission does not stop the message.
    let to = Route { reply_to: Some("held:discord.gone".into()), ..route("c1") };
    rig.adapter().send_idempotent(&to, &Part::plain("z"), &options, "out:9:0").await.expect("said");
    let sent = frames("send");
    let sent = sent.last().expect("sent");
    assert_eq!((&sent["requestId"], &sent["action"]["reply_to"]), (&json!("out:9:0"), &json!(null)));
    let texts: Vec<_> = rig.fake.visible("c1").into_iter().map(|it| it.text).collect();
    assert_eq!(texts, ["later", "x", "y", "z"]);
}

#[tokio::test]
async fn message_behind_a_decline_reopens_its_chat() {
    let rig = rig();
    rig.fake.describe("discord", |it| it["supported_ops"] = json!(["send", "typing"]));
    let mut line = rig.up().await;
    rig.fake.fail_next(OutboundFault::Hang);
    let adapter = rig.adapter().clone();
    let sending = petasos_runtime::spawn(async move {
        adapter.send(&route("c1"), &Part::plain("x"), &SendOptions::default()).await
    });
    let request =
        rig.until("asked", |world| world.frames("outbound").first().map(|it| it["requestId"].clone())).await;
    // Both are read before the sender runs again.
    let declined = json!({"type": "outbound_result", "requestId": request,
        "result": {"success": false, "code": "egress_declined"}});
    let inbound = json!({"type": "inbound", "event": said("let me in")});
    rig.fake.send(&format!("{declined}\n{inbound}\n"));
    sending.await.expect("no panic").expect_err("declined");
    line.texts(1).await;
    rig.adapter().typing(&route("c1")).await.expect("asked");
    assert_eq!(rig.fake.read(|world| world.frames("outbound").len()), 2, "typing is not left out");
}

#[tokio::test]
async fn skips_best_effort_operations_in_declined_chats() {
    let rig = rig();
    rig.fake.describe("discord", |it| it["supported_ops"] = json!(["send", "typing", "react"]));
    let mut line = rig.up().await;
    rig.fake.fail_next(OutboundFault::Refuse(json!({"success": false, "code": "egress_declined"})));
    rig.send_text("x").await.expect_err("declined");
    let asked = || rig.fake.read(|world| world.frames("outbound").len());
    let to = Route { reply_to: Some("m1".into()), ..route("c1") };
    rig.adapter().typing(&to).await.expect("left out");
    rig.adapter().react(&to, petasos_platforms::StatusReaction::Done).await.expect("left out");
    assert_eq!(asked(), 1, "the message alone was asked for");
    rig.adapter().typing(&route("c2")).await.expect("another chat");
    assert_eq!(asked(), 2);
    rig.fake.push(said("let me in"));
    line.texts(1).await;
    rig.adapter().typing(&to).await.expect("heard");
    assert_eq!(asked(), 3);
}
