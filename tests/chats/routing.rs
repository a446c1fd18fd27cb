//! The real program says things where nobody asked, and remembers where that is of no use.

use std::path::PathBuf;
use std::time::Instant;

use crate::support::{Bench, SOON, failed, fine, json, stdout};
use petasos_fakes::discord::{self, Side};
use petasos_fakes::telegram;
use serde_json::Value;

/// Waits for something in a file or in what a command says.
#[track_caller]
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + SOON;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "never {what}");
        std::thread::yield_now();
    }
}

fn channels(bench: &Bench, platform: &str) -> Vec<String> {
    let file = std::fs::read(bench.home.path().join("channel_directory.json")).unwrap_or_default();
    let told: Value = serde_json::from_slice(&file).unwrap_or_default();
    let list = told["platforms"][platform].as_array().cloned().unwrap_or_default();
    list.iter().map(|it| it["name"].as_str().unwrap_or_default().to_owned()).collect()
}

#[track_caller]
fn lists(bench: &Bench, platform: &str, name: &str) {
    eventually(name, || channels(bench, platform).iter().any(|it| it == name).then_some(()));
}

/// Files below `cron/output`, with what is in them.
fn outputs(bench: &Bench) -> Vec<(PathBuf, String)> {
    let mut folders = vec![bench.home.path().join("cron/output")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                true => folders.push(entry.path()),
                false => {
                    found.push((entry.path(), std::fs::read_to_string(entry.path()).unwrap_or_default()))
                }
            }
        }
    }
    found
}

#[test]
fn a_long_text_for_a_forum_is_one_post_through_a_kill_between_its_parts() {
    let mut bench = Bench::setup().telegram().discord().build();
    bench.discord().add_forum(1, 90, "ideas");
    bench.start();
    // The first is refused: a forum takes only posts.
    let hold = bench.discord().on("createMessage").nth(2).gate(Side::Before);
    let text = "A long idea.\n\n".repeat(400);
    // Nobody waits for it.
    let sent = bench.run(&["send", "--wait", "0", "discord:90", &text]);
    assert_eq!(sent.status.code(), Some(75), "{sent:?}");
    assert!(hold.wait(SOON), "the second part is on its way");
    bench.kill();
    hold.open();
    bench.start();
    bench.settle();
    let opened = bench.discord().calls_of("createThread");
    assert_eq!(opened.len(), 1, "one post");
    let further = bench.discord().calls_of("createMessage");
    let thread = further.last().and_then(|call| call.channel).expect("a channel");
    let parts = bench.discord().texts(thread);
    let whole: usize = parts.iter().map(|part| part.matches("A long idea.").count()).sum();
    assert!(parts.len() >= 3 && whole >= 400, "{} parts, {whole} of 400", parts.len());
}

#[test]
fn a_message_goes_to_every_place_that_was_named_by_id_or_by_name() {
    let mut bench = Bench::setup().telegram().discord().slack().build();
    bench.slack().add_named_channel("T1", "C7", "random");
    bench.start();
    lists(&bench, "discord", "general");
    lists(&bench, "slack", "random");
    let to = "telegram:7,discord:#general,slack:random,TELEGRAM:7,foo:1";
    let sent = bench.run(&["send", to, "the", "news"]);
    let said = fine(&sent);
    assert_eq!(said.matches(": delivered").count(), 3, "{said}");
    assert_eq!(bench.telegram.texts(7), ["the news"]);
    assert_eq!(bench.discord().texts(70), ["the news"]);
    assert_eq!(bench.slack().texts("C7"), ["the news"]);
    let files = outputs(&bench);
    assert_eq!(files.len(), 1, "{files:?}");
    assert!(files[0].0.parent().is_some_and(|folder| folder.ends_with("misc")), "{files:?}");
    assert!(files[0].1.ends_with("\n---\n\nthe news\n"), "{files:?}");
    let wrong = bench.run(&["send", "discord:,discord:nowhere,slack,matrix:!r:srv", "x"]);
    assert_eq!(wrong.status.code(), Some(1));
    for why in ["no chat after the colon", "petasos channels", "no home channel", "matrix is not connected"] {
        assert!(stdout(&wrong).contains(why), "{}", stdout(&wrong));
    }
}

