//! Notifications: targets, the channel directory, home channels and dead chats.

use std::path::PathBuf;

use crate::support::{ProgramFixture, SOON, eventually, expect_failure, expect_json, expect_success, stdout};
use petasos_fakes::discord::{self, Side};
use petasos_fakes::telegram;
use serde_json::Value;

fn channels(fixture: &ProgramFixture, platform: &str) -> Vec<String> {
    let file = std::fs::read(fixture.home.path().join("channel_directory.json")).unwrap_or_default();
    let directory: Value = serde_json::from_slice(&file).unwrap_or_default();
    let list = directory["platforms"][platform].as_array().cloned().unwrap_or_default();
    list.iter().map(|it| it["name"].as_str().unwrap_or_default().to_owned()).collect()
}

#[track_caller]
fn wait_channel(fixture: &ProgramFixture, platform: &str, name: &str) {
    eventually(name, || channels(fixture, platform).iter().any(|it| it == name).then_some(()));
}

fn outputs(fixture: &ProgramFixture) -> Vec<(PathBuf, String)> {
    let mut folders = vec![fixture.home.path().join("cron/output")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            } else {
                found.push((entry.path(), std::fs::read_to_string(entry.path()).unwrap_or_default()));
            }
        }
    }
    found
}

#[test]
fn long_forum_text_is_one_post_despite_kill_between_parts() {
    let mut fixture = ProgramFixture::builder().telegram().discord().build();
    fixture.discord().add_forum(1, 90, "ideas");
    fixture.start();
    // The first message is refused: a forum accepts only posts.
    let hold = fixture.discord().on("createMessage").nth(2).gate(Side::Before);
    let text = "A long idea.\n\n".repeat(400);
    let sent = fixture.run(&["send", "--wait", "0", "discord:90", &text]);
    assert_eq!(sent.status.code(), Some(75), "{sent:?}");
    assert!(hold.wait(SOON), "the second part is not sent");
    fixture.kill();
    hold.open();
    fixture.start();
    fixture.wait_idle();
    let opened = fixture.discord().calls_of("createThread");
    assert_eq!(opened.len(), 1, "one post");
    let further = fixture.discord().calls_of("createMessage");
    let thread = further.last().and_then(|call| call.channel).expect("a channel");
    let parts = fixture.discord().texts(thread);
    let whole: usize = parts.iter().map(|part| part.matches("A long idea.").count()).sum();
    assert!(parts.len() >= 3 && whole >= 400, "{} parts, {whole} of 400", parts.len());
}

#[test]
fn sends_message_to_every_target_by_id_or_name() {
    let mut fixture = ProgramFixture::builder().telegram().discord().slack().build();
    fixture.slack().add_named_channel("T1", "C7", "random");
    fixture.start();
    wait_channel(&fixture, "discord", "general");
    wait_channel(&fixture, "slack", "random");
    let to = "telegram:7,discord:#general,slack:random,TELEGRAM:7,foo:1";
    let sent = fixture.run(&["send", to, "the", "news"]);
    let said = expect_success(&sent);
    assert_eq!(said.matches(": delivered").count(), 3, "{said}");
    assert_eq!(fixture.telegram.texts(7), ["the news"]);
    assert_eq!(fixture.discord().texts(70), ["the news"]);
    assert_eq!(fixture.slack().texts("C7"), ["the news"]);
    let files = outputs(&fixture);
    assert_eq!(files.len(), 1, "{files:?}");
    assert!(files[0].0.parent().is_some_and(|folder| folder.ends_with("misc")), "{files:?}");
    assert!(files[0].1.ends_with("\n---\n\nthe news\n"), "{files:?}");
    let wrong = fixture.run(&["send", "discord:,discord:nowhere,slack,matrix:!r:srv", "x"]);
    assert_eq!(wrong.status.code(), Some(1));
    for why in ["no chat after the colon", "petasos channels", "no home channel", "matrix is not connected"] {
        assert!(stdout(&wrong).contains(why), "{}", stdout(&wrong));
    }
}

#[test]
fn directory_is_readable_without_gateway() {
    let mut fixture = ProgramFixture::builder().discord().build();
    let said = expect_failure(&fixture.run(&["send", "discord:70", "x"]), 1);
    assert!(said.contains("petasos run"), "{said}");
    fixture.start();
    wait_channel(&fixture, "discord", "general");
    fixture.kill();
    let aliases = r#"{"discord":{"70":"den","71":"attic"}}"#;
    std::fs::write(fixture.home.path().join("channel_aliases.json"), aliases).expect("written");
    let directory = expect_json(&fixture.run(&["channels", "--json"]));
    assert_eq!(directory["platforms"]["discord"][0]["name"], "den", "{directory}");
    let shown = expect_success(&fixture.run(&["channels"]));
    assert!(shown.contains("discord:71") && shown.contains("guild1/den"), "{shown}");
}

