//! Which pages may call the API, and the headers that only the API's answers carry.

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Api;
use crate::guard;

const METHODS: &str = "GET, POST, PATCH, DELETE, OPTIONS";
const HEADERS: &str = "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Hermes-Session-Id, \
                       X-Hermes-Session-Key, X-Petasos-Detach";
const EXPOSED: &str = "X-Hermes-Session-Id, X-Hermes-Session-Key, X-Petasos-Run-Id, Retry-After";

const ALWAYS: [(HeaderName, &str); 3] = [
    (header::STRICT_TRANSPORT_SECURITY, "max-age=31536000; includeSubDomains"),
    (HeaderName::from_static("permissions-policy"), "camera=(), microphone=(), geolocation=()"),
    (HeaderName::from_static("x-xss-protection"), "0"),
];

/// What an origin is to us.
enum Standing {
    /// No page, or our own.
    Own,
    Listed(HeaderValue),
    Stranger,
}

pub(super) async fn cross(State(api): State<Api>, request: Request, next: Next) -> Response {
    let preflight = request.method() == Method::OPTIONS && request.headers().contains_key(header::ORIGIN);
    let (mut response, allowed) = match standing(&api, &request) {
        Standing::Stranger => (StatusCode::FORBIDDEN.into_response(), None),
        Standing::Listed(origin) if preflight => (StatusCode::OK.into_response(), Some(origin)),
        Standing::Listed(origin) => (next.run(request).await, Some(origin)),
        Standing::Own => (next.run(request).await, None),
    };
    let headers = response.headers_mut();
    for (name, value) in ALWAYS {
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

fn standing(api: &Api, request: &Request) -> Standing {
    let Some(origin) = request.headers().get(header::ORIGIN) else { return Standing::Own };
    let listed = &api.options.origins;
    if listed.iter().any(|it| it == "*") {
        return Standing::Listed(HeaderValue::from_static("*"));
    }
    if listed.iter().any(|it| it.trim_end_matches('/').as_bytes() == origin.as_bytes()) {
        return Standing::Listed(origin.clone());
    }
    let host = guard::text(request.headers(), &header::HOST).unwrap_or_default();
    let ours = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    // A name that was rebound to us shows itself as both: it counts only where the page answers to it.
    match ours {
        Some((_, name)) if name.eq_ignore_ascii_case(host) && api.answers_to(host) => Standing::Own,
        Some(_) | None => Standing::Stranger,
    }
}
