//! The real program and files: what people send reaches the model, and what the model sends reaches people.

use crate::support::{Bench, SOON};
use petasos_fakes::model::Answer;
use petasos_fakes::telegram::Fault;
use petasos_fakes::{Upload, discord, slack, telegram};
use serde_json::json;

const DIRECT: u64 = 50;
const SOMEBODY: u64 = 5;
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n, and what makes a picture";

/// A picture in the folder that the agent works in; the model answers every message with it.
fn answers_with_picture(bench: &Bench) {
    let folder = bench.home.path().join("workspace");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("cat.png"), PNG).expect("written");
    let answer = format!("A cat.\nMEDIA:{}", folder.join("cat.png").display());
    bench.model.respond(move |_| Answer::text(answer.clone()));
}

#[track_caller]
fn is_the_cat(files: &[Upload]) {
    let seen: Vec<_> = files.iter().map(|file| (file.name.as_str(), &file.content[..])).collect();
    assert_eq!(seen, [("cat.png", PNG)]);
}

#[test]
fn an_answer_with_a_file_arrives_with_it_on_every_platform() {
    let mut bench = Bench::setup().telegram().discord().slack().build();
    answers_with_picture(&bench);
    bench.start();
    bench.telegram.push_text(7, 7, "a cat, please");
    bench.discord().push_text(DIRECT, SOMEBODY, "a cat, please");
    bench.slack().push_text("D1", "U5", "a cat, please");
    assert_eq!(bench.wait_messages(7, 2), ["A cat.", ""]);
    is_the_cat(&bench.telegram.visible(7).into_iter().filter_map(|it| it.file).collect::<Vec<_>>());
    let on_discord = bench.discord().wait_until(SOON, |world| {
        let seen: Vec<_> = world.messages(DIRECT).cloned().collect();
        (seen.len() == 2).then_some(seen)
    });
    let on_discord = on_discord.expect("two messages");
    assert_eq!(on_discord[0].content, "A cat.");
    is_the_cat(&on_discord[1].files);
    let on_slack = bench.slack().wait_until(SOON, |world| {
        let seen: Vec<_> = world.messages("D1").cloned().collect();
        (seen.len() == 2).then_some(seen)
    });
    let on_slack = on_slack.expect("two messages");
    assert_eq!((on_slack[0].text.as_str(), &on_slack[0].thread), ("A cat.", &on_slack[1].thread));
    is_the_cat(&on_slack[1].files);
    bench.settle();
}

#[test]
fn killed_between_the_text_and_its_file_only_the_file_is_sent_again_and_marked() {
    let mut bench = Bench::new();
    answers_with_picture(&bench);
    bench.telegram.on("sendPhoto").nth(1).does(Fault::HangAfter);
    bench.start();
    bench.telegram.push_text(7, 7, "a cat, please");
    assert_eq!(bench.wait_messages(7, 2), ["A cat.", ""]);
    bench.kill();
    bench.start();
    let seen = bench.wait_messages(7, 3);
    assert_eq!((seen[0].as_str(), seen[1].as_str()), ("A cat.", ""));
    assert!(seen[2].starts_with("♻️ Recovered reply"), "{seen:?}");
    bench.settle();
    assert_eq!(bench.telegram.calls_of("sendMessage").len(), 1, "the text was sent once");
    assert_eq!(bench.telegram.visible(7).into_iter().filter(|it| it.file.is_some()).count(), 2);
    assert_eq!(bench.model.requests().len(), 1);
}

