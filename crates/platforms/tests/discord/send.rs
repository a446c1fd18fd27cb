//! The way out: one call is one try, and the error says what may have happened.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use petasos_core::outbox::Button;
use petasos_core::{Fault as Meaning, Reached, Route};
use petasos_fakes::discord::{Fault, Incoming};
use petasos_platforms::{Error, Kind, Part, Receipt, SendOptions};
use serde_json::json;

use crate::rig::{DIRECT, GUILD, ROOM, Rig, USER, rig, rig_with, route};

const REPLY: SendOptions<'static> = SendOptions { reply: true, silent: false, buttons: &[], session: None };
const LATER: Meaning = Meaning::Later { after: None };

async fn send(rig: &Rig, to: &Route) -> Result<Receipt, Error> {
    rig.adapter.send(to, &Part::plain("hi"), &REPLY).await
}

fn answering(message: u64) -> Route {
    Route { reply_to: Some(message.to_string()), ..route(DIRECT) }
}

fn tries(rig: &Rig) -> usize {
    rig.fake.calls_of("createMessage").len()
}

#[tokio::test]
async fn a_message_is_anchored_has_buttons_and_calls_nobody_by_accident() {
    let rig = rig();
    let question = rig.fake.push_text(DIRECT, USER, "q");
    let buttons = [Button { label: "Yes".into(), data: "y".into() }];
    let options = SendOptions { reply: true, silent: false, buttons: &buttons, session: None };
    let part = Part::plain("@everyone look");
    let receipt = rig.adapter.send(&answering(question), &part, &options).await.expect("sent");
    let seen = &rig.fake.visible(DIRECT)[0];
    assert_eq!(receipt, Receipt { message_id: Some(seen.id.to_string()), ..Receipt::default() });
    assert_eq!((seen.content.as_str(), seen.reply_to), ("@everyone look", Some(question)));
    assert_eq!(seen.allowed_mentions, json!({ "parse": ["users"], "replied_user": true }));
    let button = json!({ "type": 2, "style": 2, "label": "Yes", "custom_id": "y" });
    assert_eq!(seen.components, json!([{ "type": 1, "components": [button] }]));
    assert_eq!(seen.nonce, None);
}

#[tokio::test]
async fn a_reply_that_is_refused_is_said_without_its_anchor() {
    let rig = rig();
    let pin = rig.fake.push(Incoming::text(DIRECT, USER, "pinned").kind(6));
    send(&rig, &answering(pin)).await.expect("a system message cannot be answered");
    send(&rig, &answering(12345)).await.expect("one that is gone is no reason to fail");
    rig.fake.on("createMessage").does(Fault::status(400, 10008, "Unknown Message"));
    send(&rig, &answering(pin)).await.expect("sent");
    let anchors: Vec<_> = rig.fake.visible(DIRECT).iter().map(|it| it.reply_to).collect();
    assert_eq!((anchors, tries(&rig)), (vec![None, None, None], 5));
}

#[tokio::test]
async fn a_key_makes_two_tries_one_message() {
    let rig = rig();
    rig.fake.on("createMessage").does(Fault::ResetAfter);
    let part = Part::plain("once");
    let to = route(DIRECT);
    let once = |key: &'static str| rig.adapter.send_once(&to, &part, &REPLY, key);
    let lost = once("out:17:0").await.expect_err("the answer was lost");
    assert_eq!((lost.reached(), lost.fault()), (Reached::Maybe, LATER));
    let receipt = once("out:17:0").await.expect("sent");
    let seen = rig.fake.visible(DIRECT);
    assert_eq!(seen.len(), 1, "no copy");
    assert_eq!(receipt.message_id, Some(seen[0].id.to_string()));
    assert_eq!(seen[0].nonce.as_deref(), Some("out:17:0"));
    once("a much longer key than Discord lets us use as a nonce").await.expect("sent");
    assert_eq!(rig.fake.texts(DIRECT), ["once", "once"]);
    assert!(rig.adapter.key_memory(&to).await.expect("asked").is_some());
}

#[tokio::test]
async fn failures_say_what_to_do_and_what_may_have_happened() {
    let wait = Meaning::Later { after: Some(Duration::from_millis(500)) };
    for (fault, meaning, reached, kind, seen) in [
        (Fault::too_many(0.5), wait, Reached::No, Kind::RateLimited, 0),
        (Fault::status(500, 0, "500: Internal Server Error"), LATER, Reached::No, Kind::Transient, 0),
        (Fault::Page, LATER, Reached::Maybe, Kind::Unknown, 0),
        (Fault::Garbage, LATER, Reached::Maybe, Kind::Unknown, 0),
        (Fault::ResetBefore, LATER, Reached::Maybe, Kind::Unknown, 0),
        (Fault::ResetAfter, LATER, Reached::Maybe, Kind::Unknown, 1),
        (Fault::HalfBody, LATER, Reached::Maybe, Kind::Unknown, 1),
        (Fault::missing_access(), Meaning::Refused, Reached::No, Kind::Forbidden, 0),
        (
            Fault::status(403, 50007, "Cannot send messages to this user"),
            Meaning::Refused,
            Reached::No,
            Kind::Forbidden,
            0,
        ),
    ] {
        let rig = rig();
        rig.fake.on("createMessage").does(fault.clone());
        let error = send(&rig, &route(DIRECT)).await.expect_err("a failure");
        assert_eq!(
            (error.fault(), error.reached(), error.kind()),
            (meaning, reached, kind),
            "{fault:?}: {error}"
        );
        assert_eq!((rig.fake.visible(DIRECT).len(), tries(&rig)), (seen, 1), "{fault:?}");
    }
}

