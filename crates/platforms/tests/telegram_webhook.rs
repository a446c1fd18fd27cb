//! Being called by a fake Bot API instead of polling it.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

mod rig;

use std::net::TcpListener;
use std::time::Duration;

use petasos_core::Fault as Meaning;
use petasos_fakes::hooks::Delivery;
use petasos_fakes::port;
use petasos_fakes::telegram::{Fault, Post};
use petasos_platforms::telegram::{Config, Invalid, Telegram, WebhookConfig};
use petasos_platforms::{Health, Secret, Taken};
use rig::{Rig, TOKEN, degraded, next, rig_with, take, texts};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const SECRET: &str = "s3cret_-";

fn webhook(port: u16) -> WebhookConfig {
    let fresh = WebhookConfig::new(format!("http://127.0.0.1:{port}/tg/hook"));
    WebhookConfig { secret: Some(Secret::new(SECRET)), port, beat: Duration::from_millis(50), ..fresh }
}

/// A rig that is called, and the port it listens on.
fn called() -> (Rig, u16) {
    let port = port::free();
    (rig_with(|config| config.webhook = Some(webhook(port))), port)
}

async fn is_set(rig: &Rig) {
    rig.wait_until("a webhook", |world| world.webhook_url().map(drop)).await;
}

fn statuses(rig: &Rig) -> Vec<Option<u16>> {
    rig.fake.look(|world| world.posts().iter().map(|post| post.status).collect())
}

/// The status that somebody gets who posts there.
async fn post(port: u16, delivery: Delivery) -> u16 {
    let reply = tokio::task::spawn_blocking(move || delivery.post(port)).await.expect("it ends");
    reply.expect("an answer").status
}

fn update(number: i64) -> serde_json::Value {
    let chat = json!({ "id": 5, "type": "private" });
    let from = json!({ "id": 5, "is_bot": false, "first_name": "A" });
    let message = json!({ "message_id": 1, "date": 1, "chat": chat, "from": from, "text": "hello" });
    json!({ "update_id": number, "message": message })
}

#[tokio::test]
async fn telegram_is_told_200_only_after_the_commit() {
    let (rig, _) = called();
    let ((), told) = rig
        .listen(None, async |batches| {
            is_set(&rig).await;
            let first = rig.fake.push_text(5, 5, "one");
            rig.fake.push_text(5, 5, "two");
            let batch = next(batches).await;
            assert_eq!((texts(&batch.events), batch.cursor.as_deref()), (vec!["one"], Some("0")));
            assert_eq!(batch.events[0].dedup, first.to_string());
            assert_eq!((rig.fake.pending_updates(), statuses(&rig)), (2, vec![]), "nothing answered yet");
            batch.done.send(Taken::Committed).expect("it waits");
            assert_eq!(texts(&take(batches, 1).await), ["two"]);
            rig.wait_until("both are over", |world| (world.pending_updates() == 0).then_some(())).await;
            // The answer to the first one was read, and told, before the second is asked.
            rig.wait_until("asked", |world| (world.calls_of("getWebhookInfo").count() >= 2).then_some(()))
                .await;
        })
        .await;
    assert_eq!(statuses(&rig), [Some(200), Some(200)]);
    assert_eq!(told[..2], [Health::Connecting, Health::Polling]);
    let set = &rig.fake.calls_of("setWebhook")[0];
    assert!(!set.params.flag("drop_pending_updates"), "a backlog is never discarded");
    assert_eq!(
        set.params.json("allowed_updates"),
        Some(json!(["message", "channel_post", "callback_query"]))
    );
    assert_eq!((rig.polls(), rig.fake.calls_of("deleteWebhook").len()), (0, 0));
}

#[tokio::test]
async fn what_the_gateway_does_not_take_comes_again() {
    let (rig, _) = called();
    let ((), told) = rig
        .listen(None, async |batches| {
            is_set(&rig).await;
            rig.fake.push_text(5, 5, "keep me");
            next(batches).await.done.send(Taken::NotTaken).expect("it waits");
            drop(next(batches).await);
            assert_eq!(texts(&take(batches, 1).await), ["keep me"]);
            rig.wait_until("it is over", |world| (world.pending_updates() == 0).then_some(())).await;
        })
        .await;
    assert_eq!(statuses(&rig), [Some(503), Some(503), Some(200)]);
    assert!(degraded(&told).contains(&"telegram_not_taken"), "{told:?}");
}

#[tokio::test]
async fn strangers_are_refused_and_nothing_of_theirs_is_taken() {
    let (rig, port) = called();
    let good = || Delivery::json("/tg/hook", &update(7)).header("X-Telegram-Bot-Api-Secret-Token", SECRET);
    rig.listen(None, async |batches| {
        is_set(&rig).await;
        let bare = Delivery::json("/tg/hook", &update(7));
        let wrong = bare.clone().header("X-Telegram-Bot-Api-Secret-Token", "s3cret_");
        let elsewhere = Delivery { path: "/tg".into(), ..good() };
        let large = Delivery { body: vec![b' '; (1 << 20) + 1], ..good() };
        for (status, delivery) in [(401, bare), (401, wrong), (404, elsewhere), (413, large)] {
            assert_eq!(post(port, delivery).await, status);
        }
        assert!(batches.try_recv().is_err(), "nothing was offered");
        let (status, events) = tokio::join!(post(port, good()), take(batches, 1));
        assert_eq!((status, texts(&events)), (200, vec!["hello"]));
    })
    .await;
}

