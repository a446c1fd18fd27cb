//! Deliveries over real sockets: what each caller gets, and in which order it is checked.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::time::Duration;

use petasos_core::lifecycle::Closed;
use petasos_core::message::{ChatType, Delivery as Way};
use petasos_core::{Fault, Inbound, Platform, Reached, Route};
use petasos_fakes::hooks::{Delivery, Reply};
use petasos_platforms::webhook::{Config, Targets, Webhook, sign};
use petasos_platforms::{Adapter, Batch, Intake, Kind, Part, Post, Posted, Secret, SendOptions, Taken};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

const SOON: Duration = Duration::from_secs(60);

struct Rig {
    adapter: Adapter,
    port: u16,
}

/// What the gateway hears while a caller is answered.
struct Gateway {
    batches: mpsc::Receiver<Batch>,
    posts: mpsc::Receiver<Post>,
}

fn rig(routes: Value, change: impl FnOnce(&mut Config)) -> Rig {
    let port = petasos_fakes::port::free();
    let targets = [Platform::parse("telegram").expect("known")];
    let routes = routes.as_object().expect("a section").clone();
    let mut config = Config { port, routes, targets: Targets(targets.into()), ..Config::default() };
    change(&mut config);
    Rig { adapter: Adapter::Webhook(Webhook::new(config).expect("valid")), port }
}

fn one(route: Value) -> Rig {
    rig(json!({ "ci": route }), |_| {})
}

impl Rig {
    /// Listens while `work` runs.
    async fn listen<T>(&self, work: impl AsyncFnOnce(&mut Gateway) -> T) -> T {
        let (intake, batches, posts) = Intake::with_posts(4);
        let mut gateway = Gateway { batches, posts };
        let mut health = |_| {};
        tokio::select! {
            error = self.adapter.receive(None, &intake, &mut health) => panic!("the link ended: {error}"),
            done = work(&mut gateway) => done,
        }
    }

    /// What a caller gets; whatever the gateway is offered meets `taken`.
    async fn call(&self, delivery: Delivery, taken: Taken) -> (Reply, Vec<Inbound>) {
        self.listen(async |gateway| {
            let mut heard = Vec::new();
            let reply = post(self.port, delivery);
            tokio::pin!(reply);
            loop {
                tokio::select! {
                    reply = &mut reply => return (reply, heard),
                    Some(batch) = gateway.batches.recv() => {
                        heard.extend(batch.events);
                        batch.done.send(taken).expect("it waits");
                    }
                }
            }
        })
        .await
    }

    async fn status(&self, delivery: Delivery) -> u16 {
        self.call(delivery, Taken::Committed).await.0.status
    }
}

/// Posts as soon as somebody listens.
async fn post(port: u16, delivery: Delivery) -> Reply {
    let reply = tokio::task::spawn_blocking(move || {
        let deadline = std::time::Instant::now() + SOON;
        loop {
            match delivery.post(port) {
                Ok(reply) => return reply,
                Err(error) => assert!(std::time::Instant::now() < deadline, "never answered: {error}"),
            }
        }
    });
    reply.await.expect("an answer")
}

fn to(route: &str, body: &Value) -> Delivery {
    Delivery::json(format!("/webhooks/{route}"), body).header("X-Gitlab-Token", "s")
}

fn body(reply: &Reply) -> Value {
    let (_head, body) = reply.text.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).expect("JSON")
}

#[tokio::test]
async fn a_delivery_becomes_a_conversation_of_its_own_and_says_where_its_answer_goes() {
    let rig = one(json!({ "secret": "s", "prompt": "build {n} failed", "deliver": "telegram" }));
    let delivery =
        to("ci", &json!({ "n": 7 })).header("X-GitHub-Delivery", "d1").header("X-GitHub-Event", "run");
    let (reply, heard) = rig.call(delivery, Taken::Committed).await;
    assert_eq!(reply.status, 202);
    let want = json!({ "status": "accepted", "route": "ci", "delivery_id": "d1", "event": "run" });
    assert_eq!(body(&reply), want);
    let [event] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!((event.text.as_str(), event.dedup.as_str()), ("build 7 failed", "turn:ci:d1"));
    assert_eq!(event.source.chat_id.as_deref(), Some("webhook:ci:d1"));
    assert_eq!(event.source.chat_type, ChatType::Webhook);
    let target = event.answer_to.as_ref().expect("a target");
    assert_eq!(target, &Route::to_home(Platform::parse("telegram").expect("known")));
}

