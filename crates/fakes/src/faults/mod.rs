//! Fault injection: faults, the rules that say which requests meet them, gates, and the request pipeline that
//! applies them.

use std::convert::Infallible;
use std::time::Duration;

pub(crate) mod gate;
pub(crate) mod pipeline;
pub(crate) mod rules;

/// A fault of one request. "Processed" means that the request has had its effect, such as a visible message,
/// before the fault. `E` is the error response of the service, `X` what only this service can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault<E, X = Infallible> {
    /// Waits, then continues as usual.
    Delay(Duration),
    /// Responds with this error, unprocessed.
    Refuse(E),
    /// Responds with this status and no JSON, unprocessed, as a proxy does.
    ProxyError(u16),
    /// Responds with status 200 and garbage, unprocessed.
    Garbage,
    /// Resets the connection, unprocessed.
    ResetBefore,
    /// Processed, then the connection is reset without a response: a lost acknowledgement.
    ResetAfter,
    /// Unprocessed and without a response until `release_hangs`; then continues as usual.
    Hang,
    /// Processed, then without a response until `release_hangs`.
    HangAfter,
    /// Processed, but the connection ends after half of the response.
    HalfBody,
    /// Applied by the method itself.
    Special(X),
}
