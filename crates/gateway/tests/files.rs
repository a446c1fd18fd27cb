//! Files in answers: which are sent, in which form, and what replaces a refused file.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod support;

use std::time::Duration;

use petasos_fakes::model::{Answer, Point};
use petasos_fakes::telegram::{Fault, Side, TelegramMessage};
use support::{GatewayFixture, SOON, eventually};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n, and what makes a picture";

/// Creates a file in the workspace.
fn write_file(fixture: &GatewayFixture, name: &str, content: &[u8]) -> String {
    let folder = fixture.home().join("workspace");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join(name), content).expect("written");
    folder.join(name).to_str().expect("text").to_owned()
}

/// Text and file of every message, once there are `count`.
#[track_caller]
fn expect_messages(fixture: &GatewayFixture, count: usize) -> Vec<(String, Option<String>)> {
    let enough =
        |telegram: &petasos_fakes::telegram::State| (telegram.messages(7).count() >= count).then_some(());
    assert!(fixture.telegram.wait_until(SOON, enough).is_some(), "{:?}", fixture.telegram.texts(7));
    fixture.wait_until_delivered();
    let both = |it: TelegramMessage| (it.text, it.file.map(|file| format!("{}: {}", file.field, file.name)));
    fixture.telegram.visible(7).into_iter().map(both).collect()
}

#[test]
fn sends_text_first_then_files() {
    let fixture = GatewayFixture::new(|_| {});
    let picture = write_file(&fixture, "cat.png", PNG);
    let song = write_file(&fixture, "song.ogg", b"OggS");
    let answer = format!("Here they are.\n\n[[audio_as_voice]]\nMEDIA:{picture}\nMEDIA:{song}");
    fixture.model.script(Answer::text(answer));
    fixture.telegram.push_text(7, 7, "send them");
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        expect_messages(&fixture, 3),
        [
            ("Here they are.".into(), None),
            (String::new(), some("photo: cat.png")),
            (String::new(), some("voice: song.ogg"))
        ]
    );
    let content = fixture.telegram.visible(7).into_iter().filter_map(|it| it.file).map(|file| file.content);
    assert_eq!(content.collect::<Vec<_>>(), [PNG, b"OggS"]);
}

#[test]
fn replaces_a_forbidden_file_with_a_line() {
    let fixture = GatewayFixture::new(|_| {});
    let fine = write_file(&fixture, "fine.txt", b"fine");
    let database = fixture.home().join("petasos.db");
    let answer = format!("MEDIA:{}\nMEDIA:/etc/hostname\nMEDIA:{fine}", database.display());
    fixture.model.script(Answer::text(answer));
    fixture.telegram.push_text(7, 7, "send them");
    let messages = expect_messages(&fixture, 3);
    assert!(
        messages[0].0.starts_with("📎 petasos.db was not sent:") && messages[0].1.is_none(),
        "{messages:?}"
    );
    assert!(
        messages[1].0.starts_with("📎 hostname was not sent:") && messages[1].1.is_none(),
        "{messages:?}"
    );
    assert_eq!(messages[2].1.as_deref(), Some("document: fine.txt"));
    assert_eq!(fixture.telegram.calls_of("sendDocument").len(), 1);
}

#[test]
fn replaces_a_refused_file_and_sends_the_rest() {
    let fixture = GatewayFixture::new(|_| {});
    let one = write_file(&fixture, "one.txt", b"1");
    let two = write_file(&fixture, "two.txt", b"2");
    fixture.telegram.on("sendDocument").nth(1).does(Fault::status(400, "Bad Request: FILE_PARTS_INVALID"));
    fixture.model.script(Answer::text(format!("MEDIA:{one}\nMEDIA:{two}")));
    fixture.telegram.push_text(7, 7, "send them");
    let messages = expect_messages(&fixture, 2);
    assert!(messages[0].0.starts_with("📎 one.txt was not sent"), "{messages:?}");
    assert_eq!(messages[1].1.as_deref(), Some("document: two.txt"));
}

#[test]
fn chat_without_files_still_gets_text() {
    let fixture = GatewayFixture::new(|_| {});
    let file = write_file(&fixture, "cat.png", PNG);
    let refused = Fault::status(400, "Bad Request: not enough rights to send photos to the chat");
    fixture.telegram.on("sendPhoto").always().does(refused);
    fixture.model.script(Answer::text(format!("Look.\nMEDIA:{file}")));
    fixture.telegram.push_text(7, 7, "a cat, please");
    let first = expect_messages(&fixture, 2);
    assert_eq!(first[0].0, "Look.");
    assert!(first[1].0.starts_with("📎 cat.png was not sent: I may not send"), "{first:?}");
    assert_eq!(fixture.telegram.calls_of("sendPhoto").len(), 1);
    assert!(fixture.read(|reader| reader.dead_chats()).is_empty());
    fixture.telegram.push_text(7, 7, "never mind");
    assert_eq!(expect_messages(&fixture, 3)[2].0, "echo: never mind");
}

