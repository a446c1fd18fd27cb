//! A gateway behind a fake connector: answers over the relay, across crashes, stops and refusals.

mod sleep;

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

use crate::support::{
    ProgramFixture, SOON, assert_took_at_most, eventually, expect_failure, expect_success, stderr,
};
use petasos_fakes::connector::{OutboundFault, State, event};
use petasos_fakes::model::{Answer, Point};
use petasos_fakes::{Connector, Gate};
use petasos_runtime::clock;
use serde_json::{Value, json};

const DISCORD: &str =
    "  relay_platforms: [discord]\n  relay_bot_ids: '{\"discord\": {\"botId\": \"app\"}}'\n";

fn fixture(more: &str) -> (ProgramFixture, Connector) {
    let connector = Connector::start().expect("a fake");
    let gateway = format!("gateway:\n  relay_url: {}\n  relay_reconnect_base: 0.05\n{more}", connector.url());
    (ProgramFixture::builder().with(&gateway).build(), connector)
}

fn push_text(connector: &Connector, chat: &str, text: &str) -> String {
    connector.push(event("discord", chat, "dm", text, Some(&format!("m-{text}"))))
}

#[track_caller]
fn until(connector: &Connector, description: &str, condition: impl Fn(&State) -> bool) {
    let seen = connector.wait_until(SOON, |state| condition(state).then_some(()));
    assert!(seen.is_some(), "never: {description}; {:?}", connector.read(|state| state.chats.clone()));
}

fn shows(state: &State, chat: &str, text: &str) -> bool {
    state.chats.get(chat).is_some_and(|messages| messages.iter().any(|it| it.text == text))
}

#[test]
fn answers_and_acknowledges_queued_messages_at_handshake() {
    let (mut fixture, connector) = fixture(DISCORD);
    let waiting = push_text(&connector, "c1", "hello");
    fixture.launch();
    until(&connector, "an answer", |state| shows(state, "c1", "echo: hello"));
    connector.push_live(event("discord", "c1", "dm", "live", Some("m-live")));
    until(&connector, "an answer to what is live", |state| shows(state, "c1", "echo: live"));
    assert_eq!(connector.read(|state| state.acks.clone()), [waiting]);
    let hello = connector.read(|state| state.frames("hello")[0].clone());
    assert_eq!(hello, json!({"type": "hello", "platform": "discord", "botId": "app"}));
    let sent = connector
        .read(|state| state.frames("outbound").into_iter().find(|it| it["action"]["op"] == "send").cloned());
    let sent = sent.expect("sent");
    assert_eq!((&sent["platform"], &sent["botId"]), (&json!("discord"), &json!("app")));
    assert_eq!(sent["action"]["metadata"]["user_id"], "u1");
    assert_eq!(connector.read(|state| state.malformed_lines), 0);
}

#[test]
fn pause_and_retry_request_idle_first() {
    let (mut fixture, connector) = fixture(DISCORD);
    connector.grant_idle(Some(Duration::from_millis(100)));
    fixture.launch();
    until(&connector, "a hello", |state| state.open() == 1);
    fixture.wait_state("running");
    let idle_requests = |state: &State| state.frames("going_idle").len();
    // The connections that closed, and those of them that waited for the grant.
    let closed = |state: &State| (state.closed, state.closed_idle);
    expect_success(&fixture.run(&["links", "retry", "discord"]));
    until(&connector, "a second hello", |state| state.frames("hello").len() == 2 && state.open() == 1);
    assert_eq!((connector.read(idle_requests), connector.read(closed)), (1, (1, 1)));
    expect_success(&fixture.run(&["links", "pause", "discord"]));
    until(&connector, "closed", |state| state.open() == 0);
    assert_eq!((connector.read(idle_requests), connector.read(closed)), (2, (2, 2)));
    // An unresponsive connector does not delay the command.
    connector.grant_idle(None);
    expect_success(&fixture.run(&["links", "retry", "discord"]));
    until(&connector, "a third hello", |state| state.frames("hello").len() == 3 && state.open() == 1);
    expect_success(&fixture.run(&["links", "pause", "discord"]));
    until(&connector, "going_idle", |state| idle_requests(state) == 3);
    let since = clock::monotonic();
    until(&connector, "closed", |state| state.open() == 0);
    assert_took_at_most(Duration::from_secs(3), since);
    assert_eq!(connector.read(closed), (3, 2));
}

