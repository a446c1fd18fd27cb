//! Sending against a fake Bot API: one call is one try, and the error says what may have happened.

mod rig;

use std::path::PathBuf;
use std::time::Duration;

use petasos_core::outbox::Button;
use petasos_core::{Fault as Meaning, Reached, Route};
use petasos_fakes::telegram::Fault;
use petasos_platforms::telegram::Notifications;
use petasos_platforms::{Error, File, Kind, Opened, Part, Receipt, SendOptions, Show};
use rig::{Rig, TOKEN, rig, rig_with, route};
use serde_json::json;

const REPLY: SendOptions<'static> = SendOptions { reply: true, silent: false, buttons: &[], session: None };
const LATER: Meaning = Meaning::Later { after: None };

fn bold() -> Part {
    Part::marked("*hi*\\.", "hi.")
}

fn topic(chat: i64, thread: &str) -> Route {
    Route { thread_id: Some(thread.into()), ..route(chat) }
}

async fn send(rig: &Rig, to: &Route) -> Result<Receipt, Error> {
    rig.adapter.send(to, &bold(), &REPLY).await
}

fn tries(rig: &Rig) -> usize {
    rig.fake.calls_of("sendMessage").len()
}

#[tokio::test]
async fn a_message_is_marked_up_anchored_and_has_buttons() {
    let rig = rig();
    let to = Route { reply_to: Some(rig.fake.push_text(5, 5, "q").to_string()), ..route(5) };
    let buttons = [Button { label: "Yes".into(), data: "y".into() }];
    let options = SendOptions { reply: true, silent: true, buttons: &buttons, session: None };
    let receipt = rig.adapter.send(&to, &bold(), &options).await.expect("sent");
    let seen = &rig.fake.visible(5)[0];
    assert_eq!(receipt.message_id, Some(seen.id.to_string()));
    assert_eq!((seen.text.as_str(), seen.parse_mode.as_deref()), ("hi.", Some("MarkdownV2")));
    assert!(seen.silent);
    let keyboard = json!({ "inline_keyboard": [[{ "text": "Yes", "callback_data": "y" }]] });
    assert_eq!(seen.reply_markup, Some(keyboard));
    let reply = rig.fake.calls_of("sendMessage")[0].params.json("reply_parameters").expect("an anchor");
    assert_eq!(reply["message_id"].to_string(), to.reply_to.expect("set"));
}

#[tokio::test]
async fn every_message_sounds_if_the_owner_wants_it() {
    let rig = rig_with(|config| config.notifications = Notifications::All);
    let silent = SendOptions { silent: true, ..Default::default() };
    rig.adapter.send(&route(5), &bold(), &silent).await.expect("sent");
    assert!(!rig.fake.visible(5)[0].silent);
}

#[tokio::test]
async fn white_space_is_not_sent() {
    let rig = rig();
    let receipt = rig.adapter.send(&route(5), &Part::plain(" \n"), &REPLY).await.expect("nothing to do");
    assert_eq!((receipt, tries(&rig)), (Receipt::default(), 0));
}

#[tokio::test]
async fn markup_that_is_not_understood_is_left_out() {
    let rig = rig();
    let broken = Part::marked("*hi.", "hi.");
    rig.adapter.send(&route(5), &broken, &REPLY).await.expect("sent");
    let seen = &rig.fake.visible(5)[0];
    assert_eq!((seen.text.as_str(), seen.parse_mode.as_deref()), ("hi.", None));
    let receipt = rig.adapter.edit(&route(5), &seen.id.to_string(), &Part::marked("*ho.", "ho.")).await;
    assert_eq!(receipt.expect("edited").message_id, Some(seen.id.to_string()));
    assert_eq!(rig.fake.texts(5), ["ho."]);
}

#[tokio::test]
async fn a_lost_thread_is_tried_once_more_and_then_left_out() {
    let rig = rig();
    let gone = "Bad Request: message thread not found";
    rig.fake.add_topic(-100, 7);
    rig.fake.on("sendMessage").times(2).does(Fault::status(400, gone));
    assert!(send(&rig, &topic(-100, "7")).await.expect("sent").thread_fallback);
    let threads: Vec<_> =
        rig.fake.calls_of("sendMessage").iter().map(|call| call.params.int("message_thread_id")).collect();
    assert_eq!(threads, [Some(7), Some(7), None]);

    rig.fake.on("sendMessage").does(Fault::status(400, gone));
    assert!(!send(&rig, &topic(-100, "7")).await.expect("sent").thread_fallback, "it lives after all");
}

