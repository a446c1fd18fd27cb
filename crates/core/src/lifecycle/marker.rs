//! The drain marker `.drain_request.json`: an external request to start no new turns.
//!
//! The existence of the file is the request. Its contents can only invalidate it, by naming another boot or an old time;
//! missing, malformed or mistyped contents are ignored. A drain by mistake is noticed, while an ignored drain loses turns.

pub mod stamp;

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::time::Millis;

/// The `action` of our own markers.
pub const ACTION: &str = "drain";

/// An existing marker. The default has no (readable) contents.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Value")]
pub struct Marker {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// ISO time, renewed by rewriting the marker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// The boot of the request: `<boot id>:<start of process 1>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
    /// Home channels are not notified of a stop.
    pub suppress_notification: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkerStatus {
    Active,
    /// From a previous boot of the machine or container.
    OtherBoot,
    /// Not renewed for too long.
    Expired {
        age: Duration,
    },
}

impl Marker {
    /// Invalid bytes are a marker without contents.
    pub fn parse(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_default()
    }

    /// The time of the request, if stated.
    pub fn requested(&self) -> Option<Millis> {
        self.requested_at.as_deref().and_then(stamp::parse)
    }
}

impl From<Value> for Marker {
    fn from(value: Value) -> Self {
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
        Self {
            action: text("action"),
            requested_at: text("requested_at"),
            principal: text("principal"),
            epoch: text("epoch"),
            suppress_notification: value.get("suppress_notification") == Some(&Value::Bool(true)),
            reason: text("reason"),
        }
    }
}

/// `own_epoch`: the current boot, if known. A `max_age` of zero disables expiry.
pub fn status(marker: &Marker, own_epoch: Option<&str>, max_age: Duration, now: Millis) -> MarkerStatus {
    if let (Some(own), Some(other)) = (own_epoch, marker.epoch.as_deref())
        && is_other_boot(own, other)
    {
        return MarkerStatus::OtherBoot;
    }
    let age = marker.requested().map(|at| now.since(at)).unwrap_or_default();
    if !max_age.is_zero() && age > max_age {
        return MarkerStatus::Expired { age };
    }
    MarkerStatus::Active
}

/// Compares the halves that both sides know. A half is empty if `/proc` is only partly visible.
fn is_other_boot(own: &str, other: &str) -> bool {
    let halves = |epoch| str::split_once(epoch, ':').unwrap_or((epoch, ""));
    let (own_boot, own_start) = halves(own.trim());
    let (other_boot, other_start) = halves(other.trim());
    let differ = |one: &str, other: &str| !one.is_empty() && !other.is_empty() && one != other;
    differ(own_boot, other_boot) || differ(own_start, other_start)
}

#[cfg(test)]
#[path = "marker/tests.rs"]
mod tests;
