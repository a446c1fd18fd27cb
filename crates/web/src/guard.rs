//! The checks at the public door: the right name, our own page, a signed-in browser.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use petasos_gateway::Handle;
use petasos_platforms::seats::Seat;
use tracing::warn;

use crate::cookie;
use crate::error::ApiError;
use crate::origin::{Options, Provenance};
use crate::token::Caller;

pub(crate) const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// What a browser without a cookie may load. `/` is not among them: the page sees to its own cookie.
const OPEN: [&str; 2] = ["/health", "/assets/locked.css"];

/// Open too, but says more to whoever is signed in.
const STATUS: &str = "/api/status";

/// A browser holds one cookie of ours; of a header that holds more, no more than this are tried.
const COOKIES_TRIED: usize = 8;

pub(crate) async fn host(State(options): State<Arc<Options>>, request: Request, next: Next) -> Response {
    let asked = text(request.headers(), &header::HOST).unwrap_or_default();
    if options.answers_to(asked) {
        return next.run(request).await;
    }
    warn!(host = asked, "request for a host that is not ours");
    let message =
        "this name is not one of the gateway's; open it as localhost or set its host in the configuration";
    ApiError::coded(StatusCode::MISDIRECTED_REQUEST, "wrong_host", message).into_response()
}

/// Cross-site pages may not change anything, nor read the API. Whoever has shown a token is no such page: a browser
/// adds none by itself.
pub(crate) async fn origin(request: Request, next: Next) -> Response {
    if Caller::of(request.extensions()) != Caller::Anyone {
        return next.run(request).await;
    }
    let headers = request.headers();
    let provenance = Provenance {
        host: text(headers, &header::HOST).unwrap_or_default(),
        origin: text(headers, &header::ORIGIN),
        fetch_site: text(headers, &FETCH_SITE),
    };
    let harmless = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS)
        && !request.uri().path().starts_with("/api");
    if harmless || provenance.is_ours() {
        return next.run(request).await;
    }
    warn!(path = request.uri().path(), "request from another site");
    ApiError::forbidden("this request was made by another site").into_response()
}

pub(crate) async fn cookie(State(handle): State<Handle>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let known = Caller::of(request.extensions()) != Caller::Anyone;
    if known {
        keep_seat(&request);
    }
    if known || path == "/" || OPEN.contains(&path) {
        return next.run(request).await;
    }
    match signed_in(&handle, request.headers()).await {
        Ok(true) => {
            keep_seat(&request);
            request.extensions_mut().insert(Caller::Dashboard);
            next.run(request).await
        }
        Ok(false) if path == STATUS => next.run(request).await,
        Ok(false) => ApiError::not_signed_in().into_response(),
        Err(error) => error.into_response(),
    }
}

/// The caller has authenticated: the connection is not closed for another one.
pub(crate) fn keep_seat(request: &Request) {
    if let Some(seat) = request.extensions().get::<Seat>() {
        seat.keep();
    }
}

pub(crate) async fn signed_in(handle: &Handle, headers: &HeaderMap) -> Result<bool, ApiError> {
    for value in cookies(headers).iter().take(COOKIES_TRIED) {
        if handle.cookie_ok(value).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What this gateway's cookie holds, as the browser sends it.
pub(crate) fn cookies(headers: &HeaderMap) -> Vec<String> {
    let name = cookie_name(headers);
    let sent = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    sent.flat_map(|header| name.values(header)).map(str::to_owned).collect()
}

pub(crate) fn cookie_name(headers: &HeaderMap) -> cookie::Name {
    cookie::Name::at(text(headers, &header::HOST).unwrap_or_default())
}

pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    // A header that is not text is not absent: it must not pass for one.
    headers.get(name).map(|value| value.to_str().unwrap_or("?"))
}
