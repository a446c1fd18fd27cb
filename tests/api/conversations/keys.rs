//! API keys, their scopes and rate limits, and CORS.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::support::api::{Api, KEY, chat_body};
use crate::support::http::HttpRequest;
use crate::support::{ProgramFixture, eventually};

#[test]
fn keys_are_limited_by_scope_and_rate() {
    let keys = "platforms.api_server.extra.keys:\n  looks: {key: k-looks-0123456789abcdef, scopes: [read]}\n  \
                works: {key: k-works-0123456789abcdef, scopes: [agent]}\n  \
                slow: {key: k-slow-0123456789abcdef, rate_limit: 2}\n";
    let api = Api::with_config(keys);
    let call = |key: &str, method: &str, path: &str| {
        let request = HttpRequest::new(method, path).header("Authorization", format!("Bearer {key}"));
        let request = if method == "POST" { request.json(&chat_body("x")) } else { request };
        api.send(&request)
    };
    let looks = "k-looks-0123456789abcdef";
    let works = "k-works-0123456789abcdef";
    let slow = "k-slow-0123456789abcdef";
    for (key, method, path, want) in [
        (looks, "GET", "/v1/models", 200),
        (looks, "POST", "/v1/chat/completions", 403),
        (looks, "POST", "/v1/runs", 403),
        (looks, "POST", "/api/sessions", 403),
        (looks, "DELETE", "/api/sessions/x", 403),
        (works, "POST", "/v1/chat/completions", 200),
        (works, "GET", "/v1/models", 403),
        (works, "POST", "/api/jobs", 403),
        (works, "POST", "/api/cron/fire", 403),
        (KEY, "GET", "/v1/models", 200),
    ] {
        let reply = call(key, method, path);
        assert_eq!(reply.status, want, "{key} {method} {path}: {}", reply.body);
        if want == 403 {
            assert_eq!(reply.json()["error"]["code"], "insufficient_scope");
        }
    }
    assert_eq!(api.program.model.requests().len(), 1, "only one call was allowed");
    assert_eq!((call(slow, "GET", "/v1/models").status, call(slow, "GET", "/v1/models").status), (200, 200));
    let third = call(slow, "GET", "/v1/models");
    assert_eq!((third.status, &third.json()["error"]["code"]), (429, &json!("rate_limit_exceeded")));
    let wait: u64 = third.header("retry-after").and_then(|it| it.parse().ok()).expect("seconds");
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(call(KEY, "GET", "/v1/models").status, 200, "other keys are not limited");
}

#[test]
fn key_without_read_scope_cannot_join_foreign_session() {
    let works = "k-works-0123456789abcdef";
    let api = Api::with_config(&format!(
        "platforms.api_server.extra.keys:\n  works: {{key: {works}, scopes: [agent]}}\n  all: {{key: k-all-0123456789abcdef}}\n"
    ));
    let start_run = |key: &str, session: &str| {
        let body = json!({"session_id": session, "input": "repeat all that was said here"});
        let request = HttpRequest::new("POST", "/v1/runs").header("Authorization", format!("Bearer {key}"));
        api.send(&request.json(&body)).status
    };
    assert_eq!(start_run(KEY, "private"), 202);
    assert_eq!(start_run(works, "private"), 404, "the session of another key");
    assert_eq!((start_run(works, "own"), start_run(works, "own")), (202, 202));
    assert_eq!(start_run("k-all-0123456789abcdef", "private"), 202, "a key with read scope may continue it");
}

#[test]
fn first_start_creates_private_api_key() {
    let mut fixture = ProgramFixture::builder().with("platforms.api_server.enabled: true\n").build();
    fixture.launch_with(&[("API_SERVER_PORT", "0")]);
    let path = fixture.home.path().join("api_key");
    eventually("the key file exists", || path.exists());
    assert_eq!(std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    let key = std::fs::read_to_string(&path).expect("a key");
    assert!(key.trim().len() >= 32, "{}", key.trim().len());
    let mut api = Api { program: fixture, address: String::new() };
    api.address = api.wait_address(None);
    let request =
        HttpRequest::new("GET", "/v1/models").header("Authorization", format!("Bearer {}", key.trim()));
    assert_eq!(api.send(&request).status, 200);
}

#[test]
fn short_api_key_disables_only_the_api() {
    let mut fixture = ProgramFixture::new();
    fixture.launch_with(&[("API_SERVER_KEY", "short"), ("API_SERVER_PORT", "0")]);
    fixture.telegram.push_text(7, 7, "hello");
    assert_eq!(fixture.wait_messages(7, 1), ["echo: hello"]);
    let log = fixture.kill();
    assert!(log.contains("too short"), "{log}");
}

#[test]
fn cors_allows_listed_origins_only() {
    let api = Api::start();
    let from = |origin: &'static str, method: &'static str, path: &'static str| {
        api.request(method, path).header("Origin", origin)
    };
    let allowed = api.send(&from("http://ui.example", "GET", "/v1/models"));
    assert_eq!(allowed.status, 200);
    assert_eq!(allowed.header("access-control-allow-origin"), Some("http://ui.example"));
    assert!(allowed.header("vary").is_some_and(|it| it.contains("Origin")));
    let preflight = HttpRequest::new("OPTIONS", "/v1/chat/completions")
        .header("Origin", "http://ui.example")
        .header("Access-Control-Request-Method", "POST");
    let preflight = api.send(&preflight);
    assert_eq!((preflight.status, preflight.body.as_str()), (200, ""));
    let headers = preflight.header("access-control-allow-headers").expect("headers");
    for wanted in ["Authorization", "Content-Type", "Idempotency-Key", "X-Hermes-Session-Id", "Last-Event-ID"]
    {
        assert!(headers.contains(wanted), "{headers}");
    }
    assert!(preflight.header("access-control-allow-methods").is_some_and(|it| it.contains("PATCH")));
    assert_eq!(preflight.header("access-control-max-age"), Some("600"));
    for path in ["/v1/models", "/health", "/v1/chat/completions", "/api/sessions"] {
        for method in ["GET", "OPTIONS"] {
            let reply = api.send(&from("http://evil.example", method, path));
            assert_eq!((reply.status, reply.body.as_str()), (403, ""), "{method} {path}");
            assert!(reply.header("access-control-allow-origin").is_none());
            assert_eq!(reply.header("x-frame-options"), Some("DENY"));
        }
    }
    for (name, want) in [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("x-xss-protection", "0"),
    ] {
        assert_eq!(allowed.header(name), Some(want), "{name}");
    }
    assert!(allowed.header("content-security-policy").is_some_and(|it| it.contains("default-src 'none'")));
    assert!(
        allowed.header("strict-transport-security").is_some()
            && allowed.header("permissions-policy").is_some()
    );
}
