//! Messages with files: what the model sees, in which order, and what a failed download leaves behind.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use petasos_core::admission::{BusyMode, MAX_QUEUED};
use petasos_fakes::model::{Answer, Point};
use petasos_fakes::telegram::{Fault, Incoming, Side};
use petasos_gateway::DownloadSettings;
use serde_json::{Value, json};
use support::{GatewayFixture, SOON};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n, and what makes a picture";

fn push_photo(fixture: &GatewayFixture, id: &str, caption: &str) {
    fixture.telegram.add_file(id, PNG);
    fixture.telegram.push(Incoming::photo(7, 7, id, PNG.len(), caption));
}

/// The user's text in the n-th model call, and the pictures beside it.
#[track_caller]
fn model_input(fixture: &GatewayFixture, call: usize) -> (String, Vec<String>) {
    let wanted = u64::try_from(call).expect("small") + 1;
    assert!(fixture.model.wait_requests(wanted, SOON), "the model was not asked {wanted} times");
    let request = &fixture.model.requests()[call];
    let last = request.messages().last().expect("a message").clone();
    let parts = last["content"].as_array().cloned().unwrap_or_default();
    let url = |part: &Value| part["image_url"]["url"].as_str().map(str::to_owned);
    (request.last_user.clone(), parts.iter().filter_map(url).collect())
}

#[test]
fn passes_a_photo_as_picture_and_path() {
    let fixture = GatewayFixture::new(|_| {});
    push_photo(&fixture, "F1", "what is this?");
    let (text, pictures) = model_input(&fixture, 0);
    assert_eq!(pictures.len(), 1);
    assert!(pictures[0].starts_with("data:image/png;base64,iVBORw0KGgo"), "{pictures:?}");
    let path = text.split("[photo: ").nth(1).and_then(|rest| rest.split(',').next()).expect("a path");
    assert!(text.contains("what is this?") && text.contains("image/png"), "{text}");
    assert_eq!(std::fs::read(path).expect("there"), PNG);
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
    let path = std::path::Path::new(path);
    assert_eq!((mode(path), mode(path.parent().expect("a folder"))), (0o600, 0o700));
    assert!(path.starts_with(fixture.home().join("cache/images")));
}

#[test]
fn retry_shows_the_model_the_picture_again() {
    let fixture = GatewayFixture::new(|_| {});
    push_photo(&fixture, "F1", "what is this?");
    let first = model_input(&fixture, 0);
    fixture.expect_last_message(7, "echo: what is this?");
    fixture.telegram.push_text(7, 7, "/retry");
    assert_eq!(model_input(&fixture, 1), first);
}

#[test]
fn document_is_readable_at_the_path_in_the_prompt() {
    let fixture = GatewayFixture::new(|_| {});
    fixture.model.respond(|request| {
        let last = request.messages().last().expect("a message");
        if last["role"] == "tool" {
            return Answer::text(format!("It says {}", last["content"]));
        }
        let path = request.last_user.split("\"notes.txt\": ").nth(1).and_then(|rest| rest.split(',').next());
        Answer::tool("read_file", json!({ "path": path }))
    });
    fixture.telegram.add_file("F1", &b"milk and bread"[..]);
    let document =
        json!({ "file_id": "F1", "file_name": "notes.txt", "mime_type": "text/plain", "file_size": 14 });
    let fields = json!({ "text": null, "caption": "read this", "document": document });
    fixture.telegram.push(Incoming::text(7, 7, "").with(fields));
    fixture.expect_last_message(7, "1|milk and bread");
    assert_eq!(fixture.model.requests().len(), 2);
}

#[test]
fn messages_wait_behind_a_download_but_commands_do_not() {
    let fixture = GatewayFixture::new(|_| {});
    let gate = fixture.telegram.gate("download", Side::Before);
    push_photo(&fixture, "F1", "first");
    assert!(gate.wait(SOON));
    fixture.telegram.push_text(7, 7, "second");
    fixture.telegram.push_text(7, 7, "/whoami");
    fixture.expect_message(7, "telegram");
    assert!(fixture.model.requests().is_empty(), "no message overtook the photo");
    gate.open();
    let (text, _) = model_input(&fixture, 0);
    let first = text.find("first");
    let second = text.find("second");
    assert!(first.is_some() && first < second, "{text}");
    assert_eq!(fixture.telegram.calls_of("download").len(), 1);
}

