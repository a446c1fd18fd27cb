//! `POST /api/gateway/drain`: what it takes, what it answers, who may ask (cases C1 to C8).

mod support;

use petasos_core::Secret;
use petasos_core::lifecycle::State;
use petasos_web::Doors;
use serde_json::json;
use support::{DRAIN, Header, STRONG, World};

fn bearer(secret: &str) -> String {
    format!("Bearer {secret}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_is_begun_through_either_door_and_the_gateway_follows() {
    let world = World::start(Doors::default()).await;
    for told in [
        world.browser("POST", DRAIN, r#"{"action":"drain"}"#).await,
        world.owner("POST", DRAIN, r#"{"action":" DRAIN ","suppress_notification":true}"#).await,
    ] {
        assert_eq!(told.status, 200, "{told:?}");
        let marker: serde_json::Value = serde_json::from_slice(&world.marker().unwrap()).unwrap();
        assert_eq!((&told.body["ok"], &told.body["action"]), (&json!(true), &json!("drain")));
        assert_eq!((&told.body["draining"], &told.body["gateway_running"]), (&json!(true), &json!(true)));
        assert!(told.body["requested_at"].as_str().is_some_and(|at| at.ends_with("+00:00")), "{told:?}");
        assert!(told.body["suppress_notification"].is_boolean() && marker["epoch"].is_string());
    }
    world.until(|now| now.drain.as_ref().is_some_and(|drain| drain.suppress_notification)).await;
    assert_eq!(world.handle.situation().state, State::Draining);
    world.browser("POST", DRAIN, r#"{"action":"cancel"}"#).await;
    world.until(|now| now.state == State::Running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_body_and_no_action_begin_a_drain() {
    let world = World::start(Doors::default()).await;
    for body in ["", "{}", r#"{"suppress_notification":false}"#] {
        let told = world.browser("POST", DRAIN, body).await;
        assert_eq!((told.status, &told.body["action"]), (200, &json!("drain")), "{body:?}");
        assert!(world.marker().is_some());
        world.owner("POST", DRAIN, r#"{"action":"cancel"}"#).await;
        assert!(world.marker().is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_cancel_finds_nothing_to_cancel() {
    let world = World::start(Doors::default()).await;
    world.browser("POST", DRAIN, "").await;
    for was in [true, false] {
        let told = world.browser("POST", DRAIN, r#"{"action":"cancel"}"#).await;
        let want = json!({"ok": true, "action": "cancel", "was_draining": was, "gateway_running": true});
        told.is(200, &want);
        assert!(world.marker().is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_that_nobody_knows_changes_nothing() {
    let world = World::start(Doors::default()).await;
    world.browser("POST", DRAIN, "").await;
    let before = world.marker();
    for (action, shown) in [("\"explode\"", "explode"), ("null", "none"), ("\"\"", "")] {
        let told = world.browser("POST", DRAIN, &format!("{{\"action\":{action}}}")).await;
        let detail = format!("Unknown drain action '{shown}'; expected 'drain' or 'cancel'");
        told.is(400, &json!({ "detail": detail }));
        assert_eq!(world.marker(), before, "{action}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_makes_no_sense_changes_nothing() {
    let world = World::start(Doors::default()).await;
    let deep = "[".repeat(500);
    let bad = [
        "{",
        "cancel",
        "{\"action\":\"cancel\"",
        "[]",
        "[\"drain\"]",
        "null",
        "true",
        "1",
        "\"drain\"",
        " ",
        "\u{feff}{}",
        "{\"action\":1}",
        "{\"action\":true}",
        "{\"action\":[\"drain\"]}",
        "{\"action\":{}}",
        deep.as_str(),
        "{\"suppress_notification\":\"yes\"}",
        "{\"suppress_notification\":1}",
        "{\"action\":\"cancel\",\"reason\":5}",
        "{\"action\":\"cancel\",\"principal\":[]}",
        "action=cancel",
        "{} {}",
    ];
    for round in ["no marker", "a marker"] {
        let before = world.marker();
        for body in bad {
            for told in [world.browser("POST", DRAIN, body).await, world.owner("POST", DRAIN, body).await] {
                assert_eq!(told.status, 400, "{round}: {body}");
                assert!(told.body["detail"].is_string(), "{round}: {body}");
            }
            assert_eq!(world.marker(), before, "{round}: {body}");
        }
        world.browser("POST", DRAIN, "").await;
    }
    let before = world.marker();
    let large = "{\"action\":\"cancel\"}".to_owned() + &" ".repeat(65537);
    let large = &large[..65537];
    let told = world.browser("POST", DRAIN, large).await;
    assert_eq!((told.status, world.marker()), (413, before));
    let told = world.browser("POST", DRAIN, &large[..65536]).await;
    assert_eq!((told.status, world.marker()), (200, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_secret_only_its_bearer_may_drain() {
    let world = World::with_secret().await;
    let (right, wrong, lower) = (bearer(STRONG), bearer(&STRONG[1..]), format!("bearer {STRONG}"));
    let elsewhere = [("authorization", right.as_str()), ("origin", "http://nas.example")];
    let denied: [&[Header<'_>]; 5] = [
        &[],
        &[("authorization", &wrong)],
        &[("x-hermes-session-token", STRONG)],
        &[("cookie", &world.cookie)],
        &[("cookie", &world.cookie), ("authorization", "Bearer ")],
    ];
    for headers in denied {
        let told = world.stranger("POST", DRAIN, headers, "").await;
        told.is(401, &json!({"error": "unauthenticated", "detail": "Unauthorized"}));
        assert!(world.marker().is_none(), "{headers:?}");
    }
    let allowed: [&[Header<'_>]; 3] =
        [&[("authorization", &right)], &[("authorization", &lower)], &elsewhere];
    for headers in allowed {
        let told = world.stranger("POST", DRAIN, headers, "").await;
        assert_eq!((told.status, world.principal().as_str()), (200, "drain-control"), "{headers:?}");
        world.stranger("POST", DRAIN, headers, r#"{"action":"cancel"}"#).await;
        assert!(world.marker().is_none());
    }
    let rebound = [("authorization", right.as_str()), ("host", "evil.example")];
    let told = world.stranger("POST", DRAIN, &rebound, "").await;
    assert_eq!((told.status, world.marker()), (421, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_weak_secret_opens_nothing_and_the_cookie_does() {
    for weak in ["too-short", &"a".repeat(60)] {
        let world = World::start(Doors { drain_secret: Some(Secret::new(weak)), ..Doors::default() }).await;
        let told = world.stranger("POST", DRAIN, &[("authorization", &bearer(weak))], "").await;
        assert_eq!((told.status, &told.body["detail"]), (401, &json!("Unauthorized")), "{weak}");
        assert!(world.marker().is_none());
        assert_eq!(world.browser("POST", DRAIN, r#"{"principal":"nas"}"#).await.status, 200);
        assert_eq!(world.principal(), "dashboard");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_secret_opens_no_other_route() {
    let world = World::with_secret().await;
    let right = bearer(STRONG);
    for (method, path) in [
        ("POST", "/api/gateway/restart"),
        ("POST", "/api/gateway/stop"),
        ("POST", "/api/gateway/start"),
        ("POST", "/api/gateway/drain/skip"),
        ("POST", "/api/gateway/drain/"),
        ("GET", DRAIN),
        ("GET", "/api/actions/gateway-restart/status"),
        ("GET", "/api/sessions"),
    ] {
        let headers = [("authorization", right.as_str()), ("x-hermes-session-token", STRONG)];
        let told = world.stranger(method, path, &headers, "").await;
        assert_eq!((told.status, &told.body["detail"]), (401, &json!("Unauthorized")), "{path}");
    }
    assert_eq!(world.handle.situation().leaving, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_token_stands_in_for_the_cookie() {
    let token = Some(Secret::new("for-the-dashboard"));
    let world = World::start(Doors { session_token: token, ..Doors::default() }).await;
    let other_site = ("origin", "http://other.example");
    let allowed: [&[Header<'_>]; 3] = [
        &[("x-hermes-session-token", "for-the-dashboard")],
        &[("authorization", "bearer for-the-dashboard"), other_site],
        &[("cookie", &world.cookie)],
    ];
    for headers in allowed {
        assert_eq!(world.stranger("POST", DRAIN, headers, "").await.status, 200, "{headers:?}");
        assert_eq!(world.principal(), "dashboard");
        assert_eq!(world.stranger("GET", "/api/sessions", headers, "").await.status, 200, "{headers:?}");
    }
    let denied: [(&[Header<'_>], u16); 4] = [
        (&[("x-hermes-session-token", "for-the-dashboar")], 401),
        (&[("x-hermes-session-token", " ")], 401),
        (&[("authorization", "Basic for-the-dashboard")], 401),
        (&[("cookie", &world.cookie), other_site], 403),
    ];
    for (headers, status) in denied {
        assert_eq!(world.stranger("GET", "/api/sessions", headers, "").await.status, status, "{headers:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_owner_says_who_asks_and_why_and_only_this_gateway_is_meant() {
    let world = World::start(Doors::default()).await;
    let told = world.owner("POST", &format!("{DRAIN}?profile=work"), "").await;
    assert_eq!((told.status, told.body["detail"].is_string()), (404, true));
    assert!(world.marker().is_none());
    world
        .owner("POST", &format!("{DRAIN}?profile=default"), r#"{"principal":"deploy","reason":"new disk"}"#)
        .await;
    world.until(|now| now.state == State::Draining).await;
    let view = world.browser("GET", DRAIN, "").await.body;
    assert_eq!(view["state"], "draining");
    assert_eq!(
        (&view["drain"]["principal"], &view["drain"]["reason"]),
        (&json!("deploy"), &json!("new disk"))
    );
    assert_eq!((&view["drain"]["kind"], &view["drain"]["deadline"]), (&json!("external"), &json!(null)));
    assert_eq!((&view["active_agents"], &view["restart_drain_timeout"]), (&json!(0), &json!(60.0)));
    world.owner("POST", DRAIN, "").await;
    assert_eq!(world.principal(), "petasos");
}
