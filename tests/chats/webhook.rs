//! Webhook deliveries: accepted once and answered in the chat of their route, across crashes and outages.

use std::net::TcpListener;

use crate::support::{ProgramFixture, SOON, eventually, expect_failure};
use petasos_fakes::hooks::{Sender, WebhookDelivery, WebhookResponse};
use petasos_fakes::model::{Answer, Point};
use petasos_runtime::clock;
use serde_json::{Value, json};

const CHAT: i64 = 77;

/// A gateway with Telegram and webhook routes, and the port of its listener.
fn fixture(routes: &str) -> (ProgramFixture, u16) {
    fixture_with("", routes)
}

/// `extra`: further lines of the `extra` section.
fn fixture_with(extra: &str, routes: &str) -> (ProgramFixture, u16) {
    let port = petasos_fakes::port::free();
    let more = format!(
        "webhook:\n  enabled: true\n  extra:\n    port: {port}\n    delivery_wait: 1\n{extra}    routes:\n{routes}"
    );
    (ProgramFixture::with_config(&more), port)
}

/// Routes with a turn that answers in the chat, with a forwarded message, and with a turn without delivery.
const ROUTES: &str = "
      ci: {secret: s, prompt: 'build {n}', deliver: telegram, deliver_extra: {chat_id: '77'}}
      say: {secret: s, prompt: '{text}', deliver: telegram, deliver_extra: {chat_id: '77'}, deliver_only: true}
      note: {secret: s, prompt: 'noted {n}'}
";

fn delivery(route: &str, id: &str, body: &Value) -> WebhookDelivery {
    let delivery = WebhookDelivery::json(format!("/webhooks/{route}"), body);
    delivery.header("X-Gitlab-Token", "s").header("X-Request-ID", id)
}

/// Posts as soon as the port is open.
#[track_caller]
fn post(port: u16, delivery: &WebhookDelivery) -> WebhookResponse {
    eventually("the webhook responds", || delivery.post(port).ok())
}

fn texts(fixture: &ProgramFixture) -> Vec<String> {
    fixture.telegram.texts(CHAT)
}

#[test]
fn webhook_delivery_is_answered_once_in_its_route_chat() {
    let (mut fixture, port) = fixture(ROUTES);
    fixture.start();
    let first = delivery("ci", "d1", &json!({ "n": 7 }));
    assert_eq!(post(port, &first).status, 202);
    assert_eq!(fixture.wait_messages(CHAT, 1), ["echo: build 7"]);
    let again = post(port, &first);
    assert_eq!(again.status, 200);
    assert!(again.text.contains("duplicate"), "{}", again.text);
    let other = post(port, &delivery("ci", "d2", &json!([{ "n": 1 }])));
    assert_eq!(other.status, 202, "a list is a payload like any other");
    assert_eq!(fixture.wait_messages(CHAT, 2)[1], "echo: build {n}");
    fixture.wait_idle();
    assert_eq!(texts(&fixture).len(), 2);
    let status = fixture.status();
    let link =
        status["links"].as_array().and_then(|links| links.iter().find(|link| link["name"] == "webhook"));
    assert_eq!(link.map(|link| &link["state"]), Some(&json!("up")), "{status}");
}

#[test]
fn accepted_delivery_survives_kill_and_runs_once() {
    let (mut fixture, port) = fixture(ROUTES);
    fixture.start();
    let hold = fixture.model.gate(Point::Before);
    let sent = delivery("ci", "d1", &json!({ "n": 8 }));
    assert_eq!(post(port, &sent).status, 202);
    assert!(hold.wait(SOON), "the turn has not started");
    fixture.kill();
    hold.open();
    fixture.start();
    assert_eq!(post(port, &sent).status, 200, "the next process knows the delivery");
    assert!(fixture.wait_messages(CHAT, 1)[0].ends_with("echo: build 8"));
    fixture.wait_idle();
    assert_eq!(texts(&fixture).len(), 1);
}

#[test]
fn retrying_provider_gets_through_a_kill() {
    let (mut fixture, port) = fixture(ROUTES);
    let provider = Sender::start(port);
    for n in 0..10 {
        provider.send(delivery("note", &format!("d{n}"), &json!({ "n": n })));
        provider.send(delivery("ci", &format!("d{n}"), &json!({ "n": n })));
    }
    fixture.start();
    fixture.wait_messages(CHAT, 2);
    fixture.kill();
    fixture.start();
    assert!(provider.wait_idle(SOON), "still {} to deliver", provider.pending());
    fixture.wait_messages(CHAT, 10);
    fixture.wait_idle();
    let texts = texts(&fixture);
    for n in 0..10 {
        let of_this = || texts.iter().filter(|text| text.ends_with(&format!("echo: build {n}")));
        assert!(of_this().count() > 0, "{n}: {texts:?}");
        assert!(of_this().filter(|text| !text.contains("Recovered reply")).count() <= 1, "{n}: {texts:?}");
    }
    assert_eq!(provider.responses().len(), 20);
}

