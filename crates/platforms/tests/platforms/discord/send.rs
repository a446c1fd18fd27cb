//! Sending: one call is one attempt, and errors say what may have happened.

use std::time::Duration;

use petasos_core::outbox::Button;
use petasos_core::{Fault as ExpectedFault, Reached, Route};
use petasos_fakes::discord::{Fault, Incoming};
use petasos_platforms::{Error, Kind, Part, Receipt, SendOptions};
use petasos_runtime::clock;
use serde_json::json;

use super::fixture::{CHANNEL, DM, DiscordFixture, GUILD, USER, fixture, fixture_with, route};
use crate::harness::wait_as_demanded;

const REPLY: SendOptions<'static> = SendOptions { reply: true, silent: false, buttons: &[], session: None };
const LATER: ExpectedFault = ExpectedFault::Later { after: None };

async fn send(fixture: &DiscordFixture, to: &Route) -> Result<Receipt, Error> {
    fixture.adapter.send(to, &Part::plain("hi"), &REPLY).await
}

fn answering(message: u64) -> Route {
    Route { reply_to: Some(message.to_string()), ..route(DM) }
}

fn create_calls(fixture: &DiscordFixture) -> usize {
    fixture.fake.calls_of("createMessage").len()
}

#[tokio::test]
async fn sends_replies_and_buttons_without_mass_mentions() {
    let fixture = fixture();
    let question = fixture.fake.push_text(DM, USER, "q");
    let buttons = [Button { label: "Yes".into(), data: "y".into() }];
    let options = SendOptions { reply: true, silent: false, buttons: &buttons, session: None };
    let part = Part::plain("@everyone look");
    let receipt = fixture.adapter.send(&answering(question), &part, &options).await.expect("sent");
    let seen = &fixture.fake.visible(DM)[0];
    assert_eq!(receipt, Receipt { message_id: Some(seen.id.to_string()), ..Receipt::default() });
    assert_eq!((seen.content.as_str(), seen.reply_to), ("@everyone look", Some(question)));
    assert_eq!(seen.allowed_mentions, json!({ "parse": ["users"], "replied_user": true }));
    let button = json!({ "type": 2, "style": 2, "label": "Yes", "custom_id": "y" });
    assert_eq!(seen.components, json!([{ "type": 1, "components": [button] }]));
    assert_eq!(seen.nonce, None);
}

#[tokio::test]
async fn sends_without_a_refused_reply_target() {
    let fixture = fixture();
    let pin = fixture.fake.push(Incoming::text(DM, USER, "pinned").kind(6));
    send(&fixture, &answering(pin)).await.expect("a system message cannot be answered");
    send(&fixture, &answering(12345)).await.expect("one that is gone is no reason to fail");
    fixture.fake.on("createMessage").does(Fault::status(400, 10008, "Unknown Message"));
    send(&fixture, &answering(pin)).await.expect("sent");
    let anchors: Vec<_> = fixture.fake.visible(DM).iter().map(|it| it.reply_to).collect();
    assert_eq!((anchors, create_calls(&fixture)), (vec![None, None, None], 5));
}

#[tokio::test]
async fn same_key_creates_one_message() {
    let fixture = fixture();
    fixture.fake.on("createMessage").does(Fault::ResetAfter);
    let part = Part::plain("once");
    let to = route(DM);
    let once = |key: &'static str| fixture.adapter.send_idempotent(&to, &part, &REPLY, key);
    let lost = once("out:17:0").await.expect_err("the answer was lost");
    assert_eq!((lost.reached(), lost.fault()), (Reached::Maybe, LATER));
    let receipt = once("out:17:0").await.expect("sent");
    let seen = fixture.fake.visible(DM);
    assert_eq!(seen.len(), 1, "no copy");
    assert_eq!(receipt.message_id, Some(seen[0].id.to_string()));
    assert_eq!(seen[0].nonce.as_deref(), Some("out:17:0"));
    once("a much longer key than Discord lets us use as a nonce").await.expect("sent");
    assert_eq!(fixture.fake.texts(DM), ["once", "once"]);
    assert!(fixture.adapter.idempotency_window(&to).await.expect("asked").is_some());
}