#[test]
fn directory_updates_when_link_reconnects() {
    let mut fixture = ProgramFixture::builder().discord().build();
    fixture.start();
    wait_channel(&fixture, "discord", "general");
    fixture.discord().add_forum(1, 71, "ideas");
    fixture.discord().add_thread(1, 71, 72, "a thread");
    expect_success(&fixture.run(&["links", "pause", "discord"]));
    expect_success(&fixture.run(&["links", "resume", "discord"]));
    wait_channel(&fixture, "discord", "ideas");
    assert_eq!(channels(&fixture, "discord"), ["general", "ideas"]);
}

#[test]
fn resolves_channel_names_during_outage() {
    let mut fixture = ProgramFixture::builder().discord().build();
    fixture.start();
    wait_channel(&fixture, "discord", "general");
    fixture.kill();
    let aliases = r#"{"discord":{"71":"attic"}}"#;
    std::fs::write(fixture.home.path().join("channel_aliases.json"), aliases).expect("written");
    let file = fixture.home.path().join("channel_directory.json");
    let written = || std::fs::metadata(&file).and_then(|it| it.modified()).expect("a file");
    let before = written();
    fixture.discord().down();
    fixture.launch();
    eventually("written again", || (written() != before).then_some(()));
    assert_eq!(channels(&fixture, "discord"), ["general", "attic"]);
    eventually("queued", || {
        let sent = fixture.run(&["send", "discord:#general", "the news", "--wait", "0"]);
        stdout(&sent).contains("queued as message").then_some(())
    });
    fixture.discord().up().expect("up");
    expect_success(&fixture.run(&["links", "retry", "discord"]));
    let arrived = fixture.discord().wait_until(SOON, |state| (state.texts(70) == ["the news"]).then_some(()));
    assert!(arrived.is_some(), "{:?}", fixture.discord().texts(70));
}

#[test]
fn lists_paged_slack_channels_and_known_telegram_chats() {
    let mut fixture = ProgramFixture::builder().telegram().slack().build();
    for number in 0..450 {
        fixture.slack().add_channel("T1", &format!("C{number:04}"));
    }
    fixture.start();
    wait_channel(&fixture, "slack", "c0449");
    assert!(channels(&fixture, "slack").len() >= 450);
    assert!(fixture.slack().calls_of("users.conversations").len() >= 3);
    assert!(channels(&fixture, "telegram").is_empty());
    fixture.telegram.push_text(7, 7, "hello");
    fixture.wait_messages(7, 1);
    expect_success(&fixture.run(&["links", "pause", "telegram"]));
    expect_success(&fixture.run(&["links", "resume", "telegram"]));
    let names =
        eventually("listed", || Some(channels(&fixture, "telegram")).filter(|names| !names.is_empty()));
    let sent = fixture.run(&["send", &format!("telegram:{}", names[0]), "hi"]);
    expect_success(&sent);
    assert_eq!(fixture.telegram.texts(7), ["echo: hello", "hi"]);
}

#[test]
fn dead_chat_gets_no_request_until_a_message_arrives() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    fixture.telegram.on("sendMessage").always().does(telegram::Fault::blocked());
    let first = fixture.run(&["send", "telegram:7", "one"]);
    assert_eq!(first.status.code(), Some(1), "{}", stdout(&first));
    let second = fixture.run(&["send", "telegram:7,local", "two"]);
    assert!(stdout(&second).contains("dead_target") && stdout(&second).contains("saved as"), "{second:?}");
    assert_eq!(fixture.telegram.calls_of("sendMessage").len(), 1);
    for command in [["outbox"], ["status"], ["doctor"]] {
        let said = stdout(&fixture.run(&command));
        assert!(said.contains("telegram:7 rejected the bot"), "{command:?}: {said}");
    }
    fixture.telegram.clear_faults();
    fixture.telegram.push_text(7, 7, "I am back");
    fixture.wait_messages(7, 1);
    expect_success(&fixture.run(&["send", "telegram:7", "three"]));
    assert_eq!(fixture.telegram.texts(7), ["echo: I am back", "three"]);
}

