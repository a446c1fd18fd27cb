//! `GET /api/status`: for anybody, how the gateway is; for whoever is signed in, also what it has to do.
//!
//! What anybody may read is content-free: no path, no process, no conversation, no error text of a platform.

use axum::Json;
use axum::extract::State;
use petasos_core::Millis;
use petasos_core::lifecycle::stamp;
use petasos_gateway::home::state::{Load, Process};
use petasos_gateway::{Handle, Status, clock};
use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::profile::OwnProfile;
use crate::situation::Quiet;
use crate::token::Caller;

type Fields = Map<String, Value>;

pub(crate) async fn status(
    State(handle): State<Handle>,
    caller: Caller,
    _: OwnProfile,
) -> Result<Json<Fields>, ApiError> {
    let (status, now) = (handle.status().await?, clock::now());
    Ok(Json(match caller {
        Caller::Anyone | Caller::DrainControl => public(&status, now),
        Caller::Dashboard | Caller::Owner => full(&status, now),
    }))
}

fn public(status: &Status, now: Millis) -> Fields {
    let life = &status.lifecycle;
    let platforms: Fields =
        status.links.iter().map(|it| (it.name.to_owned(), json!({ "state": it.link.published() }))).collect();
    let mut fields = object(json!({
        "version": status.version,
        "gateway_running": true,
        "gateway_state": life.state.as_str(),
        "gateway_platforms": platforms,
        "gateway_exit_reason": life.exit_reason,
        "gateway_updated_at": stamp::format(now),
        "active_agents": life.active(),
        "restart_drain_timeout": status.drain_timeout.as_secs_f64(),
        "active_sessions": status.sessions,
        "auth_required": true,
        "gateway_mode": "single",
    }));
    let load = Load::of(&fields, Process::Live);
    fields.insert("gateway_busy".into(), load.busy.into());
    fields.insert("gateway_drainable".into(), load.drainable.into());
    fields
}

fn full(status: &Status, now: Millis) -> Fields {
    let mut fields = object(json!(status));
    fields.extend(public(status, now));
    fields.extend(object(json!({
        "gateway_pid": status.pid,
        "hermes_home": status.home,
        "drain": Quiet::of(&status.lifecycle, now),
        "holders": status.lifecycle.holders,
    })));
    fields
}

fn object(value: Value) -> Fields {
    match value {
        Value::Object(fields) => fields,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Fields::new(),
    }
}
