//! The routes of both listeners and the order of their middleware.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request};
use axum::http::{Method, header};
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::routing::{MethodRouter, delete, get, post};
use axum::{Extension, Json, Router};
use petasos_gateway::Handle;
use tower::ServiceExt;

use crate::chat::{read, write};
use crate::error::ApiError;
use crate::lifecycle::{actions, drain, drain_status, status};
use crate::security::credentials::{self, AcceptedCredentials, Caller};
use crate::security::origin::PublicOptions;
use crate::security::{guard, headers};
use crate::{api, error, jobs, owner, page, stream};

const BODY_LIMIT: usize = 1024 * 1024;
const DRAIN_BODY_LIMIT: usize = 64 * 1024;

/// Router for TCP: the page, its API, and the API for programs.
pub fn public(handle: Handle, options: PublicOptions) -> Router {
    let routes = routes()
        .route("/", get(page::index))
        .route("/assets/{name}", get(page::asset))
        .route("/docs", get(page::docs))
        .route("/openapi.json", get(async || Json(api::document())))
        .route("/api/logout", post(page::logout));
    let routes = if options.pageless { Router::new() } else { routes };
    let page =
        with_fallbacks(routes, handle.clone()).layer(from_fn_with_state(handle.clone(), guard::check_cookie));
    let accepted = Arc::new(AcceptedCredentials::new(&options.credentials));
    let Some(api_options) = options.api.clone() else {
        return with_response_layers(with_request_guards(page, accepted, options));
    };
    let api = api::router(handle, api_options, options.clone());
    let page = with_request_guards(page, accepted.clone(), options);
    with_response_layers(Router::new().fallback(async move |mut request: Request| {
        let router = if is_api_request(&accepted, &request) {
            api::strip_profile(&mut request);
            api
        } else {
            page
        };
        // The error type of a router is `Infallible`.
        match router.oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }))
}

/// Page and API share a port and some paths.
fn is_api_request(accepted: &AcceptedCredentials, request: &Request) -> bool {
    let method = request.method();
    let path = request.uri().path();
    let headers = request.headers();
    if api::is_api_path(path) {
        return true;
    }
    let not_browser = credentials::bearer(headers).is_some() || !headers.contains_key(header::COOKIE);
    let has_api_key = not_browser && !accepted.recognises(method, path, headers);
    let is_preflight =
        headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD) && *method == Method::OPTIONS;
    api::is_shared_path(path) && (has_api_key || is_preflight)
}

fn with_response_layers(routes: Router) -> Router {
    routes
        .layer(from_fn(headers::catch_panics))
        .layer(map_response(error::render_for_page))
        .layer(from_fn(headers::add_security_headers))
}

/// Router for the control socket: the page's API and the owner's routes.
pub fn control(handle: Handle) -> Router {
    let routes = routes()
        .route("/api/outbox", get(owner::outbox))
        .route("/api/outbox/{id}", delete(owner::outbox_drop))
        .route("/api/outbox/{id}/retry", post(owner::outbox_retry))
        .route("/api/post", post(owner::notify::send))
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
    with_fallbacks(routes, handle)
        .layer(Extension(Caller::Owner))
        .layer(from_fn(headers::catch_panics))
        .layer(map_response(error::render_for_page))
}

fn routes() -> Router<Handle> {
    Router::new()
        .route("/health", get(read::health))
        .route("/api/status", get(status::show))
        .route("/api/actions/{name}/status", get(actions::action_status))
        .route(credentials::DRAIN, drain_route())
        .route("/api/gateway/drain/extend", post(drain_status::extend))
        .route("/api/gateway/drain/skip", post(drain_status::skip))
        .route("/api/gateway/restart", post(actions::restart))
        .route("/api/gateway/start", post(actions::start))
        .route("/api/gateway/stop", post(actions::stop))
        .route("/api/commands", get(read::commands))
        .route("/api/sessions", get(read::sessions))
        .route("/api/sessions/{id}/messages", get(read::messages))
        .route("/api/chats/{platform}/{chat}/messages", post(write::post_message))
        .route("/api/chats/{platform}/{chat}/stop", post(write::stop_turn))
        .route("/api/chats/{platform}/{chat}/events", get(stream::page::events))
}

fn drain_route() -> MethodRouter<Handle> {
    post(drain::request_drain).get(drain_status::show).layer(DefaultBodyLimit::max(DRAIN_BODY_LIMIT))
}

/// Unknown paths and methods get an [`ApiError`].
fn with_fallbacks<S: Clone + Send + Sync + 'static>(routes: Router<S>, state: S) -> Router {
    routes
        .fallback(async || ApiError::not_found("there is nothing at this path"))
        .method_not_allowed_fallback(async || {
            ApiError::method_not_allowed("this path does not support this method")
        })
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(state)
}

/// Checks that need no gateway; the last layer runs first.
fn with_request_guards(routes: Router, accepted: Arc<AcceptedCredentials>, options: PublicOptions) -> Router {
    routes
        .layer(from_fn(guard::check_origin))
        .layer(from_fn_with_state(accepted, credentials::authenticate))
        .layer(from_fn_with_state(Arc::new(options), guard::check_host))
}

#[cfg(test)]
mod tests;
