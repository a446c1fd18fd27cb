//! Which models are not asked first: one that wants to be left alone, for a while; one that failed in another way, until
//! the turn it failed in is over.

use std::time::Duration;

use petasos_core::transcript::Role;
use petasos_core::{Millis, SessionId};
use tokio::time::Instant;

use crate::config::Link;
use crate::failure::Class;
use crate::request::Request;

/// How long a model is left alone that asked for it.
const REST: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Rest {
    Until(Instant),
    During(Turn),
}

/// What a turn is known by: its conversation, and when its question was written. Of several that left a model the last
/// one is remembered; the others try it once more, which costs a request and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Turn(SessionId, Option<Millis>);

impl Turn {
    pub(super) fn of(request: &Request) -> Self {
        let asked = request.messages.iter().rev().find(|row| row.role == Role::User);
        Self(request.session.clone(), asked.map(|row| row.at))
    }
}

pub(super) fn rests(link: &Link, request: &Request, now: Instant) -> bool {
    let rest = link.resting.lock().map(|rest| rest.clone()).unwrap_or_default();
    match rest {
        Some(Rest::Until(until)) => now < until,
        Some(Rest::During(turn)) => turn == Turn::of(request),
        None => false,
    }
}

/// It was given up for this reason.
pub(super) fn rest(link: &Link, request: &Request, class: Class) {
    let rest = match class {
        // These are about the question, not about the model's health.
        Class::Refused | Class::Empty | Class::Truncated => return,
        Class::RateLimit | Class::Overloaded => Rest::Until(Instant::now() + REST),
        Class::Auth
        | Class::Billing
        | Class::ServerError
        | Class::Timeout
        | Class::Unreached
        | Class::Cut
        | Class::Tls
        | Class::ContextOverflow
        | Class::PayloadTooLarge
        | Class::OutputLimit
        | Class::ModelNotFound
        | Class::BadRequest
        | Class::Malformed => Rest::During(Turn::of(request)),
    };
    if let Ok(mut resting) = link.resting.lock() {
        *resting = Some(rest);
    }
}
