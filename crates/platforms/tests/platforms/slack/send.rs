//! Sending: one call is one attempt, and errors say what may have happened.

use std::time::Duration;

use petasos_core::{Fault as ExpectedFault, Reached, Route};
use petasos_fakes::slack::{Fault, TEAM};
use petasos_platforms::{Error, Kind, MediaKind, OpenFile, OutgoingFile, Part, Receipt, SendOptions};

use super::fixture::{SlackFixture, TEST_TIMEOUT, fixture, fixture_with, route};

async fn send(fixture: &SlackFixture, channel: &str, text: &str) -> Result<Receipt, Error> {
    fixture.adapter.send(&route(channel, None), &Part::plain(text), &SendOptions::default()).await
}

#[tokio::test]
async fn sends_edits_and_deletes_a_message() {
    let fixture = fixture();
    fixture.fake.add_channel(TEAM, "C1");
    let to = route("C1", Some("1.2"));
    let receipt =
        fixture.adapter.send(&to, &Part::plain("half"), &SendOptions::default()).await.expect("sent");
    let id = receipt.message_id.expect("an id");
    assert_eq!(fixture.fake.visible("C1")[0].thread.as_deref(), Some("1.2"));
    fixture.adapter.edit(&to, &id, &Part::plain("whole")).await.expect("changed");
    assert_eq!(fixture.fake.texts("C1"), ["whole"]);
    fixture.adapter.delete(&to, &id).await.expect("gone");
    fixture.adapter.delete(&to, &id).await.expect("gone already");
    assert!(fixture.fake.visible("C1").is_empty());
    let error = fixture.adapter.edit(&to, &id, &Part::plain("x")).await.expect_err("gone");
    assert_eq!((error.fault(), error.kind()), (ExpectedFault::Refused, Kind::NotFound));
    send(&fixture, "C1", " ").await.expect("nothing to send");
    assert_eq!(fixture.fake.calls_of("chat.postMessage").len(), 1);
}

#[tokio::test]
async fn broadcasts_only_the_first_part_if_configured() {
    for broadcast in [false, true] {
        let fixture = fixture_with(|config| config.reply_broadcast = broadcast);
        fixture.fake.add_channel(TEAM, "C1");
        for reply in [true, false] {
            let options = SendOptions { reply, ..SendOptions::default() };
            fixture.adapter.send(&route("C1", Some("1.2")), &Part::plain("x"), &options).await.expect("sent");
        }
        let shown: Vec<bool> = fixture.fake.visible("C1").iter().map(|message| message.broadcast).collect();
        assert_eq!(shown, [broadcast, false]);
    }
}

#[tokio::test]
async fn sends_long_answers_and_refuses_oversized_edits() {
    let fixture = fixture();
    fixture.fake.add_channel(TEAM, "C1");
    let parts = fixture.adapter.render(&"long & winding. ".repeat(6000));
    assert!(parts.len() > 1);
    for part in &parts {
        fixture.adapter.send(&route("C1", None), part, &SendOptions::default()).await.expect("sent");
    }
    let id = fixture.fake.visible("C1")[0].ts.clone();
    let error = fixture.adapter.edit(&route("C1", None), &id, &parts[0]).await.expect_err("too long");
    assert_eq!((error.fault(), error.kind()), (ExpectedFault::Refused, Kind::TooLong));
    let preview = Part::plain(fixture.adapter.preview(&"long & winding. ".repeat(6000), " ▉"));
    fixture.adapter.edit(&route("C1", None), &id, &preview).await.expect("a preview always fits");
}

#[tokio::test]
async fn classifies_send_failures() {
    let cases = [
        (Fault::error("not_in_channel"), ExpectedFault::Refused, Reached::No),
        (Fault::error("invalid_auth"), ExpectedFault::Fatal, Reached::No),
        (Fault::missing_scope("chat:write"), ExpectedFault::Fatal, Reached::No),
        (Fault::error("internal_error"), ExpectedFault::Later { after: None }, Reached::Maybe),
        (Fault::ProxyError(502), ExpectedFault::Later { after: None }, Reached::Maybe),
        (Fault::Garbage, ExpectedFault::Later { after: None }, Reached::Maybe),
        (Fault::ResetBefore, ExpectedFault::Later { after: None }, Reached::Maybe),
        (Fault::ResetAfter, ExpectedFault::Later { after: None }, Reached::Maybe),
        // Last: the channel is rate limited for three seconds.
        (Fault::too_many(3), ExpectedFault::Later { after: Some(Duration::from_secs(3)) }, Reached::No),
    ];
    let fixture = fixture();
    fixture.fake.add_channel(TEAM, "C1");
    for (fault, want, reached) in cases {
        fixture.fake.on("chat.postMessage").does(fault.clone());
        let error = send(&fixture, "C1", "x").await.expect_err("a fault");
        assert_eq!((error.fault(), error.reached()), (want, reached), "{fault:?}: {error}");
    }
    assert_eq!(fixture.fake.texts("C1").len(), 1, "only the lost acknowledgement had its effect");
    let unknown = send(&fixture, "C9", "x").await.expect_err("unknown");
    assert!(unknown.kind().is_dead_chat(), "{unknown}");
}

#[tokio::test]
async fn timeout_is_an_unknown_outcome() {
    let fixture = fixture_with(|config| config.request_timeout = Duration::from_millis(200));
    fixture.fake.add_channel(TEAM, "C1");
    send(&fixture, "C1", "first").await.expect("sent");
    fixture.fake.on("chat.postMessage").does(Fault::HangAfter);
    let error = send(&fixture, "C1", "x").await.expect_err("no answer");
    assert_eq!((error.fault(), error.reached()), (ExpectedFault::Later { after: None }, Reached::Maybe));
}