#[test]
fn without_a_gateway_nothing_is_sent_and_the_directory_can_still_be_read() {
    let mut bench = Bench::setup().discord().build();
    let said = failed(&bench.run(&["send", "discord:70", "x"]), 1);
    assert!(said.contains("petasos run"), "{said}");
    bench.start();
    lists(&bench, "discord", "general");
    bench.kill();
    let aliases = r#"{"discord":{"70":"den","71":"attic"}}"#;
    std::fs::write(bench.home.path().join("channel_aliases.json"), aliases).expect("written");
    let told = json(&bench.run(&["channels", "--json"]));
    assert_eq!(told["platforms"]["discord"][0]["name"], "den", "{told}");
    let shown = fine(&bench.run(&["channels"]));
    assert!(shown.contains("discord:71") && shown.contains("guild1/den"), "{shown}");
}

#[test]
fn the_directory_follows_a_link_that_comes_back() {
    let mut bench = Bench::setup().discord().build();
    bench.start();
    lists(&bench, "discord", "general");
    bench.discord().add_forum(1, 71, "ideas");
    bench.discord().add_thread(1, 71, 72, "a thread");
    fine(&bench.run(&["links", "pause", "discord"]));
    fine(&bench.run(&["links", "resume", "discord"]));
    lists(&bench, "discord", "ideas");
    assert_eq!(channels(&bench, "discord"), ["general", "ideas"]);
}

#[test]
fn a_name_leads_somewhere_while_its_platform_is_out() {
    let mut bench = Bench::setup().discord().build();
    bench.start();
    lists(&bench, "discord", "general");
    bench.kill();
    let aliases = r#"{"discord":{"71":"attic"}}"#;
    std::fs::write(bench.home.path().join("channel_aliases.json"), aliases).expect("written");
    let file = bench.home.path().join("channel_directory.json");
    let written = || std::fs::metadata(&file).and_then(|it| it.modified()).expect("a file");
    let before = written();
    bench.discord().down();
    bench.launch();
    eventually("written again", || (written() != before).then_some(()));
    assert_eq!(channels(&bench, "discord"), ["general", "attic"]);
    eventually("owed", || {
        let sent = bench.run(&["send", "discord:#general", "the news", "--wait", "0"]);
        stdout(&sent).contains("on its way").then_some(())
    });
    bench.discord().up().expect("up");
    fine(&bench.run(&["links", "retry", "discord"]));
    let arrived = bench.discord().wait_until(SOON, |world| (world.texts(70) == ["the news"]).then_some(()));
    assert!(arrived.is_some(), "{:?}", bench.discord().texts(70));
}

#[test]
fn slack_lists_its_channels_page_by_page_and_telegram_those_who_wrote() {
    let mut bench = Bench::setup().telegram().slack().build();
    for number in 0..450 {
        bench.slack().add_channel("T1", &format!("C{number:04}"));
    }
    bench.start();
    lists(&bench, "slack", "c0449");
    assert!(channels(&bench, "slack").len() >= 450);
    assert!(bench.slack().calls_of("users.conversations").len() >= 3);
    assert!(channels(&bench, "telegram").is_empty());
    bench.telegram.push_text(7, 7, "hello");
    bench.wait_messages(7, 1);
    fine(&bench.run(&["links", "pause", "telegram"]));
    fine(&bench.run(&["links", "resume", "telegram"]));
    let names = eventually("listed", || Some(channels(&bench, "telegram")).filter(|names| !names.is_empty()));
    let sent = bench.run(&["send", &format!("telegram:{}", names[0]), "hi"]);
    fine(&sent);
    assert_eq!(bench.telegram.texts(7), ["echo: hello", "hi"]);
}

#[test]
fn a_chat_that_refused_us_costs_one_request_until_somebody_writes_from_there() {
    let mut bench = Bench::new();
    bench.start();
    bench.telegram.on("sendMessage").always().does(telegram::Fault::blocked());
    let first = bench.run(&["send", "telegram:7", "one"]);
    assert_eq!(first.status.code(), Some(1), "{}", stdout(&first));
    let second = bench.run(&["send", "telegram:7,local", "two"]);
    assert!(stdout(&second).contains("dead_target") && stdout(&second).contains("saved as"), "{second:?}");
    assert_eq!(bench.telegram.calls_of("sendMessage").len(), 1);
    for command in [["outbox"], ["status"], ["doctor"]] {
        let said = stdout(&bench.run(&command));
        assert!(said.contains("telegram:7 refused us"), "{command:?}: {said}");
    }
    bench.telegram.clear_faults();
    bench.telegram.push_text(7, 7, "I am back");
    bench.wait_messages(7, 1);
    fine(&bench.run(&["send", "telegram:7", "three"]));
    assert_eq!(bench.telegram.texts(7), ["echo: I am back", "three"]);
}

