//! Answers, credentials, reactions and outages on Telegram, Discord and Slack.

use crate::support::{ProgramFixture, SOON, eventually};
use petasos_fakes::model::{Answer, Point};
use petasos_fakes::slack::{self, BOT};
use petasos_fakes::{discord, telegram};

/// The channel of a server and the private chat that the fixture creates.
const CHANNEL: u64 = 70;
const DIRECT: u64 = 50;
const USER: u64 = 5;

#[track_caller]
fn wait_discord_text(fixture: &ProgramFixture, channel: u64, want: &str) {
    let seen = fixture.discord().wait_until(SOON, |state| {
        let texts = state.texts(channel);
        texts.iter().any(|text| text == want).then_some(())
    });
    assert!(
        seen.is_some(),
        "channel {channel} shows {:?}, wanted {want:?}",
        fixture.discord().texts(channel)
    );
}

#[track_caller]
fn wait_slack_text(fixture: &ProgramFixture, channel: &str, want: &str) {
    let seen = fixture.slack().wait_until(SOON, |state| {
        let texts = state.texts(channel);
        texts.iter().any(|text| text == want).then_some(())
    });
    assert!(seen.is_some(), "channel {channel} shows {:?}, wanted {want:?}", fixture.slack().texts(channel));
}

#[track_caller]
fn expect_failed_start(mut fixture: ProgramFixture) -> String {
    fixture.launch();
    let (code, said) = fixture.gateway.take().expect("launched").wait();
    assert_eq!(code, Some(78), "{said}");
    said
}

#[test]
fn answers_on_discord_in_the_asking_channel() {
    let mut fixture = ProgramFixture::builder().discord().build();
    fixture.start();
    fixture.discord().push_text(DIRECT, USER, "hello");
    wait_discord_text(&fixture, DIRECT, "echo: hello");
    // A mention in a server gets its own thread, with the id of the message.
    let asked = fixture.discord().push(discord::Incoming::text(CHANNEL, USER, "hello").mentioning_bot());
    fixture.discord().push_text(CHANNEL, USER, "not for the bot");
    wait_discord_text(&fixture, asked, "echo: hello");
    fixture.wait_idle();
    assert!(fixture.discord().texts(CHANNEL).is_empty(), "{:?}", fixture.discord().texts(CHANNEL));
    assert_eq!(fixture.model.requests().len(), 2);
}

#[test]
fn offers_and_runs_discord_commands() {
    let mut fixture = ProgramFixture::builder().discord().build();
    fixture.start();
    let offered = fixture.discord().wait_until(SOON, |state| {
        let names =
            state.commands().as_array()?.iter().map(|it| it["name"].as_str().unwrap_or_default().to_owned());
        Some(names.collect::<Vec<_>>())
    });
    let offered = offered.expect("a menu");
    for name in ["help", "new", "stop", "queue"] {
        assert!(offered.iter().any(|it| it == name), "{name} is not in {offered:?}");
    }
    fixture.discord().push_command(DIRECT, USER, "whoami", &[]);
    let said = fixture.discord().wait_until(SOON, |state| state.texts(DIRECT).first().cloned());
    assert!(said.as_ref().is_some_and(|text| text.contains("discord")), "{said:?}");
}

#[test]
fn answers_on_slack_in_the_asking_channel() {
    let mut fixture = ProgramFixture::builder().slack().build();
    fixture.start();
    fixture.slack().push_text("D1", "U5", "hello");
    wait_slack_text(&fixture, "D1", "echo: hello");
    let asked = fixture.slack().push_mention(slack::Incoming::new("C1", "U5", format!("<@{BOT}> hello")));
    fixture.slack().push_text("C1", "U5", "not for the bot");
    wait_slack_text(&fixture, "C1", "echo: hello");
    fixture.wait_idle();
    let shown = fixture.slack().visible("C1");
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert_eq!(shown[0].thread.as_deref(), Some(asked.ts.as_str()));
    assert_eq!(fixture.model.requests().len(), 2);
}

