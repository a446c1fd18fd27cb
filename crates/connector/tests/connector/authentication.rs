//! Authentication, framing and the HTTP routes.

use std::time::Duration;

use crate::support::{BOT, Bench, SOON, body, get, wait_closed, wait_texts};
use petasos_fakes::relay::{Acks, Peer, fresh_token, now, token};
use petasos_runtime::clock;
use serde_json::json;

fn text(text: &str) -> tungstenite::Message {
    tungstenite::Message::text(text.to_owned())
}

use tokio_tungstenite::tungstenite;

#[test]
fn refuses_sockets_without_valid_token() {
    let (bench, secret) = Bench::single();
    bench.add_gateway("gw-2", "t1", "i1", None);
    bench.write(|tx| tx.revoke_gateway(&"gw-2".into(), petasos_core::Millis(2)));
    let fresh = now() + 300;
    for (shown, reason) in [
        (None, "unauthorized"),
        (Some("nonsense".to_owned()), "unauthorized"),
        (Some(token("gw-1", "another secret", fresh)), "unauthorized"),
        (Some(token("unknown", &secret, fresh)), "unauthorized"),
        (Some(token("gw-2", &secret, fresh)), "unauthorized"),
        (Some(token("gw-1", &secret, 0)), "unauthorized"),
        (Some(token("gw-1", &secret, fresh + 3600)), "unauthorized"),
        (Some(token("gw-1", &secret, now() - 120)), "expired"),
    ] {
        let peer = Peer::dial(bench.address(), shown.as_deref(), Acks::All).expect("the upgrade succeeds");
        peer.hello("telegram", BOT);
        assert_eq!(wait_closed(&peer, 4401), reason, "{shown:?}");
        assert!(peer.read(|heard| heard.frames.is_empty()));
    }
    let elsewhere =
        Peer::dial_at(bench.address(), "/other", Some("x"), Acks::All).expect_err("no socket there");
    assert!(elsewhere.to_string().contains("400"), "{elsewhere}");
    // Tolerated clock skew: a minute.
    let late =
        Peer::dial(bench.address(), Some(&token("gw-1", &secret, now() - 30)), Acks::All).expect("a socket");
    late.hello("telegram", BOT);
    assert!(late.wait_until(SOON, |heard| heard.of_type("descriptor").next().map(|_| ())).is_some());
}

#[test]
fn rotates_secrets_and_closes_revoked_gateways() {
    let (bench, old) = Bench::single();
    let later = petasos_core::Millis((now() + 3600) * 1000);
    let new = bench.write(|tx| tx.rotate_gateway(&"gw-1".into(), later, petasos_core::Millis(now() * 1000)));
    assert_eq!(new.secrets.len(), 2);
    drop(bench.greet("gw-1", &old, Acks::All));
    let peer = bench.greet("gw-1", &new.secrets[0], Acks::All);
    bench.write(|tx| tx.revoke_gateway(&"gw-1".into(), petasos_core::Millis(now() * 1000)));
    assert_eq!(wait_closed(&peer, 4401), "unauthorized");
}

#[test]
fn reads_lines_split_across_messages() {
    let (bench, secret) = Bench::single();
    let peer = bench.dial("gw-1", &secret, Acks::None);
    for (number, message) in [
        text("not json\n\n  \n{\"type\":\"wat\"}\n[]\n5\n\"x\"\nnull\n"),
        tungstenite::Message::binary(vec![0xff, 0xfe, b'\n']),
        text("{\"type\":\"hello\",\"platform\":\"tele"),
        text("gram\",\"botId\":\"\"}"),
        text("\n{\"type\":\"outbound\",\"requestId\":\"a\",\"action\":null}\n{\"type\":\"outbound\",\"requestId\":\"b\"}\r\n"),
        tungstenite::Message::binary(b"{\"type\":\"outbound\",\"requestId\":\"c\",\"action\":{\"op\":\"fly\"}}\n".to_vec()),
        text("{\"type\":\"outbound\",\"requestId\":\"d\",\"action\":{\"op\":\"fly\"}}"),
    ]
    .into_iter()
    .enumerate()
    {
        assert!(peer.read(|heard| heard.closed.is_none()), "message {number}");
        peer.send_raw(message);
    }
    for request in ["a", "b", "c"] {
        let answer = peer.wait_result(request, SOON).expect("every request is answered");
        assert_eq!(answer["success"], false);
        assert!(
            answer["error"].as_str().is_some_and(|error| error.starts_with("unsupported op: ")),
            "{answer}"
        );
    }
    assert!(peer.wait_result("d", Duration::from_millis(200)).is_none(), "its line has not ended");
    peer.send_raw(text("\n"));
    assert!(peer.wait_result("d", SOON).is_some());
    assert_eq!(peer.read(|heard| heard.of_type("descriptor").count()), 1);
}

