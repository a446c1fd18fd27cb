//! Isolation of tenants, with Discord and Slack behind the connector.

use crate::support::{BOT, Bench, SOON, discord_at, platform, wait_closed, wait_texts};
use petasos_core::Millis;
use petasos_fakes::discord::Incoming;
use petasos_fakes::relay::{Acks, Peer};
use petasos_fakes::{Discord, Slack};
use petasos_platforms::{Adapter, slack};
use serde_json::{Value, json};

const ROOM: u64 = 70;
const THEIRS: u64 = 80;
const DIRECT: u64 = 50;
const ANN: u64 = 5;

fn slack_at(fake: &Slack) -> Adapter {
    let mut config = slack::Config::new("xapp-1-A1-2-secret", petasos_fakes::slack::TOKEN);
    config.api_base = fake.api_base();
    Adapter::Slack(slack::Slack::new(config).expect("valid"))
}

fn greet(bench: &Bench, gateway: &str, secret: &str, platform: &str) -> Peer {
    let peer = bench.dial(gateway, secret, Acks::All);
    peer.hello(platform, "");
    peer.wait_until(SOON, |heard| heard.of_type("descriptor").next().map(|_| ())).expect("a descriptor");
    peer
}

#[track_caller]
fn ask(peer: &Peer, request: &str, action: Value) -> Value {
    peer.outbound(request, &action);
    peer.wait_result(request, SOON).expect("an answer")
}

fn send(chat: &str, reply_to: Option<&str>, metadata: Value) -> Value {
    json!({"op": "send", "chat_id": chat, "content": "psst", "reply_to": reply_to, "metadata": metadata})
}

#[test]
fn writes_only_to_threads_of_the_instance() {
    let fake = Discord::start().expect("a fake");
    fake.add_guild(1);
    fake.add_channel(1, ROOM, "general");
    fake.add_thread(1, ROOM, 71, "ours");
    fake.add_channel(1, THEIRS, "theirs");
    fake.add_direct(DIRECT);
    let mut bench = Bench::idle();
    let secret = bench.add_gateway("gw-1", "t1", "i1", None);
    bench.write(|tx| tx.bind_author(platform("discord"), &ANN.to_string(), &"i1".into()));
    bench.start(|config| config.adapters.push(discord_at(&fake)));
    let peer = greet(&bench, "gw-1", &secret, "discord");
    fake.wait_until(SOON, |world| (world.frames(2).count() == 1).then_some(()))
        .expect("the connector listens");
    fake.push_text(DIRECT, ANN, "here");
    fake.push_text(71, ANN, "and in our thread");
    wait_texts(&peer, &["here", "and in our thread"]);
    let before = fake.read(|world| world.calls().count());
    let stray = [
        send("50", None, json!({"thread_id": "80"})),
        send("50", None, json!({"thread_id": 80})),
        send("50", None, json!({"thread_id": "71"})),
        send("80", None, json!({})),
        json!({"op": "typing", "chat_id": "50", "metadata": {"thread_id": "80"}}),
        json!({"op": "edit", "chat_id": "50", "message_id": "9", "content": "x", "metadata": {"thread_id": "80"}}),
        json!({"op": "delete", "chat_id": "50", "message_id": "9", "metadata": {"thread_id": "80"}}),
    ];
    for (at, action) in stray.into_iter().enumerate() {
        assert_eq!(ask(&peer, &format!("s{at}"), action.clone())["code"], "egress_declined", "{action}");
    }
    for id in ["../../80", "9/../../../80", "9?x", "9#", "", "9%2f..", "123456789012345678901"] {
        let action = json!({"op": "delete", "chat_id": "50", "message_id": id, "metadata": {}});
        let answer = ask(&peer, &format!("d{id}"), action);
        assert_eq!((&answer["success"], &answer["code"]), (&json!(false), &json!("not_found")), "{id:?}");
    }
    assert_eq!(fake.read(|world| world.calls().count()), before, "nothing was asked of Discord");
    assert_eq!(ask(&peer, "ours", send("71", None, json!({"thread_id": "71"})))["success"], true);
    assert_eq!(ask(&peer, "direct", send("50", None, json!({})))["success"], true);
    assert_eq!((fake.texts(71).len(), fake.texts(DIRECT).len(), fake.texts(THEIRS).len()), (1, 1, 0));
}

