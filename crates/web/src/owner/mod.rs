//! Owner-only routes of the control socket: outbox, pairing, approvals, links, restart and shutdown.

pub(crate) mod notify;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use petasos_core::lifecycle::{RestartOrigin, ShutdownReason};
use petasos_core::pairing::{CodeApproval, PairedUser, PairingState};
use petasos_core::{Millis, OutboxId, Platform, outbox};
use petasos_gateway::Handle;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ApiError;
use crate::extract::{JsonBody, PathParameters, QueryParameters};

const DEFAULT_ITEMS: usize = 100;
const MAX_ITEMS: usize = 1000;

#[derive(Debug, Deserialize)]
pub(crate) struct OutboxQuery {
    /// Defaults to dead letters.
    state: Option<outbox::State>,
    limit: Option<usize>,
}

#[derive(Debug, Serialize)]
pub(crate) struct OutboxList {
    items: Vec<outbox::Item>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApprovePairingRequest {
    #[schemars(with = "String")]
    platform: Platform,
    code: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RevokePairingRequest {
    #[schemars(with = "String")]
    platform: Platform,
    user: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UnlockPairingRequest {
    #[schemars(with = "String")]
    platform: Platform,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RevokeApprovalsRequest {
    /// A category of commands; all categories by default.
    kind: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct PairingList {
    platforms: Vec<PlatformPairing>,
}

/// Paired users and pending pairing requests of a platform.
#[derive(Debug, Serialize)]
struct PlatformPairing {
    platform: Platform,
    pending: Vec<PendingPairing>,
    approved: Vec<PairedUser>,
    locked_until: Option<Millis>,
}

/// A pending request without the hash of its code.
#[derive(Debug, Serialize)]
struct PendingPairing {
    user_id: String,
    user_name: Option<String>,
    created_at: Millis,
}

impl PlatformPairing {
    fn new(platform: Platform, state: PairingState) -> Self {
        let pending = state.pending.into_iter().map(|it| PendingPairing {
            user_id: it.user_id,
            user_name: it.user_name,
            created_at: it.created_at,
        });
        Self {
            platform,
            pending: pending.collect(),
            approved: state.approved,
            locked_until: state.locked_until,
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct LoginLink {
    token: String,
    /// Relative to the address of the page.
    path: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct RevokedCount {
    revoked: usize,
}

#[derive(Debug, Serialize)]
pub(crate) struct DoneResponse {
    /// False if there was nothing to change.
    done: bool,
}

type JsonResult<T> = Result<Json<T>, ApiError>;

pub(crate) async fn outbox(
    State(handle): State<Handle>,
    QueryParameters(query): QueryParameters<OutboxQuery>,
) -> JsonResult<OutboxList> {
    let state = query.state.unwrap_or(outbox::State::Dead);
    let limit = query.limit.unwrap_or(DEFAULT_ITEMS).clamp(1, MAX_ITEMS);
    Ok(Json(OutboxList { items: handle.outbox(state, limit).await? }))
}

pub(crate) async fn outbox_retry(
    State(handle): State<Handle>,
    PathParameters(id): PathParameters<i64>,
) -> JsonResult<DoneResponse> {
    Ok(Json(DoneResponse { done: handle.outbox_retry(OutboxId(id)).await? }))
}

pub(crate) async fn outbox_drop(
    State(handle): State<Handle>,
    PathParameters(id): PathParameters<i64>,
) -> JsonResult<DoneResponse> {
    Ok(Json(DoneResponse { done: handle.outbox_drop(OutboxId(id)).await? }))
}

pub(crate) async fn pairing(State(handle): State<Handle>) -> JsonResult<PairingList> {
    let states = handle.pairing().await?;
    Ok(Json(PairingList {
        platforms: states
            .into_iter()
            .map(|(platform, state)| PlatformPairing::new(platform, state))
            .collect(),
    }))
}

pub(crate) async fn pairing_approve(
    State(handle): State<Handle>,
    JsonBody(request): JsonBody<ApprovePairingRequest>,
) -> JsonResult<PairedUser> {
    match handle.pairing_approve(request.platform, &request.code).await? {
        Some(CodeApproval::Approved(approved)) => Ok(Json(approved)),
        Some(CodeApproval::Wrong { left }) => Err(ApiError::wrong_pairing_code(left)),
        Some(CodeApproval::Locked { until }) => {
            let minutes = until.since(petasos_gateway::clock::now()).as_secs() / 60 + 1;
            Err(ApiError::pairing_locked(minutes, until))
        }
        None => Err(ApiError::invalid("not_a_code", "this is not a pairing code")),
    }
}

pub(crate) async fn pairing_unlock(
    State(handle): State<Handle>,
    JsonBody(request): JsonBody<UnlockPairingRequest>,
) -> JsonResult<DoneResponse> {
    Ok(Json(DoneResponse { done: handle.pairing_unlock(request.platform).await? }))
}

pub(crate) async fn pairing_revoke(
    State(handle): State<Handle>,
    JsonBody(request): JsonBody<RevokePairingRequest>,
) -> JsonResult<DoneResponse> {
    Ok(Json(DoneResponse { done: handle.pairing_revoke(request.platform, &request.user).await? }))
}

pub(crate) async fn approvals_revoke(
    State(handle): State<Handle>,
    JsonBody(request): JsonBody<RevokeApprovalsRequest>,
) -> JsonResult<RevokedCount> {
    Ok(Json(RevokedCount { revoked: handle.approvals_revoke(request.kind).await? }))
}

pub(crate) async fn login_link(State(handle): State<Handle>) -> JsonResult<LoginLink> {
    let token = handle.login_link_token().await?;
    Ok(Json(LoginLink { path: format!("/?token={token}"), token }))
}

pub(crate) async fn link_retry(
    State(handle): State<Handle>,
    PathParameters(name): PathParameters<String>,
) -> JsonResult<DoneResponse> {
    handle.link_retry(&name).await?;
    Ok(Json(DoneResponse { done: true }))
}

pub(crate) async fn link_pause(
    State(handle): State<Handle>,
    PathParameters(name): PathParameters<String>,
) -> JsonResult<DoneResponse> {
    handle.link_pause(&name).await?;
    Ok(Json(DoneResponse { done: true }))
}

pub(crate) async fn shutdown(State(handle): State<Handle>) -> StatusCode {
    handle.shut_down(ShutdownReason::Stop, Some("requested on the control socket".into()));
    StatusCode::ACCEPTED
}

pub(crate) async fn restart(State(handle): State<Handle>) -> Result<StatusCode, ApiError> {
    if handle.restart(RestartOrigin::Outside).is_restart() {
        return Ok(StatusCode::ACCEPTED);
    }
    Err(ApiError::conflict("stopping", "the gateway is already stopping"))
}

pub(crate) async fn hurry(State(handle): State<Handle>) -> StatusCode {
    handle.skip_drain();
    StatusCode::ACCEPTED
}