#[tokio::test]
async fn looks_up_an_unknown_chat_once_in_every_workspace() {
    let fixture = fixture_with(|config| config.bot_tokens.push(petasos_platforms::Secret::new("xoxb-2")));
    fixture.fake.add_workspace("T2", "xoxb-2");
    fixture.fake.add_channel("T2", "C2");
    send(&fixture, "C2", "one").await.expect("found");
    send(&fixture, "C2", "two").await.expect("known");
    assert_eq!(fixture.fake.texts("C2"), ["one", "two"]);
    assert_eq!(fixture.fake.calls_of("conversations.info").len(), 2);
    let error = send(&fixture, "C9", "x").await.expect_err("nowhere");
    assert_eq!(error.kind(), Kind::ChatNotFound);
}

#[tokio::test]
async fn sends_to_a_user_in_the_direct_conversation() {
    let fixture = fixture();
    for text in ["one", "two"] {
        send(&fixture, "U7", text).await.expect("sent");
    }
    assert_eq!(fixture.fake.texts("D7"), ["one", "two"]);
    assert_eq!(fixture.fake.calls_of("conversations.open").len(), 1);
}

#[tokio::test]
async fn shows_typing_in_threads_where_permitted() {
    let fixture = fixture();
    fixture.fake.add_channel(TEAM, "C1");
    fixture.adapter.typing(&route("C1", None)).await.expect("nothing to show");
    fixture.adapter.typing(&route("C1", Some("1.2"))).await.expect("shown");
    let status = fixture.fake.read(|state| state.status("C1", "1.2").map(str::to_owned));
    assert_eq!(status.as_deref(), Some("is thinking..."));
    fixture.fake.on("assistant.threads.setStatus").does(Fault::missing_scope("assistant:write"));
    for _ in 0..3 {
        fixture.adapter.typing(&route("C1", Some("1.2"))).await.expect("not an error");
    }
    assert_eq!(fixture.fake.calls_of("assistant.threads.setStatus").len(), 2, "not requested again");
}

#[tokio::test]
async fn refuses_a_private_answer_with_an_expired_url() {
    let fixture = fixture();
    let mut to = route("C1", None);
    to.reply_to = Some(fixture.fake.push_command("C1", "U7", "/status", ""));
    for _ in 0..5 {
        fixture.adapter.send(&to, &Part::plain("x"), &SendOptions::default()).await.expect("sent");
    }
    let error =
        fixture.adapter.send(&to, &Part::plain("x"), &SendOptions::default()).await.expect_err("used up");
    assert_eq!((error.fault(), error.code()), (ExpectedFault::Refused, "slack_response_expired"));
    assert!(fixture.fake.visible("C1").is_empty());
    let seen = fixture.fake.wait_until(TEST_TIMEOUT, |state| (state.responses().len() == 5).then_some(()));
    assert_eq!(seen, Some(()));
}

fn small_file() -> Part {
    let path: std::path::PathBuf = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").into();
    let opened = OpenFile::at(&path).expect("the file exists");
    let mime = "application/octet-stream";
    Part::file(OutgoingFile { opened, name: "test.bin".into(), mime, show: MediaKind::Document })
}

#[tokio::test]
async fn failed_upload_has_no_visible_effect() {
    let fixture = fixture();
    fixture.fake.add_channel(TEAM, "C1");
    let send_file = || async {
        fixture.adapter.send(&route("C1", Some("1.2")), &small_file(), &SendOptions::default()).await
    };
    for (step, fault, want) in [
        ("files.getUploadURLExternal", Fault::ResetAfter, ExpectedFault::Later { after: None }),
        ("files.getUploadURLExternal", Fault::missing_scope("files:write"), ExpectedFault::Refused),
        ("upload", Fault::ResetAfter, ExpectedFault::Later { after: None }),
        ("upload", Fault::ProxyError(502), ExpectedFault::Later { after: None }),
        ("upload", Fault::ProxyError(408), ExpectedFault::Later { after: None }),
        ("upload", Fault::ProxyError(403), ExpectedFault::Refused),
    ] {
        fixture.fake.on(step).does(fault.clone());
        let error = send_file().await.expect_err("a fault");
        assert_eq!((error.fault(), error.reached()), (want, Reached::No), "{step} {fault:?}: {error}");
        assert!(fixture.fake.visible("C1").is_empty());
        assert!(!error.kind().is_dead_chat(), "{step} {fault:?}: {error}");
    }
    fixture.fake.on("files.completeUploadExternal").does(Fault::ResetAfter);
    assert_eq!(send_file().await.expect_err("lost").reached(), Reached::Maybe);
    let seen = fixture.fake.visible("C1");
    assert_eq!((seen.len(), seen[0].thread.as_deref()), (1, Some("1.2")));
}

#[tokio::test]
async fn refuses_files_in_private_answers() {
    let fixture = fixture();
    let url = fixture.fake.push_command("C1", "U5", "/petasos", "report");
    let to = Route { reply_to: Some(url), ..route("C1", None) };
    let error = fixture.adapter.send(&to, &small_file(), &SendOptions::default()).await.expect_err("refused");
    assert_eq!((error.fault(), error.reached()), (ExpectedFault::Refused, Reached::No), "{error}");
    assert!(!error.kind().is_dead_chat());
    assert!(fixture.fake.visible("C1").is_empty());
}
