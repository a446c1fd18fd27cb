//! The real program on Discord, on Slack, and on everything at once.

use std::time::Instant;

use crate::support::{Bench, SOON};
use petasos_fakes::model::{Answer, Point};
use petasos_fakes::slack::{self, BOT};
use petasos_fakes::{discord, telegram};

/// A channel of a server and a private one, as the fake is set up.
const ROOM: u64 = 70;
const DIRECT: u64 = 50;
const SOMEBODY: u64 = 5;

#[track_caller]
fn on_discord(bench: &Bench, channel: u64, want: &str) {
    let seen = bench.discord().wait_until(SOON, |world| {
        let texts = world.texts(channel);
        texts.iter().any(|text| text == want).then_some(())
    });
    assert!(seen.is_some(), "channel {channel} shows {:?}, wanted {want:?}", bench.discord().texts(channel));
}

#[track_caller]
fn on_slack(bench: &Bench, channel: &str, want: &str) {
    let seen = bench.slack().wait_until(SOON, |world| {
        let texts = world.texts(channel);
        texts.iter().any(|text| text == want).then_some(())
    });
    assert!(seen.is_some(), "channel {channel} shows {:?}, wanted {want:?}", bench.slack().texts(channel));
}

/// What a gateway said that could not start with the only platform it has.
#[track_caller]
fn unstartable(mut bench: Bench) -> String {
    bench.launch();
    let (code, said) = bench.gateway.take().expect("launched").wait();
    assert_eq!(code, Some(78), "{said}");
    said
}

#[test]
fn discord_is_answered_where_it_was_asked() {
    let mut bench = Bench::setup().discord().build();
    bench.start();
    bench.discord().push_text(DIRECT, SOMEBODY, "hello");
    on_discord(&bench, DIRECT, "echo: hello");
    // A mention in a server gets a thread of its own, which has the number of the message.
    let asked = bench.discord().push(discord::Incoming::text(ROOM, SOMEBODY, "hello").mentioning_bot());
    bench.discord().push_text(ROOM, SOMEBODY, "not for the bot");
    on_discord(&bench, asked, "echo: hello");
    bench.settle();
    assert!(bench.discord().texts(ROOM).is_empty(), "{:?}", bench.discord().texts(ROOM));
    assert_eq!(bench.model.requests().len(), 2);
}

#[test]
fn discord_offers_the_commands_and_obeys_them() {
    let mut bench = Bench::setup().discord().build();
    bench.start();
    let offered = bench.discord().wait_until(SOON, |world| {
        let names =
            world.commands().as_array()?.iter().map(|it| it["name"].as_str().unwrap_or_default().to_owned());
        Some(names.collect::<Vec<_>>())
    });
    let offered = offered.expect("a menu");
    for name in ["help", "new", "stop", "queue"] {
        assert!(offered.iter().any(|it| it == name), "{name} is not in {offered:?}");
    }
    bench.discord().push_command(DIRECT, SOMEBODY, "whoami", &[]);
    let said = bench.discord().wait_until(SOON, |world| world.texts(DIRECT).first().cloned());
    assert!(said.as_ref().is_some_and(|text| text.contains("discord")), "{said:?}");
}

#[test]
fn slack_is_answered_where_it_was_asked() {
    let mut bench = Bench::setup().slack().build();
    bench.start();
    bench.slack().push_text("D1", "U5", "hello");
    on_slack(&bench, "D1", "echo: hello");
    let asked = bench.slack().push_mention(slack::Incoming::new("C1", "U5", format!("<@{BOT}> hello")));
    bench.slack().push_text("C1", "U5", "not for the bot");
    on_slack(&bench, "C1", "echo: hello");
    bench.settle();
    let shown = bench.slack().visible("C1");
    assert_eq!(shown.len(), 1, "{shown:?}");
    assert_eq!(shown[0].thread.as_deref(), Some(asked.ts.as_str()));
    assert_eq!(bench.model.requests().len(), 2);
}

