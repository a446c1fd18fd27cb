//! Floods affect only their sender; other gateways are served meanwhile.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{BOT, Bench, SOON, begin, body, get, until, wait_texts};
use petasos_core::{LinkId, Platform};
use petasos_fakes::hooks::{WebhookDelivery, WebhookResponse};
use petasos_fakes::relay::{Acks, Peer, fresh_token};
use petasos_relay::session::{Carries, DeadLetterReason, Entry};
use petasos_runtime::clock;
use petasos_store::connector::Arrival;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

/// Time limit for undisturbed gateways, on a busy machine.
const UNDISTURBED: Duration = Duration::from_secs(15);
/// The author of the undisturbed gateway.
const BOB: i64 = 8;

/// Two tenants and their secrets. `gw-2` is Bob's.
fn two_tenants(change: impl Fn(&mut petasos_connector::Config)) -> (Bench, String, String) {
    let mut bench = Bench::idle();
    let (loud, quiet) =
        (bench.add_gateway("gw-1", "t1", "i1", None), bench.add_gateway("gw-2", "t2", "i2", None));
    let telegram = Platform::parse("telegram").expect("known");
    bench.write(|tx| tx.bind_author(telegram, &BOB.to_string(), &"i2".into()));
    bench.start(change);
    (bench, loud, quiet)
}

/// Bob writes, and his gateway gets it in time.
#[track_caller]
fn is_served(bench: &Bench, peer: &Peer, texts: &[&str]) {
    for count in 1..=texts.len() {
        let began = clock::monotonic();
        bench.telegram.push_text(BOB, BOB, texts[count - 1]);
        wait_texts(peer, &texts[..count]);
        assert!(began.elapsed() < UNDISTURBED, "{:?}", began.elapsed());
    }
}

#[test]
fn frame_flood_slows_only_its_sender() {
    let (bench, loud, quiet) = two_tenants(|_| {});
    let peer = bench.greet("gw-2", &quiet, Acks::All);
    let flood = bench.greet("gw-1", &loud, Acks::All);
    let over = AtomicBool::new(false);
    let lines = [
        format!("{}\n", json!({"type": "hello", "platform": "telegram", "botId": BOT})),
        format!("{}\n", json!({"type": "inbound_ack", "bufferId": "nothing"})),
        format!(
            "{}\n",
            json!({"type": "interrupt", "session_key": "agent:main:telegram:dm:8", "reason": null})
        ),
        format!(
            "{}\n",
            json!({"type": "outbound", "requestId": "r", "action": {"op": "send", "chat_id": "8", "content": "x"}})
        ),
        "not json\n".to_owned(),
        "{\"type\":\"going_idle\"}\n".to_owned(),
    ];
    let together = Message::text(lines.concat().repeat(20));
    let sent = std::thread::scope(|scope| {
        let sent = scope.spawn(|| {
            let mut sent = 0_u64;
            while !over.load(Ordering::Relaxed) {
                flood.send_raw(together.clone());
                sent += 120;
            }
            sent
        });
        is_served(&bench, &peer, &["one", "two", "three", "four", "five"]);
        let action = json!({"op": "send", "chat_id": BOB.to_string(), "content": "yes", "reply_to": null, "metadata": {}});
        peer.outbound("a", &action);
        assert_eq!(peer.wait_result("a", UNDISTURBED).expect("in time")["success"], true);
        over.store(true, Ordering::Relaxed);
        sent.join().expect("no panic")
    });
    assert!(sent > 1000, "{sent} lines were no flood");
    assert!(peer.read(|heard| heard.of_type("interrupt_inbound").next().is_none()), "another tenant's");
    assert!(bench.telegram.texts(BOB).iter().all(|text| text == "yes"), "nothing of theirs got through");
}

#[test]
fn unauthenticated_connections_block_no_gateway() {
    let (bench, _, quiet) = two_tenants(|config| config.max_sockets = 4);
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";
    let kinds = [
        // An idle connection, half a header, half a body without a token, and a refused socket that stays open.
        String::new(),
        "GET /relay HTTP/1.1\r\nHost: x\r\n".to_owned(),
        "POST /relay/enroll HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n{".to_owned(),
        "POST /relay/provision HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n{".to_owned(),
        format!("GET /relay HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n{key}\r\n"),
    ];
    let mut held: Vec<TcpStream> = vec![];
    for kind in &kinds {
        held.extend((0..100).map(|_| begin(bench.address(), kind)));
        let began = clock::monotonic();
        let peer = bench.greet("gw-2", &quiet, Acks::All);
        assert!(began.elapsed() < UNDISTURBED, "{:?} behind {kind:?}", began.elapsed());
        is_served(&bench, &peer, &["hello"]);
        peer.cut();
        peer.wait_until(SOON, |heard| heard.closed.clone()).expect("cut");
    }
    assert_eq!(held.len(), 500);
}

