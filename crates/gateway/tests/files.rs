//! Files that answers carry: what leaves, as what, and what stands in the place of what stays.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod support;

use std::time::Duration;

use petasos_fakes::model::{Answer, Point};
use petasos_fakes::telegram::{Fault, Message, Side};
use support::{SOON, World, eventually};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n, and what makes a picture";

/// A file in the folder that the agent works in.
fn written(world: &World, name: &str, content: &[u8]) -> String {
    let folder = world.home().join("workspace");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join(name), content).expect("written");
    folder.join(name).to_str().expect("text").to_owned()
}

/// Text and file of every message, once there are this many.
#[track_caller]
fn seen(world: &World, count: usize) -> Vec<(String, Option<String>)> {
    let enough =
        |telegram: &petasos_fakes::telegram::World| (telegram.messages(7).count() >= count).then_some(());
    assert!(world.telegram.wait_until(SOON, enough).is_some(), "{:?}", world.telegram.texts(7));
    world.owes_nothing();
    let both = |it: Message| (it.text, it.file.map(|file| format!("{}: {}", file.field, file.name)));
    world.telegram.visible(7).into_iter().map(both).collect()
}

#[test]
fn an_answer_is_its_text_and_then_its_files() {
    let world = World::new(|_| {});
    let (picture, song) = (written(&world, "cat.png", PNG), written(&world, "song.ogg", b"OggS"));
    let answer = format!("Here they are.\n\n[[audio_as_voice]]\nMEDIA:{picture}\nMEDIA:{song}");
    world.model.script(Answer::text(answer));
    world.telegram.push_text(7, 7, "send them");
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        seen(&world, 3),
        [
            ("Here they are.".into(), None),
            (String::new(), some("photo: cat.png")),
            (String::new(), some("voice: song.ogg"))
        ]
    );
    let content = world.telegram.visible(7).into_iter().filter_map(|it| it.file).map(|file| file.content);
    assert_eq!(content.collect::<Vec<_>>(), [PNG, b"OggS"]);
}

#[test]
fn what_may_not_leave_leaves_a_line_in_its_place() {
    let world = World::new(|_| {});
    let fine = written(&world, "fine.txt", b"fine");
    let database = world.home().join("petasos.db");
    let answer = format!("MEDIA:{}\nMEDIA:/etc/hostname\nMEDIA:{fine}", database.display());
    world.model.script(Answer::text(answer));
    world.telegram.push_text(7, 7, "send them");
    let seen = seen(&world, 3);
    assert!(seen[0].0.starts_with("📎 petasos.db was not sent:") && seen[0].1.is_none(), "{seen:?}");
    assert!(seen[1].0.starts_with("📎 hostname was not sent:") && seen[1].1.is_none(), "{seen:?}");
    assert_eq!(seen[2].1.as_deref(), Some("document: fine.txt"));
    assert_eq!(world.telegram.calls_of("sendDocument").len(), 1);
}

#[test]
fn a_file_that_the_platform_refuses_leaves_a_line_and_what_follows_is_sent() {
    let world = World::new(|_| {});
    let (one, two) = (written(&world, "one.txt", b"1"), written(&world, "two.txt", b"2"));
    world.telegram.on("sendDocument").nth(1).does(Fault::status(400, "Bad Request: FILE_PARTS_INVALID"));
    world.model.script(Answer::text(format!("MEDIA:{one}\nMEDIA:{two}")));
    world.telegram.push_text(7, 7, "send them");
    let seen = seen(&world, 2);
    assert!(seen[0].0.starts_with("📎 one.txt was not sent"), "{seen:?}");
    assert_eq!(seen[1].1.as_deref(), Some("document: two.txt"));
}

#[test]
fn a_chat_that_takes_no_files_keeps_getting_texts() {
    let world = World::new(|_| {});
    let file = written(&world, "cat.png", PNG);
    let refused = Fault::status(400, "Bad Request: not enough rights to send photos to the chat");
    world.telegram.on("sendPhoto").always().does(refused);
    world.model.script(Answer::text(format!("Look.\nMEDIA:{file}")));
    world.telegram.push_text(7, 7, "a cat, please");
    let first = seen(&world, 2);
    assert_eq!(first[0].0, "Look.");
    assert!(first[1].0.starts_with("📎 cat.png was not sent: I may not send"), "{first:?}");
    assert_eq!(world.telegram.calls_of("sendPhoto").len(), 1);
    assert!(world.read(|reader| reader.dead_chats()).is_empty());
    world.telegram.push_text(7, 7, "never mind");
    assert_eq!(seen(&world, 3)[2].0, "echo: never mind");
}

