//! Link status, and platforms that limit, refuse or restrict requests.

use std::time::{Duration, Instant};

use crate::support::{ProgramFixture, SOON, eventually, expect_success};
use petasos_fakes::Connector;
use petasos_fakes::connector::event;
use petasos_fakes::discord;
use petasos_fakes::model::{Answer, Point};
use petasos_fakes::slack;

const DIRECT: u64 = 50;
const STREAMING: &str = "streaming: {enabled: true, edit_interval: 0.1}\n";

#[track_caller]
fn wait_link(
    fixture: &ProgramFixture,
    platform: &str,
    condition: impl Fn(&serde_json::Value) -> bool,
) -> serde_json::Value {
    eventually(platform, || {
        let link = fixture.state_file().unwrap_or_default()["platforms"][platform].clone();
        condition(&link).then_some(link)
    })
}

#[test]
fn acknowledges_slack_event_while_model_is_running() {
    let mut fixture = ProgramFixture::builder().slack().build();
    fixture.start();
    let gate = fixture.model.gate(Point::Before);
    fixture.slack().push_text("D1", "U5", "hello");
    let ack = fixture.slack().wait_until(SOON, |state| state.acks().first().cloned()).expect("acknowledged");
    assert!(ack.took.is_some_and(|took| took < Duration::from_secs(3)), "{ack:?}");
    assert!(gate.wait(SOON), "the model was never asked");
    assert!(fixture.slack().texts("D1").is_empty(), "answered too early");
    gate.open();
    let answered =
        fixture.slack().wait_until(SOON, |state| (state.texts("D1") == ["echo: hello"]).then_some(()));
    assert!(answered.is_some(), "{:?}", fixture.slack().texts("D1"));
}

#[test]
fn waits_out_slack_rate_limit_and_sends_once() {
    let mut fixture = ProgramFixture::builder().slack().build();
    fixture.start();
    fixture.slack().on("chat.postMessage").does(slack::Fault::too_many(3));
    fixture.slack().push_text("D1", "U5", "hello");
    let answered = fixture.slack().wait_until(SOON, |state| (!state.texts("D1").is_empty()).then_some(()));
    assert!(answered.is_some(), "no answer");
    fixture.wait_idle();
    assert_eq!(fixture.slack().texts("D1"), ["echo: hello"]);
    let at: Vec<Instant> = fixture.slack().calls_of("chat.postMessage").iter().map(|call| call.at).collect();
    assert_eq!(at.len(), 2);
    assert!(at[1] - at[0] >= Duration::from_secs(3), "{:?}", at[1] - at[0]);
}

#[test]
fn retries_remaining_parts_of_streamed_answer() {
    for fault in [discord::Fault::too_many(0.5), discord::Fault::status(500, 0, "oh no")] {
        let mut fixture = ProgramFixture::builder().discord().with(STREAMING).build();
        let words: Vec<String> = (0..1000).map(|n| format!("w{n}")).collect();
        let answer = words.join(" ");
        fixture.model.respond(move |_| Answer::text(answer.clone()).chunks(10));
        let gate = fixture.model.gate(Point::AfterDelta(3));
        // The first message is the preview, which becomes part one.
        fixture.discord().on("createMessage").nth(2).does(fault);
        fixture.start();
        fixture.discord().push_text(DIRECT, 5, "talk");
        let shown =
            fixture.discord().wait_until(SOON, |state| (!state.texts(DIRECT).is_empty()).then_some(()));
        assert!(shown.is_some(), "no preview");
        gate.open();
        let whole = |state: &discord::State| {
            state.texts(DIRECT).iter().any(|text| text.contains("w999")).then_some(())
        };
        assert!(fixture.discord().wait_until(SOON, whole).is_some(), "{:?}", fixture.discord().texts(DIRECT));
        fixture.wait_idle();
        let texts = fixture.discord().texts(DIRECT);
        let sent: Vec<&str> = texts
            .iter()
            .flat_map(|text| text.split_whitespace())
            .filter(|word| word.starts_with('w'))
            .collect();
        assert_eq!(sent, words.iter().map(String::as_str).collect::<Vec<_>>(), "every word once, in order");
        assert_eq!(
            fixture.discord().calls_of("createMessage").len(),
            texts.len() + 1,
            "one part was sent again"
        );
        assert!(!fixture.discord().calls_of("editMessage").is_empty(), "the preview became part one");
    }
}

