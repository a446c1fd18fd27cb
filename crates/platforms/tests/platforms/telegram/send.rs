//! Sending against a fake Bot API: one call is one attempt, and errors say what may have happened.

use std::path::PathBuf;
use std::time::Duration;

use petasos_core::outbox::Button;
use petasos_core::{Fault as ExpectedFault, Reached, Route};
use petasos_fakes::telegram::Fault;
use petasos_platforms::telegram::Notifications;
use petasos_platforms::{Error, Kind, MediaKind, OpenFile, OutgoingFile, Part, Receipt, SendOptions};
use serde_json::json;

use super::fixture::{TOKEN, TelegramFixture, fixture, fixture_with, route};

const REPLY: SendOptions<'static> = SendOptions { reply: true, silent: false, buttons: &[], session: None };
const LATER: ExpectedFault = ExpectedFault::Later { after: None };

fn bold() -> Part {
    Part::marked("*hi*\\.", "hi.")
}

fn topic(chat: i64, thread: &str) -> Route {
    Route { thread_id: Some(thread.into()), ..route(chat) }
}

async fn send(fixture: &TelegramFixture, to: &Route) -> Result<Receipt, Error> {
    fixture.adapter.send(to, &bold(), &REPLY).await
}

fn send_calls(fixture: &TelegramFixture) -> usize {
    fixture.fake.calls_of("sendMessage").len()
}

#[tokio::test]
async fn sends_markup_reply_and_buttons() {
    let fixture = fixture();
    let to = Route { reply_to: Some(fixture.fake.push_text(5, 5, "q").to_string()), ..route(5) };
    let buttons = [Button { label: "Yes".into(), data: "y".into() }];
    let options = SendOptions { reply: true, silent: true, buttons: &buttons, session: None };
    let receipt = fixture.adapter.send(&to, &bold(), &options).await.expect("sent");
    let seen = &fixture.fake.visible(5)[0];
    assert_eq!(receipt.message_id, Some(seen.id.to_string()));
    assert_eq!((seen.text.as_str(), seen.parse_mode.as_deref()), ("hi.", Some("MarkdownV2")));
    assert!(seen.silent);
    let keyboard = json!({ "inline_keyboard": [[{ "text": "Yes", "callback_data": "y" }]] });
    assert_eq!(seen.reply_markup, Some(keyboard));
    let reply = fixture.fake.calls_of("sendMessage")[0].params.json("reply_parameters").expect("an anchor");
    assert_eq!(reply["message_id"].to_string(), to.reply_to.expect("set"));
}

#[tokio::test]
async fn notifies_for_every_message_if_configured() {
    let fixture = fixture_with(|config| config.notifications = Notifications::All);
    let silent = SendOptions { silent: true, ..Default::default() };
    fixture.adapter.send(&route(5), &bold(), &silent).await.expect("sent");
    assert!(!fixture.fake.visible(5)[0].silent);
}

#[tokio::test]
async fn does_not_send_white_space() {
    let fixture = fixture();
    let receipt = fixture.adapter.send(&route(5), &Part::plain(" \n"), &REPLY).await.expect("nothing to do");
    assert_eq!((receipt, send_calls(&fixture)), (Receipt::default(), 0));
}

#[tokio::test]
async fn falls_back_to_plain_text_for_bad_markup() {
    let fixture = fixture();
    let broken = Part::marked("*hi.", "hi.");
    fixture.adapter.send(&route(5), &broken, &REPLY).await.expect("sent");
    let seen = &fixture.fake.visible(5)[0];
    assert_eq!((seen.text.as_str(), seen.parse_mode.as_deref()), ("hi.", None));
    let receipt = fixture.adapter.edit(&route(5), &seen.id.to_string(), &Part::marked("*ho.", "ho.")).await;
    assert_eq!(receipt.expect("edited").message_id, Some(seen.id.to_string()));
    assert_eq!(fixture.fake.texts(5), ["ho."]);
}

#[tokio::test]
async fn retries_a_missing_thread_once_then_uses_the_chat() {
    let fixture = fixture();
    let gone = "Bad Request: message thread not found";
    fixture.fake.add_topic(-100, 7);
    fixture.fake.on("sendMessage").times(2).does(Fault::status(400, gone));
    assert!(send(&fixture, &topic(-100, "7")).await.expect("sent").thread_fallback);
    let threads: Vec<_> = fixture
        .fake
        .calls_of("sendMessage")
        .iter()
        .map(|call| call.params.int("message_thread_id"))
        .collect();
    assert_eq!(threads, [Some(7), Some(7), None]);

    fixture.fake.on("sendMessage").does(Fault::status(400, gone));
    assert!(!send(&fixture, &topic(-100, "7")).await.expect("sent").thread_fallback, "it lives after all");
}

