//! Webhook adapter: responses to callers and the order of the checks.

use std::time::Duration;

use petasos_core::lifecycle::NotAccepting;
use petasos_core::message::{ChatType, Delivery};
use petasos_core::{Fault, Inbound, Platform, Reached, Route};
use petasos_fakes::hooks::{WebhookDelivery, WebhookResponse};
use petasos_platforms::webhook::{Config, Targets, Webhook, sign};
use petasos_platforms::{
    Adapter, CommitResult, InboundBatch, InboundSink, Kind, Part, Post, PostOutcome, Secret, SendOptions,
};
use petasos_runtime::clock;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::harness::TEST_TIMEOUT;

struct WebhookFixture {
    adapter: Adapter,
    port: u16,
}

/// The gateway's side of the link.
struct GatewayHarness {
    batches: mpsc::Receiver<InboundBatch>,
    posts: mpsc::Receiver<Post>,
}

fn fixture_with(routes: Value, change: impl FnOnce(&mut Config)) -> WebhookFixture {
    let port = petasos_fakes::port::free();
    let targets = [Platform::parse("telegram").expect("known")];
    let routes = routes.as_object().expect("a section").clone();
    let mut config = Config { port, routes, targets: Targets(targets.into()), ..Config::default() };
    change(&mut config);
    WebhookFixture { adapter: Adapter::Webhook(Webhook::new(config).expect("valid")), port }
}

/// With one route, `ci`.
fn fixture(route: Value) -> WebhookFixture {
    fixture_with(json!({ "ci": route }), |_| {})
}

impl WebhookFixture {
    /// Runs the link while `work` runs.
    async fn listen<T>(&self, work: impl AsyncFnOnce(&mut GatewayHarness) -> T) -> T {
        let (sink, batches, posts) = InboundSink::with_posts(4);
        let mut gateway = GatewayHarness { batches, posts };
        let mut health = |_| {};
        tokio::select! {
            error = self.adapter.receive(None, &sink, &mut health) => panic!("the link ended: {error}"),
            done = work(&mut gateway) => done,
        }
    }

    /// Posts a delivery; the gateway answers every batch with `result`. Returns the response and the events.
    async fn call(&self, delivery: WebhookDelivery, result: CommitResult) -> (WebhookResponse, Vec<Inbound>) {
        self.listen(async |gateway| {
            let mut events = Vec::new();
            let response = post(self.port, delivery);
            tokio::pin!(response);
            loop {
                tokio::select! {
                    response = &mut response => return (response, events),
                    Some(batch) = gateway.batches.recv() => {
                        events.extend(batch.events);
                        batch.done.send(result).expect("it waits");
                    }
                }
            }
        })
        .await
    }

    async fn status(&self, delivery: WebhookDelivery) -> u16 {
        self.call(delivery, CommitResult::Committed).await.0.status
    }
}

/// Posts as soon as the port is served.
async fn post(port: u16, delivery: WebhookDelivery) -> WebhookResponse {
    let response = petasos_runtime::blocking(move || {
        let deadline = clock::monotonic() + TEST_TIMEOUT;
        loop {
            match delivery.post(port) {
                Ok(response) => return response,
                Err(error) => assert!(clock::monotonic() < deadline, "never answered: {error}"),
            }
        }
    });
    response.await.expect("a response")
}

fn delivery_to(route: &str, body: &Value) -> WebhookDelivery {
    WebhookDelivery::json(format!("/webhooks/{route}"), body).header("X-Gitlab-Token", "s")
}

fn body(response: &WebhookResponse) -> Value {
    let (_head, body) = response.text.split_once("\r\n\r\n").expect("a body");
    serde_json::from_str(body).expect("JSON")
}

#[tokio::test]
async fn delivery_starts_a_chat_with_its_own_reply_route() {
    let fixture = fixture(json!({ "secret": "s", "prompt": "build {n} failed", "deliver": "telegram" }));
    let delivery = delivery_to("ci", &json!({ "n": 7 }))
        .header("X-GitHub-Delivery", "d1")
        .header("X-GitHub-Event", "run");
    let (response, events) = fixture.call(delivery, CommitResult::Committed).await;
    assert_eq!(response.status, 202);
    let want = json!({ "status": "accepted", "route": "ci", "delivery_id": "d1", "event": "run" });
    assert_eq!(body(&response), want);
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!((event.text.as_str(), event.dedup.as_str()), ("build 7 failed", "turn:ci:d1"));
    assert_eq!(event.source.chat_id.as_deref(), Some("webhook:ci:d1"));
    assert_eq!(event.source.chat_type, ChatType::Webhook);
    let target = event.reply_route.as_ref().expect("a target");
    assert_eq!(target, &Route::to_home(Platform::parse("telegram").expect("known")));
}

