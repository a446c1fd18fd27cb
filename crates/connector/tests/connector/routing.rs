//! Routing of authors to instances, and how gateways change it.

use crate::support::{ANN, BOT, Bench, SOON, body, discord_at, platform, until, wait_closed, wait_texts};
use petasos_core::Millis;
use petasos_fakes::Discord;
use petasos_fakes::discord::Incoming;
use petasos_fakes::hooks::WebhookResponse;
use petasos_fakes::relay::{Acks, Peer, fresh_token};
use serde_json::{Value, json};

const ROOM: u64 = 70;

fn a_guild() -> Discord {
    let fake = Discord::start().expect("a fake");
    fake.add_guild(1);
    fake.add_channel(1, ROOM, "general");
    fake
}

#[track_caller]
fn ask(peer: &Peer, request: &str, action: Value) -> Value {
    peer.outbound(request, &action);
    peer.wait_result(request, SOON).expect("an answer")
}

fn send(chat: &str, text: &str) -> Value {
    json!({"op": "send", "chat_id": chat, "content": text, "reply_to": null, "metadata": {}})
}

#[test]
fn principals_override_the_scope_policy() {
    let fake = a_guild();
    let mut bench = Bench::idle();
    let secret = bench.add_gateway("gw-1", "t1", "i1", None);
    bench.write(|tx| tx.grant_scope(platform("discord"), "1", &"i1".into()));
    bench.start(|config| config.adapters.push(discord_at(&fake)));
    fake.wait_until(SOON, |world| (world.frames(2).count() == 1).then_some(()))
        .expect("the connector listens");
    let name = |policy: &str| {
        let bearer = fresh_token("gw-1", &secret);
        let body = json!({"platform": "discord", "userId": "6", "policy": policy, "instanceId": "i2"});
        bench.post("/manage/principal", Some(&bearer), &body).status
    };
    assert_eq!((name("perhaps"), bench.post("/manage/principal", None, &json!({})).status), (400, 401));
    // Each round: an unaddressed message, an addressed one, and one of another author, who is always allowed.
    let rounds: [(Option<&str>, &[&str]); 4] = [
        (None, &["to you 0"]),
        (Some("allow"), &["among us 1", "to you 1"]),
        (Some("deny"), &[]),
        (Some("default"), &["to you 3"]),
    ];
    let mut want: Vec<String> = vec![];
    for (round, (policy, heard)) in rounds.into_iter().enumerate() {
        if let Some(policy) = policy {
            assert_eq!(name(policy), 200);
        }
        fake.push_text(ROOM, 6, format!("among us {round}"));
        fake.push(Incoming::text(ROOM, 6, format!("to you {round}")).mentioning_bot());
        fake.push(Incoming::text(ROOM, 8, format!("me too {round}")).mentioning_bot());
        want.extend(heard.iter().map(|text| (*text).to_owned()));
        want.push(format!("me too {round}"));
        bench.wait_depth("i1", want.len() as u64);
    }
    let peer = bench.dial("gw-1", &secret, Acks::All);
    peer.hello("discord", "");
    let all = peer.wait_until(SOON, |heard| (heard.texts().len() == want.len()).then(|| heard.texts()));
    for (got, want) in all.expect("everything").iter().zip(&want) {
        assert!(got.contains(want.as_str()), "{got} for {want}");
    }
}

#[test]
fn routes_direct_messages_to_the_chosen_instance() {
    let mut bench = Bench::idle();
    let first = bench.add_gateway("gw-1", "t1", "i1", None);
    let second = bench.add_gateway("gw-2", "t1", "i2", None);
    let stranger = bench.add_gateway("gw-3", "t2", "i3", None);
    bench.write(|tx| tx.bind_author(platform("telegram"), &ANN.to_string(), &"i1".into()));
    bench.start(|_| {});
    let take = |gateway: &str, secret: &str, user: i64| {
        let body = json!({"platform": "telegram", "userId": user.to_string()});
        bench.post("/manage/dm-default", Some(&fresh_token(gateway, secret)), &body).status
    };
    assert_eq!(take("gw-3", &stranger, ANN), 403, "another tenant's person");
    assert_eq!(take("gw-2", &second, 99), 403, "an unbound person");
    let one = bench.greet("gw-1", &first, Acks::All);
    bench.write_message("before");
    wait_texts(&one, &["before"]);
    assert_eq!(take("gw-2", &second, ANN), 200);
    let two = bench.greet("gw-2", &second, Acks::All);
    bench.write_message("after");
    wait_texts(&two, &["after"]);
    bench.telegram.push_text(-100, ANN, "among others");
    wait_texts(&one, &["before", "among others"]);
    assert_eq!(ask(&two, "a", send(&ANN.to_string(), "hello"))["success"], true);
}