#[test]
fn silent_text_goes_to_file_and_not_to_chat() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    let said = expect_success(&fixture.run(&["send", "telegram:7,local", "*(silent)*"]));
    assert!(said.contains("the text means that there is nothing to report"), "{said}");
    assert!(fixture.telegram.calls_of("sendMessage").is_empty());
    assert_eq!(outputs(&fixture).len(), 1);
}

#[test]
fn long_text_is_split_in_chat_and_saved_whole() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    let text = "word ".repeat(1000);
    let said = expect_success(&fixture.run(&["send", "telegram:7", &text]));
    assert!(said.contains("delivered"), "{said}");
    assert!(fixture.telegram.texts(7).len() > 1);
    let files = outputs(&fixture);
    assert_eq!(files.len(), 1, "{files:?}");
    assert!(files[0].0.extension().is_some_and(|it| it == "txt") && files[0].1.trim() == text.trim());
}

#[test]
fn undelivered_message_stays_queued_across_kill() {
    let mut fixture = ProgramFixture::builder().discord().build();
    fixture.start();
    let gate = fixture.discord().gate("createMessage", Side::Before);
    let sent = fixture.run(&["send", "--wait", "0", "discord:50", "the news"]);
    assert_eq!(sent.status.code(), Some(75), "{}", stdout(&sent));
    assert!(gate.wait(SOON), "never tried");
    fixture.kill();
    gate.open();
    fixture.start();
    let seen = fixture.discord().wait_until(SOON, |state: &discord::State| {
        state.texts(50).iter().any(|text| text.contains("the news")).then_some(())
    });
    assert!(seen.is_some(), "{:?}", fixture.discord().texts(50));
}

fn dotenv(fixture: &ProgramFixture) -> String {
    std::fs::read_to_string(fixture.home.path().join(".env")).unwrap_or_default()
}

#[test]
fn sethome_takes_effect_at_once_and_persists() {
    let mut fixture = ProgramFixture::new();
    std::fs::write(fixture.home.path().join(".env"), "# mine\nOTHER='x y'\n").expect("written");
    fixture.start();
    fixture.telegram.add_topic(-5, 9);
    fixture.telegram.push_topic(-5, 9, 7, "/sethome@petasos_fake_bot");
    fixture.wait_messages(-5, 1);
    let want = "# mine\nOTHER='x y'\nTELEGRAM_HOME_CHANNEL=-5\nTELEGRAM_HOME_CHANNEL_THREAD_ID=9\n";
    assert_eq!(dotenv(&fixture), want);
    expect_success(&fixture.run(&["send", "telegram", "one"]));
    let topics = |fixture: &ProgramFixture| -> Vec<_> {
        fixture.telegram.visible(-5).into_iter().map(|message| (message.text, message.thread)).collect()
    };
    assert_eq!(topics(&fixture)[1], ("one".into(), Some(9)));
    fixture.telegram.push_text(7, 7, "/set-home");
    fixture.wait_messages(7, 1);
    assert_eq!(dotenv(&fixture), "# mine\nOTHER='x y'\nTELEGRAM_HOME_CHANNEL=7\n");
    fixture.wait_outbox_empty();
    fixture.kill();
    fixture.start();
    expect_success(&fixture.run(&["send", "all,telegram,origin", "two"]));
    assert_eq!(fixture.telegram.texts(7)[1..], ["two"]);
}

#[test]
fn sethome_requires_permission() {
    let more = "telegram:\n  allow_admin_from: ['1']\n";
    let mut fixture = ProgramFixture::with_config(more);
    fixture.start();
    fixture.telegram.push_text(7, 7, "/sethome");
    let said = fixture.wait_messages(7, 1);
    assert!(said[0].contains("You may not use"), "{said:?}");
    assert_eq!(dotenv(&fixture), "");
}

#[test]
fn sent_message_is_mirrored_into_target_transcript() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    fixture.telegram.push_text(7, 7, "hello");
    fixture.wait_messages(7, 1);
    fixture.wait_idle();
    expect_success(&fixture.run(&["send", "telegram:7", "the build is green"]));
    fixture.telegram.push_text(7, 7, "what did you say?");
    fixture.wait_messages(7, 3);
    let requests = fixture.model.requests();
    let asked = requests.last().expect("asked");
    let messages = asked.body()["messages"].as_array().cloned().unwrap_or_default();
    let own = messages
        .iter()
        .any(|it| it["role"] == "assistant" && it["content"].to_string().contains("the build is green"));
    assert!(own, "{messages:?}");
}