#[test]
fn never_logs_slack_response_url() {
    let mut fixture = ProgramFixture::builder().slack().build();
    // The first request is refused, the second is reset.
    fixture.slack().on("response_url").nth(1).does(slack::Fault::ProxyError(404));
    fixture.slack().on("response_url").nth(2).does(slack::Fault::ResetBefore);
    let ours = ["petasos", "petasos_gateway", "petasos_platforms", "petasos_store", "petasos_agent"];
    let all = ours.map(|name| format!("{name}=trace")).join(",");
    fixture.launch_with(&[("RUST_LOG", &all)]);
    fixture.slack().wait_until(SOON, |state| (state.open_sockets() > 0).then_some(())).expect("a socket");
    for count in [1, 2] {
        fixture.slack().push_command("C1", "U5", "/petasos", "whoami");
        let tried = |state: &slack::State| (state.calls_of("response_url").count() >= count).then_some(());
        assert!(fixture.slack().wait_until(SOON, tried).is_some(), "no private answer");
    }
    fixture.wait_outbox_empty();
    let said = fixture.kill();
    assert!(said.contains("delivery given up") && said.contains("delivery deferred"), "{said}");
    assert!(!said.contains("/response/"), "{said}");
}

#[test]
fn kill_during_turn_gives_one_answer_on_discord() {
    let mut fixture = ProgramFixture::builder().discord().build();
    fixture.start();
    let gate = fixture.model.gate(Point::Before);
    fixture.discord().push_text(DIRECT, USER, "hello");
    assert!(gate.wait(SOON), "the model was never asked");
    fixture.kill();
    gate.open();
    fixture.start();
    wait_discord_text(&fixture, DIRECT, "echo: hello");
    fixture.wait_idle();
    assert_eq!(fixture.discord().texts(DIRECT), ["echo: hello"]);
}

#[test]
fn kill_during_turn_gives_one_answer_on_slack() {
    let mut fixture = ProgramFixture::builder().slack().build();
    fixture.start();
    let gate = fixture.model.gate(Point::Before);
    fixture.slack().push_text("D1", "U5", "hello");
    assert!(gate.wait(SOON), "the model was never asked");
    fixture.kill();
    gate.open();
    fixture.start();
    wait_slack_text(&fixture, "D1", "echo: hello");
    fixture.wait_idle();
    assert_eq!(fixture.slack().texts("D1"), ["echo: hello"]);
}

#[test]
fn discord_messages_missed_while_down_are_answered_once() {
    let mut fixture = ProgramFixture::builder().discord().build();
    fixture.start();
    fixture.discord().push_text(DIRECT, USER, "one");
    wait_discord_text(&fixture, DIRECT, "echo: one");
    fixture.wait_idle();
    fixture.kill();
    fixture.discord().push_text(DIRECT, USER, "two");
    // The session has expired, so only the message history has the message.
    fixture.discord().forget_sessions();
    fixture.start();
    wait_discord_text(&fixture, DIRECT, "echo: two");
    fixture.wait_idle();
    assert_eq!(fixture.discord().texts(DIRECT), ["echo: one", "echo: two"]);
}

#[test]
fn slack_messages_missed_while_down_are_answered_once() {
    let mut fixture = ProgramFixture::builder().slack().build();
    // The clock of the fake shows another year.
    let file = fixture.home.path().join("config.yaml");
    let config = std::fs::read_to_string(&file).expect("a configuration");
    let config = config
        .replace("api_base: ", "missed_message_backfill: {window_seconds: 1000000000}\n      api_base: ");
    std::fs::write(&file, config).expect("written");
    fixture.start();
    fixture.slack().push_text("D1", "U5", "one");
    wait_slack_text(&fixture, "D1", "echo: one");
    fixture.wait_idle();
    fixture.kill();
    fixture.slack().push_text("D1", "U5", "two");
    fixture.slack().drop_deliveries();
    fixture.start();
    wait_slack_text(&fixture, "D1", "echo: two");
    fixture.wait_idle();
    assert_eq!(fixture.slack().texts("D1"), ["echo: one", "echo: two"]);
}

