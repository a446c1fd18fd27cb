//! Status, drain status, restart, stop, and messages during a drain.

use crate::support::{DRAIN, GatewayFixture};
use petasos_core::lifecycle::{ShutdownReason, State};
use petasos_runtime::clock;
use petasos_web::AccessCredentials;
use serde_json::{Value, json};

/// Members of the public status.
const PUBLIC: [&str; 13] = [
    "active_agents",
    "active_sessions",
    "auth_required",
    "gateway_busy",
    "gateway_drainable",
    "gateway_exit_reason",
    "gateway_mode",
    "gateway_platforms",
    "gateway_running",
    "gateway_state",
    "gateway_updated_at",
    "restart_drain_timeout",
    "version",
];

/// Further members for authenticated callers.
const PRIVATE: [&str; 22] = [
    "dead_chats",
    "rate_limits",
    "drain",
    "gateway_pid",
    "hermes_home",
    "holders",
    "home",
    "inbox",
    "links",
    "mcp",
    "model",
    "outbox",
    "pid",
    "salvage",
    "sessions",
    "started_at",
    "state",
    "storage",
    "store_recoveries",
    "store_trouble",
    "unreadable",
    "untold",
];

fn names(body: &Value) -> Vec<&str> {
    let fields = body.as_object().into_iter();
    let mut names: Vec<_> = fields.flat_map(|fields| fields.keys()).map(String::as_str).collect();
    names.sort_unstable();
    names
}

