//! Files from users to the model, and from the model to users.

use crate::support::{ProgramFixture, SOON};
use petasos_fakes::model::Answer;
use petasos_fakes::telegram::Fault;
use petasos_fakes::{Upload, discord, slack, telegram};
use serde_json::json;

const DIRECT: u64 = 50;
const USER: u64 = 5;
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n, and what makes a picture";

/// Puts an image into the workspace; the model attaches it to every answer.
fn answer_with_image(fixture: &ProgramFixture) {
    let folder = fixture.home.path().join("workspace");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("cat.png"), PNG).expect("written");
    let answer = format!("A cat.\nMEDIA:{}", folder.join("cat.png").display());
    fixture.model.respond(move |_| Answer::text(answer.clone()));
}

#[track_caller]
fn assert_is_image(files: &[Upload]) {
    let seen: Vec<_> = files.iter().map(|file| (file.name.as_str(), &file.content[..])).collect();
    assert_eq!(seen, [("cat.png", PNG)]);
}

#[test]
fn sends_answer_with_file_on_every_platform() {
    let mut fixture = ProgramFixture::builder().telegram().discord().slack().build();
    answer_with_image(&fixture);
    fixture.start();
    fixture.telegram.push_text(7, 7, "a cat, please");
    fixture.discord().push_text(DIRECT, USER, "a cat, please");
    fixture.slack().push_text("D1", "U5", "a cat, please");
    assert_eq!(fixture.wait_messages(7, 2), ["A cat.", ""]);
    assert_is_image(&fixture.telegram.visible(7).into_iter().filter_map(|it| it.file).collect::<Vec<_>>());
    let on_discord = fixture.discord().wait_until(SOON, |state| {
        let seen: Vec<_> = state.messages(DIRECT).cloned().collect();
        (seen.len() == 2).then_some(seen)
    });
    let on_discord = on_discord.expect("two messages");
    assert_eq!(on_discord[0].content, "A cat.");
    assert_is_image(&on_discord[1].files);
    let on_slack = fixture.slack().wait_until(SOON, |state| {
        let seen: Vec<_> = state.messages("D1").cloned().collect();
        (seen.len() == 2).then_some(seen)
    });
    let on_slack = on_slack.expect("two messages");
    assert_eq!((on_slack[0].text.as_str(), &on_slack[0].thread), ("A cat.", &on_slack[1].thread));
    assert_is_image(&on_slack[1].files);
    fixture.wait_idle();
}

#[test]
fn kill_between_text_and_file_resends_only_marked_file() {
    let mut fixture = ProgramFixture::new();
    answer_with_image(&fixture);
    fixture.telegram.on("sendPhoto").nth(1).does(Fault::HangAfter);
    fixture.start();
    fixture.telegram.push_text(7, 7, "a cat, please");
    assert_eq!(fixture.wait_messages(7, 2), ["A cat.", ""]);
    fixture.kill();
    fixture.start();
    let seen = fixture.wait_messages(7, 3);
    assert_eq!((seen[0].as_str(), seen[1].as_str()), ("A cat.", ""));
    assert!(seen[2].starts_with("♻️ Recovered reply"), "{seen:?}");
    fixture.wait_idle();
    assert_eq!(fixture.telegram.calls_of("sendMessage").len(), 1, "the text was sent once");
    assert_eq!(fixture.telegram.visible(7).into_iter().filter(|it| it.file.is_some()).count(), 2);
    assert_eq!(fixture.model.requests().len(), 1);
}

/// Waits for the model request; its last message has the image.
#[track_caller]
fn assert_model_gets_image(fixture: &ProgramFixture, requests: u64) {
    assert!(fixture.model.wait_requests(requests, SOON), "the model is not called");
    let request = fixture.model.requests().pop().expect("a request");
    let content = request.messages().last().expect("a message")["content"].clone();
    let pictures: Vec<_> = content
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|part| part["image_url"]["url"].as_str())
        .collect();
    assert_eq!(pictures.len(), 1, "{content}");
    assert!(pictures[0].starts_with("data:image/png;base64,iVBORw0KGgo"), "{pictures:?}");
    assert!(
        request.last_user.contains("a cat?") && request.last_user.contains("[photo"),
        "{}",
        request.last_user
    );
}