#[test]
fn a_chat_that_takes_neither_files_nor_texts_is_dead() {
    let world = World::new(|_| {});
    let file = written(&world, "cat.png", PNG);
    let refused =
        |what| Fault::status(400, format!("Bad Request: not enough rights to send {what} to the chat"));
    world.telegram.on("sendPhoto").always().does(refused("photos"));
    world.telegram.on("sendMessage").always().does(refused("text messages"));
    world.model.script(Answer::text(format!("MEDIA:{file}")));
    world.telegram.push_text(7, 7, "a cat, please");
    eventually("dead", || (world.read(|reader| reader.dead_chats()).len() == 1).then_some(()));
    assert_eq!(world.telegram.calls_of("sendMessage").len(), 1);
}

#[test]
fn a_file_whose_answer_was_lost_comes_again_with_a_mark_and_nothing_else_does() {
    let world = World::new(|_| {});
    let file = written(&world, "report.txt", b"all is well");
    world.telegram.on("sendDocument").nth(1).does(Fault::ResetAfter);
    world.model.script(Answer::text(format!("The report.\nMEDIA:{file}")));
    world.telegram.push_text(7, 7, "report");
    let seen = seen(&world, 3);
    assert_eq!(seen[0].0, "The report.");
    assert_eq!((seen[1].0.as_str(), seen[1].1.as_deref()), ("", Some("document: report.txt")));
    assert!(seen[2].0.starts_with("♻️ Recovered reply") && seen[2].1.is_some(), "{seen:?}");
    assert_eq!(world.telegram.calls_of("sendMessage").len(), 1);
}

#[test]
fn a_notice_whose_answer_was_lost_comes_again_with_a_mark() {
    let world = World::new(|_| {});
    let file = written(&world, "report.txt", b"all is well");
    world.telegram.on("sendDocument").always().does(Fault::status(400, "Bad Request: FILE_PARTS_INVALID"));
    world.telegram.on("sendMessage").nth(1).does(Fault::ResetAfter);
    world.model.script(Answer::text(format!("MEDIA:{file}")));
    world.telegram.push_text(7, 7, "report");
    let seen = seen(&world, 2);
    assert!(seen[0].0.starts_with("📎 report.txt was not sent"), "{seen:?}");
    assert!(seen[1].0.starts_with("♻️ Recovered reply") && seen[1].0.contains("report.txt"), "{seen:?}");
    assert_eq!((seen.len(), world.telegram.calls_of("sendMessage").len()), (2, 2));
}

#[test]
fn the_judged_file_is_sent_although_another_took_its_place() {
    let world = World::new(|_| {});
    let (one, two) = (written(&world, "one.txt", b"1"), written(&world, "two.txt", b"2"));
    let gate = world.telegram.gate("sendDocument", Side::Before);
    world.model.script(Answer::text(format!("MEDIA:{one}\nMEDIA:{two}")));
    world.telegram.push_text(7, 7, "send them");
    assert!(gate.wait(SOON), "both have been judged, and the first is being sent");
    std::fs::remove_file(&two).expect("gone");
    std::fs::write(world.home().join("secret"), "secret").expect("written");
    std::os::unix::fs::symlink(world.home().join("secret"), &two).expect("linked");
    gate.open();
    let seen = seen(&world, 2);
    assert_eq!(seen[0].1.as_deref(), Some("document: one.txt"));
    assert_eq!(seen[1].1.as_deref(), Some("document: two.txt"));
    let content = world.telegram.visible(7).into_iter().filter_map(|it| it.file).map(|file| file.content);
    assert_eq!(content.collect::<Vec<_>>(), [&b"1"[..], b"2"]);
}

#[test]
fn a_growing_answer_shows_no_tag_and_its_preview_becomes_the_text() {
    let world = World::new(|settings| {
        settings.streaming.enabled = true;
        settings.streaming.gap = Duration::from_millis(20);
    });
    let file = written(&world, "report.txt", b"all is well");
    let gate = world.model.gate(Point::AfterDelta(2));
    let answer = format!("Here is the report that you wanted. MEDIA:{file}");
    world.model.script(Answer::text(answer).chunks(3));
    world.telegram.push_text(7, 7, "report");
    assert!(gate.wait(SOON));
    world.sees(7, "Here is the report");
    gate.open();
    let seen = seen(&world, 2);
    assert_eq!(seen[0], ("Here is the report that you wanted.".into(), None));
    assert_eq!(seen[1].1.as_deref(), Some("document: report.txt"));
    let shown = world.telegram.calls().into_iter().filter_map(|call| call.text().map(str::to_owned));
    assert!(shown.clone().count() > 1 && shown.into_iter().all(|text| !text.contains("MEDIA")));
}

#[test]
fn an_answer_of_one_file_alone_is_one_message() {
    let world = World::new(|settings| settings.streaming.enabled = true);
    let file = written(&world, "report.txt", b"all is well");
    world.model.script(Answer::text(format!("MEDIA:{file}")));
    world.telegram.push_text(7, 7, "report");
    assert_eq!(seen(&world, 1), [(String::new(), Some("document: report.txt".to_owned()))]);
    eventually("kept in the transcript as it was said", || {
        world.transcript(7).iter().any(|(_, text)| text.contains("MEDIA:")).then_some(())
    });
}