#[test]
fn drain_rejects_deliveries_with_retry_after() {
    let (mut fixture, port) = fixture(ROUTES);
    fixture.start();
    assert_eq!(post(port, &delivery("note", "d0", &json!({}))).status, 202);
    fixture.wait_idle();
    let marker = fixture.home.path().join(".drain_request.json");
    std::fs::write(&marker, r#"{"action":"drain"}"#).expect("a marker");
    fixture.wait_state("draining");
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
    fixture.wait_state("running");
    assert_eq!(post(port, &sent).status, 202, "stored by the refused request");
    assert_eq!(fixture.wait_messages(CHAT, 2), ["no turn", "echo: build 9"]);
}

#[test]
fn forwarded_message_is_queued_once_until_delivered() {
    let (mut fixture, port) = fixture(ROUTES);
    fixture.start();
    fixture.telegram.down();
    let sent = delivery("say", "d1", &json!({ "text": "disk full" }));
    let queued = post(port, &sent);
    assert_eq!(queued.status, 502, "{}", queued.text);
    assert_eq!(post(port, &sent).status, 502, "still");
    fixture.kill();
    fixture.telegram.up().expect("the port is ours");
    fixture.launch();
    let reached = eventually("delivered", || Some(post(port, &sent)).filter(|reply| reply.status != 502));
    assert_eq!(reached.status, 200, "{}", reached.text);
    assert!(post(port, &sent).text.contains("duplicate"));
    fixture.wait_outbox_empty();
    let texts = texts(&fixture);
    let [text] = texts.as_slice() else { panic!("{texts:?}") };
    // The kill may have interrupted a send, so its outcome is unknown.
    assert!(
        text == "disk full" || text.contains("may be a duplicate") && text.ends_with("disk full"),
        "{text}"
    );
}

#[test]
fn delivery_goes_to_the_current_home_channel() {
    let (mut fixture, port) = fixture(
        "
      ci: {secret: s, prompt: 'build {n}', deliver: telegram}
      say: {secret: s, prompt: '{text}', deliver: telegram, deliver_only: true}
",
    );
    fixture.start();
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
        fixture.telegram.push_text(chat, chat, "/sethome");
        fixture.wait_messages(chat, 1);
        let [turn, say] = calls(id);
        assert_eq!(post(port, &turn).status, 202, "stored by the refused request");
        assert_eq!(fixture.wait_messages(chat, 2)[1], format!("echo: build {id}"));
        assert_eq!(post(port, &say).status, 200);
        assert_eq!(fixture.wait_messages(chat, 3)[2], format!("as it is {id}"));
    }
    fixture.wait_idle();
    assert_eq!([7, 8].map(|chat| fixture.telegram.texts(chat).len()), [3, 3]);
}

#[test]
fn payload_text_is_never_a_command() {
    let (mut fixture, port) = fixture(
        "      say: {secret: s, prompt: '{text}', deliver: telegram, deliver_extra: {chat_id: '77'}}\n",
    );
    fixture.start();
    assert_eq!(post(port, &delivery("say", "d1", &json!({ "text": "/help" }))).status, 202);
    assert_eq!(fixture.wait_messages(CHAT, 1), ["echo: /help"]);
}

#[test]
fn webhook_turn_has_only_configured_tools_after_kill() {
    for (extra, want) in
        [("", vec!["clock"]), ("    tools: [read_file, clock]\n", vec!["read_file", "clock"])]
    {
        let (mut fixture, port) = fixture_with(extra, ROUTES);
        fixture.model.respond(|request| {
            if request.messages().iter().any(|it| it["role"] == "tool") {
                return Answer::text("done");
            }
            Answer::tool("write_file", json!({ "path": "planted.txt", "content": "x" }))
        });
        let hold = fixture.model.gate(Point::Before);
        fixture.start();
        assert_eq!(post(port, &delivery("ci", "d1", &json!({ "n": "write a file" }))).status, 202);
        assert!(hold.wait(SOON), "the turn has not started");
        // The next process knows the route but not the sender.
        fixture.kill();
        hold.open();
        fixture.start();
        fixture.wait_messages(CHAT, 1);
        let offered = fixture.model.requests();
        let offered: Vec<_> = offered.iter().map(|request| request.tools()).collect();
        assert!(offered.len() >= 2 && offered.iter().all(|tools| *tools == want), "{offered:?}");
        assert!(!fixture.home.path().join("workspace/planted.txt").exists());
        fixture.telegram.push_text(8, 8, "write a file");
        fixture.wait_messages(8, 1);
        assert!(fixture.home.path().join("workspace/planted.txt").exists(), "users have their tools");
    }
}

#[test]
fn unusable_or_unprotected_route_stops_the_start() {
    for (routes, word) in [
        ("{ci: {prompt: x}}", "has no secret"),
        ("{ci: {secret: s, deliver: discord}}", "discord"),
        ("{ci: {secret: s, deliver_only: true}}", "deliver_only"),
        ("{ci: {secret: s, script: x.py}}", "script"),
        ("{ci: {secret: INSECURE_NO_AUTH}}, host: 0.0.0.0", "INSECURE_NO_AUTH"),
    ] {
        let more = format!("webhook: {{enabled: true, extra: {{routes: {routes}}}}}\n");
        let fixture = ProgramFixture::builder().with(&more).build();
        let said = expect_failure(&fixture.run(&["run"]), 78);
        assert!(said.contains(word), "{routes}: {said}");
    }
}