#[test]
fn model_sees_images_from_every_platform() {
    let mut fixture = ProgramFixture::builder().telegram().discord().slack().build();
    fixture.start();
    fixture.telegram.add_file("F1", PNG);
    fixture.telegram.push(telegram::Incoming::photo(7, 7, "F1", PNG.len(), "a cat?"));
    assert_model_gets_image(&fixture, 1);
    let url = fixture.discord().add_file("cat.png", PNG);
    let message = discord::Incoming::text(DIRECT, USER, "a cat?");
    fixture.discord().push(message.attach_at("cat.png", "image/png", PNG.len(), &url));
    assert_model_gets_image(&fixture, 2);
    let url = fixture.slack().add_file("cat.png", PNG);
    let file = json!({ "id": "F1", "name": "cat.png", "mimetype": "image/png", "size": PNG.len(), "url_private": url });
    let message = slack::Incoming::new("D1", "U5", "a cat?");
    fixture.slack().push(message.with(json!({ "subtype": "file_share", "files": [file] })));
    assert_model_gets_image(&fixture, 3);
    fixture.wait_idle();
    assert_eq!(fixture.model.requests().len(), 3);
}

/// The texts and file names in a chat after an answer with files.
fn shown_after_request(fixture: &ProgramFixture, chat: i64, count: usize) -> Vec<String> {
    fixture.telegram.push_text(chat, chat, "send them");
    fixture.wait_messages(chat, count);
    fixture.wait_outbox_empty();
    let shown = |it: telegram::TelegramMessage| it.file.map_or(it.text, |file| format!("file {}", file.name));
    fixture.telegram.visible(chat).into_iter().map(shown).collect()
}

#[test]
fn owner_files_are_sent_only_to_the_owner() {
    let mut fixture = ProgramFixture::with_config("telegram:\n  allow_admin_from: ['1']\n");
    let elsewhere = tempfile::tempdir().expect("a folder");
    let write_secret = |name: &str| {
        let path = elsewhere.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(&path, "secret").expect("written");
        path
    };
    let workspace = fixture.home.path().join("workspace");
    std::fs::create_dir_all(&workspace).expect("made");
    let report = write_secret("report.pdf");
    let credentials = [
        write_secret(".claude/.credentials.json"),
        write_secret("project/.env"),
        write_secret(".codex/auth.json"),
        write_secret("plain/auth.json"),
    ];
    std::os::unix::fs::symlink(&report, workspace.join("link.pdf")).expect("linked");
    std::fs::write(fixture.home.path().join("secret.txt"), "ours").expect("written");
    std::fs::hard_link(fixture.home.path().join("secret.txt"), workspace.join("hard.txt")).expect("linked");
    std::fs::write(workspace.join("fine.txt"), "fine").expect("written");
    let ours = ["link.pdf", "hard.txt", "fine.txt"].map(|name| workspace.join(name));
    let named: Vec<_> = [report].into_iter().chain(credentials).chain(ours).collect();
    let tags: Vec<_> = named.iter().map(|path| format!("MEDIA:{}", path.display())).collect();
    let answer = tags.join("\n");
    fixture.model.respond(move |_| Answer::text(answer.clone()));
    fixture.start();
    let (denied, linked) = (
        "was not sent: I may not send this file.",
        "was not sent: it is a hard link, but a copy of it can be sent.",
    );
    let secrets =
        [".credentials.json", ".env", "auth.json", "auth.json"].map(|name| format!("📎 {name} {denied}"));
    let hard = format!("📎 hard.txt {linked}");
    let user = shown_after_request(&fixture, 7, 8);
    let want = [
        &[format!("📎 report.pdf {denied}")][..],
        &secrets,
        &[format!("📎 link.pdf {denied}"), hard.clone(), "file fine.txt".into()],
    ];
    assert_eq!(user, want.concat());
    // The owner gets other files too; credentials and hard links are never sent.
    let owner = shown_after_request(&fixture, 1, 8);
    let want = [
        &["file report.pdf".to_owned()][..],
        &secrets,
        &["file report.pdf".into(), hard, "file fine.txt".into()],
    ];
    assert_eq!(owner, want.concat());
}
