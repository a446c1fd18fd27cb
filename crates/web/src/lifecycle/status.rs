//! `GET /api/status`: a public summary, and the full status for authenticated callers.
//!
//! The public part contains no path, process id, conversation or error text of a platform.

use axum::Json;
use axum::extract::State;
use petasos_core::Millis;
use petasos_core::lifecycle::stamp;
use petasos_gateway::home::state::{GatewayLoad, ProcessState};
use petasos_gateway::{GatewayStatus, Handle, clock};
use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::lifecycle::drain_status::DrainStatus;
use crate::lifecycle::profile::OwnProfile;
use crate::security::credentials::Caller;

type Fields = Map<String, Value>;

pub(crate) async fn show(
    State(handle): State<Handle>,
    caller: Caller,
    _: OwnProfile,
) -> Result<Json<Fields>, ApiError> {
    let status = handle.status().await?;
    let now = clock::now();
    Ok(Json(match caller {
        Caller::Anonymous | Caller::DrainControl => public(&status, now),
        Caller::Dashboard | Caller::Owner => full(&status, now),
    }))
}

fn public(status: &GatewayStatus, now: Millis) -> Fields {
    let lifecycle = &status.lifecycle;
    let platforms: Fields =
        status.links.iter().map(|it| (it.name.to_owned(), json!({ "state": it.link.status() }))).collect();
    let mut fields = object_fields(json!({
        "version": status.version,
        "gateway_running": true,
        "gateway_state": lifecycle.state.as_str(),
        "gateway_platforms": platforms,
        "gateway_exit_reason": lifecycle.exit_reason,
        "gateway_updated_at": stamp::format(now),
        "active_agents": lifecycle.active(),
        "restart_drain_timeout": status.drain_timeout.as_secs_f64(),
        "active_sessions": status.sessions,
        "auth_required": true,
        "gateway_mode": "single",
    }));
    let load = GatewayLoad::of(&fields, ProcessState::Live);
    fields.insert("gateway_busy".into(), load.busy.into());
    fields.insert("gateway_drainable".into(), load.drainable.into());
    fields
}

fn full(status: &GatewayStatus, now: Millis) -> Fields {
    let mut fields = object_fields(json!(status));
    fields.extend(public(status, now));
    fields.extend(object_fields(json!({
        "gateway_pid": status.pid,
        "hermes_home": status.home,
        "drain": DrainStatus::of(&status.lifecycle, now),
        "holders": status.lifecycle.holders,
    })));
    fields
}

fn object_fields(value: Value) -> Fields {
    match value {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Fields::new(),
    }
}