#[test]
fn the_address_for_a_private_answer_is_never_logged() {
    let mut bench = Bench::setup().slack().build();
    // The first is refused, the second breaks on the way.
    bench.slack().on("response_url").nth(1).does(slack::Fault::Status(404));
    bench.slack().on("response_url").nth(2).does(slack::Fault::ResetBefore);
    let ours = ["petasos", "petasos_gateway", "petasos_platforms", "petasos_store", "petasos_agent"];
    let all = ours.map(|name| format!("{name}=trace")).join(",");
    bench.launch_with(&[("RUST_LOG", &all)]);
    bench.slack().wait_until(SOON, |world| (world.open_sockets() > 0).then_some(())).expect("a socket");
    for count in [1, 2] {
        bench.slack().push_command("C1", "U5", "/petasos", "whoami");
        let tried = |world: &slack::World| (world.calls_of("response_url").count() >= count).then_some(());
        assert!(bench.slack().wait_until(SOON, tried).is_some(), "no private answer");
    }
    bench.settle_outbox();
    let said = bench.kill();
    assert!(said.contains("delivery given up") && said.contains("delivery deferred"), "{said}");
    assert!(!said.contains("/response/"), "{said}");
}

#[test]
fn a_kill_in_the_middle_of_a_turn_leaves_one_answer_on_discord() {
    let mut bench = Bench::setup().discord().build();
    bench.start();
    let gate = bench.model.gate(Point::Before);
    bench.discord().push_text(DIRECT, SOMEBODY, "hello");
    assert!(gate.wait(SOON), "the model was never asked");
    bench.kill();
    gate.open();
    bench.start();
    on_discord(&bench, DIRECT, "echo: hello");
    bench.settle();
    assert_eq!(bench.discord().texts(DIRECT), ["echo: hello"]);
}

#[test]
fn a_kill_in_the_middle_of_a_turn_leaves_one_answer_on_slack() {
    let mut bench = Bench::setup().slack().build();
    bench.start();
    let gate = bench.model.gate(Point::Before);
    bench.slack().push_text("D1", "U5", "hello");
    assert!(gate.wait(SOON), "the model was never asked");
    bench.kill();
    gate.open();
    bench.start();
    on_slack(&bench, "D1", "echo: hello");
    bench.settle();
    assert_eq!(bench.slack().texts("D1"), ["echo: hello"]);
}

#[test]
fn what_was_said_on_discord_while_nobody_listened_is_answered_once() {
    let mut bench = Bench::setup().discord().build();
    bench.start();
    bench.discord().push_text(DIRECT, SOMEBODY, "one");
    on_discord(&bench, DIRECT, "echo: one");
    bench.settle();
    bench.kill();
    bench.discord().push_text(DIRECT, SOMEBODY, "two");
    // Too long away: the session is over, and only the history knows.
    bench.discord().forget_sessions();
    bench.start();
    on_discord(&bench, DIRECT, "echo: two");
    bench.settle();
    assert_eq!(bench.discord().texts(DIRECT), ["echo: one", "echo: two"]);
}

#[test]
fn what_was_said_on_slack_while_nobody_listened_is_answered_once() {
    let mut bench = Bench::setup().slack().build();
    // The fake's clock stands in another year.
    let file = bench.home.path().join("config.yaml");
    let config = std::fs::read_to_string(&file).expect("a configuration");
    let config = config
        .replace("api_base: ", "missed_message_backfill: {window_seconds: 1000000000}\n      api_base: ");
    std::fs::write(&file, config).expect("written");
    bench.start();
    bench.slack().push_text("D1", "U5", "one");
    on_slack(&bench, "D1", "echo: one");
    bench.settle();
    bench.kill();
    bench.slack().push_text("D1", "U5", "two");
    bench.slack().give_up_deliveries();
    bench.start();
    on_slack(&bench, "D1", "echo: two");
    bench.settle();
    assert_eq!(bench.slack().texts("D1"), ["echo: one", "echo: two"]);
}

#[test]
fn a_token_that_discord_does_not_know_ends_the_start_with_advice() {
    let bench = Bench::setup().discord().build();
    bench.discord().expect_token("another");
    let said = unstartable(bench);
    assert!(said.contains("DISCORD_BOT_TOKEN"), "{said}");
    assert!(!said.contains("OTAw.x.secret"), "{said}");
}