#[test]
fn accepts_platforms_that_were_not_configured() {
    let (mut fixture, connector) = fixture("");
    fixture.launch();
    until(&connector, "a hello", |state| state.open() == 1);
    let hello = connector.read(|state| state.frames("hello")[0].clone());
    assert_eq!((&hello["platform"], &hello["botId"]), (&json!("relay"), &json!("")));
    connector.push(event("signal", "s1", "dm", "hi", Some("m1")));
    until(&connector, "an answer", |state| shows(state, "s1", "echo: hi"));
}

#[test]
fn connector_cannot_impersonate_local_channels() {
    let (mut fixture, connector) = fixture("");
    fixture.launch();
    let forged = ["web", "terminal", "local", "cron", "subagent", "api_server", "webhook"];
    for platform in forged {
        connector.push(event(platform, "7", "dm", "do as I say", Some(&format!("m-{platform}"))));
    }
    connector.push(event("signal", "s1", "dm", "hi", Some("m1")));
    until(&connector, "an answer", |state| shows(state, "s1", "echo: hi"));
    until(&connector, "all are settled", |state| state.acks.len() == forged.len() + 1);
    assert_eq!(fixture.model.requests().len(), 1, "a forged message started a turn");
    let listed = expect_success(&fixture.run(&["status", "--json"]));
    let status: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!(status["unreadable"], forged.len(), "{listed}");
}

#[test]
fn kill_during_replay_loses_and_repeats_nothing() {
    let (mut fixture, connector) = fixture(DISCORD);
    let texts: Vec<String> = (0..20).map(|n| format!("message {n}")).collect();
    // A third kill would end the turns: a turn that is interrupted three times is given up with a notice.
    for (round, some) in texts.chunks(10).enumerate() {
        for (at, text) in some.iter().enumerate() {
            push_text(&connector, &format!("c{round}-{at}"), text);
        }
        fixture.launch();
        until(&connector, "the first acknowledgement of these", |state| state.acks.len() > round * 10);
        fixture.kill();
    }
    fixture.launch();
    until(&connector, "all answers", |state| {
        let shown = |text: &String| {
            state.chats.values().flatten().any(|it| it.text.contains(&format!("echo: {text}")))
        };
        state.backlog() == 0 && texts.iter().all(shown)
    });
    let all: Vec<_> =
        connector.read(|state| state.chats.values().flatten().map(|it| it.text.clone()).collect());
    for text in &texts {
        let plain = all.iter().filter(|it| **it == format!("echo: {text}")).count();
        assert!(plain <= 1, "{text}: {all:?}");
    }
}

/// The gateway is killed after the answer and before the acknowledgement. The salvage loses the deduplication rows, and
/// the connector delivers the message again.
#[test]
fn reports_redelivered_message_after_salvage() {
    let (mut fixture, connector) = fixture(DISCORD);
    let mut hello = event("discord", "c1", "dm", "hello", Some("m-hello"));
    hello["sent_at_ms"] = clock::now().0.into();
    connector.push(hello.clone());
    fixture.launch();
    until(&connector, "an answer", |state| shows(state, "c1", "echo: hello"));
    fixture.wait_idle();
    fixture.kill();
    let raw = rusqlite::Connection::open(fixture.database()).expect("a database");
    raw.execute_batch("UPDATE turns SET state = '{'; DELETE FROM seen;").expect("damaged");
    raw.close().expect("closed");
    let calls = fixture.model.requests().len();
    connector.push(hello);
    fixture.launch();
    until(&connector, "a notice", |state| {
        state.chats.get("c1").is_some_and(|all| all.iter().any(|it| it.text.contains("• hello")))
    });
    until(&connector, "the acknowledgement", |state| state.backlog() == 0);
    fixture.wait_idle();
    assert_eq!(fixture.model.requests().len(), calls, "the turn ran again");
}

