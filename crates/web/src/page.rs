//! The chat page: files embedded in the binary, and sign-in by a one-time link.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use petasos_gateway::Handle;
use serde::Deserialize;

use crate::error::ApiError;
use crate::extract::{PathParameters, QueryParameters};
use crate::security::cookie::NetworkScope;
use crate::security::guard::{self, FETCH_SITE};
use crate::security::origin;

const INDEX: &str = include_str!("../page/index.html");
const DOCS: &str = include_str!("../page/docs.html");
const LOCKED: &str = include_str!("../page/locked.html");

const ASSETS: [(&str, &str); 12] = [
    ("app.css", include_str!("../page/app.css")),
    ("app.js", include_str!("../page/app.js")),
    ("commands.js", include_str!("../page/commands.js")),
    ("composer.js", include_str!("../page/composer.js")),
    ("docs.css", include_str!("../page/docs.css")),
    ("docs.js", include_str!("../page/docs.js")),
    ("icon.svg", include_str!("../page/icon.svg")),
    ("storage.js", include_str!("../page/storage.js")),
    ("locked.css", include_str!("../page/locked.css")),
    ("markdown.js", include_str!("../page/markdown.js")),
    ("sidebar.js", include_str!("../page/sidebar.js")),
    ("transcript.js", include_str!("../page/transcript.js")),
];

/// Makes the browser repeat the request from our own page: it sends no `SameSite=Strict` cookie when a link on another
/// site is followed.
const RELOAD_PAGE: &str =
    "<!doctype html><meta charset=utf-8><meta http-equiv=refresh content=\"0;url=/\"><title>Petasos</title>";

const NOT_SIGNED_IN: &str = "This browser is not signed in yet.";
const LINK_USED: &str = "This link was already used or has expired. Each link works only once.";
const NEEDS_HTTPS: &str =
    " From another machine, open the page over HTTPS; otherwise the browser discards the sign-in.";

#[derive(Debug, Deserialize)]
pub(crate) struct IndexQuery {
    token: Option<String>,
}

pub(crate) async fn index(
    State(handle): State<Handle>,
    method: Method,
    headers: HeaderMap,
    QueryParameters(query): QueryParameters<IndexQuery>,
) -> Result<Response, ApiError> {
    let scope = origin::network_scope(guard::header_text(&headers, &header::HOST).unwrap_or_default());
    match query.token {
        // A HEAD request must not use up the link.
        Some(token) if method != Method::HEAD => redeem(&handle, &headers, &token, scope).await,
        Some(_) | None => index_or_sign_in(&handle, &headers, scope).await,
    }
}

/// Shows the OpenAPI document.
pub(crate) async fn docs() -> Response {
    (html(), DOCS).into_response()
}

pub(crate) async fn logout(State(handle): State<Handle>, headers: HeaderMap) -> Result<Response, ApiError> {
    let scope = origin::network_scope(guard::header_text(&headers, &header::HOST).unwrap_or_default());
    for value in guard::cookie_values(&headers) {
        handle.logout(&value).await?;
    }
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, guard::cookie_name(&headers).clear(scope))])
        .into_response())
}

pub(crate) async fn asset(PathParameters(name): PathParameters<String>) -> Result<Response, ApiError> {
    let found = ASSETS.iter().find(|(known, _)| *known == name);
    let Some((name, text)) = found else {
        return Err(ApiError::not_found("there is no file with this name"));
    };
    // Revalidated on each load: a new version of the gateway brings a new page.
    Ok(([(header::CONTENT_TYPE, media_type(name)), (header::CACHE_CONTROL, "no-cache")], *text)
        .into_response())
}

async fn redeem(
    handle: &Handle,
    headers: &HeaderMap,
    token: &str,
    scope: NetworkScope,
) -> Result<Response, ApiError> {
    if let Some(value) = handle.redeem(token).await? {
        let set = [(header::SET_COOKIE, guard::cookie_name(headers).set(&value, scope))];
        return Ok((set, Redirect::to("/")).into_response());
    }
    if guard::is_signed_in(handle, headers).await? {
        return Ok(Redirect::to("/").into_response());
    }
    Ok(sign_in_page(LINK_USED, scope))
}

async fn index_or_sign_in(
    handle: &Handle,
    headers: &HeaderMap,
    scope: NetworkScope,
) -> Result<Response, ApiError> {
    if guard::is_signed_in(handle, headers).await? {
        return Ok((html(), INDEX).into_response());
    }
    if guard::header_text(headers, &FETCH_SITE) == Some("cross-site") {
        return Ok((html(), RELOAD_PAGE).into_response());
    }
    Ok(sign_in_page(NOT_SIGNED_IN, scope))
}

fn sign_in_page(reason: &str, scope: NetworkScope) -> Response {
    let more = match scope {
        NetworkScope::Loopback => "",
        NetworkScope::Network => NEEDS_HTTPS,
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
    fn embeds_every_file_that_the_pages_load() {
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
    fn pages_contain_no_inline_code() {
        for index_or_sign_in in [INDEX, LOCKED] {
            assert!(
                !index_or_sign_in.contains("<style")
                    && !index_or_sign_in.contains(" style=")
                    && !index_or_sign_in.contains(" onclick=")
            );
            assert_eq!(
                index_or_sign_in.matches("<script").count(),
                index_or_sign_in.matches("<script type=\"module\" src=").count()
            );
        }
    }
}
