//! Middleware of the public listener: checks `Host`, origin and cookie.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use petasos_gateway::Handle;
use petasos_platforms::listener::ConnectionSlot;
use tracing::warn;

use crate::error::ApiError;
use crate::security::cookie::CookieName;
use crate::security::credentials::Caller;
use crate::security::origin::{PublicOptions, RequestOrigin};

pub(crate) const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Paths that need no cookie. `/` is handled by the page itself, which offers to sign in.
const WITHOUT_COOKIE: [&str; 2] = ["/health", "/assets/locked.css"];

/// Needs no cookie, but returns more to an authenticated caller.
const STATUS: &str = "/api/status";

/// The most cookie values that are checked per request.
const MAX_COOKIES: usize = 8;

pub(crate) async fn check_host(
    State(options): State<Arc<PublicOptions>>,
    request: Request,
    next: Next,
) -> Response {
    let host = header_text(request.headers(), &header::HOST).unwrap_or_default();
    if options.allows_host(host) {
        return next.run(request).await;
    }
    warn!(host, "rejected request for an unknown host name");
    ApiError::wrong_host().into_response()
}

/// Rejects requests of other sites that change something or read the API. A request with a valid token passes: a
/// browser never adds one by itself.
pub(crate) async fn check_origin(request: Request, next: Next) -> Response {
    if Caller::of(request.extensions()) != Caller::Anonymous {
        return next.run(request).await;
    }
    let headers = request.headers();
    let request_origin = RequestOrigin {
        host: header_text(headers, &header::HOST).unwrap_or_default(),
        origin: header_text(headers, &header::ORIGIN),
        fetch_site: header_text(headers, &FETCH_SITE),
    };
    let is_page_load = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS)
        && !request.uri().path().starts_with("/api");
    if is_page_load || request_origin.is_trusted() {
        return next.run(request).await;
    }
    warn!(path = request.uri().path(), "rejected request from another site");
    ApiError::forbidden("this request was made by another site").into_response()
}

pub(crate) async fn check_cookie(State(handle): State<Handle>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_authenticated = Caller::of(request.extensions()) != Caller::Anonymous;
    if is_authenticated {
        mark_authenticated(&request);
    }
    if is_authenticated || path == "/" || WITHOUT_COOKIE.contains(&path) {
        return next.run(request).await;
    }
    match is_signed_in(&handle, request.headers()).await {
        Ok(true) => {
            mark_authenticated(&request);
            request.extensions_mut().insert(Caller::Dashboard);
            next.run(request).await
        }
        Ok(false) if path == STATUS => next.run(request).await,
        Ok(false) => ApiError::not_signed_in().into_response(),
        Err(error) => error.into_response(),
    }
}

/// Protects the connection from being closed for a new one.
pub(crate) fn mark_authenticated(request: &Request) {
    if let Some(slot) = request.extensions().get::<ConnectionSlot>() {
        slot.mark_authenticated();
    }
}

pub(crate) async fn is_signed_in(handle: &Handle, headers: &HeaderMap) -> Result<bool, ApiError> {
    for value in cookie_values(headers).iter().take(MAX_COOKIES) {
        if handle.cookie_ok(value).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(crate) fn cookie_values(headers: &HeaderMap) -> Vec<String> {
    let name = cookie_name(headers);
    let sent_headers = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    sent_headers.flat_map(|header| name.values(header)).map(str::to_owned).collect()
}

pub(crate) fn cookie_name(headers: &HeaderMap) -> CookieName {
    CookieName::for_authority(header_text(headers, &header::HOST).unwrap_or_default())
}

pub(crate) fn header_text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    // A header that is not text must not count as absent.
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}
