//! Restart, stop and start, as dashboards ask for them.
//!
//! They expect a command that was started for them, with a process number and an outcome to ask for. Ours is the
//! gateway itself: what it was asked to do is over when it has left.

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use petasos_core::lifecycle::{From, Leave};
use petasos_gateway::Handle;
use serde::{Deserialize, Serialize};

use crate::error::ApiError;
use crate::extract::Named;
use crate::profile::OwnProfile;

const RESTART: &str = "gateway-restart";
const START: &str = "gateway-start";
const STOP: &str = "gateway-stop";

#[derive(Debug, Serialize)]
pub(crate) struct Begun {
    ok: bool,
    pid: u32,
    name: &'static str,
}

#[derive(Debug, Serialize)]
pub(crate) struct Action {
    name: &'static str,
    running: bool,
    /// Told by whoever waits for our process; we never live to see it.
    exit_code: Option<u8>,
    pid: u32,
    lines: Vec<String>,
}

fn begun(name: &'static str) -> Json<Begun> {
    Json(Begun { ok: true, pid: std::process::id(), name })
}

/// `?force=false` lets running turns finish, as `petasos restart` does.
#[derive(Debug, Deserialize)]
pub(crate) struct Forced {
    force: Option<String>,
}

impl Forced {
    fn is_forced(&self) -> bool {
        !matches!(self.force.as_deref(), Some("false" | "0" | "no"))
    }
}

/// The force path of dashboards: it overrides a drain and interrupts running turns at once. They resume after the restart.
pub(crate) async fn restart(
    State(handle): State<Handle>,
    _: OwnProfile,
    Query(forced): Query<Forced>,
) -> Result<Json<Begun>, ApiError> {
    if handle.restart(From::Outside).is_restart() {
        if forced.is_forced() {
            handle.hurry();
        }
        return Ok(begun(RESTART));
    }
    let detail = "Failed to restart gateway: it is being stopped, and a stop comes first";
    Err(ApiError::detail(StatusCode::CONFLICT, detail))
}

pub(crate) async fn stop(State(handle): State<Handle>, _: OwnProfile) -> Json<Begun> {
    handle.leave(Leave::Stop, Some("asked over HTTP".into()));
    begun(STOP)
}

/// Whoever can ask us finds us running; only a stop under way is in the way of it.
pub(crate) async fn start(State(handle): State<Handle>, _: OwnProfile) -> Result<Json<Begun>, ApiError> {
    match handle.situation().leaving {
        Some(leaving) if !leaving.why.is_restart() => {
            Err(ApiError::detail(StatusCode::CONFLICT, "Failed to start gateway: it is being stopped"))
        }
        Some(_) | None => Ok(begun(START)),
    }
}

pub(crate) async fn action(
    State(handle): State<Handle>,
    Named(name): Named<String>,
) -> Result<Json<Action>, ApiError> {
    let Some(name) = [RESTART, START, STOP].into_iter().find(|known| *known == name) else {
        return Err(ApiError::detail(StatusCode::NOT_FOUND, "Unknown action"));
    };
    let running = name != START && handle.situation().leaving.is_some();
    Ok(Json(Action { name, running, exit_code: None, pid: std::process::id(), lines: Vec::new() }))
}