#[tokio::test]
async fn a_limit_on_everything_holds_back_every_chat() {
    let rig = rig();
    let limit = Duration::from_millis(400);
    rig.fake.on("createMessage").does(Fault::Limited(limit.as_secs_f64()));
    let begun = Instant::now();
    let named = send(&rig, &route(DIRECT)).await.expect_err("limited");
    assert_eq!(
        (named.fault(), named.reached(), named.kind()),
        (Meaning::Later { after: Some(limit) }, Reached::No, Kind::RateLimited)
    );
    let elsewhere = send(&rig, &route(ROOM)).await.expect_err("also there");
    let Meaning::Later { after: Some(after) } = elsewhere.fault() else { panic!("a wait: {elsewhere}") };
    assert!(after > Duration::ZERO && after <= limit, "{after:?}");
    rig.adapter.typing(&route(ROOM)).await.expect_err("whatever it is");
    assert_eq!((tries(&rig), rig.fake.calls_of("typing").len()), (1, 0), "nobody was asked");
    while let Err(error) = send(&rig, &route(ROOM)).await {
        let Meaning::Later { after: Some(after) } = error.fault() else { panic!("a wait: {error}") };
        tokio::time::sleep(after).await;
    }
    assert!(begun.elapsed() >= limit && tries(&rig) == 2);
}

#[tokio::test]
async fn a_limit_of_one_channel_is_not_one_of_the_others() {
    let rig = rig();
    rig.fake.on("createMessage").channel(DIRECT).does(Fault::too_many(60.0));
    send(&rig, &route(DIRECT)).await.expect_err("limited");
    send(&rig, &route(ROOM)).await.expect("sent");
}

#[tokio::test]
async fn silence_is_not_an_answer() {
    let rig = rig_with(|config| config.request_timeout = Duration::from_millis(100));
    rig.fake.on("createMessage").does(Fault::HangAfter);
    let error = send(&rig, &route(DIRECT)).await.expect_err("nobody answers");
    assert_eq!((error.reached(), error.code()), (Reached::Maybe, "discord_network_error"));
    rig.fake.release_hangs();
}

#[tokio::test]
async fn a_dead_service_was_not_reached() {
    let rig = rig();
    rig.fake.down();
    let error = send(&rig, &route(DIRECT)).await.expect_err("nobody is there");
    assert_eq!((error.reached(), error.code()), (Reached::No, "discord_connect_error"));
}

#[tokio::test]
async fn an_unknown_channel_is_a_dead_one_and_a_long_text_is_named() {
    let rig = rig();
    let error = send(&rig, &route(4242)).await.expect_err("no such channel");
    assert_eq!((error.kind(), error.code()), (Kind::ChatNotFound, "discord_chat_not_found"));
    let long = Part::plain("x".repeat(2001));
    let error = rig.adapter.send(&route(DIRECT), &long, &REPLY).await.expect_err("too long");
    assert_eq!((error.kind(), error.fault()), (Kind::TooLong, Meaning::Refused));
}

#[tokio::test]
async fn a_bad_token_is_fatal() {
    let rig = rig();
    rig.fake.expect_token("other");
    let error = send(&rig, &route(DIRECT)).await.expect_err("refused");
    assert_eq!((error.fault(), error.code()), (Meaning::Fatal, "discord_invalid_token"));
}

#[tokio::test]
async fn a_thread_is_addressed_and_its_channel_when_it_is_gone() {
    let rig = rig();
    rig.fake.add_thread(GUILD, ROOM, 80, "a talk");
    let to = |thread: &str| Route { thread_id: Some(thread.into()), ..route(ROOM) };
    assert!(!send(&rig, &to("80")).await.expect("sent").thread_fallback);
    assert!(send(&rig, &to("81")).await.expect("sent").thread_fallback);
    assert_eq!((rig.fake.texts(80).len(), rig.fake.texts(ROOM).len()), (1, 1));
}