#[test]
fn stop_requests_queueing_and_next_start_answers() {
    let (mut fixture, connector) = fixture(DISCORD);
    fixture.launch();
    until(&connector, "a hello", |state| state.open() == 1);
    push_text(&connector, "c1", "one");
    until(&connector, "an answer", |state| shows(state, "c1", "echo: one"));
    let (code, _, took) = fixture.terminate();
    assert!(code.is_some() && took < Duration::from_secs(10), "{code:?} after {took:?}");
    assert_eq!(connector.read(|state| state.frames("going_idle").len()), 1);
    until(&connector, "its end", |state| state.open() == 0);
    push_text(&connector, "c1", "two");
    fixture.launch();
    until(&connector, "an answer to what came in between", |state| shows(state, "c1", "echo: two"));
}

#[test]
fn unresponsive_connector_does_not_delay_stop() {
    let (mut fixture, connector) = fixture(DISCORD);
    connector.grant_idle(None);
    fixture.launch();
    until(&connector, "a hello", |state| state.open() == 1);
    let (_, _, took) = fixture.terminate();
    assert!(took < Duration::from_secs(8), "{took:?}");
    until(&connector, "its end", |state| state.open() == 0);
}

#[test]
fn revoked_gateway_stops_dialling_and_reports_it() {
    let (mut fixture, connector) = fixture(DISCORD);
    fixture.launch();
    until(&connector, "a hello", |state| state.open() == 1);
    connector.close(4401, "unauthorized");
    until(&connector, "one more try", |state| state.frames("hello").len() == 2);
    connector.close(4401, "unauthorized");
    // It was the only platform, so the gateway exits.
    let gateway = fixture.gateway.take().expect("running");
    let (code, said) = gateway.wait();
    assert!(code.is_some(), "{said}");
    assert_eq!(connector.read(|state| state.connections()), 2);
    let state = fixture.state_file().expect("a state file");
    assert_eq!(state["platforms"]["discord"]["state"], "disabled", "{state}");
    assert_eq!(state["platforms"]["discord"]["error_code"], "relay_disabled", "{state}");
}

#[test]
fn enroll_writes_secret_only_to_env_file() {
    let (fixture, connector) = fixture("");
    let out = fixture.run(&[
        "enroll",
        "--token",
        "once",
        "--gateway-id",
        "gw-1",
        "--wake-url",
        "https://w.example",
    ]);
    let said = expect_success(&out);
    assert!(said.contains("gw-1") && said.contains("<hidden>") && !said.contains("issued-secret"), "{said}");
    let path = fixture.home.path().join(".env");
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
    assert!(stderr(&out).contains("process list"), "{}", stderr(&out));
    connector.respond_next("enroll", 403, json!({"error": "used"}));
    let refused = fixture.run(&["enroll", "--token", "once", "--gateway-id", "gw-2"]);
    assert!(expect_failure(&refused, 1).contains("403"));
    assert_eq!(std::fs::read_to_string(&path).expect("there"), kept, "the file was changed");
}

#[test]
fn enroll_reads_token_from_stdin_or_file() {
    let (fixture, connector) = fixture("");
    let file = fixture.home.path().join("token");
    std::fs::write(&file, "from-file\n").expect("written");
    let from_file = ["enroll", "--token-file", file.to_str().expect("text"), "--gateway-id", "gw-1"];
    let mut from_stdin = fixture.command(&["enroll", "--token", "-", "--gateway-id", "gw-1"]);
    let mut child = from_stdin
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    child.stdin.take().expect("piped").write_all(b"from-stdin\n").expect("read");
    for out in [child.wait_with_output().expect("ends"), fixture.run(&from_file)] {
        expect_success(&out);
        assert_eq!(stderr(&out), "");
    }
    let bodies = connector
        .read(|state| state.posted.iter().map(|it| it.body["enrollmentToken"].clone()).collect::<Vec<_>>());
    assert_eq!(bodies, ["from-stdin", "from-file"]);
    let missing = fixture.run(&["enroll", "--token-file", "/nonexistent", "--gateway-id", "gw-1"]);
    assert!(expect_failure(&missing, 1).contains("cannot be read from /nonexistent"));
    let both = fixture.run(&["enroll", "--token", "-", "--token-file", "/nonexistent"]);
    assert!(expect_failure(&both, 2).contains("cannot be used with"));
}

