//! What an outward failure means for us. The place that knows the protocol answers once.

use core::time::Duration;

use serde::{Deserialize, Serialize};

/// What to do about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// Try again, not before `after` if the other side named a wait.
    Later { after: Option<Duration> },
    /// This one request will never be taken; others may.
    Refused,
    /// Nothing will work until a person changes something (a token, a setting).
    Fatal,
}

/// Whether a failed request may have had its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reached {
    /// Certainly not: it never left, or was answered with an error.
    No,
    /// It was sent and no answer came back.
    Maybe,
    /// Whoever took it cannot tell either: to ask again under its key would tell nothing.
    Untold,
}