#[tokio::test]
async fn a_forum_gets_a_post() {
    let rig = rig();
    rig.fake.add_forum(GUILD, 90, "ideas");
    let part = Part::plain("# A title\nand a text");
    let receipt = rig.adapter.send(&route(90), &part, &REPLY).await.expect("sent");
    assert_eq!(receipt.message_id, None, "what is in a post cannot be edited from here");
    let thread = receipt.opened.expect("a thread");
    assert_eq!(rig.fake.texts(thread.parse().expect("a number")), ["# A title\nand a text"]);
    let opened = &rig.fake.calls_of("createThread")[0].body;
    assert_eq!(opened["name"], "A title");
}

#[tokio::test]
async fn a_post_is_not_recognised_by_its_key_and_nobody_counts_on_it() {
    let rig = rig();
    rig.fake.add_forum(GUILD, 90, "ideas");
    rig.fake.on("createThread").does(Fault::ResetAfter);
    let (to, part) = (route(90), Part::plain("once"));
    let lost = rig.adapter.send_once(&to, &part, &REPLY, "out:17:0").await.expect_err("the answer was lost");
    assert_eq!(lost.reached(), Reached::Maybe);
    assert_eq!(rig.adapter.key_memory(&to).await.expect("asked"), None);
    let thread = Route { thread_id: Some("91".into()), ..route(90) };
    assert_eq!(rig.adapter.key_memory(&thread).await.expect("asked"), None, "a post when the thread is gone");
    assert_eq!(rig.adapter.key_memory(&route(4242)).await.expect("no such channel"), None);
    rig.fake.on("getChannel").does(Fault::status(500, 0, "500: Internal Server Error"));
    assert_eq!(rig.adapter.key_memory(&to).await.expect_err("no answer").fault(), LATER);
    assert_eq!(rig.fake.calls_of("getChannel").len(), 4);
}

#[tokio::test]
async fn a_thread_that_refuses_us_does_not_make_its_channel_dead() {
    let rig = rig();
    rig.fake.add_thread(GUILD, ROOM, 80, "a private talk");
    for (to, dead) in [(Route { thread_id: Some("80".into()), ..route(ROOM) }, false), (route(ROOM), true)] {
        rig.fake.on("createMessage").does(Fault::missing_access());
        let error = send(&rig, &to).await.expect_err("refused");
        assert_eq!((error.fault(), error.reached()), (Meaning::Refused, Reached::No));
        assert_eq!(error.kind().is_dead_chat(), dead, "{error}");
    }
    assert_eq!(
        (tries(&rig), rig.fake.texts(ROOM).len()),
        (2, 0),
        "what was meant for the thread stays there"
    );
}

#[tokio::test]
async fn a_server_that_shows_nothing_does_not_hide_the_others() {
    let rig = rig();
    rig.fake.add_guild(2);
    rig.fake.add_channel(2, 75, "beta");
    rig.fake.on("getGuildChannels").does(Fault::missing_access());
    let listed = rig.adapter.channels().await.expect("listed").expect("a list");
    assert_eq!((listed.len(), rig.fake.calls_of("getGuildChannels").len()), (1, 2));
    rig.fake.on("getGuildChannels").does(Fault::status(500, 0, "500: Internal Server Error"));
    assert_eq!(rig.adapter.channels().await.expect_err("what was known counts").fault(), LATER);
}

#[tokio::test]
async fn edits_replace_and_deletions_are_done_once_and_for_all() {
    let rig = rig();
    let id = send(&rig, &route(DIRECT)).await.expect("sent").message_id.expect("an id");
    let receipt = rig.adapter.edit(&route(DIRECT), &id, &Part::plain("ho")).await.expect("edited");
    assert_eq!(
        (receipt.message_id.as_deref(), rig.fake.texts(DIRECT)),
        (Some(id.as_str()), vec!["ho".into()])
    );
    let seen = &rig.fake.visible(DIRECT)[0];
    assert_eq!(
        seen.allowed_mentions["parse"],
        json!(["users"]),
        "an edit calls everyone as little as a message"
    );
    rig.adapter.edit(&route(DIRECT), &id, &Part::plain("ho")).await.expect("the same again is no failure");
    rig.adapter.delete(&route(DIRECT), &id).await.expect("deleted");
    rig.adapter.delete(&route(DIRECT), &id).await.expect("gone already");
    let error = rig.adapter.edit(&route(DIRECT), &id, &Part::plain("x")).await.expect_err("gone");
    assert_eq!((error.kind(), error.fault()), (Kind::NotFound, Meaning::Refused));
}

#[tokio::test]
async fn typing_is_shown_and_white_space_is_not_sent() {
    let rig = rig();
    rig.adapter.typing(&route(DIRECT)).await.expect("shown");
    assert_eq!(rig.fake.calls_of("typing").len(), 1);
    let receipt = rig.adapter.send(&route(DIRECT), &Part::plain(" \n"), &REPLY).await.expect("nothing to do");
    assert_eq!((receipt, tries(&rig)), (Receipt::default(), 0));
}
