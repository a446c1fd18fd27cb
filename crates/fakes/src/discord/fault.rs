//! The faults of Discord requests.

use super::error::ServiceError;
use crate::faults::rules::RuleBuilder;

pub type Fault = crate::faults::Fault<ServiceError>;

impl Fault {
    pub fn status(status: u16, code: u64, message: impl Into<String>) -> Self {
        Self::Refuse(ServiceError::new(status, code, message))
    }

    /// Rate limit of one route, in the real service's words.
    #[must_use]
    pub fn too_many(retry_after: f64) -> Self {
        Self::Refuse(ServiceError::rate_limited(retry_after))
    }

    /// Rate limit of all routes together.
    #[must_use]
    pub fn too_many_globally(retry_after: f64) -> Self {
        Self::Refuse(ServiceError { global: true, ..ServiceError::rate_limited(retry_after) })
    }

    /// The bot may not write in the channel.
    #[must_use]
    pub fn missing_access() -> Self {
        Self::status(403, 50001, "Missing Access")
    }
}

impl RuleBuilder<'_, Fault, u64> {
    pub fn channel(self, channel: u64) -> Self {
        self.in_chat(channel)
    }
}