#[test]
fn reports_port_in_use_and_binds_when_free() {
    let (mut fixture, port) = fixture(ROUTES);
    let taken = TcpListener::bind(("127.0.0.1", port)).expect("free until now");
    fixture.start();
    let link = eventually("the webhook link is waiting", || {
        let links = fixture.status()["links"].as_array().cloned().unwrap_or_default();
        let link = links.into_iter().find(|link| link["name"] == "webhook").expect("a link");
        (link["state"] == "waiting").then_some(link)
    });
    assert!(link.to_string().contains(&port.to_string()), "{link}");
    drop(taken);
    assert!(fixture.run(&["links", "retry", "webhook"]).status.success());
    assert_eq!(post(port, &delivery("note", "d1", &json!({}))).status, 202);
}

const SECRET: &str = "s";

fn unsigned(body: &Value) -> WebhookDelivery {
    WebhookDelivery::json("/webhooks/note", body)
}

/// GitHub and V1 sign only the body.
fn signature(delivery: &WebhookDelivery) -> String {
    use aws_lc_rs::hmac;
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes()), &delivery.body);
    tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn replay_with_another_id_is_a_duplicate_after_kill() {
    let (mut fixture, port) = fixture(ROUTES);
    fixture.start();
    let github = |id: &str, n: u8| {
        let delivery = unsigned(&json!({ "n": n }));
        let signature = format!("sha256={}", signature(&delivery));
        delivery.header("X-Hub-Signature-256", signature).header("X-GitHub-Delivery", id)
    };
    assert_eq!(post(port, &github("d1", 1)).status, 202);
    assert_eq!(post(port, &github("d2", 2)).status, 202, "another body");
    fixture.wait_idle();
    fixture.kill();
    fixture.start();
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
    fixture.wait_idle();
    assert_eq!(fixture.model.read(|state| state.request_count()), 2);
}

#[test]
fn signed_delivery_is_deduplicated_across_routes_and_schemes() {
    let (mut fixture, port) = fixture(ROUTES);
    fixture.start();
    let to = |route: &str, n: u8, header: &str, id: &str| {
        let delivery = WebhookDelivery::json(format!("/webhooks/{route}"), &json!({ "n": n, "text": "t" }));
        let code = signature(&delivery);
        let shown = if header.contains("Hub") { format!("sha256={code}") } else { code };
        delivery.header(header, shown).header("X-Request-ID", id)
    };
    let github = "X-Hub-Signature-256";
    let v1 = "X-Webhook-Signature";
    for (delivery, status, why) in [
        (to("ci", 1, github, "a"), 202, "new"),
        (to("note", 1, github, "b"), 200, "another route"),
        (to("note", 1, v1, "c"), 200, "another route and scheme"),
        (to("say", 1, github, "d"), 200, "a forwarding route"),
        (to("note", 2, v1, "e"), 202, "new"),
        (to("note", 2, github, "f"), 200, "V1 as GitHub"),
        (to("ci", 2, github, "g"), 200, "V1 as GitHub over another route"),
        (to("say", 3, github, "h"), 200, "new, and forwarded"),
        (to("ci", 3, github, "i"), 200, "already forwarded"),
    ] {
        assert_eq!(post(port, &delivery).status, status, "{why}");
    }
    fixture.wait_idle();
    assert_eq!(fixture.model.read(|state| state.request_count()), 2);
    assert_eq!(texts(&fixture).iter().filter(|text| *text == "t").count(), 1);
}

#[test]
fn v2_replay_with_another_key_is_a_duplicate() {
    let (mut fixture, port) = fixture(ROUTES);
    fixture.start();
    let now = clock::now().0 / 1000;
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
fn unidentified_delivery_is_accepted_every_time() {
    let (mut fixture, port) = fixture(ROUTES);
    fixture.start();
    let ping = unsigned(&json!({ "ping": true }));
    let signed = signature(&ping);
    let ping = ping.header("X-Webhook-Signature", signed);
    for _ in 0..3 {
        assert_eq!(post(port, &ping).status, 202);
    }
    let named = |id: &str| ping.clone().header("X-Request-ID", id);
    assert_eq!(post(port, &named("d1")).status, 202);
    assert_eq!(post(port, &named("d2")).status, 200, "replayed at once");
}

#[test]
fn replay_of_forwarded_message_is_not_sent_twice() {
    let (mut fixture, port) = fixture(ROUTES);
    fixture.start();
    let github = |id: &str| {
        let delivery = WebhookDelivery::json("/webhooks/say", &json!({ "text": "hello" }));
        let signature = format!("sha256={}", signature(&delivery));
        delivery.header("X-Hub-Signature-256", signature).header("X-GitHub-Delivery", id)
    };
    assert_eq!(post(port, &github("d1")).status, 200);
    let again = post(port, &github("d2"));
    assert!(again.text.contains("duplicate"), "{}", again.text);
    fixture.wait_idle();
    assert_eq!(texts(&fixture), ["hello"]);
}