#[tokio::test]
async fn classifies_send_failures() {
    let wait = ExpectedFault::Later { after: Some(Duration::from_millis(500)) };
    for (fault, meaning, reached, kind, seen) in [
        (Fault::too_many(0.5), wait, Reached::No, Kind::RateLimited, 0),
        (Fault::status(500, 0, "500: Internal Server Error"), LATER, Reached::No, Kind::Transient, 0),
        (Fault::ProxyError(502), LATER, Reached::Maybe, Kind::Unknown, 0),
        (Fault::Garbage, LATER, Reached::Maybe, Kind::Unknown, 0),
        (Fault::ResetBefore, LATER, Reached::Maybe, Kind::Unknown, 0),
        (Fault::ResetAfter, LATER, Reached::Maybe, Kind::Unknown, 1),
        (Fault::HalfBody, LATER, Reached::Maybe, Kind::Unknown, 1),
        (Fault::missing_access(), ExpectedFault::Refused, Reached::No, Kind::Forbidden, 0),
        (
            Fault::status(403, 50007, "Cannot send messages to this user"),
            ExpectedFault::Refused,
            Reached::No,
            Kind::Forbidden,
            0,
        ),
    ] {
        let fixture = fixture();
        fixture.fake.on("createMessage").does(fault.clone());
        let error = send(&fixture, &route(DM)).await.expect_err("a failure");
        assert_eq!(
            (error.fault(), error.reached(), error.kind()),
            (meaning, reached, kind),
            "{fault:?}: {error}"
        );
        assert_eq!((fixture.fake.visible(DM).len(), create_calls(&fixture)), (seen, 1), "{fault:?}");
    }
}

#[tokio::test]
async fn global_rate_limit_holds_back_every_chat() {
    let fixture = fixture();
    let limit = Duration::from_millis(400);
    fixture.fake.on("createMessage").does(Fault::too_many_globally(limit.as_secs_f64()));
    let begun = clock::monotonic();
    let named = send(&fixture, &route(DM)).await.expect_err("limited");
    assert_eq!(
        (named.fault(), named.reached(), named.kind()),
        (ExpectedFault::Later { after: Some(limit) }, Reached::No, Kind::RateLimited)
    );
    let elsewhere = send(&fixture, &route(CHANNEL)).await.expect_err("also there");
    let ExpectedFault::Later { after: Some(after) } = elsewhere.fault() else {
        panic!("a wait: {elsewhere}")
    };
    assert!(after > Duration::ZERO && after <= limit, "{after:?}");
    fixture.adapter.typing(&route(CHANNEL)).await.expect_err("refused");
    assert_eq!((create_calls(&fixture), fixture.fake.calls_of("typing").len()), (1, 0), "no request");
    while let Err(error) = send(&fixture, &route(CHANNEL)).await {
        let ExpectedFault::Later { after: Some(after) } = error.fault() else { panic!("a wait: {error}") };
        wait_as_demanded(after).await;
    }
    assert!(begun.elapsed() >= limit && create_calls(&fixture) == 2);
}

#[tokio::test]
async fn channel_rate_limit_spares_other_channels() {
    let fixture = fixture();
    fixture.fake.on("createMessage").channel(DM).does(Fault::too_many(60.0));
    send(&fixture, &route(DM)).await.expect_err("limited");
    send(&fixture, &route(CHANNEL)).await.expect("sent");
}

#[tokio::test]
async fn timeout_is_an_unknown_outcome() {
    let fixture = fixture_with(|config| config.request_timeout = Duration::from_millis(100));
    fixture.fake.on("createMessage").does(Fault::HangAfter);
    let error = send(&fixture, &route(DM)).await.expect_err("no response");
    assert_eq!((error.reached(), error.code()), (Reached::Maybe, "discord_network_error"));
    fixture.fake.release_hangs();
}

#[tokio::test]
async fn reports_a_dead_service_as_not_reached() {
    let fixture = fixture();
    fixture.fake.down();
    let error = send(&fixture, &route(DM)).await.expect_err("the service is down");
    assert_eq!((error.reached(), error.code()), (Reached::No, "discord_connect_error"));
}

#[tokio::test]
async fn distinguishes_dead_channels_from_oversized_texts() {
    let fixture = fixture();
    let error = send(&fixture, &route(4242)).await.expect_err("no such channel");
    assert_eq!((error.kind(), error.code()), (Kind::ChatNotFound, "discord_chat_not_found"));
    let long = Part::plain("x".repeat(2001));
    let error = fixture.adapter.send(&route(DM), &long, &REPLY).await.expect_err("too long");
    assert_eq!((error.kind(), error.fault()), (Kind::TooLong, ExpectedFault::Refused));
}

#[tokio::test]
async fn bad_token_is_fatal() {
    let fixture = fixture();
    fixture.fake.expect_token("other");
    let error = send(&fixture, &route(DM)).await.expect_err("refused");
    assert_eq!((error.fault(), error.code()), (ExpectedFault::Fatal, "discord_invalid_token"));
}

#[tokio::test]
async fn falls_back_to_the_channel_of_a_missing_thread() {
    let fixture = fixture();
    fixture.fake.add_thread(GUILD, CHANNEL, 80, "a talk");
    let to = |thread: &str| Route { thread_id: Some(thread.into()), ..route(CHANNEL) };
    assert!(!send(&fixture, &to("80")).await.expect("sent").thread_fallback);
    assert!(send(&fixture, &to("81")).await.expect("sent").thread_fallback);
    assert_eq!((fixture.fake.texts(80).len(), fixture.fake.texts(CHANNEL).len()), (1, 1));
}

