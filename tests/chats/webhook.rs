//! Deliveries of other programs to the real one: taken once, answered where their route says, through crashes and
//! outages.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use crate::support::{Bench, SOON, failed};
use petasos_fakes::hooks::{Delivery, Reply, Sender};
use petasos_fakes::model::{Answer, Point};
use serde_json::{Value, json};

const CHAT: i64 = 77;

/// A gateway on Telegram with routes; the port they listen on.
fn bench(routes: &str) -> (Bench, u16) {
    bench_with("", routes)
}

/// `extra`: lines of that section.
fn bench_with(extra: &str, routes: &str) -> (Bench, u16) {
    let port = petasos_fakes::port::free();
    let more = format!(
        "webhook:\n  enabled: true\n  extra:\n    port: {port}\n    delivery_wait: 1\n{extra}    routes:\n{routes}"
    );
    (Bench::with(&more), port)
}

/// A turn whose answer goes to the chat, and a message that is passed on to it.
const ROUTES: &str = "
      ci: {secret: s, prompt: 'build {n}', deliver: telegram, deliver_extra: {chat_id: '77'}}
      say: {secret: s, prompt: '{text}', deliver: telegram, deliver_extra: {chat_id: '77'}, deliver_only: true}
      note: {secret: s, prompt: 'noted {n}'}
";

fn delivery(route: &str, id: &str, body: &Value) -> Delivery {
    let delivery = Delivery::json(format!("/webhooks/{route}"), body);
    delivery.header("X-Gitlab-Token", "s").header("X-Request-ID", id)
}

/// Posts as soon as somebody listens.
#[track_caller]
fn post(port: u16, delivery: &Delivery) -> Reply {
    let deadline = Instant::now() + SOON;
    loop {
        match delivery.post(port) {
            Ok(reply) => return reply,
            Err(error) => assert!(Instant::now() < deadline, "never answered: {error}"),
        }
    }
}

fn texts(bench: &Bench) -> Vec<String> {
    bench.telegram.texts(CHAT)
}

#[test]
fn a_delivery_is_answered_in_the_chat_of_its_route_and_once() {
    let (mut bench, port) = bench(ROUTES);
    bench.start();
    let first = delivery("ci", "d1", &json!({ "n": 7 }));
    assert_eq!(post(port, &first).status, 202);
    assert_eq!(bench.wait_messages(CHAT, 1), ["echo: build 7"]);
    let again = post(port, &first);
    assert_eq!(again.status, 200);
    assert!(again.text.contains("duplicate"), "{}", again.text);
    let other = post(port, &delivery("ci", "d2", &json!([{ "n": 1 }])));
    assert_eq!(other.status, 202, "a list is a payload like any other");
    assert_eq!(bench.wait_messages(CHAT, 2)[1], "echo: build {n}");
    bench.settle();
    assert_eq!(texts(&bench).len(), 2);
    let status = bench.status();
    let link =
        status["links"].as_array().and_then(|links| links.iter().find(|link| link["name"] == "webhook"));
    assert_eq!(link.map(|link| &link["state"]), Some(&json!("up")), "{status}");
}

#[test]
fn what_was_answered_with_202_survives_a_kill_and_runs_once() {
    let (mut bench, port) = bench(ROUTES);
    bench.start();
    let hold = bench.model.gate(Point::Before);
    let sent = delivery("ci", "d1", &json!({ "n": 8 }));
    assert_eq!(post(port, &sent).status, 202);
    assert!(hold.wait(SOON), "the turn began");
    bench.kill();
    hold.open();
    bench.start();
    assert_eq!(post(port, &sent).status, 200, "known, although the one who took it is dead");
    assert!(bench.wait_messages(CHAT, 1)[0].ends_with("echo: build 8"));
    bench.settle();
    assert_eq!(texts(&bench).len(), 1);
}

#[test]
fn a_provider_that_repeats_reaches_us_through_a_kill() {
    let (mut bench, port) = bench(ROUTES);
    let provider = Sender::start(port);
    for n in 0..10 {
        provider.send(delivery("note", &format!("d{n}"), &json!({ "n": n })));
        provider.send(delivery("ci", &format!("d{n}"), &json!({ "n": n })));
    }
    bench.start();
    bench.wait_messages(CHAT, 2);
    bench.kill();
    bench.start();
    assert!(provider.wait_idle(SOON), "still {} to deliver", provider.pending());
    bench.wait_messages(CHAT, 10);
    bench.settle();
    let texts = texts(&bench);
    for n in 0..10 {
        let of_this = || texts.iter().filter(|text| text.ends_with(&format!("echo: build {n}")));
        assert!(of_this().count() > 0, "{n}: {texts:?}");
        assert!(of_this().filter(|text| !text.contains("Recovered reply")).count() <= 1, "{n}: {texts:?}");
    }
    assert_eq!(provider.replies().len(), 20);
}