#[tokio::test]
async fn an_update_that_cannot_be_read_is_set_aside_and_blocks_nothing() {
    let (rig, _) = called();
    rig.listen(None, async |batches| {
        is_set(&rig).await;
        let odd = rig.fake.push_update(json!({ "message": 5 }));
        rig.fake.push_text(5, 5, "after");
        let batch = next(batches).await;
        assert!(batch.events.is_empty());
        assert_eq!(batch.unreadable[0].id, Some(odd.to_string()));
        batch.done.send(Taken::Committed).expect("it waits");
        assert_eq!(texts(&take(batches, 1).await), ["after"]);
    })
    .await;
}

#[tokio::test]
async fn what_is_no_update_at_all_is_kept_and_does_not_come_again() {
    let (rig, port) = called();
    let call = |body: &[u8]| Delivery { body: body.into(), ..Delivery::json("/tg/hook", &json!({})) };
    let call = |body| call(body).header("X-Telegram-Bot-Api-Secret-Token", SECRET);
    rig.listen(None, async |batches| {
        is_set(&rig).await;
        for body in [&b"{\"text\":\"sad"[..], b"{\"message\":\"sad\"}", b"sad \xff"] {
            for (taken, status) in [(Taken::NotTaken, 503), (Taken::Committed, 200)] {
                let offered = async {
                    let batch = next(batches).await;
                    assert!(batch.events.is_empty());
                    let [kept] = &batch.unreadable[..] else { panic!("one: {:?}", batch.unreadable) };
                    assert_eq!(
                        (kept.id.as_deref(), kept.raw.as_str()),
                        (None, &*String::from_utf8_lossy(body))
                    );
                    assert!(!kept.why.contains("sad"), "{}", kept.why);
                    batch.done.send(taken).expect("it waits");
                };
                assert_eq!(tokio::join!(post(port, call(body)), offered).0, status);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn whoever_watches_the_listener_is_answered_without_the_secret() {
    let (rig, port) = called();
    rig.listen(None, async |batches| {
        is_set(&rig).await;
        let asked = async {
            let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("our port");
            stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("asked");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.expect("answered");
            answer
        };
        let answer = asked.await;
        assert!(
            answer.starts_with("HTTP/1.1 200")
                && answer.ends_with(r#"{"platform":"telegram","status":"ok"}"#)
        );
        assert!(batches.try_recv().is_err(), "nothing was offered");
    })
    .await;
}

#[tokio::test]
async fn a_host_that_is_none_is_fatal_and_names_the_setting() {
    let nowhere = |config: &mut Config| {
        config.webhook = Some(WebhookConfig { host: "\0".into(), ..webhook(port::free()) });
    };
    let rig = rig_with(nowhere);
    let (error, _) = rig.listen_to_the_end().await;
    assert_eq!((error.code(), error.fault()), ("telegram_webhook_config_invalid", Meaning::Fatal), "{error}");
    assert!(error.to_string().contains("TELEGRAM_WEBHOOK_PORT"), "{error}");
    assert!(rig.fake.calls_of("setWebhook").is_empty(), "nobody is sent to a door that is not there");
}

#[tokio::test]
async fn an_address_that_somebody_else_took_is_taken_back() {
    let (rig, port) = called();
    rig.listen(None, async |batches| {
        is_set(&rig).await;
        rig.fake.steal_webhook(format!("http://127.0.0.1:{}/other", port::free()));
        let ours = format!("http://127.0.0.1:{port}/tg/hook");
        rig.wait_until("ours again", move |world| (world.webhook_url() == Some(&ours)).then_some(())).await;
        rig.fake.push_text(5, 5, "home");
        assert_eq!(texts(&take(batches, 1).await), ["home"]);
    })
    .await;
    assert_eq!(rig.fake.calls_of("setWebhook").len(), 2);
}

#[tokio::test]
async fn deliveries_that_do_not_arrive_are_told_and_so_is_their_end() {
    // Telegram calls a port where nobody listens yet: a proxy that is down.
    let (port, proxy) = (port::free(), port::free());
    let url = format!("http://127.0.0.1:{proxy}/tg/hook");
    let rig = rig_with(|config| config.webhook = Some(WebhookConfig { url, ..webhook(port) }));
    let ((), told) = rig
        .listen(None, async |batches| {
            is_set(&rig).await;
            rig.fake.push_text(5, 5, "patient");
            rig.wait_until("a failure", |world| world.posts().first().map(drop)).await;
            let asked = rig.fake.calls_of("getWebhookInfo").len();
            // The answer to the next one was read before the one after it is asked.
            rig.wait_until("questions after it", move |world| {
                (world.calls_of("getWebhookInfo").count() >= asked + 2).then_some(())
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
                events = take(batches, 1) => assert_eq!(texts(&events), ["patient"]),
            }
        })
        .await;
    assert!(degraded(&told).contains(&"telegram_webhook_failing"), "{told:?}");
}

#[tokio::test]
async fn a_telegram_that_cannot_be_asked_ends_the_link_at_the_third_miss() {
    let (rig, _) = called();
    rig.fake.on("getWebhookInfo").always().does(Fault::status(502, "Bad Gateway"));
    let (error, told) = rig.listen_to_the_end().await;
    assert_eq!((error.code(), error.fault()), ("telegram_network_error", Meaning::Later { after: None }));
    assert_eq!(degraded(&told), ["telegram_server_error"; 3]);
    assert_eq!(rig.fake.calls_of("getWebhookInfo").len(), 3);
}

#[tokio::test]
async fn a_port_in_use_and_an_address_that_telegram_refuses_say_what_to_do() {
    let (rig, port) = called();
    let taken = TcpListener::bind(("127.0.0.1", port)).expect("its port");
    let (error, _) = rig.listen_to_the_end().await;
    assert_eq!(error.code(), "telegram_webhook_port_in_use");
    assert!(error.to_string().contains("TELEGRAM_WEBHOOK_PORT"), "{error}");
    assert!(rig.fake.calls_of("setWebhook").is_empty(), "nobody is sent to a door that is not ours");
    drop(taken);
    rig.fake
        .on("setWebhook")
        .does(Fault::status(400, "Bad Request: bad webhook: IP address 10.0.0.1 is reserved"));
    let (error, _) = rig.listen_to_the_end().await;
    assert_eq!((error.code(), error.fault()), ("telegram_webhook_refused", Meaning::Later { after: None }));
    assert!(error.to_string().contains("TELEGRAM_WEBHOOK_URL"), "{error}");
}

#[tokio::test]
async fn whoever_returns_to_polling_gets_all_that_telegram_still_holds() {
    let (rig, _) = called();
    let cursor = rig
        .listen(None, async |batches| {
            is_set(&rig).await;
            rig.fake.push_text(5, 5, "taken");
            let batch = next(batches).await;
            batch.done.send(Taken::Committed).expect("it waits");
            rig.wait_until("it is over", |world| (world.pending_updates() == 0).then_some(())).await;
            batch.cursor.expect("a cursor")
        })
        .await
        .0;
    let left = rig.fake.push_text(5, 5, "left");
    rig.wait_until("nobody listens", move |world| {
        world.posts().contains(&Post { update_id: left, status: None }).then_some(())
    })
    .await;
    let mut config = Config::new(Secret::new(TOKEN));
    config.base_url = format!("{}/bot", rig.fake.url());
    config.poll_backoff_base = Duration::from_millis(1);
    let adapter = petasos_platforms::Adapter::Telegram(Telegram::new(config).expect("valid"));
    let polling = Rig { fake: rig.fake.clone(), adapter };
    polling.listen(Some(&cursor), async |batches| assert_eq!(texts(&take(batches, 1).await), ["left"])).await;
    assert_eq!(rig.fake.look(|world| world.webhook_url().map(str::to_owned)), None);
}

#[test]
fn an_address_without_a_good_secret_or_without_https_is_no_configuration() {
    let with = |base: Option<&str>, change: fn(&mut WebhookConfig)| {
        let mut webhook = WebhookConfig { url: "https://example.org/tg".into(), ..webhook(1) };
        change(&mut webhook);
        let mut config = Config::new(Secret::new(TOKEN));
        config.webhook = Some(webhook);
        config.base_url = base.map_or(config.base_url, str::to_owned);
        Telegram::new(config)
    };
    assert!(with(None, |_| {}).is_ok());
    assert!(matches!(with(None, |it| it.secret = None), Err(Invalid::NoWebhookSecret)));
    for bad in ["", "two words", &"x".repeat(257)] {
        let mut config = Config::new(Secret::new(TOKEN));
        config.webhook = Some(WebhookConfig {
            url: "https://example.org/tg".into(),
            secret: Some(Secret::new(bad)),
            ..webhook(1)
        });
        assert!(matches!(Telegram::new(config), Err(Invalid::WebhookSecret)), "{bad:?}");
    }
    let plain = |it: &mut WebhookConfig| it.url = "http://example.org/tg".into();
    assert!(matches!(with(None, plain), Err(Invalid::WebhookUrl(_))));
    assert!(with(Some("http://127.0.0.1:8081/bot"), plain).is_ok(), "a server of one's own may call so");
    assert!(matches!(with(None, |it| it.url = "example.org".into()), Err(Invalid::WebhookUrl(_))));
}