#[tokio::test]
async fn the_caller_hears_what_became_of_it() {
    let rig = one(json!({ "secret": "s" }));
    for (taken, status, word) in [
        (Taken::Known, 200, "duplicate"),
        (Taken::NotTaken, 503, "could not be kept"),
        (Taken::Closed(Closed::Draining), 503, "gateway_draining"),
        (Taken::Closed(Closed::Leaving { restart: true }), 503, "gateway_stopping"),
    ] {
        let (reply, heard) = rig.call(to("ci", &json!([1, "two"])).header("X-Request-ID", "d"), taken).await;
        assert_eq!((reply.status, heard.len()), (status, 1), "{taken:?}");
        assert!(body(&reply).to_string().contains(word), "{taken:?}: {}", reply.text);
        assert_eq!(reply.text.to_lowercase().contains("retry-after"), status == 503, "{taken:?}");
    }
}

#[tokio::test]
async fn a_body_that_nobody_can_read_is_kept_as_it_came_and_refused() {
    let rig = one(json!({ "secret": "s" }));
    let said: &[u8] = b"{\"text\": \"sad \xff";
    let odd = || Delivery { body: said.to_vec(), ..to("ci", &json!({})) }.header("X-Request-ID", "d7");
    for (taken, status) in [(Taken::NotTaken, 503), (Taken::Committed, 400), (Taken::Known, 400)] {
        let (reply, batch) = rig
            .listen(async |gateway| {
                let offered = async {
                    let Batch { events, unreadable, done, .. } =
                        gateway.batches.recv().await.expect("it is offered");
                    done.send(taken).expect("it waits");
                    (events, unreadable)
                };
                tokio::time::timeout(SOON, async { tokio::join!(post(rig.port, odd()), offered) }).await
            })
            .await
            .expect("in time");
        assert_eq!(reply.status, status, "{taken:?}");
        let (events, unreadable) = batch;
        let [kept] = &unreadable[..] else { panic!("one: {unreadable:?}") };
        assert_eq!((events.len(), kept.id.as_deref()), (0, Some("d7")));
        let (raw, size) = (String::from_utf8_lossy(said), String::from_utf8_lossy(said).len());
        assert_eq!((kept.raw.as_str(), kept.size), (&*raw, size));
        assert!(!kept.why.contains("sad"), "{}", kept.why);
    }
    let stranger = Delivery { headers: vec![], ..odd() };
    let (reply, batches) = rig
        .listen(async |gateway| {
            let reply = post(rig.port, stranger).await;
            (reply.status, gateway.batches.try_recv().is_err())
        })
        .await;
    assert_eq!((reply, batches), (401, true), "nothing of a stranger's is kept");
}

#[tokio::test]
async fn a_place_where_nobody_can_ever_listen_is_fatal_and_names_the_setting() {
    let rig = rig(json!({ "ci": { "secret": "s" } }), |config| config.host = "\0".into());
    let (intake, _batches) = Intake::new(1);
    let error = rig.adapter.receive(None, &intake, &mut |_| {}).await;
    assert_eq!((error.code(), error.fault()), ("webhook_config_invalid", Fault::Fatal), "{error}");
    assert!(error.to_string().contains("WEBHOOK_PORT"), "{error}");
}

