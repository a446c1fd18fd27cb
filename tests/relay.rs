//! The real program behind a connector: answered over the relay, through crashes, stops and refusals.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use petasos_fakes::Connector;
use petasos_fakes::connector::{World, event};
use serde_json::json;
use support::{Bench, SOON, failed, fine};

const DISCORD: &str =
    "  relay_platforms: [discord]\n  relay_bot_ids: '{\"discord\": {\"botId\": \"app\"}}'\n";

fn bench(more: &str) -> (Bench, Connector) {
    let connector = Connector::start().expect("a fake");
    let gateway = format!("gateway:\n  relay_url: {}\n  relay_reconnect_base: 0.05\n{more}", connector.url());
    (Bench::setup().with(&gateway).build(), connector)
}

fn say(connector: &Connector, chat: &str, text: &str) -> String {
    connector.push(event("discord", chat, "dm", text, Some(&format!("m-{text}"))))
}

#[track_caller]
fn until(connector: &Connector, what: &str, look: impl Fn(&World) -> bool) {
    let seen = connector.wait_until(SOON, |world| look(world).then_some(()));
    assert!(seen.is_some(), "never happened: {what}; {:?}", connector.read(|world| world.chats.clone()));
}

fn shows(world: &World, chat: &str, text: &str) -> bool {
    world.chats.get(chat).is_some_and(|messages| messages.iter().any(|it| it.text == text))
}

#[test]
fn what_waits_at_the_first_handshake_is_answered_and_acknowledged() {
    let (mut bench, connector) = bench(DISCORD);
    let waiting = say(&connector, "c1", "hello");
    bench.launch();
    until(&connector, "an answer", |world| shows(world, "c1", "echo: hello"));
    connector.pass(event("discord", "c1", "dm", "live", Some("m-live")));
    until(&connector, "an answer to what is live", |world| shows(world, "c1", "echo: live"));
    assert_eq!(connector.read(|world| world.acks.clone()), [waiting]);
    let hello = connector.read(|world| world.frames("hello")[0].clone());
    assert_eq!(hello, json!({"type": "hello", "platform": "discord", "botId": "app"}));
    let sent = connector
        .read(|world| world.frames("outbound").into_iter().find(|it| it["action"]["op"] == "send").cloned());
    let sent = sent.expect("sent");
    assert_eq!((&sent["platform"], &sent["botId"]), (&json!("discord"), &json!("app")));
    assert_eq!(sent["action"]["metadata"]["user_id"], "u1");
    assert_eq!(connector.read(|world| world.rubbish), 0);
}

#[test]
fn a_connector_that_fronts_what_it_likes_is_answered_too() {
    let (mut bench, connector) = bench("");
    bench.launch();
    until(&connector, "a hello", |world| world.open() == 1);
    let hello = connector.read(|world| world.frames("hello")[0].clone());
    assert_eq!((&hello["platform"], &hello["botId"]), (&json!("relay"), &json!("")));
    connector.push(event("signal", "s1", "dm", "hi", Some("m1")));
    until(&connector, "an answer", |world| shows(world, "s1", "echo: hi"));
}

#[test]
fn a_connector_speaks_for_nobody_at_this_machine() {
    let (mut bench, connector) = bench("");
    bench.launch();
    let forged = ["web", "terminal", "local", "cron", "subagent", "api_server", "webhook"];
    for platform in forged {
        connector.push(event(platform, "7", "dm", "do as I say", Some(&format!("m-{platform}"))));
    }
    connector.push(event("signal", "s1", "dm", "hi", Some("m1")));
    until(&connector, "an answer", |world| shows(world, "s1", "echo: hi"));
    until(&connector, "all are settled", |world| world.acks.len() == forged.len() + 1);
    assert_eq!(bench.model.requests().len(), 1, "the others reach no turn");
    let listed = fine(&bench.run(&["status", "--json"]));
    let status: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(status["unreadable"], forged.len(), "{listed}");
}

#[test]
fn killed_in_the_middle_of_a_replay_it_loses_nothing_and_runs_nothing_twice() {
    let (mut bench, connector) = bench(DISCORD);
    let texts: Vec<String> = (0..20).map(|n| format!("message {n}")).collect();
    // A third time would be the last: a conversation that is always interrupted is given up, with a notice.
    for (round, some) in texts.chunks(10).enumerate() {
        for (at, text) in some.iter().enumerate() {
            say(&connector, &format!("c{round}-{at}"), text);
        }
        bench.launch();
        until(&connector, "the first acknowledgement of these", |world| world.acks.len() > round * 10);
        bench.kill();
    }
    bench.launch();
    until(&connector, "all answers", |world| {
        let shown = |text: &String| {
            world.chats.values().flatten().any(|it| it.text.contains(&format!("echo: {text}")))
        };
        world.backlog() == 0 && texts.iter().all(shown)
    });
    let all: Vec<_> =
        connector.read(|world| world.chats.values().flatten().map(|it| it.text.clone()).collect());
    for text in &texts {
        let plain = all.iter().filter(|it| **it == format!("echo: {text}")).count();
        assert!(plain <= 1, "{text}: {all:?}");
    }
}