#[tokio::test(flavor = "multi_thread")]
async fn public_status_contains_no_conversation_data() {
    let gateway = GatewayFixture::start(AccessCredentials::default()).await;
    let _gate = gateway.start_blocked_turns(&["chat-4711"]).await;
    let public = gateway.request("GET", "/api/status", &[("cookie", "petasos=no")], "").await;
    assert_eq!((public.status, names(&public.body)), (200, PUBLIC.to_vec()));
    assert_eq!(
        (&public.body["gateway_state"], &public.body["active_agents"]),
        (&json!("running"), &json!(1))
    );
    assert_eq!(
        (&public.body["gateway_busy"], &public.body["gateway_drainable"]),
        (&json!(true), &json!(true))
    );
    let text = public.body.to_string();
    for secret in ["4711", "agent:main", gateway.home.path().to_str().unwrap()] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    let mut all = [PUBLIC.as_slice(), PRIVATE.as_slice()].concat();
    all.sort_unstable();
    for response in [
        gateway.request_signed_in("GET", "/api/status", "").await,
        gateway.request_on_socket("GET", "/api/status", "").await,
    ] {
        assert_eq!((response.status, names(&response.body)), (200, all.clone()));
        assert!(response.body["holders"][0]["key"].as_str().unwrap().contains("4711"));
    }
    gateway.request_on_socket("POST", DRAIN, "").await;
    gateway.wait_until(|now| now.state == State::Draining).await;
    let public = gateway.request("GET", "/api/status", &[], "").await.body;
    assert_eq!((&public["gateway_state"], &public["active_agents"]), (&json!("draining"), &json!(1)));
    assert_eq!((&public["gateway_busy"], &public["gateway_drainable"]), (&json!(false), &json!(false)));
    assert_eq!(gateway.request_signed_in("GET", "/api/status", "").await.body["drain"]["kind"], "external");
    let cross_site = [("sec-fetch-site", "cross-site")];
    assert_eq!(gateway.request("GET", "/api/status", &cross_site, "").await.status, 403);
    assert_eq!(gateway.request("GET", "/api/status?profile=work", &[], "").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_message_during_drain() {
    let gateway = GatewayFixture::start(AccessCredentials::default()).await;
    gateway.request_on_socket("POST", DRAIN, "").await;
    gateway.wait_until(|now| now.state == State::Draining).await;
    let refused = gateway.post_message("c1", "hello").await;
    assert_eq!(refused.status, 503);
    assert!(refused.head.contains("\r\nretry-after: 1"), "{}", refused.head);
    assert_draining(&refused.body, "gateway_draining");
    assert_eq!(gateway.post_message("c1", "/status").await.status, 202, "commands still work");
    gateway.request_on_socket("POST", DRAIN, r#"{"action":"cancel"}"#).await;
    gateway.wait_until(|now| now.state == State::Running).await;
    assert_eq!(gateway.post_message("c2", "hello").await.status, 202);
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_message_during_shutdown() {
    for (why, word) in [("/api/gateway/stop", "stops"), ("/api/gateway/restart?force=false", "restarts")] {
        let gateway = GatewayFixture::start(AccessCredentials::default()).await;
        let _gate = gateway.start_blocked_turns(&["c1"]).await;
        assert_eq!(gateway.request_signed_in("POST", why, "").await.status, 200);
        let refused = gateway.post_message("c2", "hello").await;
        assert_eq!(refused.status, 503);
        assert!(refused.head.contains("\r\nretry-after: 1"));
        assert_draining(&refused.body, "gateway_draining");
        assert!(refused.body["error"]["message"].as_str().unwrap().contains(word), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forced_restart_interrupts_turns_at_once() {
    let gateway = GatewayFixture::start(AccessCredentials::default()).await;
    let _gate = gateway.start_blocked_turns(&["c1"]).await;
    assert_eq!(gateway.request_signed_in("POST", "/api/gateway/restart?force=false", "").await.status, 200);
    let started = clock::monotonic();
    assert_eq!(gateway.handle.snapshot().active(), 1, "the turn is waited for");
    assert_eq!(gateway.request_signed_in("POST", "/api/gateway/restart", "").await.status, 200);
    let exit = gateway.wait_for_exit().await;
    assert!(exit.why.is_restart(), "{exit:?}");
    // The turn never ends by itself; its drain timeout is a minute.
    assert!(started.elapsed() < std::time::Duration::from_secs(20), "{:?}", started.elapsed());
}

#[track_caller]
fn assert_draining(body: &Value, code: &str) {
    let error = &body["error"];
    assert_eq!((&error["code"], &error["type"]), (&json!(code), &json!("invalid_request_error")));
    assert_eq!(error.get("param"), Some(&Value::Null));
    assert!(error["message"].as_str().is_some_and(|it| it.contains("draining")), "{body}");
}

/// The turn of a chat. Turns are listed in order of admission, not in order of their messages.
#[track_caller]
fn holder<'a>(view: &'a Value, chat: &str) -> &'a Value {
    let mut all = view["holders"].as_array().into_iter().flatten();
    let found = all.find(|it| it["key"].as_str().is_some_and(|key| key.ends_with(chat)));
    found.unwrap_or_else(|| panic!("no {chat} in {view}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_skips_and_extends_active_turns() {
    let gateway = GatewayFixture::start(AccessCredentials::default()).await;
    let _gate = gateway.start_blocked_turns(&["left", "right"]).await;
    let post = async |path: &str, body: Value| {
        gateway.request_signed_in("POST", &format!("{DRAIN}/{path}"), &body.to_string()).await
    };
    let view = gateway.request_signed_in("GET", DRAIN, "").await.body;
    assert_eq!((&view["drain"], &view["active_agents"]), (&Value::Null, &json!(2)));
    let left_key = holder(&view, "left")["key"].as_str().unwrap().to_owned();
    let response = post("skip", json!({"session": left_key})).await;
    response.assert_is(200, &json!({"ok": true, "session": left_key}));
    let response = post("extend", json!({"session": "right", "seconds": 900})).await;
    assert_eq!((response.status, response.body["until"].is_u64()), (200, true), "{response:?}");
    let view = gateway.request_on_socket("GET", DRAIN, "").await.body;
    assert_eq!(
        (&holder(&view, "left")["skipped"], &holder(&view, "right")["until"]),
        (&json!(true), &response.body["until"])
    );
    for (path, body, status) in [
        ("skip", json!({"session": "t"}), 409),
        ("skip", json!({"session": "unknown"}), 404),
        ("skip", json!({"session": ""}), 400),
        ("skip", json!({"session": 7}), 400),
        ("extend", json!({"session": "unknown", "seconds": 1}), 404),
        ("extend", json!({"session": "right", "seconds": 0}), 400),
        ("extend", json!({"session": "right", "seconds": 901}), 400),
        ("extend", json!({"session": "right", "seconds": -1}), 400),
        ("extend", json!({"session": "right", "seconds": "1"}), 400),
        ("extend", json!({"session": "right"}), 400),
    ] {
        assert_eq!(post(path, body.clone()).await.status, status, "{path} {body}");
    }
    let several = post("skip", json!({"session": "t"})).await.body;
    assert_eq!(several["error"]["sessions"].as_array().map(Vec::len), Some(2), "{several}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dashboard_restarts_and_stops_gateway() {
    let gateway = GatewayFixture::start(AccessCredentials::default()).await;
    let _gate = gateway.start_blocked_turns(&["c1"]).await;
    let started = |name: &str| json!({"ok": true, "pid": std::process::id(), "name": name});
    let running = async |name: &str| {
        let response =
            gateway.request_signed_in("GET", &format!("/api/actions/{name}/status?lines=50"), "").await;
        assert_eq!(
            (response.status, &response.body["exit_code"], &response.body["lines"]),
            (200, &Value::Null, &json!([]))
        );
        response.body["running"].as_bool().unwrap()
    };
    gateway
        .request_signed_in("POST", "/api/gateway/start", "")
        .await
        .assert_is(200, &started("gateway-start"));
    assert!(!running("gateway-restart").await);
    assert_eq!(gateway.request_signed_in("POST", "/api/gateway/restart?profile=work", "").await.status, 404);
    assert_eq!(gateway.handle.snapshot().leaving, None);
    gateway
        .request_signed_in("POST", "/api/gateway/restart?profile=default", "")
        .await
        .assert_is(200, &started("gateway-restart"));
    assert!(gateway.handle.snapshot().leaving.is_some_and(|leaving| leaving.why.is_restart()));
    assert!(running("gateway-restart").await && !running("gateway-start").await);
    let view = gateway.request_signed_in("GET", DRAIN, "").await.body;
    assert_eq!((&view["state"], &view["drain"]["kind"]), (&json!("draining"), &json!("restart")));
    gateway.request_on_socket("POST", "/api/gateway/stop", "").await.assert_is(200, &started("gateway-stop"));
    assert_eq!(gateway.handle.snapshot().leaving.map(|leaving| leaving.why), Some(ShutdownReason::Stop));
    assert_eq!(gateway.request_signed_in("POST", "/api/gateway/restart", "").await.status, 409);
    assert_eq!(gateway.request_signed_in("POST", "/api/gateway/start", "").await.status, 409);
    assert_eq!(gateway.request_signed_in("GET", "/api/actions/gateway-dance/status", "").await.status, 404);
    assert_eq!(gateway.request("POST", "/api/gateway/stop", &[], "").await.status, 401);
    assert_eq!(gateway.request_signed_in("DELETE", DRAIN, "").await.status, 405);
}

#[tokio::test(flavor = "multi_thread")]
async fn owner_routes_exist_on_control_socket_only() {
    let gateway = GatewayFixture::start(AccessCredentials::default()).await;
    let _gate = gateway.start_blocked_turns(&["c1"]).await;
    for path in ["/api/restart", "/api/hurry", "/api/shutdown"] {
        assert_eq!(gateway.request_signed_in("POST", path, "").await.status, 404, "{path}");
    }
    assert_eq!(gateway.handle.snapshot().leaving, None);
    assert_eq!(gateway.request_on_socket("POST", "/api/restart", "").await.status, 202);
    assert_eq!(gateway.request_on_socket("POST", "/api/hurry", "").await.status, 202);
    assert_eq!(gateway.request_on_socket("POST", "/api/shutdown", "").await.status, 202);
    assert_eq!(gateway.request_on_socket("POST", "/api/restart", "").await.status, 409);
    assert_eq!(gateway.handle.snapshot().leaving.map(|leaving| leaving.why), Some(ShutdownReason::Stop));
}