#[tokio::test]
async fn never_falls_back_from_a_private_topic() {
    let fixture = fixture();
    fixture.fake.on("sendMessage").always().does(Fault::status(400, "Bad Request: message thread not found"));
    let error = send(&fixture, &topic(5, "7")).await.expect_err("refused");
    assert_eq!(
        (error.fault(), error.kind(), send_calls(&fixture)),
        (ExpectedFault::Refused, Kind::NotFound, 1)
    );
}

#[tokio::test]
async fn omits_the_id_of_the_general_topic() {
    let fixture = fixture();
    send(&fixture, &topic(-100, "1")).await.expect("sent");
    fixture.adapter.typing(&topic(-100, "1")).await.expect("typing");
    let calls = fixture.fake.calls();
    assert!(calls.iter().all(|call| call.params.get("message_thread_id").is_none()), "{calls:?}");
}

#[tokio::test]
async fn drops_a_missing_reply_target() {
    let fixture = fixture();
    fixture.fake.on("sendMessage").does(Fault::status(400, "Bad Request: message to be replied not found"));
    send(&fixture, &Route { reply_to: Some("99".into()), ..route(5) }).await.expect("sent");
    let calls = fixture.fake.calls_of("sendMessage");
    assert!(calls[0].params.get("reply_parameters").is_some());
    assert!(calls[1].params.get("reply_parameters").is_none());
}

#[tokio::test]
async fn refusal_is_not_retried_and_has_no_effect() {
    for (fault, meaning, code) in [
        (
            Fault::too_many(2),
            ExpectedFault::Later { after: Some(Duration::from_secs(2)) },
            "telegram_rate_limited",
        ),
        (Fault::blocked(), ExpectedFault::Refused, "telegram_forbidden"),
        (Fault::status(500, "Internal Server Error"), LATER, "telegram_server_error"),
        (Fault::status(401, "Unauthorized"), ExpectedFault::Fatal, "telegram_invalid_token"),
        (
            Fault::status(400, "Bad Request: chat not found"),
            ExpectedFault::Refused,
            "telegram_chat_not_found",
        ),
    ] {
        let fixture = fixture();
        fixture.fake.on("sendMessage").does(fault.clone());
        let error = send(&fixture, &route(5)).await.expect_err("refused");
        assert_eq!((error.fault(), error.reached(), error.code()), (meaning, Reached::No, code), "{fault:?}");
        assert_eq!(send_calls(&fixture), 1, "{fault:?}");
        // Another chat, since this one may be rate limited now.
        send(&fixture, &route(6)).await.expect("the adapter goes on");
        assert_eq!(fixture.fake.texts(6), ["hi."]);
    }
}

#[tokio::test]
async fn missing_response_is_an_unknown_outcome() {
    for fault in [Fault::ResetAfter, Fault::ResetBefore, Fault::HangAfter, Fault::Garbage, Fault::HalfBody] {
        let fixture = fixture_with(|config| config.request_timeout = Duration::from_millis(500));
        fixture.fake.on("sendMessage").does(fault.clone());
        let error = send(&fixture, &route(5)).await.expect_err("no answer");
        assert_eq!((error.fault(), error.reached()), (LATER, Reached::Maybe), "{fault:?}: {error}");
        assert_eq!(send_calls(&fixture), 1, "{fault:?}");
        assert!(!format!("{error} {error:?}").contains(TOKEN), "{error:?}");
    }
}

#[tokio::test]
async fn refused_connection_sends_nothing() {
    let fixture = fixture();
    fixture.fake.down();
    let error = send(&fixture, &route(5)).await.expect_err("the service is down");
    assert_eq!(
        (error.fault(), error.reached(), error.code()),
        (LATER, Reached::No, "telegram_connect_error")
    );
    assert!(!format!("{error} {error:?}").contains(TOKEN), "{error:?}");
    fixture.fake.up().expect("the port is ours");
    send(&fixture, &route(5)).await.expect("sent");
    assert_eq!(fixture.fake.texts(5), ["hi."]);
}