#[tokio::test]
async fn creates_a_post_in_a_forum() {
    let fixture = fixture();
    fixture.fake.add_forum(GUILD, 90, "ideas");
    let part = Part::plain("# A title\nand a text");
    let receipt = fixture.adapter.send(&route(90), &part, &REPLY).await.expect("sent");
    assert_eq!(receipt.message_id, None, "what is in a post cannot be edited from here");
    let thread = receipt.opened.expect("a thread");
    assert_eq!(fixture.fake.texts(thread.parse().expect("a number")), ["# A title\nand a text"]);
    let opened = &fixture.fake.calls_of("createThread")[0].body;
    assert_eq!(opened["name"], "A title");
}

#[tokio::test]
async fn forum_posts_have_no_idempotency_key() {
    let fixture = fixture();
    fixture.fake.add_forum(GUILD, 90, "ideas");
    fixture.fake.on("createThread").does(Fault::ResetAfter);
    let to = route(90);
    let part = Part::plain("once");
    let lost = fixture
        .adapter
        .send_idempotent(&to, &part, &REPLY, "out:17:0")
        .await
        .expect_err("the answer was lost");
    assert_eq!(lost.reached(), Reached::Maybe);
    assert_eq!(fixture.adapter.idempotency_window(&to).await.expect("asked"), None);
    let thread = Route { thread_id: Some("91".into()), ..route(90) };
    assert_eq!(
        fixture.adapter.idempotency_window(&thread).await.expect("asked"),
        None,
        "a post when the thread is gone"
    );
    assert_eq!(fixture.adapter.idempotency_window(&route(4242)).await.expect("no such channel"), None);
    fixture.fake.on("getChannel").does(Fault::status(500, 0, "500: Internal Server Error"));
    assert_eq!(fixture.adapter.idempotency_window(&to).await.expect_err("no answer").fault(), LATER);
    assert_eq!(fixture.fake.calls_of("getChannel").len(), 4);
}

#[tokio::test]
async fn forbidden_thread_does_not_mark_its_channel_dead() {
    let fixture = fixture();
    fixture.fake.add_thread(GUILD, CHANNEL, 80, "a private talk");
    for (to, dead) in
        [(Route { thread_id: Some("80".into()), ..route(CHANNEL) }, false), (route(CHANNEL), true)]
    {
        fixture.fake.on("createMessage").does(Fault::missing_access());
        let error = send(&fixture, &to).await.expect_err("refused");
        assert_eq!((error.fault(), error.reached()), (ExpectedFault::Refused, Reached::No));
        assert_eq!(error.kind().is_dead_chat(), dead, "{error}");
    }
    assert_eq!(
        (create_calls(&fixture), fixture.fake.texts(CHANNEL).len()),
        (2, 0),
        "what was meant for the thread stays there"
    );
}

#[tokio::test]
async fn hidden_server_does_not_hide_the_others() {
    let fixture = fixture();
    fixture.fake.add_guild(2);
    fixture.fake.add_channel(2, 75, "beta");
    fixture.fake.on("getGuildChannels").does(Fault::missing_access());
    let listed = fixture.adapter.channels().await.expect("listed").expect("a list");
    assert_eq!((listed.len(), fixture.fake.calls_of("getGuildChannels").len()), (1, 2));
    fixture.fake.on("getGuildChannels").does(Fault::status(500, 0, "500: Internal Server Error"));
    assert_eq!(fixture.adapter.channels().await.expect_err("what was known counts").fault(), LATER);
}

#[tokio::test]
async fn edits_and_deletions_are_idempotent() {
    let fixture = fixture();
    let id = send(&fixture, &route(DM)).await.expect("sent").message_id.expect("an id");
    let receipt = fixture.adapter.edit(&route(DM), &id, &Part::plain("ho")).await.expect("edited");
    assert_eq!(
        (receipt.message_id.as_deref(), fixture.fake.texts(DM)),
        (Some(id.as_str()), vec!["ho".into()])
    );
    let seen = &fixture.fake.visible(DM)[0];
    assert_eq!(
        seen.allowed_mentions["parse"],
        json!(["users"]),
        "an edit calls everyone as little as a message"
    );
    fixture.adapter.edit(&route(DM), &id, &Part::plain("ho")).await.expect("the same again is no failure");
    fixture.adapter.delete(&route(DM), &id).await.expect("deleted");
    fixture.adapter.delete(&route(DM), &id).await.expect("gone already");
    let error = fixture.adapter.edit(&route(DM), &id, &Part::plain("x")).await.expect_err("gone");
    assert_eq!((error.kind(), error.fault()), (Kind::NotFound, ExpectedFault::Refused));
}

#[tokio::test]
async fn shows_typing_and_does_not_send_white_space() {
    let fixture = fixture();
    fixture.adapter.typing(&route(DM)).await.expect("shown");
    assert_eq!(fixture.fake.calls_of("typing").len(), 1);
    let receipt = fixture.adapter.send(&route(DM), &Part::plain(" \n"), &REPLY).await.expect("nothing to do");
    assert_eq!((receipt, create_calls(&fixture)), (Receipt::default(), 0));
}