#[test]
fn invalid_discord_token_stops_start_with_advice() {
    let fixture = ProgramFixture::builder().discord().build();
    fixture.discord().expect_token("another");
    let said = expect_failed_start(fixture);
    assert!(said.contains("DISCORD_BOT_TOKEN"), "{said}");
    assert!(!said.contains("OTAw.x.secret"), "{said}");
}

#[test]
fn invalid_slack_token_stops_start_with_advice() {
    let fixture = ProgramFixture::builder().slack().build();
    fixture.slack().expect_app_token("another");
    let said = expect_failed_start(fixture);
    assert!(said.contains("SLACK_APP_TOKEN"), "{said}");
    let fixture = ProgramFixture::builder().slack().build();
    fixture.slack().revoke(slack::TOKEN);
    let said = expect_failed_start(fixture);
    assert!(said.contains("SLACK_BOT_TOKEN") && !said.contains("xapp-1-A1-2-secret"), "{said}");
}

#[test]
fn one_gateway_answers_on_every_platform() {
    let mut fixture = ProgramFixture::builder().telegram().discord().slack().build();
    fixture.start();
    fixture.telegram.push_text(7, 7, "from telegram");
    fixture.discord().push_text(DIRECT, USER, "from discord");
    fixture.slack().push_text("D1", "U5", "from slack");
    assert_eq!(fixture.wait_messages(7, 1), ["echo: from telegram"]);
    wait_discord_text(&fixture, DIRECT, "echo: from discord");
    wait_slack_text(&fixture, "D1", "echo: from slack");
    fixture.wait_idle();
    assert_eq!(fixture.discord().texts(DIRECT).len(), 1);
    assert_eq!(fixture.slack().texts("D1").len(), 1);
}

#[test]
fn refused_platform_does_not_affect_others() {
    let mut fixture = ProgramFixture::builder().discord().slack().build();
    fixture.discord().expect_token("another");
    fixture.launch();
    fixture.slack().wait_until(SOON, |state| (state.open_sockets() > 0).then_some(())).expect("a socket");
    fixture.slack().push_text("D1", "U5", "hello");
    wait_slack_text(&fixture, "D1", "echo: hello");
}

#[test]
fn pairs_strangers_on_discord_and_slack() {
    let mut fixture = ProgramFixture::builder().discord().slack().build();
    fixture.launch_with(&[("GATEWAY_ALLOW_ALL_USERS", "false")]);
    fixture.slack().wait_until(SOON, |state| (state.open_sockets() > 0).then_some(())).expect("a socket");
    fixture
        .discord()
        .wait_until(SOON, |state| (state.frames(2).count() > 0).then_some(()))
        .expect("a session");
    fixture.discord().push_text(DIRECT, USER, "hello");
    fixture.slack().push_text("D1", "U5", "hello");
    let offered = fixture.discord().wait_until(SOON, |state| state.texts(DIRECT).first().cloned());
    approve_pairing(&fixture, "discord", &offered.expect("an offer"));
    let offered = fixture.slack().wait_until(SOON, |state| state.texts("D1").first().cloned());
    approve_pairing(&fixture, "slack", &offered.expect("an offer"));
    fixture.discord().push_text(DIRECT, USER, "again");
    fixture.slack().push_text("D1", "U5", "again");
    wait_discord_text(&fixture, DIRECT, "echo: again");
    wait_slack_text(&fixture, "D1", "echo: again");
}

