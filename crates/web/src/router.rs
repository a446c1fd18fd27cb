//! Which path leads where, and through which checks.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{Method, StatusCode, header};
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::routing::{MethodRouter, delete, get, post};
use axum::{Extension, Json, Router};
use petasos_gateway::Handle;
use tower::ServiceExt;

use crate::error::ApiError;
use crate::origin::Options;
use crate::token::{self, Caller, Keys};
use crate::{
    api, chat, drain, error, guard, headers, jobs, owner, page, read, situation, status, stream, verbs,
};

const BODY_LIMIT: usize = 1024 * 1024;
const DRAIN_BODY_LIMIT: usize = 64 * 1024;

/// For TCP: the page and its API, behind every check.
pub fn public(handle: Handle, options: Options) -> Router {
    let routes = routes()
        .route("/", get(page::index))
        .route("/assets/{name}", get(page::asset))
        .route("/docs", get(page::docs))
        .route("/openapi.json", get(async || Json(api::document())))
        .route("/api/logout", post(page::logout));
    let routes = if options.pageless { Router::new() } else { routes };
    let page = closed(routes, handle.clone()).layer(from_fn_with_state(handle.clone(), guard::cookie));
    let keys = Arc::new(Keys::cut(&options.doors));
    let Some(programs) = options.api.clone() else { return dressed(fenced(page, keys, options)) };
    let programs = api::router(handle, programs, options.clone());
    let page = fenced(page, keys.clone(), options);
    dressed(Router::new().fallback(async move |mut request: Request| {
        let side = match is_for_programs(&keys, &request) {
            true => {
                api::without_profile(&mut request);
                programs
            }
            false => page,
        };
        // A router never fails: it answers.
        match side.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }))
}

/// Page and programs share a port, and some paths.
fn is_for_programs(keys: &Keys, request: &Request) -> bool {
    let (method, path, headers) = (request.method(), request.uri().path(), request.headers());
    if api::is_for_programs(path) {
        return true;
    }
    let no_browser = token::bearer(headers).is_some() || !headers.contains_key(header::COOKIE);
    let shows_key = no_browser && !keys.knows(method, path, headers);
    let asks_ahead =
        headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD) && *method == Method::OPTIONS;
    api::is_shared(path) && (shows_key || asks_ahead)
}

fn dressed(routes: Router) -> Router {
    routes.layer(from_fn(headers::survive)).layer(map_response(error::for_page)).layer(from_fn(headers::add))
}

/// For the owner's unix socket: the same API and what only the owner may do.
pub fn control(handle: Handle) -> Router {
    let routes = routes()
        .route("/api/outbox", get(owner::outbox))
        .route("/api/outbox/{id}", delete(owner::outbox_drop))
        .route("/api/outbox/{id}/retry", post(owner::outbox_retry))
        .route("/api/post", post(crate::post::post))
        .route("/api/schedule", get(jobs::list).post(jobs::add))
        .route("/api/schedule/{id}", delete(jobs::remove))
        .route("/api/schedule/{id}/pause", post(jobs::pause))
        .route("/api/schedule/{id}/resume", post(jobs::resume))
        .route("/api/schedule/{id}/run", post(jobs::run))
        .route("/api/pairing", get(owner::pairing))
        .route("/api/pairing/approve", post(owner::pairing_approve))
        .route("/api/pairing/revoke", post(owner::pairing_revoke))
        .route("/api/pairing/unlock", post(owner::pairing_unlock))
        .route("/api/approvals/revoke", post(owner::approvals_revoke))
        .route("/api/login-link", post(owner::login_link))
        .route("/api/links/{name}/retry", post(owner::link_retry))
        .route("/api/links/{name}/pause", post(owner::link_pause))
        .route("/api/hurry", post(owner::hurry))
        .route("/api/restart", post(owner::restart))
        .route("/api/shutdown", post(owner::shutdown));
    closed(routes, handle)
        .layer(Extension(Caller::Owner))
        .layer(from_fn(headers::survive))
        .layer(map_response(error::for_page))
}

fn routes() -> Router<Handle> {
    Router::new()
        .route("/health", get(read::health))
        .route("/api/status", get(status::status))
        .route("/api/actions/{name}/status", get(verbs::action))
        .route(token::DRAIN, drain_route())
        .route("/api/gateway/drain/extend", post(situation::extend))
        .route("/api/gateway/drain/skip", post(situation::skip))
        .route("/api/gateway/restart", post(verbs::restart))
        .route("/api/gateway/start", post(verbs::start))
        .route("/api/gateway/stop", post(verbs::stop))
        .route("/api/commands", get(read::commands))
        .route("/api/sessions", get(read::sessions))
        .route("/api/sessions/{id}/messages", get(read::messages))
        .route("/api/chats/{platform}/{chat}/messages", post(chat::say))
        .route("/api/chats/{platform}/{chat}/stop", post(chat::stop))
        .route("/api/chats/{platform}/{chat}/events", get(stream::page::events))
}

fn drain_route() -> MethodRouter<Handle> {
    post(drain::ask).get(situation::show).layer(DefaultBodyLimit::max(DRAIN_BODY_LIMIT))
}

/// Everything that no route answers gets an answer of the usual shape.
fn closed<S: Clone + Send + Sync + 'static>(routes: Router<S>, state: S) -> Router {
    routes
        .fallback(async || ApiError::not_found("there is nothing at this path"))
        .method_not_allowed_fallback(async || {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "this path has other methods")
        })
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(state)
}

/// The checks that need no gateway, from the inside out.
fn fenced(routes: Router, keys: Arc<Keys>, options: Options) -> Router {
    routes
        .layer(from_fn(guard::origin))
        .layer(from_fn_with_state(keys, token::admit))
        .layer(from_fn_with_state(Arc::new(options), guard::host))
}

#[cfg(test)]
#[path = "router_tests.rs"]
mod tests;