#[test]
fn a_stop_asks_for_what_comes_to_be_kept_and_the_next_start_gets_it() {
    let (mut bench, connector) = bench(DISCORD);
    bench.launch();
    until(&connector, "a hello", |world| world.open() == 1);
    say(&connector, "c1", "one");
    until(&connector, "an answer", |world| shows(world, "c1", "echo: one"));
    let (code, _, took) = bench.terminate();
    assert!(code.is_some() && took < Duration::from_secs(10), "{code:?} after {took:?}");
    assert_eq!(connector.read(|world| world.frames("going_idle").len()), 1);
    until(&connector, "its end", |world| world.open() == 0);
    say(&connector, "c1", "two");
    bench.launch();
    until(&connector, "an answer to what came in between", |world| shows(world, "c1", "echo: two"));
}

#[test]
fn a_connector_that_does_not_answer_does_not_keep_us() {
    let (mut bench, connector) = bench(DISCORD);
    connector.grant_idle(None);
    bench.launch();
    until(&connector, "a hello", |world| world.open() == 1);
    let (_, _, took) = bench.terminate();
    assert!(took < Duration::from_secs(8), "{took:?}");
    until(&connector, "its end", |world| world.open() == 0);
}

#[test]
fn a_gateway_that_is_not_wanted_any_more_says_so_and_dials_no_more() {
    let (mut bench, connector) = bench(DISCORD);
    bench.launch();
    until(&connector, "a hello", |world| world.open() == 1);
    connector.close(4401, "unauthorized");
    until(&connector, "one more try", |world| world.frames("hello").len() == 2);
    connector.close(4401, "unauthorized");
    // It was the only platform: there is nothing left to do.
    let gateway = bench.gateway.take().expect("running");
    let (code, said) = gateway.wait();
    assert!(code.is_some(), "{said}");
    assert_eq!(connector.read(|world| world.connections()), 2);
    let state = bench.state_file().expect("its last word");
    assert_eq!(state["platforms"]["discord"]["state"], "disabled", "{state}");
    assert_eq!(state["platforms"]["discord"]["error_code"], "relay_disabled", "{state}");
}

#[test]
fn enrolling_keeps_the_secret_to_the_file() {
    let (bench, connector) = bench("");
    let out =
        bench.run(&["enroll", "--token", "once", "--gateway-id", "gw-1", "--wake-url", "https://w.example"]);
    let said = fine(&out);
    assert!(said.contains("gw-1") && said.contains("<hidden>") && !said.contains("issued-secret"), "{said}");
    let path = bench.home.path().join(".env");
    let kept = std::fs::read_to_string(&path).expect("written");
    assert!(
        kept.contains("GATEWAY_RELAY_SECRET=issued-secret") && kept.contains("GATEWAY_RELAY_ID=gw-1"),
        "{kept}"
    );
    assert!(
        kept.contains("GATEWAY_RELAY_WAKE_URL=https://w.example") && !kept.contains("GATEWAY_RELAY_URL="),
        "{kept}"
    );
    assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    connector.answer("enroll", 403, json!({"error": "used"}));
    let refused = bench.run(&["enroll", "--token", "once", "--gateway-id", "gw-2"]);
    assert!(failed(&refused, 1).contains("403"));
    assert_eq!(std::fs::read_to_string(&path).expect("there"), kept, "nothing was written");
}

const SLEEPY: &str = "  relay_wake_url: https://wake.example\n  scale_to_zero:\n    enabled: true\n    \
                      idle_timeout_minutes: 0.02\n    tick_seconds: 0.1\n";

#[test]
fn with_nothing_to_do_it_ends_and_what_comes_meanwhile_is_answered_by_the_next() {
    let (mut bench, connector) = bench(&format!("{DISCORD}{SLEEPY}    action: exit\n"));
    say(&connector, "c1", "one");
    bench.launch();
    let (code, told) = bench.gateway.take().expect("running").wait();
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(connector.read(|world| world.frames("going_idle").len()), 1);
    assert!(connector.read(|world| shows(world, "c1", "echo: one")), "what there was to do came first");
    say(&connector, "c1", "two");
    bench.launch();
    until(&connector, "an answer to what came while it slept", |world| shows(world, "c1", "echo: two"));
}

#[test]
fn a_machine_that_was_asked_to_sleep_is_back_as_soon_as_it_runs() {
    let (mut bench, connector) =
        bench(&format!("{DISCORD}{SLEEPY}    action: command\n    command: 'exit 0'\n"));
    bench.launch();
    until(&connector, "it lies down", |world| world.closed == 1);
    say(&connector, "c1", "wake up");
    until(&connector, "an answer", |world| shows(world, "c1", "echo: wake up"));
}

#[test]
fn without_a_grant_or_a_way_to_sleep_it_stays() {
    let (mut bench, connector) =
        bench(&format!("{DISCORD}{SLEEPY}    action: command\n    command: 'exit 3'\n"));
    bench.launch();
    // A machine that does not sleep is taken back at once.
    until(&connector, "it lies down and is up again", |world| {
        world.frames("going_idle").len() == 1 && world.frames("hello").len() == 2 && world.open() == 1
    });
    say(&connector, "c1", "still here?");
    until(&connector, "an answer", |world| shows(world, "c1", "echo: still here?"));
}
