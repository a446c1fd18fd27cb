//! The webhook link against a fake Bot API.

use std::net::TcpListener;
use std::time::Duration;

use petasos_core::Fault as ExpectedFault;
use petasos_fakes::hooks::WebhookDelivery;
use petasos_fakes::port;
use petasos_fakes::telegram::{Fault, WebhookPost};
use petasos_platforms::telegram::{Config, Telegram, TelegramConfigError, WebhookConfig};
use petasos_platforms::{CommitResult, LinkHealth, Secret};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::fixture::{TOKEN, TelegramFixture, commit_events, degraded, fixture_with, next_batch, texts};

const SECRET: &str = "s3cret_-";

fn webhook(port: u16) -> WebhookConfig {
    let fresh = WebhookConfig::new(format!("http://127.0.0.1:{port}/tg/hook"));
    WebhookConfig {
        secret: Some(Secret::new(SECRET)),
        port,
        check_interval: Duration::from_millis(50),
        ..fresh
    }
}

/// A webhook link and its port.
fn webhook_fixture() -> (TelegramFixture, u16) {
    let port = port::free();
    (fixture_with(|config| config.webhook = Some(webhook(port))), port)
}

async fn webhook_is_set(fixture: &TelegramFixture) {
    fixture.wait_until("a webhook", |state| state.webhook_url().map(drop)).await;
}

fn statuses(fixture: &TelegramFixture) -> Vec<Option<u16>> {
    fixture.fake.read(|state| state.posts().iter().map(|post| post.status).collect())
}

async fn post(port: u16, delivery: WebhookDelivery) -> u16 {
    let reply = petasos_runtime::blocking(move || delivery.post(port)).await.expect("it ends");
    reply.expect("an answer").status
}

fn update(number: i64) -> serde_json::Value {
    let chat = json!({ "id": 5, "type": "private" });
    let from = json!({ "id": 5, "is_bot": false, "first_name": "A" });
    let message = json!({ "message_id": 1, "date": 1, "chat": chat, "from": from, "text": "hello" });
    json!({ "update_id": number, "message": message })
}

#[tokio::test]
async fn answers_200_only_after_the_commit() {
    let (fixture, _) = webhook_fixture();
    let ((), health_log) = fixture
        .listen(None, async |batches| {
            webhook_is_set(&fixture).await;
            let first = fixture.fake.push_text(5, 5, "one");
            fixture.fake.push_text(5, 5, "two");
            let batch = next_batch(batches).await;
            assert_eq!((texts(&batch.events), batch.cursor.as_deref()), (vec!["one"], Some("0")));
            assert_eq!(batch.events[0].dedup, first.to_string());
            assert_eq!(
                (fixture.fake.pending_updates(), statuses(&fixture)),
                (2, vec![]),
                "nothing answered yet"
            );
            batch.done.send(CommitResult::Committed).expect("it waits");
            assert_eq!(texts(&commit_events(batches, 1).await), ["two"]);
            fixture.wait_until("both are over", |state| (state.pending_updates() == 0).then_some(())).await;
            // The first result was read and reported before the second request.
            fixture
                .wait_until("asked", |state| (state.calls_of("getWebhookInfo").count() >= 2).then_some(()))
                .await;
        })
        .await;
    assert_eq!(statuses(&fixture), [Some(200), Some(200)]);
    assert_eq!(health_log[..2], [LinkHealth::Connecting, LinkHealth::Connected]);
    let set = &fixture.fake.calls_of("setWebhook")[0];
    assert!(!set.params.flag("drop_pending_updates"), "a backlog is never discarded");
    assert_eq!(
        set.params.json("allowed_updates"),
        Some(json!(["message", "channel_post", "callback_query"]))
    );
    assert_eq!((fixture.polls(), fixture.fake.calls_of("deleteWebhook").len()), (0, 0));
}