#[tokio::test]
async fn every_check_comes_before_the_next() {
    let routes = json!({
        "off": { "secret": "s", "enabled": false },
        "ci": { "secret": "s", "events": ["push"], "filters": [{ "field": "n", "equals": 1 }] },
    });
    let file = std::env::temp_dir().join(format!("petasos-webhook-order-{}.json", std::process::id()));
    std::fs::write(&file, r#"{"bare": {}}"#).expect("written");
    let rig = rig(routes, |config| {
        config.max_body = 64;
        config.rate_limit = 2;
        config.subscriptions = Some(file.clone());
    });
    let large = json!({ "x": "y".repeat(100) });
    let unsigned = |route: &str, body: &Value| Delivery::json(format!("/webhooks/{route}"), body);
    let rubbish = || Delivery { body: b"{".to_vec(), ..to("ci", &json!({})) };
    let push = |n: u8| to("ci", &json!({ "n": n, "event_type": "push" }));
    for (delivery, want, why) in [
        (unsigned("gone", &large), 404, "unknown, whatever else is wrong"),
        (Delivery::json("/p/work/webhooks/ci", &large), 404, "no profiles"),
        (Delivery::json("/elsewhere", &large), 404, "nothing there"),
        (unsigned("off", &large), 403, "switched off, whatever else is wrong"),
        (unsigned("ci", &large), 413, "too large before anything is known of its sender"),
        (unsigned("bare", &json!({})), 403, "no secret"),
        (unsigned("ci", &json!({})), 401, "not signed"),
        (rubbish().header("X-Webhook-Signature-V2", "00"), 401, "the strictest scheme that is begun decides"),
        (rubbish(), 400, "signed, and unreadable"),
        (to("ci", &json!({})), 200, "no event that is wanted"),
        (push(1), 429, "the third in a minute"),
        (rubbish(), 429, "not even read"),
        (unsigned("ci", &json!({})), 401, "a stranger learns nothing of the rate"),
    ] {
        assert_eq!(rig.status(delivery).await, want, "{why}");
    }
    std::fs::remove_file(&file).expect("removed");
}

#[tokio::test]
async fn what_is_not_wanted_is_ignored_and_what_is_wanted_is_taken() {
    let rig = one(json!({
        "secret": "s", "events": "push, tag", "filters": [{ "field": "n", "equals": 1 }],
    }));
    for (sent, status, word) in [
        (json!({ "event_type": "ping", "n": 1 }), 200, "event"),
        (json!({ "n": 1 }), 200, "event"),
        (json!({ "event_type": "tag", "n": 2 }), 200, "filter"),
        (json!({ "event_type": "tag", "n": 1 }), 202, "accepted"),
        (json!([{ "event_type": "tag" }]), 200, "event"),
        (json!(null), 200, "event"),
    ] {
        let (reply, heard) = rig.call(to("ci", &sent), Taken::Committed).await;
        assert_eq!((reply.status, heard.len()), (status, usize::from(status == 202)), "{sent}");
        assert!(reply.text.contains(word), "{sent}: {}", reply.text);
    }
}

#[tokio::test]
async fn a_signature_of_the_better_kind_cannot_be_gone_round() {
    let rig = one(json!({ "secret": "s" }));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time").as_secs();
    let plain = Delivery::json("/webhooks/ci", &json!({}));
    let [time, v2] = sign(&Secret::new("s"), now, &plain.body);
    // HMAC-SHA256 of `{}` with the key `s`, by openssl.
    let v1 = "143ca8d517ba1b181025d732b1cf275d90104fca57bb02a565542978aa18c4b6";
    assert_eq!(rig.status(plain.clone().header(v2.0, &v2.1).header(time.0, &time.1)).await, 202);
    assert_eq!(
        rig.status(plain.clone().header("X-Webhook-Signature", v1)).await,
        202,
        "the older kind alone"
    );
    assert_eq!(rig.status(plain.clone().header(v2.0, &v2.1)).await, 401, "without its time");
    assert_eq!(rig.status(plain.clone().header(v2.0, &v2.1).header("X-Webhook-Signature", v1)).await, 401);
    let [old_time, old] = sign(&Secret::new("s"), now - 301, &plain.body);
    assert_eq!(rig.status(plain.header(old.0, &old.1).header(old_time.0, &old_time.1)).await, 401, "too old");
}

#[tokio::test]
async fn health_is_open_and_says_nothing_else() {
    let rig = one(json!({ "secret": "s" }));
    let asked = rig
        .listen(async |_| {
            let mut stream = loop {
                match tokio::net::TcpStream::connect(("127.0.0.1", rig.port)).await {
                    Ok(stream) => break stream,
                    Err(_not_yet) => tokio::task::yield_now().await,
                }
            };
            stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("asked");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("answered");
            answer
        })
        .await;
    assert!(asked.starts_with("HTTP/1.1 200") && asked.contains(r#""status":"ok""#), "{asked}");
    let (reply, _) = rig.call(Delivery::json("/webhooks/ci", &json!({})), Taken::Committed).await;
    assert!(!reply.text.contains("secret\":"), "{}", reply.text);
}

#[tokio::test]
async fn a_message_that_is_passed_on_is_answered_with_its_delivery() {
    let rig = one(json!({
        "secret": "s", "prompt": "{text}", "deliver": "telegram", "deliver_only": true,
        "deliver_extra": { "chat_id": "{chat}" },
    }));
    for (posted, status, word) in [
        (Posted::Delivered { again: false }, 200, "delivered"),
        (Posted::Delivered { again: true }, 200, "duplicate"),
        (Posted::Owed, 502, "owed"),
        (Posted::Dead, 502, "refused"),
        (Posted::NotTaken, 503, "could not be kept"),
    ] {
        let delivery = to("ci", &json!({ "text": "/stop", "chat": 5 })).header("X-Request-ID", "d1");
        let reply = rig
            .listen(async |gateway| {
                let answer = async {
                    let post = gateway.posts.recv().await.expect("a post");
                    assert_eq!((post.dedup.as_str(), post.text.as_str()), ("post:ci:d1", "/stop"));
                    assert_eq!(post.route.lane().to_string(), "telegram:5");
                    post.done.send(posted).expect("it waits");
                };
                tokio::join!(post(rig.port, delivery), answer).0
            })
            .await;
        assert_eq!(reply.status, status, "{posted:?}");
        assert!(reply.text.contains(word), "{posted:?}: {}", reply.text);
    }
    assert_eq!(rig.status(to("ci", &json!({ "text": "hi" }))).await, 502, "no chat is named");
}

/// GitHub's part: answers each request with what it is given, and keeps what was asked.
async fn github(answers: Vec<&'static str>) -> (String, tokio::task::JoinHandle<Vec<String>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let served = tokio::spawn(async move {
        let mut asked = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().await.expect("a caller");
            let mut request = Vec::new();
            while !request.ends_with(b"}") {
                let mut chunk = [0; 4096];
                let read = stream.read(&mut chunk).await.expect("readable");
                assert_ne!(read, 0, "the request is cut");
                request.extend_from_slice(&chunk[..read]);
            }
            asked.push(String::from_utf8(request).expect("text"));
            stream.write_all(answer.as_bytes()).await.expect("written");
        }
        asked
    });
    (url, served)
}