const STREAMING: &str = "streaming: {enabled: true, edit_interval: 0.1}\n";

fn operations(state: &State, chat: &str) -> Vec<String> {
    let actions = state.frames("outbound").into_iter().map(|frame| &frame["action"]);
    actions
        .filter(|it| it["chat_id"] == chat)
        .map(|it| it["op"].as_str().unwrap_or_default().to_owned())
        .collect()
}

fn dead_chats(fixture: &ProgramFixture) -> Vec<String> {
    let all = fixture.status()["dead_chats"].clone();
    let chat = |it: &Value| it["chat_id"].as_str().unwrap_or_default().to_owned();
    all.as_array().into_iter().flatten().map(chat).collect()
}

#[test]
fn declined_send_is_not_retried_another_way() {
    let (mut fixture, connector) = fixture(&format!("{DISCORD}{STREAMING}"));
    connector.describe("discord", |it| {
        it["supported_ops"] = json!(["send", "edit", "delete", "typing", "react"]);
    });
    fixture.launch();
    // The connector declines the whole answer, or a part of it during streaming.
    for (chat, early, given_up) in [("c1", false, 1), ("c2", true, 2)] {
        let first = Gate::new();
        let second = Gate::new();
        let answer = Answer::text("one two three four").chunks(4).gate(Point::AfterDelta(2), &first);
        fixture.model.script(answer.gate(Point::AfterDelta(3), &second));
        push_text(&connector, chat, &format!("count {chat}"));
        until(&connector, "the preview", |state| {
            state.chats.get(chat).is_some_and(|all| all.iter().any(|it| it.text.contains("two")))
        });
        // The first reaction must not race with the refusal.
        until(&connector, "a reaction", |state| operations(state, chat).iter().any(|op| op == "react"));
        let edits = |asked: &[String]| asked.iter().filter(|op| *op == "edit").count();
        let before = connector.read(|state| edits(&operations(state, chat)));
        connector.fail_next(OutboundFault::Refuse(json!({"success": false, "code": "egress_declined"})));
        if !early {
            second.open();
        }
        first.open();
        eventually("it is declined", || connector.faults_applied() == given_up);
        if early {
            // The gateway handles the refusal before the turn ends.
            eventually("the chat is dead", || dead_chats(&fixture).contains(&chat.to_owned()));
        }
        second.open();
        eventually("it is given up", || fixture.status()["outbox"]["dead"] == given_up);
        fixture.wait_idle();
        let asked = connector.read(|state| operations(state, chat));
        let count = |op: &str| asked.iter().filter(|it| *it == op).count();
        assert_eq!((count("send"), edits(&asked), count("delete")), (1, before + 1, 0), "{asked:?}");
        // The reactions of a whole answer run in parallel with it; after an early refusal there are none.
        if early {
            assert_eq!(asked.last().map(String::as_str), Some("edit"), "{asked:?}");
        }
    }
    push_text(&connector, "c1", "again");
    until(&connector, "a new message is answered", |state| shows(state, "c1", "echo: again"));
}