#[test]
fn closes_socket_after_endless_line() {
    let (bench, secret) = Bench::single();
    for pieces in [vec![2 << 20], vec![600_000; 4]] {
        let peer = bench.greet("gw-1", &secret, Acks::None);
        for size in pieces {
            peer.send_raw(text(&"x".repeat(size)));
        }
        wait_closed(&peer, 1009);
    }
}

#[test]
fn requires_first_identity_and_skips_unknown_others() {
    let (bench, secret) = Bench::single();
    let stranger = bench.dial("gw-1", &secret, Acks::None);
    stranger.hello("matrix", "");
    wait_closed(&stranger, 4404);
    let other = bench.dial("gw-1", &secret, Acks::None);
    other.hello("telegram", "999");
    wait_closed(&other, 4404);
    let peer = bench.dial("gw-1", &secret, Acks::None);
    peer.hello("relay", "");
    peer.hello("matrix", "");
    peer.hello("telegram", BOT);
    let two = peer.wait_until(SOON, |heard| (heard.of_type("descriptor").count() == 2).then_some(()));
    assert!(two.is_some());
    let told = peer.read(|heard| heard.frames[0]["descriptor"].clone());
    assert_eq!((&told["platform"], &told["contract_version"]), (&json!("telegram"), &json!(1)));
    assert_eq!((&told["max_message_length"], &told["len_unit"]), (&json!(4096), &json!("utf16")));
    assert!(told["supported_ops"].as_array().is_some_and(|ops| ops.contains(&json!("send"))), "{told}");
}

#[test]
fn closes_silent_sockets() {
    let (bench, secret) = Bench::single_with(|config| config.hello_within = Duration::from_millis(100));
    let peer = bench.dial("gw-1", &secret, Acks::None);
    wait_closed(&peer, 1008);
}

#[test]
fn redeems_enrollment_token_once() {
    let mut bench = Bench::idle();
    let token = bench.write(|tx| {
        tx.add_tenant(&"t1".into(), petasos_core::Millis(1))?;
        tx.add_enrollment(&"t1".into(), petasos_core::Millis((now() + 60) * 1000))
    });
    bench.start(|_| {});
    let tries: Vec<_> = std::thread::scope(|scope| {
        let ask = |id: &'static str| {
            let bench = &bench;
            let token = &token;
            scope.spawn(move || {
                bench.post("/relay/enroll", None, &json!({"enrollmentToken": token, "gatewayId": id}))
            })
        };
        let all: Vec<_> = ["a", "b", "c", "d"].map(ask).into_iter().collect();
        all.into_iter().map(|one| one.join().expect("no panic")).collect()
    });
    let good: Vec<_> = tries.iter().filter(|reply| reply.status == 200).collect();
    assert_eq!((good.len(), tries.iter().filter(|reply| reply.status == 403).count()), (1, 3));
    let told = body(good[0]);
    assert_eq!(told["tenant"], "t1");
    let (id, secret) =
        (told["gatewayId"].as_str().expect("an id"), told["secret"].as_str().expect("a secret"));
    drop(bench.greet(id, secret, Acks::None));
    assert_eq!(bench.post("/relay/enroll", None, &json!({"gatewayId": "x"})).status, 400);
    // A taken name neither reveals its secret nor uses up the token.
    let token = bench.write(|tx| tx.add_enrollment(&"t1".into(), petasos_core::Millis((now() + 60) * 1000)));
    let ask =
        |id: &str| bench.post("/relay/enroll", None, &json!({"enrollmentToken": token, "gatewayId": id}));
    let taken = ask(id);
    assert_eq!((taken.status, taken.text.contains(secret)), (409, false), "{}", taken.text);
    assert_eq!(ask("another").status, 200);
}