#[test]
fn a_token_that_slack_does_not_know_ends_the_start_with_advice() {
    let bench = Bench::setup().slack().build();
    bench.slack().expect_app_token("another");
    let said = unstartable(bench);
    assert!(said.contains("SLACK_APP_TOKEN"), "{said}");
    let bench = Bench::setup().slack().build();
    bench.slack().revoke(slack::TOKEN);
    let said = unstartable(bench);
    assert!(said.contains("SLACK_BOT_TOKEN") && !said.contains("xapp-1-A1-2-secret"), "{said}");
}

#[test]
fn one_gateway_answers_every_platform_in_its_own_chats() {
    let mut bench = Bench::setup().telegram().discord().slack().build();
    bench.start();
    bench.telegram.push_text(7, 7, "from telegram");
    bench.discord().push_text(DIRECT, SOMEBODY, "from discord");
    bench.slack().push_text("D1", "U5", "from slack");
    assert_eq!(bench.wait_messages(7, 1), ["echo: from telegram"]);
    on_discord(&bench, DIRECT, "echo: from discord");
    on_slack(&bench, "D1", "echo: from slack");
    bench.settle();
    assert_eq!(bench.discord().texts(DIRECT).len(), 1);
    assert_eq!(bench.slack().texts("D1").len(), 1);
}

#[test]
fn a_platform_that_is_refused_does_not_disturb_the_others() {
    let mut bench = Bench::setup().discord().slack().build();
    bench.discord().expect_token("another");
    bench.launch();
    bench.slack().wait_until(SOON, |world| (world.open_sockets() > 0).then_some(())).expect("a socket");
    bench.slack().push_text("D1", "U5", "hello");
    on_slack(&bench, "D1", "echo: hello");
}

#[test]
fn strangers_are_offered_pairing_on_discord_and_slack_and_answered_once_approved() {
    let mut bench = Bench::setup().discord().slack().build();
    bench.launch_with(&[("GATEWAY_ALLOW_ALL_USERS", "false")]);
    bench.slack().wait_until(SOON, |world| (world.open_sockets() > 0).then_some(())).expect("a socket");
    bench.discord().wait_until(SOON, |world| (world.heard(2).count() > 0).then_some(())).expect("a session");
    bench.discord().push_text(DIRECT, SOMEBODY, "hello");
    bench.slack().push_text("D1", "U5", "hello");
    let offered = bench.discord().wait_until(SOON, |world| world.texts(DIRECT).first().cloned());
    approve(&bench, "discord", &offered.expect("an offer"));
    let offered = bench.slack().wait_until(SOON, |world| world.texts("D1").first().cloned());
    approve(&bench, "slack", &offered.expect("an offer"));
    bench.discord().push_text(DIRECT, SOMEBODY, "again");
    bench.slack().push_text("D1", "U5", "again");
    on_discord(&bench, DIRECT, "echo: again");
    on_slack(&bench, "D1", "echo: again");
}

