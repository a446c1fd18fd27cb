//! The way out.

use std::time::Duration;

use petasos_core::{Fault as Meaning, Reached, Route};
use petasos_fakes::slack::{Fault, TEAM};
use petasos_platforms::{Error, File, Kind, Opened, Part, Receipt, SendOptions, Show};

use crate::rig::{Rig, SOON, rig, rig_with, route};

async fn say(rig: &Rig, channel: &str, text: &str) -> Result<Receipt, Error> {
    rig.adapter.send(&route(channel, None), &Part::plain(text), &SendOptions::default()).await
}

#[tokio::test]
async fn a_message_is_sent_changed_and_taken_back() {
    let rig = rig();
    rig.fake.add_channel(TEAM, "C1");
    let to = route("C1", Some("1.2"));
    let receipt = rig.adapter.send(&to, &Part::plain("half"), &SendOptions::default()).await.expect("sent");
    let id = receipt.message_id.expect("an id");
    assert_eq!(rig.fake.visible("C1")[0].thread.as_deref(), Some("1.2"));
    rig.adapter.edit(&to, &id, &Part::plain("whole")).await.expect("changed");
    assert_eq!(rig.fake.texts("C1"), ["whole"]);
    rig.adapter.delete(&to, &id).await.expect("gone");
    rig.adapter.delete(&to, &id).await.expect("gone already");
    assert!(rig.fake.visible("C1").is_empty());
    let error = rig.adapter.edit(&to, &id, &Part::plain("x")).await.expect_err("gone");
    assert_eq!((error.fault(), error.kind()), (Meaning::Refused, Kind::NotFound));
    say(&rig, "C1", " ").await.expect("nothing to say");
    assert_eq!(rig.fake.calls_of("chat.postMessage").len(), 1);
}

#[tokio::test]
async fn only_the_first_part_is_shown_in_the_channel_too_and_only_if_wanted() {
    for wanted in [false, true] {
        let rig = rig_with(|config| config.reply_broadcast = wanted);
        rig.fake.add_channel(TEAM, "C1");
        for reply in [true, false] {
            let options = SendOptions { reply, ..SendOptions::default() };
            rig.adapter.send(&route("C1", Some("1.2")), &Part::plain("x"), &options).await.expect("sent");
        }
        let shown: Vec<bool> = rig.fake.visible("C1").iter().map(|message| message.broadcast).collect();
        assert_eq!(shown, [wanted, false]);
    }
}

#[tokio::test]
async fn a_long_answer_is_taken_whole_and_too_long_an_edit_is_refused() {
    let rig = rig();
    rig.fake.add_channel(TEAM, "C1");
    let parts = rig.adapter.render(&"long & winding. ".repeat(6000));
    assert!(parts.len() > 1);
    for part in &parts {
        rig.adapter.send(&route("C1", None), part, &SendOptions::default()).await.expect("sent");
    }
    let id = rig.fake.visible("C1")[0].ts.clone();
    let error = rig.adapter.edit(&route("C1", None), &id, &parts[0]).await.expect_err("too long");
    assert_eq!((error.fault(), error.kind()), (Meaning::Refused, Kind::TooLong));
    let preview = Part::plain(rig.adapter.preview(&"long & winding. ".repeat(6000), " ▉"));
    rig.adapter.edit(&route("C1", None), &id, &preview).await.expect("a preview always fits");
}

#[tokio::test]
async fn failures_say_what_to_do() {
    let cases = [
        (Fault::error("not_in_channel"), Meaning::Refused, Reached::No),
        (Fault::error("invalid_auth"), Meaning::Fatal, Reached::No),
        (Fault::missing_scope("chat:write"), Meaning::Fatal, Reached::No),
        (Fault::error("internal_error"), Meaning::Later { after: None }, Reached::Maybe),
        (Fault::Status(502), Meaning::Later { after: None }, Reached::Maybe),
        (Fault::Garbage, Meaning::Later { after: None }, Reached::Maybe),
        (Fault::ResetBefore, Meaning::Later { after: None }, Reached::Maybe),
        (Fault::ResetAfter, Meaning::Later { after: None }, Reached::Maybe),
        // The last one: nothing is sent to the channel for three seconds.
        (Fault::TooMany(3), Meaning::Later { after: Some(Duration::from_secs(3)) }, Reached::No),
    ];
    let rig = rig();
    rig.fake.add_channel(TEAM, "C1");
    for (fault, meaning, reached) in cases {
        rig.fake.on("chat.postMessage").does(fault.clone());
        let error = say(&rig, "C1", "x").await.expect_err("a fault");
        assert_eq!((error.fault(), error.reached()), (meaning, reached), "{fault:?}: {error}");
    }
    assert_eq!(rig.fake.texts("C1").len(), 1, "only the lost acknowledgement had its effect");
    let elsewhere = say(&rig, "C9", "x").await.expect_err("unknown");
    assert!(elsewhere.kind().is_dead_chat(), "{elsewhere}");
}

#[tokio::test]
async fn a_request_that_hangs_may_have_had_its_effect() {
    let rig = rig_with(|config| config.request_timeout = Duration::from_millis(200));
    rig.fake.add_channel(TEAM, "C1");
    say(&rig, "C1", "first").await.expect("sent");
    rig.fake.on("chat.postMessage").does(Fault::HangAfter);
    let error = say(&rig, "C1", "x").await.expect_err("no answer");
    assert_eq!((error.fault(), error.reached()), (Meaning::Later { after: None }, Reached::Maybe));
}

