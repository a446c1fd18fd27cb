//! Messages with files: what the model sees of them, in which order, and what a file that cannot be had leaves behind.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use petasos_core::admission::{BusyMode, QUEUE_CAP};
use petasos_fakes::model::{Answer, Point};
use petasos_fakes::telegram::{Fault, Incoming, Side};
use petasos_gateway::Inward;
use serde_json::{Value, json};
use support::{SOON, World};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n, and what makes a picture";

fn photo(world: &World, id: &str, caption: &str) {
    world.telegram.add_file(id, PNG);
    world.telegram.push(Incoming::photo(7, 7, id, PNG.len(), caption));
}

/// The words of the user in the n-th call of the model, and the pictures beside them.
#[track_caller]
fn asked(world: &World, call: usize) -> (String, Vec<String>) {
    let wanted = u64::try_from(call).expect("small") + 1;
    assert!(world.model.wait_requests(wanted, SOON), "the model was not asked {wanted} times");
    let request = &world.model.requests()[call];
    let last = request.messages().last().expect("a message").clone();
    let parts = last["content"].as_array().cloned().unwrap_or_default();
    let url = |part: &Value| part["image_url"]["url"].as_str().map(str::to_owned);
    (request.last_user.clone(), parts.iter().filter_map(url).collect())
}

#[test]
fn a_photo_reaches_the_model_as_a_picture_and_as_a_path() {
    let world = World::new(|_| {});
    photo(&world, "F1", "what is this?");
    let (text, pictures) = asked(&world, 0);
    assert_eq!(pictures.len(), 1);
    assert!(pictures[0].starts_with("data:image/png;base64,iVBORw0KGgo"), "{pictures:?}");
    let path = text.split("[photo: ").nth(1).and_then(|rest| rest.split(',').next()).expect("a path");
    assert!(text.contains("what is this?") && text.contains("image/png"), "{text}");
    assert_eq!(std::fs::read(path).expect("there"), PNG);
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
    let path = std::path::Path::new(path);
    assert_eq!((mode(path), mode(path.parent().expect("a folder"))), (0o600, 0o700));
    assert!(path.starts_with(world.home().join("cache/images")));
}

#[test]
fn retry_shows_the_model_the_picture_again() {
    let world = World::new(|_| {});
    photo(&world, "F1", "what is this?");
    let first = asked(&world, 0);
    world.ends_with(7, "echo: what is this?");
    world.telegram.push_text(7, 7, "/retry");
    assert_eq!(asked(&world, 1), first);
}

#[test]
fn a_document_can_be_read_where_the_model_is_told_that_it_lies() {
    let world = World::new(|_| {});
    world.model.respond(|request| {
        let last = request.messages().last().expect("a message");
        if last["role"] == "tool" {
            return Answer::text(format!("It says {}", last["content"]));
        }
        let path = request.last_user.split("\"notes.txt\": ").nth(1).and_then(|rest| rest.split(',').next());
        Answer::tool("read_file", json!({ "path": path }))
    });
    world.telegram.add_file("F1", &b"milk and bread"[..]);
    let document =
        json!({ "file_id": "F1", "file_name": "notes.txt", "mime_type": "text/plain", "file_size": 14 });
    let fields = json!({ "text": null, "caption": "read this", "document": document });
    world.telegram.push(Incoming::text(7, 7, "").with(fields));
    world.ends_with(7, "1|milk and bread");
    assert_eq!(world.model.requests().len(), 2);
}

#[test]
fn what_follows_a_file_waits_for_it_and_commands_do_not() {
    let world = World::new(|_| {});
    let gate = world.telegram.gate("download", Side::Before);
    photo(&world, "F1", "first");
    assert!(gate.wait(SOON));
    world.telegram.push_text(7, 7, "second");
    world.telegram.push_text(7, 7, "/whoami");
    world.sees(7, "telegram");
    assert!(world.model.requests().is_empty(), "nobody overtook the photo");
    gate.open();
    let (text, _) = asked(&world, 0);
    let (first, second) = (text.find("first"), text.find("second"));
    assert!(first.is_some() && first < second, "{text}");
    assert_eq!(world.telegram.calls_of("download").len(), 1);
}