#[tokio::test]
async fn a_private_topic_is_never_left() {
    let rig = rig();
    rig.fake.on("sendMessage").always().does(Fault::status(400, "Bad Request: message thread not found"));
    let error = send(&rig, &topic(5, "7")).await.expect_err("refused");
    assert_eq!((error.fault(), error.kind(), tries(&rig)), (Meaning::Refused, Kind::NotFound, 1));
}

#[tokio::test]
async fn the_general_topic_has_no_number_on_the_wire() {
    let rig = rig();
    send(&rig, &topic(-100, "1")).await.expect("sent");
    rig.adapter.typing(&topic(-100, "1")).await.expect("typing");
    let calls = rig.fake.calls();
    assert!(calls.iter().all(|call| call.params.get("message_thread_id").is_none()), "{calls:?}");
}

#[tokio::test]
async fn a_lost_anchor_is_left_out() {
    let rig = rig();
    rig.fake.on("sendMessage").does(Fault::status(400, "Bad Request: message to be replied not found"));
    send(&rig, &Route { reply_to: Some("99".into()), ..route(5) }).await.expect("sent");
    let calls = rig.fake.calls_of("sendMessage");
    assert!(calls[0].params.get("reply_parameters").is_some());
    assert!(calls[1].params.get("reply_parameters").is_none());
}

#[tokio::test]
async fn a_refusal_is_tried_once_and_certain() {
    for (fault, meaning, code) in [
        (Fault::too_many(2), Meaning::Later { after: Some(Duration::from_secs(2)) }, "telegram_rate_limited"),
        (Fault::blocked(), Meaning::Refused, "telegram_forbidden"),
        (Fault::status(500, "Internal Server Error"), LATER, "telegram_server_error"),
        (Fault::status(401, "Unauthorized"), Meaning::Fatal, "telegram_invalid_token"),
        (Fault::status(400, "Bad Request: chat not found"), Meaning::Refused, "telegram_chat_not_found"),
    ] {
        let rig = rig();
        rig.fake.on("sendMessage").does(fault.clone());
        let error = send(&rig, &route(5)).await.expect_err("refused");
        assert_eq!((error.fault(), error.reached(), error.code()), (meaning, Reached::No, code), "{fault:?}");
        assert_eq!(tries(&rig), 1, "{fault:?}");
        // Another chat: this one may be rate limited now.
        send(&rig, &route(6)).await.expect("the adapter goes on");
        assert_eq!(rig.fake.texts(6), ["hi."]);
    }
}

#[tokio::test]
async fn without_an_answer_the_message_may_be_there() {
    for fault in [Fault::ResetAfter, Fault::ResetBefore, Fault::HangAfter, Fault::Garbage, Fault::HalfBody] {
        let rig = rig_with(|config| config.request_timeout = Duration::from_millis(500));
        rig.fake.on("sendMessage").does(fault.clone());
        let error = send(&rig, &route(5)).await.expect_err("no answer");
        assert_eq!((error.fault(), error.reached()), (LATER, Reached::Maybe), "{fault:?}: {error}");
        assert_eq!(tries(&rig), 1, "{fault:?}");
        assert!(!format!("{error} {error:?}").contains(TOKEN), "{error:?}");
    }
}

#[tokio::test]
async fn a_refused_connection_certainly_sent_nothing() {
    let rig = rig();
    rig.fake.down();
    let error = send(&rig, &route(5)).await.expect_err("nobody there");
    assert_eq!(
        (error.fault(), error.reached(), error.code()),
        (LATER, Reached::No, "telegram_connect_error")
    );
    assert!(!format!("{error} {error:?}").contains(TOKEN), "{error:?}");
    rig.fake.up().expect("the port is ours");
    send(&rig, &route(5)).await.expect("sent");
    assert_eq!(rig.fake.texts(5), ["hi."]);
}