#[tokio::test]
async fn an_unknown_chat_is_looked_for_in_every_workspace_once() {
    let rig = rig_with(|config| config.bot_tokens.push(petasos_platforms::Secret::new("xoxb-2")));
    rig.fake.add_workspace("T2", "xoxb-2");
    rig.fake.add_channel("T2", "C2");
    say(&rig, "C2", "one").await.expect("found");
    say(&rig, "C2", "two").await.expect("known");
    assert_eq!(rig.fake.texts("C2"), ["one", "two"]);
    assert_eq!(rig.fake.calls_of("conversations.info").len(), 2);
    let error = say(&rig, "C9", "x").await.expect_err("nowhere");
    assert_eq!(error.kind(), Kind::ChatNotFound);
}

#[tokio::test]
async fn a_person_is_written_to_in_the_conversation_of_two() {
    let rig = rig();
    for text in ["one", "two"] {
        say(&rig, "U7", text).await.expect("sent");
    }
    assert_eq!(rig.fake.texts("D7"), ["one", "two"]);
    assert_eq!(rig.fake.calls_of("conversations.open").len(), 1);
}

#[tokio::test]
async fn thinking_is_shown_in_threads_where_it_may_be_shown() {
    let rig = rig();
    rig.fake.add_channel(TEAM, "C1");
    rig.adapter.typing(&route("C1", None)).await.expect("nothing to show");
    rig.adapter.typing(&route("C1", Some("1.2"))).await.expect("shown");
    let status = rig.fake.look(|world| world.status("C1", "1.2").map(str::to_owned));
    assert_eq!(status.as_deref(), Some("is thinking..."));
    rig.fake.on("assistant.threads.setStatus").does(Fault::missing_scope("assistant:write"));
    for _ in 0..3 {
        rig.adapter.typing(&route("C1", Some("1.2"))).await.expect("not a matter of life");
    }
    assert_eq!(rig.fake.calls_of("assistant.threads.setStatus").len(), 2, "asked once and not again");
}

#[tokio::test]
async fn a_private_answer_that_comes_too_late_is_refused() {
    let rig = rig();
    let mut to = route("C1", None);
    to.reply_to = Some(rig.fake.push_command("C1", "U7", "/status", ""));
    for _ in 0..5 {
        rig.adapter.send(&to, &Part::plain("x"), &SendOptions::default()).await.expect("sent");
    }
    let error = rig.adapter.send(&to, &Part::plain("x"), &SendOptions::default()).await.expect_err("used up");
    assert_eq!((error.fault(), error.code()), (Meaning::Refused, "slack_response_expired"));
    assert!(rig.fake.visible("C1").is_empty());
    let seen = rig.fake.wait_until(SOON, |world| (world.responses().len() == 5).then_some(()));
    assert_eq!(seen, Some(()));
}

/// A file of our own, small enough for everybody.
fn own_file() -> Part {
    let path: std::path::PathBuf = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml").into();
    let opened = Opened::at(&path).expect("there");
    let (name, mime) = ("test.bin".into(), "application/octet-stream");
    Part::file(File { opened, name, mime, show: Show::Document })
}

#[tokio::test]
async fn until_it_is_shown_nobody_has_seen_a_file() {
    let rig = rig();
    rig.fake.add_channel(TEAM, "C1");
    let send =
        || async { rig.adapter.send(&route("C1", Some("1.2")), &own_file(), &SendOptions::default()).await };
    for (step, fault, meaning) in [
        ("files.getUploadURLExternal", Fault::ResetAfter, Meaning::Later { after: None }),
        ("files.getUploadURLExternal", Fault::missing_scope("files:write"), Meaning::Refused),
        ("upload", Fault::ResetAfter, Meaning::Later { after: None }),
        ("upload", Fault::Status(502), Meaning::Later { after: None }),
        ("upload", Fault::Status(408), Meaning::Later { after: None }),
        ("upload", Fault::Status(403), Meaning::Refused),
    ] {
        rig.fake.on(step).does(fault.clone());
        let error = send().await.expect_err("trouble");
        assert_eq!((error.fault(), error.reached()), (meaning, Reached::No), "{step} {fault:?}: {error}");
        assert!(rig.fake.visible("C1").is_empty());
        assert!(!error.kind().is_dead_chat(), "{step} {fault:?}: {error}");
    }
    rig.fake.on("files.completeUploadExternal").does(Fault::ResetAfter);
    assert_eq!(send().await.expect_err("lost").reached(), Reached::Maybe);
    let seen = rig.fake.visible("C1");
    assert_eq!((seen.len(), seen[0].thread.as_deref()), (1, Some("1.2")));
}

#[tokio::test]
async fn a_private_answer_takes_no_file() {
    let rig = rig();
    let url = rig.fake.push_command("C1", "U5", "/petasos", "report");
    let to = Route { reply_to: Some(url), ..route("C1", None) };
    let error = rig.adapter.send(&to, &own_file(), &SendOptions::default()).await.expect_err("refused");
    assert_eq!((error.fault(), error.reached()), (Meaning::Refused, Reached::No), "{error}");
    assert!(!error.kind().is_dead_chat());
    assert!(rig.fake.visible("C1").is_empty());
}
