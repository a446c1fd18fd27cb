//! The drain marker `.drain_request.json`: somebody outside asks us to take no new turns.
//!
//! What counts is that the file is there. Its contents can only weaken that, and only when they say clearly that
//! the marker was meant for another boot or has been forgotten; whatever is missing, garbled or of the wrong
//! type says nothing. A gateway that drains by mistake is noticed, one that ignores a drain loses turns.

pub mod stamp;

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::time::Millis;

/// What `action` says in a marker that we write.
pub const ACTION: &str = "drain";

/// A marker that is there. The default is one without (readable) contents.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(from = "Value")]
pub struct Marker {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// ISO time; writing the marker again renews it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_at: Option<String>,
    /// Who asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// The boot it is meant for: `<boot id>:<start of process 1>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<String>,
    /// Home channels are not told about a stop.
    pub suppress_notification: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Whether a marker counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    Active,
    /// Left over from before the machine or the container was started again.
    OtherBoot,
    /// Nobody has renewed it for too long.
    Expired {
        age: Duration,
    },
}

impl Marker {
    /// Never fails: bytes that make no sense are a marker without contents.
    pub fn parse(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_default()
    }

    /// When it was asked for, if it says so.
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

/// `own_epoch`: ours, if we know it. A `max_age` of zero lets a marker count for ever.
pub fn standing(marker: &Marker, own_epoch: Option<&str>, max_age: Duration, now: Millis) -> Standing {
    if let (Some(own), Some(its)) = (own_epoch, marker.epoch.as_deref())
        && differ(own, its)
    {
        return Standing::OtherBoot;
    }
    let age = marker.requested().map(|at| now.since(at)).unwrap_or_default();
    if !max_age.is_zero() && age > max_age {
        return Standing::Expired { age };
    }
    Standing::Active
}

/// Whether home channels are to be spared the news of a stop. In doubt they are told.
pub fn suppresses(marker: &Marker, own_epoch: Option<&str>, max_age: Duration, now: Millis) -> bool {
    match standing(marker, own_epoch, max_age, now) {
        Standing::Active => marker.suppress_notification,
        Standing::OtherBoot | Standing::Expired { .. } => false,
    }
}

/// Two boots are different if a half that both know is. Where `/proc` shows only part of itself, a half is empty.
fn differ(own: &str, its: &str) -> bool {
    let halves = |epoch| str::split_once(epoch, ':').unwrap_or((epoch, ""));
    let ((own_boot, own_start), (its_boot, its_start)) = (halves(own.trim()), halves(its.trim()));
    let known = |one: &str, other: &str| !one.is_empty() && !other.is_empty() && one != other;
    known(own_boot, its_boot) || known(own_start, its_start)
}

#[cfg(test)]
#[path = "marker/tests.rs"]
mod tests;