#[test]
fn a_new_session_takes_back_what_waits_for_its_files() {
    let world = World::new(|_| {});
    let gate = world.telegram.gate("download", Side::Before);
    photo(&world, "F1", "never mind");
    assert!(gate.wait(SOON));
    world.telegram.push_text(7, 7, "/new");
    world.sees(7, "New session");
    world.telegram.push_text(7, 7, "hello");
    let (text, _) = asked(&world, 0);
    assert!(text.contains("hello") && !text.contains("never mind"), "{text}");
    gate.open();
    world.owes_nothing();
    assert_eq!(world.read(|reader| reader.backlog()).queued, 0);
}

#[test]
fn a_file_that_cannot_be_had_is_told_to_both_and_loses_no_message() {
    let inward = Inward { most: Some(100), patience: Duration::from_secs(2), ..Inward::default() };
    let world = World::new(|settings| settings.inward_files = inward);
    world.telegram.on("download").times(3).does(Fault::status(502, "Bad Gateway"));
    photo(&world, "F1", "one");
    let (text, pictures) = asked(&world, 0);
    assert!(
        text.contains("one") && text.contains("[photo: could not be read: the server answered 502]"),
        "{text}"
    );
    assert!(pictures.is_empty());
    world.sees(7, "I could not read your photo: the server answered 502.");
    assert_eq!(world.telegram.calls_of("download").len(), 3, "two more tries");

    world.telegram.push(Incoming::photo(7, 7, "F1", 1 << 30, "two"));
    let (text, _) = asked(&world, 1);
    assert!(text.contains("[photo: could not be read: it is larger than 0 MB]"), "{text}");
    world.telegram.add_file("F2", &b"<html>no picture</html>"[..]);
    world.telegram.push(Incoming::photo(7, 7, "F2", 20, "three"));
    let (text, _) = asked(&world, 2);
    assert!(text.contains("[photo: could not be read: it is not a picture"), "{text}");
    assert_eq!(world.telegram.calls_of("download").len(), 4, "one was too large to be asked for");
}

#[test]
fn a_server_that_is_out_for_seconds_costs_nobody_a_file() {
    let world = World::new(|_| {});
    world.telegram.on("download").times(3).does(Fault::status(502, "Bad Gateway"));
    photo(&world, "F1", "look");
    assert_eq!(asked(&world, 0).1.len(), 1);
    assert_eq!(world.telegram.calls_of("download").len(), 4);
}

#[test]
fn what_one_person_sent_goes_back_to_them_and_to_nobody_else() {
    let world = World::new(|_| {});
    photo(&world, "F1", "mine");
    let (text, _) = asked(&world, 0);
    let path = text.split("[photo: ").nth(1).and_then(|rest| rest.split(',').next()).expect("a path");
    world.owes_nothing();
    world.model.script(Answer::text(format!("MEDIA:{path}")));
    world.telegram.push_text(8, 8, "give me theirs");
    world.sees(8, "was not sent: files from there are not sent");
    world.model.script(Answer::text(format!("MEDIA:{path}")));
    world.telegram.push_text(7, 7, "give me mine");
    let back =
        |world: &petasos_fakes::telegram::World| world.messages(7).any(|it| it.file.is_some()).then_some(());
    assert!(world.telegram.wait_until(SOON, back).is_some());
    assert_eq!(world.telegram.calls_of("sendPhoto").len(), 1);
}

#[test]
fn pictures_that_are_sent_together_are_answered_together() {
    let world = World::new(|_| {});
    let gate = world.telegram.gate("download", Side::Before);
    let pictures = ["F1", "F2", "F3"];
    pictures.iter().for_each(|id| world.telegram.add_file(*id, PNG));
    world.telegram.push_many(pictures.map(|id| Incoming::photo(7, 7, id, PNG.len(), id)));
    assert!(gate.wait(SOON));
    let kept = |world: &World| world.read(|reader| reader.backlog()).queued == 3;
    support::eventually("all accepted", || kept(&world).then_some(()));
    gate.open();
    let (text, shown) = asked(&world, 0);
    assert_eq!(shown.len(), 3, "{text}");
    world.owes_nothing();
    assert_eq!(world.model.requests().len(), 1);
    assert_eq!(world.read(|reader| reader.backlog()).queued, 0);
}