#[tokio::test]
async fn redelivers_updates_that_were_not_stored() {
    let (fixture, _) = webhook_fixture();
    let ((), health_log) = fixture
        .listen(None, async |batches| {
            webhook_is_set(&fixture).await;
            fixture.fake.push_text(5, 5, "keep me");
            next_batch(batches).await.done.send(CommitResult::NotStored).expect("it waits");
            drop(next_batch(batches).await);
            assert_eq!(texts(&commit_events(batches, 1).await), ["keep me"]);
            fixture.wait_until("it is over", |state| (state.pending_updates() == 0).then_some(())).await;
        })
        .await;
    assert_eq!(statuses(&fixture), [Some(503), Some(503), Some(200)]);
    assert!(degraded(&health_log).contains(&"telegram_not_taken"), "{health_log:?}");
}

#[tokio::test]
async fn refuses_requests_without_the_secret() {
    let (fixture, port) = webhook_fixture();
    let good =
        || WebhookDelivery::json("/tg/hook", &update(7)).header("X-Telegram-Bot-Api-Secret-Token", SECRET);
    fixture
        .listen(None, async |batches| {
            webhook_is_set(&fixture).await;
            let bare = WebhookDelivery::json("/tg/hook", &update(7));
            let wrong = bare.clone().header("X-Telegram-Bot-Api-Secret-Token", "s3cret_");
            let elsewhere = WebhookDelivery { path: "/tg".into(), ..good() };
            let large = WebhookDelivery { body: vec![b' '; (1 << 20) + 1], ..good() };
            for (status, delivery) in [(401, bare), (401, wrong), (404, elsewhere), (413, large)] {
                assert_eq!(post(port, delivery).await, status);
            }
            assert!(batches.try_recv().is_err(), "nothing was offered");
            let (status, events) = tokio::join!(post(port, good()), commit_events(batches, 1));
            assert_eq!((status, texts(&events)), (200, vec!["hello"]));
        })
        .await;
}

#[tokio::test]
async fn unreadable_update_does_not_block_later_ones() {
    let (fixture, _) = webhook_fixture();
    fixture
        .listen(None, async |batches| {
            webhook_is_set(&fixture).await;
            let odd = fixture.fake.push_update(json!({ "message": 5 }));
            fixture.fake.push_text(5, 5, "after");
            let batch = next_batch(batches).await;
            assert!(batch.events.is_empty());
            assert_eq!(batch.unreadable[0].id, Some(odd.to_string()));
            batch.done.send(CommitResult::Committed).expect("it waits");
            assert_eq!(texts(&commit_events(batches, 1).await), ["after"]);
        })
        .await;
}

#[tokio::test]
async fn stores_malformed_requests_as_unreadable() {
    let (fixture, port) = webhook_fixture();
    let call =
        |body: &[u8]| WebhookDelivery { body: body.into(), ..WebhookDelivery::json("/tg/hook", &json!({})) };
    let call = |body| call(body).header("X-Telegram-Bot-Api-Secret-Token", SECRET);
    fixture
        .listen(None, async |batches| {
            webhook_is_set(&fixture).await;
            for body in [&b"{\"text\":\"sad"[..], b"{\"message\":\"sad\"}", b"sad \xff"] {
                for (result, status) in [(CommitResult::NotStored, 503), (CommitResult::Committed, 200)] {
                    let offered = async {
                        let batch = next_batch(batches).await;
                        assert!(batch.events.is_empty());
                        let [stored] = &batch.unreadable[..] else { panic!("one: {:?}", batch.unreadable) };
                        assert_eq!(
                            (stored.id.as_deref(), stored.raw.as_str()),
                            (None, &*String::from_utf8_lossy(body))
                        );
                        assert!(!stored.why.contains("sad"), "{}", stored.why);
                        batch.done.send(result).expect("it waits");
                    };
                    assert_eq!(tokio::join!(post(port, call(body)), offered).0, status);
                }
            }
        })
        .await;
}

