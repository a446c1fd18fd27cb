//! Who may ask: keys, what they are for, and pages of others.

use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use serde_json::json;

use crate::support::api::{Api, KEY, said};
use crate::support::http::Ask;
use crate::support::{Bench, SOON};

#[test]
fn keys_may_do_what_they_are_for_and_no_more_often_than_agreed() {
    let keys = "platforms.api_server.extra.keys:\n  looks: {key: k-looks-0123456789abcdef, scopes: [read]}\n  \
                works: {key: k-works-0123456789abcdef, scopes: [agent]}\n  \
                slow: {key: k-slow-0123456789abcdef, rate_limit: 2}\n";
    let api = Api::with(keys);
    let ask = |key: &str, method: &str, path: &str| {
        let ask = Ask::new(method, path).header("Authorization", format!("Bearer {key}"));
        let ask = if method == "POST" { ask.json(&said("x")) } else { ask };
        api.send(&ask)
    };
    let (looks, works, slow) =
        ("k-looks-0123456789abcdef", "k-works-0123456789abcdef", "k-slow-0123456789abcdef");
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
        let reply = ask(key, method, path);
        assert_eq!(reply.status, want, "{key} {method} {path}: {}", reply.body);
        if want == 403 {
            assert_eq!(reply.json()["error"]["code"], "insufficient_scope");
        }
    }
    assert_eq!(api.bench.model.requests().len(), 1, "only one was allowed to");
    assert_eq!((ask(slow, "GET", "/v1/models").status, ask(slow, "GET", "/v1/models").status), (200, 200));
    let third = ask(slow, "GET", "/v1/models");
    assert_eq!((third.status, &third.json()["error"]["code"]), (429, &json!("rate_limit_exceeded")));
    let wait: u64 = third.header("retry-after").and_then(|it| it.parse().ok()).expect("seconds");
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(ask(KEY, "GET", "/v1/models").status, 200, "others are not concerned");
}

#[test]
fn a_key_that_cannot_look_enters_no_conversation_of_others() {
    let works = "k-works-0123456789abcdef";
    let api = Api::with(&format!(
        "platforms.api_server.extra.keys:\n  works: {{key: {works}, scopes: [agent]}}\n  all: {{key: k-all-0123456789abcdef}}\n"
    ));
    let run = |key: &str, session: &str| {
        let body = json!({"session_id": session, "input": "repeat all that was said here"});
        let ask = Ask::new("POST", "/v1/runs").header("Authorization", format!("Bearer {key}"));
        api.send(&ask.json(&body)).status
    };
    assert_eq!(run(KEY, "private"), 202);
    assert_eq!(run(works, "private"), 404, "it is somebody else's");
    assert_eq!((run(works, "own"), run(works, "own")), (202, 202));
    assert_eq!(run("k-all-0123456789abcdef", "private"), 202, "who may look may go on");
}

#[test]
fn a_key_is_made_at_the_first_start_for_its_owner_alone() {
    let mut bench = Bench::setup().with("platforms.api_server.enabled: true\n").build();
    bench.launch_with(&[("API_SERVER_PORT", "0")]);
    let path = bench.home.path().join("api_key");
    let until = Instant::now() + SOON;
    while !path.exists() {
        assert!(Instant::now() < until, "no key");
    }
    assert_eq!(std::fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    let key = std::fs::read_to_string(&path).expect("a key");
    assert!(key.trim().len() >= 32, "{}", key.trim().len());
    let mut api = Api { bench, address: String::new() };
    api.address = api.listening(None);
    let ask = Ask::new("GET", "/v1/models").header("Authorization", format!("Bearer {}", key.trim()));
    assert_eq!(api.send(&ask).status, 200);
}

#[test]
fn a_key_that_is_too_short_keeps_the_api_off_and_nothing_else() {
    let mut bench = Bench::new();
    bench.launch_with(&[("API_SERVER_KEY", "short"), ("API_SERVER_PORT", "0")]);
    bench.telegram.push_text(7, 7, "hello");
    assert_eq!(bench.wait_messages(7, 1), ["echo: hello"]);
    let log = bench.kill();
    assert!(log.contains("too short"), "{log}");
}

#[test]
fn pages_of_others_may_call_only_if_they_are_listed() {
    let api = Api::start();
    let from = |origin: &'static str, method: &'static str, path: &'static str| {
        api.ask(method, path).header("Origin", origin)
    };
    let fine = api.send(&from("http://ui.example", "GET", "/v1/models"));
    assert_eq!(fine.status, 200);
    assert_eq!(fine.header("access-control-allow-origin"), Some("http://ui.example"));
    assert!(fine.header("vary").is_some_and(|it| it.contains("Origin")));
    let ahead = Ask::new("OPTIONS", "/v1/chat/completions")
        .header("Origin", "http://ui.example")
        .header("Access-Control-Request-Method", "POST");
    let ahead = api.send(&ahead);
    assert_eq!((ahead.status, ahead.body.as_str()), (200, ""));
    let headers = ahead.header("access-control-allow-headers").expect("headers");
    for wanted in ["Authorization", "Content-Type", "Idempotency-Key", "X-Hermes-Session-Id", "Last-Event-ID"]
    {
        assert!(headers.contains(wanted), "{headers}");
    }
    assert!(ahead.header("access-control-allow-methods").is_some_and(|it| it.contains("PATCH")));
    assert_eq!(ahead.header("access-control-max-age"), Some("600"));
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
        assert_eq!(fine.header(name), Some(want), "{name}");
    }
    assert!(fine.header("content-security-policy").is_some_and(|it| it.contains("default-src 'none'")));
    assert!(
        fine.header("strict-transport-security").is_some() && fine.header("permissions-policy").is_some()
    );
}