#[test]
fn provisioning_is_idempotent_per_tenant() {
    let mut bench = Bench::idle();
    let (ours, theirs) = bench.write(|tx| {
        tx.add_tenant(&"t1".into(), petasos_core::Millis(1))?;
        tx.add_tenant(&"t2".into(), petasos_core::Millis(1))?;
        Ok((
            tx.add_identity(&"t1".into(), petasos_core::Millis(1))?,
            tx.add_identity(&"t2".into(), petasos_core::Millis(1))?,
        ))
    });
    bench.start(|_| {});
    let ask = |token: &str, platform: &str| {
        let body = json!({"gatewayId": "gw-host", "platform": platform, "botId": "", "gatewayEndpoint": "",
                          "routeKeys": ["g1"], "wakeUrl": "https://wake.example/"});
        bench.post("/relay/provision", Some(token), &body)
    };
    let answers = ["telegram", "discord", "slack"].map(|platform| ask(&ours, platform));
    let secrets: Vec<_> = answers.iter().map(|reply| body(reply)["secret"].clone()).collect();
    assert!(secrets.iter().all(|secret| secret == &secrets[0] && secret.is_string()), "{answers:?}");
    assert_eq!(body(&answers[0])["routeKeys"], json!([]), "no member of the tenant has written there");
    assert_eq!(ask(&theirs, "telegram").status, 409);
    assert_eq!(ask("nonsense", "telegram").status, 401);
    drop(bench.greet("gw-host", secrets[0].as_str().expect("a secret"), Acks::None));
    let instance = bench.read(|reader| reader.instance(&"gw-host".into())).expect("an instance");
    assert_eq!(instance.wake_url.as_deref(), Some("https://wake.example/"));
}

#[test]
fn replaces_policies_and_claims_scopes_once() {
    let (bench, secret) = Bench::single();
    let other = bench.add_gateway("gw-2", "t2", "i2", None);
    let bearer = fresh_token("gw-1", &secret);
    let policy = |require: bool, scopes: &[&str]| json!({"platform": "telegram", "requireAddress": require, "freeResponseScopes": scopes, "allowOtherBots": !require});
    assert_eq!(bench.post("/relay/policy", Some(&bearer), &policy(false, &["c"])).status, 200);
    assert_eq!(bench.post("/relay/policy", Some(&bearer), &policy(true, &[])).status, 200);
    let telegram = petasos_core::Platform::parse("telegram").expect("known");
    let kept = bench.read(|reader| reader.policy(&"i1".into(), telegram));
    assert_eq!(kept, petasos_store::connector::ChatPolicy::default());
    assert_eq!(bench.post("/relay/policy", None, &policy(true, &[])).status, 401);
    let scope = json!({"platform": "telegram", "scopeId": "-100", "instanceId": "i2"});
    assert_eq!(bench.post("/manage/scope", Some(&bearer), &scope).status, 200);
    assert_eq!(bench.post("/manage/scope", Some(&fresh_token("gw-2", &other)), &scope).status, 403);
    assert_eq!(bench.read(|reader| reader.instance_of_scope(telegram, "-100")), Some("i1".into()));
}

/// The quota of one instance.
fn full(id: &str) -> petasos_store::connector::Media {
    petasos_store::connector::Media {
        id: id.into(),
        instance: "i1".into(),
        reference: None,
        name: None,
        mime: None,
        size: (256 << 20) - 10,
        expires_at: petasos_core::Millis((now() + 3600) * 1000),
    }
}

#[test]
fn retention_deletes_expired_records_and_files() {
    let mut bench = Bench::idle();
    bench.add_gateway("gw-1", "t1", "i1", None);
    let folder = bench.home.path().join("connector-media");
    std::fs::create_dir(&folder).expect("a folder");
    let file = |name: &str, hours: u64| {
        let file = std::fs::File::create(folder.join(name)).expect("a file");
        file.set_modified(clock::file_time() - Duration::from_secs(hours * 3600)).expect("a time");
    };
    file("stray", 2);
    file("stray.download", 30);
    file("being-written", 0);
    file("owned", 2);
    let past = petasos_core::Millis(now() * 1000 - 1);
    let (code, token) = bench.write(|tx| {
        tx.put_media(&full("owned"))?;
        Ok((tx.add_link_code(&"i1".into(), past)?, tx.add_enrollment(&"t1".into(), past)?))
    });
    bench.start(|_| {});
    let left = || {
        let names = std::fs::read_dir(&folder).expect("a folder").map(|it| it.expect("an entry").file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().expect("plain")).collect();
        names.sort();
        names
    };
    crate::support::until("strays are gone", || left() == ["being-written", "owned"]);
    // Rows are deleted before files; waiting past the expiry shows whether files remain.
    let before = petasos_core::Millis(1);
    bench.write(|tx| {
        assert_eq!(tx.use_link_code(&code, before)?, None);
        assert_eq!(
            tx.redeem(&token, &"x".into(), before)?,
            petasos_store::connector::EnrollmentOutcome::Refused
        );
        Ok(())
    });
}

