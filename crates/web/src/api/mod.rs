//! The API for programs: OpenAI's shapes, runs that belong to the server, conversations.
//!
//! Owns nothing but the count of recent requests per key. Every answer is a view of a run (`stream/run.rs`), so a client
//! may leave and come back; what was accepted is on disk before anybody hears of it. Everything but health asks for
//! a key. `routes.rs` is the table of what there is; the router and the OpenAPI document are made from it.

mod chat;
mod content;
mod cors;
mod info;
mod keys;
pub(crate) mod openapi;
pub(crate) mod reply;
pub(crate) mod request;
mod responses;
mod routes;
mod runs;
mod sessions;
mod work;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRef, Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use petasos_gateway::Handle;

pub(crate) use keys::Owner;
pub use keys::{ApiKey, Scope};
pub(crate) use openapi::make as document;

use crate::error::{self, ApiError};
use crate::guard;
use crate::origin::Options;
use keys::Keys;

/// What the API goes by.
#[derive(Debug, Clone)]
pub struct ApiOptions {
    pub keys: Vec<ApiKey>,
    /// Pages that may call it; `*` for all.
    pub origins: Vec<String>,
    /// What the agent is called as a model.
    pub model_name: String,
    /// Other names, and the models they mean.
    pub model_routes: BTreeMap<String, String>,
}

/// What every request needs.
#[derive(Clone)]
pub(crate) struct Api {
    handle: Handle,
    options: Arc<ApiOptions>,
    hosts: Arc<Options>,
    keys: Arc<Keys>,
}

impl FromRef<Api> for Handle {
    fn from_ref(api: &Api) -> Self {
        api.handle.clone()
    }
}

impl Api {
    fn answers_to(&self, host: &str) -> bool {
        self.hosts.answers_to(host)
    }
}

/// Whether a request is for the API and not for the page, where both have the path.
pub(crate) fn is_for_programs(path: &str) -> bool {
    path == "/health"
        || path == "/health/detailed"
        || path == "/v1"
        || path.starts_with("/v1/")
        || path.starts_with("/p/")
        || ["/api/jobs", "/api/cron/", "/api/platforms/"].iter().any(|own| path.starts_with(own))
}

/// Paths that page and programs share: whoever shows neither a cookie nor a key of the page's is a program.
pub(crate) fn is_shared(path: &str) -> bool {
    ["/api/sessions", "/openapi.json"].iter().any(|shared| path.starts_with(shared))
}

/// `/p/<profile>/…` is `/…`: one gateway has one agent, by whatever name it is called.
pub(crate) fn without_profile(request: &mut Request) {
    let uri = request.uri();
    let Some(rest) = uri.path().strip_prefix("/p/").and_then(|rest| rest.find('/').map(|at| &rest[at..]))
    else {
        return;
    };
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    // Made of parts of one that was valid.
    if let Ok(uri) = format!("{rest}{query}").parse() {
        *request.uri_mut() = uri;
    }
}

pub(crate) fn router(handle: Handle, options: ApiOptions, hosts: Options) -> Router {
    let keys = Keys::cut(&options.keys);
    let api = Api { handle, options: Arc::new(options), hosts: Arc::new(hosts), keys: Arc::new(keys) };
    let (mut open, mut closed) = (Router::new(), Router::new());
    for route in routes::table() {
        match route.scope {
            None => open = open.route(route.path, route.handler),
            Some(scope) => {
                let handler = route.handler.route_layer(from_fn_with_state(scope, only));
                closed = closed.route(route.path, handler);
            }
        }
    }
    open.merge(closed.layer(from_fn_with_state(api.clone(), authenticate)))
        .fallback(unknown)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(map_response(error::for_programs))
        .layer(from_fn_with_state(api.clone(), cors::cross))
        .with_state(api)
}

async fn unknown(State(api): State<Api>, request: Request) -> ApiError {
    match api.keys.admit(request.headers()) {
        Ok(_) => ApiError::not_found("There is nothing at this path").code("not_found"),
        Err(error) => error,
    }
}

async fn method_not_allowed() -> ApiError {
    let message = "This path has other methods";
    ApiError::coded(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}

async fn authenticate(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    match api.keys.admit(request.headers()) {
        Ok(owner) => {
            guard::keep_seat(&request);
            request.extensions_mut().insert(owner);
            next.run(request).await
        }
        Err(error) if error.is_unauthorized() && request.uri().path() == routes::FIRE => {
            ApiError::invalid_fire_token().into_response()
        }
        Err(error) => error.into_response(),
    }
}

/// Lets those through whose key is for this, before anything of their request is read.
async fn only(State(scope): State<Scope>, owner: Owner, request: Request, next: Next) -> Response {
    match owner.may(scope) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

/// What a call is about, in a line.
fn preview(call: &petasos_core::transcript::ToolCall) -> String {
    const SHOWN: usize = 80;
    const TELLING: [&str; 5] = ["command", "path", "query", "pattern", "action"];
    let arguments: Option<serde_json::Value> = serde_json::from_str(&call.arguments).ok();
    let telling = |arguments: &serde_json::Value| {
        TELLING
            .iter()
            .find_map(|name| arguments.get(name).and_then(serde_json::Value::as_str))
            .map(str::to_owned)
    };
    let line = arguments.as_ref().and_then(telling).unwrap_or_else(|| call.name.clone());
    line.lines().next().unwrap_or_default().chars().take(SHOWN).collect()
}
