//! Messages with files: what the model sees of them, in which order, and what a file that cannot be had leaves behind.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod support;

use std::os::unix::fs::PermissionsExt;

use petasos_fakes::model::Answer;
use petasos_fakes::telegram::{Fault, Incoming, Side};
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
    let world = World::new(|settings| settings.largest_inward = Some(100));
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
