//! Health, models, capabilities, skills and toolsets.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use petasos_gateway::{ToolSpec, Toolset, clock};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::api::Api;
use crate::api::keys::Scope;
use crate::api::openapi::{Operation, Output};
use crate::api::routes;
use crate::api::wire::request::PathId;
use crate::api::wire::response::JsonObject;
use crate::error::ApiError;

#[derive(Serialize, JsonSchema)]
pub(crate) struct Health {
    #[schemars(extend("const" = "ok"))]
    status: &'static str,
    platform: &'static str,
    version: &'static str,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct ModelList {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    data: Vec<ModelObject>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Model")]
struct ModelObject {
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
pub(crate) struct SkillList {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    data: [(); 0],
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct ToolsetList {
    #[schemars(extend("const" = "list"))]
    object: &'static str,
    platform: &'static str,
    data: Vec<ToolsetObject>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Toolset")]
struct ToolsetObject {
    name: &'static str,
    label: &'static str,
    description: String,
    enabled: bool,
    configured: bool,
    tools: Vec<String>,
}

pub(crate) async fn health() -> Json<Health> {
    Json(Health { status: "ok", platform: "petasos", version: env!("CARGO_PKG_VERSION") })
}

pub(crate) async fn models(State(api): State<Api>) -> Json<ModelList> {
    let own = &api.options.model_name;
    let created = clock::now().0 / 1000;
    let model = |id: &String, root: &String| ModelObject {
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

/// A fuller file system counts as degraded.
const DISK_FULL_PERCENT: u64 = 90;

/// Readiness of the agent. The checks `config` and `background_queues` inform the operator and do not affect readiness.
pub(crate) async fn health_detailed(State(api): State<Api>) -> Result<Json<JsonObject>, ApiError> {
    let status = api.handle.status().await?;
    let ok = |ready: bool| if ready { "ok" } else { "degraded" };
    let (active_runs, _) = api.handle.active_runs();
    let state = status.state.as_str();
    let is_busy = status.lifecycle.active() > 0;
    let platforms: serde_json::Map<String, Value> = status
        .links
        .iter()
        .map(|link| {
            (
                link.name.to_owned(),
                json!({ "state": format!("{:?}", link.link.availability()).to_lowercase() }),
            )
        })
        .collect();
    let store_ok = status.store_trouble.is_none();
    let disk_ok = status.disk_used_percent.is_none_or(|used| used < DISK_FULL_PERCENT);
    let gateway_ok = matches!(state, "running" | "draining");
    let checks = json!({
        "state_db": { "status": ok(store_ok) },
        "config": { "status": ok(!status.config_changed), "changed_since_start": status.config_changed },
        "model": { "status": ok(!status.model.failing), "name": status.model.name },
        "disk": { "status": ok(disk_ok), "used_percent": status.disk_used_percent },
        "gateway": { "status": ok(gateway_ok), "state": state, "platforms": platforms.len() },
        "background_queues": {
            "status": ok(status.outbox.dead == 0), "active_api_runs": active_runs, "inbox_queued": status.inbox.queued,
            "outbox_due": status.outbox.due, "outbox_dead": status.outbox.dead,
        },
    });
    let ready = store_ok && disk_ok && gateway_ok && !status.model.failing;
    Ok(Json(JsonObject::from(json!({
        "status": ok(ready), "readiness": { "status": ok(ready), "checks": checks }, "platform": "petasos",
        "version": status.version, "gateway_state": state, "platforms": platforms,
        "active_agents": status.lifecycle.active(), "gateway_busy": is_busy, "gateway_drainable": true,
        "exit_reason": status.lifecycle.exit_reason, "updated_at": clock::now().0 / 1000, "pid": status.pid,
    }))))
}

pub(crate) async fn capabilities(State(api): State<Api>) -> Json<JsonObject> {
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

/// Platform webhooks use their own listeners.
pub(crate) async fn platform_events(_: PathId) -> NotConnected {
    NotConnected
}

pub(crate) struct NotConnected;

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

/// Always empty.
pub(crate) async fn skills() -> Json<SkillList> {
    Json(SkillList { object: "list", data: [] })
}

pub(crate) async fn toolsets(State(api): State<Api>) -> Json<ToolsetList> {
    let shown = |(set, tools): (Toolset, Vec<ToolSpec>)| {
        let sentences = tools.iter().filter_map(|tool| tool.description.split(['.', '\n']).next());
        ToolsetObject {
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