#[test]
fn platform_without_edits_gets_typing_and_one_message() {
    let connector = Connector::start().expect("a fake");
    connector.describe("discord", |it| it["supports_edit"] = false.into());
    let gateway = format!(
        "gateway:\n  relay_url: {}\n  relay_platforms: [discord]\n  relay_bot_ids: '{{\"discord\": \
         {{\"botId\": \"app\"}}}}'\n{STREAMING}",
        connector.url()
    );
    let mut fixture = ProgramFixture::builder().with(&gateway).build();
    let gate = fixture.model.gate(Point::AfterDelta(3));
    fixture.model.respond(|_| Answer::text("one two three four five six").chunks(6));
    connector.push(event("discord", "c1", "dm", "talk", Some("m1")));
    fixture.launch();
    let ops = |state: &petasos_fakes::connector::State, op: &str| {
        state.frames("outbound").iter().filter(|frame| frame["action"]["op"] == op).count()
    };
    let typing = connector.wait_until(SOON, |state| (ops(state, "typing") > 0).then_some(()));
    assert!(typing.is_some(), "{:?}", connector.read(|state| state.frames.clone()));
    assert!(gate.wait(SOON), "the answer is not streamed");
    assert!(connector.visible("c1").is_empty(), "a preview is shown");
    gate.open();
    let whole =
        connector.wait_until(SOON, |state| state.chats.get("c1").filter(|it| !it.is_empty()).map(drop));
    assert!(whole.is_some(), "no answer");
    fixture.wait_outbox_empty();
    let texts: Vec<String> = connector.visible("c1").into_iter().map(|message| message.text).collect();
    assert_eq!(texts, ["one two three four five six"]);
    assert_eq!(connector.read(|state| (ops(state, "send"), ops(state, "edit"))), (1, 0));
}

#[test]
fn revoked_slack_token_stops_link_with_advice() {
    let mut fixture = ProgramFixture::builder().telegram().slack().build();
    fixture.start();
    fixture.slack().push_text("D1", "U5", "hello");
    let answered = fixture.slack().wait_until(SOON, |state| (!state.texts("D1").is_empty()).then_some(()));
    assert!(answered.is_some(), "no answer");
    fixture.wait_idle();
    fixture.slack().revoke(slack::TOKEN);
    fixture.slack().push_text("D1", "U5", "still there?");
    let lost = wait_link(&fixture, "slack", |it| it["state"] == "fatal");
    assert_eq!(lost["error_code"], "slack_invalid_auth", "{lost}");
    assert!(lost["error_message"].as_str().is_some_and(|it| it.contains("SLACK_BOT_TOKEN")), "{lost}");
    let status = expect_success(&fixture.run(&["status"]));
    assert!(status.contains("stopped (fatal)"), "{status}");
    fixture.telegram.push_text(7, 7, "and you?");
    assert_eq!(fixture.wait_messages(7, 1), ["echo: and you?"], "other links are affected");
    // The token is valid again, and the owner retries the link.
    fixture.slack().add_workspace(slack::TEAM, slack::TOKEN);
    expect_success(&fixture.run(&["links", "retry", "slack"]));
    let recovered = wait_link(&fixture, "slack", |it| it["state"] == "connected");
    for field in ["error_code", "error_message", "error_class"] {
        assert!(recovered[field].is_null(), "{field}: {recovered}");
    }
}

#[test]
fn reports_partial_outage_of_one_slack_workspace() {
    let mut fixture = ProgramFixture::builder().slack().build();
    let file = fixture.home.path().join("config.yaml");
    let config = std::fs::read_to_string(&file).expect("a configuration");
    let both = format!("token: \"{},xoxb-2\"", slack::TOKEN);
    let config = config.replace(&format!("token: {}\n", slack::TOKEN), &format!("{both}\n"));
    assert!(config.contains(&both), "{config}");
    std::fs::write(&file, config).expect("written");
    fixture.slack().add_workspace("T2", "xoxb-2");
    fixture.start();
    fixture.slack().push(slack::Incoming::new("D2", "U9", "hello").team("T2"));
    let answered = fixture.slack().wait_until(SOON, |state| (!state.texts("D2").is_empty()).then_some(()));
    assert!(answered.is_some(), "no answer");
    fixture.wait_idle();
    fixture.slack().revoke("xoxb-2");
    fixture.slack().push(slack::Incoming::new("D2", "U9", "still there?").team("T2"));
    let lost = wait_link(&fixture, "slack", |it| !it["error_code"].is_null());
    assert_eq!(
        (&lost["state"], &lost["error_code"]),
        (&"connected".into(), &"slack_invalid_auth".into()),
        "{lost}"
    );
    let without = "workspace Team T2 (T2) unavailable";
    assert!(lost["error_message"].as_str().is_some_and(|it| it.starts_with(without)), "{lost}");
    for command in [&["status"][..], &["links"]] {
        let shown = expect_success(&fixture.run(command));
        assert!(shown.contains(without) && shown.contains("SLACK_BOT_TOKEN"), "{command:?}: {shown}");
    }
    fixture.slack().push_text("D1", "U5", "/platform");
    let listed = |state: &slack::State| {
        let shown = "without workspace Team T2 (T2) (slack_invalid_auth)";
        state.texts("D1").iter().any(|text| text.contains(shown)).then_some(())
    };
    assert!(fixture.slack().wait_until(SOON, listed).is_some(), "{:?}", fixture.slack().texts("D1"));
}

#[test]
fn greeting_shows_unconfigured_link_as_stopped() {
    let mut fixture = ProgramFixture::builder().telegram().with("slack: {enabled: true}\n").build();
    fixture.start();
    fixture.wait_state("running");
    let (_, output, _) = fixture.terminate();
    let line = |name: &str| {
        let found = output.lines().find(|line| line.trim_start().starts_with(name)).map(str::to_owned);
        found.unwrap_or_else(|| panic!("{name} is not in {output}"))
    };
    assert!(line("slack ").contains("stopped (fatal)") && !line("slack ").contains("connecting"), "{output}");
    assert!(line("telegram ").contains("connecting") || line("telegram ").contains("up, "), "{output}");
}