#[test]
fn new_session_cancels_pending_downloads() {
    let fixture = GatewayFixture::new(|_| {});
    let gate = fixture.telegram.gate("download", Side::Before);
    push_photo(&fixture, "F1", "never mind");
    assert!(gate.wait(SOON));
    fixture.telegram.push_text(7, 7, "/new");
    fixture.expect_message(7, "New session");
    fixture.telegram.push_text(7, 7, "hello");
    let (text, _) = model_input(&fixture, 0);
    assert!(text.contains("hello") && !text.contains("never mind"), "{text}");
    gate.open();
    fixture.wait_until_delivered();
    assert_eq!(fixture.read(|reader| reader.backlog()).queued, 0);
}

#[test]
fn failed_download_notifies_author_and_model() {
    let downloads = DownloadSettings {
        max_file_bytes: Some(100),
        retry_for: Duration::from_secs(2),
        ..DownloadSettings::default()
    };
    let fixture = GatewayFixture::new(|settings| settings.downloads = downloads);
    fixture.telegram.on("download").times(3).does(Fault::status(502, "Bad Gateway"));
    push_photo(&fixture, "F1", "one");
    let (text, pictures) = model_input(&fixture, 0);
    assert!(
        text.contains("one") && text.contains("[photo: could not be read: the server answered 502]"),
        "{text}"
    );
    assert!(pictures.is_empty());
    fixture.expect_message(7, "I could not read your photo: the server answered 502.");
    assert_eq!(fixture.telegram.calls_of("download").len(), 3, "two more tries");

    fixture.telegram.push(Incoming::photo(7, 7, "F1", 1 << 30, "two"));
    let (text, _) = model_input(&fixture, 1);
    assert!(text.contains("[photo: could not be read: it is larger than 0 MB]"), "{text}");
    fixture.telegram.add_file("F2", &b"<html>no picture</html>"[..]);
    fixture.telegram.push(Incoming::photo(7, 7, "F2", 20, "three"));
    let (text, _) = model_input(&fixture, 2);
    assert!(text.contains("[photo: could not be read: it is not a picture"), "{text}");
    assert_eq!(fixture.telegram.calls_of("download").len(), 4, "one was too large to be asked for");
}

#[test]
fn survives_a_short_outage_of_the_file_server() {
    let fixture = GatewayFixture::new(|_| {});
    fixture.telegram.on("download").times(3).does(Fault::status(502, "Bad Gateway"));
    push_photo(&fixture, "F1", "look");
    assert_eq!(model_input(&fixture, 0).1.len(), 1);
    assert_eq!(fixture.telegram.calls_of("download").len(), 4);
}

#[test]
fn never_sends_files_of_one_person_to_another() {
    let fixture = GatewayFixture::new(|_| {});
    push_photo(&fixture, "F1", "mine");
    let (text, _) = model_input(&fixture, 0);
    let path = text.split("[photo: ").nth(1).and_then(|rest| rest.split(',').next()).expect("a path");
    fixture.wait_until_delivered();
    fixture.model.script(Answer::text(format!("MEDIA:{path}")));
    fixture.telegram.push_text(8, 8, "give me theirs");
    fixture.expect_message(8, "was not sent: I may not send this file");
    fixture.model.script(Answer::text(format!("MEDIA:{path}")));
    fixture.telegram.push_text(7, 7, "give me mine");
    let back = |fixture: &petasos_fakes::telegram::State| {
        fixture.messages(7).any(|it| it.file.is_some()).then_some(())
    };
    assert!(fixture.telegram.wait_until(SOON, back).is_some());
    assert_eq!(fixture.telegram.calls_of("sendPhoto").len(), 1);
}

#[test]
fn answers_an_album_in_one_turn() {
    let fixture = GatewayFixture::new(|_| {});
    let gate = fixture.telegram.gate("download", Side::Before);
    let pictures = ["F1", "F2", "F3"];
    pictures.iter().for_each(|id| drop(fixture.telegram.add_file(*id, PNG)));
    fixture.telegram.push_many(pictures.map(|id| Incoming::photo(7, 7, id, PNG.len(), id)));
    assert!(gate.wait(SOON));
    let kept = |fixture: &GatewayFixture| fixture.read(|reader| reader.backlog()).queued == 3;
    support::eventually("all accepted", || kept(&fixture).then_some(()));
    gate.open();
    let (text, shown) = model_input(&fixture, 0);
    assert_eq!(shown.len(), 3, "{text}");
    fixture.wait_until_delivered();
    assert_eq!(fixture.model.requests().len(), 1);
    assert_eq!(fixture.read(|reader| reader.backlog()).queued, 0);
}

