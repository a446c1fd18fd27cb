//! The API for programs: OpenAI-compatible endpoints, runs, sessions and jobs.
//!
//! Owns only the rate limit state per key. A response is a view of a run (`stream/run.rs`), so a client may disconnect
//! and resume; a run is on disk before its acceptance is reported. All routes but health require a key. `routes.rs` is
//! the route table from which the router and the OpenAPI document are built.

mod cors;
mod endpoints;
mod execution;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod keys;
pub(crate) mod openapi;
mod routes;
pub(crate) mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{FromRef, Request, State};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::{IntoResponse, Response};
use petasos_gateway::Handle;

pub(crate) use keys::ApiClient;
pub use keys::{ApiKey, Scope};
pub(crate) use openapi::document;

use crate::error::{self, ApiError};
use crate::security::guard;
use crate::security::origin::PublicOptions;
use keys::ApiKeys;

#[derive(Debug, Clone)]
pub struct ApiOptions {
    pub keys: Vec<ApiKey>,
    /// Allowed CORS origins; `*` for all.
    pub origins: Vec<String>,
    pub model_name: String,
    /// Further model names and the models they select.
    pub model_routes: BTreeMap<String, String>,
}

#[derive(Clone)]
pub(crate) struct Api {
    handle: Handle,
    options: Arc<ApiOptions>,
    hosts: Arc<PublicOptions>,
    keys: Arc<ApiKeys>,
}

impl FromRef<Api> for Handle {
    fn from_ref(api: &Api) -> Self {
        api.handle.clone()
    }
}

impl Api {
    fn allows_host(&self, host: &str) -> bool {
        self.hosts.allows_host(host)
    }
}

/// Paths of the API only.
pub(crate) fn is_api_path(path: &str) -> bool {
    path == "/health"
        || path == "/health/detailed"
        || path == "/v1"
        || path.starts_with("/v1/")
        || path.starts_with("/p/")
        || ["/api/jobs", "/api/cron/", "/api/platforms/"].iter().any(|own| path.starts_with(own))
}

/// Paths that page and API share; a request without a cookie and without a credential of the page belongs to the API.
pub(crate) fn is_shared_path(path: &str) -> bool {
    ["/api/sessions", "/openapi.json"].iter().any(|shared| path.starts_with(shared))
}

/// Rewrites `/p/<profile>/…` to `/…`: one gateway serves one profile.
pub(crate) fn strip_profile(request: &mut Request) {
    let uri = request.uri();
    let Some(rest) = uri.path().strip_prefix("/p/").and_then(|rest| rest.find('/').map(|at| &rest[at..]))
    else {
        return;
    };
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    // Parts of a valid URI form a valid URI.
    if let Ok(uri) = format!("{rest}{query}").parse() {
        *request.uri_mut() = uri;
    }
}

pub(crate) fn router(handle: Handle, options: ApiOptions, hosts: PublicOptions) -> Router {
    let keys = ApiKeys::new(&options.keys);
    let api = Api { handle, options: Arc::new(options), hosts: Arc::new(hosts), keys: Arc::new(keys) };
    let mut open = Router::new();
    let mut authenticated = Router::new();
    for route in routes::table() {
        match route.scope {
            None => open = open.route(route.path, route.handler),
            Some(scope) => {
                let handler = route.handler.route_layer(from_fn_with_state(scope, require_scope));
                authenticated = authenticated.route(route.path, handler);
            }
        }
    }
    open.merge(authenticated.layer(from_fn_with_state(api.clone(), authenticate)))
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(map_response(error::render_for_programs))
        .layer(from_fn_with_state(api.clone(), cors::apply))
        .with_state(api)
}

async fn unknown_path(State(api): State<Api>, request: Request) -> ApiError {
    match api.keys.authenticate(request.headers()) {
        Ok(_) => ApiError::not_found("There is nothing at this path").code("not_found"),
        Err(error) => error,
    }
}

async fn method_not_allowed() -> ApiError {
    ApiError::method_not_allowed("This path does not support this method")
}

async fn authenticate(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    match api.keys.authenticate(request.headers()) {
        Ok(owner) => {
            guard::mark_authenticated(&request);
            request.extensions_mut().insert(owner);
            next.run(request).await
        }
        Err(error) if error.is_unauthorized() && request.uri().path() == routes::FIRE => {
            ApiError::invalid_fire_token().into_response()
        }
        Err(error) => error.into_response(),
    }
}

/// Checks the scope of the key before the request is read.
async fn require_scope(
    State(scope): State<Scope>,
    owner: ApiClient,
    request: Request,
    next: Next,
) -> Response {
    match owner.require(scope) {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    }
}

fn call_preview(call: &petasos_core::transcript::ToolCall) -> String {
    const MAX_PREVIEW_CHARS: usize = 80;
    const PREVIEW_FIELDS: [&str; 5] = ["command", "path", "query", "pattern", "action"];
    let arguments: Option<serde_json::Value> = serde_json::from_str(&call.arguments).ok();
    let preview_field = |arguments: &serde_json::Value| {
        PREVIEW_FIELDS
            .iter()
            .find_map(|name| arguments.get(name).and_then(serde_json::Value::as_str))
            .map(str::to_owned)
    };
    let preview = arguments.as_ref().and_then(preview_field).unwrap_or_else(|| call.name.clone());
    preview.lines().next().unwrap_or_default().chars().take(MAX_PREVIEW_CHARS).collect()
}