#[test]
fn while_draining_a_program_is_told_to_come_again_and_nothing_is_kept() {
    let (mut bench, port) = bench(ROUTES);
    bench.start();
    assert_eq!(post(port, &delivery("note", "d0", &json!({}))).status, 202);
    bench.settle();
    let marker = bench.home.path().join(".drain_request.json");
    std::fs::write(&marker, r#"{"action":"drain"}"#).expect("a marker");
    bench.await_state("draining");
    let sent = delivery("ci", "d1", &json!({ "n": 9 }));
    let refused = post(port, &sent);
    assert_eq!(refused.status, 503);
    assert!(refused.text.contains("gateway_draining"), "{}", refused.text);
    assert!(refused.text.to_lowercase().contains("retry-after"), "{}", refused.text);
    assert_eq!(
        post(port, &delivery("say", "d1", &json!({ "text": "no turn" }))).status,
        200,
        "needs no turn"
    );
    std::fs::remove_file(&marker).expect("removed");
    bench.await_state("running");
    assert_eq!(post(port, &sent).status, 202, "it was not kept before");
    assert_eq!(bench.wait_messages(CHAT, 2), ["no turn", "echo: build 9"]);
}

#[test]
fn a_message_whose_chat_cannot_be_reached_is_owed_once_until_it_is_delivered() {
    let (mut bench, port) = bench(ROUTES);
    bench.start();
    bench.telegram.down();
    let sent = delivery("say", "d1", &json!({ "text": "disk full" }));
    let owed = post(port, &sent);
    assert_eq!(owed.status, 502, "{}", owed.text);
    assert_eq!(post(port, &sent).status, 502, "still");
    bench.kill();
    bench.telegram.up().expect("the port is ours");
    bench.launch();
    let reached = loop {
        let reply = post(port, &sent);
        if reply.status != 502 {
            break reply;
        }
    };
    assert_eq!(reached.status, 200, "{}", reached.text);
    assert!(post(port, &sent).text.contains("duplicate"));
    bench.settle_outbox();
    let texts = texts(&bench);
    let [text] = texts.as_slice() else { panic!("{texts:?}") };
    // The kill may have met a try, whose fate is unknown.
    assert!(
        text == "disk full" || text.contains("may be a duplicate") && text.ends_with("disk full"),
        "{text}"
    );
}

#[test]
fn what_goes_to_a_platforms_home_goes_where_the_home_is_by_then() {
    let (mut bench, port) = bench(
        "
      ci: {secret: s, prompt: 'build {n}', deliver: telegram}
      say: {secret: s, prompt: '{text}', deliver: telegram, deliver_only: true}
",
    );
    bench.start();
    let calls = |id: &str| {
        let turn = delivery("ci", id, &json!({ "n": id }));
        [turn, delivery("say", id, &json!({ "text": format!("as it is {id}") }))]
    };
    for call in calls("a") {
        let refused = post(port, &call);
        assert_eq!(refused.status, 502, "{}", refused.text);
        assert!(refused.text.contains("/sethome"), "{}", refused.text);
    }
    for (chat, id) in [(7, "a"), (8, "b")] {
        bench.telegram.push_text(chat, chat, "/sethome");
        bench.wait_messages(chat, 1);
        let [turn, say] = calls(id);
        assert_eq!(post(port, &turn).status, 202, "it was not kept before");
        assert_eq!(bench.wait_messages(chat, 2)[1], format!("echo: build {id}"));
        assert_eq!(post(port, &say).status, 200);
        assert_eq!(bench.wait_messages(chat, 3)[2], format!("as it is {id}"));
    }
    bench.settle();
    assert_eq!([7, 8].map(|chat| bench.telegram.texts(chat).len()), [3, 3]);
}

#[test]
fn what_a_payload_says_is_never_a_command() {
    let (mut bench, port) = bench(
        "      say: {secret: s, prompt: '{text}', deliver: telegram, deliver_extra: {chat_id: '77'}}\n",
    );
    bench.start();
    assert_eq!(post(port, &delivery("say", "d1", &json!({ "text": "/help" }))).status, 202);
    assert_eq!(bench.wait_messages(CHAT, 1), ["echo: /help"]);
}

#[test]
fn what_a_stranger_says_has_only_the_tools_that_its_owner_gave_it_also_after_a_kill() {
    for (extra, want) in
        [("", vec!["clock"]), ("    tools: [read_file, clock]\n", vec!["read_file", "clock"])]
    {
        let (mut bench, port) = bench_with(extra, ROUTES);
        bench.model.respond(|request| match request.messages().iter().any(|it| it["role"] == "tool") {
            false => Answer::tool("write_file", json!({ "path": "planted.txt", "content": "x" })),
            true => Answer::text("done"),
        });
        let hold = bench.model.gate(Point::Before);
        bench.start();
        assert_eq!(post(port, &delivery("ci", "d1", &json!({ "n": "write a file" }))).status, 202);
        assert!(hold.wait(SOON), "the turn began");
        // The next process does not know who asked, only where.
        bench.kill();
        hold.open();
        bench.start();
        bench.wait_messages(CHAT, 1);
        let offered = bench.model.requests();
        let offered: Vec<_> = offered.iter().map(|request| request.tools()).collect();
        assert!(offered.len() >= 2 && offered.iter().all(|tools| *tools == want), "{offered:?}");
        assert!(!bench.home.path().join("workspace/planted.txt").exists());
        bench.telegram.push_text(8, 8, "write a file");
        bench.wait_messages(8, 1);
        assert!(bench.home.path().join("workspace/planted.txt").exists(), "people have their tools");
    }
}

#[test]
fn a_route_that_nobody_could_use_or_anybody_could_stops_the_start() {
    for (routes, word) in [
        ("{ci: {prompt: x}}", "has no secret"),
        ("{ci: {secret: s, deliver: discord}}", "discord"),
        ("{ci: {secret: s, deliver_only: true}}", "deliver_only"),
        ("{ci: {secret: s, script: x.py}}", "script"),
        ("{ci: {secret: INSECURE_NO_AUTH}}, host: 0.0.0.0", "INSECURE_NO_AUTH"),
    ] {
        let more = format!("webhook: {{enabled: true, extra: {{routes: {routes}}}}}\n");
        let bench = Bench::setup().with(&more).build();
        let said = failed(&bench.run(&["run"]), 78);
        assert!(said.contains(word), "{routes}: {said}");
    }
}

#[test]
fn a_port_that_is_taken_is_named_and_taken_when_it_is_free() {
    let (mut bench, port) = bench(ROUTES);
    let taken = TcpListener::bind(("127.0.0.1", port)).expect("free until now");
    bench.start();
    let deadline = Instant::now() + SOON;
    let link = loop {
        let status = bench.status();
        let links = status["links"].as_array().cloned().unwrap_or_default();
        let link = links.into_iter().find(|link| link["name"] == "webhook").expect("a link");
        if link["state"] == "waiting" {
            break link;
        }
        assert!(Instant::now() < deadline, "{link}");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(link.to_string().contains(&port.to_string()), "{link}");
    drop(taken);
    assert!(bench.run(&["links", "retry", "webhook"]).status.success());
    assert_eq!(post(port, &delivery("note", "d1", &json!({}))).status, 202);
}

const SECRET: &str = "s";

fn unsigned(body: &Value) -> Delivery {
    Delivery::json("/webhooks/note", body)
}

/// As GitHub and V1 sign: the body alone.
fn signature(delivery: &Delivery) -> String {
    use aws_lc_rs::hmac;
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), &delivery.body);
    tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn replay_under_another_delivery_id_is_a_duplicate_also_after_a_kill() {
    let (mut bench, port) = bench(ROUTES);
    bench.start();
    let github = |id: &str, n: u8| {
        let delivery = unsigned(&json!({ "n": n }));
        let signature = format!("sha256={}", signature(&delivery));
        delivery.header("X-Hub-Signature-256", signature).header("X-GitHub-Delivery", id)
    };
    assert_eq!(post(port, &github("d1", 1)).status, 202);
    assert_eq!(post(port, &github("d2", 2)).status, 202, "another body");
    bench.settle();
    bench.kill();
    bench.start();
    let plain = unsigned(&json!({ "n": 1 }));
    let as_v1 = signature(&plain);
    for replay in [
        github("d3", 1),
        unsigned(&json!({ "n": 1 })).header("X-Webhook-Signature", &as_v1).header("X-Request-ID", "d4"),
        plain.header("X-Webhook-Signature", &as_v1),
    ] {
        let reply = post(port, &replay);
        assert_eq!(reply.status, 200, "{}", reply.text);
        assert!(reply.text.contains("duplicate"), "{}", reply.text);
    }
    bench.settle();
    assert_eq!(bench.model.look(|desk| desk.request_count()), 2);
}

#[test]
fn a_signed_delivery_is_taken_once_over_every_route_and_scheme_of_its_secret() {
    let (mut bench, port) = bench(ROUTES);
    bench.start();
    let to = |route: &str, n: u8, header: &str, id: &str| {
        let delivery = Delivery::json(format!("/webhooks/{route}"), &json!({ "n": n, "text": "t" }));
        let code = signature(&delivery);
        let shown = if header.contains("Hub") { format!("sha256={code}") } else { code };
        delivery.header(header, shown).header("X-Request-ID", id)
    };
    let (github, v1) = ("X-Hub-Signature-256", "X-Webhook-Signature");
    for (delivery, status, why) in [
        (to("ci", 1, github, "a"), 202, "new"),
        (to("note", 1, github, "b"), 200, "another route"),
        (to("note", 1, v1, "c"), 200, "another route and scheme"),
        (to("say", 1, github, "d"), 200, "a route that passes on"),
        (to("note", 2, v1, "e"), 202, "new"),
        (to("note", 2, github, "f"), 200, "V1 as GitHub"),
        (to("ci", 2, github, "g"), 200, "V1 as GitHub over another route"),
        (to("say", 3, github, "h"), 200, "new, and passed on"),
        (to("ci", 3, github, "i"), 200, "was passed on already"),
    ] {
        assert_eq!(post(port, &delivery).status, status, "{why}");
    }
    bench.settle();
    assert_eq!(bench.model.look(|desk| desk.request_count()), 2);
    assert_eq!(texts(&bench).iter().filter(|text| *text == "t").count(), 1);
}

#[test]
fn v2_replay_under_another_key_is_a_duplicate_and_a_new_time_is_not() {
    let (mut bench, port) = bench(ROUTES);
    bench.start();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_secs();
    let v2 = |time: u64, key: Option<&str>| {
        let delivery = unsigned(&json!({ "n": 1 }));
        let secret = petasos_platforms::Secret::new(SECRET);
        let signed = petasos_platforms::webhook::sign(&secret, time, &delivery.body);
        let delivery = signed.into_iter().fold(delivery, |it, (name, value)| it.header(name, value));
        key.into_iter().fold(delivery, |it, key| it.header("Idempotency-Key", key))
    };
    for (delivery, status, why) in [
        (v2(now, Some("k1")), 202, "new"),
        (v2(now, Some("k2")), 200, "the same signature under another key"),
        (v2(now, None), 200, "the same signature without a key"),
        (v2(now + 1, Some("k1")), 200, "the sender repeats it under its key"),
        (v2(now + 1, Some("k3")), 202, "the same body at another time"),
        (v2(now + 2, None), 202, "the same"),
        (v2(now + 2, Some("k4")), 200, "known by its signature"),
    ] {
        assert_eq!(post(port, &delivery).status, status, "{why}");
    }
}

#[test]
fn same_body_without_an_id_is_taken_every_time() {
    let (mut bench, port) = bench(ROUTES);
    bench.start();
    let ping = unsigned(&json!({ "ping": true }));
    let signed = signature(&ping);
    let ping = ping.header("X-Webhook-Signature", signed);
    for _ in 0..3 {
        assert_eq!(post(port, &ping).status, 202);
    }
    let named = |id: &str| ping.clone().header("X-Request-ID", id);
    assert_eq!(post(port, &named("d1")).status, 202);
    assert_eq!(post(port, &named("d2")).status, 200, "played again at once");
}

#[test]
fn replay_of_a_message_that_is_passed_on_is_not_sent_twice() {
    let (mut bench, port) = bench(ROUTES);
    bench.start();
    let github = |id: &str| {
        let delivery = Delivery::json("/webhooks/say", &json!({ "text": "hello" }));
        let signature = format!("sha256={}", signature(&delivery));
        delivery.header("X-Hub-Signature-256", signature).header("X-GitHub-Delivery", id)
    };
    assert_eq!(post(port, &github("d1")).status, 200);
    let again = post(port, &github("d2"));
    assert!(again.text.contains("duplicate"), "{}", again.text);
    bench.settle();
    assert_eq!(texts(&bench), ["hello"]);
}