#[test]
fn keeps_interaction_urls_in_the_vault() {
    let fake = Slack::start().expect("a fake");
    let mut bench = Bench::idle();
    let secret = bench.add_gateway("gw-1", "t1", "i1", None);
    let other = bench.add_gateway("gw-2", "t2", "i2", None);
    for (user, instance) in [("U7", "i1"), ("U8", "i2")] {
        bench.write(|tx| tx.bind_author(platform("slack"), user, &instance.into()));
    }
    bench.start(|config| config.adapters.push(slack_at(&fake)));
    let peer = greet(&bench, "gw-1", &secret, "slack");
    let stranger = greet(&bench, "gw-2", &other, "slack");
    let url = fake.push_command("C1", "U7", "/petasos", "status");
    wait_texts(&peer, &["/status"]);
    fake.push_command("C1", "U8", "/petasos", "status");
    wait_texts(&stranger, &["/status"]);
    let frame = peer.read(|heard| heard.of_type("inbound").next().cloned()).expect("an event");
    assert!(!frame.to_string().contains("://"), "{frame}");
    let name = frame["event"]["message_id"].as_str().expect("a name").to_owned();
    // Raw addresses, unknown names, and names of another chat are refused.
    for (request, reply_to) in [("a", url.as_str()), ("b", "http://10.0.0.1/latest"), ("c", "ftp://x")] {
        assert_eq!(ask(&peer, request, send("C1", Some(reply_to), json!({})))["code"], "egress_declined");
    }
    for request in ["d", "e"] {
        assert_eq!(ask(&stranger, request, send("C1", Some(&name), json!({})))["code"], "refused");
    }
    let follow = |session: &str| json!({"op": "follow_up", "session_key": session, "kind": "slack.response_url", "content": "more", "metadata": {}});
    let session = "agent:main:slack:group:C1:U7";
    assert_eq!(ask(&stranger, "f", follow(session))["code"], "refused", "another tenant's session");
    assert!(fake.read(|world| world.responses().is_empty()));
    assert_eq!(ask(&peer, "g", send("C1", Some(&name), json!({})))["success"], true);
    assert_eq!(ask(&peer, "h", follow(session))["success"], true);
    let told = fake.read(|world| world.responses().iter().map(|it| it.url.clone()).collect::<Vec<_>>());
    assert_eq!(told, [url.clone(), url]);
    assert!(fake.visible("C1").is_empty(), "for its author's eyes only");
}

#[test]
fn revocation_before_hello_closes_the_socket() {
    let (bench, secret) = Bench::single();
    let peer = bench.dial("gw-1", &secret, Acks::All);
    bench.write_message("for another tenant");
    bench.wait_taken();
    let now = Millis(petasos_fakes::relay::now() * 1000);
    bench.write(|tx| tx.revoke_gateway(&"gw-1".into(), now));
    peer.hello("telegram", BOT);
    assert_eq!(wait_closed(&peer, 4401), "unauthorized");
    assert!(peer.read(|heard| heard.frames.is_empty()), "not even a descriptor");
    assert_eq!(bench.depth("i1").entries, 1);
}

#[test]
fn drops_events_outside_the_policy() {
    let fake = Discord::start().expect("a fake");
    fake.add_guild(1);
    fake.add_channel(1, ROOM, "general");
    let mut bench = Bench::idle();
    let secret = bench.add_gateway("gw-1", "t1", "i1", None);
    bench.write(|tx| tx.grant_scope(platform("discord"), "1", &"i1".into()));
    bench.start(|config| config.adapters.push(discord_at(&fake)));
    let listens = fake.wait_until(SOON, |world| (world.frames(2).count() == 1).then_some(()));
    listens.expect("the connector is there");
    let policy = |require: bool, free: &[&str]| {
        let bearer = petasos_fakes::relay::fresh_token("gw-1", &secret);
        let body = json!({"platform": "discord", "requireAddress": require, "freeResponseScopes": free, "allowOtherBots": false});
        assert_eq!(bench.post("/relay/policy", Some(&bearer), &body).status, 200);
    };
    // Each is followed by a wanted event, so that its routing is known.
    let mut want = vec![];
    let rounds: [(Option<bool>, &[&str], bool); 5] = [
        (None, &[], false),
        (Some(false), &[], true),
        (Some(true), &[], false),
        (Some(true), &["70"], true),
        (Some(true), &["1"], true),
    ];
    for (round, (require, free, heard)) in rounds.into_iter().enumerate() {
        if let Some(require) = require {
            policy(require, free);
        }
        fake.push_text(ROOM, 6, format!("among us {round}"));
        fake.push(Incoming::text(ROOM, 6, format!("you there {round}")).mentioning_bot());
        if heard {
            want.push(format!("among us {round}"));
        }
        want.push(format!("you there {round}"));
        bench.wait_depth("i1", want.len() as u64);
    }
    let peer = greet(&bench, "gw-1", &secret, "discord");
    let all = peer.wait_until(SOON, |heard| (heard.texts().len() == want.len()).then(|| heard.texts()));
    let all = all.expect("everything that is wanted");
    for (got, want) in all.iter().zip(&want) {
        assert!(got.contains(want.as_str()), "{all:?}");
    }
}
