use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode, header};
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use tower::ServiceExt;

use super::*;
use crate::{Doors, extract};

#[derive(Deserialize, schemars::JsonSchema)]
struct Word {
    word: String,
}

/// The public door with a few handlers behind it that need no gateway.
fn door() -> Router {
    let routes = Router::new()
        .route("/health", get(read::health))
        .route("/assets/{name}", get(page::asset))
        .route("/docs", get(page::docs))
        .route("/api/commands", get(read::commands))
        .route("/api/word", post(async |extract::Body(it): extract::Body<Word>| it.word))
        .route("/api/chats/{platform}/{chat}", get(async |chat: extract::Chat| chat.id))
        .route("/api/panic", get(async || -> &'static str { panic!("on purpose") }));
    let keys = Arc::new(Keys::cut(&Doors::default()));
    dressed(fenced(closed(routes, ()), keys, Options::default()))
}

async fn ask(method: Method, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Response {
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request = request.header(header::HOST, "127.0.0.1:8642");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    door().oneshot(request.body(body.into()).unwrap()).await.unwrap()
}

async fn json(response: Response) -> Value {
    serde_json::from_slice(&to_bytes(response.into_body(), usize::MAX).await.unwrap()).unwrap()
}

#[track_caller]
fn is_refusal(body: &Value, code: &str) {
    assert_eq!(body["error"]["code"], code, "{body}");
    assert!(body["error"]["message"].as_str().is_some_and(|it| !it.is_empty()), "{body}");
}

/// Method, path, headers and body; the status and the code that they get.
type Case<'a> = (Method, &'a str, &'a [(&'a str, &'a str)], &'a str, u16, &'a str);

const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn health_says_who_we_are() {
    let response = ask(Method::GET, "/health", &[], "").await;
    assert_eq!(response.status(), StatusCode::OK);
    let body = json(response).await;
    assert_eq!((&body["status"], &body["platform"]), (&"ok".into(), &"petasos".into()));
}

#[tokio::test]
async fn every_answer_carries_the_security_headers() {
    for path in ["/health", "/nowhere", "/api/panic", "/assets/app.js"] {
        let response = ask(Method::GET, path, &[], "").await;
        let headers = response.headers();
        assert_eq!(headers["x-content-type-options"], "nosniff", "{path}");
        assert_eq!(headers["x-frame-options"], "DENY", "{path}");
        assert_eq!(headers["referrer-policy"], "no-referrer", "{path}");
        assert!(headers["content-security-policy"].to_str().unwrap().contains("default-src 'none'"));
        assert_eq!(
            headers["cache-control"],
            if path.starts_with("/assets") { "no-cache" } else { "no-store" }
        );
    }
}

#[tokio::test]
async fn every_refusal_has_the_same_shape() {
    let cases: &[Case<'_>] = &[
        (Method::GET, "/nowhere", &[], "", 404, "not_found"),
        (Method::GET, "/assets/../Cargo.toml", &[], "", 404, "not_found"),
        (Method::DELETE, "/health", &[], "", 405, "method_not_allowed"),
        (Method::GET, "/api/panic", &[], "", 500, "internal"),
        (Method::GET, "/api/chats/telegram/7", &[], "", 404, "not_found"),
        (Method::GET, "/api/chats/web/a%3Ab", &[], "", 400, "bad_request"),
        (Method::POST, "/api/word", &[JSON], "{", 400, "bad_request"),
        (Method::POST, "/api/word", &[JSON], "{}", 400, "bad_request"),
        (Method::POST, "/api/word", &[], "{}", 415, "unsupported_media_type"),
        (Method::GET, "/health", &[("host", "evil.example")], "", 421, "wrong_host"),
        (Method::POST, "/api/word", &[JSON, ("origin", "http://evil.example")], "{}", 403, "forbidden"),
        (Method::POST, "/api/word", &[JSON, ("sec-fetch-site", "same-site")], "{}", 403, "forbidden"),
        (Method::GET, "/api/commands", &[("sec-fetch-site", "cross-site")], "", 403, "forbidden"),
    ];
    for (method, path, headers, body, status, code) in cases {
        let response = ask(method.clone(), path, headers, *body).await;
        assert_eq!(response.status().as_u16(), *status, "{method} {path}");
        is_refusal(&json(response).await, code);
    }
}

#[tokio::test]
async fn a_refusal_names_every_field_that_is_wrong() {
    let cases = [
        ("{}", "missing: word (the body takes word)"),
        ("{\"wrod\":1}", "missing: word; unknown: wrod (the body takes word)"),
        ("{\"word\":1}", "word must be text"),
        ("[]", "the body must be a JSON object with word"),
        ("{", "the body is not JSON"),
    ];
    for (body, want) in cases {
        let told = json(ask(Method::POST, "/api/word", &[JSON], body).await).await;
        assert_eq!(told["error"]["message"], want, "{body}");
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_and_one_below_is_read() {
    let word = |length: usize| format!("{{\"word\":\"{}\"}}", "x".repeat(length));
    let response = ask(Method::POST, "/api/word", &[JSON], word(BODY_LIMIT)).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    is_refusal(&json(response).await, "too_large");
    let response = ask(Method::POST, "/api/word", &[JSON], word(BODY_LIMIT - 100)).await;
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn our_own_page_may_post() {
    let headers = [JSON, ("origin", "http://127.0.0.1:8642"), ("sec-fetch-site", "same-origin")];
    let response = ask(Method::POST, "/api/word", &headers, "{\"word\":\"hi\"}").await;
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn the_page_that_shows_the_document_has_everything_it_needs() {
    let page = ask(Method::GET, "/docs", &[], "").await;
    assert_eq!(page.status(), StatusCode::OK);
    let html = to_bytes(page.into_body(), 1 << 20).await.unwrap();
    let html = String::from_utf8_lossy(&html);
    let assets: Vec<_> = html.split('"').filter(|part| part.starts_with("/assets/")).collect();
    assert!(assets.iter().any(|it| it.ends_with(".js")), "{html}");
    for asset in assets {
        assert_eq!(ask(Method::GET, asset, &[], "").await.status(), StatusCode::OK, "{asset}");
    }
    assert!(!html.contains("http://") && !html.contains("https://"), "it loads nothing from elsewhere");
}