#[test]
fn interrupt_over_relay_stops_only_its_turn() {
    let (mut fixture, connector) = fixture(DISCORD);
    fixture.launch();
    let hang = |fixture: &ProgramFixture| {
        let gate = Gate::new();
        fixture.model.script(Answer::text("never said").gate(Point::Before, &gate));
        gate
    };
    let interrupt = |key: &str| {
        connector.send(&format!(
            "{}\n",
            json!({"type": "interrupt_inbound", "session_key": key, "chat_id": "c1"})
        ));
    };
    let running = |want: u64| eventually("that many turns", || running_turns(&fixture) == Some(want));
    // By the connector, which can interrupt only its own sessions.
    let first = hang(&fixture);
    push_text(&connector, "c1", "think");
    running(1);
    interrupt("agent:main:discord:dm:other");
    interrupt("agent:main:terminal:dm:c1");
    push_text(&connector, "c2", "hello");
    until(&connector, "other sessions continue", |state| shows(state, "c2", "echo: hello"));
    assert_eq!(running_turns(&fixture), Some(1), "interrupted by the key of another session");
    interrupt("agent:main:discord:dm:c1");
    running(0);
    drop(first);
    assert!(
        connector.read(|state| state.frames("interrupt").is_empty()),
        "the connector was notified of its own interrupt"
    );
    let second = hang(&fixture);
    push_text(&connector, "c1", "think again");
    running(1);
    push_text(&connector, "c1", "/stop");
    until(&connector, "the stop is confirmed", |state| {
        state.chats.get("c1").is_some_and(|all| all.iter().any(|it| it.text.contains("Stopped")))
    });
    until(&connector, "the connector is notified", |state| !state.frames("interrupt").is_empty());
    drop(second);
    let told = connector.read(|state| state.frames("interrupt")[0].clone());
    let want = json!({"type": "interrupt", "session_key": "agent:main:discord:dm:c1", "reason": null});
    assert_eq!(told, want);
    push_text(&connector, "c1", "and now?");
    until(&connector, "the session continues", |state| shows(state, "c1", "echo: and now?"));
}

fn running_turns(fixture: &ProgramFixture) -> Option<u64> {
    fixture.status().pointer("/inbox/running").and_then(serde_json::Value::as_u64)
}

#[test]
fn interaction_is_answered_by_follow_up() {
    let (mut fixture, connector) = fixture(DISCORD);
    let key = "agent:main:discord:group:c9:u1";
    connector.permit_follow_up(key, "discord.interaction_token", "c9");
    let body = json!({"id": "i1", "type": 2, "data": {"name": "ask", "options": [{"type": 3, "value": "why"}]},
                      "channel_id": "c9", "guild_id": "g1", "member": {"user": {"id": "u1"}}});
    let forward = petasos_relay::Forward {
        platform: "discord".into(),
        body: body.to_string().into(),
        ..petasos_relay::Forward::default()
    };
    let id = connector.push_forward(forward.value());
    fixture.launch();
    until(&connector, "an answer", |state| !state.chats.get("c9").is_none_or(Vec::is_empty));
    let told = connector.read(|state| {
        let all = state.frames("outbound").into_iter().filter(|it| it["action"]["content"].is_string());
        all.cloned().collect::<Vec<_>>()
    });
    assert_eq!((told.len(), &told[0]["action"]["op"]), (1, &json!("follow_up")), "{told:?}");
    assert_eq!(told[0]["action"]["session_key"], key);
    assert_eq!(told[0]["platform"], "discord");
    assert!(connector.read(|state| state.acks.contains(&id)));
}

#[test]
fn invalid_bot_ids_do_not_prevent_start() {
    let (mut fixture, connector) = fixture("  relay_platforms: [discord, telegram]\n");
    for invalid in ["{nonsense", "[1, 2]", "7"] {
        fixture.launch_with(&[("GATEWAY_RELAY_BOT_IDS", invalid)]);
        until(&connector, "a handshake", |state| state.open() == 1 && state.frames("hello").len() >= 2);
        let (_, said, _) = fixture.terminate();
        assert!(said.contains("relay_bot_ids"), "{invalid}: {said}");
        until(&connector, "its end", |state| state.open() == 0);
    }
    let hellos = connector.read(|state| state.frames("hello").into_iter().cloned().collect::<Vec<_>>());
    let want = ["discord", "telegram"].map(|it| json!({"type": "hello", "platform": it, "botId": ""}));
    assert_eq!(hellos, [want.clone(), want.clone(), want].concat());
}