#[test]
fn only_authenticated_gateways_set_wake_urls() {
    let (bench, secret) = Bench::single();
    let known = || bench.read(|reader| reader.instance(&"i1".into())).expect("an instance").wake_url;
    let put = |bearer: Option<&str>, url: serde_json::Value| {
        bench.post("/relay/wake", bearer, &json!({"wakeUrl": url, "instanceId": "i2"})).status
    };
    let bearer = fresh_token("gw-1", &secret);
    assert_eq!((put(None, json!("https://x.example")), known()), (401, None));
    assert_eq!(put(Some(&bearer), json!("https://w.example/1")), 200);
    assert_eq!(known().as_deref(), Some("https://w.example/1"));
    for nonsense in [json!(""), json!(7), json!("x".repeat(3000))] {
        assert_eq!(put(Some(&bearer), nonsense), 400);
    }
    assert_eq!((put(Some(&bearer), json!(null)), known()), (200, None));
}

#[test]
fn owner_adds_first_gateway_of_single_instance() {
    let mut bench = Bench::idle();
    bench.start(|config| config.single_instance = Some("i1".into()));
    let secret = bench.add_gateway("gw-1", "t1", "i1", None);
    drop(bench.greet("gw-1", &secret, Acks::None));
    let taken = bench.refused(|tx| {
        tx.add_tenant(&"t2".into(), petasos_core::Millis(1))?;
        tx.ensure_instance(&"i1".into(), &"t2".into(), petasos_core::Millis(1))
    });
    assert!(taken.to_string().contains("another tenant"), "{taken}");
}

#[test]
fn files_are_private_to_their_instance() {
    let (bench, secret) = Bench::single();
    let other = bench.add_gateway("gw-2", "t1", "i2", None);
    let upload = |bytes: &[u8]| {
        petasos_fakes::hooks::WebhookDelivery {
            path: "/relay/media".into(),
            headers: vec![],
            body: bytes.to_vec(),
        }
        .header("Authorization", format!("Bearer {}", fresh_token("gw-1", &secret)))
        .header("X-Media-Filename", "a.png")
        .post(bench.address().port())
        .expect("an answer")
    };
    assert_eq!(upload(b"").status, 400);
    assert_eq!(upload(&vec![0; (25 << 20) + 1]).status, 413);
    let told = body(&upload(b"picture"));
    assert_eq!(told["size"], 7);
    let peer = bench.greet("gw-1", &secret, Acks::All);
    bench.write_message("hi");
    wait_texts(&peer, &["hi"]);
    let url = format!("http://{}/relay/media/{}", bench.address(), told["id"].as_str().expect("an id"));
    let action = json!({"op": "send_media", "chat_id": crate::support::ANN.to_string(), "media_kind": "document",
                        "source_url": url, "content": "look", "reply_to": null, "metadata": {}});
    peer.outbound("m1", &action);
    assert_eq!(peer.wait_result("m1", SOON).expect("an answer")["success"], true);
    assert_eq!(bench.telegram.calls_of("sendDocument").len(), 1);
    let stranger = bench.greet("gw-2", &other, Acks::All);
    stranger.outbound("m2", &action);
    assert_eq!(stranger.wait_result("m2", SOON).expect("an answer")["success"], false);
    let id = told["id"].as_str().expect("an id");
    let fetched = |path: &str, bearer: Option<&str>| get(bench.address(), path, bearer);
    let own = fresh_token("gw-1", &secret);
    let theirs = fresh_token("gw-2", &other);
    let path = format!("/relay/media/{id}");
    let got = fetched(&path, Some(&own));
    assert!(got.status == 200 && got.text.ends_with("\r\n\r\npicture"), "{}", got.text);
    assert_eq!(fetched(&path, Some(&theirs)).status, 404, "its existence is not revealed");
    assert_eq!((fetched(&path, None).status, fetched(&path, Some("x")).status), (401, 401));
    assert_eq!(fetched("/relay/media/../../connector.db", Some(&own)).status, 404);
    let end = petasos_core::Millis(now() * 1000 - 1);
    let old = |id: &str| petasos_store::connector::Media { id: id.into(), expires_at: end, ..full("") };
    bench.write(|tx| tx.put_media(&old("old")));
    assert_eq!(fetched("/relay/media/old", Some(&own)).status, 404, "it was there for an hour");
    bench.write(|tx| tx.put_media(&petasos_store::connector::Media { size: 1, ..full("lost") }));
    assert_eq!(fetched("/relay/media/lost", Some(&own)).status, 404, "its file is gone");
    // The quota of an instance is enforced.
    bench.write(|tx| tx.put_media(&full("full")));
    assert_eq!(upload(b"picture").status, 409);
    let folder = bench.home.path().join("connector-media");
    assert_eq!(
        std::fs::read_dir(folder).expect("a folder").count(),
        1,
        "what was refused does not lie there"
    );
}
