//! What there is: health, models, capabilities, tools.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use petasos_gateway::{ToolSpec, Toolset, clock};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::Api;
use super::keys::Scope;
use super::openapi::{Operation, Output};
use super::reply::JsonObject;
use super::request::Id;
use super::routes;
use crate::error::ApiError;

#[derive(Serialize, JsonSchema)]
pub(super) struct Health {
    #[schemars(extend("const" = "ok"))]
    status: &'static str,
    platform: &'static str,
    version: &'static str,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct ModelList {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    data: Vec<Model>,
}

#[derive(Serialize, JsonSchema)]
struct Model {
    id: String,
    #[schemars(extend("const" = "model"))]
    object: &'static str,
    created: u64,
    owned_by: &'static str,
    permission: [(); 0],
    root: String,
    parent: (),
}

#[derive(Serialize, JsonSchema)]
pub(super) struct SkillList {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    data: [(); 0],
}

#[derive(Serialize, JsonSchema)]
pub(super) struct ToolsetList {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    platform: &'static str,
    data: Vec<ToolsetShown>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Toolset")]
struct ToolsetShown {
    name: &'static str,
    label: &'static str,
    description: String,
    enabled: bool,
    configured: bool,
    tools: Vec<String>,
}

pub(super) async fn health() -> Json<Health> {
    Json(Health { status: "ok", platform: "petasos", version: env!("CARGO_PKG_VERSION") })
}

pub(super) async fn models(State(api): State<Api>) -> Json<ModelList> {
    let own = &api.options.model_name;
    let created = clock::now().0 / 1000;
    let model = |id: &String, root: &String| Model {
        id: id.clone(),
        object: "model",
        created,
        owned_by: "petasos",
        permission: [],
        root: root.clone(),
        parent: (),
    };
    let routes = api.options.model_routes.iter().map(|(name, route)| model(name, route));
    Json(ModelList { object: "list", data: [model(own, own)].into_iter().chain(routes).collect() })
}

/// A file system that is fuller than this counts as degraded.
const DISK_FULL_PERCENT: u64 = 90;

/// Readiness: what keeps the agent from answering. The checks of configuration and queues tell of work for the operator
/// and do not make the gateway unready.
pub(super) async fn health_detailed(State(api): State<Api>) -> Result<Json<JsonObject>, ApiError> {
    let status = api.handle.status().await?;
    let ok = |fine: bool| if fine { "ok" } else { "degraded" };
    let (at_work, _) = api.handle.runs_at_work();
    let state = status.state.as_str();
    let busy = status.lifecycle.active() > 0;
    let platforms: serde_json::Map<String, Value> = status
        .links
        .iter()
        .map(|link| {
            (link.name.to_owned(), json!({ "state": format!("{:?}", link.link.standing()).to_lowercase() }))
        })
        .collect();
    let stored = status.store_trouble.is_none();
    let room = status.disk_used_percent.is_none_or(|used| used < DISK_FULL_PERCENT);
    let serving = matches!(state, "running" | "draining");
    let checks = json!({
        "state_db": { "status": ok(stored) },
        "config": { "status": ok(!status.config_changed), "changed_since_start": status.config_changed },
        "model": { "status": ok(!status.model.failing), "name": status.model.name },
        "disk": { "status": ok(room), "used_percent": status.disk_used_percent },
        "gateway": { "status": ok(serving), "state": state, "platforms": platforms.len() },
        "background_queues": {
            "status": ok(status.outbox.dead == 0), "active_api_runs": at_work, "inbox_queued": status.inbox.queued,
            "outbox_due": status.outbox.due, "outbox_dead": status.outbox.dead,
        },
    });
    let fine = stored && room && serving && !status.model.failing;
    Ok(Json(JsonObject::from(json!({
        "status": ok(fine), "readiness": { "status": ok(fine), "checks": checks }, "platform": "petasos",
        "version": status.version, "gateway_state": state, "platforms": platforms,
        "active_agents": status.lifecycle.active(), "gateway_busy": busy, "gateway_drainable": true,
        "exit_reason": status.lifecycle.exit_reason, "updated_at": clock::now().0 / 1000, "pid": status.pid,
    }))))
}

pub(super) async fn capabilities(State(api): State<Api>) -> Json<JsonObject> {
    let endpoints: serde_json::Map<String, Value> = routes::table()
        .into_iter()
        .map(|route| (route.name.to_owned(), json!({ "method": route.method, "path": route.path })))
        .collect();
    Json(JsonObject::from(json!({
        "object": "hermes.api_server.capabilities", "platform": "petasos", "model": api.options.model_name,
        "auth": { "type": "bearer", "required": true, "scopes": Scope::ALL.map(Scope::as_str) },
        "runtime": {
            "mode": "server_agent", "tool_execution": "server", "split_runtime": false,
            "description": "Tools run on the gateway's machine; runs belong to the gateway and outlive their clients.",
        },
        "features": {
            "chat_completions": true, "chat_completions_streaming": true, "responses_api": true,
            "responses_streaming": true, "run_submission": true, "run_status": true, "run_events_sse": true,
            "run_events_replay": true, "run_stop": true, "run_approval_response": true,
            "tool_progress_events": true, "approval_events": true, "session_resources": true,
            "session_chat": true, "session_chat_streaming": true, "session_fork": true, "idempotency": true,
            "durable_runs": true, "admin_config_rw": false, "jobs_admin": true, "memory_write_api": false,
            "skills_api": false, "audio_api": false, "realtime_voice": false,
            "session_continuity_header": "X-Hermes-Session-Id", "session_key_header": "X-Hermes-Session-Key",
            "cors": !api.options.origins.is_empty(),
        },
        "endpoints": endpoints,
    })))
}

/// No platform of ours is called on this port: those that are called have listeners of their own.
pub(super) async fn platform_events(_: Id) -> NotConnected {
    NotConnected
}

/// The only answer to a platform that calls here.
pub(super) struct NotConnected;

impl IntoResponse for NotConnected {
    fn into_response(self) -> Response {
        ApiError::unavailable("platform_unavailable", "Platform adapter is not connected").into_response()
    }
}

impl Output for NotConnected {
    fn describe(operation: &mut Operation<'_>) {
        operation.error(503, "No platform is connected here");
    }
}

/// There are none.
pub(super) async fn skills() -> Json<SkillList> {
    Json(SkillList { object: "list", data: [] })
}

/// The agent's tools, by what they are for.
pub(super) async fn toolsets(State(api): State<Api>) -> Json<ToolsetList> {
    let shown = |(set, tools): (Toolset, Vec<ToolSpec>)| {
        let sentences = tools.iter().filter_map(|tool| tool.description.split(['.', '\n']).next());
        ToolsetShown {
            name: set.name(),
            label: set.label(),
            description: sentences.collect::<Vec<_>>().join("; "),
            enabled: true,
            configured: true,
            tools: tools.into_iter().map(|tool| tool.name).collect(),
        }
    };
    let data = api.handle.toolsets().into_iter().map(shown).collect();
    Json(ToolsetList { object: "list", platform: "api_server", data })
}
