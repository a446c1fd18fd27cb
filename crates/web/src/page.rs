//! The chat page: files in the binary, and the way in by a one-time link.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use petasos_gateway::Handle;
use serde::Deserialize;

use crate::cookie::Wire;
use crate::error::ApiError;
use crate::extract::{Asked, Named};
use crate::guard::{self, FETCH_SITE};
use crate::origin;

const INDEX: &str = include_str!("../page/index.html");
const DOCS: &str = include_str!("../page/docs.html");
const LOCKED: &str = include_str!("../page/locked.html");

/// Everything under `/assets`, by name.
const ASSETS: [(&str, &str); 12] = [
    ("app.css", include_str!("../page/app.css")),
    ("app.js", include_str!("../page/app.js")),
    ("commands.js", include_str!("../page/commands.js")),
    ("composer.js", include_str!("../page/composer.js")),
    ("docs.css", include_str!("../page/docs.css")),
    ("docs.js", include_str!("../page/docs.js")),
    ("icon.svg", include_str!("../page/icon.svg")),
    ("keep.js", include_str!("../page/keep.js")),
    ("locked.css", include_str!("../page/locked.css")),
    ("markdown.js", include_str!("../page/markdown.js")),
    ("sidebar.js", include_str!("../page/sidebar.js")),
    ("transcript.js", include_str!("../page/transcript.js")),
];

/// Makes a browser ask again as our own page: a cookie with `SameSite=Strict` does not come along when
/// a link on somebody else's page is followed.
const AGAIN: &str =
    "<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=\"0;url=/\"><title>Petasos</title>";

const NOT_SIGNED_IN: &str = "This browser is not signed in yet.";
const USED: &str = "This link has been used before, or it is too old. A link works once.";
const NEEDS_HTTPS: &str = " From another machine the page needs HTTPS, or the browser drops its sign-in.";

#[derive(Debug, Deserialize)]
pub(crate) struct Entry {
    token: Option<String>,
}

pub(crate) async fn index(
    State(handle): State<Handle>,
    method: Method,
    headers: HeaderMap,
    Asked(entry): Asked<Entry>,
) -> Result<Response, ApiError> {
    let wire = origin::wire(guard::text(&headers, &header::HOST).unwrap_or_default());
    match entry.token {
        // Whoever only looks at the headers does not use up the link.
        Some(token) if method != Method::HEAD => redeem(&handle, &headers, &token, wire).await,
        Some(_) | None => page(&handle, &headers, wire).await,
    }
}

/// What the API for programs is, for people.
pub(crate) async fn docs() -> Response {
    (html(), DOCS).into_response()
}

pub(crate) async fn logout(State(handle): State<Handle>, headers: HeaderMap) -> Result<Response, ApiError> {
    let wire = origin::wire(guard::text(&headers, &header::HOST).unwrap_or_default());
    for value in guard::cookies(&headers) {
        handle.logout(&value).await?;
    }
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, guard::cookie_name(&headers).clear(wire))])
        .into_response())
}

pub(crate) async fn asset(Named(name): Named<String>) -> Result<Response, ApiError> {
    let found = ASSETS.iter().find(|(known, _)| *known == name);
    let Some((name, text)) = found else {
        return Err(ApiError::not_found("there is no such file"));
    };
    // Asked for again each time: a new version of the gateway is a new version of the page.
    Ok(([(header::CONTENT_TYPE, media_type(name)), (header::CACHE_CONTROL, "no-cache")], *text)
        .into_response())
}

async fn redeem(handle: &Handle, headers: &HeaderMap, token: &str, wire: Wire) -> Result<Response, ApiError> {
    if let Some(value) = handle.redeem(token).await? {
        let set = [(header::SET_COOKIE, guard::cookie_name(headers).set(&value, wire))];
        return Ok((set, Redirect::to("/")).into_response());
    }
    if guard::signed_in(handle, headers).await? {
        return Ok(Redirect::to("/").into_response());
    }
    Ok(locked(USED, wire))
}

async fn page(handle: &Handle, headers: &HeaderMap, wire: Wire) -> Result<Response, ApiError> {
    if guard::signed_in(handle, headers).await? {
        return Ok((html(), INDEX).into_response());
    }
    if guard::text(headers, &FETCH_SITE) == Some("cross-site") {
        return Ok((html(), AGAIN).into_response());
    }
    Ok(locked(NOT_SIGNED_IN, wire))
}

fn locked(reason: &str, wire: Wire) -> Response {
    let more = match wire {
        Wire::Loopback => "",
        Wire::Network => NEEDS_HTTPS,
    };
    let text = LOCKED.replace("{reason}", &format!("{reason}{more}"));
    (StatusCode::UNAUTHORIZED, html(), text).into_response()
}

fn html() -> [(HeaderName, &'static str); 1] {
    [(header::CONTENT_TYPE, "text/html; charset=utf-8")]
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, ending)| ending) {
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_the_page_names_is_in_the_binary() {
        let sources = ASSETS.iter().map(|(_, text)| *text).chain([INDEX, LOCKED]);
        for source in sources {
            for after in source.split("/assets/").skip(1).chain(source.split("from './").skip(1)) {
                let name: String =
                    after.chars().take_while(|it| it.is_ascii_alphanumeric() || *it == '.').collect();
                assert!(ASSETS.iter().any(|(known, _)| *known == name), "{name:?}");
            }
        }
    }

    #[test]
    fn nothing_inline_is_in_the_pages_because_the_policy_forbids_it() {
        for page in [INDEX, LOCKED] {
            assert!(!page.contains("<style") && !page.contains(" style=") && !page.contains(" onclick="));
            assert_eq!(page.matches("<script").count(), page.matches("<script type=\"module\" src=").count());
        }
    }
}