#[test]
fn chat_that_refuses_everything_is_dead() {
    let fixture = GatewayFixture::new(|_| {});
    let file = write_file(&fixture, "cat.png", PNG);
    let refused =
        |what| Fault::status(400, format!("Bad Request: not enough rights to send {what} to the chat"));
    fixture.telegram.on("sendPhoto").always().does(refused("photos"));
    fixture.telegram.on("sendMessage").always().does(refused("text messages"));
    fixture.model.script(Answer::text(format!("MEDIA:{file}")));
    fixture.telegram.push_text(7, 7, "a cat, please");
    eventually("dead", || (fixture.read(|reader| reader.dead_chats()).len() == 1).then_some(()));
    assert_eq!(fixture.telegram.calls_of("sendMessage").len(), 1);
}

#[test]
fn repeats_only_a_file_of_unknown_outcome_with_mark() {
    let fixture = GatewayFixture::new(|_| {});
    let file = write_file(&fixture, "report.txt", b"all is well");
    fixture.telegram.on("sendDocument").nth(1).does(Fault::ResetAfter);
    fixture.model.script(Answer::text(format!("The report.\nMEDIA:{file}")));
    fixture.telegram.push_text(7, 7, "report");
    let messages = expect_messages(&fixture, 3);
    assert_eq!(messages[0].0, "The report.");
    assert_eq!((messages[1].0.as_str(), messages[1].1.as_deref()), ("", Some("document: report.txt")));
    assert!(messages[2].0.starts_with("♻️ Recovered reply") && messages[2].1.is_some(), "{messages:?}");
    assert_eq!(fixture.telegram.calls_of("sendMessage").len(), 1);
}

#[test]
fn repeats_a_notice_of_unknown_outcome_with_mark() {
    let fixture = GatewayFixture::new(|_| {});
    let file = write_file(&fixture, "report.txt", b"all is well");
    fixture.telegram.on("sendDocument").always().does(Fault::status(400, "Bad Request: FILE_PARTS_INVALID"));
    fixture.telegram.on("sendMessage").nth(1).does(Fault::ResetAfter);
    fixture.model.script(Answer::text(format!("MEDIA:{file}")));
    fixture.telegram.push_text(7, 7, "report");
    let messages = expect_messages(&fixture, 2);
    assert!(messages[0].0.starts_with("📎 report.txt was not sent"), "{messages:?}");
    assert!(
        messages[1].0.starts_with("♻️ Recovered reply") && messages[1].0.contains("report.txt"),
        "{messages:?}"
    );
    assert_eq!((messages.len(), fixture.telegram.calls_of("sendMessage").len()), (2, 2));
}

#[test]
fn sends_the_checked_file_after_a_swap() {
    let fixture = GatewayFixture::new(|_| {});
    let one = write_file(&fixture, "one.txt", b"1");
    let two = write_file(&fixture, "two.txt", b"2");
    let gate = fixture.telegram.gate("sendDocument", Side::Before);
    fixture.model.script(Answer::text(format!("MEDIA:{one}\nMEDIA:{two}")));
    fixture.telegram.push_text(7, 7, "send them");
    assert!(gate.wait(SOON), "both have been judged, and the first is being sent");
    std::fs::remove_file(&two).expect("gone");
    std::fs::write(fixture.home().join("secret"), "secret").expect("written");
    std::os::unix::fs::symlink(fixture.home().join("secret"), &two).expect("linked");
    gate.open();
    let messages = expect_messages(&fixture, 2);
    assert_eq!(messages[0].1.as_deref(), Some("document: one.txt"));
    assert_eq!(messages[1].1.as_deref(), Some("document: two.txt"));
    let content = fixture.telegram.visible(7).into_iter().filter_map(|it| it.file).map(|file| file.content);
    assert_eq!(content.collect::<Vec<_>>(), [&b"1"[..], b"2"]);
}

#[test]
fn preview_hides_tags_and_becomes_the_text() {
    let fixture = GatewayFixture::new(|settings| {
        settings.streaming.enabled = true;
        settings.streaming.gap = Duration::from_millis(20);
    });
    let file = write_file(&fixture, "report.txt", b"all is well");
    let gate = fixture.model.gate(Point::AfterDelta(2));
    let answer = format!("Here is the report that you wanted. MEDIA:{file}");
    fixture.model.script(Answer::text(answer).chunks(3));
    fixture.telegram.push_text(7, 7, "report");
    assert!(gate.wait(SOON));
    fixture.expect_message(7, "Here is the report");
    gate.open();
    let messages = expect_messages(&fixture, 2);
    assert_eq!(messages[0], ("Here is the report that you wanted.".into(), None));
    assert_eq!(messages[1].1.as_deref(), Some("document: report.txt"));
    let shown = fixture.telegram.calls().into_iter().filter_map(|call| call.text().map(str::to_owned));
    assert!(shown.clone().count() > 1 && shown.into_iter().all(|text| !text.contains("MEDIA")));
}

#[test]
fn sends_a_single_file_as_one_message() {
    let fixture = GatewayFixture::new(|settings| settings.streaming.enabled = true);
    let file = write_file(&fixture, "report.txt", b"all is well");
    fixture.model.script(Answer::text(format!("MEDIA:{file}")));
    fixture.telegram.push_text(7, 7, "report");
    assert_eq!(expect_messages(&fixture, 1), [(String::new(), Some("document: report.txt".to_owned()))]);
    eventually("kept in the transcript as it was said", || {
        fixture.transcript(7).iter().any(|(_, text)| text.contains("MEDIA:")).then_some(())
    });
}
