//! What only the owner may do, over the control socket.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use petasos_core::lifecycle::{From, Leave};
use petasos_core::pairing::{Approval, Approved, Book};
use petasos_core::{Millis, OutboxId, Platform, outbox};
use petasos_gateway::Handle;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ApiError;
use crate::extract::{Asked, Body, Named};

const ITEMS: usize = 100;
const LIMIT: usize = 1000;

#[derive(Debug, Deserialize)]
pub(crate) struct Wanted {
    /// Those that were given up, if not said.
    state: Option<outbox::State>,
    limit: Option<usize>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Outbox {
    items: Vec<outbox::Item>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Approve {
    #[schemars(with = "String")]
    platform: Platform,
    code: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Revoke {
    #[schemars(with = "String")]
    platform: Platform,
    user: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Unlock {
    #[schemars(with = "String")]
    platform: Platform,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Forget {
    /// A kind of command; every kind, if not said.
    kind: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Pairing {
    platforms: Vec<Paired>,
}

/// Who may talk to us on a platform, and who has asked to.
#[derive(Debug, Serialize)]
struct Paired {
    platform: Platform,
    pending: Vec<Waiting>,
    approved: Vec<Approved>,
    locked_until: Option<Millis>,
}

/// Without the hash of its code.
#[derive(Debug, Serialize)]
struct Waiting {
    user_id: String,
    user_name: Option<String>,
    created_at: Millis,
}

impl Paired {
    fn new(platform: Platform, book: Book) -> Self {
        let waiting = book.pending.into_iter().map(|it| Waiting {
            user_id: it.user_id,
            user_name: it.user_name,
            created_at: it.created_at,
        });
        Self {
            platform,
            pending: waiting.collect(),
            approved: book.approved,
            locked_until: book.locked_until,
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Link {
    token: String,
    /// To be put behind the page's address.
    path: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Revoked {
    revoked: usize,
}

#[derive(Debug, Serialize)]
pub(crate) struct Done {
    /// There was something to do it to.
    done: bool,
}

type Answer<T> = Result<Json<T>, ApiError>;

pub(crate) async fn outbox(State(handle): State<Handle>, Asked(wanted): Asked<Wanted>) -> Answer<Outbox> {
    let state = wanted.state.unwrap_or(outbox::State::Dead);
    let limit = wanted.limit.unwrap_or(ITEMS).clamp(1, LIMIT);
    Ok(Json(Outbox { items: handle.outbox(state, limit).await? }))
}

pub(crate) async fn outbox_retry(State(handle): State<Handle>, Named(id): Named<i64>) -> Answer<Done> {
    Ok(Json(Done { done: handle.outbox_retry(OutboxId(id)).await? }))
}

pub(crate) async fn outbox_drop(State(handle): State<Handle>, Named(id): Named<i64>) -> Answer<Done> {
    Ok(Json(Done { done: handle.outbox_drop(OutboxId(id)).await? }))
}

pub(crate) async fn pairing(State(handle): State<Handle>) -> Answer<Pairing> {
    let books = handle.pairing().await?;
    Ok(Json(Pairing {
        platforms: books.into_iter().map(|(platform, book)| Paired::new(platform, book)).collect(),
    }))
}

pub(crate) async fn pairing_approve(
    State(handle): State<Handle>,
    Body(asked): Body<Approve>,
) -> Answer<Approved> {
    match handle.pairing_approve(asked.platform, &asked.code).await? {
        Some(Approval::Approved(approved)) => Ok(Json(approved)),
        Some(Approval::Wrong { left }) => {
            let message = "no pending request has this code";
            Err(ApiError::coded(StatusCode::NOT_FOUND, "wrong_code", message).with("left", left))
        }
        Some(Approval::Locked { until }) => {
            let minutes = until.since(petasos_gateway::clock::now()).as_secs() / 60 + 1;
            let message = format!("too many wrong codes: pairing is closed for another {minutes} min");
            Err(ApiError::coded(StatusCode::TOO_MANY_REQUESTS, "locked", message).with("until", until.0))
        }
        None => Err(ApiError::coded(StatusCode::BAD_REQUEST, "not_a_code", "this cannot be a pairing code")),
    }
}

pub(crate) async fn pairing_unlock(State(handle): State<Handle>, Body(asked): Body<Unlock>) -> Answer<Done> {
    Ok(Json(Done { done: handle.pairing_unlock(asked.platform).await? }))
}

pub(crate) async fn pairing_revoke(State(handle): State<Handle>, Body(asked): Body<Revoke>) -> Answer<Done> {
    Ok(Json(Done { done: handle.pairing_revoke(asked.platform, &asked.user).await? }))
}

pub(crate) async fn approvals_revoke(
    State(handle): State<Handle>,
    Body(asked): Body<Forget>,
) -> Answer<Revoked> {
    Ok(Json(Revoked { revoked: handle.approvals_revoke(asked.kind).await? }))
}

pub(crate) async fn login_link(State(handle): State<Handle>) -> Answer<Link> {
    let token = handle.login_link_token().await?;
    Ok(Json(Link { path: format!("/?token={token}"), token }))
}

pub(crate) async fn link_retry(State(handle): State<Handle>, Named(name): Named<String>) -> Answer<Done> {
    handle.link_retry(&name).await?;
    Ok(Json(Done { done: true }))
}

pub(crate) async fn link_pause(State(handle): State<Handle>, Named(name): Named<String>) -> Answer<Done> {
    handle.link_pause(&name).await?;
    Ok(Json(Done { done: true }))
}

pub(crate) async fn shutdown(State(handle): State<Handle>) -> StatusCode {
    handle.leave(Leave::Stop, Some("asked on the control socket".into()));
    StatusCode::ACCEPTED
}

pub(crate) async fn restart(State(handle): State<Handle>) -> Result<StatusCode, ApiError> {
    if handle.restart(From::Outside).is_restart() {
        return Ok(StatusCode::ACCEPTED);
    }
    let message = "the gateway is being stopped, and a stop comes first";
    Err(ApiError::coded(StatusCode::CONFLICT, "stopping", message))
}

pub(crate) async fn hurry(State(handle): State<Handle>) -> StatusCode {
    handle.hurry();
    StatusCode::ACCEPTED
}
