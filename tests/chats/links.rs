//! What the real program says of its links, and what platforms get from it while they refuse or it works.

use std::time::{Duration, Instant};

use crate::support::{Bench, SOON, fine};
use petasos_fakes::Connector;
use petasos_fakes::connector::event;
use petasos_fakes::discord;
use petasos_fakes::model::{Answer, Point};
use petasos_fakes::slack;

const DIRECT: u64 = 50;
const STREAMING: &str = "streaming: {enabled: true, edit_interval: 0.1}\n";

/// What the state file says of this platform, once it says that.
#[track_caller]
fn told(bench: &Bench, platform: &str, look: impl Fn(&serde_json::Value) -> bool) -> serde_json::Value {
    let until = Instant::now() + SOON;
    loop {
        let told = bench.state_file().unwrap_or_default()["platforms"][platform].clone();
        if look(&told) {
            return told;
        }
        assert!(Instant::now() < until, "never told: {told}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

#[test]
fn slack_is_told_that_we_have_it_while_the_model_still_thinks() {
    let mut bench = Bench::setup().slack().build();
    bench.start();
    let gate = bench.model.gate(Point::Before);
    bench.slack().push_text("D1", "U5", "hello");
    let ack = bench.slack().wait_until(SOON, |world| world.acks().first().cloned()).expect("acknowledged");
    assert!(ack.took.is_some_and(|took| took < Duration::from_secs(3)), "{ack:?}");
    assert!(gate.wait(SOON), "the model was never asked");
    assert!(bench.slack().texts("D1").is_empty(), "there is no answer yet");
    gate.open();
    let answered =
        bench.slack().wait_until(SOON, |world| (world.texts("D1") == ["echo: hello"]).then_some(()));
    assert!(answered.is_some(), "{:?}", bench.slack().texts("D1"));
}

#[test]
fn a_slack_that_wants_three_seconds_gets_them_and_one_message() {
    let mut bench = Bench::setup().slack().build();
    bench.start();
    bench.slack().on("chat.postMessage").does(slack::Fault::TooMany(3));
    bench.slack().push_text("D1", "U5", "hello");
    let answered = bench.slack().wait_until(SOON, |world| (!world.texts("D1").is_empty()).then_some(()));
    assert!(answered.is_some(), "no answer");
    bench.settle();
    assert_eq!(bench.slack().texts("D1"), ["echo: hello"]);
    let at: Vec<Instant> = bench.slack().calls_of("chat.postMessage").iter().map(|call| call.at).collect();
    assert_eq!(at.len(), 2);
    assert!(at[1] - at[0] >= Duration::from_secs(3), "{:?}", at[1] - at[0]);
}

#[test]
fn the_rest_of_a_streamed_answer_follows_though_its_first_try_fails() {
    for fault in [discord::Fault::too_many(0.5), discord::Fault::status(500, 0, "oh no")] {
        let mut bench = Bench::setup().discord().with(STREAMING).build();
        let words: Vec<String> = (0..1000).map(|n| format!("w{n}")).collect();
        let answer = words.join(" ");
        bench.model.respond(move |_| Answer::text(answer.clone()).chunks(10));
        let gate = bench.model.gate(Point::AfterDelta(3));
        // The first is the preview, which becomes part one.
        bench.discord().on("createMessage").nth(2).does(fault);
        bench.start();
        bench.discord().push_text(DIRECT, 5, "talk");
        let shown = bench.discord().wait_until(SOON, |world| (!world.texts(DIRECT).is_empty()).then_some(()));
        assert!(shown.is_some(), "no preview");
        gate.open();
        let whole = |world: &discord::World| {
            world.texts(DIRECT).iter().any(|text| text.contains("w999")).then_some(())
        };
        assert!(bench.discord().wait_until(SOON, whole).is_some(), "{:?}", bench.discord().texts(DIRECT));
        bench.settle();
        let texts = bench.discord().texts(DIRECT);
        let told: Vec<&str> = texts
            .iter()
            .flat_map(|text| text.split_whitespace())
            .filter(|word| word.starts_with('w'))
            .collect();
        assert_eq!(told, words.iter().map(String::as_str).collect::<Vec<_>>(), "every word once, in order");
        assert_eq!(
            bench.discord().calls_of("createMessage").len(),
            texts.len() + 1,
            "one part was sent again"
        );
        assert!(!bench.discord().calls_of("editMessage").is_empty(), "the preview became part one");
    }
}

#[test]
fn where_nothing_can_be_changed_typing_is_shown_and_then_one_message() {
    let connector = Connector::start().expect("a fake");
    connector.describe("discord", |it| it["supports_edit"] = false.into());
    let gateway = format!(
        "gateway:\n  relay_url: {}\n  relay_platforms: [discord]\n  relay_bot_ids: '{{\"discord\": \
         {{\"botId\": \"app\"}}}}'\n{STREAMING}",
        connector.url()
    );
    let mut bench = Bench::setup().with(&gateway).build();
    let gate = bench.model.gate(Point::AfterDelta(3));
    bench.model.respond(|_| Answer::text("one two three four five six").chunks(6));
    connector.push(event("discord", "c1", "dm", "talk", Some("m1")));
    bench.launch();
    let ops = |world: &petasos_fakes::connector::World, op: &str| {
        world.frames("outbound").iter().filter(|frame| frame["action"]["op"] == op).count()
    };
    let typing = connector.wait_until(SOON, |world| (ops(world, "typing") > 0).then_some(()));
    assert!(typing.is_some(), "{:?}", connector.read(|world| world.heard.clone()));
    assert!(gate.wait(SOON), "the answer grows");
    assert!(connector.visible("c1").is_empty(), "and nothing of it is shown");
    gate.open();
    let whole =
        connector.wait_until(SOON, |world| world.chats.get("c1").filter(|it| !it.is_empty()).map(drop));
    assert!(whole.is_some(), "no answer");
    bench.settle_outbox();
    let texts: Vec<String> = connector.visible("c1").into_iter().map(|message| message.text).collect();
    assert_eq!(texts, ["one two three four five six"]);
    assert_eq!(connector.read(|world| (ops(world, "send"), ops(world, "edit"))), (1, 0));
}

#[test]
fn a_slack_token_that_is_revoked_while_we_run_stops_that_link_and_says_what_to_do() {
    let mut bench = Bench::setup().telegram().slack().build();
    bench.start();
    bench.slack().push_text("D1", "U5", "hello");
    let answered = bench.slack().wait_until(SOON, |world| (!world.texts("D1").is_empty()).then_some(()));
    assert!(answered.is_some(), "no answer");
    bench.settle();
    bench.slack().revoke(slack::TOKEN);
    bench.slack().push_text("D1", "U5", "still there?");
    let lost = told(&bench, "slack", |it| it["state"] == "fatal");
    assert_eq!(lost["error_code"], "slack_invalid_auth", "{lost}");
    assert!(lost["error_message"].as_str().is_some_and(|it| it.contains("SLACK_BOT_TOKEN")), "{lost}");
    let status = fine(&bench.run(&["status"]));
    assert!(status.contains("stopped (fatal)"), "{status}");
    bench.telegram.push_text(7, 7, "and you?");
    assert_eq!(bench.wait_messages(7, 1), ["echo: and you?"], "the others go on");
    // The token is good again: the owner says so, and what was owed is said.
    bench.slack().add_workspace(slack::TEAM, slack::TOKEN);
    fine(&bench.run(&["links", "retry", "slack"]));
    let healed = told(&bench, "slack", |it| it["state"] == "connected");
    for field in ["error_code", "error_message", "error_class"] {
        assert!(healed[field].is_null(), "{field}: {healed}");
    }
}

#[test]
fn one_lost_workspace_of_two_is_named_wherever_links_are_shown() {
    let mut bench = Bench::setup().slack().build();
    let file = bench.home.path().join("config.yaml");
    let config = std::fs::read_to_string(&file).expect("a configuration");
    let both = format!("token: \"{},xoxb-2\"", slack::TOKEN);
    let config = config.replace(&format!("token: {}\n", slack::TOKEN), &format!("{both}\n"));
    assert!(config.contains(&both), "{config}");
    std::fs::write(&file, config).expect("written");
    bench.slack().add_workspace("T2", "xoxb-2");
    bench.start();
    bench.slack().push(slack::Incoming::new("D2", "U9", "hello").team("T2"));
    let answered = bench.slack().wait_until(SOON, |world| (!world.texts("D2").is_empty()).then_some(()));
    assert!(answered.is_some(), "no answer");
    bench.settle();
    bench.slack().revoke("xoxb-2");
    bench.slack().push(slack::Incoming::new("D2", "U9", "still there?").team("T2"));
    let lost = told(&bench, "slack", |it| !it["error_code"].is_null());
    assert_eq!(
        (&lost["state"], &lost["error_code"]),
        (&"connected".into(), &"slack_invalid_auth".into()),
        "{lost}"
    );
    let without = "without workspace Team T2 (T2)";
    assert!(lost["error_message"].as_str().is_some_and(|it| it.starts_with(without)), "{lost}");
    for command in [&["status"][..], &["links"]] {
        let shown = fine(&bench.run(command));
        assert!(shown.contains(without) && shown.contains("SLACK_BOT_TOKEN"), "{command:?}: {shown}");
    }
    bench.slack().push_text("D1", "U5", "/platform");
    let listed = |world: &slack::World| {
        let shown = format!("{without} (slack_invalid_auth)");
        world.texts("D1").iter().any(|text| text.contains(&shown)).then_some(())
    };
    assert!(bench.slack().wait_until(SOON, listed).is_some(), "{:?}", bench.slack().texts("D1"));
}

#[test]
fn the_first_words_tell_the_truth_about_a_link_that_cannot_be() {
    let mut bench = Bench::setup().telegram().with("slack: {enabled: true}\n").build();
    bench.start();
    bench.await_state("running");
    let (_, said, _) = bench.terminate();
    let line = |name: &str| {
        let found = said.lines().find(|line| line.trim_start().starts_with(name)).map(str::to_owned);
        found.unwrap_or_else(|| panic!("{name} is not in {said}"))
    };
    assert!(line("slack ").contains("stopped (fatal)") && !line("slack ").contains("connecting"), "{said}");
    assert!(line("telegram ").contains("connecting") || line("telegram ").contains("up, "), "{said}");
}
