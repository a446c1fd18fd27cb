//! Cross-origin access to the API, and its response headers.

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Api;
use crate::security::guard;

const METHODS: &str = "GET, POST, PATCH, DELETE, OPTIONS";
const HEADERS: &str = "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Hermes-Session-Id, \
                       X-Hermes-Session-Key, X-Petasos-Detach";
const EXPOSED: &str = "X-Hermes-Session-Id, X-Hermes-Session-Key, X-Petasos-Run-Id, Retry-After";

const API_HEADERS: [(HeaderName, &str); 3] = [
    (header::STRICT_TRANSPORT_SECURITY, "max-age=31536000; includeSubDomains"),
    (HeaderName::from_static("permissions-policy"), "camera=(), microphone=(), geolocation=()"),
    (HeaderName::from_static("x-xss-protection"), "0"),
];

enum OriginClass {
    /// No browser, or our own page.
    Own,
    Listed(HeaderValue),
    Unlisted,
}

pub(super) async fn apply(State(api): State<Api>, request: Request, next: Next) -> Response {
    let preflight = request.method() == Method::OPTIONS && request.headers().contains_key(header::ORIGIN);
    let (mut response, allowed) = match classify_origin(&api, &request) {
        OriginClass::Unlisted => (StatusCode::FORBIDDEN.into_response(), None),
        OriginClass::Listed(origin) if preflight => (StatusCode::OK.into_response(), Some(origin)),
        OriginClass::Listed(origin) => (next.run(request).await, Some(origin)),
        OriginClass::Own => (next.run(request).await, None),
    };
    let headers = response.headers_mut();
    for (name, value) in API_HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Some(origin) = allowed {
        if origin != "*" {
            headers.append(header::VARY, HeaderValue::from_static("Origin"));
        }
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(HEADERS));
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    }
    response
}

fn classify_origin(api: &Api, request: &Request) -> OriginClass {
    let Some(origin) = request.headers().get(header::ORIGIN) else { return OriginClass::Own };
    let listed = &api.options.origins;
    if listed.iter().any(|it| it == "*") {
        return OriginClass::Listed(HeaderValue::from_static("*"));
    }
    if listed.iter().any(|it| it.trim_end_matches('/').as_bytes() == origin.as_bytes()) {
        return OriginClass::Listed(origin.clone());
    }
    let host = guard::header_text(request.headers(), &header::HOST).unwrap_or_default();
    let own = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    // A rebound name appears both as host and as origin, so the host must be accepted too.
    match own {
        Some((_, name)) if name.eq_ignore_ascii_case(host) && api.allows_host(host) => OriginClass::Own,
        Some(_) | None => OriginClass::Unlisted,
    }
}