/// Waits for the model to be asked; what it is shown are the pictures of the newest message.
#[track_caller]
fn sees_the_cat(bench: &Bench, requests: u64) {
    assert!(bench.model.wait_requests(requests, SOON), "the model was not asked");
    let request = bench.model.requests().pop().expect("a request");
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
fn a_picture_that_people_send_is_seen_by_the_model_on_every_platform() {
    let mut bench = Bench::setup().telegram().discord().slack().build();
    bench.start();
    bench.telegram.add_file("F1", PNG);
    bench.telegram.push(telegram::Incoming::photo(7, 7, "F1", PNG.len(), "a cat?"));
    sees_the_cat(&bench, 1);
    let url = bench.discord().add_file("cat.png", PNG);
    let said = discord::Incoming::text(DIRECT, SOMEBODY, "a cat?");
    bench.discord().push(said.attach_at("cat.png", "image/png", PNG.len(), &url));
    sees_the_cat(&bench, 2);
    let url = bench.slack().add_file("cat.png", PNG);
    let file = json!({ "id": "F1", "name": "cat.png", "mimetype": "image/png", "size": PNG.len(), "url_private": url });
    let said = slack::Incoming::new("D1", "U5", "a cat?");
    bench.slack().push(said.with(json!({ "subtype": "file_share", "files": [file] })));
    sees_the_cat(&bench, 3);
    bench.settle();
    assert_eq!(bench.model.requests().len(), 3);
}

/// The texts and file names that a chat shows in answer to a message that names these files.
fn sends(bench: &Bench, chat: i64, count: usize) -> Vec<String> {
    bench.telegram.push_text(chat, chat, "send them");
    bench.wait_messages(chat, count);
    bench.settle_outbox();
    let shown = |it: telegram::Message| it.file.map_or(it.text, |file| format!("file {}", file.name));
    bench.telegram.visible(chat).into_iter().map(shown).collect()
}

#[test]
fn files_of_the_owner_are_not_sent_to_everyone_who_may_write() {
    let mut bench = Bench::with("telegram:\n  allow_admin_from: ['1']\n");
    let elsewhere = tempfile::tempdir().expect("a folder");
    let put = |name: &str| {
        let path = elsewhere.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(&path, "secret").expect("written");
        path
    };
    let workspace = bench.home.path().join("workspace");
    std::fs::create_dir_all(&workspace).expect("made");
    let report = put("report.pdf");
    let credentials = [
        put(".claude/.credentials.json"),
        put("project/.env"),
        put(".codex/auth.json"),
        put("plain/auth.json"),
    ];
    std::os::unix::fs::symlink(&report, workspace.join("link.pdf")).expect("linked");
    std::fs::write(bench.home.path().join("secret.txt"), "ours").expect("written");
    std::fs::hard_link(bench.home.path().join("secret.txt"), workspace.join("hard.txt")).expect("linked");
    std::fs::write(workspace.join("fine.txt"), "fine").expect("written");
    let ours = ["link.pdf", "hard.txt", "fine.txt"].map(|name| workspace.join(name));
    let named: Vec<_> = [report].into_iter().chain(credentials).chain(ours).collect();
    let tags: Vec<_> = named.iter().map(|path| format!("MEDIA:{}", path.display())).collect();
    let answer = tags.join("\n");
    bench.model.respond(move |_| Answer::text(answer.clone()));
    bench.start();
    let (denied, linked) = (
        "was not sent: files from there are not sent.",
        "was not sent: it is a hard link; a copy of it can be sent.",
    );
    let secrets =
        [".credentials.json", ".env", "auth.json", "auth.json"].map(|name| format!("📎 {name} {denied}"));
    let hard = format!("📎 hard.txt {linked}");
    let somebody = sends(&bench, 7, 8);
    let want = [
        &[format!("📎 report.pdf {denied}")][..],
        &secrets,
        &[format!("📎 link.pdf {denied}"), hard.clone(), "file fine.txt".into()],
    ];
    assert_eq!(somebody, want.concat());
    // The owner may have other files of theirs; credentials and hard links leave for nobody.
    let owner = sends(&bench, 1, 8);
    let want = [
        &["file report.pdf".to_owned()][..],
        &secrets,
        &["file report.pdf".into(), hard, "file fine.txt".into()],
    ];
    assert_eq!(owner, want.concat());
}