#[test]
fn what_says_nothing_is_held_back_from_chats_and_kept_in_files() {
    let mut bench = Bench::new();
    bench.start();
    let said = fine(&bench.run(&["send", "telegram:7,local", "*(silent)*"]));
    assert!(said.contains("only says that nothing is said"), "{said}");
    assert!(bench.telegram.calls_of("sendMessage").is_empty());
    assert_eq!(outputs(&bench).len(), 1);
}

#[test]
fn a_long_text_is_split_and_kept_as_a_whole() {
    let mut bench = Bench::new();
    bench.start();
    let text = "word ".repeat(1000);
    let said = fine(&bench.run(&["send", "telegram:7", &text]));
    assert!(said.contains("delivered"), "{said}");
    assert!(bench.telegram.texts(7).len() > 1);
    let files = outputs(&bench);
    assert_eq!(files.len(), 1, "{files:?}");
    assert!(files[0].0.extension().is_some_and(|it| it == "txt") && files[0].1.trim() == text.trim());
}

#[test]
fn what_is_not_delivered_in_time_is_owed_and_survives_a_kill() {
    let mut bench = Bench::setup().discord().build();
    bench.start();
    let gate = bench.discord().gate("createMessage", Side::Before);
    let sent = bench.run(&["send", "--wait", "0", "discord:50", "the news"]);
    assert_eq!(sent.status.code(), Some(75), "{}", stdout(&sent));
    assert!(gate.wait(SOON), "never tried");
    bench.kill();
    gate.open();
    bench.start();
    let seen = bench.discord().wait_until(SOON, |world: &discord::World| {
        world.texts(50).iter().any(|text| text.contains("the news")).then_some(())
    });
    assert!(seen.is_some(), "{:?}", bench.discord().texts(50));
}

fn dotenv(bench: &Bench) -> String {
    std::fs::read_to_string(bench.home.path().join(".env")).unwrap_or_default()
}

#[test]
fn a_chat_becomes_the_home_at_once_and_for_good() {
    let mut bench = Bench::new();
    std::fs::write(bench.home.path().join(".env"), "# mine\nOTHER='x y'\n").expect("written");
    bench.start();
    bench.telegram.add_topic(-5, 9);
    bench.telegram.push_topic(-5, 9, 7, "/sethome@petasos_fake_bot");
    bench.wait_messages(-5, 1);
    let want = "# mine\nOTHER='x y'\nTELEGRAM_HOME_CHANNEL=-5\nTELEGRAM_HOME_CHANNEL_THREAD_ID=9\n";
    assert_eq!(dotenv(&bench), want);
    fine(&bench.run(&["send", "telegram", "one"]));
    let topics = |bench: &Bench| -> Vec<_> {
        bench.telegram.visible(-5).into_iter().map(|message| (message.text, message.thread)).collect()
    };
    assert_eq!(topics(&bench)[1], ("one".into(), Some(9)));
    bench.telegram.push_text(7, 7, "/set-home");
    bench.wait_messages(7, 1);
    assert_eq!(dotenv(&bench), "# mine\nOTHER='x y'\nTELEGRAM_HOME_CHANNEL=7\n");
    bench.settle_outbox();
    bench.kill();
    bench.start();
    fine(&bench.run(&["send", "all,telegram,origin", "two"]));
    assert_eq!(bench.telegram.texts(7)[1..], ["two"]);
}

#[test]
fn only_who_may_run_it_moves_the_home() {
    let more = "telegram:\n  allow_admin_from: ['1']\n";
    let mut bench = Bench::with(more);
    bench.start();
    bench.telegram.push_text(7, 7, "/sethome");
    let said = bench.wait_messages(7, 1);
    assert!(said[0].contains("not open to you"), "{said:?}");
    assert_eq!(dotenv(&bench), "");
}

#[test]
fn the_conversation_there_knows_what_was_said_from_elsewhere() {
    let mut bench = Bench::new();
    bench.start();
    bench.telegram.push_text(7, 7, "hello");
    bench.wait_messages(7, 1);
    bench.settle();
    fine(&bench.run(&["send", "telegram:7", "the build is green"]));
    bench.telegram.push_text(7, 7, "what did you say?");
    bench.wait_messages(7, 3);
    let requests = bench.model.requests();
    let asked = requests.last().expect("asked");
    let messages = asked.body()["messages"].as_array().cloned().unwrap_or_default();
    let own = messages
        .iter()
        .any(|it| it["role"] == "assistant" && it["content"].to_string().contains("the build is green"));
    assert!(own, "{messages:?}");
}