#[test]
fn deprovisioning_closes_sockets_and_drops_bindings() {
    let mut bench = Bench::idle();
    let first = bench.add_gateway("gw-1", "t1", "i1", None);
    let second = bench.add_gateway("gw-2", "t1", "i2", None);
    bench.write(|tx| {
        tx.bind_author(platform("telegram"), &ANN.to_string(), &"i1".into())?;
        tx.bind_author(platform("telegram"), "8", &"i2".into())
    });
    bench.start(|_| {});
    let one = bench.greet("gw-1", &first, Acks::All);
    let two = bench.greet("gw-2", &second, Acks::All);
    bench.write_message("hello");
    wait_texts(&one, &["hello"]);
    let bearer = fresh_token("gw-1", &first);
    let gone = bench.post("/manage/deprovision", Some(&bearer), &json!({"instanceId": "i2"}));
    assert_eq!((gone.status, body(&gone)["ok"].clone()), (200, json!(true)));
    assert_eq!(wait_closed(&one, 4401), "unauthorized");
    assert_eq!(bench.post("/manage/link", Some(&bearer), &json!({})).status, 401);
    let again = bench.dial("gw-1", &first, Acks::All);
    again.hello("telegram", BOT);
    wait_closed(&again, 4401);
    bench.write_message("is anyone there?");
    bench.telegram.push_text(8, 8, "I am");
    wait_texts(&two, &["I am"]);
    assert_eq!(bench.depth("i1").entries, 0, "their author is not bound");
}

#[test]
fn relinked_author_gets_no_messages_of_first_instance() {
    let mut bench = Bench::idle();
    let first = bench.add_gateway("gw-1", "t1", "i1", None);
    let second = bench.add_gateway("gw-2", "t2", "i2", None);
    bench.start(|_| {});
    let link = |gateway: &str, secret: &str, answers: usize| {
        let told = bench.post("/manage/link", Some(&fresh_token(gateway, secret)), &json!({}));
        bench.write_message(format!("/link {}", body(&told)["code"].as_str().expect("a code")));
        until("they are told", || bench.telegram.texts(ANN).len() >= answers);
    };
    link("gw-1", &first, 1);
    let one = bench.greet("gw-1", &first, Acks::All);
    bench.write_message("hello");
    wait_texts(&one, &["hello"]);
    let chat = ANN.to_string();
    let sent = ask(&one, "a", send(&chat, "yes?"));
    assert_eq!(sent["success"], true);
    link("gw-2", &second, 3);
    assert_eq!(ask(&one, "b", send(&chat, "come back"))["code"], "egress_declined");
    let edit = json!({"op": "edit", "chat_id": chat, "message_id": sent["message_id"], "content": "x", "metadata": {}});
    assert_eq!(ask(&one, "c", edit)["code"], "egress_declined");
    let two = bench.greet("gw-2", &second, Acks::All);
    assert_eq!(ask(&two, "a", send(&chat, "welcome"))["success"], true, "its number is its own");
    assert_eq!(bench.telegram.texts(ANN).len(), 4);
}

