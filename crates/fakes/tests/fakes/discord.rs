//! The REST API of the fake Discord.

use petasos_fakes::Discord;
use petasos_fakes::discord::{Fault, Incoming};
use serde_json::{Value, json};

use crate::client::{HttpConnection, HttpResponse};

const CHANNEL: u64 = 50;

fn post(fake: &Discord, path: &str, body: &Value) -> HttpResponse {
    let mut connection = HttpConnection::open(fake.port()).unwrap();
    let headers = "authorization: Bot token\r\ncontent-type: application/json\r\n";
    connection.send(&format!("/api/v10{path}"), headers, body.to_string().as_bytes()).unwrap();
    connection.receive().unwrap()
}

fn send(fake: &Discord, body: &Value) -> HttpResponse {
    post(fake, &format!("/channels/{CHANNEL}/messages"), body)
}

fn fake() -> Discord {
    let fake = Discord::start().unwrap();
    fake.add_direct(CHANNEL);
    fake
}

#[test]
fn enforced_nonce_deduplicates_messages() {
    let fake = fake();
    let body = json!({ "content": "hi", "nonce": "n1", "enforce_nonce": true });
    let first = send(&fake, &body).json();
    let second = send(&fake, &body).json();
    assert_eq!((&first["id"], fake.texts(CHANNEL).len()), (&second["id"], 1));
    send(&fake, &json!({ "content": "hi", "nonce": "n1" }));
    assert_eq!(fake.texts(CHANNEL), ["hi", "hi"], "a nonce has no effect unless enforced");
}

#[test]
fn invalid_requests_get_discord_error_codes() {
    let fake = fake();
    let pin = fake.push(Incoming::text(CHANNEL, 5, "pinned").kind(6)).to_string();
    for (body, status, code) in [
        (json!({ "content": "x".repeat(2001) }), 400, 50035),
        (json!({ "content": " " }), 400, 50006),
        (json!({ "content": "x", "nonce": "n".repeat(26) }), 400, 50035),
        (json!({ "content": "x", "message_reference": { "message_id": "12" } }), 400, 50035),
        (json!({ "content": "x", "message_reference": { "message_id": pin } }), 400, 50035),
    ] {
        let reply = send(&fake, &body);
        assert_eq!((reply.status, &reply.json()["code"]), (status, &json!(code)), "{body}");
    }
    let reply = post(&fake, "/channels/4242/messages", &json!({ "content": "x" }));
    assert_eq!((reply.status, &reply.json()["code"]), (404, &json!(10003)));
}

#[test]
fn rate_limit_has_body_and_headers() {
    let fake = fake();
    fake.on("createMessage").does(Fault::too_many(1.5));
    let reply = send(&fake, &json!({ "content": "x" }));
    assert_eq!((reply.status, &reply.json()["retry_after"]), (429, &json!(1.5)));
    assert_eq!(reply.header("retry-after"), Some("2"));
    assert_eq!(reply.header("x-ratelimit-remaining"), Some("0"));
    let reply = send(&fake, &json!({ "content": "x" }));
    assert_eq!((reply.status, reply.header("x-ratelimit-remaining")), (200, Some("4")));
}

#[test]
fn refuses_other_tokens() {
    let fake = fake();
    fake.expect_token("another");
    assert_eq!(send(&fake, &json!({ "content": "x" })).status, 401);
}