#[tokio::test]
async fn sends_plain_previews_and_a_formatted_final_edit() {
    let fixture = fixture();
    let preview = Part::plain(fixture.adapter.preview("**half", " ▉"));
    let id =
        fixture.adapter.send(&route(5), &preview, &REPLY).await.expect("sent").message_id.expect("an id");
    assert_eq!(fixture.fake.texts(5), ["**half ▉"]);
    let done = fixture.adapter.render("**half** done.").remove(0);
    fixture.adapter.edit(&route(5), &id, &done).await.expect("edited");
    assert_eq!(fixture.fake.texts(5), ["half done."]);
    fixture.adapter.edit(&route(5), &id, &done).await.expect("the same text is a success");
    fixture.adapter.delete(&route(5), &id).await.expect("deleted");
    fixture.adapter.delete(&route(5), &id).await.expect("gone already");
    assert!(fixture.fake.texts(5).is_empty());
    assert!(fixture.adapter.edit(&route(5), &id, &done).await.is_err());
}

#[tokio::test]
async fn sends_long_answers_in_accepted_parts() {
    let fixture = fixture();
    let code = "    println!(\"🙂 {}\", a.b());\n".repeat(200);
    let parts = fixture.adapter.render(&format!("Look:\n\n```rust\n{code}```\n\n**Done** (really)."));
    for part in &parts {
        fixture.adapter.send(&route(5), part, &REPLY).await.expect("accepted");
    }
    let seen = fixture.fake.visible(5);
    assert_eq!(seen.len(), parts.len());
    assert!(seen.iter().all(|message| message.parse_mode.is_some()), "no part needed the fallback");
    assert!(seen.last().is_some_and(|message| message.text.ends_with(&format!("({0}/{0})", parts.len()))));
}

#[tokio::test]
async fn creates_a_named_topic_and_sends_into_it() {
    let fixture = fixture();
    let named = Route { thread_id: Some("News".into()), ..topic(5, "1") };
    let name = fixture.adapter.topic_name(&named).expect("a name");
    assert_eq!(fixture.adapter.topic_name(&topic(5, "7")), None, "that is an id");
    let made = fixture.adapter.create_topic(&named, &name).await.expect("made").expect("a topic");
    assert_eq!(fixture.fake.calls_of("createForumTopic")[0].params.str("name"), Some("News"));
    assert!(!send(&fixture, &topic(5, &made)).await.expect("there is such a topic").thread_fallback);
}

#[allow(clippy::expect_used, reason = "a test that cannot go on stops")]
fn file(path: PathBuf, name: &str, mime: &'static str, show: MediaKind) -> OutgoingFile {
    OutgoingFile { opened: OpenFile::at(&path).expect("there"), name: name.into(), mime, show }
}

#[tokio::test]
async fn sends_files_by_kind_with_document_fallback() {
    let fixture = fixture();
    let folder = tempfile::tempdir().expect("a folder");
    for (name, content, show, want) in [
        ("cat.png", &b"\x89PNG\r\n\x1a\n"[..], MediaKind::Photo, "photo"),
        ("lie.png", b"no picture at all", MediaKind::Photo, "document"),
        ("hello.ogg", b"OggS", MediaKind::Voice, "voice"),
        ("song.mp3", b"ID3", MediaKind::Audio, "audio"),
        ("film.mp4", b"ftyp", MediaKind::Video, "video"),
        ("a.txt", b"text", MediaKind::Document, "document"),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("written");
        let part = Part::file(file(path, name, "x/y", show));
        let receipt = fixture.adapter.send(&route(5), &part, &REPLY).await.expect("sent");
        let last = fixture.fake.visible(5).pop().expect("visible");
        assert_eq!(receipt.message_id, Some(last.id.to_string()));
        let file = last.file.expect("a file");
        assert_eq!((file.field.as_str(), file.name.as_str(), &file.content[..]), (want, name, content));
    }
    assert_eq!(fixture.fake.calls_of("sendPhoto").len(), 2);
}

#[tokio::test]
async fn sends_oversized_photos_as_documents() {
    let fixture = fixture();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("poster.png");
    let large = std::fs::File::create(&path).expect("made");
    large.set_len((10 << 20) + 1).expect("long enough");
    let part = Part::file(file(path, "poster.png", "image/png", MediaKind::Photo));
    fixture.adapter.send(&route(5), &part, &REPLY).await.expect("sent");
    assert!(fixture.fake.calls_of("sendPhoto").is_empty());
    assert_eq!(fixture.fake.calls_of("sendDocument").len(), 1);
}
