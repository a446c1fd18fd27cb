//! Drain status: the turns that a drain waits for, and how to skip or extend one.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use petasos_core::lifecycle::{ActiveTurn, MAX_EXTENSION, stamp};
use petasos_core::{Millis, SessionKey};
use petasos_gateway::{Handle, LifecycleSnapshot, clock};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ApiError;
use crate::extract::JsonBody;

#[derive(Debug, Serialize)]
pub(crate) struct DrainView {
    state: &'static str,
    /// `None`: turns may start.
    drain: Option<DrainStatus>,
    active_agents: usize,
    holders: Vec<ActiveTurn>,
    restart_drain_timeout: f64,
}

/// Why no turn may start; members that do not apply are `null`.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct DrainStatus {
    kind: &'static str,
    principal: Option<String>,
    reason: Option<String>,
    since: Millis,
    requested_at: Option<String>,
    /// Age of the request, which may be older than the drain and can be renewed.
    age_seconds: u64,
    /// When turns that still run are interrupted.
    deadline: Option<Millis>,
}

impl DrainStatus {
    /// A shutdown hides an earlier drain.
    pub(crate) fn of(snapshot: &LifecycleSnapshot, now: Millis) -> Option<Self> {
        if let Some(leaving) = &snapshot.leaving {
            return Some(Self {
                kind: if leaving.why.is_restart() { "restart" } else { "shutdown" },
                principal: None,
                reason: snapshot.exit_reason.clone(),
                since: leaving.since,
                requested_at: None,
                age_seconds: now.since(leaving.since).as_secs(),
                deadline: leaving.deadline,
            });
        }
        let drain = snapshot.drain.clone()?;
        let requested = drain.requested_at.as_deref().and_then(stamp::parse).unwrap_or(drain.since);
        Some(Self {
            kind: "external",
            principal: drain.principal,
            reason: drain.reason,
            since: drain.since,
            requested_at: drain.requested_at,
            age_seconds: now.since(requested).as_secs(),
            deadline: None,
        })
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SkipTurnRequest {
    session: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExtendTurnRequest {
    session: String,
    seconds: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct SkipTurnResponse {
    ok: bool,
    session: SessionKey,
}

#[derive(Debug, Serialize)]
pub(crate) struct ExtendTurnResponse {
    ok: bool,
    session: SessionKey,
    until: Millis,
}

pub(crate) async fn show(State(handle): State<Handle>) -> Json<DrainView> {
    let snapshot = handle.snapshot();
    Json(DrainView {
        state: snapshot.state.as_str(),
        drain: DrainStatus::of(&snapshot, clock::now()),
        active_agents: snapshot.active(),
        holders: snapshot.holders,
        restart_drain_timeout: handle.drain_timeout().as_secs_f64(),
    })
}

pub(crate) async fn skip(
    State(handle): State<Handle>,
    JsonBody(request): JsonBody<SkipTurnRequest>,
) -> Result<Json<SkipTurnResponse>, ApiError> {
    let session = find_session(&handle.snapshot().holders, &request.session)?;
    if !handle.skip(&session) {
        return Err(no_active_session());
    }
    Ok(Json(SkipTurnResponse { ok: true, session }))
}

pub(crate) async fn extend(
    State(handle): State<Handle>,
    JsonBody(request): JsonBody<ExtendTurnRequest>,
) -> Result<Json<ExtendTurnResponse>, ApiError> {
    let longest = MAX_EXTENSION.as_secs();
    if !(1..=longest).contains(&request.seconds) {
        return Err(ApiError::bad_request(format!("seconds must be from 1 to {longest}")));
    }
    let session = find_session(&handle.snapshot().holders, &request.session)?;
    let until =
        handle.extend(&session, Duration::from_secs(request.seconds)).ok_or_else(no_active_session)?;
    Ok(Json(ExtendTurnResponse { ok: true, session, until }))
}

fn no_active_session() -> ApiError {
    ApiError::not_found("no active session matches; GET /api/gateway/drain lists them")
}

/// Finds an active session by its key, or by a part that no other active session's key contains.
fn find_session(holders: &[ActiveTurn], name: &str) -> Result<SessionKey, ApiError> {
    let name = name.trim();
    if name.is_empty() {
        return Err(ApiError::bad_request("session is empty"));
    }
    if let Some(exact) = holders.iter().find(|holder| holder.key.as_str() == name) {
        return Ok(exact.key.clone());
    }
    let mut keys: Vec<_> =
        holders.iter().map(|it| &it.key).filter(|key| key.as_str().contains(name)).collect();
    keys.sort();
    keys.dedup();
    match keys.as_slice() {
        [] => Err(no_active_session()),
        [one] => Ok((*one).clone()),
        several => {
            let names: Vec<_> = several.iter().map(|key| key.as_str()).collect();
            let message = format!("several sessions match: {}", names.join(", "));
            Err(ApiError::conflict("ambiguous", message).with_field("sessions", names))
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use petasos_core::lifecycle::{
        Drain, RestartMethod, RestartOrigin, ShutdownReason, State as LifecycleState, TurnActivity,
        TurnOrigin,
    };
    use petasos_gateway::ShutdownProgress;

    use super::*;

    fn holder(key: &str) -> ActiveTurn {
        ActiveTurn {
            key: SessionKey(key.into()),
            origin: TurnOrigin::User,
            turn: None,
            since: Millis(0),
            activity: TurnActivity::Starting,
            skipped: false,
            until: None,
        }
    }

    #[track_caller]
    fn check(name: &str, want: Result<&str, u16>) {
        let holders =
            ["agent:main:web:dm:ab", "agent:main:web:dm:abc", "agent:main:telegram:dm:7"].map(holder);
        let found = find_session(&holders, name);
        let found = found.map(|key| key.0).map_err(|error| error.into_response().status().as_u16());
        assert_eq!(found, want.map(str::to_owned), "{name:?}");
    }

    #[test]
    fn finds_session_by_key_or_unique_part() {
        check("agent:main:web:dm:ab", Ok("agent:main:web:dm:ab"));
        check("telegram", Ok("agent:main:telegram:dm:7"));
        check(" dm:abc ", Ok("agent:main:web:dm:abc"));
        check("dm:ab", Err(409));
        check("unknown", Err(404));
        check(" ", Err(400));
    }

    #[test]
    fn shutdown_hides_earlier_drain() {
        let drain = Drain {
            since: Millis(50_000),
            principal: Some("nas".into()),
            reason: None,
            requested_at: Some(stamp::format(Millis(10_000))),
            suppress_notification: false,
        };
        let mut snapshot = LifecycleSnapshot {
            state: LifecycleState::Draining,
            drain: Some(drain),
            leaving: None,
            restart_requested: false,
            exit_reason: None,
            holders: vec![],
        };
        let external = DrainStatus::of(&snapshot, Millis(70_000)).unwrap();
        assert_eq!((external.kind, external.age_seconds), ("external", 60));
        for (why, kind) in [
            (
                ShutdownReason::Restart { method: RestartMethod::Service, origin: RestartOrigin::Outside },
                "restart",
            ),
            (ShutdownReason::Stop, "shutdown"),
            (ShutdownReason::Signal, "shutdown"),
        ] {
            snapshot.leaving =
                Some(ShutdownProgress { why, since: Millis(65_000), deadline: Some(Millis(99_000)) });
            let quiet = DrainStatus::of(&snapshot, Millis(70_000)).unwrap();
            assert_eq!((quiet.kind, quiet.age_seconds, quiet.deadline), (kind, 5, Some(Millis(99_000))));
        }
        snapshot = LifecycleSnapshot { drain: None, leaving: None, ..snapshot };
        assert_eq!(DrainStatus::of(&snapshot, Millis(0)), None);
    }
}
