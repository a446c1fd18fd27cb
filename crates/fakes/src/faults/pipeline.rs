//! The pipeline of one request: recorded on arrival, held or refused by the rules, processed, held again, and
//! answered or not.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use tokio::time::sleep;

use super::Fault;
use super::gate::Barrier;
use super::rules::{RuleAction, Side};
use crate::server::reset::ResetHandle;
use crate::server::watched::Watched;

/// How a request ends; `T` is a successful response.
#[derive(Debug)]
pub(crate) enum Completion<T, E> {
    Respond(Result<T, E>),
    /// Half of the response.
    Truncate(Result<T, E>),
    ProxyError(u16),
    Garbage,
    Reset,
}

/// The rules that one request met.
#[derive(Debug)]
pub(crate) struct MatchedRules<F> {
    pub(crate) actions: Vec<RuleAction<F>>,
    /// Where the request hangs; a release reaches all that arrived before it.
    pub(crate) hang: Arc<Barrier>,
}

impl<E: Clone, X> MatchedRules<Fault<E, X>> {
    /// `Some`: the request ends here, unprocessed.
    pub(crate) async fn before<T>(&self) -> Option<Completion<T, E>> {
        for action in &self.actions {
            match action {
                RuleAction::Gate(Side::Before, barrier) => barrier.pass().await,
                RuleAction::Fault(Fault::Delay(wait)) => sleep(*wait).await,
                RuleAction::Fault(Fault::Hang) => self.hang.pass().await,
                RuleAction::Fault(Fault::ResetBefore) => return Some(Completion::Reset),
                RuleAction::Fault(Fault::Refuse(error)) => {
                    return Some(Completion::Respond(Err(error.clone())));
                }
                RuleAction::Fault(Fault::ProxyError(status)) => {
                    return Some(Completion::ProxyError(*status));
                }
                RuleAction::Fault(Fault::Garbage) => return Some(Completion::Garbage),
                RuleAction::Gate(Side::After, _)
                | RuleAction::Fault(
                    Fault::HangAfter | Fault::ResetAfter | Fault::HalfBody | Fault::Special(_),
                ) => {}
            }
        }
        None
    }

    pub(crate) async fn after<T>(&self, processed: Result<T, E>) -> Completion<T, E> {
        for action in &self.actions {
            match action {
                RuleAction::Gate(Side::After, barrier) => barrier.pass().await,
                RuleAction::Fault(Fault::HangAfter) => self.hang.pass().await,
                RuleAction::Fault(Fault::ResetAfter) => return Completion::Reset,
                RuleAction::Fault(Fault::HalfBody) => return Completion::Truncate(processed),
                RuleAction::Gate(Side::Before, _)
                | RuleAction::Fault(
                    Fault::Hang
                    | Fault::ResetBefore
                    | Fault::Delay(_)
                    | Fault::Refuse(_)
                    | Fault::ProxyError(_)
                    | Fault::Garbage
                    | Fault::Special(_),
                ) => {}
            }
        }
        Completion::Respond(processed)
    }
}

/// The response its caller got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallOutcome<E> {
    /// No response yet.
    Pending,
    Ok,
    Refused(E),
    /// A fault reset the connection.
    Reset,
    /// Garbage, or half of a response.
    Garbled,
    /// The caller hung up first.
    Abandoned,
}

/// A state that records calls.
pub(crate) trait CallRecord {
    type Error;

    /// Whether the call was applied, and its outcome. `None`: no longer on record.
    fn entry(&mut self, number: u64) -> Option<(&mut bool, &mut CallOutcome<Self::Error>)>;
}

/// A call on record. Dropped unclosed when the caller hangs up.
#[derive(Debug)]
pub(crate) struct CallGuard<'a, S: CallRecord> {
    state: &'a Watched<S>,
    number: u64,
    closed: bool,
}

impl<'a, S: CallRecord> CallGuard<'a, S> {
    pub(crate) fn new(state: &'a Watched<S>, number: u64) -> Self {
        Self { state, number, closed: false }
    }

    pub(crate) fn set_applied(&self, applied: bool) {
        self.state.change(|state| state.entry(self.number).map(|call| *call.0 = applied));
    }

    pub(crate) fn close(mut self, outcome: CallOutcome<S::Error>) {
        self.closed = true;
        self.set_outcome(outcome);
    }

    fn set_outcome(&self, outcome: CallOutcome<S::Error>) {
        self.state.change(|state| state.entry(self.number).map(|call| *call.1 = outcome));
    }
}

impl<S: CallRecord> Drop for CallGuard<'_, S> {
    fn drop(&mut self) {
        if !self.closed {
            self.set_outcome(CallOutcome::Abandoned);
        }
    }
}

pub(crate) fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_REQUEST)
}

pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.into()).into_response()
}

pub(crate) fn reset(connection: &ResetHandle) -> Response {
    connection.reset();
    // Never written: the connection is reset.
    StatusCode::OK.into_response()
}

/// Announces the whole body, sends half of it and ends the connection.
pub(crate) fn half(body: impl Into<Bytes>) -> Response {
    let body = body.into();
    let promised = body.len().to_string();
    let first = body.slice(..body.len() / 2);
    let parts = stream::unfold(Some(first), |part| async move {
        if let Some(part) = part {
            return Some((Ok(part), None));
        }
        // The server sends what it has whenever the body makes it wait.
        tokio::task::yield_now().await;
        Some((Err(std::io::Error::from(std::io::ErrorKind::ConnectionAborted)), None))
    });
    let head = [(header::CONTENT_TYPE, "application/json".to_owned()), (header::CONTENT_LENGTH, promised)];
    (head, Body::from_stream(parts)).into_response()
}