#[test]
fn full_queue_refuses_the_latest_messages() {
    let fixture = GatewayFixture::new(|_| {});
    let gate = fixture.telegram.gate("download", Side::Before);
    push_photo(&fixture, "F1", "first");
    assert!(gate.wait(SOON));
    for n in 1..=MAX_QUEUED {
        fixture.telegram.push_text(7, 7, format!("number {n}."));
    }
    fixture.expect_message(7, "Too many messages are waiting");
    gate.open();
    let (text, _) = model_input(&fixture, 0);
    assert!(text.contains("first"), "{text}");
    fixture.wait_until_delivered();
    assert_eq!(fixture.count(7, "Too many messages are waiting"), 1);
    let said = fixture.transcript(7);
    let heard = |what: &str| said.iter().any(|(_, text)| text.contains(what));
    assert!(heard("first") && heard("number 31.") && !heard("number 32."), "{said:?}");
}

#[test]
fn stop_cancels_the_download_and_its_queue() {
    let fixture = GatewayFixture::new(|_| {});
    let gate = fixture.telegram.gate("download", Side::Before);
    push_photo(&fixture, "F1", "never mind");
    assert!(gate.wait(SOON));
    fixture.telegram.push_text(7, 7, "/stop");
    fixture.expect_message(7, "Stopped");
    gate.open();
    fixture.telegram.push_text(7, 7, "hello");
    let (text, _) = model_input(&fixture, 0);
    assert!(text.contains("hello") && !text.contains("never mind"), "{text}");
    fixture.wait_until_delivered();
    assert_eq!((fixture.model.requests().len(), fixture.read(|reader| reader.backlog()).queued), (1, 0));
}

#[test]
fn queued_messages_wait_for_files_and_keep_their_own() {
    let fixture = GatewayFixture::new(|_| {});
    let gate = fixture.telegram.gate("download", Side::Before);
    push_photo(&fixture, "F1", "first");
    assert!(gate.wait(SOON));
    push_photo(&fixture, "F2", "/queue second");
    let kept = |fixture: &GatewayFixture| fixture.read(|reader| reader.backlog()).queued == 2;
    support::eventually("both accepted", || kept(&fixture).then_some(()));
    assert!(fixture.model.requests().is_empty(), "no message overtook the photo");
    gate.open();
    assert!(model_input(&fixture, 0).0.contains("first"));
    let (text, pictures) = model_input(&fixture, 1);
    assert!(text.contains("second") && !text.contains("/queue"), "{text}");
    assert!(!pictures.is_empty(), "{text}");
    fixture.wait_until_delivered();
    assert_eq!(fixture.model.requests().len(), 2);
}

#[test]
fn picture_sent_in_steer_mode_joins_the_next_turn() {
    let fixture = GatewayFixture::new(|settings| settings.busy = BusyMode::Steer);
    let gate = fixture.model.gate(Point::Before);
    fixture.model.script(Answer::tool("read_file", json!({ "path": "none" })));
    fixture.telegram.push_text(7, 7, "work");
    assert!(gate.wait(SOON));
    push_photo(&fixture, "F1", "look at this");
    fixture.expect_message(7, "Queued for the next turn");
    gate.open();
    let (text, pictures) = model_input(&fixture, 2);
    assert!(text.contains("look at this") && pictures.len() == 1, "{text}");
}

#[test]
fn retries_an_incomplete_download() {
    let fixture = GatewayFixture::new(|_| {});
    fixture.telegram.on("download").does(Fault::HalfBody);
    push_photo(&fixture, "F1", "look");
    assert_eq!(model_input(&fixture, 0).1.len(), 1);
    assert_eq!(fixture.telegram.calls_of("download").len(), 2);
}

#[test]
fn repeats_an_interrupted_download_after_a_crash() {
    let mut fixture = GatewayFixture::new(|_| {});
    let gate = fixture.telegram.gate("download", Side::Before);
    push_photo(&fixture, "F1", "look");
    assert!(gate.wait(SOON));
    fixture.telegram.push_text(7, 7, "and this");
    let kept = |fixture: &GatewayFixture| fixture.read(|reader| reader.backlog()).queued == 2;
    support::eventually("both accepted", || kept(&fixture).then_some(()));
    fixture.crash();
    gate.open();
    fixture.start();
    let (text, pictures) = model_input(&fixture, 0);
    assert!(text.find("look") < text.find("and this") && text.contains("look"), "{text}");
    assert_eq!(pictures.len(), 1);
    fixture.wait_until_delivered();
    assert_eq!(fixture.model.requests().len(), 1);
}

#[test]
fn passes_a_location_as_text() {
    let fixture = GatewayFixture::new(|_| {});
    let fields = json!({ "text": null, "location": { "latitude": 52.5, "longitude": 13.4 } });
    fixture.telegram.push(Incoming::text(7, 7, "").with(fields));
    assert!(model_input(&fixture, 0).0.contains("[location: 52.5,13.4]"));
}
