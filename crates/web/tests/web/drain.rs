//! `POST /api/gateway/drain` (cases C1 to C8).

use crate::support::{DRAIN, GatewayFixture, Header, STRONG_SECRET};
use petasos_core::Secret;
use petasos_core::lifecycle::State;
use petasos_web::AccessCredentials;
use serde_json::json;

fn bearer(secret: &str) -> String {
    format!("Bearer {secret}")
}

#[tokio::test(flavor = "multi_thread")]
async fn begins_drain_over_http_and_control_socket() {
    let gateway = GatewayFixture::start(AccessCredentials::default()).await;
    for response in [
        gateway.request_signed_in("POST", DRAIN, r#"{"action":"drain"}"#).await,
        gateway
            .request_on_socket("POST", DRAIN, r#"{"action":" DRAIN ","suppress_notification":true}"#)
            .await,
    ] {
        assert_eq!(response.status, 200, "{response:?}");
        let marker: serde_json::Value = serde_json::from_slice(&gateway.marker().unwrap()).unwrap();
        assert_eq!((&response.body["ok"], &response.body["action"]), (&json!(true), &json!("drain")));
        assert_eq!(
            (&response.body["draining"], &response.body["gateway_running"]),
            (&json!(true), &json!(true))
        );
        assert!(
            response.body["requested_at"].as_str().is_some_and(|at| at.ends_with("+00:00")),
            "{response:?}"
        );
        assert!(response.body["suppress_notification"].is_boolean() && marker["epoch"].is_string());
    }
    gateway.wait_until(|now| now.drain.as_ref().is_some_and(|drain| drain.suppress_notification)).await;
    assert_eq!(gateway.handle.snapshot().state, State::Draining);
    gateway.request_signed_in("POST", DRAIN, r#"{"action":"cancel"}"#).await;
    gateway.wait_until(|now| now.state == State::Running).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_body_or_missing_action_begins_drain() {
    let gateway = GatewayFixture::start(AccessCredentials::default()).await;
    for body in ["", "{}", r#"{"suppress_notification":false}"#] {
        let response = gateway.request_signed_in("POST", DRAIN, body).await;
        assert_eq!((response.status, &response.body["action"]), (200, &json!("drain")), "{body:?}");
        assert!(gateway.marker().is_some());
        gateway.request_on_socket("POST", DRAIN, r#"{"action":"cancel"}"#).await;
        assert!(gateway.marker().is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn second_cancel_is_a_no_op() {
    let gateway = GatewayFixture::start(AccessCredentials::default()).await;
    gateway.request_signed_in("POST", DRAIN, "").await;
    for was in [true, false] {
        let response = gateway.request_signed_in("POST", DRAIN, r#"{"action":"cancel"}"#).await;
        let want = json!({"ok": true, "action": "cancel", "was_draining": was, "gateway_running": true});
        response.assert_is(200, &want);
        assert!(gateway.marker().is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_action_changes_nothing() {
    let gateway = GatewayFixture::start(AccessCredentials::default()).await;
    gateway.request_signed_in("POST", DRAIN, "").await;
    let before = gateway.marker();
    for (action, shown) in [("\"explode\"", "explode"), ("null", "none"), ("\"\"", "")] {
        let response = gateway.request_signed_in("POST", DRAIN, &format!("{{\"action\":{action}}}")).await;
        let detail = format!("Unknown drain action '{shown}'; expected 'drain' or 'cancel'");
        response.assert_is(400, &json!({ "detail": detail }));
        assert_eq!(gateway.marker(), before, "{action}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_body_changes_nothing() {
    let gateway = GatewayFixture::start(AccessCredentials::default()).await;
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
        let before = gateway.marker();
        for body in bad {
            for response in [
                gateway.request_signed_in("POST", DRAIN, body).await,
                gateway.request_on_socket("POST", DRAIN, body).await,
            ] {
                assert_eq!(response.status, 400, "{round}: {body}");
                assert!(response.body["detail"].is_string(), "{round}: {body}");
            }
            assert_eq!(gateway.marker(), before, "{round}: {body}");
        }
        gateway.request_signed_in("POST", DRAIN, "").await;
    }
    let before = gateway.marker();
    let large = "{\"action\":\"cancel\"}".to_owned() + &" ".repeat(65537);
    let large = &large[..65537];
    let response = gateway.request_signed_in("POST", DRAIN, large).await;
    assert_eq!((response.status, gateway.marker()), (413, before));
    let response = gateway.request_signed_in("POST", DRAIN, &large[..65536]).await;
    assert_eq!((response.status, gateway.marker()), (200, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn requires_drain_secret_if_configured() {
    let gateway = GatewayFixture::with_secret().await;
    let right = bearer(STRONG_SECRET);
    let wrong = bearer(&STRONG_SECRET[1..]);
    let lower = format!("bearer {STRONG_SECRET}");
    let elsewhere = [("authorization", right.as_str()), ("origin", "http://nas.example")];
    let denied: [&[Header<'_>]; 5] = [
        &[],
        &[("authorization", &wrong)],
        &[("x-hermes-session-token", STRONG_SECRET)],
        &[("cookie", &gateway.cookie)],
        &[("cookie", &gateway.cookie), ("authorization", "Bearer ")],
    ];
    for headers in denied {
        let response = gateway.request("POST", DRAIN, headers, "").await;
        response.assert_is(401, &json!({"error": "unauthenticated", "detail": "Unauthorized"}));
        assert!(gateway.marker().is_none(), "{headers:?}");
    }
    let allowed: [&[Header<'_>]; 3] =
        [&[("authorization", &right)], &[("authorization", &lower)], &elsewhere];
    for headers in allowed {
        let response = gateway.request("POST", DRAIN, headers, "").await;
        assert_eq!((response.status, gateway.principal().as_str()), (200, "drain-control"), "{headers:?}");
        gateway.request("POST", DRAIN, headers, r#"{"action":"cancel"}"#).await;
        assert!(gateway.marker().is_none());
    }
    let rebound = [("authorization", right.as_str()), ("host", "evil.example")];
    let response = gateway.request("POST", DRAIN, &rebound, "").await;
    assert_eq!((response.status, gateway.marker()), (421, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn ignores_weak_secret_and_accepts_cookie() {
    for weak in ["too-short", &"a".repeat(60)] {
        let gateway = GatewayFixture::start(AccessCredentials {
            drain_secret: Some(Secret::new(weak)),
            ..AccessCredentials::default()
        })
        .await;
        let response = gateway.request("POST", DRAIN, &[("authorization", &bearer(weak))], "").await;
        assert_eq!((response.status, &response.body["detail"]), (401, &json!("Unauthorized")), "{weak}");
        assert!(gateway.marker().is_none());
        assert_eq!(gateway.request_signed_in("POST", DRAIN, r#"{"principal":"nas"}"#).await.status, 200);
        assert_eq!(gateway.principal(), "dashboard");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn secret_is_rejected_on_other_routes() {
    let gateway = GatewayFixture::with_secret().await;
    let right = bearer(STRONG_SECRET);
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
        let headers = [("authorization", right.as_str()), ("x-hermes-session-token", STRONG_SECRET)];
        let response = gateway.request(method, path, &headers, "").await;
        assert_eq!((response.status, &response.body["detail"]), (401, &json!("Unauthorized")), "{path}");
    }
    assert_eq!(gateway.handle.snapshot().leaving, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn session_token_replaces_cookie() {
    let token = Some(Secret::new("for-the-dashboard"));
    let gateway =
        GatewayFixture::start(AccessCredentials { session_token: token, ..AccessCredentials::default() })
            .await;
    let other_site = ("origin", "http://other.example");
    let allowed: [&[Header<'_>]; 3] = [
        &[("x-hermes-session-token", "for-the-dashboard")],
        &[("authorization", "bearer for-the-dashboard"), other_site],
        &[("cookie", &gateway.cookie)],
    ];
    for headers in allowed {
        assert_eq!(gateway.request("POST", DRAIN, headers, "").await.status, 200, "{headers:?}");
        assert_eq!(gateway.principal(), "dashboard");
        assert_eq!(gateway.request("GET", "/api/sessions", headers, "").await.status, 200, "{headers:?}");
    }
    let denied: [(&[Header<'_>], u16); 4] = [
        (&[("x-hermes-session-token", "for-the-dashboar")], 401),
        (&[("x-hermes-session-token", " ")], 401),
        (&[("authorization", "Basic for-the-dashboard")], 401),
        (&[("cookie", &gateway.cookie), other_site], 403),
    ];
    for (headers, status) in denied {
        assert_eq!(gateway.request("GET", "/api/sessions", headers, "").await.status, status, "{headers:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_sets_principal_and_reason_for_own_profile() {
    let gateway = GatewayFixture::start(AccessCredentials::default()).await;
    let response = gateway.request_on_socket("POST", &format!("{DRAIN}?profile=work"), "").await;
    assert_eq!((response.status, response.body["detail"].is_string()), (404, true));
    assert!(gateway.marker().is_none());
    gateway
        .request_on_socket(
            "POST",
            &format!("{DRAIN}?profile=default"),
            r#"{"principal":"deploy","reason":"new disk"}"#,
        )
        .await;
    gateway.wait_until(|now| now.state == State::Draining).await;
    let view = gateway.request_signed_in("GET", DRAIN, "").await.body;
    assert_eq!(view["state"], "draining");
    assert_eq!(
        (&view["drain"]["principal"], &view["drain"]["reason"]),
        (&json!("deploy"), &json!("new disk"))
    );
    assert_eq!((&view["drain"]["kind"], &view["drain"]["deadline"]), (&json!("external"), &json!(null)));
    assert_eq!((&view["active_agents"], &view["restart_drain_timeout"]), (&json!(0), &json!(60.0)));
    gateway.request_on_socket("POST", DRAIN, "").await;
    assert_eq!(gateway.principal(), "petasos");
}