#[test]
fn instances_edit_only_their_own_messages() {
    let fake = a_guild();
    let mut bench = Bench::idle();
    let first = bench.add_gateway("gw-1", "t1", "i1", None);
    let second = bench.add_gateway("gw-2", "t2", "i2", None);
    bench.write(|tx| {
        tx.bind_author(platform("discord"), "5", &"i1".into())?;
        tx.bind_author(platform("discord"), "6", &"i2".into())
    });
    bench.start(|config| config.adapters.push(discord_at(&fake)));
    let greet = |gateway: &str, secret: &str| {
        let peer = bench.dial(gateway, secret, Acks::All);
        peer.hello("discord", "");
        peer.wait_until(SOON, |heard| heard.of_type("descriptor").next().map(|_| ())).expect("a descriptor");
        peer
    };
    let one = greet("gw-1", &first);
    let two = greet("gw-2", &second);
    fake.wait_until(SOON, |world| (world.frames(2).count() == 1).then_some(()))
        .expect("the connector listens");
    fake.push_text(ROOM, 5, "hello");
    wait_texts(&one, &["hello"]);
    fake.push_text(ROOM, 6, "me too");
    wait_texts(&two, &["me too"]);
    let sent = ask(&one, "a", send("70", "mine"));
    let change = |op: &str| json!({"op": op, "chat_id": "70", "message_id": sent["message_id"], "content": "changed", "metadata": {}});
    for op in ["edit", "delete"] {
        let answer = ask(&two, op, change(op));
        assert_eq!((&answer["success"], &answer["code"]), (&json!(false), &json!("not_found")), "{op}");
    }
    assert_eq!(fake.texts(ROOM), ["mine"]);
    assert_eq!(ask(&one, "b", change("edit"))["success"], true);
    assert_eq!(fake.texts(ROOM), ["changed"]);
    // A guild belongs to the first instance that has an author in it.
    let take = |gateway: &str, secret: &str, scope: &str| {
        let body = json!({"platform": "discord", "scopeId": scope});
        bench.post("/manage/scope", Some(&fresh_token(gateway, secret)), &body).status
    };
    assert_eq!(
        (take("gw-2", &second, "2"), take("gw-2", &second, "1"), take("gw-1", &first, "1")),
        (403, 200, 409)
    );
}

#[test]
fn status_counts_superseded_sockets_and_dead_letters() {
    let (bench, secret) = Bench::single_with(|config| config.terms.most_entries = 1);
    let kept = bench.greet("gw-1", &secret, Acks::None);
    bench.write_message("kept");
    wait_texts(&kept, &["kept"]);
    bench.write_message("not kept");
    bench.telegram.push_text(8, 8, "nor this");
    bench.write_message("nor that");
    bench.wait_taken();
    until("both chats are told", || bench.telegram.texts(ANN).len() + bench.telegram.texts(8).len() == 2);
    assert_eq!((bench.telegram.texts(ANN).len(), bench.telegram.texts(8).len()), (1, 1));
    let counts = |put_aside: u64, superseded: u64| {
        until("an onlooker sees it", || {
            let status = petasos_connector::ConnectorStatus::read(bench.home.path());
            let seen = status.map(|it| it.0["instances"][0].clone()).unwrap_or_default();
            seen["put_aside"] == put_aside && seen["superseded"] == superseded
        });
    };
    counts(3, 0);
    let newer = bench.greet("gw-1", &secret, Acks::None);
    wait_closed(&kept, 4409);
    counts(3, 1);
    drop(newer);
}

/// Two tenants and their provisioning tokens.
fn two_tenants(bench: &Bench) -> (String, String) {
    bench.write(|tx| {
        let at = Millis(1);
        tx.add_tenant(&"t1".into(), at)?;
        tx.add_tenant(&"t2".into(), at)?;
        Ok((tx.add_identity(&"t1".into(), at)?, tx.add_identity(&"t2".into(), at)?))
    })
}

fn provision(bench: &Bench, token: &str, gateway: &str, scopes: &[&str]) -> WebhookResponse {
    let body = json!({"gatewayId": gateway, "platform": "telegram", "botId": BOT, "gatewayEndpoint": "",
                      "routeKeys": scopes});
    bench.post("/relay/provision", Some(token), &body)
}

