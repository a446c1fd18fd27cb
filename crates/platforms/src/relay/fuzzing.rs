//! Parses bytes as an event, and as a forwarded request, of a connector.

use serde_json::Value;

use super::parse::{EventContent, PendingEvent};

/// Whether one of them became an event.
pub fn event(bytes: &[u8]) -> bool {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return false };
    let pending = [PendingEvent::event(&value, None, 1, |_| false), PendingEvent::forward(&value, None, 1)];
    pending.iter().any(|it| matches!(it.content, EventContent::Event(_)))
}
