use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode, header};
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;
use tower::ServiceExt;

use super::*;
use crate::{AccessCredentials, extract};

#[derive(Deserialize, schemars::JsonSchema)]
struct WordRequest {
    word: String,
}

/// The public listener with a few handlers that need no gateway.
fn public_router() -> Router {
    let routes = Router::new()
        .route("/health", get(read::health))
        .route("/assets/{name}", get(page::asset))
        .route("/docs", get(page::docs))
        .route("/api/commands", get(read::commands))
        .route("/api/word", post(async |extract::JsonBody(it): extract::JsonBody<WordRequest>| it.word))
        .route("/api/chats/{platform}/{chat}", get(async |chat: extract::OwnChat| chat.id))
        .route("/api/panic", get(async || -> &'static str { panic!("on purpose") }));
    let keys = Arc::new(AcceptedCredentials::new(&AccessCredentials::default()));
    with_response_layers(with_request_guards(with_fallbacks(routes, ()), keys, PublicOptions::default()))
}

async fn request(method: Method, path: &str, headers: &[(&str, &str)], body: impl Into<Body>) -> Response {
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request = request.header(header::HOST, "127.0.0.1:8642");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    public_router().oneshot(request.body(body.into()).unwrap()).await.unwrap()
}

async fn json(response: Response) -> Value {
    serde_json::from_slice(&to_bytes(response.into_body(), usize::MAX).await.unwrap()).unwrap()
}

#[track_caller]
fn assert_error(body: &Value, code: &str) {
    assert_eq!(body["error"]["code"], code, "{body}");
    assert!(body["error"]["message"].as_str().is_some_and(|it| !it.is_empty()), "{body}");
}

/// Method, path, headers and body; the expected status and error code.
type RefusalCase<'a> = (Method, &'a str, &'a [(&'a str, &'a str)], &'a str, u16, &'a str);

const JSON: (&str, &str) = ("content-type", "application/json");

#[tokio::test]
async fn health_identifies_gateway() {
    let response = request(Method::GET, "/health", &[], "").await;
    assert_eq!(response.status(), StatusCode::OK);
    let body = json(response).await;
    assert_eq!((&body["status"], &body["platform"]), (&"ok".into(), &"petasos".into()));
}

#[tokio::test]
async fn every_response_has_security_headers() {
    for path in ["/health", "/nowhere", "/api/panic", "/assets/app.js"] {
        let response = request(Method::GET, path, &[], "").await;
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
async fn errors_have_uniform_shape() {
    let cases: &[RefusalCase<'_>] = &[
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
        let response = request(method.clone(), path, headers, *body).await;
        assert_eq!(response.status().as_u16(), *status, "{method} {path}");
        assert_error(&json(response).await, code);
    }
}

/// The API's router calls the page's router from its fallback.
#[tokio::test]
async fn error_behind_a_fallback_keeps_its_body() {
    let page = with_fallbacks(Router::new(), ());
    let router = with_response_layers(
        Router::new().fallback(async move |request: Request<Body>| page.oneshot(request).await.unwrap()),
    );
    let response = router.oneshot(Request::get("/nowhere").body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    assert_ne!(response.headers().get(header::CONTENT_LENGTH).map(|it| it.as_bytes()), Some(&b"0"[..]));
    assert_error(&json(response).await, "not_found");
}

#[tokio::test]
async fn error_names_every_invalid_field() {
    let cases = [
        ("{}", "missing: word (the body takes word)"),
        ("{\"wrod\":1}", "missing: word; unknown: wrod (the body takes word)"),
        ("{\"word\":1}", "word must be text"),
        ("[]", "the body must be a JSON object with word"),
        ("{", "the body is not JSON"),
    ];
    for (body, want) in cases {
        let body = json(request(Method::POST, "/api/word", &[JSON], body).await).await;
        assert_eq!(body["error"]["message"], want, "{body}");
    }
}

#[tokio::test]
async fn rejects_body_over_limit() {
    let word = |length: usize| format!("{{\"word\":\"{}\"}}", "x".repeat(length));
    let response = request(Method::POST, "/api/word", &[JSON], word(BODY_LIMIT)).await;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_error(&json(response).await, "too_large");
    let response = request(Method::POST, "/api/word", &[JSON], word(BODY_LIMIT - 100)).await;
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn own_page_may_post() {
    let headers = [JSON, ("origin", "http://127.0.0.1:8642"), ("sec-fetch-site", "same-origin")];
    let response = request(Method::POST, "/api/word", &headers, "{\"word\":\"hi\"}").await;
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn docs_page_loads_only_own_assets() {
    let page = request(Method::GET, "/docs", &[], "").await;
    assert_eq!(page.status(), StatusCode::OK);
    let html = to_bytes(page.into_body(), 1 << 20).await.unwrap();
    let html = String::from_utf8_lossy(&html);
    let assets: Vec<_> = html.split('"').filter(|part| part.starts_with("/assets/")).collect();
    assert!(assets.iter().any(|it| it.ends_with(".js")), "{html}");
    for asset in assets {
        assert_eq!(request(Method::GET, asset, &[], "").await.status(), StatusCode::OK, "{asset}");
    }
    assert!(!html.contains("http://") && !html.contains("https://"), "it loads nothing from elsewhere");
}