#[tokio::test]
async fn responds_with_the_commit_result() {
    let fixture = fixture(json!({ "secret": "s" }));
    for (result, status, word) in [
        (CommitResult::Duplicate, 200, "duplicate"),
        (CommitResult::NotStored, 503, "could not be stored"),
        (CommitResult::Closed(NotAccepting::Draining), 503, "gateway_draining"),
        (CommitResult::Closed(NotAccepting::ShuttingDown { restart: true }), 503, "gateway_stopping"),
    ] {
        let (response, events) =
            fixture.call(delivery_to("ci", &json!([1, "two"])).header("X-Request-ID", "d"), result).await;
        assert_eq!((response.status, events.len()), (status, 1), "{result:?}");
        assert!(body(&response).to_string().contains(word), "{result:?}: {}", response.text);
        assert_eq!(response.text.to_lowercase().contains("retry-after"), status == 503, "{result:?}");
    }
}

#[tokio::test]
async fn stores_an_unreadable_body_and_refuses_it() {
    let fixture = fixture(json!({ "secret": "s" }));
    let raw: &[u8] = b"{\"text\": \"sad \xff";
    let odd = || {
        WebhookDelivery { body: raw.to_vec(), ..delivery_to("ci", &json!({})) }.header("X-Request-ID", "d7")
    };
    for (result, status) in
        [(CommitResult::NotStored, 503), (CommitResult::Committed, 400), (CommitResult::Duplicate, 400)]
    {
        let (response, batch) = fixture
            .listen(async |gateway| {
                let offered = async {
                    let InboundBatch { events, unreadable, done, .. } =
                        gateway.batches.recv().await.expect("a batch");
                    done.send(result).expect("the adapter waits");
                    (events, unreadable)
                };
                tokio::time::timeout(TEST_TIMEOUT, async { tokio::join!(post(fixture.port, odd()), offered) })
                    .await
            })
            .await
            .expect("in time");
        assert_eq!(response.status, status, "{result:?}");
        let (events, unreadable) = batch;
        let [stored] = &unreadable[..] else { panic!("one: {unreadable:?}") };
        assert_eq!((events.len(), stored.id.as_deref()), (0, Some("d7")));
        let text = String::from_utf8_lossy(raw);
        assert_eq!((stored.raw.as_str(), stored.size), (&*text, text.len()));
        assert!(!stored.why.contains("sad"), "{}", stored.why);
    }
    let stranger = WebhookDelivery { headers: vec![], ..odd() };
    let (status, is_empty) = fixture
        .listen(async |gateway| {
            let response = post(fixture.port, stranger).await;
            (response.status, gateway.batches.try_recv().is_err())
        })
        .await;
    assert_eq!((status, is_empty), (401, true), "nothing from an unauthenticated caller is stored");
}

#[tokio::test]
async fn invalid_host_is_fatal_and_names_the_setting() {
    let fixture = fixture_with(json!({ "ci": { "secret": "s" } }), |config| config.host = "\0".into());
    let (sink, _batches) = InboundSink::new(1);
    let error = fixture.adapter.receive(None, &sink, &mut |_| {}).await;
    assert_eq!((error.code(), error.fault()), ("webhook_config_invalid", Fault::Fatal), "{error}");
    assert!(error.to_string().contains("WEBHOOK_PORT"), "{error}");
}

