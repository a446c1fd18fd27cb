//! The real program behind a connector: answered over the relay, through crashes, stops and refusals.

mod sleep;

use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use crate::support::{Bench, SOON, assert_took_at_most, eventually, failed, fine};
use petasos_fakes::connector::{Reply, World, event};
use petasos_fakes::model::{Answer, Point};
use petasos_fakes::{Connector, Gate};
use serde_json::{Value, json};

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
fn pausing_and_retrying_a_relayed_platform_asks_to_go_idle_first() {
    let (mut bench, connector) = bench(DISCORD);
    connector.grant_idle(Some(Duration::from_millis(100)));
    bench.launch();
    until(&connector, "a hello", |world| world.open() == 1);
    bench.await_state("running");
    let asked = |world: &World| world.frames("going_idle").len();
    // The connections that closed, and those of them that waited for the grant.
    let closed = |world: &World| (world.closed, world.closed_idle);
    fine(&bench.run(&["links", "retry", "discord"]));
    until(&connector, "a second hello", |world| world.frames("hello").len() == 2 && world.open() == 1);
    assert_eq!((connector.read(asked), connector.read(closed)), (1, (1, 1)));
    fine(&bench.run(&["links", "pause", "discord"]));
    until(&connector, "closed", |world| world.open() == 0);
    assert_eq!((connector.read(asked), connector.read(closed)), (2, (2, 2)));
    // A connector that never answers does not keep the owner waiting.
    connector.grant_idle(None);
    fine(&bench.run(&["links", "retry", "discord"]));
    until(&connector, "a third hello", |world| world.frames("hello").len() == 3 && world.open() == 1);
    fine(&bench.run(&["links", "pause", "discord"]));
    until(&connector, "going_idle", |world| asked(world) == 3);
    let since = Instant::now();
    until(&connector, "closed", |world| world.open() == 0);
    assert_took_at_most(Duration::from_secs(3), since);
    assert_eq!(connector.read(closed), (3, 2));
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

/// Answered and killed before the acknowledgement; the deduplication rows are lost, and the connector delivers again.
#[test]
fn reports_a_redelivered_message_after_a_salvage_instead_of_answering_it() {
    let (mut bench, connector) = bench(DISCORD);
    let sent = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let mut hello = event("discord", "c1", "dm", "hello", Some("m-hello"));
    hello["sent_at_ms"] = u64::try_from(sent.as_millis()).expect("a time").into();
    connector.push(hello.clone());
    bench.launch();
    until(&connector, "an answer", |world| shows(world, "c1", "echo: hello"));
    bench.settle();
    bench.kill();
    let raw = rusqlite::Connection::open(bench.database()).expect("a database");
    raw.execute_batch("UPDATE turns SET state = '{'; DELETE FROM seen;").expect("damaged");
    raw.close().expect("closed");
    let calls = bench.model.requests().len();
    connector.push(hello);
    bench.launch();
    until(&connector, "a notice", |world| {
        world.chats.get("c1").is_some_and(|all| all.iter().any(|it| it.text.contains("• hello")))
    });
    until(&connector, "the acknowledgement", |world| world.backlog() == 0);
    bench.settle();
    assert_eq!(bench.model.requests().len(), calls, "it did not run again");
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

const STREAMING: &str = "streaming: {enabled: true, edit_interval: 0.1}\n";

/// What was asked for in this chat, in order.
fn asked(world: &World, chat: &str) -> Vec<String> {
    let actions = world.frames("outbound").into_iter().map(|frame| &frame["action"]);
    actions
        .filter(|it| it["chat_id"] == chat)
        .map(|it| it["op"].as_str().unwrap_or_default().to_owned())
        .collect()
}

fn dead_chats(bench: &Bench) -> Vec<String> {
    let all = bench.status()["dead_chats"].clone();
    let chat = |it: &Value| it["chat_id"].as_str().unwrap_or_default().to_owned();
    all.as_array().into_iter().flatten().map(chat).collect()
}

#[test]
fn what_a_connector_declines_is_tried_in_no_other_way() {
    let (mut bench, connector) = bench(&format!("{DISCORD}{STREAMING}"));
    connector.describe("discord", |it| {
        it["supported_ops"] = json!(["send", "edit", "delete", "typing", "react"]);
    });
    bench.launch();
    // The whole answer is declined, or a piece of it while it grows.
    for (chat, early, given_up) in [("c1", false, 1), ("c2", true, 2)] {
        let (first, second) = (Gate::new(), Gate::new());
        let answer = Answer::text("one two three four").chunks(4).gate(Point::AfterDelta(2), &first);
        bench.model.script(answer.gate(Point::AfterDelta(3), &second));
        say(&connector, chat, &format!("count {chat}"));
        until(&connector, "the beginning", |world| {
            world.chats.get(chat).is_some_and(|all| all.iter().any(|it| it.text.contains("two")))
        });
        // Its first mark does not race with the refusal.
        until(&connector, "a mark", |world| asked(world, chat).iter().any(|op| op == "react"));
        let edits = |asked: &[String]| asked.iter().filter(|op| *op == "edit").count();
        let before = connector.read(|world| edits(&asked(world, chat)));
        connector.trouble(Reply::Result(json!({"success": false, "code": "egress_declined"})));
        if !early {
            second.open();
        }
        first.open();
        eventually("it is declined", || connector.troubled() == given_up);
        if early {
            // The connector's answer is known here before the turn ends.
            eventually("the chat is dead", || dead_chats(&bench).contains(&chat.to_owned()));
        }
        second.open();
        eventually("it is given up", || bench.status()["outbox"]["dead"] == given_up);
        bench.settle();
        let asked = connector.read(|world| asked(world, chat));
        let count = |op: &str| asked.iter().filter(|it| *it == op).count();
        assert_eq!((count("send"), edits(&asked), count("delete")), (1, before + 1, 0), "{asked:?}");
        // The marks of a whole answer are under way beside it; those of a later end are not asked for.
        if early {
            assert_eq!(asked.last().map(String::as_str), Some("edit"), "{asked:?}");
        }
    }
    say(&connector, "c1", "again");
    until(&connector, "whoever writes is answered", |world| shows(world, "c1", "echo: again"));
}

#[test]
fn a_running_turn_is_stopped_over_the_relay_and_others_hear_of_it() {
    let (mut bench, connector) = bench(DISCORD);
    bench.launch();
    let hang = |bench: &Bench| {
        let gate = Gate::new();
        bench.model.script(Answer::text("never said").gate(Point::Before, &gate));
        gate
    };
    let interrupt = |key: &str| {
        connector
            .say(&format!("{}\n", json!({"type": "interrupt_inbound", "session_key": key, "chat_id": "c1"})));
    };
    let running = |want: u64| eventually("that many turns", || bench_running(&bench) == Some(want));
    // By the connector, whose word counts for this conversation and for none of ours.
    let first = hang(&bench);
    say(&connector, "c1", "think");
    running(1);
    interrupt("agent:main:discord:dm:other");
    interrupt("agent:main:terminal:dm:c1");
    say(&connector, "c2", "hello");
    until(&connector, "others go on", |world| shows(world, "c2", "echo: hello"));
    assert_eq!(bench_running(&bench), Some(1), "it was another conversation's");
    interrupt("agent:main:discord:dm:c1");
    running(0);
    drop(first);
    assert!(connector.read(|world| world.frames("interrupt").is_empty()), "it knows already");
    // By its owner.
    let second = hang(&bench);
    say(&connector, "c1", "think again");
    running(1);
    say(&connector, "c1", "/stop");
    until(&connector, "it says so", |world| {
        world.chats.get("c1").is_some_and(|all| all.iter().any(|it| it.text.contains("Stopped")))
    });
    until(&connector, "the connector hears of it", |world| !world.frames("interrupt").is_empty());
    drop(second);
    let told = connector.read(|world| world.frames("interrupt")[0].clone());
    let want = json!({"type": "interrupt", "session_key": "agent:main:discord:dm:c1", "reason": null});
    assert_eq!(told, want);
    say(&connector, "c1", "and now?");
    until(&connector, "the conversation goes on", |world| shows(world, "c1", "echo: and now?"));
}

fn bench_running(bench: &Bench) -> Option<u64> {
    bench.status().pointer("/inbox/running").and_then(serde_json::Value::as_u64)
}

#[test]
fn an_interaction_is_answered_through_what_the_connector_holds_of_it() {
    let (mut bench, connector) = bench(DISCORD);
    let key = "agent:main:discord:group:c9:u1";
    connector.hold(key, "discord.interaction_token", "c9");
    let body = json!({"id": "i1", "type": 2, "data": {"name": "ask", "options": [{"type": 3, "value": "why"}]},
                      "channel_id": "c9", "guild_id": "g1", "member": {"user": {"id": "u1"}}});
    let forward = petasos_relay::Forward {
        platform: "discord".into(),
        body: body.to_string().into(),
        ..petasos_relay::Forward::default()
    };
    let id = connector.push_forward(forward.value());
    bench.launch();
    until(&connector, "an answer", |world| !world.chats.get("c9").is_none_or(Vec::is_empty));
    let told = connector.read(|world| {
        let all = world.frames("outbound").into_iter().filter(|it| it["action"]["content"].is_string());
        all.cloned().collect::<Vec<_>>()
    });
    assert_eq!((told.len(), &told[0]["action"]["op"]), (1, &json!("follow_up")), "{told:?}");
    assert_eq!(told[0]["action"]["session_key"], key);
    assert_eq!(told[0]["platform"], "discord");
    assert!(connector.read(|world| world.acks.contains(&id)));
}

#[test]
fn bot_ids_that_make_no_sense_keep_nobody_from_starting() {
    let (mut bench, connector) = bench("  relay_platforms: [discord, telegram]\n");
    for rubbish in ["{nonsense", "[1, 2]", "7"] {
        bench.launch_with(&[("GATEWAY_RELAY_BOT_IDS", rubbish)]);
        until(&connector, "a handshake", |world| world.open() == 1 && world.frames("hello").len() >= 2);
        let (_, said, _) = bench.terminate();
        assert!(said.contains("relay_bot_ids"), "{rubbish}: {said}");
        until(&connector, "its end", |world| world.open() == 0);
    }
    let hellos = connector.read(|world| world.frames("hello").into_iter().cloned().collect::<Vec<_>>());
    let want = ["discord", "telegram"].map(|it| json!({"type": "hello", "platform": it, "botId": ""}));
    assert_eq!(hellos, [want.clone(), want.clone(), want].concat());
}