#[test]
fn provisioning_refuses_scopes_without_own_authors() {
    const GROUP: i64 = -100;
    let mut bench = Bench::idle();
    let (ours, theirs) = two_tenants(&bench);
    bench.start(|_| {});
    let telegram = platform("telegram");
    let holder = |bench: &Bench| bench.read(|it| it.instance_of_scope(telegram, "-100")).map(|id| id.0);
    let stranger = provision(&bench, &theirs, "gw-t", &["-100"]);
    assert_eq!((stranger.status, &body(&stranger)["routeKeys"]), (200, &json!([])));
    assert_eq!(holder(&bench), None, "an unclaimed group stays unclaimed");
    let secret = body(&stranger)["secret"].as_str().expect("a secret").to_owned();
    let spy = bench.greet("gw-t", &secret, Acks::All);

    // A member of the other tenant has written in the group.
    let answer = provision(&bench, &ours, "gw-o", &["-100"]);
    assert_eq!(body(&answer)["routeKeys"], json!([]));
    let secret = body(&answer)["secret"].as_str().expect("a secret").to_owned();
    bench.write(|tx| tx.bind_author(telegram, &ANN.to_string(), &"gw-o".into()));
    let own = bench.greet("gw-o", &secret, Acks::All);
    bench.telegram.push_text(GROUP, ANN, "among others");
    wait_texts(&own, &["among others"]);
    assert_eq!(body(&provision(&bench, &ours, "gw-o", &["-100"]))["routeKeys"], json!(["-100"]));
    assert_eq!(body(&provision(&bench, &theirs, "gw-t", &["-100"]))["routeKeys"], json!([]));
    assert_eq!(holder(&bench).as_deref(), Some("gw-o"));
    assert!(spy.read(|heard| heard.of_type("inbound").next().is_none()), "the stranger heard something");

    // The owner's assignment overrides grants and is not undone by another request.
    bench.write(|tx| tx.assign_scope(telegram, "-100", &"gw-t".into()));
    assert_eq!(holder(&bench).as_deref(), Some("gw-t"));
    assert!(bench.write(|tx| tx.revoke_scope(telegram, "-100")));
    assert_eq!(body(&provision(&bench, &theirs, "gw-t", &["-100"]))["routeKeys"], json!([]));
    assert_eq!(holder(&bench), None);
}

#[test]
fn limits_provisioning_per_tenant() {
    let mut bench = Bench::idle();
    let (ours, theirs) = two_tenants(&bench);
    bench.start(|config| config.max_gateways = 3);
    let statuses: Vec<u16> =
        (0..5).map(|at| provision(&bench, &theirs, &format!("gw-{at}"), &[]).status).collect();
    assert_eq!(statuses, [200, 200, 200, 409, 409]);
    assert_eq!(provision(&bench, &theirs, "gw-1", &[]).status, 200, "what is there is given again");
    // Released names count for a while, so that a loop cannot create rows without limit.
    let secret =
        body(&provision(&bench, &theirs, "gw-0", &[]))["secret"].as_str().expect("a secret").to_owned();
    let bearer = fresh_token("gw-0", &secret);
    assert_eq!(bench.post("/manage/deprovision", Some(&bearer), &json!({})).status, 200);
    assert_eq!(provision(&bench, &theirs, "gw-9", &[]).status, 409);
    bench.write(|tx| tx.drop_revoked_before(Millis(1 << 60)));
    assert_eq!(provision(&bench, &theirs, "gw-9", &[]).status, 200, "after a month there is room again");
    assert_eq!(provision(&bench, &ours, "ours", &[]).status, 200, "others are not limited by it");
    let enrollment = bench.write(|tx| tx.add_enrollment(&"t2".into(), Millis(1 << 60)));
    let body = json!({"enrollmentToken": enrollment, "gatewayId": "gw-e"});
    assert_eq!(bench.post("/relay/enroll", None, &body).status, 409, "nor is enrolling a way around");

    let mut asked = 0;
    let refused = loop {
        let reply = provision(&bench, &theirs, "gw-1", &[]);
        if reply.status != 200 {
            break reply;
        }
        asked += 1;
        assert!(asked < 100, "never too often");
    };
    assert_eq!(refused.status, 429, "{}", refused.text);
    assert_eq!(provision(&bench, &ours, "ours", &[]).status, 200);
}

#[test]
fn tenants_cannot_take_over_the_single_instance() {
    let mut bench = Bench::idle();
    let (ours, theirs) = two_tenants(&bench);
    bench.start(|config| config.single_instance = Some("everyone".into()));
    let body = json!({"gatewayId": "gw-t", "platform": "telegram", "instanceId": "everyone"});
    for token in [&ours, &theirs] {
        assert_eq!(bench.post("/relay/provision", Some(token), &body).status, 409);
    }
    bench.write(|tx| {
        tx.ensure_instance(&"everyone".into(), &"t1".into(), Millis(1))?;
        tx.add_gateway(&"gw-1".into(), &"everyone".into(), Millis(1)).map(drop)
    });
    assert_eq!(bench.post("/relay/provision", Some(&theirs), &body).status, 409);
    assert_eq!(bench.post("/relay/provision", Some(&ours), &body).status, 200);
}
