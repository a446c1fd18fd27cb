//! Who keeps a drain from being over, and what can be done about them.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use petasos_core::lifecycle::{Holder, LONGEST_EXTENSION, stamp};
use petasos_core::{Millis, SessionKey};
use petasos_gateway::{Handle, Situation, clock};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ApiError;
use crate::extract::Body;

#[derive(Debug, Serialize)]
pub(crate) struct Shown {
    state: &'static str,
    /// `None`: nothing keeps a turn from starting.
    drain: Option<Quiet>,
    active_agents: usize,
    holders: Vec<Holder>,
    restart_drain_timeout: f64,
}

/// Why no turn may start. What does not apply is `null`.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Quiet {
    kind: &'static str,
    principal: Option<String>,
    reason: Option<String>,
    since: Millis,
    requested_at: Option<String>,
    /// Of the request, which may be older than the drain and is renewed by whoever keeps it alive.
    age_seconds: u64,
    /// Turns that still run then are interrupted.
    deadline: Option<Millis>,
}

impl Quiet {
    /// A stop hides the drain that was before it.
    pub(crate) fn of(situation: &Situation, now: Millis) -> Option<Self> {
        if let Some(leaving) = &situation.leaving {
            return Some(Self {
                kind: if leaving.why.is_restart() { "restart" } else { "shutdown" },
                principal: None,
                reason: situation.exit_reason.clone(),
                since: leaving.since,
                requested_at: None,
                age_seconds: now.since(leaving.since).as_secs(),
                deadline: leaving.deadline,
            });
        }
        let drain = situation.drain.clone()?;
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
pub(crate) struct Skip {
    session: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Extend {
    session: String,
    seconds: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Skipped {
    ok: bool,
    session: SessionKey,
}

#[derive(Debug, Serialize)]
pub(crate) struct Extended {
    ok: bool,
    session: SessionKey,
    until: Millis,
}

pub(crate) async fn show(State(handle): State<Handle>) -> Json<Shown> {
    let situation = handle.situation();
    Json(Shown {
        state: situation.state.as_str(),
        drain: Quiet::of(&situation, clock::now()),
        active_agents: situation.active(),
        holders: situation.holders,
        restart_drain_timeout: handle.drain_timeout().as_secs_f64(),
    })
}

pub(crate) async fn skip(
    State(handle): State<Handle>,
    Body(asked): Body<Skip>,
) -> Result<Json<Skipped>, ApiError> {
    let session = one_of(&handle.situation().holders, &asked.session)?;
    if !handle.skip(&session) {
        return Err(idle());
    }
    Ok(Json(Skipped { ok: true, session }))
}

pub(crate) async fn extend(
    State(handle): State<Handle>,
    Body(asked): Body<Extend>,
) -> Result<Json<Extended>, ApiError> {
    let longest = LONGEST_EXTENSION.as_secs();
    if !(1..=longest).contains(&asked.seconds) {
        return Err(ApiError::bad_request(format!("seconds must be from 1 to {longest}")));
    }
    let session = one_of(&handle.situation().holders, &asked.session)?;
    let until = handle.extend(&session, Duration::from_secs(asked.seconds)).ok_or_else(idle)?;
    Ok(Json(Extended { ok: true, session, until }))
}

fn idle() -> ApiError {
    ApiError::not_found("no session at work has this name; GET /api/gateway/drain lists them")
}

/// The session at work with this key, or the only one whose key has this in it.
fn one_of(holders: &[Holder], name: &str) -> Result<SessionKey, ApiError> {
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
        [] => Err(idle()),
        [one] => Ok((*one).clone()),
        several => {
            let names: Vec<_> = several.iter().map(|key| key.as_str()).collect();
            let message = format!("this could be any of {}", names.join(", "));
            Err(ApiError::coded(StatusCode::CONFLICT, "ambiguous", message).with("sessions", names))
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use petasos_core::lifecycle::{Claim, Doing, Drain, From, How, Leave, State as Life};
    use petasos_gateway::Leaving;

    use super::*;

    fn holder(key: &str) -> Holder {
        let (key, claim) = (SessionKey(key.into()), Claim::User);
        Holder {
            key,
            claim,
            turn: None,
            since: Millis(0),
            doing: Doing::Starting,
            skipped: false,
            until: None,
        }
    }

    #[track_caller]
    fn check(name: &str, want: Result<&str, u16>) {
        let holders =
            ["agent:main:web:dm:ab", "agent:main:web:dm:abc", "agent:main:telegram:dm:7"].map(holder);
        let found = one_of(&holders, name);
        let found = found.map(|key| key.0).map_err(|error| error.into_response().status().as_u16());
        assert_eq!(found, want.map(str::to_owned), "{name:?}");
    }

    #[test]
    fn a_session_is_named_by_its_key_or_a_part_that_only_it_has() {
        check("agent:main:web:dm:ab", Ok("agent:main:web:dm:ab"));
        check("telegram", Ok("agent:main:telegram:dm:7"));
        check(" dm:abc ", Ok("agent:main:web:dm:abc"));
        check("dm:ab", Err(409));
        check("nobody", Err(404));
        check(" ", Err(400));
    }

    #[test]
    fn a_stop_hides_the_drain_before_it_and_the_age_is_that_of_the_request() {
        let drain = Drain {
            since: Millis(50_000),
            principal: Some("nas".into()),
            reason: None,
            requested_at: Some(stamp::format(Millis(10_000))),
            suppress_notification: false,
        };
        let mut situation = Situation {
            state: Life::Draining,
            drain: Some(drain),
            leaving: None,
            restart_requested: false,
            exit_reason: None,
            holders: vec![],
        };
        let external = Quiet::of(&situation, Millis(70_000)).unwrap();
        assert_eq!((external.kind, external.age_seconds), ("external", 60));
        for (why, kind) in [
            (Leave::Restart { how: How::Service, from: From::Outside }, "restart"),
            (Leave::Stop, "shutdown"),
            (Leave::Signal, "shutdown"),
        ] {
            situation.leaving = Some(Leaving { why, since: Millis(65_000), deadline: Some(Millis(99_000)) });
            let quiet = Quiet::of(&situation, Millis(70_000)).unwrap();
            assert_eq!((quiet.kind, quiet.age_seconds, quiet.deadline), (kind, 5, Some(Millis(99_000))));
        }
        situation = Situation { drain: None, leaving: None, ..situation };
        assert_eq!(Quiet::of(&situation, Millis(0)), None);
    }
}
