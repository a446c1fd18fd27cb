//! Restart, stop and start for dashboards.
//!
//! Dashboards expect a started process whose status they can poll. Here that process is the gateway itself: the action
//! is finished when the gateway has exited.

use axum::Json;
use axum::extract::{Query, State};
use petasos_core::lifecycle::{RestartOrigin, ShutdownReason};
use petasos_gateway::Handle;
use serde::{Deserialize, Serialize};

use crate::error::ApiError;
use crate::extract::PathParameters;
use crate::lifecycle::profile::OwnProfile;

const RESTART: &str = "gateway-restart";
const START: &str = "gateway-start";
const STOP: &str = "gateway-stop";

#[derive(Debug, Serialize)]
pub(crate) struct ActionStarted {
    ok: bool,
    pid: u32,
    name: &'static str,
}

#[derive(Debug, Serialize)]
pub(crate) struct ActionStatus {
    name: &'static str,
    running: bool,
    /// Always `None`: the process reports before it exits.
    exit_code: Option<u8>,
    pid: u32,
    lines: Vec<String>,
}

fn action_started(name: &'static str) -> Json<ActionStarted> {
    Json(ActionStarted { ok: true, pid: std::process::id(), name })
}

/// `?force=false` lets running turns finish, as `petasos restart` does.
#[derive(Debug, Deserialize)]
pub(crate) struct RestartQuery {
    force: Option<String>,
}

impl RestartQuery {
    fn is_forced(&self) -> bool {
        !matches!(self.force.as_deref(), Some("false" | "0" | "no"))
    }
}

/// By default overrides a drain and interrupts running turns, which resume after the restart.
pub(crate) async fn restart(
    State(handle): State<Handle>,
    _: OwnProfile,
    Query(query): Query<RestartQuery>,
) -> Result<Json<ActionStarted>, ApiError> {
    if handle.restart(RestartOrigin::Outside).is_restart() {
        if query.is_forced() {
            handle.skip_drain();
        }
        return Ok(action_started(RESTART));
    }
    let detail = "Failed to restart gateway: it is already stopping";
    Err(ApiError::conflict("stopping", detail).into_detail())
}

pub(crate) async fn stop(State(handle): State<Handle>, _: OwnProfile) -> Json<ActionStarted> {
    handle.shut_down(ShutdownReason::Stop, Some("requested over HTTP".into()));
    action_started(STOP)
}

/// Succeeds unless the gateway is stopping: it runs already.
pub(crate) async fn start(
    State(handle): State<Handle>,
    _: OwnProfile,
) -> Result<Json<ActionStarted>, ApiError> {
    match handle.snapshot().leaving {
        Some(leaving) if !leaving.why.is_restart() => {
            Err(ApiError::conflict("stopping", "Failed to start gateway: it is stopping").into_detail())
        }
        Some(_) | None => Ok(action_started(START)),
    }
}

pub(crate) async fn action_status(
    State(handle): State<Handle>,
    PathParameters(name): PathParameters<String>,
) -> Result<Json<ActionStatus>, ApiError> {
    let Some(name) = [RESTART, START, STOP].into_iter().find(|known| *known == name) else {
        return Err(ApiError::not_found("Unknown action").into_detail());
    };
    let running = name != START && handle.snapshot().leaving.is_some();
    Ok(Json(ActionStatus { name, running, exit_code: None, pid: std::process::id(), lines: Vec::new() }))
}
