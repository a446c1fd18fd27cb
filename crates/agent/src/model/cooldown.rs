//! Cooldown of models: for a fixed time after a rate limit, until the end of the turn after another failure.

use std::time::Duration;

use petasos_core::transcript::Role;
use petasos_core::{Millis, SessionId};
use petasos_runtime::clock;
use tokio::time::Instant;

use crate::model::config::ConfiguredModel;
use crate::model::failure::ModelFailureClass;
use crate::model::request::ModelRequest;

const COOLDOWN: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cooldown {
    Until(Instant),
    During(TurnMark),
}

/// Identifies a turn by its session and the time of its question. Only the last turn that gave up a model is
/// remembered; other turns try the model once more, which costs one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TurnMark(SessionId, Option<Millis>);

impl TurnMark {
    pub(super) fn of(request: &ModelRequest) -> Self {
        let question = request.messages.iter().rev().find(|row| row.role == Role::User);
        Self(request.session.clone(), question.map(|row| row.at))
    }
}

pub(super) fn is_cooling_down(link: &ConfiguredModel, request: &ModelRequest, now: Instant) -> bool {
    let cooldown = link.cooldown.lock().map(|cooldown| cooldown.clone()).unwrap_or_default();
    match cooldown {
        Some(Cooldown::Until(until)) => now < until,
        Some(Cooldown::During(turn)) => turn == TurnMark::of(request),
        None => false,
    }
}

pub(super) fn start_cooldown(link: &ConfiguredModel, request: &ModelRequest, class: ModelFailureClass) {
    let new = match class {
        // These concern the request, not the health of the model.
        ModelFailureClass::Refused | ModelFailureClass::Empty | ModelFailureClass::Truncated => return,
        ModelFailureClass::RateLimit | ModelFailureClass::Overloaded => {
            Cooldown::Until(clock::monotonic() + COOLDOWN)
        }
        ModelFailureClass::Auth
        | ModelFailureClass::Billing
        | ModelFailureClass::ServerError
        | ModelFailureClass::Timeout
        | ModelFailureClass::Unreachable
        | ModelFailureClass::StreamCut
        | ModelFailureClass::Tls
        | ModelFailureClass::ContextOverflow
        | ModelFailureClass::PayloadTooLarge
        | ModelFailureClass::OutputLimit
        | ModelFailureClass::ModelNotFound
        | ModelFailureClass::BadRequest
        | ModelFailureClass::Malformed => Cooldown::During(TurnMark::of(request)),
    };
    if let Ok(mut cooldown) = link.cooldown.lock() {
        *cooldown = Some(new);
    }
}