#[tokio::test]
async fn runs_the_checks_in_order() {
    let routes = json!({
        "off": { "secret": "s", "enabled": false },
        "ci": { "secret": "s", "events": ["push"], "filters": [{ "field": "n", "equals": 1 }] },
    });
    let file = std::env::temp_dir().join(format!("petasos-webhook-order-{}.json", std::process::id()));
    std::fs::write(&file, r#"{"bare": {}}"#).expect("written");
    let fixture = fixture_with(routes, |config| {
        config.max_body = 64;
        config.rate_limit = 2;
        config.subscriptions = Some(file.clone());
    });
    let large = json!({ "x": "y".repeat(100) });
    let unsigned = |route: &str, body: &Value| WebhookDelivery::json(format!("/webhooks/{route}"), body);
    let malformed = || WebhookDelivery { body: b"{".to_vec(), ..delivery_to("ci", &json!({})) };
    let push = |n: u8| delivery_to("ci", &json!({ "n": n, "event_type": "push" }));
    for (delivery, want, why) in [
        (unsigned("gone", &large), 404, "an unknown route comes first"),
        (WebhookDelivery::json("/p/work/webhooks/ci", &large), 404, "no profiles"),
        (WebhookDelivery::json("/elsewhere", &large), 404, "nothing there"),
        (unsigned("off", &large), 403, "a switched-off route comes before the body size"),
        (unsigned("ci", &large), 413, "too large, before the signature"),
        (unsigned("bare", &json!({})), 403, "no secret"),
        (unsigned("ci", &json!({})), 401, "not signed"),
        (malformed().header("X-Webhook-Signature-V2", "00"), 401, "the strongest scheme decides"),
        (malformed(), 400, "signed, and unreadable"),
        (delivery_to("ci", &json!({})), 200, "an event that is not listed"),
        (push(1), 429, "the third in a minute"),
        (malformed(), 429, "limited before the body is parsed"),
        (unsigned("ci", &json!({})), 401, "the signature comes before the rate"),
    ] {
        assert_eq!(fixture.status(delivery).await, want, "{why}");
    }
    std::fs::remove_file(&file).expect("removed");
}

#[tokio::test]
async fn ignores_events_that_the_route_excludes() {
    let fixture = fixture(json!({
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
        let (response, events) = fixture.call(delivery_to("ci", &sent), CommitResult::Committed).await;
        assert_eq!((response.status, events.len()), (status, usize::from(status == 202)), "{sent}");
        assert!(response.text.contains(word), "{sent}: {}", response.text);
    }
}

#[tokio::test]
async fn invalid_v2_signature_cannot_be_bypassed_with_v1() {
    let fixture = fixture(json!({ "secret": "s" }));
    let now = clock::now().0 / 1000;
    let plain = WebhookDelivery::json("/webhooks/ci", &json!({}));
    let [time, v2] = sign(&Secret::new("s"), now, &plain.body);
    // HMAC-SHA256 of `{}` with the key `s`, by openssl.
    let v1 = "143ca8d517ba1b181025d732b1cf275d90104fca57bb02a565542978aa18c4b6";
    assert_eq!(fixture.status(plain.clone().header(v2.0, &v2.1).header(time.0, &time.1)).await, 202);
    assert_eq!(
        fixture.status(plain.clone().header("X-Webhook-Signature", v1)).await,
        202,
        "the older kind alone"
    );
    assert_eq!(fixture.status(plain.clone().header(v2.0, &v2.1)).await, 401, "without its time");
    assert_eq!(
        fixture.status(plain.clone().header(v2.0, &v2.1).header("X-Webhook-Signature", v1)).await,
        401
    );
    let [old_time, old] = sign(&Secret::new("s"), now - 301, &plain.body);
    assert_eq!(
        fixture.status(plain.header(old.0, &old.1).header(old_time.0, &old_time.1)).await,
        401,
        "too old"
    );
}

#[tokio::test]
async fn health_check_needs_no_secret() {
    let fixture = fixture(json!({ "secret": "s" }));
    let response = fixture
        .listen(async |_| {
            let mut stream = loop {
                match tokio::net::TcpStream::connect(("127.0.0.1", fixture.port)).await {
                    Ok(stream) => break stream,
                    Err(_not_yet) => tokio::task::yield_now().await,
                }
            };
            stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("sent");
            let mut response = String::new();
            stream.read_to_string(&mut response).await.expect("a response");
            response
        })
        .await;
    assert!(response.starts_with("HTTP/1.1 200") && response.contains(r#""status":"ok""#), "{response}");
    let (response, _) =
        fixture.call(WebhookDelivery::json("/webhooks/ci", &json!({})), CommitResult::Committed).await;
    assert!(!response.text.contains("secret\":"), "{}", response.text);
}

#[tokio::test]
async fn responds_with_the_outcome_of_a_post() {
    let fixture = fixture(json!({
        "secret": "s", "prompt": "{text}", "deliver": "telegram", "deliver_only": true,
        "deliver_extra": { "chat_id": "{chat}" },
    }));
    for (posted, status, word) in [
        (PostOutcome::Delivered { duplicate: false }, 200, "delivered"),
        (PostOutcome::Delivered { duplicate: true }, 200, "duplicate"),
        (PostOutcome::Queued, 502, "owed"),
        (PostOutcome::Dead, 502, "refused"),
        (PostOutcome::NotStored, 503, "could not be stored"),
    ] {
        let delivery = delivery_to("ci", &json!({ "text": "/stop", "chat": 5 })).header("X-Request-ID", "d1");
        let response = fixture
            .listen(async |gateway| {
                let outcome = async {
                    let post = gateway.posts.recv().await.expect("a post");
                    assert_eq!((post.dedup.as_str(), post.text.as_str()), ("post:ci:d1", "/stop"));
                    assert_eq!(post.route.lane().to_string(), "telegram:5");
                    post.done.send(posted).expect("the adapter waits");
                };
                tokio::join!(post(fixture.port, delivery), outcome).0
            })
            .await;
        assert_eq!(response.status, status, "{posted:?}");
        assert!(response.text.contains(word), "{posted:?}: {}", response.text);
    }
    assert_eq!(fixture.status(delivery_to("ci", &json!({ "text": "hi" }))).await, 502, "no chat is named");
}

/// A fake GitHub that sends these responses; returns its URL and the requests.
async fn github(responses: Vec<&'static str>) -> (String, tokio::task::JoinHandle<Vec<String>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let served = petasos_runtime::spawn(async move {
        let mut requests = Vec::new();
        for response in responses {
            let (mut stream, _) = listener.accept().await.expect("a caller");
            let mut request = Vec::new();
            while !request.ends_with(b"}") {
                let mut chunk = [0; 4096];
                let read = stream.read(&mut chunk).await.expect("readable");
                assert_ne!(read, 0, "the request is cut");
                request.extend_from_slice(&chunk[..read]);
            }
            requests.push(String::from_utf8(request).expect("text"));
            stream.write_all(response.as_bytes()).await.expect("written");
        }
        requests
    });
    (url, served)
}

fn comment_route(chat: &str) -> Route {
    Route {
        platform: Platform::parse("webhook").expect("known"),
        chat_id: chat.into(),
        thread_id: None,
        reply_to: None,
        delivery: Delivery::Push,
    }
}

#[tokio::test]
async fn creates_a_comment_and_classifies_errors() {
    const CREATED: &str =
        "HTTP/1.1 201 Created\r\nContent-Length: 10\r\nConnection: close\r\n\r\n{\"id\": 99}";
    const LIMITED: &str =
        "HTTP/1.1 403 Forbidden\r\nRetry-After: 30\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    const GONE: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    const SERVER_ERROR: &str = "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let (url, requests) = github(vec![CREATED, GONE, SERVER_ERROR, LIMITED]).await;
    let fixture = fixture_with(json!({}), |config| {
        config.github_api = url;
        config.github_token = Some(Secret::new("ghp_x"));
    });
    let to = comment_route("github:acme/web#12");
    let send =
        || async { fixture.adapter.send(&to, &Part::plain("**fine**"), &SendOptions::default()).await };
    assert_eq!(send().await.expect("sent").message_id.as_deref(), Some("99"));
    let gone = send().await.expect_err("gone");
    assert_eq!((gone.fault(), gone.kind()), (Fault::Refused, Kind::ChatNotFound));
    let failed = send().await.expect_err("a server error");
    assert_eq!((failed.fault(), failed.reached()), (Fault::Later { after: None }, Reached::Maybe));
    let limited = send().await.expect_err("limited");
    assert_eq!(limited.fault(), Fault::Later { after: Some(Duration::from_secs(30)) });
    assert!(send().await.expect_err("penalized").is_penalized(), "no request while the limit is in force");
    for error in [limited, gone, failed] {
        assert!(!format!("{error} {error:?}").contains("ghp_x"));
    }
    let requests = requests.await.expect("served");
    assert!(
        requests[0].starts_with("POST /repos/acme/web/issues/12/comments HTTP/1.1\r\n"),
        "{}",
        requests[0]
    );
    assert!(requests[0].to_lowercase().contains("authorization: bearer ghp_x"), "{}", requests[0]);
    assert!(requests[0].ends_with(r#"{"body":"**fine**"}"#), "{}", requests[0]);
    let no_reader = comment_route("webhook:ci:1");
    let refused = fixture.adapter.send(&no_reader, &Part::plain("x"), &SendOptions::default()).await;
    assert_eq!(refused.expect_err("no reader").fault(), Fault::Refused);
}