#[test]
fn limits_sockets_per_gateway() {
    let (bench, loud, quiet) = two_tenants(|config| config.max_sockets = 16);
    let token = fresh_token("gw-1", &loud);
    let dial = || Peer::dial(bench.address(), Some(&token), Acks::None);
    let sockets: Vec<_> = (0..8).map(|_| dial().expect("a socket")).collect();
    for _ in 0..20 {
        let refused = dial().expect_err("it has enough");
        assert!(refused.to_string().contains("503"), "{refused}");
    }
    let peer = bench.greet("gw-2", &quiet, Acks::All);
    is_served(&bench, &peer, &["hello"]);
    // The newest hello wins and superseded sockets free their permits. The network decides which one is last.
    for socket in &sockets {
        socket.hello("telegram", BOT);
    }
    until("all but the last are closed", || {
        let closed = |it: &&Peer| it.read(|heard| heard.closed.as_ref().is_some_and(|it| it.0 == 4409));
        sockets.iter().filter(closed).count() == sockets.len() - 1
    });
    until("there is room again", || dial().is_ok());
}

#[test]
fn slow_uploads_of_one_tenant_leave_room_for_another() {
    let (bench, loud, quiet) = two_tenants(|_| {});
    let upload = |gateway: &str, secret: &str| -> WebhookResponse {
        WebhookDelivery { path: "/relay/media".into(), headers: vec![], body: b"picture".to_vec() }
            .header("Authorization", format!("Bearer {}", fresh_token(gateway, secret)))
            .post(bench.address().port())
            .expect("an answer")
    };
    let token = fresh_token("gw-1", &loud);
    let slow = format!(
        "POST /relay/media HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 20000000\r\n\r\nx"
    );
    let held: Vec<_> = (0..100).map(|_| begin(bench.address(), &slow)).collect();
    until("it has enough under way", || upload("gw-1", &loud).status == 503);
    let began = clock::monotonic();
    assert_eq!(upload("gw-2", &quiet).status, 200);
    let peer = bench.greet("gw-2", &quiet, Acks::All);
    assert!(began.elapsed() < UNDISTURBED, "{:?}", began.elapsed());
    is_served(&bench, &peer, &["hello"]);
    drop(held);
    until("those that go make room", || upload("gw-1", &loud).status == 200);
}

#[test]
fn slow_readers_of_one_tenant_leave_room_for_another() {
    let (bench, loud, quiet) = two_tenants(|_| {});
    let token = fresh_token("gw-1", &loud);
    let kept = WebhookDelivery { path: "/relay/media".into(), headers: vec![], body: vec![7; 24 << 20] }
        .header("Authorization", format!("Bearer {token}"))
        .post(bench.address().port())
        .expect("an answer");
    let path = format!("/relay/media/{}", body(&kept)["id"].as_str().expect("an id"));
    let ask = format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n");
    // None of them reads its response.
    let held: Vec<_> = (0..70).map(|_| begin(bench.address(), &ask)).collect();
    until("it has enough under way", || {
        get(bench.address(), "/relay/media/none", Some(&token)).status == 503
    });
    let began = clock::monotonic();
    assert_eq!(get(bench.address(), "/relay/media/none", Some(&fresh_token("gw-2", &quiet))).status, 404);
    let peer = bench.greet("gw-2", &quiet, Acks::All);
    assert!(began.elapsed() < UNDISTURBED, "{:?}", began.elapsed());
    is_served(&bench, &peer, &["hello"]);
    drop(held);
    until("those that go make room", || get(bench.address(), &path, Some(&token)).status == 200);
}

#[test]
fn counts_dead_letters_and_their_size() {
    let bench = Bench::idle();
    bench.add_gateway("gw-1", "t1", "i1", None);
    let aside = |number: u64, size: usize| {
        let at = petasos_core::Millis(number);
        let id = format!("{number:026}");
        let platform = "telegram".to_owned();
        let entry = Entry { id, platform, carries: Carries::Inbound, size: 1, at, strikes: 0 };
        let link = LinkId { platform: Platform::named("telegram"), account: "1".into() };
        let seen = (link, number.to_string());
        let arrival = Arrival { entry, payload: "x".repeat(size), seen, chat: None };
        bench.write(|tx| tx.dead_letter_arrival(&"i1".into(), &arrival, Some(DeadLetterReason::Full)));
    };
    (1..=5).for_each(|number| aside(number, 10 << 20));
    let left =
        || bench.read(|reader| reader.dead_letters(2000)).into_iter().map(|it| it.at.0).collect::<Vec<_>>();
    assert_eq!(left(), [5, 4, 3], "the newest 32 MiB");
    aside(6, 1);
    assert_eq!(left(), [6, 5, 4, 3], "small requests take no slot");
}