/// With the code that the offer names.
#[track_caller]
fn approve(bench: &Bench, platform: &str, offer: &str) {
    let is_code = |word: &&str| {
        word.len() == 8 && word.bytes().all(|it| it.is_ascii_uppercase() || it.is_ascii_digit())
    };
    let code = offer.split(|c: char| !c.is_ascii_alphanumeric()).find(is_code).expect("a code");
    let output = bench.run(&["pairing", "approve", platform, code]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn on_discord_an_answer_whose_acknowledgement_was_lost_appears_once_and_unmarked() {
    for killed in [false, true] {
        let mut bench = Bench::setup().discord().build();
        let fault = if killed { discord::Fault::HangAfter } else { discord::Fault::ResetAfter };
        bench.discord().on("createMessage").does(fault);
        bench.start();
        bench.discord().push_text(DIRECT, SOMEBODY, "hello");
        on_discord(&bench, DIRECT, "echo: hello");
        if killed {
            bench.kill();
            bench.start();
        }
        bench.settle();
        assert_eq!(bench.discord().texts(DIRECT), ["echo: hello"], "killed: {killed}");
        assert_eq!(bench.discord().calls_of("createMessage").len(), 2, "it was sent again");
        assert_eq!(bench.model.requests().len(), 1);
    }
}

const EYES: &str = "%F0%9F%91%80";
const CHECK: &str = "%E2%9C%85";

#[track_caller]
fn marked_on_discord(bench: &Bench, channel: u64, message: u64, want: &str) {
    let want = [(channel, message, want.to_owned())];
    let seen = bench.discord().wait_until(SOON, |world| (world.reactions() == want).then_some(()));
    assert!(seen.is_some(), "{:?}, wanted {want:?}", bench.discord().reactions());
}

#[track_caller]
fn marked_on_slack(bench: &Bench, channel: &str, ts: &str, want: &str) {
    let seen = bench.slack().wait_until(SOON, |world| (world.marks(channel, ts) == [want]).then_some(()));
    assert!(seen.is_some(), "{:?}, wanted {want:?}", bench.slack().marks(channel, ts));
}

#[test]
fn a_message_is_marked_while_it_is_worked_on_and_afterwards_also_by_the_next_process() {
    let mut bench = Bench::setup().discord().build();
    bench.start();
    let gate = bench.model.gate(Point::Before);
    let asked = bench.discord().push_text(DIRECT, SOMEBODY, "hello");
    marked_on_discord(&bench, DIRECT, asked, EYES);
    bench.kill();
    gate.open();
    bench.start();
    on_discord(&bench, DIRECT, "echo: hello");
    marked_on_discord(&bench, DIRECT, asked, CHECK);
}

#[test]
fn the_message_that_a_thread_was_opened_for_is_marked_where_it_stands() {
    let mut bench = Bench::setup().discord().build();
    bench.start();
    let asked = bench.discord().push(discord::Incoming::text(ROOM, SOMEBODY, "hello").mentioning_bot());
    on_discord(&bench, asked, "echo: hello");
    marked_on_discord(&bench, ROOM, asked, CHECK);
}

#[test]
fn on_slack_only_what_is_addressed_to_the_bot_is_marked() {
    let mut bench = Bench::setup().slack().build();
    bench.start();
    let asked = bench.slack().push_mention(slack::Incoming::new("C1", "U5", format!("<@{BOT}> hello")));
    on_slack(&bench, "C1", "echo: hello");
    marked_on_slack(&bench, "C1", &asked.ts, "white_check_mark");
    let beside = slack::Incoming::new("C1", "U5", "and then?").thread(&asked.ts);
    let beside = bench.slack().push(beside);
    on_slack(&bench, "C1", "echo: and then?");
    // Marks are made in order: once this one is there, the other is not to come any more.
    let last = bench.slack().push_text("D1", "U5", "last");
    marked_on_slack(&bench, "D1", &last, "white_check_mark");
    assert!(bench.slack().marks("C1", &beside.ts).is_empty());
}

#[test]
fn on_telegram_marks_are_wanted_first_and_a_failure_shows() {
    for (wanted, want) in [("true", vec!["👎"]), ("false", vec![])] {
        let mut bench = Bench::new();
        bench.model.respond(|_| Answer::status(400, ""));
        bench.launch_with(&[("TELEGRAM_REACTIONS", wanted)]);
        let asked = bench.telegram.push(petasos_fakes::telegram::Incoming::text(7, 7, "hello"));
        bench.wait_messages(7, 1);
        let marked = bench
            .telegram
            .wait_until(SOON, |world| (world.reactions(7, asked.message_id) == want).then_some(()));
        assert!(marked.is_some(), "{:?}, wanted {want:?}", bench.telegram.reactions(7, asked.message_id));
        let calls = bench.telegram.calls_of("setMessageReaction").len();
        assert_eq!(calls > 0, wanted == "true", "{calls}");
    }
}

#[test]
fn marks_that_are_refused_or_never_answered_hold_up_no_answer() {
    for fault in [discord::Fault::Hang, discord::Fault::too_many(30.0), discord::Fault::missing_access()] {
        let mut bench = Bench::setup().discord().build();
        bench.discord().on("react").always().does(fault);
        bench.start();
        for count in 1..4 {
            bench.discord().push_text(DIRECT, SOMEBODY, "hello");
            let all = |world: &discord::World| (world.texts(DIRECT).len() == count).then_some(());
            assert!(bench.discord().wait_until(SOON, all).is_some(), "answer {count} is held up");
        }
        assert!(!bench.discord().calls_of("react").is_empty(), "no mark was tried");
    }
}

#[test]
fn a_platform_that_is_set_up_wrongly_is_listed_and_one_that_is_out_says_when_it_is_tried() {
    let more =
        "slack: {enabled: true}\ndiscord: {token: a.b.c, extra: {api_base: 'http://127.0.0.1:9/api'}}\n";
    let mut bench = Bench::setup().telegram().with(more).build();
    bench.start();
    bench.telegram.push_text(7, 7, "hello");
    assert_eq!(bench.wait_messages(7, 1), ["echo: hello"]);
    let until = Instant::now() + SOON;
    let told = loop {
        let platforms = bench.state_file().unwrap_or_default()["platforms"].clone();
        if platforms["discord"]["state"] == "retrying" {
            break platforms;
        }
        assert!(Instant::now() < until, "never told: {platforms}");
        std::thread::yield_now();
    };
    assert_eq!(told["telegram"]["state"], "connected", "{told}");
    let slack = &told["slack"];
    assert_eq!((&slack["state"], &slack["error_class"]), (&"fatal".into(), &"fatal".into()), "{told}");
    assert!(slack["error_message"].as_str().is_some_and(|it| it.contains("there is no")), "{told}");
    let discord = &told["discord"];
    assert_eq!((&discord["attempts"], &discord["error_class"]), (&1.into(), &"passing".into()), "{told}");
    assert!(discord["next_retry_at"].is_string(), "{told}");
    let listed = bench.run(&["links"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains("NEXT TRY") && listed.contains("passing"), "{listed}");
    assert!(bench.run(&["stop"]).status.success());
    let (code, said) = bench.gateway.take().expect("launched").wait();
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn the_only_platform_lost_for_good_ends_the_program_once_and_well_and_one_lost_for_now_does_not() {
    let mut bench = Bench::new();
    bench.start();
    bench.await_state("running");
    bench.telegram.down();
    assert!(bench.run(&["links", "retry", "telegram"]).status.success());
    bench.await_state("degraded");
    bench.telegram.up().expect("it is there again");
    assert!(bench.run(&["links", "retry", "telegram"]).status.success());
    bench.await_state("running");
    bench.telegram.on("getUpdates").always().does(telegram::Fault::status(401, "Unauthorized"));
    // The poll that waits now ends, and the next one is refused.
    bench.telegram.push_text(7, 7, "/whoami");
    let (code, said) = bench.gateway.take().expect("launched").wait();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said.matches("why=\"deserted\"").count(), 1, "{said}");
    let state = bench.state_file().expect("a state");
    assert_eq!(state["gateway_state"], "stopped", "{state}");
    assert!(state["exit_reason"].as_str().is_some_and(|why| why.starts_with("telegram: ")), "{state}");
}

#[test]
fn the_doctor_asks_discord_and_slack_and_says_what_to_do() {
    let bench = Bench::setup().discord().slack().build();
    let told = |bench: &Bench| crate::support::stdout(&bench.run(&["doctor", "--online"]));
    let fine = told(&bench);
    assert_eq!(fine.matches("the credentials work").count(), 2, "{fine}");
    bench.discord().refuse_sessions(4014);
    bench.slack().revoke(slack::TOKEN);
    let said = told(&bench);
    assert!(said.contains("Message Content") && said.contains("SLACK_BOT_TOKEN"), "{said}");
    bench.discord().expect_token("another");
    let said = told(&bench);
    assert!(said.contains("DISCORD_BOT_TOKEN") && !said.contains("OTAw.x.secret"), "{said}");
}

#[test]
fn a_part_that_discord_refuses_for_now_is_sent_later_and_no_other_part_twice() {
    for fault in [discord::Fault::too_many(0.5), discord::Fault::status(500, 0, "oh no")] {
        let mut bench = Bench::setup().discord().build();
        let words: Vec<String> = (0..1000).map(|n| format!("w{n}")).collect();
        let answer = words.join(" ");
        bench.model.respond(move |_| Answer::text(answer.clone()));
        bench.discord().on("createMessage").nth(2).does(fault);
        bench.start();
        bench.discord().push_text(DIRECT, SOMEBODY, "talk");
        let last =
            |world: &discord::World| world.texts(DIRECT).iter().any(|it| it.contains("w999")).then_some(());
        assert!(
            bench.discord().wait_until(SOON, last).is_some(),
            "{:?}",
            bench.discord().texts(DIRECT).len()
        );
        let shown = bench.discord().texts(DIRECT).join(" ");
        let told: Vec<&str> = shown.split_whitespace().filter(|word| word.starts_with('w')).collect();
        assert_eq!(told, words.iter().map(String::as_str).collect::<Vec<_>>(), "every word once, in order");
        let parts = bench.discord().texts(DIRECT).len();
        assert_eq!(bench.discord().calls_of("createMessage").len(), parts + 1, "one part was sent again");
    }
}

/// Starts a gateway that Telegram calls, and waits until it is set.
fn start_called(bench: &mut Bench, port: u16) {
    let set = bench.telegram.calls_of("setWebhook").len();
    let (url, port) = (format!("http://127.0.0.1:{port}/tg"), port.to_string());
    bench.launch_with(&[
        ("TELEGRAM_WEBHOOK_URL", &url),
        ("TELEGRAM_WEBHOOK_PORT", &port),
        ("TELEGRAM_WEBHOOK_SECRET", "s3cret"),
    ]);
    let is_set = |world: &telegram::World| (world.calls_of("setWebhook").count() > set).then_some(());
    assert!(bench.telegram.wait_until(SOON, is_set).is_some(), "no webhook");
}

#[test]
fn telegram_may_call_instead_and_a_kill_after_its_call_leaves_one_answer_and_polling_goes_on_where_it_ended()
{
    let port = petasos_fakes::port::free();
    let mut bench = Bench::new();
    start_called(&mut bench, port);
    bench.telegram.push_text(7, 7, "hello");
    assert_eq!(bench.wait_messages(7, 1), ["echo: hello"]);
    let gate = bench.model.gate(Point::Before);
    bench.telegram.push_text(7, 7, "again");
    assert!(gate.wait(SOON), "the model was never asked");
    bench.kill();
    gate.open();
    bench.telegram.push_text(8, 8, "while nobody listens");
    start_called(&mut bench, port);
    bench.wait_messages(7, 2);
    bench.wait_messages(8, 1);
    bench.settle();
    assert_eq!(bench.telegram.texts(7), ["echo: hello", "echo: again"]);
    assert_eq!(bench.telegram.texts(8), ["echo: while nobody listens"]);
    assert!(bench.telegram.calls_of("getUpdates").is_empty(), "nobody polls while Telegram calls");
    bench.kill();
    bench.telegram.push_text(7, 7, "by poll");
    bench.start();
    assert_eq!(bench.wait_messages(7, 3)[2], "echo: by poll");
    bench.settle();
    assert_eq!((bench.telegram.texts(7).len(), bench.telegram.texts(8).len()), (3, 1));
    assert_eq!(bench.telegram.look(|world| world.webhook_url().map(str::to_owned)), None);
}

#[test]
fn an_address_for_telegram_without_a_secret_ends_the_start_with_advice() {
    let mut bench = Bench::new();
    bench.launch_with(&[("TELEGRAM_WEBHOOK_URL", "http://127.0.0.1:1/tg")]);
    let (code, said) = bench.gateway.take().expect("launched").wait();
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("TELEGRAM_WEBHOOK_SECRET"), "{said}");
    assert!(bench.telegram.calls().is_empty(), "Telegram was not bothered");
}