#[track_caller]
fn approve_pairing(fixture: &ProgramFixture, platform: &str, offer: &str) {
    let is_code = |word: &&str| {
        word.len() == 8 && word.bytes().all(|it| it.is_ascii_uppercase() || it.is_ascii_digit())
    };
    let code = offer.split(|c: char| !c.is_ascii_alphanumeric()).find(is_code).expect("a code");
    let output = fixture.run(&["pairing", "approve", platform, code]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn lost_discord_acknowledgement_gives_one_unmarked_answer() {
    for killed in [false, true] {
        let mut fixture = ProgramFixture::builder().discord().build();
        let fault = if killed { discord::Fault::HangAfter } else { discord::Fault::ResetAfter };
        fixture.discord().on("createMessage").does(fault);
        fixture.start();
        fixture.discord().push_text(DIRECT, USER, "hello");
        wait_discord_text(&fixture, DIRECT, "echo: hello");
        if killed {
            fixture.kill();
            fixture.start();
        }
        fixture.wait_idle();
        assert_eq!(fixture.discord().texts(DIRECT), ["echo: hello"], "killed: {killed}");
        assert_eq!(fixture.discord().calls_of("createMessage").len(), 2, "sent again");
        assert_eq!(fixture.model.requests().len(), 1);
    }
}

const EYES: &str = "%F0%9F%91%80";
const CHECK: &str = "%E2%9C%85";

#[track_caller]
fn wait_discord_reaction(fixture: &ProgramFixture, channel: u64, message: u64, want: &str) {
    let want = [(channel, message, want.to_owned())];
    let seen = fixture.discord().wait_until(SOON, |state| (state.reactions() == want).then_some(()));
    assert!(seen.is_some(), "{:?}, wanted {want:?}", fixture.discord().reactions());
}

#[track_caller]
fn wait_slack_reaction(fixture: &ProgramFixture, channel: &str, ts: &str, want: &str) {
    let seen =
        fixture.slack().wait_until(SOON, |state| (state.reactions(channel, ts) == [want]).then_some(()));
    assert!(seen.is_some(), "{:?}, wanted {want:?}", fixture.slack().reactions(channel, ts));
}

#[test]
fn status_reaction_is_updated_across_a_kill() {
    let mut fixture = ProgramFixture::builder().discord().build();
    fixture.start();
    let gate = fixture.model.gate(Point::Before);
    let asked = fixture.discord().push_text(DIRECT, USER, "hello");
    wait_discord_reaction(&fixture, DIRECT, asked, EYES);
    fixture.kill();
    gate.open();
    fixture.start();
    wait_discord_text(&fixture, DIRECT, "echo: hello");
    wait_discord_reaction(&fixture, DIRECT, asked, CHECK);
}

#[test]
fn reacts_to_the_message_that_opened_a_thread() {
    let mut fixture = ProgramFixture::builder().discord().build();
    fixture.start();
    let asked = fixture.discord().push(discord::Incoming::text(CHANNEL, USER, "hello").mentioning_bot());
    wait_discord_text(&fixture, asked, "echo: hello");
    wait_discord_reaction(&fixture, CHANNEL, asked, CHECK);
}

#[test]
fn slack_reacts_only_to_messages_addressed_to_bot() {
    let mut fixture = ProgramFixture::builder().slack().build();
    fixture.start();
    let asked = fixture.slack().push_mention(slack::Incoming::new("C1", "U5", format!("<@{BOT}> hello")));
    wait_slack_text(&fixture, "C1", "echo: hello");
    wait_slack_reaction(&fixture, "C1", &asked.ts, "white_check_mark");
    let follow_up = slack::Incoming::new("C1", "U5", "and then?").thread(&asked.ts);
    let follow_up = fixture.slack().push(follow_up);
    wait_slack_text(&fixture, "C1", "echo: and then?");
    // Reactions are made in order: after this one the other cannot follow.
    let last = fixture.slack().push_text("D1", "U5", "last");
    wait_slack_reaction(&fixture, "D1", &last, "white_check_mark");
    assert!(fixture.slack().reactions("C1", &follow_up.ts).is_empty());
}

#[test]
fn telegram_reactions_are_opt_in_and_show_failure() {
    for (wanted, want) in [("true", vec!["👎"]), ("false", vec![])] {
        let mut fixture = ProgramFixture::new();
        fixture.model.respond(|_| Answer::status(400, ""));
        fixture.launch_with(&[("TELEGRAM_REACTIONS", wanted)]);
        let asked = fixture.telegram.push(petasos_fakes::telegram::Incoming::text(7, 7, "hello"));
        fixture.wait_messages(7, 1);
        let marked = fixture
            .telegram
            .wait_until(SOON, |state| (state.reactions(7, asked.message_id) == want).then_some(()));
        assert!(marked.is_some(), "{:?}, wanted {want:?}", fixture.telegram.reactions(7, asked.message_id));
        let calls = fixture.telegram.calls_of("setMessageReaction").len();
        assert_eq!(calls > 0, wanted == "true", "{calls}");
    }
}

#[test]
fn failing_reactions_delay_no_answer() {
    for fault in [discord::Fault::Hang, discord::Fault::too_many(30.0), discord::Fault::missing_access()] {
        let mut fixture = ProgramFixture::builder().discord().build();
        fixture.discord().on("react").always().does(fault);
        fixture.start();
        for count in 1..4 {
            fixture.discord().push_text(DIRECT, USER, "hello");
            let all = |state: &discord::State| (state.texts(DIRECT).len() == count).then_some(());
            assert!(fixture.discord().wait_until(SOON, all).is_some(), "answer {count} is held up");
        }
        assert!(!fixture.discord().calls_of("react").is_empty(), "no reaction was tried");
    }
}

#[test]
fn reports_misconfigured_and_unreachable_platforms() {
    let more =
        "slack: {enabled: true}\ndiscord: {token: a.b.c, extra: {api_base: 'http://127.0.0.1:9/api'}}\n";
    let mut fixture = ProgramFixture::builder().telegram().with(more).build();
    fixture.start();
    fixture.telegram.push_text(7, 7, "hello");
    assert_eq!(fixture.wait_messages(7, 1), ["echo: hello"]);
    let platforms = eventually("discord is retrying", || {
        let platforms = fixture.state_file().unwrap_or_default()["platforms"].clone();
        (platforms["discord"]["state"] == "retrying").then_some(platforms)
    });
    assert_eq!(platforms["telegram"]["state"], "connected", "{platforms}");
    let slack = &platforms["slack"];
    assert_eq!((&slack["state"], &slack["error_class"]), (&"fatal".into(), &"fatal".into()), "{platforms}");
    assert!(slack["error_message"].as_str().is_some_and(|it| it.contains("there is no")), "{platforms}");
    let discord = &platforms["discord"];
    assert_eq!(
        (&discord["attempts"], &discord["error_class"]),
        (&1.into(), &"passing".into()),
        "{platforms}"
    );
    assert!(discord["next_retry_at"].is_string(), "{platforms}");
    let listed = fixture.run(&["links"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("NEXT TRY") && listed.contains("temporary"), "{listed}");
    assert!(fixture.run(&["stop"]).status.success());
    let (code, said) = fixture.gateway.take().expect("launched").wait();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn exits_only_when_the_last_platform_fails_permanently() {
    let mut fixture = ProgramFixture::new();
    fixture.start();
    fixture.wait_state("running");
    fixture.telegram.down();
    assert!(fixture.run(&["links", "retry", "telegram"]).status.success());
    fixture.wait_state("degraded");
    fixture.telegram.up().expect("it is there again");
    assert!(fixture.run(&["links", "retry", "telegram"]).status.success());
    fixture.wait_state("running");
    fixture.telegram.on("getUpdates").always().does(telegram::Fault::status(401, "Unauthorized"));
    // The open poll ends, and the next one is refused.
    fixture.telegram.push_text(7, 7, "/whoami");
    let (code, said) = fixture.gateway.take().expect("launched").wait();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said.matches("why=\"deserted\"").count(), 1, "{said}");
    let state = fixture.state_file().expect("a state");
    assert_eq!(state["gateway_state"], "stopped", "{state}");
    assert!(state["exit_reason"].as_str().is_some_and(|why| why.starts_with("telegram: ")), "{state}");
}

#[test]
fn doctor_checks_discord_and_slack_online() {
    let fixture = ProgramFixture::builder().discord().slack().build();
    let doctor = |fixture: &ProgramFixture| crate::support::stdout(&fixture.run(&["doctor", "--online"]));
    let valid = doctor(&fixture);
    assert_eq!(valid.matches("the credentials work").count(), 2, "{valid}");
    fixture.discord().refuse_sessions(4014);
    fixture.slack().revoke(slack::TOKEN);
    let said = doctor(&fixture);
    assert!(said.contains("Message Content") && said.contains("SLACK_BOT_TOKEN"), "{said}");
    fixture.discord().expect_token("another");
    let said = doctor(&fixture);
    assert!(said.contains("DISCORD_BOT_TOKEN") && !said.contains("OTAw.x.secret"), "{said}");
}

#[test]
fn retries_only_the_failed_part_on_discord() {
    for fault in [discord::Fault::too_many(0.5), discord::Fault::status(500, 0, "oh no")] {
        let mut fixture = ProgramFixture::builder().discord().build();
        let words: Vec<String> = (0..1000).map(|n| format!("w{n}")).collect();
        let answer = words.join(" ");
        fixture.model.respond(move |_| Answer::text(answer.clone()));
        fixture.discord().on("createMessage").nth(2).does(fault);
        fixture.start();
        fixture.discord().push_text(DIRECT, USER, "talk");
        let last =
            |state: &discord::State| state.texts(DIRECT).iter().any(|it| it.contains("w999")).then_some(());
        assert!(
            fixture.discord().wait_until(SOON, last).is_some(),
            "{:?}",
            fixture.discord().texts(DIRECT).len()
        );
        let shown = fixture.discord().texts(DIRECT).join(" ");
        let sent: Vec<&str> = shown.split_whitespace().filter(|word| word.starts_with('w')).collect();
        assert_eq!(sent, words.iter().map(String::as_str).collect::<Vec<_>>(), "every word once, in order");
        let parts = fixture.discord().texts(DIRECT).len();
        assert_eq!(fixture.discord().calls_of("createMessage").len(), parts + 1, "one part was sent again");
    }
}

fn start_with_webhook(fixture: &mut ProgramFixture, port: u16) {
    let set = fixture.telegram.calls_of("setWebhook").len();
    let url = format!("http://127.0.0.1:{port}/tg");
    let port = port.to_string();
    fixture.launch_with(&[
        ("TELEGRAM_WEBHOOK_URL", &url),
        ("TELEGRAM_WEBHOOK_PORT", &port),
        ("TELEGRAM_WEBHOOK_SECRET", "s3cret"),
    ]);
    let is_set = |state: &telegram::State| (state.calls_of("setWebhook").count() > set).then_some(());
    assert!(fixture.telegram.wait_until(SOON, is_set).is_some(), "no webhook");
}

#[test]
fn telegram_webhook_survives_kill_and_hands_over_to_polling() {
    let port = petasos_fakes::port::free();
    let mut fixture = ProgramFixture::new();
    start_with_webhook(&mut fixture, port);
    fixture.telegram.push_text(7, 7, "hello");
    assert_eq!(fixture.wait_messages(7, 1), ["echo: hello"]);
    let gate = fixture.model.gate(Point::Before);
    fixture.telegram.push_text(7, 7, "again");
    assert!(gate.wait(SOON), "the model was never asked");
    fixture.kill();
    gate.open();
    fixture.telegram.push_text(8, 8, "while down");
    start_with_webhook(&mut fixture, port);
    fixture.wait_messages(7, 2);
    fixture.wait_messages(8, 1);
    fixture.wait_idle();
    assert_eq!(fixture.telegram.texts(7), ["echo: hello", "echo: again"]);
    assert_eq!(fixture.telegram.texts(8), ["echo: while down"]);
    assert!(fixture.telegram.calls_of("getUpdates").is_empty(), "polled despite the webhook");
    fixture.kill();
    fixture.telegram.push_text(7, 7, "by poll");
    fixture.start();
    assert_eq!(fixture.wait_messages(7, 3)[2], "echo: by poll");
    fixture.wait_idle();
    assert_eq!((fixture.telegram.texts(7).len(), fixture.telegram.texts(8).len()), (3, 1));
    assert_eq!(fixture.telegram.read(|state| state.webhook_url().map(str::to_owned)), None);
}

#[test]
fn telegram_webhook_without_secret_stops_start_with_advice() {
    let mut fixture = ProgramFixture::new();
    fixture.launch_with(&[("TELEGRAM_WEBHOOK_URL", "http://127.0.0.1:1/tg")]);
    let (code, said) = fixture.gateway.take().expect("launched").wait();
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("TELEGRAM_WEBHOOK_SECRET"), "{said}");
    assert!(fixture.telegram.calls().is_empty(), "Telegram was called");
}