#[tokio::test]
async fn a_preview_is_plain_and_its_final_edit_is_marked_up() {
    let rig = rig();
    let preview = Part::plain(rig.adapter.preview("**half", " ▉"));
    let id = rig.adapter.send(&route(5), &preview, &REPLY).await.expect("sent").message_id.expect("an id");
    assert_eq!(rig.fake.texts(5), ["**half ▉"]);
    let done = rig.adapter.render("**half** done.").remove(0);
    rig.adapter.edit(&route(5), &id, &done).await.expect("edited");
    assert_eq!(rig.fake.texts(5), ["half done."]);
    rig.adapter.edit(&route(5), &id, &done).await.expect("the same text is a success");
    rig.adapter.delete(&route(5), &id).await.expect("deleted");
    rig.adapter.delete(&route(5), &id).await.expect("gone already");
    assert!(rig.fake.texts(5).is_empty());
    assert!(rig.adapter.edit(&route(5), &id, &done).await.is_err());
}

#[tokio::test]
async fn a_long_answer_goes_out_in_parts_that_telegram_accepts() {
    let rig = rig();
    let code = "    println!(\"🙂 {}\", a.b());\n".repeat(200);
    let parts = rig.adapter.render(&format!("Look:\n\n```rust\n{code}```\n\n**Done** (really)."));
    for part in &parts {
        rig.adapter.send(&route(5), part, &REPLY).await.expect("accepted");
    }
    let seen = rig.fake.visible(5);
    assert_eq!(seen.len(), parts.len());
    assert!(seen.iter().all(|message| message.parse_mode.is_some()), "no part needed the fallback");
    assert!(seen.last().is_some_and(|message| message.text.ends_with(&format!("({0}/{0})", parts.len()))));
}

#[tokio::test]
async fn a_topic_is_made_under_its_name_and_takes_messages() {
    let rig = rig();
    let named = Route { thread_id: Some("News".into()), ..topic(5, "1") };
    let name = rig.adapter.topic_name(&named).expect("a name");
    assert_eq!(rig.adapter.topic_name(&topic(5, "7")), None, "that is an id");
    let made = rig.adapter.make_topic(&named, &name).await.expect("made").expect("a topic");
    assert_eq!(rig.fake.calls_of("createForumTopic")[0].params.str("name"), Some("News"));
    assert!(!send(&rig, &topic(5, &made)).await.expect("there is such a topic").thread_fallback);
}

#[allow(clippy::expect_used, reason = "a test that cannot go on stops")]
fn file(path: PathBuf, name: &str, mime: &'static str, show: Show) -> File {
    File { opened: Opened::at(&path).expect("there"), name: name.into(), mime, show }
}

#[tokio::test]
async fn a_file_goes_as_what_it_is_and_as_a_document_if_it_is_not() {
    let rig = rig();
    let folder = tempfile::tempdir().expect("a folder");
    for (name, content, show, want) in [
        ("cat.png", &b"\x89PNG\r\n\x1a\n"[..], Show::Photo, "photo"),
        ("lie.png", b"no picture at all", Show::Photo, "document"),
        ("hello.ogg", b"OggS", Show::Voice, "voice"),
        ("song.mp3", b"ID3", Show::Audio, "audio"),
        ("film.mp4", b"ftyp", Show::Video, "video"),
        ("a.txt", b"text", Show::Document, "document"),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("written");
        let part = Part::file(file(path, name, "x/y", show));
        let receipt = rig.adapter.send(&route(5), &part, &REPLY).await.expect("sent");
        let last = rig.fake.visible(5).pop().expect("visible");
        assert_eq!(receipt.message_id, Some(last.id.to_string()));
        let file = last.file.expect("a file");
        assert_eq!((file.field.as_str(), file.name.as_str(), &file.content[..]), (want, name, content));
    }
    assert_eq!(rig.fake.calls_of("sendPhoto").len(), 2);
}

#[tokio::test]
async fn a_picture_that_is_too_large_for_one_is_a_document() {
    let rig = rig();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("poster.png");
    let large = std::fs::File::create(&path).expect("made");
    large.set_len((10 << 20) + 1).expect("long enough");
    let part = Part::file(file(path, "poster.png", "image/png", Show::Photo));
    rig.adapter.send(&route(5), &part, &REPLY).await.expect("sent");
    assert!(rig.fake.calls_of("sendPhoto").is_empty());
    assert_eq!(rig.fake.calls_of("sendDocument").len(), 1);
}