fn comment_route(chat: &str) -> Route {
    Route {
        platform: Platform::parse("webhook").expect("known"),
        chat_id: chat.into(),
        thread_id: None,
        reply_to: None,
        delivery: Way::Push,
    }
}

#[tokio::test]
async fn a_comment_is_made_once_and_its_errors_say_what_to_do() {
    const CREATED: &str =
        "HTTP/1.1 201 Created\r\nContent-Length: 10\r\nConnection: close\r\n\r\n{\"id\": 99}";
    const LIMITED: &str =
        "HTTP/1.1 403 Forbidden\r\nRetry-After: 30\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    const GONE: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    const ILL: &str = "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let (url, asked) = github(vec![CREATED, GONE, ILL, LIMITED]).await;
    let rig = rig(json!({}), |config| {
        config.github_api = url;
        config.github_token = Some(Secret::new("ghp_x"));
    });
    let to = comment_route("github:acme/web#12");
    let send = || async { rig.adapter.send(&to, &Part::plain("**fine**"), &SendOptions::default()).await };
    assert_eq!(send().await.expect("sent").message_id.as_deref(), Some("99"));
    let gone = send().await.expect_err("gone");
    assert_eq!((gone.fault(), gone.kind()), (Fault::Refused, Kind::ChatNotFound));
    let ill = send().await.expect_err("ill");
    assert_eq!((ill.fault(), ill.reached()), (Fault::Later { after: None }, Reached::Maybe));
    let limited = send().await.expect_err("limited");
    assert_eq!(limited.fault(), Fault::Later { after: Some(Duration::from_secs(30)) });
    assert!(send().await.expect_err("held").is_held(), "nothing is asked while the limit lasts");
    for error in [limited, gone, ill] {
        assert!(!format!("{error} {error:?}").contains("ghp_x"));
    }
    let asked = asked.await.expect("served");
    assert!(asked[0].starts_with("POST /repos/acme/web/issues/12/comments HTTP/1.1\r\n"), "{}", asked[0]);
    assert!(asked[0].to_lowercase().contains("authorization: bearer ghp_x"), "{}", asked[0]);
    assert!(asked[0].ends_with(r#"{"body":"**fine**"}"#), "{}", asked[0]);
    let (nowhere, part) = (comment_route("webhook:ci:1"), Part::plain("x"));
    let unread = rig.adapter.send(&nowhere, &part, &SendOptions::default()).await;
    assert_eq!(unread.expect_err("nobody reads there").fault(), Fault::Refused);
}