#[tokio::test]
async fn health_check_needs_no_secret() {
    let (fixture, port) = webhook_fixture();
    fixture
        .listen(None, async |batches| {
            webhook_is_set(&fixture).await;
            let response = async {
                let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("our port");
                stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("asked");
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await.expect("answered");
                answer
            };
            let answer = response.await;
            assert!(
                answer.starts_with("HTTP/1.1 200")
                    && answer.ends_with(r#"{"platform":"telegram","status":"ok"}"#)
            );
            assert!(batches.try_recv().is_err(), "nothing was offered");
        })
        .await;
}

#[tokio::test]
async fn invalid_host_is_fatal_and_names_the_setting() {
    let nowhere = |config: &mut Config| {
        config.webhook = Some(WebhookConfig { host: "\0".into(), ..webhook(port::free()) });
    };
    let fixture = fixture_with(nowhere);
    let (error, _) = fixture.run_until_link_ends().await;
    assert_eq!(
        (error.code(), error.fault()),
        ("telegram_webhook_config_invalid", ExpectedFault::Fatal),
        "{error}"
    );
    assert!(error.to_string().contains("TELEGRAM_WEBHOOK_PORT"), "{error}");
    assert!(fixture.fake.calls_of("setWebhook").is_empty(), "no webhook without a listener");
}

#[tokio::test]
async fn sets_the_webhook_again_after_it_was_replaced() {
    let (fixture, port) = webhook_fixture();
    fixture
        .listen(None, async |batches| {
            webhook_is_set(&fixture).await;
            fixture.fake.redirect_webhook(format!("http://127.0.0.1:{}/other", port::free()));
            let ours = format!("http://127.0.0.1:{port}/tg/hook");
            fixture
                .wait_until("ours again", move |state| (state.webhook_url() == Some(&ours)).then_some(()))
                .await;
            fixture.fake.push_text(5, 5, "home");
            assert_eq!(texts(&commit_events(batches, 1).await), ["home"]);
        })
        .await;
    assert_eq!(fixture.fake.calls_of("setWebhook").len(), 2);
}

#[tokio::test]
async fn reports_failing_deliveries_and_their_recovery() {
    // Telegram calls a closed port, like a proxy that is down.
    let port = port::free();
    let proxy = port::free();
    let url = format!("http://127.0.0.1:{proxy}/tg/hook");
    let fixture = fixture_with(|config| config.webhook = Some(WebhookConfig { url, ..webhook(port) }));
    let ((), health_log) = fixture
        .listen(None, async |batches| {
            webhook_is_set(&fixture).await;
            fixture.fake.push_text(5, 5, "patient");
            fixture.wait_until("a failure", |state| state.posts().first().map(drop)).await;
            let requests = fixture.fake.calls_of("getWebhookInfo").len();
            // The next result was read before the request after it.
            fixture
                .wait_until("questions after it", move |state| {
                    (state.calls_of("getWebhookInfo").count() >= requests + 2).then_some(())
                })
                .await;
            let through = tokio::net::TcpListener::bind(("127.0.0.1", proxy)).await.expect("its port");
            let pass = async {
                loop {
                    let (mut from, _) = through.accept().await.expect("a caller");
                    let mut to = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("our port");
                    let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
                }
            };
            tokio::select! {
                never = pass => never,
                events = commit_events(batches, 1) => assert_eq!(texts(&events), ["patient"]),
            }
        })
        .await;
    assert!(degraded(&health_log).contains(&"telegram_webhook_failing"), "{health_log:?}");
}

#[tokio::test]
async fn ends_the_link_after_three_failed_status_requests() {
    let (fixture, _) = webhook_fixture();
    fixture.fake.on("getWebhookInfo").always().does(Fault::status(502, "Bad Gateway"));
    let (error, health_log) = fixture.run_until_link_ends().await;
    assert_eq!(
        (error.code(), error.fault()),
        ("telegram_network_error", ExpectedFault::Later { after: None })
    );
    assert_eq!(degraded(&health_log), ["telegram_server_error"; 3]);
    assert_eq!(fixture.fake.calls_of("getWebhookInfo").len(), 3);
}

#[tokio::test]
async fn port_in_use_and_refused_address_give_advice() {
    let (fixture, port) = webhook_fixture();
    let result = TcpListener::bind(("127.0.0.1", port)).expect("its port");
    let (error, _) = fixture.run_until_link_ends().await;
    assert_eq!(error.code(), "telegram_webhook_port_in_use");
    assert!(error.to_string().contains("TELEGRAM_WEBHOOK_PORT"), "{error}");
    assert!(fixture.fake.calls_of("setWebhook").is_empty(), "no webhook without our listener");
    drop(result);
    fixture
        .fake
        .on("setWebhook")
        .does(Fault::status(400, "Bad Request: bad webhook: IP address 10.0.0.1 is reserved"));
    let (error, _) = fixture.run_until_link_ends().await;
    assert_eq!(
        (error.code(), error.fault()),
        ("telegram_webhook_refused", ExpectedFault::Later { after: None })
    );
    assert!(error.to_string().contains("TELEGRAM_WEBHOOK_URL"), "{error}");
}

#[tokio::test]
async fn return_to_polling_delivers_all_pending_updates() {
    let (fixture, _) = webhook_fixture();
    let cursor = fixture
        .listen(None, async |batches| {
            webhook_is_set(&fixture).await;
            fixture.fake.push_text(5, 5, "result");
            let batch = next_batch(batches).await;
            batch.done.send(CommitResult::Committed).expect("it waits");
            fixture.wait_until("it is over", |state| (state.pending_updates() == 0).then_some(())).await;
            batch.cursor.expect("a cursor")
        })
        .await
        .0;
    let left = fixture.fake.push_text(5, 5, "left");
    fixture
        .wait_until("the listener is gone", move |state| {
            state.posts().contains(&WebhookPost { update_id: left, status: None }).then_some(())
        })
        .await;
    let mut config = Config::new(Secret::new(TOKEN));
    config.base_url = format!("{}/bot", fixture.fake.url());
    config.poll_backoff_base = Duration::from_millis(1);
    let adapter = petasos_platforms::Adapter::Telegram(Telegram::new(config).expect("valid"));
    let polling = TelegramFixture { fake: fixture.fake.clone(), adapter };
    polling
        .listen(Some(&cursor), async |batches| assert_eq!(texts(&commit_events(batches, 1).await), ["left"]))
        .await;
    assert_eq!(fixture.fake.read(|state| state.webhook_url().map(str::to_owned)), None);
}

#[test]
fn refuses_a_webhook_without_valid_secret_or_https() {
    let with = |base: Option<&str>, change: fn(&mut WebhookConfig)| {
        let mut webhook = WebhookConfig { url: "https://example.org/tg".into(), ..webhook(1) };
        change(&mut webhook);
        let mut config = Config::new(Secret::new(TOKEN));
        config.webhook = Some(webhook);
        config.base_url = base.map_or(config.base_url, str::to_owned);
        Telegram::new(config)
    };
    assert!(with(None, |_| {}).is_ok());
    assert!(matches!(with(None, |it| it.secret = None), Err(TelegramConfigError::NoWebhookSecret)));
    for bad in ["", "two words", &"x".repeat(257)] {
        let mut config = Config::new(Secret::new(TOKEN));
        config.webhook = Some(WebhookConfig {
            url: "https://example.org/tg".into(),
            secret: Some(Secret::new(bad)),
            ..webhook(1)
        });
        assert!(matches!(Telegram::new(config), Err(TelegramConfigError::WebhookSecret)), "{bad:?}");
    }
    let plain = |it: &mut WebhookConfig| it.url = "http://example.org/tg".into();
    assert!(matches!(with(None, plain), Err(TelegramConfigError::WebhookUrl(_))));
    assert!(with(Some("http://127.0.0.1:8081/bot"), plain).is_ok(), "a server of one's own may call so");
    assert!(matches!(
        with(None, |it| it.url = "example.org".into()),
        Err(TelegramConfigError::WebhookUrl(_))
    ));
}
