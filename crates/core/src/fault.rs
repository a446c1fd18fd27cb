//! Classification of failures of outgoing requests, made once by the code that knows the protocol.

use core::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// Retry, not before `after` if the other side named a wait.
    Later { after: Option<Duration> },
    /// This request will never be accepted; others may be.
    Refused,
    /// Every request fails until a person changes something (a token, a setting).
    Fatal,
}

/// Whether a failed request may have had an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reached {
    /// No: it was not sent, or was answered with an error.
    No,
    /// The outcome is unknown: it was sent, but no answer arrived.
    Maybe,
    /// The peer cannot report the outcome either, not even if asked again under the same key.
    #[serde(rename = "Untold")]
    Unknowable,
}