#[test]
fn those_who_come_last_are_turned_away_and_not_the_one_they_wait_behind() {
    let world = World::new(|_| {});
    let gate = world.telegram.gate("download", Side::Before);
    photo(&world, "F1", "first");
    assert!(gate.wait(SOON));
    for n in 1..=QUEUE_CAP {
        world.telegram.push_text(7, 7, format!("number {n}."));
    }
    world.sees(7, "Too many messages are waiting");
    gate.open();
    let (text, _) = asked(&world, 0);
    assert!(text.contains("first"), "{text}");
    world.owes_nothing();
    assert_eq!(world.count(7, "Too many messages are waiting"), 1);
    let said = world.transcript(7);
    let heard = |what: &str| said.iter().any(|(_, text)| text.contains(what));
    assert!(heard("first") && heard("number 31.") && !heard("number 32."), "{said:?}");
}

#[test]
fn a_stop_ends_the_fetch_and_what_waits_for_it() {
    let world = World::new(|_| {});
    let gate = world.telegram.gate("download", Side::Before);
    photo(&world, "F1", "never mind");
    assert!(gate.wait(SOON));
    world.telegram.push_text(7, 7, "/stop");
    world.sees(7, "Stopped");
    gate.open();
    world.telegram.push_text(7, 7, "hello");
    let (text, _) = asked(&world, 0);
    assert!(text.contains("hello") && !text.contains("never mind"), "{text}");
    world.owes_nothing();
    assert_eq!((world.model.requests().len(), world.read(|reader| reader.backlog()).queued), (1, 0));
}

#[test]
fn what_is_queued_waits_for_files_too_and_brings_its_own() {
    let world = World::new(|_| {});
    let gate = world.telegram.gate("download", Side::Before);
    photo(&world, "F1", "first");
    assert!(gate.wait(SOON));
    photo(&world, "F2", "/queue second");
    let kept = |world: &World| world.read(|reader| reader.backlog()).queued == 2;
    support::eventually("both accepted", || kept(&world).then_some(()));
    assert!(world.model.requests().is_empty(), "nobody overtook the photo");
    gate.open();
    assert!(asked(&world, 0).0.contains("first"));
    let (text, pictures) = asked(&world, 1);
    assert!(text.contains("second") && !text.contains("/queue"), "{text}");
    assert!(!pictures.is_empty(), "{text}");
    world.owes_nothing();
    assert_eq!(world.model.requests().len(), 2);
}

#[test]
fn a_picture_for_a_turn_that_is_steered_is_seen_in_the_next() {
    let world = World::new(|settings| settings.busy = BusyMode::Steer);
    let gate = world.model.gate(Point::Before);
    world.model.script(Answer::tool("read_file", json!({ "path": "none" })));
    world.telegram.push_text(7, 7, "work");
    assert!(gate.wait(SOON));
    photo(&world, "F1", "look at this");
    world.sees(7, "Queued for the next turn");
    gate.open();
    let (text, pictures) = asked(&world, 2);
    assert!(text.contains("look at this") && pictures.len() == 1, "{text}");
}

#[test]
fn a_file_that_breaks_off_is_fetched_again() {
    let world = World::new(|_| {});
    world.telegram.on("download").does(Fault::HalfBody);
    photo(&world, "F1", "look");
    assert_eq!(asked(&world, 0).1.len(), 1);
    assert_eq!(world.telegram.calls_of("download").len(), 2);
}

#[test]
fn a_crash_while_a_file_is_fetched_fetches_it_again_and_answers_once() {
    let mut world = World::new(|_| {});
    let gate = world.telegram.gate("download", Side::Before);
    photo(&world, "F1", "look");
    assert!(gate.wait(SOON));
    world.telegram.push_text(7, 7, "and this");
    let kept = |world: &World| world.read(|reader| reader.backlog()).queued == 2;
    support::eventually("both accepted", || kept(&world).then_some(()));
    world.crash();
    gate.open();
    world.start();
    let (text, pictures) = asked(&world, 0);
    assert!(text.find("look") < text.find("and this") && text.contains("look"), "{text}");
    assert_eq!(pictures.len(), 1);
    world.owes_nothing();
    assert_eq!(world.model.requests().len(), 1);
}

#[test]
fn a_place_is_text() {
    let world = World::new(|_| {});
    let fields = json!({ "text": null, "location": { "latitude": 52.5, "longitude": 13.4 } });
    world.telegram.push(Incoming::text(7, 7, "").with(fields));
    assert!(asked(&world, 0).0.contains("[location: 52.5,13.4]"));
}
