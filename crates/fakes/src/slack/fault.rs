//! The faults of Slack requests.
//!
//! Besides methods, a rule can name two steps of a socket: `socket` (the upgrade) and `hello` (before the first
//! frame).

use serde_json::json;

use super::error::ServiceError;
use crate::faults::rules::RuleBuilder;

pub type Fault = crate::faults::Fault<ServiceError>;

impl Fault {
    #[must_use]
    pub fn error(error: &str) -> Self {
        Self::Refuse(ServiceError::new(error))
    }

    /// Rate limit with `Retry-After`.
    #[must_use]
    pub fn too_many(seconds: u64) -> Self {
        Self::Refuse(ServiceError::too_many(seconds))
    }

    /// The token lacks the scope that the method needs.
    #[must_use]
    pub fn missing_scope(needed: &str) -> Self {
        Self::Refuse(ServiceError::body(json!({
            "ok": false, "error": "missing_scope", "needed": needed, "provided": "app_mentions:read",
        })))
    }
}

impl RuleBuilder<'_, Fault, String> {
    pub fn channel(self, channel: impl Into<String>) -> Self {
        self.in_chat(channel.into())
    }
}
